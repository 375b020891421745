"""The syntax trees of the package's modules, made once in a process."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]


@cache
def trees() -> dict[str, ast.Module]:
    """The tree of each module by its path from the root of the repository."""
    return {
        str(path.relative_to(ROOT)): ast.parse(path.read_text(encoding="utf-8"))
        for path in sorted(ROOT.glob("planner/**/*.py"))
    }


@cache
def nodes() -> dict[str, list[ast.AST]]:
    """All nodes of each of these trees, the root first."""
    return {path: list(ast.walk(tree)) for path, tree in trees().items()}
