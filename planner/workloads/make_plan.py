"""Search problems of a request: one scenario for each combination of its listed values."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from typing import Any

from planner.base.arrays import first
from planner.base.csv_cells import Row, Value
from planner.base.records import record
from planner.confidence.error_classes import RELEASE_NUMBER, Release
from planner.confidence.intervals import check_confidence
from planner.configurations.configuration_tables import format_value
from planner.configurations.enumerate import coded_values
from planner.errors import PlannerError, SearchSpaceError, SpecError
from planner.optimize.collector import group_by_cell
from planner.optimize.problem import Cell, Problem, constraints, objectives
from planner.optimize.result import SearchResult
from planner.optimize.source import Source
from planner.question.names import DECODE_CONTEXT_PARALLEL, DRAFT_TOKENS
from planner.question.request import ALL, Request
from planner.question.terms import glossary, terms_of
from planner.specs.catalogue import Catalogue
from planner.specs.engine import EngineProfile
from planner.specs.file_cache import snapshot_files
from planner.specs.framework import FrameworkProfile
from planner.specs.model import ModelSpec
from planner.specs.price import CONTRACTS
from planner.specs.search_space import SearchSpace
from planner.specs.software_profile import runs_on
from planner.workloads.assumptions import PlanNotes, confidence_notes, limit_notes, tried_notes
from planner.workloads.priced_hardware import (
    PricedHardware,
    powers_of_two_counts,
    read_priced_hardware,
)
from planner.workloads.registry import workload_of
from planner.workloads.workload import Evaluation, HardwareScenario, Workload, WorkloadQuestion

# More would fill a screen.
_MOST_REASONS = 5
EACH_ITS_DEFAULT = "each its own"
"""The note if several questions have different defaults."""
_CURRENT = "all current ones that run there"
_OF_RUN = ("reliability", "campaign_factor")
"""Defaults of the whole run, which the GPUs of a second pool need not repeat."""
_CLUSTER_OF_ALL = "--gpu all compares GPUs on their own links: leave out --cluster."


@record(kw_only=True)
class SearchSources:
    """The sources of all scenes, each with its cell, and the cells that have none.

    ``question`` and ``space`` are those of the first scene.
    """

    question: WorkloadQuestion
    space: SearchSpace
    sources: Sequence[Source]
    cells: Sequence[Cell]
    refused: Sequence[tuple[Cell, str]]
    words: Mapping[str, Mapping[str, str]]


@dataclass
class RequestExpander:
    """Expands the lists of a request into scenarios; notes are kept if there is only one.

    ``words`` maps, by question, the name of a spec to the word that named it.
    """

    workload: Workload
    request: Request
    notes: PlanNotes
    words: dict[str, dict[str, str]] = field(default_factory=dict)
    refused: list[tuple[Cell, str]] = field(default_factory=list)

    def search(self) -> SearchSources:
        """Expand the request into scenarios; return the sources of all and the refused cells.

        Raises SpecError or SearchSpaceError if something is unknown or faulty; or everything that
        was named is impossible.
        """
        questions, gpus = self._questions(), self._gpus()
        contracts = _as_list(self.request.contract, CONTRACTS)
        hardware_choices = [
            place
            for gpu in gpus
            for contract in contracts
            for place in self._places(questions[0], gpu, contract, len(gpus) * len(contracts) == 1)
        ]
        if not hardware_choices:
            raise SearchSpaceError("\n".join(reason for _, reason in self.refused[:_MOST_REASONS]))
        spaces = [self._space(question, len(questions) == 1) for question in questions]
        is_only = len(questions) * len(gpus) * len(contracts) == 1
        scenes = [
            scene
            for question, space in zip(questions, spaces, strict=True)
            for place, others in hardware_choices
            for profile in self._profiles(question, space, place, is_only)
            for scene in self._inner(question, space, profile, place, others)
        ]
        sources, cells = self._sources(scenes)
        if len(scenes) == 1:
            self.notes.defaults.update(self.workload.usual(scenes[0][0]))
        if len(questions) == 1:
            self._note_chosen([scene for scene, _ in scenes])
        return SearchSources(
            question=questions[0],
            space=spaces[0],
            sources=sources,
            cells=cells,
            refused=self.refused,
            words=self.words,
        )

    def _sources(
        self, scenes: Sequence[tuple[HardwareScenario, Cell]]
    ) -> tuple[list[Source], list[Cell]]:
        """The sources of all scenarios with their cells; a refused scenario has none.

        Raises PlannerError if no scenario has a source.
        """
        sources: list[Source] = []
        cells: list[Cell] = []
        for scene, outer in scenes:
            try:
                scene_sources = self.workload.sources(scene)
            except PlannerError as error:
                if len(scenes) == 1 and not self.refused:
                    raise
                self.refused.append(({**self._named(scene), **outer}, str(error)))
                continue
            sources += scene_sources
            cells += [{**source.named, **outer} for source in scene_sources]
        if not sources:
            reasons = list(dict.fromkeys(reason for _, reason in self.refused))
            raise SearchSpaceError("\n".join(reasons[:_MOST_REASONS]))
        return sources, cells

    def _named(self, scene: HardwareScenario) -> dict[str, Value]:
        """The names of a scenario's model, GPU and framework or engine, by question."""
        return {
            "model": scene.question.model.name,
            "gpu": scene.place.machine.gpu.name,
            self.workload.profile_kind: scene.profile.name,
        }

    def _questions(self) -> list[WorkloadQuestion]:
        """The workload question of each combination of model, adapter (LoRA) and draft tokens."""
        catalogue, models = self.notes.catalogue, self._several("model", "models")
        adapters = _as_list(self.request.adapter, self.workload.adapters)
        drafts = _as_list(self.request.draft_tokens, ())
        splits = {model: self._cache_splits(catalogue.load_model(model)) for model in models}
        pairs = [
            (model, adapter, drafted, split)
            for model, adapter, drafted in product(models, adapters, drafts)
            for split in splits[model]
        ]
        compared = [DRAFT_TOKENS] if len(drafts) > 1 else []
        if any(len(values) > 1 for values in splits.values()):
            compared.append(DECODE_CONTEXT_PARALLEL)
        questions, all_notes = [], list[PlanNotes]()
        for model, adapter, drafted, split in pairs:
            name = catalogue.load_model(model).name
            self.words.setdefault("model", {}).setdefault(name, model)
            request = replace(
                self.request,
                model=model,
                adapter=adapter,
                draft_tokens=drafted,
                decode_context_parallel=split,
            )
            if len(adapters) > 1 and request.training_objective is None:
                # Every weight of what adapters are an alternative to is fine-tuned, too.
                request = replace(request, training_objective="sft")
            notes = self._noting(len(pairs) == 1)
            try:
                question = self.workload.ask(request, catalogue, notes)
                questions.append(replace(question, compared=tuple(compared)))
            except PlannerError as error:
                if len(pairs) == 1:
                    raise
                cell = {"model": name, "adapter": adapter}
                self.refused.append((cell if len(adapters) > 1 else {"model": name}, str(error)))
            self.notes.digests.update(notes.digests)
            all_notes.append(notes)
        for name in dict.fromkeys(name for plan_notes in all_notes for name in plan_notes.defaults):
            texts = {plan_notes.defaults.get(name) for plan_notes in all_notes}
            self.notes.defaults[name] = str(*texts) if len(texts) == 1 else EACH_ITS_DEFAULT
        if not questions:
            raise SearchSpaceError(self.refused[0][1])
        return questions

    def _cache_splits(self, model: ModelSpec) -> Sequence[int | None]:
        """Return the numbers of ranks that hold parts of caches, as asked or worth a try."""
        splits = self.request.decode_context_parallel
        if splits is not None:
            return _as_list(splits, ())
        if self.workload.name != "serve":
            return [None]
        from planner.workloads.serving.question import cache_splits  # training needs none of it

        return cache_splits(self.request, model)

    def _note_chosen(self, scenes: Sequence[HardwareScenario]) -> None:
        """Note the defaults that depend on GPU and framework, with the GPUs that each is for."""
        differences = [(scene, self.workload.hardware_notes(scene)) for scene in scenes]
        for name in dict.fromkeys(name for _, texts in differences for name in texts):
            gpus_by_text: dict[str, list[str]] = {}
            for scene, texts in differences:
                text = texts.get(name, self.notes.defaults.get(name, ""))
                gpus_by_text.setdefault(text, []).append(scene.place.machine.gpu.name)
            parts = [
                f"{text} on {', '.join(dict.fromkeys(gpus))}" for text, gpus in gpus_by_text.items()
            ]
            self.notes.defaults[name] = (
                next(iter(gpus_by_text)) if len(gpus_by_text) == 1 else "; ".join(parts)
            )

    def _several(self, name: str, kind: str) -> list[str]:
        """Names of specs: the requested ones, or all."""
        return [*_as_list(getattr(self.request, name), self.notes.catalogue.names(kind))]

    def _gpus(self) -> list[str | None]:
        """The requested GPU names; every GPU of the catalogue for ``all``; [None] without one."""
        gpu = self.request.gpu
        if gpu in (ALL, (ALL,)):
            if self.request.cluster is not None:
                raise SearchSpaceError(_CLUSTER_OF_ALL)
            return [*self.notes.catalogue.gpus_on_hand()]
        return [None] if gpu in (None, ()) else [*self._several("gpu", "gpus")]

    def _noting(self, is_only: bool) -> PlanNotes:
        """The notes of the plan if there is one scenario; else new notes (callers copy digests)."""
        return self.notes if is_only else PlanNotes(self.notes.catalogue)

    def _places(
        self, question: WorkloadQuestion, gpu: str | None, contract: str | None, is_only: bool
    ) -> Iterator[tuple[PricedHardware, dict[str, PricedHardware]]]:
        """Yield the priced GPU under a contract, with the priced GPUs of other pools by question.

        With several contracts, a contract without a known price is refused.
        """
        question = replace(question, request=replace(question.request, contract=contract))
        named = {
            name: self._several(name, "gpus")
            for name in self.workload.other_gpus
            if getattr(self.request, name) is not None
        }
        for gpus in product(*named.values()):
            is_one = is_only and all(len(several) == 1 for several in named.values())
            others = {
                name: self._place(question, other, is_one, f"{name.removesuffix('_gpu')} ")
                for name, other in zip(named, gpus, strict=True)
            }
            yield from self._priced(question, gpu, others, contract, is_one)

    def _priced(
        self,
        question: WorkloadQuestion,
        gpu: str | None,
        others: dict[str, PricedHardware],
        contract: str | None,
        is_only: bool,
    ) -> Iterator[tuple[PricedHardware, dict[str, PricedHardware]]]:
        """Yield the priced GPU with those of ``others``, if the contract has prices of all."""
        place = self._place(question, gpu, is_only, "")
        if not isinstance(self.request.contract, tuple):
            yield place, others
        elif all(priced.site.offer is not None for priced in (place, *others.values())):
            yield replace(place, site=replace(place.site, is_compared=True)), others
        else:
            name = place.machine.gpu.name
            reason = f"{name}: no {contract} price is known"
            self.refused.append(({"gpu": name, "contract": str(contract)}, reason))

    def _place(
        self, question: WorkloadQuestion, gpu: str | None, is_only: bool, label: str
    ) -> PricedHardware:
        """Read GPU, cluster and price of a question; if ``is_only``, note their default values."""
        notes = PlanNotes(self.notes.catalogue)
        place = read_priced_hardware(question.request, gpu, question.counts, notes, is_only=is_only)
        self.notes.digests.update(notes.digests)
        if gpu is not None:
            self.words.setdefault("gpu", {}).setdefault(place.machine.gpu.name, gpu)
        if is_only:
            of_gpu = {n: t for n, t in notes.defaults.items() if not label or n not in _OF_RUN}
            named = {label + name: text for name, text in of_gpu.items()}
            self.notes.defaults.update(named)
            new = [name for name in notes.assumed if name not in self.notes.assumed]
            self.notes.assumed += new
        return place

    def _space(self, question: WorkloadQuestion, is_only: bool) -> SearchSpace:
        """Load the search space of a question; refuse a space of another workload."""
        name, origin = question.space
        if origin is not None and is_only:
            self.notes.defaults["space"] = f"{name} ({origin})"
        try:
            loaded = self.notes.catalogue.load_space(name)
        except SpecError as error:
            raise SearchSpaceError(str(error)) from error
        space = loaded.spec
        if not getattr(space, self.workload.profile_kind):
            other = "serve" if space.engine else "train"
            raise SearchSpaceError(f"The space {space.name} is one of --workload {other}.")
        self.notes.digests[f"space {space.name}"] = loaded.digest
        self._noting(is_only).tried.update(self.workload.tried(question, space))
        return space

    def _profiles(
        self, question: WorkloadQuestion, space: SearchSpace, place: PricedHardware, is_only: bool
    ) -> list[FrameworkProfile | EngineProfile]:
        """The frameworks or engines for a GPU: the requested, all current, or that of the space."""
        kind, (name, origin) = self.workload.profile_kind, question.profile
        notes, gpu = self._noting(is_only), place.machine.gpu
        load = partial(self.notes.catalogue.load_profile, kind)
        if getattr(self.request, kind) is not None:
            profiles = self._several(kind, f"{kind}s")
            if getattr(self.request, kind) in (ALL, (ALL,)):
                suited = [
                    profile
                    for profile in profiles
                    if self.workload.suits(question, load(profile).spec)
                ]
                profiles = suited or profiles
            if self.request.engine_version is not None:
                profiles = [
                    self._profile_of_release(profiles, self.request.engine_version, place, notes)
                ]
        else:
            first = name or getattr(space, kind)
            is_open = name is None and question.space[1] is not None
            profiles = [first]
            if is_open:
                profiles, origin = self._current(question, first, place), _CURRENT
            elif not runs_on(load(first).spec, gpu) and (
                supported := self._supported_profiles(question, first, place)
            ):
                profiles = supported[:1]
                origin = f"{first}, the usual one, does not run on {gpu.vendor}"
            notes.defaults[kind] = f"{', '.join(profiles)} ({origin})"
        return [
            self._profile(profile, self._noting(is_only and len(profiles) == 1))
            for profile in profiles
        ]

    def _profile_of_release(
        self, profiles: Sequence[str], number: str, place: PricedHardware, notes: PlanNotes
    ) -> str:
        """The name of the engine profile that covers a release ``number``.

        Raises SearchSpaceError if ``number`` is no release, or there are several engines.
        """
        if not RELEASE_NUMBER.fullmatch(number):
            raise SearchSpaceError(
                f"--engine-version {number!r} is not a release: give its numbers, such as 0.27.1."
            )
        if len(profiles) > 1:
            raise SearchSpaceError(
                f"--engine-version is for one engine, not for {', '.join(profiles)}: name one."
            )
        release = Release(tool=profiles[0], number=number)
        profile = release.profile(self.notes.catalogue, place.machine.gpu.vendor)
        if profile is None or profile == profiles[0]:
            return profiles[0]
        notes.defaults["engine"] = f"{profile} (the profile of release {number})"
        return profile

    def _current(self, question: WorkloadQuestion, first: str, place: PricedHardware) -> list[str]:
        """Names of the current profiles that run on the GPU; notes a refusal if there is none."""
        profiles = self._supported_profiles(question, first, place)
        if not profiles:
            kind, gpu = self.workload.profile_kind, place.machine.gpu
            example = ", such as llama-cpp" if kind == "engine" and gpu.vendor == "NVIDIA" else ""
            reason = (
                f"no current {kind} runs on {gpu.name} of {gpu.vendor}: name a --{kind}{example}"
            )
            self.refused.append(({"model": question.model.name, "gpu": gpu.name}, reason))
        return profiles

    def _supported_profiles(
        self, question: WorkloadQuestion, first: str, place: PricedHardware
    ) -> list[str]:
        """Names of current profiles that run on the GPU, else of profiles for only its vendor.

        Empty if there are none, or if current profiles dropped the GPU's architecture.
        """
        kind, catalogue = self.workload.profile_kind, self.notes.catalogue
        gpu = place.machine.gpu
        current, vendor_only, is_left_behind = [], [], False
        for name in dict.fromkeys([first, *catalogue.names(f"{kind}s")]):
            profile = catalogue.load_profile(kind, name).spec
            if not self.workload.suits(question, profile):
                continue
            if gpu.architecture in profile.without_architectures:
                is_left_behind = True
            elif profile.current and runs_on(profile, gpu):
                current.append(name)
            elif profile.vendors == (gpu.vendor,):
                vendor_only.append(name)
        return current or ([] if is_left_behind else vendor_only)

    def _profile(self, name: str, notes: PlanNotes) -> FrameworkProfile | EngineProfile:
        """Load a framework or engine profile; an ideal one if the request sets shares of peaks."""
        kind = self.workload.profile_kind
        loaded = self.notes.catalogue.load_profile(kind, name)
        self.words.setdefault(kind, {}).setdefault(loaded.spec.name, name)
        if f"{kind} {loaded.spec.name}" not in self.notes.digests:
            notes.spec(kind, loaded.spec.name, loaded.digest, loaded.provenance)
            self.notes.digests.update(notes.digests)
        profile: FrameworkProfile | EngineProfile = loaded.spec
        return self.workload.ideal(profile) if self.request.at_shares else profile

    def _inner(
        self,
        question: WorkloadQuestion,
        space: SearchSpace,
        profile: object,
        place: PricedHardware,
        others: Mapping[str, PricedHardware],
    ) -> Iterator[tuple[HardwareScenario, Cell]]:
        """Yield a scenario with its cell for each requested precision and number of GPUs."""
        name, request = self.workload.precision, question.request
        precisions: list[str | float | None] = [None]
        if request.precision is not None:
            codes = coded_values(
                name, _as_list(request.precision, glossary()[name].enumeration.usual())
            )
            precisions = [format_value(name, code) for code in codes]
        several = len(question.counts) > 1
        for precision in precisions:
            outer: dict[str, Value] = {}
            inner = request
            if precision is not None:
                outer[name] = precision
                inner = replace(request, settings={**request.settings, name: [precision]})
            for count in question.counts if several else [0]:
                counts = (count,) if several else question.counts
                scene = HardwareScenario(
                    question=replace(question, request=inner, counts=counts),
                    space=space,
                    profile=profile,
                    place=place,
                    others=others,
                )
                yield (
                    self.workload.fitted(scene),
                    {**outer, "num_gpus": count} if several else outer,
                )


