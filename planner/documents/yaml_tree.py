"""YAML and JSON files as values by dotted path, each with its position in the text."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from planner.base.read_files import UncheckedTable
from planner.base.records import record
from planner.documents.shell import refuse_unreadable
from planner.documents.shell.edits import ParsedOption, Span
from planner.documents.shell.syntax import Source
from planner.errors import LaunchError

if TYPE_CHECKING:
    from yaml.events import AliasEvent, Event, ScalarEvent
    from yaml.nodes import ScalarNode

MOST_NODES = 200_000
DEEPEST = 100


@dataclass(slots=True)
class Node:
    """A value: ``kind`` is scalar, mapping, list or alias (of ``target``).

    ``start`` to ``end`` is its position, with quotes and brackets. ``text`` of a scalar is without
    quotes, ``value`` its typed value, ``unknown`` the reason if that is unknown. ``style`` is
    ``flow`` for braces and brackets, the quote of a scalar, else empty. ``size`` is its number of
    values with aliases followed. ``repeated``, of the first root: keys that their mapping has
    before, with both lines.
    """

    kind: str
    start: int
    end: int
    line: int
    text: str = ""
    value: object = None
    style: str = ""
    unknown: str = ""
    is_merge: bool = False
    size: int = 1
    items: list[tuple[Node | None, Node]] = field(default_factory=list)
    target: Node | None = None
    repeated: list[tuple[str, int, int]] = field(default_factory=list)


def too_deep(where: str) -> LaunchError:
    """The error for a document with too deeply nested values."""
    return LaunchError(f"{where}: nested more than {DEEPEST} deep: that is not read.")


class NodeBudget:
    """Counts the nodes of a document and refuses too many."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.nodes = 0

    def node(self, line: int, depth: int) -> None:
        """Count one more node at a depth; raise LaunchError if too many nodes or too deep."""
        self.nodes += 1
        self.refuse_large(self.nodes, line)
        if depth > DEEPEST:
            raise too_deep(f"{self.name}:{line}")

    def refuse_large(self, size: int, line: int) -> None:
        """Raise LaunchError if ``size``, the number of values in a document, is too large."""
        if size > MOST_NODES:
            raise LaunchError(
                f"{self.name}:{line}: it becomes more than {MOST_NODES:,} values, aliases counted "
                "as often as they are used: that is not read."
            )


def refuse_twice(keys: dict[str, int], key: str, line: int, name: str) -> None:
    """Remembers a key of a mapping. Raises `LaunchError` if it is there already."""
    if key in keys:
        raise LaunchError(f"{name}:{line}: {key!r} is a duplicate of line {keys[key]}: keep one.")
    keys[key] = line


_BLANKS = re.compile(r"[ \t\r\n]*")
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"', re.S)
_WORD = re.compile(r"[^\s,:\[\]{}\"]+")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_CONSTANTS = {
    "true": True, "false": False, "null": None,
    "NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf"),
}  # fmt: skip
_LONGEST_NUMBER = 400


