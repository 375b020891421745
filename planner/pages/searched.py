"""The page of a search or of an estimate: the plan to launch, its alternatives, its parts."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from planner.base import text
from planner.decide.open_facts import MovingFact
from planner.errors import InfeasibleError, SpecError
from planner.pages.assumptions import assumptions, rests_of
from planner.pages.document import Document, Row, numbers, read_row
from planner.pages.facts import ends_in, facts_of, facts_section
from planner.pages.manifest import manifest_section
from planner.pages.parts import breakdowns
from planner.pages.table import PLACES, PLAN, make_table, shown_columns
from planner.question.terms import terms_of
from planner.report.front import objective_column, percentile_columns
from planner.report.reached import reached_pairs, told_names
from planner.report.search import fastest_line
from planner.report.short import layout_of, plan_of
from planner.report.sure import fits_words, sure_lines
from planner.report.told import label, told
from planner.show.page import (
    BEST,
    TIE,
    Block,
    Cell,
    Head,
    Lines,
    Page,
    Pairs,
    Scatter,
    Section,
    Table,
)
from planner.specs.catalogue import Catalogue
from planner.workloads.base import Workload

_MOST_BARS = 6
_AXES = {"gpu": "GPU", "num_gpus": "number of GPUs"}
_FIRST = 3
_MEMORY = "peak_memory_gib"


def search_page(document: Document, catalogue: Catalogue) -> Page:
    """The page of what a search wrote.

    Raises
    ------
    SpecError
        It lacks a part or a column.
    InfeasibleError
        The search recommends nothing.
    """
    row = document.row("recommended_row")
    if row is None:
        raise InfeasibleError(f"{document.where}: the search recommends no plan.")
    facts, compared = facts_of(document), _comparisons(document)
    goals = goals_of(document, compared, row)
    sure = document.part("recommended_sure", dict)
    limits = document.part("recommended_limits", list)
    return Page(
        title=str(document.manifest.get("model") or "Search"),
        question=[*map(str, document.manifest.get("question") or ()), *document.notes],
        answer=[
            sentence(document, row, goals, facts, "Recommended: "),
            *filter(None, (document.part("recommended_load", str), _started(row))),
            *_fastest(document, row, goals),
        ],
        reached=reached(document, row, goals, facts),
        sure=sure_lines(str(sure.get("basis") or ""), limits, facts),
        sections=[
            *([_alternatives(document, compared, goals)] if compared else []),
            _front(document, row, goals, float(sure.get("tie_factor") or 1.0)),
            _parts(document, row, compared),
            facts_section(document.workload.wording, facts),
            assumptions(rests_of(document.manifest, row), catalogue),
            manifest_section(document.manifest),
        ],
    )


def _fastest(document: Document, row: Row, goals: Sequence[str]) -> list[str]:
    """The best by the first objective, where that is another plan, and what it gains."""
    best = document.row("fastest_row")
    if best is None or not goals:
        return []
    line = fastest_line(goals[0], row, best, plan_of(document.workload, best))
    return [f"{line}."] if line else []


Compared = Mapping[str, tuple[Sequence[Row], Mapping[str, str]]]


def _comparisons(document: Document) -> Compared:
    """For each outer axis the best plan of every value, and why others have none."""
    found = {}
    for axis, one in document.part("comparisons", dict).items():
        table = one if isinstance(one, Mapping) else {}
        rows, without = table.get("rows"), table.get("without_plan", {})
        if not isinstance(rows, list) or not isinstance(without, Mapping):
            raise SpecError(f"{document.where}: its comparison of {axis} is damaged.")
        read = [Row(read_row(document.where, row), document.row_name) for row in rows]
        found[str(axis)] = (read, without)
    return found


def _alternatives(document: Document, compared: Compared, goals: Sequence[str]) -> Section:
    """A table for each axis, the recommended plan first."""
    blocks: list[Block] = []
    for axis, (rows, without) in compared.items():
        words = _AXES.get(axis) or axis.replace("_", " ")
        columns = shown_columns(document.workload, rows, goals, dict.fromkeys([axis, *PLACES]))
        columns = [axis, *(name for name in columns if name != axis)]
        marks = [BEST if number == 0 else "" for number in range(len(rows))]
        if rows:
            blocks.append(
                make_table(
                    f"by_{axis}", f"The best plan of each {words}", document.workload, rows,
                    columns, marks, is_small=True,
                )
            )  # fmt: skip
        lines = [
            f"{value}: no plan ({str(why).replace('_', ' ')})." for value, why in without.items()
        ]
        if lines:
            blocks.append(Lines(lines=lines))
    return Section(title="Alternatives", blocks=blocks)


def _front(document: Document, row: Row, goals: Sequence[str], factor: float) -> Section:
    """The front as a chart and a table, the recommended plan marked, or put before it."""
    workload, rows = document.workload, [*document.rows]
    if not any(_is_same(workload, one, row) for one in rows):
        rows.insert(0, row)
    marks = _marks(workload, rows, row, goals[0] if goals else "", factor)
    columns = shown_columns(workload, rows, goals)
    notes = ["Marked: the recommended plan."]
    if TIE in marks:
        notes.append(f"~ published runs do not tell it from the best (factor {factor:.2f}).")
    names = " and ".join(label(name) for name in goals)
    table = make_table("front", f"No plan beats these in {names}", workload, rows, columns, marks,
                       notes)  # fmt: skip
    return Section(title="The front", blocks=[*front_chart(table.name, columns, goals), table])


def front_chart(table: str, columns: Sequence[str], goals: Sequence[str]) -> list[Scatter]:
    """Two columns of a table against each other: at first the goals, else cost or memory."""
    others = ("cost_usd", "cost_per_million_tokens_usd", "peak_memory_gib")
    axes = [name for name in dict.fromkeys([*goals, *others]) if name in columns]
    if len(axes) < 2:
        return []
    by = next((name for name in PLACES if name in columns and name != "num_gpus"), "")
    return [
        Scatter(
            name=f"{table}_chart",
            caption="Each point is a row of the table below, bars are 90 % intervals",
            table=table,
            x=axes[1],
            y=axes[0],
            by=by,
            label=PLAN,
        )
    ]


def _is_same(workload: Workload, one: Row, other: Row) -> bool:
    names = [*PLACES, *terms_of(workload.name, "parameter", "pool")]
    return all(one.get(name) == other.get(name) for name in names)


def _marks(
    workload: Workload, rows: Sequence[Row], row: Row, goal: str, factor: float
) -> list[str]:
    """Which row is the recommended plan, and which published runs do not tell from the best."""
    best = next((one.get(goal) for one in rows if one is not row), None) or math.inf
    found = []
    for one in rows:
        known = [mine for mine in numbers([one.get(goal)]) if mine != best]
        is_tie = any(best / factor < mine < best * factor for mine in known)
        found.append(BEST if _is_same(workload, one, row) else TIE if is_tie else "")
    return found


def _parts(document: Document, row: Row, compared: Compared) -> Section:
    """Time and memory of the recommended plan, the best one, and the best of each alternative."""
    workload, fastest = document.workload, document.row("fastest_row")
    named: list[tuple[str, Row]] = [("recommended", row)]
    if fastest is not None and not _is_same(workload, fastest, row):
        named.append(("best", fastest))
    for axis, (rows, _) in compared.items():
        named += [(str(one[axis]), one) for one in rows[1:]]
    labels = [f"{name}: {layout_of(workload, one)}" for name, one in named[:_MOST_BARS]]
    return Section(
        title="Time and memory", blocks=breakdowns(labels, [one for _, one in named[:_MOST_BARS]])
    )


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
    names = told_names(document.workload.wording, goals, limited, row, row)
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
    names = told_names(document.workload.wording, goals, (), row, row)
    costs = [name for name in names if name.endswith("_usd")]
    known = [name for name in dict.fromkeys([*names[:_FIRST], *costs]) if numbers([row[name]])]
    words = [f"{label(name)} {told(name, row[name], ends.get(name))}" for name in known]
    number = row["num_gpus"]
    where = f"{text.count(number)} x {row['gpu']}"
    told_of = [f"{before}{where}, {plan_of(document.workload, row)}", *words, fits_words(row)]
    return f"{'; '.join(filter(None, told_of))}."


def estimate_page(document: Document, catalogue: Catalogue) -> Page:
    """The page of what an estimate wrote.

    Raises
    ------
    SpecError
        It lacks a part or a column.
    InfeasibleError
        The configuration is rejected.
    """
    row, manifest = document.rows[0], document.manifest
    if rejected := row.get("rejected_by"):
        raise InfeasibleError(f"{document.where}: the configuration is rejected by {rejected}.")
    facts = facts_of(document)
    goals = goals_of(document, (), row)
    limits, sure = document.part("limits", list), document.part("sure", dict)
    operators = document.part("operators", list)
    return Page(
        title=str(manifest.get("model") or "Estimate"),
        question=[*map(str, manifest.get("question") or ()), *document.notes],
        answer=[
            sentence(document, row, goals, facts, ""),
            *filter(None, (document.part("load", str), _started(row))),
        ],
        reached=reached(document, row, goals, facts),
        sure=sure_lines(str(sure.get("basis") or ""), limits, facts),
        sections=[
            _configuration(document),
            Section(
                title="Time and memory",
                blocks=breakdowns([layout_of(document.workload, row)], [row]),
            ),
            *([_operators(document.where, operators)] if operators else []),
            facts_section(document.workload.wording, facts),
            assumptions(rests_of(manifest, row), catalogue),
            manifest_section(manifest),
        ],
    )


def _started(row: Mapping[str, Any]) -> str:
    """What an engine says at its start of its cache; empty where none does."""
    at_once, tokens = row.get("max_concurrency"), row.get("kv_cache_tokens")
    size = row.get("kv_cache_size_gib")
    if not at_once or tokens is None or size is None or not math.isfinite(at_once):
        return ""
    longest = text.count(tokens / at_once)
    return (
        f"At its start the engine says: KV cache {size:.2f} GiB, {text.count(tokens)} tokens, "
        f"maximum concurrency {at_once:,.2f}x for {longest} tokens per request."
    )


def _configuration(document: Document) -> Section:
    """Every parameter that is not at its plain value."""
    row = document.rows[0]
    known = terms_of(document.workload.name, "parameter", "derived", "pool")
    pairs = {
        label(name): text.value(row[name])
        for name, term in known.items()
        if row.get(name) is not None and row[name] != term.plain
    }
    return Section(title="The configuration", blocks=[Pairs(pairs=pairs)])


def _operators(where: str, operators: Sequence[Mapping[str, object]]) -> Section:
    """The time of every operator, the longest first."""
    names = [*dict.fromkeys(name for one in operators for name in _checked(where, one))]
    heads = [
        Head(name=name, text=words + " ms" * is_time, numeric=is_time)
        for name in names
        for words, is_time in [(name.removesuffix("_s").replace("_", " "), name.endswith("_s"))]
    ]
    rows = [[_cell(name, one.get(name)) for name in names] for one in operators]
    table = Table(name="operators", caption="Time by operator, of a step", heads=heads, rows=rows)
    return Section(title="Operators", blocks=[table])


def _checked(where: str, operator: object) -> Mapping[str, object]:
    if not isinstance(operator, Mapping):
        raise SpecError(f"{where}: its part operators is damaged.")
    return operator


def _cell(name: str, value: object) -> Cell:
    if isinstance(value, float) and name.endswith("_s"):
        return Cell(text=f"{1e3 * value:,.2f}", number=1e3 * value)
    number = float(value) if isinstance(value, int | float) else None
    return Cell(text="-" if value is None else str(value), number=number)
