"""A YAML or JSON document as nodes that know where they stand."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from planner.errors import LaunchError

MOST_NODES = 200_000
DEEPEST = 100


@dataclass(slots=True)
class Node:
    """A value: ``kind`` is scalar, mapping, list or alias (of ``target``).

    ``start`` to ``end`` is where it stands, with quotes and brackets. ``text`` of a scalar is
    without quotes, ``value`` what it means. ``unknown`` says why that is not known. ``style``
    is ``flow`` for braces and brackets, the quote of a scalar, else empty. ``size`` is how many
    values it is with its aliases followed.
    """

    kind: str
    start: int
    end: int
    line: int
    text: str = ""
    value: Any = None
    style: str = ""
    unknown: str = ""
    is_merge: bool = False
    size: int = 1
    items: list[tuple[Node | None, Node]] = field(default_factory=list)
    target: Node | None = None


def too_deep(where: str) -> LaunchError:
    """What is said of a document whose values are in too many others."""
    return LaunchError(f"{where}: nested more than {DEEPEST} deep: that is not read.")


class Growth:
    """Counts the nodes of a document and refuses too many."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.nodes = 0

    def node(self, line: int, depth: int) -> None:
        """One node more, at a depth. Raises `LaunchError`."""
        self.nodes += 1
        self.refuse_large(self.nodes, line)
        if depth > DEEPEST:
            raise too_deep(f"{self.name}:{line}")

    def refuse_large(self, size: int, line: int) -> None:
        """Raises `LaunchError` if a value has too many in it."""
        if size > MOST_NODES:
            raise LaunchError(
                f"{self.name}:{line}: it becomes more than {MOST_NODES:,} values, aliases counted "
                "as often as they are used: that is not read."
            )


def refuse_twice(keys: dict[str, int], key: str, line: int, name: str) -> None:
    """Remembers a key of a mapping. Raises `LaunchError` if it is there already."""
    if key in keys:
        raise LaunchError(
            f"{name}:{line}: {key!r} is given twice, first in line {keys[key]}: keep one."
        )
    keys[key] = line
