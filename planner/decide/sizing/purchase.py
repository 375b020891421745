"""Rent, reserve or own GPUs: cash and cost by year, break-even, price scenarios.

Prices are USD without tax. A year has 8,760 hours: a service runs in all of them, a training run in
some.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from planner.base.arrays import FloatArray
from planner.base.csv_cells import Row, Value, number_or_nan
from planner.base.enums import Contract
from planner.base.records import record
from planner.base.units import DAY, HOUR, YEAR
from planner.decide.sizing.allocation import GpuType, base_gpus_and_cost
from planner.decide.sizing.fleet import FeasiblePlan
from planner.decide.sizing.searches import Searches, serving_size
from planner.decide.sizing.size import GPUS_BY_CONFIDENCE, Size
from planner.errors import PlannerError, SearchSpaceError
from planner.question.names import NUM_GPUS, QUANTIZATION
from planner.question.request import Request
from planner.specs.operating_terms import OperatingTerms
from planner.workloads.make_plan import make_plan

HOURS_PER_YEAR = YEAR / HOUR
YEARS = 5
"""Years of the comparison."""
RENT, RESERVE, PURCHASE = "rent", "reserve", "own"
KINDS = (RENT, RESERVE, PURCHASE)
"""Ways to get GPUs."""
_CONTRACTS = (
    Contract.ON_DEMAND, Contract.RESERVED_1Y, Contract.RESERVED_3Y, Contract.RESERVED_5Y,
    Contract.OWNED,
)  # fmt: skip
_KIND_OF: Mapping[str, str] = {Contract.ON_DEMAND: RENT, Contract.OWNED: PURCHASE}
_NO_KIND = (Contract.SPOT, Contract.CAPACITY_BLOCK)
_CHANGE = re.compile(r"([+-]?\d+(?:\.\d+)?)\s*(%?)\s*(?:(?:/|per|a)\s*(?:year|y))?")
_MAX_GPUS = 8
_BF16 = "w16a16"


@record(kw_only=True)
class PriceChange:
    """A change of rental prices after the first year.

    A contract keeps its price until it ends; purchases are made in the first year.

    Parameters
    ----------
    share : change as a share of today's price, above -1
    is_yearly : whether prices change by it each year
    """

    share: float = 0.0
    is_yearly: bool = False

    def factor(self, year: int) -> float:
        """Return the price of a contract signed after some years over today's.

        Parameters
        ----------
        year : full years from today

        >>> PriceChange(share=-0.3).factor(2), PriceChange(share=-0.1, is_yearly=True).factor(2)
        (0.7, 0.81)
        """
        if not self.is_yearly:
            return round(1.0 + self.share, 12) if year else 1.0
        return round((1.0 + self.share) ** year, 12)

    @property
    def text(self) -> str:
        """The change in words: ``-30 %``, ``-15 % a year``."""
        return f"{100 * self.share:+g} %{' a year' * self.is_yearly}"


UNCHANGED = PriceChange()
SCENARIOS = (PriceChange(share=-0.3), UNCHANGED, PriceChange(share=-0.15, is_yearly=True),
             PriceChange(share=0.3))  # fmt: skip
"""Price scenarios that every page shows."""


def read_price_change(value: object, option_name: str = "price_change") -> PriceChange:
    """Parse a change of prices: ``-30%`` after the first year, or ``-15%/year``.

    Raises SearchSpaceError if it is no share above -100 %.

    >>> read_price_change("-15%/year")
    PriceChange(share=-0.15, is_yearly=True)
    """
    text = str(value).strip()
    match = _CHANGE.fullmatch(text)
    share = float(match[1]) / (100 if match[2] else 1) if match else math.nan
    if match is None or not -1 < share < 10:
        raise SearchSpaceError(
            f"{option_name} {text!r}: write -30% for lower prices after the first year, or "
            "-15%/year."
        )
    return PriceChange(share=share, is_yearly="y" in text)


@record(kw_only=True)
class PurchaseOption:
    """GPUs of one type under one contract that serve a load.

    Parameters
    ----------
    gpu : GPU
    contract : contract
    num_gpus : GPUs that are paid all hours, full nodes or racks where these are sold
    price : price of a GPU [USD/h]; of owned ones, with financing and resale
    low : lowest price [USD/h]
    high : highest price [USD/h]
    term : duration of the contract, or lifetime of what is owned [years]; 0: none
    outlay : purchase price of all GPUs with network and storage [USD]; 0: rented
    running : of owned GPUs, electricity, room and operations of all [USD/h]
    predicted : GPUs at the prediction; None: unknown
    at_90 : GPUs at 90 % confidence; None: unknown
    used : GPUs that the plan needs at the peak
    use : share of the hours of a year in which they are needed; rented ones are paid for these
    hourly_gpus : GPUs rented by the hour beyond these, in the mean of the hours
    hourly_price : price of these on demand [USD/h]
    offers : number of offers
    date : day of the newest offer
    basis : kind of the price
    doubts : reasons to doubt the price
    """

    gpu: str
    contract: str
    num_gpus: float
    price: float
    low: float
    high: float
    term: float = 0.0
    outlay: float = 0.0
    running: float = 0.0
    predicted: float | None = None
    at_90: float | None = None
    used: float = 0.0
    use: float = 1.0
    hourly_gpus: float = 0.0
    hourly_price: float = 0.0
    offers: float = 1
    date: str = ""
    basis: str = ""
    doubts: str = ""

    @classmethod
    def of_row(cls, row: Mapping[str, Value]) -> PurchaseOption:
        """Return the option of a row of a file; missing numbers are unknown."""
        return cls(**{name: row[name] for name in cls.__dataclass_fields__ if name in row})  # type: ignore[arg-type]

    @property
    def row(self) -> dict[str, Value]:
        """The option as a row of a file."""
        return dict(vars(self))

    @property
    def kind(self) -> str:
        """Whether it is rented, reserved or owned."""
        return _KIND_OF.get(self.contract, RESERVE)

    @property
    def hourly(self) -> float:
        """Cost of all GPUs [USD/h], at today's prices."""
        return self.num_gpus * self.price + self.hourly_gpus * self.hourly_price

    @property
    def yearly(self) -> float:
        """Cost of a year [USD], at today's prices."""
        return self.hourly * HOURS_PER_YEAR * self.paid_share

    @property
    def paid_share(self) -> float:
        """Share of the hours of a year that is paid."""
        return self.use if self.kind == RENT else 1.0

    @property
    def mean_gpus(self) -> float:
        """GPUs that are paid, in the mean of the hours."""
        return self.num_gpus + self.hourly_gpus

    def _rented_by_hour(self, year: int, change: PriceChange) -> float:
        """Return the cost of the GPUs rented by the hour in a year [USD]."""
        yearly = self.hourly_gpus * self.hourly_price * HOURS_PER_YEAR * self.paid_share
        return yearly * change.factor(year - 1)

    def cost(self, year: int, change: PriceChange = UNCHANGED) -> float:
        """Return the cost of a year, the first one 1 [USD]."""
        signed = _year_signed(self, year)
        factor = 1.0 if self.kind == PURCHASE else change.factor(signed)
        fixed = self.num_gpus * self.price * factor * HOURS_PER_YEAR * self.paid_share
        return fixed + self._rented_by_hour(year, change)

    def cash(self, year: int, change: PriceChange = UNCHANGED) -> float:
        """Return the payments of a year, the first one 1 [USD].

        A purchase is paid when it is made, without a loan or resale; a contract month by month.
        """
        if self.kind != PURCHASE:
            return self.cost(year, change)
        is_bought = _year_signed(self, year) == year - 1
        fixed = self.outlay * is_bought + self.running * HOURS_PER_YEAR
        return fixed + self._rented_by_hour(year, change)

    def total(self, change: PriceChange = UNCHANGED) -> float:
        """Return the cost of all years [USD]."""
        return sum(self.cost(year, change) for year in range(1, YEARS + 1))

    def total_cash(self, change: PriceChange = UNCHANGED) -> float:
        """Return the payments of all years [USD]."""
        return sum(self.cash(year, change) for year in range(1, YEARS + 1))


