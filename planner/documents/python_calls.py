"""Programs in Python as text: which functions they call with which values; nothing is run."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import TypeAlias

from planner.base.records import record
from planner.documents.unroll_loops import unroll_loops
from planner.errors import LaunchError

_MOST_STEPS = 200_000
_LONGEST_TEXT = 10_000
_LARGEST = 10**18


@record(kw_only=True)
class UnknownValue:
    """A value that cannot be read from the text, with the reason."""

    why: str


Value: TypeAlias = object
"""None, a bool, number or text; a list or dict of values; `UnknownValue`; `Call`."""


@record(kw_only=True)
class Call:
    """A call: ``name`` with its module as it is imported, ``vllm.LLM``.

    ``keywords`` are those of ``**mapping``, too; ``rest`` says why some are unknown, "" if none.
    """

    name: str
    line: int
    positional: tuple[Value, ...] = ()
    keywords: Mapping[str, Value] = field(default_factory=dict)
    lines: Mapping[str, int] = field(default_factory=dict)
    rest: str = ""

    @property
    def module(self) -> str:
        """The package of the function; empty if the program does not import it by name."""
        return self.name.partition(".")[0] if "." in self.name else ""

    def ends(self, *words: str) -> bool:
        """Return whether one of ``words`` is the dotted name of the call or the end of it.

        >>> Call(name="vllm.LLM", line=1).ends("LLM")
        True
        """
        return any(self.name == word or self.name.endswith("." + word) for word in words)

    @property
    def parts(self) -> dict[str, Value]:
        """Return keyword values by dotted name; a nested `Call` is its class and its keywords.

        Lists and mappings are left out.

        >>> inner = Call(name="m.Part", line=1, keywords={"size": 2})
        >>> Call(name="Whole", line=1, keywords={"part": inner}).parts
        {'part': 'Part', 'part.size': 2}
        """
        parts: dict[str, Value] = {}
        for key, value in self.keywords.items():
            if isinstance(value, Call):
                parts[key] = value.name.rpartition(".")[2]
                parts |= {f"{key}.{name}": part for name, part in value.parts.items()}
            elif not isinstance(value, dict | list):
                parts[key] = value
        return parts


@record(kw_only=True)
class Function:
    """A function: the ``calls`` in it, and its assignments to attributes.

    ``changes`` are the assigned values by the path after the name: ``steps`` of
    ``config.steps = 9``.
    """

    name: str
    line: int
    calls: tuple[Call, ...]
    changes: Mapping[str, Value]


@dataclass(kw_only=True)
class _Scope:
    """Names of a module, a function or a class; each with the values assigned to it."""

    above: _Scope | None = None
    names: dict[str, list[tuple[ast.expr | None, _Scope]]] = field(default_factory=dict)
    added: dict[str, list[ast.expr]] = field(default_factory=dict)
    changed: dict[str, list[tuple[str, ast.expr]]] = field(default_factory=dict)

    def put(self, name: str, value: ast.expr | None, value_scope: _Scope | None = None) -> None:
        """Assign a value that is written in ``value_scope``; None: an unknown value."""
        self.names.setdefault(name, []).append((value, value_scope or self))


@dataclass(kw_only=True)
class _Program:
    name: str
    imports: dict[str, str] = field(default_factory=dict)
    arguments: dict[str, ast.expr | None] = field(default_factory=dict)
    members: dict[str, _Scope] = field(default_factory=dict)
    functions: dict[str, tuple[list[str], _Scope]] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)
    calls: list[tuple[ast.Call, _Scope]] = field(default_factory=list)
    branches: list[tuple[ast.If, _Scope]] = field(default_factory=list)
    steps: int = 0

    def step(self) -> None:
        """Count an evaluation step; raises LaunchError after too many."""
        self.steps += 1
        if self.steps > _MOST_STEPS:
            raise LaunchError(f"{self.name}: is nested too deeply or too long to be read.")


def parse_calls(
    text: str, name: str, command_line: Mapping[str, str] | None = None
) -> tuple[Call, ...]:
    """Return the calls of a Python program in the order of its lines, with values of arguments.

    Known values are constants, names that a function or the module assigns once, the defaults of
    parameters, of ``add_argument`` and of environment variables, and simple expressions of them.
    Values of the ``command_line`` replace those defaults, also for the classes of HfArgumentParser
    and for the function that Fire calls.
    Raises LaunchError if it is no Python, or nested too deeply.
    """
    with _read(text, name) as program:
        _take_options(program, command_line or {})
        _pass_on(program)
        skipped = {
            id(node)
            for branch, scope in program.branches
            for part in _not_run(branch, scope, program)
            for node in ast.walk(part)
        }
        calls = [
            _call(node, scope, program) for node, scope in program.calls if id(node) not in skipped
        ]
    return tuple(sorted(calls, key=lambda call: call.line))


def _not_run(branch: ast.If, scope: _Scope, program: _Program) -> Sequence[ast.stmt]:
    """Return the statements that an ``if`` of one option of the program does not run."""
    is_negated = isinstance(branch.test, ast.UnaryOp) and isinstance(branch.test.op, ast.Not)
    test = branch.test.operand if isinstance(branch.test, ast.UnaryOp) else branch.test
    value = _value(test, scope, program, ()) if isinstance(test, ast.Attribute) else None
    if not isinstance(value, bool):
        return ()
    return branch.orelse if value is not is_negated else branch.body


def argument_defaults(text: str, name: str) -> dict[str, Value]:
    """Return the defaults of a program's command-line options by name, if its text has them.

    They are those of ``add_argument`` and of the classes given to HfArgumentParser.
    Raises LaunchError as `parse_calls`.
    """
    with _read(text, name) as program:
        _take_options(program, {})
        return {
            option: value
            for option, default in program.arguments.items()
            if (value := _literal(default)) is not None
        }


def _literal(node: ast.expr | None) -> Value:
    """Return a constant, or a list of constants; None for anything else."""
    elements = node.elts if isinstance(node, ast.List | ast.Tuple) else ()
    constants = [element.value for element in elements if isinstance(element, ast.Constant)]
    if constants and len(constants) == len(elements):
        return [str(constant) for constant in constants]
    return node.value if isinstance(node, ast.Constant) else None


def parse_functions(text: str, file_name: str) -> tuple[Function, ...]:
    """Return the functions of a program in order; reads values and raises as `parse_calls`."""
    with _read(text, file_name) as program:
        functions = []
        for name, (_, function_scope) in program.functions.items():
            calls = [
                _call(node, call_scope, program)
                for node, call_scope in program.calls
                if _is_in(call_scope, function_scope)
            ]
            changes = {
                path: _value(value, function_scope, program, ())
                for assignments in function_scope.changed.values()
                for path, value in assignments
            }
            line = program.lines[name]
            functions.append(Function(name=name, line=line, calls=tuple(calls), changes=changes))
    return tuple(functions)


def _is_in(scope: _Scope | None, outer: _Scope) -> bool:
    while scope is not None and scope is not outer:
        scope = scope.above
    return scope is outer


@contextmanager
def _read(text: str, name: str) -> Iterator[_Program]:
    """Parse a Python text to names, calls and functions; raise LaunchError if that fails."""
    program = _Program(name=name)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
        _gather(unroll_loops(_folded(tree.body)), _Scope(), program)
        yield program
    except SyntaxError as error:
        raise LaunchError(
            f"{name}: line {error.lineno}: is not Python that can be parsed ({error.msg})."
        ) from None
    except (ValueError, RecursionError, MemoryError):
        raise LaunchError(f"{name}: is not Python that can be parsed.") from None


_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def _folded(body: Sequence[ast.stmt]) -> list[ast.stmt]:
    """Return a module's statements, with ``x *= y`` merged into the assignment of ``x`` before.

    If a statement between them reads ``x``, both statements stay.
    """
    last: dict[str, ast.Assign] = {}
    statements: list[ast.stmt] = []
    for node in body:
        for inner in ast.walk(node):
            if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Load):
                last.pop(inner.id, None)
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            last[node.targets[0].id] = node
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            before = last.get(node.target.id)
            if before is not None and len(before.targets) == 1:
                before.value = ast.BinOp(left=before.value, op=node.op, right=node.value)
                continue
        statements.append(node)
    return statements


def _gather(
    nodes: Sequence[ast.AST], scope: _Scope, program: _Program, *, is_sure: bool = True
) -> None:
    """Collect names, imports and calls by scope; attributes set in an ``if`` become unknown."""
    for node in nodes:
        program.step()
        inner = scope
        if isinstance(node, ast.Import):
            for name in node.names:
                module_name = name.name if name.asname else name.name.partition(".")[0]
                program.imports[name.asname or module_name] = module_name
        elif isinstance(node, ast.ImportFrom):
            for name in node.names:
                program.imports[name.asname or name.name] = f"{node.module or ''}.{name.name}"
        elif isinstance(node, _FUNCTIONS):
            inner = _Scope(above=scope)
            named = _parameters(node.args, inner)
            if not isinstance(node, ast.Lambda):
                program.functions[node.name] = named, inner
                program.lines[node.name] = node.lineno
        elif isinstance(node, ast.ClassDef):
            inner = program.members[node.name] = _Scope(above=scope)
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                is_part = isinstance(target, ast.Attribute | ast.Subscript)
                _assign(target, node.value if is_sure or not is_part else None, scope)
        elif isinstance(node, ast.AnnAssign | ast.NamedExpr) and node.value is not None:
            _assign(node.target, node.value, scope)
        elif isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add):
            _add(node.target, node.value, scope)
        elif isinstance(node, ast.AugAssign | ast.For | ast.AsyncFor | ast.comprehension):
            _assign(node.target, None, scope)
        elif isinstance(node, ast.withitem) and node.optional_vars is not None:
            _assign(node.optional_vars, None, scope)
        elif isinstance(node, ast.Dict) and _MODEL_KEYS & {
            key.value for key in node.keys if isinstance(key, ast.Constant)
        }:
            program.calls.append((_as_call(node), scope))
        elif isinstance(node, ast.Call):
            program.calls.append((node, scope))
            _argument(node, program)
            if isinstance(node.func, ast.Attribute) and node.args[:1]:
                if node.func.attr == "extend":
                    _add(node.func.value, node.args[0], scope)
                elif node.func.attr == "append":
                    _add(node.func.value, ast.List(elts=[*node.args]), scope)
        if isinstance(node, ast.If):
            program.branches.append((node, scope))
        within = is_sure and not isinstance(node, ast.If)
        _gather([*ast.iter_child_nodes(node)], inner, program, is_sure=within)


_MODEL_KEYS = {"model", "model_path"}  # of mappings that may be the options of an engine


def _as_call(node: ast.Dict) -> ast.Call:
    """Return a dict display as the call of ``dict`` with its keys."""
    keywords = [
        ast.keyword(arg=key.value, value=value, lineno=value.lineno)
        for key, value in zip(node.keys, node.values, strict=True)
        if isinstance(key, ast.Constant) and isinstance(key.value, str)
    ]
    name = ast.Name(id="dict", lineno=node.lineno)
    return ast.Call(func=name, args=[], keywords=keywords, lineno=node.lineno, col_offset=0)


def _parameters(arguments: ast.arguments, scope: _Scope) -> list[str]:
    """Assign the parameters of a function their defaults in ``scope``; return names in order."""
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults: list[ast.expr | None] = [*arguments.defaults]
    pairs = [*zip_longest(reversed(positional), reversed(defaults))]
    for argument, value in (*pairs, *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)):
        scope.put(argument.arg, value)
    for rest in (arguments.vararg, arguments.kwarg):
        if rest is not None:
            scope.put(rest.arg, None)
    return [argument.arg for argument in positional]


def _pass_on(program: _Program) -> None:
    """Assign the arguments of calls to the parameters of the called functions in the program."""
    called_with: set[tuple[str, str]] = set()
    for node, scope in program.calls:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name not in program.functions:
            continue
        names, function_scope = program.functions[name]
        pairs = [*zip(names, node.args, strict=False)]
        pairs += [(keyword.arg, keyword.value) for keyword in node.keywords if keyword.arg]
        for parameter, value in pairs:
            values = function_scope.names.get(parameter, [])
            if (name, parameter) not in called_with and len(values) == 1:
                values.clear()
            called_with.add((name, parameter))
            function_scope.put(parameter, value, scope)


def _assign(target: ast.AST, value: ast.expr | None, scope: _Scope) -> None:
    """Record the value of an assignment's target in the scope; None: an unknown value."""
    if isinstance(target, ast.Name):
        scope.put(target.id, value)
    elif isinstance(target, ast.Tuple | ast.List):
        values: Sequence[ast.expr | None] = [None] * len(target.elts)
        if isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(target.elts):
            values = value.elts
        for element, element_value in zip(target.elts, values, strict=True):
            _assign(element, element_value, scope)
    elif isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name):
        key = target.slice.value if isinstance(target.slice, ast.Constant) else None
        if isinstance(key, str):
            changed = scope.changed.setdefault(target.value.id, [])
            changed.append((key, ast.Name(id="") if value is None else value))
        else:
            scope.put(target.value.id, None)  # a mapping that is changed
    elif isinstance(target, ast.Attribute):
        name, _, path = ast.unparse(target).partition(".")
        changed = scope.changed.setdefault(name, [])
        changed.append((path, ast.Name(id="") if value is None else value))


