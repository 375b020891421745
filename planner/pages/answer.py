"""The answer of a document about one plan: a sentence, what it reaches, how sure that is."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from planner.base import text
from planner.decide.open_facts import MovingFact
from planner.pages.document import Document, Row
from planner.pages.facts import ends_in
from planner.pages.table import plan_of
from planner.question.terms import glossary
from planner.report.front import objective_column, percentile_columns
from planner.report.reached import reached_pairs, told_names
from planner.report.sure import fits_words
from planner.report.told import label, limit_label, told

_FIRST = 3
_MEMORY = "peak_memory_gib"


def goals_of(document: Document, axes: Collection[str], row: Mapping[str, Any]) -> list[str]:
    """The columns of the objectives."""
    names = document.manifest.get("objectives") or []
    wording = document.workload.wording
    return [objective_column(wording, axes, str(name), row) for name in names]


def reached(
    document: Document, row: Row, goals: Sequence[str], facts: Sequence[MovingFact]
) -> dict[str, str]:
    """What a row reaches and costs, by name."""
    limited = percentile_columns(document.manifest.get("constraints") or (), row)
    names = told_names(document.workload.wording, goals, limited, row)
    return reached_pairs(names, row, ends_in(row, facts), capacity_of(row))


def capacity_of(row: Mapping[str, Any]) -> float:
    """The memory that a plan may take [GiB]."""
    found: float = row[_MEMORY] + row["memory_headroom_gib"]
    return found


def sentence(
    document: Document, row: Row, goals: Sequence[str], facts: Sequence[MovingFact], before: str
) -> str:
    """The plan and the first of what it reaches, each with its interval, and how surely it fits."""
    ends = ends_in(row, facts)
    names = told_names(document.workload.wording, goals, (), row)
    costs = [name for name in names if name.endswith("_usd")]
    known = [name for name in dict.fromkeys([*names[:_FIRST], *costs]) if _is_known(row[name])]
    words = [f"{label(name)} {told(name, row[name], ends.get(name))}" for name in known]
    number = row["num_gpus"]
    where = f"{text.count(number)} x {row['gpu']}"
    told_of = [f"{before}{where}, {plan_of(document.workload, row)}", *words, fits_words(row)]
    return f"{'; '.join(filter(None, told_of))}."


def sure_lines(
    document: Document, sure: Mapping[str, Any], limits: Any, facts: Sequence[MovingFact]
) -> list[str]:
    """What the brackets mean, and how surely each limit is kept."""
    lines = []
    if basis := sure.get("basis"):
        meaning = "published runs like this lie there"
        if any(fact.ends for fact in facts):
            meaning = "runs like this, open facts included"
        lines.append(f"In brackets: 9 of 10 {meaning} (basis: {basis}).")
    kept = [words for limit in limits or () if (words := _kept(limit))]
    return [*lines, f"Meets {', '.join(kept)}."] if kept else lines


def _kept(limit: Any) -> str:
    """How surely a limit is kept; empty where that is not known."""
    term = glossary().get(str(limit.get("name")))
    bound, chance = limit.get("bound"), limit.get("probability")
    if term is None or not _is_known(bound) or not _is_known(chance):
        return ""
    return f"{limit_label(term.term)} {text.limit(bound, term.type)} with {text.chance(chance)}"


def _is_known(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)
