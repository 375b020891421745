"""The cheapest days of services as tables and sentences: GPUs by hour, contracts, autoscalers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from planner.base import formatting
from planner.base.csv_cells import Row
from planner.base.units import HOUR
from planner.decide.sizing.autoscaling import MAX_LATE_SHARE, SCALE_DOWN_DELAY
from planner.decide.sizing.daily_schedule import DailySchedule
from planner.optimize.collector import value_or_none
from planner.question.names import TIME
from planner.show.output_blocks import (  # fmt: skip
    BEST,
    Block,
    Cell,
    Column,
    Table,
    Title,
    fit_table,
    make_lines,
)
from planner.show.presenters.format_results import layout_of, number_cells
from planner.workloads.registry import workload_of

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
        Column("utilization", number_cells(rows, "utilization", formatting.format_percent), "used"),
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
    rates = [
        f"{formatting.format_usd(price * HOUR)} an hour" for price in (terms.base, terms.hourly)
    ]
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
            f"{formatting.format_count(day.base_cost)} USD a day, needed "
            f"{formatting.format_percent(day.base_utilization)} "
            f"of the time; beyond them {formatting.format_count(beyond)} GPU-hours "
            f"{terms.hourly_contract} at "
            f"{rates[1]}, {formatting.format_count(day.cost - day.base_cost)} USD a day."
        ]
        if math.isfinite(day.commitment_cost):
            lines.append(
                f"Signed for the term of {terms.base_contract}: "
                f"{formatting.format_usd(day.commitment_cost)}."
            )
    saved = 1 - day.cost / day.cost_at_peak if day.cost_at_peak else 0.0
    if saved > 0:
        lines.append(
            f"That is {formatting.format_percent(saved)} less than {day.peak.num_gpus} GPUs all "
            "day at the lower price."
        )
    return [*lines, _start_line(day)]


def _start_line(day: DailySchedule) -> str:
    """Return a sentence on the GPU-hours that early starts and an autoscaler cost per day."""
    if not day.startup_time:
        return "GPUs start in no time here: --startup-time counts it."
    line = (
        f"Starting GPUs {formatting.format_duration(day.startup_time)} early by a schedule costs "
        f"{formatting.format_significant(day.starting_hours)} GPU-hours a day."
    )
    without_spare, with_spare = day.autoscaled[0], day.with_spare
    line += (
        f" An autoscaler that keeps GPUs for {formatting.format_duration(SCALE_DOWN_DELAY)} "
        "after the load "
        f"falls takes {formatting.format_count(without_spare.gpu_hours)} GPU-hours: "
    )
    if not without_spare.late:
        return f"{line}no request is late."
    line += (
        f"{formatting.format_percent(without_spare.late)} of the requests are late, at most "
        f"{formatting.format_count(without_spare.longest)} wait at once; "
    )
    if with_spare is None:
        return (
            f"{line}no spare capacity makes it less than "
            f"{formatting.format_percent(MAX_LATE_SHARE)}."
        )
    if with_spare is without_spare:
        return f"{line}it needs no spare capacity."
    return (
        f"{line}with {formatting.format_percent(with_spare.spare)} spare capacity "
        f"{formatting.format_percent(with_spare.late)} are late, at "
        f"{formatting.format_count(with_spare.gpu_hours)} GPU-hours. The GPUs of the peak all "
        "day take "
        f"{formatting.format_count(24 * day.peak.num_gpus)}."
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
    percent = formatting.format_percent
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
            number_cells(rows, "requests_per_s", formatting.format_rate),
        ),
    ]
