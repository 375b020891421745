"""The summary of a sweep on screen, in about a page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from planner.base import text
from planner.report.told import label, told_alike
from planner.show.page import BEST, GAP, TOTAL, Block, Cell, Column, Title, fitted, grid, said
from planner.sweeps.columns import COST, MEASURES, TIME, Row, column_of_measure, measured
from planner.sweeps.matrix import marks_lines, matrix_blocks
from planner.sweeps.results import Sweep
from planner.sweeps.sentences import (
    TITLES,
    assumed_lines,
    group_title,
    nowhere_lines,
    overtaking_line,
    places_in_short,
    plan_in_short,
    tie_lines,
    told_of,
    where,
    wheres,
    winner_lines,
)
from planner.sweeps.summary import Group, Summary
from planner.workloads.registry import workload_of

_MOST_GROUPS, _MOST_PLACES, _MOST_OVERTAKINGS, _MOST_OF_FRONT, _LINES = 11, 14, 2, 6, 3
_MOST_ROWS = 24
_ALL = 10**6
_BRACKETS = "best value: least cost x time. In brackets: 9 of 10 published runs like this."
_SELLERS = (
    "Contracts have different sellers, so that a longer one may cost more than is usual on demand: "
    "--provider compares those of one."
)


def summary_blocks(
    sweep: Sweep, summary: Summary, front: Iterable[Row], *, is_full: bool = False
) -> Iterator[Block]:
    """What the scenarios say together; in short of many works and models the best plans alone."""
    yield from _head_blocks(sweep, summary)
    groups = summary.groups
    is_long = is_full or len(groups) == 1
    shown = groups if is_full else groups[:_MOST_GROUPS]
    has_room = sum(len(group.places) for group in shown) <= _MOST_ROWS and len(shown) < 5
    fronts = _by_group(front, groups) if is_long else {}
    for group in shown:
        yield from _group_blocks(
            group,
            fronts.get((group.work, group.model), ()),
            is_long=is_long,
            has_matrix=is_long or has_room,
            most=_ALL if is_full else 0,
        )
    if len(shown) < len(groups):
        yield Title(text=f"and {len(groups) - len(shown)} more works and models: --full")
    yield GAP
    if summary.feasible:
        if "contract" in sweep.plan.varied and not all(
            "provider" in work.axes for work in sweep.plan.works
        ):
            yield said(_SELLERS)
        yield said(_BRACKETS, *(marks_lines(groups) if is_long or has_room else ()))
    folder = sweep.folder
    rest = "" if is_full else f"planner sweep show {folder} --full; "
    yield said(f"More: {rest}planner sweep show -h; all columns: {folder}/scenarios.csv")


def _head_blocks(sweep: Sweep, summary: Summary) -> Iterator[Block]:
    plan = sweep.plan
    yield said(plan.name, mark=TOTAL, indent="")
    if plan.description:
        yield said(plan.description, indent="")
    total, found = plan.num_scenarios, summary.scenarios
    words = f"{text.count(found)} scenario{'s' * (found != 1)}"
    if found < sweep.done:
        words += f" of {text.count(sweep.done)}"
    line = f"{words}, {text.count(summary.feasible)} with a plan"
    if plan.varied:
        line += f"; varied: {', '.join(name.replace('_', ' ') for name in plan.varied)}"
    yield said(line)
    if sweep.done < total:
        yield said(
            f"Not finished: {text.count(sweep.done)} of {text.count(total)} scenarios are done; "
            "the command that began it goes on.",
        )


def _group_blocks(
    group: Group,
    front: Sequence[Row],
    *,
    is_long: bool,
    has_matrix: bool,
    most: int,
) -> Iterator[Block]:
    yield Title(text=group_title(group))
    if not group.best:
        yield said(f"No plan at all. {'; '.join(nowhere_lines(group))}", most=_LINES)
        return
    yield from (_bests_blocks if is_long else _short_bests_blocks)(group)
    if has_matrix:
        yield from matrix_blocks(group, most or _MOST_PLACES)
    lines = [*winner_lines(group)]
    for measure in (COST, TIME) if is_long else ():
        found = group.overtakings(measure)
        lines += [overtaking_line(one) for one in found[: most or _MOST_OVERTAKINGS]]
    lines += nowhere_lines(group)
    if is_long:
        lines += [*tie_lines(group, COST), *tie_lines(group, TIME), *assumed_lines(group)]
    if group.unpriced:
        lines.append(f"No price, so no cost: {places_in_short(sorted(group.unpriced))}")
    for line in lines:
        yield said(line, most=most or (_LINES if is_long else 2))
    if len(front) > 1:
        yield from _front_blocks(group, front, most or _MOST_OF_FRONT)


def _bests_blocks(group: Group) -> Iterator[Block]:
    """The best scenarios, each with its intervals and its plan."""
    rows: list[tuple[str | Cell, ...]] = []
    for measure, row in group.best.items():
        reached = [told_of(one, row) for one in (COST, TIME) if column_of_measure(one, row)]
        sure = f", basis {row['basis']}" if row.get("basis") else ""
        first = f"{text.count(row['num_gpus'])} x {where(row)}"
        words = f"{first}: {', '.join(reached)}{sure}\n{plan_in_short(row)}"
        rows.append((Cell(text=TITLES[measure], mark=BEST), words))
    yield grid(("", " "), rows, words=(0, 1))


def _short_bests_blocks(group: Group) -> Iterator[Block]:
    """The best scenarios, a line each."""
    rows: list[tuple[str | Cell, ...]] = []
    for measure, row in group.best.items():
        reached = [told_of(one, row, False) for one in (COST, TIME)]
        place = f"{text.count(row['num_gpus'])} x {where(row)}"
        rows.append((Cell(text=TITLES[measure], mark=BEST), *reached, place))
    yield grid(("", " ", "  ", "   "), rows, words=range(4))


def _front_blocks(group: Group, front: Sequence[Row], most: int) -> Iterator[Block]:
    """The scenarios that no other beats in everything, from the cheapest to the dearest."""
    metric = group.metric if group.metric in MEASURES else COST
    rows = sorted(front, key=lambda row: measured(metric, row))
    at = range(len(rows))
    if len(rows) > most:
        at = sorted({round(n * (len(rows) - 1) / (most - 1)) for n in range(most)})  # type: ignore[assignment]
    weighed = [name for name in workload_of(group.workload).weighed if name != "num_gpus"]
    known = [name for name in weighed if any(row.get(name) is not None for row in rows)]
    goals = ", ".join(label(name) for name in [*known, "num_gpus"])
    some = f"{len(at)} of {len(rows)}" if len(at) < len(rows) else f"all {len(rows)}"
    yield Title(text=f"Front across scenarios by {goals}: {some}")
    columns = [
        Column(name="GPUs", header="GPUs", cells=[text.count(rows[n]["num_gpus"]) for n in at],
               numeric=True),
        Column(name="place", header=" ", cells=wheres([rows[n] for n in at]), numeric=False),
    ]  # fmt: skip
    for name in known:
        values = [float(rows[n].get(name) or float("nan")) for n in at]
        words, unit = told_alike(name, values)
        header = f"{label(name)} {unit}".strip()
        header = header.replace("calendar time", "time").replace("request latency", "latency")
        columns.append(Column(name=label(name), header=header, cells=words, numeric=True))
    layouts = [plan_in_short(rows[n]) for n in at]
    columns.append(Column(name="plan", header="plan", cells=layouts, numeric=False))
    yield fitted(columns)


def _by_group(front: Iterable[Row], groups: Sequence[Group]) -> dict[tuple[str, str], list[Row]]:
    found: dict[tuple[str, str], list[Row]] = {}
    kinds = [(group.work, group.model) for group in groups]
    for row in front:
        key = (row["work"], str(row.get("model")))
        if kinds.count(key) == 1:
            found.setdefault(key, []).append(row)
    return found
