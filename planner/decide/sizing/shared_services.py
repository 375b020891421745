"""Place several services on a shared stock of GPU types at the lowest total cost."""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from planner.base import formatting
from planner.base.arrays import FloatArray
from planner.base.csv_cells import Value, rows_to_columns
from planner.base.records import record
from planner.base.units import HOUR
from planner.decide.sizing.autoscaling import AT_ONCE, Startup
from planner.decide.sizing.daily_schedule import DAYS_PER_MONTH, HourlyPrices
from planner.decide.sizing.day_search import cheapest_contracts
from planner.decide.sizing.fleet import FeasiblePlan
from planner.decide.sizing.load_profile import HOURS, LoadProfile, read_load
from planner.decide.sizing.size import Size
from planner.decide.sizing.size_all import (
    Progress,
    current_gpus,
    size_all,
    with_default_confidence,
)
from planner.errors import InfeasibleError, PlannerError, SearchSpaceError, did_you_mean
from planner.question.names import BUDGET, LOAD, SERVICES, STOCK
from planner.question.parse_values import (
    format_input,
    full_name,
    parse_by_gpu,
    parse_int,
    split_items,
)
from planner.question.request import ALL, Request
from planner.question.terms import terms_of
from planner.specs.catalogue import Catalogue
from planner.specs.spec_files import read_toml
from planner.specs.spec_paths import SpecKind
from planner.workloads.build_request import OptionNamer, make_request

if TYPE_CHECKING:
    import pandas as pd


# Limit of a search with weak bounds; its best result so far is the answer.
_MOST_LOOKED_AT = 50_000


@record(kw_only=True)
class GpuType:
    """A type of GPU: how many there are, and USD per GPU and hour held all day and by the hour."""

    stock: float
    base: float
    hourly: float


@record(kw_only=True)
class Allocation:
    """The way of each service by its place, what all cost, and GPUs beyond the stock.

    ``is_proven``: all ways were looked at, or could be no better.
    """

    places: tuple[int, ...]
    cost: float
    beyond: float
    is_proven: bool


ServiceOption: TypeAlias = Mapping[int, FloatArray]
"""GPUs of a service in each part of the day, by the place of their type."""


def base_gpus_and_cost(gpus: FloatArray, hours: FloatArray, gpu_type: GpuType) -> tuple[int, float]:
    r"""Return the GPUs to pay all day and the cost of the day if ``gpus`` are needed in its parts.

    .. math:: \sum_k \min(H p_b, u_k p_h)

    The k-th GPU is needed for u of H hours, and is paid all day if that costs less (derived here).

    >>> gpu_type = GpuType(stock=9, base=1, hourly=3)
    >>> base_gpus_and_cost(np.array([2.0, 6.0]), np.array([12.0, 12.0]), gpu_type)
    (6, 144.0)
    """
    levels = np.unique(np.concatenate([[0.0], gpus]))
    needed = np.array([hours[gpus >= level].sum() for level in levels[1:]])
    each = np.minimum(hours.sum() * gpu_type.base, needed * gpu_type.hourly)
    is_held = hours.sum() * gpu_type.base < needed * gpu_type.hourly
    return int(levels[1:][is_held].max(initial=0)), float((np.diff(levels) * each).sum())


def cheapest_allocation(
    ways: Sequence[Sequence[ServiceOption]], hours: FloatArray, types: Sequence[GpuType]
) -> Allocation:
    """Choose one way per service: fewest GPUs beyond the stock, then the lowest cost [USD/day].

    Skips combinations that cannot be better (branch and bound; derived here), since both values
    only grow with another service.
    """
    search = _BranchAndBound(ways=ways, hours=hours, types=types)
    order = sorted(range(len(ways)), key=lambda service: -search.lowest_costs[service])
    search.branch(order, [np.zeros_like(hours) for _ in types], 0.0, ())
    chosen = dict(zip(order, search.chosen, strict=True))
    return Allocation(
        places=tuple(chosen[service] for service in range(len(ways))),
        cost=search.best[1],
        beyond=search.best[0],
        is_proven=search.looked_at < _MOST_LOOKED_AT,
    )


