"""JSON as nodes."""

from __future__ import annotations

import json
import re
from typing import Any

from planner.documents.nodes import Growth, Node, refuse_twice
from planner.errors import LaunchError

_BLANKS = re.compile(r"[ \t\r\n]*")
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"', re.S)
_WORD = re.compile(r"[^\s,:\[\]{}\"]+")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_CONSTANTS = {
    "true": True, "false": False, "null": None,
    "NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf"),
}  # fmt: skip
_LONGEST_NUMBER = 400


def json_document(text: str, name: str) -> Node:
    """The value of a JSON text; raises `LaunchError` with the line of a fault."""
    return _Reader(text, name).document()


class _Reader:
    def __init__(self, text: str, name: str) -> None:
        self.text, self.name = text, name
        self.position = len(text) - len(text.removeprefix("\ufeff"))
        self.growth = Growth(name)
        self._counted = (0, 1)

    def document(self) -> Node:
        self._blanks()
        root = self._value(0)
        self._blanks()
        if self.position < len(self.text):
            raise self._fault("there is more after the end of the value")
        return root

    def _line(self, position: int) -> int:
        done, line = self._counted
        if position < done:
            return self.text.count("\n", 0, position) + 1
        line += self.text.count("\n", done, position)
        self._counted = position, line
        return line

    def _fault(self, what: str, position: int | None = None) -> LaunchError:
        line = self._line(self.position if position is None else position)
        return LaunchError(f"{self.name}:{line}: this is not JSON: {what}.")

    def _blanks(self) -> None:
        found = _BLANKS.match(self.text, self.position)
        self.position = found.end() if found else self.position

    def _takes(self, char: str) -> bool:
        if self.text.startswith(char, self.position):
            self.position += 1
            return True
        return False

    def _value(self, depth: int) -> Node:
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
        keys: dict[str, int] = {}
        self._blanks()
        if self._takes("}"):
            return
        while True:
            self._blanks()
            if not self.text.startswith('"', self.position):
                raise self._fault(self._instead("a key in double quotes"))
            key = self._scalar(self.position, self._line(self.position))
            refuse_twice(keys, key.text, key.line, self.name)
            self._blanks()
            if not self._takes(":"):
                raise self._fault(self._instead(f"a colon after {json.dumps(key.text)}"))
            self._blanks()
            node.items.append((key, self._value(depth + 1)))
            if self._ends("}"):
                return

    def _entries(self, node: Node, depth: int) -> None:
        self._blanks()
        if self._takes("]"):
            return
        while True:
            self._blanks()
            node.items.append((None, self._value(depth + 1)))
            if self._ends("]"):
                return

    def _ends(self, bracket: str) -> bool:
        self._blanks()
        if self._takes(bracket):
            return True
        comma = self.position
        if not self._takes(","):
            raise self._fault(self._instead(f"a comma or {bracket}"))
        self._blanks()
        if self.text.startswith(bracket, self.position):
            raise self._fault(f"a comma before {bracket}", comma)
        return False

    def _instead(self, wanted: str) -> str:
        found = self.text[self.position : self.position + 12].split("\n")[0]
        return f"{wanted} is missing" + (f" before {found!r}" if found else " at the end")

    def _scalar(self, start: int, line: int) -> Node:
        if self.text.startswith('"', start):
            found = _STRING.match(self.text, start)
            if found is None:
                raise self._fault("a text in double quotes never ends on its line")
            self.position = found.end()
            try:
                text = json.loads(found[0])
            except ValueError as error:
                raise self._fault(str(error).partition(":")[0].lower(), start) from None
            return Node("scalar", start, found.end(), line, text, text, '"')
        word = _WORD.match(self.text, start)
        if word is None:
            raise self._fault(self._instead("a value"))
        self.position = word.end()
        unknown = f"{word[0]} is filled in when the script runs" if word[0][0] == "$" else ""
        value = None if unknown else self._plain(word[0], start)
        return Node("scalar", start, word.end(), line, word[0], value, "", unknown)

    def _plain(self, text: str, start: int) -> Any:
        if text in _CONSTANTS:
            return _CONSTANTS[text]
        if not _NUMBER.fullmatch(text) or len(text) > _LONGEST_NUMBER:
            raise self._fault(f"{text[:40]!r} is no value", start)
        return json.loads(text)
