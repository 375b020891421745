"""The page of a sweep: what is cheapest and fastest, the matrix, every scenario."""

from __future__ import annotations

import heapq
import itertools
import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from planner.base import formatting
from planner.base.csv_cells import Row as SweepRow
from planner.base.csv_cells import Value
from planner.question.parse_values import limit_column
from planner.show.output_blocks import (  # fmt: skip
    BEST,
    Block,
    Figure,
    Page,
    RankingChart,
    Section,
    Table,
)
from planner.show.presenters.uncertainty import fits_words
from planner.specs.catalogue import Catalogue
from planner.sweeps.columns import COST, MEASURES, TIME, column_of_measure, measured, measured_ends
from planner.sweeps.columns import PLACES as TERMS
from planner.sweeps.plan import SweepPlan
from planner.sweeps.summary import Summary, WorkloadGroup, summarize
from planner.sweeps.summary_blocks import (
    BRACKETS,
    best_words,
    by_group,
    counts_lines,
    found_blocks,
    group_title,
    headlines,
    marks_lines,
    money_lines,
    nowhere_lines,
    plan_in_short,
    price_difference_lines,
    proven_lines,
    where,
)
from planner.sweeps.sweep_folder import Sweep
from planner.ui.pages.headline import evidence, figures, headline, hints, ranking, with_meanings
from planner.ui.pages.result_json import ResultRow, version_notes
from planner.ui.pages.result_tables import (
    AXES,
    MOST_ROWS,
    PLACES,
    assumptions,
    breakdowns,
    front_chart,
    make_table,
    manifest_section,
    shown_columns,
    specs_of_rows,
)
from planner.workloads.registry import workload_of
from planner.workloads.workload import Workload

_MOST_WITHOUT = 200


def sweep_page(sweep: Sweep, catalogue: Catalogue) -> Page:
    """The page of the directory of a sweep, finished or not.

    Raises SpecError if it cannot be read, or a column is lacking.
    """
    plan, where = sweep.plan, str(sweep.folder)
    summary = summarize(sweep.rows(), plan)
    groups = summary.groups
    fronts = by_group(sweep.front_rows(), groups)
    best = [row for group in groups for row in group.best.values()]
    numbers = {row["scenario"] for row in best}
    rows = [ResultRow(dict(row.items()), where) for row in _first_rows(sweep, numbers)]
    lines = [line for group in groups for line in _answers(group, is_named=len(groups) > 1)]
    sections = [
        Section(
            title=f"What wins for {group_title(group)}?",
            blocks=[
                *_found(group, fronts.get((group.work, group.model), ()), f"matrix{number}"),
                *_parts(group, rows, number),
            ],
        )
        for number, group in enumerate(groups)
        if group.best
    ]
    if rows:
        sections.append(
            Section(
                title="What does every scenario take?",
                blocks=_scenarios(rows, plan, numbers, summary),
            )
        )
    used = specs_of_rows(best[:1])
    how = {"version": sweep.version, "command": f"planner sweep show {where}"}
    asked = [*filter(None, [plan.description]), *counts_lines(sweep, summary)]
    varied = [AXES.get(name) or name.replace("_", " ") for name in plan.varied]
    models = formatting.join_words(dict.fromkeys(group.model for group in groups)) or plan.name
    priced = [
        (group, [row for measure, _, row in group.headlines if measure == COST][-1])
        for group in groups
        if COST in group.best
    ]  # the last is the one whose price nobody doubts
    page = Page(
        title=f"Which {formatting.join_words(varied) or 'plan'} for {models}?",
        subject=plan.name,
        question=[*asked, *version_notes(sweep.version)],
        answer=lines or ["No scenario has a plan."],
        sure=[*price_difference_lines(plan, groups), BRACKETS, *marks_lines(groups)]
        if best
        else [],
        sections=[*sections, assumptions(used, catalogue), manifest_section(how)],
    )
    if not best:
        return replace(page, headline="No scenario has a plan.")
    group, row = priced[0] if priced else (groups[0], best[0])
    workload = workload_of(group.workload)
    return with_meanings(
        replace(
            page,
            headline=_headline(groups, row, [one for _, one in priced]),
            figures=_figures(summary, row),
            evidence=evidence(row.get("basis"), row.get("evidence_runs")),
            chart=_ranking(workload, rows, priced) if priced else None,
        ),
        workload.name,
    )