@dataclass
class _BranchAndBound:
    """Branch and bound over the ways of services."""

    ways: Sequence[Sequence[ServiceOption]]
    hours: FloatArray
    types: Sequence[GpuType]
    best: tuple[float, float] = (math.inf, math.inf)
    chosen: tuple[int, ...] = ()
    looked_at: int = 0

    @cached_property
    def costs(self) -> list[list[float]]:
        """Return a lower bound of the cost of each way of each service [USD/day]."""
        cheapest = [min(gpu_type.base, gpu_type.hourly) for gpu_type in self.types]
        return [
            [sum(float((gpus * self.hours).sum()) * cheapest[index] for index, gpus in way.items())
             for way in ways]
            for ways in self.ways
        ]  # fmt: skip

    @cached_property
    def lowest_costs(self) -> list[float]:
        """The same of the cheapest way of each service."""
        return [min(costs) for costs in self.costs]

    def branch(
        self, left: Sequence[int], used: list[FloatArray], paid: float, places: tuple[int, ...]
    ) -> None:
        """Try the ways of the services ``left``; ``used``: GPUs of each type already assigned."""
        self.looked_at += 1
        pairs = [*zip(used, self.types, strict=True)]
        cost = sum(base_gpus_and_cost(gpus, self.hours, gpu_type)[1] for gpus, gpu_type in pairs)
        beyond = sum(max(float(gpus.max()) - gpu_type.stock, 0.0) for gpus, gpu_type in pairs)
        bound = beyond, max(cost, paid + sum(self.lowest_costs[service] for service in left))
        is_enough = self.looked_at >= _MOST_LOOKED_AT and self.chosen
        if bound >= self.best or is_enough:
            return
        if not left:
            self.best, self.chosen = (beyond, cost), places
            return
        service, *others = left
        costs = self.costs[service]
        for way in sorted(range(len(costs)), key=costs.__getitem__):
            more = [*used]
            for index, gpus in self.ways[service][way].items():
                more[index] = more[index] + gpus
            self.branch(others, more, paid + costs[way], (*places, way))


MOST_SERVICES = 16
# Shares of a service's requests on one of two types of GPUs.
_PARTS = (0.25, 0.5, 0.75)


@record(kw_only=True)
class Service:
    """A service.

    Parameters
    ----------
    name : name
    request : planning question
    load : request rate over a day; None: constant
    """

    name: str
    request: Request
    load: LoadProfile | None = None

    @property
    def peak(self) -> float:
        """The greatest request rate [1/s]."""
        return self.load.peak if self.load else self.request.request_rate or 0.0

    @property
    def starts(self) -> list[float]:
        """The starts of the periods of the load [h]."""
        return [period.start for period in self.load.periods] if self.load else [0.0]

    def of_share(self, part: float) -> Service:
        """Return the service with a share of its requests.

        Parameters
        ----------
        part : share of the requests, 0 to 1
        """
        if part == 1:
            return self
        if self.load is None:
            return replace(self, request=replace(self.request, request_rate=part * self.peak))
        periods = [
            replace(period, request_rate=part * period.request_rate) for period in self.load.periods
        ]
        return replace(self, load=replace(self.load, periods=tuple(periods)))


@record(kw_only=True)
class ServiceShare:
    """Part of a service on one type of GPU.

    Parameters
    ----------
    gpu : name of the GPU
    share : share of the requests
    size : size for this share
    """

    gpu: str
    share: float
    size: Size

    @property
    def peak(self) -> FeasiblePlan:
        """The fleet of this part at the peak."""
        return peak_plan(self.size)


@record(kw_only=True)
class ServicePlacement:
    """Placement of a service on types of GPUs.

    Parameters
    ----------
    service : service
    parts : share of the requests on each type
    sizes : size of the service with all requests on one type, by type
    standalone_costs : cost of a day with all requests on one type and unshared GPUs, by type
        [USD]; NaN: does not run
    """

    service: Service
    parts: tuple[ServiceShare, ...]
    sizes: Mapping[str, Size]
    standalone_costs: Mapping[str, float]

    @property
    def gpus(self) -> tuple[str, ...]:
        """The types of GPUs of the service."""
        return tuple(part.gpu for part in self.parts)


