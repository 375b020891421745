"""What to rent, reserve or own, by year; and the GPUs of a day, hour by hour."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from planner.base.csv_cells import Row
from planner.base.formatting import (
    format_count,
    format_duration,
    format_percent,
    format_rate,
    format_significant,
    format_usd,
)
from planner.base.units import HOUR
from planner.decide.sizing.autoscaling import MAX_LATE_SHARE, SCALE_DOWN_DELAY
from planner.decide.sizing.daily_schedule import DailySchedule
from planner.decide.sizing.purchase import (
    HOURS_PER_YEAR,
    KINDS,
    PURCHASE,
    RENT,
    SCENARIOS,
    UNCHANGED,
    YEARS,
    PriceChange,
    PurchaseOption,
    best_of_each_kind,
    break_even_price,
    break_even_utilization,
    cost_swings,
)
from planner.optimize.collector import value_or_none
from planner.question.names import TIME
from planner.show.output_blocks import (  # fmt: skip
    BEST,
    Block,
    Cell,
    Column,
    RankingChart,
    RankingRow,
    Section,
    Table,
    Title,
    fit_table,
    make_lines,
    text_table,
)
from planner.show.presenters.format_results import layout_of, number_cells, number_of
from planner.show.presenters.prices import PRICES_TITLE
from planner.workloads.registry import workload_of

DECISION = "Rent, reserve or own?"
"""The title of the section with the years."""
_MILLION = 1e6
_TIE = 0.01
"""Costs that differ by less are called equal."""


def recommended_option(
    options: Sequence[PurchaseOption],
    change: PriceChange = UNCHANGED,
    budget: float | None = None,
) -> PurchaseOption | None:
    """Return the option with the lowest cost over all years; None without options.

    With a ``budget`` [USD a year] the lowest whose payments stay below it in each year, if any.
    """
    ordered = sorted(
        best_of_each_kind(options, change).values(), key=lambda option: option.total(change)
    )
    within = [option for option in ordered if budget is None or _most_cash(option) <= budget]
    return next(iter([*within, *ordered]), None)


def recommendation_lines(
    options: Sequence[PurchaseOption],
    change: PriceChange = UNCHANGED,
    budget: float | None = None,
) -> list[str]:
    """Return whether to rent, reserve or own, and what a budget [USD a year] allows."""
    lines = [choice_line(options, change, budget)]
    return [*filter(None, [*lines, budget_line(options, budget) if budget else ""])]


def choice_line(
    options: Sequence[PurchaseOption],
    change: PriceChange = UNCHANGED,
    budget: float | None = None,
) -> str:
    """Return which of rent, reserve and own is recommended, and why; "" if unknown."""
    first = recommended_option(options, change, budget)
    if first is None:
        return ""
    best = best_of_each_kind(options, change)
    others = sorted(
        (option for kind, option in best.items() if kind != first.kind),
        key=lambda option: option.total(change),
    )
    line = (
        f"{first.kind.capitalize()}: {_name(first)} cost {_format_usd(first.total(change))} in "
        f"{YEARS} years"
    )
    if not others:
        return f"{line}."
    other = others[0]
    gain = 1 - first.total(change) / other.total(change)
    if gain < 0:
        less = format_percent(1 - other.total(change) / first.total(change))
        return (
            f"{line}. To {other.kind} ({_name(other)}) costs {less} less, but takes "
            f"{_format_usd(_most_cash(other))} in one year, above the budget."
        )
    less = "as much as" if gain < _TIE else f"{format_percent(gain)} less than"
    line += f", {less} to {other.kind} ({_name(other)})"
    if first.kind == PURCHASE and RENT in best:
        line += (
            f". {_format_usd(first.cash(1, change))} are paid in the first year, against "
            f"{_format_usd(best[RENT].cash(1, change))} for rent"
        )
    return f"{line}."


def _most_cash(option: PurchaseOption) -> float:
    """Return the largest payments of a year [USD]."""
    return max(option.cash(year) for year in range(1, YEARS + 1))


def budget_line(options: Sequence[PurchaseOption], budget: float) -> str:
    """Return whether the payments of each year stay below a budget [USD a year]."""
    texts = []
    for kind, option in best_of_each_kind(options).items():
        most = _most_cash(option)
        share = most / budget - 1
        relation = "within it" if share <= 0 else f"{format_percent(share)} above it"
        texts.append(f"{kind} {_format_usd(most)}, {relation}")
    if not texts:
        return ""
    return f"Budget {_format_usd(budget)} a year. Payments of a year: {'; '.join(texts)}."


def decision_sections(
    options: Sequence[PurchaseOption],
    change: PriceChange = UNCHANGED,
    budget: float | None = None,
    other_precision: Mapping[str, float] = MappingProxyType({}),
    compared: Sequence[PurchaseOption] = (),
) -> Iterator[Section]:
    """Yield the sections of a decision: years, break-even, scenarios, swings, prices, assumptions.

    ``compared`` are further options whose prices are listed.
    """
    best = best_of_each_kind(options, change)
    first = recommended_option(options, change, budget)
    if first is None:
        return
    yield Section(
        title=DECISION, blocks=[_years_table(best, change, first.kind), *_break_even(best)]
    )
    yield Section(title="What if prices change?", blocks=[_scenarios_table(options, change)])
    yield Section(title="What moves the cost most?", blocks=[_tornado(first, other_precision)])
    names = {(option.gpu, option.contract) for option in options}
    more = [option for option in compared if (option.gpu, option.contract) not in names]
    yield from prices_section([*options, *more])
    yield Section(title="What is assumed, to sign", blocks=[make_lines(*assumption_lines(best))])


def assumption_lines(best: Mapping[str, PurchaseOption]) -> list[str]:
    """Return the assumptions behind the years."""
    lines = [
        "Prices are in USD, without sales tax or value-added tax.",
        _use_line(next(iter(best.values()))),
        "Rent follows the price of the year. A contract keeps its price until it ends, is paid "
        "by the month, and is renewed at the price of that year.",
    ]
    if PURCHASE in best:
        purchase = best[PURCHASE]
        lines += [
            "Owned GPUs are bought in the first year and used for "
            f"{purchase.term:g} years. Cash is the purchase, electricity, room and operations; "
            "cost has financing and resale instead of the purchase.",
        ]
    if any(option.hourly_gpus for option in best.values()):
        lines.append("GPUs beyond those paid all hours are rented by the hour, on demand.")
    return [f"[ ] {line}" for line in lines]


def _use_line(option: PurchaseOption) -> str:
    """Return the assumption on the hours in which GPUs are needed."""
    if option.use < 1:
        share = format_percent(option.use)
        return (
            f"One run a year, for {YEARS} years: rented GPUs are paid for {share} of the hours, "
            "reserved and owned ones for all."
        )
    hours = format_count(HOURS_PER_YEAR)
    return (
        f"The GPUs are in use all {hours} hours of a year; the load and the number of GPUs stay "
        f"the same for {YEARS} years."
    )


def _name(option: PurchaseOption) -> str:
    name = f"{format_count(option.num_gpus)} x {option.gpu} {option.contract}"
    if not option.hourly_gpus:
        return name
    return f"{name} and {format_significant(option.hourly_gpus)} by the hour in the mean"


def _format_usd(amount: float) -> str:
    """Return an amount in millions of USD: ``4.87 M USD``."""
    return f"{amount / _MILLION:.2f} M USD"


def _millions(amount: float) -> Cell:
    return Cell(text=f"{amount / _MILLION:.2f}", number=amount / _MILLION)


def _years_table(
    best: Mapping[str, PurchaseOption], change: PriceChange, recommended: str
) -> Table:
    """Return cash, cost and GPUs by year of the best option of each kind."""
    years = range(1, YEARS + 1)
    rows: list[list[str | Cell]] = []
    for kind, option in best.items():
        for measure, of_year, total in (
            ("cash", option.cash, option.total_cash(change)),
            ("cost", option.cost, option.total(change)),
        ):
            count = _count_cell(option)
            cells = [_millions(of_year(year, change)) for year in years]
            where = f"{option.gpu} {option.contract}{' ?' * bool(option.doubts)}"
            rows.append([kind, where, count, measure, *cells, _millions(total)])
    note = "" if change == UNCHANGED else f"; rental prices {change.text}"
    if any(option.hourly_gpus for option in best.values()):
        note += "; GPUs paid all hours + by the hour in the mean"
    doubts = "; ? ask before signing" if any(option.doubts for option in best.values()) else ""
    return text_table(
        ("", "GPU", "GPUs", "", *(f"year {year}" for year in years), f"{YEARS} years"),
        rows,
        text_columns=(0, 1, 3),
        marked=[BEST if row[0] == recommended else "" for row in rows],
        name="years",
        caption=f"Cash and cost by year in M USD{note}{doubts}",
    )


def options_chart(
    options: Sequence[PurchaseOption],
    change: PriceChange = UNCHANGED,
    budget: float | None = None,
) -> RankingChart | None:
    """Return a chart of the cost of the best option of each kind over all years; None: none."""
    best = best_of_each_kind(options, change)
    first = recommended_option(options, change, budget)
    if first is None:
        return None
    rows = [
        RankingRow(
            label=f"{kind}: {_name(option)}",
            value=option.total(change) / _MILLION,
            text=_format_usd(option.total(change)),
            mark=BEST if option is first else "",
        )
        for kind, option in best.items()
    ]
    caption = f"Cost of {YEARS} years"
    if budget is not None and _most_cash(first) <= budget:
        caption += f"; recommended within {_format_usd(budget)} a year"
    return RankingChart(name="options", caption=caption, unit="M USD", rows=rows)


def _count_cell(option: PurchaseOption) -> Cell:
    """Return the GPUs that are paid all hours, plus those by the hour in the mean."""
    text = format_count(option.num_gpus)
    if option.hourly_gpus:
        text += f" + {format_significant(option.hourly_gpus)}"
    return Cell(text=text, number=option.mean_gpus)


def _break_even(best: Mapping[str, PurchaseOption]) -> Iterator[Block]:
    """Yield from which price and from which use of rented GPUs the others cost less."""
    if RENT not in best:
        return
    rent = best[RENT]
    rows: list[list[str]] = []
    for kind, option in best.items():
        if kind == RENT:
            continue
        even, use = break_even_price(option, rent), break_even_utilization(option, rent)
        runs = use / rent.use
        is_possible = use <= 1 and runs * option.use <= 1
        change = even / rent.price - 1
        rows.append(
            [
                kind,
                f"{even:.2f}",
                f"{100 * change:+.0f} %",
                format_percent(use) if is_possible else "never",
                *([f"{runs:.1f}" if is_possible else "never"] if rent.use < 1 else []),
            ]
        )
    if rows:
        heads = ["", "rent USD/GPU-h", "against today", "hours in use"]
        heads += ["runs a year"] * (rent.use < 1)
        yield text_table(
            heads, rows, name="break_even",
            caption=f"It costs less than to rent {rent.gpu} at {rent.price:.2f} USD/GPU-h above "
            "this price of rent, or above this share of the hours",
        )  # fmt: skip


def _scenarios_table(options: Sequence[PurchaseOption], change: PriceChange) -> Table:
    """Return the cost over all years of each kind, by change of rental prices."""
    changes = [*SCENARIOS] if change in SCENARIOS else [change, *SCENARIOS]
    rows: list[list[str | Cell]] = []
    kinds = [kind for kind in KINDS if kind in best_of_each_kind(options)]
    for scenario in changes:
        best = best_of_each_kind(options, scenario)
        least = min(best.values(), key=lambda option: option.total(scenario))
        name = "as today" if scenario == UNCHANGED else scenario.text
        costs = [_millions(best[kind].total(scenario)) for kind in kinds]
        rows.append([name, *costs, f"{least.kind}: {_name(least)}"])
    return text_table(
        ("rental prices", *kinds, "least"),
        rows,
        text_columns=(0, len(kinds) + 1),
        name="scenarios",
        caption=f"Cost of {YEARS} years in M USD; a change holds from the second year on",
    )


def _tornado(option: PurchaseOption, other_precision: Mapping[str, float]) -> Block:
    """Return a chart of the yearly cost at the two ends of each assumption, the widest first."""
    base = option.yearly
    rows = [
        RankingRow(
            label=f"{swing.name}: {swing.text}",
            value=base / _MILLION,
            text=f"{swing.low / _MILLION:.2f} to {swing.high / _MILLION:.2f}",
            ends=(swing.low / _MILLION, swing.high / _MILLION),
        )
        for swing in cost_swings(option, other_precision)
        if math.isfinite(swing.low) and math.isfinite(swing.high)
    ]
    return RankingChart(
        name="swings",
        caption=f"Cost of the first year of {_name(option)}, one assumption changed at a time",
        unit="M USD a year",
        rows=rows,
    )


def priced_rows(rows: Sequence[Row]) -> list[PurchaseOption]:
    """Return the price of each GPU and contract of result rows, once; without unknown prices."""
    options: dict[tuple[str, str], PurchaseOption] = {}
    for row in rows:
        price = number_of(row, "price_per_gpu_hour_usd")
        gpu, contract = str(row.get("gpu") or ""), str(row.get("contract") or "")
        if not math.isfinite(price) or (gpu, contract) in options:
            continue
        options[gpu, contract] = PurchaseOption(
            gpu=gpu, contract=contract, num_gpus=number_of(row, "num_gpus"), price=price,
            low=number_of(row, "price_low_per_gpu_hour_usd"),
            high=number_of(row, "price_high_per_gpu_hour_usd"),
            offers=number_of(row, "price_offers"), date=str(row.get("price_date") or ""),
            basis=str(row.get("price_basis") or ""), doubts=str(row.get("price_doubts") or ""),
        )  # fmt: skip
    return [*options.values()]


def prices_section(options: Sequence[PurchaseOption]) -> list[Section]:
    """Return the section with the price of each option; empty without options."""
    return [Section(title="What is each price?", blocks=[_prices_table(options)])] * bool(options)


def without_prices(lines: Sequence[str]) -> list[str]:
    """Return lines without the sentence on prices, for a page that has the table of them."""
    return [line for line in lines if not line.startswith(f"{PRICES_TITLE}:")]


def _prices_table(options: Sequence[PurchaseOption]) -> Table:
    """Return the price of each option: range, offers, date, basis, doubts."""
    rows: list[list[str | Cell]] = [
        [
            f"{option.gpu} {option.contract}",
            _count_cell(option),
            f"{option.price:.2f}",
            f"{option.low:.2f} to {option.high:.2f}",
            format_count(option.offers) if math.isfinite(option.offers) else "-",
            option.date or "-",
            option.basis or _offer_basis(option.offers),
            option.doubts or "-",
        ]
        for option in options
    ]
    return text_table(
        ("option", "GPUs", "USD/GPU-h", "range", "offers", "date", "basis", "ask before signing"),
        rows,
        text_columns=(0, 5, 6, 7),
        name="prices",
        caption=PRICES_TITLE,
    )


def _offer_basis(offers: float) -> str:
    if math.isnan(offers):
        return "as specified"
    return "median of offers" if offers > 1 else "one offer"


_MAX_HOURS = 48
A_DAY = "A day, by cost"
HOURLY = "Hour by hour"
SCALED = "An autoscaler that reacts to the load, by its spare"
_SECONDARY = {"plan": 4, "at_peak": 3, "utilization": 2, "gpu_hours": 2, "month": 1}
Rows = Sequence[Row]


def days_blocks(days: Rows, lines: Sequence[str], scaled: Rows, hours: Rows) -> Iterator[Block]:
    """Yield a table row for each daily schedule, cheapest first, and the cheapest in detail.

    ``lines`` are the sentences on it, ``scaled`` an autoscaler's results, ``hours`` periods.
    """
    first = days[0]
    yield Title(text=A_DAY)
    yield replace(days_table(days), name="days")
    for line in lines:
        yield make_lines(line)
    if scaled and first["late_share"]:
        yield Title(text=SCALED)  # up to the first with which no request is late
        last = next(
            (index for index, row in enumerate(scaled) if not row["late_share"]), len(scaled)
        )
        yield replace(scaled_table(scaled[: last + 1]), name="scaled")
    rows = [row for row in hours if row["gpu"] == first["gpu"]]
    if not rows:
        return
    if len(rows) > _MAX_HOURS:
        yield make_lines(f"{len(rows)} periods: --csv, --json and their page have each.")
        return
    yield Title(text=f"{HOURLY} on {first['gpu']}")
    yield fit_table(hour_columns(rows), lambda name: int(name == "capacity"))


def day_row(day: DailySchedule) -> dict[str, str | float | None]:
    """Return GPUs, GPU-hours per day and costs [USD] of a daily schedule as a result row.

    Unknown costs are None.
    """
    row = day.peak.row
    figures = {
        "cost_usd": day.cost,
        "cost_per_month_usd": day.cost_per_month,
        "cost_at_peak_usd": day.cost_at_peak,
        "utilization": day.utilization,
        "base_cost_usd": day.base_cost,
        "hourly_cost_usd": day.cost - day.base_cost,
        "base_utilization": day.base_utilization,
        "base_signed_usd": day.commitment_cost,
        "starting_gpu_hours": day.starting_hours,
        "startup_time_s": day.startup_time,
        "late_requests": day.autoscaled[0].late * day.load.requests,
        "late_share": day.autoscaled[0].late,
        "most_waiting_requests": day.autoscaled[0].longest,
    }
    return {
        "gpu": day.gpu,
        "most_gpus": day.peak.num_gpus,
        "base_gpus": day.base,
        "gpu_hours": day.gpu_hours,
        **{name: value_or_none(figure) for name, figure in figures.items()},
        "base_contract": day.terms.base_contract,
        "hourly_contract": day.terms.hourly_contract,
        "plan": f"{row['engine']} {layout_of(workload_of('serve'), row)}",
    }


def days_table(rows: Rows) -> Table:
    """Return a table of daily schedules on several GPU types; rows are from `day_row`."""

    columns = [
        Column("gpu", [str(row["gpu"]) for row in rows], "GPU", numeric=False),
        *(
            Column(name, number_cells(rows, column, unknown="unknown"), head)
            for name, column, head in (
                ("peak", "most_gpus", "most GPUs"),
                ("base", "base_gpus", "held all day"),
                ("gpu_hours", "gpu_hours", "GPU-hours"),
                ("cost", "cost_usd", "USD /day"),
                ("month", "cost_per_month_usd", "USD /month"),
                ("at_peak", "cost_at_peak_usd", "peak held, /day"),
            )
        ),
        Column("utilization", number_cells(rows, "utilization", format_percent), "used"),
        Column("plan", [str(row["plan"]) for row in rows], numeric=False),
    ]
    return fit_table(columns, lambda name: _SECONDARY.get(name, 0), [BEST])


def day_lines(day: DailySchedule) -> list[str]:
    """Return sentences on a day's cost of the GPUs held all day and of those rented by hour.

    The last sentence has the saving against the GPUs of the peak all day.
    """
    terms = day.terms
    if math.isnan(day.cost):
        return [f"The price of {day.gpu} is unknown: give --price."]
    rates = [f"{format_usd(price * HOUR)} an hour" for price in (terms.base, terms.hourly)]
    if not day.base and terms.base_contract != terms.hourly_contract:
        lines = [
            f"None is held all day: {terms.base_contract} is {rates[0]}, {terms.hourly_contract} "
            f"{rates[1]}. Sellers differ: --provider compares the contracts of one."
        ]
    elif terms.base_contract == terms.hourly_contract:
        contract = f" {terms.hourly_contract}" if terms.hourly_contract else ""
        lines = [f"One price{contract}, {rates[1]}: {day.base} GPUs never rest."]
    else:
        beyond = day.gpu_hours - 24 * day.base
        lines = [
            f"Held all day: {day.base} GPUs {terms.base_contract} at {rates[0]}, "
            f"{format_count(day.base_cost)} USD a day, needed "
            f"{format_percent(day.base_utilization)} of the time; beyond them "
            f"{format_count(beyond)} GPU-hours {terms.hourly_contract} at {rates[1]}, "
            f"{format_count(day.cost - day.base_cost)} USD a day."
        ]
        if math.isfinite(day.commitment_cost):
            lines.append(
                f"Signed for the term of {terms.base_contract}: {format_usd(day.commitment_cost)}."
            )
    saved = 1 - day.cost / day.cost_at_peak if day.cost_at_peak else 0.0
    if saved > 0:
        lines.append(
            f"That is {format_percent(saved)} less than {day.peak.num_gpus} GPUs all "
            "day at the lower price."
        )
    return [*lines, _start_line(day)]


def _start_line(day: DailySchedule) -> str:
    """Return a sentence on the GPU-hours that early starts and an autoscaler cost per day."""
    if not day.startup_time:
        return "GPUs start in no time here: --startup-time counts it."
    line = (
        f"Starting GPUs {format_duration(day.startup_time)} early by a schedule costs "
        f"{format_significant(day.starting_hours)} GPU-hours a day."
    )
    without_spare, with_spare = day.autoscaled[0], day.with_spare
    line += (
        f" An autoscaler that keeps GPUs for {format_duration(SCALE_DOWN_DELAY)} after the load "
        f"falls takes {format_count(without_spare.gpu_hours)} GPU-hours: "
    )
    if not without_spare.late:
        return f"{line}no request is late."
    line += (
        f"{format_percent(without_spare.late)} of the requests are late, at most "
        f"{format_count(without_spare.longest)} wait at once; "
    )
    if with_spare is None:
        return f"{line}no spare capacity makes it less than {format_percent(MAX_LATE_SHARE)}."
    if with_spare is without_spare:
        return f"{line}it needs no spare capacity."
    return (
        f"{line}with {format_percent(with_spare.spare)} spare capacity "
        f"{format_percent(with_spare.late)} are late, at {format_count(with_spare.gpu_hours)} "
        f"GPU-hours. The GPUs of the peak all day take {format_count(24 * day.peak.num_gpus)}."
    )


def scaled_rows(day: DailySchedule) -> list[dict[str, float | None]]:
    """Return a row for each spare capacity of an autoscaler: cost per day and late requests."""
    return [
        {
            "spare_share": scaling.spare,
            "gpu_hours": scaling.gpu_hours,
            "cost_usd": value_or_none(scaling.gpu_hours * HOUR * day.terms.hourly),
            "late_share": scaling.late,
            "most_waiting_requests": scaling.longest,
        }
        for scaling in day.autoscaled
    ]


def scaled_table(rows: Rows) -> Table:
    """Return a table of an autoscaler's results by spare capacity, from `scaled_rows`."""
    percent = format_percent
    columns = [
        Column("spare_share", number_cells(rows, "spare_share", percent), "spare"),
        Column("gpu_hours", number_cells(rows, "gpu_hours"), "GPU-hours"),
        Column("late_share", number_cells(rows, "late_share", percent), "late"),
        Column(
            "most_waiting_requests", number_cells(rows, "most_waiting_requests"), "wait at once"
        ),
    ]
    return fit_table(columns, lambda _: 0)


def _clock_cell(clock: str) -> Cell:
    """Return the cell of a time of the day, HH:MM; its number is in hours."""
    hours, _, minutes = clock.partition(":")
    return Cell(text=clock, number=int(hours) + int(minutes) / 60)


def hour_columns(rows: Rows) -> list[Column]:
    """Return the table columns of a day's periods: load, GPUs and capacity [requests/s]."""
    return [
        Column(TIME, [_clock_cell(str(row[TIME])) for row in rows], numeric=False),
        Column("requests /s", number_cells(rows, "request_rate", "{:g}".format)),
        Column("GPUs", number_cells(rows, "num_gpus")),
        Column("held", number_cells(rows, "base_gpus")),
        Column("by the hour", number_cells(rows, "on_demand_gpus")),
        Column(
            "capacity",
            number_cells(rows, "requests_per_s", format_rate),
        ),
    ]
