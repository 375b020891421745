"""A release or an architecture without published runs makes an answer less sure."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

import planner
from planner.confidence.error_classes import Release

QUANTITIES = ("throughput", "time_to_first_token", "time_per_output_token")
ENDS = ("low", "high")
MEASURED, UNMEASURED = "0.19.0", "0.27.1"


def sure_of(version: str | None, gpu: str = "h100", **asked: Any) -> Any:
    question: dict[str, Any] = {
        "workload": "serve",
        "model": "llama-3.1-8b",
        "num_gpus": 1,
        "engine": "vllm",
        "settings": {"concurrency": 16},
        **asked,
    }
    found = planner.estimate(gpu=gpu, engine_version=version, **question)
    return found.source.confidence(1)


def widths(sure: Any) -> dict[str, float]:
    return {name: math.log(high / low) for name, (low, high) in sure.factors.items()}


@pytest.mark.parametrize("gpu", ["h100", "a100-sxm-80gb", "l4", "mi300x"])
def test_every_interval_of_speed_is_wider_in_a_release_that_nobody_measured(gpu: str) -> None:
    """Whether runs on such GPUs were measured (H100), or not with this profile (A100)."""
    known, other = sure_of(MEASURED, gpu), sure_of(UNMEASURED, gpu)
    assert known.basis == sure_of(None, gpu).basis
    assert other.missing == (*known.missing, f"release {UNMEASURED}")
    assert other.basis != "measured"
    for name in QUANTITIES:
        assert widths(other)[name] >= widths(known)[name], name


def test_a_release_that_was_measured_is_as_sure_as_one_that_nobody_names() -> None:
    assert sure_of(MEASURED, engine="vllm-0.8").factors == sure_of(None, engine="vllm-0.8").factors


@pytest.mark.few(1)
@pytest.mark.parametrize("command", ["estimate", "explain", "search"])
def test_the_release_of_a_file_reaches_every_answer(
    planner: Any, tmp_path: Any, command: str
) -> None:
    asked = ("--gpu", "h100", "--input-tokens", 1024, "--output-tokens", 128)
    found = {}
    for version in (MEASURED, UNMEASURED):
        file, result = tmp_path / f"{version}.sh", tmp_path / f"{version}.json"
        file.write_text(
            f"docker run --gpus all vllm/vllm-openai:v{version} "
            "--model meta-llama/Llama-3.1-8B-Instruct --max-model-len 8192 --max-num-seqs 16\n"
        )
        ran = planner(command, "--from", file, *asked, "--json", result)
        assert ran.exit_code == 0, ran.err
        answer = json.loads(result.read_text())
        if command == "explain":
            low, high = answer["intervals"]["tokens_per_s_per_user"]
        else:
            low, high = (answer["rows"][0][f"tokens_per_s_per_user_{end}"] for end in ENDS)
        found[version] = math.log(high / low)
    assert found[UNMEASURED] >= found[MEASURED]


@pytest.mark.parametrize(
    ("engine", "version", "profile"),
    [("vllm", "0.6.3", "vLLM V0"), ("vllm", "0.11.2", "vLLM 0.8"), ("sglang", "0.9", "SGLang")],
)
def test_a_release_that_is_given_has_its_profile(engine, version, profile) -> None:
    found = planner.estimate(
        workload="serve", model="llama-3.1-8b", gpu="h100", num_gpus=1,
        engine=engine, engine_version=version, settings={"concurrency": 16},
    )  # fmt: skip
    assert found.source.profile == profile


@pytest.mark.slow
def test_a_release_beside_a_file_replaces_that_of_the_file(planner: Any, tmp_path: Any) -> None:
    file = tmp_path / "serve.sh"
    file.write_text(
        "pip install vllm==0.6.3\nvllm serve meta-llama/Llama-3.1-8B --max-num-seqs 8\n"
    )
    asked = ("--from", file, "--gpu", "h100", "--max-model-len", 8192)
    out = " ".join(planner("estimate", *asked, "--engine-version", "0.11.2").out.split())
    assert "vLLM 0.11.2" in out
    kept = planner("estimate", *asked, "--engine-version", "0.11.2", "--json", tmp_path / "x.json")
    assert kept.exit_code == 0
    assert "vLLM 0.8" in (tmp_path / "x.json").read_text()


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (("--engine", "vllm", "--engine-version", "newest"), "is not a release"),
        (("--engine", "vllm,sglang", "--engine-version", "0.9"), "is for one engine"),
        (("--engine-version", "0.9"), "needs --engine"),
    ],
)
def test_a_release_that_is_none_is_refused(planner: Any, asked: tuple[str, ...], told: str) -> None:
    words = ("--workload", "serve", "--model", "llama-3.1-8b", "--gpu", "h100", "--gpus", 1)
    ran = planner("search", *words, *asked)
    assert ran.exit_code != 0
    assert told in " ".join(ran.err.split())


def test_a_release_knows_its_nearest() -> None:
    assert Release(tool="vllm", number="0.33.0").unmeasured_message == (
        "No run of 0.33 is published; the nearest runs are of 0.21."
    )


def test_experts_without_fast_kernels_may_be_several_times_as_slow() -> None:
    """GPUStack's performance lab: gpt-oss-20b at 1,000 requests, 266 tokens/s on A100 in SGLang."""
    asked: dict[str, Any] = {"model": "gpt-oss-20b", "engine": "sglang"}
    slow, plain = sure_of(None, "a100-sxm-80gb", **asked), sure_of(None, "b200", **asked)
    assert any("kernels" in phrase for phrase in slow.missing)
    assert not any("kernels" in phrase for phrase in plain.missing)
    lowest = planner.estimate(
        workload="serve", gpu="a100-sxm-80gb", num_gpus=1, input_tokens=215, output_tokens=196,
        num_requests=1000, settings={"concurrency": 1000}, **asked,
    )  # fmt: skip
    low, high = lowest.source.confidence(1).factors["throughput"]
    predicted = lowest.table()["output_tokens_per_s"][0]
    assert low * predicted < 266 < high * predicted
    assert predicted < 3 * 266