@record(kw_only=True)
class GpuPool:
    """Pool of GPUs of one type.

    Parameters
    ----------
    gpu : name of the GPU
    stock : GPUs that exist; infinite: no limit
    terms : price of the GPUs
    gpus : GPUs of all services in each part of the day
    hours : hours of each part of the day
    held : GPUs that are paid all day
    cost : cost of a day [USD]; NaN: unknown price
    of_peaks : sum of the services' peaks [GPUs]
    """

    gpu: str
    stock: float
    terms: HourlyPrices
    gpus: tuple[float, ...]
    hours: tuple[float, ...]
    held: int
    cost: float
    of_peaks: int

    @property
    def peak_gpus(self) -> int:
        """The most GPUs of the pool that are needed at once."""
        return round(max(self.gpus))

    @property
    def gpu_hours(self) -> float:
        """GPU-hours of a day that are paid."""
        beyond = (h * max(n - self.held, 0) for n, h in zip(self.gpus, self.hours, strict=True))
        return HOURS * self.held + sum(beyond)

    @property
    def row(self) -> dict[str, Value]:
        """Return the pool as result columns; None: unknown or unlimited."""
        return {
            "gpu": self.gpu,
            STOCK: self.stock if math.isfinite(self.stock) else None,
            "most_gpus": self.peak_gpus,
            "base_gpus": self.held,
            "gpu_hours": self.gpu_hours,
            "cost_usd": self.cost,
            "base_contract": self.terms.base_contract,
            "hourly_contract": self.terms.hourly_contract,
        }


@record(kw_only=True, repr=False)
class SharedFleet:
    """Services on shared GPUs, with the pool of each type of GPU.

    Parameters
    ----------
    placements : types of GPUs of each service
    pools : pool of each type of GPU
    request : fields that all services have in common
    is_proven : no other placement costs less
    of_one_type : cost of a day with all services on one type, ignoring its stock, by type [USD];
        types that cannot run a service are left out
    """

    placements: tuple[ServicePlacement, ...]
    pools: tuple[GpuPool, ...]
    request: Request
    is_proven: bool
    of_one_type: Mapping[str, float]

    def __repr__(self) -> str:
        """Return a short text with the GPU types of each service."""
        where = ", ".join(
            f"{placement.service.name} on {'+'.join(placement.gpus)}"
            for placement in self.placements
        )
        return f"<SharedFleet: {where}>"

    @property
    def num_gpus(self) -> int:
        """The most GPUs of all types that are needed at once."""
        return sum(pool.peak_gpus for pool in self.pools)

    @property
    def cost(self) -> float:
        """Cost of a day [USD]."""
        return sum(pool.cost for pool in self.pools)

    @property
    def cost_per_month(self) -> float:
        """Cost of a twelfth of a year [USD]."""
        return self.cost * DAYS_PER_MONTH

    @cached_property
    def rows(self) -> list[dict[str, Value]]:
        """A row for each service on each type of GPU, with the ``share`` that it has there."""
        return [row for placement in self.placements for row in _rows(placement)]

    @cached_property
    def table(self) -> Mapping[str, list[Value]]:
        """The rows as columns; what a row lacks is None."""
        return rows_to_columns(self.rows)

    def to_frame(self) -> pd.DataFrame:
        """A row for each service on each type of GPU: the plan's columns in full."""
        import pandas as pd

        return pd.DataFrame(self.table)


def peak_plan(size: Size) -> FeasiblePlan:
    """Return the fleet of a size at its peak load; raises ValueError if it has no plan."""
    fleet = size.day.peak if size.day else size.cheapest or size.fewest
    if fleet is None:
        raise ValueError(f"{size.gpu} has no plan.")
    return fleet


def _rows(placement: ServicePlacement) -> Iterator[dict[str, Value]]:
    """Yield a result row per GPU type: share of the requests, cost alone [USD/day] and plan."""
    parts = {part.gpu: part for part in placement.parts}
    for gpu, whole_size in placement.sizes.items():
        part = parts.get(gpu)
        size = part.size if part else whole_size
        cost = placement.standalone_costs[gpu]
        head: dict[str, Value] = {
            "service": placement.service.name,
            "gpu": gpu,
            "share": part.share if part else 0.0,
            "peak_request_rate": placement.service.peak * (part.share if part else 1.0),
            "feasible": size.fewest is not None,
            "reason": size.reason,
            "alone_per_day_usd": cost if math.isfinite(cost) else None,
        }
        if size.fewest is not None:
            confidence = with_default_confidence(placement.service.request).limit_confidence
            head |= size.peak_gpus_by_confidence(confidence) | {"confidence": confidence}
            head |= {name: value for name, value in peak_plan(size).row.items() if name not in head}
        yield head


