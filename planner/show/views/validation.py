"""What a validation shows and writes: tables of errors, and the file of predictions."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from planner.base.files import written_whole
from planner.base.text import count
from planner.confidence.intervals import LEVEL
from planner.show.page import GAP, Block, Pairs, Title, grid, said
from planner.show.views.rows import csv_cell, plain_cell, texts
from planner.validation.assumed import UNKNOWN
from planner.validation.columns import ADDED, MEASURED, PREDICTED
from planner.validation.compare import Errors, MemoryVerdicts, Row, errors, memory_verdicts
from planner.validation.kinds import Kind, kind_of
from planner.validation.runs import Runs

_MOST_CHOICES = 12
_NAME_WIDTH = 31
_NAMES = {"gpu": "GPU"}


def validation_blocks(kind: Kind, rows: Sequence[Row]) -> Iterator[Block]:
    """Errors of what is compared by group, verdicts on memory, and what is not predicted."""
    for compared in kind.compared:
        for group in compared.groups:
            found = errors(rows, compared, group)
            if any(one.predicted for one in found):
                title = f"{compared.title} by {_NAMES.get(group, group)}"
                heads = ("", "rows", "pred.", "MAPE", "median", "bias", "within", "score")
                more = ["regret"] * compared.with_regret
                lines = [[*_row(one, compared.with_regret)] for one in found]
                yield Title(text=title)
                yield grid((*heads, *more), lines)
    yield from verdicts_blocks(memory_verdicts(rows))
    yield from reasons_blocks(rows)
    yield GAP
    yield said(
        f"MAPE: mean of |predicted / measured - 1|. Bias: median of predicted / measured - 1. "
        f"Within: share inside the {LEVEL:.0%} interval; score: its width in logarithms and what "
        f"lies beyond it, less is better. {kind.footnote}"
    )


def write_predictions(path: Path, tables: Sequence[tuple[Runs, Sequence[Row]]]) -> None:
    """The input columns and what is predicted beside each, written whole or not at all.

    Several tables stand one after the other under the columns of all of them.

    Raises
    ------
    OutputError
        The file cannot be written.
    """
    own = (f"{PREDICTED}fits", f"{PREDICTED}fit_probability", *ADDED)
    inputs = dict.fromkeys(name for runs, _ in tables for name in runs.columns)
    new = dict.fromkeys(
        name
        for runs, _ in tables
        for name in (*(end for quantity in runs.quantities for end in _ends(quantity)), *own)
    )
    with written_whole(path) as stream:
        stream.write(",".join(map(csv_cell, inputs | new)) + "\n")
        for runs, rows in tables:
            every = [{**row.run.cells, **_cells(runs, row)} for row in rows]
            columns = [[cells.get(name, "") for cells in every] for name in inputs | new]
            written = (texts(column, plain_cell) for column in columns if column)
            stream.writelines(f"{','.join(cells)}\n" for cells in zip(*written, strict=True))


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
        f"{PREDICTED}fits": fits,
        f"{PREDICTED}fit_probability": _number(prediction.fit_probability),
        "basis": prediction.basis_words,
        "not_predicted_reason": prediction.reason,
        "impossible_layout": prediction.impossible,
        "assumed": "; ".join(row.assumed),
    }


@cache
def _ends(quantity: str) -> tuple[str, str, str]:
    name = PREDICTED + quantity
    return name, f"{name}_low", f"{name}_high"


def _number(value: float) -> str:
    """Seven digits; empty where an end of an interval is unknown."""
    return f"{value:.7g}" if math.isfinite(value) else ""


def _row(found: Errors, with_regret: bool) -> Iterator[str]:
    yield _shortened(found.name)
    yield count(found.rows)
    yield count(found.predicted)
    yield _percent(found.mape)
    yield _percent(found.median)
    yield _percent(found.bias, sign="+")
    yield _percent(found.within, digits=0)
    yield f"{found.score:.2f}" if math.isfinite(found.score) else "-"
    if with_regret:
        yield _percent(found.regret)


def _shortened(name: str) -> str:
    """A long name without its middle: its beginning and its end tell it from others."""
    if len(name) <= _NAME_WIDTH:
        return name
    half = (_NAME_WIDTH - 3) // 2
    return f"{name[:half].rstrip()}...{name[-half:].lstrip()}"


def verdicts_blocks(verdicts: MemoryVerdicts) -> Iterator[Block]:
    """How often it was predicted wrongly whether a run goes out of memory."""
    yield Title(text="Out of memory")
    yield Pairs(
        pairs={
            "ran out, said to fit": _share(verdicts.said_to_fit, verdicts.ran_out),
            "ran, said to run out": _share(verdicts.said_to_run_out, verdicts.ran),
        },
    )


def reasons_blocks(rows: Sequence[Row]) -> Iterator[Block]:
    """How many runs are predicted, on what basis, why others are not, and what was assumed."""
    predictions = [row.prediction for row in rows]
    reasons = Counter(one.reason for one in predictions if one.reason)
    bases = Counter(one.basis_words for one in predictions if one.basis)
    total = len(predictions)
    yield Title(text=f"Predicted: {count(total - reasons.total())} of {count(total)}")
    yield Pairs(pairs={basis: count(number) for basis, number in bases.most_common()})
    if reasons:
        yield Title(text="Not predicted")
        yield from _counts_blocks(reasons)
    faults = Counter(one.impossible for one in predictions if one.impossible)
    if faults:
        yield Title(text=f"Layouts that cannot be: {count(faults.total())}, not compared")
        yield from _counts_blocks(faults)
    yield from _noise_blocks(sum(row.noisy for row in rows))
    choices = Counter(choice for row in rows for choice in row.assumed)
    if choices:
        yield Title(text="Assumed where rows leave it open")
        shown = Counter(dict(choices.most_common(_MOST_CHOICES)))
        shown |= Counter({one: n for one, n in choices.items() if UNKNOWN in one})
        yield from _counts_blocks(shown)
        left = len(choices) - len(shown)
        others = f"{count(left)} others: " if left > 0 else ""
        yield said(f"{others}--output has them row by row, in the column assumed.", indent="")


def _noise_blocks(number: int) -> Iterator[Block]:
    if number:
        one = "1 row is" if number == 1 else f"{count(number)} rows are"
        yield said(
            f"{one} noise by their source's word: left out of speed, not of memory.", indent=""
        )


def not_understood(runs: Runs) -> list[str]:
    """A line for each column that means nothing here, with the known ones it may stand for."""
    schema = runs.schema
    return [
        f"The column {name} is not understood.{schema.hint(name)}" for name in runs.not_understood
    ]


def nothing_compared(runs: Runs, rows: Sequence[Row]) -> str:
    """Why no row of a table could be compared."""
    predicted = sum(not row.prediction.reason for row in rows)
    measured = sum(
        any(
            map(
                row.run.number,
                [
                    name
                    for name in runs.columns
                    if name.startswith(MEASURED) and name in runs.schema.known
                ],
            )
        )
        for row in rows
    )
    template = kind_of(runs).template
    known = ", ".join(name for name in sorted(runs.schema.known) if name.startswith(MEASURED))
    return "\n".join(
        (
            f"Nothing could be compared: of {count(len(rows))} rows {count(measured)} have a "
            f"measurement and {count(predicted)} can be predicted, but none has both.",
            f"Measurements stand in {known}. `planner validate --template {template}` "
            "writes a table with every column explained.",
        )
    )


def _counts_blocks(reasons: Counter[str]) -> Iterator[Block]:
    ordered = sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
    yield grid(("", ""), [(count(number), reason) for reason, number in ordered], words=(1,))


def _share(part: int, whole: int) -> str:
    return f"{count(part)} of {count(whole)} ({_percent(part / whole if whole else math.nan)})"


def _percent(share: float, digits: int = 1, sign: str = "") -> str:
    return f"{100 * share:{sign}.{digits}f}%" if math.isfinite(share) else "-"
