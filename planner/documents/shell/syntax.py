"""Elements of a shell script as written, and its text with the positions in the file."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import NamedTuple

from planner.base.records import record
from planner.documents.shell.edits import Span


@dataclass(frozen=True, slots=True)
class Literal:
    """Literal characters; ``start`` to ``end`` is their position without quotes.

    ``quote`` is their quoting: nothing, ``'``, ``"``, ``$'`` or a backslash before them.
    """

    text: str
    start: int
    end: int
    quote: str


@dataclass(frozen=True, slots=True)
class Parameter:
    """``$name`` or ``${name...}``; ``operator`` such as ``:-``, with its argument."""

    name: str
    start: int
    end: int
    quoted: bool
    subscript: str = ""
    operator: str = ""
    argument: tuple[Part, ...] = ()


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """``$(( ... ))``."""

    parts: tuple[Part, ...]
    start: int
    end: int
    quoted: bool


@dataclass(frozen=True, slots=True)
class Substitution:
    """A command that would have to run: ``$(command)``, `` `command` ``, ``<(command)``.

    ``parts`` are the text of ``$(cat <<END``, which needs no run.
    """

    start: int
    end: int
    quoted: bool
    parts: tuple[Part, ...] = ()


Part = Literal | Parameter | Arithmetic | Substitution


@dataclass(frozen=True, slots=True)
class RawWord:
    """One word as written."""

    parts: tuple[Part, ...]
    start: int
    end: int

    @property
    def literal(self) -> str | None:
        """Its text if all parts are literal; else None."""
        texts = [part.text for part in self.parts if isinstance(part, Literal)]
        return "".join(texts) if len(texts) == len(self.parts) else None


@dataclass(frozen=True, slots=True)
class Assignment:
    """``NAME=value``, ``NAME+=value`` or ``NAME=(words)``; of an element if ``subscript``."""

    name: str
    start: int
    adds: bool
    subscript: str
    value: RawWord | None = None
    elements: tuple[RawWord, ...] = ()


@dataclass(frozen=True, slots=True)
class HereDocBody:
    """The body of ``<<END``; of one literal part if ``END`` was quoted."""

    parts: tuple[Part, ...]
    start: int
    end: int
    delimiter: str


@dataclass(slots=True)
class Redirection:
    """A redirection of a command; a here-document has its ``body`` once that was read."""

    operator: str
    word: RawWord
    body: HereDocBody | None = None


@dataclass(frozen=True, slots=True)
class SimpleCommand:
    """Assignments and words; ``declares`` is the builtin of the assignments, such as ``export``."""

    assignments: tuple[Assignment, ...]
    words: tuple[RawWord, ...]
    redirections: tuple[Redirection, ...]
    start: int
    end: int
    declares: str = ""


@dataclass(frozen=True, slots=True)
class AndOrList:
    """Commands joined by ``&&`` and ``||``; each but the first has its operator."""

    items: tuple[tuple[str, Node], ...]


@dataclass(frozen=True, slots=True)
class Subshell:
    """Commands with separate variables: a subshell, parts of a pipe, in the background."""

    body: tuple[Node, ...]
    in_background: bool = False


@dataclass(frozen=True, slots=True)
class Group:
    """``{ ... }``."""

    body: tuple[Node, ...]
    redirections: tuple[Redirection, ...] = ()


@dataclass(frozen=True, slots=True)
class Negation:
    """``! command``."""

    node: Node


@dataclass(frozen=True, slots=True)
class ArithmeticCommand:
    """``(( ... ))``."""

    parts: tuple[Part, ...]
    start: int


@dataclass(frozen=True, slots=True)
class If:
    """Conditions with the commands that run if they hold; the last may have no condition."""

    clauses: tuple[tuple[tuple[Node, ...], tuple[Node, ...]], ...]
    otherwise: tuple[Node, ...] | None


@dataclass(frozen=True, slots=True)
class Loop:
    """``for`` with its variable and words, ``while`` and ``until`` with a condition."""

    variable: str
    words: tuple[RawWord, ...]
    condition: tuple[Node, ...]
    body: tuple[Node, ...]
    start: int
    assigned: tuple[tuple[str, int], ...]
    is_until: bool = False


@dataclass(frozen=True, slots=True)
class Case:
    """``case word in pattern) ... ;; esac``."""

    word: RawWord
    clauses: tuple[tuple[tuple[RawWord, ...], tuple[Node, ...]], ...]


@dataclass(frozen=True, slots=True)
class Function:
    """``name() { ... }``."""

    name: str
    body: Node


Node = (
    SimpleCommand
    | AndOrList
    | Subshell
    | Group
    | Negation
    | ArithmeticCommand
    | If
    | Loop
    | Case
    | Function
)


@dataclass(slots=True)
class Source:
    """The text of a file, with its name and lines for messages."""

    text: str
    name: str
    starts: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        position = -1
        self.starts.append(0)
        while (position := self.text.find("\n", position + 1)) >= 0:
            self.starts.append(position + 1)

    def line(self, position: int) -> int:
        """The line of a character; the first is 1."""
        return bisect_right(self.starts, position)

    def at(self, position: int) -> str:
        """``file:line`` of a character."""
        return f"{self.name}:{self.line(position)}"


MISSING_ARGUMENT = "is an argument that is not in this file"
_LONGEST_TRAIL = 8
_NOWHERE = -1
_BLANKS = re.compile(r"(?:\r\n|[ \t\n])+")


class TextPiece(NamedTuple):
    """Characters with one origin: ``start`` to ``end`` of the file, -1 if computed.

    ``unknown`` is the reason if they are unknown. ``trail`` are the expansions that they came
    through, the innermost first.
    """

    text: str
    start: int = _NOWHERE
    end: int = _NOWHERE
    quote: str = ""
    unknown: str = ""
    trail: tuple[Span, ...] = ()

    @property
    def is_exact(self) -> bool:
        """Whether its characters are in the file unchanged."""
        return self.start >= 0 and self.end - self.start == len(self.text)

    def through(self, span: Span) -> TextPiece:
        """The piece after one more expansion."""
        return self._replace(trail=(*self.trail, span)[:_LONGEST_TRAIL])

    def part(self, start: int, end: int) -> TextPiece:
        """Return the characters ``start`` to ``end`` of the piece, with their position if exact."""
        text = self.text[start:end]
        if self.is_exact:
            return self._replace(text=text, start=self.start + start, end=self.start + end)
        if len(text) == len(self.text):
            return self
        return self._replace(text=text, start=_NOWHERE, end=_NOWHERE)


Pieces = tuple[TextPiece, ...]


def computed_text(text: str) -> Pieces:
    """Text that is not in the file."""
    return (TextPiece(text),)


def unknown_text(reason: str) -> Pieces:
    """Unknown text, with the reason."""
    return (TextPiece("", unknown=reason),)


def text_of(pieces: Iterable[TextPiece]) -> str | None:
    """Join the pieces to one text; None: a piece is unknown."""
    texts = []
    for piece in pieces:
        if piece.unknown:
            return None
        texts.append(piece.text)
    return "".join(texts)


def why_unknown(pieces: Iterable[TextPiece]) -> str:
    """The reason of the first unknown piece; empty: all are known."""
    return "; ".join(dict.fromkeys(piece.unknown for piece in pieces if piece.unknown))


def span_of(pieces: Sequence[TextPiece]) -> Span | None:
    """Return the file position of the pieces' text; None: it is not literal or not adjacent."""
    placed = [piece for piece in pieces if piece.text] or list(pieces[:1])
    if not placed or any(piece.start < 0 or piece.unknown for piece in placed):
        return None
    for before, after in pairwise(placed):
        if before.end != after.start:
            return None
    return Span(placed[0].start, placed[-1].end)


