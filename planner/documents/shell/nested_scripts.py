"""Scripts inside words: ``bash -c "..."``, a here-document, an argument of a container."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import islice

from planner.base.records import record
from planner.documents.shell import refuse_unreadable
from planner.documents.shell.control_flow import Follower, variable_word
from planner.documents.shell.edits import Span
from planner.documents.shell.parser import Parser
from planner.documents.shell.syntax import (
    Command,
    Directive,
    Element,
    HereDocument,
    Pieces,
    Script,
    Source,
    TextPiece,
    Variable,
    Word,
    computed_text,
    directives,
    span_of,
    text_of,
    why_unknown,
)

# Placeholder of unknown text: a character that no quote changes and no script has.
_FIRST_UNKNOWN = 0xE000
_MOST_UNKNOWN = 0x1900
# Added to positions of the outer file, to tell them from those of the inner script.
_OUTSIDE = 2**40


def _outer_element(word: Word) -> Element:
    """Return a word of the text around a script as a value in the script."""
    return Element(
        tuple(_shifted(piece) for piece in word.pieces or computed_text(word.text or ""))
    )


def read_inner(
    pieces: Pieces,
    environment: Mapping[str, Word],
    outer: str,
    name: str = "the script",
    arguments: Sequence[Word] | None = None,
) -> Script:
    """Read the script in a value of a file: commands, variables and files; nothing is run.

    Raises LaunchError if a quote or branch is never closed, or it expands to too much text.

    Parameters
    ----------
    pieces : the script's text with its positions in ``outer``; words with unknown pieces are
        unknown
    environment : exported variables
    outer : text of the file; spans and lines of the result refer to it
    name : name of the file, for messages
    arguments : the script's own, from ``$1``; default: not known
    """
    inside = _NestedText.of(pieces, outer)
    refuse_unreadable(inside.text, name)
    source = Source(inside.text, name)
    nodes = Parser(source).script()
    follower = Follower(source, {})
    for variable, word in environment.items():
        follower.scope.put(variable, Variable((_outer_element(word),)))
        follower.exported[variable] = None
    if arguments is not None:
        follower.expander.arguments = tuple(map(_outer_element, arguments))
    follower.script(nodes)
    variables = {
        name_of_variable: value
        for name_of_variable, value in follower.scope.variables.items()
        if value is not None
    }
    return Script(
        name=name,
        text=outer,
        commands=tuple(inside.command(command) for command in follower.commands),
        variables={
            name_of_variable: inside.word(variable_word(follower.expander, value, 0))
            for name_of_variable, value in variables.items()
        },
        directives=tuple(inside.directive(directive) for directive in directives(source)),
        files={file_name: inside.file(document) for file_name, document in follower.files.items()},
    )


@record(kw_only=True)
class _NestedText:
    """The text of an inner script, with the origin of each character."""

    text: str
    parts: tuple[tuple[int, TextPiece], ...]
    unknown: Mapping[str, str]
    outer: str

    @classmethod
    def of(cls, pieces: Pieces, outer: str) -> _NestedText:
        """Join the pieces to one text; each unknown piece becomes a placeholder character."""
        parts, texts, unknown, passed = [], list[str](), dict[str, str](), 0
        for piece in pieces:
            text = piece.text
            if piece.unknown:
                text = chr(_FIRST_UNKNOWN + len(unknown) % _MOST_UNKNOWN)
                unknown[text] = piece.unknown
            parts.append((passed, piece))
            texts.append(text)
            passed += len(text)
        return cls(text="".join(texts), parts=tuple(parts), unknown=unknown, outer=outer)

    @cached_property
    def _ends(self) -> Sequence[int]:
        """Ends of the parts in the script, in order."""
        return [passed + max(len(piece.text), 1) for passed, piece in self.parts]

    def command(self, command: Command) -> Command:
        """Return a command of the inner script with positions in the outer file."""
        words = tuple(self.word(word) for word in command.words)
        environment = {name: self.word(word) for name, word in command.environment.items()}
        span = self.span(command.span)
        return Command(
            words=words,
            environment=environment,
            line=self._line(command.span.start),
            span=span or Span(0, 0),
            copies=command.copies,
        )

    def word(self, word: Word) -> Word:
        """Return a word with positions in the outer file; its text is None if partly unknown."""
        pieces = tuple(part for piece in word.pieces for part in self._placed(piece))
        text = text_of(pieces)
        regions = [self.span(region) for region in word.regions]
        return replace(
            word,
            text=text,
            span=None if text is None else span_of(pieces),
            line=self._line_of(pieces),
            raw="".join("..." if char in self.unknown else char for char in word.raw),
            unknown=why_unknown(pieces),
            pieces=pieces,
            regions=() if None in regions else tuple(filter(None, regions)),
        )

    def directive(self, directive: Directive) -> Directive:
        """Return a scheduler's option with positions in the outer file."""
        span, full_span = self.span(directive.span), self.span(directive.full_span)
        line = self._line(directive.full_span.start)
        nowhere = Span(0, 0)
        return replace(directive, span=span or nowhere, full_span=full_span or nowhere, line=line)

    def file(self, document: HereDocument) -> HereDocument:
        """Return a here-document with positions in the outer file."""
        start = document.span.start
        unexpanded = (TextPiece(document.text, start, start + len(document.text)),)
        inner = document.pieces if document.expanded else unexpanded
        pieces = tuple(part for piece in inner for part in self._placed(piece))
        span = self.span(document.span)
        return replace(
            document,
            text="".join(piece.text for piece in pieces),
            span=span or Span(0, 0),
            line=self._line(document.span.start),
            expanded=True,
            pieces=pieces,
        )

    def span(self, span: Span) -> Span | None:
        """Span in the outer file of characters of the script; None: they are not adjacent there."""
        if span.start >= _OUTSIDE:
            return Span(span.start - _OUTSIDE, span.end - _OUTSIDE)
        return span_of(list(self._range(span.start, span.end, "")))

    def _line(self, position: int) -> int:
        return self._line_of(piece for piece in self._range(position, len(self.text), ""))

    def _line_of(self, pieces: Iterable[TextPiece]) -> int:
        """Line of the first character that is in the file; 0: none is."""
        place = next((piece.start for piece in pieces if piece.start >= 0), None)
        return 0 if place is None else self.outer.count("\n", 0, place) + 1

    def _placed(self, piece: TextPiece) -> Iterator[TextPiece]:
        """Yield the pieces of the outer file that make up a piece of the inner script."""
        if piece.start >= _OUTSIDE:
            start, end = piece.start - _OUTSIDE, piece.end - _OUTSIDE
            yield piece._replace(start=start, end=end, trail=self._trail(piece))
        elif piece.is_exact and not piece.unknown:
            trail = self._trail(piece)
            for part in self._range(piece.start, piece.end, piece.quote):
                yield part._replace(trail=trail)
        elif piece.unknown or not any(char in self.unknown for char in piece.text):
            span = self.span(Span(piece.start, piece.end)) if piece.start >= 0 else None
            start, end = (span.start, span.end) if span else (-1, -1)
            yield piece._replace(start=start, end=end, trail=self._trail(piece))
        else:
            reasons = [self.unknown[char] for char in piece.text if char in self.unknown]
            yield TextPiece("", unknown="; ".join(dict.fromkeys(reasons)))

    def _trail(self, piece: TextPiece) -> tuple[Span, ...]:
        spans = (self.span(span) for span in piece.trail)
        return tuple(span for span in spans if span is not None)

    def _range(self, start: int, end: int, quote: str) -> Iterator[TextPiece]:
        """Yield the outer file's pieces for the inner characters from ``start`` to ``end``."""
        for passed, piece in islice(self.parts, bisect_right(self._ends, start), None):
            length = 1 if piece.unknown else len(piece.text)
            if passed > end or (passed >= end and end > start):
                return
            if piece.unknown:
                yield TextPiece("", unknown=piece.unknown)
            elif end == start or length:
                part = piece.part(max(start - passed, 0), min(end - passed, length))
                yield part._replace(quote=f"{piece.quote}{quote}")
            if end == start:
                return


def _shifted(piece: TextPiece) -> TextPiece:
    """Return a piece of the outer file with positions beyond all positions of the inner script."""
    if piece.start < 0:
        return piece
    trail = tuple(Span(s.start + _OUTSIDE, s.end + _OUTSIDE) for s in piece.trail)
    return piece._replace(start=piece.start + _OUTSIDE, end=piece.end + _OUTSIDE, trail=trail)
