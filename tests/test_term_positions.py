"""No code takes a term from a group by its position: a new term would change what it means."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest
from syntax import nodes, trees

_LOOKUPS = ("terms_about", "columns_about")
_PAIRS = ("zip", "enumerate", "itemgetter")


def positional_uses(module: ast.Module, imported: frozenset[str] = frozenset()) -> Iterator[int]:
    """Lines that take a term by its position in a group.

    ``imported`` are the names of constants of other modules that hold a group.
    """
    names = imported | held_groups(module)
    functions = [node for node in ast.walk(module) if isinstance(node, ast.FunctionDef)]
    for function in functions:
        local = held_groups(function)
        yield from (line for node in ast.walk(function) for line in _positions(node, local))
    yield from (line for node in ast.walk(module) for line in _positions(node, names))


def held_groups(scope: ast.Module | ast.FunctionDef) -> frozenset[str]:
    """Names that the statements of a scope assign a group to, also as a part of a tuple."""
    assigned = (node for node in _statements(scope) if isinstance(node, ast.Assign | ast.AnnAssign))
    return frozenset(
        target.id
        for node in assigned
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name) and node.value and _holds(node.value, frozenset())
    )


def _statements(scope: ast.Module | ast.FunctionDef) -> Iterator[ast.AST]:
    """The nodes of a scope without those of functions in it."""
    waiting: list[ast.AST] = [*scope.body]
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, ast.FunctionDef):
            waiting.extend(ast.iter_child_nodes(node))


def _holds(value: ast.AST, names: frozenset[str]) -> bool:
    """Whether the elements of a value are the terms of a group in their order."""
    if isinstance(value, ast.Starred):
        return _holds(value.value, names)
    if isinstance(value, ast.Tuple | ast.List):
        return any(isinstance(item, ast.Starred) and _holds(item, names) for item in value.elts)
    if isinstance(value, ast.ListComp | ast.GeneratorExp):
        return _holds(value.generators[0].iter, names)
    if isinstance(value, ast.Name):
        return value.id in names
    called = value.func if isinstance(value, ast.Call) else None
    if isinstance(called, ast.Name) and called.id in ("tuple", "list", "map", "iter"):
        return any(_holds(argument, names) for argument in value.args)
    return isinstance(called, ast.Name) and called.id in _LOOKUPS


def _is_group(value: ast.AST, names: frozenset[str]) -> bool:
    return isinstance(value, ast.Name | ast.Call) and _holds(value, names)


def _positions(node: ast.AST, names: frozenset[str]) -> Iterator[int]:
    if isinstance(node, ast.Subscript) and _holds(node.value, names):
        yield node.lineno
    if isinstance(node, ast.Assign) and _holds(node.value, names):
        yield from (node.lineno for target in node.targets if not isinstance(target, ast.Name))
    if isinstance(node, ast.Call):
        is_pairs = isinstance(node.func, ast.Name) and node.func.id in _PAIRS
        for argument in node.args:
            is_unpacked = isinstance(argument, ast.Starred) and _is_group(argument.value, names)
            if is_unpacked or (is_pairs and _holds(argument, names)):
                yield node.lineno


@pytest.mark.slow
def test_no_term_is_taken_from_a_group_by_its_position() -> None:
    looking = {
        path
        for path, module_nodes in nodes().items()
        if any(isinstance(node, ast.Name) and node.id in _LOOKUPS for node in module_nodes)
    }
    held = {
        path.removesuffix(".py").replace("/", "."): held_groups(trees()[path]) for path in looking
    }
    assert held
    found = []
    for path, module in trees().items():
        imports = (node for node in nodes()[path] if isinstance(node, ast.ImportFrom))
        imported = frozenset(
            alias.asname or alias.name
            for node in imports
            for alias in node.names
            if alias.name in held.get(node.module or "", ())
        )
        if path in looking or imported:
            found += [f"{path}:{line}" for line in positional_uses(module, imported)]
    assert found == [], "name the term: import its constant from planner.question.names"


@pytest.mark.parametrize(
    "code",
    [
        'x = terms_about("sized_by")[2]',
        'x = terms_about("message")[:1]',
        'LOAD, STARTUP, _, SERVICES = terms_about("sized_by")',
        '_MODEL, *_GPUS = terms_about("first")',
        'SPLITS = terms_about("degree", "train")\nx = SPLITS[:3]',
        'SPLITS = terms_about("degree")\ndef f():\n    return [v[n] for n in SPLITS[:3]]',
        'def f():\n    names = columns_about("cache")\n    return names[0]',
        '_ALL = ("num_gpus", *terms_about("placed"))\nx = _ALL[1:]',
        'SPLITS = terms_about("degree")\ntp, cp, pp = (count(v[n]) for n in SPLITS)',
        'x = dict(zip(terms_about("reached"), values, strict=True))',
        'NAMES = terms_about("reached")\nx = dict(zip(NAMES, values, strict=True))',
        'f(*terms_about("hour"))',
    ],
)
def test_a_use_by_position_is_found(code: str) -> None:
    assert [*positional_uses(ast.parse(code))]


def test_an_imported_constant_that_holds_a_group_is_found() -> None:
    module = ast.parse("from planner.launch.read.import_launch import SPLITS\nx = SPLITS[:3]")
    assert [*positional_uses(module, frozenset({"SPLITS"}))]


@pytest.mark.parametrize(
    "code",
    [
        'x = {name: row[name] for name in terms_about("purchase")}',
        'x = {*terms_about("traffic")}',
        'x = ("source", *terms_about("error_key"))',
        'def f():\n    n = terms_about("rate")\n\ndef g():\n    n = [1]\n    return n[0]',
        'x = np.ix_(*(values[name] for name in terms_about("rate")))',
    ],
)
def test_a_use_of_the_whole_group_is_allowed(code: str) -> None:
    assert not [*positional_uses(ast.parse(code))]