def _add(target: ast.AST, value: ast.expr, scope: _Scope) -> None:
    """Append to a list assigned in this scope; any other variable becomes unknown."""
    if isinstance(target, ast.Name) and isinstance(
        scope.names.get(target.id, [(None, scope)])[0][0], ast.List
    ):
        scope.added.setdefault(target.id, []).append(value)
    else:
        _assign(target, None, scope)


def _argument(node: ast.Call, program: _Program) -> None:
    """Record the default of a command-line option of ``add_argument`` by its name."""
    if not (isinstance(node.func, ast.Attribute) and node.func.attr == "add_argument"):
        return
    words = [argument.value for argument in node.args if isinstance(argument, ast.Constant)]
    options = [word for word in words if isinstance(word, str)]
    long = next((word for word in options if word.startswith("--")), next(iter(options), ""))
    keywords = {keyword.arg: keyword.value for keyword in node.keywords}
    dest = keywords.get("dest")
    name = dest.value if isinstance(dest, ast.Constant) else long.lstrip("-").replace("-", "_")
    action = keywords.get("action")
    is_flag = isinstance(action, ast.Constant) and action.value == "store_true"
    default = keywords.get("default") or (ast.Constant(value=False) if is_flag else None)
    program.arguments[str(name)] = default


def _take_options(program: _Program, command_line: Mapping[str, str]) -> None:
    """Replace defaults of arguments, dataclass fields and functions by command-line options."""
    values = {name: _constant(text) for name, text in command_line.items()}
    for node, _ in program.calls:
        kind = _dotted(node.func, program).rpartition(".")[2]
        nodes = (inner for argument in node.args for inner in ast.walk(argument))
        named = [inner.id for inner in nodes if isinstance(inner, ast.Name)]
        if kind in ("HfArgumentParser", "TrlParser"):
            for members in (program.members[name] for name in named if name in program.members):
                for name, assigned in members.names.items():
                    program.arguments.setdefault(name, _field(assigned[0][0]))
            program.arguments.update(values)
        elif kind == "Fire":
            for _, scope in (
                program.functions[name] for name in named if name in program.functions
            ):
                scope.names.update({
                    name: [(value, scope)] for name, value in values.items() if name in scope.names
                })  # fmt: skip
    set_options = {name: value for name, value in values.items() if name in program.arguments}
    program.arguments.update(set_options)


