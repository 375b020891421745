"""The largest batch of each of several methods, as people and files read them."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from planner.base import text
from planner.errors import InfeasibleError
from planner.explaining.methods import Methods
from planner.report.console import print_folded
from planner.report.fitted import Column, print_fitted
from planner.report.manifest import plan_manifest
from planner.report.overview import question_title
from planner.report.rows import RowFiles
from planner.report.told import label, told

_PEAK = "peak_memory_gib"
_COLUMNS = 3


def print_methods(console: Console, found: Methods) -> None:
    """A row for each method, and below the table what ends the batches."""
    console.print(question_title(found.plan), style="bold")
    print_folded(console, f"largest {_batch(found)} of {len(found.methods):,} methods")
    console.print()
    reasons = dict.fromkeys(one.reason for one in found.methods)
    marks = {reason: f"({number})" for number, reason in enumerate(reasons, 1)}
    columns = _columns(found, [marks[one.reason] for one in found.methods])
    ranks = {**dict.fromkeys(_told(found), 3), _throughput(found): 2, _PEAK: 1, "ended_by": 1}
    print_fitted(
        console,
        columns,
        rank=lambda name: ranks.get(name, 0),
        styles=["dim" if not one.row else None for one in found.methods],
    )
    for reason, mark in marks.items():
        print_folded(console, f"{mark} {reason}")


def add_methods(files: RowFiles, found: Methods, command: Sequence[str]) -> None:
    """The rows and the manifest."""
    files.add([found.columns])
    files.finish(plan_manifest(found.plan, command))


def check_some(found: Methods) -> None:
    """Refuse methods of which none is feasible.

    Raises
    ------
    InfeasibleError
        None is; it says why.
    """
    if not any(one.row for one in found.methods):
        reasons = "; ".join(dict.fromkeys(one.reason for one in found.methods))
        raise InfeasibleError(f"No {_batch(found)} is feasible with any method: {reasons}.")


def _columns(found: Methods, ends: Sequence[str]) -> list[Column]:
    table = found.columns
    named = dict.fromkeys(name for one in found.methods for name in one.values)
    numbers = [name for name in (_PEAK, *_told(found)) if name in table]
    words = [_column(name, [text.value(v) for v in table[name]], table[name]) for name in named]
    batch = ["-" if v is None else f"{v:,}" for v in table[found.name]]
    return [
        *words,
        Column(name=found.name, header=_batch(found), cells=batch, numeric=True),
        *(
            _column(name, ["" if v is None else told(name, v) for v in table[name]], table[name])
            for name in numbers
        ),
        Column(name="ended_by", header="ends", cells=ends, numeric=False),
    ]


def _column(name: str, cells: Sequence[str], values: Sequence[object]) -> Column:
    is_number = not any(isinstance(value, str) for value in values)
    return Column(name=name, header=label(name), cells=cells, numeric=is_number)


def _batch(found: Methods) -> str:
    return found.name.replace("_", " ")


def _told(found: Methods) -> Sequence[str]:
    """Some times of the workload, and its throughput."""
    first = found.plan.workload.wording.told[:_COLUMNS]
    return [*dict.fromkeys((*first, _throughput(found)))]


def _throughput(found: Methods) -> str:
    told_names = found.plan.workload.wording.told
    return next(name for name in told_names if name.endswith("tokens_per_s_per_gpu"))
