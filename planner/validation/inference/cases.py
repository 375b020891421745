"""Cases of inference: inputs of the estimator from rows; measurements are never read."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace
from enum import StrEnum
from functools import cached_property
from typing import Any

import numpy as np

from planner.base.enums import CacheType
from planner.base.records import record
from planner.base.units import GIB
from planner.confidence.error_classes import Release, batching_kind, stated_release
from planner.confidence.evidence import (
    BURST,
    CLOSED,
    LOADS,
    MAXIMUM,
    OPEN_LOOP,
    STATIC,
    Conditions,
    disaggregated_group,
    group_of_code,
    layer_kinds,
    load_codes,
    serving_groups,
)
from planner.confidence.intervals import INFERENCE_TABLES, MemoryErrors, memory_errors
from planner.confidence.medians import Work, median_slowdown
from planner.confidence.profile_rules import EngineRule, engine_rule
from planner.configurations.serving_rules import SERVING_RULES, ServingContext
from planner.estimators.inference.batch_share import ServingInputs
from planner.estimators.inference.weights import weight_bytes
from planner.estimators.machine import Machine
from planner.question.terms import terms_about
from planner.specs.engine import EngineProfile
from planner.specs.gpu import GpuSpec
from planner.specs.model import ModelSpec
from planner.specs.quantization import FORMATS, GGUF_BITS
from planner.specs.serving_workload import MOST_DRAFTED, ServingWorkload
from planner.specs.software_profile import engine_on, release_parts
from planner.validation.inference.deployments import Deployment, configurations, deployment
from planner.validation.run_tables import SCHEDULED, Case, MemoryKind, Run
from planner.validation.spec_library import (
    Library,
    NotPredicted,
    model_of,
    run_cluster,
    spelled,
    without_variant,
)
from planner.workloads.serving.question import (
    with_graphs,
    with_sequence_limit,
    without_cuda_graphs,
)


def scheduled(engine: EngineProfile, run: Run) -> EngineProfile:
    """Return the engine with the scheduler and CUDA-graph options of a run."""
    names = ("poll_interval", "batch_wait", *SCHEDULED)
    settings: dict[str, Any] = {
        name: int(run.number(name) or 0) for name in names if run.text(name)
    }
    if engine.front_end is not None and (processes := run.number("api_servers")):
        front_end = replace(engine.front_end, processes=processes)
        engine = replace(engine, front_end=front_end)
    if run.flag("enforce_eager"):
        engine = without_cuda_graphs(engine)
    try:
        if "max_num_seqs" in settings:
            engine = with_sequence_limit(engine, settings["max_num_seqs"])
        return (
            replace(engine, scheduler=replace(engine.scheduler, **settings)) if settings else engine
        )
    except ValueError as error:
        raise NotPredicted(f"impossible scheduler: {error}") from error


def weight_scale(run: Run, replica: Deployment) -> float:
    """Return the stated bits per weight over those of its number format; 1: not stated."""
    bits = run.number("bits_per_weight")
    if not bits:
        return 1.0
    of_format = GGUF_BITS.get(replica.quantization, 8 * FORMATS[replica.quantization].weight)
    return min(max(bits / of_format, 0.1), 4.0)


def slower(engine: EngineProfile, scale: float) -> EngineProfile:
    """Return the engine with slower reads of weights, which are ``scale`` times as large."""
    if scale == 1.0:
        return engine
    fraction = min(engine.execution.weight_bandwidth_fraction / scale, 2.0)
    return replace(engine, execution=replace(engine.execution, weight_bandwidth_fraction=fraction))


_LONGEST = 100_000_000
_HIGHEST_RATE = 1e6
_LARGEST_SHARES = {
    **dict.fromkeys(terms_about("length_variation"), 10.0),
    "prefix_cache_hit_rate": 0.999,
    "acceptance_rate": 0.999,
}
_LARGEST_MEMORY = 1e6
_LARGEST_RANK = 4096
_MOST_ADAPTERS = 100_000
# DeepSeek-V3's own module for drafts: 85 to 90 % of the first drafted tokens are accepted
# (arXiv:2412.19437, section 5.4.3), fewer of those after it; it is one layer and the logits.
_ACCEPTANCE = {1: 0.85, 2: 0.8}
_LEAST_ACCEPTED = 0.75
_DRAFT_COST = 0.05
# A benchmark of ten times the concurrency: the first tenth arrives at once.
WAVES = 10.0
_WAVES_OF_EQUALS = 100.0
# A short prompt and answer if a row specifies neither.
_USUAL_LENGTHS = {"input_tokens": 32.0, "output_tokens": 128.0}
SEQUENTIAL = "sequential"
MICRO_BATCHES = "micro_batches"
TOGETHER = "together"
_STAGES = ("", TOGETHER, SEQUENTIAL, MICRO_BATCHES)


class Mode(StrEnum):
    """Arrival of the requests of a run: together, as many as fit, or over time."""

    STATIC = "static_batch"
    MAX_THROUGHPUT = "continuous_max_throughput"
    ONLINE = "online"
    DISAGGREGATED = "disagg"


_OFFLINE = {Mode.STATIC: STATIC, Mode.MAX_THROUGHPUT: MAXIMUM}
WORK_OF_MODE = {
    Mode.STATIC: Work.STATIC_BATCH,
    Mode.MAX_THROUGHPUT: Work.MAX_THROUGHPUT,
    Mode.ONLINE: Work.SERVING,
    Mode.DISAGGREGATED: Work.SERVING,
}
_MODES = {mode.value: mode for mode in Mode} | {"agg": Mode.ONLINE, "": Mode.ONLINE}


@record(kw_only=True)
class Traffic:
    """Lengths and arrivals of a row; None: not specified.

    ``input_tokens`` 0: only decoding is measured, ``output_tokens`` 0: only the prompt.
    """

    input_tokens: float
    output_tokens: float
    concurrency: float | None
    request_rate: float | None
    num_requests: float | None
    length_scale: float
    equal_lengths: bool
    equal_prompts: bool
    draft_tokens: int
    input_variation: float = 0.0
    output_variation: float = 0.0
    prefix_cache_hit_rate: float = 0.0
    acceptance_rate: float = 0.0
    shared_prefix_tokens: int = 0
    lora_rank: int = 0
    max_loras: int | None = None

    @cached_property
    def workload(self) -> ServingWorkload:
        """Return the traffic as a workload for the estimator, in full tokens, at least one.

        Only clients that wait for answers start together.
        """
        rate = self.request_rate if self.concurrency is None else None
        default_rate = (
            _ACCEPTANCE.get(self.draft_tokens, _LEAST_ACCEPTED) if self.draft_tokens else 0.0
        )
        return ServingWorkload(
            input_tokens=max(round(self.input_tokens * self.length_scale), 1),
            output_tokens=max(round(self.output_tokens * self.length_scale), 1),
            request_rate=rate,
            equal_lengths=self.equal_lengths,
            equal_prompts=self.equal_prompts,
            draft_tokens=self.draft_tokens,
            acceptance_rate=self.acceptance_rate or default_rate,
            draft_cost=_DRAFT_COST * self.draft_tokens,
            input_variation=self.input_variation,
            output_variation=self.output_variation,
            prefix_cache_hit_rate=self.prefix_cache_hit_rate,
            shared_prefix_tokens=self.shared_prefix_tokens,
            lora_rank=self.lora_rank,
            max_loras=self.max_loras,
        )

    @property
    def clients(self) -> float | None:
        """Maximum number of requests in flight; without a rate all requests start together."""
        return self.concurrency or (self.num_requests if self.request_rate is None else None)

    @property
    def is_closed(self) -> bool:
        """Whether clients wait for their answers."""
        return self.clients is not None

    @property
    def arrivals(self) -> str:
        """How requests arrive: at a rate, all together, or as clients have their answers."""
        if self.clients is None:
            return OPEN_LOOP
        together = self.num_requests is not None and self.num_requests <= self.clients
        return BURST if together else CLOSED

    @property
    def load(self) -> str:
        """How many requests are served at once, one of `planner.confidence.evidence.LOADS`."""
        return OPEN_LOOP if self.clients is None else LOADS[int(load_codes(self.clients))]

    @property
    def sent(self) -> float:
        """Return how many requests the clients send; an assumption if the run does not state it.

        Runs with equal lengths that do not state the number are assumed to be long.
        """
        waves = _WAVES_OF_EQUALS if self.equal_lengths else WAVES
        return self.num_requests or waves * (self.concurrency or np.inf)

    @property
    def of_all(self) -> tuple[Hashable, ...]:
        """Return the key of runs that one pass can predict: all of the traffic but the lengths."""
        return (
            self.request_rate is not None and self.concurrency is None,
            self.is_closed,
            self.equal_lengths,
            self.equal_prompts,
            self.draft_tokens,
            self.input_variation,
            self.output_variation,
            self.prefix_cache_hit_rate,
            self.acceptance_rate,
            self.shared_prefix_tokens,
            self.lora_rank,
            self.max_loras,
        )


@record(kw_only=True)
class WorkloadRows(ServingWorkload):
    """The workloads of many runs that differ in their lengths: one per row, not checked again."""

    input_tokens: Any
    output_tokens: Any
    num_requests: Any = None


@record(kw_only=True)
class Pool:
    """Prefill workers of a disaggregated run; 0: their number is not specified."""

    deployment: Deployment
    workers: int


@record(kw_only=True)
class InferenceCase(Case):
    """A run as input of the estimator.

    ``version``: of its engine, empty where its row has none. ``decode_rate``: its output rate
    leaves the prompts out. ``stages``: how the stages of a
    static batch's pipeline work: all at once if empty. ``tensors_only``: its memory is that
    of the allocator. ``weight_scale``: bytes of its weights over those of the quantization.
    ``logit_bytes``: bytes per logit, if it computes logits for every position of a prompt.
    ``slowdown``: time of an engine step over that of a set-up tuned as vendors' benchmarks.
    """

    mode: Mode
    engine: EngineProfile
    rule: EngineRule
    version: str = ""
    traffic: Traffic
    replica: Deployment
    prefill: Pool | None
    decode_workers: int
    decode_rate: bool
    stages: str
    tensors_only: bool
    weight_scale: float
    logit_bytes: float
    is_tuned: bool = False
    slowdown: float = 1.0

    @property
    def as_tuned(self) -> InferenceCase | None:
        """The case of the same run as fast as tuned ones; None if this one is."""
        return None if self.slowdown == 1.0 else replace(self, slowdown=1.0)

    @property
    def software(self) -> EngineRule:
        """The rule of its engine."""
        return self.rule

    @property
    def release(self) -> str:
        """The release of its engine; "": not stated."""
        return stated_release(self.version)

    @cached_property
    def conditions(self) -> Conditions:
        """GPU, arrivals, layout, weights and layers of the run."""
        replica = self.replica
        groups = (
            serving_groups(replica, 0)
            if self.prefill is None
            else disaggregated_group(replica.quantization, 0)
        )
        layout, number_format, _ = group_of_code(int(groups))
        return Conditions(
            gpu_class=self.gpu_class,
            work=_OFFLINE.get(self.mode) or self.traffic.arrivals,
            layout=layout,
            number_format=number_format,
            layer_kinds=layer_kinds(self.model),
        )

    @property
    def group(self) -> Hashable:
        """Return the key of cases that one pass can predict."""
        return (
            self.mode,
            self.model.name,
            self.model.num_hidden_layers,
            self.gpu.name,
            self.gpu.memory_capacity,
            self.cluster,
            self.rule.profile,
            self.engine.execution.weight_bandwidth_fraction,
            self.engine.execution.decode_launch_time,
            self.engine.memory,
            self.engine.scheduler,
            self.slowdown,
            *self.traffic.of_all,
        )

    @property
    def setup(self) -> Hashable:
        """Cases of one setup differ in their traffic's intensity alone."""
        return self.group, self.traffic.workload

    @property
    def inputs(self) -> ServingInputs:
        """Inputs of the estimator besides the replicas."""
        return setting_of([self])

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """Engine, class of GPU, mode, set-up, load, dense or a mixture of experts."""
        is_offline = self.mode in _OFFLINE
        setup = "" if is_offline else "tuned" if self.is_tuned else "own"
        load = "" if is_offline else self.traffic.load
        return (self.rule.label, self.gpu_class, self.mode.value, setup, load, self.kind)

    @property
    def memory_errors(self) -> MemoryErrors:
        """By engine, and how requests meet there."""
        return memory_errors(INFERENCE_TABLES, self.rule.label, batching_kind(self.engine))