def _year_signed(option: PurchaseOption, year: int) -> int:
    """Return after how many years the contract of a year (from 1) was signed."""
    term = max(round(option.term), 1)
    return (year - 1) // term * term


def break_even_price(option: PurchaseOption, rent: PurchaseOption) -> float:
    """Return the on-demand price of ``rent`` [USD/h] at which both cost the same over all years.

    GPUs of the same type that ``option`` rents by the hour have that price, too.
    """
    hours, saved = YEARS * HOURS_PER_YEAR * rent.use, rent.mean_gpus
    total = option.total()
    if option.gpu == rent.gpu:
        saved -= option.hourly_gpus
        total -= option.hourly_gpus * option.hourly_price * hours
    return total / (hours * saved) if saved > 0 else math.inf


def break_even_utilization(option: PurchaseOption, rent: PurchaseOption) -> float:
    """Return the share of the hours above which ``option`` costs less than ``rent``.

    Rented GPUs are paid for the hours in use, others for all.
    """
    return option.total() / rent.total() * rent.use


def best_of_each_kind(
    options: Sequence[PurchaseOption], change: PriceChange = UNCHANGED
) -> dict[str, PurchaseOption]:
    """Return the option with the lowest cost of each kind, by kind."""
    best: dict[str, PurchaseOption] = {}
    for option in sorted(options, key=lambda option: option.total(change)):
        best.setdefault(option.kind, option)
    return {kind: best[kind] for kind in KINDS if kind in best}


