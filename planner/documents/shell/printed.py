"""Output of ``echo`` and ``printf``, as far as the text of the script determines it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import groupby

from planner.documents.shell.syntax import Pieces, TextPiece, Word, computed_text

_ECHO_OPTION = re.compile(r"-[neE]+")
_ESCAPE = re.compile(r"\\([nt\\\"'])")
_CHARACTERS = {"n": "\n", "t": "\t"}
_EACH_ON_A_LINE = ("%s\\n", "%b\\n")


def printed_text(words: Sequence[Word]) -> Pieces | None:
    """Return the output of ``echo`` or ``printf``; None: another command or % fields."""
    name, *rest = [word.text for word in words] or [None]
    if name == "echo":
        num_options = next((i for i, text in enumerate(rest) if not _is_option(text)), len(rest))
        options = "".join(text or "" for text in rest[:num_options])
        end = "" if "n" in options else "\n"
        return _joined(words[1 + num_options :], " ", end, is_escaped="e" in options)
    if name != "printf" or not rest:
        return None
    if rest[0] in _EACH_ON_A_LINE:
        return _joined(words[2:], "\n", "\n", is_escaped=rest[0] == _EACH_ON_A_LINE[1])
    is_plain = len(rest) == 1 and "%" not in (rest[0] or "%")
    return _joined(words[1:], " ", "", is_escaped=True) if is_plain else None


def _is_option(text: str | None) -> bool:
    return text is not None and _ECHO_OPTION.fullmatch(text) is not None


def _joined(words: Sequence[Word], between: str, end: str, *, is_escaped: bool) -> Pieces:
    return tuple(_pieces(words, between, end, is_escaped=is_escaped))


def _pieces(
    words: Sequence[Word], between: str, end: str, *, is_escaped: bool
) -> Iterator[TextPiece]:
    """Yield the pieces of words with a separator between them and ``end`` behind the last."""
    for number, word in enumerate(words):
        yield from computed_text(between) if number else ()
        pieces = word.pieces or computed_text(word.text or "")
        yield from _unescaped(pieces) if is_escaped else pieces
    yield from computed_text(end) if end else ()


def _unescaped(pieces: Pieces) -> Iterator[TextPiece]:
    """Yield the pieces with backslash escapes replaced by their characters."""
    for is_readable, run in groupby(pieces, key=lambda piece: not piece.unknown):
        group = tuple(run)
        before = "".join(piece.text for piece in group)
        after = _ESCAPE.sub(lambda match: _CHARACTERS.get(match[1], match[1]), before)
        yield from computed_text(after) if is_readable and after != before else group
