"""Answers about one plan: the verdict first, in a screen of 24 lines, without a contradiction."""

from __future__ import annotations

import os
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from make_public_launches import cases

SEED = int(os.environ.get("PLANNER_SEED", "65"))
LINES, WIDTH = 24, 80
VERDICT = re.compile(
    r"\b(fits|may fit|(does|may) not (fit|start)|starts|cannot run|impossible)\b",
    re.IGNORECASE,
)
MODELS = ("llama-2-7b", "llama-3.1-8b", "llama-2-70b", "qwen3-32b", "mixtral-8x7b")
GPUS = ("a100", "h100", "h200", "rtx-4090", "mi300x")
ANSWERS = {"gpu": "h100", "model": "llama-3.1-8b", "num_gpus": "8"}


def questions() -> Iterator[tuple[str, ...]]:
    draw = random.Random(SEED)
    for _ in range(15):
        workload = draw.choice(("train", "train", "serve", "serve", "inference", "rl"))
        command = draw.choice(("estimate", "estimate", "explain", "max-batch"))
        asked = [command if workload != "rl" else "estimate", "--workload", workload]
        asked += ["--model", draw.choice(MODELS), "--gpu", draw.choice(GPUS)]
        asked += ["--gpus", draw.choice("1248")]
        if workload == "train" and draw.random() < 0.4:
            asked += ["--adapter", draw.choice(("lora", "qlora"))]
        yield tuple(asked)


def launches() -> list[Any]:
    judged = sorted((case for case in cases() if not case.refused), key=lambda case: case.name)
    return random.Random(SEED).sample(judged, 15)


@pytest.mark.few(1)
@pytest.mark.parametrize("asked", [*questions()], ids=" ".join)
def test_a_question_is_answered_in_a_screen(planner, asked) -> None:
    ran = planner(*asked)
    check(ran.exit_code, ran.out or ran.err)


@pytest.mark.few(1)
@pytest.mark.parametrize("case", launches(), ids=lambda case: case.name)
def test_a_file_is_judged_in_a_screen(planner, monkeypatch, case) -> None:
    path = Path(case.path)
    monkeypatch.chdir(path.parent)  # a path is never broken, however long
    ran = planner("estimate", "--from", path.name)
    if ran.exit_code not in (0, 4):
        pytest.skip("asks for more")
    check(ran.exit_code, ran.out or ran.err)


def check(code: int, text: str) -> None:
    """Check lines, width and verdict of an answer, and that its first number agrees with it."""
    lines = text.splitlines()
    assert len(lines) <= LINES, text
    assert max(map(len, lines)) <= WIDTH
    first = " ".join(" ".join(lines[:2]).split())
    verdict = VERDICT.search(first)
    assert verdict is not None, first
    runs = verdict[0].lower() in ("fits", "may fit", "may not fit") and not first.startswith("No ")
    assert runs == (code == 0), text
    peak = re.search(r"^(?:Fits|May fit|Does not fit).*?: peak ([\d,.]+) of ([\d,.]+) GiB", first)
    if peak is None:
        assert not first.startswith("Fits") or "methods" in first, first
        return
    needs, usable = (float(number.replace(",", "")) for number in peak.groups())
    is_unsure = "at this confidence" in first
    fits = first.startswith(("Fits", "May fit"))
    assert (needs <= usable) == fits or is_unsure, first
    numbers = re.findall(r"peak [\d,.]+ of", text)
    assert numbers == [f"peak {peak[1]} of"], "the peak stands once"
