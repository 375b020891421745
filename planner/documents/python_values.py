"""Values of expressions in Python programs, as far as their text has them; nothing is run."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from typing import TypeAlias

from planner.base import read_files
from planner.base.records import record
from planner.documents.python_scopes import Assigned, Condition, FoundCall, Program, Scope
from planner.documents.yaml_tree import read_tree
from planner.errors import LaunchError

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
    ``is_of_program``: of a class that the program defines itself, and that extends none of a
    library. ``is_sure``: not in a branch that only the run decides.
    """

    name: str
    line: int
    positional: tuple[Value, ...] = ()
    keywords: Mapping[str, Value] = field(default_factory=dict)
    lines: Mapping[str, int] = field(default_factory=dict)
    rest: str = ""
    is_of_program: bool = False
    is_sure: bool = True

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


_Within: TypeAlias = tuple[tuple[int, str], ...]


def is_unknown(value: Value) -> bool:
    """Return whether a value is unknown or the result of a call."""
    return isinstance(value, UnknownValue | Call)


def call_of(node: ast.Call, scope: Scope, program: Program, within: _Within = ()) -> Call:
    """Return a call with its evaluated arguments and the lines of its keywords."""
    keywords: dict[str, Value] = {}
    lines: dict[str, int] = {}
    rest = ""
    for keyword in node.keywords:
        value = evaluate(keyword.value, scope, program, within)
        line = getattr(keyword.value, "lineno", 0)
        if keyword.arg is not None:
            keywords[keyword.arg], lines[keyword.arg] = value, line
        elif isinstance(value, dict):
            keywords |= {str(name): inner for name, inner in value.items()}
            lines |= dict.fromkeys(map(str, value), line)
        else:
            rest = f"**{ast.unparse(keyword.value)[:40]} has options that are not in the text"
    return Call(
        name=program.dotted(node.func),
        line=getattr(node, "lineno", 0),
        positional=tuple(evaluate(argument, scope, program, within) for argument in node.args),
        keywords=keywords,
        lines=lines,
        rest=rest,
        is_of_program=_is_of_program(program.dotted(node.func), program),
    )


def _is_of_program(name: str, program: Program) -> bool:
    """Return whether a class is of the program, and none of its bases is of a library."""
    bases = program.bases.get(name)
    return bases is not None and all(
        _is_of_program(base, program) for base in bases if base != "object"
    )


def is_run(call: FoundCall, program: Program) -> bool | None:
    """Return whether a call runs, by the tests around it; None if only the run decides that."""
    return _holds(call.conditions, program, ())


def _holds(conditions: Sequence[Condition], program: Program, within: _Within) -> bool | None:
    """Return whether all conditions hold; None if one that does not fail is unknown."""
    result: bool | None = True
    for condition in conditions:
        key = (id(condition.test), "")
        if key in within:
            program.cycles += 1
            return None
        test, scope = condition.test, condition.scope
        value = _once(key, partial(evaluate, test, scope, program, (*within, key)), program)
        if is_unknown(value):
            result = None
        elif bool(value) is not condition.result:
            return False
    return result


def evaluate(node: ast.AST, scope: Scope, program: Program, within: _Within = ()) -> Value:
    """Return the value of an expression, or an unknown value; ``within``: names being looked up."""
    program.step()

    def inner(operand: ast.AST) -> Value:
        return evaluate(operand, scope, program, within)

    if isinstance(node, ast.Constant):
        is_plain = node.value is None or isinstance(node.value, bool | int | float | str)
        return (
            node.value if is_plain else UnknownValue(why=f"{node.value!r:.40} is not a plain value")
        )
    if isinstance(node, ast.Name):
        return _named(node.id, scope, program, within)
    if isinstance(node, ast.Starred):
        return inner(node.value)
    if isinstance(node, ast.List | ast.Tuple | ast.Set):
        return _listed(node.elts, inner)
    if isinstance(node, ast.Dict):
        return _mapping(node, inner)
    if isinstance(node, ast.JoinedStr):
        return _joined([inner(_formatted(operand)) for operand in node.values], node)
    if isinstance(node, ast.Subscript):
        return _item(node, inner(node.value), inner(node.slice))
    if isinstance(node, ast.Attribute):
        return _attribute(node, scope, program, within)
    if isinstance(node, ast.Call):
        return _called(node, scope, program, within)
    if isinstance(node, ast.BinOp):
        return _computed(node, inner(node.left), inner(node.right))
    return _tested(node, inner)


