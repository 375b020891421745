"""The options of the commands, made from the table of terms where it has them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

from planner.request import Request
from planner.terms import Term, glossary, terms_of
from planner.workloads.registry import workload_names

Given: TypeAlias = dict[str, Any]
"""What a command was given: the value of every option by name, and its ``context``."""


class Driver(StrEnum):
    """How a space is searched."""

    EXHAUSTIVE = "exhaustive"
    OPTUNA = "optuna"


class Sampler(StrEnum):
    """How Optuna chooses what to try."""

    NSGA2 = "nsga2"
    TPE = "tpe"


_TYPES: Mapping[str, Any] = {
    "count": int | None,
    "number": float | None,
    "1/s": float | None,
    "flag": bool,
}
_PLACEHOLDERS = {
    "second": "TIME", "byte": "BYTES", "usd": "USD", "1": "SHARE", "token": "TOKENS",
}  # fmt: skip
_AUDIENCE = {
    ("train",): "Training: ",
    ("inference",): "Static batches: ",
    ("serve",): "Serving: ",
    ("inference", "serve"): "Inference: ",
}

Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="Pin or narrow a parameter, such as tensor_parallel=4,8; repeatable.",
        metavar="NAME=VALUE[,VALUE]",
    ),
]
WorkloadChoice = Annotated[
    str,
    typer.Option(
        help="Training, static batches, or serving requests.", metavar="|".join(workload_names())
    ),
]
Gpus = Annotated[
    str | None,
    typer.Option(
        "--gpus", help="The number of GPUs, several, or all (powers of two).", metavar="N[,N...]"
    ),
]
Specs = Annotated[
    Path | None,
    typer.Option("--specs", help="A folder of own spec files, looked in first.", metavar="DIR"),
]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print no tables and no progress.")]
Json = Annotated[
    Path | None, typer.Option("--json", help="Write the rows as JSON; - is stdout.", metavar="FILE")
]


def _objective_help() -> str:
    names = [f"{kind}: {', '.join(terms_of(kind, 'objective'))}" for kind in workload_names()]
    return f"One to three; {'; '.join(names)}."


# Options that say how a command works, by name: their type and their value where not given.
HOW: Mapping[str, tuple[Any, Any]] = {
    "workload": (WorkloadChoice, Request.workload),
    "num_gpus": (Gpus, None),
    "settings": (Settings, None),
    "precision": (
        Annotated[
            str | None,
            typer.Option(
                help="Number format of the matrix products, several, or all: `precision` to "
                "train, `quantization` to serve.",
                metavar="PRECISION[,PRECISION]",
            ),
        ],
        None,
    ),
    "objective": (
        Annotated[
            list[str] | None, typer.Option(help=_objective_help(), metavar="NAME[,NAME]")
        ],
        None,
    ),
    "burst": (
        Annotated[
            int | None,
            typer.Option(min=1, max=10_000_000, help="Serving: so many requests at once."),
        ],
        None,
    ),
    "driver": (
        Annotated[
            Driver, typer.Option(help="Try every configuration, or sample a very large space.")
        ],
        Driver.EXHAUSTIVE,
    ),
    "trials": (Annotated[int, typer.Option(min=1, help="Optuna: configurations to try.")], 2000),
    "seed": (Annotated[int, typer.Option(min=0, help="Optuna: the seed.")], 0),
    "sampler": (Annotated[Sampler, typer.Option(help="Optuna: the sampler.")], Sampler.NSGA2),
    "storage": (
        Annotated[
            str,
            typer.Option(
                help="Optuna: the SQLite file that keeps the studies, to resume them; none keeps "
                "nothing.",
                metavar="FILE",
            ),
        ],
        "planner-study.db",
    ),
    "csv": (
        Annotated[
            Path | None, typer.Option(help="Write the rows as CSV; - is stdout.", metavar="FILE")
        ],
        None,
    ),
    "json": (Json, None),
    "all_rows": (
        Annotated[
            bool, typer.Option("--all", help="Write every feasible row, not the front alone.")
        ],
        False,
    ),
    "top": (Annotated[int, typer.Option(min=1, help="Rows to show.")], 10),
    "save_plan": (
        Annotated[
            Path | None,
            typer.Option(help="Write the best plan here, for `estimate --plan`.", metavar="FILE"),
        ],
        None,
    ),
    "plan": (
        Annotated[
            Path | None,
            typer.Option(help="A plan of --save-plan; other options change it.", metavar="FILE"),
        ],
        None,
    ),
    "specs": (Specs, None),
    "quiet": (Quiet, False),
}  # fmt: skip


def taking(*kinds: str, without: Iterable[str] = (), how: Iterable[str]) -> Callable[..., Any]:
    """A command that takes the terms of these kinds, and options of ``HOW``, as one mapping.

    typer reads the signature that is made here.
    """
    asked = {
        name: term
        for name, term in glossary().items()
        if set(kinds) & set(term.kind) and name not in {*without, *how}
    }

    def decorate(command: Callable[[Given], None]) -> Callable[..., None]:
        def run(context: typer.Context, **values: Any) -> None:
            command({"context": context, **values})

        places = [_place("context", typer.Context, inspect.Parameter.empty)]
        places += [_place(name, *_of_term(term)) for name, term in asked.items()]
        places += [_place(name, *HOW[name]) for name in how]
        run.__signature__ = inspect.Signature(places)  # type: ignore[attr-defined]
        run.__annotations__ = {place.name: place.annotation for place in places}
        run.__name__, run.__doc__ = command.__name__, command.__doc__
        return run

    return decorate


def _place(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default
    )


def _of_term(term: Term) -> tuple[Any, Any]:
    """The type of a term's option and its value where not given."""
    bound = f"at {'most' if term.sign > 0 else 'least'}: " if term.better else ""
    text = f"{_AUDIENCE.get(term.of, '')}{bound}{term.description}."
    kind: Any = _TYPES.get(term.type, str | None)
    placeholder = None
    if term.type not in _TYPES:
        placeholder = _PLACEHOLDERS.get(term.type, term.term.split("_")[-1].upper())
    option = typer.Option(*term.options, help=text[0].upper() + text[1:], metavar=placeholder)
    return Annotated[kind, option], False if term.type == "flag" else None


def is_given(given: Given, name: str) -> bool:
    """Whether the user gave an option; one that the command lacks is not given."""
    source = given["context"].get_parameter_source(name) if name in given else None
    return source is not None and source.name == "COMMANDLINE"


def how(given: Given) -> dict[str, Any]:
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
