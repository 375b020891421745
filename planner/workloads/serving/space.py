"""The search space of a service or of static batches: its sources, and all configurations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from planner.base.arrays import CodeArray, FloatArray, IndexArray
from planner.base.enums import CacheType, Quantization
from planner.base.formatting import format_gib
from planner.base.records import record
from planner.base.units import GIB
from planner.configurations.configuration_tables import (
    PREFILL,
    SERVING_NAMES,
    AttentionFfnConfigurations,
    ServingConfigurations,
    format_value,
)
from planner.configurations.enumerate import (
    Factor,
    OpenMesh,
    as_values,
    coded_values,
    cross_product,
    numbers,
    refuse_unknown,
    single_axis,
)
from planner.configurations.serving_rules import can_split_prompts
from planner.errors import SearchSpaceError
from planner.estimators.inference.batch_share import ServingInputs
from planner.estimators.inference.continuous_batching import prefix_share
from planner.estimators.inference.serving_estimate import broken_serving_rule
from planner.estimators.inference.serving_memory import (
    ServingMemory,
    has_memory_to_start,
    serving_memory,
)
from planner.estimators.inference.static_batch import StaticBatch, static_batch
from planner.estimators.power_draw import PowerDraw
from planner.optimize.source import Columns, Need, Source
from planner.question.names import (
    ATTENTION_DATA_PARALLEL,
    CONTEXT_PARALLEL,
    DECODE_CONTEXT_PARALLEL,
    EXPERT_PARALLEL,
    PIPELINE_PARALLEL,
)
from planner.question.request import Settings
from planner.question.terms import parameter_defaults, terms_about, terms_of
from planner.specs.engine import EngineProfile
from planner.specs.model import ModelSpec
from planner.specs.operating_terms import OperatingTerms
from planner.specs.search_space import SearchSpace
from planner.specs.software_profile import engine_on
from planner.workloads.assumptions import batch_complexity
from planner.workloads.prediction_confidence import serving_share
from planner.workloads.priced_hardware import PricedHardware
from planner.workloads.serving.prefill_decode_pools import PrefillDecodeSource
from planner.workloads.serving.prefill_decode_search import PrefillDecodeSpace
from planner.workloads.serving.question import (
    CACHES_OF_ACTIVATIONS,
    SINGLE,
    caches_activations,
    draft_of,
    parse_modes,
    serving_slowdown,
    with_options,
)
from planner.workloads.serving.replicas import ReplicaSource, max_concurrency
from planner.workloads.serving.results import (
    AGGREGATED,
    ATTENTION_FFN,
    MILLION,
    PARAMETERS,
    POOLED,
    ServingSource,
    TokenGeneration,
    fit_probability,
    memory_columns,
    needed_memory,
    parameter_columns,
    token_costs,
)
from planner.workloads.workload import (
    Evaluation,
    HardwareScenario,
    Quantity,
    WorkloadQuestion,
    counts,
    evaluate_single,
    floats,
    repeated,
    term_columns,
)

_BLOCK_ROWS = 2**16


@record(kw_only=True)
class BatchSource(ServingSource):
    """Batches on one GPU with one engine."""

    inputs: ServingInputs
    mesh: OpenMesh[ServingConfigurations]
    site: OperatingTerms
    mode: str = ""

    block_rows = _BLOCK_ROWS
    published = "static_batch"

    def broken(self, configurations: ServingConfigurations) -> CodeArray:
        """The one-based number of the first rule that each configuration breaks; 0: none."""
        return broken_serving_rule(self.inputs, configurations)

    def judged(
        self, configurations: ServingConfigurations, broken: CodeArray | None = None
    ) -> Batches:
        """Predict time and memory of every configuration; ``broken``: codes of broken rules."""
        c = configurations
        codes = self.broken(c) if broken is None else broken
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            memory, static = serving_memory(self.inputs, c), static_batch(self.inputs, c)
        last = np.int8(len(self.rules))
        surely = has_memory_to_start(self.inputs, memory, c)
        for capacity, number, starts in (
            (memory.room, last, surely),
            (memory.host_room, last - 1, True),
        ):
            fits = capacity.holds_at_once(c.concurrency, c.attention_data_parallel) & starts
            codes = np.where((codes == 0) & ~fits, np.int8(number), codes)
        return Batches(source=self, configurations=c, rejected_by=codes, parts=memory, batch=static)


_Quantity = Quantity["Batches"]


@record(kw_only=True, repr=False)
class Batches(TokenGeneration):
    """Batches of ``concurrency`` requests a replica; what can be optimized, in SI units."""

    source: BatchSource
    configurations: ServingConfigurations
    rejected_by: CodeArray
    parts: ServingMemory
    batch: StaticBatch

    def complexity_at(self, rows: IndexArray) -> IndexArray:
        """The complexity of some plans; 0: the simplest."""
        latency = self.at(self.request_latency, rows)
        return batch_complexity(self.source.inputs, self.configurations.rows(rows), latency)

    @property
    def memory(self) -> tuple[Need, Need]:
        """Needed and usable bytes of full-length requests: host memory per GPU, and GPU memory."""
        c = self.configurations
        cache = self.parts.room.held(c.concurrency / c.attention_data_parallel)
        return needed_memory(self.source.inputs, self.parts, c, cache)

    fit_probability = _Quantity(
        lambda batches: fit_probability(
            batches.source.inputs, batches.parts, batches.configurations
        )
    )
    prefill_latency = _Quantity(lambda batches: batches.batch.time_to_first_token)
    decode_latency = _Quantity(lambda batches: batches.batch.time_per_output_token)
    request_latency = _Quantity(lambda batches: batches.batch.request_latency)
    num_gpus = _Quantity(lambda batches: batches.configurations.num_gpus)
    request_rate = _Quantity(
        lambda batches: (
            batches.configurations.data_parallel * batches.batch.batch / batches.request_latency
        )
    )
    cost_per_million_tokens = _Quantity(
        lambda batches: np.asarray(
            MILLION * batches.source.site.rate(batches.num_gpus) / batches.throughput
        )
    )
    memory_headroom = _Quantity(
        lambda batches: batches.source.inputs.machine.gpu.allocatable_memory - batches.parts.total
    )

    def addends(self, name: str) -> Mapping[str, FloatArray]:
        """The parts of a quantity by name; a request latency [s] is prefill plus decode latency."""
        if name != "request_latency":
            return super().addends(name)
        first = self.prefill_latency
        return {"prefill_latency": first, "decode_latency": self.request_latency - first}

    @property
    def draws(self) -> tuple[PowerDraw, ...]:
        """The electric power of all GPUs, by part; near the design power during prefill."""
        # Without a cache every token computes the whole sequence again.
        first = self.prefill_latency / self.request_latency
        no_cache = self.configurations.kv_cache == CacheType.NONE
        return (self.drawn(np.where(no_cache, 1.0, first)),)

    def columns(self) -> Columns:
        """The result columns: source, configuration, latencies, rates, costs and memory."""
        source, c, shape = self.source, self.configurations, self.shape
        inputs, price = self.source.inputs, self.source.site.rate(self.num_gpus)
        values = {
            **term_columns(
                (*terms_about("latency", "inference"), *terms_about("output_rate")), self
            ),
            "cost_per_million_tokens_usd": self.cost_per_million_tokens,
            **self.energy_columns,
            **token_costs(
                inputs,
                price=price,
                prompt_price=price * self.prefill_latency / self.request_latency,
                prefix_share=prefix_share(inputs, self.configurations),
                request_rate=self.request_rate,
            ),
            "memory_headroom_gib": self.memory_headroom / GIB,
            "fit_probability": self.fit_probability,
        }
        return {
            **repeated(source.named, shape),
            "num_gpus": counts(c.num_gpus, shape),
            "replicas": counts(c.data_parallel, shape),
            **parameter_columns(c, PARAMETERS),
            **{name: floats(value, shape) for name, value in values.items()},
            **memory_columns(source.inputs, self.parts, c, shape),
        }


def evaluate_batch_once(source: Source, _: int | None = None) -> Evaluation:
    """Evaluate the one configuration of a source, with the largest batch that fits."""
    evaluation = evaluate_single(source)
    largest = max_concurrency(source, evaluation.candidates.configurations)
    return replace(evaluation, more={"largest_batch": [largest]})


_ALL = "all"


_LARGEST_REPLICA = 64


# Ranks that split prompts, in one node.
_PROMPT_SPLITS = (1, 2, 4, 8)


_LAYOUT = terms_about("model_parallel", "serve")


_CACHE = terms_about("serving_memory")


_ANSWER_ONLY_PARAMETERS = (*_CACHE, "concurrency", "max_num_batched_tokens")


def serving_mesh(
    space: SearchSpace,
    settings: Settings,
    *,
    counts: Sequence[int] | None,
    model: ModelSpec,
    engine: EngineProfile,
    caches_activations: bool = False,
    splits_prompts: bool = False,
) -> OpenMesh[ServingConfigurations]:
    """All combinations of the search space's values, narrowed by the user's ``settings``.

    Without ``counts`` of GPUs every configuration is one replica on its own GPUs.
    ``caches_activations``: the cache has the format of the activations, where none is specified.
    ``splits_prompts``: GPUs that split prompts are tried, where no number is specified.

    Raises SearchSpaceError if a parameter or a value is unknown, there is no value left, or the
    engine has no such option.
    """
    refuse_unknown(space, settings, SERVING_NAMES, derived=("data_parallel", "replicas"))
    of_engine = {"max_num_batched_tokens": engine.scheduler.max_num_batched_tokens}
    choices = {**parameter_defaults("serve"), **of_engine, **space.parameters, **settings}
    bases = {
        "num_gpus": max(counts or [_LARGEST_REPLICA]),
        "num_hidden_layers": model.num_hidden_layers,
        "num_experts": max(model.num_experts, 1),
        "global_batch_size": 1,
    }
    values = {name: as_values(choice, bases) for name, choice in choices.items()}
    table = {
        name: coded_values(name, values[name]) for name in (*_LAYOUT, *_ANSWER_ONLY_PARAMETERS)
    }
    if any(table["gpu_memory_utilization"]) and engine.memory.memory_share is None:
        raise SearchSpaceError(
            f"{engine.name} has no option for the share of GPU memory that it uses: leave out "
            "gpu_memory_utilization, or name an engine that has (vllm, sglang, tensorrt-llm)."
        )
    if splits_prompts and "context_parallel" not in {*space.parameters, *settings}:
        table["context_parallel"] = [*_PROMPT_SPLITS]
    if not model.num_experts and "attention_data_parallel" not in settings:
        table["attention_data_parallel"] = [1]
    if "concurrency" not in settings:
        # More requests than the engine runs at once would only wait.
        maximum = engine.scheduler.max_num_seqs * max(table["attention_data_parallel"])
        useful = {n for n in table["concurrency"] if n <= maximum}
        if len(table["concurrency"]) > 1 and useful:
            table["concurrency"] = sorted({*useful, min(maximum, max(table["concurrency"]))})
    single_axes = {
        name: single_axis(ServingConfigurations, name, table[name])
        for name in _ANSWER_ONLY_PARAMETERS
    }
    types = _quantizations(space, settings, model, model.num_experts > 0)
    if caches_activations and "kv_cache" not in {*space.parameters, *settings}:
        del single_axes["kv_cache"]
        caches = np.asarray([_cache_of(code) for code in types["quantization"]], dtype=np.int8)
        types = {**types, "kv_cache": caches}
    layouts = _layouts(table, values["expert_parallel"], counts, model.num_experts > 0)
    of_cache = [single_axes[name] for name in _CACHE if name in single_axes]
    axes: list[Sequence[Factor]] = [[layouts], [types], of_cache]
    if "max_num_batched_tokens" in {*space.parameters, *settings}:
        axes.append([single_axes["max_num_batched_tokens"]])
    else:
        ranks = layouts["attention_data_parallel"].astype(np.float64)
        axes[0] = [
            {**layouts, "max_num_batched_tokens": engine.scheduler.default_step_tokens(ranks)}
        ]
    return OpenMesh(kind=ServingConfigurations, axes=[*axes, [single_axes["concurrency"]]])


def _layouts(
    table: Mapping[str, Sequence[float]],
    spreads: Sequence[object],
    counts: Sequence[int] | None,
    has_experts: bool,
) -> Factor:
    """Columns of the distinct layouts of one replica, for each number of GPUs."""
    degrees = [single_axis(ServingConfigurations, name, table[name]) for name in _LAYOUT]
    layouts = cross_product(degrees)
    split = numbers(layouts, "tensor_parallel") * numbers(layouts, "context_parallel")
    stage = split * numbers(layouts, "attention_data_parallel")
    replica = stage * numbers(layouts, "pipeline_parallel")
    if min(len(table[name]) for name in ("pipeline_parallel", "attention_data_parallel")) > 1:
        # Engines combine these two hardly ever; who sets one of them gets both.
        is_usual = (layouts["pipeline_parallel"] == 1) | (layouts["attention_data_parallel"] == 1)
        layouts = {name: values[is_usual] for name, values in layouts.items()}
        stage, replica = stage[is_usual], replica[is_usual]
    rows = []
    for spread in spreads:
        if spread == _ALL:
            ranks = stage if has_experts else np.ones_like(stage)
        else:
            (number,) = coded_values("expert_parallel", [spread])
            ranks = np.full_like(stage, number)
        for count in counts or [0]:
            gpus = np.full_like(stage, count) if counts else replica
            fitting = replica <= gpus if (replica <= gpus).any() else replica > 0
            columns = [gpus, *layouts.values(), ranks]
            rows.append(np.stack([column[fitting] for column in columns], axis=1))
    names = ("num_gpus", *layouts, "expert_parallel")
    distinct = np.unique(np.concatenate(rows), axis=0)
    # Replicas of one size have room for about as many requests: blocks of them narrow well.
    size = distinct[:, 1] * distinct[:, 2] * distinct[:, 3]
    return dict(zip(names, distinct[np.argsort(size, kind="stable")].T, strict=True))


def _quantizations(
    space: SearchSpace, settings: Settings, model: ModelSpec, has_experts: bool
) -> Factor:
    """Columns of weight formats (dense, experts): of the user, the checkpoint, or the space."""
    weight_formats: object = space.parameters.get("quantization", "w16a16")
    experts: object = space.parameters.get("expert_quantization")
    if model.quantization or model.expert_quantization:
        weight_formats, experts = model.quantization or "w16a16", model.expert_quantization
    weight_formats = settings.get("quantization", weight_formats)
    if "quantization" in settings:
        experts = None
    experts = settings.get("expert_quantization", experts)
    others = coded_values("quantization", as_values(weight_formats, {}))
    pairs = [(code, code) for code in others]
    if experts is not None and has_experts:
        expert_codes = coded_values("expert_quantization", as_values(experts, {}))
        pairs = [(code, expert) for code in others for expert in expert_codes]
    columns = np.asarray(pairs, dtype=np.int8)
    return {"quantization": columns[:, 0], "expert_quantization": columns[:, 1]}


def _cache_of(quantization: int) -> CacheType:
    """The cache of as many bits as activations have."""
    return CACHES_OF_ACTIVATIONS.get(Quantization(quantization), CacheType.BF16)


_TYPES = terms_about("number_format", "serve")


def formats_to_choose(question: WorkloadQuestion, space: SearchSpace) -> dict[str, list[str]]:
    """Number formats that the search chooses from, by parameter; empty if all are set."""
    specified = {*question.request.settings}
    published = question.model.quantization, question.model.expert_quantization
    if question.request.precision is not None or any(published):
        specified.add("quantization")
    choices = {name: as_values(space.parameters.get(name, ()), {}) for name in _TYPES}
    return {
        name: [str(format_value(name, code)) for code in coded_values(name, values)]
        for name, values in choices.items()
        if name not in specified and len(values) > 1
    }


_NUMBERS = ("replicas", "prefill_replicas")


def serving_sources(scene: HardwareScenario) -> list[Source]:
    """The search sources of a scenario, one for each serving mode and prefill GPU."""
    request = scene.question.request
    if not scene.profile.scheduler.serves:
        raise SearchSpaceError(
            f"{scene.profile.name} has static batches only and cannot serve a stream of requests: "
            "see `planner estimate --workload inference`."
        )
    is_tried = DECODE_CONTEXT_PARALLEL in scene.question.compared
    if is_tried and _lacks_split_caches(scene):
        return []
    modes = parse_modes(request)
    if scene.question.work.embeds:
        modes = _without_answers(scene, modes)
    elif not scene.profile.scheduler.continuous:
        modes = _without_pools(scene, modes)
    settings = dict(request.settings)
    of_pools = {name: settings.pop(name) for name in terms_of("serve", "pool") if name in settings}
    if of_pools and AGGREGATED in modes:
        name = next(iter(of_pools))
        raise SearchSpaceError(
            f"{name} follows from the number of GPUs, except with --mode disaggregated."
            if name in _NUMBERS
            else f"{name} is for prefill workers: it needs --mode disaggregated."
        )
    rate = None if request.space == SINGLE else request.request_rate
    mesh = _mesh(scene, settings)
    sources: list[Source] = []
    for mode in modes:
        hardware_choices = (
            [scene.place] if mode == AGGREGATED else [scene.place, _prefill_hardware(scene)]
        )
        for place in hardware_choices:
            _check_kernels(scene, place)
        if mode in POOLED:
            of_mode = _attention_ffn_source if mode == ATTENTION_FFN else _pool_source
            sources.append(of_mode(scene, mesh, {**settings, **of_pools}, rate))
            continue
        sources.append(
            ReplicaSource(
                inputs=_setting(scene, scene.place),
                mesh=mesh,
                counts=scene.question.counts,
                request_rate=rate,
                site=scene.place.site,
                waits=_has_waiting_requests(scene, mesh),
            )
        )
    return sources


def _lacks_split_caches(scene: HardwareScenario) -> bool:
    """Return True if ranks are to hold parts of caches, and those of the engine hold copies."""
    is_split = scene.question.work.decode_context_parallel > 1
    return is_split and not scene.profile.decode_context_parallel


def _has_waiting_requests(scene: HardwareScenario, mesh: OpenMesh[ServingConfigurations]) -> bool:
    """True if the concurrency is an offered load: requests that do not fit in memory wait.

    Several values are a search over batch slots. For engines with slots, one value is their
    number, unless clients send a number of requests.
    """
    request, scheduler = scene.question.request, scene.profile.scheduler
    are_sent = request.num_requests is not None and request.request_rate is None
    is_load = scheduler.continuous or (scheduler.slots and are_sent)
    return is_load and len(mesh.values("concurrency")) == 1


def batch_sources(scene: HardwareScenario) -> list[Source]:
    """The one source of a search over static batches."""
    _check_kernels(scene, scene.place)
    return [
        BatchSource(
            inputs=_setting(scene, scene.place),
            mesh=_mesh(scene, scene.question.request.settings),
            counts=scene.question.counts,
            site=scene.place.site,
        )
    ]


def _pool_source(
    scene: HardwareScenario,
    mesh: OpenMesh[ServingConfigurations],
    settings: Settings,
    rate: float | None,
) -> PrefillDecodeSource:
    """The source of prefill and decode pools; ``settings`` may differ for prefill workers."""
    prefill_hardware = _prefill_hardware(scene)
    shared_settings = {
        name: value for name, value in settings.items() if name not in terms_of("serve", "pool")
    }
    prefill_settings = {
        name.removeprefix(PREFILL): value
        for name, value in settings.items()
        if name not in shared_settings and name not in _NUMBERS
    }
    replicas, prefill_replicas = (_number_of_workers(name, settings.get(name)) for name in _NUMBERS)
    if not scene.question.counts and (replicas is None) != (prefill_replicas is None):
        raise SearchSpaceError("Give replicas and prefill_replicas together, or --gpus with one.")
    inputs, counts = _setting(scene, scene.place), scene.question.counts
    return PrefillDecodeSource(
        inputs=inputs,
        space=PrefillDecodeSpace(
            prefill_setting=_setting(scene, prefill_hardware),
            decode_setting=inputs,
            prefill_mesh=_mesh(scene, {**shared_settings, **prefill_settings})
            if prefill_settings
            else mesh,
            decode_mesh=mesh,
            counts=counts,
            request_rate=rate,
            replicas=replicas,
            prefill_replicas=prefill_replicas,
            waits=_has_waiting_requests(scene, mesh),
        ),
        counts=counts,
        site=scene.place.site,
        prefill_site=prefill_hardware.site,
    )


# Also ratios of 3 to 1 and 3 to 2 (Step-3, arXiv:2507.19427, table 8).
_GPUS_OF_A_SIDE = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)


def _attention_ffn_source(
    scene: HardwareScenario,
    mesh: OpenMesh[ServingConfigurations],
    settings: Settings,
    rate: float | None,
) -> PrefillDecodeSource:
    """The source of pools whose decode workers have attention and FFN on separate GPUs.

    ``expert_parallel`` of these is the number of GPUs for the FFN, which prefill workers lack.

    Raises SearchSpaceError if the model has no experts, or something is not predicted with them.
    """
    question = scene.question
    if not question.model.num_experts:
        raise SearchSpaceError(
            f"{question.model.name} has no experts, and --mode {ATTENTION_FFN} is predicted for "
            "models with experts: choose another --mode."
        )
    work, defaults = question.work, parameter_defaults("serve")
    unsplit = {PIPELINE_PARALLEL: 1, CONTEXT_PARALLEL: 1}
    fixed = (*unsplit, *(name for name in _CACHE if name.endswith("offload")))
    refused = [
        name
        for name in fixed
        if coded_values(name, as_values(settings.get(name, defaults[name]), {})) != [defaults[name]]
    ]
    if work.draft_tokens or work.lora_rank or refused:
        reason = refused[0] if refused else "adapters" if work.lora_rank else "drafts"
        raise SearchSpaceError(f"--mode {ATTENTION_FFN} is not predicted with {reason}.")
    of_pools = terms_of("serve", "pool")
    of_workers = {name: value for name, value in settings.items() if name not in of_pools}
    sides = {ATTENTION_DATA_PARALLEL: _GPUS_OF_A_SIDE, EXPERT_PARALLEL: _GPUS_OF_A_SIDE}
    decode_mesh = _mesh(scene, {**sides, **of_workers, **unsplit})
    if of_workers.pop(EXPERT_PARALLEL, None) is not None:
        mesh = _mesh(scene, of_workers)
    others = {name: value for name, value in settings.items() if name != EXPERT_PARALLEL}
    source = _pool_source(scene, mesh, others, rate)
    decode = OpenMesh[ServingConfigurations](kind=AttentionFfnConfigurations, axes=decode_mesh.axes)
    return replace(source, space=replace(source.space, decode_mesh=decode), mode=ATTENTION_FFN)


def _number_of_workers(name: str, value: object) -> int | None:
    """The specified number of workers; None: not specified. Refuses several numbers."""
    if value is None:
        return None
    values = coded_values(name, as_values(value, {}))
    if len(values) > 1:
        raise SearchSpaceError(f"Give one number of {name}, or none for all that fill the GPUs.")
    return int(values[0])


def _prefill_hardware(scene: HardwareScenario) -> PricedHardware:
    return scene.others.get("prefill_gpu", scene.place)


def _setting(scene: HardwareScenario, place: PricedHardware) -> ServingInputs:
    """The model, engine, requests and hardware that all configurations on ``place`` have."""
    question = scene.question
    host_cache, host_memory = question.work.host_cache, place.machine.host_memory
    if host_cache and place.machine.gpu.unified_memory:
        raise SearchSpaceError(
            f"{place.machine.gpu.name} and its host have one memory, which its cache has already: "
            "leave out --host-cache."
        )
    if host_cache > host_memory:
        raise SearchSpaceError(
            f"--host-cache {format_gib(host_cache)} is more than the host memory of a GPU, "
            f"{format_gib(host_memory)} of {place.machine.gpu.name}: give no more."
        )
    inputs = ServingInputs(
        machine=place.machine,
        model=question.model,
        engine=_engine(scene, place),
        workload=question.work,
        draft=draft_of(question.request, question.model, place.machine.catalogue),
        compared=question.compared,
        engine_version=question.request.engine_version or "",
        slowdown=serving_slowdown(question.request),
    )
    return replace(inputs, sure_share=serving_share(inputs, question.request.confidence))


def _engine(scene: HardwareScenario, place: PricedHardware) -> EngineProfile:
    """The engine profile with its defaults on the GPU of ``place`` and the request's options."""
    request = scene.question.request
    is_offline = request.workload == "inference"
    engine = engine_on(
        scene.profile, place.machine.gpu, request.engine_version or "", offline=is_offline
    )
    return with_options(engine, request)


