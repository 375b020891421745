"""Reports of a search or a single configuration: in about 30 lines, or in full."""

from __future__ import annotations

import math
import shlex
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice, zip_longest
from typing import TYPE_CHECKING

from planner.base import formatting
from planner.base.csv_cells import Row
from planner.base.units import GIB
from planner.confidence.intervals import Confidence
from planner.decide.assumptions import sensitive_assumptions
from planner.decide.fitting import options_that_raise_fit_probability
from planner.decide.near import TARGET_FIT_PROBABILITY
from planner.optimize.collector import iterate_rows
from planner.optimize.problem import limit_rows, with_rate_limit
from planner.optimize.result import SCALING_COLUMN as SCALING
from planner.optimize.result import Comparison, SearchResult
from planner.optimize.result_columns import RUNS, full_columns, full_row, intervals
from planner.optimize.source import Candidates, Columns, first_row
from planner.question.request import ALL, Request
from planner.question.terms import Term, glossary, terms_about, terms_of
from planner.show.output_blocks import (
    BAD,
    BEST,
    GAP,
    TOTAL,
    Block,
    Cell,
    Code,
    Column,
    KeyValues,
    Title,
    make_lines,
    text_table,
)  # fmt: skip
from planner.show.presenters.format_results import (
    ends_in,
    format_host_memory,
    format_paged_states,
    format_result,
    label,
    number_of,
    plan_of,
    result_cell,
    settings_text,
    share,
    short_plan,
    shortest_plan,
    without_origin,
)
from planner.show.presenters.load_check import load_line, replay_blocks
from planner.show.presenters.pareto_front import (
    front_blocks,
    percentile_limit_columns,
    plan_objective_column,
    short_front_blocks,
)
from planner.show.presenters.prices import charged_in_full_line, commitment_lines, plan_prices_lines
from planner.show.presenters.question_summary import (
    assumed_blocks,
    counts_blocks,
    defaults_blocks,
    describe,
    question_blocks,
)
from planner.show.presenters.uncertainty import (
    format_regret,
    report_columns,
    result_pairs,
    short_assumption_lines,
    uncertainty_lines,
)
from planner.show.presenters.workload_details import details_of
from planner.workloads.make_plan import Plan
from planner.workloads.saved_plan import all_answers, non_default_parameters
from planner.workloads.workload import Workload

if TYPE_CHECKING:
    from planner.decide.suggestions.cost_levers import CostLever

_MAX_ASSUMED = 4
_MAX_ROWS, _LINES, _ALL_LINES = 8, 7, 1000
_MIN_DIFFERENCE = 1e-3


def interrupted_message(plan: Plan, result: SearchResult) -> str:
    """Return a sentence on how many configurations an interrupted search has evaluated."""
    done, total = result.configurations_evaluated, plan.problem.num_rows
    return (
        f"Interrupted after {formatting.format_count(done)} of {formatting.format_count(total)} "
        "configurations: "
        "the others may include better ones."
    )


def answer_blocks(
    plan: Plan,
    result: SearchResult,
    top: int,
    *,
    is_full: bool = False,
    levers: Sequence[CostLever] = (),
    shows_interruption: bool = True,
) -> Iterator[Block]:
    """Yield the result of a search, the changes that lower its cost, and interruptions."""
    yield from (_search_blocks if is_full else _brief_blocks)(plan, result, top)
    if levers:
        yield GAP
        yield make_lines("What would change the answer:", mark=TOTAL, indent="")
        yield make_lines(*lever_lines(levers), most=_LINES)
    if result.interrupted and shows_interruption:
        yield Title(text=interrupted_message(plan, result))
    if is_full:
        yield from counts_blocks(plan, result)
        yield from assumed_blocks(plan)