def _field(value: ast.expr | None) -> ast.expr | None:
    """Return the default of a dataclass field, from ``field(...)`` or its value."""
    if not (isinstance(value, ast.Call) and isinstance(value.func, ast.Name)):
        return value
    keywords = {keyword.arg: keyword.value for keyword in value.keywords}
    factory = keywords.get("default_factory")
    return keywords.get("default", factory.body if isinstance(factory, ast.Lambda) else None)


def _constant(text: str) -> ast.Constant:
    """Convert a word of a command line to a boolean, None, number or text."""
    constants = {"true": True, "false": False, "none": None}
    if text.lower() in constants:
        return ast.Constant(value=constants[text.lower()])
    for kind in (int, float):
        try:
            return ast.Constant(value=kind(text))
        except ValueError:
            continue
    return ast.Constant(value=text)


def _dotted(node: ast.AST, program: _Program) -> str:
    """Return the dotted name of a function with its imported module; empty if it is no name."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return ""
    return ".".join([program.imports.get(node.id, node.id), *reversed(parts)])


def _call(node: ast.Call, scope: _Scope, program: _Program) -> Call:
    """Return a call with its evaluated arguments and the lines of its keywords."""
    keywords: dict[str, Value] = {}
    lines: dict[str, int] = {}
    rest = ""
    for keyword in node.keywords:
        value = _value(keyword.value, scope, program, ())
        if keyword.arg is not None:
            keywords[keyword.arg], lines[keyword.arg] = value, keyword.value.lineno
        elif isinstance(value, dict):
            keywords |= {str(name): inner for name, inner in value.items()}
            lines |= dict.fromkeys(map(str, value), keyword.value.lineno)
        else:
            rest = f"**{ast.unparse(keyword.value)[:40]} has options that are not in the text"
    positional = [_value(argument, scope, program, ()) for argument in node.args]
    return Call(
        name=_dotted(node.func, program),
        line=node.lineno,
        positional=tuple(positional),
        keywords=keywords,
        lines=lines,
        rest=rest,
    )


_Within: TypeAlias = tuple[tuple[int, str], ...]


def _value(node: ast.AST, scope: _Scope, program: _Program, within: _Within) -> Value:
    """Return the value of an expression, or an unknown value; ``within``: names being looked up."""
    program.step()

    def evaluate(operand: ast.AST) -> Value:
        return _value(operand, scope, program, within)

    if isinstance(node, ast.Constant):
        is_plain = node.value is None or isinstance(node.value, bool | int | float | str)
        return (
            node.value if is_plain else UnknownValue(why=f"{node.value!r:.40} is not a plain value")
        )
    if isinstance(node, ast.Name):
        return _named(node.id, scope, program, within)
    if isinstance(node, ast.Starred):
        return evaluate(node.value)
    if isinstance(node, ast.List | ast.Tuple | ast.Set):
        return _listed(node.elts, evaluate)
    if isinstance(node, ast.Dict):
        return _mapping(node, evaluate)
    if isinstance(node, ast.JoinedStr):
        return _joined([evaluate(_inside(operand)) for operand in node.values], node)
    if isinstance(node, ast.Subscript):
        table, key = evaluate(node.value), evaluate(node.slice)
        if isinstance(table, dict) and isinstance(key, str) and key in table:
            return table[key]
    if isinstance(node, ast.Attribute):
        return _attribute(node, scope, program, within)
    if isinstance(node, ast.Call):
        return _called(node, scope, program, within)
    if isinstance(node, ast.BinOp):
        return _computed(node, evaluate(node.left), evaluate(node.right))
    if isinstance(node, ast.UnaryOp):
        inner = evaluate(node.operand)
        if isinstance(node.op, ast.Not) and not isinstance(inner, UnknownValue | Call):
            return not inner
        if isinstance(node.op, ast.USub) and isinstance(inner, int | float):
            return -inner
    if isinstance(node, ast.IfExp):
        test = evaluate(node.test)
        if not isinstance(test, UnknownValue | Call):
            return evaluate(node.body if test else node.orelse)
    if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.Or):
        for operand in node.values:
            value = evaluate(operand)
            if isinstance(value, UnknownValue | Call) or value:
                return value
        return value
    return _unknown_value(node)


def _listed(nodes: Sequence[ast.expr], evaluate: Callable[[ast.AST], Value]) -> list[Value]:
    """Return the values of a list's elements, with starred lists expanded."""
    values: list[Value] = []
    for node in nodes:
        value = evaluate(node)
        if isinstance(node, ast.Starred) and isinstance(value, list):
            values.extend(value)
        else:
            values.append(value)
    return values


