"""A service over a day: what each GPU costs, and the fleet of each hour on the cheapest."""

from __future__ import annotations

import math
from collections.abc import Iterator

from planner import text
from planner.show.page import (
    BEST,
    Block,
    Column,
    Title,
    fitted,
    said,
)
from planner.sizing.day import Day
from planner.sizing.size import Sizes
from planner.units import HOUR

_SECONDARY = {"at_peak": 3, "utilization": 2, "gpu_hours": 2, "month": 1}


def days_blocks(sizes: Sizes) -> Iterator[Block]:
    """A line for each GPU, what the cheapest is made of, and its hours."""
    days = [size.day for size in sizes.found if size.day is not None]
    if not days:
        return
    yield Title(text="A day, by cost")
    yield fitted(day_columns(days), lambda name: _SECONDARY.get(name, 0), [BEST])
    for line in day_lines(days[0]):
        yield said(line)
    yield Title(text=f"Hour by hour on {days[0].gpu}")
    yield fitted(hour_columns(days[0]), lambda name: int(name == "capacity"))


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