def read_stock(value: object, option_name: str = STOCK) -> dict[str, int]:
    """Parse the GPUs of each type (``h100=64,b200=32``, or a mapping); or SearchSpaceError."""
    wrong = f"{option_name} is the number of each GPU, as in h100=64,b200=32."
    stock = {}
    for name, number in parse_by_gpu(value, option_name, wrong).items():
        if number == "":
            raise SearchSpaceError(wrong)
        stock[name] = parse_int(number, f"{option_name} of {name}", 1)
    return stock


def refuse_single_service_options(names: Collection[str], option_name: OptionNamer = str) -> None:
    """Raise SearchSpaceError if ``names`` has an option that is only for one service."""
    for name in (LOAD, BUDGET, "num_gpus", "plot"):
        if name in names:
            raise SearchSpaceError(f"{option_name(name)} is of one service, not several.")


def read_services(
    source: str | os.PathLike[str] | Mapping[str, object],
    common: Mapping[str, object],
    option_name: OptionNamer = str,
) -> tuple[tuple[Service, ...], dict[str, int]]:
    """Read the services of a TOML file or of a mapping like it, and the stock of GPUs by type.

    ``[services.NAME]`` has the answers of a service: ``model``, ``request_rate`` or ``load`` (a CSV
    file in the same folder), lengths, limits. Top-level answers apply to all services; ``common``
    has precedence over both.

    Raises SpecError or SearchSpaceError if the file cannot be read; something is unknown, missing
    or impossible.
    """
    folder = Path() if isinstance(source, Mapping) else Path(source).parent
    table = source if isinstance(source, Mapping) else read_toml(Path(source))
    tables = _mapping(table.get(SERVICES))
    if not tables or not all(isinstance(answers, Mapping) for answers in tables.values()):
        raise SearchSpaceError(
            f"Give a table for each service, such as [{SERVICES}.chat] with model and request_rate."
        )
    if len(tables) > MOST_SERVICES:
        raise SearchSpaceError(f"At most {MOST_SERVICES} services share GPUs, not {len(tables)}.")
    shared = {name: value for name, value in table.items() if name not in (SERVICES, STOCK)}
    services, errors = [], list[str]()
    for name, answers in tables.items():
        try:
            answers = {**shared, **_mapping(answers)}
            services.append(_service(str(name), answers, common, folder, option_name))
        except SearchSpaceError as error:
            errors += [f"{name}: {line}" for line in str(error).splitlines()]
    if errors:
        raise SearchSpaceError("\n".join(errors))
    return tuple(services), read_stock(table.get(STOCK, {}))


def _service(
    name: str,
    answers: Mapping[str, object],
    common: Mapping[str, object],
    folder: Path,
    option_name: OptionNamer,
) -> Service:
    """Parse a service of the file; raises SearchSpaceError if a name or the load is wrong."""
    limits, terms = terms_of("serve", "limit"), terms_of("serve", "question", "parameter")
    questions = {name: term for name, term in terms.items() if "question" in term.kind}
    service_answers: dict[str, object] = {**common}
    bounds = {**_mapping(common.get("constraints"))}
    load = None
    for key, value in answers.items():
        full = full_name(key, {**limits, **questions})
        if key == LOAD:
            sibling = folder / str(value)
            load = read_load(sibling if sibling.exists() else Path(str(value)))
        elif full in questions or key == "settings":
            service_answers[full if full in questions else key] = value
        elif full in limits:
            bounds[full] = value
        else:
            hint = did_you_mean(key, [*questions, *limits, LOAD])
            raise SearchSpaceError(f"Unknown question or limit {format_input(key)}.{hint}")
    request = make_request(
        {**service_answers, "workload": "serve", "constraints": bounds}, option_name=option_name
    )
    if load is None and request.request_rate is None:
        raise SearchSpaceError(f"Say what it must serve: request_rate or {LOAD}.")
    return Service(name=name, request=replace(request, contract=None), load=load)


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}


