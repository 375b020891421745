"""Tables of the largest batch or length of a plan, or of each of several methods."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from planner.base import formatting
from planner.base.csv_cells import Row
from planner.base.units import GIB
from planner.decide.explain.largest_fit import LargestFit, Methods
from planner.errors import InfeasibleError
from planner.question.terms import is_answer_column
from planner.show.output_blocks import (
    BEST,
    FAINT,
    GAP,
    TOTAL,
    Block,
    Column,
    fit_table,
    make_lines,
    text_table,
)
from planner.show.presenters.format_results import (
    format_host_memory,
    format_result,
    label,
    short_plan,
)
from planner.show.presenters.json_files import plan_manifest
from planner.show.presenters.question_summary import question_title
from planner.show.presenters.row_files import RowFiles
from planner.show.presenters.uncertainty import format_fit
from planner.specs.serving_workload import ServingWorkload
from planner.specs.validated import replace_unvalidated
from planner.workloads.make_plan import Plan

_PEAK = "peak_memory_gib"
_COLUMNS = 3


def largest_blocks(plan: Plan, row: Row, fits: Sequence[LargestFit]) -> Iterator[Block]:
    """Yield the plan and the largest batch or length that fits, its limit and its results."""
    yield make_lines(question_title(plan), mark=TOTAL, indent="")
    yield make_lines(short_plan(plan, row))
    work = plan.problem.inputs.workload
    varies = work.output_variation if isinstance(work, ServingWorkload) else 0
    if varies and plan.request.output_variation is None:
        yield make_lines(f"Assumed: lengths are means, and vary by {varies:g}")
    for fit in fits:
        yield GAP
        for line in largest_lines(plan, fit):
            yield make_lines(line)
        if fit.rows:
            yield from _rows_blocks(plan, fit)


def largest_lines(plan: Plan, fit: LargestFit, missed: Sequence[str] = ()) -> list[str]:
    """Sentences with the largest value and its limit; ``missed``: the plan's own misses."""
    return [*_fit_lines(plan, fit, missed)]


def _fit_lines(plan: Plan, fit: LargestFit, missed: Sequence[str]) -> Iterator[str]:
    """Yield lines on the largest batch or length that fits, its memory and what limits it.

    If nothing fits, the one line is the reason.
    """
    name = fit.name.replace("_", " ")
    capacity = plan.problem.inputs.machine.gpu.allocatable_memory / GIB
    if fit.row is None:
        matching = (texts for texts in missed if texts.startswith(fit.reason))
        yield f"No {name} is feasible: {next(matching, fit.reason)}."
        return
    memory = f"{fit.row[_PEAK]:,.1f} of {capacity:,.1f} GiB"
    texts = [f"largest {name} {fit.largest:,} (the plan has {fit.current:,})", memory]
    yield ", ".join(filter(None, (*texts, format_fit(fit.row))))
    inputs = plan.problem.inputs
    if host_memory := format_host_memory(fit.row, inputs.machine):
        yield f"in host memory {host_memory}"
    if fit.name == "sequence_length" and fit.largest:
        yield from plan.workload.wording.unusual(
            replace(
                inputs, workload=replace_unvalidated(inputs.workload, sequence_length=fit.largest)
            )
        )
    if fit.following is not None:
        yield f"{fit.following:,}: {fit.reason}"
    elif fit.ends_at:
        yield f"Bounded by {fit.ends_at}, not by memory."
    else:
        yield f"{fit.most:,} is the most that was tried."


def _rows_blocks(plan: Plan, fit: LargestFit) -> Iterator[Block]:
    """Yield a table of the tried batches or lengths with their memory and main results."""
    work = plan.problem.inputs.workload
    embeds = isinstance(work, ServingWorkload) and work.embeds
    shown_columns = [
        name
        for name in plan.workload.wording.shown_columns
        if name in next(iter(fit.rows.values())) and not (embeds and is_answer_column(name))
    ]
    columns = [_PEAK, *shown_columns[:_COLUMNS]]
    rows = [
        (
            f"{number:,}{'*' * (number == fit.largest)}",
            *(format_result(column, row[column]) for column in columns),
        )
        for number, row in fit.rows.items()
    ]
    heads = (fit.name.replace("_", " "), *map(label, columns))
    marks = [BEST if number == fit.largest else "" for number in fit.rows]
    yield text_table(heads, rows, text_columns=(), marked=marks)


def methods_blocks(methods: Methods) -> Iterator[Block]:
    """Yield a table row for each method with its largest batch, and why each batch ends."""
    yield make_lines(question_title(methods.plan), mark=TOTAL, indent="")
    yield make_lines(f"largest {_batch(methods)} of {len(methods.methods):,} methods")
    yield GAP
    reasons = dict.fromkeys(method.reason for method in methods.methods)
    marks = {reason: f"({number})" for number, reason in enumerate(reasons, 1)}
    columns = _columns(methods, [marks[method.reason] for method in methods.methods])
    ranks = {
        **dict.fromkeys(_time_columns(methods), 3),
        _throughput(methods): 2,
        _PEAK: 1,
        "ended_by": 1,
    }
    marked = ["" if method.row else FAINT for method in methods.methods]
    yield fit_table(columns, lambda name: ranks.get(name, 0), marked)
    for reason, mark in marks.items():
        yield make_lines(f"{mark} {reason}")


def add_methods(files: RowFiles, methods: Methods, command: Sequence[str]) -> None:
    """Write the rows and the manifest."""
    files.add([methods.columns])
    files.finish(plan_manifest(methods.plan, command))


def require_feasible_method(methods: Methods) -> None:
    """Raises InfeasibleError with the reasons if no method is feasible."""
    if not any(method.row for method in methods.methods):
        reasons = "; ".join(dict.fromkeys(method.reason for method in methods.methods))
        raise InfeasibleError(f"No {_batch(methods)} is feasible with any method: {reasons}.")


def _columns(methods: Methods, reasons: Sequence[str]) -> list[Column]:
    """Return the columns of the table of methods: parameters, largest batch, results, limit."""
    table = methods.columns
    parameters = dict.fromkeys(name for method in methods.methods for name in method.values)
    result_columns = [name for name in (_PEAK, *_time_columns(methods)) if name in table]
    parameter_columns = [
        _column(name, [formatting.format_parameter(v) for v in table[name]], table[name])
        for name in parameters
    ]
    batch = ["-" if v is None else f"{v:,}" for v in table[methods.name]]
    return [
        *parameter_columns,
        Column(methods.name, batch, _batch(methods)),
        *(
            _column(
                name,
                ["" if v is None else format_result(name, v) for v in table[name]],
                table[name],
            )
            for name in result_columns
        ),
        Column("ended_by", reasons, "ends", numeric=False),
    ]


def _column(name: str, cells: Sequence[str], values: Sequence[object]) -> Column:
    is_number = not any(isinstance(value, str) for value in values)
    return Column(name, cells, label(name), is_number)


def _batch(methods: Methods) -> str:
    return methods.name.replace("_", " ")


def _time_columns(methods: Methods) -> Sequence[str]:
    """Columns of some times of the workload and its throughput."""
    first = methods.plan.workload.wording.shown_columns[:_COLUMNS]
    return [*dict.fromkeys((*first, _throughput(methods)))]


def _throughput(methods: Methods) -> str:
    columns = methods.plan.workload.wording.shown_columns
    return next(name for name in columns if name.endswith("tokens_per_s_per_gpu"))