def pieces_from(pieces: Iterable[TextPiece], start: int) -> Pieces:
    """Return the pieces from the character ``start`` on; an unknown piece has length 0."""
    rest, passed = list[TextPiece](), 0
    for piece in pieces:
        length = len(piece.text)
        if passed >= start and (length or piece.unknown):
            rest.append(piece)
        elif passed < start <= passed + length:
            rest.append(piece.part(start - passed, length))
        passed += length
    non_empty = [piece for piece in rest if piece.text or piece.unknown]
    return tuple(non_empty or rest)


@record(kw_only=True)
class Word:
    """One word of a command, as far as the text determines it.

    ``span`` is the position of its literal value without quotes, also in the assignment of a
    variable or in a default; None if it has several parts. ``raw`` is the text of the file in its
    place, ``unknown`` the reason if ``text`` is None. ``regions`` are the positions that produce
    the word, the innermost first: the text to delete to remove it.
    """

    text: str | None
    span: Span | None
    line: int
    raw: str
    unknown: str = ""
    pieces: Pieces = field(default=(), repr=False)
    regions: tuple[Span, ...] = field(default=(), repr=False)

    @classmethod
    def of(cls, pieces: Pieces, line: int, raw: str) -> Word:
        """Return a word of these pieces; its text is None if one of them is unknown."""
        text = text_of(pieces)
        span = None if text is None else span_of(pieces)
        unknown = why_unknown(pieces)
        return cls(text=text, span=span, line=line, raw=raw, unknown=unknown, pieces=pieces)

    @property
    def begins(self) -> str:
        """Return the beginning of the word up to its first unknown part."""
        texts = []
        for piece in self.pieces:
            if piece.unknown:
                break
            texts.append(piece.text)
        return "".join(texts)

    def after(self, start: int) -> Word:
        """The word from a character of its known beginning (`begins`)."""
        rest = pieces_from(self.pieces, start)
        text = text_of(rest)
        return replace(self, text=text, span=span_of(rest), unknown=why_unknown(rest), pieces=rest)


