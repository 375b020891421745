"""A log of a run beside its plan: the table that is shown, and the row that is kept."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from planner.base import text
from planner.base.enums import TemplateKind
from planner.base.files import written_whole
from planner.base.reading import read_csv
from planner.confidence.intervals import LEVEL
from planner.errors import CalibrationError
from planner.logs.reading import OUT_OF_MEMORY
from planner.show.page import Block, Pairs, Title, grid, said
from planner.show.views.rows import plain_cell
from planner.validation.columns import schema_of
from planner.validation.logs.compare import Compared, Comparison
from planner.validation.logs.planned import STATIC, Planned
from planner.validation.prediction import MEMORY, RATES
from planner.validation.runs import read_runs
from planner.validation.template import template

_LABELS = {
    "tokens_per_s_per_gpu": "tokens/s/GPU",
    "output_tokens_per_s": "output tokens/s",
    "total_tokens_per_s": "all tokens/s",
    "requests_per_s": "requests/s",
    "step_time_s": "step time",
    "time_to_first_token_s": "time to first token",
    "time_per_output_token_s": "time per output token",
    "request_latency_s": "request latency",
    OUT_OF_MEMORY: "ran out of memory",
}
_INSIDE = {True: "yes", False: "no"}


def comparison_blocks(found: Comparison, planned: Planned, log: Path) -> Iterator[Block]:
    """What was measured and predicted, and what a reader must know of it."""
    row = planned.row
    software = row.get("framework", row.get("engine"))
    reading = found.reading
    yield said(f"{log}: a log of {reading.title}", indent="")
    yield said(
        f"The plan: {row['model']} on {text.count(row['num_gpus'])} x {row['gpu']}, {software}"
    )
    yield Title(text="Measured and predicted")
    names = [one.name for one in found.quantities]  # percentiles below their mean
    ordered = sorted(found.quantities, key=lambda one: names.index(one.name))
    heads = ("", "measured", "predicted", "error", f"{LEVEL:.0%} interval", "in it")
    yield grid(heads, [[*_cells(one)] for one in ordered])
    yield said("Error: predicted over measured, less 1.", indent="")
    spreads = {_label(one): _ends(one.name, *one.spread) for one in found.quantities if one.spread}
    if spreads:
        yield Title(text="80 % of the steps")
        yield Pairs(pairs=spreads)
    if found.notes:
        yield Title(text="Notes")
        yield said(*found.notes)


def _cells(one: Compared) -> Iterator[str]:
    yield _label(one)
    yield _value(one.name, one.measured)
    yield "-" if one.predicted is None else _value(one.name, one.predicted.value)
    is_number = one.error is not None and one.name != OUT_OF_MEMORY
    yield f"{100 * (one.error or 0.0):+.1f} %" if is_number else "-"
    if one.predicted is None or one.is_inside is None:
        yield from ("-", "-")
        return
    yield _ends(one.name, one.predicted.low, one.predicted.high)
    yield _INSIDE[one.is_inside]


def _label(one: Compared) -> str:
    if one.percent is not None:
        return f"  p{one.percent}"
    return f"peak memory, {one.kind}" if one.name == MEMORY else _LABELS.get(one.name, one.name)


def _ends(name: str, low: float, high: float) -> str:
    """Both ends, the unit once where they share it."""
    first, last = _value(name, low), _value(name, high)
    unit = last.partition(" ")[2]
    return f"{first.removesuffix(f' {unit}') if unit else first} to {last}"


def _value(name: str, value: float) -> str:
    if name == OUT_OF_MEMORY:
        return "yes" if value else "no"
    if name == MEMORY:
        return f"{value:.1f} GiB"
    return text.significant(value) if name in RATES else text.duration(value)


def add_row(path: Path, found: Comparison, planned: Planned) -> bool:
    """Whether the row of a run was added to a table of runs; not where it is there already.

    A new table has the columns of `planner validate --template`. One that is there keeps its
    columns, its rows and its comments; columns that it lacks are added behind them. It is
    replaced whole or not at all.

    Raises
    ------
    CalibrationError
        No row can tell the run.
    SpecError
        The table that is there has faults.
    OutputError
        It cannot be written.
    """
    if not found.cells:
        raise CalibrationError(f"{path}: the run cannot be a row of a table: {found.no_row}.")
    lines = [_header(planned)]
    if os.path.exists(path):
        read_runs(path)  # every fault is told before anything is changed
        lines = [cells for _, cells in read_csv(path) if cells]
    header = [name.strip() for name in lines[0]]
    _require_kind(path, header, planned)
    row = [found.cells.get(name, "") for name in header]
    new = [name for name in found.cells if name not in header]
    padded = [[*cells, *[""] * (len(header) + len(new) - len(cells))] for cells in lines]
    padded[0] = header + new
    added = row + [found.cells[name] for name in new]
    if added in padded:
        return False
    with written_whole(path) as stream:
        for cells in (*padded, added):
            stream.write(",".join(map(plain_cell, cells)) + "\n")
    return True


def _require_kind(path: Path, header: Sequence[str], planned: Planned) -> None:
    wanted = schema_of(_header(planned)).kind
    if schema_of(header).kind is not wanted:
        raise CalibrationError(
            f"{path}: is a table of {schema_of(header).kind} runs, this one is of {wanted}: "
            "give another file."
        )


def _header(planned: Planned) -> list[str]:
    if planned.is_training:
        kind = TemplateKind.TRAINING
    else:
        static = planned.pinned.workload == STATIC
        kind = TemplateKind.STATIC if static else TemplateKind.SERVING
    return list(template(kind)[0])