def _as_list(value: object, all_values: Sequence[object]) -> Sequence[Any]:
    """The value, or the values, as a list without repetitions; ``all_values`` for ``all``."""
    if value in (ALL, (ALL,), [ALL]):
        return all_values
    items = value if isinstance(value, tuple | list) else [value]
    return [*dict.fromkeys(items)]


@record(kw_only=True, repr=False)
class Plan:
    """A search problem with the defaults that were chosen for it.

    ``counts`` are the requested numbers of GPUs; empty: they follow from other values.
    ``words`` maps, by question, names of specs to the words that named them.
    ``defaults`` maps an unspecified value to a text of the default and its source,
    ``digests`` a spec to the digest of its content; ``assumed`` lists the numbers whose
    source is an assumption or a default of the GPU's class. ``tried`` maps parameters to the
    values of the space that the search chooses from.
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

    def source_of(self, row: Row) -> Source:
        """The source whose cell has the values of a row of result columns."""
        for source, cell in zip(self.problem.sources, self.problem.cells, strict=True):
            if all(row[name] == value for name, value in cell.items()):
                return source
        raise KeyError(f"No source has this row: {row}.")

    def reproducing_answers(self, row: Row) -> dict[str, Value]:
        """The answers, by question, with which a new request reproduces a row."""
        source = self.source_of(row)
        answers = {**self.workload.reproducing_answers(source), "model": row["model"]}
        if isinstance(self.request.contract, tuple):
            answers["contract"] = str(source.site.contract)
        if "adapter" in row:
            answers["adapter"] = row["adapter"]
        return {
            name: self.words.get(name, {}).get(str(answer), answer)
            for name, answer in answers.items()
        }


@snapshot_files()
def make_plan(request: Request) -> Plan:
    """Build the plan of a request: specs, search problem, defaults and notes.

    Raises SpecError or SearchSpaceError if a name is unknown, or a value faulty or impossible.
    """
    confidence = check_confidence(request.limit_confidence)
    workload, catalogue = workload_of(request.workload), Catalogue(request.specs)
    notes = PlanNotes(catalogue)
    match = RequestExpander(workload, _expand_all_counts(request, catalogue), notes).search()
    question, first = match.question, match.sources[0]
    bounds = {**request.constraints, **workload.limits(question, first)}
    limits = constraints(workload.name, bounds, workload.assumed(question), confidence)
    goals = request.objectives or _cost_objective(request) or workload.objectives(question)
    return Plan(
        request=request,
        workload=workload,
        problem=Problem(
            sources=tuple(source.with_rate_confidence(confidence) for source in match.sources),
            objectives=objectives(workload.name, goals),
            constraints=limits,
            cells=tuple(match.cells),
            refused=tuple(match.refused),
            max_front_factor=workload.front_factor(question),
            has_ties=goals[0] in workload.ties,
        ),
        space=match.space,
        counts=question.counts,
        # What decides the answer comes first: a short report may have no room for all.
        defaults={
            **limit_notes(limits),
            **confidence_notes(match.sources, limits, request),
            **notes.defaults,
            **tried_notes(notes.tried),
        },
        digests=notes.digests,
        assumed=tuple(notes.assumed),
        words=match.words,
        tried=notes.tried,
    )


def _cost_objective(request: Request) -> tuple[str, ...]:
    """The cost objective if several contracts are compared; else empty."""
    if not isinstance(request.contract, tuple):
        return ()
    names = ("cost", "cost_per_hour" if request.request_rate else "cost_per_million_tokens")
    objective_terms = terms_of(request.workload, "objective")
    return next(((name,) for name in names if name in objective_terms), ())


def _expand_all_counts(request: Request, catalogue: Catalogue) -> Request:
    """The request with numbers of GPUs in place of ``all``: powers of two up to the cluster's."""
    if request.num_gpus not in (ALL, (ALL,)):
        return request
    named = request.cluster
    max_gpus = None if named is None else catalogue.load_cluster(named).spec.max_gpus
    return replace(request, num_gpus=powers_of_two_counts(max_gpus))


