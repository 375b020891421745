"""Ways to serve as rows of CSV and JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from planner.optimize.serving.problem import Source
from planner.report.rows import Block, blocks
from planner.report.serving.sure import with_intervals


def serving_blocks(
    table: Mapping[str, Sequence[Any]], sources: Iterable[Source], static: bool = False
) -> Iterator[Block]:
    """The columns of results and their intervals, some thousand rows at a time."""
    return blocks(with_intervals(table, sources, static))