def share_gpus(
    services: Sequence[Service],
    stock: Mapping[str, int],
    contracts: Sequence[str | None] = (None,),
    *,
    startup: Startup = AT_ONCE,
    option_name: OptionNamer = str,
    progress: Progress | None = None,
    workers: int = 1,
) -> SharedFleet:
    """Place services on the GPUs of a stock at the lowest total cost.

    A service runs on one type of GPU or, if the stock is too small, on two types that share its
    requests in quarters. A type without a stock is unlimited; without stock and GPU, all current
    data-center GPUs are tried. Costs are per day: GPUs needed most of the day have the cheapest
    long contract, others are paid by the hour.

    Raises SpecError or SearchSpaceError if something is unknown, faulty or impossible;
    InfeasibleError if a service runs on none of the types, or the stock is too small for all.
    """
    first = services[0].request
    names = _gpu_names(services, stock)
    amounts = {_spec_name(first, gpu): number for gpu, number in stock.items()}
    terms = {
        gpu: cheapest_contracts(replace(first, gpu=gpu, request_rate=1.0), contracts)
        for gpu in names
    }
    if unknown := [gpu for gpu in names if math.isnan(terms[gpu].base)]:
        raise SearchSpaceError(f"The price of {', '.join(unknown)} is unknown: give --price.")
    starts = sorted({start for service_on_gpus in services for start in service_on_gpus.starts})
    hours = np.diff([*starts, HOURS])
    types = [
        GpuType(
            stock=amounts.get(gpu, math.inf),
            base=terms[gpu].base * HOUR,
            hourly=terms[gpu].hourly * HOUR,
        )
        for gpu in names
    ]

    def sizes_of(service: Service, part: float) -> list[Size]:
        """Size a share of the requests of a service (``part``, 0 to 1) on each type of GPU."""
        request = replace(service.of_share(part).request, gpu=names)
        load = service.of_share(part).load
        try:
            allocation = size_all(
                request,
                contracts if load else (None,),
                load=load,
                startup=startup if load else AT_ONCE,
                option_name=option_name,
                workers=workers,
            ).sizes
        except PlannerError as error:
            raise type(error)(f"{service.name}: {error}") from error
        by_gpu = {_spec_name(first, size.gpu): size for size in allocation}
        return [by_gpu[gpu] for gpu in names]

    whole_sizes = []
    for number, service in enumerate(services, start=1):
        whole_sizes.append(sizes_of(service, 1.0))
        if all(size.fewest is None for size in whole_sizes[-1]):
            why = "; ".join(f"{size.gpu}: {size.reason}" for size in whole_sizes[-1])
            raise InfeasibleError(f"{service.name} runs on none of the GPUs: {why}")
        if progress is not None:
            progress(number)
    splits = [
        [[(index, 1.0, size)] for index, size in enumerate(sizes) if size.fewest]
        for sizes in whole_sizes
    ]

    def allocated() -> Allocation:
        """Choose the cheapest of the ways to place each service listed in ``splits``."""
        ways = [
            [
                {index: _needed_gpus(size, starts) for index, _, size in split}
                for split in of_service
            ]
            for of_service in splits
        ]
        return cheapest_allocation(ways, hours, types)

    allocation = allocated()
    if allocation.beyond and len(names) > 1:
        for service, of_service in zip(services, splits, strict=True):
            of_service += _split_on_two_types({part: sizes_of(service, part) for part in _PARTS})
        allocation = allocated()
    chosen = [of_service[way] for of_service, way in zip(splits, allocation.places, strict=True)]
    placements = tuple(
        ServicePlacement(
            service=service,
            parts=tuple(
                ServiceShare(gpu=names[index], share=part, size=size) for index, part, size in split
            ),
            sizes=dict(zip(names, sizes, strict=True)),
            standalone_costs={
                gpu: base_gpus_and_cost(_needed_gpus(size, starts), hours, gpu_type)[1]
                if size.fewest
                else math.nan
                for gpu, size, gpu_type in zip(names, sizes, types, strict=True)
            },
        )
        for service, split, sizes in zip(services, chosen, whole_sizes, strict=True)
    )
    needs = [
        [
            _needed_gpus(size, starts)
            for split in chosen
            for index, _, size in split
            if index == number
        ]
        for number in range(len(names))
    ]
    pools = tuple(
        _pool(gpu, gpu_type, terms[gpu], hours, type_needs)
        for gpu, gpu_type, type_needs in zip(names, types, needs, strict=True)
        if type_needs
    )
    if allocation.beyond:
        raise InfeasibleError(_too_small(pools, placements))
    of_one_type = {
        gpu: _pool(
            gpu, gpu_type, terms[gpu], hours, [_needed_gpus(size, starts) for size in sizes]
        ).cost
        for gpu, gpu_type, sizes in zip(names, types, zip(*whole_sizes, strict=True), strict=True)
        if all(size.fewest for size in sizes)
    }
    return SharedFleet(
        placements=placements,
        pools=pools,
        request=first,
        is_proven=allocation.is_proven,
        of_one_type=of_one_type,
    )