def _mesh(scene: HardwareScenario, settings: Settings) -> OpenMesh[ServingConfigurations]:
    """All combinations of parameter values of one replica, narrowed by the user's ``settings``."""
    question, engine = scene.question, _engine(scene, scene.place)
    is_search = question.request.space != SINGLE and question.request.workload == "serve"
    return serving_mesh(
        scene.space,
        settings,
        counts=question.counts or None,
        model=question.model,
        engine=engine,
        caches_activations=caches_activations(question.request),
        splits_prompts=is_search and _splits_prompts(scene, engine),
    )


def _splits_prompts(scene: HardwareScenario, engine: EngineProfile) -> bool:
    """Return True if prompts are longer than the engine's largest step, and it can split them.

    Shorter prompts fill a step together: then ranks that split each save no time.
    """
    model, work = scene.question.model, scene.question.work
    is_long = work.input_tokens > engine.scheduler.max_num_batched_tokens
    return is_long and can_split_prompts(scene.place.machine.gpu, model, engine, work)


def _without_pools(scene: HardwareScenario, modes: Sequence[str]) -> list[str]:
    """The mode ``aggregated``; refuses ``disaggregated``, as the engine sends no KV caches."""
    if AGGREGATED not in modes:
        raise SearchSpaceError(
            f"{scene.profile.name} cannot send caches between servers: leave out --mode "
            "disaggregated, or name an engine that does (vllm, sglang, tensorrt-llm)."
        )
    return [AGGREGATED]