class _Reader:
    def __init__(self, text: str, name: str) -> None:
        self.text, self.name = text, name
        self.position = len(text) - len(text.removeprefix("\ufeff"))
        self.growth = NodeBudget(name)
        self._counted = (0, 1)

    def document(self) -> Node:
        """Return the root node of the JSON text; raise LaunchError if more text follows."""
        self._blanks()
        root = self._value(0)
        self._blanks()
        if self.position < len(self.text):
            raise self._error("there is more after the end of the value")
        return root

    def _line(self, position: int) -> int:
        """Return the line number of a position, counted from the last position where possible."""
        done, line = self._counted
        if position < done:
            return self.text.count("\n", 0, position) + 1
        line += self.text.count("\n", done, position)
        self._counted = position, line
        return line

    def _error(self, problem: str, position: int | None = None) -> LaunchError:
        line = self._line(self.position if position is None else position)
        return LaunchError(f"{self.name}:{line}: this is not JSON: {problem}.")

    def _blanks(self) -> None:
        match = _BLANKS.match(self.text, self.position)
        self.position = match.end() if match else self.position

    def _takes(self, char: str) -> bool:
        if self.text.startswith(char, self.position):
            self.position += 1
            return True
        return False

    def _value(self, depth: int) -> Node:
        """Read a JSON value of any kind as a node; ``depth`` limits the nesting."""
        start = self.position
        line = self._line(start)
        self.growth.node(line, depth)
        if self._takes("{"):
            node = Node("mapping", start, start, line, style="flow")
            self._members(node, depth)
        elif self._takes("["):
            node = Node("list", start, start, line, style="flow")
            self._entries(node, depth)
        else:
            return self._scalar(start, line)
        node.end = self.position
        return node

    def _members(self, node: Node, depth: int) -> None:
        """Read a JSON object's members into the node; raise LaunchError for a repeated key."""
        keys: dict[str, int] = {}
        self._blanks()
        if self._takes("}"):
            return
        while True:
            self._blanks()
            if not self.text.startswith('"', self.position):
                raise self._error(self._instead("a key in double quotes"))
            key = self._scalar(self.position, self._line(self.position))
            refuse_twice(keys, key.text, key.line, self.name)
            self._blanks()
            if not self._takes(":"):
                raise self._error(self._instead(f"a colon after {json.dumps(key.text)}"))
            self._blanks()
            node.items.append((key, self._value(depth + 1)))
            if self._ends("}"):
                return

    def _entries(self, node: Node, depth: int) -> None:
        """Read a JSON list's entries into the node, up to the closing bracket."""
        self._blanks()
        if self._takes("]"):
            return
        while True:
            self._blanks()
            node.items.append((None, self._value(depth + 1)))
            if self._ends("]"):
                return

    def _ends(self, bracket: str) -> bool:
        """Skip a bracket or a comma; True: the bracket ended the value. LaunchError: neither."""
        self._blanks()
        if self._takes(bracket):
            return True
        comma = self.position
        if not self._takes(","):
            raise self._error(self._instead(f"a comma or {bracket}"))
        self._blanks()
        if self.text.startswith(bracket, self.position):
            raise self._error(f"a comma before {bracket}", comma)
        return False

    def _instead(self, wanted: str) -> str:
        next_text = self.text[self.position : self.position + 12].split("\n")[0]
        return f"{wanted} is missing" + (f" before {next_text!r}" if next_text else " at the end")

    def _scalar(self, start: int, line: int) -> Node:
        """Read a JSON text, number or constant, or a placeholder of the script, as a node."""
        if self.text.startswith('"', start):
            match = _STRING.match(self.text, start)
            if match is None:
                raise self._error("a text in double quotes never ends on its line")
            self.position = match.end()
            try:
                text = json.loads(match[0])
            except ValueError as error:
                raise self._error(str(error).partition(":")[0].lower(), start) from None
            return Node("scalar", start, match.end(), line, text, text, '"')
        word = _WORD.match(self.text, start)
        if word is None:
            raise self._error(self._instead("a value"))
        self.position = word.end()
        unknown = f"{word[0]} is filled in when the script runs" if word[0][0] == "$" else ""
        value = None if unknown else self._parse_scalar(word[0], start)
        return Node("scalar", start, word.end(), line, word[0], value, "", unknown)

    def _parse_scalar(self, text: str, start: int) -> object:
        """Return the value of a JSON number or constant; raise LaunchError for other words."""
        if text in _CONSTANTS:
            return _CONSTANTS[text]
        if not _NUMBER.fullmatch(text) or len(text) > _LONGEST_NUMBER:
            raise self._error(f"{text[:40]!r} is not a value", start)
        return json.loads(text)


_STANDARD = "tag:yaml.org,2002:"
_PLAIN_TAGS = frozenset(
    _STANDARD + kind
    for kind in ("str", "int", "float", "bool", "null", "timestamp", "map", "seq", "merge")
)

_TOO_DEEP = "exceeded maximum nesting depth"


