"""Ways to serve as rows of CSV and JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from planner.report.rows import plain_blocks


def serving_blocks(table: Mapping[str, Sequence[Any]]) -> Iterator[dict[str, list[Any]]]:
    """The columns of results, some thousand rows at a time.

    All files of serving come from here: columns beside the predictions, such as the ends of
    their intervals, join them here, as `planner.report.rows.result_blocks` does for training.
    """
    return plain_blocks(table)
