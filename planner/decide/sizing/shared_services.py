"""Place several services and jobs on a shared stock of GPU types at the lowest total cost."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from planner.base.arrays import FloatArray
from planner.base.csv_cells import Value, number_or_nan, rows_to_columns
from planner.base.formatting import format_count, format_kw, format_percent
from planner.base.records import record
from planner.base.units import DAY, HOUR, KILOWATT
from planner.decide.sizing.allocation import (
    Allocation,
    GpuType,
    JobOption,
    Way,
    base_gpus_and_cost,
    cheapest_allocation,
)
from planner.decide.sizing.autoscaling import AT_ONCE, HOURS, Startup
from planner.decide.sizing.daily_schedule import DAYS_PER_MONTH, HourlyPrices
from planner.decide.sizing.day_search import cheapest_contracts
from planner.decide.sizing.fleet import FeasiblePlan
from planner.decide.sizing.purchase import UNCHANGED, PriceChange
from planner.decide.sizing.services import Job, JobPlan, Service, job_plans
from planner.decide.sizing.size import GPUS_BY_CONFIDENCE, Budget, Size
from planner.decide.sizing.size_all import Progress, current_gpus, size_all, with_default_confidence
from planner.errors import InfeasibleError, PlannerError, SearchSpaceError
from planner.question.names import STOCK
from planner.question.parse_values import split_items
from planner.question.request import ALL, Request
from planner.specs.catalogue import Catalogue
from planner.specs.spec_paths import SpecKind
from planner.workloads.build_request import OptionNamer

if TYPE_CHECKING:
    import pandas as pd


# Shares of a service's requests on one of two types of GPUs.
_PARTS = (0.25, 0.5, 0.75)
_DAYS_PER_WEEK = 7


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
    hours_per_day : hours a day in which a job runs, in the mean; None: a service
    """

    service: Service
    parts: tuple[ServiceShare, ...]
    sizes: Mapping[str, Size]
    standalone_costs: Mapping[str, float]
    hours_per_day: float | None = None

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
    power_kw : highest power of all GPUs [kW]; NaN: unknown
    more_gpus : GPUs more at other confidences, by column of `GPUS_BY_CONFIDENCE`
    """

    gpu: str
    stock: float
    terms: HourlyPrices
    gpus: tuple[float, ...]
    hours: tuple[float, ...]
    held: int
    cost: float
    of_peaks: int
    power_kw: float = math.nan
    more_gpus: Mapping[str, float] = field(default_factory=dict)

    @property
    def peak_gpus(self) -> int:
        """The most GPUs of the pool that are needed at once."""
        return round(max(self.gpus))

    @property
    def gpu_hours(self) -> float:
        """GPU-hours of a day that are paid."""
        beyond = (h * max(n - self.held, 0) for n, h in zip(self.gpus, self.hours, strict=True))
        return HOURS * (self.held + sum(beyond) / sum(self.hours))

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
    on_one_type : pool with all services on one type, ignoring its stock, by type; types that cannot
        run a service are left out
    power_kw : highest power of all GPUs [kW]; NaN: unknown
    power_limit_kw : limit of the power [kW]
    budget : money that may be spent; None: no limit
    price_change : change of rental prices after the first year
    """

    placements: tuple[ServicePlacement, ...]
    pools: tuple[GpuPool, ...]
    request: Request
    is_proven: bool
    on_one_type: Mapping[str, GpuPool]
    power_kw: float = math.nan
    power_limit_kw: float = math.inf
    budget: Budget | None = None
    price_change: PriceChange = UNCHANGED

    def __repr__(self) -> str:
        """Return a short text with the GPU types of each service."""
        where = ", ".join(
            f"{placement.service.name} on {'+'.join(placement.gpus)}"
            for placement in self.placements
        )
        return f"<SharedFleet: {where}>"

    @property
    def of_one_type(self) -> dict[str, float]:
        """Cost of a day with all services on one type, by type [USD]."""
        return {gpu: pool.cost for gpu, pool in self.on_one_type.items()}

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
            "peak_request_rate": placement.service.peak * (part.share if part else 1.0) or None,
            "hours_per_day": placement.hours_per_day if part else None,
            "feasible": size.fewest is not None,
            "reason": size.reason,
            "alone_per_day_usd": cost if math.isfinite(cost) else None,
        }
        if size.fewest is not None:
            confidence = with_default_confidence(placement.service.request).limit_confidence
            head |= size.peak_gpus_by_confidence(confidence) | {"confidence": confidence}
            head |= {name: value for name, value in peak_plan(size).row.items() if name not in head}
        yield head


