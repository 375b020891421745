"""Reads and checks the JSON file of a result; errors name the damaged part."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any, NoReturn, Self

from planner.base.records import record
from planner.base.version import __version__
from planner.errors import SearchSpaceError, SpecError
from planner.question.parse_values import cell_reader, is_result
from planner.workloads.registry import workload_names, workload_of
from planner.workloads.workload import Workload

SEARCH, ESTIMATE, SIZE = "search", "estimate", "size"

# A part that only the files of one command have; a size is recognized by its rows.
_KIND_MARKERS = {SEARCH: "recommended_row", ESTIMATE: "operators"}
_SIZE_COLUMNS = {"choice", "feasible"}
_SUPPORTED_FILES = (
    "give the file of --json of planner search, size, estimate, explain or compare, a plan, or "
    "the directory of planner sweep"
)


class ResultRow(dict[str, Any]):
    """A row of results; a missing column raises SpecError. Unknown results are NaN."""

    def __init__(self, values: Mapping[str, object], where: str) -> None:
        super().__init__(
            {n: math.nan if v is None and is_result(n) else v for n, v in values.items()}
        )
        self.where = where

    def __missing__(self, name: str) -> NoReturn:
        raise SpecError(f"{self.where}: a row lacks the column {name}, so it cannot be shown.")


@record(kw_only=True)
class ResultDocument:
    """A result of a search, a size or an estimate: rows, manifest, and ``more`` parts.

    ``where`` is its name in messages.
    """

    where: str
    kind: str
    rows: Sequence[ResultRow]
    manifest: Mapping[str, Any]
    more: Mapping[str, Any] = field(default_factory=dict)

    @property
    def workload(self) -> Workload:
        """The workload of the result."""
        return workload_of(self.manifest["workload"])

    @property
    def notes(self) -> list[str]:
        """Notes about the version of the file."""
        return version_notes(str(self.manifest["version"]))

    def row(self, part: str) -> ResultRow | None:
        """Return the part of a document that is a row; None if there is no such part."""
        value = self.more.get(part)
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise SpecError(f"{self.where}: its part {part} is not a row.")
        return ResultRow(read_row(self.where, value), self.row_name)

    def part(self, name: str, kind: type[Any]) -> Any:
        """Return the part of a document with type ``kind``; empty if there is no such part."""
        value = self.more.get(name, kind())
        if not isinstance(value, kind):
            raise SpecError(f"{self.where}: its part {name} is damaged.")
        return value

    @property
    def row_name(self) -> str:
        """The name of the file for messages about a row, with its version."""
        return name_with_version(self.where, self.manifest)

    @classmethod
    def of(cls, table: object, where: str) -> Self:
        """Return the document that the JSON value of a file holds.

        Raises SpecError if the value is no result, or damaged.
        """
        if not isinstance(table, Mapping) or not isinstance(table.get("rows"), list):
            raise SpecError(f"{where}: is not a result of planner: {_SUPPORTED_FILES}.")
        manifest = table.get("manifest")
        if not isinstance(manifest, Mapping) or "version" not in manifest:
            raise SpecError(f"{where}: has no manifest: {_SUPPORTED_FILES}.")
        if manifest.get("workload") not in workload_names():
            word, command = manifest.get("workload"), manifest.get("command")
            again = f" Run its command again: {command}" if command else ""
            raise SpecError(f"{where}: this version knows no workload {word!r}.{again}")
        rows = table["rows"]
        if not rows:
            raise SpecError(f"{where}: has no rows.")
        rows = [read_row(where, row) for row in rows]
        more = {name: part for name, part in table.items() if name not in ("rows", "manifest")}
        return cls(
            where=where,
            kind=_kind(where, rows, more),
            rows=[ResultRow(row, name_with_version(where, manifest)) for row in rows],
            manifest=manifest,
            more=more,
        )


def read_row(where: str, row: object) -> dict[str, Any]:
    """Return the values of a row of results by column.

    Raises SpecError if it is no row, or a cell is invalid for its column.
    """
    if not isinstance(row, Mapping):
        raise SpecError(f"{where}: a row is not an object.")
    try:
        return {name: cell_reader(name)(value) for name, value in row.items()}
    except SearchSpaceError as error:
        raise SpecError(f"{where}: {error}") from error


def version_notes(version: str) -> list[str]:
    """A note if a result is from another version; empty if it is from this one."""
    if version == __version__:
        return []
    return [f"Made by planner {version}; this page by {__version__}, predictions may differ."]


def name_with_version(where: str, manifest: Mapping[str, object]) -> str:
    """The name of a file in a message, with its version if that is another one."""
    version = manifest.get("version")
    return where if version == __version__ else f"{where} (made by planner {version})"


def _kind(where: str, rows: Sequence[Mapping[str, object]], more: Mapping[str, object]) -> str:
    """Return the kind of result in a JSON file, from the names of its parts and columns.

    Raises SpecError if no page can be made of the result.
    """
    for kind, part in _KIND_MARKERS.items():
        if part in more:
            return kind
    if set(rows[0]) >= _SIZE_COLUMNS or "answer" in more:
        return SIZE
    raise SpecError(f"{where}: no page can be made of this result: {_SUPPORTED_FILES}.")


def numbers(values: Iterable[object]) -> list[float]:
    """Return the finite numbers among values of any type."""
    return [
        float(value)
        for value in values
        if (isinstance(value, int | float) and not isinstance(value, bool)) and math.isfinite(value)
    ]