def make_single_plan(request: Request, burst: int | None = None) -> Plan:
    """Build the plan of one configuration; unset parameters have their default values.

    Raises SpecError or SearchSpaceError if something is unknown, faulty or impossible, or there are
    several configurations.
    """
    workload, request = workload_of(request.workload), _with_burst(request, burst)
    single_request = replace(request, space=workload.single)
    free = workload.open_values(single_request, burst)
    plan = make_plan(replace(single_request, settings={**single_request.settings, **free}))
    number = plan.problem.num_rows
    for values in free.values():
        number //= len(values)
    if len(plan.problem.sources) != 1 or number > 1:
        gpus = {source.inputs.machine.gpu.name for source in plan.problem.sources}
        unlike = "GPUs of several kinds in one replica are not predicted: give one kind at a time. "
        raise SearchSpaceError(
            f"That is {max(number, len(plan.problem.sources)):,} configurations: give one value "
            f"per parameter, or use `planner search`. {unlike if len(gpus) > 1 else ''}".rstrip()
        )
    return replace(plan, request=request)


def _with_burst(request: Request, burst: int | None) -> Request:
    """The request with ``burst`` as number of requests, if it has no other load."""
    has_load = request.num_requests is not None or request.request_rate is not None
    is_of_pools = request.mode not in (None, "aggregated", ("aggregated",))
    if burst is None or has_load or is_of_pools or "concurrency" in request.settings:
        return request
    return replace(request, num_requests=burst)


