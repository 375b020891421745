"""Names of Python programs by scope: what modules, functions and classes assign; nothing is run."""

from __future__ import annotations

import ast
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import PurePosixPath
from typing import NamedTuple

from planner.errors import LaunchError

_MOST_STEPS = 200_000
_MOST_STEPS_BEFORE_IMPORT = 30_000
_MOST_MODULES = 12
_LIBRARIES = sys.stdlib_module_names | {
    *("accelerate", "datasets", "deepspeed", "numpy", "peft", "torch", "transformers", "trl"),
    *("unsloth", "vllm", "sglang", "tensorrt_llm", "lmdeploy", "megatron", "nemo", "torchtitan"),
}
"""Packages whose calls are known by name: no file near the program is read for them."""
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_MODEL_KEYS = {"model", "model_path"}  # of mappings that may be the options of an engine


class Condition(NamedTuple):
    """The test of an ``if`` around a statement, and the result with which the statement runs."""

    test: ast.expr
    result: bool
    scope: Scope


class Assigned(NamedTuple):
    """A value of a name, written in ``scope``; None: known only as the program runs.

    ``others`` are the values that other calls of the function pass to the parameter.
    """

    value: ast.expr | None
    scope: Scope
    conditions: tuple[Condition, ...] = ()
    others: tuple[Assigned, ...] = ()


@dataclass(kw_only=True)
class Scope:
    """Names of a module, a function or a class; each with the values assigned to it.

    ``added`` are appended to lists, ``changed`` set as parts of objects by path; ``annotations``
    are the types of parameters, ``returned`` the results of a function. ``class_name``: of the
    class whose body it is.
    """

    above: Scope | None = None
    names: dict[str, list[Assigned]] = field(default_factory=dict)
    added: dict[str, list[ast.expr]] = field(default_factory=dict)
    changed: dict[str, list[tuple[str, Assigned]]] = field(default_factory=dict)
    annotations: dict[str, ast.expr] = field(default_factory=dict)
    returned: list[Assigned] = field(default_factory=list)
    class_name: str = ""

    def put(self, name: str, assigned: Assigned) -> None:
        """Add an assignment of a name."""
        self.names.setdefault(name, []).append(assigned)

    def enclosing_class(self) -> Scope | None:
        """The body of the class around this scope; None outside of classes."""
        scope: Scope | None = self
        while scope is not None and not scope.class_name:
            scope = scope.above
        return scope

    def is_within(self, outer: Scope) -> bool:
        """Return whether this scope is ``outer`` or inside it."""
        scope: Scope | None = self
        while scope is not None and scope is not outer:
            scope = scope.above
        return scope is outer


class FoundCall(NamedTuple):
    """A call, the scope around it, and the tests on which it runs."""

    node: ast.Call
    scope: Scope
    conditions: tuple[Condition, ...]


