"""Options of serving and inference, and how their texts become a request."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from planner.cli.options import counts, quantity

if TYPE_CHECKING:
    from planner.request import ServingRequest


class Workload(StrEnum):
    """What is to be planned."""

    TRAIN = "train"
    INFERENCE = "inference"
    SERVE = "serve"


WorkloadChoice = Annotated[
    Workload, typer.Option("--workload", help="Training, one static batch, or serving requests.")
]
InputTokens = Annotated[
    int | None, typer.Option(help="Serving: tokens of a prompt; 1024 if not given.")
]
OutputTokens = Annotated[
    int | None, typer.Option(help="Serving: tokens of an answer; 1024 if not given.")
]
Engine = Annotated[
    str | None,
    typer.Option(help="Serving: engine profiles, or all; vllm if not given.", metavar="ENGINE"),
]
Mode = Annotated[
    str | None,
    typer.Option(help="Serving: aggregated, disaggregated; both if not given.", metavar="MODE"),
]
PrefillGpu = Annotated[
    str | None,
    typer.Option(help="Serving: the GPU of disaggregated prefill workers.", metavar="GPU"),
]
RequestRate = Annotated[
    float | None,
    typer.Option(help="Serving: requests per second; without --gpus, size for them."),
]
Ttft = Annotated[
    str | None,
    typer.Option(help="Serving: at most this mean time to first token, as 1000ms.", metavar="TIME"),
]
Tpot = Annotated[
    str | None,
    typer.Option(help="Serving: at most this time per output token, as 40ms.", metavar="TIME"),
]
Latency = Annotated[
    str | None, typer.Option(help="Serving: at most this request latency.", metavar="TIME")
]
CostPerMillion = Annotated[
    str | None,
    typer.Option(help="Serving: at most so many USD per million output tokens.", metavar="USD"),
]
PrefixCacheHitRate = Annotated[
    float, typer.Option(help="Serving: share of the prompt found in the cache.")
]
DraftTokens = Annotated[int, typer.Option(help="Serving: tokens drafted per step.")]
AcceptanceRate = Annotated[
    float, typer.Option(help="Serving: probability that a drafted token is accepted.")
]
DraftCost = Annotated[
    float, typer.Option(help="Serving: time to draft, as a share of a step's time.")
]
BurstSize = Annotated[
    int | None,
    typer.Option("--burst", min=1, max=10_000_000, help="Serving: so many requests at once."),
]

_OF_TRAINING = (
    "framework",
    "sequence_length",
    "global_batch_size",
    "tokens",
    "step_time",
    "time_to_train",
    "cost",
    "mfu",
    "dropout",
    "mtp_num_layers",
    "adapter",
    "lora_targets",
    "flops_efficiency",
)
_OF_SERVING = (
    "input_tokens",
    "output_tokens",
    "engine",
    "mode",
    "prefill_gpu",
    "request_rate",
    "ttft",
    "tpot",
    "latency",
    "cost_per_million",
    "prefix_cache_hit_rate",
    "draft_tokens",
    "acceptance_rate",
    "draft_cost",
    "burst",
)
_OF_REQUEST = (
    "model",
    "prefill_gpu",
    "cluster",
    "input_tokens",
    "output_tokens",
    "request_rate",
    "prefix_cache_hit_rate",
    "draft_tokens",
    "acceptance_rate",
    "draft_cost",
    "price",
    "ideal",
    "memory_efficiency",
)


def check_options(given: Mapping[str, Any]) -> None:
    """Refuse options that the chosen workload does not know.

    Raises
    ------
    SearchSpaceError
        One was given; the message names it and its workload.
    """
    from planner.errors import SearchSpaceError

    training = given["workload"] is Workload.TRAIN
    others = _OF_SERVING if training else _OF_TRAINING
    context = given["context"]
    for name in others:
        source = context.get_parameter_source(name) if name in given else None
        if source is not None and source.name == "COMMANDLINE":
            wanted = "serve (or inference)" if training else "train"
            option = "--" + name.replace("_", "-")
            raise SearchSpaceError(f"{option} is an option of --workload {wanted}.")


def make_serving_request(given: Mapping[str, Any], **more: Any) -> ServingRequest:
    """A request from the values of options by name; the folder of specs is put to use.

    Raises
    ------
    SearchSpaceError
        A text is not what its option takes; the message names the option.
    """
    from planner.optimize.space import parse_settings
    from planner.request import ServingRequest
    from planner.specs.paths import use_specs_folder

    use_specs_folder(given["specs"])
    return ServingRequest(
        gpu=_one_or_more(given["gpu"]),
        engine=_one_or_more(given["engine"]),
        num_gpus=None if given["gpus"] is None else counts(given["gpus"]),
        settings=parse_settings(given["settings"] or []),
        space=given.get("space"),
        mode=_words(given.get("mode")) or ServingRequest.mode,
        lora_rank=given["lora_rank"] or 0,
        **{name: given[name] for name in _OF_REQUEST if name in given},
        **more,
    )


def serving_limits(given: Mapping[str, Any]) -> dict[str, float]:
    """The limits that were given, in SI units.

    Raises
    ------
    SearchSpaceError
        A text is not a quantity; the message names the option.
    """
    bounds = {
        "time_to_first_token": quantity("--ttft", given["ttft"], "second"),
        "time_per_output_token": quantity("--tpot", given["tpot"], "second"),
        "request_latency": quantity("--latency", given["latency"], "second"),
        "memory_headroom": quantity("--memory-headroom", given["memory_headroom"], "byte"),
        "cost_per_million_tokens": quantity(
            "--cost-per-million", given["cost_per_million"], "usd", "USD"
        ),
    }
    return {name: bound for name, bound in bounds.items() if bound is not None}


def _words(text: str | None) -> tuple[str, ...]:
    return tuple(word.strip() for word in (text or "").split(",") if word.strip())


def _one_or_more(text: str | None) -> str | tuple[str, ...] | None:
    words = _words(text)
    return words[0] if len(words) == 1 else words or None
