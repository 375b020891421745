"""What the fields of a spec mean, from the texts that stand under them in their class."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from planner.specs.checked import field_types


def field_words(spec: Any) -> dict[str, str]:
    """Dotted name of each field of a spec, and of the specs inside it -> what it means."""
    return dict(_words(spec, ""))


def _words(spec: Any, prefix: str) -> Iterator[tuple[str, str]]:
    texts = _texts(spec)
    for name, kind in field_types(spec).items():
        if name in texts:
            yield prefix + name, texts[name]
        for part in (kind, *getattr(kind, "__args__", ())):
            if field_types(part):
                yield from _words(part, f"{prefix}{name}.")


def _texts(spec: Any) -> Mapping[str, str]:
    # Reading the source costs milliseconds, and only who asks for the words pays them.
    tree = ast.parse(inspect.getsource(sys.modules[spec.__module__]))
    body = next(
        node.body
        for node in tree.body
        if isinstance(node, ast.ClassDef) and node.name == spec.__name__
    )
    texts = {}
    for field, below in pairwise(body):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            match below:
                case ast.Expr(value=ast.Constant(value=str(text))):
                    texts[field.target.id] = inspect.cleandoc(text).replace("\n", " ")
    return texts
