"""The first screen of a search: short, the recommendation first, and every claim holds."""

from __future__ import annotations

import json
import os
import random
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from planner.show.presenters.alternatives import (
    Alternatives,
    alternatives,
    alternatives_table,
    legend_lines,
)
from planner.show.presenters.pareto_front import is_lower_better, search_goals
from planner.show.presenters.recommendation import better_lines, better_plan, surer_plan_line
from planner.show.reports import SearchReport, result_from_json

NUMBER = 12
MODELS = ("llama-3.1-8b", "qwen2.5-7b", "qwen3-32b", "llama-3.1-70b")
GPUS = ("a100", "h100", "h200", "b200", "mi300x", "h100,a100,b200")
CLAIMS = re.compile(r"\b(cheapest|fastest|best|no plan beats|optimal)\b", re.IGNORECASE)


def _draw(number: int) -> tuple[str, ...]:
    """A question of a search, of each workload in turn."""
    draw = random.Random(1000 * int(os.environ.get("PLANNER_SEED", "57")) + number)
    workload = ("train", "finetune", "serve", "inference", "rl", "serve")[number % 6]
    model, gpu = draw.choice(MODELS), draw.choice(GPUS)
    count = draw.choice((8, 16, 64))
    words = ["search", "--model", model, "--gpu", gpu, "--gpus", str(count)]
    if workload == "train":
        words[2] = draw.choice((*MODELS, "llama-65b", "mixtral-8x7b"))
        return (*words, *draw.choice(((), ("--objective", "cost"), ("--sequence-length", "8192"))))
    if workload == "finetune":
        return (*words[:-1], "8", "--adapter", draw.choice(("lora", "qlora")))
    if workload == "rl":
        return (*words[:4], "h100", "--gpus", "16", "--workload", "rl")
    words += ["--workload", workload, "--input-tokens", str(draw.choice((512, 4000)))]
    words += ["--output-tokens", "500", "--set", "concurrency=1,8,32,128"]
    return (*words, *draw.choice(((), ("--tpot", "40ms"), ("--objective", "cost_per_hour"))))[
        : 99 if workload == "serve" else len(words)
    ]


QUESTIONS = [_draw(number) for number in range(NUMBER)]


@pytest.fixture(params=QUESTIONS, ids=lambda words: " ".join(words[2:]))
def screens(
    request: pytest.FixtureRequest, planner: Any, tmp_path: Path, monkeypatch: Any
) -> tuple[SearchReport, dict[int, list[str]]]:
    """The report and the screens by width."""
    path, lines = tmp_path / "a.json", {}
    for width in (80, 60, 120):
        monkeypatch.setenv("COLUMNS", str(width))
        ran = planner(*request.param, *(("--json", path) if width == 80 else ()))
        assert ran.exit_code == 0, ran.err
        lines[width] = ran.out.splitlines()
    report = result_from_json(json.loads(path.read_text(encoding="utf-8")))
    assert isinstance(report, SearchReport)
    return report, lines


@pytest.mark.few(1)
def test_the_answer_is_short_and_its_claims_hold(screens: Any) -> None:
    report, lines = screens
    for width, shown in lines.items():
        assert max(map(len, shown)) <= width
        assert len(shown) <= {80: 24, 60: 40, 120: 24}[width], (width, len(shown))
        first = 7 if width == 60 else 5
        assert any(line.startswith("RECOMMENDED  ") for line in shown[:first])
        for line in shown:
            assert line.startswith("Rule: ") or not CLAIMS.search(line), line
    _check_better(report)
    chosen = alternatives(report)
    if chosen is not None:
        _check_table(report, chosen, lines[80])


def _check_better(report: SearchReport) -> None:
    """A plan that could be better is predicted to be, by more than a tie; a surer one is surer."""
    row, other = report.best_row, better_plan(report)
    assert bool(better_lines(report)) == (other is not None)
    if other is not None:
        (column, *_), sign = search_goals(report), 1 if is_lower_better(report) else -1
        ratio = (row[column] / other[column]) ** sign
        assert ratio > report.recommended_sure.tie_factor
    for faster in report.faster_options:
        ratio = faster.value / report.best_row[faster.column]
        assert faster.change == pytest.approx(ratio - 1)
        assert abs(faster.change) > 0.1
        assert (ratio < 1) == is_lower_better(report)
    if line := surer_plan_line(report):
        least = min(limit.probability or 0.0 for limit in report.recommended_limits)
        shown = re.search(r": (?:> )?(\d+) % likely", line)
        assert shown is not None
        assert int(shown[1]) >= 100 * least


