"""Tables of a validation: errors, verdicts, the file of predictions, and the answer in Python."""

from __future__ import annotations

import hashlib
import math
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from planner.base.atomic_write import write_atomically
from planner.base.enums import TemplateKind
from planner.base.formatting import format_count, format_duration, format_significant
from planner.base.read_files import read_csv
from planner.base.records import record
from planner.base.version import __version__
from planner.confidence.intervals import LEVEL
from planner.errors import CalibrationError, PlannerError
from planner.logs.log_reader import OUT_OF_MEMORY
from planner.question.names import FRAMEWORK, GPU, MODEL
from planner.show.output_blocks import GAP, Block, KeyValues, Title, make_lines, text_table
from planner.show.presenters.row_tables import csv_cell, plain_cell, texts
from planner.show.results import Displayable
from planner.show.theme import axis_label
from planner.specs.catalogue import Catalogue
from planner.validation.accuracy import (
    UNKNOWN,
    ComparedRun,
    Errors,
    MemoryVerdicts,
    RunKind,
    errors,
    kind_of,
    memory_verdicts,
    tuned_errors,
)
from planner.validation.fitted_profile import unit_of
from planner.validation.logs.log_comparison import Comparison, LoggedQuantity, schema_for
from planner.validation.logs.predicted_run import STATIC, PredictedRun
from planner.validation.run_tables import (
    ADDED,
    MEASURED,
    MEMORY,
    PREDICTED,
    RATES,
    ColumnType,
    Runs,
    Schema,
    read_runs,
    schema_of,
    template,
)
from planner.validation.validated_runs import ValidatedRuns

if TYPE_CHECKING:
    import pandas as pd

    from planner.validation.fit_parameters import Fit
    from planner.validation.fit_parameters import FitErrors as Fitted


SOURCE = "shared run"
_KINDS: Mapping[str, tuple[str, ...]] = {
    MODEL: ("models",),
    GPU: ("gpus",),
    FRAMEWORK: ("frameworks", "engines"),
}
_ID_DIGITS = 12


def shared_cells(comparison: Comparison, planned: PredictedRun) -> dict[str, str]:
    """Return the cells of a run by column, without what identifies its owner.

    Numbers, shipped names and the words of the columns stay; texts for people go. The id is a
    digest of the cells. Raises CalibrationError if the run cannot be a row, or uses a model, GPU or
    profile that only its owner has.
    """
    if not comparison.cells:
        raise CalibrationError(f"The run cannot be a row of a table: {comparison.no_row}.")
    schema = schema_for(planned)
    cells = {
        name: _shipped_name(planned.catalogue, name, cell) if name in _KINDS else cell
        for name, cell in comparison.cells.items()
        if _is_shared(schema, name)
    }
    texts = "\n".join(f"{name}={cell}" for name, cell in sorted(cells.items()))
    digest = hashlib.sha256(texts.encode()).hexdigest()[:_ID_DIGITS]
    notes = f"log of {comparison.reading.title}; planner {__version__}"
    return {"id": f"shared-{digest}", "source": SOURCE, **cells, "notes": notes}


def _is_shared(schema: Schema, name: str) -> bool:
    """Whether a column describes the run or its results, not its owner."""
    column = schema.columns.get(name)
    is_for_people = column is None or column.type is ColumnType.DESCRIBED
    return not is_for_people and name not in ("source", "publisher")


def _shipped_name(catalogue: Catalogue, column: str, name: str) -> str:
    """Return the name by which every planner knows a spec.

    Raises CalibrationError if it is not shipped, or the owner's own file replaces it.
    """
    shipped = Catalogue(None)
    for kind in _KINDS[column]:
        try:
            path = shipped.find(kind, name)
            if catalogue.find(kind, name) == path:
                return path.stem
        except PlannerError:
            continue
    raise CalibrationError(
        f"The {column} {name} is yours: no other planner knows it. Propose its spec first, "
        "or share a run with a shipped one (planner specs list)."
    )


_SHARED_TABLES = {"train": "training", "inference": "inference", "serve": "inference", "rl": "rl"}
_MOST_CHOICES = 12
_NAME_WIDTH = 31
_NAMES = {"gpu": "GPU"}


