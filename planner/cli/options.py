"""The options of the commands, made from the table of terms where it has them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

from planner.cli import complete
from planner.given import DRIVERS, SAMPLERS, TRIALS, read_driver
from planner.launch.names import WRAPPERS
from planner.request import Request
from planner.terms import Term, glossary
from planner.workloads.registry import workload_names

Given: TypeAlias = dict[str, Any]
"""What a command was given: the value of every option by name, and its ``context``."""


_OTHER_NAMES = {
    "settings": "--set",
    "all_rows": "--all",
    "objectives": "--objective",
    "from_file": "--from",
    "launch_output": "--output",
}
_PLACEHOLDERS = {
    "second": "TIME", "byte": "BYTES", "usd": "USD", "watt": "POWER", "kg": "MASS", "1": "SHARE",
    "token": "TOKENS", "count": "N", "number": "X", "1/s": "X", "peak": "SHARE|RATE",
    "price": "USD|GPU=USD,...",
}  # fmt: skip

Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="Pin or narrow a parameter, such as tensor_parallel=4,8 or tp=8; repeatable.",
        metavar="NAME=VALUE[,VALUE]",
        autocompletion=complete.settings,
    ),
]
WorkloadChoice = Annotated[
    str,
    typer.Option(
        help="Training, static batches, or serving requests.",
        metavar="|".join(workload_names()),
        autocompletion=complete.workloads,
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


def _text(words: str, metavar: str, completed: complete.Completer | None = None) -> Any:
    option = typer.Option(help=words, metavar=metavar, autocompletion=completed)
    return Annotated[str | None, option]


# Options that say how a command works, by name: their group, their type and their value where not
# given. Numbers are text here: `planner.inputs` reads them.
HOW: Mapping[str, tuple[str, Any, Any]] = {
    "workload": ("question", WorkloadChoice, Request.workload),
    "num_gpus": ("hardware", Gpus, None),
    "settings": ("search", Settings, None),
    "precision": (
        "question",
        _text(
            "Number format of the matrix products, several, or all: `precision` to train, "
            "`quantization` to serve.",
            "PRECISION[,PRECISION...]",
            complete.precisions,
        ),
        None,
    ),
    "objective": (
        "search",
        Annotated[
            list[str] | None,
            typer.Option(
                help="What is best: one to three names, such as throughput,memory_headroom.",
                metavar="NAME[,NAME]",
                autocompletion=complete.objectives,
            ),
        ],
        None,
    ),
    "load": (
        "question",
        Annotated[
            Path | None,
            typer.Option(
                help="Serving: CSV of a day's load: hour (0 to 23) or time (HH:MM), request_rate.",
                metavar="FILE",
            ),
        ],
        None,
    ),
    "burst": ("question", _text("Serving: so many requests at once.", "N"), None),
    "driver": (
        "search",
        _text(
            "Try every configuration, or sample a very large space.",
            "|".join(DRIVERS),
            complete.for_words("driver"),
        ),
        DRIVERS[0],
    ),
    "trials": ("search", _text("Optuna: configurations to try.", "N"), str(TRIALS)),
    "seed": ("search", _text("Optuna: the seed.", "N"), "0"),
    "sampler": (
        "search",
        _text("Optuna: the sampler.", "|".join(SAMPLERS), complete.for_words("sampler")),
        SAMPLERS[0],
    ),
    "storage": (
        "search",
        _text(
            "Optuna: the SQLite file that keeps the studies, to resume them; none keeps nothing.",
            "FILE",
        ),
        "planner-study.db",
    ),
    "csv": (
        "output",
        Annotated[
            Path | None, typer.Option(help="Write the rows as CSV; - is stdout.", metavar="FILE")
        ],
        None,
    ),
    "json": ("output", Json, None),
    "all_rows": (
        "output",
        Annotated[
            bool, typer.Option("--all", help="Write every feasible row, not the front alone.")
        ],
        False,
    ),
    "compare_api": (
        "output",
        Annotated[
            bool,
            typer.Option(
                "--compare-api",
                help="Serving: what the recommended plan costs beside prices of APIs per token.",
            ),
        ],
        False,
    ),
    "top": ("output", _text("Rows to show.", "N"), "10"),
    "full": (
        "output",
        Annotated[
            bool,
            typer.Option("--full", help="The whole report: every column, part and count."),
        ],
        False,
    ),
    "save_plan": (
        "output",
        Annotated[
            Path | None,
            typer.Option(
                help="Write the recommended plan here, for `estimate --plan`.", metavar="FILE"
            ),
        ],
        None,
    ),
    "plan": (
        "question",
        Annotated[
            Path | None,
            typer.Option(help="A plan of --save-plan; other options change it.", metavar="FILE"),
        ],
        None,
    ),
    "sweep_plan": (
        "question",
        Annotated[
            str | None,
            typer.Argument(
                help="A plan: a .toml file, or the name of one that is shipped. Without one the "
                "options are it: each may have several values.",
                metavar="PLAN",
                show_default=False,
                autocompletion=complete.sweeps,
            ),
        ],
        None,
    ),
    "target": (
        "question",
        Annotated[
            str | None,
            typer.Argument(
                help="The tool whose files are written. Without one all are listed.",
                metavar="TARGET",
                show_default=False,
                autocompletion=complete.for_words("target"),
            ),
        ],
        None,
    ),
    "launch": (
        "output",
        Annotated[
            str | None,
            typer.Option(
                help="Write the files that start the recommended plan with this tool, into "
                "--output; without --framework or --engine only those of the tool are tried.",
                metavar="TARGET",
                autocompletion=complete.for_words("target"),
            ),
        ],
        None,
    ),
    "wrapper": (
        "output",
        _text(
            "What starts the processes: a shell script (where not given), a SLURM batch file, or "
            "Kubernetes manifests.",
            "|".join(WRAPPERS),
            complete.for_words("wrapper"),
        ),
        None,
    ),
    "from_file": (
        "question",
        Annotated[
            Path | None,
            typer.Option(
                "--from",
                help="Where the plan comes from: a launch file of yours (a script, YAML, JSON), a "
                "plan, or with --row a row of a result or of the directory of a sweep.",
                metavar="FILE",
            ),
        ],
        None,
    ),
    "write": (
        "output",
        Annotated[
            bool,
            typer.Option(
                "--write",
                help="Make the best change in the file of --from; its text before stays beside it.",
            ),
        ],
        False,
    ),
    "row": ("question", _text("The row of --from, from 1; the scenario of a sweep.", "N"), None),
    "launch_output": (
        "output",
        Annotated[
            Path | None,
            typer.Option(
                "--output", help="The directory of the files; made if needed.", metavar="DIR"
            ),
        ],
        None,
    ),
    "output": (
        "output",
        Annotated[
            Path | None,
            typer.Option(help="The directory of the results; made if needed.", metavar="DIR"),
        ],
        None,
    ),
    "save_sweep": (
        "output",
        Annotated[
            Path | None,
            typer.Option(
                "--save-plan", help="Write the plan that the options make.", metavar="FILE"
            ),
        ],
        None,
    ),
    "fresh": (
        "output",
        Annotated[
            bool,
            typer.Option("--fresh", help="Begin again: what the directory has is removed."),
        ],
        False,
    ),
    "workers": ("search", _text("Processes; one for each core where not given.", "N"), None),
    "dask": (
        "search",
        _text("Run on the workers of a Dask scheduler, not in processes here.", "ADDRESS"),
        None,
    ),
    "specs": ("hardware", Specs, None),
    "quiet": ("output", Quiet, False),
}  # fmt: skip


def option_name(name: str) -> str:
    """What a name of a term or of `HOW` is called on the command line."""
    term = glossary().get(name)
    return term.option_name if term else _OTHER_NAMES.get(name, "--" + name.replace("_", "-"))


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
        places += [_place(name, *HOW[name][1:]) for name in how]
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
    text = f"{bound}{term.description}."
    text = text[0].upper() + text[1:]
    if term.type == "flag":
        is_on = term.default == "true"
        names = [f"{name}/--no-{name[2:]}" for name in term.options] if is_on else term.options
        return Annotated[bool, typer.Option(*names, help=text)], is_on
    option = typer.Option(
        *term.options,
        help=text,
        metavar=_metavar(term),
        autocompletion=complete.for_term(term),
    )
    return Annotated[str | None, option], None


def _metavar(term: Term) -> str:
    word = _PLACEHOLDERS.get(term.type, term.term.split("_")[-1].upper())
    takes_several = term.type == "names" or "parameter" in term.kind
    return f"{word}[,{word}...]" if takes_several else word


def is_given(given: Given, name: str) -> bool:
    """Whether the user gave an option; one that the command lacks is not given."""
    source = given["context"].get_parameter_source(name) if name in given else None
    return source is not None and source.name == "COMMANDLINE"


def how(given: Given) -> dict[str, Any]:
    """The driver and, for Optuna, its settings.

    Raises
    ------
    SearchSpaceError
        One of them is impossible, or all rows are asked for of a driver that samples.
    """
    from planner.errors import SearchSpaceError

    names = ("driver", "trials", "seed", "sampler", "storage")
    chosen = read_driver(
        {name: given[name] for name in names if is_given(given, name)}, option_name
    )
    if chosen["driver"] == DRIVERS[0]:
        return chosen
    if given["all_rows"]:
        raise SearchSpaceError("--all writes every configuration: it needs --driver exhaustive.")
    storage = None if given["storage"] == "none" else given["storage"]
    return {**chosen, "storage": storage}
