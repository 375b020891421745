"""Where specs are looked for, and in which order."""

from __future__ import annotations

from pathlib import Path

import pytest

from planner.errors import SpecError
from planner.specs import spec_paths
from planner.specs.catalogue import Catalogue, find
from planner.specs.spec_paths import SpecKind, price_files, spec_folders


@pytest.mark.parametrize("kind", ["gpus", "clusters", "efficiency"])
def test_shipped_folders_hold_files(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (folder,) = spec_folders(kind)
    assert list(folder.glob("*.toml"))


def test_order_is_option_then_working_directory_then_shipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shipped = spec_folders("gpus")[-1].resolve()
    option, local = tmp_path / "mine", tmp_path / "hardware_specs"
    for root in (option, local):
        (root / "gpus").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    folders = [folder.resolve() for folder in spec_folders(SpecKind.GPUS, option)]
    assert folders == [option / "gpus", local / "gpus", shipped]


def test_a_folder_reached_twice_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    root = spec_folders("gpus")[-1].resolve().parent
    monkeypatch.chdir(root.parent)
    assert [folder.resolve() for folder in spec_folders("gpus", root)] == [root / "gpus"]


def test_search_spaces_of_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "search_spaces").mkdir()
    monkeypatch.chdir(tmp_path)
    assert spec_folders("spaces")[0].resolve() == tmp_path / "search_spaces"


def test_the_own_file_hides_the_shipped_one(tmp_path: Path) -> None:
    text = find("gpus", "h100-sxm-80gb").read_text(encoding="utf-8")
    (tmp_path / "gpus").mkdir()
    (tmp_path / "gpus" / "h100-sxm-80gb.toml").write_text(
        text.replace("value = 80, ", "value = 40, "), encoding="utf-8"
    )
    own = Catalogue(tmp_path)
    assert own.load_gpu("h100").spec.memory_capacity == 40 * 2**30
    assert own.names("gpus").count("h100-sxm-80gb") == 1
    assert Catalogue().load_gpu("h100").spec.memory_capacity == 80 * 2**30


def test_a_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="no such folder"):
        Catalogue(tmp_path / "nowhere")


def test_a_wheel_carries_the_data_inside_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside = tmp_path / "planner" / "data" / "hardware_specs"
    (inside / "gpus").mkdir(parents=True)
    (inside / "prices.csv").touch()
    monkeypatch.setattr(spec_paths, "_PACKAGE", tmp_path / "planner")
    monkeypatch.chdir(tmp_path)
    assert spec_folders("gpus") == [inside / "gpus"]
    assert price_files() == [inside / "prices.csv"]