def _unknown_value(node: ast.AST) -> UnknownValue:
    return UnknownValue(why=f"{ast.unparse(node)[:60]} is known only as the program runs")


def _inside(node: ast.AST) -> ast.AST:
    return node.value if isinstance(node, ast.FormattedValue) else node


def _joined(parts: Sequence[Value], node: ast.AST) -> Value:
    """Join known parts to one text; unknown if a part is, or if the text is too long."""
    if all(isinstance(part, str | int | float) for part in parts):
        text = "".join(map(str, parts))
        if len(text) <= _LONGEST_TEXT:
            return text
    return _unknown_value(node)


def _mapping(node: ast.Dict, evaluate: Callable[[ast.AST], Value]) -> Value:
    """Return the values of a dict display by key; unknown if ``**`` has no known mapping."""
    table: dict[str, Value] = {}
    for key, value in zip(node.keys, node.values, strict=True):
        if key is None:
            inner = evaluate(value)
            if not isinstance(inner, dict):
                return _unknown_value(node)
            table |= inner
        else:
            table[str(evaluate(key))] = evaluate(value)
    return table


def _named(name: str, scope: _Scope, program: _Program, within: _Within) -> Value:
    """Return the value of a name from the innermost scope that assigns it; unknown if set twice."""
    defining_scope: _Scope | None = scope
    changes: list[tuple[str, Value]] = []
    while defining_scope is not None:
        inner = defining_scope
        changes += (
            (path, _value(value, inner, program, (*within, (id(inner), f"{name}."))))
            for path, value in defining_scope.changed.get(name, [])
            if (id(inner), f"{name}.") not in within
        )
        if name in defining_scope.names:
            break
        defining_scope = defining_scope.above
    if defining_scope is None:
        return UnknownValue(why=f"{name} is set by nothing in this program")
    assigned = defining_scope.names[name]
    lookup_key = (id(defining_scope), name)
    value, written = assigned[0]
    if len(assigned) > 1:
        return UnknownValue(why=f"{name} is set more than once")
    if lookup_key in within or value is None:
        return UnknownValue(why=f"{name} is known only as the program runs")
    result = _value(value, written, program, (*within, lookup_key))
    if isinstance(result, list):
        for appended in defining_scope.added.get(name, []):
            extra = _value(appended, defining_scope, program, (*within, lookup_key))
            result = [*result, *(extra if isinstance(extra, list) else [_unknown_value(appended)])]
    if changes and isinstance(result, dict):
        again = UnknownValue(why=f"{name} is set more than once")
        return {**result, **{key: again if key in result else new for key, new in changes}}
    if changes and isinstance(result, Call):
        return replace(result, keywords={**result.keywords, **dict(changes)})
    return UnknownValue(why=f"{name} is set more than once") if changes else result


