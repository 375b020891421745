"""Values of YAML documents with their positions in the text."""

from __future__ import annotations

from collections.abc import Iterator

from planner.base.records import record
from planner.documents.shell.edits import ParsedOption
from planner.documents.shell.syntax import Pieces, TextPiece, computed_text, pieces_from, span_of
from planner.documents.yaml_tree import Node, members, read_trees, resolve_alias


@record()
class YamlValue:
    """A value of a document, or nothing where a key is absent."""

    node: Node | None
    source: str

    @staticmethod
    def nothing(place: YamlValue) -> YamlValue:
        """The absence of a value."""
        return YamlValue(None, place.source)

    @staticmethod
    def pieces_after(place: YamlValue, beginning: str) -> Pieces:
        """A text without its beginning."""
        starts = (place.text or "").startswith(beginning)
        return pieces_from(place.pieces, len(beginning)) if starts else place.pieces

    def get(self, *keys: str) -> YamlValue:
        """Return the value at a path of keys; an empty value if there is none."""
        value = self
        for key in keys:
            matching = (below for name, below in value._pairs() if name == key)
            value = next(matching, YamlValue(None, self.source))
        return value

    def items(self) -> list[tuple[str, YamlValue]]:
        """Return keys and values of a mapping; [] for anything else."""
        items: dict[str, YamlValue] = {}
        for name, below in self._pairs():
            items.setdefault(name, below)
        return [*items.items()]

    def _pairs(self) -> Iterator[tuple[str, YamlValue]]:
        """Keys and values; those that ``<<`` merges in come last, and may be there before."""
        if self.node is not None and self.is_mapping:
            for key, value in members(self.node):
                yield key.text, YamlValue(resolve_alias(value), self.source)

    def entries(self) -> list[YamlValue]:
        """The entries of a list; empty for anything else."""
        items = self.node.items if self.node is not None and self.node.kind == "list" else []
        return [YamlValue(resolve_alias(node), self.source) for _, node in items]

    @property
    def is_mapping(self) -> bool:
        """Whether it has keys."""
        return self.node is not None and self.node.kind == "mapping"

    @property
    def text(self) -> str | None:
        """Return the text of a scalar; None for null, no value or other kinds."""
        if self.node is None or self.node.kind != "scalar":
            return None
        is_null = self.node.value is None and not self.node.unknown
        return None if is_null else self.node.text

    @property
    def line(self) -> int:
        """Line where the value begins; 1 for no value."""
        return 1 if self.node is None else self.node.line

    @property
    def pieces(self) -> Pieces:
        """Its text with the characters of the file that it comes from."""
        if self.node is None or self.text is None:
            return computed_text("")
        return _aligned(self.text, self.source, self.node.start, self.node.end)

    def option_text(self, option: str) -> ParsedOption | None:
        """Return the scalar as an option with this name; None if it has no text."""
        if self.text is None:
            return None
        spans = (span_of(self.pieces),)
        return ParsedOption(
            option=option, texts=(self.text,), line=self.line, spans=spans, full_span=None
        )


def documents(text: str, name: str) -> list[YamlValue]:
    """The documents of a YAML or JSON text; raises `LaunchError` as `read_trees` does."""
    return [YamlValue(resolve_alias(tree.root), text) for tree in read_trees(text, name)]


def _aligned(text: str, source: str, start: int, end: int) -> Pieces:
    """Return the text as pieces: parts with their source position, and computed parts."""
    if text and (place := source.find(text, start, end)) >= 0:
        return (TextPiece(text, place, place + len(text)),)
    place, passed = _first(source, start, end), 0
    pieces: list[TextPiece] = []
    for word in text.split():
        start_of_word = source.find(word, place, end)
        if start_of_word < 0 or source[place:start_of_word].strip():
            return computed_text(text)
        text_index = text.index(word, passed)
        # Blanks between words are those that YAML folded or stripped.
        pieces += [
            TextPiece(text[passed:text_index]),
            TextPiece(word, start_of_word, start_of_word + len(word)),
        ]
        place, passed = start_of_word + len(word), text_index + len(word)
    return tuple(piece for piece in [*pieces, TextPiece(text[passed:])] if piece.text)


def _first(source: str, start: int, end: int) -> int:
    """Return where a scalar's text starts: after its quote, or after a block's header."""
    if source[start : start + 1] in ("|", ">"):
        line = source.find("\n", start, end)
        return end if line < 0 else line + 1
    return start + 1 if source[start : start + 1] in ("'", '"') else start