def _tested(node: ast.AST, inner: Callable[[ast.AST], Value]) -> Value:
    """Return the value of an operator on truth values, a comparison or a condition."""
    if isinstance(node, ast.UnaryOp):
        value = inner(node.operand)
        if isinstance(node.op, ast.Not) and not is_unknown(value):
            return not value
        if isinstance(node.op, ast.USub) and isinstance(value, int | float):
            return -value
    if isinstance(node, ast.IfExp):
        test = inner(node.test)
        if not is_unknown(test):
            return inner(node.body if test else node.orelse)
    if isinstance(node, ast.BoolOp):
        is_or, unknown = isinstance(node.op, ast.Or), False
        for operand in node.values:
            value = inner(operand)
            if is_unknown(value):
                if is_or:
                    return value
                unknown = True
            elif bool(value) is is_or:
                return value
        return _unknown_value(node) if unknown else value
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        result = _compared(node.ops[0], inner(node.left), inner(node.comparators[0]))
        if result is not None:
            return result
    return _unknown_value(node)


def _compared(operator: ast.cmpop, left: Value, right: Value) -> bool | None:
    """Return the result of a comparison; None if it is not known."""
    if isinstance(operator, ast.Is | ast.IsNot | ast.Eq | ast.NotEq) and right is None:
        if isinstance(left, UnknownValue):
            return None
        return (left is None) is isinstance(operator, ast.Is | ast.Eq)
    if is_unknown(left) or is_unknown(right):
        return None
    if isinstance(operator, ast.Eq | ast.NotEq | ast.Is | ast.IsNot):
        return (left == right) is isinstance(operator, ast.Eq | ast.Is)
    if isinstance(operator, ast.In | ast.NotIn) and isinstance(right, list | dict | str):
        if isinstance(right, list) and any(map(is_unknown, right)):
            return None
        if isinstance(right, str) and not isinstance(left, str):
            return None
        return (left in right) is isinstance(operator, ast.In)
    if isinstance(left, int | float) and isinstance(right, int | float):
        orders = {ast.Lt: left < right, ast.LtE: left <= right, ast.Gt: left > right}
        return {**orders, ast.GtE: left >= right}.get(type(operator))
    return None


def _item(node: ast.AST, table: Value, key: Value) -> Value:
    """Return an entry of a known mapping or list."""
    if isinstance(table, dict) and isinstance(key, str) and key in table:
        return table[key]
    is_index = isinstance(key, int) and not isinstance(key, bool)
    if isinstance(table, list) and is_index and -len(table) <= key < len(table):  # type: ignore[operator]
        return table[key]  # type: ignore[call-overload]
    return _unknown_value(node)


def _listed(nodes: Sequence[ast.expr], inner: Callable[[ast.AST], Value]) -> list[Value]:
    """Return the values of a list's elements, with starred lists expanded."""
    values: list[Value] = []
    for node in nodes:
        value = inner(node)
        if isinstance(node, ast.Starred) and isinstance(value, list):
            values.extend(value)
        else:
            values.append(value)
    return values


def _unknown_value(node: ast.AST) -> UnknownValue:
    return UnknownValue(why=f"{ast.unparse(node)[:60]} is known only as the program runs")


def _formatted(node: ast.AST) -> ast.AST:
    return node.value if isinstance(node, ast.FormattedValue) else node


