"""Results as values that presenters show: a command makes them, and its JSON file gives them back.

``result_from_json(result.to_json()) == result`` for every result.
"""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from functools import cache
from io import StringIO
from typing import Any, NoReturn, TypeAlias, TypeVar

from planner.base.csv_cells import Value, rows_to_columns
from planner.base.read_files import JsonObject
from planner.base.records import record
from planner.base.version import __version__
from planner.decide.assumptions import SensitiveAssumption
from planner.errors import SearchSpaceError, SpecError
from planner.optimize.source import to_python_values
from planner.question.parse_values import cell_reader, is_result
from planner.show.presenters.row_tables import Block, RowFiles, plain_value
from planner.workloads.registry import workload_names, workload_of
from planner.workloads.saved_plan import SavedPlan
from planner.workloads.workload import Workload

Json: TypeAlias = Mapping[str, Any]
"""An object of a JSON file whose parts have no class of their own."""

Kind = TypeVar("Kind", bound="Report")
Ends: TypeAlias = tuple[float, float]
SUPPORTED_FILES = (
    "give the file of --json of planner search, size, estimate, explain or compare, a plan, or "
    "the directory of planner sweep"
)
"""What a page can be made of."""


class ResultRow(dict[str, Any]):
    """A row of results; a missing column raises SpecError. Unknown results are NaN."""

    def __init__(self, values: Json, where: str) -> None:
        super().__init__(
            {n: math.nan if v is None and is_result(n) else v for n, v in values.items()}
        )
        self.where = where

    def __missing__(self, name: str) -> NoReturn:
        raise SpecError(f"{self.where}: a row lacks the column {name}, so it cannot be shown.")


@record(kw_only=True)
class JsonPart:
    """An object of a JSON file: its fields, and in ``more`` what no presenter shows.

    ``keys`` are its names in the order of the file; None: those of the fields.
    """

    more: Json = field(default_factory=dict)
    keys: tuple[str, ...] | None = field(default=None, compare=False)

    def to_json(self) -> JsonObject:
        """Return the part as an object of JSON values."""
        return {name: _to_json(value) for name, value in _parts(self).items()}


@record(kw_only=True)
class LimitChance(JsonPart):
    """A limit [SI unit] and the probability that a plan keeps it; None: unknown."""

    name: str
    bound: float | None
    probability: float | None


@record(kw_only=True)
class PlanEvidence(JsonPart):
    """The basis of a plan's intervals, and the factor within which layouts tie with it.

    ``regret`` is the expected loss against the best plan as a share; NaN: unknown. ``missing`` is
    what no published run of the software has.
    """

    basis: str = ""
    missing: tuple[str, ...] = ()
    tie_factor: float = 1.0
    regret: float = math.nan


@record(kw_only=True)
class ComparedValues(JsonPart):
    """The best plan of each value of an axis, and the reason for values without a plan.

    ``tied``: whether each plan is tied with the first, the recommended one. ``risks``: what its
    first objective counts worse by where plans are ranked.
    """

    rows: tuple[ResultRow, ...]
    without_plan: Mapping[str, str] = field(default_factory=dict)
    tied: tuple[bool, ...] = ()
    risks: tuple[float, ...] = ()


@record(kw_only=True)
class LeverEffect(JsonPart):
    """The cost of the answer with one question (``lever``) answered by ``other``."""

    lever: str
    current: str = field(metadata={"key": "own"})
    other: str
    column: str
    value: float
    change: float
    fit_probability: float | None = None


@record(kw_only=True)
class ComparedPlan(JsonPart):
    """One of several compared plans: its name, its answers, and why it is impossible.

    ``impossible`` is the rule or limit that it breaks, ``why`` a sentence on it.
    """

    name: str
    workload: str
    impossible: str
    answers: Json = field(metadata={"key": "asked"})
    basis: str | None
    subject: str = ""
    why: str = ""


