"""Meanings of words as text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from planner.question.explain_words import Meaning
from planner.show.output_blocks import Block, make_lines

_MOST = 20
"""Lines of a meaning."""


def meanings_blocks(meanings: Iterable[Meaning]) -> Iterator[Block]:
    """Yield the lines of each meaning, its usage last."""
    for meaning in meanings:
        usage = f" {meaning.usage[:1].upper()}{meaning.usage[1:]}." if meaning.usage else ""
        yield make_lines(f"{meaning.name}: {meaning.text}{usage}", indent="", most=_MOST)