def validation_blocks(kind: RunKind, rows: Sequence[ComparedRun]) -> Iterator[Block]:
    """Yield tables of the errors by group, out-of-memory verdicts, and unpredicted runs."""
    for compared in kind.compared:
        for group in compared.groups:
            group_errors = errors(rows, compared, group)
            if any(error.predicted for error in group_errors):
                title = f"{compared.title} by {_NAMES.get(group, group)}"
                heads = ("", "rows", "pred.", "MAPE", "median", "bias", "within", "score")
                extra_heads = ["regret"] * compared.with_regret
                lines = [[*_row(error, compared.with_regret)] for error in group_errors]
                yield Title(text=title)
                yield text_table((*heads, *extra_heads), lines)
        if (tuned := tuned_errors(rows, compared)) is not None:
            yield make_lines(
                f"{compared.title} as tuned: MAPE {_percent(tuned.mape)}, median "
                f"{_percent(tuned.median)}, bias {_percent(tuned.bias, sign='+')}.",
                indent="",
            )
    yield from verdicts_blocks(memory_verdicts(rows))
    yield from reasons_blocks(rows)
    yield GAP
    yield make_lines(
        "MAPE: mean of |predicted / measured - 1|. Bias: median of predicted / measured - 1. "
        f"Within: share inside the {LEVEL:.0%} interval; score: its logarithmic width plus a "
        f"penalty for runs outside it, lower is better. {kind.footnote}"
    )


def write_predictions(path: Path, tables: Sequence[tuple[Runs, Sequence[ComparedRun]]]) -> None:
    """Write the input columns and the predictions of each run to a CSV file, atomically.

    Several tables follow each other under the union of their columns.
    Raises OutputError if the file cannot be written.
    """
    columns = prediction_columns(tables)
    with write_atomically(path) as stream:
        stream.write(",".join(map(csv_cell, columns)) + "\n")
        for runs, rows in tables:
            table = prediction_rows(runs, rows)
            cells = [[row.get(name, "") for row in table] for name in columns]
            written = (texts(column, plain_cell) for column in cells if column)
            stream.writelines(f"{','.join(line)}\n" for line in zip(*written, strict=True))


def prediction_columns(tables: Sequence[tuple[Runs, Sequence[ComparedRun]]]) -> list[str]:
    """Return the input columns of the tables, and those of the predictions."""
    names = [name for runs, _ in tables for name in runs.columns]
    for runs, _ in tables:
        names += [end for quantity in runs.quantities for end in _interval_columns(quantity)]
        names += [f"{PREDICTED}fits", f"{PREDICTED}fit_probability", *ADDED]
    return [*dict.fromkeys(names)]


def prediction_rows(runs: Runs, rows: Sequence[ComparedRun]) -> list[dict[str, str]]:
    """Return the cells of each run with those of its prediction."""
    return [{**row.run.cells, **_cells(runs, row)} for row in rows]


def _cells(runs: Runs, row: ComparedRun) -> dict[str, str]:
    """Return the predicted cells of a run by column; "" where nothing is predicted."""
    prediction = row.prediction
    cells = {name: "" for quantity in runs.quantities for name in _interval_columns(quantity)}
    for quantity in runs.quantities:
        interval = row.ranges.get(quantity)
        if interval is not None:
            values = (interval.value, interval.low, interval.high)
            cells |= dict(zip(_interval_columns(quantity), map(_number, values), strict=True))
    fits = "" if prediction.reason else str(int(prediction.fits))
    return {
        **cells,
        f"{PREDICTED}fits": fits,
        f"{PREDICTED}fit_probability": _number(prediction.fit_probability),
        "basis": prediction.basis,
        "not_predicted_reason": prediction.reason,
        "impossible_layout": prediction.impossible,
        "assumed": "; ".join(row.assumed),
    }


@cache
def _interval_columns(quantity: str) -> tuple[str, str, str]:
    name = PREDICTED + quantity
    return name, f"{name}_low", f"{name}_high"


def _number(value: float) -> str:
    """Seven digits; empty for an unknown end of an interval."""
    return f"{value:.7g}" if math.isfinite(value) else ""


def _row(errors: Errors, with_regret: bool) -> Iterator[str]:
    """Yield the cells of a group of runs: counts and errors; regret only if ``with_regret``."""
    yield _shorten(errors.name)
    yield format_count(errors.rows)
    yield format_count(errors.predicted)
    yield _percent(errors.mape)
    yield _percent(errors.median)
    yield _percent(errors.bias, sign="+")
    yield _percent(errors.within, digits=0)
    yield f"{errors.score:.2f}" if math.isfinite(errors.score) else "-"
    if with_regret:
        yield _percent(errors.regret)


