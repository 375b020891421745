"""Every command judges a serving file alike: it runs, or it does not, for one reason."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from make_public_launches import cases

import planner as api
from planner.launch.read.read_launch import read_launch

COMMANDS = ("estimate", "explain", "max-batch", "max-length")
ENGINES = ("vllm", "sglang", "tensorrt-llm", "llama-server")
# What a file may leave open, a plain answer to it each.
OPEN = {
    "gpu": ("--gpu", "h100"), "model": ("--model", "llama-3.1-8b"), "num_gpus": ("--gpus", "1"),
}  # fmt: skip
LENGTHS = ("--input-tokens", "500", "--output-tokens", "100")
LOADS: dict[str, tuple[str, ...]] = {
    "the file's own": (),
    "a small rate": ("--request-rate", "0.1"),
    "too high a rate": ("--request-rate", "100000"),
}


def files() -> Iterator[Any]:
    for case in cases():
        if not case.refused and case.target in ENGINES:
            yield pytest.param(case.path, id=case.name)


def beside(path: Any) -> tuple[str, ...] | None:
    """Answers to what a file leaves open; None where it needs more than these."""
    lacking = read_launch(path).missing_terms({})
    if {*lacking} - {*OPEN}:
        return None
    return (*(word for name in lacking for word in OPEN[name]), *LENGTHS)


@pytest.mark.few(1)
@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize("path", [*files()])
def test_the_verdict_is_one(planner, path, load) -> None:
    given = beside(path)
    if given is None or (load != "the file's own" and read_launch(path).workload != "serve"):
        pytest.skip("asks for more, or serves no stream")
    asked = ("--from", path, *given, *LOADS[load])
    codes = {}
    for command in COMMANDS:
        codes[command] = planner(command, *asked).exit_code
    assert codes["explain"] == codes["estimate"], codes
    # Of what does not fit, the largest that does is asked for.
    for command in ("max-batch", "max-length"):
        assert codes[command] in {codes["estimate"], 0}, codes
        assert codes["estimate"] or not codes[command], codes


ONE = ("--workload", "serve", "--model", "llama-3.1-8b", "--gpu", "h100", "--input-tokens", 128)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("engine", "serves"), [("llama-cpp", True), ("transformers", False), ("lmdeploy", True)]
)
def test_an_engine_serves_streams_for_all_commands_or_for_none(
    planner, engine: str, serves: bool
) -> None:
    asked = (*ONE, "--mode", "aggregated", "--engine", engine)
    for command in (*COMMANDS, "search"):
        ran = planner(command, *asked, "--gpus", 1)
        assert (ran.exit_code == 0) == serves, (command, ran.err)
        assert ("cannot serve a stream of requests" in " ".join(ran.err.split())) != serves
    sized = planner("size", *asked, "--request-rate", 1)
    assert (sized.exit_code == 0) == serves, sized.err


def test_requests_beyond_the_slots_of_llama_server_wait_for_one() -> None:
    """256 at once are its most (LLAMA_MAX_SEQ): the rate stays, 44 more wait 44 answers."""
    rows = [
        api.estimate(
            workload="serve", model="llama-3.1-8b", gpu="h100", num_gpus=1, engine="llama-cpp",
            input_tokens=128, output_tokens=128, settings={"concurrency": number},
        ).to_frame().iloc[0]
        for number in (256, 300)
    ]  # fmt: skip
    full, more = rows
    assert more["requests_per_s"] == pytest.approx(full["requests_per_s"], rel=1e-3)
    waited = more["time_to_first_token_s"] - full["time_to_first_token_s"]
    assert waited == pytest.approx(44 / full["requests_per_s"], rel=0.02)
