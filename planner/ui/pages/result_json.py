"""The JSON file of a result as a document: checked, so that what is wrong with it is told."""

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

# A part that the files of one command alone have; that of a size is told by its rows.
_KIND_MARKERS = {SEARCH: "recommended_row", ESTIMATE: "operators"}
_OF_SIZE = {"choice", "feasible"}
_WANTED = (
    "give the file of --json of planner search, size, estimate, explain or compare, a plan, or "
    "the directory of planner sweep"
)


class ResultRow(dict[str, Any]):
    """A row of results; one that lacks a column says so. Results that are unknown are NaN."""

    def __init__(self, values: Mapping[str, object], where: str) -> None:
        super().__init__(
            {n: math.nan if v is None and is_result(n) else v for n, v in values.items()}
        )
        self.where = where

    def __missing__(self, name: str) -> NoReturn:
        raise SpecError(f"{self.where}: a row lacks the column {name}, so it cannot be shown.")


@record(kw_only=True)
class ResultDocument:
    """What a search, a size or an estimate wrote: rows, the manifest, and what there is ``more``.

    ``where`` is what messages call it.
    """

    where: str
    kind: str
    rows: Sequence[ResultRow]
    manifest: Mapping[str, Any]
    more: Mapping[str, Any] = field(default_factory=dict)

    @property
    def workload(self) -> Workload:
        """Of which workload it is."""
        return workload_of(self.manifest["workload"])

    @property
    def notes(self) -> list[str]:
        """What the reader should know of the file itself."""
        return version_notes(str(self.manifest["version"]))

    def row(self, part: str) -> ResultRow | None:
        """A part that is a row; None where there is none."""
        found = self.more.get(part)
        if found is None:
            return None
        if not isinstance(found, Mapping):
            raise SpecError(f"{self.where}: its part {part} is not a row.")
        return ResultRow(read_row(self.where, found), self.row_name)

    def part(self, name: str, kind: type[Any]) -> Any:
        """A part of a kind, empty where there is none."""
        found = self.more.get(name, kind())
        if not isinstance(found, kind):
            raise SpecError(f"{self.where}: its part {name} is damaged.")
        return found

    @property
    def row_name(self) -> str:
        """The file, and what to do where a row of it is of another version."""
        return named(self.where, self.manifest)

    @classmethod
    def of(cls, table: object, where: str) -> Self:
        """The document of the object of a JSON file.

        Raises SpecError if it is no result, or damaged.
        """
        if not isinstance(table, Mapping) or not isinstance(table.get("rows"), list):
            raise SpecError(f"{where}: is not a result of planner: {_WANTED}.")
        manifest = table.get("manifest")
        if not isinstance(manifest, Mapping) or "version" not in manifest:
            raise SpecError(f"{where}: has no manifest: {_WANTED}.")
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
            rows=[ResultRow(row, named(where, manifest)) for row in rows],
            manifest=manifest,
            more=more,
        )


def read_row(where: str, row: object) -> dict[str, Any]:
    """The values of a row of results by the terms of its columns.

    Raises SpecError if it is no row, a cell is no word or number, or none of its column.
    """
    if not isinstance(row, Mapping):
        raise SpecError(f"{where}: a row is not an object.")
    try:
        return {name: cell_reader(name)(value) for name, value in row.items()}
    except SearchSpaceError as error:
        raise SpecError(f"{where}: {error}") from error


def version_notes(version: str) -> list[str]:
    """That a result is of another version, in words; empty where it is of this one."""
    if version == __version__:
        return []
    return [f"Made by planner {version}; this page by {__version__}, which may predict otherwise."]


def named(where: str, manifest: Mapping[str, object]) -> str:
    """A file in a message about a column that it lacks."""
    version = manifest.get("version")
    return where if version == __version__ else f"{where} (made by planner {version})"


def _kind(where: str, rows: Sequence[Mapping[str, object]], more: Mapping[str, object]) -> str:
    for kind, part in _KIND_MARKERS.items():
        if part in more:
            return kind
    if set(rows[0]) >= _OF_SIZE or "answer" in more:
        return SIZE
    raise SpecError(f"{where}: no page can be made of this result: {_WANTED}.")


def numbers(values: Iterable[object]) -> list[float]:
    """The finite numbers among values."""
    return [
        float(value)
        for value in values
        if (isinstance(value, int | float) and not isinstance(value, bool)) and math.isfinite(value)
    ]
