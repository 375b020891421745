"""Presents a result as blocks, whether a command just made it or its JSON file gave it back."""

from __future__ import annotations

from collections.abc import Iterator

from planner.errors import SpecError
from planner.show.output_blocks import Block
from planner.show.presenters.comparison import plans_blocks, spec_numbers_blocks
from planner.show.presenters.sizes import size_blocks
from planner.show.reports import PlansReport, Report, SizeReport, SpecsReport


def present(result: Report) -> Iterator[Block]:
    """Return the blocks of a result, as the terminal prints them.

    Raises SpecError if its file has too little: searches and estimates are presented as pages.
    """
    if isinstance(result, SizeReport):
        return size_blocks(result)
    if isinstance(result, PlansReport):
        return plans_blocks(result)
    if isinstance(result, SpecsReport):
        return spec_numbers_blocks(result)
    raise SpecError(f"{result.where}: only its page shows this result.")