@record(kw_only=True)
class Swing:
    """The cost of the first year at the two ends of one assumption.

    Parameters
    ----------
    name : what is assumed
    low : lowest cost [USD]
    high : highest cost [USD]
    text : the two ends of the assumption
    """

    name: str
    low: float
    high: float
    text: str


def cost_swings(
    option: PurchaseOption, other_precision: Mapping[str, float] = MappingProxyType({})
) -> list[Swing]:
    """Return what moves the yearly cost of an option most: price, confidence, load, hours in use.

    The load changes the GPUs in proportion. ``other_precision`` has the GPUs by number format.
    """
    base = option.yearly

    def of_gpus(count: float) -> float:
        return base * count / (option.used or option.num_gpus)

    def at_price(price: float) -> float:
        fixed = option.num_gpus * (price - option.price)
        if option.contract == Contract.ON_DEMAND:
            fixed += option.hourly_gpus * (price - option.price)
        return base + fixed * HOURS_PER_YEAR * option.paid_share

    swings = [
        Swing(
            name="price", low=at_price(option.low), high=at_price(option.high),
            text=f"{option.low:.2f} to {option.high:.2f} USD/h",
        ),
        Swing(
            name="load", low=of_gpus(math.ceil(0.7 * option.used)),
            high=of_gpus(math.ceil(1.3 * option.used)), text="-30 to +30 %",
        ),
    ]  # fmt: skip
    counts = (number_or_nan(option.predicted), number_or_nan(option.at_90))
    if all(map(math.isfinite, counts)):
        low, high = counts
        text = f"50 % ({low:g} GPUs) to 90 % ({high:g})"
        swings.append(Swing(name="confidence", low=of_gpus(low), high=of_gpus(high), text=text))
    for name, count in other_precision.items():
        low, high = sorted((base, of_gpus(count)))
        text = f"{name} ({count:g} GPUs)"
        swings.append(Swing(name="precision", low=low, high=high, text=text))
    if option.kind == RENT and option.use < 1:
        text = "one run to all hours of a year"
        swings.append(Swing(name="utilization", low=base, high=base / option.use, text=text))
    elif option.kind == RENT:
        text = "half to all of the hours"
        swings.append(Swing(name="utilization", low=base / 2, high=base, text=text))
    return sorted(swings, key=lambda swing: swing.low - swing.high)


def purchase_options(request: Request, sizes: Sequence[Size]) -> list[PurchaseOption]:
    """Return every GPU type of some sizes under every contract with a price, the best size first.

    The number of GPUs does not depend on the contract.
    """
    by_gpu: dict[str, list[Size]] = {}
    for size in sizes:
        if size.fewest is not None and size.carried is None:
            by_gpu.setdefault(size.gpu, []).append(size)
    options: list[PurchaseOption] = []
    for gpu, of_gpu in [*by_gpu.items()][:_MAX_GPUS]:
        by_contract = {size.contract: size for size in of_gpu if size.contract not in _NO_KIND}
        for contract in dict.fromkeys([*by_contract, *_CONTRACTS]):
            size = by_contract.get(contract, of_gpu[0])
            fleet = size.cheapest or size.fewest
            if fleet is None or not contract:
                continue
            counts = size.peak_gpus_by_confidence(request.limit_confidence)
            options += options_of_needs(
                request, gpu, _needs(size, fleet), [str(contract)], priced=by_contract,
                counts=[counts.get(column) for column in GPUS_BY_CONFIDENCE],
                use=_share_of_year(fleet.row),
            )  # fmt: skip
    return options


def options_of_row(request: Request, row: Row) -> list[PurchaseOption]:
    """Return the GPUs of a result row under every contract with a price.

    ``request`` is the question of the row, whose contract its price is of.
    """
    contract = str(row.get("contract") or Contract.ON_DEMAND)
    contracts = [name for name in dict.fromkeys([contract, *_CONTRACTS]) if name not in _NO_KIND]
    needs = GpuNeeds(gpus=np.array([number_or_nan(row[NUM_GPUS])]), hours=np.ones(1))
    use = _share_of_year(row)
    options = options_of_needs(
        request, str(row["gpu"]), needs, contracts, priced=[contract], use=use
    )
    return [*options]