def _joined(parts: Sequence[Value], node: ast.AST) -> Value:
    """Join known parts to one text; unknown if a part is, or if the text is too long."""
    if all(isinstance(part, str | int | float) for part in parts):
        text = "".join(map(str, parts))
        if len(text) <= _LONGEST_TEXT:
            return text
    return _unknown_value(node)


def _mapping(node: ast.Dict, inner: Callable[[ast.AST], Value]) -> Value:
    """Return the values of a dict display by key; unknown if ``**`` has no known mapping."""
    table: dict[str, Value] = {}
    for key, value in zip(node.keys, node.values, strict=True):
        if key is None:
            other = inner(value)
            if not isinstance(other, dict):
                return _unknown_value(node)
            table |= other
        else:
            table[str(inner(key))] = inner(value)
    return table


def _once(key: tuple[int, str], compute: Callable[[], Value], program: Program) -> Value:
    """Return a value that is computed once, unless it depends on what is being looked up.

    Lists and mappings are computed each time, so that those that grow without end are noticed.
    """
    if key in program.cache:
        return program.cache[key]
    cycles = program.cycles
    value = compute()
    if cycles == program.cycles and not isinstance(value, list | dict | Call):
        program.cache[key] = value
    return value


def _named(name: str, scope: Scope, program: Program, within: _Within) -> Value:
    """Return the value of a name from the innermost scope that assigns it; unknown if set twice."""
    defining_scope: Scope | None = scope
    changes: list[_Change] = []
    while defining_scope is not None:
        inner = defining_scope
        if (id(inner), f"{name}.") not in within:
            changes += _changes(name, inner, program, (*within, (id(inner), f"{name}.")))
        if name in defining_scope.names:
            break
        defining_scope = defining_scope.above
    if defining_scope is None:
        return UnknownValue(why=f"{name} is set by nothing in this program")
    key = (id(defining_scope), name)
    number = program.limits.get(key, len(defining_scope.names[name]))
    value = _assigned_value(name, defining_scope, number, program, within)
    if changes and isinstance(value, dict):
        for path, new, is_sure in changes:
            again = UnknownValue(why=f"{path} of {name} is set more than once")
            value = {**value, path: again if is_sure and path in value else new}
        return value
    if changes and isinstance(value, Call):
        keywords = {path: new for path, new, _ in changes}
        return replace(value, keywords={**value.keywords, **keywords})
    return UnknownValue(why=f"{name} is set more than once") if changes else value


_Change: TypeAlias = tuple[str, Value, bool]
"""The path of a part of an object, what it is set to, and whether it is outside of any ``if``."""


def _changes(name: str, scope: Scope, program: Program, within: _Within) -> list[_Change]:
    """Return the parts of an object that a scope sets, without those that are known not to run."""
    return [
        (path, value_of(assigned, program, within), not assigned.conditions)
        for path, assigned in scope.changed.get(name, [])
        if _holds(assigned.conditions, program, within) is not False
    ]


def value_of(assigned: Assigned, program: Program, within: _Within = ()) -> Value:
    """Return an assigned value; unknown if it depends on the run or on a test that does."""
    if assigned.value is None:
        return UnknownValue(why="it is known only as the program runs")
    if _holds(assigned.conditions, program, within) is None:
        return UnknownValue(why="it is set in an if that depends on the run")
    return evaluate(assigned.value, assigned.scope, program, within)


def _assigned_value(
    name: str, scope: Scope, number: int, program: Program, within: _Within
) -> Value:
    """Return the value of a name after the first ``number`` of its assignments in a scope.

    An assignment replaces the one before it if it uses that one or is in an ``if`` that is known
    to run; without these a second one depends on the run.
    """
    key = (id(scope), f"{name} {number}")
    if number == 0 or key in within:
        program.cycles += 1
        return UnknownValue(why=f"{name} is known only as the program runs")
    before = program.limits.get((id(scope), name))
    program.limits[id(scope), name] = number - 1
    compute = partial(_last_value, name, scope, number, program, (*within, key))
    try:
        return _once(key, compute, program)
    finally:
        if before is None:
            del program.limits[id(scope), name]
        else:
            program.limits[id(scope), name] = before