def _shorten(name: str) -> str:
    """Return a long name with its middle replaced by dots; a short one unchanged."""
    if len(name) <= _NAME_WIDTH:
        return name
    half = (_NAME_WIDTH - 3) // 2
    return f"{name[:half].rstrip()}...{name[-half:].lstrip()}"


def verdicts_blocks(verdicts: MemoryVerdicts) -> Iterator[Block]:
    """Yield the shares of runs with a wrong prediction on whether memory ran out."""
    yield Title(text="Out of memory")
    yield KeyValues(
        pairs={
            "ran out, said to fit": _share(verdicts.predicted_fit, verdicts.ran_out),
            "ran, said to run out": _share(verdicts.predicted_out_of_memory, verdicts.ran),
        }
    )


def reasons_blocks(rows: Sequence[ComparedRun]) -> Iterator[Block]:
    """Yield how many runs are predicted on which basis, and why others are not."""
    predictions = [row.prediction for row in rows]
    reasons = Counter(prediction.reason for prediction in predictions if prediction.reason)
    bases = Counter(prediction.basis for prediction in predictions if prediction.basis)
    total = len(predictions)
    yield Title(text=f"Predicted: {format_count(total - reasons.total())} of {format_count(total)}")
    yield KeyValues(pairs={basis: format_count(number) for basis, number in bases.most_common()})
    if reasons:
        yield Title(text="Not predicted")
        yield from _counts_blocks(reasons)
    impossible = Counter(
        prediction.impossible for prediction in predictions if prediction.impossible
    )
    if impossible:
        yield Title(text=f"Impossible layouts: {format_count(impossible.total())}, not compared")
        yield from _counts_blocks(impossible)
    if noisy := sum(row.noisy for row in rows):
        noise = "1 row is" if noisy == 1 else f"{format_count(noisy)} rows are"
        text = f"{noise} noisy according to the source: left out of speed, not of memory."
        yield make_lines(text, indent="")
    choices = Counter(choice for row in rows for choice in row.assumed)
    if choices:
        yield Title(text="Assumed if not in the row")
        shown = Counter(dict(choices.most_common(_MOST_CHOICES)))
        shown |= Counter({choice: n for choice, n in choices.items() if UNKNOWN in choice})
        yield from _counts_blocks(shown)
        left = len(choices) - len(shown)
        others = f"{format_count(left)} others: " if left > 0 else ""
        yield make_lines(
            f"{others}--output writes them row by row, in the column assumed.", indent=""
        )


def not_understood(runs: Runs) -> list[str]:
    """Return a line for each unknown column of a table, with similar known columns."""
    schema = runs.schema
    return [
        f"The column {name} is not understood.{schema.hint(name)}" for name in runs.not_understood
    ]


def nothing_compared(runs: Runs, rows: Sequence[ComparedRun]) -> str:
    """Return the error message for a table in which no row can be compared."""
    predicted = sum(not row.prediction.reason for row in rows)
    measured = sum(
        any(
            map(
                row.run.number,
                [
                    name
                    for name in runs.columns
                    if name.startswith(MEASURED) and name in runs.schema.column_names
                ],
            )
        )
        for row in rows
    )
    template = kind_of(runs).template
    measured_columns = ", ".join(
        name for name in sorted(runs.schema.column_names) if name.startswith(MEASURED)
    )
    return "\n".join(
        (
            f"Nothing to compare: of {format_count(len(rows))} rows {format_count(measured)} have "
            f"a measurement and {format_count(predicted)} can be predicted, none has both.",
            f"Measurements are in {measured_columns}. `planner validate --template {template}` "
            "writes a table with every column explained.",
        )
    )


def _counts_blocks(reasons: Counter[str]) -> Iterator[Block]:
    ordered = sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
    yield text_table(
        ("", ""), [(format_count(number), reason) for reason, number in ordered], text_columns=(1,)
    )


def _share(part: int, total: int) -> str:
    return (
        f"{format_count(part)} of {format_count(total)} "
        f"({_percent(part / total if total else math.nan)})"
    )


def _percent(share: float, digits: int = 1, sign: str = "") -> str:
    return f"{100 * share:{sign}.{digits}f}%" if math.isfinite(share) else "-"


_LABELS = {"total_tokens_per_s": "all tokens/s", OUT_OF_MEMORY: "ran out of memory"}
_INSIDE = {True: "yes", False: "no"}