def _search_blocks(plan: Plan, result: SearchResult, top: int) -> Iterator[Block]:
    """Yield the question, the Pareto front, and its best configuration in full."""
    from planner.show.presenters.pareto_front import points_blocks

    yield from question_blocks(plan)
    yield from defaults_blocks(plan)
    yield from comparisons_blocks(plan, result, is_full=True)
    column = plan_objective_column(plan, plan.problem.objectives[0].name, result.table)
    if result.table and (line := format_regret(result.regret, label(column))):
        yield make_lines(line, indent="")
    yield from front_blocks(plan, result, top)
    if result.recommended is not None:
        yield from points_blocks(plan, result)
        details = details_of(plan)
        row = result.recommended_row
        yield Title(text=f"The recommended {plan.workload.wording.noun}")
        yield make_lines(settings_text(plan, row), indent="", most=_ALL_LINES)
        yield from details.memory_and_speed(plan, result.recommended)
        yield from surer_blocks(plan, row)
        yield Title(text=details.to_see)
        yield Code(text=estimate_command(plan, row))


def _brief_blocks(plan: Plan, result: SearchResult, top: int) -> Iterator[Block]:
    """Yield the question, the recommended plan, its alternatives, and the next command."""
    yield from _question_blocks(plan)
    if result.recommended is None:
        return
    row = result.recommended_row
    yield GAP
    yield make_lines(headline(plan, result), mark=BEST, indent="")
    if line := proven_line(plan, result):
        yield make_lines(line, most=_LINES)
    better = result.better_tied
    if better is not None:
        tied_row = full_row(better, plan.problem.sources)
        goal = plan_objective_column(plan, plan.problem.objectives[0].name, tied_row)
        yield make_lines(format_tie(plan.workload, goal, row, tied_row), most=_LINES)
    yield from _result_blocks(plan, result.recommended, row)
    yield from surer_blocks(plan, row)
    column = plan_objective_column(plan, plan.problem.objectives[0].name, row)
    best = first_row(result.table)
    is_tied_with_best = better is not None and better.row[column] == best[column]
    if not is_tied_with_best and (line := fastest_line(column, row, best, short_plan(plan, best))):
        yield make_lines(line)
    if line := undoubted_price_line(plan, result, row):
        yield make_lines(line)
    yield from comparisons_blocks(plan, result)
    yield from short_front_blocks(plan, result, top, row)
    yield GAP
    yield make_lines(
        "Full report: add --full to this command, or for this plan only:", mark=TOTAL, indent=""
    )
    yield Code(text=estimate_command(plan, row))


def _question_blocks(plan: Plan) -> Iterator[Block]:
    """Yield the question, the assumed values and the prices in a few lines."""
    yield from question_blocks(plan)
    if assumed := assumed_line(plan):
        yield make_lines(assumed, most=_MAX_ASSUMED)
    yield make_lines(*plan_prices_lines(plan), most=_MAX_ASSUMED)


def assumed_line(plan: Plan) -> str:
    """Return the assumed values of a question in one line; "" if there are none."""
    shown_elsewhere = {"space", *plan.problem.axes}
    texts = [
        f"{name.replace('_', ' ')} {without_origin(origin)}"
        for name, origin in plan.defaults.items()
        if name not in shown_elsewhere
    ]
    return f"Assumed: {'; '.join(texts)}" if texts else ""


def _result_blocks(plan: Plan, candidates: Candidates, row: Row) -> Iterator[Block]:
    """Yield the results of a plan with load check, costs, intervals and assumptions."""
    if line := load_line(plan, candidates):
        yield make_lines(line)
    if plan.request.replay:
        yield from replay_blocks(plan, candidates)
    confidence = plan.source_of(row).confidence_of(row)
    assumptions = sensitive_assumptions(plan, candidates)
    yield KeyValues(pairs=recommended_pairs(plan, row, confidence), is_two_column=True)
    constraints = with_rate_limit(plan.problem.constraints, plan.request.lasting_rate)
    limits = limit_rows(candidates, constraints) if confidence is not None else ()
    basis = "" if confidence is None else confidence.basis
    yield make_lines(*commitment_lines({**candidates.source.question_columns, **row}))
    yield make_lines(
        *uncertainty_lines(
            basis,
            limits,
            assumptions,
            None if confidence is None else confidence.runs,
            str(row["gpu"]),
        ),
        *short_assumption_lines(plan, assumptions),
    )