@dataclass(frozen=True, slots=True)
class Element:
    """One value: of a variable, of an array, or a word before it has its line."""

    pieces: Pieces
    regions: tuple[Span, ...] = ()


@dataclass(frozen=True, slots=True)
class Variable:
    """The value of a variable, and the positions of its assignments."""

    elements: tuple[Element, ...]
    is_array: bool = False
    assigned: tuple[int, ...] = ()
    unknown: str = ""

    @property
    def pieces(self) -> Pieces:
        """Its value as one text; of an array the first element."""
        if self.unknown:
            return unknown_text(self.unknown)
        return self.elements[0].pieces if self.elements else (TextPiece(""),)

    @property
    def texts(self) -> tuple[str | None, ...]:
        """The text of each element."""
        return tuple(text_of(element.pieces) for element in self.elements)

    @property
    def words(self) -> Sequence[Element]:
        """Return the variable's words: an array's elements, else the value split at blanks."""
        if self.is_array:
            return self.elements
        fields = Fields()
        fields.split(self.pieces)
        fields.end()
        return fields.ended

    def of_words(self, words: Sequence[Element], assigned: tuple[int, ...]) -> Variable:
        """Return a variable of the same kind (array or text) with these words."""
        if self.is_array:
            return Variable(tuple(words), True, assigned)
        pieces = [piece for word in words for piece in (*computed_text(" "), *word.pieces)]
        return Variable((Element(tuple(pieces[1:])),), False, assigned)


class Fields:
    """Words that come of one written word: unquoted expansions are split at blanks."""

    def __init__(self) -> None:
        self.ended: list[Element] = []
        self._pieces: list[TextPiece] | None = None
        self._is_split = False
        self._regions: tuple[Span, ...] = ()

    def join(self, pieces: Iterable[TextPiece]) -> None:
        """Append the pieces to the current word, without splitting."""
        if self._pieces is None:
            self._pieces = []
        self._pieces += pieces
        self._regions = ()

    def split(self, pieces: Iterable[TextPiece]) -> None:
        """Append an unquoted expansion; its blanks end words."""
        for piece in pieces:
            if piece.unknown:
                self.join((piece,))
                self._is_split = True
                continue
            for part, ends in _parts(piece):
                if part.text:
                    self.join((part,))
                    self._is_split = True
                if ends:
                    self.end()

    def element(self, element: Element) -> None:
        """Start a word with an array's element, or append the element to the current word."""
        if self._pieces is None:
            self._pieces, self._regions = list(element.pieces), element.regions
        else:
            self.join(element.pieces)

    def end(self) -> None:
        """End the current word, if there is one."""
        if self._pieces is not None:
            pieces = tuple(self._pieces)
            regions = _regions(pieces) if self._is_split else self._regions
            self.ended.append(Element(pieces, regions))
        self._pieces, self._is_split, self._regions = None, False, ()


def _parts(piece: TextPiece) -> Iterator[tuple[TextPiece, bool]]:
    """Yield the parts of a piece between blanks; True: blanks follow the part and end a word."""
    done = 0
    for blanks in _BLANKS.finditer(piece.text):
        yield piece.part(done, blanks.start()), True
        done = blanks.end()
    yield piece.part(done, len(piece.text)), False


def _regions(pieces: Pieces) -> tuple[Span, ...]:
    """Return the spans that cover adjacent pieces at each expansion level, innermost first."""
    regions: dict[Span, None] = {}
    for first in _levels(pieces[0]):
        last: Span | None = first
        for piece in pieces[1:]:
            levels = _levels(piece)
            # Several pieces may have come through one expansion.
            if last not in levels:
                last = next((span for span in levels if last and span.start == last.end), None)
            if last is None:
                break
        if last is not None:
            regions[Span(first.start, last.end)] = None
    return tuple(regions)


