"""Result rows as CSV and JSON, written block by block in flat memory."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TextIO

from planner.base.files import is_device, manifest_path, written_whole
from planner.optimize.constraints import with_rate
from planner.optimize.limit_columns import with_limits
from planner.optimize.result_columns import full_columns
from planner.plan.plan import Plan
from planner.report.cells import csv_cell, joined, json_cell

# The more rows at a time, the fewer values of a column differ.
_ROWS = 2**14

# Columns by name, equally long.
Block = Mapping[str, Any]


def result_blocks(plan: Plan, table: Block) -> Iterator[Block]:
    """The columns of results and their intervals, some thousand rows at a time."""
    limits = with_rate(plan.problem.constraints, plan.request.lasting_rate)
    yield from blocks(with_limits(full_columns(table, plan.problem.sources), limits))


def blocks(table: Block) -> Iterator[Block]:
    """A table, some thousand rows at a time."""
    for start in range(0, len(table["num_gpus"]), _ROWS):
        yield {name: values[start : start + _ROWS] for name, values in table.items()}


class RowFiles:
    """The open CSV and JSON files of a search; a block of rows goes to both.

    What is unknown is empty in CSV and null in JSON; CSV cells are those of `csv_cell`.
    """

    def __init__(
        self, table: TextIO | None, document: TextIO | None, beside: TextIO | None
    ) -> None:
        self._manifest = beside
        self._csv = table
        self._json = document
        self._empty = True

    @property
    def has_object(self) -> bool:
        """Whether there is a JSON object, which has more than rows and the manifest."""
        return self._json is not None

    def add(self, blocks: Iterable[Block]) -> None:
        """Write blocks of rows."""
        if self._csv is None and self._json is None:
            return
        for block in blocks:
            self._write(block)

    def _write(self, block: Block) -> None:
        if self._csv is not None:
            if self._empty:
                self._csv.write(",".join(map(csv_cell, block)) + "\n")
            columns = [(values, "") for values in block.values()]
            self._csv.write("\n".join(joined(columns, csv_cell, ",")) + "\n")
        if self._json is not None:
            self._json.write('{"rows": [\n' if self._empty else ",\n")
            columns = [(values, f"{json.dumps(name)}: ") for name, values in block.items()]
            rows = joined(columns, json_cell, ", ")
            self._json.write("{" + "},\n{".join(rows) + "}")
        self._empty = False

    def finish(self, manifest: Mapping[str, Any], **more: Any) -> None:
        """Write the manifest, in the JSON object with whatever else belongs to it."""
        if self._manifest is not None:
            self._manifest.write(json.dumps(manifest, indent=1, allow_nan=False) + "\n")
        if self._json is not None:
            rest = {"manifest": manifest, **more}
            self._json.write("\n],\n" + json.dumps(rest, indent=1, allow_nan=False)[2:] + "\n")


@contextmanager
def row_files(csv_path: Path | None, json_path: Path | None) -> Iterator[RowFiles]:
    """Files for rows and their manifest; all of them appear at the end, or none.

    Raises
    ------
    OutputError
        Something cannot be written.
    """
    with ExitStack() as stack:

        def opened(path: Path | None) -> TextIO | None:
            return None if path is None else stack.enter_context(written_whole(path))

        beside = None if csv_path is None or is_device(csv_path) else manifest_path(csv_path)
        yield RowFiles(opened(csv_path), opened(json_path), opened(beside))
