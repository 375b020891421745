"""YAML and JSON files as values by dotted path, each with the place where it stands."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Any

from planner.base.records import record
from planner.errors import LaunchError
from planner.launch.reading.json_nodes import json_document
from planner.launch.reading.nodes import Growth, Node
from planner.launch.reading.shell import refuse_unreadable
from planner.launch.reading.yaml_nodes import yaml_documents
from planner.launch.text import Given, Span

_PLAIN_KEY = re.compile(r"[^.\"]+")
_JSON_BEGINS = re.compile(r"\s*(?:\{\s*[\"}]|\[)")


@record(kw_only=True)
class Leaf:
    """A value, or a list of plain values.

    ``texts`` are as written, without quotes; None where it is not known, which ``unknown``
    explains; none at all for an empty mapping or list. ``spans`` are those of each text with
    its quotes; ``whole`` is that of key and value. ``value`` is what the file means: a number,
    a truth value, text, None, or a list of these.
    """

    path: str
    texts: tuple[str | None, ...]
    value: Any
    spans: tuple[Span | None, ...]
    line: int
    whole: Span
    unknown: str = ""

    @property
    def given(self) -> Given:
        """The leaf as an option of a file."""
        return Given(
            option=self.path,
            texts=self.texts,
            line=self.line,
            spans=self.spans,
            whole=self.whole,
            unknown=self.unknown,
        )


@record(kw_only=True)
class Place:
    """Where a mapping, a list or a value stands, for edits; ``node`` is its content."""

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
    data: Any
    root: Node = field(repr=False)
    places: Mapping[str, Place] = field(repr=False)


def read_tree(text: str, name: str) -> Tree:
    """The only document of a YAML or JSON text; an empty text has no values.

    Raises
    ------
    LaunchError
        It is neither, holds several documents, gives a key twice, is longer than 4 MB, deeper
        than 100 or of more than 200,000 values, or asks for objects of Python.
    """
    trees = read_trees(text, name)
    if len(trees) > 1:
        raise LaunchError(f"{name} holds {len(trees)} documents where one is read: give one.")
    empty = Node("mapping", 0, 0, 1)
    return trees[0] if trees else _tree(empty, text, name, is_json=False)


def read_trees(text: str, name: str) -> tuple[Tree, ...]:
    """Every document of a YAML or JSON text, which ``---`` separates; raises as `read_tree`."""
    refuse_unreadable(text, name)
    is_named_json = name.lower().endswith(".json")
    if is_named_json or _JSON_BEGINS.match(text):
        try:
            return (_tree(json_document(text, name), text, name, is_json=True),)
        except LaunchError:
            if is_named_json:
                raise
    roots = yaml_documents(text, name)
    return tuple(_tree(root, text, name, is_json=False) for root in roots)


def key_path(key: str) -> str:
    """A key as it stands in a path: in double quotes if it has dots or quotes, or is empty.

    >>> key_path("nvidia.com/gpu")
    '"nvidia.com/gpu"'
    """
    return key if _PLAIN_KEY.fullmatch(key) else json.dumps(key, ensure_ascii=False)


def path_keys(path: str) -> tuple[str, ...]:
    """The keys of a path.

    >>> path_keys('resources."nvidia.com/gpu".0')
    ('resources', 'nvidia.com/gpu', '0')
    """
    parts = re.findall(r'(?:^|\.)("(?:[^"\\]|\\.)*"|[^.]*)', path)
    return tuple(json.loads(part) if part.startswith('"') else part for part in parts)


def _tree(root: Node, text: str, name: str, *, is_json: bool) -> Tree:
    reader = _Leaves(name)
    data = reader.read(root, "", Place(node=root, key=None, parent=None))
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
        self.growth = Growth(name)
        self.leaves: dict[str, Leaf] = {}
        self.places: dict[str, Place] = {}
        self.depth = 0

    def read(self, used: Node, path: str, place: Place) -> Any:
        """The data of a node, whose leaves are kept."""
        node = followed(used)
        self.growth.node(used.line, self.depth)
        self.places[path] = place
        if node.kind == "scalar" or node.unknown or not node.items:
            return self._leaf(used, node, path, place)
        self.depth += 1
        data = self._list(used, node, path, place) if node.kind == "list" else self._map(node, path)
        self.depth -= 1
        return data

    def _leaf(self, used: Node, node: Node, path: str, place: Place) -> Any:
        empty: Any = [] if node.kind == "list" else {}
        if not path and node.kind == "mapping" and not node.unknown:
            return {}
        value = None if node.unknown else node.value if node.kind == "scalar" else empty
        is_text = node.kind == "scalar" or node.unknown
        texts = (None if node.unknown else node.text,) if is_text else ()
        spans = (Span(used.start, used.end),) if is_text else ()
        line, whole = _where(used, place)
        self.leaves[path] = Leaf(
            path=path, texts=texts, value=value, spans=spans, line=line, whole=whole,
            unknown=node.unknown,
        )  # fmt: skip
        return value

    def _list(self, used: Node, node: Node, path: str, place: Place) -> list[Any]:
        entries = [item for _, item in node.items]
        data = []
        if all(followed(item).kind == "scalar" for item in entries):
            scalars = [followed(item) for item in entries]
            line, whole = _where(used, place)
            self.leaves[path] = Leaf(
                path=path,
                texts=tuple(None if one.unknown else one.text for one in scalars),
                value=[one.value for one in scalars],
                spans=tuple(Span(item.start, item.end) for item in entries),
                line=line,
                whole=whole,
                unknown="; ".join(one.unknown for one in scalars if one.unknown)[:400],
            )
        for index, item in enumerate(entries):
            inner = _joined(path, str(index))
            data.append(self.read(item, inner, Place(node=item, key=None, parent=path)))
        return data

    def _map(self, node: Node, path: str) -> dict[str, Any]:
        data: dict[str, Any] = {}
        for key, item in members(node, self.depth, self.growth):
            inner = _joined(path, key_path(key.text))
            self.growth.node(item.line, self.depth)
            if key.text not in data:
                place = Place(node=item, key=key, parent=path)
                data[key.text] = self.read(item, inner, place)
        return data


def members(
    node: Node, depth: int = 0, growth: Growth | None = None
) -> Iterator[tuple[Node, Node]]:
    """Keys and values of a mapping, those merged in by ``<<`` after its own.

    ``growth`` counts what is merged in at a ``depth``, where that was not counted before.
    """
    merged: list[Node] = []
    for key, item in node.items:
        if key is not None and key.is_merge:
            target = followed(item)
            merged += [one for _, one in target.items] if target.kind == "list" else [item]
        elif key is not None:
            yield key, item
    for other in merged:
        target = followed(other)
        if target.kind == "mapping":
            if growth is not None:
                growth.node(other.line, depth + 1)
            yield from members(target, depth + 1, growth)


def followed(node: Node) -> Node:
    """What an alias stands for; a node that is none is itself."""
    return node.target if node.target is not None else node


def _joined(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _where(used: Node, place: Place) -> tuple[int, Span]:
    if place.key is None:
        return used.line, Span(used.start, used.end)
    return place.key.line, Span(place.key.start, used.end)