def _last_value(name: str, scope: Scope, number: int, program: Program, within: _Within) -> Value:
    """Return what the last of the first ``number`` assignments gives; see `_assigned_value`."""
    assigned = scope.names[name][number - 1]
    does_run = _holds(assigned.conditions, program, within) if number > 1 else True
    if does_run is False:
        return _assigned_value(name, scope, number - 1, program, within)
    is_update = assigned.value is not None and any(
        isinstance(node, ast.Name) and node.id == name for node in ast.walk(assigned.value)
    )
    is_first = number == 1 or (does_run and bool(assigned.conditions)) or is_update
    if does_run is None or not is_first:
        return UnknownValue(why=f"{name} is set more than once")
    if assigned.value is None:
        return _default_object(name, scope, program)
    result = evaluate(assigned.value, assigned.scope, program, within)
    for other in assigned.others:
        if is_unknown(result) or other.value is None or result != evaluate(
            other.value, other.scope, program, within
        ):  # fmt: skip
            return UnknownValue(why=f"{name} is set more than once")
    if isinstance(result, list):
        for appended in scope.added.get(name, []):
            extra = evaluate(appended, scope, program, within)
            result = [*result, *(extra if isinstance(extra, list) else [_unknown_value(appended)])]
    return result


def _default_object(name: str, scope: Scope, program: Program) -> Value:
    """Return what a class of the program makes by default, for a parameter of this type."""
    annotation = scope.annotations.get(name)
    names = [program.dotted(node) for node in ast.walk(annotation)] if annotation else []
    made = next((name for name in names if name in program.bases), None)
    if made is None:
        return UnknownValue(why=f"{name} is known only as the program runs")
    return Call(name=made, line=0)


def _attribute(node: ast.Attribute, scope: Scope, program: Program, within: _Within) -> Value:
    """Return the value of ``torch.X``, a command-line option, or an object's or class's member."""
    name = program.dotted(node)
    first, _, rest = name.partition(".")
    if first == "torch":
        return rest.removeprefix("cuda.")
    owner, _, last = name.rpartition(".")
    if owner in program.members and last in program.members[owner].names:
        return _named(last, program.members[owner], program, within)
    around = scope.enclosing_class()
    if first == "self" and around is not None:
        for member in (f"self.{rest}", rest):
            if member in around.names:
                return _named(member, around, program, within)
    if isinstance(node.value, ast.Name) and first != "self":
        value = _named(node.value.id, scope, program, within)
    elif isinstance(node.value, ast.Attribute | ast.Subscript | ast.Call):
        value = evaluate(node.value, scope, program, within)
    else:
        value = None
    if isinstance(value, dict) and node.attr in value:  # of OmegaConf and like it
        return value[node.attr]
    if isinstance(value, Call) and value.name in program.members:
        members = program.members[value.name]
        member = f"self.{node.attr}" if f"self.{node.attr}" in members.names else node.attr
        if member.startswith("self.") or value.keywords.get(member) is None:
            if member in members.names:
                return _named(member, members, program, within)
        else:
            return value.keywords[member]
    elif isinstance(value, Call) and node.attr in value.keywords:
        return value.keywords[node.attr]
    default = program.arguments.get(rest)
    if default is not None and default.value is not None and first != "self":
        return evaluate(default.value, default.scope, program, within)
    return _unknown_value(node)


def to_shell_word(value: Value) -> str:
    """A value as text for a shell; an unknown value as a variable that nothing sets."""
    is_plain = isinstance(value, str | int | float) and not isinstance(value, bool)
    return str(value) if is_plain else "$UNTOLD"


