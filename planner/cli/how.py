"""Options that the command line alone has, beside those of the table of terms."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from planner.cli import complete
from planner.launch import WRAPPERS
from planner.question.request import Request
from planner.show.views.plots.names import PICTURES, USUAL_WIDTH
from planner.workloads.given import DRIVERS, SAMPLERS, TRIALS
from planner.workloads.registry import workload_names

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
Plot = Annotated[
    Path | None,
    typer.Option("--plot", help="Draw the result: FILE.png or FILE.svg.", metavar="FILE"),
]
PictureName = Annotated[
    str | None,
    typer.Option(
        "--picture",
        help="What --plot draws: of a search its front, of a plan parts of time and memory or the "
        "roofline, of one that serves latencies, of a sweep its costs or a matrix: "
        + ", ".join(dict.fromkeys(name for names in PICTURES.values() for name in names))
        + ".",
        metavar="NAME",
        autocompletion=complete.for_words("picture"),
    ),
]
Dark = Annotated[bool, typer.Option("--dark", help="Draw on a dark ground.")]
PictureWidth = Annotated[
    str | None,
    typer.Option(
        "--picture-width", help=f"Pixels across; {USUAL_WIDTH} where not given.", metavar="N"
    ),
]
Json = Annotated[
    Path | None, typer.Option("--json", help="Write the rows as JSON; - is stdout.", metavar="FILE")
]


def _text(words: str, metavar: str, completed: complete.Completer | None = None) -> object:
    option = typer.Option(help=words, metavar=metavar, autocompletion=completed)
    return Annotated[str | None, option]


# Options that say how a command works, by name: their group, their type and their value where not
# given. Numbers are text here: `planner.question.inputs` reads them.
HOW: Mapping[str, tuple[str, object, object]] = {
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
    "plot": ("output", Plot, None),
    "picture": ("output", PictureName, None),
    "dark": ("output", Dark, False),
    "picture_width": ("output", PictureWidth, None),
    "timeline": (
        "output",
        Annotated[
            Path | None,
            typer.Option(
                "--timeline",
                help="Write when a step does what: FILE.json for trace viewers (Perfetto, Chrome), "
                "or FILE.png or FILE.svg.",
                metavar="FILE",
            ),
        ],
        None,
    ),
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
    "against": (
        "search",
        Annotated[
            list[str] | None,
            typer.Option(
                "--against",
                help="Another plan beside this one: NAME=VALUE, a setting or an answer changed "
                "(repeatable), or FILE, FILE:ROW of a plan or a result.",
                metavar="NAME=VALUE|FILE",
                autocompletion=complete.settings,
            ),
        ],
        None,
    ),
    "things": (
        "question",
        Annotated[
            list[str],
            typer.Argument(
                help="Two or more: plans, results or their rows (FILE, FILE:ROW), launch files; "
                "names of GPUs, models, frameworks or engines; folders of specs (shipped: without "
                "one).",
                metavar="A B...",
                show_default=False,
            ),
        ],
        inspect.Parameter.empty,
    ),
    "operators": (
        "question",
        Annotated[
            list[str],
            typer.Argument(
                help="One or more of gemm, grouped-gemm, attention, elementwise; all-reduce, "
                "custom-all-reduce, all-gather, reduce-scatter, all-to-all, send; device-copy, "
                "host-copy, host-memory, drive-copy.",
                metavar="OPERATOR...",
                show_default=False,
                autocompletion=complete.for_words("operators"),
            ),
        ],
        inspect.Parameter.empty,
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
                help="Where the plan comes from: a launch file of yours (a script, YAML, JSON, "
                "a text with blocks of code), a folder of them, a plan, or with --row a row of a "
                "result or of the directory of a sweep.",
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
