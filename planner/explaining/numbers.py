"""Physical quantities in the unit that suits them."""

from __future__ import annotations

import math
from collections.abc import Sequence

_THOUSANDS = ("", "k", "M", "G", "T", "P", "E")


def quantity(value: float, unit: str) -> str:
    """A value in SI units with three digits and a prefix.

    >>> quantity(3.12e14, "FLOP/s"), quantity(313e6, "byte"), quantity(0.78, "1")
    ('312 TFLOP/s', '313 MB', '0.78')
    """
    if unit == "s":
        return seconds(value)
    if unit in ("1", "count"):
        return f"{value:,.0f}" if unit == "count" else f"{value:.3g}"
    short = unit.replace("byte", "B")
    power = min(max(int(math.log10(value) // 3), 0), len(_THOUSANDS) - 1) if value > 0 else 0
    scaled = value / 1000.0**power
    digits = f"{scaled:.0f}" if scaled >= 100 else f"{scaled:.3g}"
    return f"{digits} {_THOUSANDS[power]}{short}"


def seconds(value: float) -> str:
    """A time from microseconds to seconds.

    >>> seconds(6.71e-6), seconds(0.00328), seconds(4.4926)
    ('6.71 us', '3.28 ms', '4.49 s')
    """
    scales = ((1e-3, 1e6, "us"), (1.0, 1e3, "ms"))
    scale, unit = next(((s, u) for limit, s, u in scales if value < limit), (1.0, "s"))
    scaled = value * scale
    return f"{scaled:,.0f} {unit}" if scaled >= 100 else f"{scaled:.3g} {unit}"


def product_of(sizes: Sequence[float]) -> str:
    """``8,192 x 5,504 x 1,024``."""
    return " x ".join(f"{size:,.4g}" if size < 1000 else f"{size:,.0f}" for size in sizes)
