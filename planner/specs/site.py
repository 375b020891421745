"""On what terms GPUs run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from planner.specs.power import PowerProfile
from planner.specs.price import Price
from planner.units import HOUR


@dataclass(frozen=True, kw_only=True)
class Site:
    """On what terms GPUs run: ``offer`` is what one costs, None where that is unknown.

    ``power`` says what is drawn around GPUs, None where nobody asked; ``carbon_intensity`` is kg
    of CO2 equivalent per joule of electricity, NaN where the region is unknown.
    """

    offer: Price | None = None
    power: PowerProfile | None = None
    carbon_intensity: float = math.nan

    @property
    def price(self) -> float:
        """USD per GPU-second, NaN where unknown."""
        return math.nan if self.offer is None else self.offer.value

    @property
    def columns(self) -> Mapping[str, Any]:
        """Result columns that are the same for all plans of the site."""
        return {"price_per_gpu_hour_usd": self.price * HOUR}
