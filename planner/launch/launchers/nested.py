"""Scripts inside a script, in quotes or a here-document, read with their places in the file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from planner.shell import Command, HereDocument, Script, Word
from planner.shell.inner import read_inner
from planner.shell.values import Piece, Pieces, computed

_NO_VARIABLES: Mapping[str, Word] = {}


def script_in(word: Word, environment: Mapping[str, Word], outer: Script) -> tuple[Command, ...]:
    """The commands of a word that a shell reads again; their places are those in ``outer``.

    Raises
    ------
    LaunchError
        A quote in it is never closed.
    """
    return _commands(_pieces(word), environment, outer, word.line)


def joined(words: Sequence[Word]) -> Word:
    """Words as the one text that ``eval`` reads again."""
    pieces = (piece for word in words for piece in (*computed(" "), *_pieces(word)))
    return replace(words[0], pieces=tuple(pieces), span=None)


def script_of(document: HereDocument, outer: Script) -> tuple[Command, ...]:
    """The commands of a here-document that a shell is given."""
    pieces: Pieces = (Piece(document.text, document.span.start, document.span.end),)
    if document.expanded:
        pieces = document.pieces
    return _commands(pieces, _NO_VARIABLES, outer, document.line)


def _pieces(word: Word) -> Pieces:
    return word.pieces or computed(word.text or "")


def _commands(
    pieces: Pieces, environment: Mapping[str, Word], outer: Script, line: int
) -> tuple[Command, ...]:
    name = f"{outer.name}:{line}, the script inside"
    return read_inner(pieces, environment, outer.text, name).commands
