"""``check``: a command line that is about to start, as one line."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from planner.base.formatting import format_gpus_of_row
from planner.base.read_files import read_text
from planner.base.records import record
from planner.commands.command import Call, Command, PlanQuestion, error_of, read_question
from planner.decide.fitting import MEMORIES
from planner.errors import InfeasibleError, LaunchError, PlannerError
from planner.launch.read.import_launch import ImportedLaunch
from planner.launch.read.launch_file import evaluate_launch
from planner.launch.read.read_launch import is_document
from planner.optimize.result_columns import full_columns
from planner.optimize.source import Columns, Source, first_row
from planner.question.terms import glossary
from planner.show.output_blocks import Block, make_lines
from planner.show.presenters.json_files import add_estimate
from planner.show.presenters.launch_file import with_incompleteness
from planner.show.presenters.load_check import refuse_overload
from planner.show.presenters.plan_report import format_verdict, result_texts
from planner.show.presenters.recommendation import batch_text
from planner.show.presenters.row_tables import RowFiles
from planner.show.presenters.uncertainty import evidence
from planner.workloads.make_plan import Plan
from planner.workloads.workload import Evaluation

_NAME = "command line"
"""What messages call the text in place of a file."""
_WITH_FILE = "together with --from"
"""Where messages say to set what a file does not specify."""
_NUM_RESULTS, _NOT_SPEED = 3, ("cost", "request latency")
_LARGEST = 2**20
_VARIABLE = re.compile(r"\$\{?([A-Za-z_]\w*)")
_VARIATION = re.compile(r", lengths vary by [^,]*")
_SET_OUTSIDE = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")
"""Variables that decide on the GPUs of a command though nothing names them."""


@record(kw_only=True)
class Checked:
    """The prediction of a command line, and the launch that was read; None if it is of rows."""

    plan: Plan
    evaluation: Evaluation
    imported: ImportedLaunch | None


def _read(call: Call) -> PlanQuestion:
    """Return the question of a command line, read as a script of one line in this folder.

    A program that no reader knows may start from a document that one does, such as
    ``docker compose -f FILE up``. Raises LaunchError if nothing in it is read; SpecError or
    SearchSpaceError if it names something unknown or impossible.
    """
    words = [str(word) for word in _words(call.extra.get("program"))]
    if not words:
        raise LaunchError("Give the command to check after --, such as: check -- bash run.sh")
    text = shlex.join([*_environment(words, os.environ), *words])
    extra = {name: value for name, value in call.extra.items() if name != "program"}
    try:
        return read_question(
            replace(call, extra={**extra, "from_file": Path(_NAME)}, launch_text=text)
        )
    except LaunchError as error:
        for path in map(Path, words[1:]):
            if is_document(path) and path.is_file():
                with suppress(LaunchError):
                    return read_question(replace(call, extra={**extra, "from_file": path}))
        raise LaunchError(str(error).replace(_WITH_FILE, "before --")) from error


def _words(program: object) -> Iterable[object]:
    """Return the words of a command, also of one that is a text."""
    if isinstance(program, str):
        return shlex.split(program)
    return program if isinstance(program, list | tuple) else ()


def _environment(words: Sequence[str], environment: Mapping[str, str]) -> Iterator[str]:
    """Yield NAME=VALUE of the variables that a command, or a script it names, reads."""
    texts = [*words]
    for path in map(Path, words):
        if path.is_file() and path.stat().st_size <= _LARGEST:
            with suppress(PlannerError):
                texts.append(read_text(path, _LARGEST))
    names = dict.fromkeys(name for text in texts for name in _VARIABLE.findall(text))
    for name in (*names, *_SET_OUTSIDE):
        if name in environment:
            yield f"{name}={environment[name]}"


def _run(question: PlanQuestion) -> Checked:
    """Return the prediction of a command line."""
    plan, evaluation, _ = evaluate_launch(question.request)
    imported = None if question.launch is None else question.launch.imported
    return Checked(plan=plan, evaluation=evaluation, imported=imported)


def _line(checked: Checked) -> str:
    """Return whether a command fits, how fast it will be, and how sure that is, in one line."""
    plan, evaluation = checked.plan, checked.evaluation
    imported, verdict = checked.imported, " ".join(format_verdict(plan, evaluation).split())
    if imported is not None:
        verdict = with_incompleteness(imported, verdict)
    table = evaluation.table()
    row = first_row(table)
    gpus = format_gpus_of_row(row)
    assumed = {} if imported is None else imported.assumed
    unspecified = [name for name in ("gpu", "num_gpus") if name in assumed]
    if unspecified:
        options = " and ".join(glossary()[name].option_name for name in unspecified)
        gpus += f", assumed: set {options}"
    if evaluation.rejected_by:
        return f"{verdict.removesuffix('.')} ({gpus})"
    confidence = plan.source_of(row).confidence_of(row)
    texts = result_texts(plan, row, confidence).items()
    results = [f"{name} {text}" for name, text in texts if name not in _NOT_SPEED]
    speed = ", ".join(results[:_NUM_RESULTS])
    basis = "no published run"
    if confidence is not None:
        basis = f"90 % intervals; {evidence(confidence.basis, confidence.runs, confidence.missing)}"
    load = _load(plan, evaluation.source, table)
    return f"{verdict.removesuffix('.')}; {load}: {speed}; {basis} ({gpus})"


def _load(plan: Plan, source: Source, table: Columns) -> str:
    """Return what the speed is of: the lengths and batch of a step, or the requests at once."""
    row = first_row(full_columns(table, [source]))
    if batch := batch_text(row):
        return batch
    load = plan.workload.wording.question_lines(source.inputs)[0]
    load = _VARIATION.sub("", load.removeprefix("Requests: "))
    return f"{load}, concurrency {row['concurrency']:,} each" if "concurrency" in row else load


def _problem(checked: Checked) -> InfeasibleError | None:
    """Return why the command cannot run, in one line; None if it can."""
    return InfeasibleError(_line(checked)) if checked.evaluation.rejected_by else None


def _warn(checked: Checked) -> InfeasibleError | None:
    """Return the problem of a load that the GPUs cannot answer."""
    return error_of(lambda: refuse_overload(checked.plan, checked.evaluation.candidates))


def _present(checked: Checked, is_full: bool) -> Iterator[Block]:
    """Yield the line of a command that runs; the error has that of others."""
    if not checked.evaluation.rejected_by:
        yield make_lines(_line(checked), most=0)


def _write(files: RowFiles, checked: Checked, arguments: Sequence[str]) -> None:
    """Write the row of the command's configuration."""
    add_estimate(files, checked.plan, checked.evaluation, arguments)


CHECK = Command(
    read=_read,
    run=_run,
    present=_present,
    write=_write,
    problem=_problem,
    is_written=lambda checked: checked.evaluation.rejected_by in MEMORIES,
    warn=_warn,
)
