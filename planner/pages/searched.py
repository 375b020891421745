"""The page of a search: the plan to launch, its alternatives, the front."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from planner.errors import InfeasibleError, SpecError
from planner.pages.answer import goals_of, reached, sentence, sure_lines
from planner.pages.assumptions import assumptions, rests_of
from planner.pages.content import BEST, TIE, Block, Lines, Page, Scatter, Section
from planner.pages.document import Document, Row, read_row
from planner.pages.facts import facts_of, facts_section
from planner.pages.manifest import manifest_section
from planner.pages.parts import breakdowns
from planner.pages.table import PLACES, PLAN, layout_of, make_table, plan_of, shown_columns
from planner.question.terms import terms_of
from planner.report.short import share
from planner.report.told import label, told
from planner.specs.catalogue import Catalogue
from planner.workloads.base import Workload

_MOST_BARS = 6
_SAME = 1e-3
_AXES = {"gpu": "GPU", "num_gpus": "number of GPUs"}


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
        answer=[sentence(document, row, goals, facts, "Recommended: "), *_best(document, goals)],
        reached=reached(document, row, goals, facts),
        sure=sure_lines(document, sure, limits, facts),
        sections=[
            *([_alternatives(document, compared, goals)] if compared else []),
            _front(document, row, goals, float(sure.get("tie_factor") or 1.0)),
            _parts(document, row, compared),
            facts_section(document.workload.wording, facts),
            assumptions(rests_of(document.manifest, row), catalogue),
            manifest_section(document.manifest),
        ],
    )


def _best(document: Document, goals: Sequence[str]) -> list[str]:
    """The best by the first objective, where that is another plan, and what it gains."""
    row, best = document.row("recommended_row"), document.row("fastest_row")
    if row is None or best is None or not goals:
        return []
    column = goals[0]
    mine, other = row[column], best[column]
    gain = abs(other / mine - 1) if mine else 0.0
    if gain < _SAME:
        return []
    words = f"{label(column)} {told(column, other)}, {share(gain)} better"
    return [f"Best by {label(column)}: {plan_of(document.workload, best)}; {words}."]


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
        lines = [f"{value}: no plan ({_reason(why)})." for value, why in without.items()]
        if lines:
            blocks.append(Lines(lines=lines))
    return Section(title="Alternatives", blocks=blocks)


def _reason(why: Any) -> str:
    return str(why).replace("_", " ")


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
    best = next((one.get(goal) for one in rows if one is not row), None)
    return [_mark(one, row, workload, goal, best, factor) for one in rows]


def _mark(
    one: Row, row: Row, workload: Workload, goal: str, best: float | None, factor: float
) -> str:
    if _is_same(workload, one, row):
        return BEST
    mine = one.get(goal)
    if not best or not isinstance(mine, int | float) or mine == best:
        return ""
    return TIE if best / factor < mine < best * factor else ""


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