def _without_answers(scene: HardwareScenario, modes: Sequence[str]) -> list[str]:
    """The mode ``aggregated`` for embeddings; refuses ``disaggregated``, as nothing is decoded."""
    if not scene.profile.embeddings:
        raise SearchSpaceError(
            f"{scene.profile.name} embeds and scores no prompts: name an engine that does (vllm, "
            "sglang)."
        )
    if AGGREGATED not in modes:
        raise SearchSpaceError(
            "Prompts that are embedded or scored have no answer to decode: leave out --mode "
            "disaggregated."
        )
    return [AGGREGATED]


def _check_kernels(scene: HardwareScenario, place: PricedHardware) -> None:
    """Refuse a GPU for which the engine has no kernels."""
    gpu, engine = place.machine.gpu, scene.profile
    if engine.vendors and gpu.vendor not in engine.vendors:
        other = "llama-cpp" if gpu.vendor == "Apple" else "vllm"
        raise SearchSpaceError(
            f"{engine.name} has kernels for GPUs of {', '.join(engine.vendors)}, not for "
            f"{gpu.name} of {gpu.vendor}: choose another --engine, such as {other}, or --gpu."
        )
    if gpu.architecture in engine.without_architectures:
        raise SearchSpaceError(
            f"{engine.name} has no kernels for {gpu.architecture} GPUs such as {gpu.name}: choose "
            "another --engine, such as llama-cpp."
        )
