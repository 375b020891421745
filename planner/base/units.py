"""Units: the only place that knows powers of 1000 and 1024.

Inside the package every quantity is in byte, second, FLOP, byte/s, FLOP/s, W, J, kg or USD.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from planner.base.arrays import IndexArray

Count = TypeVar("Count", int, "IndexArray")

_DECIMAL = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_BINARY = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40}

GIB = _BINARY["Gi"]
GIGA = _DECIMAL["G"]
TERA = _DECIMAL["T"]
MINUTE = 60.0
HOUR = 60 * MINUTE
DAY = 24 * HOUR
YEAR = 365 * DAY
MONTH = YEAR / 12
KILOWATT = 1e3
MEGAWATT = 1e6
KILOWATT_HOUR = 3.6e6

# Behind a count: k is a thousand, Ki is 1024.
_MANY = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "B": 1e9, "T": 1e12} | _BINARY

_BYTES = {prefix + "B": scale for prefix, scale in (_DECIMAL | _BINARY).items()}
_BITS = {prefix + "bit": scale / 8 for prefix, scale in _DECIMAL.items()}

UNITS: dict[str, dict[str, float]] = {
    "byte": _BYTES | _BITS,
    "byte/s": {unit + "/s": scale for unit, scale in (_BYTES | _BITS).items()},
    "flop/s": {prefix + "FLOP/s": scale for prefix, scale in _DECIMAL.items()},
    "second": {
        "s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9, "min": 60.0, "h": HOUR, "d": DAY,
        "hours": HOUR, "days": DAY, "years": YEAR,
    },
    "watt": {"W": 1.0, "kW": 1e3, "MW": 1e6},
    "kg": {"kg": 1.0, "g": 1e-3, "t": 1e3},
    "kg/J": {"gCO2e/kWh": 1e-3 / KILOWATT_HOUR},
    "usd/J": {"USD/kWh": 1 / KILOWATT_HOUR},
    "usd": {"USD": 1.0, "kUSD": 1e3, "MUSD": 1e6, "k": 1e3, "M": 1e6},
    "usd/s": {"USD/h": 1 / HOUR, "USD/s": 1.0},
    "usd/watt/s": {"USD/kW/month": 1 / (1e3 * MONTH)},
    "1/year": {"1/year": 1.0, "%/year": 0.01},
    "1": {"1": 1.0, "%": 0.01, "": 1.0},
    "number": _MANY | {"%": 0.01},
    "token": {"tokens": 1.0, **_MANY},
}  # fmt: skip

_LARGEST = 1e300
_NUMBER_AND_UNIT = re.compile(r"\s*([+-]?(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*(.*?)\s*")


def ceil_div(number: Count, divisor: Count | int) -> Count:
    """Return ``number / divisor`` rounded up exactly, for integers or arrays of integers.

    >>> ceil_div(7, 2), ceil_div(8, 2)
    (4, 4)
    >>> import numpy as np
    >>> ceil_div(np.array([7, 8]), 2).tolist()
    [4, 4]
    """
    return -(-number // divisor)


def to_si(value: float, unit: str, dimension: str) -> float:
    """Convert ``value`` from ``unit`` to the SI base unit of ``dimension``.

    Raises ValueError if the unit is unknown or of another dimension, or the value is not finite.

    >>> to_si(80, "GiB", "byte")
    85899345920.0
    """
    factors = UNITS[dimension]
    if unit not in factors:
        raise ValueError(f"unit {unit!r} is not a unit of {dimension} ({', '.join(factors)})")
    if not abs(value) <= _LARGEST:
        raise ValueError("not a finite number, or beyond 1e300")
    return float(value) * factors[unit]


def parse_quantity(text: str, dimension: str, default_unit: str | None = None) -> float:
    """Parse a typed quantity such as ``3.35 TB/s`` or ``20s`` to SI base units.

    Raises ValueError if there is no number, no unit where one is needed, or a wrong unit.

    >>> parse_quantity("1.4T", "token")
    1400000000000.0
    """
    match = _NUMBER_AND_UNIT.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a number with a unit")
    number, unit = match.groups()
    if not unit and default_unit is not None:
        unit = default_unit
    if unit == "%":  # a hundredth as a factor is not exact
        return to_si(float(number), unit, dimension) and float(number) / 100
    return to_si(float(number), unit, dimension)