def share_gpus(
    services: Sequence[Service],
    stock: Mapping[str, int],
    contracts: Sequence[str | None] = (None,),
    *,
    power: float = math.inf,
    budget: Budget | None = None,
    price_change: PriceChange = UNCHANGED,
    startup: Startup = AT_ONCE,
    option_name: OptionNamer = str,
    progress: Progress | None = None,
    workers: int = 1,
) -> SharedFleet:
    """Place services and jobs on the GPUs of a stock at the lowest total cost.

    A service runs on one type of GPU or, if the stock is too small, on two types that share its
    requests in quarters. A job takes the hours in which services leave most GPUs. A type without a
    stock is unlimited; without stock and GPU, all current data-center GPUs are tried. Costs are per
    day: GPUs needed most of the time have the cheapest long contract, others are paid by the hour.
    All together draw at most ``power`` [W]; ``budget`` and ``price_change`` are of the ways to
    rent, reserve or own them.

    Raises SpecError or SearchSpaceError if something is unknown, faulty or impossible;
    InfeasibleError if a service runs on none of the types, or the stock or the power is too small
    for all.
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
    types = _Types(
        names=names,
        terms=terms,
        stock={gpu: float(amounts.get(gpu, math.inf)) for gpu in names},
        power=power / KILOWATT,
    )
    sizer = _Sizer(contracts, startup, option_name, workers)
    sizes_by_service, unsplit = list[dict[str, Size]](), list[list[_ServiceWay]]()
    for number, service in enumerate(services, start=1):
        sizes, ways = sizer.ways(service, names)
        if not ways:
            why = "; ".join(f"{gpu}: {size.reason}" for gpu, size in sizes.items())
            raise InfeasibleError(f"{service.name} runs on none of the GPUs: {why}")
        sizes_by_service.append(sizes)
        unsplit.append(ways)
        if progress is not None:
            progress(number)
    service_ways = unsplit
    grid = _Grid.of(services, service_ways)
    allocation = types.allocate(service_ways, grid)
    if allocation.beyond and len(names) > 1:
        service_ways = [
            [*ways, *(() if isinstance(service, Job) else sizer.splits(service, names))]
            for service, ways in zip(services, service_ways, strict=True)
        ]
        grid = _Grid.of(services, service_ways)
        allocation = types.allocate(service_ways, grid)
    chosen = [ways[place] for ways, place in zip(service_ways, allocation.places, strict=True)]
    pools = tuple(
        types.pool(gpu, [needs.get(index) for needs in allocation.needs], grid)
        for index, gpu in enumerate(names)
        if any(index in needs for needs in allocation.needs)
    )
    placements = tuple(
        ServicePlacement(
            service=service,
            parts=way.parts,
            sizes={**sizes, **{part.gpu: part.size for part in way.parts if part.share == 1}},
            standalone_costs={gpu: types.standalone_cost(gpu, ways, grid) for gpu in names},
            hours_per_day=None if way.job is None else way.job.hours_per_day,
        )
        for service, way, sizes, ways in zip(
            services, chosen, sizes_by_service, unsplit, strict=True
        )
    )
    power_kw = types.peak_power(allocation)
    if allocation.beyond:
        raise InfeasibleError(_too_small(pools, placements, power_kw, types.power))
    on_one_type = {gpu: types.on_one(gpu, unsplit, grid) for gpu in names}
    return SharedFleet(
        placements=placements,
        pools=pools,
        request=first,
        is_proven=allocation.is_proven,
        on_one_type={gpu: pool for gpu, pool in on_one_type.items() if pool is not None},
        power_kw=power_kw,
        power_limit_kw=types.power,
        budget=budget,
        price_change=price_change,
    )


@record(kw_only=True)
class _ServiceWay:
    """A way to place a service or a job: its parts, and the plan of a job."""

    parts: tuple[ServiceShare, ...]
    job: JobPlan | None = None


@record()
class _Sizer:
    """Sizes services and jobs on GPU types."""

    contracts: Sequence[str | None]
    startup: Startup
    option_name: OptionNamer
    workers: int

    def ways(
        self, service: Service, names: Sequence[str]
    ) -> tuple[dict[str, Size], list[_ServiceWay]]:
        """Return the size on each GPU type, and the ways to place all of the service on one."""
        if not isinstance(service, Job):
            sizes = self.sizes(service, 1.0, names)
            parts = [
                ServiceShare(gpu=gpu, share=1.0, size=size)
                for gpu, size in sizes.items()
                if size.fewest
            ]
            return sizes, [_ServiceWay(parts=(part,)) for part in parts]
        sizes, ways = dict[str, Size](), list[_ServiceWay]()
        for gpu in names:
            try:
                plans, reason = job_plans(service, gpu, self.startup)
            except PlannerError as error:
                raise type(error)(f"{service.name}: {error}") from error
            least = min(plans, key=lambda plan: plan.gpu_hours_per_day, default=None)
            sizes[gpu] = least.size if least else Size(gpu=gpu, contract="", reason=reason)
            ways += [
                _ServiceWay(parts=(ServiceShare(gpu=gpu, share=1.0, size=plan.size),), job=plan)
                for plan in plans
            ]
        return sizes, ways

    def sizes(self, service: Service, part: float, names: Sequence[str]) -> dict[str, Size]:
        """Size a share of the requests of a service (``part``, 0 to 1) on each type of GPU."""
        shared = service.of_share(part)
        try:
            sizes = size_all(
                with_default_confidence(replace(shared.request, gpu=tuple(names))),
                self.contracts if shared.load else (None,),
                load=shared.load,
                startup=self.startup if shared.load else AT_ONCE,
                option_name=self.option_name,
                workers=self.workers,
            ).sizes
        except PlannerError as error:
            raise type(error)(f"{service.name}: {error}") from error
        by_gpu = {_spec_name(shared.request, size.gpu): size for size in sizes}
        return {gpu: by_gpu[gpu] for gpu in names}

    def splits(self, service: Service, names: Sequence[str]) -> list[_ServiceWay]:
        """Return each way to split the requests of a service between two types of GPUs."""
        sizes = {part: self.sizes(service, part, names) for part in _PARTS}
        pairs = [
            (
                ServiceShare(gpu=first, share=part, size=sizes[part][first]),
                ServiceShare(gpu=second, share=1 - part, size=sizes[1 - part][second]),
            )
            for first, second in combinations(names, 2)
            for part in sizes
        ]
        return [
            _ServiceWay(parts=pair) for pair in pairs if all(share.size.fewest for share in pair)
        ]


@record()
class _Grid:
    """Parts of the time that repeats: a day, or a week with jobs that are rarer than daily.

    ``starts`` are those of a day [h].
    """

    starts: tuple[float, ...]
    days: int

    @classmethod
    def of(
        cls, services: Sequence[Service], service_ways: Sequence[Sequence[_ServiceWay]]
    ) -> _Grid:
        """Return the parts of all ways: between two starts nothing changes."""
        jobs = [service for service in services if isinstance(service, Job)]
        sizes = [part.size for ways in service_ways for way in ways for part in way.parts]
        starts = {start for size in sizes for start in _steps(size)[0]}
        starts |= {float(hour) for hour in range(int(HOURS))} if jobs else set()
        is_day = all(job.period <= DAY for job in jobs)
        return cls(tuple(sorted(starts)), 1 if is_day else _DAYS_PER_WEEK)

    @property
    def hours(self) -> FloatArray:
        """Duration of each part of the whole time [h]."""
        return np.tile(np.diff([*self.starts, HOURS]), self.days)

    def gpus(self, size: Size) -> FloatArray:
        """Return the GPUs that run for a service in each part, with those that start."""
        begins, counts = _steps(size)
        places = np.searchsorted(begins, self.starts, side="right") - 1
        return np.tile(np.array(counts)[places], self.days)


def _steps(size: Size) -> tuple[list[float], list[float]]:
    """Return the starts of the parts of a day [h] and the GPUs that run in them."""
    if size.day is None:
        return [0.0], [float(peak_plan(size).num_gpus) if size.fewest else 0.0]
    starts, counts = list[float](), list[float]()
    for hour in size.day.hours:
        start = hour.period.start
        for duration, gpus in hour.paid:
            starts.append(start)
            counts.append(float(gpus))
            start += duration
    return starts, counts


@record(kw_only=True)
class _Types:
    """The GPU types of a stock with their prices, and the power of all [kW]."""

    names: tuple[str, ...]
    terms: Mapping[str, HourlyPrices]
    stock: Mapping[str, float]
    power: float

    def needs(self, way: _ServiceWay, grid: _Grid) -> Way:
        """Return what a way takes of each GPU type and, after them, of the power [kW]."""
        place, end = {gpu: index for index, gpu in enumerate(self.names)}, len(self.names)
        watts = [number_or_nan(part.peak.row.get("power_kw")) for part in way.parts]
        counts = [float(part.peak.num_gpus) for part in way.parts]
        if way.job is not None:
            return JobOption(
                places=(place[way.parts[0].gpu], end),
                amounts=(counts[0], 0.0 if math.isnan(watts[0]) else watts[0]),
                hours=way.job.hours_per_day * grid.days,
            )
        gpus_by_type = {place[part.gpu]: grid.gpus(part.size) for part in way.parts}
        shares = [0.0 if math.isnan(kw) else kw / n for kw, n in zip(watts, counts, strict=True)]
        drawn = [share * gpus for share, gpus in zip(shares, gpus_by_type.values(), strict=True)]
        return {**gpus_by_type, end: np.sum(drawn, axis=0)}

    def gpu_types(self, *, is_limited: bool) -> list[GpuType]:
        """Return the prices of each type [USD/h] and, after them, the power, which is free."""
        limits = [*self.stock.values(), self.power]
        prices = [(terms.base * HOUR, terms.hourly * HOUR) for terms in self.terms.values()]
        return [
            GpuType(stock=limit if is_limited else math.inf, base=base, hourly=hourly)
            for limit, (base, hourly) in zip(limits, [*prices, (0.0, 0.0)], strict=True)
        ]

    def allocate(
        self, service_ways: Sequence[Sequence[_ServiceWay]], grid: _Grid, *, is_limited: bool = True
    ) -> Allocation:
        """Choose the cheapest of the ways to place each service and job."""
        ways = [[self.needs(way, grid) for way in of_service] for of_service in service_ways]
        return cheapest_allocation(ways, grid.hours, self.gpu_types(is_limited=is_limited))

    def standalone_cost(self, gpu: str, ways: Sequence[_ServiceWay], grid: _Grid) -> float:
        """Return the cost of a day with all of a service on a type [USD]; NaN: does not run."""
        pool = self.on_one(gpu, [ways], grid)
        return math.nan if pool is None else pool.cost

    def on_one(
        self, gpu: str, service_ways: Sequence[Sequence[_ServiceWay]], grid: _Grid
    ) -> GpuPool | None:
        """Return the pool with everything on a type, whatever its stock; None: does not run."""
        ways_on_type = [[way for way in ways if way.parts[0].gpu == gpu] for ways in service_ways]
        if not all(ways_on_type):
            return None
        allocation = self.allocate(ways_on_type, grid, is_limited=False)
        index = self.names.index(gpu)
        pool = self.pool(gpu, [needs[index] for needs in allocation.needs], grid)
        chosen = [ways[place] for ways, place in zip(ways_on_type, allocation.places, strict=True)]
        more = {
            column: sum(_more_gpus(way.parts[0].size, column) for way in chosen)
            for column in GPUS_BY_CONFIDENCE
        }
        return replace(pool, power_kw=self.peak_power(allocation), more_gpus=more)

    def peak_power(self, allocation: Allocation) -> float:
        """Return the highest power of all [kW]; NaN: unknown."""
        drawn = np.sum([needs[len(self.names)] for needs in allocation.needs], axis=0)
        return float(np.max(drawn)) or math.nan

    def pool(self, gpu: str, needs: Sequence[FloatArray | None], grid: _Grid) -> GpuPool:
        """Return the pool of all GPUs of one type, with the cost of a day of all needs."""
        needs_on_type = [gpus for gpus in needs if gpus is not None]
        together, terms = np.sum(needs_on_type, axis=0), self.terms[gpu]
        gpu_type = self.gpu_types(is_limited=True)[self.names.index(gpu)]
        held, cost = base_gpus_and_cost(together, grid.hours, gpu_type)
        return GpuPool(
            gpu=gpu,
            stock=self.stock[gpu],
            terms=terms,
            gpus=tuple(together.tolist()),
            hours=tuple(grid.hours.tolist()),
            held=held,
            cost=cost / grid.days,
            of_peaks=round(sum(float(gpus.max()) for gpus in needs_on_type)),
        )


def _more_gpus(size: Size, column: str) -> float:
    """Return how many more GPUs a service takes at another confidence; 0: unknown, or a job."""
    fleet = size.cheapest or size.fewest
    if fleet is None or not size.at_confidence:
        return 0.0
    other = size.at_confidence.get(GPUS_BY_CONFIDENCE[column])
    best = None if other is None else other.cheapest or other.fewest
    return 0.0 if best is None else float(best.num_gpus - fleet.num_gpus)


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


def _too_small(
    pools: Sequence[GpuPool],
    placements: Sequence[ServicePlacement],
    power_kw: float,
    power_limit_kw: float,
) -> str:
    """Say which GPUs or power are missing at least, and on which GPUs the services would run."""
    lacking = [
        f"{format_count(pool.peak_gpus - pool.stock)} more {pool.gpu} than "
        f"{format_count(pool.stock)}"
        for pool in pools
        if pool.peak_gpus > pool.stock
    ]
    name, remedy = "stock", "more with --stock, or other GPUs with --gpu"
    if power_kw > power_limit_kw:
        share = format_percent(power_kw / power_limit_kw - 1)
        limit, drawn = (format_kw(KILOWATT * value) for value in (power_limit_kw, power_kw))
        lacking.append(f"{drawn}, {share} more than {limit}")
        name, remedy = "power", "more with --power, or other GPUs with --gpu"
    where = ", ".join(
        f"{placement.service.name} on {format_count(part.peak.num_gpus)} {part.gpu}"
        for placement in placements
        for part in placement.parts
    )
    return (
        f"The {name} is too small: at best it takes {', '.join(lacking)} ({where}). Give {remedy}."
    )
