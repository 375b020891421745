"""What a search found: in about 30 lines, or all of it, and the command that shows a plan again."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from planner.base import text
from planner.base.cells import Row
from planner.base.units import GIB
from planner.confidence.intervals import Confidence
from planner.decide.open_facts import MovingFact, moving_facts, widened
from planner.optimize.collector import first_row, rows_of
from planner.optimize.constraints import limit_rows, with_rate
from planner.optimize.result import Comparison, SearchResult, row_of
from planner.optimize.result_columns import full_columns, intervals
from planner.optimize.scaling import COLUMN as SCALING
from planner.optimize.source import Candidates, Columns
from planner.plan.pinned import answers_of, settings_of
from planner.plan.plan import Plan
from planner.question.request import ALL, Request
from planner.question.terms import Term, terms_of
from planner.show.page import BAD, BEST, GAP, TOTAL, Block, Cell, Code, Pairs, Title, grid, said
from planner.show.views.details import details_of
from planner.show.views.front import front_blocks, limited, of_objective, short_front_blocks
from planner.show.views.load import load_line
from planner.show.views.overview import (
    assumed_blocks,
    counts_blocks,
    defaults_blocks,
    describe,
    question_blocks,
)
from planner.show.views.parts import host_words, paged_words
from planner.show.views.short import settings_text, share, short_plan, shortest_plan
from planner.show.views.sure import reached_pairs, short_open_lines, sure_lines, told_names
from planner.show.views.told import ends_in, label, told, without_origin
from planner.workloads.base import Evaluation

_MOST_ASSUMED = 4
_MOST, _LINES, _ALL_LINES = 8, 7, 1000
_SAME = 1e-3


def interrupted_message(plan: Plan, result: SearchResult) -> str:
    """How much of a search was done when it was interrupted."""
    done, total = result.configurations_evaluated, plan.problem.num_rows
    return (
        f"Interrupted after {text.count(done)} of {text.count(total)} configurations: "
        "there may be better ones among the others."
    )


def answer_blocks(
    plan: Plan, result: SearchResult, top: int, *, is_full: bool = False
) -> Iterator[Block]:
    """What a search found, and that it was interrupted."""
    yield from (_search_blocks if is_full else _brief_blocks)(plan, result, top)
    if result.interrupted:
        yield Title(text=interrupted_message(plan, result))
    if is_full:
        yield from counts_blocks(plan, result)
        yield from assumed_blocks(plan)


def _search_blocks(plan: Plan, result: SearchResult, top: int) -> Iterator[Block]:
    """The question, the front, and its best configuration in full."""
    from planner.show.views.front_points import points_blocks

    yield from question_blocks(plan)
    yield from defaults_blocks(plan)
    yield from comparisons_blocks(plan, result, is_full=True)
    yield from front_blocks(plan, result, top)
    if result.recommended is not None:
        yield from points_blocks(plan, result)
        details = details_of(plan)
        row = row_of(result.recommended)
        yield Title(text=f"The recommended {plan.workload.wording.noun}")
        yield said(settings_text(plan, row), indent="", most=_ALL_LINES)
        yield from details.memory_and_speed(plan, result.recommended)
        yield Title(text=details.to_see)
        yield Code(text=estimate_command(plan, row))


def _brief_blocks(plan: Plan, result: SearchResult, top: int) -> Iterator[Block]:
    """The question, the plan to launch, what else there was, and what to ask next."""
    yield from _asked_blocks(plan)
    if result.recommended is None or result.fastest is None:
        return
    row = row_of(result.recommended)
    yield GAP
    yield said(f"Recommended: {short_plan(plan, row)}", mark=BEST, indent="")
    yield from _reached_blocks(plan, result.recommended, row)
    column = of_objective(plan, plan.problem.objectives[0].name, row)
    best = row_of(result.fastest)
    if line := fastest_line(column, row, best, short_plan(plan, best)):
        yield said(line)
    yield from comparisons_blocks(plan, result)
    yield from short_front_blocks(plan, result, top, row)
    yield GAP
    yield said("In full: this command with --full, or this plan alone:", mark=TOTAL, indent="")
    yield Code(text=estimate_command(plan, row))


def one_blocks(plan: Plan, found: Evaluation) -> Iterator[Block]:
    """The question of one configuration, and what it reaches and costs."""
    row = first_row(found.table())
    yield from _asked_blocks(plan)
    yield GAP
    yield said(short_plan(plan, row), mark=TOTAL, indent="")
    yield from _reached_blocks(plan, found.candidates, row)


def _asked_blocks(plan: Plan) -> Iterator[Block]:
    """The question, and in a few lines what nobody gave."""
    yield from question_blocks(plan)
    if assumed := assumed_line(plan):
        yield said(assumed, most=_MOST_ASSUMED)


def assumed_line(plan: Plan) -> str:
    """What nobody gave; empty where everything was given."""
    told_elsewhere = {"space", *plan.problem.axes}
    words = [
        f"{name.replace('_', ' ')} {without_origin(origin)}"
        for name, origin in plan.defaults.items()
        if name not in told_elsewhere
    ]
    return f"Assumed: {'; '.join(words)}" if words else ""


def _reached_blocks(plan: Plan, candidates: Candidates, row: Mapping[str, Any]) -> Iterator[Block]:
    if line := load_line(plan, candidates):
        yield said(line)
    sure = plan.source_of(row).confidence(row["num_gpus"])
    facts = moving_facts(plan, candidates)
    yield Pairs(pairs=recommended_pairs(plan, row, sure, facts), is_beside=True)
    asked = with_rate(plan.problem.constraints, plan.request.lasting_rate)
    limits = limit_rows(candidates, asked) if sure is not None else ()
    basis = "" if sure is None else sure.basis
    yield said(*sure_lines(basis, limits, facts), *short_open_lines(plan, facts))


def recommended_pairs(
    plan: Plan,
    row: Mapping[str, Any],
    sure: Confidence | None,
    facts: Sequence[MovingFact] = (),
) -> dict[str, str]:
    """What a plan reaches and costs, each with its interval, widened by what ``facts`` move."""
    goals = [of_objective(plan, objective.name, row) for objective in plan.problem.objectives]
    source = plan.source_of(row)
    machine = source.setting.machine
    told_of = told_names(plan.workload.wording, goals, limited(plan, row), row, source.asked)
    ends = widened(intervals(row, sure), facts)
    capacity = machine.gpu.allocatable_memory / GIB
    pairs = {} if plan.counts else {"GPUs": text.count(row["num_gpus"])}
    pairs |= reached_pairs(told_of, row, ends, capacity)
    on_host = host_words(row, machine)
    beside = {"host memory": on_host, "paged": paged_words(row)}
    return pairs | {name: words for name, words in beside.items() if words}


def fastest_line(column: str, row: Mapping[str, Any], best: Mapping[str, Any], words: str) -> str:
    """The plan, in ``words``, that is the best in a column, where it is another, and its gain."""
    mine, other = row.get(column), best.get(column)
    if not _are_numbers(mine, other):
        return ""
    gain = abs(other / mine - 1) if mine else 0.0
    if gain < _SAME:
        return ""
    gained = f"{label(column)} {told(column, other)}, {share(gain)} better"
    return f"Best by {label(column)}: {words}; {gained}"


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


def _are_numbers(*values: object) -> bool:
    return all(isinstance(value, float | int) for value in values)


def comparisons_blocks(
    plan: Plan, result: SearchResult, *, is_full: bool = False
) -> Iterator[Block]:
    """For each axis of several values the best plan of every value, and what it loses.

    In short, values that nobody named stand in a sentence, and of many named ones the first.
    """
    given = {name: getattr(plan.request, name, None) for name in result.comparisons}
    asked = (name for name, one in given.items() if one == ALL or isinstance(one, tuple | list))
    tables = [*(result.comparisons if is_full else asked)]
    for axis, compared in result.comparisons.items():
        if axis not in tables:
            is_long = axis == plan.workload.profile_kind and not tables
            words = _told(plan, compared) if is_long else _changes(plan, compared)
            line = f"By {_words(axis)} ({_goal(plan)}): {', '.join(words)}"
            yield said(line, most=_LINES)
            for reason in without_plan_lines(plan, compared) if is_long else ():
                yield said(reason, most=_LINES)
    for axis in tables:
        compared = result.comparisons[axis]
        yield GAP
        table: Mapping[str, Any] = compared.table
        if axis == "num_gpus":
            table = result.scaled(table)
        most = len(compared.losses) if is_full else _MOST
        yield from _table_blocks(plan, compared, table, most)
        for line in without_plan_lines(plan, compared):
            yield said(line, most=_ALL_LINES if is_full else 2)


def _words(axis: str) -> str:
    return axis.replace("_", " ")


def _told(plan: Plan, compared: Comparison) -> list[str]:
    """As `_changes`, with what each value reaches and its interval."""
    table = full_columns(compared.table, plan.problem.sources)
    column = of_objective(plan, plan.problem.objectives[0].name, table)
    changes = _changes(plan, compared)
    reached = [told(column, row[column], ends_in(column, row)) for row in rows_of(table)]
    first, others = changes[:1], zip(changes[1:], reached[1:], strict=False)
    return [*first, *(f"{words}: {value}" for words, value in others)]


def _goal(plan: Plan) -> str:
    return _words(plan.problem.objectives[0].name)


def _changes(plan: Plan, compared: Comparison) -> list[str]:
    """Each value of an axis with what it loses or gains against the first."""
    table = compared.table.get(compared.axis, ())
    found = [
        " ".join([text.value(value), *([change] if at and (change := _change(plan, loss)) else [])])
        for at, (value, loss) in enumerate(zip(table, compared.losses, strict=True))
    ]
    return found + [f"{text.value(value)} no plan" for value in compared.without_plan]


def _change(plan: Plan, loss: float) -> str:
    """What becomes of the first objective: ``-12 %`` of a lost rate, ``+14 %`` of a cost."""
    if not math.isfinite(loss):
        return ""
    is_less = (loss > 0) == (plan.problem.objectives[0].sign < 0)
    return f"{'-' if is_less else '+'}{share(abs(loss))}" if loss else "as good"


def _table_blocks(plan: Plan, compared: Comparison, columns: Columns, most: int) -> Iterator[Block]:
    axis, table = compared.axis, full_columns(columns, plan.problem.sources)
    column = of_objective(plan, plan.problem.objectives[0].name, table)
    rows: list[tuple[str | Cell, ...]] = [
        (
            text.value(row[axis]),
            shortest_plan(plan, row, axis),
            told(column, row[column], ends_in(column, row)) if column in row else "",
            Cell(text=_change(plan, loss) if at else "", mark=BAD if loss > 0 else BEST),
            *([f"{row[SCALING]:.1%}"] if SCALING in row else []),
        )
        for at, (row, loss) in enumerate(zip(rows_of(table), compared.losses, strict=True))
    ]
    heads = [f"by {_words(axis)}", "plan", label(column), _goal(plan)]
    heads += [label(SCALING)] if SCALING in table else []
    yield grid(heads, rows[:most], words=(0, 1), marked=[BEST])
    if len(rows) > most:
        yield said(f"and {len(rows) - most} more: --full")


def without_plan_lines(plan: Plan, compared: Comparison) -> list[str]:
    """Values without a plan, by what came closest, a line for each reason."""
    reasons: dict[str, list[str]] = {}
    for value, reason in compared.without_plan.items():
        reasons.setdefault(describe(plan.problem, reason), []).append(text.value(value))
    ordered = sorted(reasons.items(), key=lambda item: -len(item[1]))
    return [
        f"no plan: {len(values)} ({reason}): {', '.join(values)}"
        if len(values) > 1
        else f"no plan: {values[0]} ({reason})"
        for reason, values in ordered
    ]


def estimate_command(plan: Plan, row: Row) -> str:
    """``planner estimate`` for a row of result columns of a plan."""
    workload, request = plan.workload, plan.request
    words = [] if workload.name == Request.workload else ["--workload", workload.name]
    answers = answers_of(plan, row)
    open_ones = {workload.profile_kind, "mode", "prefill_gpu", "training_objective"}
    for name, term in terms_of(workload.name, "question").items():
        if "parameter" in term.kind:
            words += [term.option_name, str(row[name])]
        elif name in open_ones or getattr(request, name, None) is not None:
            words += _option(term, answers.get(name), getattr(Request, name, None))
    words += ["--gpus", str(row["num_gpus"])]
    known = terms_of(workload.name, "parameter")
    for name, value in settings_of(workload.name, row).items():
        short = known[name].short if name in known else ""
        words += ["--set", f"{short or name}={str(value).lower()}"]
    if request.specs is not None:
        words += ["--specs", str(request.specs)]
    return "planner estimate " + shlex.join(words)


def _option(term: Term, answer: object, plain: object) -> list[str]:
    """An option and its value; none where the answer is the plain one."""
    if answer is None or answer == plain:
        return []
    return (
        [term.option_name]
        if term.type == "flag"
        else [
            term.option_name,
            str(answer).removesuffix(".0") if isinstance(answer, float) else str(answer),
        ]
    )
