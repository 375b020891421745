"""Meanings of words as text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from planner.question.explain_words import Meaning
from planner.show.output_blocks import Block, make_lines

_MOST = 20
"""Lines of a meaning."""


def meanings_blocks(meanings: Iterable[Meaning]) -> Iterator[Block]:
    """Yield a line for each meaning, and one for its usage."""
    for meaning in meanings:
        yield make_lines(f"{meaning.name}: {meaning.text}", indent="", most=_MOST)
        if meaning.usage:
            yield make_lines(meaning.usage[:1].upper() + meaning.usage[1:], most=_MOST)
