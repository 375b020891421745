"""Expressions in the cells of option tables: products, sums, conditions and defaults.

These parts of Python's syntax are allowed; a table with others is refused when it
is loaded:

``8``, ``0.5``, ``'full'``, ``true``, ``false``, ``missing``
    constants; ``missing`` is a value that nothing sets
``tensor_parallel``
    a parameter or quantity: of the file that is read, or of the plan that is written
``model.num_experts``, ``model.attentions.head_dim``
    an attribute of the model; in writers also of its draft model, its profile, its GPU
    or its cluster. Of a list it has the values of all its parts: comparisons, ``and`` and ``or``
    hold for each, where a missing part is false
``+ - * / // %``, ``== != < <= > >= in``, ``and or not``
    ``width or 4 * hidden_size`` is a default; arithmetic with a missing value or a text, or a
    division by zero, is missing; such a value is neither less nor greater than any
``'full' if recomputes else 'none'``, ``('a', 'b')``
    a condition, and a list after ``in``
``any only sum max min round ceil_div nearest int float lower replace concat ends starts contains
last words parts``
    functions of values: ``any`` and ``sum`` of a list, ``only`` its value if it has just one;
    ``max``, ``min`` and ``sum`` skip what is no number; ``nearest(a, b)`` is the positive multiple
    of ``b`` nearest to ``a``; ``replace(text, '+', ' ')`` has one text for another;
    ``concat(a, ' x ', b)`` is one text, missing if a part is; ``ends(text, 'a', 'b')`` is true for
    a text that ends with one of the words, ``starts`` and ``contains`` likewise;
    ``last('a.b.C')`` is ``C``, ``words('[a, b]')`` is ``a b``,
    ``parts('3,0,1', '0')`` is 2: how many parts of a list with ``,`` or ``/`` are not ``0``
``number amount text name joined modules flag on has lists count unknown before``
    functions of options, in readers only: the first option with a positive whole number, with a
    number, with a text (in lower case), with a text as written; all texts of the first set option
    in lower case with blanks between, ``none`` too; such texts as the modules that get adapters;
    whether the first set option is on (``flag('a', default=true)``); whether any of them is on, or
    set to what is not readable; whether one is set (names may
    end with ``*``); the first of some words that the options of a name with ``*`` have
    (``lists('layers*', 'mamba', 'rwkv')``); how many values an option has; whether the value of
    one of them is not readable; whether the file names a release before another
    (``before('0.8')``), in ``write`` whether the plan does
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any, TypeAlias

from planner.base.records import record
from planner.base.units import ceil_div


class Each(tuple[Any, ...]):
    """The values of all parts of a list."""


def attribute(value: Any, path: str) -> Any:
    """Return an attribute by its dotted path: of a list those of its parts, None of None."""
    for name in path.split("."):
        if isinstance(value, tuple):
            value = Each(None if part is None else getattr(part, name) for part in value)
        elif value is not None:
            value = getattr(value, name)
    return value


ExpressionValue: TypeAlias = "str | int | float | bool | tuple[ExpressionValue, ...] | None"
"""Value of an expression; None: missing."""
ValueLookup: TypeAlias = Callable[[str], ExpressionValue]
"""Returns the value of a parameter or quantity; None if nothing sets it."""


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_DOTTED = re.compile(r"(model|draft|profile|gpu|cluster)(\.[a-z][a-z_0-9]*)+")
_CONSTANTS = {"true": True, "false": False, "missing": None}
_ARITHMETIC: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_ORDER: Mapping[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_EQUALITY: Mapping[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.In: lambda value, values: value in values,
    ast.NotIn: lambda value, values: value not in values,
}
_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "any": lambda values: any(values or ()),
    "only": lambda values: values[0] if len(values or ()) == 1 else None,
    "sum": lambda values: sum(filter(_is_number, values or ())),
    "round": lambda value, digits=None: round(value, digits) if _is_number(value) else None,
    "max": lambda *values: max(filter(_is_number, values), default=None),
    "min": lambda *values: min(filter(_is_number, values), default=None),
    "ceil_div": lambda a, b: ceil_div(a, b) if _is_number(a) and _is_number(b) and b else None,
    "nearest": lambda a, b: max(round(a / b), 1) * b if _is_number(a) and b else None,
    "int": lambda value: int(value) if _is_number(value) else None,
    "float": lambda value: float(value) if _is_number(value) else None,
    "lower": lambda text: None if text is None else str(text).lower(),
    "replace": lambda text, old, new: None if text is None else str(text).replace(old, new),
    "concat": lambda *parts: None if None in parts else "".join(map(str, parts)),
    "ends": lambda text, *words: str(text or "").endswith(words),
    "starts": lambda text, *words: str(text or "").startswith(words),
    "contains": lambda text, *words: any(word in str(text or "") for word in words),
    "last": lambda text: str(text or "").rpartition(".")[2] or None,
    "parts": lambda text, but="": (
        sum(part.strip() not in ("", but) for part in re.split(r"[,/]", str(text)))
        if text
        else None
    ),
    "words": lambda text: " ".join(re.findall(r"[^][,\s'\"]+", str(text or ""))) or None,
}
OPTION_FUNCTIONS = (
    *("number", "amount", "text", "name", "joined", "modules", "flag", "on", "has", "lists"),
    *("count", "unknown", "before"),
)
"""Functions of options, which a reader has."""
_KEYWORD = "default"
_NODES: tuple[type[ast.AST], ...] = (
    *(ast.Expression, ast.Constant, ast.Name, ast.Load, ast.Tuple, ast.Call, ast.keyword),
    ast.Attribute,
    *(ast.BinOp, ast.BoolOp, ast.UnaryOp, ast.Compare, ast.IfExp, ast.And, ast.Or),
    *(ast.Not, ast.USub),
    *_ARITHMETIC,
    *_ORDER,
    *_EQUALITY,
)


@record()
class Expression:
    """A checked expression: its tree, the names it uses, and the options it reads."""

    text: str
    body: ast.expr
    names: frozenset[str]
    options: frozenset[str]

    @classmethod
    @cache
    def parse(cls, text: str) -> Expression:
        """Return the checked expression of a cell.

        Raises ValueError if it has parts that the module does not list.

        >>> Expression.parse("width or 4 * hidden").evaluate({"hidden": 8}.get)
        32
        >>> Expression.parse("'full' if a > 1 else 'none'").evaluate({}.get)
        'none'
        >>> Expression.parse("__import__('os')")
        Traceback (most recent call last):
        ValueError: __import__('os'): __import__ is not a function of expressions.
        """
        try:
            tree = ast.parse(text.strip(), mode="eval")
        except SyntaxError as error:
            raise ValueError(f"{text}: {error.msg}.") from None
        calls: dict[ast.AST, str] = {}
        options: set[str] = set()
        for node in ast.walk(tree):
            if not isinstance(node, _NODES):
                raise ValueError(f"{text}: {type(node).__name__} is not allowed in expressions.")
            if isinstance(node, ast.Attribute) and not _DOTTED.fullmatch(ast.unparse(node)):
                raise ValueError(f"{text}: {ast.unparse(node)} is not a name of expressions.")
            if isinstance(node, ast.Call):
                calls[node.func] = name = getattr(node.func, "id", "")
                if name not in {*_FUNCTIONS, *OPTION_FUNCTIONS}:
                    raise ValueError(f"{text}: {name or 'it'} is not a function of expressions.")
                is_of_options = name in OPTION_FUNCTIONS
                reads_options = is_of_options and name != "before"
                if any(word.arg != _KEYWORD or name != "flag" for word in node.keywords):
                    raise ValueError(f"{text}: only flag takes a {_KEYWORD}.")
                texts = [arg.value for arg in node.args if isinstance(arg, ast.Constant)]
                if is_of_options and len(texts) < len(node.args):
                    raise ValueError(f"{text}: {name} takes names of options in quotes.")
                is_one = name in ("lists", "count")
                read = texts[:1] if is_one else texts
                if name == "has":  # a section is there, whatever the values of its keys
                    read = [text for text in read if not str(text).endswith(".*")]
                options |= {str(option) for option in read} if reads_options else set()
        names = {
            node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and node not in calls
        }
        return cls(text, tree.body, frozenset(names - _CONSTANTS.keys()), frozenset(options))

    def evaluate(
        self, lookup: ValueLookup, functions: Mapping[str, Callable[..., Any]] | None = None
    ) -> Any:
        """Return the value; None if it is missing. ``functions`` are those of options."""
        return _evaluate(self.body, lookup, {**_FUNCTIONS, **(functions or {})})


def _evaluate(
    node: ast.expr, lookup: ValueLookup, functions: Mapping[str, Callable[..., Any]]
) -> Any:
    """Return the value of a checked node."""

    def value(inner: ast.expr) -> Any:
        return _evaluate(inner, lookup, functions)

    match node:
        case ast.Constant():
            return node.value
        case ast.Name():
            return _CONSTANTS[node.id] if node.id in _CONSTANTS else lookup(node.id)
        case ast.Attribute():
            return lookup(ast.unparse(node))
        case ast.Tuple():
            return tuple(map(value, node.elts))
        case ast.IfExp():
            return value(node.body if value(node.test) else node.orelse)
        case ast.BoolOp():
            stops_at = isinstance(node.op, ast.Or)
            result = value(node.values[0])
            for inner in node.values[1:]:
                if isinstance(result, Each):
                    pairs = _pairs(result, value(inner))
                    result = Each(a or b if stops_at else a and b for a, b in pairs)
                elif bool(result) is stops_at:
                    return result
                else:
                    result = value(inner)
            return result
        case ast.UnaryOp():
            operand = value(node.operand)
            if isinstance(node.op, ast.Not):
                return not operand
            return -operand if _is_number(operand) else None
        case ast.BinOp():
            left, right = value(node.left), value(node.right)
            divides = isinstance(node.op, ast.Div | ast.FloorDiv | ast.Mod)
            if not (_is_number(left) and _is_number(right)) or (divides and not right):
                return None
            return _ARITHMETIC[type(node.op)](left, right)
        case ast.Compare():
            left = value(node.left)
            for sign, part in zip(node.ops, node.comparators, strict=True):
                right = value(part)
                if isinstance(left, Each):
                    pairs = _pairs(left, right)
                    return Each(None not in pair and _compare(sign, *pair) for pair in pairs)
                if not _compare(sign, left, right):
                    return False
                left = right
            return True
        case ast.Call(func=ast.Name(id=name)):
            keywords = {str(word.arg): value(word.value) for word in node.keywords}
            return functions[name](*map(value, node.args), **keywords)
    raise TypeError(f"{ast.unparse(node)} was not checked.")


def _pairs(left: Each, right: Any) -> Iterator[tuple[Any, Any]]:
    """Return each part of a list with that of another, or with the same value."""
    return zip(left, right if isinstance(right, Each) else (right,) * len(left), strict=True)


def _compare(sign: ast.cmpop, left: Any, right: Any) -> bool:
    """Return whether a comparison holds; only numbers have an order."""
    if type(sign) in _EQUALITY:
        return bool(_EQUALITY[type(sign)](left, right))
    return _is_number(left) and _is_number(right) and bool(_ORDER[type(sign)](left, right))
