"""What a validation shows and writes: tables of errors, and the file of predictions."""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console

from planner.report.console import make_table, print_pairs, print_title
from planner.report.files import written_whole
from planner.report.text import count
from planner.validation.compare import (
    GROUPS,
    Errors,
    Row,
    memory_errors,
    memory_verdicts,
    time_errors,
)
from planner.validation.intervals import LEVEL
from planner.validation.runs import Runs

_PREDICTED = "predicted_"
_NAME_WIDTH = 31
_NAMES = {"gpu": "GPU"}


def print_validation(console: Console, rows: Sequence[Row]) -> None:
    """Errors of time and memory by group, verdicts on memory, and what is not predicted."""
    for group in GROUPS:
        _print_errors(console, f"Step time by {_title(group)}", time_errors(rows, group), True)
    for group in ("source", "framework"):
        _print_errors(console, f"Peak memory by {group}", memory_errors(rows, group), False)
    _print_verdicts(console, rows)
    _print_reasons(console, rows)
    console.print()
    console.print(
        f"MAPE: mean of |predicted / measured - 1|. Bias: median of predicted / measured - 1. "
        f"Within: share inside the {LEVEL:.0%} interval. Regret: measured time of the layout we "
        "would pick over that of the best, less 1, where a source ran several."
    )


def write_predictions(path: Path, runs: Runs, rows: Sequence[Row]) -> None:
    """The input columns and what is predicted beside each, written whole or not at all.

    Raises
    ------
    OutputError
        The file cannot be written.
    """
    columns = _columns(runs)
    with written_whole(path) as stream:
        writer = csv.DictWriter(stream, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows({**row.run.cells, **_cells(runs, row)} for row in rows)


def _columns(runs: Runs) -> list[str]:
    new = [name for quantity in runs.quantities for name in _ends(quantity)]
    new += [f"{_PREDICTED}fits", "basis", "not_predicted_reason"]
    return list(dict.fromkeys([*runs.columns, *new]))


def _cells(runs: Runs, row: Row) -> dict[str, str]:
    prediction = row.prediction
    cells = {name: "" for quantity in runs.quantities for name in _ends(quantity)}
    for quantity in runs.quantities:
        found = row.ranges.get(quantity)
        if found is not None:
            values = (found.value, found.low, found.high)
            cells |= dict(zip(_ends(quantity), map(_number, values), strict=True))
    fits = "" if prediction.reason else str(int(prediction.fits))
    return {
        **cells,
        f"{_PREDICTED}fits": fits,
        "basis": prediction.basis,
        "not_predicted_reason": prediction.reason,
    }


def _ends(quantity: str) -> tuple[str, str, str]:
    name = _PREDICTED + quantity
    return name, f"{name}_low", f"{name}_high"


def _number(value: float) -> str:
    """Seven digits; empty where an end of an interval is unknown."""
    return f"{value:.7g}" if math.isfinite(value) else ""


def _print_errors(
    console: Console, title: str, groups: Sequence[Errors], with_regret: bool
) -> None:
    if not groups:
        return
    print_title(console, title)
    table = make_table(console, gap=1)
    table.add_column("", no_wrap=True)
    for header in ("rows", "pred.", "MAPE", "median", "bias", "within"):
        table.add_column(header, justify="right", no_wrap=True)
    if with_regret:
        table.add_column("regret", justify="right", no_wrap=True)
    for errors in groups:
        table.add_row(*_row(errors, with_regret))
    console.print(table)


def _row(errors: Errors, with_regret: bool) -> Iterator[str]:
    yield _shortened(errors.name)
    yield count(errors.rows)
    yield count(errors.predicted)
    yield _percent(errors.mape)
    yield _percent(errors.median)
    yield _percent(errors.bias, sign="+")
    yield _percent(errors.within, digits=0)
    if with_regret:
        yield _percent(errors.regret)


def _shortened(name: str) -> str:
    """A long name without its middle: its beginning and its end tell it from others."""
    if len(name) <= _NAME_WIDTH:
        return name
    half = (_NAME_WIDTH - 3) // 2
    return f"{name[:half].rstrip()}...{name[-half:].lstrip()}"


def _print_verdicts(console: Console, rows: Sequence[Row]) -> None:
    verdicts = memory_verdicts(rows)
    print_title(console, "Out of memory")
    print_pairs(
        console,
        {
            "ran out, said to fit": _share(verdicts.said_to_fit, verdicts.ran_out),
            "ran, said to run out": _share(verdicts.said_to_run_out, verdicts.ran),
        },
    )


def _print_reasons(console: Console, rows: Sequence[Row]) -> None:
    reasons = Counter(row.prediction.reason for row in rows if row.prediction.reason)
    bases = Counter(row.prediction.basis for row in rows if row.prediction.basis)
    print_title(console, f"Predicted: {count(len(rows) - reasons.total())} of {count(len(rows))}")
    print_pairs(console, {basis: count(number) for basis, number in bases.most_common()})
    if reasons:
        print_title(console, "Not predicted")
        _print_counts(console, reasons)


def _print_counts(console: Console, reasons: Counter[str]) -> None:
    table = make_table(console, header=False)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(overflow="fold")
    for reason, number in sorted(reasons.items(), key=lambda item: (-item[1], item[0])):
        table.add_row(count(number), reason)
    console.print(table)


def _share(part: int, whole: int) -> str:
    return f"{count(part)} of {count(whole)} ({_percent(part / whole if whole else math.nan)})"


def _percent(share: float, digits: int = 1, sign: str = "") -> str:
    return f"{100 * share:{sign}.{digits}f}%" if math.isfinite(share) else "-"


def _title(group: str) -> str:
    return _NAMES.get(group, group)
