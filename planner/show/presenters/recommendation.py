"""The recommended plan of a search: its first lines, evidence, and plans that may be better."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

from planner.base.csv_cells import Row
from planner.base.formatting import (
    format_count,
    format_counted,
    format_fit_probability,
    format_large,
    format_probability,
)
from planner.decide.assumptions import SensitiveAssumption
from planner.optimize.result_columns import COLUMNS_BY_ERROR, RUNS
from planner.question.names import GPU, LIMITS_PROBABILITY
from planner.question.terms import terms_about
from planner.show.output_blocks import BEST, Block, KeyValues, make_lines
from planner.show.presenters.alternatives import change_text
from planner.show.presenters.format_results import (
    SHORT_WORDS,
    Ends,
    ends_in,
    format_result,
    label,
    number_of,
    plan_of,
    short_plan_of,
)
from planner.show.presenters.load_check import replay_blocks
from planner.show.presenters.pareto_front import (
    are_same_plan,
    is_lower_better,
    percentile_columns,
    ranked_rows,
    search_goals,
)
from planner.show.presenters.prices import DIFFERENT_BASES, commitment_lines
from planner.show.presenters.uncertainty import (
    evidence,
    format_regret,
    report_columns,
    result_pairs,
    short_assumption_texts,
    uncertainty_lines,
    unnamed_lines,
)
from planner.show.reports import ResultRow, SearchReport
from planner.workloads.workload import ResultWording

MOST_LINES, USUAL_COLUMNS = 24, 80
"""Lines of a first answer on a terminal of this many columns."""

_FILE = "a.json"
_MOST_CHANGES = 2


def price_text(row: Row) -> str:
    """Return the price of a GPU-hour with its date: ``2.74 USD/GPU-h (2026-11-09)``.

    Returns "" if the price is unknown.
    """
    price = number_of(row, "price_per_gpu_hour_usd")
    if not math.isfinite(price):
        return ""
    date = f" ({row['price_date']})" if row.get("price_date") else ""
    return f"{price:.2f} USD/GPU-h{date}"


def assumed_count_line(
    defaults: Mapping[str, str], hidden: Iterable[str], more: Sequence[str] = ()
) -> str:
    """Return how many inputs were assumed, and what ``more`` the full form has; "" if nothing.

    The ``hidden`` inputs do not count.
    """
    number = len({*defaults} - {*hidden})
    texts = [f"Assumed: {format_counted(number, 'thing')}"] if number else []
    return f"{'; '.join([*texts, *more])} (--full)." if texts or more else ""


def change_lines(wording: ResultWording, facts: Sequence[SensitiveAssumption]) -> list[str]:
    """Return the assumptions that change an answer, at most two, a line each."""
    return short_assumption_texts(wording, facts[:_MOST_CHANGES])


def result_file(command: str) -> tuple[str, bool]:
    """Return the JSON file that a command writes, and whether it is already among its options.

    >>> result_file("planner search --json b.json"), result_file("planner search")
    (('b.json', True), ('a.json', False))
    """
    for option, value in pairwise(shlex.split(command)):
        if option == "--json" and value != "-":
            return value, True
    return _FILE, False


def next_line(command: str, target: str = "") -> str:
    """Return what to ask next of the answer of a command line.

    ``target`` is the launch target that starts the plan; "" if there is none.
    """
    name, is_written = result_file(command)
    start = "" if is_written else f"--json {name}; then "
    launch = f" | launch {target}" if target else ""
    return f"Next: {start}planner explain{launch} --from {shlex.quote(name)}"


def launch_target(workload: str, software: object) -> str:
    """Return the first launch target that starts plans of a framework or engine; "" if none."""
    from planner.launch import READ_ONLY_TOOLS, TARGETS
    from planner.launch.option_table import tool_row

    for name in TARGETS:
        row = tool_row(name)
        has_workload = workload in row["workloads"].split("|")
        if name in READ_ONLY_TOOLS:  # only its whole steps are written
            is_match = not has_workload and str(software).lower().partition(" ")[0] == name
        else:
            is_match = has_workload and software in row["profiles"].split("|")
        if is_match:
            return name
    return ""


def count_lines(blocks: Iterable[Block]) -> int:
    """Return the lines that blocks take on a terminal of `USUAL_COLUMNS` characters."""
    from planner.show.terminal import terminal_text

    return len(terminal_text(blocks, USUAL_COLUMNS).splitlines())


SIZE_OF = re.compile(r" \([\d.,]+ \w+ parameters[^)]*\)")
"""The number of parameters in a question."""

_MOST_NOTE_LINES = 5
_MIN_DIFFERENCE = 1e-3
_LIKELY = 0.9
_VERBS = {"train": "Train", "serve": "Serve", "rl": "Train"}
_MEMORY, _FITS = "peak_memory_gib", "fit_probability"
_STEPS_TIME, _CALENDAR_TIME = "time_to_train_days", "calendar_time_days"


def batch_text(row: Row) -> str:
    """Return the batch of a step of training; empty for another workload."""
    if "sequence_length" not in row or "global_batch_size" not in row or "train_gpus" in row:
        return ""
    sequences, tokens = number_of(row, "global_batch_size"), number_of(row, "sequence_length")
    return f"batch {format_count(sequences)} x {format_count(tokens)} tokens"


def question_texts(report: SearchReport, *, has_price: bool = True) -> list[str]:
    """Return the question: its title, the work and the price if shown, and further lines."""
    row = report.best_row
    title, *lines = map(str, report.manifest.get("question") or [report.manifest.get("model")])
    verb = _VERBS.get(report.workload.name, "Run")
    work = []
    if batch := batch_text(row):
        work.append(batch)
        if number_of(row, "total_tokens") > 0:
            work.append(f"{format_large(row['total_tokens'])} tokens")
    price = price_text(row) if has_price and GPU not in report.comparisons else ""
    title = f"{verb} {SIZE_OF.sub('', title)}"
    if not work:
        return [", ".join(filter(None, (title, price))), "", *lines]
    return [title, ", ".join(filter(None, (*work, price))), *lines]


def further_lines(report: SearchReport) -> list[str]:
    """Return the lines of a question that stand below the recommended plan."""
    _, work, *lines = question_texts(report)
    is_long = bool(work) and bool(lines) and len(lines[0]) > USUAL_COLUMNS
    return lines if is_long else lines[1:]


def recommended_blocks(report: SearchReport, others: Sequence[str]) -> Iterator[Block]:
    """Yield the recommended plan with its results, their evidence, and notes.

    ``others`` are the `other_plan_lines` to show.
    """
    yield make_lines(f"RECOMMENDED  {plan_title(report, report.best_row)}", mark=BEST, most=3)
    price = price_text(report.best_row).partition(" (")[0] if GPU in report.comparisons else ""
    prices = {"price": price} if price else {}
    yield KeyValues(pairs=answer_pairs(report) | prices, is_inline=True, indent="  ")
    lines = [*evidence_lines(report), *note_lines(report), *others]
    yield make_lines(*(f"  {line}" for line in lines), most=_MOST_NOTE_LINES, indent="    ")
    if report.recommended_replay is not None:
        yield from replay_blocks(report.recommended_replay)


def plan_title(report: SearchReport, row: Row) -> str:
    """Return the hardware, as far as it was searched, the software and the layout of a row."""
    software = [name for name in terms_about("software") if row.get(name)]
    names = dict.fromkeys([*report.comparisons, *software])
    question = " ".join(map(str, report.manifest.get("question") or ()))
    count = format_count(number_of(row, "num_gpus"))
    if "num_gpus" not in names and f"{count} x " not in question:
        names = dict.fromkeys(["num_gpus", *names])
    return ", ".join(
        SHORT_WORDS.get(part, part)
        for part in short_plan_of(report.workload, names, row).split(", ")
    )


def answer_pairs(report: SearchReport) -> dict[str, str]:
    """Return the results and costs of the recommended plan with their intervals, by name."""
    row = report.best_row
    limited = percentile_columns(report.manifest.get("constraints") or (), row)
    names = report_columns(report.workload.wording, search_goals(report), limited, row, row)
    if math.isfinite(number_of(row, _CALENDAR_TIME)) and _STEPS_TIME in names:
        names.remove(_STEPS_TIME)
    capacity = report.recommended_capacity_gib
    if math.isnan(capacity):  # files of version 1.0.0
        capacity = row[_MEMORY] + row["memory_headroom_gib"]
    unknown = [name for name in names if name.endswith("_usd") and not row[name] >= 0]
    names = [name for name in names if name not in unknown[1:]]
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
    missing = report.recommended_sure.missing
    limits = [
        {"name": limit.name, "bound": limit.bound, "probability": limit.probability}
        for limit in report.recommended_limits
    ]
    runs = row.get(RUNS) or None  # a separate line mentions missing runs
    lines = [f"90 % ranges; evidence: {evidence(basis, runs, missing)}"] if basis else []
    lines += unnamed_lines(str(row.get("gpu") or "")) if basis else []
    return [*lines, *uncertainty_lines("", limits, ())]


def note_lines(report: SearchReport) -> list[str]:
    """Return lines on the plan of the user, the load, doubts, the evidence and the contract."""
    row = report.best_row
    doubts, hardware = row.get("price_doubts"), f"{row.get('gpu')} {row.get('contract') or ''}"
    lines = [
        *report.starting_plan,
        report.recommended_load,
        f"Ask before signing: {hardware}: {doubts}" if doubts else "",
        undoubted_price_line(report),
        *(line for line in report.price_lines if line.startswith(DIFFERENT_BASES)),
        proven_line(report),
        surer_line(report.recommended_surer),
        *faster_option_lines(report),
        *commitment_lines(row),
    ]
    return [*filter(None, lines)]


_SIDES = ("gpu", "rollout_gpu")


def other_plan_lines(report: SearchReport) -> list[str]:
    """Return a line on a plan that is likely to keep the limits; empty without one."""
    return [*filter(None, [surer_plan_line(report)])]


def proven_line(report: SearchReport) -> str:
    """Return the best plan with published runs, if the recommended one has none; else ""."""
    row, other, goals = report.best_row, report.proven_row, search_goals(report)
    if row.get(RUNS) != 0 or not goals:
        return ""
    software = row.get(report.workload.profile_kind)
    gpus = " and ".join(dict.fromkeys(str(row[gpu]) for gpu in _SIDES if row.get(gpu)))
    missing = f"Not proven: no published run of {software} on {gpus}"
    if other is None:
        return f"{missing}, nor of others"
    number = number_of(other, "num_gpus")
    is_elsewhere = other["gpu"] != row["gpu"] or number != number_of(row, "num_gpus")
    place = f"{number:,.0f} x {other['gpu']}, " if is_elsewhere else ""
    return (
        f"{missing}. Proven: {place}{plan_of(report.workload, other)}; "
        f"{_compared_result(goals[0], row, other, has_ends=False)}"
    )


def _compared_result(column: str, row: Row, other: Row, *, has_ends: bool = True) -> str:
    """Return a result of another plan with its change against ``row``: ``cost 3 USD, -7 %``."""
    ends = ends_in(column, other) if has_ends else None
    text = f"{label(column)} {format_result(column, other[column], ends)}"
    current = number_of(row, column)
    change = number_of(other, column) / current - 1 if current else math.nan
    return f"{text}, {change_text(change)}" if math.isfinite(change) else text


def surer_line(options: Mapping[str, float]) -> str:
    """Return options with a higher probability to fit in memory; "" if there are none."""
    texts = [
        f"{option} ({format_probability(chance)} likely)" for option, chance in options.items()
    ]
    return f"Surer to fit: {', or '.join(texts)}." if texts else ""


def faster_option_lines(report: SearchReport) -> Iterator[str]:
    """Yield a number format and a release with which the plan is predicted over 10 % better."""
    for other in report.faster_options:
        result = f"{label(other.column)} {format_result(other.column, other.value)}"
        chance = other.fit_probability
        fits = "" if chance is None else f"; {format_fit_probability(chance)}"
        option = f"--{other.lever} {other.other}"
        if other.lever not in ("precision", "engine"):
            option = f"--set {other.lever}={other.other}"
        is_release = other.lever == "engine"
        name = f"the current release, {other.other}" if is_release else other.other
        yield f"With {name}: {result}, {change_text(other.change)}{fits} ({option})."


def surer_plan_line(report: SearchReport) -> str:
    """Return the first plan of the front that is likely to keep the limits, if this one is not."""
    row, goals = report.best_row, search_goals(report)
    if not number_of(row, LIMITS_PROBABILITY) < _LIKELY or not goals:
        return ""
    surer = [
        other.row
        for other in ranked_rows(report)
        if number_of(other.row, LIMITS_PROBABILITY) >= _LIKELY
        and (other.row.get(RUNS) or not row.get(RUNS))
    ]
    if not surer:
        return ""
    sign = 1 if is_lower_better(report) else -1
    other = min(surer, key=lambda plan: sign * number_of(plan, goals[0]))
    chance = format_probability(number_of(other, LIMITS_PROBABILITY))
    result = _compared_result(goals[0], row, other, has_ends=False)
    return f"Surer: {plan_title(report, other)}: {chance} likely to keep the limits; {result}"


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
        chance = format_probability(number_of(other, _FITS))
        texts.append(f"{chance} likely to fit")
    if number_of(other, LIMITS_PROBABILITY) < number_of(row, LIMITS_PROBABILITY):
        chance = format_probability(number_of(other, LIMITS_PROBABILITY))
        texts.append(f"{chance} likely to keep the limits")
    if len(texts) == 1 and _has_worse_end(report, other):
        texts.append("worse at the bad end of its range")
    lines = [f"{title}  {plan_title(report, other)}", "; ".join(texts)]
    if command := _test_command(report, other):
        test = "20 steps decide" if "step_time_s" in other else "A benchmark decides"
        lines.append(f"{test}: {command}")
    return lines


def _has_worse_end(report: SearchReport, other: ResultRow) -> bool:
    """Whether the bad end of a plan's range is worse than that of the recommended plan."""
    column, is_low = search_goals(report)[0], is_lower_better(report)
    ends, other_ends = ends_in(column, report.best_row), ends_in(column, other)
    if ends is None or other_ends is None:
        return False
    return other_ends[1] > ends[1] if is_low else other_ends[0] < ends[0]


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


def regret_line(report: SearchReport) -> str:
    """Return the expected loss against the plan that turns out best; "" if unknown."""
    goals = search_goals(report)
    return format_regret(report.recommended_sure.regret, label(goals[0])) if goals else ""