@dataclass(kw_only=True)
class Program:
    """Names, calls and command-line arguments of a program and of the modules near it.

    ``members`` are bodies of classes and modules by dotted name, ``bases`` the classes that a class
    extends, ``functions`` the parameters and
    bodies of functions. ``calls`` are those of the program itself and of what it calls in its
    modules; ``read_file`` returns the text of a file near the program by its path, None without
    one; ``environment`` has variables that are set as it starts. ``cache`` has values that were
    looked up, ``limits`` how many assignments of a name count while one of them is evaluated, and
    ``cycles`` counts the look-ups that ended at a name that was being looked up.
    """

    name: str
    read_file: Callable[[str], str | None] = lambda _: None
    environment: Mapping[str, str] = field(default_factory=dict)
    imports: dict[str, str] = field(default_factory=dict)
    arguments: dict[str, Assigned] = field(default_factory=dict)
    members: dict[str, Scope] = field(default_factory=dict)
    bases: dict[str, list[str]] = field(default_factory=dict)
    functions: dict[str, tuple[list[str], Scope]] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)
    calls: list[FoundCall] = field(default_factory=list)
    modules: dict[str, Scope] = field(default_factory=dict)
    cache: dict[tuple[int, str], object] = field(default_factory=dict)
    limits: dict[tuple[int, str], int] = field(default_factory=dict)
    cycles: int = 0
    steps: int = 0

    def step(self) -> None:
        """Count an evaluation step; raises LaunchError after too many."""
        self.steps += 1
        if self.steps > _MOST_STEPS:
            raise LaunchError(f"{self.name}: is nested too deeply or too long to be read.")

    def dotted(self, node: ast.AST) -> str:
        """Return the dotted name of an expression with its imported module; "" if it is none."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return ""
        return ".".join([self.imports.get(node.id, node.id), *reversed(parts)])

    def function_of(self, node: ast.AST, scope: Scope) -> tuple[str, list[str], Scope] | None:
        """Return name, parameters and body of the program's function that a call names.

        A class is its ``__init__``, and parameters are without ``self``; None for others.
        """
        name = self.dotted(node)
        around = scope.enclosing_class()
        if name.startswith("self.") and around is not None:
            name = f"{around.class_name}.{name.removeprefix('self.')}"
        for key in (name, f"{name}.__init__"):
            if key in self.functions:
                parameters, body = self.functions[key]
                is_method = parameters[:1] == ["self"]
                return key, parameters[1:] if is_method else parameters, body
        return None


def read_program(program: Program, text: str) -> None:
    """Collect the names, calls and functions of a program's text.

    Raises SyntaxError, ValueError or RecursionError if it is no Python.
    """
    _Gatherer(program, Scope()).read(text)
    _pass_arguments(program)
    _drop_unused_calls(program)


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


@dataclass
class _Gatherer:
    """Walks one module; ``module`` is its dotted name, empty for the program itself.

    ``line`` is the line of the import in the program: the position of what the module holds.
    ``package`` is that of its relative imports.
    """

    program: Program
    top: Scope
    module: str = ""
    line: int = 0
    package: str = ""

    def read(self, text: str) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
        body = tree.body
        if self.module:
            for node in ast.walk(tree):
                if isinstance(node, ast.expr | ast.stmt | ast.keyword):
                    node.lineno = self.line
            body = [node for node in body if not isinstance(node, ast.If)]
        self.walk(unroll_loops(_folded(body)), self.top, ())

    def walk(
        self, nodes: Sequence[ast.AST], scope: Scope, conditions: tuple[Condition, ...]
    ) -> None:
        """Collect names, imports and calls; parts of objects set in an ``if`` are unknown."""
        for node in nodes:
            self.program.step()
            inner = scope
            if isinstance(node, ast.Import | ast.ImportFrom):
                self._import(node, scope)
            elif isinstance(node, _FUNCTIONS):
                inner = self._function(node, scope)
            elif isinstance(node, ast.ClassDef):
                inner = Scope(above=scope, class_name=self._qualified(node.name, scope))
                self.program.members[inner.class_name] = inner
                bases = [self.program.dotted(base) for base in node.bases]
                self.program.bases[inner.class_name] = bases
            else:
                self._statement(node, scope, conditions)
            if isinstance(node, ast.If):
                self.walk([node.test], scope, conditions)
                for body, result in ((node.body, True), (node.orelse, False)):
                    self.walk(body, scope, (*conditions, Condition(node.test, result, scope)))
            elif isinstance(node, ast.ExceptHandler):  # as if nothing failed
                never = Condition(ast.Constant(value=False), True, scope)
                self.walk(node.body, scope, (*conditions, never))
            else:
                self.walk([*ast.iter_child_nodes(node)], inner, conditions)

    def _statement(self, node: ast.AST, scope: Scope, conditions: tuple[Condition, ...]) -> None:
        """Collect what a statement or an expression assigns, returns or calls."""
        if isinstance(node, ast.Assign):
            for target in node.targets:
                _assign(target, Assigned(node.value, scope, conditions), scope)
        elif isinstance(node, ast.AnnAssign | ast.NamedExpr) and node.value is not None:
            _assign(node.target, Assigned(node.value, scope, conditions), scope)
        elif isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add):
            _add(node.target, node.value, scope)
        elif isinstance(node, ast.AugAssign | ast.For | ast.AsyncFor | ast.comprehension):
            _assign(node.target, Assigned(None, scope), scope)
        elif isinstance(node, ast.withitem) and node.optional_vars is not None:
            is_file = isinstance(node.context_expr, ast.Call)
            value = node.context_expr if is_file else None
            _assign(node.optional_vars, Assigned(value, scope), scope)
        elif isinstance(node, ast.Return) and node.value is not None:
            scope.returned.append(Assigned(node.value, scope, conditions))
        elif isinstance(node, ast.Dict) and _MODEL_KEYS & {
            key.value for key in node.keys if isinstance(key, ast.Constant)
        }:
            self.program.calls.append(FoundCall(_as_call(node), scope, conditions))
        elif isinstance(node, ast.Call):
            self.program.calls.append(FoundCall(node, scope, conditions))
            self._argument(node, scope)
            if isinstance(node.func, ast.Attribute) and node.args[:1]:
                if node.func.attr == "extend":
                    _add(node.func.value, node.args[0], scope)
                elif node.func.attr == "append":
                    _add(node.func.value, ast.List(elts=[*node.args]), scope)

    def _qualified(self, name: str, scope: Scope) -> str:
        """Return the name of a function or class with its module, and with its class."""
        around = scope.class_name or self.module
        return f"{around}.{name}" if around else name

    def _function(
        self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda, scope: Scope
    ) -> Scope:
        """Collect a function's parameters, also those of click and hydra; return its scope."""
        inner = Scope(above=scope)
        names = _parameters(node.args, inner)
        if isinstance(node, ast.Lambda):
            return inner
        key = self._qualified(node.name, scope)
        self.program.functions[key] = names, inner
        self.program.lines[key] = node.lineno
        for decorator in node.decorator_list:
            name = self.program.dotted(decorator.func) if isinstance(decorator, ast.Call) else ""
            if not isinstance(decorator, ast.Call):
                continue
            if name.rpartition(".")[2] in ("option", "argument"):
                option, default = _option_default(decorator, scope)
                if option in names:  # as an attribute of the parsed arguments
                    self.program.arguments[option] = default
                    value = ast.Attribute(value=ast.Name(id=""), attr=option)
                    inner.names[option] = [Assigned(value, inner)]
            elif name == "hydra.main" and names:
                inner.names[names[0]] = [Assigned(_hydra_file(decorator), scope)]
        return inner

    def _argument(self, node: ast.Call, scope: Scope) -> None:
        """Record the defaults of ``add_argument`` and ``set_defaults`` by option name."""
        method = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        if method == "add_argument":
            name, default = _option_default(node, scope)
            keywords = {keyword.arg for keyword in node.keywords}
            if name not in self.program.arguments or "default" in keywords:
                self.program.arguments[name] = default
        elif method == "set_defaults":
            for keyword in node.keywords:
                if keyword.arg:
                    self.program.arguments[keyword.arg] = Assigned(keyword.value, scope)

    def _import(self, node: ast.Import | ast.ImportFrom, scope: Scope) -> None:
        """Collect imported names, and the modules that are files near the program."""
        imports = self.program.imports
        if isinstance(node, ast.Import):
            for name in node.names:
                module_name = name.name if name.asname else name.name.partition(".")[0]
                imports[name.asname or module_name] = module_name
                self._load(name.name, node.lineno)
            return
        module = node.module or ""
        if node.level:
            package = self.package.split(".") if self.package else []
            package = package[: len(package) - node.level + 1]
            module = ".".join([*package, *([module] if module else [])])
        loaded = self._load(module, node.lineno) if module else None
        for name in node.names:
            if name.name == "*":
                for inner in () if loaded is None else [*loaded.names]:
                    self._take(inner, inner, module, loaded, scope)
                continue
            full_name = f"{module}.{name.name}" if module else name.name
            before = imports.get(name.name, "")
            if loaded is not None and before.startswith(f"{module}."):  # the module imports it
                full_name = before
            imports[name.asname or name.name] = full_name
            if loaded is not None and name.name in loaded.names:
                self._take(name.name, name.asname or name.name, module, loaded, scope)
            elif loaded is None or full_name not in {
                *self.program.functions, *self.program.members
            }:  # fmt: skip
                self._load(full_name, node.lineno)
        if loaded is not None and any(name.name == "*" for name in node.names):
            for key in (*self.program.functions, *self.program.members):
                if key.startswith(f"{module}.") and "." not in key.removeprefix(f"{module}."):
                    imports[key.removeprefix(f"{module}.")] = key

    def _take(self, name: str, alias: str, module: str, loaded: Scope | None, scope: Scope) -> None:
        """Assign a name of a module to ``alias`` in the scope that imports it."""
        if loaded is not None and alias not in scope.names:
            scope.put(alias, Assigned(ast.Name(id=name), loaded))

    def _load(self, module: str, line: int) -> Scope | None:
        """Return the scope of a module that is a file near the program; None for others."""
        program = self.program
        if module in program.modules:
            return program.modules[module]
        is_full = program.steps > _MOST_STEPS_BEFORE_IMPORT or len(program.modules) >= _MOST_MODULES
        if is_full or module.partition(".")[0] in _LIBRARIES:
            return None
        path = PurePosixPath(*module.split("."))
        files = (f"{path}.py", f"{path}/__init__.py")
        file, text = next(
            ((file, text) for file in files if (text := program.read_file(file)) is not None),
            ("", None),
        )
        if text is None:
            return None
        package = module if file.endswith("__init__.py") else module.rpartition(".")[0]
        scope = program.modules[module] = program.members[module] = Scope()
        try:
            _Gatherer(program, scope, module, self.line or line, package).read(text)
        except (SyntaxError, ValueError, RecursionError):
            return None
        return scope


