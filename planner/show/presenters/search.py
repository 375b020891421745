"""The answer of a search, in 24 lines or in full; and a single configuration."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence

from planner.base import formatting
from planner.base.csv_cells import Row
from planner.base.units import GIB
from planner.confidence.intervals import Confidence
from planner.decide.assumptions import sensitive_assumptions
from planner.decide.near import TARGET_FIT_PROBABILITY
from planner.optimize.problem import limit_rows, with_rate_limit
from planner.optimize.result import SearchResult
from planner.optimize.result_columns import COLUMNS_BY_ERROR, RUNS, intervals
from planner.optimize.source import Candidates, first_row
from planner.question.names import GPU
from planner.question.request import Request
from planner.question.terms import Term, terms_about, terms_of
from planner.show.output_blocks import (
    GAP,
    TIE,
    TOTAL,
    Block,
    Code,
    KeyValues,
    Title,
    make_lines,
)  # fmt: skip
from planner.show.presenters.alternatives import (
    Alternatives,
    alternatives,
    alternatives_table,
    axis_blocks,
    change_text,
    front_line,
    legend_lines,
    other_axis_lines,
    without_plan_lines,
)
from planner.show.presenters.answer_lines import (
    MOST_LINES,
    assumed_count_line,
    change_lines,
    count_lines,
    launch_target,
    next_line,
    price_text,
    result_file,
    section_line,
)
from planner.show.presenters.format_results import (
    Ends,
    ends_in,
    format_host_memory,
    format_paged_states,
    format_result,
    label,
    number_of,
    plan_of,
    row_settings_text,
    settings_text,
    share,
    short_plan,
    short_plan_of,
    without_origin,
)
from planner.show.presenters.load_check import load_line, replay_blocks, replay_result
from planner.show.presenters.pareto_front import (
    are_same_plan,
    front_blocks,
    front_size,
    is_lower_better,
    percentile_columns,
    percentile_limit_columns,
    plan_objective_column,
    ranked_rows,
    search_goals,
)
from planner.show.presenters.prices import commitment_lines, plan_prices_lines
from planner.show.presenters.question_summary import (
    assumed_blocks,
    assumed_number_blocks,
    counts_blocks,
    defaults_blocks,
    question_blocks,
)
from planner.show.presenters.uncertainty import (
    evidence,
    format_regret,
    report_columns,
    result_pairs,
    short_assumption_lines,
    uncertainty_lines,
    unnamed_lines,
)
from planner.show.presenters.workload_details import details_of, memory_blocks
from planner.show.reports import LeverEffect, ResultRow, SearchReport
from planner.workloads.make_plan import Plan
from planner.workloads.saved_plan import all_answers, non_default_parameters
from planner.workloads.workload import Evaluation

_MAX_ASSUMED = 4
_LINES, _ALL_LINES = 7, 1000
_MIN_DIFFERENCE = 1e-3
_MOST_ALTERNATIVES, _LEAST_ALTERNATIVES, _MOST_CLOSING = 8, 3, 5
_LIKELY = 0.9
_VERBS = {"train": "Train", "serve": "Serve", "rl": "Train"}
_SIZE_OF = re.compile(r" \([\d.,]+ \w+ parameters[^)]*\)")
_MEMORY, _FITS = "peak_memory_gib", "fit_probability"
_LIMITS = "limits_probability"
_STEPS_TIME, _CALENDAR_TIME = "time_to_train_days", "calendar_time_days"


def interrupted_message(plan: Plan, result: SearchResult) -> str:
    """Return a sentence on how many configurations an interrupted search has evaluated."""
    done, total = result.configurations_evaluated, plan.problem.num_rows
    return (
        f"Interrupted after {formatting.format_count(done)} of {formatting.format_count(total)} "
        "configurations: "
        "the others may include better ones."
    )


def search_blocks(
    report: SearchReport,
    top: int,
    *,
    is_full: bool = False,
    details: Iterable[Block] = (),
    shows_warnings: bool = True,
) -> Iterator[Block]:
    """Yield the answer of a search, or nothing if it has no plan.

    Parameters
    ----------
    report : result of the search
    top : maximum number of rows of the front in the full form
    is_full : yield all results, the front, tables by input, and the assumptions
    details : blocks on the recommended plan in the full form
    shows_warnings : yield what the search did not finish
    """
    if report.recommended_row is None:
        return
    warnings = report.warnings if shows_warnings else ()
    if is_full:
        yield from _full_blocks(report, top, details)
    else:
        yield from _first_blocks(report, len(warnings))
    yield from (Title(text=warning) for warning in warnings)


def _first_blocks(report: SearchReport, extra: int) -> list[Block]:
    """Return the answer in `MOST_LINES` lines, less ``extra``, if possible.

    Left out first: empty lines, then alternatives beyond three, then lines below the table.
    """
    chosen, better = alternatives(report), better_lines(report)
    number = 0 if chosen is None else len(chosen.rows)
    shown, gaps, most = min(_MOST_ALTERNATIVES, number), 2, _MOST_CLOSING
    while True:
        blocks: list[Block] = [*_question_blocks(report), GAP, *recommended_blocks(report)]
        blocks += [*[GAP] * (gaps > 1), *_better_blocks(better)] if better else []
        blocks += [GAP] * (gaps > 0)
        blocks += [] if chosen is None else _table_blocks(report, chosen.first(shown))
        blocks += _closing_blocks(report, number - shown, most)
        beyond = count_lines(blocks) + extra - MOST_LINES
        if beyond <= 0 or (shown <= _LEAST_ALTERNATIVES and most == 0):
            return blocks
        if gaps:
            gaps -= 1
        elif shown > _LEAST_ALTERNATIVES:
            shown = max(shown - beyond, _LEAST_ALTERNATIVES)
        else:
            most = max(most - beyond, 0)


def _table_blocks(report: SearchReport, chosen: Alternatives) -> Iterator[Block]:
    yield alternatives_table(report, chosen)
    yield make_lines(*legend_lines(report, chosen), most=2, indent="")


def _question_blocks(report: SearchReport) -> Iterator[Block]:
    """Yield what was asked: model and GPUs, the work, and the price of a GPU-hour."""
    title, work, *others = question_texts(report)
    yield make_lines(title, mark=TOTAL, indent="")
    yield make_lines(*filter(None, [work, *others]), indent="", most=2)


def question_texts(report: SearchReport) -> list[str]:
    """Return the question: its title, the work and the price, and further lines."""
    row = report.best_row
    title, *lines = map(str, report.manifest.get("question") or [report.manifest.get("model")])
    verb = _VERBS.get(report.workload.name, "Run")
    work = []
    if "sequence_length" in row and "global_batch_size" in row and "train_gpus" not in row:
        work.append(
            f"batch {formatting.format_count(row['global_batch_size'])} x "
            f"{formatting.format_count(row['sequence_length'])} tokens"
        )
        if number_of(row, "total_tokens") > 0:
            work.append(f"{formatting.format_large(row['total_tokens'])} tokens")
    gpu_text = f"{row.get('gpu')} " if GPU in report.comparisons else ""
    price = f"{gpu_text}{price}" if (price := price_text(row)) else ""
    title = f"{verb} {_SIZE_OF.sub('', title)}"
    if not work:
        return [", ".join(filter(None, (title, price))), "", *lines]
    return [title, ", ".join(filter(None, (*work, price))), *lines]


def recommended_blocks(report: SearchReport) -> Iterator[Block]:
    """Yield the recommended plan with its results, their evidence, and notes."""
    yield section_line("RECOMMENDED", plan_title(report, report.best_row))
    yield KeyValues(pairs=answer_pairs(report), is_running=True)
    lines = [*evidence_lines(report), *note_lines(report)]
    yield make_lines(*(f"  {line}" for line in lines), most=2, indent="    ")
    if report.recommended_replay is not None:
        yield from replay_blocks(report.recommended_replay)


def plan_title(report: SearchReport, row: Row) -> str:
    """Return the hardware, as far as it was searched, the software and the layout of a row."""
    software = [name for name in terms_about("software") if row.get(name)]
    names = dict.fromkeys([*report.comparisons, *software])
    question = " ".join(map(str, report.manifest.get("question") or ()))
    count = formatting.format_count(number_of(row, "num_gpus"))
    if "num_gpus" not in names and f"{count} x " not in question:
        names = dict.fromkeys(["num_gpus", *names])
    return short_plan_of(report.workload, names, row)


def answer_pairs(report: SearchReport) -> dict[str, str]:
    """Return the results and costs of the recommended plan with their intervals, by name."""
    row = report.best_row
    limited = percentile_columns(report.manifest.get("constraints") or (), row)
    names = report_columns(report.workload.wording, search_goals(report), limited, row, row)
    if math.isfinite(number_of(row, _CALENDAR_TIME)) and _STEPS_TIME in names:
        names.remove(_STEPS_TIME)
    capacity = row[_MEMORY] + row["memory_headroom_gib"]
    ends, shown = row_ends(row), set[str]()
    for name in names:  # quantities with the same error share the interval of the first
        groups = {key for key, columns in COLUMNS_BY_ERROR.items() if name in sum(columns, ())}
        if groups & shown and not name.endswith(("_usd", "_days")):
            ends.pop(name, None)
        shown |= groups
    pairs = result_pairs(names, row, ends, capacity) | dict(report.recommended_host)
    return {name.replace(label(_MEMORY), "memory"): text for name, text in pairs.items()}


def row_ends(row: Row) -> dict[str, Ends]:
    """The 90 % intervals of a row by column."""
    ends = {column: ends_in(column, row) for column in row}
    return {column: pair for column, pair in ends.items() if pair is not None}


def evidence_lines(report: SearchReport) -> list[str]:
    """Return the evidence of the intervals, and the probability to keep each limit."""
    row, basis = report.best_row, report.recommended_sure.basis
    limits = [
        {"name": limit.name, "bound": limit.bound, "probability": limit.probability}
        for limit in report.recommended_limits
    ]
    lines = [f"90 % ranges; evidence: {evidence(basis, row.get(RUNS))}"] if basis else []
    lines += unnamed_lines(str(row.get("gpu") or "")) if basis else []
    return [*lines, *uncertainty_lines("", limits, ())]


def note_lines(report: SearchReport) -> list[str]:
    """Return lines on the recommended plan: its load, evidence, contract, and surer plans."""
    row = report.best_row
    doubts = row.get("price_doubts")
    lines = [
        report.recommended_load,
        proven_line(report),
        surer_line(report.recommended_surer),
        surer_plan_line(report),
        f"Ask before signing: {doubts}" if doubts else "",
        undoubted_price_line(report),
        *commitment_lines(row),
        *report.starting_plan,
    ]
    return [*filter(None, lines)]


def proven_line(report: SearchReport) -> str:
    """Return the best plan with published runs, if the recommended one has none; else ""."""
    row, other, goals = report.best_row, report.proven_row, search_goals(report)
    if row.get(RUNS) != 0 or not goals:
        return ""
    software = row.get(report.workload.profile_kind)
    missing = f"Not proven: no published run of {software} on {row['gpu']} is known"
    if other is None:
        return f"{missing}, nor of any other choice here."
    place = f"{number_of(other, 'num_gpus'):,.0f} x {other['gpu']}"
    return (
        f"{missing}. Proven: {place}, {plan_of(report.workload, other)}; "
        f"{_compared_result(goals[0], row, other)}"
    )


def _compared_result(column: str, row: Row, other: Row) -> str:
    """Return a result of another plan with its change against ``row``: ``cost 3 USD, -7 %``."""
    text = f"{label(column)} {format_result(column, other[column], ends_in(column, other))}"
    current = number_of(row, column)
    change = number_of(other, column) / current - 1 if current else math.nan
    return f"{text}, {change_text(change)}" if math.isfinite(change) else text


def surer_line(options: Mapping[str, float]) -> str:
    """Return options with a higher probability to fit in memory; "" if there are none."""
    texts = [
        f"{option} ({formatting.format_fit_probability(chance)})"
        for option, chance in options.items()
    ]
    likely = f"Less than {100 * TARGET_FIT_PROBABILITY:g} % likely to fit. Surer: "
    return f"{likely}{', or '.join(texts)}." if texts else ""


def surer_plan_line(report: SearchReport) -> str:
    """Return the first plan of the front that is likely to keep the limits, if this one is not."""
    row, goals = report.best_row, search_goals(report)
    chances = [limit.probability for limit in report.recommended_limits]
    known = [chance for chance in chances if chance is not None]
    if not known or min(known) >= _LIKELY or not goals:
        return ""
    surer = [
        other.row
        for other in ranked_rows(report)
        if number_of(other.row, _LIMITS) >= _LIKELY and (other.row.get(RUNS) or not row.get(RUNS))
    ]
    if not surer:
        return ""
    sign = 1 if is_lower_better(report) else -1
    other = min(surer, key=lambda plan: sign * number_of(plan, goals[0]))
    chance = formatting.format_probability(number_of(other, _LIMITS))
    title, result = plan_title(report, other), _compared_result(goals[0], row, other)
    return f"Surer: {title}: {chance} likely to keep the limits; {result}"


def undoubted_price_line(report: SearchReport) -> str:
    """Return the first GPU whose price has no doubts, if that of the plan has; else ""."""
    row, goals = report.best_row, search_goals(report)
    if not (goals and goals[0].endswith("_usd") and GPU in report.comparisons):
        return ""
    rows = report.comparisons[GPU].rows if row.get("price_doubts") else ()
    other = next((other for other in rows if not other.get("price_doubts")), None)
    if other is None:
        return ""
    result = _compared_result(goals[0], row, other)
    return f"At a price without doubts: {plan_title(report, other)}; {result}"


def better_plan(report: SearchReport) -> ResultRow | None:
    """Return the plan predicted to be better than the recommended one by more than a tie."""
    row, other, goals = report.recommended_row, report.fastest_row, search_goals(report)
    if row is None or other is None or not goals:
        return None
    current, better = number_of(row, goals[0]), number_of(other, goals[0])
    if not (current > 0 and better > 0):  # also for NaN
        return None
    gain = current / better if is_lower_better(report) else better / current
    return other if gain > max(report.recommended_sure.tie_factor, 1 + _MIN_DIFFERENCE) else None


def better_sentence(report: SearchReport) -> str:
    """Return `better_lines` as one sentence; "" if there is no such plan."""
    first, *others = better_lines(report) or [""]
    title, _, plan = first.partition("  ")
    return f"{'; '.join([f'{title.capitalize()}: {plan}', *others])}." if plan else ""


def better_lines(report: SearchReport) -> list[str]:
    """Return a better plan that is not recommended, why it is not, and its test; or nothing."""
    row, other = report.recommended_row, better_plan(report)
    if row is None or other is None:
        return []
    column = search_goals(report)[0]
    title = "COULD BE CHEAPER" if column.endswith("_usd") else "COULD BE FASTER"
    if not column.endswith(("_usd", "_s", "_per_gpu", "_days")):
        title = "COULD BE BETTER"
    texts = [_compared_result(column, row, other)]
    if other.get(RUNS) == 0:
        gpu = "this GPU" if other["gpu"] == row["gpu"] else other["gpu"]
        texts.append(f"no run on {gpu}")
    if number_of(other, _FITS) < min(_LIKELY, number_of(row, _FITS)):
        chance = formatting.format_probability(number_of(other, _FITS))
        texts.append(f"{chance} likely to fit")
    if number_of(other, _LIMITS) < number_of(row, _LIMITS):
        chance = formatting.format_probability(number_of(other, _LIMITS))
        texts.append(f"{chance} likely to keep the limits")
    lines = [f"{title}  {plan_title(report, other)}", "; ".join(texts)]
    if command := _test_command(report, other):
        test = "20 steps decide" if "step_time_s" in other else "A benchmark decides"
        lines.append(f"{test}: {command}")
    return lines


def _test_command(report: SearchReport, other: ResultRow) -> str:
    """Return the command that writes the launch files of a row of the result; "" if unknown."""
    command = str(report.manifest.get("command") or "")
    rows = [are_same_plan(report.workload, row, other) for row in report.rows]
    if not any(rows) or len(shlex.split(command)) < 2:
        return ""
    name, _ = result_file(command)
    target = launch_target(report.workload.name, other.get(report.workload.profile_kind))
    start = f"planner launch {target}" if target else "planner estimate"
    return f"{start} --from {shlex.quote(name)} --row {rows.index(True) + 1}"


def _better_blocks(lines: Sequence[str]) -> Iterator[Block]:
    yield make_lines(lines[0], mark=TIE, most=3)
    yield make_lines(*(f"  {line}" for line in lines[1:]), indent="    ", most=2)


def _closing_blocks(report: SearchReport, num_hidden: int, most: int) -> list[Block]:
    """Return lines on the front, the assumptions, what would change the answer, and commands.

    ``num_hidden`` is the number of alternatives that are not shown; ``most`` limits the lines
    before the last two.
    """
    command = str(report.manifest.get("command") or "")
    lines = [
        *_no_plan_lines(report)[:1],
        *change_lines(report.workload.wording, report.open_facts)[:1],
        front_line(report),
        *suggestion_lines(report.levers)[:1],
        *change_lines(report.workload.wording, report.open_facts)[1:],
        *other_axis_lines(report),
        *_no_plan_lines(report)[1:],
    ]
    number = front_size(ranked_rows(report))
    more = [
        formatting.format_counted(num_hidden, "more alternative") if num_hidden else "",
        f"{formatting.format_counted(number, 'plan')} on the front" if number > 1 else "",
    ]
    hidden = {"space", *report.comparisons}
    assumed = assumed_count_line(
        report.manifest.get("defaults") or {}, hidden, [*filter(None, more)]
    )
    blocks: list[Block] = [
        make_lines(*[*filter(None, lines)][:most], most=1),
        *([make_lines(assumed)] if assumed else []),
    ]
    if len(shlex.split(command)) > 1:
        software = report.best_row.get(report.workload.profile_kind)
        target = launch_target(report.workload.name, software)
        return [*blocks, make_lines(next_line(command, target), most=2)]
    return [
        *blocks,
        make_lines("Next, for this plan alone:"),
        Code(text=report.recommended_command),
    ]


def _no_plan_lines(report: SearchReport) -> list[str]:
    """Return the values without a plan of the inputs that list values, and of the software."""
    names = [
        axis
        for axis in report.comparisons
        if axis in report.requested_axes or axis == report.workload.profile_kind
    ]
    return [line for axis in names for line in without_plan_lines(report, axis)]


def suggestion_lines(levers: Sequence[LeverEffect]) -> list[str]:
    """Return a line with the two changes that move the cost most, then one for each input."""
    known = [lever for lever in levers if math.isfinite(lever.value)]
    if not known:
        return []
    largest = sorted(known, key=lambda lever: -abs(lever.change))[:2]
    texts = [f"{o.lever} {o.other} ({100 * o.change:+,.0f} %)" for o in largest]
    lines = [f"Changes of {label(known[0].column)}: {', '.join(texts)}"]
    by_name: dict[str, list[LeverEffect]] = {}
    for lever in known:
        by_name.setdefault(lever.lever, []).append(lever)
    for name, several in by_name.items():
        first = several[0]
        others = [f"{lever.other} {100 * lever.change:+,.0f} %" for lever in several]
        others[0] += f" ({label(first.column)} {format_result(first.column, first.value)})"
        lines.append(f"{name} ({first.current} here): {', '.join(others)}")
    return lines


def _full_blocks(report: SearchReport, top: int, details: Iterable[Block]) -> Iterator[Block]:
    """Yield the answer, the assumptions, all comparisons, the front, and the plan in full."""
    yield from _question_blocks(report)
    yield GAP
    yield from recommended_blocks(report)
    if better := better_lines(report):
        yield GAP
        yield from _better_blocks(better)
    if defaults := report.manifest.get("defaults"):
        yield Title(text="Not given, assumed")
        yield KeyValues(pairs=defaults)
    if report.price_lines:
        yield GAP
        yield make_lines(*report.price_lines, most=_LINES)
    if (chosen := alternatives(report)) is not None:
        yield GAP
        yield from _table_blocks(report, chosen.first(_ALL_LINES))
    main = "" if chosen is None else chosen.axis
    for axis in report.comparisons:
        yield from axis_blocks(report, axis, has_table=axis != main)
    if line := regret_line(report):
        yield make_lines(line, indent="")
    yield from front_blocks(report, top)
    yield Title(text=f"The recommended {report.workload.wording.noun}")
    text = row_settings_text(report.workload, report.best_row)
    yield make_lines(text, indent="", most=_ALL_LINES)
    yield from details
    if lines := suggestion_lines(report.levers)[1:]:
        yield GAP
        yield make_lines("What would change the answer:", mark=TOTAL, indent="")
        yield make_lines(*lines, *report.lever_notes, most=_LINES)
    yield from counts_blocks(report)
    yield from assumed_number_blocks(
        report.manifest.get("assumed") or (), report.manifest.get("specs") or ()
    )


def recommended_details(plan: Plan, result: SearchResult) -> Iterator[Block]:
    """Yield memory and speed of the recommended plan, and the command that shows more."""
    if (best := result.recommended) is None:
        return
    details = details_of(plan)
    yield from details.memory_and_speed(plan, best)
    yield Title(text=details.to_see)
    yield Code(text=estimate_command(plan, best.row))


def regret_line(report: SearchReport) -> str:
    """Return the expected loss against the plan that turns out best; "" if unknown."""
    goals = search_goals(report)
    return format_regret(report.recommended_sure.regret, label(goals[0])) if goals else ""


def single_plan_blocks(plan: Plan, evaluation: Evaluation) -> Iterator[Block]:
    """Yield the question of a single configuration, its results and its cost."""
    row = first_row(evaluation.table())
    yield from _plan_question_blocks(plan)
    yield GAP
    yield make_lines(short_plan(plan, row), mark=TOTAL, indent="")
    yield from _result_blocks(plan, evaluation.candidates, row)


def _plan_question_blocks(plan: Plan) -> Iterator[Block]:
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
        yield from replay_blocks(replay_result(plan, candidates))
    confidence = plan.source_of(row).confidence(int(number_of(row, "num_gpus")))
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


def estimate_blocks(plan: Plan, evaluation: Evaluation) -> Iterator[Block]:
    """Yield the question, the configuration, its memory, and its time by part and operator."""
    details = details_of(plan)
    yield from _configuration_blocks(plan, evaluation)
    yield from details.memory_and_speed(plan, evaluation.candidates)
    yield from details.more(plan, evaluation)
    yield from assumed_blocks(plan)


def misfit_blocks(plan: Plan, evaluation: Evaluation) -> Iterator[Block]:
    """The memory of a configuration that is valid but too large for the GPU."""
    yield from _configuration_blocks(plan, evaluation)
    yield from memory_blocks(evaluation.candidates)
    yield GAP


def _configuration_blocks(plan: Plan, evaluation: Evaluation) -> Iterator[Block]:
    """Yield the question, the defaults, the load check, and the settings of one plan."""
    yield from question_blocks(plan)
    yield from defaults_blocks(plan)
    if line := load_line(plan, evaluation.candidates):
        yield GAP
        yield make_lines(line)
    yield Title(text="The configuration")
    yield make_lines(settings_text(plan, evaluation.candidates.row), indent="", most=100)