@record(kw_only=True)
class ComparedResult(JsonPart):
    """A result column of several plans: values, 90 % intervals, the best plan and its ties."""

    name: str
    values: tuple[float, ...]
    intervals: tuple[Ends | None, ...]
    best: int
    ties: tuple[int, ...]


@record(kw_only=True)
class StepPart(JsonPart):
    """A part of a step: its time [s], its share of the step, and the bound of that time."""

    operator: str
    time_s: float
    share: float
    bound: str
    of_roofline: float


@record(kw_only=True)
class StepTimes(JsonPart):
    """One kind of step: its time by bound [s], and its parts, longest first."""

    step: str
    time_s: float
    bounds_s: Mapping[str, float]
    operators: tuple[StepPart, ...]


@record(kw_only=True)
class ReplayResult(JsonPart):
    """A replayed trace: latencies [s] by source, replayed and predicted, and notes."""

    requests: int
    latencies: tuple[Json, ...]
    notes: tuple[str, ...] = ()


@record(kw_only=True)
class LargestValue(JsonPart):
    """The largest batch or length that fits, in sentences."""

    sentences: tuple[str, ...] = ()


@record(kw_only=True)
class PlanSummary(JsonPart):
    """The first screen of a plan: sentences, and results with their 90 % intervals.

    ``verdict``: whether the plan fits, starts and runs; ``plan``: model, GPUs and layout; ``load``:
    what the plan serves; ``sure``: evidence and terms; ``log``: values that the user's log shows;
    ``lost``: shares of the step lost to overheads; ``change``: the best change; ``read_as``: how a
    launch file was read; ``tables``: further blocks (`planner.show.output_blocks`); ``assumed``:
    names of assumed values; ``depends_on``: the assumption with the largest effect; ``then``: next
    commands.
    """

    verdict: str = ""
    plan: str = ""
    load: tuple[str, ...] = ()
    results: Mapping[str, str] = field(default_factory=dict)
    sure: tuple[str, ...] = ()
    log: str = ""
    lost: str = ""
    change: tuple[str, ...] = ()
    read_as: tuple[str, ...] = ()
    tables: tuple[Json, ...] = ()
    assumed: tuple[str, ...] = ()
    depends_on: str = ""
    then: str = ""


@record(kw_only=True)
class Report(JsonPart):
    """The result of a command as its JSON file has it; ``where`` names it in messages."""

    manifest: Json
    where: str = field(default="the answer", compare=False)

    @property
    def workload(self) -> Workload:
        """The workload of the result."""
        return workload_of(self.manifest["workload"])

    @property
    def version_notes(self) -> list[str]:
        """Notes about the version of the file."""
        return version_notes(str(self.manifest.get("version")))


@record(kw_only=True)
class RowsReport(Report):
    """Rows of results alone, such as operators, methods or scenarios."""

    rows: tuple[ResultRow, ...]


@record(kw_only=True)
class SearchReport(RowsReport):
    """The result of a search: its front, the recommended plan, and what it is compared with.

    ``rejection_texts`` describe the rules and limits that rejected configurations.
    ``starting_plan``: lines on the plan of the file that the search started from.
    """

    recommended: SavedPlan | None = None
    recommended_row: ResultRow | None
    recommended_limits: tuple[LimitChance, ...] = ()
    recommended_load: str = ""
    recommended_sure: PlanEvidence = field(default_factory=PlanEvidence)
    open_facts: tuple[SensitiveAssumption, ...] = ()
    proven_row: ResultRow | None = None
    tied_row: ResultRow | None = None
    fastest: SavedPlan | None = None
    fastest_row: ResultRow | None = None
    comparisons: Mapping[str, ComparedValues] = field(default_factory=dict)
    recommended_rule: str = ""
    recommended_command: str = ""
    recommended_surer: Mapping[str, float] = field(default_factory=dict)
    faster_options: tuple[LeverEffect, ...] = ()
    recommended_host: Mapping[str, str] = field(default_factory=dict)
    recommended_capacity_gib: float = math.nan
    recommended_replay: ReplayResult | None = None
    requested_axes: tuple[str, ...] = ()
    price_lines: tuple[str, ...] = ()
    rejection_texts: Mapping[str, str] = field(default_factory=dict)
    starting_plan: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    levers: tuple[LeverEffect, ...] = ()
    lever_notes: tuple[str, ...] = ()

    @property
    def best_row(self) -> ResultRow:
        """The row of the recommended plan; empty without a plan."""
        return self.recommended_row or ResultRow({}, self.where)


