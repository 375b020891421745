"""Parameters that measurements may change: their scale, their bounds, how to set them."""

from __future__ import annotations

import math
from collections.abc import Iterable

from planner.base.records import record
from planner.errors import CalibrationError, did_you_mean
from planner.specs.framework import Execution, Memory, Overlap

SECTIONS = {"execution": Execution, "overlap": Overlap, "memory": Memory}
_SHARES = ("selective_share", "fragmentation", "hidden_copies")
# Shares that are a factor of what is shipped, and stay 0 where that is.
_AT_MOST_ONE = ("sustained_clock", "selective_dropped")
# Traffic over that of fused kernels, which nothing undercuts.
_AT_LEAST_ONE = (
    "elementwise_passes",
    "permute_passes",
    "dequantize_passes",
    "kept_activations",
    "sharded_copies",
)
# Kernels of an engine may beat those measured on the GPU by little.
_LARGEST_FRACTION = 1.3
_SHARE_SPREAD = 0.25
_FACTOR = 2.0
_LARGEST_FACTOR = 16.0


@record(kw_only=True)
class Parameter:
    """One number of a framework profile, or of the GPUs of a class.

    Fitted on a scale where the prior is a standard normal around the ``shipped`` value: a
    share moves by 0.25, any other number by a factor of 2, per standard deviation.
    ``owner`` is ``execution``, ``overlap`` or ``memory``, or a class of GPUs.
    """

    owner: str
    name: str
    shipped: float

    @property
    def label(self) -> str:
        """As it is named on the command line and in reports."""
        return f"{self.owner}.{self.name}"

    @property
    def is_share(self) -> bool:
        """Whether it is bounded by 0 and 1."""
        return self.owner == "overlap" or self.name in _SHARES

    @property
    def is_of_memory(self) -> bool:
        """Whether it says something about memory alone."""
        return self.owner == "memory"

    @property
    def is_of_silicon(self) -> bool:
        """Whether it belongs to a class of GPUs."""
        return self.owner not in SECTIONS

    @property
    def bounds(self) -> tuple[float, float]:
        """The ends of the scale it is fitted on."""
        if self.is_share:
            return (-self.shipped / _SHARE_SPREAD - 1e-9, (1 - self.shipped) / _SHARE_SPREAD + 1e-9)
        limit = math.log(_LARGEST_FACTOR, _FACTOR)
        if self.name in _AT_LEAST_ONE:
            return (math.log(1 / max(self.shipped, 1.0), _FACTOR) - 1e-9, limit)
        if self.name in _AT_MOST_ONE:
            return (-limit, -math.log(self.shipped, _FACTOR) + 1e-9)
        if self.owner == "execution" and self.name.endswith("_fraction"):
            return (-limit, math.log(max(_LARGEST_FRACTION / self.shipped, 1.001), _FACTOR))
        return (-limit, limit)

    def value(self, x: float) -> float:
        """Its value at a point of the scale it is fitted on."""
        if self.is_share:
            return min(max(self.shipped + _SHARE_SPREAD * x, 0.0), 1.0)
        value = float(self.shipped * _FACTOR**x)
        return min(value, 1.0) if self.name in _AT_MOST_ONE else value


def chosen_parameters(
    every: Iterable[Parameter], profile: str, names: Iterable[str] | None
) -> list[Parameter]:
    """Those of the parameters of a profile that are named, or all that have a scale.

    Raises
    ------
    CalibrationError
        A name is unknown, or the parameter is zero and has no scale.
    """
    found = {parameter.label: parameter for parameter in every}
    if names is None:
        return [p for p in found.values() if p.is_share or p.shipped > 0]
    chosen = []
    for name in names:
        if name not in found:
            hint = did_you_mean(name, found)
            raise CalibrationError(f"Unknown parameter {name!r}.{hint} Known: {', '.join(found)}.")
        if not found[name].is_share and found[name].shipped <= 0:
            raise CalibrationError(f"{name} is 0 in {profile}: give it a value to start from.")
        chosen.append(found[name])
    return chosen