def _attribute(node: ast.Attribute, scope: _Scope, program: _Program, within: _Within) -> Value:
    """Return the value of ``torch.X``, a command-line option, or an object's or class's member."""
    name = _dotted(node, program)
    first, _, rest = name.partition(".")
    if first == "torch":
        return rest.removeprefix("cuda.")
    if first in program.members and rest in program.members[first].names:
        return _named(rest, program.members[first], program, within)
    if isinstance(node.value, ast.Name):
        call = _named(node.value.id, scope, program, within)
        if isinstance(call, Call) and rest in call.keywords and call.name not in program.members:
            return call.keywords[rest]
        if isinstance(call, Call) and call.name in program.members:
            members = program.members[call.name]
            if rest in call.keywords or rest in members.names:
                value = call.keywords.get(rest)
                return _named(rest, members, program, within) if value is None else value
    default = program.arguments.get(rest)
    if default is not None and first != "self":
        return _value(default, _Scope(), program, within)
    return _unknown_value(node)


def to_shell_word(value: Value) -> str:
    """A value as text for a shell; an unknown value as a variable that nothing sets."""
    is_plain = isinstance(value, str | int | float) and not isinstance(value, bool)
    return str(value) if is_plain else "$UNTOLD"


_BY_ENVIRONMENT = ("os.environ.get", "os.getenv", "environ.get", "getenv")
_KINDS = {"int": int, "str": str, "float": float, "bool": bool}
IS_BF16 = ("is_bfloat16_supported", "is_bf16_supported", "is_torch_bf16_gpu_available")
"""Functions that return whether the GPU has bf16: every one from Ampere on."""


