"""A service over a day: what each GPU costs, and the fleet of each hour on the cheapest."""

from __future__ import annotations

import math

from rich.console import Console

from planner.base import text
from planner.base.units import HOUR
from planner.decide.sizing.day import Day
from planner.decide.sizing.size import Sizes
from planner.report.console import GOOD, print_folded, print_title
from planner.report.fitted import Column, print_fitted

_SECONDARY = {"at_peak": 3, "utilization": 2, "gpu_hours": 2, "month": 1}


def print_days(console: Console, sizes: Sizes) -> None:
    """A line for each GPU, what the cheapest is made of, and its hours."""
    days = [size.day for size in sizes.found if size.day is not None]
    if not days:
        return
    print_title(console, "A day, by cost")
    styles = [GOOD if number == 0 else None for number in range(len(days))]
    print_fitted(
        console,
        day_columns(days),
        rank=lambda name: _SECONDARY.get(name, 0),
        styles=styles,
    )
    for line in day_lines(days[0]):
        print_folded(console, line)
    print_title(console, f"Hour by hour on {days[0].gpu}")
    print_fitted(
        console,
        hour_columns(days[0]),
        rank=lambda name: 1 if name == "capacity" else 0,
        styles=[None] * len(days[0].hours),
    )


def day_columns(days: list[Day]) -> list[Column]:
    """What days on several GPUs take and cost."""
    cells = {
        ("gpu", "GPU"): [day.gpu for day in days],
        ("peak", "most GPUs"): [text.count(day.peak.num_gpus) for day in days],
        ("base", "held all day"): [text.count(day.base) for day in days],
        ("gpu_hours", "GPU-hours"): [text.count(day.gpu_hours) for day in days],
        ("cost", "USD /day"): [_money(day.cost) for day in days],
        ("month", "USD /month"): [_money(day.cost_per_month) for day in days],
        ("at_peak", "peak held, /day"): [_money(day.cost_at_peak) for day in days],
        ("utilization", "used"): [text.percent(day.utilization) for day in days],
    }
    return [
        Column(name=name, header=header, cells=values, numeric=name != "gpu")
        for (name, header), values in cells.items()
    ]


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


def hour_columns(day: Day) -> list[Column]:
    """The fleet of each period."""
    cells = {
        "time": [hour.period.clock for hour in day.hours],
        "requests /s": [f"{hour.period.request_rate:g}" for hour in day.hours],
        "GPUs": [text.count(hour.num_gpus) for hour in day.hours],
        "held": [text.count(hour.base) for hour in day.hours],
        "by the hour": [text.count(hour.on_demand) for hour in day.hours],
        "capacity": [text.per_second(hour.capacity) for hour in day.hours],
    }
    return [
        Column(name=name, header=name, cells=values, numeric=name != "time")
        for name, values in cells.items()
    ]


def _money(amount: float) -> str:
    return text.count(amount) if math.isfinite(amount) else "unknown"
