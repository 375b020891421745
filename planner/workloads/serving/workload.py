"""Serving streams of requests, and static batches, as workloads."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from planner.base.arrays import first
from planner.base.csv_cells import Value, number_of_row
from planner.base.formatting import format_gib, format_percent
from planner.configurations.configuration_tables import (
    PREFILL,
    ConfigurationTable,
    ServingConfigurations,
)
from planner.configurations.enumerate import OpenMesh, as_values, coded_values
from planner.errors import SearchSpaceError, did_you_mean
from planner.estimators.ideal_hardware import ideal_engine
from planner.estimators.inference.batch_share import ServingInputs
from planner.estimators.inference.continuous_batching import decode_batch, new_tokens, prompt_batch
from planner.estimators.inference.engine_step import InferenceStep, step_time
from planner.optimize.problem import confidence_factor
from planner.optimize.source import Candidates, Source
from planner.question.request import Request
from planner.question.terms import columns_about, terms_about, terms_of
from planner.specs.engine import EngineProfile
from planner.specs.serving_workload import ServingWorkload
from planner.specs.software_profile import engine_on
from planner.workloads.assumptions import assumed_limits
from planner.workloads.image_inputs import format_served_images, image_answers
from planner.workloads.prediction_confidence import serving_share
from planner.workloads.priced_hardware import PricedHardware
from planner.workloads.serving.assumptions import assumed_for_batches, open_serving
from planner.workloads.serving.max_concurrency import LARGEST_BATCH, max_concurrency
from planner.workloads.serving.prefill_decode_pools import PoolDeployments, PoolSource
from planner.workloads.serving.prefill_decode_search import PoolSpace
from planner.workloads.serving.replicas import Replicas, ReplicaSource
from planner.workloads.serving.results import AGGREGATED, DISAGGREGATED, MODES
from planner.workloads.serving.single import evaluate_serving_once
from planner.workloads.serving.space import (
    SINGLE,
    caches_activations,
    draft_of,
    formats_to_choose,
    make_serving_question,
    on_gpus,
    serving_mesh,
    weights_note,
    with_options,
)
from planner.workloads.serving.static_batches import Batches, BatchSource, evaluate_batch_once
from planner.workloads.workload import (
    ALL_MODULES,
    HardwareScenario,
    ResultWording,
    TimedPart,
    TimedStep,
    Workload,
    WorkloadQuestion,
    merge_parts,
)

_OTHERS = ("pipeline", "launch_wait", "transfer_wait", "overhead")


def serving_steps(candidates: Candidates) -> Mapping[str, TimedStep]:
    """The timed steps ``prefill`` and ``decode`` of candidates, by name."""
    return {name: timed_inference(step) for name, step in inference_steps(candidates).items()}


def decode_step(candidates: Candidates) -> InferenceStep:
    """The decode step of an engine with the sequences that are in flight at the load."""
    if isinstance(candidates, Replicas):
        estimate = candidates.at_load.estimate
        c, sequences = estimate.configurations, estimate.served.decoding
    elif isinstance(candidates, PoolDeployments):
        c, sequences = candidates.decode.configurations, candidates.at_load.decoding
    else:
        raise TypeError(f"{candidates!r} does not serve streams.")
    inputs = candidates.inputs
    batch = decode_batch(inputs, sequences / c.pipeline_parallel)
    return step_time(inputs, c, batch, True)


def inference_steps(candidates: Candidates) -> dict[str, InferenceStep]:
    """The steps ``prefill`` and ``decode`` of candidates; only ``prefill`` for embeddings."""
    if isinstance(candidates, Batches):
        static = candidates.batch
        return {"prefill": static.prefill_step, "decode": static.decode_step}
    if isinstance(candidates, Replicas):
        prompt = _prompt_step(candidates.inputs, candidates.estimate.configurations)
    elif isinstance(candidates, PoolDeployments):
        workers = candidates.prefill
        prompt = _prompt_step(workers.inputs, workers.configurations)
    else:
        raise TypeError(f"{candidates!r} does not serve.")
    if candidates.inputs.workload.embeds:
        return {"prefill": prompt}
    return {"prefill": prompt, "decode": decode_step(candidates)}


def _prompt_step(inputs: ServingInputs, c: ServingConfigurations) -> InferenceStep:
    """The step over one prompt per attention rank, cut at the token budget of a step."""
    new, ranks = new_tokens(inputs), c.attention_data_parallel
    tokens = np.minimum(new * ranks, np.maximum(c.replica_step_tokens, 1.0))
    batch = prompt_batch(inputs, np.asarray(ranks, np.float64), tokens, np.zeros(()))
    return step_time(inputs, c, batch, decoding=False)


def timed_inference(step: InferenceStep) -> TimedStep:
    """Split the time of an engine step into parts [s]: operators, and time of no operator."""
    others = {name: first(getattr(step, name)) for name in _OTHERS}  # of no operator
    of_none = (
        TimedPart.of(name, ALL_MODULES, {name: seconds}, step.works.get(name, ()), part=name)
        for name, seconds in others.items()
    )
    parts = merge_parts((*_operators(step), *of_none))
    return TimedStep(seconds=first(step.total), parts=parts)


def _operators(step: InferenceStep) -> Iterator[TimedPart]:
    """Yield the seconds of each operator of an engine step, over all layers."""
    for count, operators in (*step.layers, (1, step.ends)):
        for operator in operators:
            term = operator.module if operator.part == "compute" else operator.part
            yield TimedPart.of(
                operator.name,
                operator.module,
                {term: count * first(operator.forward)},
                operator.works,
                part=operator.part,
            )


_DEGREES = {
    term.short: name
    for name, term in terms_of("serve", "parameter").items()
    if term.short and term.type == "count"
}


def requests(inputs: ServingInputs) -> list[str]:
    """One line of text on the requests: lengths, rate, prefix cache, drafts and LoRA adapters."""
    work = inputs.workload
    answer = "embedded or scored" if work.embeds else f"{work.output_tokens:,} out"
    parts = [f"{work.input_tokens:,} tokens in, {answer}"]
    if work.input_variation or work.output_variation:
        varied = f"{100 * work.input_variation:g} % and {100 * work.output_variation:g} %"
        parts.append(f"lengths vary by {varied}")
    if work.equal_lengths:
        parts.append("all of these lengths")
    if work.request_rate is not None:
        parts.append(f"{work.request_rate:g} per second")
    if work.num_requests is not None:
        all_in_all = "in all" if work.request_rate is not None else "requests that start together"
        parts.append(f"{work.num_requests:,} {all_in_all}")
    if work.prefix_cache_hit_rate:
        parts.append(f"{format_percent(work.prefix_cache_hit_rate)} of prompts cached")
    if work.shared_prefix_tokens:
        parts.append(f"{work.shared_prefix_tokens:,} tokens shared by all prompts")
    if work.reuse is not None:
        parts.append(f"{format_percent(work.reuse.endless)} of prompts were used before")
    if work.draft_tokens:
        parts.append(_format_drafts(work))
    if work.embedding_bits is not None:
        parts.append(f"embedding and logits in {work.embedding_bits} bits")
    if work.redundant_experts:
        parts.append(f"{work.redundant_experts} copies of experts in a layer")
    if work.lora_rank:
        parts.append(f"LoRA adapters of rank {work.lora_rank}, {inputs.max_loras:,} in a step")
    if inputs.adapter_draws < math.inf:
        parts.append(
            f"of {work.num_adapters:,} adapters that requests name "
            f"{format_percent(inputs.adapter_hits)} "
            f"find theirs loaded, and {inputs.engine.scheduler.max_num_seqs} run at once at most"
        )
    parts += format_served_images(inputs.model, work)
    return [f"Requests: {', '.join(parts)}"]


def _format_drafts(work: ServingWorkload) -> str:
    """Draft tokens and their acceptance rate as text, with a hint if the rate is 0."""
    if work.acceptance_rate:
        tokens = f"{work.draft_tokens} draft tokens"
        if work.drafts_trees:
            tokens += f", {work.drafted_in_a_row} of them in a row,"
        return f"{tokens} accepted with {work.acceptance_rate:g}"
    return f"{work.draft_tokens} draft tokens, none accepted: give --acceptance-rate"


def layout(row: Mapping[str, object]) -> str:
    """The layout of a row as text: ``8 x tp4`` replicas, or ``2 x tp1 + 3 x tp2`` workers."""
    workers = f"{row['replicas']:,} x {_format_degrees(row, '')}"
    if row.get("prefill_replicas") is None:
        return workers
    return f"{row['prefill_replicas']:,} x {_format_degrees(row, PREFILL)} + {workers}"


def _format_degrees(row: Mapping[str, object], prefix: str) -> str:
    """The parallel degrees above 1 of a row as text, such as ``tp4 pp2``; default ``tp1``."""
    degrees = {
        abbreviation: number_of_row(row, prefix + name) if row[prefix + name] else 1
        for abbreviation, name in _DEGREES.items()
    }
    parts = [f"{abbreviation}{n}" for abbreviation, n in degrees.items() if n > 1]
    return " ".join(parts) or "tp1"


def _format_short(row: Mapping[str, object]) -> str:
    """The layout, the types, and the requests at once."""
    types = f"{row['quantization']}, {row['kv_cache']} cache"
    return f"{layout(row)}, {types}, concurrency {row['concurrency']:,}"


def _format_brief(row: Mapping[str, object]) -> str:
    """A row in one line: numbers and layout of workers, number formats, concurrency."""
    workers, per_worker = f"{row['replicas']:,} x {_format_degrees(row, '')}", "in each replica"
    if row.get("prefill_replicas") is not None:
        before = f"{row['prefill_replicas']:,} x {_format_degrees(row, PREFILL)} for prefill"
        workers, per_worker = f"{before} + {workers} for decode", "in each"
    types = f"{row['quantization']}, {row['kv_cache']} cache"
    return f"{workers}, {types}, {row['concurrency']:,} requests {per_worker}"


def _format_broken_rule(candidates: Candidates, rule: str) -> str:
    """The degrees and types of a configuration."""
    row = candidates.row
    names = ("num_gpus", *_DEGREES.values(), *terms_about("number_format", "serve"))
    return " ".join(f"{name}={row[name]}" for name in names)


def _format_room(row: Mapping[str, object], max_requests: int) -> str:
    """Text on how many of the concurrent requests fit in memory; empty if all fit."""
    number = number_of_row(row, "concurrency")
    return f"room for {max_requests:,} of {number:,} requests" if max_requests < number else ""


def _legend(shown: Mapping[str, Sequence[object]]) -> str:
    shapes = "replicas x their split"
    if any(number is not None for number in shown.get("prefill_replicas", ())):
        shapes += ", or prefill + decode workers"
    return f"layout: {shapes} (tp tensor, pp pipeline, dp attention data, ep expert parallel)"


SERVING_WORDS = ResultWording(
    noun="plan",
    question_lines=requests,
    layout=layout,
    in_layout=tuple(_DEGREES.values()),
    format_short=_format_short,
    format_brief=_format_brief,
    broken_rule_text=_format_broken_rule,
    room=_format_room,
    legend=_legend,
    results=lambda _: (
        "time_to_first_token_s",
        "time_per_output_token_s",
        "tokens_per_s_per_user",
        "output_tokens_per_s_per_gpu",
        "cost_per_million_tokens_usd",
    ),
    of_objective={n: t.result for n, t in terms_of("serve", "objective").items() if t.result},
    from_end_to_end=True,
    shown_columns=columns_about("serving_summary"),
)

BATCH_WORDS = replace(
    SERVING_WORDS,
    room=_format_room,
    results=lambda _: (
        "prefill_latency_s",
        "decode_latency_s",
        "request_latency_s",
        "output_tokens_per_s_per_gpu",
        "cost_per_million_tokens_usd",
    ),
    shown_columns=(
        "prefill_latency_s",
        "decode_latency_s",
        "request_latency_s",
        "output_tokens_per_s_per_gpu",
        "cost_per_million_tokens_usd",
    ),
)


_MOST_CONCURRENT = 4096
_FRONT = ("throughput_per_gpu", "interactivity")
_OF_LOAD = ("capacity_per_gpu", "interactivity")
_OF_PROMPTS = ("prompt_throughput_per_gpu", "request_latency")
_SIZING = ("num_gpus", "request_latency")
# Beyond ten times the lowest cost, plans gain too little to be shown.
_TIMES_THE_BEST = 10.0
_COSTS = ("usd", "count")
_PER_TOKEN = "cost_per_million_tokens_usd"
_LENGTHS = terms_about("length", "serve")
_NUMBERS = ("replicas", "prefill_replicas")


def _sources(scene: HardwareScenario) -> list[Source]:
    """The search sources of a scenario, one for each serving mode and prefill GPU."""
    request = scene.question.request
    _check_streams(scene)
    modes = _parse_modes(request)
    if scene.question.work.embeds:
        modes = _without_answers(scene, modes)
    elif not scene.profile.scheduler.continuous:
        modes = _without_pools(scene, modes)
    settings = dict(request.settings)
    of_pools = {name: settings.pop(name) for name in terms_of("serve", "pool") if name in settings}
    if of_pools and modes != [DISAGGREGATED]:
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
        if mode == DISAGGREGATED:
            sources.append(_pool_source(scene, mesh, {**settings, **of_pools}, rate))
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
    return [_counted_on(source, request.limit_confidence) for source in sources]


def _has_waiting_requests(scene: HardwareScenario, mesh: OpenMesh[ServingConfigurations]) -> bool:
    """True if the concurrency is an offered load: requests that do not fit in memory wait.

    Several values are a search over batch slots. For engines with slots, one value is their
    number, unless clients send a number of requests.
    """
    request, scheduler = scene.question.request, scene.profile.scheduler
    are_sent = request.num_requests is not None and request.request_rate is None
    is_load = scheduler.continuous or (scheduler.slots and are_sent)
    return is_load and len(mesh.values("concurrency")) == 1


def _counted_on(source: Source, confidence: float) -> Source:
    """The source that sizes plans by the request rate that is reached with this confidence."""
    share = confidence_factor(source, "request_rate", confidence, -1) or 1.0
    if isinstance(source, ReplicaSource):
        return replace(source, sure_share=share)
    if isinstance(source, PoolSource) and source.space.request_rate is not None:
        space = replace(source.space, request_rate=source.space.request_rate / share)
        return replace(source, space=space)
    return source


def _batch_sources(scene: HardwareScenario) -> list[Source]:
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
    settings: Mapping[str, object],
    rate: float | None,
) -> PoolSource:
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
    return PoolSource(
        inputs=inputs,
        space=PoolSpace(
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
        compares_drafts=question.compares_drafts,
        engine_version=question.request.engine_version or "",
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


def _mesh(
    scene: HardwareScenario, settings: Mapping[str, object]
) -> OpenMesh[ServingConfigurations]:
    """All combinations of parameter values of one replica, narrowed by the user's ``settings``."""
    question = scene.question
    return serving_mesh(
        scene.space,
        settings,
        counts=question.counts or None,
        model=question.model,
        engine=_engine(scene, scene.place),
        caches_activations=caches_activations(question.request),
    )