def comparison_blocks(comparison: Comparison, planned: PredictedRun, log: Path) -> Iterator[Block]:
    """Yield a table of measured and predicted values of a log, and notes."""
    row = planned.row
    software = row.get("framework", row.get("engine"))
    reading = comparison.reading
    yield make_lines(f"{log}: a log of {reading.title}", indent="")
    yield make_lines(
        f"The plan: {row['model']} on {format_count(row['num_gpus'])} x {row['gpu']}, {software}"
    )
    yield Title(text="Measured and predicted")
    names = [quantity.name for quantity in comparison.quantities]  # percentiles follow their mean
    ordered = sorted(comparison.quantities, key=lambda quantity: names.index(quantity.name))
    heads = ("", "measured", "predicted", "error", f"{LEVEL:.0%} interval", "inside")
    yield text_table(heads, [[*_run_cells(quantity)] for quantity in ordered])
    yield make_lines("Error: predicted / measured - 1.", indent="")
    spreads = {
        _label(quantity): _range_ends(quantity.name, *quantity.spread)
        for quantity in comparison.quantities
        if quantity.spread
    }
    if spreads:
        yield Title(text="80 % of the steps")
        yield KeyValues(pairs=spreads)
    if comparison.notes:
        yield Title(text="Notes")
        yield make_lines(*comparison.notes)


def _run_cells(quantity: LoggedQuantity) -> Iterator[str]:
    """Yield the cells of a logged quantity: measured, predicted, error and interval."""
    yield _label(quantity)
    yield _value(quantity.name, quantity.measured)
    yield "-" if quantity.predicted is None else _value(quantity.name, quantity.predicted.value)
    is_number = quantity.error is not None and quantity.name != OUT_OF_MEMORY
    yield f"{100 * (quantity.error or 0.0):+.1f} %" if is_number else "-"
    if quantity.predicted is None or quantity.is_inside is None:
        yield from ("-", "-")
        return
    yield _range_ends(quantity.name, quantity.predicted.low, quantity.predicted.high)
    yield _INSIDE[quantity.is_inside]


def _label(quantity: LoggedQuantity) -> str:
    """Return the name of a logged quantity for a table, such as ``p99`` or ``peak memory``."""
    if quantity.percent is not None:
        return f"  p{quantity.percent}"
    if quantity.name == MEMORY:
        return f"peak memory, {quantity.kind}"
    return _LABELS.get(quantity.name) or axis_label(quantity.name).partition(" [")[0]


def _range_ends(name: str, low: float, high: float) -> str:
    """Both ends; a common unit is written once."""
    first, last = _value(name, low), _value(name, high)
    unit = last.partition(" ")[2]
    return f"{first.removesuffix(f' {unit}') if unit else first} to {last}"


def _value(name: str, value: float) -> str:
    """Return a logged value as text: a rate, a duration, GiB, or whether memory ran out."""
    if name == OUT_OF_MEMORY:
        return "yes" if value else "no"
    if name == MEMORY:
        return f"{value:.1f} GiB"
    return format_significant(value) if name in RATES else format_duration(value)


def add_row(path: Path, comparison: Comparison, planned: PredictedRun) -> bool:
    """Add the row of a run to a table of runs; return False if the table has it already.

    A new table has the columns of `planner validate --template`. An existing table keeps its
    columns and rows; missing columns are added at the end. It is replaced atomically.
    Raises CalibrationError if the run cannot be a row.
    Raises SpecError if the existing table has errors.
    Raises OutputError if the file cannot be written.
    """
    if not comparison.cells:
        raise CalibrationError(f"{path}: the run cannot be a row of a table: {comparison.no_row}.")
    lines = [_header(planned)]
    if os.path.exists(path):
        read_runs(path)  # raises before anything is changed
        lines = [cells for _, cells in read_csv(path) if cells]
    header = [name.strip() for name in lines[0]]
    kind = schema_of(_header(planned)).kind
    if schema_of(header).kind is not kind:
        raise CalibrationError(
            f"{path}: is a table of {schema_of(header).kind} runs, this one is of {kind}: "
            "give another file."
        )
    row = [comparison.cells.get(name, "") for name in header]
    new = [name for name in comparison.cells if name not in header]
    padded = [[*cells, *[""] * (len(header) + len(new) - len(cells))] for cells in lines]
    padded[0] = header + new
    added = row + [comparison.cells[name] for name in new]
    if added in padded:
        return False
    with write_atomically(path) as stream:
        for cells in (*padded, added):
            stream.write(",".join(map(plain_cell, cells)) + "\n")
    return True


