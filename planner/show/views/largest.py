"""The largest batch or length of a plan, or of each of several methods, as people read it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from planner.base import text
from planner.base.units import GIB
from planner.decide.explaining.largest import Largest, Methods
from planner.errors import InfeasibleError
from planner.question.terms import is_of_answers
from planner.show.page import BEST, FAINT, GAP, TOTAL, Block, Column, fitted, grid, said
from planner.show.views.documents import plan_manifest
from planner.show.views.overview import question_title
from planner.show.views.rows import RowFiles
from planner.show.views.sure import fits_words
from planner.show.views.told import host_words, label, short_plan, told
from planner.specs.checked import unchecked
from planner.specs.serving import ServingWorkload
from planner.workloads.plan import Plan

_PEAK = "peak_memory_gib"
_COLUMNS = 3


def largest_blocks(
    plan: Plan, row: Mapping[str, object], found: Sequence[Largest]
) -> Iterator[Block]:
    """The plan, and for each thing that grows what fits, what does not, and what it costs."""
    yield said(question_title(plan), mark=TOTAL, indent="")
    yield said(short_plan(plan, row))
    work = plan.problem.setting.workload
    varies = work.output_variation if isinstance(work, ServingWorkload) else 0
    if varies and plan.request.output_variation is None:
        yield said(f"Assumed: lengths are means, and vary by {varies:g}")
    for one in found:
        yield GAP
        for line in largest_lines(plan, one):
            yield said(line)
        if one.rows:
            yield from _rows_blocks(plan, one)


def largest_lines(plan: Plan, one: Largest, missed: Sequence[str] = ()) -> list[str]:
    """The largest and what ends it, in sentences; ``missed``: what the plan itself lacks."""
    return [*_lines(plan, one, missed)]


def _lines(plan: Plan, one: Largest, missed: Sequence[str]) -> Iterator[str]:
    name = one.name.replace("_", " ")
    capacity = plan.problem.setting.machine.gpu.allocatable_memory / GIB
    if one.row is None:
        known = (words for words in missed if words.startswith(one.reason))
        yield f"No {name} is feasible: {next(known, one.reason)}."
        return
    memory = f"{one.row[_PEAK]:,.1f} of {capacity:,.1f} GiB"
    words = [f"largest {name} {one.largest:,} (the plan has {one.own:,})", memory]
    yield ", ".join(filter(None, (*words, fits_words(one.row))))
    setting = plan.problem.setting
    if on_host := host_words(one.row, setting.machine):
        yield f"in host memory {on_host}"
    if one.name == "sequence_length" and one.largest:
        yield from plan.workload.wording.unusual(
            replace(setting, workload=unchecked(setting.workload, sequence_length=one.largest))
        )
    if one.following is not None:
        yield f"{one.following:,}: {one.reason}"
    elif one.ends_at:
        yield f"Bounded by {one.ends_at}, not by memory."
    else:
        yield f"{one.most:,} is the most that was tried."


def _rows_blocks(plan: Plan, one: Largest) -> Iterator[Block]:
    work = plan.problem.setting.workload
    embeds = isinstance(work, ServingWorkload) and work.embeds
    told_columns = [
        name
        for name in plan.workload.wording.told
        if name in next(iter(one.rows.values())) and not (embeds and is_of_answers(name))
    ]
    columns = [_PEAK, *told_columns[:_COLUMNS]]
    rows = [
        (
            f"{number:,}{'*' * (number == one.largest)}",
            *(told(column, row[column]) for column in columns),
        )
        for number, row in one.rows.items()
    ]
    heads = (one.name.replace("_", " "), *map(label, columns))
    marks = [BEST if number == one.largest else "" for number in one.rows]
    yield grid(heads, rows, words=(), marked=marks)


def methods_blocks(found: Methods) -> Iterator[Block]:
    """A row for each method, and below the table what ends the batches."""
    yield said(question_title(found.plan), mark=TOTAL, indent="")
    yield said(f"largest {_batch(found)} of {len(found.methods):,} methods")
    yield GAP
    reasons = dict.fromkeys(method.reason for method in found.methods)
    marks = {reason: f"({number})" for number, reason in enumerate(reasons, 1)}
    columns = _columns(found, [marks[method.reason] for method in found.methods])
    ranks = {**dict.fromkeys(_told(found), 3), _throughput(found): 2, _PEAK: 1, "ended_by": 1}
    marked = ["" if method.row else FAINT for method in found.methods]
    yield fitted(columns, lambda name: ranks.get(name, 0), marked)
    for reason, mark in marks.items():
        yield said(f"{mark} {reason}")


def add_methods(files: RowFiles, found: Methods, command: Sequence[str]) -> None:
    """The rows and the manifest."""
    files.add([found.columns])
    files.finish(plan_manifest(found.plan, command))


def check_some(found: Methods) -> None:
    """Refuse methods of which none is feasible. Raises InfeasibleError if none is; it says why."""
    if not any(method.row for method in found.methods):
        reasons = "; ".join(dict.fromkeys(method.reason for method in found.methods))
        raise InfeasibleError(f"No {_batch(found)} is feasible with any method: {reasons}.")


def _columns(found: Methods, ends: Sequence[str]) -> list[Column]:
    table = found.columns
    named = dict.fromkeys(name for method in found.methods for name in method.values)
    numbers = [name for name in (_PEAK, *_told(found)) if name in table]
    words = [_column(name, [text.value(v) for v in table[name]], table[name]) for name in named]
    batch = ["-" if v is None else f"{v:,}" for v in table[found.name]]
    return [
        *words,
        Column(found.name, batch, _batch(found)),
        *(
            _column(name, ["" if v is None else told(name, v) for v in table[name]], table[name])
            for name in numbers
        ),
        Column("ended_by", ends, "ends", numeric=False),
    ]


def _column(name: str, cells: Sequence[str], values: Sequence[object]) -> Column:
    is_number = not any(isinstance(value, str) for value in values)
    return Column(name, cells, label(name), is_number)


def _batch(found: Methods) -> str:
    return found.name.replace("_", " ")


def _told(found: Methods) -> Sequence[str]:
    """Some times of the workload, and its throughput."""
    first = found.plan.workload.wording.told[:_COLUMNS]
    return [*dict.fromkeys((*first, _throughput(found)))]


def _throughput(found: Methods) -> str:
    told_names = found.plan.workload.wording.told
    return next(name for name in told_names if name.endswith("tokens_per_s_per_gpu"))