def yaml_documents(text: str, name: str) -> list[Node]:
    """Return the root nodes of a YAML text's non-empty documents; raise LaunchError if invalid."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    # The parser does not count a mark of the byte order.
    skipped = len(text) - len(text.removeprefix("\ufeff"))
    try:
        return _Composer(Source(text, name), skipped).documents(
            yaml.parse(text[skipped:], Loader=loader)
        )
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{name}:{mark.line + 1}" if mark is not None else name
        if error.problem == _TOO_DEEP:  # some releases of the parser count for themselves
            raise too_deep(where) from None
        problem = ", ".join(part for part in (error.context, error.problem) if part)
        raise LaunchError(f"{where}: this is not YAML: {problem}.") from None
    except yaml.reader.ReaderError as error:
        position = error.position if isinstance(error.position, int) else 0
        line = text.count("\n", 0, position) + 1
        raise LaunchError(
            f"{name}:{line}: a character that YAML does not allow ({error.reason})."
        ) from None
    except UnicodeEncodeError:
        raise LaunchError(f"{name}: characters that are not Unicode.") from None


class _Composer:
    def __init__(self, source: Source, skipped: int) -> None:
        """Start without nodes for a YAML text; imports PyYAML."""
        from yaml.constructor import SafeConstructor
        from yaml.resolver import Resolver

        self.source, self.name, self.skipped = source, source.name, skipped
        self.growth = NodeBudget(source.name)
        self.resolve: Callable[[type[ScalarNode], str, tuple[bool, bool]], str] = Resolver().resolve
        self.constructor = SafeConstructor()
        self.anchors: dict[str, Node] = {}
        self.open: list[tuple[Node, list[Node], dict[str, int]]] = []
        self.roots: list[Node] = []
        self.repeated: list[tuple[str, int, int]] = []

    def documents(self, events: Iterable[Event]) -> list[Node]:
        """Build a tree of nodes from parser events; return the roots that are not empty."""
        from yaml.events import (
            AliasEvent,
            CollectionEndEvent,
            CollectionStartEvent,
            DocumentStartEvent,
            MappingStartEvent,
            ScalarEvent,
        )

        for event in events:
            if isinstance(event, DocumentStartEvent):
                self.anchors = {}
            elif isinstance(event, ScalarEvent):
                self._add(self._scalar(event), event.anchor)
            elif isinstance(event, AliasEvent):
                self._add(self._alias(event), None)
            elif isinstance(event, CollectionStartEvent):
                is_mapping = isinstance(event, MappingStartEvent)
                node = self._node("mapping" if is_mapping else "list", event)
                node.style = "flow" if event.flow_style else ""
                node.unknown = self._tag(event.tag, node.line)
                self._add(node, event.anchor)
                self.open.append((node, [], {}))
            elif isinstance(event, CollectionEndEvent):
                node = self.open.pop()[0]
                node.size += sum(item.size for _, item in node.items)
                self.growth.refuse_large(node.size, node.line)
                if node.style or not node.items:
                    node.end = self._place(event)[1]
                else:
                    node.end = node.items[-1][1].end
        if self.roots:
            self.roots[0].repeated = self.repeated
        return [root for root in self.roots if root.kind != "scalar" or root.text]

    def _node(self, kind: str, event: Event) -> Node:
        """Return a new node at an event's position; raise LaunchError if there are too many."""
        start, end = self._place(event)
        # The parser ends lines at characters that no editor counts.
        line = self.source.line(start)
        self.growth.node(line, len(self.open))
        return Node(kind, start, end, line)

    def _place(self, event: Event) -> tuple[int, int]:
        """Return the start and end of a parser event as positions in the text."""
        start, end = (
            self.skipped + (0 if mark is None else mark.index)
            for mark in (event.start_mark, event.end_mark)
        )
        return start, end

    def _add(self, node: Node, anchor: str | None) -> None:
        """Add a node to the open mapping or list, or as a root; store its anchor."""
        if anchor is not None:
            self.anchors[anchor] = node
        if not self.open:
            self.roots.append(node)
            return
        parent, waiting, keys = self.open[-1]
        if parent.kind == "list":
            parent.items.append((None, node))
        elif not waiting:
            self._key(node)
            waiting.append(node)
        else:
            key = waiting.pop()
            if not key.is_merge:
                if key.text in keys:  # the last counts, as for PyYAML
                    self.repeated.append((key.text, keys[key.text], key.line))
                    parent.items = [
                        pair for pair in parent.items if pair[0] is None or pair[0].text != key.text
                    ]
                keys[key.text] = key.line
            parent.items.append((key, node))

    def _key(self, node: Node) -> None:
        """Check a mapping's key: raise LaunchError if it is no scalar."""
        if node.kind == "alias" and node.target is not None and node.target.kind == "scalar":
            node.kind, node.text = "scalar", node.target.text
        if node.kind != "scalar":
            raise LaunchError(f"{self.name}:{node.line}: a key that is not plain text is not read.")

    def _alias(self, event: AliasEvent) -> Node:
        """Return a node for ``*name``; raise LaunchError if undefined or inside its own anchor."""
        node = self._node("alias", event)
        node.target = self.anchors.get(event.anchor or "")
        node.size = node.target.size if node.target is not None else 1
        if node.target is None:
            raise LaunchError(
                f"{self.name}:{node.line}: *{event.anchor} is used, and &{event.anchor} is nowhere "
                "before it."
            )
        if any(node.target is parent for parent, _, _ in self.open):
            raise LaunchError(
                f"{self.name}:{node.line}: *{event.anchor} is inside &{event.anchor}: a value that "
                "contains itself is not read."
            )
        return node

    def _scalar(self, event: ScalarEvent) -> Node:
        """Return a scalar's node with its value by YAML's rules; None if a tag hides it."""
        from yaml.nodes import ScalarNode

        node = self._node("scalar", event)
        node.text, node.style = event.value, event.style or ""
        node.unknown = self._tag(event.tag, node.line)
        explicit = event.tag if event.tag not in (None, "!") else None
        tag = explicit or self.resolve(ScalarNode, event.value, event.implicit)
        node.is_merge = tag == _STANDARD + "merge"
        node.value = None if node.unknown else self._value(ScalarNode(tag, event.value), tag)
        return node

    def _value(self, node: ScalarNode, tag: str) -> object:
        """Convert a scalar's text to the type of its tag; return the text if that fails."""
        if tag in (_STANDARD + "str", _STANDARD + "merge"):
            return node.value
        construct = self.constructor.yaml_constructors.get(tag)
        try:
            return node.value if construct is None else construct(self.constructor, node)
        except (ValueError, KeyError, OverflowError, ArithmeticError, IndexError, AttributeError):
            return node.value

    def _tag(self, tag: str | None, line: int) -> str:
        """Return why a tag hides the value, else ""; raise LaunchError for tags of Python."""
        if tag is None or tag == "!" or tag in _PLAIN_TAGS:
            return ""
        shown = re.sub(f"^{re.escape(_STANDARD)}", "!!", tag)[:80]
        if shown.startswith(("!!python", "tag:yaml.org,2002:python")):
            raise LaunchError(
                f"{self.name}:{line}: {shown} is a Python object: planner does not create it. "
                "Write the value itself."
            )
        return f"{shown} is known only to the program that reads the file"