def _levels(piece: TextPiece) -> tuple[Span, ...]:
    return (Span(piece.start, piece.end), *piece.trail) if piece.start >= 0 else piece.trail


@record(kw_only=True)
class Command:
    """One command with its words expanded, and its environment variables.

    ``copies`` of it run at once if a loop over known words starts it in the background.
    """

    words: tuple[Word, ...]
    environment: Mapping[str, Word]
    line: int
    span: Span
    copies: int = 1


@record(kw_only=True)
class Directive:
    """An option for the scheduler in a comment: ``#SBATCH --nodes=4``.

    ``kind`` is ``SBATCH``, ``PBS`` or ``BSUB``; ``text`` is empty for a flag; ``span`` is of the
    value, ``full_span`` of option and value.
    """

    kind: str
    option: str
    text: str
    span: Span
    line: int
    full_span: Span


@record(kw_only=True)
class HereDocument:
    """A text that the script passes to a command or writes to a file.

    ``span`` is its position. ``expanded``: variables were replaced or tabs removed, so that `place`
    returns the position of a part of ``text``. Unknown parts are in ``text`` as in the file, with
    the reason in ``unknown``.
    """

    text: str
    span: Span
    line: int
    expanded: bool
    unknown: str = ""
    pieces: Pieces = field(default=(), repr=False)

    def place(self, span: Span) -> Span | None:
        """Return the script position of a span of ``text``; None: its characters are computed."""
        if not self.expanded:
            return Span(self.span.start + span.start, self.span.start + span.end)
        passed = 0
        for piece in self.pieces:
            end = passed + len(piece.text)
            if passed <= span.start and span.end <= end and span.start < max(end, passed + 1):
                is_full_piece = (span.start, span.end) == (passed, end)
                if piece.is_exact or (is_full_piece and piece.start >= 0):
                    part = piece.part(span.start - passed, span.end - passed)
                    return Span(part.start, part.end)
                return None
            passed = end
        return None


@record(kw_only=True)
class Script:
    """A shell script as read from its text; nothing of it was run.

    ``commands`` are in the order in which they would run, without branches that certainly do not
    run. ``variables`` have their values at the end. ``files`` are here-documents by the name of the
    file that they are written to, else ``<<END (line 3)``.
    """

    name: str
    text: str
    commands: tuple[Command, ...]
    variables: Mapping[str, Word]
    directives: tuple[Directive, ...]
    files: Mapping[str, HereDocument]


_LINE = re.compile(r"^#(SBATCH|PBS|BSUB)[ \t]+([^\n]*)", re.M)
_WORD = re.compile(r"(?:[^\s'\"]|'[^'\n]*'|\"[^\"\n]*\")+")


def directives(source: Source) -> tuple[Directive, ...]:
    """Return the scheduler options of all ``#SBATCH``, ``#PBS`` and ``#BSUB`` lines."""
    options: list[Directive] = []
    for line in _LINE.finditer(source.text):
        words = list(_WORD.finditer(source.text, line.start(2), line.end(2)))
        for index, word in enumerate(words):
            if word[0].startswith("#"):
                break
            if not word[0].startswith("-"):
                continue
            after = words[index + 1] if index + 1 < len(words) else None
            options.append(_directive(line[1], word, after, source))
    return tuple(options)


def _directive(
    kind: str, word: re.Match[str], after: re.Match[str] | None, source: Source
) -> Directive:
    """Return a scheduler's option in a comment, with the value from its word or the next."""
    option, equals, _ = word[0].partition("=")
    start, end = word.end(), word.end()
    if word[0].startswith("--") and equals:
        start = word.start() + len(option) + 1
    elif not word[0].startswith("--") and len(word[0]) > 2 and kind != "BSUB":
        option, start = word[0][:2], word.start() + 2
        start += source.text[start] == "="
    else:
        option = word[0]
        if after is not None and not after[0].startswith(("-", "#")):
            start, end = after.span()
    if end - start > 1 and source.text[start] in "'\"" and source.text[end - 1] in "'\"":
        start, end = start + 1, end - 1
    return Directive(
        kind=kind, option=option, text=source.text[start:end], span=Span(start, end),
        line=source.line(word.start()), full_span=Span(word.start(), max(word.end(), end)),
    )  # fmt: skip
