"""Make docs/launch_files_read.md: files in the style of public ones, and what is read in each.

Run it after a change of what is read; a test fails while the file is not what it makes:

    python scripts/make_public_launches.py

The files are those of `tests/launch/public/`: each was written for this repository after a public
file, with its options, values and traps; `expected.toml` beside it names that file and says what
must be understood, asked for and not understood.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import planner
from planner.errors import PlannerError
from planner.launch.imported import Imported
from planner.launch.judge import judged
from planner.launch.lines import Status
from planner.launch.read import read_launch
from planner.question.terms import terms_of

ROOT = Path(planner.__file__).parents[1]
FILE = ROOT / "docs" / "launch_files_read.md"
FOLDER = ROOT / "tests" / "launch" / "public"
EXPECTED = "expected.toml"
ANSWERS = {
    "model": "llama-3.1-8b",
    "gpu": "h100-sxm-80gb",
    "num_gpus": 8,
    "tensor_parallel": 1,
    "pipeline_parallel": 1,
    "context_parallel": 1,
    "concurrency": 64,
    "max_num_seqs": 64,
    "expert_parallel": 1,
    "sequence_parallel": "false",
    "micro_batch_size": 1,
    "global_batch_size": 64,
    "sequence_length": 4096,
    "input_tokens": 1024,
    "output_tokens": 256,
}
"""What a user would add beside ``--from`` where a file does not say it."""

_HEAD = """# Launch files of others, read

Made by `python scripts/make_public_launches.py`. {number} files in the style of public ones, in
`tests/launch/public/`: each was written for this repository after a public file, shortened, with
its options, its values and what is hard in it. Tests hold what must be understood, asked for and
not understood in each; this table says what `planner estimate --from FILE` makes of them.

*Understood* are options that a prediction uses, *defaults* what the tool does where the file says
nothing, *ignored* options that change no prediction, such as paths and learning rates. What text
alone does not tell is asked for. The verdict is that for a file completed with answers of ours
(`ANSWERS` in the script: 8 H100, a small model), so it says that the way is open to its end rather
than anything of the original.

{summary}

| file | target | under-stood | defaults | ignored | not understood | asked for | verdict |
|---|---|--:|--:|--:|---|---|---|
"""
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
    is read, where several stand together. ``given`` are answers in place of those of `ANSWERS`.
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
    verdict: str = ""
    refusal: str = ""


def outcome(case: Case) -> Outcome:
    """What `planner estimate --from` makes of a file, completed with `ANSWERS`."""
    try:
        imported = read_launch(case.path)
    except PlannerError as error:
        return Outcome(refusal=_first_sentence(error, case))
    told = {
        "target": imported.target.name,
        "defaults": len(imported.defaults),
        "counts": {status: len(imported.of(status)) for status in Status},
        "unknown": tuple(dict.fromkeys(line.option for line in imported.of(Status.UNKNOWN))),
        "asked": imported.lacking({}),
    }
    try:
        return Outcome(verdict=_verdict(imported, {**ANSWERS, **case.given}), **told)
    except PlannerError as error:
        return Outcome(refusal=_first_sentence(error, case), **told)


def _verdict(imported: Imported, known: Mapping[str, Any]) -> str:
    answers = {name: known[name] for name in imported.lacking({})}
    request = imported.request(answers, None)
    of_layout = terms_of(imported.workload, "parameter")
    settings = {name: value for name, value in answers.items() if name in of_layout}
    settings.pop("num_gpus", None)
    _, found, _ = judged(replace(request, settings={**request.settings, **settings}))
    if not found.rejected_by:
        return "fits"
    if found.rejected_by == "out_of_memory":
        return "does not fit"
    return f"breaks the rule {found.rejected_by}"


def _first_sentence(error: PlannerError, case: Case) -> str:
    """Of a message, without the folder of the file."""
    text = str(error).replace(f"{case.path.parent}/", "").splitlines()[0]
    return text.partition(". ")[0].rstrip(".")


def page() -> str:
    """The text of the page."""
    outcomes = [(case, outcome(case)) for case in cases()]
    read = [told for _, told in outcomes if not told.refusal]
    clear = sum(not told.unknown for told in read)
    summary = (
        f"{len(read)} of {len(outcomes)} are read and judged, {clear} of them without an option "
        f"that is not understood; {len(outcomes) - len(read)} are refused, each with its reason."
    )
    head = _HEAD.format(number=len(outcomes), summary=summary)
    rows = "".join(_row(case, told) for case, told in outcomes)
    sources = "".join(
        f"| `{case.name}` | {case.source} | {_cell('; '.join(case.traps))} |\n"
        for case, _ in outcomes
    )
    return head + rows + _SOURCES + sources


def _row(case: Case, told: Outcome) -> str:
    counts = [told.counts.get(status, 0) for status in (Status.UNDERSTOOD, Status.IGNORED)]
    cells = [
        f"`{case.name}/{case.path.name}`",
        told.target or case.target,
        str(counts[0]),
        str(told.defaults),
        str(counts[1]),
        ", ".join(f"`{name}`" for name in told.unknown),
        ", ".join(told.asked),
        f"refused: {told.refusal}" if told.refusal else told.verdict,
    ]
    return f"| {' | '.join(map(_cell, cells))} |\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("$", "\\$")


if __name__ == "__main__":
    FILE.write_text(page(), encoding="utf-8")
