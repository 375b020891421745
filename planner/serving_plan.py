"""From a request about serving to a problem: specs, defaults, and where to search."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from planner.errors import SearchSpaceError, SpecError, did_you_mean
from planner.estimators.ideal import ideal_engine, ideal_hardware
from planner.estimators.inference.setting import ServingSetting
from planner.estimators.machine import Machine
from planner.optimize.constraints import constraints
from planner.optimize.objectives import parse_objectives
from planner.optimize.serving.deployments import SERVING_LIMITS, SERVING_OBJECTIVES
from planner.optimize.serving.problem import (
    AGGREGATED,
    DISAGGREGATED,
    MODES,
    Pool,
    ServingProblem,
    Source,
)
from planner.optimize.serving.space import serving_mesh
from planner.plan import (
    Notes,
    gpu_counts,
    hardware,
    price_per_gpu_second,
    read_space,
    share_of_peak,
)
from planner.request import Request
from planner.specs.catalogue import Catalogue
from planner.specs.engine import EngineProfile
from planner.specs.load import check_spec, text_digest
from planner.specs.model import ModelSpec
from planner.specs.search_space import SearchSpace
from planner.specs.serving import ServingWorkload

ALL = "all"
SINGLE = "serve_single"
_SPACE = "serve"
_TOKENS = 1024
_MOST_CONCURRENT = 4096
_FRONT = ("throughput_per_gpu", "interactivity")
_SIZING = ("num_gpus", "request_latency")
_OF_WORKLOAD = (
    "request_rate",
    "prefix_cache_hit_rate",
    "draft_tokens",
    "acceptance_rate",
    "draft_cost",
)


@dataclass(frozen=True, kw_only=True)
class ServingPlan:
    """A problem, and what was chosen for the user; as `planner.plan.Plan`.

    ``counts`` are the numbers of GPUs asked for; empty where they follow from the rate.
    """

    problem: ServingProblem
    space: SearchSpace
    counts: tuple[int, ...]
    defaults: Mapping[str, str]
    digests: Mapping[str, str]
    assumed: tuple[str, ...]


def make_serving_plan(request: Request) -> ServingPlan:
    """Read the specs that a request names and state its search problem.

    Raises
    ------
    SpecError, SearchSpaceError
        Something it names is unknown, faulty or impossible.
    """
    catalogue = Catalogue(request.specs)
    notes = Notes(catalogue)
    counts = () if request.num_gpus is None else tuple(gpu_counts(request.num_gpus))
    single = request.space == SINGLE
    if not counts and request.request_rate is None and not single:
        raise SearchSpaceError(
            "Give the number of GPUs with --gpus, or the requests per second to serve with "
            "--request-rate."
        )
    model = catalogue.load_model(request.model)
    notes.digests[f"model {model.name}"] = text_digest(repr(model))
    workload = _workload(request, model, notes)
    space = read_space(request.space or _SPACE, "engine", notes)
    _note_quantization(request, model, notes)
    gpus, engines = _gpus(request, catalogue), _engines(request, space, notes, single)
    reader = _Reader(
        request=request,
        model=model,
        workload=workload,
        space=space,
        counts=counts,
        several=len(gpus) > 1,
        only=len(gpus) * len(engines) == 1,
        notes=notes,
    )
    sources = [
        source
        for gpu in gpus
        for engine in engines
        for source in reader.sources(gpu, engine, modes=[AGGREGATED] if single else _modes(request))
    ]
    if not sources:
        raise SearchSpaceError(
            f"No GPU has kernels of {engines[0].name}: choose another --engine, or other --gpu."
        )
    bounds = dict(request.constraints)
    if request.request_rate is not None and counts and not single:
        bounds["request_rate"] = request.request_rate
    most = sources[0].pool.setting.machine.cluster.max_gpus
    if not counts and most is not None:
        bounds["max_gpus"] = min(most, bounds.get("max_gpus", most))
    chosen = request.objectives or (_FRONT if counts or single else _SIZING)
    return ServingPlan(
        problem=ServingProblem(
            sources=tuple(sources),
            objectives=parse_objectives(chosen, SERVING_OBJECTIVES),
            constraints=constraints(bounds, SERVING_LIMITS),
            best_per_gpu=len(gpus) > 1,
        ),
        space=space,
        counts=counts,
        defaults=notes.defaults,
        digests=notes.digests,
        assumed=tuple(notes.assumed),
    )


@dataclass(frozen=True, kw_only=True)
class _Reader:
    """Makes the sources of a request, one GPU and engine at a time."""

    request: Request
    model: ModelSpec
    workload: ServingWorkload
    space: SearchSpace
    counts: tuple[int, ...]
    several: bool
    only: bool
    notes: Notes

    def sources(self, gpu: str | None, engine: EngineProfile, modes: list[str]) -> list[Source]:
        """One source per mode; one configuration is not sized by the rate.

        Of several GPUs and engines those that do not go together have none.
        """
        pool = self._pool(gpu, engine, "")
        prefill, other = pool, self.request.prefill_gpu
        if other is not None and DISAGGREGATED in modes:
            prefill = self._pool(other, engine, "prefill ")
        rate = None if self.request.space == SINGLE else self.workload.request_rate
        return [
            Source(mode=mode, pool=pool, prefill=prefill, counts=self.counts, request_rate=rate)
            for mode in modes
            if all(map(self._has_kernels, (pool, prefill) if mode == DISAGGREGATED else (pool,)))
        ]

    def _has_kernels(self, pool: Pool) -> bool:
        """Whether the engine has kernels for the GPU; an error where nothing else was asked for."""
        gpu, engine = pool.setting.machine.gpu, pool.setting.engine
        if not engine.vendors or gpu.vendor in engine.vendors:
            return True
        if self.only:
            raise SearchSpaceError(
                f"{engine.name} has kernels for GPUs of {' and '.join(engine.vendors)}, not for "
                f"{gpu.name} of {gpu.vendor}: choose another --engine."
            )
        return False

    def _pool(self, name: str | None, engine: EngineProfile, label: str) -> Pool:
        request, notes = self.request, Notes(self.notes.catalogue)
        gpu, cluster = hardware(name, request.cluster, list(self.counts), notes)
        wanted = any("cost" in word for word in (*request.objectives, *request.constraints))
        price = price_per_gpu_second(request.price, gpu, wanted and not self.several, notes)
        self._note(notes, label)
        if request.ideal:
            gpu, cluster = ideal_hardware(gpu, cluster)
            engine = ideal_engine(engine)
        machine = Machine(
            gpu=gpu,
            cluster=cluster,
            ideal=request.ideal,
            memory_efficiency=share_of_peak(
                request.memory_efficiency, "byte/s", gpu.memory_bandwidth, "memory_efficiency"
            ),
            catalogue=notes.catalogue,
        )
        return Pool(
            setting=ServingSetting(
                machine=machine, model=self.model, engine=engine, workload=self.workload
            ),
            mesh=serving_mesh(
                self.space,
                request.settings,
                counts=self.counts or None,
                model=self.model,
                engine=engine,
            ),
            price_per_gpu_second=price,
        )

    def _note(self, notes: Notes, label: str) -> None:
        """Of many GPUs the digests alone: their defaults and assumptions would fill pages."""
        self.notes.digests.update(notes.digests)
        if not self.several:
            named = {label + name: text for name, text in notes.defaults.items()}
            self.notes.defaults.update(named)
            self.notes.assumed += [name for name in notes.assumed if name not in self.notes.assumed]


def _gpus(request: Request, catalogue: Catalogue) -> list[str | None]:
    given = request.gpu
    if given == ALL or given == (ALL,):
        if request.cluster is not None:
            raise SearchSpaceError(
                "--gpu all compares GPUs on their own links: leave out --cluster."
            )
        return [*catalogue.names("gpus")]
    if given is None or isinstance(given, str):
        return [given]
    return [*dict.fromkeys(given)] or [None]


def _engines(
    request: Request, space: SearchSpace, notes: Notes, single: bool
) -> list[EngineProfile]:
    given = request.engine
    if given is None:
        notes.defaults["engine"] = f"{space.engine} (of the space)"
        given = space.engine
    everything = given in (ALL, (ALL,))
    words = (
        notes.catalogue.names("engines")
        if everything
        else [given]
        if isinstance(given, str)
        else [*given]
    )
    engines = [_engine(word, notes) for word in dict.fromkeys(words)]
    if single:
        return engines
    if everything:
        return [engine for engine in engines if engine.scheduler.continuous]
    for engine in engines:
        if not engine.scheduler.continuous:
            raise SearchSpaceError(
                f"{engine.name} batches statically and serves no stream of requests: "
                "see `planner estimate --workload inference`."
            )
    return engines


def _engine(name: str, notes: Notes) -> EngineProfile:
    found = notes.catalogue.load_engine(name)
    notes.spec("engine", found.spec.name, found.digest, found.provenance)
    return found.spec


def _modes(request: Request) -> list[str]:
    words = [request.mode] if isinstance(request.mode, str) else list(request.mode or MODES)
    for word in words:
        if word not in MODES:
            hint = did_you_mean(word, MODES)
            raise SearchSpaceError(f"Unknown mode {word!r}.{hint} Known: {', '.join(MODES)}.")
    if request.prefill_gpu is not None and DISAGGREGATED not in words:
        raise SearchSpaceError("--prefill-gpu is for --mode disaggregated.")
    return [mode for mode in MODES if mode in words]


def _workload(request: Request, model: ModelSpec, notes: Notes) -> ServingWorkload:
    lengths: dict[str, Any] = {}
    for name in ("input_tokens", "output_tokens"):
        given = getattr(request, name)
        if given is None:
            notes.defaults[name] = f"{_TOKENS:,} (default)"
        lengths[name] = _TOKENS if given is None else given
    values = {name: getattr(request, name) for name in _OF_WORKLOAD}
    values["lora_rank"] = request.lora_rank or 0
    workload = check_spec(ServingWorkload, {**lengths, **values}, where="the workload")
    limit = model.max_position_embeddings
    length = workload.input_tokens + workload.output_tokens
    if limit is not None and length > limit:
        raise SpecError(
            f"{model.name} has positions for {limit:,} tokens, not {length:,} "
            f"({workload.input_tokens:,} in, {workload.output_tokens:,} out): give fewer, or a "
            "model file with more max_position_embeddings."
        )
    return workload


def _note_quantization(request: Request, model: ModelSpec, notes: Notes) -> None:
    published = model.quantization, model.expert_quantization
    if any(published) and not {"quantization", "expert_quantization"} & set(request.settings):
        notes.defaults["quantization"] = (
            f"{published[0] or 'w16a16'}, experts {published[1] or published[0]} "
            f"(published weights of {model.name})"
        )


def one_configuration(request: Request, burst: int | None = None) -> ServingPlan:
    """The plan of one configuration: what is not set keeps its default.

    Without GPUs it is one replica; with a rate or a burst and no concurrency, all concurrencies.

    Raises
    ------
    SpecError, SearchSpaceError
        Something is unknown, faulty or impossible, or there are several configurations.
    """
    settings = dict(request.settings)
    asked = request.request_rate is not None or burst is not None
    free = asked and "concurrency" not in settings
    if free:
        settings["concurrency"] = list(range(1, _MOST_CONCURRENT + 1))
    plan = make_serving_plan(replace(request, space=SINGLE, settings=settings))
    number = plan.problem.num_rows // (_MOST_CONCURRENT if free else 1)
    if len(plan.problem.sources) != 1 or number != 1:
        raise SearchSpaceError(
            f"That is {number:,} configurations: give one value per parameter, or use "
            "`planner search --workload serve`."
        )
    return plan