def surer_blocks(plan: Plan, row: Row) -> Iterator[Block]:
    """Yield options with a higher probability to fit in memory, if the plan's is low."""
    if options := options_that_raise_fit_probability(plan, row):
        texts = (
            f"{option} ({formatting.format_fit_probability(chance)})"
            for option, chance in options.items()
        )
        yield make_lines(
            f"Less than {100 * TARGET_FIT_PROBABILITY:g} % likely to fit. Surer: "
            f"{', or '.join(texts)}."
        )


def recommended_pairs(plan: Plan, row: Row, confidence: Confidence | None) -> dict[str, str]:
    """Return the results and costs of a plan with their intervals, as text by name."""
    goals = [
        plan_objective_column(plan, objective.name, row) for objective in plan.problem.objectives
    ]
    source = plan.source_of(row)
    machine = source.inputs.machine
    columns = report_columns(
        plan.workload.wording,
        goals,
        percentile_limit_columns(plan, row),
        row,
        source.question_columns,
    )
    column_intervals = intervals(row, confidence)
    capacity = machine.gpu.allocatable_memory / GIB
    pairs = {} if plan.counts else {"GPUs": formatting.format_count(number_of(row, "num_gpus"))}
    pairs |= result_pairs(columns, row, column_intervals, capacity)
    host_memory = format_host_memory(row, machine)
    host_pairs = {"host memory": host_memory, "paged": format_paged_states(row)}
    return pairs | {name: text for name, text in host_pairs.items() if text}


def headline(plan: Plan, result: SearchResult) -> str:
    """Return the recommended plan, whether it is proven, and its probability to keep limits.

    Returns "" if nothing is recommended.
    """
    best = result.recommended
    if best is None:
        return ""
    parts = [f"Recommended: {short_plan(plan, best.row)}"]
    confidence = best.source.confidence_of(best.row)
    if confidence is not None and not confidence.is_proven:
        parts.append("not proven")
    constraints = with_rate_limit(plan.problem.constraints, plan.request.lasting_rate)
    chances = [row["probability"] for row in limit_rows(best, constraints)] if confidence else []
    probabilities = [float(chance) for chance in chances if chance is not None]
    if probabilities:
        limits_text = "its limit" if len(probabilities) == 1 else "the tightest of its limits"
        least = formatting.format_probability(min(probabilities))
        parts.append(f"{least} likely to keep {limits_text}")
    return "; ".join(parts)


def proven_line(plan: Plan, result: SearchResult) -> str:
    """Return the best plan with published runs, if the recommended one has none; else ""."""
    best = result.recommended
    if best is None:
        return ""
    confidence = best.source.confidence_of(best.row)
    if confidence is None or confidence.is_proven:
        return ""
    software = best.row[plan.workload.profile_kind]
    missing = f"Not proven: no published run of {software} on {best.row['gpu']} is known"
    if result.proven is None:
        return f"{missing}, nor of any other choice here."
    row = full_row(result.proven, plan.problem.sources)
    column = plan_objective_column(plan, plan.problem.objectives[0].name, row)
    current, other = number_of(best.row, column), number_of(row, column)
    difference = (
        ""
        if not current
        else f", {'+' if other > current else '-'}{share(abs(other / current - 1))}"
    )
    reached = format_result(column, row[column], ends_in(column, row))
    place_and_plan = (
        f"{number_of(row, 'num_gpus'):,.0f} x {row['gpu']}, {plan_of(plan.workload, row)}"
    )
    return f"{missing}. Best proven: {place_and_plan}; {label(column)} {reached}{difference}"


