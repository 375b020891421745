"""The summary of a sweep on screen, in about a page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.text import Text

from planner.base import text
from planner.report.console import GOOD, make_table, print_folded, print_title
from planner.report.fitted import Column, print_fitted
from planner.report.told import label, told_alike
from planner.sweeps.columns import COST, MEASURES, TIME, Row, column_of_measure, measured
from planner.sweeps.matrix import marks_lines, print_matrix
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
_SELLERS = (
    "Contracts have different sellers, so that a longer one may cost more than is usual on demand: "
    "--provider compares those of one."
)


def print_summary(
    console: Console, sweep: Sweep, summary: Summary, front: Iterable[Row], *, is_full: bool = False
) -> None:
    """What the scenarios say together; in short of many works and models the best plans alone."""
    _print_head(console, sweep, summary)
    groups = summary.groups
    is_long = is_full or len(groups) == 1
    shown = groups if is_full else groups[:_MOST_GROUPS]
    has_room = sum(len(group.places) for group in shown) <= _MOST_ROWS and len(shown) < 5
    fronts = _by_group(front, groups) if is_long else {}
    for group in shown:
        _print_group(
            console,
            group,
            fronts.get((group.work, group.model), ()),
            is_long=is_long,
            has_matrix=is_long or has_room,
            most=_ALL if is_full else 0,
        )
    if len(shown) < len(groups):
        print_title(console, f"and {len(groups) - len(shown)} more works and models: --full")
    console.print()
    if summary.feasible:
        if "contract" in sweep.plan.varied and not _has_provider(sweep):
            print_folded(console, _SELLERS)
        for line in _legend(groups, is_matrix=is_long or has_room):
            print_folded(console, line)
    folder = sweep.folder
    rest = "" if is_full else f"planner sweep show {folder} --full; "
    print_folded(console, f"More: {rest}planner sweep show -h; all columns: {folder}/scenarios.csv")


def _print_head(console: Console, sweep: Sweep, summary: Summary) -> None:
    plan = sweep.plan
    console.print(plan.name, style="bold")
    if plan.description:
        print_folded(console, plan.description, indent="")
    total, found = plan.num_scenarios, summary.scenarios
    words = f"{text.count(found)} scenario{'s' * (found != 1)}"
    if found < sweep.done:
        words += f" of {text.count(sweep.done)}"
    line = f"{words}, {text.count(summary.feasible)} with a plan"
    if plan.varied:
        line += f"; varied: {', '.join(name.replace('_', ' ') for name in plan.varied)}"
    print_folded(console, line)
    if sweep.done < total:
        print_folded(
            console,
            f"Not finished: {text.count(sweep.done)} of {text.count(total)} scenarios are done; "
            "the command that began it goes on.",
        )


def _print_group(
    console: Console,
    group: Group,
    front: Sequence[Row],
    *,
    is_long: bool,
    has_matrix: bool,
    most: int,
) -> None:
    print_title(console, group_title(group))
    if not group.best:
        print_folded(console, f"No plan at all. {'; '.join(nowhere_lines(group))}", most=_LINES)
        return
    (_print_bests if is_long else _print_short_bests)(console, group)
    if has_matrix:
        print_matrix(console, group, most or _MOST_PLACES)
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
        print_folded(console, line, most=most or (_LINES if is_long else 2))
    if len(front) > 1:
        _print_front(console, group, front, most or _MOST_OF_FRONT)


def _print_bests(console: Console, group: Group) -> None:
    """The best scenarios, each with its intervals and its plan."""
    table = make_table(console, header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for measure, row in group.best.items():
        reached = [told_of(one, row) for one in (COST, TIME) if column_of_measure(one, row)]
        sure = f", basis {row['basis']}" if row.get("basis") else ""
        first = f"{text.count(row['num_gpus'])} x {where(row)}"
        lines = [f"{first}: {', '.join(reached)}{sure}", plan_in_short(row)]
        table.add_row(Text(TITLES[measure], GOOD), "\n".join(lines))
    console.print(table)


def _print_short_bests(console: Console, group: Group) -> None:
    """The best scenarios, a line each."""
    table = make_table(console, header=False)
    for _ in range(4):
        table.add_column(overflow="fold")
    for measure, row in group.best.items():
        reached = [told_of(one, row, False) for one in (COST, TIME)]
        place = f"{text.count(row['num_gpus'])} x {where(row)}"
        table.add_row(Text(TITLES[measure], GOOD), *reached, place)
    console.print(table)


def _print_front(console: Console, group: Group, front: Sequence[Row], most: int) -> None:
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
    print_title(console, f"Front across scenarios by {goals}: {some}")
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
    order = [one.name for one in columns]
    print_fitted(console, columns, rank=order.index, styles=[""] * len(at))


def _by_group(front: Iterable[Row], groups: Sequence[Group]) -> dict[tuple[str, str], list[Row]]:
    found: dict[tuple[str, str], list[Row]] = {}
    kinds = [(group.work, group.model) for group in groups]
    for row in front:
        key = (row["work"], str(row.get("model")))
        if kinds.count(key) == 1:
            found.setdefault(key, []).append(row)
    return found


def _has_provider(sweep: Sweep) -> bool:
    return all("provider" in work.axes for work in sweep.plan.works)


def _legend(groups: Sequence[Group], *, is_matrix: bool) -> list[str]:
    words = "best value: least cost x time. In brackets: 9 of 10 published runs like this."
    return [words, *(marks_lines(groups) if is_matrix else ())]