def _check_streams(scene: HardwareScenario) -> None:
    """Refuse an engine that serves no streams."""
    engine = scene.profile
    if not engine.scheduler.serves:
        raise SearchSpaceError(
            f"{engine.name} has static batches only and cannot serve a stream of requests: "
            "see `planner estimate --workload inference`."
        )


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
        raise SearchSpaceError(
            f"{engine.name} has kernels for GPUs of {' and '.join(engine.vendors)}, not for "
            f"{gpu.name} of {gpu.vendor}: choose another --engine."
        )
    if gpu.architecture in engine.without_architectures:
        raise SearchSpaceError(
            f"{engine.name} has no kernels for {gpu.architecture} GPUs such as {gpu.name}: choose "
            "another --engine, such as llama-cpp."
        )


def _parse_modes(request: Request) -> list[str]:
    """The requested serving modes; default: all, or ``aggregated`` for one configuration."""
    defaults = (AGGREGATED,) if request.space == SINGLE else MODES
    modes = [request.mode] if isinstance(request.mode, str) else list(request.mode or defaults)
    for text in modes:
        if text not in MODES:
            hint = did_you_mean(text, MODES)
            raise SearchSpaceError(f"Unknown mode {text!r}.{hint} Known: {', '.join(MODES)}.")
    if request.prefill_gpu is not None and DISAGGREGATED not in modes:
        raise SearchSpaceError("--prefill-gpu is for --mode disaggregated.")
    return [mode for mode in MODES if mode in modes]