def setting_of(
    cases: Sequence[InferenceCase], *, endless: bool = False, columns: bool = False
) -> ServingInputs:
    """Build the shared inputs of cases of one group; lengths [tokens] that differ become arrays.

    ``columns``: arrays have shape ``(cases, 1)``, not ``(cases,)``. ``endless``: the number of
    requests is unlimited.
    """
    first = cases[0]
    workload = first.traffic.workload
    lengths: dict[str, object] = {}
    for name in ("input_tokens", "output_tokens"):
        of_cases = np.array([float(getattr(case.traffic.workload, name)) for case in cases])
        if np.any(of_cases != of_cases[0]):
            lengths[name] = of_cases[:, None] if columns else of_cases
    if workload.request_rate is None and not endless:
        sent = np.array([case.traffic.sent / case.replica.replicas for case in cases])
        lengths["num_requests"] = sent[:, None] if columns else sent
    if lengths:
        workload = WorkloadRows(**{**vars(workload), **lengths})
    return ServingInputs(
        machine=Machine(gpu=first.gpu, cluster=first.cluster, catalogue=first.catalogue),
        model=first.model,
        engine=first.engine,
        workload=workload,
        slowdown=first.slowdown,
    )


def inference_case(run: Run, library: Library) -> InferenceCase:
    """Build the case of a published run from its columns, without its measurements.

    Raises NotPredicted if it cannot be predicted; the text says why.
    """
    mode = _MODES.get(run.word("mode"))
    if mode is None:
        raise NotPredicted(f"unknown mode {run.text('mode')}")
    gpu = library.gpu(run.text("gpu"))
    if gpu is None:
        raise NotPredicted(f"unknown GPU {run.text('gpu') or '(not specified)'}")
    if capacity := run.number("gpu_memory_gib"):
        if capacity > _LARGEST_MEMORY:
            raise NotPredicted("the memory of the GPU is out of range")
        gpu = replace(gpu, memory_capacity=capacity * GIB)
    model = served_model(run, library)
    version, year = run.text("framework_version"), run.number("year")
    rule = engine_rule(run.text("framework"), version, year, gpu.name, mode.value)
    offline = mode in (Mode.STATIC, Mode.MAX_THROUGHPUT)
    release = stated_release(version)
    default = engine_on(_of_release(rule, release, library), gpu, release, offline=offline)
    if offline or run.flag("tuned"):
        default = with_graphs(default, 0)
    engine = scheduled(default, run)
    has_decode_columns = mode is Mode.DISAGGREGATED and run.count("decode_tensor_parallel")
    replica = deployment(run, model, gpu, engine, "decode_" if has_decode_columns else "")
    traffic = _traffic(run, mode)
    scale = weight_scale(run, replica)
    return InferenceCase(
        mode=mode,
        model=model,
        gpu=gpu,
        cluster=run_cluster(run, gpu),
        engine=slower(engine, scale),
        rule=rule,
        version=version,
        traffic=traffic,
        replica=replica if mode is not Mode.DISAGGREGATED else replace(replica, replicas=1.0),
        prefill=_prefill(run, mode, model, gpu, engine),
        decode_workers=_workers(run, "decode", 1),
        decode_rate=bool(run.flag("decode_rate")) or traffic.input_tokens == 0,
        stages=_stages(run, rule) if replica.pipeline_parallel > 1 else "",
        tensors_only=run.word("memory_kind") in (MemoryKind.ALLOCATED, MemoryKind.RESERVED),
        weight_scale=scale,
        logit_bytes=rule.all_logits,
        is_tuned=bool(run.flag("tuned")),
        slowdown=1.0 if run.flag("tuned") else median_slowdown(WORK_OF_MODE[mode]).slower,
        catalogue=library.catalogue,
    )


