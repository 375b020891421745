"""The answer of a search in about 30 lines."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from planner.base import text
from planner.base.units import GIB
from planner.confidence.intervals import Confidence
from planner.decide.open_facts import MovingFact, moving_facts, widened
from planner.optimize.collector import first_row
from planner.optimize.constraints import with_rate
from planner.optimize.result import SearchResult, row_of
from planner.optimize.result_columns import intervals
from planner.optimize.source import Candidates
from planner.plan.plan import Plan
from planner.report.compared import print_comparisons
from planner.report.console import GOOD, make_table, print_folded
from planner.report.front import limited, of_objective, print_short_front
from planner.report.load import load_line
from planner.report.open_facts import short_open_lines
from planner.report.overview import (
    asked_lines,
    ideal_lines,
    omitted_lines,
    question_title,
    sureness_lines,
)
from planner.report.parts import host_words
from planner.report.reached import reached_pairs, told_names
from planner.report.reproduce import estimate_command, folded
from planner.report.short import share, short_plan
from planner.report.sure import limits_line
from planner.report.told import label, told
from planner.workloads.base import Evaluation

_MOST_ASSUMED = 4
_GAP = 2
_ORIGIN = re.compile(r" \((?:[^()]|\([^()]*\))*\)$")
_SAME = 1e-3


def print_brief(console: Console, plan: Plan, result: SearchResult, top: int) -> None:
    """The question, the plan to launch, what else there was, and what to ask next."""
    print_brief_question(console, plan)
    if result.recommended is None or result.fastest is None:
        return
    row = row_of(result.recommended)
    _print_recommended(console, plan, result.recommended, row)
    _print_fastest(console, plan, row, row_of(result.fastest))
    print_comparisons(console, plan, result)
    print_short_front(console, plan, result, top, row)
    console.print()
    console.print("In full: this command with --full, or this plan alone:", style="bold")
    console.print(folded(estimate_command(plan, row), console.width), soft_wrap=True)


def print_brief_question(console: Console, plan: Plan) -> None:
    """The question, and in a few lines what nobody gave."""
    title, *asked = question_lines(plan)
    console.print(title, style="bold")
    for line in asked:
        console.print(line)
    if assumed := assumed_line(plan):
        print_folded(console, assumed, most=_MOST_ASSUMED)


def question_lines(plan: Plan) -> list[str]:
    """The model, the GPUs and the work."""
    setting = plan.problem.setting
    lines = [question_title(plan), *omitted_lines(plan), *asked_lines(plan)]
    if not setting.machine.cluster.name.endswith("-default"):
        lines.append(f"in cluster {setting.machine.cluster.name}")
    return [*lines, *ideal_lines(setting.machine), *sureness_lines(plan)]


def assumed_line(plan: Plan) -> str:
    """What nobody gave; empty where everything was given."""
    told_elsewhere = {"space", *plan.problem.axes}
    words = [
        f"{name.replace('_', ' ')} {_ORIGIN.sub('', origin)}"
        for name, origin in plan.defaults.items()
        if name not in told_elsewhere
    ]
    return f"Assumed: {'; '.join(words)}" if words else ""


def _print_recommended(
    console: Console, plan: Plan, candidates: Candidates, row: Mapping[str, Any]
) -> None:
    console.print()
    console.print(Text.assemble(("Recommended: ", GOOD), (short_plan(plan, row), GOOD)))
    _print_reached(console, plan, candidates, row)


def print_one(console: Console, plan: Plan, found: Evaluation) -> None:
    """The question of one configuration, and what it reaches and costs."""
    candidates, row = found.candidates, first_row(found.table())
    print_brief_question(console, plan)
    console.print()
    console.print(short_plan(plan, row), style="bold")
    _print_reached(console, plan, candidates, row)


def _print_reached(
    console: Console, plan: Plan, candidates: Candidates, row: Mapping[str, Any]
) -> None:
    if line := load_line(plan, candidates):
        print_folded(console, line)
    sure = plan.source_of(row).confidence(row["num_gpus"])
    facts = moving_facts(plan, candidates)
    console.print(_beside(console, recommended_pairs(plan, row, sure, facts)))
    for line in (*sure_lines(plan, candidates, sure, facts), *short_open_lines(plan, facts)):
        print_folded(console, line)


def _beside(console: Console, pairs: Mapping[str, str]) -> Table:
    """Names and values, two pairs a line where the terminal has room for whole ones."""
    listed = [*pairs.items()]
    half = -(-len(listed) // 2)
    lines = [
        [*left, *right]
        for left, right in zip_longest(listed[:half], listed[half:], fillvalue=("", ""))
    ]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    if sum(widths) + _GAP * (len(widths) - 1) > console.width:
        lines = [[*pair] for pair in listed]
    table = make_table(console, header=False)
    for _ in lines[0]:
        table.add_column(overflow="fold")
    for line in lines:
        table.add_row(*line)
    return table


def recommended_pairs(
    plan: Plan,
    row: Mapping[str, Any],
    sure: Confidence | None,
    facts: Sequence[MovingFact] = (),
) -> dict[str, str]:
    """What a plan reaches and costs, each with its interval, widened by what ``facts`` move."""
    goals = [of_objective(plan, objective.name, row) for objective in plan.problem.objectives]
    told_of = told_names(plan.workload.wording, goals, limited(plan, row), row)
    ends = widened(intervals(row, sure), facts)
    pairs = {} if plan.counts else {"GPUs": text.count(row["num_gpus"])}
    pairs |= reached_pairs(told_of, row, ends, _capacity(plan, row))
    on_host = host_words(row, plan.source_of(row).setting.machine)
    return pairs | ({"host memory": on_host} if on_host else {})


def sure_lines(
    plan: Plan,
    candidates: Candidates,
    sure: Confidence | None,
    facts: Sequence[MovingFact] = (),
) -> list[str]:
    """What the brackets mean, and how surely the one plan keeps each limit."""
    if sure is None:
        return []
    meaning = "published runs like this lie there"
    is_open = any(fact.ends for fact in facts)
    if is_open:
        meaning = "runs like this, open facts included"
    lines = [f"In brackets: 9 of 10 {meaning} (basis: {sure.basis})."]
    asked = with_rate(plan.problem.constraints, plan.request.lasting_rate)
    return [*filter(None, (*lines, limits_line(candidates, asked, as_assumed=is_open)))]


def _capacity(plan: Plan, row: Mapping[str, Any]) -> float:
    return float(plan.source_of(row).setting.machine.gpu.allocatable_memory / GIB)


def _print_fastest(
    console: Console, plan: Plan, row: Mapping[str, Any], fastest: Mapping[str, Any]
) -> None:
    if line := fastest_line(plan, row, fastest):
        print_folded(console, line)


def fastest_line(plan: Plan, row: Mapping[str, Any], fastest: Mapping[str, Any]) -> str:
    """The best by the first objective, where that is another plan, and what it gains."""
    column = of_objective(plan, plan.problem.objectives[0].name, row)
    mine, best = row.get(column), fastest.get(column)
    if not _are_numbers(mine, best):
        return ""
    gain = abs(best / mine - 1) if mine else 0.0
    if gain < _SAME:
        return ""
    words = f"{label(column)} {told(column, best)}, {share(gain)} better"
    return f"Best by {label(column)}: {short_plan(plan, fastest)}; {words}"


def own_line(plan: Plan, row: Mapping[str, Any], own: Mapping[str, Any], rejected: str) -> str:
    """The user's own plan beside the recommended one, and what it loses."""
    name = f"Yours: {short_plan(plan, own)}"
    if rejected:
        return f"{name}; it does not run ({rejected})"
    column = of_objective(plan, plan.problem.objectives[0].name, row)
    mine, better = own.get(column), row.get(column)
    if not _are_numbers(mine, better) or not better:
        return name
    away = abs(mine / better - 1)
    words = f"{label(column)} {told(column, mine)}"
    return f"{name}; {words}, {share(away)} off" if away >= _SAME else f"{name}; {words}, the same"


def print_own(
    console: Console, plan: Plan, result: SearchResult, own: Mapping[str, Any], rejected: str
) -> None:
    """How the plan that a search started from compares with what it recommends."""
    if result.recommended is not None:
        console.print()
        print_folded(console, own_line(plan, row_of(result.recommended), own, rejected))


def _are_numbers(*values: Any) -> bool:
    return all(isinstance(value, float | int) for value in values)
