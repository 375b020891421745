"""What the design promises about the code itself."""

from __future__ import annotations

import ast
import statistics
from pathlib import Path

import pytest
from syntax import nodes, trees

from planner.base.enums import (
    Recompute,
)
from planner.question.terms import glossary, term_of_column

ROOT = Path(__file__).parents[1]
CODE = sorted(path for path in (ROOT / "planner").rglob("*.py"))


def test_no_file_is_longer_than_700_lines() -> None:
    own = [*CODE, *(ROOT / "tests").rglob("*.py"), *(ROOT / "benchmarks").rglob("*.py")]
    long = {str(path): n for path in own if (n := len(path.read_text().splitlines())) > 700}
    assert long == {}


def test_functions_are_short() -> None:
    lengths = [
        (node.end_lineno or 0) - node.lineno + 1 - _docstring_lines(node)
        for of_module in nodes().values()
        for node in of_module
        if isinstance(node, ast.FunctionDef)
    ]
    assert statistics.median(lengths) <= 12
    assert statistics.quantiles(lengths, n=20)[-1] <= 45


def _docstring_lines(node: ast.FunctionDef) -> int:
    docstring = ast.get_docstring(node, clean=False)
    return len(docstring.splitlines()) if docstring else 0


def test_public_definitions_have_docstrings() -> None:
    assert [path for path, tree in trees().items() if not ast.get_docstring(tree)] == []
    bare = [
        f"{path}:{node.lineno} {node.name}"
        for path, tree in trees().items()
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
        and not node.name.startswith("_")
        and not ast.get_docstring(node)
    ]
    assert bare == []


def test_files_do_not_import_each_other_in_a_circle() -> None:
    assert _circles(_imports()) == []


def _imports() -> dict[str, set[str]]:
    """The modules that each module imports, in functions and under TYPE_CHECKING too."""
    modules = {path.removesuffix(".py").removesuffix("/__init__").replace("/", "."): path
               for path in trees()}  # fmt: skip
    imports: dict[str, set[str]] = {}
    for module, path in modules.items():
        names = set()
        for node in nodes()[path]:
            if isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                whole = {f"{node.module}.{alias.name}" for alias in node.names}
                names |= whole & modules.keys() or {str(node.module)}
        imports[module] = (names & modules.keys()) - {module}
    return imports


def _circles(imports: dict[str, set[str]]) -> list[list[str]]:
    """Groups of modules that import each other, directly or by way of others."""
    reached = {module: set(imported) for module, imported in imports.items()}
    for middle in reached:
        for onward in reached.values():
            if middle in onward:
                onward |= reached[middle]
    groups = {
        tuple(sorted({module, *(other for other in onward if module in reached[other])}))
        for module, onward in reached.items()
    }
    return sorted([*group] for group in groups if len(group) > 1)


def test_every_result_column_is_in_the_glossary(one_estimate: object) -> None:
    table = one_estimate.candidates.columns()  # type: ignore[attr-defined]
    assert [name for name in table if term_of_column(name) is None] == []


def test_the_glossary_has_no_term_twice_and_no_gap() -> None:
    lines = (ROOT / "planner" / "question" / "terms.csv").read_text(encoding="utf-8").splitlines()
    assert len(lines) - 1 == len(glossary())
    assert all(term.unit and term.description for term in glossary().values())


@pytest.fixture(scope="module")
def one_estimate() -> object:
    import planner

    return planner.estimate(
        model="llama-7b", num_gpus=8, settings={"recompute": Recompute.FULL.word}
    )
