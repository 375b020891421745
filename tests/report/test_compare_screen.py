"""The first screens of compare and size: short, the answer first, and every claim holds."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from planner.question.terms import is_better_high

CLAIMS = re.compile(r"\b(cheapest|fastest|optimal|no plan beats)\b", re.IGNORECASE)
COMPARED = (
    ("a100", "h100", "--model", "llama-7b", "--gpus", "8"),
    ("h100", "b200", "mi300x", "--model", "llama-2-13b", "--gpus", "64"),
    ("vllm", "sglang", "--model", "llama-3.1-8b", "--gpu", "h100", "--gpus", "1"),
)
SIZED = (
    (
        "--model",
        "llama-3.1-8b",
        "--workload",
        "serve",
        "--request-rate",
        "20",
        "--gpu",
        "h100,l40s",
    ),
    (
        "--model",
        "qwen3-32b",
        "--workload",
        "serve",
        "--request-rate",
        "5",
        "--tpot",
        "40ms",
        "--gpu",
        "h200,b200",
    ),
    ("--model", "llama-7b", "--total-tokens", "1e11", "--deadline", "30d", "--gpu", "h100,a100"),
)


@pytest.mark.parametrize("words", COMPARED, ids=lambda words: "-".join(words[:3]))
def test_sentences_of_a_comparison_are_those_of_its_table(
    planner: Any, tmp_path: Path, words: tuple[str, ...]
) -> None:
    path = tmp_path / "a.json"
    lines = planner("compare", *words, "--json", path).out.splitlines()
    report = json.loads(path.read_text(encoding="utf-8"))
    number = len(report["plans"])
    assert len(lines) <= 24 + 3 * (number - 2)
    assert not any(CLAIMS.search(line) for line in lines)
    starts = [
        next((n for n, line in enumerate(lines) if line.startswith(word)), len(lines))
        for word in ("A  ", *[f"{letter} is best" for letter in "ABC"], "predicted")
    ]
    assert starts[0] < starts[4]
    text = " ".join(report["sentences"])
    assert " ".join(text.split()) in " ".join(" ".join(lines[: starts[4]]).split())
    for result in report["results"]:
        values = [value for value in result["values"] if value is not None]
        best = (max if is_better_high(result["name"]) else min)(values)
        assert result["values"][result["best"]] == best
        if not result["ties"] and result["name"] != "memory_headroom_gib":
            assert f"{'ABC'[result['best']]} is best in " in text


@pytest.mark.slow
@pytest.mark.parametrize("words", SIZED, ids=lambda words: "-".join(words[1:4]))
def test_a_size_recommends_the_marked_row_and_counts_more_gpus_to_be_surer(
    planner: Any, words: tuple[str, ...]
) -> None:
    lines = planner("size", *words).out.splitlines()
    assert len(lines) <= 24
    assert not any(CLAIMS.search(line) for line in lines)
    (first,) = (line for line in lines[:4] if line.startswith("RECOMMENDED  "))
    (marked,) = (line for line in lines if re.search(r" <  ", line) and "recommended" not in line)
    assert marked.split()[0].split("-")[0] in first
    rows = [line for line in lines if re.match(r"\S+\d\w+  [<~ ] .*\d", line)]
    counts = {row: [*map(_whole, re.findall(r"(?<= )[\d,]+(?= )", row))][:2] for row in rows}
    assert all(predicted <= sure for predicted, sure in counts.values())
    (count,) = re.findall(r"RECOMMENDED  ([\d,]+) x", first)
    assert _whole(count) in counts[marked]


def _whole(text: str) -> int:
    return int(text.replace(",", ""))


@pytest.mark.slow
def test_a_gpu_that_keeps_the_assumed_limits_is_recommended_before_others(planner: Any) -> None:
    """MI300X costs less, but only where limits that planner assumes are widened for it."""
    asked = (
        "size", "--workload", "serve", "--model", "llama-3.1-70b", "--gpu", "h100,mi300x",
        "--request-rate", "300", "--contract", "owned", "--engine", "vllm",
    )  # fmt: skip
    report = json.loads(planner(*asked, "--json", "-", "--quiet").out)
    first, *others = report["rows"]
    assert (first["gpu"], first["limits_widened"]) == ("h100-sxm-80gb", False)
    assert first["sure_time_per_output_token_s"] <= 0.05
    wider = [row for row in others if row["limits_widened"]]
    assert wider
    assert min(row["cost_per_hour_usd"] for row in wider) < first["cost_per_hour_usd"]
    assert all(row["limit_time_per_output_token_s"] > 0.05 for row in wider)
    lines = planner(*asked).out.splitlines()
    (marked,) = (line for line in lines if re.search(r" w +owned", line))
    assert marked.startswith("mi300x")
    assert any(line.endswith("w keeps only wider limits") for line in lines)


def test_limits_that_no_fleet_surely_keeps_are_sized_as_predicted(planner: Any) -> None:
    """The first token within 150 ms is predicted, but the interval is too wide for 90 %."""
    asked = (
        "size", "--workload", "serve", "--model", "llama-3.1-8b", "--gpu", "h100",
        "--request-rate", "5", "--input-tokens", "4000", "--output-tokens", "300",
        "--ttft", "150ms", "--engine", "vllm", "--precision", "fp8", "--mode", "aggregated",
    )  # fmt: skip
    report = json.loads(planner(*asked, "--json", "-", "--quiet").out)
    (row,) = report["rows"]
    assert (row["feasible"], row["confidence"], row["num_gpus_at_90"]) == (True, 0.5, None)
    assert row["time_to_first_token_s"] <= 0.15
    shown = " ".join(planner(*asked).out.split())
    assert "Sized at the prediction, 50 % likely to keep each: the rate; TTFT at most 150" in shown
    assert re.search(r"No fleet keeps them more surely: time to first token .* at 90 %", shown)
    assert planner(*asked, "--confidence", "0.9").exit_code == 4
