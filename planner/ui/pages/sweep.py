"""The page of a sweep: the recommended and best scenarios, the matrix, and all scenarios."""

from __future__ import annotations

import heapq
import itertools
import math
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import partial

from planner.base.csv_cells import Row as SweepRow
from planner.base.csv_cells import TypedRow
from planner.base.formatting import format_count, join_words
from planner.decide.sizing.fleet import COSTS
from planner.decide.sizing.purchase import PurchaseOption, options_of_row
from planner.question.names import GPU
from planner.question.parse_values import limit_column
from planner.show.output_blocks import (  # fmt: skip
    BEST,
    Block,
    Figure,
    Lines,
    Page,
    RankingChart,
    Section,
    Table,
    make_lines,
)
from planner.show.presenters.format_results import number_of
from planner.show.presenters.purchase import (
    decision_sections,
    priced_rows,
    prices_section,
    without_prices,
)
from planner.show.presenters.row_tables import (
    AXES,
    MOST_ROWS,
    PLACEMENT_COLUMNS,
    make_table,
    shown_columns,
)
from planner.show.reports import ResultRow, version_notes
from planner.specs.catalogue import Catalogue
from planner.sweeps.columns import COST, MEASURES, TIME, column_of_measure, measured, measured_ends
from planner.sweeps.columns import PLACES as TERMS
from planner.sweeps.plan import SweepPlan
from planner.sweeps.summary import Summary, WorkloadGroup, summarize
from planner.sweeps.summary_blocks import (
    BRACKETS,
    by_group,
    counts_lines,
    format_placement,
    format_plan,
    group_blocks,
    group_title,
    marks_lines,
    no_plan_lines,
    price_difference_lines,
    recommended_lines,
    tied_line,
)
from planner.sweeps.sweep_folder import Sweep
from planner.ui.pages.result_tables import (
    assumptions,
    breakdowns,
    evidence,
    figures,
    front_chart,
    headline,
    hints,
    manifest_section,
    ranking,
    specs_of_rows,
    with_glossary,
)
from planner.workloads.registry import workload_of
from planner.workloads.workload import Workload

_MAX_WITHOUT_PLAN = 200


