"""Read the services and the jobs that share GPUs, and plan the jobs."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from planner.base.arrays import first
from planner.base.read_files import UncheckedTable
from planner.base.records import record
from planner.base.units import DAY, HOUR
from planner.decide.sizing.autoscaling import LoadProfile, Startup, read_load
from planner.decide.sizing.fleet import DEADLINES, RATE, FeasiblePlan, NearMiss, closest_reason
from planner.decide.sizing.searches import Searches, node_multiples
from planner.decide.sizing.size import Size
from planner.decide.sizing.size_all import with_default_confidence
from planner.errors import SearchSpaceError, did_you_mean
from planner.optimize.problem import value_at_confidence
from planner.optimize.source import Candidates
from planner.question.names import LOAD, SERVICES, STOCK
from planner.question.parse_values import (
    format_input,
    full_name,
    parse_by_gpu,
    parse_int,
    parse_si,
)
from planner.question.request import Answers, Request
from planner.question.terms import terms_of
from planner.specs.spec_files import read_toml
from planner.workloads.build_request import OptionNamer, make_request
from planner.workloads.make_plan import Plan, make_plan

MOST_SERVICES = 16
JOBS, _EVERY, _WORKLOAD, _NUM_REQUESTS = "jobs", "every", "workload", "num_requests"
_SETTINGS = "settings"
_WEEK = 7 * DAY


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
class Job(Service):
    """A training run or a batch of requests that repeats, and may stop and continue.

    Parameters
    ----------
    period : time from one start to the next, in which a run ends [s]
    """

    period: float = _WEEK


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
    for name in (LOAD, "num_gpus", "plot"):
        if name in names:
            raise SearchSpaceError(f"{option_name(name)} is of one service, not several.")


def read_services(
    source: str | os.PathLike[str] | Answers,
    common: Answers,
    option_name: OptionNamer = str,
) -> tuple[tuple[Service, ...], dict[str, int]]:
    """Read services and jobs of a TOML file or of a mapping like it, and the stock by GPU type.

    ``[services.NAME]`` has the answers of a service: ``model``, ``request_rate`` or ``load`` (a CSV
    file in the same folder), lengths, limits. ``[jobs.NAME]`` has those of a training run, or of a
    batch with ``num_requests``, and ``every`` (default: 7d). Top-level answers apply to all, limits
    among them to services; ``common`` are answers that the file does not have.

    Raises SpecError or SearchSpaceError if the file cannot be read; something is unknown, missing
    or impossible.
    """
    folder = Path() if isinstance(source, Mapping) else Path(source).parent
    table = source if isinstance(source, Mapping) else read_toml(Path(source))
    table_names = (SERVICES, JOBS, STOCK, _SETTINGS)
    place = "" if isinstance(source, Mapping) else f"{source}: "
    errors = [
        f"{place}Unknown table [{name}].{did_you_mean(name, table_names)}"
        for name, value in table.items()
        if isinstance(value, Mapping) and name not in table_names
    ]
    if errors:
        raise SearchSpaceError("\n".join(errors))
    tables = _mapping(table.get(SERVICES))
    if not tables or not all(isinstance(answers, Mapping) for answers in tables.values()):
        raise SearchSpaceError(
            f"{place}Give a table for each service, such as [{SERVICES}.chat] with model and "
            "request_rate."
        )
    if len(tables) > MOST_SERVICES:
        raise SearchSpaceError(f"At most {MOST_SERVICES} services share GPUs, not {len(tables)}.")
    jobs = _mapping(table.get(JOBS))
    shared = {n: value for n, value in table.items() if n not in (SERVICES, JOBS, STOCK)}
    services, errors = list[Service](), list[str]()
    for name, answers in [*tables.items(), *jobs.items()]:
        try:
            table_answers = _mapping(answers)
            if name in tables and name in jobs:
                raise SearchSpaceError(f"Name either the service or the job {name} otherwise.")
            services.append(
                _job(str(name), table_answers, shared, common, option_name)
                if name in jobs
                else _service(str(name), {**shared, **table_answers}, common, folder, option_name)
            )
        except SearchSpaceError as error:
            errors += [f"{name}: {line}" for line in str(error).splitlines()]
    if errors:
        raise SearchSpaceError("\n".join(errors))
    return tuple(services), read_stock(table.get(STOCK, {}))


def _service(
    name: str,
    answers: Answers,
    common: Answers,
    folder: Path,
    option_name: OptionNamer,
) -> Service:
    """Parse a service of the file; raises SearchSpaceError if a name or the load is wrong."""
    load, answers = None, dict(answers)
    if LOAD in answers:
        value = str(answers.pop(LOAD))
        load = read_load(folder / value if (folder / value).exists() else Path(value))
    request = _request("serve", answers, common, option_name, (LOAD,))
    if load is None and request.request_rate is None:
        raise SearchSpaceError(f"Say what it must serve: request_rate or {LOAD}.")
    return Service(name=name, request=request, load=load)


def _job(
    name: str,
    answers: Answers,
    shared: Answers,
    common: Answers,
    option_name: OptionNamer,
) -> Job:
    """Parse a job of the file; ``shared`` and ``common`` are answers of all that it understands."""
    answers = dict(answers)
    period = parse_si(answers.pop(_EVERY, _WEEK), "second", _EVERY)
    if not period > 0:
        raise SearchSpaceError(f"{_EVERY} is a time above 0, such as 7d.")
    workload = str(answers.pop(_WORKLOAD, "serve" if _NUM_REQUESTS in answers else "train"))
    if LOAD in answers or "request_rate" in answers:
        raise SearchSpaceError(f"A job has no request_rate or {LOAD}: make it a service.")
    terms = terms_of(workload, "question")
    shared = {n: value for n, value in shared.items() if full_name(n, terms) in terms}
    common = {n: value for n, value in common.items() if n in terms}
    request = _request(workload, {**shared, **answers}, common, option_name, (_EVERY,))
    if workload == "serve" and request.num_requests is None:
        raise SearchSpaceError(f"Say how many requests a run answers: {_NUM_REQUESTS}.")
    return Job(name=name, request=request, period=period)


def _request(
    workload: str,
    answers: Answers,
    common: Answers,
    option_name: OptionNamer,
    others: tuple[str, ...],
) -> Request:
    """Return the question of a table; ``others`` are its keys that are no part of the question.

    Raises SearchSpaceError if a key is unknown.
    """
    limits, terms = terms_of(workload, "limit"), terms_of(workload, "question", "parameter")
    questions = {name: term for name, term in terms.items() if "question" in term.kind}
    values: dict[str, object] = {**common}
    bounds = {**_mapping(common.get("constraints"))}
    for key, value in answers.items():
        full = full_name(key, {**limits, **questions})
        if full in questions or key == _SETTINGS:
            values[full if full in questions else key] = value
        elif full in limits:
            bounds[full] = value
        else:
            hint = did_you_mean(key, [*questions, *limits, *others])
            raise SearchSpaceError(f"Unknown question or limit {format_input(key)}.{hint}")
    fields = {**values, _WORKLOAD: workload, "constraints": bounds}
    return replace(make_request(fields, option_name=option_name), contract=None)


def _mapping(value: object) -> UncheckedTable:
    return value if isinstance(value, Mapping) else {}


_LATENCY = "request_latency"
# Numbers of GPUs grow by this factor, until a run is as short as this or has so many plans.
_STEP, _SHORTEST, _MOST_PLANS = 1.4, HOUR, 6


@record(kw_only=True)
class JobPlan:
    """A plan of a job.

    Parameters
    ----------
    size : size that has the plan
    plan : plan
    hours : duration of a run that the confidence of the question keeps, with its start [h]
    runs_per_day : runs a day
    """

    size: Size
    plan: FeasiblePlan
    hours: float
    runs_per_day: float

    @property
    def hours_per_day(self) -> float:
        """Hours a day in which it runs, in the mean."""
        return self.hours * self.runs_per_day

    @property
    def gpu_hours_per_day(self) -> float:
        """GPU-hours of a day, in the mean."""
        return self.plan.num_gpus * self.hours_per_day


def job_plans(job: Job, gpu: str, startup: Startup) -> tuple[list[JobPlan], str]:
    """Return plans of a job on a GPU type from few GPUs to many, or the reason why there is none.

    Raises SpecError or SearchSpaceError if something is unknown, faulty or impossible.
    """
    plans, missed = list[JobPlan](), list[NearMiss]()
    request = with_default_confidence(replace(_within_period(job), gpu=gpu))
    searches = Searches((request.one_contract,))
    for count in _counts(make_plan(replace(request, num_gpus=1))):
        plan, result = searches.of(replace(request, num_gpus=count))
        best = result.recommended
        if best is None:
            missed.append(NearMiss.of(plan, result, count))
            continue
        fleet = FeasiblePlan.of(plan, best)
        seconds = _duration(job, plan, best, fleet) + startup.seconds(fleet.row)
        if seconds > job.period:
            continue
        size = Size(gpu=gpu, contract="", fewest=fleet)
        hours, runs = seconds / HOUR, DAY / job.period
        plans.append(JobPlan(size=size, plan=fleet, hours=hours, runs_per_day=runs))
        if seconds <= _SHORTEST or len(plans) == _MOST_PLANS:
            break
    return plans, "" if plans else closest_reason(missed) or "no run ends before the next begins"


def _within_period(job: Job) -> Request:
    """Return the question of a job with its period as a limit of the time."""
    request, bounds = job.request, dict(job.request.constraints)
    if request.workload == "serve":
        return request.changed(constraints={_LATENCY: job.period, **bounds})
    limits = terms_of(request.workload, "limit")
    name = next(name for name in DEADLINES if name in limits)
    bounds = {name: min(bounds.pop(name, job.period), job.period), **bounds}
    return request.changed(constraints=bounds, objectives=(name,))


def _counts(plan: Plan) -> Iterator[int]:
    """Yield numbers of GPUs to try, each at least `_STEP` times the one before."""
    cluster, last = plan.problem.inputs.machine.cluster, 0
    for count in node_multiples(cluster.gpus_per_node, cluster.max_gpus):
        if count >= _STEP * last:
            yield count
            last = count


def _duration(job: Job, plan: Plan, candidates: Candidates, fleet: FeasiblePlan) -> float:
    """Return the time of a run that the confidence of the question keeps [s]."""
    if job.request.num_requests is None:
        return next(m.value_at_confidence for m in fleet.margins if m.name in DEADLINES)
    confidence = plan.request.limit_confidence
    return job.request.num_requests / first(value_at_confidence(candidates, RATE, confidence, -1))