def _called(node: ast.Call, scope: _Scope, program: _Program, within: _Within) -> Value:
    """Return the value of a known call, or a `Call` for a class; unknown for other calls."""
    name = _dotted(node.func, program)
    arguments = [_value(argument, scope, program, within) for argument in node.args]
    if name in _BY_ENVIRONMENT and len(arguments) == 2:
        return arguments[1]
    if name.rpartition(".")[2] in IS_BF16:
        return True
    if isinstance(node.func, ast.Attribute) and node.func.attr == "join" and len(arguments) == 1:
        between = _value(node.func.value, scope, program, within)
        if isinstance(between, str) and isinstance(arguments[0], list):
            return between.join(map(to_shell_word, arguments[0]))
    if name == "json.dumps" and len(arguments) == 1 and isinstance(arguments[0], int | float):
        return str(arguments[0]).lower()
    if name in _KINDS and len(arguments) == 1 and isinstance(arguments[0], str | int | float):
        try:
            return _KINDS[name](arguments[0])
        except (ValueError, OverflowError):
            return _unknown_value(node)
    if name.rpartition(".")[2][:1].isupper() or name == "dict":
        keywords = {
            keyword.arg: _value(keyword.value, scope, program, within)
            for keyword in node.keywords
            if keyword.arg
        }
        if name == "dict":
            return keywords if len(keywords) == len(node.keywords) else _unknown_value(node)
        return Call(name=name, line=node.lineno, positional=tuple(arguments), keywords=keywords)
    return _unknown_value(node)


def _computed(node: ast.BinOp, left: Value, right: Value) -> Value:
    """Return the result of a binary operation on known values; unknown for any other."""
    if isinstance(left, str) and isinstance(right, str) and isinstance(node.op, ast.Add):
        return _joined([left, right], node)
    is_dict = isinstance(left, dict) and isinstance(right, dict)
    if is_dict and isinstance(node.op, ast.BitOr):
        return {**left, **right}  # type: ignore[dict-item]
    if not (isinstance(left, int | float) and isinstance(right, int | float)):
        return _unknown_value(node)
    if max(abs(left), abs(right)) > _LARGEST:
        return _unknown_value(node)
    if isinstance(node.op, ast.Add | ast.Sub):
        return left + right if isinstance(node.op, ast.Add) else left - right
    if isinstance(node.op, ast.Mult):
        return left * right
    if right and isinstance(node.op, ast.Div | ast.FloorDiv):
        return left / right if isinstance(node.op, ast.Div) else left // right
    is_power = isinstance(node.op, ast.Pow) and left > 0
    return left**right if is_power and 0 <= right <= 60 and left <= 1024 else _unknown_value(node)
