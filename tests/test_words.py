"""What is printed and documented is in the words of the field, the same everywhere."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from rows import each
from syntax import nodes

ROOT = Path(__file__).parents[1]
# What is said of it instead.
ODD = {
    r"do(es)? not tell (it|them|apart)": "tied with #1 within x1.17",
    r"9 of 10 (published )?runs|nine of ten": "90 % interval",
    r"\b(fits|meets|keeps) (\w+ )*with (more|less) than": "fits, > 99 % likely",
    r"\bno room here\b": "columns not shown",
    r"\bpredicted anew\b|\banew\b": "again",
    r"\bis absurd\b": "out of range",
    r"\btext alone (does|tells)": "the file alone does not say",
    r"\bwithout an option\b": "the default",
    r"\bwhere not given\b": "default: ...",
    r"\bon what terms GPUs\b": "contract",
}


def texts(module: Sequence[ast.AST]) -> Iterator[tuple[int, str]]:
    """Line and text of every string but documentation among the nodes of a module."""
    holders = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    bodies = [node.body for node in module if isinstance(node, holders)]
    told = {id(one.value) for body in bodies for one in body if isinstance(one, ast.Expr)}
    for node in module:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in told:
            yield node.lineno, node.value


@cache
def strings() -> list[tuple[str, str]]:
    """Every string of the package but documentation, with its place."""
    return [
        (f"{path}:{line}", text) for path, module in nodes().items() for line, text in texts(module)
    ]


@each("odd", ODD)
def test_no_string_says_it_oddly(odd: str) -> None:
    known = re.compile(odd, re.IGNORECASE)
    found = [f"{place}: {text[:80]}" for place, text in strings() if known.search(text)]
    terms = (ROOT / "planner" / "question" / "terms.csv").read_text(encoding="utf-8")
    found += [line[:80] for line in terms.splitlines() if re.search(odd, line, re.IGNORECASE)]
    assert not found, f"say {ODD[odd]!r}"


def test_an_odd_string_is_found() -> None:
    source = '"""9 of 10 runs."""\nx = f"{n}: 9 of 10 runs lie there"\n'
    (found,) = [
        text for _, text in texts([*ast.walk(ast.parse(source))]) if re.search("9 of 10 runs", text)
    ]
    assert found == ": 9 of 10 runs lie there"
