"""The texts of serving results: requests, layouts and broken rules."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from planner.base.csv_cells import number_of_row
from planner.base.formatting import format_percent
from planner.configurations.configuration_tables import (
    PREFILL,
)
from planner.estimators.inference.batch_share import ServingInputs
from planner.optimize.source import Candidates
from planner.question.terms import columns_about, terms_about, terms_of
from planner.specs.serving_workload import ServingWorkload
from planner.workloads.image_inputs import format_served_images
from planner.workloads.workload import (
    ResultWording,
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
    workers = f"{row['replicas']:,} x {_format_degrees(row, '')}"
    if row.get("prefill_replicas") is not None:
        before = f"{row['prefill_replicas']:,} x {_format_degrees(row, PREFILL)} for prefill"
        workers = f"{before} + {workers} for decode"
    types = f"{row['quantization']}, {row['kv_cache']} cache"
    return f"{workers}, {types}, concurrency {row['concurrency']:,} each"


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
