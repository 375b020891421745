"""Make docs/reference/launch_files_read.md: files like public ones, and what is read in each.

Run it after a change of what is read; a test fails while the file is not what it makes:

    python scripts/make_public_launches.py

The files are those of `tests/launch/public/`: each was written for this repository after a public
file, with its options, values and traps; `expected.toml` beside it names that file and says what
must be understood, asked for and not understood.
"""

from __future__ import annotations

import csv
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import planner
from planner.errors import PlannerError
from planner.launch.option_table import shipped_rows
from planner.launch.read.launch_file import LaunchFile, evaluate_launch
from planner.launch.read.option_lines import Status
from planner.launch.read.read_launch import read_launch

ROOT = Path(planner.__file__).parents[1]
FILE = ROOT / "docs" / "reference" / "launch_files_read.md"
FOLDER = ROOT / "tests" / "launch" / "public"
EXPECTED = "expected.toml"
DRAWN = ROOT / "tests" / "launch" / "drawn.csv"
MODEL = "llama-3.1-8b"
"""What a user would add beside ``--from`` where a file does not say it."""

_HEAD = """# Launch files of others, read

Made by `python scripts/make_public_launches.py`. The {number} files in
`tests/launch/public/` are in the style of public ones. Each was written for this repository after a
public file, with its options, its values and its hard parts. This table shows the result of
`planner estimate --from FILE`, and tests check it. The files were known while the readers were
written. [Unseen files](#unseen-files) shows how well planner reads a new file.

- *Understood* options are used by a prediction.
- *Defaults* are what the tool does where the file sets nothing.
- *No effect* options change no prediction, such as paths and learning rates.
- *Not modelled* options may change the result.
- What the text leaves open is *assumed*. A missing model is *asked* for and is Llama 3.1 8B here.
- The *verdict* is that of the shortened file with these assumptions.

{summary}

| file | target | under-stood | defaults | no effect | not modelled | not understood \
| assumed | asked | verdict |
|---|---|--:|--:|--:|--:|---|---|---|---|
"""
_DRAWN = """
## Unseen files

{number} public files were drawn by rules. In the first two draws each repository gives the first
file, by the SHA-256 of its name, that starts or configures a model. In the third and fourth draw a
search for 40 names of files and programs gives the repositories. In the fifth and sixth about
110 other names give the first repositories with such a file and a stored copy. In the
seventh to ninth, lists of repositories with 25 words in their names give them, and the SHA-256 the
file; most are users' own programs. In the tenth and eleventh, a search for 34 paths such as
`slurm/vllm.sbatch` gives the first one to three repositories with a stored copy. The twelfth does
so with 40 paths and 2 searches for tools that were rare before: Megatron, NeMo, TensorRT-LLM,
LMDeploy, SGLang, Dynamo, ms-swift and verl. The thirteenth and fourteenth take the first one or two
files of 24 searches for what start scripts contain, and of 14 paths. The fifteenth takes the first
files of 17 such searches and of 7 paths. From the tenth on, files are read inside the repository.
Before, most were read alone. Files of the fifteenth draw, and those of the two before it that name
no other file, are read alone. No repository is in two draws. A few files
that do not start a model stayed in as files to refuse. Each right reading was written down from the
text of the file before it was run.

- *Unseen* is the first run of a draw, after repairs from the draws before it.
- *Now* is after repairs from the same draw, which no longer counts as unseen.
- *Partial* readings name the options that may change the verdict in their first line.
- *One word* is the model, which the file leaves to the user.

| draw | files | {outcomes} |
|---|--:|{columns}
{counts}

Addresses and right readings are in `tests/launch/drawn.csv`. Wrong or wrongly refused when unseen:

| file | right reading | unseen | now |
|---|---|---|---|
{rows}"""
_DEFAULTS = """
## Defaults of front ends

What a front end does where its file sets nothing, by version: readers use these rows of
`planner/launch/dialects/defaults.csv`. Options have the names of Hugging Face's Trainer or
Megatron-LM. The first row whose condition holds counts. torchtune, NeMo, verl and torchtitan take
theirs from shipped configurations: those are in `planner/launch/models/` and in the rows `omitted`
of `planner/launch/options/`.

| front end | versions | option | value | if | source |
|---|---|---|---|---|---|
"""
_OUTCOMES = ("right", "one word", "partial", "rightly refused", "wrongly refused", "wrong")
_ORDINALS = (
    *("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth"),
    *("tenth", "eleventh", "twelfth", "thirteenth", "fourteenth", "fifteenth"),
)
_RUNS = ("before", "unseen", "now")
_FIRST_UNSEEN = 2
"""The first draw that was run unseen; it and the one before were run before any repair, too."""
_SOURCES = """
## What is hard in them

| file | written after | |
|---|---|---|
"""


@dataclass(frozen=True, kw_only=True)
class Case:
    """A launch file and what must be made of it.

    ``source`` is the public file that it was written after, ``target`` the tool that it starts
    (``none``: no tool of ours), ``traps`` what is hard in it. ``understood`` are values by the
    names of the table of terms, ``shape`` keys of the model's ``config.json``, ``asked`` terms
    that the user must add, ``unknown`` options that must be listed as not understood. ``refused``
    is a pattern of the message where the file must be refused instead. ``file`` is the one that
    is read, where several stand together. ``given`` are answers beside it.
    """

    name: str
    source: str
    target: str
    traps: tuple[str, ...]
    file: str = ""
    understood: Mapping[str, Any] = field(default_factory=dict)
    shape: Mapping[str, Any] = field(default_factory=dict)
    asked: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    refused: str = ""
    given: Mapping[str, Any] = field(default_factory=dict)

    @property
    def path(self) -> Path:
        """The file that is read."""
        folder = FOLDER / self.name
        names = [path.name for path in folder.iterdir() if path.name != EXPECTED]
        return folder / (self.file or sorted(names)[0])


