"""The page of a sweep: the best scenarios, the matrix of GPU and count, all scenarios."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import Any

from planner.base import text
from planner.pages.assumptions import Rests, assumptions, manifest_section, specs_of_rows
from planner.pages.document import Row as DocumentRow
from planner.pages.document import version_notes
from planner.pages.searched import front_chart
from planner.pages.table import MOST_ROWS, PLACES, breakdowns, make_table, shown_columns
from planner.question.cells import limit_column
from planner.report.sure import fits_words
from planner.show.page import BEST, Block, Lines, Page, Section
from planner.specs.catalogue import Catalogue
from planner.sweeps.columns import COST, MEASURES, TIME, Row, column_of_measure
from planner.sweeps.columns import PLACES as TERMS
from planner.sweeps.plan import SweepPlan
from planner.sweeps.results import Sweep
from planner.sweeps.screen import (
    TITLES,
    assumed_lines,
    group_title,
    marks_lines,
    matrix_table,
    nowhere_lines,
    overtaking_line,
    plan_in_short,
    tie_lines,
    told_of,
    unknown_line,
    where,
    winner_lines,
)
from planner.sweeps.summary import Group, summarize
from planner.workloads.registry import workload_of

_MOST_OVERTAKINGS = 6


def sweep_page(sweep: Sweep, catalogue: Catalogue) -> Page:
    """The page of the directory of a sweep, finished or not.

    Raises
    ------
    SpecError
        It cannot be read, or a column is lacking.
    """
    plan = sweep.plan
    summary = summarize(sweep.rows(), plan)
    rows = [*itertools.islice(_rows(sweep), MOST_ROWS + 1)]
    feasible = text.count(summary.feasible)
    counts = f"{text.count(summary.scenarios)} scenarios, {feasible} with a plan"
    varied = f"varied: {', '.join(name.replace('_', ' ') for name in plan.varied)}"
    state = [*version_notes(sweep.version), *_unfinished(sweep)]
    groups = summary.groups
    is_alone = len(groups) == 1
    sections = [
        part for at, group in enumerate(groups) for part in _sections(group, rows, at, is_alone)
    ]
    answers = [line for group in groups for line in _answers(group, not is_alone)]
    best = [row for group in groups for row in group.best.values()]
    rests = Rests(defaults={}, assumed=(), specs=specs_of_rows(best[:1]))
    return Page(
        title=plan.name,
        question=[*filter(None, [plan.description, f"{counts}; {varied}"]), *state],
        answer=answers or ["No scenario has a plan."],
        sure=["In brackets: 9 of 10 published runs like this."] if best else [],
        sections=[
            *sections,
            *([_all(rows, plan, {row["scenario"] for row in best})] if rows else []),
            assumptions(rests, catalogue),
            manifest_section(
                {"version": sweep.version, "command": f"planner sweep show {sweep.folder}"}
            ),
        ],
    )


def _rows(sweep: Sweep) -> Iterator[DocumentRow]:
    where = str(sweep.folder)
    yield from (DocumentRow(dict(row.items()), where) for row in sweep.rows())


def _unfinished(sweep: Sweep) -> list[str]:
    if sweep.is_complete:
        return []
    done, total = text.count(sweep.done), text.count(sweep.plan.num_scenarios)
    return [f"Not finished: {done} of {total} scenarios are done."]


def _answers(group: Group, is_named: bool) -> list[str]:
    """The best scenarios of a group, a sentence each."""
    before = f"{group_title(group)}: " if is_named else ""
    if not group.best:
        return [f"{before}no plan at all; {'; '.join(nowhere_lines(group))}"]
    same: dict[int, list[str]] = {}
    for measure, row in group.best.items():
        same.setdefault(row["scenario"], []).append(TITLES[measure])
    rows = {row["scenario"]: row for row in group.best.values()}
    return [
        f"{before}{titles[0][:1].upper()}{' and '.join(titles)[1:]}: {_told(rows[number])}."
        for number, titles in same.items()
    ]


def _told(row: Row) -> str:
    """Where a scenario runs, what it costs and takes, and its plan."""
    reached = [told_of(one, row) for one in (COST, TIME) if column_of_measure(one, row)]
    basis = [f"basis {row['basis']}"] if row.get("basis") else []
    place = f"{text.count(row['num_gpus'])} x {where(row)}"
    words = [place, *reached, plan_in_short(row), fits_words(row), *basis]
    return "; ".join(filter(None, words))


def _sections(
    group: Group, rows: Sequence[DocumentRow], number: int, is_alone: bool
) -> list[Section]:
    """What a group says: its matrix, what overtakes what, where time and memory go; in one section
    where there are other groups.
    """
    if not group.best:
        return []
    lines = [
        *winner_lines(group),
        *(overtaking_line(one) for one in _overtakings(group)),
        *nowhere_lines(group),
    ]
    parts, change = _parts(group, rows, number), _lines(_change_lines(group))
    first = [_matrix(group, number), *_lines(lines)]
    if not is_alone:
        return [Section(title=group_title(group), blocks=[*first, *change, *parts])]
    sections = {
        group_title(group): first,
        "Time and memory": parts,
        "What would change the answer": change,
    }
    return [Section(title=title, blocks=blocks) for title, blocks in sections.items() if blocks]


def _change_lines(group: Group) -> list[str]:
    """What ties with the best scenarios, and what nobody knows of them."""
    lines = [*tie_lines(group, COST), *tie_lines(group, TIME), *assumed_lines(group)]
    if group.unpriced:
        places = ", ".join(" ".join(place) for place in sorted(group.unpriced))
        lines.append(f"No price, so no cost: {places}")
    return lines


def _lines(lines: Sequence[str]) -> list[Block]:
    return [Lines(lines=lines)] if lines else []


def _parts(group: Group, rows: Sequence[DocumentRow], number: int) -> list[Block]:
    """Time and memory of the best scenarios."""
    best = {row["scenario"] for row in group.best.values()}
    chosen = [row for row in rows if row["scenario"] in best]
    labels = [f"{row['num_gpus']:,} x {row['gpu']}: {plan_in_short(row)}" for row in chosen]
    return breakdowns(labels, chosen, f"group{number}_") if chosen else []


def _overtakings(group: Group) -> Iterator[Any]:
    for measure in (COST, TIME):
        yield from group.overtakings(measure)[:_MOST_OVERTAKINGS]


def _matrix(group: Group, number: int) -> Block:
    """The measure of a group by place and number of GPUs, winners and ties marked."""
    if not group.knows(group.metric):
        return Lines(lines=[unknown_line(group)])
    table = matrix_table(group, group.places, f"matrix{number}", group.by[0] or " ")
    return replace(table, notes=marks_lines([group]))


def _all(rows: Sequence[DocumentRow], plan: SweepPlan, best: Collection[int]) -> Section:
    """Every scenario as a table, one for each workload, and cost against time as a chart."""
    blocks: list[Block] = []
    for name in dict.fromkeys(work.workload for work in plan.works):
        those = [row for row in rows if row["workload"] == name]
        if those:
            blocks += _scenarios(those, plan, best)
    return Section(title="All scenarios", blocks=blocks)


def _scenarios(rows: Sequence[DocumentRow], plan: SweepPlan, best: Collection[int]) -> list[Block]:
    workload = workload_of(rows[0]["workload"])
    measures = [name for one in (COST, TIME) for name in MEASURES[one]]
    goals = [name for name in measures if any(row.get(name) is not None for row in rows)]
    varied = [name if name in rows[0] else limit_column(name) for name in plan.varied]
    columns = ["scenario", *shown_columns(workload, rows, goals, dict.fromkeys(
        ["work", *varied, *TERMS, *PLACES]))]  # fmt: skip
    if any(not row["feasible"] for row in rows):
        columns.append("reason")
    marks = [BEST if row["scenario"] in best else "" for row in rows]
    notes = ["Marked: the best of each kind, as above."]
    name = f"scenarios_{workload.name}"
    table = make_table(name, f"Scenarios of {workload.name}", workload, rows, columns, marks, notes)
    return [*front_chart(name, columns, goals), table]
