"""Serving streams of requests, and static batches, as workloads."""

from __future__ import annotations

import math
from collections.abc import Sequence

from planner.base.csv_cells import Value
from planner.configurations.configuration_tables import ConfigurationTable
from planner.estimators.ideal_hardware import ideal_engine
from planner.estimators.inference.batch_share import ServingInputs
from planner.optimize.source import Source
from planner.question.request import Request
from planner.question.terms import terms_about, terms_of
from planner.workloads.assumptions import assumed_limits
from planner.workloads.image_inputs import image_answers
from planner.workloads.serving.prefill_decode_pools import PrefillDecodeSource
from planner.workloads.serving.question import SINGLE, make_serving_question, parse_modes
from planner.workloads.serving.replicas import LARGEST_BATCH, max_concurrency
from planner.workloads.serving.single import evaluate_serving_once, on_gpus, weights_note
from planner.workloads.serving.space import (
    batch_sources,
    evaluate_batch_once,
    formats_to_choose,
    serving_sources,
)
from planner.workloads.serving.wording import (
    BATCH_WORDS,
    SERVING_WORDS,
    assumed_for_batches,
    open_serving,
    serving_steps,
)
from planner.workloads.workload import Workload, WorkloadQuestion

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
    if isinstance(source, PrefillDecodeSource):
        answers |= {"mode": source.mode, "prefill_gpu": source.prefill_gpu}
    return answers


def _open_values(request: Request, burst: int | None) -> dict[str, Sequence[float]]:
    """Concurrencies to evaluate, by parameter, if the user sets none; empty if one is set."""
    if "concurrency" in request.settings or len(parse_modes(request)) > 1:
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
    sources=serving_sources,
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
    sources=batch_sources,
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
