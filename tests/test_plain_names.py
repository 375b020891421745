"""Names of the package are words of the field: the number of those that are not only falls."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from syntax import nodes

MAX_VAGUE_NAMES = 0
"""Lower it where a vague name goes; a new one needs a noun or a verb and its object."""
VAGUE = frozenset(
    [
        "said",
        "saying",
        "told",
        "tell",
        "tells",
        "telling",
        "untold",
        "asked",
        "asks",
        "given",
        "gives",
        "meant",
        "known",
        "own",
        "beside",
        "whose",
        "alike",
        "apart",
        "alone",
        "everyone",
        "nobody",
        "goes",
        "stands",
        "taken",
        "else",
    ]
)
VAGUE_ALONE = frozenset(
    [
        "one",
        "found",
        "kept",
        "plain",
        "whole",
        "mine",
        "ours",
        "these",
        "those",
        "it",
        "what",
        "who",
        "such",
    ]
)


def is_vague(name: str) -> bool:
    """Whether a name says nothing about its value, or holds a word of speech."""
    words = {word for word in name.lower().split("_") if word}
    return bool(words & VAGUE) or (len(words) == 1 and words <= VAGUE_ALONE)


def names_of(tree: list[ast.AST]) -> Iterator[tuple[int, str]]:
    """Line and name of functions, classes, arguments and assigned variables."""
    for node in tree:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.lineno, node.name
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id


def test_names_are_nouns_and_verbs_of_the_field() -> None:
    vague = [
        f"{path}:{line} {name}"
        for path, tree in nodes().items()
        for line, name in names_of([*tree])
        if is_vague(name)
    ]
    assert len(vague) <= MAX_VAGUE_NAMES, vague


def test_vague_names_are_seen() -> None:
    tree = [*ast.walk(ast.parse("def what_is_told(one):\n    found = one_row = one\n"))]
    assert [name for _, name in names_of(tree) if is_vague(name)] == [
        "what_is_told",
        "one",
        "found",
    ]
