"""The short answer: whole at every width, honest about memory, in colour where it may be."""

from __future__ import annotations

import io
import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import planner
from planner.__main__ import run
from planner.base.formatting import format_probability
from planner.base.units import GIB
from planner.optimize.result_columns import intervals
from planner.show.presenters.alternatives import without_plan_lines
from planner.show.presenters.format_results import format_result, label
from planner.show.presenters.infeasible import question_lines
from planner.show.presenters.recommendation import answer_pairs
from planner.show.presenters.search import search_report

QUESTIONS = {
    "train": ("--model", "llama-65b", "--gpus", "512"),
    "experts": ("--model", "mixtral-8x7b", "--gpus", "64,128", "--gpu", "h100"),
    "gpus": ("--model", "llama-7b", "--gpus", "8", "--gpu", "h100,rtx4090,t4", "--space", "fsdp"),
    "adapter": ("--model", "llama-2-7b", "--gpus", "1", "--gpu", "rtx4090", "--adapter", "qlora"),
    "serve": (
        *("--workload", "serve", "--model", "llama-3.1-8b", "--gpu", "h100", "--gpus", "4"),
        *("--set", "concurrency=1,8,64"),
    ),
    "sized": (
        *("--workload", "serve", "--model", "llama-3.1-8b", "--gpu", "h100", "--engine", "vllm"),
        *("--request-rate", "30", "--set", "concurrency=1,8,64"),
    ),
    "batch": (
        *("--workload", "inference", "--model", "llama-3.1-8b", "--gpu", "h100", "--gpus", "1"),
        *("--set", "concurrency=1,8,64"),
    ),
}
COLOUR = re.compile(r"\x1b\[(?:\d+;)*3[0-7](?:;\d+)*m")
NUMBER = re.compile(r"\d[\d,.]*")


@pytest.fixture(params=QUESTIONS)
def question(request: pytest.FixtureRequest) -> tuple[str, ...]:
    return QUESTIONS[request.param]


@pytest.mark.few(1)
def test_it_is_whole_at_every_width(planner: Any, monkeypatch: Any, question: Any) -> None:
    found = {}
    for width in (60, 80, 200):
        monkeypatch.setenv("COLUMNS", str(width))
        ran = planner("search", *question)
        assert ran.exit_code == 0, ran.err
        lines = ran.out.splitlines()
        assert ran.out.isascii()
        assert max(map(len, lines)) <= width
        assert width != 80 or len(lines) <= 24
        assert all(line == line.rstrip() for line in lines)
        told_of = ran.out.partition("RECOMMENDED  ")[2]
        assert "..." not in told_of.partition("rec.")[0]
        found[width] = NUMBER.findall(told_of.partition("90 % ranges")[0])
    assert all(sorted(numbers) == sorted(found[200]) for numbers in found.values())


TERMINAL = {"COLUMNS": "80", "TERM": "xterm-256color"}


def on_terminal(tmp_path: Path) -> str:
    """What a terminal is sent."""
    main, side = pty.openpty()
    known = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    process = subprocess.Popen(
        [sys.executable, "-m", "planner", "search", *QUESTIONS["gpus"]],
        stdout=side,
        stderr=subprocess.DEVNULL,
        cwd=tmp_path,
        env={**known, **TERMINAL},
    )
    os.close(side)
    sent = b""
    while True:
        try:
            piece = os.read(main, 2**16)
        except OSError:
            break
        if not piece:
            break
        sent += piece
    os.close(main)
    assert process.wait(60) == 0
    return sent.decode()


class Terminal(io.StringIO):
    """Takes what is written in this process as a terminal does."""

    def isatty(self) -> bool:
        return True


def as_terminal(**environment: str) -> str:
    """What is sent to a terminal that says something else of itself."""
    with pytest.MonkeyPatch.context() as patched:
        for name, value in (TERMINAL | environment).items():
            patched.setenv(name, value)
        patched.setattr(sys, "stdout", Terminal())
        assert run(["search", *QUESTIONS["gpus"]]) == 0
        return sys.stdout.getvalue()  # type: ignore[attr-defined, no-any-return]


@pytest.mark.slow
def test_a_terminal_gets_colours_and_others_none(tmp_path: Path) -> None:
    sent = on_terminal(tmp_path)
    assert re.search(r"\x1b\[1;32mRECOMMENDED  ", sent)
    assert re.search(r"\x1b\[31m *\+[\d.]+ %", sent)
    plain = as_terminal(NO_COLOR="1")
    assert "\x1b[1m" in plain
    assert not COLOUR.search(plain)
    assert "\x1b" not in as_terminal(TERM="dumb")


def test_no_memory_is_told_beyond_the_capacity() -> None:
    found = planner.search(
        model="llama-65b", num_gpus=64, framework="megatron-lm",
        settings={"pipeline_parallel": 1, "zero_stage": 1, "tensor_parallel": 8},
    )  # fmt: skip
    row = found.recommended.row
    source = found.plan.source_of(row)
    sure = source.confidence(row["num_gpus"])
    capacity = source.inputs.machine.gpu.allocatable_memory / GIB
    peak, (_, high) = row["peak_memory_gib"], intervals(row, sure)["peak_memory_gib"]
    assert high > capacity
    surely = format_probability(row["fit_probability"])
    assert answer_pairs(search_report(found.plan, found))["memory"] == (
        f"{peak:.1f} of {capacity:.1f} GiB, may fit, {surely} likely"
    )