_BY_ENVIRONMENT = ("os.environ.get", "os.getenv", "environ.get", "getenv")
_KINDS = {"int": int, "str": str, "float": float, "bool": bool}
_COPIES = ("list", "tuple", "sorted", "set", "dict")
IS_BF16 = ("is_bfloat16_supported", "is_bf16_supported", "is_torch_bf16_gpu_available")
"""Functions that return whether the GPU has bf16: every one from Ampere on."""
_HAS_GPU = ("torch.cuda.is_available",)
_WITH_DEFAULT = ("field", "Field", "typer.Option", "typer.Argument")
_LOADERS = (
    *("yaml.safe_load", "yaml.load", "yaml.full_load", "yaml.unsafe_load", "json.load"),
    *("json.loads", "toml.load", "tomllib.load", "tomli.load", "OmegaConf.load"),
)
_DATA_FILES = (".json", ".yaml", ".yml", ".toml")
_OF_PATHS = ("read", "read_text", "open", "resolve", "absolute", "expanduser")
_NAMESPACES = ("SimpleNamespace", "Namespace", "OmegaConf.create", "EasyDict", "Box", "DotMap")


def _called(node: ast.Call, scope: Scope, program: Program, within: _Within) -> Value:
    """Return the value of a known call, or a `Call` for a class; unknown for other calls."""
    call = call_of(node, scope, program, within)
    name, arguments = call.name, call.positional
    method = node.func.attr if isinstance(node.func, ast.Attribute) else ""
    if name in _BY_ENVIRONMENT and arguments:
        variable = program.environment.get(str(arguments[0]))
        return variable if variable is not None else (*arguments[1:], None)[0]
    if name.rpartition(".")[2] in IS_BF16 or name in _HAS_GPU:
        return True
    if name in _WITH_DEFAULT or call.ends(*_WITH_DEFAULT):
        return _default_of(node, call, scope, program, within)
    if ".DEFINE_" in name and arguments[1:]:  # a flag of absl
        return replace(call, keywords={"value": arguments[1]})
    if name == "json.loads" and arguments and str(arguments[0]).lstrip()[:1] in ("{", "["):
        return _parsed(str(arguments[0]), "text.json") or _unknown_value(node)
    if call.ends(*_LOADERS) and arguments:
        return _loaded(arguments[0], program) or _unknown_value(node)
    if name.rpartition(".")[2] in ("exists", "isfile", "is_file"):
        path = evaluate(node.func.value, scope, program, within) if not arguments else arguments[0]  # type: ignore[attr-defined]
        if isinstance(path, str) and path.endswith(_DATA_FILES):
            return program.read_file(path) is not None
    if name == "os.path.join" or call.ends("Path"):
        return _end_of_path(arguments) or _unknown_value(node)
    if call.ends(*_NAMESPACES) and not call.rest:
        return dict(call.keywords) or next(iter(arguments), None)
    if name in ("vars", "asdict", "dataclasses.asdict") and len(arguments) == 1:
        return dict(arguments[0].keywords) if isinstance(arguments[0], Call) else arguments[0]
    if method and method in (*_OF_PATHS, "join", "get", "pop", "lower", "upper", "strip"):
        owner = evaluate(node.func.value, scope, program, within)  # type: ignore[attr-defined]
        if (value := _of_method(owner, method, arguments)) is not None:
            return value[0]
    if name == "open":
        return arguments[0] if arguments else _unknown_value(node)
    if name == "json.dumps" and len(arguments) == 1 and isinstance(arguments[0], int | float):
        return str(arguments[0]).lower()
    if name in _KINDS and len(arguments) == 1 and isinstance(arguments[0], str | int | float):
        try:
            return _KINDS[name](arguments[0])
        except (ValueError, OverflowError):
            return _unknown_value(node)
    if name in _COPIES and len(arguments) == 1 and isinstance(arguments[0], list | dict):
        return arguments[0]
    if name in ("max", "min") and arguments[1:] and all(
        isinstance(argument, int | float) for argument in arguments
    ):  # fmt: skip
        return (max if name == "max" else min)(arguments)  # type: ignore[type-var]
    if name.rpartition(".")[2][:1].isupper() or name == "dict":
        if name == "dict":
            return _unknown_value(node) if call.rest else dict(call.keywords)
        return call
    return _returned(node, scope, program, within)