_PLAIN_KEY = re.compile(r"[^.\"]+")
_JSON_BEGINS = re.compile(r"\s*(?:\{\s*[\"}]|\[)")


@record(kw_only=True)
class Leaf:
    """A value, or a list of plain values.

    ``texts`` are as written, without quotes; None: unknown, with the reason in ``unknown``; no
    texts for an empty mapping or list. ``spans`` are the positions of each text with its quotes,
    ``full_span`` that of key and value. ``value`` is the typed value: a number, a truth value,
    text, None, or a list of these.
    """

    path: str
    texts: tuple[str | None, ...]
    value: object
    spans: tuple[Span | None, ...]
    line: int
    full_span: Span
    unknown: str = ""

    @property
    def as_option(self) -> ParsedOption:
        """Convert the leaf to an option whose name is the leaf's path."""
        return ParsedOption(
            option=self.path,
            texts=self.texts,
            line=self.line,
            spans=self.spans,
            full_span=self.full_span,
            unknown=self.unknown,
        )


@record(kw_only=True)
class EditPosition:
    """Position of a mapping, a list or a value, for edits; ``node`` is its content."""

    node: Node
    key: Node | None
    parent: str | None


@record(kw_only=True)
class Tree:
    """One document: its leaves by path, ``model.tensor_model_parallel_size``, ``datasets.0.path``.

    A list of plain values is a leaf, and each of its entries is one. Keys with dots are in
    double quotes within a path. ``data`` is the document as mappings and lists.
    """

    name: str
    text: str
    is_json: bool
    values: Mapping[str, Leaf]
    data: object
    root: Node = field(repr=False)
    places: Mapping[str, EditPosition] = field(repr=False)