def _objectives(question: WorkloadQuestion) -> tuple[str, ...]:
    """The default objectives; they differ with fixed numbers of GPUs and a fixed request rate."""
    if question.work.embeds and (question.counts or question.request.space == SINGLE):
        return _OF_PROMPTS
    if question.request.space == SINGLE:
        return _FRONT
    if not question.counts:
        return _SIZING
    return _FRONT if question.request.request_rate is None else _OF_LOAD


def _limits(question: WorkloadQuestion, source: Source) -> dict[str, float]:
    """The implied limits: the request rate for fixed GPUs, the GPUs of the cluster otherwise."""
    request, bounds = question.request, {}
    is_finite = request.num_requests is not None
    if (
        request.request_rate is not None
        and question.counts
        and request.space != SINGLE
        and not is_finite
    ):
        bounds["request_rate"] = request.request_rate
    max_gpus = source.inputs.machine.cluster.max_gpus
    if not question.counts and max_gpus is not None:
        bounds["max_gpus"] = min(max_gpus, request.constraints.get("max_gpus", max_gpus))
    return bounds


def _front_factor(question: WorkloadQuestion) -> float:
    """The factor on the lowest cost at which the front ends; infinite if the user limits costs."""
    request = question.request
    limits = terms_of(request.workload, "limit")
    limits_cost = any(limits[name].type in _COSTS for name in request.constraints if name in limits)
    return math.inf if request.objectives or limits_cost else _TIMES_THE_BEST


