"""YAML as nodes: the events of its parser, so that nothing is constructed and sizes are bounded."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from planner.documents.nodes import Growth, Node, refuse_twice, too_deep
from planner.errors import LaunchError
from planner.shell.syntax import Source

_STANDARD = "tag:yaml.org,2002:"
_PLAIN_TAGS = frozenset(
    _STANDARD + kind
    for kind in ("str", "int", "float", "bool", "null", "timestamp", "map", "seq", "merge")
)

_TOO_DEEP = "exceeded maximum nesting depth"


def yaml_documents(text: str, name: str) -> list[Node]:
    """The documents of a YAML text that hold something; raises `LaunchError`."""
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
        told = ", ".join(part for part in (error.context, error.problem) if part)
        raise LaunchError(f"{where}: this is not YAML: {told}.") from None
    except yaml.reader.ReaderError as error:
        position = error.position if isinstance(error.position, int) else 0
        line = text.count("\n", 0, position) + 1
        raise LaunchError(
            f"{name}:{line}: a character that YAML does not allow ({error.reason})."
        ) from None
    except UnicodeEncodeError:
        raise LaunchError(f"{name}: characters that are no Unicode text.") from None


class _Composer:
    def __init__(self, source: Source, skipped: int) -> None:
        from yaml.constructor import SafeConstructor
        from yaml.resolver import Resolver

        self.source, self.name, self.skipped = source, source.name, skipped
        self.growth = Growth(source.name)
        self.resolver: Any = Resolver()
        self.constructor = SafeConstructor()
        self.anchors: dict[str, Node] = {}
        self.open: list[tuple[Node, list[Node], dict[str, int]]] = []
        self.roots: list[Node] = []

    def documents(self, events: Iterable[Any]) -> list[Node]:
        for event in events:
            kind = type(event).__name__
            if kind == "DocumentStartEvent":
                self.anchors = {}
            elif kind == "ScalarEvent":
                self._add(self._scalar(event), event.anchor)
            elif kind == "AliasEvent":
                self._add(self._alias(event), None)
            elif kind in ("MappingStartEvent", "SequenceStartEvent"):
                node = self._node("mapping" if kind[0] == "M" else "list", event)
                node.style = "flow" if event.flow_style else ""
                node.unknown = self._tag(event.tag, node.line)
                self._add(node, event.anchor)
                self.open.append((node, [], {}))
            elif kind in ("MappingEndEvent", "SequenceEndEvent"):
                node = self.open.pop()[0]
                node.size += sum(item.size for _, item in node.items)
                self.growth.refuse_large(node.size, node.line)
                if node.style or not node.items:
                    node.end = event.end_mark.index + self.skipped
                else:
                    node.end = node.items[-1][1].end
        return [root for root in self.roots if root.kind != "scalar" or root.text]

    def _node(self, kind: str, event: Any) -> Node:
        start = event.start_mark.index + self.skipped
        # The parser ends lines at characters that no editor counts.
        line = self.source.line(start)
        self.growth.node(line, len(self.open))
        return Node(kind, start, event.end_mark.index + self.skipped, line)

    def _add(self, node: Node, anchor: str | None) -> None:
        if anchor is not None:
            self.anchors[anchor] = node
        if not self.open:
            self.roots.append(node)
            return
        parent, waiting, keys = self.open[-1]
        if parent.kind == "list":
            parent.items.append((None, node))
        elif not waiting:
            self._key(node, keys)
            waiting.append(node)
        else:
            parent.items.append((waiting.pop(), node))

    def _key(self, node: Node, keys: dict[str, int]) -> None:
        if node.kind == "alias" and node.target is not None and node.target.kind == "scalar":
            node.kind, node.text = "scalar", node.target.text
        if node.kind != "scalar":
            raise LaunchError(f"{self.name}:{node.line}: a key that is no plain text is not read.")
        if not node.is_merge:
            refuse_twice(keys, node.text, node.line, self.name)

    def _alias(self, event: Any) -> Node:
        node = self._node("alias", event)
        node.target = self.anchors.get(event.anchor)
        node.size = node.target.size if node.target is not None else 1
        if node.target is None:
            raise LaunchError(
                f"{self.name}:{node.line}: *{event.anchor} is used, and &{event.anchor} is nowhere "
                "before it."
            )
        if any(node.target is parent for parent, _, _ in self.open):
            raise LaunchError(
                f"{self.name}:{node.line}: *{event.anchor} stands within &{event.anchor}: a value "
                "that holds itself is not read."
            )
        return node

    def _scalar(self, event: Any) -> Node:
        from yaml.nodes import ScalarNode

        node = self._node("scalar", event)
        node.text, node.style = event.value, event.style or ""
        node.unknown = self._tag(event.tag, node.line)
        explicit = event.tag if event.tag not in (None, "!") else None
        tag = explicit or self.resolver.resolve(ScalarNode, event.value, event.implicit)
        node.is_merge = tag == _STANDARD + "merge"
        node.value = None if node.unknown else self._value(ScalarNode(tag, event.value), tag)
        return node

    def _value(self, node: Any, tag: str) -> Any:
        if tag in (_STANDARD + "str", _STANDARD + "merge"):
            return node.value
        construct = self.constructor.yaml_constructors.get(tag)
        try:
            return node.value if construct is None else construct(self.constructor, node)
        except (ValueError, KeyError, OverflowError, ArithmeticError, IndexError, AttributeError):
            return node.value

    def _tag(self, tag: str | None, line: int) -> str:
        """Why the tag hides the value; raises `LaunchError` for those that ask for objects."""
        if tag is None or tag == "!" or tag in _PLAIN_TAGS:
            return ""
        shown = re.sub(f"^{re.escape(_STANDARD)}", "!!", tag)[:80]
        if shown.startswith(("!!python", "tag:yaml.org,2002:python")):
            raise LaunchError(
                f"{self.name}:{line}: {shown} asks for an object of Python, which is never made. "
                "Write the value itself."
            )
        return f"{shown} is known only to the program that reads the file"