@record(kw_only=True)
class EstimateReport(RowsReport):
    """The prediction of one configuration, with its time by operator.

    ``details`` are the blocks of the full report (`planner.show.output_blocks`).
    """

    operators: tuple[Json, ...]
    open_facts: tuple[SensitiveAssumption, ...] = ()
    sure: PlanEvidence = field(default_factory=PlanEvidence)
    limits: tuple[LimitChance, ...] = ()
    load: str = ""
    summary: PlanSummary = field(default_factory=PlanSummary)
    details: tuple[Json, ...] = ()


@record(kw_only=True)
class SizeReport(RowsReport):
    """GPUs that keep limits: a row for each choice, or for each hour, service or pool.

    ``decision`` and ``assumed`` are the lines of the first screen above and below its table.
    ``days``, ``day`` and ``scaled`` are of a load over a day, ``pools`` and ``cuts`` of services.
    ``options`` are ways to rent, reserve or own the GPUs (`planner.decide.sizing.purchase`).
    """

    question: tuple[str, ...] = ()
    answer: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    decision: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()
    days: tuple[ResultRow, ...] = ()
    day: tuple[str, ...] = ()
    scaled: tuple[ResultRow, ...] = ()
    pools: tuple[ResultRow, ...] = ()
    cuts: tuple[ResultRow, ...] = ()
    options: tuple[Json, ...] = ()
    other_precision: Mapping[str, float] = field(default_factory=dict)
    price_change: str = ""
    budget_per_year_usd: float | None = None


@record(kw_only=True)
class PlansReport(Report):
    """Several plans side by side: what differs, which is best in which result, what is tied."""

    plans: tuple[ComparedPlan, ...]
    without_plan: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)
    results: tuple[ComparedResult, ...] = ()
    times_s: Mapping[str, Mapping[str, tuple[float, ...]]] = field(default_factory=dict)
    memory_gib: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    sentences: tuple[str, ...] = ()


@record(kw_only=True)
class SpecsReport(Report):
    """The numbers in which specs differ, by kind of spec and name."""

    specs: Mapping[str, Mapping[str, tuple[Value, ...]]]


@record(kw_only=True)
class ExplanationReport(Report):
    """An explained plan, the row of its prediction, and what bounds each of its steps.

    ``details`` are the blocks of the full report (`planner.show.output_blocks`).
    """

    plan: SavedPlan
    row: ResultRow
    sure: PlanEvidence = field(default_factory=PlanEvidence)
    steps: tuple[StepTimes, ...]
    summary: PlanSummary = field(default_factory=PlanSummary)
    details: tuple[Json, ...] = ()


@record(kw_only=True)
class LargestReport(Report):
    """The largest batches or lengths of a plan that fit.

    ``details`` are the blocks of the full report (`planner.show.output_blocks`).
    """

    largest: tuple[LargestValue, ...]
    summary: PlanSummary = field(default_factory=PlanSummary)
    details: tuple[Json, ...] = ()


# A part that only the files of one command have; others are recognized by their rows.
_KINDS: Mapping[str, type[Report]] = {
    "recommended_row": SearchReport,
    "operators": EstimateReport,
    "answer": SizeReport,
    "plans": PlansReport,
    "specs": SpecsReport,
    "steps": ExplanationReport,
    "largest": LargestReport,
}
_NO_PARTS = {"more", "keys", "where"}
_SIZE_COLUMNS = {"choice", "feasible"}


