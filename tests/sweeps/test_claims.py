"""Every word such as cheapest on the screens of drawn sweeps and sizes agrees with the numbers."""

from __future__ import annotations

import random
import re
from types import SimpleNamespace
from typing import Any

import pytest
from made import COUNTS, GPUS, plan_of, row_of

from planner.show.presenters.size_screen import screen_table
from planner.show.terminal import terminal_text
from planner.sweeps.summary import summarize
from planner.sweeps.summary_screen import summary_blocks

PLAN = plan_of(gpu=GPUS, num_gpus=COUNTS)
_NUMBER = re.compile(r"^[*~]?\d[\d,.]*$")


def drawn_rows(seed: int) -> list[dict[str, Any]]:
    """Scenarios with drawn costs, times, intervals and evidence; some have no plan."""
    draw = random.Random(seed)
    rows = []
    for number, (gpu, count) in enumerate((gpu, count) for gpu in GPUS for count in COUNTS):
        if draw.random() < 0.15:
            rows.append(row_of(number, gpu, count))
            continue
        cost, time = draw.uniform(0.9e6, 3e6), draw.uniform(2, 90)
        low, high = draw.uniform(0.5, 1), draw.uniform(1, 3)
        more = {
            "basis": draw.choice(["measured", "transferred", "roofline"]),
            "evidence_runs": draw.choice([0, 3, 70]),
            "contract": "on-demand", "price_doubts": draw.choice(["", "", "one seller"]),
            "price_per_gpu_hour_usd": 2.0, "tie_factor": draw.uniform(1, 1.5),
            "time_to_train_low_days": time * low, "time_to_train_high_days": time * high,
        }  # fmt: skip
        rows.append(row_of(number, gpu, count, cost, time, **more))
    return rows


def matrix_of(lines: list[str]) -> dict[str, list[str]]:
    """The cells of the matrix of a screen by GPU."""
    cells = {}
    for line in lines:
        name, *words = line.split() or [""]
        if name in GPUS and len(words) == len(COUNTS) and "x" not in words:
            cells[name] = words
    return cells


def number(text: str) -> float:
    return float(text.lstrip("*~").replace(",", ""))


@pytest.mark.few(10)
@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("is_full", [False, True])
def test_claims_of_sweeps_hold(seed: int, is_full: bool) -> None:
    rows = drawn_rows(seed)
    sweep: Any = SimpleNamespace(plan=PLAN, done=PLAN.num_scenarios, folder="made")
    text = terminal_text(summary_blocks(sweep, summarize(rows, PLAN), [], is_full=is_full), 100)
    lines, planned = text.splitlines(), [row for row in rows if row["feasible"]]
    if not planned:
        return
    matrix = matrix_of(lines)
    for place in range(len(COUNTS)):
        column = [words[place] for words in matrix.values() if _NUMBER.match(words[place])]
        best = [cell for cell in column if cell.startswith("*")]
        assert len(best) == bool(column)
        assert all(number(cell) <= min(map(number, column)) for cell in best)
    printed = {
        (gpu, count): number(words[place])
        for gpu, words in matrix.items()
        for place, count in enumerate(COUNTS)
        if _NUMBER.match(words[place])
    }
    for measure, title in (("cost_usd", "cheapest"), ("time_to_train_days", "fastest")):
        least = min(planned, key=lambda row: row[measure])
        (line,) = (
            line for line in lines if re.match(rf"([a-z][a-z ]*, )*{title}(,| +[0-9])", line)
        )
        assert f"{least['num_gpus']} x {least['gpu']}" in line, (title, line)
    if is_full:
        said = " ".join(text.split())
        for gpu, count in re.findall(
            r"(\w+) with (\d+)\b", said.partition("Fastest by")[0].partition("Cheapest by")[2]
        ):
            of_count = [cost for (_, other), cost in printed.items() if other == int(count)]
            assert printed[gpu, int(count)] <= min(of_count)
        for better, worse, count in re.findall(r"(\w+) is cheaper than (\w+) from (\d+)", said):
            assert printed[better, int(count)] <= printed[worse, int(count)]
    else:
        assert len(lines) <= 24
        recommended = next(line for line in lines if line.startswith("RECOMMENDED"))
        gpus = recommended.split("  ")[1].split(",")[0]
        (row_line,) = (line for line in lines if line.startswith("recommended"))
        assert gpus in row_line


@pytest.mark.parametrize("seed", range(40))
def test_the_table_of_a_size_is_sorted_by_the_cost_that_it_prints(seed: int) -> None:
    rows = [
        {**row, "choice": "fewest, cheapest", "confidence": 0.9, "num_gpus_predicted": 8,
         "num_gpus_at_90": row["num_gpus"]}
        for row in drawn_rows(seed)
        if row["feasible"]
    ][:6]  # fmt: skip
    lines = terminal_text(screen_table(rows), 100).splitlines()
    table = [line for line in lines if line.split()[0] in GPUS]
    costs = [next(float(word) for word in line.split() if "." in word) for line in table]
    assert costs == sorted(costs)
    assert sum(" < " in line for line in table) == 1
    assert len(table) == len(rows)
