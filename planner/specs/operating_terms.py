"""Operating terms of GPUs: price, power, failures, interruptions; and API prices per token.

Parameters
----------
folder : folder of own spec files, searched first; None: working directory and shipped files
num_gpus : GPUs that are needed
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import date
from pathlib import Path

import numpy as np

from planner.base.arrays import FloatArray, Numeric
from planner.base.csv_cells import Value
from planner.base.enums import Contract
from planner.base.records import record
from planner.base.units import DAY, HOUR
from planner.question.names import (
    CONTRACT_TERM,
    GPUS_SOLD_TOGETHER,
    PRICE_BASIS,
    PRICE_DATE,
    PRICE_DOUBTS,
    PRICE_OFFERS,
    PRICED_UTILIZATION,
    RENT_PER_GPU_HOUR,
)
from planner.question.terms import columns_about, glossary
from planner.specs.file_cache import cache_between_runs, cache_by_files
from planner.specs.hardware import LoadedSpec, load_spec
from planner.specs.power import PowerProfile
from planner.specs.price import Currency, Price
from planner.specs.software_profile import profile_table
from planner.specs.spec_files import (
    BytesPerSecond,
    Column,
    GpuSeconds,
    Ratio,
    Row,
    Seconds,
    Share,
    nonempty_text,
    number,
    optional,
    read_records,
    read_toml,
)
from planner.specs.spec_paths import SpecKind, aliases_of, api_price_files, find, names
from planner.specs.validated import validated

DEFAULT = "published"
_FREQUENCIES = ("gpu_hours_per_interruption", "gpu_hours_per_preemption", "campaign")


@validated
class Frequency:
    """GPU-time between two events of a kind, with the range of published figures.

    Parameters
    ----------
    typical : expected GPU-time between two events [GPU s]
    low : shortest published GPU-time between two events [GPU s]; None: ``typical``
    high : longest published GPU-time between two events [GPU s]; None: ``typical``
    """

    typical: GpuSeconds
    low: GpuSeconds | None = None
    high: GpuSeconds | None = None

    def __post_init__(self) -> None:
        if not self.end("low") <= self.typical <= self.end("high"):
            raise ValueError("low, typical and high must be in order")

    def end(self, name: str) -> float:
        """Return the ``low``, ``typical`` or ``high`` value [GPU-seconds].

        Parameters
        ----------
        name : ``low``, ``typical`` or ``high``
        """
        value = getattr(self, name)
        return self.typical if value is None else value


@validated
class Checkpoints:
    """Checkpoints of a training run.

    Parameters
    ----------
    bandwidth_per_node : write bandwidth of a node [bytes/s]; None: unlimited
    total_bandwidth : write bandwidth of the storage [bytes/s]; None: unlimited
    blocking_share : share of the write time in which training stops; 1: it waits for the end
    interval : training time between two checkpoints [s]; None: the interval with the least loss
    """

    bandwidth_per_node: BytesPerSecond | None = None
    total_bandwidth: BytesPerSecond | None = None
    blocking_share: Share = 1.0
    interval: Seconds | None = None


@validated
class Recovery:
    """Time of an interruption, without reading the checkpoint and repeating lost steps.

    Parameters
    ----------
    detection : time until the failure is noticed and located [s]
    restart : time until nodes are exchanged and all processes run again [s]
    warm_up : additional time of the first steps [s]
    """

    detection: Seconds = 0.0
    restart: Seconds = 0.0
    warm_up: Seconds = 0.0

    @property
    def total(self) -> float:
        """Sum of the times [s]."""
        return self.detection + self.restart + self.warm_up


@validated
class Stragglers:
    """GPUs or links that continue to work, but slowly.

    Parameters
    ----------
    gpu_hours_per_slowdown : GPU-time between two slowdowns [GPU s]
    duration : time until a slowdown is over or the node is exchanged [s]
    lost_share : share of its speed that the job loses during a slowdown
    """

    gpu_hours_per_slowdown: GpuSeconds
    duration: Seconds
    lost_share: Share


@validated
class Campaign:
    """GPU-hours of a pretraining campaign over those of its steps, checkpoints and failures.

    They include manual restarts, evaluations, slow nodes, repeated parts, and hours in which a job
    holds its GPUs before it trains.

    Parameters
    ----------
    typical : median of published campaigns
    low : 5 % quantile of published campaigns
    high : 95 % quantile of published campaigns
    """

    typical: Ratio
    low: Ratio
    high: Ratio

    def __post_init__(self) -> None:
        if not 0 < self.low <= self.typical <= self.high:
            raise ValueError("low, typical and high must be above 0 and in order")


NO_CAMPAIGN = Campaign(typical=1.0, low=1.0, high=1.0)


@validated
class ReliabilitySpec:
    """Failures of a fleet and their handling in training; unspecified events do not happen.

    Parameters
    ----------
    name : name in reports
    gpu_hours_per_interruption : GPU-time between two interruptions of a job by failures of hardware
        or software, without planned maintenance; None: no interruptions
    gpu_hours_per_preemption : GPU-time between two preemptions of spot instances by the provider;
        only for spot contracts
    checkpoints : checkpoints of the run
    recovery : recovery from an interruption
    stragglers : slow GPUs or links
    campaign : further GPU-hours of a pretraining campaign; None: no further GPU-hours
    spare_share : standby nodes over nodes in use; whole nodes only
    aliases : other names
    notes : remarks
    """

    name: str
    gpu_hours_per_interruption: Frequency | None = None
    gpu_hours_per_preemption: Frequency | None = None
    checkpoints: Checkpoints = Checkpoints()
    recovery: Recovery = Recovery()
    stragglers: Stragglers | None = None
    campaign: Campaign | None = None
    spare_share: Share = 0.0
    aliases: tuple[str, ...] = ()
    notes: str = ""

    def gpu_time(self, kind: str, end: str) -> float:
        """Return GPU-seconds per interruption or preemption, at one end of the range.

        Parameters
        ----------
        kind : ``interruption`` or ``preemption``
        end : ``low``, ``typical`` or ``high``
        """
        frequency: Frequency | None = getattr(self, f"gpu_hours_per_{kind}")
        return math.inf if frequency is None else frequency.end(end)

    @property
    def is_ideal(self) -> bool:
        """Whether there are no interruptions, slowdowns or checkpoints."""
        return replace(self, name=IDEAL.name, aliases=(), notes="") == IDEAL


IDEAL = ReliabilitySpec(name="ideal")


@cache_between_runs
def load_reliability(name: str, folder: Path | None = None) -> LoadedSpec[ReliabilitySpec]:
    """Load reliability figures by name, alias or path; a file may use ``extends``.

    Raises SpecError if the figures are unknown, or the file or one that it extends has errors.

    Parameters
    ----------
    name : name, alias or path of the spec
    """
    path = find(SpecKind.RELIABILITY, name, folder)
    table, others = reliability_table(path, folder)
    return load_spec(ReliabilitySpec, table, path, *others)


def reliability_table(
    path: Path, folder: Path | None = None
) -> tuple[dict[str, object], tuple[Path, ...]]:
    """Return a file's tables merged over its parents (``extends``), and their files.

    A frequency is replaced with its range: the published range does not apply to the user's fleet.

    Raises SpecError if a file cannot be read, or extends itself or an unknown file.

    Parameters
    ----------
    path : file of the figures
    """
    table, others = profile_table(SpecKind.RELIABILITY, path, folder)
    file_table = read_toml(path)
    below = reliability_table(others[0], folder)[0] if others else {}
    for frequency in _FREQUENCIES:
        if nearest := file_table.get(frequency, below.get(frequency)):
            table[frequency] = nearest
    return table, others


@record(kw_only=True)
class OperatingTerms:
    """Price, power and reliability of the GPUs of a plan.

    Parameters
    ----------
    offer : price of a GPU; None: unknown
    contract : contract of the offer, or the requested one if there is no offer
    power : power model of node, network and building; None: unknown
    carbon_intensity : CO2 equivalent of electricity [kg/J]; NaN: unknown region
    reliability : failures of training runs
    utilization : share of the hours of the contract with work; None: a run is charged its whole
        contract, a service runs as long as its contract
    currency : currency of money in addition to USD
    is_compared : plans are compared with those under other contracts
    """

    offer: Price | None = None
    contract: str = Contract.ON_DEMAND
    power: PowerProfile | None = None
    carbon_intensity: float = math.nan
    reliability: ReliabilitySpec = IDEAL
    utilization: float | None = None
    currency: Currency | None = None
    is_compared: bool = False

    def __post_init__(self) -> None:
        if self.offer is not None:
            object.__setattr__(self, "contract", self.offer.contract)

    @property
    def is_placed(self) -> bool:
        """Whether the carbon intensity of the electricity is known."""
        return not math.isnan(self.carbon_intensity)

    @property
    def price(self) -> float:
        """Price of a GPU [USD/s]; NaN: unknown."""
        return math.nan if self.offer is None else self.offer.value

    def had(self, num_gpus: Numeric) -> FloatArray:
        """Return the GPUs to pay for ``num_gpus``: full racks, nodes or instances."""
        step = 1 if self.offer is None else self.offer.step
        return np.asarray(np.ceil(np.asarray(num_gpus) / step) * step)

    @property
    def charged_price(self) -> float:
        """Price of a GPU in use [USD/s], unused contract hours included."""
        price = self.price
        if self.offer is not None and self.offer.is_signed and self.utilization is not None:
            price *= self.offer.in_use / self.utilization
        return price

    def rate(self, num_gpus: Numeric) -> FloatArray:
        """Return the cost of ``num_gpus`` GPUs in use [USD/s], for a full contract term."""
        return self.had(num_gpus) * self.charged_price

    @property
    def follows_time(self) -> bool:
        """Whether a longer run costs more; False: a long term is charged in full."""
        has_work = self.utilization is not None
        return self.offer is None or not self.offer.term > DAY or has_work

    @property
    def columns(self) -> Mapping[str, Value]:
        """Return the result columns that all plans of the site share."""
        interval = (math.nan, math.nan)
        if self.offer is not None:
            interval = self.offer.low, self.offer.high
        return {
            "contract": str(self.contract),
            "provider": "" if self.offer is None else self.offer.provider,
            "price_per_gpu_hour_usd": self.price * HOUR,
            "price_low_per_gpu_hour_usd": interval[0] * HOUR,
            "price_high_per_gpu_hour_usd": interval[1] * HOUR,
        }

    @property
    def grounds(self) -> Mapping[str, Value]:
        """Return the result columns with the evidence of the price."""
        columns: dict[str, Value] = dict.fromkeys(columns_about("price_evidence"))
        if (offer := self.offer) is not None:
            rent = offer.value if offer.contract == Contract.ON_DEMAND else offer.on_demand
            evidence: dict[str, Value] = {
                PRICE_OFFERS: offer.offers,
                PRICE_DATE: offer.when,
                PRICE_BASIS: offer.basis,
                PRICE_DOUBTS: "; ".join(offer.doubts),
                RENT_PER_GPU_HOUR: math.nan if rent is None else rent * HOUR,
                GPUS_SOLD_TOGETHER: offer.step,
                CONTRACT_TERM: offer.term / DAY,
                PRICED_UTILIZATION: offer.in_use,
            }
            columns |= {glossary()[name].column: value for name, value in evidence.items()}
        if self.utilization is not None:
            columns["charged_utilization"] = self.utilization
        if (currency := self.currency) is not None:
            columns |= {"currency": currency.code, "usd_per_currency": currency.usd}
            columns["currency_date"] = currency.date
        return columns


_MILLION = 1e6
_MOST = 1e6
_DATE = re.compile(r"(<=)?(\d{4}-\d\d-\d\d)")
_OLD_AFTER_DAYS = 365


@record(kw_only=True)
class ApiPrice:
    """Price of one token of a model at one provider [USD], with its source and its date.

    Parameters
    ----------
    provider : seller of the API
    model : name of the model in the catalogue
    release : release of the architecture, such as DeepSeek-V3.1; empty: not specified
    served_as : name that the provider gives the model; it may name a precision or a tier
    input : price of an input token [USD]
    cached_input : price of an input token in the prefix cache [USD]; None: not published
    output : price of an output token [USD]
    source : page of the price
    date : day of the price; after ``<=``: the price is not newer
    is_old : more than a year older than the newest price of its list, or without a date
    """

    provider: str
    model: str
    release: str
    served_as: str
    input: float
    cached_input: float | None
    output: float
    source: str
    date: str
    is_old: bool = False


@cache_by_files
def api_prices(model: str, folder: Path | None = None) -> tuple[ApiPrice, ...]:
    """Return the API prices of a model by name or alias; empty if no list has the model.

    If several lists have prices of a provider, the first list counts: in ``folder``, in the working
    directory, then shipped.

    Raises SpecError if a list has errors, one line for each.

    Parameters
    ----------
    model : name or alias of the model
    """
    spec_name = _spec_name(model, folder)
    prices: list[ApiPrice] = []
    for path in api_price_files(folder):
        providers = {price.provider for price in prices}
        prices += [
            price
            for price in read_api_prices(path)
            if price.provider not in providers and _spec_name(price.model, folder) == spec_name
        ]
    return tuple(prices)


def of_release(prices: Sequence[ApiPrice], name: str) -> tuple[ApiPrice, ...]:
    """Return the prices of the release in a name; all prices if none has the release.

    The longest release that the name begins with counts, without its owner. Prices without a
    release are kept.

    Parameters
    ----------
    prices : prices of one model
    name : name of a model or checkpoint
    """
    word = _word(name.rpartition("/")[2])
    releases = {price.release for price in prices if price.release}
    matching = [release for release in releases if f"{word}-".startswith(f"{release}-")]
    if not matching:
        return tuple(prices)
    release = max(matching, key=len)
    return tuple(price for price in prices if price.release in ("", release))


def priced_models(folder: Path | None = None) -> list[str]:
    """Return the sorted models with API prices.

    Raises SpecError if a list has errors, one line for each.
    """
    return sorted(
        {price.model for path in api_price_files(folder) for price in read_api_prices(path)}
    )


@cache_between_runs
def read_api_prices(path: Path) -> Sequence[ApiPrice]:
    """Return the API prices of a file, in order.

    Raises SpecError with one line per error: file, line, problem.

    Parameters
    ----------
    path : file to read
    """
    prices = read_records(path, _TABLE, _price, once=("provider", "model", "served_as"))
    certain = {price.date for price in prices if price.date[:1].isdigit()}
    days = {word: date.fromisoformat(word).toordinal() for word in certain}
    youngest = max(days.values(), default=0) - _OLD_AFTER_DAYS
    old = {word for word, day in days.items() if day < youngest}
    return tuple(
        replace(price, is_old=price.date in old or price.date.startswith("<=")) for price in prices
    )


def _spec_name(name: str, folder: Path | None) -> str:
    """Return the spec name of a name or alias; the lower-case name if there is no spec."""
    word = _word(name)
    if word in names(SpecKind.MODELS, folder):
        return word
    return aliases_of(SpecKind.MODELS, folder).get(word, word)


def _word(name: str) -> str:
    return re.sub(r"[\s_]+", "-", name.strip().lower())


def _price(row: Row) -> ApiPrice:
    """Return the API price in one row of the table [USD per million tokens]."""
    return ApiPrice(
        provider=row["provider"],
        model=row["model"],
        release=row["release"],
        served_as=row["served_as"] or row["model"],
        input=row["input_usd_per_mtok"],
        cached_input=row["cached_input_usd_per_mtok"],
        output=row["output_usd_per_mtok"],
        source=row["source"] or "given",
        date=row["date"],
    )


def _amount(cell: str, column: str) -> float:
    """Return USD per token from a cell in USD per million tokens."""
    amount = number(nonempty_text(cell, column), column)
    if amount >= _MOST:
        raise ValueError(f"{column} {cell} is not a price in USD per million tokens")
    return amount / _MILLION


def _date(cell: str, column: str) -> str:
    """Return a date cell, empty or YYYY-MM-DD (also with <=); raise ValueError for other text."""
    match = _DATE.fullmatch(cell)
    with suppress(ValueError):
        if not cell or (match and date.fromisoformat(match[2])):
            return cell
    raise ValueError(f"{column} {cell!r} is not YYYY-MM-DD, nor <=YYYY-MM-DD")


_TABLE = (
    Column("provider", nonempty_text, needed=True),
    Column("model", nonempty_text, needed=True),
    Column("release"),
    Column("served_as"),
    Column("input_usd_per_mtok", _amount, needed=True),
    Column("cached_input_usd_per_mtok", optional(_amount)),
    Column("output_usd_per_mtok", _amount, needed=True),
    Column("source"),
    Column("date", _date),
)
COLUMNS = tuple(column.name for column in _TABLE)