@pytest.mark.parametrize("goal", ["energy", "gpu_hours", "cost"])
def test_what_plans_are_chosen_by_is_told(goal: str) -> None:
    """Of energy without a region nothing is told besides."""
    found = planner.search(
        model="llama-7b", gpu="h100", num_gpus=8, space="small", objectives=(goal,)
    )
    pairs = answer_pairs(search_report(found.plan, found))
    assert goal.replace("_", " ").removeprefix("gpu ") in " ".join(pairs)
    assert ("energy" in pairs) == (goal == "energy")


def test_a_plan_that_one_in_ten_would_not_run_may_fit() -> None:
    """LoRA of Llama 3 8B with 8,192 tokens ran out of 24 GB: meta-pytorch/torchtune#856."""
    asked = {"model": "llama-3-8b", "framework": "torchtune", "gpu": "rtx4090", "num_gpus": 1}
    asked |= {"adapter": "lora", "global_batch_size": 1}
    verdicts = {}
    for length in (512, 8192):
        found = planner.estimate(**asked, sequence_length=length)
        verdicts[length] = found.summary().splitlines()[0]
    assert verdicts[512].startswith("Fits: peak ")
    assert verdicts[8192].startswith("May fit: peak ")


def test_memory_far_below_the_capacity_fits_surely() -> None:
    settings = {"micro_batch_size": 1, "zero_stage": 0, "tensor_parallel": 8}
    found = planner.estimate(model="llama-7b", num_gpus=8, settings=settings, gpu="h100")
    assert "GiB (> 99 % likely)" in found.summary()


def test_a_bound_has_no_interval() -> None:
    found = planner.search(model="llama-7b", num_gpus=8, space="small", ideal=True)
    assert "90 % ranges" not in found.summary()
    assert "Ideal: every efficiency is 1" in found.summary()


def test_values_without_a_plan_share_their_reason() -> None:
    found = planner.search(
        model="llama-65b", num_gpus=8, gpu=("h100", "t4", "l4", "b200"), framework="megatron-lm"
    )
    lines = without_plan_lines(search_report(found.plan, found), "gpu")
    assert lines[0].startswith("no plan: 2 (the fullest GPU needs more")
    assert lines[0].endswith(": h100-sxm-80gb, l4-24gb")
    assert lines[1].startswith("no plan: t4-16gb (")


@pytest.mark.parametrize(
    ("column", "value", "ends", "words"),
    [
        ("step_time_s", 4.124, (3.17, 6.92), "4.12 s (3.17 to 6.92)"),
        ("time_to_train_days", 0.5, (0.25, 1.0), "12.0 h (6.00 to 24.0)"),
        ("cost_usd", 1_010_172.0, (777_000, 1_695_000), "1.01 M USD (0.78 to 1.70)"),
        ("cost_usd", 3.456, None, "3.46 USD"),
        ("cost_usd", float("nan"), None, "unknown: give --price"),
        ("cost_per_million_tokens_usd", 0.274, (0.2, 0.39), "0.27 (0.20 to 0.39)"),
        ("model_flops_utilization", 0.647, (0.385, 0.84), "64.7 % (38.5 to 84.0)"),
        ("time_to_first_token_s", 0.44, (0.31, 1.751), "440 ms (310 to 1,751)"),
        ("tokens_per_s_per_gpu", 497.2, None, "497"),
    ],
)
def test_values_and_their_ends_share_a_unit(
    column: str, value: float, ends: tuple[float, float] | None, words: str
) -> None:
    assert format_result(column, value, ends) == words


@pytest.mark.parametrize(
    ("column", "words"),
    [
        ("step_time_s", "step time"),
        ("peak_memory_gib", "peak memory"),
        ("output_tokens_per_s_per_gpu", "tok/s/GPU"),
        ("cost_per_million_tokens_usd", "USD/Mtok"),
        ("requests_per_s", "requests/s"),
        ("gpu_hours", "GPU-hours"),
    ],
)
def test_labels_have_no_unit_of_their_own(column: str, words: str) -> None:
    assert label(column) == words


def test_sequences_beyond_the_trained_positions_are_told_of_each_model() -> None:
    models = ("llama-7b", "llama-2-7b", "llama-3.1-8b")
    found = planner.search(model=models, gpu="h100", num_gpus=8, sequence_length=4096)
    lines = [line for line in question_lines(found.plan) if "beyond" in line]
    assert lines == [
        "Sequences of 4,096 tokens are beyond the 2,048 positions that LLaMA 7B was trained with."
    ]


def test_what_is_embedded_has_no_tokens_of_an_answer() -> None:
    """Its cost is that of a million tokens of prompts."""
    asked = {"model": "qwen3-8b", "workload": "serve", "gpu": "h100", "num_gpus": 1}
    asked |= {"engine": "vllm", "settings": {"concurrency": 64}, "input_tokens": 1024}
    embedded = planner.estimate(**asked, output_tokens=0).summary()
    answered = planner.estimate(**asked, output_tokens=2).summary()
    assert "TPOT" in answered
    assert "TPOT" not in embedded
    assert "tok/s/GPU" not in embedded
    assert "USD/Mtok" in embedded
