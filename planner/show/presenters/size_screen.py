"""The first screen of a size: what to buy, how sure, a row for each GPU, limits and margins."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from planner.base.csv_cells import Row, number_or_nan
from planner.base.enums import Contract
from planner.base.formatting import (
    format_count,
    format_gpus,
    format_gpus_of_row,
    format_limit,
    format_probability,
    format_significant,
    format_usd,
)
from planner.base.units import HOUR, MONTH
from planner.confidence.intervals import MEDIAN
from planner.decide.sizing.fleet import (
    CHEAPEST,
    FEWEST,
    HOURLY_COST,
    LIMITS_WIDENED,
    RATE,
    RUN_COST,
    SUFFIXES,
    FeasiblePlan,
    Margin,
    are_tied_with_first,
    order_by_cost,
)
from planner.decide.sizing.size import DEFAULT_CONFIDENCE, GPUS_BY_CONFIDENCE, Size
from planner.decide.sizing.size_all import Sizes
from planner.optimize.result_columns import RUNS, distinguishing_interval
from planner.question.terms import glossary, term_of_column
from planner.show.output_blocks import BEST, Block, Cell, Column, fit_table, make_lines
from planner.show.presenters.format_results import (
    format_in_common_unit,
    label,
    number_cells,
    number_of,
    share,
    workload_of_row,
)


def format_margin(margin: Margin, confidence: float) -> str:
    """Return a result against its limit: ``27.1 of 30.0 days at 90 %, 2.90 days to spare``."""
    confidence_text = (
        f" at {100 * confidence:g} %" if confidence > MEDIAN and margin.has_errors else ""
    )
    sure_text = format_limit(margin.value_at_confidence, margin.unit)
    bound_text = format_limit(margin.bound, margin.unit)
    if " " in bound_text:  # write a common unit once
        sure_text = sure_text.removesuffix(f" {bound_text.rpartition(' ')[2]}")
    spare = f"{format_limit(margin.spare, margin.unit)} to spare"
    text = f"{limit_name(margin.name)} {sure_text} of {bound_text}{confidence_text}, {spare}"
    if confidence_text:
        text += f"; predicted {format_limit(margin.predicted, margin.unit)}"
    elif confidence > MEDIAN:
        text += "; no published runs of this kind, sized at the prediction"
    return text


def format_constraint(name: str, sign: int, bound: float, unit: str) -> str:
    """Return a limit as text: ``TTFT at most 2.00 s``."""
    return f"{limit_name(name)} at {'most' if sign > 0 else 'least'} {format_limit(bound, unit)}"


def limit_name(name: str) -> str:
    """The label of a limit without its unit."""
    return label(name).removesuffix(" days").removesuffix(" ms")


def relaxed_lines(sizes: Sizes) -> Iterator[str]:
    """Yield sentences on assumed limits that were relaxed because a GPU type misses them.

    Each has the number of GPUs that the original limit would need.
    """
    for size in sizes.feasible:
        margins = () if size.fewest is None else size.fewest.margins
        relaxed = [m for m in margins if m.bound != size.assumed.get(m.name, m.bound)]
        if not relaxed:
            continue
        before = size.fewest_at_assumed
        bounds = {} if before is None else {m.name: m.bound for m in before.margins}
        effects: dict[str, list[str]] = {}
        for margin in relaxed:
            assumed = size.assumed[margin.name]
            effect = "which no plan keeps"
            if before is not None and bounds.get(margin.name) == assumed:
                cost = (
                    f", {format_significant(before.cost)} USD per hour" if before.cost > 0 else ""
                )
                effect = f"which takes {format_gpus(before.num_gpus)}{cost}"
            text = format_constraint(margin.name, margin.sign, margin.bound, margin.unit)
            text += f" in place of {format_limit(assumed, margin.unit)}"
            effects.setdefault(effect, []).append(text)
        hardware = f"{size.gpu} {size.contract}".strip()
        changes = "; ".join(f"{', '.join(text)}, {effect}" for effect, text in effects.items())
        yield f"Assumed limits relaxed for {hardware}: {changes}. Give the limits that you need"


AT_STAKE = 1.5
"""Ratio of GPUs at 90 % to predicted GPUs from which a measurement decides the purchase."""
PREDICTED, AT_90 = GPUS_BY_CONFIDENCE
ROWS = 8
"""Rows of the table of the first screen."""
RECOMMENDED = "RECOMMENDED"
MARKS = "< recommended   ~ tied with it: the difference is within the error"
WIDENED_MARKS = "< recommended   ~ tied: within the error   w keeps only wider limits"
DOUBTFUL_MARKS = "< recommended   ~ tied: within the error   ? ask before signing: --full"
_DOUBTS = "price_doubts"
_LIMIT = "limit_"
_LEAST_REGRET = 5e-4
Rows = Sequence[Row]


def decision_lines(sizes: Sizes, question: Sequence[str], answer: Sequence[str]) -> list[str]:
    """Return the question, what to buy, how sure it is, and what may be cheaper.

    ``question`` and ``answer`` are the lines of the full report, which say it of days and budgets.
    """
    best = sizes.best
    if best is None:
        return []
    fleet = best.cheapest or best.fewest
    if fleet is None or best.carried is not None or best.day is not None:
        gpus_text = answer[0].removeprefix("Recommended day: ").removeprefix("Cheapest day: ")
        peak = [] if best.day is None else peak_lines(sizes)
        return [
            question[0],
            f"{RECOMMENDED}  {gpus_text}",
            *peak,
            *stake_lines(sizes),
            *answer[1:2],
        ]
    question_text = question[0]
    if fleet.limit_names and RATE in {margin.name for margin in fleet.margins}:
        question_text = (
            f"{question_text.partition(', ')[0]}: {fleet.limit_names[0].removeprefix('Requests: ')}"
        )
    lines = [question_text, f"{RECOMMENDED}  {_format_fleet(best, fleet)}"]
    lines.append(question[-1] if sizes.is_memory_only else _sure_line(sizes, best, fleet))
    lines += stake_lines(sizes)
    cheaper = sizes.cheapest
    if cheaper is not None and cheaper is not best and (other := cheaper.cheapest) is not None:
        missing = (
            "; only with wider limits than assumed"
            if cheaper.has_wider_limits and not best.has_wider_limits
            else "; no published run confirms it"
            if not other.is_proven
            else "; within the error of predictions"
            if cheaper is sizes.better_tied
            else "; not in a bad case"
        )
        lines.append(f"Could be cheaper: {_format_gpus(cheaper, other)}{missing}")
    if sizes.regret >= _LEAST_REGRET:
        lines.append(f"On average the best turns out {share(sizes.regret)} cheaper.")
    if spare := fleet.with_spare:
        gpus, cost = spare
        hourly = f", {format_significant(cost)} USD/h" if math.isfinite(cost) else ""
        lines.append(f"With a spare worker (N+1): {gpus:,} GPUs{hourly}")
    return lines


def _format_gpus(size: Size, fleet: FeasiblePlan) -> str:
    contract = "" if size.contract in ("", Contract.ON_DEMAND) else f" {size.contract}"
    return f"{format_gpus_of_row({**fleet.row, 'gpu': size.gpu})}{contract}"


def _format_fleet(size: Size, fleet: FeasiblePlan) -> str:
    software = fleet.row[workload_of_row(fleet.row).profile_kind]
    return f"{_format_gpus(size, fleet)}, {software}, {layout_text(fleet.row)}"


def layout_text(row: Row) -> str:
    """Return the layout of a row in its shortest form."""
    wording = workload_of_row(row).wording
    return (wording.format_brief or wording.format_short)(row)


def _sure_line(sizes: Sizes, best: Size, fleet: FeasiblePlan) -> str:
    """Return the limits of the user and the probability to keep them."""
    limits = ["the rate"] if any(margin.name == RATE for margin in fleet.margins) else []
    limits += [
        format_constraint(margin.name, margin.sign, margin.bound, margin.unit)
        for margin in fleet.margins
        if margin.name != RATE and margin.name not in best.assumed
    ]
    limits += ["the assumed limits"] if best.assumed else []
    confidence = sizes.request.limit_confidence
    each, together = (" each", fleet.limits_probability) if len(limits) > 1 else ("", math.nan)
    sized = "Sized at the prediction, " if confidence == MEDIAN else ""
    chance = format_probability(together)
    all_text = f" ({chance} to keep all)" if math.isfinite(together) else ""
    return f"{sized}{100 * confidence:g} % likely to keep{each}: {'; '.join(limits)}{all_text}"


def peak_lines(sizes: Sizes) -> list[str]:
    """Return the GPUs at the peak of a day, as predicted and at 90 %."""
    best = sizes.best
    if best is None:
        return []
    counts = best.peak_gpus_by_confidence(sizes.request.limit_confidence)
    if not counts.get(PREDICTED) or not counts.get(AT_90):
        return []
    return [f"GPUs at the peak: {counts[PREDICTED]:,} predicted, {counts[AT_90]:,} at 90 %"]


def stake_lines(sizes: Sizes) -> Iterator[str]:
    """Yield that a measurement decides, if the GPUs at 90 % are far more than the predicted."""
    best = sizes.best
    if best is None or not best.choices:
        return
    fleet = next(
        (fleet for name, fleet in best.choices.items() if CHEAPEST in name),
        next(iter(best.choices.values())),
    )
    counts = best.peak_gpus_by_confidence(sizes.request.limit_confidence)
    low, high = counts.get(PREDICTED), counts.get(AT_90)
    surer = best.at_confidence.get(DEFAULT_CONFIDENCE)
    if low and not high and surer is not None and surer.reason:
        yield f"No fleet keeps them more surely: {surer.reason}"
    if not low or not high or high <= AT_STAKE * low:
        return
    money, price = "", number_or_nan(fleet.row.get("price_per_gpu_hour_usd"))
    if HOURLY_COST in fleet.row and math.isfinite(price):
        money = f", {_format_money((high - low) * price * MONTH / HOUR)} a month"
    gpu = best.gpu.partition("-")[0].upper()
    yield (
        f"Measure one node first (`planner validate --log`): between {format_count(low)} and "
        f"{format_count(high)} {gpu} are at stake{money}."
    )


def _format_money(amount: float) -> str:
    """Return an amount with a prefix: ``268 k USD``."""
    for scale, prefix in ((1e6, " M"), (1e3, " k")):
        if amount >= scale:
            return f"{amount / scale:.3g}{prefix} USD"
    return format_usd(amount)


def assumed_lines(sizes: Sizes) -> list[str]:
    """Return the assumed answers and limits, and what an assumed limit would cost."""
    best = sizes.best
    fleet = None if best is None else best.cheapest or best.fewest
    if best is None or fleet is None:
        return []
    lines = []
    texts = []
    before = best.fewest_at_assumed
    bounds = {} if before is None else {margin.name: margin.bound for margin in before.margins}
    for margin in fleet.margins:
        if margin.name not in best.assumed:
            continue
        text = format_constraint(margin.name, margin.sign, margin.bound, margin.unit)
        assumed = best.assumed[margin.name]
        if assumed != margin.bound:
            bound = format_limit(assumed, margin.unit)
            effect = "no plan keeps it"
            if before is not None and bounds.get(margin.name) == assumed:
                usd = before.cost - fleet.cost
                cost = f", {format_significant(usd)} USD/h more" if usd > 0 else ""
                effect = f"takes {format_gpus(before.num_gpus)}{cost}"
            text += f" ({bound}: {effect})"
        texts.append(text)
    if texts:
        lines.append(f"Assumed limits: {'; '.join(texts)}. Give yours.")
    chosen = [name.replace("_", " ") for name in fleet.chosen]
    if chosen:
        lines.append(f"Assumed: {', '.join(chosen)} (--full)")
    return lines


def screen_table(rows: Rows) -> Iterator[Block]:
    """Yield the table of the first screen, a row for each GPU, the lowest cost first."""
    recommended = order_by_cost(rows)[0]
    shown = sorted(
        (row for row in rows if {FEWEST, CHEAPEST} & {*_choices(row)}), key=printed_cost_key
    )
    has_widened = not recommended.get(LIMITS_WIDENED) and any(
        row.get(LIMITS_WIDENED) for row in shown
    )
    signs = [
        "<" if row is recommended
        else "w" if has_widened and row.get(LIMITS_WIDENED)
        else "~" * is_tied
        for row, is_tied in zip(shown, tied_rows(rows, shown), strict=True)
    ]  # fmt: skip
    indexes = [n for n in range(len(shown)) if n < ROWS or signs[n] == "<"]
    columns = [*_columns([shown[n] for n in indexes], [signs[n] for n in indexes])]
    marked = [BEST if signs[n] == "<" else "" for n in indexes]
    yield fit_table(columns, _RANKS.get, marked, "--full, --csv have them")  # type: ignore[arg-type]
    more = f"; {len(shown) - len(indexes)} more: --full" * (len(indexes) < len(shown))
    has_doubts = any(shown[n].get(_DOUBTS) for n in indexes)
    if len(shown) > 1:
        marks = DOUBTFUL_MARKS if has_doubts else WIDENED_MARKS if has_widened else MARKS
        yield make_lines(marks + more)
    elif has_doubts:
        yield make_lines("? ask before signing: --full")


def tied_rows(rows: Rows, shown: Rows = ()) -> list[bool]:
    """Whether the cost of each row (or only those shown) is tied with the recommended one."""
    ordered = order_by_cost(rows)
    tied = {
        id(row)
        for row, is_tied in zip(ordered, are_tied_with_first(ordered), strict=True)
        if is_tied
    }
    return [id(row) in tied for row in shown or rows]


def _choices(row: Row) -> list[str]:
    return str(row.get("choice") or CHEAPEST).split(", ")


def printed_cost_key(row: Row) -> tuple[float, float]:
    """Return the sort key of rows by the cost that tables print, then by GPUs."""
    cost = number_or_nan(
        row.get(RUN_COST) if row.get(RUN_COST) is not None else row.get(HOURLY_COST)
    )
    return math.inf if math.isnan(cost) else cost, number_or_nan(row.get("num_gpus"))


_RANKS = {
    "mark": 0, "gpu": 0, PREDICTED: 0, AT_90: 0, "sized": 0, "money": 0, "contract": 1,
    "range": 3, "limit": 2, "runs": 4, "choice": 1,
}  # fmt: skip


def _columns(rows: Rows, signs: Sequence[str]) -> Iterator[Column]:
    """Yield the columns of the first screen: GPUs by confidence, cost, limits and runs."""
    yield Column("gpu", [str(row["gpu"]) for row in rows], "GPU", numeric=False)
    marks = [
        f"{sign}{' ?' * bool(row.get(_DOUBTS))}".strip()
        for sign, row in zip(signs, rows, strict=True)
    ]
    yield Column("mark", marks, " ", numeric=False)
    contracts = [str(row.get("contract") or "") for row in rows]
    if {*contracts} - {"", Contract.ON_DEMAND}:
        yield Column("contract", contracts, numeric=False)
    if len({str(row.get("choice")) for row in rows}) > 1 and any(
        CHEAPEST not in _choices(row) for row in rows
    ):
        texts = [" ".join(name for name in _choices(row) if name != CHEAPEST) for row in rows]
        yield Column(
            "choice",
            [
                "" if CHEAPEST in _choices(row) else text
                for row, text in zip(rows, texts, strict=True)
            ],
            " ",
            numeric=False,
        )
    yield from gpu_count_columns(rows)
    column = RUN_COST if rows[0].get(RUN_COST) is not None else HOURLY_COST
    costs = [number_or_nan(row.get(column)) for row in rows]
    ends = [_interval(column, row) for row in rows]
    texts, unit = format_in_common_unit(column, [*costs, *(end for pair in ends for end in pair)])
    head = "USD/h" if column == HOURLY_COST else f"{unit or 'USD'}"
    yield Column(
        "money",
        [
            text if math.isfinite(cost) else "unknown"
            for text, cost in zip(texts, costs, strict=False)
        ],
        head,
    )
    if any(math.isfinite(sum(pair)) for pair in ends):
        low, high = texts[len(rows) :: 2], texts[len(rows) + 1 :: 2]
        yield Column("range", ["-".join(pair) for pair in zip(low, high, strict=True)], "range")
    yield from _limit_columns(rows, number_of(rows[0], "confidence"))
    if any(math.isfinite(number_of(row, RUNS)) for row in rows):
        yield Column("runs", number_cells(rows, RUNS), "runs")


def gpu_count_columns(rows: Rows) -> Iterator[Column]:
    """Yield the GPUs as predicted, at 90 %, and at another confidence if one was given."""
    confidences = {number_of(row, "confidence") for row in rows}
    has_counts = any(PREDICTED in row for row in rows)
    if has_counts:
        yield Column(PREDICTED, number_cells(rows, PREDICTED), "GPUs predicted")
        yield Column(AT_90, number_cells(rows, AT_90), "GPUs at 90%")
    if not has_counts or not confidences <= {*GPUS_BY_CONFIDENCE.values()}:
        is_one = has_counts and len(confidences) == 1
        suffix = f" at {100 * min(confidences):g}%" if is_one else ""
        yield Column("sized", number_cells(rows, "num_gpus"), f"GPUs{suffix}")


def _interval(column: str, row: Row) -> tuple[float, float]:
    """Return the 90 % interval of the cost of a run at its price; NaN: a service, or unknown."""
    ends = None if column == HOURLY_COST else distinguishing_interval(column, row)
    return ends or (math.nan, math.nan)


def _limit_columns(rows: Rows, confidence: float) -> Iterator[Column]:
    """Yield the value of each limit, except rate and cost, at the confidence of the size."""
    suffix = f" {100 * confidence:g}%" if confidence > MEDIAN else ""
    for name in (name for name in rows[0] if name.startswith(_LIMIT)):
        stem = name.removeprefix(_LIMIT)
        term = term_of_column(stem)
        if term is None or term.term in (RATE, "cost"):
            continue
        scale = SUFFIXES.get(term.unit, ("", 1.0))[1]
        values = [scale * number_of(row, f"sure_{stem}") for row in rows]
        cells = [
            Cell(text=format_limit(value, glossary()[term.term].type), number=value)
            for value in values
        ]
        yield Column("limit", cells, limit_name(term.term) + suffix)
