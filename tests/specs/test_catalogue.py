"""Specs by name: exact, loosely written, by alias or path, and unknown."""

from __future__ import annotations

import pickle
import time
from pathlib import Path

import pytest

import planner
from planner.base.enums import (
    LinkKind,
)
from planner.errors import SpecError
from planner.specs.catalogue import (
    Catalogue,
    default_cluster,
    find,
    load_cluster,
    load_gpu,
    load_gpu_with_provenance,
    names,
)
from planner.specs.spec_files import read_toml
from planner.specs.spec_paths import spec_folders


@pytest.mark.parametrize(
    ("name", "stem"),
    [
        ("h100-sxm-80gb", "h100-sxm-80gb"),
        ("H100_SXM 80GB", "h100-sxm-80gb"),
        ("h100", "h100-sxm-80gb"),
        ("A100", "a100-sxm-80gb"),
        ("RTX 4090", "rtx4090-24gb"),
        ("TPUv4", "tpu-v4"),
    ],
)
def test_names_are_found_however_written(name: str, stem: str) -> None:
    assert find("gpus", name).stem == stem


def test_a_path_is_taken_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(find("gpus", "l4").read_text(encoding="utf-8"), encoding="utf-8")
    assert find("gpus", str(path)) == path
    assert load_gpu(str(path)).name == "l4-24gb"
    with pytest.raises(SpecError, match="no such file"):
        find("gpus", str(tmp_path / "other.toml"))


def test_unknown_gpu_suggests_by_name_and_alias() -> None:
    with pytest.raises(SpecError) as caught:
        find("gpus", "h10")
    assert str(caught.value) == (
        "Unknown GPU 'h10'. Did you mean h100-sxm-80gb? "
        f"`planner specs list gpus` shows all {len(names('gpus'))}."
    )


def test_an_unknown_name_is_told_again_with_its_place_and_by_a_worker() -> None:
    with pytest.raises(SpecError) as caught:
        find("gpus", "h10")
    error, text = caught.value, str(caught.value)
    assert str(type(error)(f"plan.json: {error}")) == f"plan.json: {text}"
    assert str(pickle.loads(pickle.dumps(error))) == text


def test_unknown_name_unlike_any_other_suggests_nothing() -> None:
    with pytest.raises(SpecError, match=r"^Unknown cluster 'zzzzzz'\. `planner specs list"):
        load_cluster("zzzzzz")


@pytest.mark.parametrize("name", ["", " ", ".", "*", "[", "\n", "h100\0"])
def test_odd_names_are_unknown(name: str) -> None:
    with pytest.raises(SpecError, match="Unknown GPU"):
        find("gpus", name)


def test_faulty_neighbours_do_not_hide_aliases(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "hardware_specs" / "gpus"
    folder.mkdir(parents=True)
    (folder / "broken.toml").write_text('aliases = ["h100', encoding="utf-8")
    (folder / "bytes.toml").write_bytes(b"aliases = [\xff]")
    (folder / "odd.toml").write_text("aliases = [1, 2]", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert find("gpus", "h100").stem == "h100-sxm-80gb"


@pytest.mark.parametrize("kind", ["gpus", "clusters"])
def test_aliases_are_unique_and_no_names(kind: str) -> None:
    files = [path for folder in spec_folders(kind) for path in folder.glob("*.toml")]
    aliases = [alias for path in files for alias in read_toml(path).get("aliases", [])]
    assert len(aliases) == len(set(aliases))
    assert not set(aliases) & set(names(kind))
    assert all(find(kind, alias).is_file() for alias in aliases)


def test_digest_changes_with_the_file_and_with_its_defaults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = load_gpu_with_provenance("h100").digest
    assert load_gpu_with_provenance("h100").digest == before
    folder = tmp_path / "hardware_specs" / "efficiency"
    folder.mkdir(parents=True)
    text = find("efficiency", "hopper").read_text(encoding="utf-8")
    (folder / "hopper.toml").write_text(text + "# changed\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert load_gpu_with_provenance("h100").digest != before


def test_cluster_figures_are_in_base_units() -> None:
    cluster = load_cluster("dgx-h100")
    assert cluster.scale_out.bandwidth == pytest.approx(50e9)
    assert cluster.scale_out.base_latency == pytest.approx(19e-6)
    assert load_cluster("p4d").scale_out.bandwidth * 8 == pytest.approx(50e9)


@pytest.mark.parametrize(
    ("gpu", "kind", "per_node", "domain", "link_gb_per_s"),
    [
        ("h100", LinkKind.NVLINK, 8, 8, 450),
        ("l4", LinkKind.PCIE, 8, 8, 32),
        ("a6000", LinkKind.PCIE, 8, 8, 32),
        ("gb200", LinkKind.NVLINK, 4, 72, 900),
        ("tpu-v5p", LinkKind.ICI, 4, 8960, 540),
    ],
)
def test_default_cluster_is_made_of_the_own_links(
    gpu: str, kind: LinkKind, per_node: int, domain: int, link_gb_per_s: float
) -> None:
    cluster = default_cluster(load_gpu(gpu))
    assert (cluster.scale_up.kind, cluster.scale_up.domain_size) == (kind, domain)
    assert cluster.gpus_per_node == per_node
    assert cluster.scale_up.bandwidth == pytest.approx(link_gb_per_s * 1e9)


def test_default_network_is_the_gpus_or_an_assumed_one() -> None:
    assert default_cluster(load_gpu("h100")).scale_out.bandwidth == pytest.approx(50e9)
    assert default_cluster(load_gpu("rtx4090")).scale_out.bandwidth == pytest.approx(6.25e9)


def test_loading_is_quick() -> None:
    times = []
    for _ in range(5):
        start = time.process_time()
        load_gpu("h100")
        load_cluster("dgx-h100")
        times.append(time.process_time() - start)
    assert min(times) < 0.05


@pytest.mark.slow
def test_all_gpus_are_those_that_somebody_may_have() -> None:
    catalogue = Catalogue()
    absent = set(catalogue.names("gpus")) - set(catalogue.gpus_on_hand())
    assert absent == {"mi455x", "vr200-nvl144"}
    answer = planner.search(
        workload="inference", model="gpt2", gpu="all", num_gpus=1, engine="tensorrt-llm",
        input_tokens=64, output_tokens=16, settings={"concurrency": [1]},
    )  # fmt: skip
    tried = set(answer.to_frame()["gpu"])
    assert tried
    assert not tried & absent  # the fastest of which would be VR200
