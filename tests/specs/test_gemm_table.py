"""Tables of measured products: what they must be, and what is made of them."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pytest

from planner.errors import SpecError
from planner.specs.catalogue import load_gpu, load_gpu_with_provenance
from planner.specs.hardware import COLUMNS, load_gemm_table

SIZES = (128, 4096, 8192)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "kernels").mkdir()
    (tmp_path / "gpus").mkdir()
    return tmp_path


def _table(**changed: str) -> str:
    """Half the usual rate where any size is 128; ``changed``: other shares, by line."""
    lines = {
        f"at_{m}_{n}_{k}": f"{m},{n},{k},{0.8 if min(m, n, k) > 128 else 0.4}"
        for m, n, k in product(SIZES, repeat=3)
    }
    return "\n".join([COLUMNS, *({**lines, **changed}).values()]) + "\n"


def _work(folder: Path, text: str) -> np.ndarray:
    (folder / "kernels" / "mine.csv").write_text(text, encoding="utf-8")
    return np.exp(load_gemm_table("mine", "a test", folder).work)


def test_work_is_that_of_large_products_of_the_same_time(folder: Path) -> None:
    work = _work(folder, _table())
    assert work[2, 2, 2] == pytest.approx(2 * 8192**3)
    assert work[0, 1, 2] == pytest.approx(2 * 2 * 128 * 4096 * 8192)


def test_a_larger_product_never_takes_less_time(folder: Path) -> None:
    slow = _work(folder, _table(at_128_4096_4096="128,4096,4096,0.001"))
    assert all(np.all(np.diff(slow, axis=axis) >= -1e-6) for axis in range(3))
    usual = _work(folder, _table())
    assert usual[0, 1, 1] < slow[0, 1, 1] < usual[0, 1, 1] * 0.4 / 0.001


def test_a_doubtful_size_lies_between_what_smaller_and_larger_ones_allow(folder: Path) -> None:
    """One slow small product raises larger ones by the square root of what it is too slow."""
    usual, slow = (
        _work(folder, _table(**changed))
        for changed in ({}, {"at_128_128_128": "128,128,128,0.00001"})
    )
    excess = slow[0, 0, 0] / usual[0, 0, 1]
    assert excess == pytest.approx(np.sqrt(2 * 128**3 * 0.8 / 0.00001 / usual[0, 0, 1]), rel=0.01)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        pytest.param("", "first line must be", id="empty"),
        pytest.param("m,n,k,share\n", "first line must be rows,columns,depth,share", id="header"),
        pytest.param(_table(at_128_128_128=""), "each combination", id="a line is missing"),
        pytest.param(_table(more="128,128,128,0.4"), "each combination", id="one twice"),
        pytest.param(_table(at_128_128_128="128,128,128,0"), "positive", id="zero"),
        pytest.param(_table(at_128_128_128="128,128,128,nan"), "positive", id="not a number"),
        pytest.param(_table(at_128_128_128="128,128,128,fast"), "cannot be read", id="a word"),
        pytest.param(_table(at_128_128_128="128,128,128"), "cannot be read", id="a column short"),
        pytest.param(f"{COLUMNS}\n1,2,3,0.5\n", "each combination", id="one line"),
        pytest.param(f"{COLUMNS}\n", "has no products", id="no lines"),
    ],
)
def test_faults_name_the_file(folder: Path, text: str, fault: str) -> None:
    with pytest.raises(SpecError, match=rf"mine\.csv.*{fault}"):
        _work(folder, text)


def test_an_unknown_name_is_told_with_the_gpu_file(folder: Path) -> None:
    path = folder / "gpus" / "mine.toml"
    text = load_gpu_with_provenance("a100-sxm-80gb").path.read_text(encoding="utf-8")
    path.write_text(text.replace("a100-sxm-80gb-bf16", "a100-sxm-80gb-bf61"), encoding="utf-8")
    with pytest.raises(SpecError, match=r"mine\.toml: efficiency\.gemm_table .*Did you mean a100"):
        load_gpu("mine", folder)


def test_a_faulty_table_is_a_fault_of_the_gpu_that_names_it(folder: Path) -> None:
    (folder / "kernels" / "a100-sxm-80gb-bf16.csv").write_text("rows\n", encoding="utf-8")
    with pytest.raises(SpecError, match=r"bf16\.csv:1: the first line"):
        load_gpu("a100-sxm-80gb", folder)


def test_siblings_of_the_a100_take_its_table() -> None:
    names = ("a100-sxm-40gb", "a100-pcie-80gb", "a800-sxm-80gb")
    tables = {load_gpu(name).efficiency.gemm_table for name in names}
    assert tables == {"a100-sxm-80gb-bf16"}


def test_another_table_is_another_digest(folder: Path) -> None:
    before = load_gpu_with_provenance("a100-sxm-80gb", folder).digest
    (folder / "kernels" / "a100-sxm-80gb-bf16.csv").write_text(_table(), encoding="utf-8")
    assert load_gpu_with_provenance("a100-sxm-80gb", folder).digest != before