def _assumed(question: WorkloadQuestion) -> dict[str, float]:
    """The assumed limits of a search, by name; empty for a single configuration."""
    request = question.request
    if request.space == SINGLE:
        return {}
    limits = assumed_limits("serve", request.constraints)
    others = terms_of("serve", "answer") if question.work.embeds else {}
    return {name: bound for name, bound in limits.items() if name not in others}


def _reproducing_answers(source: Source) -> dict[str, Value]:
    """The answers, by question, with which a plan's open values are reproduced."""
    inputs = source.inputs
    if not isinstance(inputs, ServingInputs):
        raise TypeError(f"{source} does not serve.")
    work = inputs.workload
    lengths = {"input_tokens": work.input_tokens, "output_tokens": work.output_tokens}
    answers: dict[str, Value] = {"gpu": source.gpu, "engine": source.profile, **lengths}
    answers |= {**image_answers(inputs.model, work), **inputs.named}
    if isinstance(source, PoolSource):
        answers |= {"mode": source.mode, "prefill_gpu": source.prefill_gpu}
    return answers


def _open_values(request: Request, burst: int | None) -> dict[str, Sequence[float]]:
    """Concurrencies to evaluate, by parameter, if the user sets none; empty if one is set."""
    if "concurrency" in request.settings or len(_parse_modes(request)) > 1:
        return {}
    if request.num_requests is not None and request.request_rate is None:
        return {"concurrency": [min(request.num_requests, LARGEST_BATCH)]}
    if request.request_rate is not None or burst is not None:
        return {"concurrency": [*range(1, _MOST_CONCURRENT + 1)]}
    return {}