def result_from_json(document: object, where: str = "the answer") -> Report:
    """Return the result that the JSON value of a file holds, of this version or an older one.

    Raises SpecError if the value is no result, or one of its parts is damaged.
    """
    if not isinstance(document, Mapping) or not {"rows", *_KINDS} & {*document}:
        raise SpecError(f"{where}: is not a result of planner: {SUPPORTED_FILES}.")
    manifest = document.get("manifest")
    if not isinstance(manifest, Mapping) or "version" not in manifest:
        raise SpecError(f"{where}: has no manifest: {SUPPORTED_FILES}.")
    if manifest.get("workload", "train") not in workload_names():
        word, command = manifest.get("workload"), manifest.get("command")
        again = f" Run its command again: {command}" if command else ""
        raise SpecError(f"{where}: this version knows no workload {word!r}.{again}")
    rows = document.get("rows")
    if rows == []:
        raise SpecError(f"{where}: has no rows.")
    kind = next((kind for part, kind in _KINDS.items() if part in document), RowsReport)
    if isinstance(rows, list) and isinstance(rows[0], Mapping) and {*rows[0]} >= _SIZE_COLUMNS:
        kind = SizeReport
    result = _read_part(kind, document, where, name_with_version(where, manifest))
    assert isinstance(result, Report)
    return result


def result_text(result: Report) -> str:
    """Return the text of the JSON file of a result; each row is on a line of its own."""
    parts = result.to_json()
    manifest, rows = parts.pop("manifest"), parts.pop("rows", None)
    stream = StringIO()
    files = RowFiles(None, stream, None)
    if rows is not None:
        files.add([rows_to_columns(rows)])
    files.finish(manifest, **parts)
    return stream.getvalue()


class _ReportFiles(RowFiles):
    """Takes the rows and parts that a command writes, as JSON values."""

    def __init__(self) -> None:
        super().__init__(None, None, None)
        self.table: JsonObject = {}

    @property
    def has_object(self) -> bool:
        return True

    def add(self, blocks: Iterable[Block]) -> None:
        for block in blocks:
            names = [*block]
            columns = (to_python_values(column) for column in block.values())
            self.table.setdefault("rows", [])
            self.table["rows"] += [
                dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)
            ]

    def finish(self, manifest: Json, **more: object) -> None:
        self.table |= {"manifest": manifest, **more}


def written_report(add: Callable[[RowFiles], None], kind: type[Kind]) -> Kind:
    """Return the result of class ``kind`` that ``add`` writes to files; `Report`: of any class."""
    files = _ReportFiles()
    add(files)
    if kind is not Report:
        return made_report(files.table, kind)
    report = result_from_json(_to_json(files.table))
    assert isinstance(report, kind)
    return report


def made_report(parts: Json, kind: type[Kind]) -> Kind:
    """Return the result of class ``kind`` with these parts of a JSON file."""
    report = _read_part(kind, _to_json(parts), "the answer", "the answer")
    assert isinstance(report, kind)
    return report


def version_notes(version: str) -> list[str]:
    """A note if a result is from another version; empty if it is from this one."""
    if version == __version__:
        return []
    return [f"Made by planner {version}; this page by {__version__}, predictions may differ."]


def name_with_version(where: str, manifest: Json) -> str:
    """The name of a file in a message, with its version if that is another one."""
    version = manifest.get("version")
    return where if version == __version__ else f"{where} (made by planner {version})"


def read_row(row: object, where: str, row_name: str = "") -> ResultRow:
    """Return a row of results by column; ``row_name`` names it in messages.

    Raises SpecError if it is no row, or a cell is invalid for its column.
    """
    if not isinstance(row, Mapping):
        raise SpecError(f"{where}: a row is not an object.")
    try:
        values = {name: cell_reader(name)(value) for name, value in row.items()}
    except SearchSpaceError as error:
        raise SpecError(f"{where}: {error}") from error
    return ResultRow(values, row_name or where)


