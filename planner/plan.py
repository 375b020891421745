"""From a request to a problem: read the specs, fill in and report the defaults."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from planner.errors import SearchSpaceError, SpecError
from planner.optimize.constraints import constraints
from planner.optimize.groups import grouped
from planner.optimize.objectives import objectives
from planner.optimize.problem import Problem
from planner.optimize.result import SearchResult
from planner.optimize.source import Source
from planner.request import Request
from planner.specs.catalogue import Catalogue
from planner.specs.search_space import SearchSpace
from planner.workloads.assumed import limit_notes
from planner.workloads.base import ALL, Evaluation, Question, Scene, Workload
from planner.workloads.notes import Notes
from planner.workloads.place import Place, read_place
from planner.workloads.registry import workload_of


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A problem, and what was chosen for the user.

    ``profiles`` are the words for its frameworks or engines, ``counts`` the numbers of GPUs
    asked for, empty where they follow from other things.
    ``defaults`` maps a value nobody gave to what it is and where it comes from,
    ``digests`` a spec to the digest of its content; ``assumed`` lists the numbers whose
    source is an assumption or a default of the GPU's class.
    """

    request: Request
    workload: Workload
    problem: Problem
    space: SearchSpace
    profiles: tuple[str, ...]
    counts: tuple[int, ...]
    defaults: Mapping[str, str]
    digests: Mapping[str, str]
    assumed: tuple[str, ...]

    def source_of(self, row: Mapping[str, Any]) -> Source:
        """The source that a row of result columns comes from."""
        profile = row[self.workload.profile_kind]
        for source in self.problem.sources:
            if source.key == (row.get("mode", ""), row["gpu"], profile):
                return source
        raise KeyError(f"No source has {row['gpu']} and {profile}.")


def make_plan(request: Request) -> Plan:
    """Read the specs that a request names and state its search problem.

    Raises
    ------
    SpecError, SearchSpaceError
        Something it names is unknown, faulty or impossible.
    """
    workload, catalogue = workload_of(request.workload), Catalogue(request.specs)
    notes = Notes(catalogue)
    question = workload.ask(request, catalogue, notes)
    space = _space(workload, question, notes)
    gpus = _gpus(request, catalogue)
    profiles = _profiles(workload, question, space, notes)
    loaded = [*profiles.values()]
    scenes = _Scenes(workload, question, space, gpus, loaded, notes)
    sources = [source for scene in scenes for source in workload.sources(scene)]
    if not sources:
        raise SearchSpaceError(
            f"No GPU has kernels of {loaded[0].name}: choose another "
            f"--{workload.profile_kind}, or other --gpu."
        )
    bounds = {**request.constraints, **workload.limits(question, sources[0])}
    limits = constraints(workload.name, bounds, workload.assumed(question))
    notes.defaults.update(limit_notes(limits))
    return Plan(
        request=request,
        workload=workload,
        problem=Problem(
            sources=tuple(sources),
            objectives=objectives(
                workload.name, request.objectives or workload.objectives(question)
            ),
            constraints=limits,
            best_per_gpu=len(gpus) > 1,
            furthest=workload.furthest(question),
        ),
        space=space,
        profiles=tuple(profiles),
        counts=question.counts,
        defaults=notes.defaults,
        digests=notes.digests,
        assumed=tuple(notes.assumed),
    )


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
    """The plan with the limits that the plans of a result keep.

    They are wider than those it assumed where nothing keeps these.
    """
    before = {limit.name: limit.bound for limit in plan.problem.constraints}
    notes = limit_notes(result.problem.constraints, before)
    return replace(plan, problem=result.problem, defaults={**plan.defaults, **notes})


def result_of(plan: Plan, found: Evaluation) -> SearchResult:
    """One configuration as the result of a search that looked at nothing else."""
    started = time.perf_counter()
    groups, (collector,) = grouped(plan.problem)
    collector.add(found.candidates)
    return SearchResult.of(plan.problem, groups, started)


class _Scenes:
    """Every GPU with every profile; what is noted of it, where it is the only one."""

    def __init__(
        self,
        workload: Workload,
        question: Question,
        space: SearchSpace,
        gpus: list[str | None],
        profiles: list[Any],
        notes: Notes,
    ) -> None:
        self._workload, self._question, self._space = workload, question, space
        self._gpus, self._profiles, self._notes = gpus, profiles, notes

    def __iter__(self) -> Iterator[Scene]:
        for gpu in self._gpus:
            place = self._place(gpu, "")
            asked = {name: getattr(self._question.request, name) for name in self._others}
            others = {
                name: self._place(other, f"{name.removesuffix('_gpu')} ")
                for name, other in asked.items()
                if other is not None
            }
            for profile in self._profiles:
                yield Scene(
                    question=self._question,
                    space=self._space,
                    profile=self._ideal(profile),
                    place=place,
                    others=others,
                    is_only=len(self._gpus) * len(self._profiles) == 1,
                )

    @property
    def _others(self) -> tuple[str, ...]:
        return self._workload.other_gpus

    def _ideal(self, profile: Any) -> Any:
        return self._workload.ideal(profile) if self._question.request.ideal else profile

    def _place(self, gpu: str | None, label: str) -> Place:
        """A GPU; of many the digests alone: their defaults and assumptions would fill pages."""
        notes, alone = Notes(self._notes.catalogue), len(self._gpus) == 1
        question = self._question
        place = read_place(question.request, gpu, question.counts, notes, is_only=alone)
        self._notes.digests.update(notes.digests)
        if alone:
            named = {label + name: text for name, text in notes.defaults.items()}
            self._notes.defaults.update(named)
            new = [name for name in notes.assumed if name not in self._notes.assumed]
            self._notes.assumed += new
        return place


def _gpus(request: Request, catalogue: Catalogue) -> list[str | None]:
    given = request.gpu
    if given in (ALL, (ALL,)):
        if request.cluster is not None:
            raise SearchSpaceError(
                "--gpu all compares GPUs on their own links: leave out --cluster."
            )
        return [*catalogue.names("gpus")]
    if given is None or isinstance(given, str):
        return [given]
    return [*dict.fromkeys(given)] or [None]


def _space(workload: Workload, question: Question, notes: Notes) -> SearchSpace:
    name, origin = question.space
    if origin is not None:
        notes.defaults["space"] = f"{name} ({origin})"
    try:
        found = notes.catalogue.load_space(name)
    except SpecError as error:
        raise SearchSpaceError(str(error)) from error
    space = found.spec
    if not getattr(space, workload.profile_kind):
        other = "serve" if space.engine else "train"
        raise SearchSpaceError(f"The space {space.name} is one of --workload {other}.")
    notes.digests[f"space {space.name}"] = found.digest
    notes.defaults.update(workload.chosen(question, space))
    return space


def _profiles(
    workload: Workload, question: Question, space: SearchSpace, notes: Notes
) -> dict[str, Any]:
    """The frameworks or engines by the words that named them, or that of the space."""
    kind = workload.profile_kind
    given = getattr(question.request, kind)
    if given is None:
        name, origin = question.profile
        given = name or getattr(space, kind)
        notes.defaults[kind] = f"{given} ({origin})"
    words = [given] if isinstance(given, str) else [*given]
    if given in (ALL, (ALL,)):
        words = notes.catalogue.names(f"{kind}s")
    found = {}
    for word in dict.fromkeys(words):
        profile = notes.catalogue.load_profile(kind, word)
        notes.spec(kind, profile.spec.name, profile.digest, profile.provenance)
        found[word] = profile.spec
    return found