def _option_default(node: ast.Call, scope: Scope) -> tuple[str, Assigned]:
    """Return name and default of an option of argparse or click."""
    words = [argument.value for argument in node.args if isinstance(argument, ast.Constant)]
    options = [word for word in words if isinstance(word, str)]
    long = next((word for word in options if word.startswith("--")), next(iter(options), ""))
    keywords = {keyword.arg: keyword.value for keyword in node.keywords}
    dest = keywords.get("dest")
    name = dest.value if isinstance(dest, ast.Constant) else long.lstrip("-").replace("-", "_")
    action = keywords.get("action")
    kind = action.value if isinstance(action, ast.Constant) else None
    flags = {"store_true": False, "store_false": True}
    is_flag = isinstance(kind, str) and kind in flags
    implied = ast.Constant(value=flags[str(kind)]) if is_flag else None
    return str(name), Assigned(keywords.get("default") or implied, scope)


def _hydra_file(decorator: ast.Call) -> ast.expr | None:
    """Return the loading of the configuration that ``hydra.main`` names; None without one."""
    keywords = {keyword.arg: keyword.value for keyword in decorator.keywords}
    folder, name = (
        value.value if isinstance(value := keywords.get(key), ast.Constant) else None
        for key in ("config_path", "config_name")
    )
    if not isinstance(name, str):
        return None
    file = f"{folder}/{name}" if isinstance(folder, str) else name
    path = ast.Constant(value=file if file.endswith((".yaml", ".yml")) else f"{file}.yaml")
    return ast.Call(func=ast.Name(id="OmegaConf.load"), args=[path], keywords=[])