def read_tree(text: str, name: str) -> Tree:
    """Return the only document of a YAML or JSON text; an empty text has no values.

    Raises LaunchError if it is neither, holds several documents, has a key twice, is longer than
    4 MB, deeper than 100 or of more than 200,000 values, or contains objects of Python.
    """
    trees = read_trees(text, name)
    if len(trees) > 1:
        raise LaunchError(f"{name} has {len(trees)} documents, but only one is read: keep one.")
    empty = Node("mapping", 0, 0, 1)
    return trees[0] if trees else _tree(empty, text, name, is_json=False)


_TEMPLATE = re.compile(
    r"(?<=: )( {0,20})\{\{([ .\w-]{2,})\}\}([^\s#{}]*)(?=[ \t]*(?:#[^\n]*)?$)", re.MULTILINE
)


def read_trees(text: str, name: str) -> tuple[Tree, ...]:
    """Return all documents of a YAML or JSON text, separated by ``---``; raise as `read_tree`."""
    refuse_unreadable(text, name)
    is_named_json = name.lower().endswith(".json")
    if is_named_json or _JSON_BEGINS.match(text):
        try:
            return (_tree(_Reader(text, name).document(), text, name, is_json=True),)
        except LaunchError:
            if is_named_json:
                raise
    # A value of a template, which tools fill: of the same length, so that places stay.
    filled = _TEMPLATE.sub(
        lambda match: f"{match[1]}${{{match[2].strip()}}}{match[3]}".ljust(len(match[0])), text
    )
    roots = yaml_documents(filled, name)
    return tuple(_tree(root, text, name, is_json=False) for root in roots)


def key_path(key: str) -> str:
    """Return a key as part of a path, in double quotes if it has dots or quotes or is empty.

    >>> key_path("nvidia.com/gpu")
    '"nvidia.com/gpu"'
    """
    return key if _PLAIN_KEY.fullmatch(key) else json.dumps(key, ensure_ascii=False)


def path_keys(path: str) -> tuple[str, ...]:
    """Split a path into its keys.

    >>> path_keys('resources."nvidia.com/gpu".0')
    ('resources', 'nvidia.com/gpu', '0')
    """
    parts = re.findall(r'(?:^|\.)("(?:[^"\\]|\\.)*"|[^.]*)', path)
    return tuple(json.loads(part) if part.startswith('"') else part for part in parts)


def _tree(root: Node, text: str, name: str, *, is_json: bool) -> Tree:
    """Return the document of a root node, with its leaves and editing positions by path."""
    reader = _Leaves(name)
    data = reader.read(root, "", EditPosition(node=root, key=None, parent=None))
    return Tree(
        name=name,
        text=text,
        is_json=is_json,
        values=reader.leaves,
        data=data,
        root=root,
        places=reader.places,
    )


