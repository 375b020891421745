"""Values of YAML documents with the places where they stand."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from planner.errors import LaunchError
from planner.launch.reading.shell import refuse_unreadable
from planner.launch.reading.shell.values import Piece, Pieces, computed, cut, span_of
from planner.launch.text import Given

_DEEPEST = 100
_MOST_NODES = 200_000
_BEGIN = ("SequenceStartEvent", "MappingStartEvent")
_END = ("SequenceEndEvent", "MappingEndEvent")
_NULL = "tag:yaml.org,2002:null"


@dataclass(frozen=True)
class Place:
    """A value of a document, or nothing where a key is absent."""

    node: Any
    source: str

    @staticmethod
    def nothing(place: Place) -> Place:
        """The absence of a value."""
        return Place(None, place.source)

    @staticmethod
    def pieces_after(place: Place, beginning: str) -> Pieces:
        """A text without how it begins."""
        starts = (place.text or "").startswith(beginning)
        return cut(place.pieces, len(beginning)) if starts else place.pieces

    def get(self, *keys: str) -> Place:
        """The value at a path of keys."""
        node = self.node
        for key in keys:
            pairs = node.value if _is(node, "mapping") else ()
            node = next((value for name, value in pairs if name.value == key), None)
        return Place(node, self.source)

    def items(self) -> list[tuple[str, Place]]:
        """Keys and values of a mapping; none of anything else."""
        pairs = self.node.value if self.is_mapping else ()
        return [(str(name.value), Place(value, self.source)) for name, value in pairs]

    def entries(self) -> list[Place]:
        """The entries of a list; none of anything else."""
        nodes = self.node.value if _is(self.node, "sequence") else ()
        return [Place(node, self.source) for node in nodes]

    @property
    def is_mapping(self) -> bool:
        """Whether it has keys."""
        return _is(self.node, "mapping")

    @property
    def text(self) -> str | None:
        """The text of a scalar; None of anything else, of nothing and of null."""
        is_text = _is(self.node, "scalar") and self.node.tag != _NULL
        return str(self.node.value) if is_text else None

    @property
    def line(self) -> int:
        """Where it begins; 1 of nothing."""
        return 1 if self.node is None else int(self.node.start_mark.line) + 1

    @property
    def pieces(self) -> Pieces:
        """Its text with the characters of the file that it comes from."""
        if self.text is None:
            return computed("")
        start, end = self.node.start_mark.index, self.node.end_mark.index
        return _aligned(self.text, self.source, start, end)

    def given(self, option: str) -> Given | None:
        """Its text as the value of an option; None where it has none."""
        if self.text is None:
            return None
        spans = (span_of(self.pieces),)
        return Given(option=option, texts=(self.text,), line=self.line, spans=spans, whole=None)


def documents(text: str, name: str) -> list[Place]:
    """The documents of a YAML text.

    Raises
    ------
    LaunchError
        It is no YAML, is longer than 4 MB, nested too deeply or its aliases explode.
    """
    import yaml

    refuse_unreadable(text, name)
    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        _refuse_deep(yaml.parse(text, Loader=loader), name)
        nodes = [node for node in yaml.compose_all(text, Loader=loader) if node is not None]
    except (yaml.YAMLError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{name}:{mark.line + 1}" if mark is not None else name
        what = getattr(error, "problem", None) or "it is nested too deeply"
        raise LaunchError(f"{where}: this is no YAML: {what}.") from error
    for node in nodes:
        _refuse_exploding(node, name)
    return [Place(node, text) for node in nodes]


def _refuse_deep(events: Iterable[Any], name: str) -> None:
    """Refuses what the parser, which calls itself, would end the process on."""
    depth = 0
    for event in events:
        kind = type(event).__name__
        depth += kind in _BEGIN
        depth -= kind in _END
        if depth > _DEEPEST:
            line = event.start_mark.line + 1
            raise LaunchError(f"{name}:{line}: its values are nested more than {_DEEPEST} deep.")


def _refuse_exploding(node: Any, name: str) -> None:
    number, waiting = 0, [(node, 0)]
    while waiting:
        node, depth = waiting.pop()
        number += 1
        if depth > _DEEPEST or number > _MOST_NODES:
            line = node.start_mark.line + 1
            raise LaunchError(f"{name}:{line}: its aliases repeat too much.")
        if _is(node, "mapping"):
            waiting += [(child, depth + 1) for pair in node.value for child in pair]
        elif _is(node, "sequence"):
            waiting += [(child, depth + 1) for child in node.value]


def _is(node: Any, kind: str) -> bool:
    return node is not None and node.id == kind


def _aligned(text: str, source: str, start: int, end: int) -> Pieces:
    """The text in pieces that stand in the source as they are, and what YAML makes of the rest."""
    if text and (place := source.find(text, start, end)) >= 0:
        return (Piece(text, place, place + len(text)),)
    place, passed = _first(source, start, end), 0
    pieces: list[Piece] = []
    for word in text.split():
        found = source.find(word, place, end)
        if found < 0 or source[place:found].strip():
            return computed(text)
        at = text.index(word, passed)
        # Blanks between words are those that YAML folded or stripped.
        pieces += [Piece(text[passed:at]), Piece(word, found, found + len(word))]
        place, passed = found + len(word), at + len(word)
    return tuple(piece for piece in [*pieces, Piece(text[passed:])] if piece.text)


def _first(source: str, start: int, end: int) -> int:
    """Where the text begins: behind a quote, or the header of a block."""
    if source[start : start + 1] in ("|", ">"):
        line = source.find("\n", start, end)
        return end if line < 0 else line + 1
    return start + 1 if source[start : start + 1] in ("'", '"') else start