def _as_call(node: ast.Dict) -> ast.Call:
    """Return a dict display as the call of ``dict`` with its keys."""
    keywords = [
        ast.keyword(arg=key.value, value=value, lineno=value.lineno)
        for key, value in zip(node.keys, node.values, strict=True)
        if isinstance(key, ast.Constant) and isinstance(key.value, str)
    ]
    name = ast.Name(id="dict", lineno=node.lineno)
    return ast.Call(func=name, args=[], keywords=keywords, lineno=node.lineno, col_offset=0)


def _parameters(arguments: ast.arguments, scope: Scope) -> list[str]:
    """Assign the parameters of a function their defaults in ``scope``; return names in order."""
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults: list[ast.expr | None] = [*arguments.defaults]
    pairs = [*zip_longest(reversed(positional), reversed(defaults))]
    for argument, value in (*pairs, *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)):
        scope.put(argument.arg, Assigned(value, scope))
        if argument.annotation is not None:
            scope.annotations[argument.arg] = argument.annotation
    for rest in (arguments.vararg, arguments.kwarg):
        if rest is not None:
            scope.put(rest.arg, Assigned(None, scope))
    return [argument.arg for argument in positional]


def _pass_arguments(program: Program) -> None:
    """Assign the arguments of calls to the parameters of the called functions in the program."""
    passed: dict[tuple[int, str], list[Assigned]] = {}
    scopes: dict[int, Scope] = {}
    for node, scope, _ in program.calls:
        if (function := program.function_of(node.func, scope)) is None:
            continue
        _, names, body = function
        scopes[id(body)] = body
        pairs = [*zip(names, node.args, strict=False)]
        pairs += [(keyword.arg, keyword.value) for keyword in node.keywords if keyword.arg]
        for parameter, value in pairs:
            passed.setdefault((id(body), parameter), []).append(Assigned(value, scope))
    for (key, parameter), (first, *others) in passed.items():
        assigned = scopes[key].names.setdefault(parameter, [])
        assigned[:1] = [first._replace(others=tuple(others))]  # in place of its default