def _returned(node: ast.Call, scope: Scope, program: Program, within: _Within) -> Value:
    """Return the result of a function of the program that has one; unknown for others.

    Its parameters have the arguments of this call.
    """
    function = program.function_of(node.func, scope)
    if function is None:
        return _unknown_value(node)
    _, parameters, body = function
    key = (id(body), "return")
    if key in within:
        program.cycles += 1
        return _unknown_value(node)
    arguments = dict(zip(parameters, node.args, strict=False))
    arguments |= {keyword.arg: keyword.value for keyword in node.keywords if keyword.arg}
    names, cache = body.names, program.cache
    body.names, program.cache = {**names}, {}
    for name, value in arguments.items():
        body.names[name] = [Assigned(value, scope), *names.get(name, [])[1:]]
    try:
        results = [
            result
            for result in body.returned
            if _holds(result.conditions, program, (*within, key)) is not False
        ]
        if len(results) != 1 or results[0].value is None:
            return _unknown_value(node)
        return evaluate(results[0].value, body, program, (*within, key))
    finally:
        body.names, program.cache = names, cache


def _of_method(owner: Value, method: str, arguments: Sequence[Value]) -> tuple[Value] | None:
    """Return the result of a method of a text, a path or a mapping; None if it is unknown."""
    if method == "join" and isinstance(owner, str) and len(arguments) == 1:
        parts = arguments[0]
        return (owner.join(map(to_shell_word, parts)),) if isinstance(parts, list) else None
    if method in ("get", "pop") and isinstance(owner, dict) and arguments:
        return (owner.get(str(arguments[0]), (*arguments[1:], None)[0]),)
    if method in ("lower", "upper", "strip") and isinstance(owner, str) and not arguments:
        return (getattr(owner, method)(),)
    return (owner,) if method in _OF_PATHS and isinstance(owner, str) else None


def _default_of(
    node: ast.Call, call: Call, scope: Scope, program: Program, within: _Within
) -> Value:
    """Return the default of a field of a class or of an option of typer."""
    for keyword in node.keywords:
        if keyword.arg == "default_factory" and isinstance(keyword.value, ast.Lambda):
            return evaluate(keyword.value.body, scope, program, within)
    factory = call.keywords.get("default_factory")
    first = (*call.positional, _unknown_value(node))[0]
    return call.keywords.get("default", first if factory is None else _unknown_value(node))


def _end_of_path(parts: Sequence[Value]) -> str:
    """Return a joined path behind its last unknown part; "" if nothing of it is known."""
    parts_after: list[str] = []
    for part in parts:
        parts_after = [*parts_after, part] if isinstance(part, str) else []
    return "/".join(part.rstrip("/") or "/" for part in parts_after if part)


def _loaded(path: Value, program: Program) -> Value:
    """Return the data of a YAML, JSON or TOML file near the program; None without one."""
    text = program.read_file(path) if isinstance(path, str) and path else None
    return None if text is None else _parsed(text, str(path))


def _parsed(text: str, name: str) -> Value:
    """Return the data of a text of YAML, JSON or TOML; None if it is none."""
    try:
        if name.endswith(".toml"):
            return read_files.parse_toml(text, name, LaunchError)
        return read_tree(text, name).data
    except LaunchError:
        return None


def _computed(node: ast.BinOp, left: Value, right: Value) -> Value:
    """Return the result of a binary operation on known values; unknown for any other."""
    if isinstance(left, str) and isinstance(right, str) and isinstance(node.op, ast.Add):
        return _joined([left, right], node)
    if isinstance(right, str) and isinstance(node.op, ast.Div):
        return _end_of_path([left, right])
    is_dict = isinstance(left, dict) and isinstance(right, dict)
    if is_dict and isinstance(node.op, ast.BitOr):
        return {**left, **right}  # type: ignore[dict-item]
    if isinstance(left, list) and isinstance(right, list) and isinstance(node.op, ast.Add):
        return [*left, *right]
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
