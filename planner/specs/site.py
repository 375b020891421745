"""On what terms GPUs run."""

from __future__ import annotations

import math
from collections.abc import Mapping

from planner.base.cells import Value
from planner.base.enums import Contract
from planner.base.records import record
from planner.base.units import HOUR
from planner.specs.power import PowerProfile
from planner.specs.price import Price
from planner.specs.reliability import IDEAL, ReliabilitySpec


@record(kw_only=True)
class Site:
    """On what terms GPUs run: ``offer`` is what one costs, None where that is unknown.

    ``contract`` is that of the offer, or what was asked for where there is none. ``power`` says
    what is drawn around GPUs; ``carbon_intensity`` is kg of CO2 equivalent per joule of
    electricity, NaN where the region is unknown.
    ``reliability`` is how often training is interrupted there, and what that costs.
    """

    offer: Price | None = None
    contract: str = Contract.ON_DEMAND
    power: PowerProfile | None = None
    carbon_intensity: float = math.nan
    reliability: ReliabilitySpec = IDEAL

    def __post_init__(self) -> None:
        if self.offer is not None:
            object.__setattr__(self, "contract", self.offer.contract)

    @property
    def is_placed(self) -> bool:
        """Whether it is known what its electricity emits."""
        return not math.isnan(self.carbon_intensity)

    @property
    def price(self) -> float:
        """USD per GPU-second, NaN where unknown."""
        return math.nan if self.offer is None else self.offer.value

    @property
    def columns(self) -> Mapping[str, Value]:
        """Result columns that are the same for all plans of the site."""
        ends = (math.nan, math.nan)
        if self.offer is not None:
            ends = self.offer.low, self.offer.high
        return {
            "contract": str(self.contract),
            "provider": "" if self.offer is None else self.offer.provider,
            "price_per_gpu_hour_usd": self.price * HOUR,
            "price_low_per_gpu_hour_usd": ends[0] * HOUR,
            "price_high_per_gpu_hour_usd": ends[1] * HOUR,
        }