def write_shared_row(path: Path, comparison: Comparison, planned: PredictedRun) -> None:
    """Write one anonymous row of a run, with the columns of the table of measured runs.

    Raises CalibrationError if the run cannot be shared; OutputError if the file cannot be written.
    """
    cells = shared_cells(comparison, planned)
    header = list(dict.fromkeys((*_header(planned), *cells)))
    with write_atomically(path) as stream:
        for row in (header, [cells.get(name, "") for name in header]):
            stream.write(",".join(map(plain_cell, row)) + "\n")


def share_blocks(path: Path, planned: PredictedRun) -> Iterator[Block]:
    """Yield what to check before a shared row goes into a pull request."""
    table = f"planner/validation/measurements/{_SHARED_TABLES[planned.pinned.workload]}.csv"
    yield GAP
    yield Title(text=f"{path}: one anonymous row. Before a pull request")
    yield make_lines(
        f"[ ] Read {path}: no name of a person, host or folder; you may publish its numbers.",
        "[ ] GPU, number of GPUs, layout, batch, lengths and precision are those of the run.",
        "[ ] Steady state: no warm-up, compilation, evaluation or checkpoint in the times.",
        "[ ] Fill in year and framework_version; source_url, if the log is public.",
        f"[ ] planner validate {path} reads it.",
        f"[ ] Append the row to {table}, run scripts/compile_runs.py, open the pull request.",
        indent="    ",
    )


def _header(planned: PredictedRun) -> list[str]:
    """Return the columns of the table of measured runs that has the kind of this run."""
    if planned.is_training:
        kind = TemplateKind.TRAINING
    elif planned.is_of_rollouts:
        kind = TemplateKind.RL
    else:
        static = planned.pinned.workload == STATIC
        kind = TemplateKind.STATIC if static else TemplateKind.SERVING
    return list(template(kind)[0])


def calibration_blocks(profile: str, fit: Fit, time: str = "step time") -> Iterator[Block]:
    """Yield parameters before and after a fit, how well the runs determine each, and errors."""
    yield make_lines(f"{profile}, fitted to {fit.runs} runs", indent="")
    yield GAP
    rows = []
    for estimate in sorted(
        fit.fitted, key=lambda estimate: (estimate.refused, -estimate.determined)
    ):
        unit, scale = unit_of(estimate.parameter.name)
        shipped = f"{estimate.parameter.shipped * scale:.4g}"
        value = f"{estimate.value * scale:.4g}"
        label = estimate.parameter.label if unit == "1" else f"{estimate.parameter.label} [{unit}]"
        determined = f"{100 * max(estimate.determined, 0.0):.0f} %"
        rows.append((label, shipped, "kept" if estimate.refused else value, determined))
    yield text_table(("parameter", "shipped", "fitted", "determined"), rows)
    yield GAP
    yield make_lines(
        "determined: the share of its prior uncertainty that the runs remove.", indent=""
    )
    yield make_lines("kept: the runs do not determine it, the shipped value stays.", indent="")
    for name, fitted in ((time, fit.time), ("peak memory", fit.memory)):
        if fitted is not None:
            yield Title(text=f"Mean error of the {name} (measurements: {fitted.measurements})")
            yield KeyValues(pairs=_error_pairs(fitted, fit.folds))


def _error_pairs(errors: Fitted, folds: int) -> dict[str, str]:
    """Return the errors before and after a fit as text; with folds, also on runs left out."""
    pairs = {
        "shipped values": f"{100 * errors.before:.1f} %",
        "fitted values": f"{100 * errors.after:.1f} %",
    }
    if folds >= 2:
        pairs["fitted, on runs left out"] = f"{100 * errors.left_out:.1f} % ({folds} folds)"
    return pairs


@record(kw_only=True, repr=False)
class ValidateAnswer(Displayable, ValidatedRuns):
    """Result of `planner.validate_runs`; tables of errors in notebooks."""

    def __repr__(self) -> str:
        return f"<{len(self.runs)} validated runs>"

    def to_frame(self) -> pd.DataFrame:
        """The runs as a pandas frame of texts: columns of the tables, and of the predictions."""
        import pandas as pd

        rows = [cells for table in self.tables for cells in prediction_rows(*table)]
        return pd.DataFrame(rows, columns=prediction_columns(self.tables)).fillna("")

    def _blocks(self, full: bool) -> Iterable[Block]:
        for table, rows in self.tables:
            yield from validation_blocks(kind_of(table), rows)
