"""Result rows as CSV and JSON, written block by block in flat memory."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from planner.estimators.estimate import Estimate
from planner.optimize.columns import columns
from planner.optimize.problem import Problem
from planner.report.breakdown import confidence_of
from planner.report.files import is_device, manifest_path, written_whole
from planner.units import GIB

_ROWS = 4096


def result_blocks(problem: Problem, estimate: Estimate) -> Iterator[dict[str, list[Any]]]:
    """One list per column in plain Python values, some thousand rows at a time.

    What is unknown is None.
    """
    return plain_blocks({**columns(estimate, problem.price_per_gpu_second), **_intervals(estimate)})


def plain_blocks(table: Mapping[str, Any]) -> Iterator[dict[str, list[Any]]]:
    """A table in plain Python values, some thousand rows at a time; what is unknown is None."""
    for start in range(0, len(table["num_gpus"]), _ROWS):
        yield {name: _plain(values[start : start + _ROWS]) for name, values in table.items()}


def _intervals(estimate: Estimate) -> dict[str, Any]:
    """The ends of the 90 % intervals, where there are any."""
    shape = estimate.configurations.shape
    counts, rows = np.unique(
        np.broadcast_to(estimate.configurations.num_gpus, shape), return_inverse=True
    )
    sure = [known for count in counts if (known := confidence_of(estimate, count)) is not None]
    if not sure:
        return {}
    step = np.broadcast_to(estimate.step_time, shape)
    memory = np.broadcast_to(estimate.peak_memory, shape) / GIB
    slow, much = (
        np.array([getattr(one, quantity) for one in sure])[rows]
        for quantity in ("step_time", "peak_memory")
    )
    return {
        "step_time_low_s": step * slow[:, 0],
        "step_time_high_s": step * slow[:, 1],
        "peak_memory_low_gib": memory * much[:, 0],
        "peak_memory_high_gib": memory * much[:, 1],
    }


class RowFiles:
    """The open CSV and JSON files of a search; a block of rows goes to both."""

    def __init__(
        self, table: TextIO | None, document: TextIO | None, beside: TextIO | None
    ) -> None:
        self._manifest = beside
        self._csv = None if table is None else csv.writer(table, lineterminator="\n")
        self._json = document
        self._empty = True

    def add(self, blocks: Iterable[Mapping[str, list[Any]]]) -> None:
        """Write blocks of rows, one list per column."""
        if self._csv is None and self._json is None:
            return
        for block in blocks:
            self._write(block)

    def _write(self, block: Mapping[str, list[Any]]) -> None:
        rows = list(zip(*block.values(), strict=True))
        if self._csv is not None:
            if self._empty:
                self._csv.writerow(block)
            self._csv.writerows(rows)
        if self._json is not None:
            self._json.write('{"rows": [\n' if self._empty else ",\n")
            lines = (json.dumps(dict(zip(block, row, strict=True))) for row in rows)
            self._json.write(",\n".join(lines))
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


def _plain(values: Any) -> list[Any]:
    listed = values.tolist() if isinstance(values, np.ndarray) else list(values)
    return [
        None if isinstance(value, float) and not math.isfinite(value) else value for value in listed
    ]
