"""Scripts inside a script, in quotes or a here-document, read with their places in the file."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from planner.launch.reading.shell import Command, HereDocument, Script, Word, read_shell
from planner.launch.reading.shell.values import Piece
from planner.launch.text import Span, line_of

_VARIABLE = re.compile(r"\$\{?([A-Za-z_]\w*)")
_UNTOLD = "untold_part_"
_NAMED = re.compile(rf"\$\{{?({_UNTOLD}\d+)\}}?")
_IN_REASON = re.compile(rf"\$\{{?({_UNTOLD}\d+)\}}?[^;]*")


def script_in(word: Word, environment: Mapping[str, Word], outer: Script) -> tuple[Command, ...]:
    """The commands of a word that a shell reads again; their places are those in ``outer``.

    Parts of it that are not known become variables that nothing sets; exported variables, which
    only the second reading expands, are known to it.

    Raises
    ------
    LaunchError
        A quote in it is never closed.
    """
    pieces = list(word.pieces)
    if not pieces:
        pieces = [Piece(word.text or "")]
    reasons: dict[str, str] = {}
    pieces = [_named(piece, reasons, quoted=False) for piece in pieces]
    used = dict.fromkeys(_VARIABLE.findall("".join(piece.text for piece in pieces)))
    head: list[Piece] = []
    for name in used:
        if name in environment:
            head += _assignment(name, environment[name], reasons)
    return _read([*head, *pieces], reasons, word.line, outer)


def joined(words: Sequence[Word]) -> Word:
    """Words as the one text that ``eval`` reads again."""
    pieces: list[Piece] = []
    for word in words:
        pieces += [Piece(" "), *(word.pieces or (Piece(word.text or ""),))]
    return replace(words[0], pieces=tuple(pieces), span=None)


def script_of(document: HereDocument, outer: Script) -> tuple[Command, ...]:
    """The commands of a here-document that a shell is given."""
    if document.expanded:
        return _read(list(document.pieces), {}, document.line, outer)
    return _read([Piece(document.text, document.span.start, document.span.end)], {},
                 document.line, outer)  # fmt: skip


def _assignment(name: str, value: Word, reasons: dict[str, str]) -> list[Piece]:
    """``name='value'``, with the places of the value."""
    found = [Piece(f"{name}='")]
    for piece in value.pieces or (Piece(value.text or ""),):
        named = _named(piece, reasons, quoted=True)
        for index, part in enumerate(named.text.split("'") if not piece.unknown else [named.text]):
            start = sum(len(p) + 1 for p in named.text.split("'")[:index])
            if index:
                found.append(Piece("'\\''"))
            found.append(named if piece.unknown else named.part(start, start + len(part)))
    return [*found, Piece("'\n")]


def _named(piece: Piece, reasons: dict[str, str], *, quoted: bool) -> Piece:
    """A piece that is not known as a variable that nothing sets."""
    if not piece.unknown:
        return piece
    name = f"{_UNTOLD}{len(reasons)}"
    reasons[name] = piece.unknown
    return Piece(f"'\"${{{name}}}\"'" if quoted else f"${{{name}}}")


def _read(
    pieces: Sequence[Piece], reasons: Mapping[str, str], line: int, outer: Script
) -> tuple[Command, ...]:
    text = "".join(piece.text for piece in pieces)
    where = HereDocument(text=text, span=Span(0, 0), line=line, expanded=True, pieces=tuple(pieces))
    inner = read_shell(text, name=f"{outer.name}:{line}, the script inside")
    return tuple(_placed(command, where, reasons, line, outer) for command in inner.commands)


def _placed(
    command: Command, where: HereDocument, reasons: Mapping[str, str], line: int, outer: Script
) -> Command:
    """A command of the inner text with the places of the outer one."""
    words = tuple(_word(word, where, reasons, line, outer) for word in command.words)
    environment = {
        name: _word(word, where, reasons, line, outer) for name, word in command.environment.items()
    }
    lines = [word.line for word in words if word.span is not None]
    span = where.place(command.span) or Span(0, 0)
    first = lines[0] if lines else line
    return Command(words=words, environment=environment, line=first, span=span)


def _word(
    word: Word, where: HereDocument, reasons: Mapping[str, str], line: int, outer: Script
) -> Word:
    span = None if word.span is None else where.place(word.span)
    regions = tuple(place for region in word.regions if (place := where.place(region)) is not None)
    unknown, text = _reason(word.unknown, reasons), word.text
    if text is not None and (inside := _NAMED.findall(text)):
        # In single quotes the variable that stands for what is not known is no variable.
        text, span = None, None
        unknown = "; ".join(dict.fromkeys(reasons.get(name, name) for name in inside))
    return replace(
        word,
        text=text,
        span=span,
        line=line if span is None else line_of(outer.text, span.start),
        raw=_NAMED.sub(lambda found: _shown(reasons.get(found[1], "")), word.raw),
        unknown=unknown,
        pieces=tuple(_piece(piece, where, reasons) for piece in word.pieces),
        regions=regions,
    )


def _piece(piece: Piece, where: HereDocument, reasons: Mapping[str, str]) -> Piece:
    place = where.place(Span(piece.start, piece.end)) if piece.start >= 0 else None
    start, end = (place.start, place.end) if place else (-1, -1)
    unknown = _reason(piece.unknown, reasons)
    if found := _NAMED.search(piece.text):
        return Piece("", unknown=reasons.get(found[1], found[1]))
    return piece._replace(start=start, end=end, unknown=unknown, trail=())


def _shown(reason: str) -> str:
    """What a reason calls the part that is not known."""
    first = reason.partition(" ")[0]
    return first if first.startswith(("$", "`")) else "..."


def _reason(text: str, reasons: Mapping[str, str]) -> str:
    return _IN_REASON.sub(lambda found: reasons.get(found[1], found[0]), text) if text else text
