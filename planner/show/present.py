"""Presents any result as blocks, whether a command just made it or its JSON file gave it back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from planner.show.output_blocks import Block
from planner.show.presenters.comparison import plans_blocks, spec_numbers_blocks
from planner.show.presenters.sizes import size_blocks
from planner.show.reports import PlansReport, Report, SizeReport, SpecsReport
from planner.show.reports import result_from_json as result_from_json

_PRESENTERS: Mapping[type[Report], Callable[[Any], Iterator[Block]]] = {
    SizeReport: size_blocks,
    PlansReport: plans_blocks,
    SpecsReport: spec_numbers_blocks,
}


def present(result: Report) -> Iterator[Block]:
    """Yield the blocks of a result, as the terminal prints them."""
    return _PRESENTERS[type(result)](result)
