"""Claims in answers of MCP tools agree with the numbers that are sent with them."""

from __future__ import annotations

import os
import random
import re
from collections.abc import Iterator
from typing import Any

import pytest
from test_mcp import in_process, text_of

from planner.question.terms import is_better_high

SEED = int(os.environ.get("PLANNER_SEED", "58"))
MODELS = ("llama-3.1-8b", "qwen3-32b", "llama-2-13b")
COST = "cost_per_hour_usd"
SUPERLATIVES = re.compile(r"\b(cheapest|fastest|optimal|no plan beats)\b", re.IGNORECASE)


def _draw(number: int) -> tuple[str, dict[str, object]]:
    """A tool and a question, of each command in turn."""
    draw = random.Random(1000 * SEED + number)
    command = ("search", "size", "compare")[number % 3]
    fields: dict[str, object] = {"model": draw.choice(MODELS), "gpus": draw.choice((8, 32))}
    gpus = draw.sample(("a100", "h100", "h200", "b200", "l40s"), 2)
    if command == "compare":
        return command, {**fields, "things": ",".join(gpus)}
    fields |= {"gpu": ",".join(gpus), "most_rows": 100, "full": True}
    if command == "search":
        workload = draw.choice(({}, {"workload": "serve"}))
        return command, {**fields, **workload}
    del fields["gpus"]
    return command, {**fields, "workload": "serve", "request-rate": draw.choice((5, 40))}


QUESTIONS = [_draw(number) for number in range(9)]


@pytest.fixture(scope="module")
def pool() -> Iterator[Any]:
    from planner.ui.request_limits import Limits
    from planner.ui.worker_pool import Pool

    made = Pool(Limits(workers=1, seconds=600))
    yield made
    made.close()


@pytest.mark.few(1)
@pytest.mark.parametrize(("command", "fields"), QUESTIONS, ids=lambda part: str(part)[:60])
def test_claims_agree_with_the_numbers(pool: Any, command: str, fields: dict[str, object]) -> None:
    (answer,) = in_process(pool, {command: fields}).values()
    assert not answer.is_error, text_of(answer)
    # The first line repeats the question.
    text = " ".join(text_of(answer).split("\n", 1)[1].split())
    sent = answer.structured_content
    {"search": _check_search, "size": _check_size, "compare": _check_compare}[command](text, sent)


def _check_search(text: str, sent: dict[str, Any]) -> None:
    assert not SUPERLATIVES.search(text)
    row = sent["recommended_row"]
    assert [place for place, other in enumerate(sent["rows"]) if other["recommended"]] == [0]
    assert f"Recommended: {row['num_gpus']:,} x {row['gpu']}" in text
    for option in sent["faster_options"]:
        assert option["change"] == pytest.approx(option["value"] / row[option["column"]] - 1)
        (change,) = re.findall(rf"With [^:]*{option['other']}: [^;]*, ([+-][\d.]+) %", text)
        assert float(change) == pytest.approx(100 * option["change"], abs=0.5)


def _check_size(text: str, sent: dict[str, Any]) -> None:
    first, *others = [row for row in sent["rows"] if row["feasible"]]
    assert f"{first['num_gpus']:,} x {first['gpu']}" in text
    costs = [row[COST] for row in others if row["contract"] == first["contract"]]
    is_cheapest = all(first[COST] <= cost for cost in costs)
    assert ("is cheapest" in text) <= is_cheapest
    assert ("Could be cheaper" in " ".join(sent["decision"])) == (not is_cheapest)
    assert all(row["num_gpus_predicted"] <= row["num_gpus_at_90"] for row in (first, *others))


def _check_compare(text: str, sent: dict[str, Any]) -> None:
    assert not SUPERLATIVES.search(text)
    assert all(sentence in text for sentence in sent["sentences"])
    for result in sent["results"]:
        values = [value for value in result["values"] if value is not None]
        best = (max if is_better_high(result["name"]) else min)(values)
        assert result["values"][result["best"]] == best
