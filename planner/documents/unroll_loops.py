"""Unroll loops of a program over its own tables."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Mapping, Sequence
from copy import deepcopy

_MOST_ROUNDS = 64


def unroll_loops(body: Sequence[ast.stmt]) -> list[ast.stmt]:
    """Return statements with loops ``for key, value in TABLE.items()`` written out.

    ``TABLE`` is a mapping that the module assigns once, with texts as keys.

    >>> program = "t = {'a': 1}\\nfor k, v in t.items():\\n    f(k, v)"
    >>> ast.unparse(unroll_loops(ast.parse(program).body)[1])
    "f('a', 1)"
    """
    assigned = [
        (target.id, node.value)
        for node in body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    ]
    number = Counter(name for name, _ in assigned)
    tables = {name: _items(value) for name, value in assigned if number[name] == 1}
    loops = _Loops({name: items for name, items in tables.items() if items})
    return loops.visit(ast.Module(body=[*body], type_ignores=[])).body  # type: ignore[no-any-return]


def _items(value: ast.expr) -> Mapping[str, ast.expr]:
    """Return a mapping's values by text key, also of mappings joined by ``|``; else {}."""
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.BitOr):
        left, right = _items(value.left), _items(value.right)
        return {**left, **right} if left and right else {}
    if not isinstance(value, ast.Dict) or len(value.keys) > _MOST_ROUNDS:
        return {}
    constants = (key.value for key in value.keys if isinstance(key, ast.Constant))
    keys = [key for key in constants if isinstance(key, str)]
    return dict(zip(keys, value.values, strict=True)) if len(keys) == len(value.values) else {}


class _Loops(ast.NodeTransformer):
    def __init__(self, tables: Mapping[str, Mapping[str, ast.expr]]) -> None:
        self.tables = tables

    def visit_For(self, node: ast.For) -> ast.AST | list[ast.stmt]:
        """Replace a loop over a known table's items by one copy of its body per item."""
        self.generic_visit(node)
        function = node.iter.func if isinstance(node.iter, ast.Call) else None
        if not (isinstance(function, ast.Attribute) and function.attr == "items"):
            return node
        items = self.tables.get(function.value.id) if isinstance(function.value, ast.Name) else None
        targets = node.target.elts if isinstance(node.target, ast.Tuple) else []
        names = [element.id for element in targets if isinstance(element, ast.Name)]
        if not items or len(names) != 2:
            return node
        return [
            _Named(dict(zip(names, (ast.Constant(value=key), value), strict=True))).visit(statement)
            for key, value in items.items()
            for statement in deepcopy(node.body)
        ]


class _Named(ast.NodeTransformer):
    def __init__(self, values: Mapping[str, ast.expr]) -> None:
        self.values = values

    def visit_Name(self, node: ast.Name) -> ast.AST:
        value = self.values.get(node.id) if isinstance(node.ctx, ast.Load) else None
        return node if value is None else ast.copy_location(deepcopy(value), node)
