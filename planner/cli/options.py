"""Options that several commands share, and how their texts become a request."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from planner.request import Request

Model = Annotated[
    str,
    typer.Option(
        help="A name or alias (`planner specs list models`), a .toml file, a Hugging Face "
        "config.json, or ORG/NAME.",
        metavar="MODEL",
    ),
]
Gpus = Annotated[str, typer.Option(help="The number of GPUs, or several.", metavar="N[,N...]")]
Gpu = Annotated[
    str | None, typer.Option(help="The GPU; a100-sxm-80gb if not given.", metavar="GPU")
]
Cluster = Annotated[
    str | None,
    typer.Option(help="The cluster; if not given, nodes of the GPU.", metavar="CLUSTER"),
]
Framework = Annotated[
    str | None,
    typer.Option(help="The framework profile; the space's if not given.", metavar="FRAMEWORK"),
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
Specs = Annotated[
    Path | None,
    typer.Option("--specs", help="A folder of own spec files, looked in first.", metavar="DIR"),
]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print no tables and no progress.")]

_EXAMPLES = {"second": "s", "byte": "GiB"}


def make_request(
    *,
    gpus: str,
    settings: Iterable[str] | None,
    tokens: str | None,
    specs: Path | None,
    **values: Any,
) -> Request:
    """A request from the texts of options; ``specs`` is put to use.

    Raises
    ------
    SearchSpaceError
        A text is not what its option takes; the message names the option.
    """
    from planner.optimize.space import parse_settings
    from planner.request import Request
    from planner.specs.paths import use_specs_folder

    use_specs_folder(specs)
    return Request(
        num_gpus=_counts(gpus),
        settings=parse_settings(settings or []),
        total_tokens=quantity("--tokens", tokens, "token"),
        **values,
    )


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


def _counts(text: str) -> tuple[int, ...]:
    from planner.errors import SearchSpaceError

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
