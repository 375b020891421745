"""One screen of a sweep: what to run, how sure, the best scenarios, the matrix."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from planner.base.csv_cells import Row, Value, number_or_nan
from planner.optimize.result_columns import RUNS
from planner.show.output_blocks import BEST, GAP, TOTAL, Block, Column, fit_table, make_lines
from planner.show.presenters.format_results import format_in_common_unit, label, number_cells
from planner.sweeps.columns import COST, TIME, VALUE, column_of_measure, measured, measured_ends
from planner.sweeps.summary import Summary, WorkloadGroup
from planner.sweeps.summary_blocks import (
    RULES,
    TITLES,
    column_of,
    counts_lines,
    format_gpus_of,
    format_measure,
    full_blocks,
    group_title,
    matrix_blocks,
    no_plan_lines,
    recommended_lines,
    tied_line,
)
from planner.sweeps.sweep_folder import Sweep

# Rows of the matrix with one work, of works with several; lines of a sentence.
_SHORT_MATRIX, _SHORT_WORKS, _LINES = 14, 14, 3
_ASSUMED_COUNT = re.compile(r"\((\d+) numbers\)")
_IN_FILES = "--full and scenarios.csv have them"
_BEST_RANKS = {
    "title": 0, "gpus": 0, "money": 0, "evidence": 1, "days": 2, "range": 3, "bad": 4,
    "per_hour": 5, "lowest": 6,
}  # fmt: skip


def summary_blocks(
    sweep: Sweep, summary: Summary, front: Iterable[Row], *, is_full: bool = False
) -> Iterator[Block]:
    """Yield the summary of a sweep: one screen, or in ``is_full`` every work with all details."""
    if is_full:
        yield from full_blocks(sweep, summary, front)
        return
    counts, *unfinished = counts_lines(sweep, summary)
    planned = [group for group in summary.groups if group.best]
    if len(summary.groups) == 1 and planned:
        yield from _one_work_blocks(planned[0], counts, unfinished)
    elif planned:
        yield from _works_blocks(sweep.plan.name, summary.groups, counts, unfinished)
    else:
        yield make_lines(f"{sweep.plan.name}: {counts}", mark=TOTAL)
        reasons = {line: None for group in summary.groups for line in no_plan_lines(group)}
        yield make_lines(*unfinished, "No scenario has a plan.", *[*reasons][:_LINES], most=_LINES)
    assumed = _format_assumed(planned[0]) if len(summary.groups) == len(planned) == 1 else ""
    yield make_lines(f"{assumed}Next: planner sweep show {sweep.folder} --full | -h")


def _one_work_blocks(
    group: WorkloadGroup, counts: str, unfinished: Sequence[str]
) -> Iterator[Block]:
    """Yield one work on one screen: what to run, how sure, the best scenarios and the matrix."""
    yield make_lines(f"{group_title(group)}: {counts}", mark=TOTAL, most=2)
    rows = _rows_by_titles(group)
    lines = [*recommended_lines(group), *tied_line(group), *unfinished]
    yield make_lines(*lines, most=_LINES)
    yield GAP
    yield fit_table([*_best_columns(group, rows)], _BEST_RANKS.get, [BEST], _IN_FILES)  # type: ignore[arg-type]
    left = _SHORT_MATRIX - len(lines) - len(rows)
    yield from matrix_blocks(group, left if len(group.places) <= left else left - 1, has_marks=True)


def _works_blocks(
    name: str, groups: Sequence[WorkloadGroup], counts: str, unfinished: Sequence[str]
) -> Iterator[Block]:
    """Yield several works on one screen: the recommended scenario of each."""
    yield make_lines(f"{name}: {counts}", mark=TOTAL, most=2)
    recommended = [group.recommended for group in groups]
    won = Counter(str(row["gpu"]) for row in recommended if row is not None)
    texts = [f"{gpu} for {number}" for gpu, number in won.most_common(_LINES)]
    more = f", others for {sum(won.values()) - sum(n for _, n in won.most_common(_LINES))}"
    text = ", ".join(texts) + more * (len(won) > _LINES)
    yield make_lines(f"Recommended, of {len(groups)} works: {text}", *unfinished, most=2)
    measures = {group.main_measure for group in groups if group.best}
    yield make_lines(*(f"Rule: {RULES[measure]}" for measure in measures))
    yield GAP
    shown = groups[:_SHORT_WORKS]
    yield fit_table([*_work_columns(shown)], _BEST_RANKS.get, (), _IN_FILES)  # type: ignore[arg-type]
    if len(groups) > len(shown):
        yield make_lines(f"and {len(groups) - len(shown)} more works and models: --full")


def _rows_by_titles(group: WorkloadGroup) -> dict[str, Row]:
    """Return the recommended and the best scenarios; titles of the same one are joined."""
    titles_by_scenario: dict[Value, list[str]] = {}
    rows: dict[Value, Row] = {}
    for measure, is_solid, row in group.headlines:
        if measure != VALUE:
            title = TITLES[measure] + " at a solid price" * is_solid
            titles_by_scenario.setdefault(row["scenario"], []).append(title)
            rows[row["scenario"]] = row
    return {", ".join(titles): rows[number] for number, titles in titles_by_scenario.items()}


def _measure_cells(measure: str, rows: Sequence[Row | None]) -> tuple[list[str], list[str], str]:
    """Return the values of a measure in one unit, their 90 % intervals, and the unit."""
    column = next((c for row in rows if row and (c := column_of_measure(measure, row))), "")
    values, ends = list[float](), list[tuple[float, float]]()
    for row in rows:
        values.append(math.nan if row is None else measured(measure, row))
        interval = None if row is None else measured_ends(measure, row)
        ends.append(interval or (math.nan, math.nan))
    texts, unit = format_in_common_unit(column, [*values, *(end for pair in ends for end in pair)])
    count = len(values)
    ranges = [
        f"{texts[count + 2 * n]}-{texts[count + 2 * n + 1]}" if math.isfinite(sum(pair)) else "-"
        for n, pair in enumerate(ends)
    ]
    return texts[:count], ranges, f"{label(column)} {unit}".strip() if column else ""


def _short_head(head: str) -> str:
    """Return the unit of a column such as ``calendar time days``; a head without unit as it is."""
    for name in ("cost ", "calendar time ", "time to train ", "request "):
        head = head.removeprefix(name)
    return head


def _best_columns(group: WorkloadGroup, rows: Mapping[str, Row]) -> Iterator[Column]:
    """Yield the columns of the recommended and best scenarios of one work."""
    chosen = [*rows.values()]
    yield Column("title", [*rows], " ", numeric=False)
    yield Column("gpus", [*map(format_gpus_of, chosen)], "GPUs", numeric=False)
    main = group.main_measure
    texts, ranges, head = _measure_cells(main, chosen)
    yield Column("money", texts, _short_head(head))
    yield Column("range", ranges, "range")
    column = column_of(main, group)
    bad = [group.bad_case(row) for row in chosen]
    values = [measured(main, row) for row in chosen]
    yield Column("bad", format_in_common_unit(column, [*values, *bad])[0][len(values) :], "at 90%")
    if main == COST and any(column_of_measure(TIME, row) for row in chosen):
        times, _, head = _measure_cells(TIME, chosen)
        yield Column("days", times, _short_head(head))
    yield Column("evidence", number_cells([row or {} for row in chosen], RUNS), "runs")
    prices = [number_or_nan(row.get("price_per_gpu_hour_usd")) for row in chosen]
    if any(map(math.isfinite, prices)):
        cells = ["-" if math.isnan(price) else f"{price:.2f}" for price in prices]
        yield Column("per_hour", cells, "USD/ GPU-h")


def _work_columns(groups: Sequence[WorkloadGroup]) -> Iterator[Column]:
    """Yield the columns of the recommended scenario of several works."""
    chosen = [group.recommended for group in groups]
    yield Column("title", [*map(group_title, groups)], "work", numeric=False)
    gpus = ["no plan" if row is None else format_gpus_of(row) for row in chosen]
    yield Column("gpus", gpus, "GPUs", numeric=False)
    costs = [format_measure(COST, row, False) if row else "-" for row in chosen]
    yield Column("money", costs, "cost")
    yield Column("evidence", number_cells([row or {} for row in chosen], RUNS), "runs")
    times = [format_measure(TIME, row, False) if row else "-" for row in chosen]
    yield Column("days", times, "time")
    lowest = [group.best.get(COST) for group in groups]
    if any(low and row and low is not row for low, row in zip(lowest, chosen, strict=True)):
        texts = [
            f"{format_measure(COST, low, False)} {format_gpus_of(low)}" if low else "-"
            for low in lowest
        ]
        yield Column("lowest", texts, "cheapest", numeric=False)


def _format_assumed(group: WorkloadGroup) -> str:
    """Return how many numbers of the recommended scenario have no source; "" if all have one."""
    row = group.recommended
    assumed = "" if row is None else str(row.get("assumed") or "")
    if row is None or not assumed:
        return ""
    counts = [_ASSUMED_COUNT.search(part) for part in assumed.split(";")]
    number = sum(int(match.group(1)) if match else 1 for match in counts)
    return f"Assumed: {number} numbers of {row['gpu']}. "
