"""Tables of the largest batch or length of a plan, or of each of several methods."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from planner.base.csv_cells import Row
from planner.base.formatting import SURE_FIT, format_parameter
from planner.base.units import GIB
from planner.decide.explain.largest_fit import LargestFit, Methods
from planner.errors import InfeasibleError
from planner.optimize.source import first_row
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
    save_blocks,
    text_table,
)
from planner.show.presenters.format_results import (
    format_host_memory,
    format_result,
    label,
    short_plan,
)
from planner.show.presenters.infeasible import question_title
from planner.show.presenters.json_files import plan_manifest
from planner.show.presenters.plan_report import format_peak, is_predicted
from planner.show.presenters.row_tables import RowFiles
from planner.show.presenters.uncertainty import format_fit
from planner.specs.serving_workload import ServingWorkload
from planner.specs.validated import replace_unvalidated
from planner.workloads.make_plan import Plan
from planner.workloads.workload import Evaluation

_PEAK = "peak_memory_gib"
_COLUMNS = 3


def largest_parts(
    plan: Plan, evaluation: Evaluation, fits: Sequence[LargestFit]
) -> dict[str, object]:
    """Return the first screen and the full report of the largest batch or lengths, for JSON."""
    title, row = question_title(plan), None
    if is_predicted(evaluation):
        row = first_row(evaluation.table())
        title += f": {short_plan(plan, row)}"
    first, *others = (largest_verdict(plan, fit) for fit in fits)
    summary = {
        "verdict": first,
        "plan": title,
        "load": [*others, *(" ".join(_limit_lines(plan, fit)) for fit in fits if fit.row)],
        "tables": save_blocks(_short_table_blocks(plan, fits)),
        "assumed": [name.replace("_", " ") for name in plan.defaults],
    }
    blocks = () if row is None else _full_blocks(plan, row, fits)
    return {"summary": summary, "details": save_blocks(blocks)}


def largest_verdict(plan: Plan, fit: LargestFit) -> str:
    """Return a sentence on the largest batch or length that fits, and its memory."""
    name = fit.name.replace("_", " ")
    if fit.row is None:
        return f"Does not fit: no {name} is feasible: {fit.reason}."
    has, peak = f"the plan has {fit.current:,}", format_peak(plan, fit.row)
    if fit.largest == fit.largest_likely:
        return f"Fits up to {name} {fit.largest:,} ({has}): {peak}."
    chance = f"{100 * SURE_FIT:g} % likely"
    likely = f"{chance} up to {fit.largest_likely:,}" if fit.largest_likely else f"none is {chance}"
    return f"May fit up to {name} {fit.largest:,} ({has}): {peak}; {likely}."


def _short_table_blocks(plan: Plan, fits: Sequence[LargestFit]) -> Iterator[Block]:
    """Yield a table of the plan's own and the largest size of each fit, with their results."""
    shown = [(fit, number) for fit in fits for number in fit.rows
             if number in (fit.current, fit.largest_likely, fit.largest)]  # fmt: skip
    if not shown:
        return
    columns = _result_columns(plan, shown[0][0])
    rows = [
        (
            f"{fit.name.replace('_', ' ')} {number:,}{'*' * (number == fit.largest)}",
            *(format_result(column, fit.rows[number][column]) for column in columns),
        )
        for fit, number in shown
    ]
    marks = [BEST if number == fit.largest else "" for fit, number in shown]
    yield text_table(("* the largest", *map(label, columns)), rows, marked=marks)


def _full_blocks(plan: Plan, row: Row, fits: Sequence[LargestFit]) -> Iterator[Block]:
    """Yield the plan, and for each fit its limit and the results of all sizes tried."""
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
        yield f"Does not fit: no {name} is feasible: {next(matching, fit.reason)}."
        return
    memory = f"{fit.row[_PEAK]:,.1f} of {capacity:,.1f} GiB"
    texts = [f"largest {name} {fit.largest:,} (the plan has {fit.current:,})", memory]
    yield ", ".join(filter(None, (*texts, format_fit(fit.row))))
    yield from _limit_lines(plan, fit)


def _limit_lines(plan: Plan, fit: LargestFit) -> Iterator[str]:
    """Yield the host memory of the largest size, and what limits it."""
    inputs = plan.problem.inputs
    if fit.row is None:
        return
    if host_memory := format_host_memory(fit.row, inputs.machine):
        yield f"in host memory {host_memory}"
    if fit.name == "sequence_length" and fit.largest:
        yield from plan.workload.wording.unusual(
            replace(
                inputs, workload=replace_unvalidated(inputs.workload, sequence_length=fit.largest)
            )
        )
    if fit.following is not None:
        yield f"{fit.name.replace('_', ' ')} {fit.following:,}: {fit.reason}"
    elif fit.ends_at:
        yield f"Bounded by {fit.ends_at}, not by memory."
    else:
        yield f"{fit.most:,} is the most that was tried."


def _rows_blocks(plan: Plan, fit: LargestFit) -> Iterator[Block]:
    """Yield a table of the tried batches or lengths with their memory and main results."""
    columns = _result_columns(plan, fit)
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


def _result_columns(plan: Plan, fit: LargestFit) -> list[str]:
    """Return the columns of peak memory and of the main results of a fit."""
    work = plan.problem.inputs.workload
    embeds = isinstance(work, ServingWorkload) and work.embeds
    shown_columns = [
        name
        for name in plan.workload.wording.shown_columns
        if name in next(iter(fit.rows.values())) and not (embeds and is_answer_column(name))
    ]
    return [_PEAK, *shown_columns[:_COLUMNS]]


def methods_blocks(methods: Methods) -> Iterator[Block]:
    """Yield a table row for each method with its largest batch, and why each batch ends."""
    feasible = sum(method.row is not None for method in methods.methods)
    count = f"{feasible:,} of {len(methods.methods):,} methods"
    verdict = f"Fits with {count}" if feasible else f"Does not fit with any of {count}"
    yield make_lines(f"{verdict}; the table has the largest {_batch(methods)} of each.", mark=BEST)
    yield make_lines(question_title(methods.plan), mark=TOTAL, indent="")
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
        text = f"no {_batch(methods)} is feasible with any method: {reasons}."
        raise InfeasibleError(f"Does not fit: {text}")


def _columns(methods: Methods, reasons: Sequence[str]) -> list[Column]:
    """Return the columns of the table of methods: parameters, largest batch, results, limit."""
    table = methods.columns
    parameters = dict.fromkeys(name for method in methods.methods for name in method.values)
    result_columns = [name for name in (_PEAK, *_time_columns(methods)) if name in table]
    parameter_columns = [
        _column(name, [format_parameter(v) for v in table[name]], table[name])
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