def cases() -> Iterator[Case]:
    """Every case, by name."""
    for folder in sorted(path for path in FOLDER.iterdir() if path.is_dir()):
        told = tomllib.loads((folder / EXPECTED).read_text(encoding="utf-8"))
        lists = {name: tuple(value) for name, value in told.items() if isinstance(value, list)}
        yield Case(name=folder.name, **{**told, **lists})


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of a file; ``refusal`` is empty where it was read."""

    target: str = ""
    defaults: int = 0
    counts: Mapping[Status, int] = field(default_factory=dict)
    unknown: tuple[str, ...] = ()
    asked: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()
    verdict: str = ""
    refusal: str = ""


def outcome(case: Case) -> Outcome:
    """What `planner estimate --from` makes of a file, with `MODEL` where it tells none."""
    try:
        imported = read_launch(case.path)
    except PlannerError as error:
        return Outcome(refusal=_first_sentence(error, case))
    asked = tuple(name for name in imported.missing_terms({}) if name == "model")
    told = {
        "target": imported.target.name,
        "defaults": len(imported.defaults),
        "counts": {status: len(imported.lines_with_status(status)) for status in Status},
        "unknown": tuple(
            dict.fromkeys(line.option for line in imported.lines_with_status(Status.UNKNOWN))
        ),
        "asked": asked,
    }
    try:
        answers = {**dict.fromkeys(asked, MODEL), **case.given}
        question = LaunchFile(path=case.path, answers=answers).question()
        _, found, _ = evaluate_launch(question.request)
    except PlannerError as error:
        return Outcome(refusal=_first_sentence(error, case), **told)
    assumed = tuple(question.imported.assumed)
    return Outcome(verdict=_verdict(found.rejected_by), assumed=assumed, **told)


def _verdict(rejected_by: str) -> str:
    words = {"": "fits", "out_of_memory": "does not fit"}
    return words.get(rejected_by, f"breaks the rule {rejected_by}")


def _first_sentence(error: PlannerError, case: Case) -> str:
    """Of a message, without the folder of the file."""
    text = str(error).replace(f"{case.path.parent}/", "").splitlines()[0]
    return text.partition(". ")[0].rstrip(".")


def page() -> str:
    """The text of the page."""
    outcomes = [(case, outcome(case)) for case in cases()]
    read = [told for _, told in outcomes if not told.refusal]
    whole = sum(not told.asked for told in read)
    clear = sum(not told.unknown for told in read)
    summary = (
        f"planner reads and judges {len(read)} of {len(outcomes)}, {whole} without further "
        f"options. The others need their model. In {clear} files it understands every option. "
        f"The other {len(outcomes) - len(read)} are refused, each with its reason."
    )
    head = _HEAD.format(number=len(outcomes), summary=summary)
    rows = "".join(row_of_page(case, told) for case, told in outcomes)
    sources = "".join(
        f"| `{case.name}` | {case.source} | {_cell('; '.join(case.traps))} |\n"
        for case, _ in outcomes
    )
    return head + rows + drawn_files() + front_end_defaults() + _SOURCES + sources


def front_end_defaults() -> str:
    """The section on what front ends do where a file sets nothing."""
    rows = "".join(
        f"| {row['program']} | {row['versions']} | `{row['into'].lstrip('-')}` "
        f"| {_cell(row['value'])} | {_cell(row['condition'])} | {_cell(row['source'])} |\n"
        for row in shipped_rows("dialects/defaults.csv")
    )
    return f"{_DEFAULTS}{rows}"


def drawn_files() -> str:
    """The section on drawn files: outcomes by draw and run, and those that were wrong."""
    with DRAWN.open(newline="", encoding="utf-8") as file:
        drawn = [*csv.DictReader(file)]
    counts = ""
    for draw, run in product(sorted({int(row["draw"]) for row in drawn}), _RUNS):
        is_missing = draw < _FIRST_UNSEEN if run == "unseen" else draw > _FIRST_UNSEEN
        if run != "now" and is_missing:
            continue
        labels = [row[run] for row in drawn if int(row["draw"]) == draw]
        numbers = [str(labels.count(label)) for label in _OUTCOMES]
        name = f"{_ORDINALS[draw - 1]}, {run}"
        counts += f"| {name} | {len(labels)} | {' | '.join(numbers)} |\n"
    rows = "".join(
        f"| {row['repository']}: `{row['path'].rpartition('/')[2]}` "
        f"| {_cell(row['right_reading'])} | {row['unseen']} | {row['now']} |\n"
        for row in drawn
        if "wrong" in row["unseen"]
    )
    return _DRAWN.format(
        number=len(drawn),
        outcomes=" | ".join(_OUTCOMES),
        columns="--:|" * len(_OUTCOMES),
        counts=counts.rstrip(),
        rows=rows,
    )


def row_of_page(case: Case, told: Outcome) -> str:
    """A file and what became of it."""
    columns = (Status.UNDERSTOOD, Status.IGNORED, Status.NOT_MODELLED)
    counts = [told.counts.get(status, 0) for status in columns]
    cells = [
        f"`{case.name}/{case.path.name}`",
        told.target or case.target,
        str(counts[0]),
        str(told.defaults),
        str(counts[1]),
        str(counts[2]),
        ", ".join(f"`{name}`" for name in told.unknown),
        ", ".join(told.assumed),
        ", ".join(told.asked),
        f"refused: {told.refusal}" if told.refusal else told.verdict,
    ]
    return f"| {' | '.join(map(_cell, cells))} |\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("$", "\\$")


if __name__ == "__main__":
    FILE.write_text(page(), encoding="utf-8")
