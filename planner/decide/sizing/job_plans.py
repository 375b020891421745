"""Plans of a job on one GPU type: on how many GPUs a run takes how long."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from planner.base.arrays import first
from planner.base.records import record
from planner.base.units import DAY, HOUR
from planner.decide.sizing.autoscaling import Startup
from planner.decide.sizing.fleet import DEADLINES, RATE, FeasiblePlan, NearMiss, closest_reason
from planner.decide.sizing.searches import Searches, node_multiples
from planner.decide.sizing.services import Job
from planner.decide.sizing.size import Size
from planner.decide.sizing.size_all import with_default_confidence
from planner.optimize.problem import value_at_confidence
from planner.optimize.source import Candidates
from planner.question.request import Request
from planner.question.terms import terms_of
from planner.workloads.make_plan import Plan, make_plan

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