def _of_release(rule: EngineRule, release: str, library: Library) -> EngineProfile:
    """Return the engine of a rule with memory and front end of an older release that is stated."""
    engine = library.engine(rule.profile)
    tool, _, since = engine.since.partition(" ")
    if not release or release_parts(release) >= release_parts(since):
        return engine
    older = Release(tool=tool, number=release).profile(library.catalogue)
    if older is None:
        return engine
    profile = library.engine(older)
    return replace(engine, memory=profile.memory, front_end=profile.front_end)


def served_model(run: Run, library: Library) -> ModelSpec:
    """Return the built-in model with the name of the run, or else build one from its columns."""
    name = spelled(run.text("model"))
    while name:
        model = library.model(name)
        if model is not None:
            return model
        name = without_variant(name)
    return model_of(run, library)


def _stages(run: Run, rule: EngineRule) -> str:
    """Return the schedule of the pipeline stages; empty: all stages work at once."""
    stages = run.word("stages") or rule.stages
    if stages not in _STAGES:
        raise NotPredicted(f"stages {stages!r} are not {', '.join(_STAGES[1:])}")
    return "" if stages == TOGETHER else stages


def _prefill(
    run: Run, mode: Mode, model: ModelSpec, gpu: GpuSpec, engine: EngineProfile
) -> Pool | None:
    """Return the prefill workers of a run with separate workers; None in other modes."""
    if mode is not Mode.DISAGGREGATED:
        return None
    prefix = "prefill_" if run.count("prefill_tensor_parallel") else ""
    pool = deployment(run, model, gpu, engine, prefix)
    return Pool(deployment=replace(pool, replicas=1.0), workers=_workers(run, "prefill", 0))


