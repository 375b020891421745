"""Models and GPUs kept in a folder of own specs: what is written reads back."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hugging_face_newest_configs import NEWEST_CONFIGS
from typer.testing import CliRunner, Result

import planner
from planner.base.enums import LinkKind
from planner.cli.app import app
from planner.errors import SpecError
from planner.specs.catalogue import Catalogue, load_model
from planner.specs.gpu import is_assumed
from planner.specs.hugging_face import read_config
from planner.specs.model import ModelSpec
from planner.specs.spec_files import read_spec
from planner.specs.spec_writer import file_name, keep_model, model_text

SHIPPED = [
    "gpt2",
    "deepseek-v3",
    "deepseek-v4-pro",
    "qwen2.5-vl-7b",
    "nemotron-h-8b",
    "gpt-oss-20b",
]


def _config(folder: Path, name: str) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps(NEWEST_CONFIGS[name][1]), encoding="utf-8")
    return path


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_model_reads_back_as_it_was(name: str, tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    path.write_text(model_text(load_model(name)), encoding="utf-8")
    assert read_spec(ModelSpec, path) == load_model(name)


@pytest.mark.parametrize("name", NEWEST_CONFIGS)
def test_a_config_reads_back_as_it_was(name: str, tmp_path: Path) -> None:
    model = read_config(_config(tmp_path, name), "someone/Model")
    path = keep_model(model, "someone/Model", tmp_path / "own")
    assert path == tmp_path / "own" / "models" / "model.toml"
    assert read_spec(ModelSpec, path) == model


def test_a_model_is_kept_and_found_by_its_name(tmp_path: Path) -> None:
    _config(tmp_path, "lfm2")
    own = tmp_path / "own"
    told = CliRunner().invoke(
        app, ["specs", "add", "model", str(tmp_path), "--name", "My LFM2", "--specs", str(own)]
    )
    assert told.exit_code == 0
    assert "1,170,340,608 parameters" in told.output
    assert Catalogue(own).load_model("my-lfm2").name == "My LFM2"


def test_a_copy_of_a_known_model_is_found_by_its_repository(tmp_path: Path) -> None:
    repository = "unsloth/Qwen3-32B-bnb-4bit"
    CliRunner().invoke(app, ["specs", "add", "model", repository, "--specs", str(tmp_path)])
    kept = Catalogue(tmp_path).load_model(repository)
    assert kept.quantization == "w4a16"
    assert kept == replace(load_model(repository), aliases=(repository,))


def test_a_file_is_not_replaced_unless_one_says_so(tmp_path: Path) -> None:
    model = load_model("gpt2")
    keep_model(model, "gpt2", tmp_path)
    with pytest.raises(SpecError, match="there is such a file"):
        keep_model(model, "gpt2", tmp_path)
    keep_model(model, "gpt2", tmp_path, replaces=True)
    with pytest.raises(SpecError, match="no letters or digits"):
        keep_model(model, "…", tmp_path)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["cluster", "dgx-h100"], "Only models and GPUs can be added"),
        (["model", "nobody"], "Unknown model"),
    ],
)
def test_what_cannot_be_added_is_refused(
    arguments: list[str], message: str, tmp_path: Path
) -> None:
    told = CliRunner().invoke(app, ["specs", "add", *arguments, "--specs", str(tmp_path)])
    assert told.exit_code != 0
    assert message in told.output + str(told.exception)


def test_file_names() -> None:
    assert file_name("moonshotai/Kimi-Linear-48B-A3B") == "kimi-linear-48b-a3b"
    assert file_name("My model (v2)") == "my-model-v2"


FIGURES = {
    "--memory": "96", "--bandwidth": "1.8TB/s", "--peak": "500TFLOPS", "--link": "64GB/s",
    "--power": "600W",
}  # fmt: skip


def _add_gpu(folder: Path, *more: str, name: str = "My GPU", without: str = "") -> Result:
    given = [word for pair in FIGURES.items() if pair[0] != without for word in pair]
    return CliRunner().invoke(
        app, ["specs", "add", "gpu", name, *given, *more, "--specs", str(folder)]
    )


def test_a_gpu_of_a_datasheet_is_kept_and_nothing_of_it_counts_as_measured(tmp_path: Path) -> None:
    told = _add_gpu(tmp_path, "--fp8-peak", "1PFLOP/s", "--source", "its maker's page")
    assert told.exit_code == 0, told.output
    loaded = Catalogue(tmp_path).load_gpu("My GPU")
    gpu = loaded.spec
    assert (gpu.name, gpu.vendor, gpu.scale_up.kind) == ("my-gpu", "NVIDIA", LinkKind.PCIE)
    assert gpu.memory_capacity == 96 * 2**30
    assert gpu.memory_bandwidth == 1.8e12
    assert gpu.peak_flops == {"fp16": 5e14, "bf16": 5e14, "fp8": 1e15}
    assert (gpu.scale_up.bandwidth, gpu.thermal_design_power) == (64e9, 600)
    assert loaded.provenance["memory_capacity"] == "its maker's page"
    assert is_assumed(loaded.provenance, "gemm.bf16.compute_fraction")
    answer = planner.estimate(
        workload="serve", model="llama-3.2-1b", gpu="my-gpu", num_gpus=1, engine="vllm",
        specs=tmp_path,
    )  # fmt: skip
    (row,) = answer.to_frame().to_dict("records")
    sure = answer.plan.source_of(row).confidence(1)
    assert sure.basis == "assumed"


@pytest.mark.parametrize(
    ("vendor", "link", "kind", "domain"),
    [
        ("nvidia", "900GB/s", LinkKind.NVLINK, 8), ("AMD", "448", LinkKind.XGMI, 8),
        ("Huawei", "196", LinkKind.ROCE, 8), ("apple", "10", LinkKind.NETWORK, 1),
    ],
)  # fmt: skip
def test_the_fabric_of_a_datasheet_follows_from_maker_and_speed(
    vendor: str, link: str, kind: LinkKind, domain: int, tmp_path: Path
) -> None:
    assert _add_gpu(tmp_path, "--vendor", vendor, "--link", link).exit_code == 0
    fabric = Catalogue(tmp_path).load_gpu("my-gpu").spec.scale_up
    assert (fabric.kind, fabric.domain_size) == (kind, domain)


@pytest.mark.parametrize(
    ("more", "without", "message"),
    [
        ([], "--link", "5 figures of its datasheet: --link is missing"),
        (["--peak", "5W"], "", "--peak 5W: unit 'W' is not a unit of flop/s"),
        (["--power", "-3"], "", "thermal_design_power"),
        (["--memory", "0"], "", "memory_capacity"),
    ],
)
def test_a_datasheet_that_makes_no_gpu_is_refused_and_leaves_no_file(
    more: list[str], without: str, message: str, tmp_path: Path
) -> None:
    told = _add_gpu(tmp_path, *more, without=without)
    assert told.exit_code != 0
    assert message in told.output + str(told.exception)
    assert not list(tmp_path.rglob("*.toml"))


def test_a_gpu_is_not_replaced_unless_one_says_so(tmp_path: Path) -> None:
    assert _add_gpu(tmp_path).exit_code == 0
    assert "there is such a file" in str(_add_gpu(tmp_path).exception)
    assert _add_gpu(tmp_path, "--replace").exit_code == 0
    refused = CliRunner().invoke(app, ["specs", "add", "model", "gpt2", "--memory", "3"])
    assert "are for a GPU, not a model" in str(refused.exception)
