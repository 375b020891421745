"""The texts of serving results: requests, layouts, timed steps, broken rules, assumptions."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from planner.base.arrays import first
from planner.base.csv_cells import Row, number_of_row
from planner.base.formatting import format_percent
from planner.configurations.configuration_tables import PREFILL, ServingConfigurations
from planner.estimators.inference.batch_share import ServingInputs
from planner.estimators.inference.continuous_batching import decode_batch, new_tokens, prompt_batch
from planner.estimators.inference.engine_step import (
    PARTS_WITHOUT_OPERATOR,
    InferenceStep,
    step_time,
)
from planner.optimize.source import Candidates
from planner.question.terms import columns_about, terms_about, terms_of
from planner.specs.serving_workload import ServingWorkload, acceptance
from planner.workloads.assumptions import (
    FACTORS,
    Assumption,
    EvaluatedChoice,
    assumed_limits,
    limits_time,
    make_assumption,
    open_network,
    open_parameters,
)
from planner.workloads.image_inputs import format_served_images
from planner.workloads.serving.prefill_decode_pools import PrefillDecodeDeployments
from planner.workloads.serving.replicas import Replicas, at_max_concurrency, max_concurrency
from planner.workloads.serving.results import ATTENTION_FFN, as_candidates
from planner.workloads.serving.space import Batches
from planner.workloads.timed_steps import ALL_MODULES, TimedPart, TimedStep, merge_parts
from planner.workloads.workload import ResultWording

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
    if work.decode_context_parallel > 1:
        parts.append(f"caches over {work.decode_context_parallel} ranks")
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


def layout(row: Row) -> str:
    """The layout of a row as text: ``8 x tp4`` replicas, or ``2 x tp1 + 3 x tp2`` workers."""
    workers = f"{row['replicas']:,} x {_format_degrees(row, '')}"
    if row.get("prefill_replicas") is None:
        return workers
    return f"{row['prefill_replicas']:,} x {_format_degrees(row, PREFILL)} + {workers}"


def _format_degrees(row: Row, prefix: str) -> str:
    """The parallel degrees above 1 of a row as text, such as ``tp4 pp2``; default ``tp1``."""
    degrees = {
        abbreviation: number_of_row(row, prefix + name) if row[prefix + name] else 1
        for abbreviation, name in _DEGREES.items()
    }
    parts = [f"{abbreviation}{n}" for abbreviation, n in degrees.items() if n > 1]
    return " ".join(parts) or "tp1"


def _format_short(row: Row) -> str:
    """The layout, the types, and the requests at once."""
    return f"{layout(row)}, {_format_types(row)}, concurrency {row['concurrency']:,}"


def _format_brief(row: Row) -> str:
    """A row in one line: numbers and layout of workers, number formats, concurrency."""
    workers = f"{row['replicas']:,} x {_format_degrees(row, '')}"
    if row.get("mode") == ATTENTION_FFN:
        of_attention = _format_degrees({**row, "expert_parallel": 1}, "")
        sides = f"{of_attention} for attention, ep{row['expert_parallel']} for FFN"
        workers = f"{row['replicas']:,} x ({sides})"
    if row.get("prefill_replicas") is not None:
        before = f"{row['prefill_replicas']:,} x {_format_degrees(row, PREFILL)} for prefill"
        workers = f"{before} + {workers} for decode"
    return f"{workers}, {_format_types(row)}, concurrency {row['concurrency']:,} each"


def _format_types(row: Mapping[str, object]) -> str:
    """The number formats of weights, of experts where they differ, and of the cache."""
    weights, experts = row["quantization"], row.get("expert_quantization")
    of_experts = f", {experts} experts" if experts and experts != weights else ""
    return f"{weights}{of_experts}, {row['kv_cache']} cache"


def _format_broken_rule(candidates: Candidates, rule: str) -> str:
    """The degrees and types of a configuration."""
    row = candidates.row
    names = ("num_gpus", *_DEGREES.values(), *terms_about("number_format", "serve"))
    return " ".join(f"{name}={row[name]}" for name in names)


def _format_room(row: Row, max_requests: int) -> str:
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


def serving_steps(candidates: Candidates) -> Mapping[str, TimedStep]:
    """The timed steps ``prefill`` and ``decode`` of candidates, by name."""
    return {name: timed_inference(step) for name, step in inference_steps(candidates).items()}


def decode_step(candidates: Candidates) -> InferenceStep:
    """The decode step of an engine with the sequences that are in flight at the load."""
    waits = np.zeros(())
    if isinstance(candidates, Replicas):
        estimate = candidates.at_load.estimate
        c, sequences = estimate.configurations, estimate.served.decoding
        waits = estimate.served.phases.front_end_wait
    elif isinstance(candidates, PrefillDecodeDeployments):
        c, sequences = candidates.decode.configurations, candidates.at_load.decoding
    else:
        raise TypeError(f"{candidates!r} does not serve streams.")
    inputs = candidates.inputs
    batch = decode_batch(inputs, sequences / c.pipeline_parallel)
    return replace(step_time(inputs, c, batch, True), front_end_wait=waits)


def inference_steps(candidates: Candidates) -> dict[str, InferenceStep]:
    """The steps ``prefill`` and ``decode`` of candidates; only ``prefill`` for embeddings."""
    if isinstance(candidates, Batches):
        static = candidates.batch
        return {"prefill": static.prefill_step, "decode": static.decode_step}
    if isinstance(candidates, Replicas):
        prompt = _prompt_step(candidates.inputs, candidates.estimate.configurations)
    elif isinstance(candidates, PrefillDecodeDeployments):
        workers = candidates.prefill
        prompt = _prompt_step(workers.inputs, workers.configurations)
    else:
        raise TypeError(f"{candidates!r} does not serve.")
    is_split = getattr(candidates.source, "mode", "") == ATTENTION_FFN  # no GPU has all of a step
    if candidates.inputs.workload.embeds or is_split:
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
    others = {name: first(getattr(step, name)) for name in PARTS_WITHOUT_OPERATOR}
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


def open_serving(chosen: EvaluatedChoice) -> list[Assumption]:
    """The assumptions of a serving plan: network, lengths, concurrency, number formats.

    The concurrency is an assumption if no request rate determines it.
    """
    facts = [*open_network(chosen), *map(_with_fitting_concurrency, _open_lengths(chosen))]
    if chosen.source.mesh is None:  # pools have values of their own in each
        return facts
    if chosen.request.request_rate is None:
        facts += _open_concurrency(chosen)
    model = chosen.source.inputs.model
    published = model.quantization or model.expert_quantization or chosen.request.precision
    names = ("kv_cache",) if published else ("quantization", "kv_cache")
    facts += [*_open_adapters(chosen), *_open_acceptance(chosen)]
    return [*facts, *map(_with_fitting_concurrency, open_parameters(chosen, names))]


def _open_acceptance(chosen: EvaluatedChoice) -> list[Assumption]:
    """The assumed acceptance rate of drafts, at the lowest and highest published rate."""
    work = as_candidates(chosen.candidates).inputs.workload
    if not work.draft_tokens or chosen.request.acceptance_rate is not None:
        return []
    published = acceptance(work.draft_method, is_tree=work.drafts_trees)
    alternatives = {
        f"{rate:g}": chosen.with_setting(partial(_with_work, {"acceptance_rate": rate}))
        for rate in (published.low, published.high)
    }
    return [make_assumption("acceptance_rate", f"{work.acceptance_rate:g}", alternatives)]


def _open_adapters(chosen: EvaluatedChoice) -> list[Assumption]:
    """The time of LoRA adapter kernels, at half and twice its assumed value."""
    if not as_candidates(chosen.candidates).inputs.max_loras:
        return []
    labels = ("half as long", "twice as long")
    alternatives = {
        label: chosen.with_setting(partial(_with_adapter_time, factor))
        for label, factor in zip(labels, FACTORS, strict=True)
    }
    return [make_assumption("adapter_kernels", "as the engine profile has them", alternatives)]


def _with_adapter_time(factor: float, inputs: ServingInputs) -> ServingInputs:
    """The inputs with the time of LoRA adapter kernels multiplied by ``factor``."""
    execution = inputs.engine.execution
    changed = replace(
        execution,
        adapter_kernels=factor * execution.adapter_kernels,
        adapter_bandwidth_fraction=min(execution.adapter_bandwidth_fraction / factor, 2.0),
        adapter_launch_time=factor * execution.adapter_launch_time,
    )
    return replace(inputs, engine=replace(inputs.engine, execution=changed))


def _with_fitting_concurrency(fact: Assumption) -> Assumption:
    """The assumption with fewer concurrent requests where an alternative exceeds memory.

    A plan that fills its KV cache has no room for longer requests, so the engine runs fewer.
    """
    alternatives: dict[str, Candidates] = {}
    for label, evaluated in fact.tried.items():
        fewer = None
        if int(np.max(evaluated.rejected_by)) > evaluated.source.num_rules:
            fewer = at_max_concurrency(evaluated.source, evaluated.configurations)
        if fewer is None:
            alternatives[label] = evaluated
        else:
            number = int(as_candidates(fewer).configurations.concurrency[0])
            alternatives[f"{label} with {number:,} at once"] = fewer
    return replace(fact, tried=alternatives)


def _open_lengths(chosen: EvaluatedChoice) -> list[Assumption]:
    """Each assumed length of prompts and answers [tokens], at half and twice its value."""
    lengths = []
    inputs = as_candidates(chosen.candidates).inputs
    model, work = inputs.model, inputs.workload
    for name in ("input_tokens", "output_tokens"):
        if getattr(chosen.request, name) is not None:
            continue
        assumed = getattr(work, name)
        headroom = (
            (model.max_position_embeddings or np.inf) - work.input_tokens - work.output_tokens
        )
        counts = [int(factor * assumed) for factor in FACTORS]
        alternatives = {
            f"{count:,}": chosen.with_setting(partial(_with_work, {name: count}))
            for count in counts
            if count - assumed <= headroom
        }
        lengths.append(make_assumption(name, f"{assumed:,}", alternatives))
    return lengths


def _with_work(values: Mapping[str, Any], inputs: ServingInputs) -> ServingInputs:
    return replace(inputs, workload=replace(inputs.workload, **values))


def _open_concurrency(chosen: EvaluatedChoice) -> list[Assumption]:
    """The assumed number of concurrent requests at half and twice its value; empty if set."""
    name = "concurrency"
    if not chosen.is_open(name) or chosen.request.num_requests is not None:
        return []
    number = float(np.ravel(as_candidates(chosen.candidates).configurations.concurrency)[0])
    maximum = float(max_concurrency(chosen.source, chosen.candidates.configurations))
    counts = sorted({max(1.0, number // 2), max(min(2 * number, maximum), number)} - {number})
    alternatives = {f"{count:,.0f}": chosen.with_value(name, count) for count in counts}
    return [make_assumption(name, f"{number:,.0f}", alternatives)]


def assumed_for_batches(names: Collection[str], output_tokens: int) -> dict[str, float]:
    """The assumed bound on a static batch's request latency [s]; empty if a time limit is set.

    The bound is the latency of a served answer of ``output_tokens`` at the assumed limits of
    serving.
    """
    if limits_time("inference", names):
        return {}
    served = assumed_limits("serve", ())
    further = (output_tokens - 1) * served["time_per_output_token"]
    return {"request_latency": served["time_to_first_token"] + further}
