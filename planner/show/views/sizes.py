"""What it takes, GPU by GPU: the fewest and the cheapest, by what margin, over a day."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from planner.base import text
from planner.base.cells import number
from planner.base.units import HOUR
from planner.confidence.intervals import MEDIAN
from planner.decide.sizing.day import Day
from planner.decide.sizing.fleet import RATE, SUFFIXES, Fleet, Margin, Size
from planner.decide.sizing.floor import DEADLINES
from planner.decide.sizing.size import Sizes
from planner.optimize.collector import known_value
from planner.question.terms import glossary, term_of_column
from planner.show.page import (  # fmt: skip
    BEST,
    GAP,
    TOTAL,
    Block,
    Cell,
    Column,
    Table,
    Title,
    fitted,
    said,
)
from planner.show.views.documents import question_manifest
from planner.show.views.money import basis_line, prices_lines, signed_lines
from planner.show.views.rows import RowFiles, blocks
from planner.show.views.sure import other_formats
from planner.show.views.told import (
    ends_in,
    label,
    layout_of,
    number_of,
    told,
    told_cell,
    without_origin,
)
from planner.workloads.base import Workload
from planner.workloads.registry import workload_of

_MOST_REASONS = 40
# What a narrow terminal leaves out comes last.
_RANKS = {"gpu": 0, "num_gpus": 0, "least spare": 2, "plan": 3}
_BOTH = {"fewest, cheapest": "both"}
_TIME = "calendar_time_days"
_COSTS = ("cost_usd", "cost_per_hour_usd")
COSTS = (*_COSTS, "cost_per_million_tokens_usd")
"""Columns of what a choice costs, of which a row has one at least."""

BY_COST = "By cost, then GPUs"
A_DAY = "A day, by cost"
HOURLY = "Hour by hour"
_LIMIT = "limit_"
Rows = Sequence[Mapping[str, object]]
AnyRow = TypeVar("AnyRow", bound=Mapping[str, object])
_SECONDARY = {"at_peak": 3, "utilization": 2, "gpu_hours": 2, "month": 1}


def sizes_blocks(sizes: Sizes) -> Iterator[Block]:
    """The question, the cheapest and the fewest, a table of all, and what cannot."""
    title, *asked = question_lines(sizes)
    yield said(title, mark=TOTAL, indent="")
    yield said(*asked, indent="")
    yield GAP
    yield said(*best_lines(sizes))
    if sizes.load is not None:
        yield from days_blocks(sizes)
    elif len(sizes.found) > 1 or any(len(size.choices) > 1 for size in sizes.found):
        sure = sizes.request.limit_confidence
        rows = by_cost([row for size in sizes.found for row in size.rows(sure)])
        has_contract = any(size.is_other_contract for size in sizes.found)
        yield Title(text=BY_COST)
        yield choices_table(choice_columns(rows, has_contract=has_contract))
    yield said(*note_lines(sizes), *reason_lines(sizes))


def choices_table(columns: Iterable[Column]) -> Table:
    """Choices, the cheapest first."""
    return fitted([*columns], lambda name: _RANKS.get(name, 1), [BEST])


def question_lines(sizes: Sizes) -> list[str]:
    """What is sized, which limits it keeps, how surely."""
    request, found = sizes.request, sizes.best
    model = str(request.model) if found is None or found.fewest is None else _row(found)["model"]
    work = "" if request.total_tokens is None else f", {text.large(request.total_tokens)} tokens"
    if sizes.load is not None:
        work = f", the load of {sizes.load.name} with {request.request_rate:g} at its peak"
    elif request.request_rate is not None:
        work = f", {request.request_rate:g} requests per second"
    lines = [f"GPUs to {request.workload} {model}{work}", *_work_lines(sizes)]
    limits = _limits(sizes)
    if limits:
        lines.append(f"Limits: {'; '.join(limits)}")
    sure = request.limit_confidence
    lines.append(
        "Sized at the predictions: 50 % likely to keep them"
        if sure == MEDIAN
        else f"Sized to be {100 * sure:g} % likely to keep them"
    )
    return lines


def _work_lines(sizes: Sizes) -> list[str]:
    """What the cheapest is asked, and what of that nobody gave."""
    best = None if sizes.best is None else sizes.best.cheapest or sizes.best.fewest
    if best is None:
        return []
    chosen = [
        f"{name.replace('_', ' ')} {without_origin(told)}" for name, told in best.chosen.items()
    ]
    return [*best.asked, *([f"Assumed: {'; '.join(chosen)}"] if chosen else [])]


def best_lines(sizes: Sizes) -> list[str]:
    """The cheapest and the fewest GPUs of all, each with its margins in words."""
    if sizes.best is None:
        return ["No GPU type keeps the limits."]
    sure, best = sizes.request.limit_confidence, sizes.best
    lines = [_best_line("Cheapest", best, best.cheapest or best.fewest, sure)]
    solid = next(
        (size for size in sizes.found if not _cheapest(size).row.get("price_doubts")), None
    )
    if solid is not None and solid is not best:
        lines.append(
            _best_line("Cheapest at a price without doubts", solid, _cheapest(solid), sure)
        )
    fewest = min(sizes.found, key=lambda size: _fewest(size).num_gpus)
    if _fewest(fewest) is not (best.cheapest or best.fewest):
        lines.append(_best_line("Fewest", fewest, fewest.fewest, sure))
    if any(size.fastest for size in sizes.found):
        fastest = min(
            (size for size in sizes.found if size.fastest),
            key=lambda size: _time(size.fastest),
        )
        lines.append(_best_line("Fastest within the budget", fastest, fastest.fastest, sure))
    return lines


def note_lines(sizes: Sizes) -> list[str]:
    """What the answers rest on, and what they leave open."""
    lines = []
    if sizes.load is None:  # days tell theirs
        shown = [_cheapest(size).row for size in _recommended(sizes)]
        lines += [*prices_lines(shown), *(one for row in shown[:1] for one in signed_lines(row))]
        if basis := basis_line(_cheapest(size).row for size in sizes.found):
            lines.append(basis)
    if others := [_named(size) for size in sizes.found if size.is_other_contract]:
        lines.append(f"No on-demand price known, priced as: {', '.join(others)}")
    lines += [*_precision_lines(sizes), *_assumed_lines(sizes)]
    open_ones = [
        f"{_named(size)} {text.count(size.not_tried[0])} to {text.count(size.not_tried[-1])}"
        for size in sizes.found
        if size.not_tried
    ]
    if open_ones:
        lines.append(
            f"Not tried: {', '.join(open_ones)} GPUs, where the number of nodes has a prime factor "
            "above 7. Fewer GPUs may be enough: give --gpus."
        )
    return ["", *lines] if lines else []


def _recommended(sizes: Sizes) -> list[Size]:
    """The cheapest and the one of the fewest GPUs."""
    if sizes.best is None:
        return []
    fewest = min(sizes.found, key=lambda size: _fewest(size).num_gpus)
    return [sizes.best] if fewest is sizes.best else [sizes.best, fewest]


def _precision_lines(sizes: Sizes) -> list[str]:
    """The other precision of the cheapest run, where nobody gave one."""
    fact = None if sizes.best is None else sizes.best.precision
    if fact is None:
        return []
    lacking = fact.does_not_fit
    words = [f"does not fit in {other}: --precision {other} sizes that" for other in lacking]
    told = f"Precision {fact.assumed} assumed: the cheapest plan"
    return [f"{told} {one}" for one in (*other_formats(fact), *words)]


def _assumed_lines(sizes: Sizes) -> list[str]:
    """Numbers of the recommended fleets that have no source."""
    told = {size.gpu: _row(size).get("assumed") for size in _recommended(sizes)}
    named = {gpu: words for gpu, words in told.items() if words}
    if not named:
        return []
    if len(set(told.values())) == 1:
        return [f"Assumed, without a source: {next(iter(named.values()))}"]
    listed = "; ".join(f"{gpu}: {words}" for gpu, words in named.items())
    return [f"Assumed, without a source: {listed}"]


def reason_lines(sizes: Sizes) -> list[str]:
    """Why others cannot, those of one reason together."""
    reasons: dict[str, list[str]] = {}
    for size in sizes.sizes:
        if size.fewest is None:
            reasons.setdefault(size.reason, []).append(_named(size))
    lines = [f"{', '.join(names)}: {reason}" for reason, names in reasons.items()]
    return ["", "Not possible:", *lines[:_MOST_REASONS]] if lines else []


def margin_words(margin: Margin, confidence: float) -> str:
    """``27.1 of 30.0 days at 90 %, 2.90 days to spare; predicted 21.0 days``."""
    at = f" at {100 * confidence:g} %" if confidence > MEDIAN and margin.is_known else ""
    sure, bound = text.limit(margin.sure, margin.unit), text.limit(margin.bound, margin.unit)
    if " " in bound:  # the unit once where it is the same
        sure = sure.removesuffix(f" {bound.rpartition(' ')[2]}")
    spare = f"{text.limit(margin.spare, margin.unit)} to spare"
    words = f"{_name(margin.name)} {sure} of {bound}{at}, {spare}"
    if at:
        words += f"; predicted {text.limit(margin.predicted, margin.unit)}"
    elif confidence > MEDIAN:
        words += "; no published runs of this kind, sized at the prediction"
    return words


def _best_line(word: str, size: Size, fleet: Fleet | None, confidence: float) -> str:
    if fleet is None:
        return ""
    row, parts = fleet.row, [f"{word}: {fleet.num_gpus:,} x {_named(size)}"]
    workload = _workload(row)
    plan_words = (workload.wording.brief or workload.wording.in_short)(row)
    parts.append(f"{row[workload.profile_kind]}, {plan_words}")
    for column in COSTS:
        if column in row and math.isfinite(number(row[column] or None)):
            words = told(column, row[column], ends_in(column, row))
            if column == _COSTS[1]:
                words = f"{_cost(row, column)} USD per hour"
            elif column not in _COSTS:
                words += f" {label(column)}"
            parts.append(words)
    if _TIME in row and not {margin.name for margin in fleet.margins} & set(DEADLINES):
        parts.append(told(_TIME, row[_TIME], ends_in(_TIME, row)))
    parts += [margin_words(margin, confidence) for margin in fleet.margins]
    return "; ".join(filter(None, parts))


def by_cost(rows: Sequence[AnyRow]) -> list[AnyRow]:
    """Rows of choices, the cheapest first, then those of the fewest GPUs."""

    def order(row: Mapping[str, object]) -> tuple[float, float]:
        cost = next((number_of(row, name) for name in COSTS if row.get(name) is not None), math.nan)
        return math.inf if math.isnan(cost) else cost, number_of(row, "num_gpus")

    return sorted(rows, key=order)


def choice_columns(rows: Rows, *, has_contract: bool = False) -> Iterator[Column]:
    """Cells of every choice: rows of a size as its files have them."""
    yield Column("gpu", [str(row["gpu"]) for row in rows], "GPU", numeric=False)
    contracts = [str(row.get("contract") or "") for row in rows]
    if len(set(contracts)) > 1 or has_contract:
        yield Column("contract", contracts, numeric=False)
    choices = [str(row.get("choice") or "") for row in rows]
    if len(set(choices)) > 1:
        yield Column("choice", [_BOTH.get(choice, choice) for choice in choices], numeric=False)
    yield Column("num_gpus", _counts(rows, "num_gpus"), "GPUs")
    if cost := next((name for name in _COSTS if name in rows[0]), ""):
        head = "cost" if cost == "cost_usd" else "USD/h"
        yield Column(cost, [told_cell(cost, row, _cost(row, cost)) for row in rows], head)
    sure = number_of(rows[0], "confidence")
    at = f" {100 * sure:g}%" if sure > MEDIAN else ""
    limited = {
        term.term: (stem, SUFFIXES.get(term.unit, ("", 1.0))[1])
        for column in rows[0]
        if column.startswith(_LIMIT) and (stem := column.removeprefix(_LIMIT))
        if (term := term_of_column(stem)) is not None
    }
    if _TIME in rows[0] and not {*limited} & set(DEADLINES):
        yield Column("time", [told_cell(_TIME, row, told(_TIME, row[_TIME])) for row in rows])
    for name, (stem, scale) in limited.items():
        if name == "cost" and not at:
            continue
        unit = "1/s" if name == RATE else glossary()[name].type
        mine = [scale * number_of(row, f"sure_{stem}") for row in rows]
        cells = [Cell(text=text.limit(one, unit), number=one / scale) for one in mine]
        yield Column(name, cells, _name(name) + at)
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
        cells = [Cell(text=text.percent(one), number=100 * one) for one in spare]
        yield Column("least spare", cells)
    plans = [f"{row[w.profile_kind]} {layout_of(w, row)}" for row in rows for w in [_workload(row)]]
    yield Column("plan", plans, numeric=False)


def _counts(rows: Rows, name: str) -> list[Cell]:
    """Whole numbers of rows."""
    return [Cell(text=text.count(n), number=n) for row in rows for n in [number_of(row, name)]]


def _cost(row: Mapping[str, object], column: str) -> str:
    value = number_of(row, column)
    if not math.isfinite(value):
        return "unknown"
    return told(column, value) if column == _COSTS[0] else text.significant(value)


def _workload(row: Mapping[str, object]) -> Workload:
    return workload_of("train" if "framework" in row else "serve")


def _limits(sizes: Sizes) -> list[str]:
    """The limits in words; those that nobody gave are among them."""
    if sizes.best is not None:
        margins = _fewest(sizes.best).margins
        return [_limit_words(m.name, m.sign, m.bound, m.unit) for m in margins if m.name != RATE]
    terms = glossary()
    return [
        _limit_words(name, terms[name].sign, bound, terms[name].type)
        for name, bound in sizes.request.constraints.items()
    ]


def _limit_words(name: str, sign: int, bound: float, unit: str) -> str:
    return f"{_name(name)} at {'most' if sign > 0 else 'least'} {text.limit(bound, unit)}"


def _name(name: str) -> str:
    return label(name).removesuffix(" days").removesuffix(" ms")


def _named(size: Size) -> str:
    return f"{size.gpu} {size.contract}".strip()


def _row(size: Size) -> Mapping[str, object]:
    return _fewest(size).row


def _fewest(size: Size) -> Fleet:
    if size.fewest is None:
        raise ValueError(f"{size.gpu} has no plan.")
    return size.fewest


def _cheapest(size: Size) -> Fleet:
    return size.cheapest or _fewest(size)


def _time(fleet: Fleet | None) -> float:
    row = {} if fleet is None else fleet.row
    return number(row.get("calendar_time_days", row.get("time_to_train_days", math.inf)))


def days_blocks(sizes: Sizes) -> Iterator[Block]:
    """A line for each GPU, what the cheapest is made of, and its hours."""
    days = [size.day for size in sizes.found if size.day is not None]
    if not days:
        return
    yield Title(text=A_DAY)
    yield days_table([day_row(day) for day in days])
    for line in day_lines(days[0]):
        yield said(line)
    yield Title(text=f"{HOURLY} on {days[0].gpu}")
    yield hours_table(hour_columns([*days[0].rows()]))


def day_row(day: Day) -> dict[str, str | float | None]:
    """What a day on a GPU takes and costs; USD that are unknown are None."""
    figures = {
        "cost_usd": day.cost,
        "cost_per_month_usd": day.cost_per_month,
        "cost_at_peak_usd": day.cost_at_peak,
        "utilization": day.utilization,
    }
    return {
        "gpu": day.gpu,
        "most_gpus": day.peak.num_gpus,
        "base_gpus": day.base,
        "gpu_hours": day.gpu_hours,
        **{name: known_value(figure) for name, figure in figures.items()},
    }


def days_table(rows: Rows) -> Table:
    """What days on several GPUs take and cost, by `day_row`."""

    def money(name: str) -> list[Cell]:
        costs = [number_of(row, f"{name}_usd") for row in rows]
        return [
            Cell(text=text.count(cost), number=cost)
            if math.isfinite(cost)
            else Cell(text="unknown")
            for cost in costs
        ]

    used = [number_of(row, "utilization") for row in rows]
    columns = [
        Column("gpu", [str(row["gpu"]) for row in rows], "GPU", numeric=False),
        Column("peak", _counts(rows, "most_gpus"), "most GPUs"),
        Column("base", _counts(rows, "base_gpus"), "held all day"),
        Column("gpu_hours", _counts(rows, "gpu_hours"), "GPU-hours"),
        Column("cost", money("cost"), "USD /day"),
        Column("month", money("cost_per_month"), "USD /month"),
        Column("at_peak", money("cost_at_peak"), "peak held, /day"),
        Column(
            "utilization", [Cell(text=text.percent(one), number=100 * one) for one in used], "used"
        ),
    ]
    return fitted(columns, lambda name: _SECONDARY.get(name, 0), [BEST])


def day_lines(day: Day) -> list[str]:
    """What is paid for the base and the peak of a day, and what that saves."""
    terms = day.terms
    if math.isnan(day.cost):
        return [f"The price of {day.gpu} is unknown: give --price."]
    each = [f"{text.dollars(price * HOUR)} an hour" for price in (terms.base, terms.hourly)]
    if not day.base and terms.base_contract != terms.hourly_contract:
        lines = [
            f"None is held all day: {terms.base_contract} is {each[0]}, {terms.hourly_contract} "
            f"{each[1]}. Sellers differ: --provider compares the contracts of one."
        ]
    elif terms.base_contract == terms.hourly_contract:
        contract = f" {terms.hourly_contract}" if terms.hourly_contract else ""
        lines = [f"One price{contract}, {each[1]}: {day.base} GPUs never rest."]
    else:
        lines = [
            f"Held all day: {day.base} GPUs {terms.base_contract} at {each[0]}; beyond them "
            f"{terms.hourly_contract} at {each[1]}."
        ]
    saved = 1 - day.cost / day.cost_at_peak if day.cost_at_peak else 0.0
    if saved > 0:
        lines.append(
            f"That is {text.percent(saved)} less than {day.peak.num_gpus} GPUs all day at the "
            "lower price."
        )
    return lines


def hour_columns(rows: Rows) -> list[Column]:
    """The fleet of each period of a day, by `Day.rows`."""
    rates = [number_of(row, "request_rate") for row in rows]
    could = [number_of(row, "requests_per_s") for row in rows]
    return [
        Column("time", [str(row["time"]) for row in rows], numeric=False),
        Column("requests /s", [Cell(text=f"{rate:g}", number=rate) for rate in rates]),
        Column("GPUs", _counts(rows, "num_gpus")),
        Column("held", _counts(rows, "base_gpus")),
        Column("by the hour", _counts(rows, "on_demand_gpus")),
        Column("capacity", [Cell(text=text.per_second(rate), number=rate) for rate in could]),
    ]


def hours_table(columns: Sequence[Column]) -> Table:
    """Hours one after the other."""
    return fitted(columns, lambda name: int(name == "capacity"))


def add_sizes(files: RowFiles, sizes: Sizes, command: Sequence[str]) -> None:
    """The rows of a size, of a day by hour, and what they say in words."""
    files.add(blocks(sizes.hours if sizes.load else sizes.table))
    days = [size.day for size in sizes.found if size.day is not None]
    more = {"days": [*map(day_row, days)], "day": day_lines(days[0])} if days else {}
    files.finish(
        question_manifest(sizes.request, command),
        question=question_lines(sizes),
        answer=best_lines(sizes),
        notes=[*filter(None, note_lines(sizes))],
        **more,
    )