def format_tie(workload: Workload, column: str, row: Row, better: Row) -> str:
    """Return a sentence on a plan that ties with ``row`` but is predicted to be ``better``."""
    current, other = number_of(row, column), number_of(better, column)
    gpu_text = "" if better["gpu"] == row["gpu"] else f"{better['gpu']}, "
    parts = [f"{label(column)} {format_result(column, other, ends_in(column, better))}"]
    parts += [f"{share(abs(other / current - 1))} better"] if current else []
    parts += ["not proven"] if better.get(RUNS) == 0 else []
    return f"Tied with {gpu_text}{plan_of(workload, better)}: {', '.join(parts)}"


def lever_lines(levers: Iterable[CostLever]) -> Iterator[str]:
    """Yield a line for each input that lowers the cost if changed, with the change in %."""
    by_name: dict[str, list[CostLever]] = {}
    for lever in levers:
        by_name.setdefault(lever.name, []).append(lever)
    for name, several in by_name.items():
        first = several[0]
        reached = format_result(first.column, first.row[first.column])
        others = [f"{lever.other} {100 * lever.change:+,.0f} %" for lever in several]
        others[0] += f" ({label(first.column)} {reached})"
        yield f"{name} ({first.current} here): {', '.join(others)}"
        if name == "contract" and (line := charged_in_full_line({o.other: o.row for o in several})):
            yield line


def fastest_line(column: str, row: Row, best: Row, plan_text: str) -> str:
    """Return the plan that is best in a column, with its gain; "" if that is negligible."""
    current, other = number_of(row, column), number_of(best, column)
    gain = abs(other / current - 1) if current else 0.0
    if not gain >= _MIN_DIFFERENCE:  # also False for NaN
        return ""
    gain_text = f"{label(column)} {format_result(column, best[column])}, {share(gain)} better"
    return f"Best by {label(column)}: {plan_text}; {gain_text}"


def undoubted_price_line(plan: Plan, result: SearchResult, row: Row) -> str:
    """Return the best plan without price doubts, if the recommended plan has some; else ""."""
    goal = plan.problem.objectives[0].name
    is_compared = glossary()[goal].type == "usd" and "gpu" in plan.problem.axes
    if not is_compared or not _doubts(plan, row):
        return ""
    compared = result.comparisons["gpu"].table
    for other in iterate_rows(full_columns(compared, plan.problem.sources)):
        if not _doubts(plan, other):
            column = plan_objective_column(plan, goal, other)
            text = format_result(column, other[column], ends_in(column, other))
            return f"Best at a solid price: {short_plan(plan, other)}; {label(column)} {text}"
    return ""


def _doubts(plan: Plan, row: Row) -> bool:
    offers = (site.offer for site in plan.source_of(row).sites)
    return any(offer is not None and offer.doubts for offer in offers)


def starting_plan_line(plan: Plan, row: Row, starting_row: Row, rejected: str) -> str:
    """Return a line that compares the user's plan with the recommended one."""
    name = f"Yours: {short_plan(plan, starting_row)}"
    if rejected:
        return f"{name}: does not run ({rejected})"
    column = plan_objective_column(plan, plan.problem.objectives[0].name, row)
    current, better = number_of(starting_row, column), number_of(row, column)
    if math.isnan(current) or math.isnan(better) or not better:
        return name
    difference = abs(current / better - 1)
    text = f"{label(column)} {format_result(column, starting_row[column])}"
    return (
        f"{name}; {text}, {share(difference)} worse"
        if difference >= _MIN_DIFFERENCE
        else f"{name}; {text}, the same"
    )


def unchanged_settings_line(plan: Plan, starting_row: Row) -> str:
    """Return a line on the user's settings that affect learning; "" if there are none."""
    names = terms_about("learning_setting", plan.workload.name)
    fixed = [name for name in names if plan.request.settings.get(name) == starting_row[name]]
    text = ", ".join(f"{name} {formatting.format_parameter(starting_row[name])}" for name in fixed)
    return f"Not changed, since it affects learning: {text}; --set tries others." if text else ""


