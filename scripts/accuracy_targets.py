"""What is aimed at for sets of published runs, and what is reached.

``published/accuracy_targets.csv`` has a row for each figure. Empty cells leave nothing out; the
others are patterns of the columns of their name, ``where`` has those of other columns, ``kind`` is
dense or moe, and ``rated`` 1 are runs with a stated rate of requests. Figures: *mean* and *median*
of |predicted / measured - 1|, *regret* as `planner.validation.accuracy`, the share *answered* of
measured runs, the share *refused* of those that ran, the share *said to fit* of those that ran out,
the *gap* between predicted and measured weak scaling, the share *inside* the intervals and their
*width*: the median of upper over lower end, less 1. Recipes, deployments (the share *judged
wrongly*) and logs of engines (the *largest* error) are sets of `target_sets`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median

from target_sets import SETS, scaling_gaps

from planner.confidence.profile_rules import read_table
from planner.validation.accuracy import ComparedQuantity, ComparedRun, group_errors, memory_verdicts

_FOLDER = Path(__file__).parent / "published"
_TABLES = ("training", "static", "serving")
_AT_LEAST = ("answered",)
_OF_MEMORY = ("refused", "said to fit")


@dataclass(frozen=True, kw_only=True)
class Reached:
    """A figure of a set of runs, as a share, beside what is aimed at.

    ``unfitted`` is that of the runs that no parameter was fitted to.
    """

    name: str
    figure: str
    rows: int
    reached: float
    unfitted: float
    target: float

    @property
    def is_met(self) -> bool:
        """Whether it is as good as is aimed at."""
        if self.figure in _AT_LEAST:
            return self.reached >= self.target
        return self.reached <= self.target


def reached(tables: Sequence[Sequence[ComparedRun]]) -> list[Reached]:
    """Every figure; the tables stand in the order of `make_accuracy.shipped_rows`."""
    return [reached_of(wanted, tables) for wanted in read_table("accuracy_targets.csv", _FOLDER)]


def reached_of(wanted: Mapping[str, str], tables: Sequence[Sequence[ComparedRun]]) -> Reached:
    """The figure of a row of such a table."""
    if wanted["table"] in SETS:
        return _of_set(wanted)
    rows = tables[_TABLES.index(wanted["table"])]
    mine = [row for row in rows if _belongs(wanted, row)]
    compared = next(one for one in rows[0].kind.compared if one.interval == wanted["quantity"])
    figure = _FIGURES[wanted["figure"]]
    number, value = figure(mine, compared)
    return Reached(
        name=wanted["set"],
        figure=wanted["figure"],
        rows=number,
        reached=value,
        unfitted=figure([row for row in mine if not row.run.flag(compared.calibration)], compared)[
            1
        ],
        target=float(wanted["target"]),
    )


def _of_set(wanted: Mapping[str, str]) -> Reached:
    """A figure of a set that is no table of runs."""
    numbers = SETS[wanted["table"]]()
    unfitted = [number for number, is_fitted in numbers if not is_fitted]
    figure = _OF_NUMBERS[wanted["figure"]]
    return Reached(
        name=wanted["set"],
        figure=wanted["figure"],
        rows=len(numbers),
        reached=figure([number for number, _ in numbers]),
        unfitted=figure(unfitted) if unfitted else math.nan,
        target=float(wanted["target"]),
    )


def _belongs(wanted: Mapping[str, str], row: ComparedRun) -> bool:
    if row.prediction.impossible or (row.noisy and wanted["figure"] not in _OF_MEMORY):
        return False
    patterns = ((name, wanted[name]) for name in ("source", "workload", "mode") if wanted[name])
    if not all(re.search(pattern, row.run.text(name)) for name, pattern in patterns):
        return False
    if wanted["software"] and not re.search(wanted["software"], row.software):
        return False
    if wanted["rated"] and row.run.number("request_rate") is None:
        return False
    if not all(re.search(p, row.run.text(name)) for name, p in _conditions(wanted)):
        return False
    case = row.prediction.case
    return not wanted["kind"] or (case is not None and case.kind == wanted["kind"])


def _conditions(wanted: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Columns and patterns of the cell ``where``: ``column~pattern``, joined by semicolons."""
    for part in filter(None, wanted.get("where", "").split(";")):
        name, _, pattern = part.partition("~")
        yield name, pattern


def _of_errors(name: str) -> Callable[[Sequence[ComparedRun], ComparedQuantity], tuple[int, float]]:
    def figure(rows: Sequence[ComparedRun], compared: ComparedQuantity) -> tuple[int, float]:
        found = group_errors("", list(_measured(rows, compared)), compared)
        return found.predicted, getattr(found, name)

    return figure


def _answered(rows: Sequence[ComparedRun], compared: ComparedQuantity) -> tuple[int, float]:
    found = group_errors("", list(_measured(rows, compared)), compared)
    return found.rows, found.predicted / found.rows if found.rows else math.nan


def _refused(rows: Sequence[ComparedRun], _: ComparedQuantity) -> tuple[int, float]:
    found = memory_verdicts(rows)
    return found.ran, found.predicted_out_of_memory / found.ran if found.ran else math.nan


def _said_to_fit(rows: Sequence[ComparedRun], _: ComparedQuantity) -> tuple[int, float]:
    found = memory_verdicts(rows)
    return found.ran_out, found.predicted_fit / found.ran_out if found.ran_out else math.nan


def _width(rows: Sequence[ComparedRun], compared: ComparedQuantity) -> tuple[int, float]:
    """Median of the upper over the lower end of intervals, less 1, of what was measured."""
    names = [(row, row.first_measured(compared.names) or "") for row in rows]
    found = [row.ranges[name] for row, name in names if name in row.ranges]
    return len(found), median(one.high / one.low for one in found) - 1 if found else math.nan


def _gap(rows: Sequence[ComparedRun], compared: ComparedQuantity) -> tuple[int, float]:
    found = scaling_gaps(rows, compared)
    return len(found), fmean(found) if found else math.nan


def _measured(rows: Sequence[ComparedRun], compared: ComparedQuantity) -> Iterator[ComparedRun]:
    return (row for row in rows if row.first_measured(compared.names) is not None)


_FIGURES: Mapping[str, Callable[[Sequence[ComparedRun], ComparedQuantity], tuple[int, float]]] = {
    "mean": _of_errors("mape"),
    "median": _of_errors("median"),
    "regret": _of_errors("regret"),
    "inside": _of_errors("within"),
    "answered": _answered,
    "refused": _refused,
    "said to fit": _said_to_fit,
    "gap": _gap,
    "width": _width,
}
_OF_NUMBERS: Mapping[str, Callable[[Sequence[float]], float]] = {
    "mean": fmean,
    "largest": max,
    "refused": fmean,
    "judged wrongly": fmean,
}