def _workers(run: Run, pool: str, otherwise: int) -> int:
    return run.count(f"{pool}_num_workers") or otherwise


def _traffic(run: Run, mode: Mode) -> Traffic:
    """Return lengths [tokens], rate [1/s] and concurrency of a run; raises NotPredicted."""
    lengths, scale = [], run.number("length_scale") or 1.0
    for name, default in _USUAL_LENGTHS.items():
        length = run.number(name)
        length = default if length is None else length
        if length * max(scale, 1.0) > _LONGEST:
            raise NotPredicted("the number of tokens is out of range")
        lengths.append(length)
    if not any(lengths):
        raise NotPredicted("neither prompt nor answer has tokens")
    rate = run.number("request_rate")
    if rate and rate > _HIGHEST_RATE:
        raise NotPredicted("the request rate is out of range")
    drafted = run.count("draft_tokens") or 0
    if drafted > MOST_DRAFTED:
        raise NotPredicted("the number of draft tokens is out of range")
    shared = run.count("shared_prefix_tokens") or 0
    if shared > lengths[0] * scale:
        raise NotPredicted("shared_prefix_tokens are more than a prompt has")
    return Traffic(
        input_tokens=lengths[0],
        output_tokens=lengths[1],
        concurrency=run.number("concurrency")
        or run.number("engine_batch_size")
        or (1.0 if mode is Mode.STATIC else None),
        request_rate=rate,
        num_requests=run.number("num_requests") or None,
        length_scale=scale,
        equal_lengths=bool(run.flag("equal_lengths")),
        equal_prompts=bool(run.flag("equal_prompts")),
        draft_tokens=drafted,
        shared_prefix_tokens=shared,
        lora_rank=_up_to(run, "lora_rank", _LARGEST_RANK) or 0,
        max_loras=_up_to(run, "max_loras", _MOST_ADAPTERS),
        **_shares(run),
    )