def comparisons_blocks(
    plan: Plan, result: SearchResult, *, is_full: bool = False
) -> Iterator[Block]:
    """Yield the best plan of each value of every searched axis, and its loss.

    The short form has tables of the axes that the user listed and a sentence for others.
    """
    answers = {name: getattr(plan.request, name, None) for name in result.comparisons}
    requested = (
        name
        for name, answer in answers.items()
        if answer == ALL or isinstance(answer, tuple | list)
    )
    table_axes = [*(result.comparisons if is_full else requested)]
    for axis, compared in result.comparisons.items():
        if axis not in table_axes:
            has_results = axis == plan.workload.profile_kind and not table_axes
            changes = (
                _changes_with_results(plan, compared) if has_results else _changes(plan, compared)
            )
            line = (
                f"By {_spaced(axis)} ({_spaced(plan.problem.objectives[0].name)}): "
                f"{', '.join(changes)}"
            )
            yield make_lines(line, most=_LINES)
            for reason in without_plan_lines(plan, compared) if has_results else ():
                yield make_lines(reason, most=_LINES)
    for axis in table_axes:
        compared = result.comparisons[axis]
        yield GAP
        table = compared.table
        if axis == "num_gpus":
            table = result.scaled(table)
        max_rows = len(compared.losses) if is_full else _MAX_ROWS
        yield from _table_blocks(plan, compared, table, max_rows)
        if axis == "contract":
            rows = iterate_rows(full_columns(compared.table, plan.problem.sources))
            lines = [f"{row[axis]}: {line}" for row in rows for line in commitment_lines(row)]
            yield make_lines(*lines, most=_ALL_LINES)
        for line in without_plan_lines(plan, compared):
            yield make_lines(line, most=_ALL_LINES if is_full else 2)


def _spaced(axis: str) -> str:
    return axis.replace("_", " ")


def _changes_with_results(plan: Plan, compared: Comparison) -> list[str]:
    """Return the values of an axis with their losses, and the result of all but the first."""
    column = plan_objective_column(plan, plan.problem.objectives[0].name, compared.table)
    changes, others = _changes(plan, compared), compared.table.get(column, ())[1:]
    reached = [f": {format_result(column, value)}" for value in others]
    return [
        change + result for change, result in zip_longest(changes, ["", *reached], fillvalue="")
    ]


def _changes(plan: Plan, compared: Comparison) -> list[str]:
    """Return each value of an axis with its relative loss against the best value, as text."""
    table, sign = compared.table.get(compared.axis, ()), plan.problem.objectives[0].sign
    texts = [
        " ".join(
            [
                formatting.format_parameter(value),
                *([change] if index and (change := _change(sign, loss)) else []),
            ]
        )
        for index, (value, loss) in enumerate(zip(table, compared.losses, strict=True))
    ]
    return texts + [
        f"{formatting.format_parameter(value)} no plan" for value in compared.without_plan
    ]


def _change(sign: int, loss: float) -> str:
    """Return the relative change of the first objective: ``-12 %`` of a lower rate.

    Returns "as good" without a loss, "" if the loss is unknown.
    """
    if not math.isfinite(loss):
        return ""
    is_less = (loss > 0) == (sign < 0)
    return f"{'-' if is_less else '+'}{share(abs(loss))}" if loss else "as good"


def _table_blocks(
    plan: Plan, compared: Comparison, columns: Columns, max_rows: int
) -> Iterator[Block]:
    """Yield a table with the best plan of each value of an axis, at most ``max_rows``."""
    table, objective = full_columns(columns, plan.problem.sources), plan.problem.objectives[0]
    rows = [*islice(iterate_rows(table), max_rows)]
    num_hidden = len(compared.losses) - len(rows)
    table_columns = compared_columns(
        plan.workload, plan.problem.axes, compared.axis, rows, compared.losses[: len(rows)],
        column=plan_objective_column(plan, objective.name, table), goal=objective.name,
        sign=objective.sign,
    )  # fmt: skip
    cells = [*zip(*(column.cells for column in table_columns), strict=True)]
    yield text_table(
        [column.header for column in table_columns], cells, text_columns=(0, 1), marked=[BEST]
    )
    if num_hidden:
        yield make_lines(f"and {num_hidden} more: --full")


