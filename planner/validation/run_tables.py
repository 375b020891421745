"""Tables of runs: read with the position of every error, or written as templates.

``columns.csv`` has a row for each column: the tables that have it, the type of its cells, whether
it is required, its unit, its meaning, and the cell of an example in each template (- if the
template leaves it out).
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import field
from enum import StrEnum
from functools import cache, cached_property
from io import StringIO
from pathlib import Path
from typing import Self

from planner.base.enums import TemplateKind
from planner.base.read_files import RESULT, parse_csv, read_text, repeated_names
from planner.base.records import record
from planner.confidence.error_classes import gpu_class, has_experts
from planner.confidence.evidence import Conditions
from planner.confidence.intervals import MemoryErrors, Rule
from planner.confidence.profile_rules import read_table
from planner.errors import SpecError, did_you_mean
from planner.question.renamed import current_name
from planner.question.terms import terms_about
from planner.specs.catalogue import Catalogue
from planner.specs.gpu import ClusterSpec, GpuSpec
from planner.specs.model import ModelSpec

FOLDER = Path(__file__).parent


@record(kw_only=True)
class ModelRule:
    """The built-in model behind a name, or why none of the kind is predicted."""

    pattern: str
    model: str
    reason: str


@cache
def model_rule(name: str) -> ModelRule | None:
    """Return the first rule whose pattern matches the name of a model; None: none does."""
    matching_rules = (
        rule for rule in _model_rules() if re.search(rf"\b(?:{rule.pattern})", name.lower())
    )
    return next(matching_rules, None)


@cache
def _model_rules() -> tuple[ModelRule, ...]:
    return tuple(ModelRule(**row) for row in read_table("models.csv", FOLDER))


MEASURED = "measured_"
# Columns that `planner validate --output` adds: its files can be read again.
ADDED = ("basis", "not_predicted_reason", "impossible_layout", "assumed")
PREDICTED = "predicted_"
# Scheduler options of a pool of workers or of a launch script.
SCHEDULED = terms_about("scheduled")
_PATH_STARTS = ("/", "\\", ".", "~")


class TableKind(StrEnum):
    """Kind of the rows of a table: training steps, batches and requests of inference, or steps of
    reinforcement learning."""

    TRAINING = "training"
    INFERENCE = "inference"
    RL = "rl"


class MemoryKind(StrEnum):
    """Kind of a memory measurement: tensors, memory of the allocator, or the whole device."""

    ALLOCATED = "allocated"
    RESERVED = "reserved"
    DEVICE = "device"


class ColumnType(StrEnum):
    """Type of the cells of a column.

    ``COUNT`` is a whole number above zero, ``COUNT_OR_ZERO`` may be zero, ``FLAG`` is 0 or 1,
    ``NUMBER`` and ``MEASURED`` are not negative. ``NAME`` and ``GPU`` are names of the
    catalogue, never paths. ``TEXT`` is read, ``DESCRIBED`` is for people only.
    """

    COUNT = "count"
    COUNT_OR_ZERO = "count_or_zero"
    FLAG = "flag"
    NUMBER = "number"
    MEASURED = "measured"
    NAME = "name"
    GPU = "gpu"
    TEXT = "text"
    DESCRIBED = "described"


_INTEGER_TYPES = (ColumnType.COUNT, ColumnType.COUNT_OR_ZERO)
_NUMERIC = (*_INTEGER_TYPES, ColumnType.FLAG, ColumnType.NUMBER)


@record(kw_only=True)
class Column:
    """A column, its unit, its meaning, and its cell in the example of each template."""

    name: str
    type: ColumnType
    needed: bool
    unit: str
    words: str
    examples: dict[str, str]


@record(kw_only=True)
class Schema:
    """The columns of one kind of table; other columns are kept unchanged, but not read."""

    kind: TableKind
    columns: dict[str, Column]

    @property
    def needed(self) -> tuple[str, ...]:
        """Columns that must be there."""
        return tuple(column.name for column in self.columns.values() if column.needed)

    @cached_property
    def numeric(self) -> frozenset[str]:
        """Numeric columns that are not measurements; flags of outcomes are among them."""
        return frozenset(column.name for column in self.columns.values() if column.type in _NUMERIC)

    @cached_property
    def column_names(self) -> frozenset[str]:
        """Names of the columns that are read."""
        return frozenset(self.columns)

    def understood(self, name: str) -> bool:
        """Whether a column is read, or was written by a validation."""
        return name in self.columns or name in ADDED or name.startswith(PREDICTED)

    def hint(self, name: str) -> str:
        """A question that suggests known columns similar to a name; empty: none is similar."""
        return did_you_mean(name, self.columns)

    def cell_error(self, name: str, cell: str) -> str | None:
        """Say what is wrong with a cell of a column; None: it is valid."""
        column = self.columns.get(name)
        if not cell:
            return None
        if column is not None and column.type in (ColumnType.NAME, ColumnType.GPU):
            if not is_path(cell, slashes=column.type is ColumnType.NAME):
                return None
            kind = {"gpu": "gpus", "model": "models"}.get(column.name, "frameworks")
            return f"{cell!r} is a path; use a name of `planner specs list {kind}`"
        if not (name in self.numeric or name.startswith(MEASURED)):
            return None
        try:
            number = float(cell)
        except ValueError:
            return f"{cell!r} is not a number"
        if not math.isfinite(number):
            return f"{cell!r} is not a finite number"
        return _number_error(name, column.type if column is not None else None, number)


def is_path(name: str, *, slashes: bool = False) -> bool:
    """Whether a cell looks like a path; ``slashes``: names such as ORG/NAME are no paths."""
    somewhere = name.startswith(_PATH_STARTS) or "\\" in name or name.endswith(".toml")
    return somewhere or ("/" in name and not slashes) or "/../" in name


def _number_error(name: str, kind: ColumnType | None, number: float) -> str | None:
    """Say why a number is invalid in a column of this name and type; None: it is valid."""
    if number < 0:
        return f"{number:g} is negative"
    if kind is ColumnType.FLAG and number not in (0, 1):
        return f"{number:g} must be 0 or 1"
    if name == "zero_stage" and number not in (0, 1, 2, 3):
        return f"{number:g} must be 0, 1, 2 or 3"
    if kind in _INTEGER_TYPES and number != int(number):
        return f"{number:g} is not a whole number"
    return f"{number:g} must be above 0" if kind is ColumnType.COUNT and number == 0 else None


def _schema(kind: TableKind) -> Schema:
    """Read the columns of one kind of table of published runs from columns.csv."""
    rows = [row for row in read_table("columns.csv", FOLDER) if row["table"] in (kind, "both")]
    columns = {
        row["name"]: Column(
            name=row["name"],
            type=ColumnType(row["type"]),
            needed=row["needed"] == "1",
            unit=row["unit"],
            words=row["words"],
            examples={key: row[key] for key in TemplateKind},
        )
        for row in rows
    }
    return Schema(kind=kind, columns=columns)


TRAINING = _schema(TableKind.TRAINING)
INFERENCE = _schema(TableKind.INFERENCE)
RL = _schema(TableKind.RL)


def schema_of(header: Sequence[str]) -> Schema:
    """Return the schema (training, inference or RL) of a table with these columns.

    Only tables of inference have columns for both prompt and answer tokens. Only tables of
    reinforcement learning have several answers per prompt. All others are of training.
    """
    if "samples_per_prompt" in header:
        return RL
    length_columns = {"input_tokens", "output_tokens"} & set(header)
    return INFERENCE if length_columns and "sequence_length" not in header else TRAINING


_MEASUREMENTS = Path(__file__).parent / "measurements"
SHIPPED = _MEASUREMENTS / "training.csv"
SHIPPED_INFERENCE = (_MEASUREMENTS / "inference.csv", _MEASUREMENTS / "serving.csv")
SHIPPED_RL = _MEASUREMENTS / "rl.csv"
COMMENT = "#"
"""A row whose first cell begins with this explains the table and is no run."""


@record(kw_only=True)
class Run:
    """One row: its line in the file and the text of its cells."""

    line: int
    cells: Mapping[str, str]

    def word(self, column: str) -> str:
        """A cell in lower case without spaces around it; empty where there is none."""
        return self.text(column).lower()

    def text(self, column: str) -> str:
        """The text of a cell; empty if the table has no such column."""
        return self.cells.get(column, "").strip()

    def number(self, column: str) -> float | None:
        """A cell as a number, or None where it is empty."""
        text = self.text(column)
        return float(text) if text else None

    def count(self, column: str) -> int | None:
        """A cell as a whole number above zero; None: it is empty or zero."""
        number = self.number(column)
        return int(number) if number else None

    def flag(self, column: str) -> bool | None:
        """A cell that is 0 or 1, or None where it is empty."""
        number = self.number(column)
        return None if number is None else bool(number)


@record(kw_only=True)
class Runs:
    """A table of runs, its columns in their order."""

    columns: tuple[str, ...]
    rows: tuple[Run, ...]

    @cached_property
    def kind(self) -> TableKind:
        """Whether the rows are of training or of inference."""
        return self.schema.kind

    @cached_property
    def schema(self) -> Schema:
        """The schema of its columns."""
        return schema_of(self.columns)

    @cached_property
    def not_understood(self) -> tuple[str, ...]:
        """Columns that are kept but not read."""
        return tuple(name for name in self.columns if not self.schema.understood(name))

    @cached_property
    def quantities(self) -> tuple[str, ...]:
        """Measured quantities of the table: its ``measured_X`` columns without the prefix."""
        return tuple(
            column.removeprefix(MEASURED) for column in self.columns if column.startswith(MEASURED)
        )


def read_runs(path: Path = SHIPPED) -> Runs:
    """Read the runs of a CSV file, with unknown columns and without comments.

    Raises SpecError if the file cannot be read or has errors: one line per error, with its line and
    column.
    """
    lines = [*parse_csv(StringIO(read_text(path, RESULT), newline=""), path)]
    if not lines:
        raise SpecError(f"{path}: is empty; its first line must name the columns.")
    header = tuple(current_name("column", name.strip()) for name in lines[0][1])
    rows = [
        (number, cells)
        for number, cells in lines[1:]
        if any(cells) and not cells[0].lstrip().startswith(COMMENT)
    ]
    schema = schema_of(header)
    errors = list(_header_errors(header, schema))
    if not errors:
        errors = [
            error for number, cells in rows for error in _row_errors(number, cells, header, schema)
        ]
    if errors:
        raise SpecError("\n".join(f"{path}:{error}" for error in errors))
    runs = (Run(line=n, cells=dict(zip(header, cells, strict=True))) for n, cells in rows)
    return Runs(columns=header, rows=tuple(runs))


def _header_errors(header: Sequence[str], schema: Schema) -> Iterator[str]:
    """Yield an error for each missing or repeated column of the header of a table."""
    for name in schema.needed:
        if name not in header:
            hint = did_you_mean(name, set(header) - schema.column_names)
            yield f"1: the column {name} is missing.{hint}"
    for name in repeated_names(header):
        yield f"1: the column {name!r} is a duplicate."


def _row_errors(
    number: int, cells: Sequence[str], header: Sequence[str], schema: Schema
) -> Iterator[str]:
    """Yield an error for each invalid cell of a row, or for a wrong number of cells."""
    if len(cells) != len(header):
        yield f"{number}: has {len(cells)} cells, not {len(header)}."
        return
    for name, cell in zip(header, cells, strict=True):
        error = schema.cell_error(name, cell.strip())
        if error:
            yield f"{number}: {name} {error}."


_ABSENT = "-"
_CELLS = {
    ColumnType.COUNT: "whole number above 0",
    ColumnType.COUNT_OR_ZERO: "whole number",
    ColumnType.FLAG: "0 or 1",
    ColumnType.NUMBER: "number",
    ColumnType.MEASURED: "number",
}


def template(kind: TemplateKind) -> list[Sequence[str]]:
    """Return the rows of an example table that `read_runs` reads as one run.

    Below the names of the columns are comments: the meaning and the cell type of each column.
    """
    schema = {TemplateKind.TRAINING: TRAINING, TemplateKind.RL: RL}.get(kind, INFERENCE)
    columns = [column for column in schema.columns.values() if column.examples[kind] != _ABSENT]
    return [
        [column.name for column in columns],
        _commented([column.words for column in columns]),
        _commented([_cells(column) for column in columns]),
        [column.examples[kind] for column in columns],
    ]


def _commented(cells: Sequence[str]) -> list[str]:
    return [f"{COMMENT} {cells[0]}", *cells[1:]]


def _cells(column: Column) -> str:
    """Text on the cells of a column: required or optional, their type and unit."""
    need = "needed" if column.needed else "optional"
    kind = _CELLS.get(column.type, "text")
    return f"{need}: {kind}{f' [{column.unit}]' if column.unit else ''}"


RATES = (*terms_about("rate"), "total_tokens_per_s")
"""Quantities that are larger where a run is faster."""
MEMORY = "peak_memory_gib"


@record(kw_only=True)
class Case(ABC):
    """A run as input of the estimator; measurements are never read."""

    model: ModelSpec
    gpu: GpuSpec
    cluster: ClusterSpec
    catalogue: Catalogue = field(default_factory=Catalogue)

    @property
    @abstractmethod
    def software(self) -> Rule:
        """The rule of its framework or engine."""

    @property
    @abstractmethod
    def group(self) -> Hashable:
        """Cases of one group are predicted in one pass."""

    @property
    def setup(self) -> Hashable:
        """Key of the setup; cases of one setup differ only in the intensity of their traffic."""
        return self.group

    @property
    @abstractmethod
    def keys(self) -> tuple[str, ...]:
        """Kind of the run; errors of runs of one kind are pooled."""

    @property
    @abstractmethod
    def memory_errors(self) -> MemoryErrors:
        """Distribution of needed over predicted memory for runs of this kind."""

    @property
    @abstractmethod
    def conditions(self) -> Conditions:
        """The conditions of the run that decide how much evidence there is."""

    @property
    def release(self) -> str:
        """The release of its engine; "": not stated."""
        return ""

    @property
    def as_tuned(self) -> Self | None:
        """The case of the same run as fast as tuned ones; None if this one is."""
        return None

    @cached_property
    def gpu_class(self) -> str:
        """The GPU's generation, or its vendor."""
        return gpu_class(self.gpu)

    @cached_property
    def kind(self) -> str:
        """Dense, or a mixture of experts."""
        return "moe" if has_experts(self.model) else "dense"


@record(kw_only=True)
class Prediction:
    """Predictions for one run, by quantity in the units of the tables.

    ``reason`` says why there is no prediction, else it is empty; ``impossible`` why the run's
    columns cannot be its layout, so that the prediction is for another layout. ``tuned_values`` are
    of the same run as fast as tuned ones; empty if the values are. The memory among
    ``values`` is of the kind that the run's source reports; ``device_memory`` [bytes] is the memory
    of the whole device. The run needs ``needed_memory`` [bytes]; programs may use the ``capacity``
    [bytes]. ``fit_probability`` is the probability that it fits; ``fits``: it is high enough.
    """

    case: Case | None = None
    values: Mapping[str, float] = field(default_factory=dict)
    tuned_values: Mapping[str, float] = field(default_factory=dict)
    device_memory: float = float("nan")
    needed_memory: float = float("nan")
    capacity: float = float("nan")
    fit_probability: float = float("nan")
    fits: bool = False
    basis: str = ""
    reason: str = ""
    impossible: str = ""


@record(kw_only=True)
class Range:
    """A predicted value with its 90 % interval."""

    value: float
    low: float
    high: float