def _up_to(run: Run, name: str, maximum: int) -> int | None:
    """Return a count of the run, None if 0 or empty; raises NotPredicted above ``maximum``."""
    count = run.count(name)
    if count is not None and count > maximum:
        raise NotPredicted(f"{name} must be at most {maximum:,}")
    return count or None


def _shares(run: Run) -> dict[str, float]:
    """Return variation of lengths, cache hit rate, ... by column; raises NotPredicted."""
    shares = {name: run.number(name) or 0.0 for name in _LARGEST_SHARES}
    for name, largest in _LARGEST_SHARES.items():
        if not 0 <= shares[name] <= largest:
            raise NotPredicted(f"{name} must be from 0 to {largest:g}")
    return shares


_RULES = tuple(
    rule for rule in SERVING_RULES if rule.name in ("attention_heads", "num_hidden_layers")
)


def impossible_layouts(runs: Sequence[Run], cases: Sequence[InferenceCase]) -> list[str]:
    """Return per run why its layout is impossible; empty: it is possible.

    Such a prediction is about another layout: the run is listed but left out of errors.
    """
    pools = [(case, case.replica) for case in cases]
    pools += [(case, case.prefill.deployment) for case in cases if case.prefill is not None]
    reasons = dict.fromkeys(map(id, cases), "")
    for (case, _), error in zip(pools, _errors_of_deployments(pools), strict=True):
        reasons[id(case)] = reasons[id(case)] or error
    return [
        reasons[id(case)] or _error_of_numbers(run, case)
        for run, case in zip(runs, cases, strict=True)
    ]