def compared_columns(
    workload: Workload,
    axes: Collection[str],
    axis: str,
    rows: Sequence[Row],
    losses: Sequence[float],
    *,
    column: str,
    goal: str,
    sign: int,
) -> list[Column]:
    """Return the table columns of the best plan of each value of an axis, and its loss.

    The plans were chosen by ``goal``, shown in ``column``; low is better if ``sign`` is 1.
    """
    result_cells = [
        replace(
            result_cell(column, row, format_result(column, row[column], ends_in(column, row))),
            more="",
        )
        if column in row
        else Cell(text="")
        for row in rows
    ]
    changes = [
        Cell(text=_change(sign, loss) if index else "", mark=BAD if loss > 0 else BEST, number=loss)
        for index, loss in enumerate(losses)
    ]
    scaling = [number_of(row, SCALING) for row in rows if SCALING in row]
    plans = [shortest_plan(workload, axes, row, axis) for row in rows]
    values = [formatting.format_parameter(row[axis]) for row in rows]
    return [
        Column(axis, values, f"by {_spaced(axis)}", numeric=False),
        Column("plan", plans, "plan", numeric=False),
        Column(column, result_cells, label(column)),
        Column("loss", changes, _spaced(goal)),
        *(
            [Column(SCALING, [f"{efficiency:.1%}" for efficiency in scaling], label(SCALING))]
            if scaling
            else []
        ),
    ]


def without_plan_lines(plan: Plan, compared: Comparison) -> list[str]:
    """Values without a plan, a line for each reason."""
    reasons = {value: describe(plan.problem, name) for value, name in compared.without_plan.items()}
    return no_plan_lines(reasons.items())


def no_plan_lines(why: Iterable[tuple[object, str]]) -> list[str]:
    """Return the values that have no plan, one line for each reason."""
    reasons: dict[str, list[str]] = {}
    for value, reason in why:
        reasons.setdefault(reason, []).append(formatting.format_parameter(value))
    ordered = sorted(reasons.items(), key=lambda item: -len(item[1]))
    return [
        f"no plan: {len(values)} ({reason}): {', '.join(values)}"
        if len(values) > 1
        else f"no plan: {values[0]} ({reason})"
        for reason, values in ordered
    ]


def estimate_command(plan: Plan, row: Row) -> str:
    """Return the ``planner estimate`` command that predicts the plan of a result row."""
    workload, request = plan.workload, plan.request
    arguments = [] if workload.name == Request.workload else ["--workload", workload.name]
    answers = all_answers(plan, row)
    for name, term in terms_of(workload.name, "question").items():
        if "parameter" in term.kind:
            arguments += [term.option_name, str(row[name])]
        elif name in terms_about("chosen_by_plan") or getattr(request, name, None) is not None:
            arguments += _option_arguments(term, answers.get(name), getattr(Request, name, None))
    arguments += ["--gpus", str(row["num_gpus"])]
    parameters = terms_of(workload.name, "parameter")
    defaults = workload.unset_defaults(plan.source_of(row))
    for name, value in non_default_parameters(workload.name, row, defaults).items():
        abbreviation = parameters[name].short if name in parameters else ""
        arguments += ["--set", f"{abbreviation or name}={str(value).lower()}"]
    if request.specs is not None:
        arguments += ["--specs", str(request.specs)]
    return "planner estimate " + shlex.join(arguments)


def _option_arguments(term: Term, answer: object, default: object) -> list[str]:
    """Return the option and the value of an input; empty if it has its default."""
    if answer is None or answer == default:
        return []
    if term.type in ("second", "byte") and isinstance(answer, float):
        answer = f"{answer / term.scale:.12g}{term.unit}"
    if term.type == "flag":  # a flag that is on by default is switched off
        return [term.option_name if answer else f"--no-{term.option_name[2:]}"]
    text = str(answer).removesuffix(".0") if isinstance(answer, float) else str(answer)
    return [term.option_name, text]