class _Leaves:
    """Walks a document; an alias counts as often as it is used."""

    def __init__(self, name: str) -> None:
        self.growth = NodeBudget(name)
        self.leaves: dict[str, Leaf] = {}
        self.places: dict[str, EditPosition] = {}
        self.depth = 0

    def read(self, used: Node, path: str, position: EditPosition) -> object:
        """Return the data of a node as Python values, and store its leaves by path."""
        node = resolve_alias(used)
        self.growth.node(used.line, self.depth)
        self.places[path] = position
        if node.kind == "scalar" or node.unknown or not node.items:
            return self._leaf(used, node, path, position)
        self.depth += 1
        data = (
            self._list(used, node, path, position) if node.kind == "list" else self._map(node, path)
        )
        self.depth -= 1
        return data

    def _leaf(self, used: Node, node: Node, path: str, position: EditPosition) -> object:
        """Store a scalar, an empty container or an unknown value as a leaf; return the value."""
        empty: object = [] if node.kind == "list" else {}
        if not path and node.kind == "mapping" and not node.unknown:
            return {}
        value = None if node.unknown else node.value if node.kind == "scalar" else empty
        is_text = node.kind == "scalar" or node.unknown
        texts = (None if node.unknown else node.text,) if is_text else ()
        spans = (Span(used.start, used.end),) if is_text else ()
        line, full_span = _where(used, position)
        self.leaves[path] = Leaf(
            path=path, texts=texts, value=value, spans=spans, line=line, full_span=full_span,
            unknown=node.unknown,
        )  # fmt: skip
        return value

    def _list(self, used: Node, node: Node, path: str, position: EditPosition) -> list[object]:
        """Return a list's data; a list of scalars is also stored as one leaf."""
        entries = [item for _, item in node.items]
        data = []
        if all(resolve_alias(item).kind == "scalar" for item in entries):
            scalars = [resolve_alias(item) for item in entries]
            line, full_span = _where(used, position)
            self.leaves[path] = Leaf(
                path=path,
                texts=tuple(None if scalar.unknown else scalar.text for scalar in scalars),
                value=[scalar.value for scalar in scalars],
                spans=tuple(Span(item.start, item.end) for item in entries),
                line=line,
                full_span=full_span,
                unknown="; ".join(scalar.unknown for scalar in scalars if scalar.unknown)[:400],
            )
        for index, item in enumerate(entries):
            inner = _joined(path, str(index))
            data.append(self.read(item, inner, EditPosition(node=item, key=None, parent=path)))
        return data

    def _map(self, node: Node, path: str) -> dict[str, object]:
        """Return a mapping's data by key, merged keys included; stores the leaves in it."""
        data: dict[str, object] = {}
        for key, item in members(node, self.depth, self.growth):
            inner = _joined(path, key_path(key.text))
            self.growth.node(item.line, self.depth)
            if key.text not in data:
                position = EditPosition(node=item, key=key, parent=path)
                data[key.text] = self.read(item, inner, position)
        return data


def members(
    node: Node, depth: int = 0, growth: NodeBudget | None = None
) -> Iterator[tuple[Node, Node]]:
    """Yield keys and values of a mapping, then the keys and values merged by ``<<``.

    ``growth`` counts the merged values at a ``depth``, if they were not counted before.
    """
    merged: list[Node] = []
    for key, item in node.items:
        if key is not None and key.is_merge:
            target = resolve_alias(item)
            merged += [entry for _, entry in target.items] if target.kind == "list" else [item]
        elif key is not None:
            yield key, item
    for other in merged:
        target = resolve_alias(other)
        if target.kind == "mapping":
            if growth is not None:
                growth.node(other.line, depth + 1)
            yield from members(target, depth + 1, growth)


def resolve_alias(node: Node) -> Node:
    """The target of an alias; any other node itself."""
    return node.target if node.target is not None else node


def _joined(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _where(used: Node, position: EditPosition) -> tuple[int, Span]:
    if position.key is None:
        return used.line, Span(used.start, used.end)
    return position.key.line, Span(position.key.start, used.end)


def flattened(table: UncheckedTable, above: str = "") -> Iterator[tuple[str, object]]:
    """Yield the values of nested tables with their dotted names, in order.

    >>> dict(flattened({"a": {"b": 1, "c": {"d": 2}}, "e": 3}))
    {'a.b': 1, 'a.c.d': 2, 'e': 3}
    """
    for name, value in table.items():
        if isinstance(value, dict):
            yield from flattened(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", value


def plain_text(value: object) -> str:
    """A value as text of YAML and JSON: truth values in lower case."""
    return str(value).lower() if isinstance(value, bool) else str(value)