def sweep_page(sweep: Sweep, catalogue: Catalogue) -> Page:
    """Return the page of the directory of a sweep, finished or not.

    Raises SpecError if the sweep cannot be read, or a column is missing.
    """
    plan, where = sweep.plan, str(sweep.folder)
    summary = summarize(sweep.rows(), plan)
    groups = summary.groups
    fronts = by_group(sweep.front_rows(), groups)
    best = [row for group in groups for _, _, row in group.headlines]
    numbers = {row["scenario"] for row in best}
    rows = [ResultRow(dict(row.items()), where) for row in _first_rows(sweep, numbers)]
    options, prices = _purchase_options(sweep, rows) if len(groups) == 1 else [], priced_rows(rows)
    decision = [*decision_sections(options, compared=prices)] or prices_section(prices)
    lines = [line for group in groups for line in _answer_lines(group, is_named=len(groups) > 1)]
    sections = [
        Section(
            title=f"What is best for {group_title(group)}?",
            blocks=[
                *_group_blocks(group, fronts.get((group.work, group.model), ()), f"matrix{number}"),
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
    manifest = {"version": sweep.version, "command": f"planner sweep show {where}"}
    question = [*filter(None, [plan.description]), *counts_lines(sweep, summary)]
    varied = [AXES.get(name) or name.replace("_", " ") for name in plan.varied]
    models = join_words(dict.fromkeys(group.model for group in groups)) or plan.name
    priced = [
        (group, row)
        for group in groups
        if COST in group.best and (row := group.recommended) is not None
    ]
    page = Page(
        title=f"Which {join_words(varied) or 'plan'} for {models}?",
        subject=plan.name,
        question=[*question, *version_notes(sweep.version)],
        answer=lines or ["No scenario has a plan."],
        sure=[*price_difference_lines(plan, groups), BRACKETS, *marks_lines(groups)]
        if best
        else [],
        sections=[
            *sections,
            *decision,
            assumptions(used, catalogue),
            manifest_section(manifest),
        ],
    )
    if not best:
        return replace(page, headline="No scenario has a plan.")
    group, row = priced[0] if priced else (groups[0], best[0])
    workload = workload_of(group.workload)
    return with_glossary(
        replace(
            page,
            headline=_headline(groups, row, [priced_row for _, priced_row in priced]),
            figures=_figures(summary, row),
            evidence=evidence(row.get("basis"), row.get("evidence_runs")),
            chart=_ranking(workload, rows, priced) if priced else None,
        ),
        workload.name,
    )


def _purchase_options(sweep: Sweep, rows: Sequence[ResultRow]) -> list[PurchaseOption]:
    """Return the ways to rent, reserve or own the cheapest plan of each GPU type."""
    if not rows or sweep.plan.works[0].workload == "inference":
        return []
    column = next((name for name in COSTS if rows[0].get(name) is not None), COSTS[0])
    priced = [row for row in rows if row.get(GPU) and math.isfinite(number_of(row, column))]
    priced.sort(key=lambda row: number_of(row, column))
    best: dict[str, ResultRow] = {}
    for row in priced:
        best.setdefault(str(row[GPU]), row)
    return [
        option
        for row in best.values()
        for option in options_of_row(
            sweep.plan.scenario(int(row["scenario"])).request(sweep.plan.specs), row
        )
    ]


def _first_rows(sweep: Sweep, best: Collection[object]) -> list[SweepRow]:
    """Return the best scenarios, then the cheapest ones, and the first without a plan."""

    def order(row: SweepRow) -> tuple[bool, float]:
        cost = measured(COST, row)
        return row["scenario"] not in best, cost if math.isfinite(cost) else math.inf

    feasible = (row for row in sweep.rows() if row["feasible"])
    infeasible = (row for row in sweep.rows() if not row["feasible"])
    return [
        *heapq.nsmallest(MOST_ROWS, feasible, order),
        *itertools.islice(infeasible, _MAX_WITHOUT_PLAN),
    ]


def _group_blocks(group: WorkloadGroup, front: Sequence[SweepRow], matrix: str) -> list[Block]:
    """Return the blocks of `planner sweep show` for a group; best rows first in the matrix."""
    above = [*recommended_lines(group), *tied_line(group)]
    blocks = [
        make_lines(*(line for line in without_prices(block.lines) if line not in above))
        if isinstance(block, Lines)
        else block
        for block in group_blocks(group, front, name=matrix)
    ]
    for index, block in enumerate(blocks):
        if isinstance(block, Table) and block.name == matrix:
            best = [max((cell.shade or 0.0 for cell in row), default=0.0) for row in block.rows]
            order = sorted(range(len(best)), key=lambda n: -best[n])
            rows = [block.rows[n] for n in order]
            blocks[index] = replace(block, rows=rows, marked=[BEST] if any(best) else [])
    return blocks


def _figures(summary: Summary, row: SweepRow) -> list[Figure]:
    """Return figures of the recommended scenario; for several works, the number with a plan."""
    ends = {name: ends for name in row if (ends := measured_ends(name, row)) is not None}
    columns = [column_of_measure(TIME, row), column_of_measure(COST, row)]
    chosen = figures(row, ends, first=columns)
    if len(summary.groups) == 1:
        return chosen
    planned = f"{format_count(summary.feasible)} of {format_count(summary.scenarios)}"
    answered = sum(bool(group.best) for group in summary.groups)
    works = f"{format_count(answered)} of {format_count(len(summary.groups))}"
    return [
        Figure(name="works with a plan", text=works),
        Figure(name="scenarios with a plan", text=planned),
        *(replace(figure, name=f"{figure.name}, first work") for figure in chosen[1:2]),
    ]


def _headline(
    groups: Sequence[WorkloadGroup], row: SweepRow, recommended: Sequence[SweepRow]
) -> str:
    """Return the recommended scenario; for several works, how often each GPU is recommended."""
    number = format_count(len(groups))
    if len(groups) == 1:
        return headline(workload_of(groups[0].workload), row, "should run")
    won = Counter(str(row["gpu"]) for row in recommended)
    if not won:
        return f"Plans for {number} works, none of them with a price."
    if len(won) == 1 and len(recommended) == len(groups):
        return f"The recommended GPU is {next(iter(won))}, in each of {number} works."
    texts = [f"{gpu} for {format_count(count)}" for gpu, count in won.most_common()]
    return f"Of {number} works the recommended GPU is {join_words(texts)}."


def _ranking(
    workload: Workload,
    rows: Sequence[ResultRow],
    priced: Sequence[tuple[WorkloadGroup, TypedRow]],
) -> RankingChart | None:
    """Return a chart of the cost of each GPU and contract with its best number of GPUs.

    For several works, the chart has the recommended plan of each.
    """
    column = column_of_measure(COST, priced[0][1])
    if len(priced) > 1:
        titles = {row["scenario"]: group_title(group) for group, row in priced}
        chosen = [row for _, row in priced if column_of_measure(COST, row) == column]
        chosen.sort(key=lambda row: measured(COST, row))
        return ranking(
            workload, chosen, column, lambda row: f"{titles[row['scenario']]}: {row['gpu']}",
            "The recommended plan of each work", ends=partial(measured_ends, COST),
        )  # fmt: skip
    places: dict[str, ResultRow] = {}
    answer = priced[0][1]["scenario"]
    for row in sorted(rows, key=lambda row: (row["scenario"] != answer, measured(COST, row))):
        if math.isfinite(measured(COST, row)):
            places.setdefault(format_placement(row), row)
    return ranking(
        workload, [*places.values()], column,
        lambda row: f"{format_count(row['num_gpus'])} x {format_placement(row)}",
        "The cost on each GPU and contract: the recommended plan, then the cheapest numbers; "
        "90 % intervals at the price",
        float(priced[0][1].get("tie_factor") or 1.0), partial(measured_ends, COST),
    )  # fmt: skip


def _answer_lines(group: WorkloadGroup, *, is_named: bool) -> list[str]:
    """Return the sentences of the screen on a group: what to run, and what may be better."""
    prefix = f"{group_title(group)}: " if is_named else ""
    if not group.best:
        return [f"{prefix}no plan at all; {'; '.join(no_plan_lines(group))}"]
    lines = [*recommended_lines(group), *tied_line(group)]
    return [prefix + line.replace("RECOMMENDED  ", "Recommended: ", 1) for line in lines]


def _parts(group: WorkloadGroup, rows: Sequence[ResultRow], number: int) -> list[Block]:
    """Return charts of the time and memory of the best scenarios of a group."""
    best = {row["scenario"] for _, _, row in group.headlines}
    chosen = [row for row in rows if row["scenario"] in best]
    labels = [f"{row['num_gpus']:,} x {row['gpu']}: {format_plan(row)}" for row in chosen]
    return breakdowns(labels, chosen, f"group{number}_") if chosen else []


def _scenarios(
    rows: Sequence[ResultRow], plan: SweepPlan, best: Collection[object], summary: Summary
) -> list[Block]:
    """Return a table of scenarios and a chart of cost and time for each workload.

    Scenarios without a plan are folded.
    """
    blocks: list[Block] = []
    notes = ["Marked: the best of each kind, as above."]
    shown = sum(bool(row["feasible"]) for row in rows)
    if shown < summary.feasible:
        notes.append(
            f"The cheapest {format_count(shown)} of {format_count(summary.feasible)} with a plan; "
            "the files of the sweep have all."
        )
    without = summary.scenarios - summary.feasible
    measures = [name for measure in (COST, TIME) for name in MEASURES[measure]]
    for workload in map(workload_of, dict.fromkeys(work.workload for work in plan.works)):
        workload_rows = [row for row in rows if row["workload"] == workload.name]
        if not workload_rows:
            continue
        goals = [
            name for name in measures if any(row.get(name) is not None for row in workload_rows)
        ]
        varied = [name if name in workload_rows[0] else limit_column(name) for name in plan.varied]
        among = dict.fromkeys(["work", *varied, *TERMS, *PLACEMENT_COLUMNS])
        columns = ["scenario", *shown_columns(workload, workload_rows, goals, among)]
        name = f"scenarios_{workload.name}"
        feasible_rows = [row for row in workload_rows if row["feasible"]]
        if feasible_rows:
            table = make_table(
                name, f"Scenarios of {workload.name}, the best first", workload, feasible_rows,
                columns,
                [BEST if row["scenario"] in best else "" for row in feasible_rows],
                notes,
            )  # fmt: skip
            table = replace(table, hints=[hints(workload, row) for row in feasible_rows])
            blocks += [*front_chart(name, columns, goals), table]
        if infeasible_rows := [row for row in workload_rows if not row["feasible"]]:
            names = ["scenario", *dict.fromkeys([*varied, "gpu", "num_gpus", "reason"])]
            share_text = (
                f"{format_count(len(infeasible_rows))} of "
                if len(infeasible_rows) < without
                else ""
            )
            caption = f"{share_text}{format_count(without)} scenarios without a plan, and why"
            no_plan = make_table(
                f"no_plan_{workload.name}", caption, workload, infeasible_rows, names
            )
            blocks.append(replace(no_plan, is_folded=bool(feasible_rows)))
    return blocks
