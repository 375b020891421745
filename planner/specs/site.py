"""On what terms GPUs run."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from planner.base.arrays import FloatArray, Numeric
from planner.base.cells import Value
from planner.base.enums import Contract
from planner.base.records import record
from planner.base.units import DAY, HOUR
from planner.question.terms import columns_about
from planner.specs.power import PowerProfile
from planner.specs.price import Currency, Price
from planner.specs.reliability import IDEAL, ReliabilitySpec


@record(kw_only=True)
class Site:
    """On what terms GPUs run: ``offer`` is what one costs, None where that is unknown.

    ``contract`` is that of the offer, or what was asked for where there is none. ``power`` says
    what is drawn around GPUs; ``carbon_intensity`` is kg of CO2 equivalent per joule of
    electricity, NaN where the region is unknown.
    ``reliability`` is how often training is interrupted there, and what that costs.
    ``utilization`` is the share of the hours signed for that have work, of all that runs there;
    None where nobody says so: then a run is charged all that is signed for it, and a service is
    there as long as its contract. ``currency`` is what money is said in beside USD.
    """

    offer: Price | None = None
    contract: str = Contract.ON_DEMAND
    power: PowerProfile | None = None
    carbon_intensity: float = math.nan
    reliability: ReliabilitySpec = IDEAL
    utilization: float | None = None
    currency: Currency | None = None

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

    def had(self, num_gpus: Numeric) -> FloatArray:
        """GPUs that are paid for where so many are needed: whole racks, nodes or instances."""
        step = 1 if self.offer is None else self.offer.step
        return np.asarray(np.ceil(np.asarray(num_gpus) / step) * step)

    def rate(self, num_gpus: Numeric) -> FloatArray:
        """USD/s in use of so many GPUs, which run as long as their contract."""
        price = self.price
        if self.offer is not None and self.offer.is_signed and self.utilization is not None:
            price *= self.offer.in_use / self.utilization
        return self.had(num_gpus) * price

    @property
    def follows_time(self) -> bool:
        """Whether a run that takes longer costs more; not where a long term is charged whole."""
        has_work = self.utilization is not None
        return self.offer is None or not self.offer.term > DAY or has_work

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

    @property
    def grounds(self) -> Mapping[str, Value]:
        """Result columns that say what the price rests on."""
        names = columns_about("grounds")
        found: dict[str, Value] = dict.fromkeys(names)
        if (offer := self.offer) is not None:
            rent = offer.value if offer.contract == Contract.ON_DEMAND else offer.on_demand
            values = (
                offer.offers,
                offer.when,
                offer.basis,
                "; ".join(offer.doubts),
                math.nan if rent is None else rent * HOUR,
                offer.step,
                offer.term / DAY,
                offer.in_use,
            )
            found = dict(zip(names, values, strict=True))
        if self.utilization is not None:
            found["charged_utilization"] = self.utilization
        if (currency := self.currency) is not None:
            found |= {"currency": currency.code, "usd_per_currency": currency.usd}
            found["currency_date"] = currency.date
        return found
