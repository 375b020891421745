"""Field types of spec files: a number that carries its unit and its source."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated

from planner.base.units import to_si
from planner.specs.checked import Before, Interval


@dataclass(slots=True)
class FileContext:
    """What the validators of one file share: its ``[sources]`` table."""

    sources: dict[str, str] = field(default_factory=dict)


def _read(dimension: str) -> Callable[[object, object], object]:
    def read(value: object, context: object) -> object:
        if not isinstance(context, FileContext):
            return value
        if not isinstance(value, dict):
            raise ValueError(
                f'must be written {{ value = {value!r}, unit = "...", source = "..." }}'
            )
        missing = {"value", "unit", "source"} - value.keys()
        extra = value.keys() - {"value", "unit", "source"}
        if missing or extra:
            raise ValueError(
                "needs exactly the keys value, unit, source"
                + (f"; missing: {', '.join(sorted(missing))}" if missing else "")
                + (f"; unknown: {', '.join(sorted(extra))}" if extra else "")
            )
        number, unit, source = value["value"], value["unit"], value["source"]
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise ValueError(f"value {number!r} is not a number")
        if not isinstance(unit, str) or not isinstance(source, str):
            raise ValueError("unit and source must be text")
        if source != "assumed" and source not in context.sources:
            raise ValueError(f"source {source!r} is not in the [sources] table")
        return to_si(number, unit, dimension)

    return read


Bytes = Annotated[float, Before(_read("byte")), Interval(gt=0, lt=1e18)]
BytesOrZero = Annotated[float, Before(_read("byte")), Interval(ge=0, lt=1e18)]
BytesPerSecond = Annotated[float, Before(_read("byte/s")), Interval(gt=0, lt=1e18)]
BytesPerSecondOrZero = Annotated[float, Before(_read("byte/s")), Interval(ge=0, lt=1e18)]
FlopPerSecond = Annotated[float, Before(_read("flop/s")), Interval(gt=0, lt=1e20)]
Seconds = Annotated[float, Before(_read("second")), Interval(ge=0, lt=1e6)]
GpuSeconds = Annotated[float, Before(_read("second")), Interval(gt=0, lt=1e18)]
Watts = Annotated[float, Before(_read("watt")), Interval(gt=0, lt=1e6)]
Fraction = Annotated[float, Before(_read("1")), Interval(gt=0, le=2)]
FractionOrZero = Annotated[float, Before(_read("1")), Interval(ge=0, le=2)]
Share = Annotated[float, Before(_read("1")), Interval(ge=0, le=1)]
Numbers = Annotated[float, Before(_read("1")), Interval(ge=0, lt=1e15)]
Ratio = Annotated[float, Before(_read("1")), Interval(ge=0, lt=1e9)]