def _fitting_settings(source: Source, configurations: ConfigurationTable) -> dict[str, float]:
    """The highest concurrency that fits in memory, by parameter; empty if none fits."""
    number = max_concurrency(source, configurations)
    return {"concurrency": number} if number else {}


SERVE = Workload(
    name="serve",
    profile_kind="engine",
    single=SINGLE,
    ask=make_serving_question,
    sources=_sources,
    objectives=_objectives,
    limits=_limits,
    tried=formats_to_choose,
    front_factor=_front_factor,
    assumed=_assumed,
    ideal=ideal_engine,
    reproducing_answers=_reproducing_answers,
    fitted=on_gpus,
    hardware_notes=weights_note,
    evaluate_once=evaluate_serving_once,
    open_values=_open_values,
    fitting=_fitting_settings,
    wording=SERVING_WORDS,
    other_gpus=("prefill_gpu",),
    precision="quantization",
    open_facts=open_serving,
    comparison_columns=(_PER_TOKEN, "num_gpus", "cost_per_hour_usd"),
    ties=(*terms_about("throughput", "serve"), "num_gpus"),
    timed=serving_steps,
    lengths=_LENGTHS,
    suits=lambda question, engine: (
        engine.scheduler.serves and (engine.embeddings or not question.work.embeds)
    ),
)

INFERENCE = Workload(
    name="inference",
    profile_kind="engine",
    single=SINGLE,
    ask=make_serving_question,
    sources=_batch_sources,
    objectives=lambda _: ("throughput_per_gpu", "request_latency"),
    tried=formats_to_choose,
    front_factor=_front_factor,
    # Answers of static batches come at their end.
    assumed=lambda question: (
        {}
        if question.request.space == SINGLE
        else assumed_for_batches(question.request.constraints, question.work.output_tokens)
    ),
    ideal=ideal_engine,
    reproducing_answers=_reproducing_answers,
    fitted=on_gpus,
    hardware_notes=weights_note,
    evaluate_once=evaluate_batch_once,
    fitting=_fitting_settings,
    wording=BATCH_WORDS,
    precision="quantization",
    open_facts=open_serving,
    comparison_columns=(_PER_TOKEN, "num_gpus"),
    ties=(*terms_about("throughput", "inference"), "request_latency"),
    timed=serving_steps,
    lengths=_LENGTHS,
)
