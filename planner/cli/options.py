"""Options that several commands share, and how their texts become a request."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from planner.request import Request


class Driver(StrEnum):
    """How a space is searched."""

    EXHAUSTIVE = "exhaustive"
    OPTUNA = "optuna"


class Sampler(StrEnum):
    """How Optuna chooses what to try."""

    NSGA2 = "nsga2"
    TPE = "tpe"


Model = Annotated[
    str,
    typer.Option(
        help="A name or alias (`planner specs list models`), a .toml file, a Hugging Face "
        "config.json, or ORG/NAME.",
        metavar="MODEL",
    ),
]
Gpus = Annotated[
    str | None, typer.Option(help="The number of GPUs, or several.", metavar="N[,N...]")
]
Gpu = Annotated[
    str | None,
    typer.Option(
        help="The GPU; a100-sxm-80gb if not given. Serving: or several, or all.", metavar="GPU"
    ),
]
Cluster = Annotated[
    str | None,
    typer.Option(help="The cluster; if not given, nodes of the GPU.", metavar="CLUSTER"),
]
Framework = Annotated[
    str | None,
    typer.Option(
        "--framework",
        "--profile",
        help="The framework profile, a name or a .toml file; the space's if not given.",
        metavar="FRAMEWORK",
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="Pin or narrow a parameter, such as tensor_parallel=4,8; repeatable.",
        metavar="NAME=VALUE[,VALUE]",
    ),
]
SequenceLength = Annotated[int | None, typer.Option(help="Tokens of a sequence.")]
GlobalBatchSize = Annotated[int | None, typer.Option(help="Sequences of a step.")]
Tokens = Annotated[
    str | None, typer.Option(help="Tokens to train on, such as 1.4T or 300B.", metavar="TOKENS")
]
Price = Annotated[float | None, typer.Option(help="USD per GPU and hour.", metavar="USD")]
Ideal = Annotated[
    bool, typer.Option("--ideal", help="Every efficiency 1, every latency 0: the roofline bound.")
]
FlopsEfficiency = Annotated[
    str | None,
    typer.Option(
        help="The share of the peak that the whole step reaches, or TFLOP/s; replaces the time "
        "model.",
        metavar="SHARE",
    ),
]
MemoryEfficiency = Annotated[
    str | None,
    typer.Option(help="The share of the memory bandwidth reached, or GB/s.", metavar="SHARE"),
]
Dropout = Annotated[
    bool, typer.Option("--dropout", help="Train with dropout: its masks take memory.")
]
MtpNumLayers = Annotated[
    int | None,
    typer.Option(
        help="Modules of multi-token prediction to train; as published if not given, none with "
        "an adapter."
    ),
]
Adapter = Annotated[
    str,
    typer.Option(
        help="none: train every weight; lora: adapters of frozen weights; qlora: the same, 4-bit.",
        metavar="KIND",
    ),
]
LoraRank = Annotated[
    int | None,
    typer.Option(
        help="Rank of the adapters that are trained (16 if not given) or served (none if not)."
    ),
]
LoraTargets = Annotated[
    str | None,
    typer.Option(
        help="What is adapted: query_value, attention (if not given) or all_linear.",
        metavar="MATRICES",
    ),
]
Specs = Annotated[
    Path | None,
    typer.Option("--specs", help="A folder of own spec files, looked in first.", metavar="DIR"),
]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print no tables and no progress.")]

Space = Annotated[
    str | None,
    typer.Option(help="The search space: a name or a .toml file.", metavar="SPACE"),
]
Objectives = Annotated[
    list[str] | None,
    typer.Option(
        help="One to three of throughput, step_time, time_to_train, gpu_hours, cost, "
        "memory_headroom, num_gpus; serving: throughput_per_gpu, interactivity, "
        "cost_per_million_tokens, cost_per_hour, num_gpus, throughput, request_latency, "
        "time_to_first_token, time_per_output_token, memory_headroom.",
        metavar="NAME[,NAME]",
    ),
]
MemoryHeadroom = Annotated[
    str | None, typer.Option(help="At least so much free memory, as 5GiB.", metavar="BYTES")
]
StepTime = Annotated[
    str | None, typer.Option(help="At most so long a step, as 20s.", metavar="TIME")
]
TimeToTrain = Annotated[
    str | None, typer.Option(help="At most so long a run, as 30d.", metavar="TIME")
]
Cost = Annotated[str | None, typer.Option(help="At most so many USD, as 1.5MUSD.", metavar="USD")]
ModelFlopsUtilization = Annotated[
    str | None, typer.Option(help="At least this MFU, as 0.4 or 40%.", metavar="SHARE")
]
DriverChoice = Annotated[
    Driver, typer.Option(help="Try every configuration, or sample a very large space.")
]
Storage = Annotated[
    str,
    typer.Option(
        help="Optuna: the SQLite file that keeps the studies, to resume them; none keeps nothing.",
        metavar="FILE",
    ),
]
Csv = Annotated[
    Path | None, typer.Option(help="Write the rows as CSV; - is stdout.", metavar="FILE")
]
Json = Annotated[
    Path | None, typer.Option(help="Write the rows as JSON; - is stdout.", metavar="FILE")
]
AllRows = Annotated[
    bool, typer.Option("--all", help="Write every feasible row, not the front alone.")
]
Trials = Annotated[int, typer.Option(min=1, help="Optuna: configurations to try.")]
Seed = Annotated[int, typer.Option(min=0, help="Optuna: the seed.")]
SamplerChoice = Annotated[Sampler, typer.Option(help="Optuna: the sampler.")]
Top = Annotated[int, typer.Option(min=1, help="Rows to show.")]

_EXAMPLES = {"second": "s", "byte": "GiB"}
_OF_REQUEST = (
    "model",
    "gpu",
    "cluster",
    "framework",
    "sequence_length",
    "global_batch_size",
    "price",
    "dropout",
    "mtp_num_layers",
    "adapter",
    "lora_rank",
    "lora_targets",
    "ideal",
    "flops_efficiency",
    "memory_efficiency",
)


def make_request(given: Mapping[str, Any], **more: Any) -> Request:
    """A request from the values of options by name; the folder of specs is put to use.

    Raises
    ------
    SearchSpaceError
        A text is not what its option takes; the message names the option.
    """
    from planner.optimize.space import parse_settings
    from planner.request import Request
    from planner.specs.paths import use_specs_folder

    use_specs_folder(given["specs"])
    return Request(
        num_gpus=counts(given["gpus"]),
        settings=parse_settings(given["settings"] or []),
        space=given.get("space", "single"),
        total_tokens=quantity("--tokens", given["tokens"], "token"),
        **{name: given[name] for name in _OF_REQUEST},
        **more,
    )


def limits(given: Mapping[str, Any]) -> dict[str, float]:
    """The limits that were given, in SI units.

    Raises
    ------
    SearchSpaceError
        A text is not a quantity; the message names the option.
    """
    bounds = {
        "memory_headroom": quantity("--memory-headroom", given["memory_headroom"], "byte"),
        "step_time": quantity("--step-time", given["step_time"], "second"),
        "time_to_train": quantity("--time-to-train", given["time_to_train"], "second"),
        "cost": quantity("--cost", given["cost"], "usd", "USD"),
        "model_flops_utilization": quantity("--mfu", given["mfu"], "1"),
    }
    return {name: bound for name, bound in bounds.items() if bound is not None}


def objectives(given: list[str] | None) -> tuple[str, ...]:
    """The names of all --objective options; empty where there are none."""
    words = [word.strip() for text in given or [] for word in text.split(",")]
    return tuple(word for word in words if word)


def quantity(
    option: str, text: str | None, dimension: str, default_unit: str | None = None
) -> float | None:
    """The text of an option in SI units; None where it was not given.

    Raises
    ------
    SearchSpaceError
        It is not a number with such a unit; the message names the option.
    """
    from planner.errors import SearchSpaceError
    from planner.units import parse_quantity

    if text is None:
        return None
    if default_unit is None and dimension in _EXAMPLES and text.replace(".", "", 1).isdigit():
        raise SearchSpaceError(
            f"{option} {text}: needs a unit, as in {text}{_EXAMPLES[dimension]}."
        )
    try:
        return parse_quantity(text, dimension, default_unit)
    except ValueError as error:
        raise SearchSpaceError(f"{option} {text}: {error}.") from error


def counts(text: str | None) -> tuple[int, ...]:
    """Numbers of GPUs in a text.

    Raises
    ------
    SearchSpaceError
        There is something else in it.
    """
    from planner.errors import SearchSpaceError

    if text is None:
        raise typer.BadParameter("Missing option '--gpus'.")
    words = [word.strip() for word in text.split(",")]
    for word in words:
        # 2,048 is one number to its writer: 048 must not become a second count.
        if not (word.isascii() and word.isdigit()) or (word.startswith("0") and word != "0"):
            raise SearchSpaceError(
                f"--gpus {text}: {word!r} is not a whole number; write 64, or 64,128 for several."
            )
        if len(word) > 8:
            raise SearchSpaceError(f"--gpus {text}: more GPUs than can be planned.")
    return tuple(int(word) for word in words)


def how(given: Mapping[str, Any]) -> dict[str, Any]:
    """The driver and, for Optuna, its settings.

    Raises
    ------
    SearchSpaceError
        All rows are asked for of a driver that samples.
    """
    from planner.errors import SearchSpaceError

    driver, sampler = given["driver"], given["sampler"]
    if driver is Driver.EXHAUSTIVE:
        return {"driver": driver.value}
    if given["all_rows"]:
        raise SearchSpaceError("--all writes every configuration: it needs --driver exhaustive.")
    storage = None if given["storage"] == "none" else given["storage"]
    chosen = {name: given[name] for name in ("trials", "seed")}
    return {"driver": driver.value, "sampler": sampler.value, "storage": storage, **chosen}