def _read_part(kind: type[Any], table: object, where: str, row_name: str) -> Any:
    """Return the record of class ``kind`` that an object of a JSON file holds.

    Raises SpecError that names the first damaged part.
    """
    if not isinstance(table, Mapping):
        raise TypeError(f"{table!r} is not an object")
    fields = _fields_by_key(typing.cast(Any, kind))
    values: JsonObject = {"keys": tuple(table)}
    more = {}
    for key, value in table.items():
        if key not in fields:
            more[key] = value
            continue
        name, field_type = fields[key]
        try:
            values[name] = _read_value(field_type, value, where, row_name)
        except (SpecError, KeyError, TypeError, ValueError, AttributeError) as error:
            if isinstance(error, SpecError) and str(error).startswith(where):
                raise
            raise SpecError(f"{where}: its part {key} is damaged ({error}).") from error
    if issubclass(kind, Report):
        values["where"] = where
    return kind(**values, more=more)


def _read_value(kind: Any, value: Any, where: str, row_name: str) -> Any:
    """Return a JSON value as a value of the type ``kind``; raises TypeError if it is none."""
    arguments = typing.get_args(kind)
    origin = typing.get_origin(kind)
    if origin in (types.UnionType, typing.Union):
        if types.NoneType in arguments and (value is None or value == {}):
            return None
        others = [choice for choice in arguments if choice is not types.NoneType]
        return value if len(others) > 1 else _read_value(others[0], value, where, row_name)
    if origin is tuple:
        items = _require(value, list | tuple)
        return tuple(_read_value(arguments[0], item, where, row_name) for item in items)
    if origin is Mapping:
        table = _require(value, Mapping)
        if arguments[1] is Any:
            return dict(table)
        return {n: _read_value(arguments[1], item, where, row_name) for n, item in table.items()}
    if kind is ResultRow:
        return read_row(value, where, row_name)
    if kind is SavedPlan:
        return SavedPlan.from_dict(value, where)
    if kind is SensitiveAssumption:
        return SensitiveAssumption.from_dict(value)
    if isinstance(kind, type) and issubclass(kind, JsonPart):
        return _read_part(kind, value, where, row_name)
    if kind is float:
        return math.nan if value is None else float(_require(value, int | float))
    return _require(value, kind)


def _require(value: Any, kind: Any) -> Any:
    if not isinstance(value, kind):
        raise TypeError(f"{value!r} is not {getattr(kind, '__name__', kind)}")
    return value


@cache
def _fields_by_key(kind: Any) -> dict[str, tuple[str, Any]]:
    """Return the name and the type of each field in a JSON file, by its key there."""
    hints = typing.get_type_hints(kind)
    return {
        f.metadata.get("key", f.name): (f.name, hints[f.name])
        for f in dataclasses.fields(kind)
        if f.name not in _NO_PARTS
    }


def _parts(part: JsonPart) -> JsonObject:
    """Return the fields and the further parts of a record in the order of the file."""
    fields = _fields_by_key(typing.cast(Any, type(part)))
    parts = {key: getattr(part, name) for key, (name, _) in fields.items()} | dict(part.more)
    return {key: parts[key] for key in (parts if part.keys is None else part.keys)}


_SCALARS = frozenset((str, float, int, bool, types.NoneType))
"""Types of nearly all values; whether one is a mapping takes ten times as long to find out."""


def _to_json(value: Any) -> Any:
    """Return a value of a result as JSON values; unknown numbers are None."""
    if type(value) in _SCALARS:
        return plain_value(value)
    if isinstance(value, JsonPart):
        return {name: _to_json(each) for name, each in _parts(value).items()}
    if isinstance(value, SavedPlan | SensitiveAssumption):
        return _to_json(value.to_dict())
    if isinstance(value, Mapping):
        return {str(name): _to_json(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_to_json(each) for each in value]
    return plain_value(value)
