"""From a request to a problem: read the specs, fill in and report the defaults."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from planner.base.cells import Row, Value
from planner.base.records import record
from planner.confidence.intervals import checked_confidence
from planner.errors import SearchSpaceError
from planner.optimize.collector import grouped
from planner.optimize.problem import Problem, constraints, objectives
from planner.optimize.result import SearchResult
from planner.optimize.source import Source
from planner.question.request import ALL, Request
from planner.specs.cache import steady
from planner.specs.catalogue import Catalogue
from planner.specs.search_space import SearchSpace
from planner.workloads.assumed import Notes, limit_notes, sureness_notes, tried_notes
from planner.workloads.base import Evaluation, Workload
from planner.workloads.place import every_count
from planner.workloads.registry import workload_of
from planner.workloads.scenes import Outer


@record(kw_only=True, repr=False)
class Plan:
    """A problem, and what was chosen for the user.

    ``counts`` are the numbers of GPUs asked for, empty where they follow from other things.
    ``words`` maps, by question, names of specs to the words that named them.
    ``defaults`` maps a value nobody gave to what it is and where it comes from,
    ``digests`` a spec to the digest of its content; ``assumed`` lists the numbers whose
    source is an assumption or a default of the GPU's class. ``tried`` maps parameters to the
    values among which the space left the choice.
    """

    request: Request
    workload: Workload
    problem: Problem
    space: SearchSpace
    counts: tuple[int, ...]
    defaults: Mapping[str, str]
    digests: Mapping[str, str]
    assumed: tuple[str, ...]
    words: Mapping[str, Mapping[str, str]]
    tried: Mapping[str, Sequence[str]]

    def __repr__(self) -> str:
        return f"<Plan to {self.workload.name}: {self.problem!r}>"

    def source_of(self, row: Mapping[str, object]) -> Source:
        """The source that a row of result columns comes from."""
        for source, cell in zip(self.problem.sources, self.problem.cells, strict=True):
            if all(row[name] == value for name, value in cell.items()):
                return source
        raise KeyError(f"No source has this row: {row}.")

    def settled(self, row: Row) -> dict[str, Value]:
        """Answers to questions that a row was made with, each as it can be asked again."""
        answers = {**self.workload.settled(self.source_of(row)), "model": row["model"]}
        if "adapter" in row:
            answers["adapter"] = row["adapter"]
        return {
            name: self.words.get(name, {}).get(str(answer), answer)
            for name, answer in answers.items()
        }


@steady()
def make_plan(request: Request) -> Plan:
    """Read the specs that a request names and state its search problem.

    Raises
    ------
    SpecError, SearchSpaceError
        Something it names is unknown, faulty or impossible.
    """
    sure = checked_confidence(request.limit_confidence)
    workload, catalogue = workload_of(request.workload), Catalogue(request.specs)
    notes = Notes(catalogue)
    found = Outer(workload, _counted(request, catalogue), notes).search()
    question, first = found.question, found.sources[0]
    bounds = {**request.constraints, **workload.limits(question, first)}
    limits = constraints(workload.name, bounds, workload.assumed(question), sure)
    goals = request.objectives or workload.objectives(question)
    return Plan(
        request=request,
        workload=workload,
        problem=Problem(
            sources=tuple(found.sources),
            objectives=objectives(workload.name, goals),
            constraints=limits,
            cells=tuple(found.cells),
            refused=tuple(found.refused),
            furthest=workload.furthest(question),
            has_ties=goals[0] in workload.ties,
        ),
        space=found.space,
        counts=question.counts,
        # What decides the answer comes first: a short report may have no room for all.
        defaults={
            **limit_notes(limits),
            **sureness_notes(found.sources, limits, request),
            **notes.defaults,
            **tried_notes(notes.tried),
        },
        digests=notes.digests,
        assumed=tuple(notes.assumed),
        words=found.words,
        tried=notes.tried,
    )


def _counted(request: Request, catalogue: Catalogue) -> Request:
    """The request with the numbers of GPUs that ``all`` stands for."""
    if request.num_gpus not in (ALL, (ALL,)):
        return request
    named = request.cluster
    most = None if named is None else catalogue.load_cluster(named).spec.max_gpus
    return replace(request, num_gpus=every_count(most))


def one_configuration(request: Request, burst: int | None = None) -> Plan:
    """The plan of one configuration: what is not set keeps its default, not that of a space.

    Raises
    ------
    SpecError, SearchSpaceError
        Something is unknown, faulty or impossible, or there are several configurations.
    """
    workload = workload_of(request.workload)
    alone = replace(request, space=workload.single)
    free = workload.free(alone, burst)
    plan = make_plan(replace(alone, settings={**alone.settings, **free}))
    number = plan.problem.num_rows
    for values in free.values():
        number //= len(values)
    if len(plan.problem.sources) != 1 or number > 1:
        raise SearchSpaceError(
            f"That is {max(number, len(plan.problem.sources)):,} configurations: give one value "
            "per parameter, or use `planner search`."
        )
    return replace(plan, request=request)


def evaluated(plan: Plan, burst: int | None = None) -> Evaluation:
    """The one configuration of a plan; limits of the request reject it, too.

    Raises
    ------
    SearchSpaceError, InfeasibleError
        Its numbers of workers, its burst or its rate are impossible.
    """
    (source,) = plan.problem.sources
    found = plan.workload.once(source, burst)
    (code,) = plan.problem.codes(found.candidates).ravel()
    rejected_by = plan.problem.rejections[code - 1] if code else ""
    return replace(found, rejected_by=rejected_by)


def answered(plan: Plan, result: SearchResult) -> Plan:
    """The plan with what a result tells of what nobody gave.

    That is the types of the recommended plan, and the limits that plans keep: wider ones than
    it assumed where nothing keeps these.
    """
    before = {limit.name: limit.bound for limit in plan.problem.constraints}
    notes = limit_notes(result.problem.constraints, before)
    if result.recommended is not None:
        notes |= tried_notes(plan.tried, result.recommended_row)
    return replace(plan, problem=result.problem, defaults={**plan.defaults, **notes})


def result_of(plan: Plan, found: Evaluation) -> SearchResult:
    """One configuration as the result of a search that looked at nothing else."""
    started = time.perf_counter()
    groups, (collector,) = grouped(plan.problem)
    collector.add(found.candidates)
    return SearchResult.of(plan.problem, groups, started)