def _drop_unused_calls(program: Program) -> None:
    """Drop the calls of modules near the program that nothing in the program runs."""
    modules = [*program.modules.values()]
    if not modules:
        return
    calls = [
        (call, next((module for module in modules if call.scope.is_within(module)), None))
        for call in program.calls
    ]
    used = {id(call.node) for call, module in calls if module is None or call.scope is module}
    pending = [call for call, _ in calls if id(call.node) in used]
    reached: set[int] = set()
    while pending:
        call = pending.pop()
        body = program.members.get(program.dotted(call.node.func))
        function = program.function_of(call.node.func, call.scope)
        for scope in (body, None if function is None else function[2]):
            if scope is None or id(scope) in reached:
                continue
            reached.add(id(scope))
            for inner, _ in calls:
                if id(inner.node) not in used and inner.scope.is_within(scope):
                    used.add(id(inner.node))
                    pending.append(inner)
    program.calls = [call for call, _ in calls if id(call.node) in used]


def _is_of_self(target: ast.AST) -> bool:
    return (
        isinstance(target, ast.Attribute)
        and isinstance(target.value, ast.Name)
        and target.value.id == "self"
    )


def _assign(target: ast.AST, assigned: Assigned, scope: Scope) -> None:
    """Record the value of an assignment's target in the scope."""
    value = assigned.value
    around = scope.enclosing_class()
    if isinstance(target, ast.Name):
        scope.put(target.id, assigned)
    elif isinstance(target, ast.Tuple | ast.List):
        for index, element in enumerate(target.elts):
            part: ast.expr | None = None
            if isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(target.elts):
                part = value.elts[index]
            elif isinstance(value, ast.Call):
                part = ast.Subscript(value=value, slice=ast.Constant(value=index))
            _assign(element, assigned._replace(value=part), scope)
    elif _is_of_self(target) and around is not None:
        around.put(ast.unparse(target), assigned)
    elif isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name):
        key = target.slice.value if isinstance(target.slice, ast.Constant) else None
        if isinstance(key, str):
            scope.changed.setdefault(target.value.id, []).append((key, assigned))
        else:
            scope.put(target.value.id, Assigned(None, scope))  # a mapping that is changed
    elif isinstance(target, ast.Attribute):
        name, _, path = ast.unparse(target).partition(".")
        scope.changed.setdefault(name, []).append((path, assigned))


def _add(target: ast.AST, value: ast.expr, scope: Scope) -> None:
    """Append to a list assigned in this scope; any other variable becomes unknown."""
    first = scope.names[target.id][0] if isinstance(target, ast.Name) and (
        target.id in scope.names
    ) else None  # fmt: skip
    if isinstance(target, ast.Name) and first is not None and isinstance(first.value, ast.List):
        scope.added.setdefault(target.id, []).append(value)
    else:
        _assign(target, Assigned(None, scope), scope)


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