def _split_on_two_types(
    sizes: Mapping[float, Sequence[Size]],
) -> list[list[tuple[int, float, Size]]]:
    """Return each way to split the requests of a service between two types of GPUs."""
    types = range(len(next(iter(sizes.values()))))
    return [
        [(first, part, sizes[part][first]), (second, 1 - part, sizes[1 - part][second])]
        for first, second in combinations(types, 2)
        for part in sizes
        if sizes[part][first].fewest and sizes[1 - part][second].fewest
    ]


def _gpu_names(services: Sequence[Service], stock: Mapping[str, int]) -> tuple[str, ...]:
    """Return the GPU types to try: those in requests, or else in the stock, or else current."""
    gpus = [service.request.gpu for service in services if service.request.gpu is not None]
    named = [str(name) for gpu in gpus for name in split_items(gpu, "gpu")]
    catalogue = Catalogue(services[0].request.specs)
    names = named or [*stock] or [*current_gpus(catalogue)]
    if ALL in names:
        names = [gpu for gpu in catalogue.gpus_on_hand() if catalogue.price(gpu) is not None]
    spec_names = [catalogue.find(SpecKind.GPUS, name).stem for name in [*names, *stock]]
    return tuple(dict.fromkeys(spec_names))


def _spec_name(request: Request, gpu: str) -> str:
    """The name of the spec of a GPU."""
    return Catalogue(request.specs).find(SpecKind.GPUS, gpu).stem


def _needed_gpus(size: Size, starts: Sequence[float]) -> FloatArray:
    """Return how many GPUs a service needs in each part of the day, from ``starts`` [h] on."""
    if size.day is None:
        return np.full(len(starts), float(peak_plan(size).num_gpus))
    begins = [hour.period.start for hour in size.day.hours]
    gpus = np.array([float(hour.num_gpus) for hour in size.day.hours])
    return gpus[np.searchsorted(begins, starts, side="right") - 1]


def _pool(
    gpu: str, gpu_type: GpuType, terms: HourlyPrices, hours: FloatArray, needs: Sequence[FloatArray]
) -> GpuPool:
    """Return the pool of all GPUs of one type, with the cost of a day for the sum of the needs."""
    together = np.sum(needs, axis=0)
    held, cost = base_gpus_and_cost(together, hours, gpu_type)
    return GpuPool(
        gpu=gpu,
        stock=gpu_type.stock,
        terms=terms,
        gpus=tuple(together.tolist()),
        hours=tuple(hours.tolist()),
        held=held,
        cost=cost,
        of_peaks=round(sum(float(gpus.max()) for gpus in needs)),
    )


def _too_small(pools: Sequence[GpuPool], placements: Sequence[ServicePlacement]) -> str:
    """Say which GPUs the stock lacks at least, and on which GPUs the services would run."""
    lacking = [
        f"{formatting.format_count(pool.peak_gpus - pool.stock)} more {pool.gpu} than "
        f"{formatting.format_count(pool.stock)}"
        for pool in pools
        if pool.peak_gpus > pool.stock
    ]
    where = ", ".join(
        f"{placement.service.name} on {formatting.format_count(part.peak.num_gpus)} {part.gpu}"
        for placement in placements
        for part in placement.parts
    )
    return (
        f"The stock is too small: at best it takes {', '.join(lacking)} ({where}). Give more with "
        "--stock, or other GPUs with --gpu."
    )