def _error_of_numbers(run: Run, case: InferenceCase) -> str:
    """Say which number of workers or GPUs a run lacks; empty if nothing is missing."""
    if case.mode is Mode.DISAGGREGATED:
        num_workers = (run.count("prefill_num_workers"), run.count("decode_num_workers"))
        return "" if all(num_workers) else "it has pools, but no numbers of workers"
    size, domain = case.replica.tensor_parallel, case.cluster.scale_up.domain_size
    if run.count("num_gpus") or size <= max(domain, 8):
        return ""
    return f"tensor_parallel {size} leaves a node of {domain}; the number of GPUs is not specified"


def _errors_of_deployments(pools: Sequence[tuple[InferenceCase, Deployment]]) -> Iterator[str]:
    """Yield per deployment the broken rule or lack of memory for weights; empty: possible."""
    first = pools[0][0]
    inputs = first.inputs
    c = configurations([pool for _, pool in pools], [1.0] * len(pools))
    context = ServingContext(
        gpu=first.gpu,
        model=first.model,
        engine=first.engine,
        workload=inputs.workload,
        domain_size=first.cluster.scale_up.domain_size,
    )
    violated = [
        (rule, np.broadcast_to(rule.violated(c, context), c.num_gpus.shape)) for rule in _RULES
    ]
    weights = np.broadcast_to(weight_bytes(inputs, c).total, c.num_gpus.shape)
    for row, (case, pool) in enumerate(pools):
        broken = [rule for rule, where in violated if where[row] and not case.stages]
        on_gpu = weights[row] * case.weight_scale * (1 - pool.weight_offload)
        if broken:
            yield f"{broken[0].description} ({pool.tensor_parallel})"
        elif on_gpu > case.gpu.allocatable_memory:
            yield (
                f"weights of {on_gpu / GIB:,.0f} GiB on a GPU of "
                f"{case.gpu.allocatable_memory / GIB:,.0f} GiB"
            )
        else:
            yield ""


def inference_choices(run: Run, case: InferenceCase) -> Iterator[str]:
    """Yield each assumption about a serving run because the run does not state it."""
    if not run.text("weight_precision") and not run.text("gemm_precision"):
        yield f"weight_precision: {case.replica.quantization.word}"
    if case.kind == "moe" and case.replica.expert_quantization != case.replica.quantization:
        yield f"experts in {case.replica.expert_quantization.word}"
    if not run.text("kv_cache_precision"):
        replica = case.replica
        narrow = replica.narrow_cache and replica.kv_cache is not CacheType.FP8
        otherwise = ", or fp8 where that lacks room" if narrow else ""
        yield f"kv_cache_precision: {replica.kv_cache.word}{otherwise}"
    pool = "decode_" if run.text("decode_tensor_parallel") else ""
    if not run.text(f"{pool}tensor_parallel"):
        yield f"tensor_parallel {case.replica.tensor_parallel}"
    if case.mode is Mode.DISAGGREGATED and not run.text("prefill_num_workers"):
        yield "enough prefill workers to keep up"
    yield from _assumed_traffic(run, case)


def _assumed_traffic(run: Run, case: InferenceCase) -> Iterator[str]:
    """Yield version, mode, lengths and concurrency that are assumed because they are not stated."""
    if not run.text("framework_version"):
        yield f"framework_version of {case.rule.profile}"
    if not run.text("mode"):
        yield f"mode {case.mode.value}"
    for name in ("input_tokens", "output_tokens"):
        if not run.text(name):
            yield f"{name} {getattr(case.traffic, name):g}"
    if case.mode is Mode.STATIC and not (
        run.number("concurrency") or run.text("engine_batch_size")
    ):
        yield "concurrency 1"
    unbounded = case.traffic.concurrency is None and case.traffic.request_rate is None
    if case.mode is Mode.ONLINE and unbounded:
        yield "concurrency: the fastest that there is room for"