def _check_table(report: SearchReport, chosen: Alternatives, shown: Sequence[str]) -> None:
    """The rows are sorted, and the marks stand where the printed numbers say."""
    table = alternatives_table(report, chosen)
    names = [head.name for head in table.heads]
    cells = [dict(zip(names, row, strict=True)) for row in table.rows]
    values = [cell[chosen.column].number for cell in cells]
    best = (min if is_lower_better(report) else max)(values)
    assert values == sorted(values, reverse=not is_lower_better(report))
    for cell, value in zip(cells, values, strict=True):
        assert cell[chosen.column].text.startswith("*") == (value == best)
    assert [cell["mark"].text for cell in cells].count("<") == 1
    place = next(n for n, cell in enumerate(cells) if cell["mark"].text == "<")
    assert cells[place]["change"].text == ""
    for cell, value in zip(cells, values, strict=True):
        if cell["change"].text not in ("", "same"):
            assert cell["change"].text.startswith("+" if value > values[place] else "-")
    has_rule = any(line.startswith("Rule: ") for line in shown)
    assert has_rule == any(line.startswith("Rule: ") for line in legend_lines(report, chosen))
    assert has_rule == (place > 0)
    (printed,) = [
        line for line in shown if re.search(r"(^| )< ", line) and "recommended" not in line
    ]
    assert cells[place][chosen.column].text in printed


@pytest.mark.few(2)
def test_the_front_file_has_the_recommended_plan(planner: Any, tmp_path: Path) -> None:
    path = tmp_path / "front.csv"
    assert planner(*QUESTIONS[0], "--csv", path, "--quiet").exit_code == 0
    heads, *rows = path.read_text(encoding="utf-8").splitlines()
    names = heads.split(",")
    assert {"recommended", "rank", "tied", "evidence_runs"} <= {*names}
    marks = [row.split(",")[names.index("recommended")] for row in rows]
    assert marks == ["True", *["False"] * (len(rows) - 1)]


@pytest.mark.slow
def test_a_faster_number_format_is_named(planner: Any) -> None:
    """FP8 on H100 is a search of its own."""
    asked = ("search", "--model", "llama-3.1-70b", "--gpu", "h100", "--gpus", "64")
    report = json.loads(planner(*asked, "--json", "-", "--quiet").out)
    other = json.loads(planner(*asked, "--precision", "fp8", "--json", "-", "--quiet").out)
    (effect,) = report["faster_options"]
    assert (effect["lever"], effect["own"], effect["other"]) == ("precision", "bf16", "fp8")
    assert effect["value"] <= report["recommended_row"]["step_time_s"] / 1.1
    names = [row["framework"] for row in other["comparisons"]["framework"]["rows"]]
    same = names.index(report["recommended_row"]["framework"])
    assert effect["value"] == other["comparisons"]["framework"]["rows"][same]["step_time_s"]
    assert re.search(r"With fp8: .*--precision fp8", planner(*asked).out)
    assert "With fp8" not in planner(*asked[:4], "a100", *asked[5:]).out


@pytest.mark.slow
def test_a_faster_release_is_named(planner: Any) -> None:
    """A plan on the V0 engine of vLLM names the current one."""
    asked = ("search", "--workload", "serve", "--model", "llama-3.1-8b", "--gpu", "h100")
    asked += ("--gpus", "1", "--engine", "vllm")
    old = (*asked, "--engine-version", "0.6.4")
    effects = json.loads(planner(*old, "--json", "-", "--quiet").out)["faster_options"]
    (effect,) = [effect for effect in effects if effect["lever"] == "engine"]
    current = json.loads(planner(*asked, "--json", "-", "--quiet").out)
    assert effect["other"] == current["recommended_row"]["engine"].lower()
    assert effect["value"] == current["recommended_row"][effect["column"]]
    shown = " ".join(planner(*old).out.split())
    assert re.search(r"With the current release, vllm: .*--engine vllm", shown)
    assert all(effect["lever"] != "engine" for effect in current["faster_options"])


def test_an_adapter_that_fits_more_surely_is_searched_in_all_software(planner: Any) -> None:
    """LoRA of 8 billion parameters barely fits 24 GiB, QLoRA does."""
    asked = ("search", "--model", "llama-3.1-8b", "--gpu", "rtx4090", "--gpus", "1")
    out = " ".join(planner(*asked, "--adapter", "lora").out.split())
    assert re.search(r"Surer to fit: .*--adapter qlora \(\d+ % likely\)", out)