def _first_rows(sweep: Sweep, best: Collection[object]) -> list[SweepRow]:
    """The best scenarios, then those that cost the least, and the first without a plan."""

    def order(row: SweepRow) -> tuple[bool, float]:
        cost = measured(COST, row)
        return row["scenario"] not in best, cost if math.isfinite(cost) else math.inf

    found = (row for row in sweep.rows() if row["feasible"])
    others = (row for row in sweep.rows() if not row["feasible"])
    return [*heapq.nsmallest(MOST_ROWS, found, order), *itertools.islice(others, _MOST_WITHOUT)]


def _found(group: WorkloadGroup, front: Sequence[SweepRow], matrix: str) -> list[Block]:
    """What the command says of a group; the rows of its matrix with the best first."""
    blocks = [*found_blocks(group, front, name=matrix)]
    for at, block in enumerate(blocks):
        if isinstance(block, Table) and block.name == matrix:
            best = [max((cell.shade or 0.0 for cell in row), default=0.0) for row in block.rows]
            order = sorted(range(len(best)), key=lambda n: -best[n])
            rows = [block.rows[n] for n in order]
            blocks[at] = replace(block, rows=rows, marked=[BEST] if any(best) else [])
    return blocks


def _figures(summary: Summary, row: SweepRow) -> list[Figure]:
    """The numbers of the cheapest scenario; of several works how many have an answer at all."""
    ends = {name: ends for name in row if (ends := measured_ends(name, row)) is not None}
    columns = [column_of_measure(TIME, row), column_of_measure(COST, row)]
    made = figures(row, ends, first=columns)
    if len(summary.groups) == 1:
        return made
    planned = (
        f"{formatting.format_count(summary.feasible)} of "
        f"{formatting.format_count(summary.scenarios)}"
    )
    answered = sum(bool(group.best) for group in summary.groups)
    works = f"{formatting.format_count(answered)} of {formatting.format_count(len(summary.groups))}"
    return [
        Figure(name="works with a plan", text=works),
        Figure(name="scenarios with a plan", text=planned),
        *(replace(one, name=f"least {one.name}") for one in made[1:2]),
    ]


def _headline(groups: Sequence[WorkloadGroup], row: SweepRow, cheapest: Sequence[SweepRow]) -> str:
    """The cheapest scenario of one work; of several how often each GPU is the cheapest."""
    if len(groups) == 1:
        wins = "is cheapest" if groups[0].better_tied(COST) is None else "runs best"
        return headline(workload_of(groups[0].workload), row, wins)
    won = Counter(str(row["gpu"]) for row in cheapest)
    if not won:
        return f"Plans for {formatting.format_count(len(groups))} works, none of them with a price."
    if len(won) == 1:
        return (
            f"The cheapest GPU is {next(iter(won))}, in each of "
            f"{formatting.format_count(len(groups))} works."
        )
    words = [f"{gpu} for {formatting.format_count(number)}" for gpu, number in won.most_common()]
    return (
        f"Of {formatting.format_count(len(groups))} works the cheapest GPU is "
        f"{formatting.join_words(words)}."
    )


def _ranking(
    workload: Workload,
    rows: Sequence[ResultRow],
    priced: Sequence[tuple[WorkloadGroup, Mapping[str, Any]]],
) -> RankingChart | None:
    """What each GPU and contract costs with its best number of GPUs; of several works the cheapest
    of each.
    """
    column = column_of_measure(COST, priced[0][1])
    if len(priced) > 1:
        titles = {row["scenario"]: group_title(group) for group, row in priced}
        chosen = [row for _, row in priced if column_of_measure(COST, row) == column]
        chosen.sort(key=lambda row: measured(COST, row))
        return ranking(
            workload, chosen, column, lambda row: f"{titles[row['scenario']]}: {row['gpu']}",
            "The cheapest of each work", ends=partial(measured_ends, COST),
        )  # fmt: skip
    places: dict[str, ResultRow] = {}
    answer = priced[0][1]["scenario"]
    for row in sorted(rows, key=lambda row: (row["scenario"] != answer, measured(COST, row))):
        if math.isfinite(measured(COST, row)):
            places.setdefault(where(row), row)
    return ranking(
        workload, [*places.values()], column,
        lambda row: f"{formatting.format_count(row['num_gpus'])} x {where(row)}",
        "The cost on each GPU and contract with its cheapest number of GPUs, and 90 % intervals",
        float(priced[0][1].get("tie_factor") or 1.0), partial(measured_ends, COST),
    )  # fmt: skip