def evaluate(plan: Plan, burst: int | None = None) -> Evaluation:
    """Evaluate the one configuration of a plan, with the limits of the request.

    Raises SearchSpaceError or InfeasibleError if its numbers of workers, its burst or its rate are
    impossible.
    """
    (source,) = plan.problem.sources
    evaluation = plan.workload.evaluate_once(source, burst)
    (code,) = plan.problem.codes(evaluation.candidates).ravel()
    rejected_by = plan.problem.rejections[code - 1] if code else ""
    return replace(evaluation, rejected_by=rejected_by)


def with_assumption_notes(plan: Plan, result: SearchResult) -> Plan:
    """The plan with notes on assumed limits and number formats, from a search result.

    The notes show the number formats of the recommended plan, and assumed limits that were
    relaxed because no plan meets them.
    """
    before = {limit.name: limit.bound for limit in plan.problem.constraints}
    notes = limit_notes(result.problem.constraints, before)
    chosen = result.recommended_configuration
    if chosen is not None:
        values = {name: first(getattr(chosen, name)) for name in plan.tried}
        texts = {name: format_value(name, value) for name, value in values.items()}
        notes |= tried_notes(plan.tried, texts)
    return replace(plan, problem=result.problem, defaults={**plan.defaults, **notes})


def result_of(plan: Plan, evaluation: Evaluation) -> SearchResult:
    """The search result of a plan with one evaluated configuration."""
    started = time.perf_counter()
    groups, (collector,) = group_by_cell(plan.problem)
    collector.add(evaluation.candidates)
    return SearchResult.of(plan.problem, groups, started)