def _share_of_year(row: Row) -> float:
    """Return the share of a year that a run takes; 1: a service, or a longer run."""
    days = row.get("calendar_time_days") or row.get("time_to_train_days")
    return 1.0 if days is None else min(number_or_nan(days) * DAY / YEAR, 1.0)


@record(kw_only=True)
class GpuNeeds:
    """GPUs that are needed in each part of a time that repeats.

    Parameters
    ----------
    gpus : GPUs in each part
    hours : duration of each part [h]
    """

    gpus: FloatArray
    hours: FloatArray


def _needs(size: Size, fleet: FeasiblePlan) -> GpuNeeds:
    """Return the GPUs of a service over a day, with those that start."""
    if size.day is None:
        return GpuNeeds(gpus=np.array([float(fleet.num_gpus)]), hours=np.ones(1))
    paid = [part for hour in size.day.hours for part in hour.paid]
    hours, gpus = zip(*paid, strict=True)
    return GpuNeeds(gpus=np.array(gpus, dtype=float), hours=np.array(hours))


def options_of_needs(
    request: Request,
    gpu: str,
    needs: GpuNeeds,
    contracts: Sequence[str] = _CONTRACTS,
    *,
    priced: Collection[str] = (Contract.ON_DEMAND,),
    counts: Sequence[float | None] = (None, None),
    use: float = 1.0,
) -> Iterator[PurchaseOption]:
    """Yield the option of each contract with a price: GPUs paid all hours, others by the hour.

    ``priced`` are the contracts of the price of the request; ``counts`` the GPUs at the prediction
    and at 90 % confidence; ``use`` the share of the hours in which they are needed.
    """
    peak, least = float(needs.gpus.max()), float(needs.gpus.min())
    predicted, at_90 = counts

    def site_of(contract: str) -> OperatingTerms | None:
        price = request.price if contract in priced else None
        question = replace(request, gpu=gpu, contract=contract, num_gpus=round(peak), price=price)
        try:
            return make_plan(question).problem.sources[0].site
        except PlannerError:
            return None

    rent = site_of(Contract.ON_DEMAND)
    hourly = math.inf if rent is None or rent.offer is None else rent.charged_price * HOUR
    for contract in contracts:
        site = rent if contract == Contract.ON_DEMAND else site_of(contract)
        if site is None or (offer := site.offer) is None:
            continue
        # A run is charged for hours without work, too; here all hours are paid.
        share = offer.in_use if use < 1 else 1.0
        price, held = share * (site.price if use < 1 else site.charged_price) * HOUR, least
        if contract != Contract.ON_DEMAND:
            terms = GpuType(stock=math.inf, base=price, hourly=hourly)
            held = base_gpus_and_cost(needs.gpus, needs.hours, terms)[0]
        if held == 0 and contract != Contract.ON_DEMAND:
            continue
        paid = float(site.had(round(held))) if held else 0.0
        beyond = np.maximum(needs.gpus - paid, 0.0) @ needs.hours / needs.hours.sum()
        yield PurchaseOption(
            gpu=gpu, contract=contract, num_gpus=paid, used=peak, use=use,
            hourly_gpus=float(beyond), hourly_price=hourly if beyond else 0.0,
            price=price, low=share * offer.low * HOUR, high=share * offer.high * HOUR,
            term=number_or_nan(offer.term) / YEAR if math.isfinite(offer.term) else 1.0,
            outlay=(offer.outlay or 0.0) * paid, running=(offer.running or 0.0) * HOUR * paid,
            predicted=predicted, at_90=at_90, offers=offer.offers, date=offer.when,
            basis=offer.basis, doubts="; ".join(offer.doubts),
        )  # fmt: skip


def other_precision(request: Request, size: Size) -> dict[str, float]:
    """Return the GPUs that a service takes in another number format, by its name.

    Empty if the format was specified, or the other one does not keep the limits.
    """
    fleet = size.cheapest or size.fewest
    if fleet is None or QUANTIZATION not in fleet.chosen:
        return {}
    name = "fp8" if fleet.row[QUANTIZATION] == _BF16 else _BF16
    settings = {**request.settings, QUANTIZATION: (name,)}
    question = replace(
        request, gpu=size.gpu, contract=size.contract or None, num_gpus=None, settings=settings
    )
    try:
        sized = serving_size(question, Searches((question.one_contract,)))
    except PlannerError:
        return {}
    other = sized.cheapest or sized.fewest
    return {} if other is None else {name: float(other.num_gpus)}