def _answers(group: WorkloadGroup, *, is_named: bool) -> list[str]:
    """The best scenarios of a group, a sentence each."""
    before = f"{group_title(group)}: " if is_named else ""
    if not group.best:
        return [f"{before}no plan at all; {'; '.join(nowhere_lines(group))}"]
    same: dict[Value, list[str]] = {}
    for title, row in headlines(group):
        same.setdefault(row["scenario"], []).append(title)
    rows = {row["scenario"]: row for _, row in headlines(group)}
    words = {n: [*best_words(row).split("\n"), fits_words(row)] for n, row in rows.items()}
    best = [
        f"{before}{' and '.join(titles).capitalize()}: {'; '.join(filter(None, words[number]))}."
        for number, titles in same.items()
    ]
    lines = [*proven_lines(group), *money_lines(group)]
    return [*best, *(f"{before}{line}." for line in lines)]


def _parts(group: WorkloadGroup, rows: Sequence[ResultRow], number: int) -> list[Block]:
    """Time and memory of the best scenarios."""
    best = {row["scenario"] for row in group.best.values()}
    chosen = [row for row in rows if row["scenario"] in best]
    labels = [f"{row['num_gpus']:,} x {row['gpu']}: {plan_in_short(row)}" for row in chosen]
    return breakdowns(labels, chosen, f"group{number}_") if chosen else []


def _scenarios(
    rows: Sequence[ResultRow], plan: SweepPlan, best: Collection[object], summary: Summary
) -> list[Block]:
    """The first scenarios as a table, one for each workload, and cost against time as a chart;
    those without a plan are folded.
    """
    blocks: list[Block] = []
    notes = ["Marked: the best of each kind, as above."]
    shown = sum(bool(row["feasible"]) for row in rows)
    if shown < summary.feasible:
        notes.append(
            f"The {formatting.format_count(shown)} that cost the least of "
            f"{formatting.format_count(summary.feasible)} with a "
            "plan; the files of the sweep have all."
        )
    without = summary.scenarios - summary.feasible
    measures = [name for one in (COST, TIME) for name in MEASURES[one]]
    for workload in map(workload_of, dict.fromkeys(work.workload for work in plan.works)):
        those = [row for row in rows if row["workload"] == workload.name]
        if not those:
            continue
        goals = [name for name in measures if any(row.get(name) is not None for row in those)]
        varied = [name if name in those[0] else limit_column(name) for name in plan.varied]
        among = dict.fromkeys(["work", *varied, *TERMS, *PLACES])
        columns = ["scenario", *shown_columns(workload, those, goals, among)]
        name = f"scenarios_{workload.name}"
        found = [row for row in those if row["feasible"]]
        if found:
            table = make_table(
                name, f"Scenarios of {workload.name}, the best first", workload, found, columns,
                [BEST if row["scenario"] in best else "" for row in found],
                notes,
            )  # fmt: skip
            table = replace(table, hints=[hints(workload, row) for row in found])
            blocks += [*front_chart(name, columns, goals), table]
        if others := [row for row in those if not row["feasible"]]:
            names = ["scenario", *dict.fromkeys([*varied, "gpu", "num_gpus", "reason"])]
            some = f"{formatting.format_count(len(others))} of " if len(others) < without else ""
            caption = f"{some}{formatting.format_count(without)} scenarios without a plan, and why"
            no_plan = make_table(f"no_plan_{workload.name}", caption, workload, others, names)
            blocks.append(replace(no_plan, is_folded=bool(found)))
    return blocks
