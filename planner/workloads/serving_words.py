"""How ways to serve are told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from planner.base.text import percent
from planner.configurations.serving import PREFILL
from planner.estimators.inference.setting import ServingSetting
from planner.optimize.collector import first_row
from planner.optimize.source import Candidates
from planner.question.terms import terms_of
from planner.specs.serving import ServingWorkload
from planner.workloads.base import Wording
from planner.workloads.images import served_image_words

_DEGREES = {
    term.short: name
    for name, term in terms_of("serve", "parameter").items()
    if term.short and term.type == "count"
}


def requests(setting: ServingSetting) -> list[str]:
    """What is asked: the requests, in a line."""
    work = setting.workload
    words = [f"{work.input_tokens:,} tokens in, {work.output_tokens:,} out"]
    if work.input_variation or work.output_variation:
        varied = f"{100 * work.input_variation:g} % and {100 * work.output_variation:g} %"
        words.append(f"lengths vary by {varied}")
    if work.equal_lengths:
        words.append("all of these lengths")
    if work.request_rate is not None:
        words.append(f"{work.request_rate:g} per second")
    if work.num_requests is not None:
        all_in_all = "in all" if work.request_rate is not None else "requests that start together"
        words.append(f"{work.num_requests:,} {all_in_all}")
    if work.prefix_cache_hit_rate:
        words.append(f"{percent(work.prefix_cache_hit_rate)} of prompts cached")
    if work.shared_prefix_tokens:
        words.append(f"{work.shared_prefix_tokens:,} tokens alike in all prompts")
    if work.draft_tokens:
        words.append(_drafted(work))
    if work.embedding_bits is not None:
        words.append(f"embedding and logits in {work.embedding_bits} bits")
    if work.redundant_experts:
        words.append(f"{work.redundant_experts} copies of experts in a layer")
    if work.lora_rank:
        words.append(f"LoRA adapters of rank {work.lora_rank}, {setting.max_loras:,} in a step")
    words += served_image_words(setting.model, work)
    return [f"Requests: {', '.join(words)}"]


def _drafted(work: ServingWorkload) -> str:
    """Drafts, and how many are kept; with none they only cost, which nobody wants."""
    if work.acceptance_rate:
        tokens = f"{work.draft_tokens} draft tokens"
        if work.drafts_trees:
            tokens += f", {work.drafted_in_a_row} of them in a row,"
        return f"{tokens} accepted with {work.acceptance_rate:g}"
    return f"{work.draft_tokens} draft tokens, none accepted: give --acceptance-rate"


def layout(row: Mapping[str, Any]) -> str:
    """``8 x tp4``: replicas and how each is split; ``2 x tp1 + 3 x tp2``: prefill and decode."""
    mine = f"{row['replicas']:,} x {_split(row, '')}"
    if row.get("prefill_replicas") is None:
        return mine
    return f"{row['prefill_replicas']:,} x {_split(row, PREFILL)} + {mine}"


def _split(row: Mapping[str, Any], prefix: str) -> str:
    degrees = {short: row[prefix + name] or 1 for short, name in _DEGREES.items()}
    words = [f"{short}{n}" for short, n in degrees.items() if n > 1]
    return " ".join(words) or "tp1"


def _in_short(row: Mapping[str, Any]) -> str:
    """The layout, the types, and the requests at once."""
    types = f"{row['quantization']}, {row['kv_cache']} cache"
    return f"{layout(row)}, {types}, concurrency {row['concurrency']:,}"


def _brief(row: Mapping[str, Any]) -> str:
    """The replicas or the workers, the types, and the requests at once."""
    mine, each = f"{row['replicas']:,} x {_split(row, '')}", "in each replica"
    if row.get("prefill_replicas") is not None:
        before = f"{row['prefill_replicas']:,} x {_split(row, PREFILL)} for prefill"
        mine, each = f"{before} + {mine} for decode", "in each"
    types = f"{row['quantization']}, {row['kv_cache']} cache"
    return f"{mine}, {types}, {row['concurrency']:,} requests {each}"


def _blamed(candidates: Candidates, rule: str) -> str:
    """The degrees and types of a configuration."""
    row = first_row(candidates.columns())
    names = ("num_gpus", *_DEGREES.values(), "quantization", "kv_cache")
    return " ".join(f"{name}={row[name]}" for name in names)


def _room(row: Mapping[str, Any], most: int) -> str:
    """How many of the requests find room; empty where it is not their number that lacks it."""
    number = row["concurrency"]
    return f"room for {most:,} of {number:,} requests" if most < number else ""


def _legend(shown: Mapping[str, Sequence[Any]]) -> str:
    shapes = "replicas x their split"
    if any(number is not None for number in shown.get("prefill_replicas", ())):
        shapes += ", or prefill + decode workers"
    return f"layout: {shapes} (tp tensor, pp pipeline, dp attention data, ep expert parallel)"


SERVING_WORDS = Wording(
    noun="plan",
    asked=requests,
    layout=layout,
    in_layout=tuple(_DEGREES.values()),
    in_short=_in_short,
    brief=_brief,
    blamed=_blamed,
    room=_room,
    legend=_legend,
    results=lambda _: (
        "time_to_first_token_s",
        "time_per_output_token_s",
        "tokens_per_s_per_user",
        "output_tokens_per_s_per_gpu",
        "cost_per_million_tokens_usd",
    ),
    of_objective={
        "throughput_per_gpu": "output_tokens_per_s_per_gpu",
        "capacity_per_gpu": "capacity_requests_per_s_per_gpu",
        "throughput": "output_tokens_per_s",
        "interactivity": "tokens_per_s_per_user",
    },
    from_end_to_end=True,
    told=(
        "time_to_first_token_s",
        "time_per_output_token_s",
        "request_latency_s",
        "output_tokens_per_s_per_gpu",
        "requests_per_s",
        "capacity_requests_per_s",
        "cost_per_million_tokens_usd",
    ),
)

BATCH_WORDS = replace(
    SERVING_WORDS,
    room=lambda *_: "",  # its memory is short of all requests: how surely it fits tells more
    results=lambda _: (
        "prefill_latency_s",
        "decode_latency_s",
        "request_latency_s",
        "output_tokens_per_s_per_gpu",
        "cost_per_million_tokens_usd",
    ),
    told=(
        "prefill_latency_s",
        "decode_latency_s",
        "request_latency_s",
        "output_tokens_per_s_per_gpu",
        "cost_per_million_tokens_usd",
    ),
)
