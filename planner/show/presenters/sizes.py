"""Sizes by GPU type: the fewest and the cheapest GPUs, their margins, and days by hour."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from planner.base.csv_cells import Row, number_or_nan
from planner.base.enums import Contract
from planner.base.formatting import (
    format_count,
    format_large,
    format_limit,
    format_percent,
    format_significant,
)
from planner.confidence.intervals import MEDIAN
from planner.decide.near import TARGET_FIT_PROBABILITY
from planner.decide.sizing.daily_schedule import DailySchedule
from planner.decide.sizing.fleet import (
    DEADLINES,
    RATE,
    SUFFIXES,
    FeasiblePlan,
    order_by_cost,
)
from planner.decide.sizing.purchase import other_precision, purchase_options
from planner.decide.sizing.size import Size
from planner.decide.sizing.size_all import Sizes
from planner.optimize.result_columns import RUNS
from planner.question.terms import glossary, term_of_column
from planner.show.output_blocks import (  # fmt: skip
    BEST,
    GAP,
    TOTAL,
    Block,
    Cell,
    Column,
    Title,
    fit_table,
    make_lines,
)
from planner.show.presenters.format_results import (
    ends_in,
    format_result,
    label,
    layout_of,
    number_cells,
    number_of,
    result_cell,
    without_origin,
    workload_of_row,
)
from planner.show.presenters.json_files import question_manifest
from planner.show.presenters.prices import basis_line, terms_lines, token_cost_line
from planner.show.presenters.purchase import (
    day_lines,
    day_row,
    days_blocks,
    days_table,
    scaled_rows,
)
from planner.show.presenters.row_tables import RowFiles, blocks
from planner.show.presenters.services import (
    MOST_TOKENS,
    PER_MEGAWATT,
    carried_columns,
    carried_lines,
    carried_rank,
    format_budget,
    option_fields,
    placement_blocks,
    placement_tables,
)
from planner.show.presenters.size_screen import (
    AT_90,
    MARKS,
    PREDICTED,
    assumed_lines,
    decision_lines,
    format_constraint,
    format_margin,
    layout_text,
    limit_name,
    printed_cost_key,
    relaxed_lines,
    screen_table,
    tied_rows,
)
from planner.show.presenters.uncertainty import format_regret, other_formats
from planner.show.reports import ResultRow, SizeReport, written_report

_MAX_REASONS = 40
# Rows of the first screen.
_SHORT_DAYS, SHORT_ROWS = 5, 10
# A narrow terminal omits the largest ranks.
_PLACES = ("gpu", "num_gpus")
_RANKS = {"rank": 0, **dict.fromkeys(_PLACES, 0), "least spare": 2, RUNS: 2, "plan": 3}
_BOTH = {"fewest, cheapest": "both"}
_TIME = "calendar_time_days"
_RUN_COST, _HOURLY_COST = "cost_usd", "cost_per_hour_usd"
_COSTS = (_RUN_COST, _HOURLY_COST)
COSTS = (*_COSTS, "cost_per_million_tokens_usd")
"""Columns of the cost of a choice; a row has at least one of them."""

BY_COST = "By cost, then GPUs"
_LIMIT = "limit_"
_AS_MUCH_AS, _CARRY = ", as much as ", " carry"
_BATCH = "global_batch_size"
Rows = Sequence[Row]
# Maximum number of GPUs and contracts with terms below a table.
_MAX_TERMS = 8


def sizes_blocks(sizes: Sizes, *, is_full: bool = False) -> Iterator[Block]:
    """Yield the answer of a size on one screen, or in ``is_full`` all choices and reasons."""
    report = written_report(
        lambda files: add_sizes(files, sizes, (), has_options=is_full), SizeReport
    )
    if not is_full:
        yield from screen_blocks(report)
        return
    yield from size_blocks(report)
    if sizes.load is not None:  # the file has the hours of GPUs that have a plan
        yield make_lines(*reason_lines(sizes))


def screen_blocks(report: SizeReport) -> Iterator[Block]:
    """Yield one screen: the question, what to buy, how sure, a table, what is assumed."""
    question_text, *lines = report.decision
    yield make_lines(question_text, mark=TOTAL, most=2)
    yield make_lines(*lines, most=2)
    yield GAP
    rows = feasible_rows(report)
    if report.days:
        yield replace(days_table(report.days[:_SHORT_DAYS]), name="days")
        yield make_lines(*report.day, most=2)
    elif rows and PER_MEGAWATT in rows[0]:
        table = fit_table(carried_columns(rows[:SHORT_ROWS]), carried_rank, [BEST])
        yield replace(table, name="choices")
    else:
        yield from screen_table(rows)
    reasons = no_plan_lines(report)
    yield make_lines(*report.assumed, most=2)
    yield make_lines(*(f"Not possible: {reason}" for reason in reasons[:1]), most=1)
    yield make_lines("Next: --full (all choices, prices, reasons) | --csv FILE | planner report")


def size_blocks(report: SizeReport) -> Iterator[Block]:
    """Yield the question, the answer, the tables, the notes, and GPUs without a plan."""
    if report.pools:
        yield from placement_blocks(report, is_full=True)
        return
    title, *lines = report.question
    yield make_lines(title, mark=TOTAL, indent="")
    yield make_lines(*lines, indent="")
    yield GAP
    yield make_lines(*report.answer)
    yield from size_tables(report)
    reasons = no_plan_lines(report)
    yield make_lines(
        *(["", *report.notes] if report.notes else []),
        *(["", "Not possible:", *reasons[:_MAX_REASONS]] if reasons else []),
    )


def size_tables(report: SizeReport) -> Iterator[Block]:
    """Yield the tables of a size: its services, its days by hour, or its choices."""
    rows = feasible_rows(report)
    if report.pools:
        yield from placement_tables(report)
    elif report.days:
        yield from days_blocks(report.days, report.day, report.scaled, rows)
    elif rows and PER_MEGAWATT in rows[0]:
        budget = " ".join(report.question[:1]).partition(_AS_MUCH_AS)[2].removesuffix(_CARRY)
        yield Title(text=f"Within {budget}, the most tokens first" if budget else MOST_TOKENS)
        yield replace(fit_table(carried_columns(rows), carried_rank, [BEST]), name="choices")
    elif len(rows) > 1:
        yield Title(text=BY_COST)
        columns = [*choice_columns(rows)]
        first = recommended_row(rows)
        marked = [BEST if row is first else "" for row in rows]
        table = fit_table(columns, lambda name: _RANKS.get(name, 1), marked)
        yield replace(table, name="choices")
        yield make_lines(*row_lines(rows))


def feasible_rows(report: SizeReport) -> list[ResultRow]:
    """Return the rows with a plan, choices by predicted cost, others as the file has them."""
    rows = [row for row in report.rows if row.get("feasible", True)]
    is_ordered = report.pools or report.days or (rows and PER_MEGAWATT in rows[0])
    return rows if is_ordered or not rows else sorted(rows, key=printed_cost_key)


def recommended_row(rows: Sequence[ResultRow]) -> ResultRow:
    """Return the recommended one of the choices."""
    return order_by_cost(rows)[0]


def no_plan_lines(report: SizeReport) -> list[str]:
    """Return the GPUs and contracts without a plan, a line for each reason."""
    reasons: dict[str, list[str]] = {}
    for row in report.rows:
        if not row.get("feasible", True):
            reasons.setdefault(str(row["reason"]), []).append(format_hardware(row))
    return [f"{', '.join(names)}: {reason}" for reason, names in reasons.items()]


def format_hardware(row: Row) -> str:
    """Return the GPU and the contract of a row."""
    return f"{row.get('gpu', '')} {row.get('contract') or ''}".strip()


def question_lines(sizes: Sizes) -> list[str]:
    """Return lines with the work, the limits and the confidence for which GPUs are sized."""
    request, best = sizes.request, sizes.best
    model = (
        str(request.model) if best is None or best.fewest is None else _fewest(best).row["model"]
    )
    work_text = (
        "" if request.total_tokens is None else f", {format_large(request.total_tokens)} tokens"
    )
    if sizes.load is not None:
        source = f" ({sizes.load.source})" if sizes.load.source else ""
        work_text = (
            f", the load of {sizes.load.name}{source} with {request.request_rate:g} at its peak"
        )
    elif best is not None and best.carried is not None:
        work_text = f"{_AS_MUCH_AS}{format_budget(sizes)}{_CARRY}"
    elif request.request_rate is not None:
        work_text = f", {request.request_rate:g} requests per second"
    verb = _VERBS.get(request.workload, request.workload)
    lines = [f"GPUs to {verb} {model}{work_text}", *_work_lines(sizes)]
    limits = _limits(sizes)
    if limits:
        lines.append(f"Limits: {'; '.join(limits)}")
    confidence = request.limit_confidence
    if sizes.is_memory_only:
        fewest = "No rate, deadline or budget is specified: the fewest GPUs on which it fits"
        return [*lines, f"{fewest}, at least {100 * TARGET_FIT_PROBABILITY:g} % likely"]
    lines.append(
        "Sized at the predictions: 50 % likely to keep each limit"
        if confidence == MEDIAN
        else f"Sized to be {100 * confidence:g} % likely to keep each limit"
    )
    return lines


def _work_lines(sizes: Sizes) -> list[str]:
    """Return the limits that the cheapest plan must keep, and its assumed values."""
    best = None if sizes.best is None else sizes.best.cheapest or sizes.best.fewest
    if best is None:
        return []
    chosen = [
        f"{name.replace('_', ' ')} {without_origin(text)}" for name, text in best.chosen.items()
    ]
    best_size = sizes.best
    margins = _fewest(best_size).margins if best_size is not None else ()
    chosen += [
        format_constraint(margin.name, margin.sign, margin.bound, margin.unit)
        for margin in margins
        if best_size is not None and margin.name in best_size.assumed
    ]
    return [*best.limit_names, *([f"Assumed: {'; '.join(chosen)}"] if chosen else [])]


def best_lines(sizes: Sizes) -> list[str]:
    """Return lines with the cheapest and the fewest GPUs and their margins to the limits."""
    if sizes.best is None:
        return ["No GPU type keeps the limits."]
    confidence, best = sizes.request.limit_confidence, sizes.best
    if best.carried is not None:
        return carried_lines(sizes)
    if best.day is not None:
        costs = [size.day.cost for size in sizes.feasible if size.day is not None]
        name = "Recommended" if any(cost < best.day.cost for cost in costs) else "Cheapest"
        return [*_day_best_lines(best, best.day, confidence, f"{name} day")]
    title = "Cheapest" if sizes.is_cheapest else "Recommended"
    lines = [_best_line(title, best, best.cheapest or best.fewest, confidence)]
    if (other := sizes.better_tied) is not None:
        lines.append(
            _best_line("Tied with it, predicted to cost less", other, _cheapest(other), confidence)
        )
    undoubted = min(
        (size for size in sizes.feasible if not _cheapest(size).row.get("price_doubts")),
        key=lambda size: math.inf if math.isnan(size.ranked_plan.value) else size.ranked_plan.value,
        default=None,
    )
    has_doubts = bool(_cheapest(best).row.get("price_doubts"))
    if has_doubts and undoubted is not None and undoubted is not best:
        lines.append(
            _best_line(
                "Cheapest at a price without doubts", undoubted, _cheapest(undoubted), confidence
            )
        )
    if not best.is_proven:
        lines.append(_proven_line(best, sizes.proven, confidence))
    if line := format_regret(sizes.regret, "cost"):
        lines.append(line)
    if line := _spare_line(best.cheapest or best.fewest):
        lines.append(line)
    if best.simplest is not None:
        lines.append(_best_line("Simplest that ties with it", best, best.simplest, confidence))
    fewest = min(sizes.feasible, key=lambda size: _fewest(size).num_gpus)
    if _fewest(fewest) is not (best.cheapest or best.fewest):
        lines.append(_best_line("Fewest", fewest, fewest.fewest, confidence))
    if any(size.fastest for size in sizes.feasible):
        fastest = min(
            (size for size in sizes.feasible if size.fastest), key=lambda size: _time(size.fastest)
        )
        lines.append(_best_line("Fastest within the budget", fastest, fastest.fastest, confidence))
    return lines


def _spare_line(fleet: FeasiblePlan | None) -> str:
    """Return GPUs and hourly cost with one spare per worker; "" if unknown."""
    spare = fleet and fleet.with_spare
    if not spare:
        return ""
    gpus, cost = spare
    hourly = f", {format_significant(cost)} USD per hour" if math.isfinite(cost) else ""
    return f"With a spare of each worker (N+1): {gpus:,} GPUs{hourly}"


def _proven_line(best: Size, proven: Size | None, confidence: float) -> str:
    """Return a sentence on a cheapest plan without published runs, and the best with runs."""
    row = _fewest(best).row
    software = row[workload_of_row(row).profile_kind]
    missing = f"Not proven: no published run of {software} on {best.gpu} is known"
    if proven is None:
        return f"{missing}, nor of any other choice here."
    return (
        f"{missing}. "
        f"{_best_line('Best proven', proven, proven.cheapest or proven.fewest, confidence)}"
    )


def note_lines(sizes: Sizes) -> list[str]:
    """Return notes on prices, relaxed limits, precision, assumptions and untried GPU counts."""
    lines = []
    if sizes.load is None:  # days have their own terms
        sizes_shown = [*_recommended(sizes), *sizes.feasible][:_MAX_TERMS]
        lines += terms_lines([_cheapest(size).row for size in sizes_shown])
        if sizes.best is not None and sizes.best.carried is None:
            lines += filter(None, [token_cost_line(_cheapest(sizes.best).row)])
        if basis := basis_line(_cheapest(size).row for size in sizes.feasible):
            lines.append(basis)
    lines += relaxed_lines(sizes)
    if others := [_gpu_and_contract(size) for size in sizes.feasible if size.is_other_contract]:
        lines.append(f"No on-demand price known, priced as: {', '.join(others)}")
    lines += [*_precision_lines(sizes), *_assumed_lines(sizes)]
    untried = [
        f"{_gpu_and_contract(size)} {format_count(size.not_tried[0])} to "
        f"{format_count(size.not_tried[-1])}"
        for size in sizes.feasible
        if size.not_tried
    ]
    if untried:
        lines.append(
            f"Not tried: {', '.join(untried)} GPUs, where the number of nodes has a prime factor "
            "above 7. Fewer GPUs may be enough: give --gpus."
        )
    return ["", *lines] if lines else []


def _recommended(sizes: Sizes) -> list[Size]:
    """Return the cheapest GPU choice and the one of fewest GPUs; empty if none is feasible."""
    if sizes.best is None or sizes.best.carried is not None:
        return [] if sizes.best is None else [sizes.best]
    fewest = min(sizes.feasible, key=lambda size: _fewest(size).num_gpus)
    return [sizes.best] if fewest is sizes.best else [sizes.best, fewest]


def _precision_lines(sizes: Sizes) -> list[str]:
    """Return the cost of the cheapest run in other precisions; empty if one is specified."""
    assumption = None if sizes.best is None else sizes.best.precision
    if assumption is None:
        return []
    too_large = assumption.does_not_fit
    misfits = [f"does not fit in {other}: --precision {other} sizes that" for other in too_large]
    head = f"Precision {assumption.assumed} assumed: the cheapest plan"
    return [f"{head} {text}" for text in (*other_formats(assumption), *misfits)]


def _assumed_lines(sizes: Sizes) -> list[str]:
    """Return a line with the spec numbers of the recommended GPUs that have no source."""
    assumed_by_gpu = {size.gpu: _fewest(size).row.get("assumed") for size in _recommended(sizes)}
    texts_by_gpu = {gpu: text for gpu, text in assumed_by_gpu.items() if text}
    if not texts_by_gpu:
        return []
    if len(set(assumed_by_gpu.values())) == 1:
        return [f"Assumed, without a source: {next(iter(texts_by_gpu.values()))}"]
    texts = "; ".join(f"{gpu}: {text}" for gpu, text in texts_by_gpu.items())
    return [f"Assumed, without a source: {texts}"]


def reason_lines(sizes: Sizes) -> list[str]:
    """Return the GPU types that are infeasible, one line for each reason."""
    reasons: dict[str, list[str]] = {}
    for size in sizes.sizes:
        if size.fewest is None:
            reasons.setdefault(size.reason, []).append(_gpu_and_contract(size))
    lines = [f"{', '.join(names)}: {reason}" for reason, names in reasons.items()]
    return ["", "Not possible:", *lines[:_MAX_REASONS]] if lines else []


def _best_line(title: str, size: Size, fleet: FeasiblePlan | None, confidence: float) -> str:
    """Return a fleet as one line: GPUs, layout, costs and margins; "" if it is None.

    ``confidence`` is the probability with which the limits must be met.
    """
    if fleet is None:
        return ""
    row, parts = fleet.row, [f"{title}: {fleet.num_gpus:,} x {_gpu_and_contract(size)}"]
    parts.append(f"{row[workload_of_row(row).profile_kind]}, {layout_text(row)}")
    if not fleet.is_proven:
        parts.append("not proven")
    for column in COSTS:
        if column in row and math.isfinite(number_or_nan(row[column] or None)):
            text = format_result(column, row[column], ends_in(column, row))
            if column == _HOURLY_COST:
                text = f"{_cost(row, column)} USD per hour"
            elif column not in _COSTS:
                text += f" {label(column)}"
            parts.append(text)
    if _TIME in row and not {margin.name for margin in fleet.margins} & set(DEADLINES):
        parts.append(format_result(_TIME, row[_TIME], ends_in(_TIME, row)))
    parts += [format_margin(margin, confidence) for margin in fleet.margins]
    return "; ".join(filter(None, parts))


def _day_best_lines(size: Size, day: DailySchedule, confidence: float, title: str) -> Iterator[str]:
    """Yield the recommended day, and the cost of the plan with the fewest GPUs at the peak."""
    row = day.peak.row
    min_gpus = min(hour.num_gpus for hour in day.hours)
    parts = [f"{title}: {_format_span(min_gpus, day.peak.num_gpus)} x {size.gpu}"]
    parts.append(f"at the peak {row['engine']}, {layout_text(row)}")
    if math.isfinite(day.cost):
        request_cost = format_significant(1000 * day.cost / day.load.requests)
        parts += [
            f"{format_count(day.cost)} USD a day",
            f"{request_cost} USD per 1,000 requests",
        ]
    parts += [format_margin(margin, confidence) for margin in day.peak.margins]
    yield "; ".join(parts)
    other = size.day_of_fewest
    if other is None or other.order <= day.order:
        return
    layout = layout_text(other.peak.row)
    min_gpus = min(hour.num_gpus for hour in other.hours)
    difference = (
        f"{format_count(other.gpu_hours)} GPU-hours a day, not {format_count(day.gpu_hours)}"
    )
    if math.isfinite(other.cost):
        difference = (
            f"{format_count(other.cost)} USD a day, "
            f"{format_percent(other.cost / day.cost - 1)} more"
        )
    yield (
        f"Fewest at the peak: {other.peak.row['engine']}, {layout}; "
        f"{_format_span(min_gpus, other.peak.num_gpus)} GPUs over the day: {difference}"
    )


def _format_span(low: float, high: float) -> str:
    """Return two numbers as a text such as ``4 to 8``; a single number if they are equal."""
    return format_count(high) if low == high else f"{format_count(low)} to {format_count(high)}"


def row_lines(rows: Rows) -> Iterator[str]:
    """Yield what the marks in a table of choices mean, and whether batches differ."""
    if len(rows) > 1:
        yield MARKS
    if any(row.get(RUNS) == 0 for row in rows):
        yield "runs like it 0: not proven, no published run of this software on this GPU"
    batches = sorted({number_of(row, _BATCH) for row in rows} - {math.nan})
    if len(batches) > 1 and all(map(math.isfinite, batches)):
        yield (
            f"Batches differ by row, {_format_span(batches[0], batches[-1])} sequences, as GPUs "
            "share them: --global-batch-size sizes all at one"
        )


def choice_columns(rows: Rows) -> Iterator[Column]:
    """Yield the columns of a table of GPU choices, from the result rows."""
    tied, first = tied_rows(rows), order_by_cost(rows)[0]
    ranks = [
        f"{number}{'<' if row is first else '~' * is_tied}"
        for number, (row, is_tied) in enumerate(zip(rows, tied, strict=True), start=1)
    ]
    yield Column("rank", ranks, "#", numeric=False)
    yield Column("gpu", [str(row["gpu"]) for row in rows], "GPU", numeric=False)
    contracts = [str(row.get("contract") or "") for row in rows]
    if {*contracts} - {"", Contract.ON_DEMAND}:
        yield Column("contract", contracts, numeric=False)
    choices = [str(row.get("choice") or "") for row in rows]
    if len(set(choices)) > 1:
        yield Column("choice", [_BOTH.get(choice, choice) for choice in choices], numeric=False)
    yield Column("num_gpus", number_cells(rows, "num_gpus"), "GPUs")
    if PREDICTED in rows[0]:
        yield Column(PREDICTED, number_cells(rows, PREDICTED), "GPUs predicted")
        yield Column(AT_90, number_cells(rows, AT_90), "GPUs at 90%")
    if cost := next((name for name in _COSTS if name in rows[0]), ""):
        head = "cost" if cost == "cost_usd" else "USD/h"
        yield Column(cost, [result_cell(cost, row, _cost(row, cost)) for row in rows], head)
    confidence = number_of(rows[0], "confidence")
    suffix = f" {100 * confidence:g}%" if confidence > MEDIAN else ""
    limited = {
        term.term: (stem, SUFFIXES.get(term.unit, ("", 1.0))[1])
        for column in rows[0]
        if column.startswith(_LIMIT) and (stem := column.removeprefix(_LIMIT))
        if (term := term_of_column(stem)) is not None
    }
    batches = [number_of(row, _BATCH) for row in rows]
    if len({*batches}) > 1 and all(map(math.isfinite, batches)):
        yield Column(_BATCH, number_cells(rows, _BATCH), "batch")
    if any(row.get(RUNS) == 0 for row in rows):
        yield Column(RUNS, number_cells(rows, RUNS), "runs like it")
    if _TIME in rows[0] and not {*limited} & set(DEADLINES):
        yield Column(
            "time", [result_cell(_TIME, row, format_result(_TIME, row[_TIME])) for row in rows]
        )
    for name, (stem, scale) in limited.items():
        if name == "cost" and not suffix:
            continue
        unit = "1/s" if name == RATE else glossary()[name].type
        limits = [scale * number_of(row, f"sure_{stem}") for row in rows]
        cells = [Cell(text=format_limit(limit, unit), number=limit / scale) for limit in limits]
        yield Column(name, cells, limit_name(name) + suffix)
    if limited:
        spare = [
            min(
                number_of(row, f"spare_{stem}") / bound
                if (bound := number_of(row, _LIMIT + stem))
                else math.inf
                for stem, _ in limited.values()
            )
            for row in rows
        ]
        cells = [Cell(text=format_percent(share), number=100 * share) for share in spare]
        yield Column("least spare", cells)
    workload = workload_of_row(rows[0])
    plans = [f"{row[workload.profile_kind]} {layout_of(workload, row)}" for row in rows]
    yield Column("plan", plans, numeric=False)


def _cost(row: Row, column: str) -> str:
    """Return the cost of a row in USD as text; ``unknown`` without a price."""
    value = number_of(row, column)
    if not math.isfinite(value):
        return "unknown"
    return format_result(column, value) if column == _RUN_COST else format_significant(value)


_VERBS = {"rl": "train with generated answers"}


def _limits(sizes: Sizes) -> list[str]:
    """Return the limits as text, such as ``TTFT at most 2.00 s``; without assumed ones."""
    if sizes.best is not None:
        margins = _fewest(sizes.best).margins
        without = {RATE, *sizes.best.assumed}
        return [
            format_constraint(m.name, m.sign, m.bound, m.unit)
            for m in margins
            if m.name not in without
        ]
    terms = glossary()
    return [
        format_constraint(name, terms[name].sign, bound, terms[name].type)
        for name, bound in sizes.request.constraints.items()
    ]


def _gpu_and_contract(size: Size) -> str:
    return f"{size.gpu} {size.contract}".strip()


def _fewest(size: Size) -> FeasiblePlan:
    if size.fewest is None:
        raise ValueError(f"{size.gpu} has no plan.")
    return size.fewest


def _cheapest(size: Size) -> FeasiblePlan:
    return size.cheapest or _fewest(size)


def _time(fleet: FeasiblePlan | None) -> float:
    row = {} if fleet is None else fleet.row
    return number_or_nan(row.get("calendar_time_days", row.get("time_to_train_days", math.inf)))


def _option_fields(sizes: Sizes) -> dict[str, object]:
    """Return the ways to rent, reserve or own the GPUs; {} within a budget without a rate."""
    best = sizes.best
    row = {} if best is None or best.fewest is None else best.fewest.row
    if best is None or best.carried is not None:
        return {}
    options = purchase_options(sizes.request, sizes.feasible)
    fields = option_fields(options, sizes.price_change, sizes.budget)
    if not fields or sizes.load or _HOURLY_COST not in row:
        return fields
    if other := other_precision(sizes.request, best):
        fields["other_precision"] = other
    return fields


def add_sizes(
    files: RowFiles, sizes: Sizes, command: Sequence[str], *, has_options: bool = True
) -> None:
    """Write the rows of all choices, or of a day by hour, with question, answer and notes.

    ``has_options``: with the ways to rent, reserve or own the GPUs.
    """
    files.add(blocks(sizes.hours if sizes.load else sizes.table))
    days = [size.day for size in sizes.feasible if size.day is not None]
    day_fields: dict[str, object] = {}
    if days:
        day_fields = {"days": [*map(day_row, days)], "day": day_lines(days[0])}
        day_fields |= {"scaled": scaled_rows(days[0])} if days[0].startup_time else {}
    files.finish(
        question_manifest(sizes.request, command),
        question=question_lines(sizes),
        answer=best_lines(sizes),
        decision=decision_lines(sizes, question_lines(sizes), best_lines(sizes)),
        assumed=assumed_lines(sizes),
        notes=[*filter(None, note_lines(sizes))],
        **day_fields,
        **(_option_fields(sizes) if has_options and files.has_object else {}),
    )
