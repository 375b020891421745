"""Templates of Go as Helm fills them: what a text with ``{{ ... }}`` becomes for given values.

Read in plain steps: fields, variables, pipelines, ``if``, ``with``, ``range``, ``define``,
``include``, ``template``, ``tpl``, and the functions of `planner.documents.template_functions`.
What is none of these is left out and told. Source: pkg.go.dev/text/template, helm.sh/docs
(chart_template_guide, version 3).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from planner.base.records import record
from planner.documents.template_functions import FUNCTIONS, Refused, Value, is_true, shown
from planner.errors import LaunchError, PlannerError

_ACTION = re.compile(
    r"\{\{(?P<left>-(?=\s))?\s*(?:/\*.*?\*/|(?P<code>(?:\"(?:\\.|[^\"\\\n])*\"|`[^`]*`|[^\"`]){0,5000}?))"
    r"\s*(?P<right>(?<=\s)-)?\}\}",
    re.DOTALL,
)
_TOKEN = re.compile(
    r"(?P<blank>\s+)|(?P<text>\"(?:\\.|[^\"\\])*\"|`[^`]*`)|(?P<number>[-+]?\d[\d_]*(?:\.\d+)?)"
    r"|(?P<variable>\$\w*)|(?P<field>\.\w+)|(?P<dot>\.)|(?P<name>[A-Za-z_]\w*)"
    r"|(?P<mark>:=|[=|(),])"
)
_FIRST_WORD = re.compile(r"\s*([A-Za-z]\w*)")
_OPENING = ("if", "with", "range", "define", "block")
_MOST_STEPS, _MOST_INSIDE, _MOST_TEXT = 200_000, 40, 4_000_000
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}
_NOTHING = object()


class _NotUnderstood(Exception):
    """A part of a template that is left out; the text says why."""


@record(kw_only=True)
class Filled:
    """A template with its values: the ``text``, and the line of the template of each of its lines.

    ``left_out`` says which lines have a part that is not understood, and why.
    """

    text: str
    lines: tuple[int, ...]
    left_out: tuple[str, ...]


@record()
class _Part:
    """Text between actions, or an action with what follows it up to its end."""

    line: int
    text: str = ""
    word: str = ""
    code: str = ""
    inside: tuple[_Part, ...] = ()
    other: tuple[_Part, ...] = ()


@dataclass
class Templates:
    """Templates that call each other: those of a chart."""

    named: dict[str, tuple[_Part, ...]] = field(default_factory=dict)

    def add(self, text: str, name: str) -> tuple[_Part, ...]:
        """A text's parts; what it defines is known by name from then on.

        Raises
        ------
        LaunchError
            An action is not closed, or ends what does not begin.
        """
        parts = [*_parts(text)]
        if unclosed := next((part for part in parts if "{{" in part.text), None):
            line = unclosed.line + unclosed.text[: unclosed.text.index("{{")].count("\n")
            raise LaunchError(f"{name}:{line}: an action of the template is never closed.")
        own, end = _nested(parts, 0, name, 0)
        if end < len(parts):
            raise LaunchError(f"{name}:{parts[end].line}: ends what does not begin.")
        for part in _all(own):
            if part.word in ("define", "block"):
                called, _ = _string(part.code)
                self.named[called] = part.inside
        return own

    def filled(self, parts: Sequence[_Part], values: Value) -> Filled:
        """The text that parts become, with ``.`` as these values."""
        run = _Run(self, values)
        run.write(parts, _Scope(values, {"$": values}))
        lines, begun = [1], False
        for text, line, is_of_template in run.output:
            if not text:
                continue
            if not begun:
                lines[-1] = line
            lines += [line + at * is_of_template for at in range(1, text.count("\n") + 1)]
            begun = not text.endswith("\n")
        return Filled(
            text="".join(text for text, _, _ in run.output),
            lines=tuple(lines),
            left_out=tuple(dict.fromkeys(run.left_out)),
        )


def _parts(text: str) -> Iterator[_Part]:
    at, trims = 0, False
    for found in _ACTION.finditer(text):
        between = text[at : found.start()]
        yield _text(text, at, between, trims, bool(found["left"]))
        code = found["code"] or ""
        word, rest = _headed(code)
        line = text.count("\n", 0, found.start()) + 1
        known = (*_OPENING, "else", "end", "template", "break", "continue")
        if word in known:
            yield _Part(line, word=word, code=rest)
        elif code:
            yield _Part(line, word="put", code=code)
        at, trims = found.end(), bool(found["right"])
    yield _text(text, at, text[at:], trims, False)


def _headed(code: str) -> tuple[str, str]:
    """The first word of some code, empty where it begins otherwise, and what follows."""
    word = _FIRST_WORD.match(code)
    return ("", code) if word is None else (word[1], code[word.end() :])


def _text(text: str, start: int, between: str, trims: bool, trims_end: bool) -> _Part:
    own = between.lstrip() if trims else between
    start += len(between) - len(own)
    return _Part(text.count("\n", 0, start) + 1, text=own.rstrip() if trims_end else own)


def _nested(
    parts: Sequence[_Part], at: int, name: str, depth: int
) -> tuple[tuple[_Part, ...], int]:
    """The parts up to an ``else`` or ``end`` of this depth, and where that is."""
    if depth > _MOST_INSIDE:
        raise LaunchError(f"{name}:{parts[at].line}: nested more than {_MOST_INSIDE} deep.")
    own: list[_Part] = []
    while at < len(parts) and parts[at].word not in ("else", "end"):
        part = parts[at]
        at += 1
        if part.word in _OPENING:
            part, at = _whole(part, parts, at, name, depth)
        own.append(part)
    return tuple(own), at


def _whole(
    part: _Part, parts: Sequence[_Part], at: int, name: str, depth: int
) -> tuple[_Part, int]:
    inside, at = _nested(parts, at, name, depth + 1)
    if at >= len(parts):
        raise LaunchError(f"{name}:{part.line}: {part.word} has no end.")
    other: tuple[_Part, ...] = ()
    if parts[at].word == "else":
        word, code = _headed(parts[at].code)
        if word in ("if", "with"):
            again = _Part(parts[at].line, word=word, code=code)
            one, at = _whole(again, parts, at + 1, name, depth + 1)
            return _Part(part.line, word=part.word, code=part.code, inside=inside,
                         other=(one,)), at  # fmt: skip
        other, at = _nested(parts, at + 1, name, depth + 1)
        if at >= len(parts):
            raise LaunchError(f"{name}:{part.line}: {part.word} has no end.")
    made = _Part(part.line, word=part.word, code=part.code, inside=inside, other=other)
    return made, at + 1


def _all(parts: Sequence[_Part]) -> Iterator[_Part]:
    for part in parts:
        yield part
        yield from _all((*part.inside, *part.other))


def _string(code: str) -> tuple[str, str]:
    """The text at the beginning of some code, and what follows it."""
    match = _TOKEN.match(code.strip())
    if match is None or match["text"] is None:
        return "", code
    return _unquoted(match["text"]), code.strip()[match.end() :]


def _unquoted(text: str) -> str:
    if text.startswith("`"):
        return text[1:-1]
    return re.sub(r"\\(.)", lambda one: _ESCAPES.get(one[1], one[1]), text[1:-1])


@dataclass
class _Scope:
    """What ``.`` is, and the variables."""

    dot: Value
    variables: dict[str, Value]
    above: _Scope | None = None

    def inner(self, dot: Value) -> _Scope:
        return _Scope(dot, {}, self)

    def find(self, name: str) -> _Scope | None:
        scope: _Scope | None = self
        while scope is not None and name not in scope.variables:
            scope = scope.above
        return scope


class _Run:
    """One filling of a template: what is written, and what is left out."""

    def __init__(self, templates: Templates, root: Value) -> None:
        self.templates, self.root = templates, root
        self.output: list[tuple[str, int, bool]] = []
        self.left_out: list[str] = []
        self.steps = self.depth = self.size = 0

    def write(self, parts: Sequence[_Part], scope: _Scope) -> None:
        for part in parts:
            self.steps += 1
            if self.steps > _MOST_STEPS or self.size > _MOST_TEXT:
                raise LaunchError("a template becomes more than is read.")
            if part.text:
                self.put(part.text, part.line, is_of_template=True)
            elif part.word not in ("", "define"):
                try:
                    self._do(part, scope)
                except _NotUnderstood as why:
                    self.left_out.append(f"line {part.line}: {why}")
                except RecursionError:
                    self.left_out.append(f"line {part.line}: a value that is in itself")

    def put(self, text: str, line: int, *, is_of_template: bool = False) -> None:
        self.output.append((text, line, is_of_template))
        self.size += len(text)

    def _do(self, part: _Part, scope: _Scope) -> None:
        if part.word == "put":
            name, is_new, code = _assigned(part.code)
            value = self.value(code, scope)
            if name:
                owner = scope if is_new else scope.find(name) or scope
                owner.variables[name] = value
            else:
                self.put(shown(value), part.line)
        elif part.word in ("if", "with"):
            name, _, code = _assigned(part.code)
            value = self.value(code, scope)
            is_of_value = part.word == "with" and is_true(value)
            inner = scope.inner(value if is_of_value else scope.dot)
            inner.variables |= {name: value} if name else {}
            self.write(part.inside if is_true(value) else part.other, inner)
        elif part.word == "range":
            self._range(part, scope)
        elif part.word in ("template", "block"):
            name, code = _string(part.code)
            dot = self.value(code, scope) if code.strip() else None
            self.put(self.include(name, dot), part.line)

    def _range(self, part: _Part, scope: _Scope) -> None:
        names, code = _ranged(part.code)
        value = self.value(code, scope)
        pairs: list[tuple[Value, Value]]
        if isinstance(value, Mapping):
            pairs = sorted(value.items(), key=lambda pair: str(pair[0]))
        elif isinstance(value, list | tuple):
            pairs = [*enumerate(value)]
        elif isinstance(value, int) and not isinstance(value, bool):
            pairs = [(at, at) for at in range(min(value, _MOST_STEPS))]
        else:
            pairs = []
        for key, each in pairs:
            inner = scope.inner(each)
            own = (key, each) if len(names) > 1 else (each,)
            inner.variables |= dict(zip(names, own, strict=False))
            self.write(part.inside, inner)
        if not pairs:
            self.write(part.other, scope)

    def include(self, name: str, dot: Value) -> str:
        """The text of a named template."""
        if name not in self.templates.named:
            raise _NotUnderstood(f"template {name!r} is not in the chart")
        return self._apart(self.templates.named[name], dot)

    def _apart(self, parts: Sequence[_Part], dot: Value) -> str:
        if self.depth >= _MOST_INSIDE:
            raise LaunchError(f"templates call each other more than {_MOST_INSIDE} deep.")
        kept, self.output, self.depth = self.output, [], self.depth + 1
        try:
            self.write(parts, _Scope(dot, {"$": dot}))
            return "".join(text for text, _, _ in self.output)
        finally:
            self.output, self.depth = kept, self.depth - 1

    def value(self, code: str, scope: _Scope) -> Value:
        tokens = _tokens(code)
        value, at = self._pipeline(tokens, 0, scope)
        if at < len(tokens):
            raise _NotUnderstood(f"{{{{ {code.strip()[:60]} }}}} is not understood")
        return value

    def _pipeline(self, tokens: Sequence[_Token], at: int, scope: _Scope) -> tuple[Value, int]:
        value, at = self._command(tokens, at, scope, _NOTHING)
        while at < len(tokens) and tokens[at].text == "|":
            value, at = self._command(tokens, at + 1, scope, value)
        return value, at

    def _command(
        self, tokens: Sequence[_Token], at: int, scope: _Scope, piped: object
    ) -> tuple[Value, int]:
        if at < len(tokens) and tokens[at].kind == "name" and not _constant(tokens[at]):
            own, at_end = self._operands(tokens, at + 1, scope)
            given = own if piped is _NOTHING else [*own, piped]
            return self._called(tokens[at].text, given, scope), at_end
        value, at = self._operand(tokens, at, scope)
        if callable(value):  # a method, as of .Files
            own, at = self._operands(tokens, at, scope)
            value = value(*map(shown, own))
        return value, at

    def _operands(
        self, tokens: Sequence[_Token], at: int, scope: _Scope
    ) -> tuple[list[Value], int]:
        operands: list[Value] = []
        while at < len(tokens) and tokens[at].text not in ("|", ")"):
            one, at = self._operand(tokens, at, scope)
            operands.append(one)
        return operands, at

    def _operand(self, tokens: Sequence[_Token], at: int, scope: _Scope) -> tuple[Value, int]:
        if at >= len(tokens):
            raise _NotUnderstood("an action ends too early")
        token, at = tokens[at], at + 1
        value: Value
        if token.kind == "text":
            value = _unquoted(token.text)
        elif token.kind == "number":
            digits = token.text.replace("_", "")
            value = float(digits) if "." in digits else int(digits)
        elif token.kind == "name" and (constant := _constant(token)):
            value = constant[0]
        elif token.kind == "name":
            value = self._called(token.text, [], scope)
        elif token.kind == "variable":
            owner = scope.find(token.text)
            value = None if owner is None else owner.variables[token.text]
        elif token.kind in ("dot", "field"):
            value = scope.dot
            at -= token.kind == "field"
        elif token.text == "(":
            value, at = self._pipeline(tokens, at, scope)
            if at >= len(tokens) or tokens[at].text != ")":
                raise _NotUnderstood("a bracket is not closed")
            at += 1
        else:
            raise _NotUnderstood(f"{token.text!r} is not understood")
        first = token.kind == "field"
        while at < len(tokens) and tokens[at].kind == "field" and (first or tokens[at].is_joined):
            value = value.get(tokens[at].text[1:]) if isinstance(value, Mapping) else None
            at, first = at + 1, False
        return value, at

    def _called(self, name: str, arguments: list[Value], scope: _Scope) -> Value:
        if name == "include" and arguments:
            return self.include(str(arguments[0]), arguments[1] if arguments[1:] else None)
        if name == "tpl" and arguments:
            text = shown(arguments[0])
            parts = self.templates.add(text, "tpl") if "{{" in text else (_Part(1, text=text),)
            return self._apart(parts, arguments[1] if arguments[1:] else scope.dot)
        if name not in FUNCTIONS:
            raise _NotUnderstood(f"the function {name} is not understood")
        try:
            return FUNCTIONS[name](*arguments)
        except Refused as error:
            raise LaunchError(f"the chart refuses these values: {error}") from None
        except (PlannerError, TypeError, ValueError, LookupError, ArithmeticError, AttributeError):
            raise _NotUnderstood(f"{name} is given what it does not take") from None


@record()
class _Token:
    kind: str
    text: str
    is_joined: bool


def _tokens(code: str) -> list[_Token]:
    tokens: list[_Token] = []
    at, blank = 0, True
    while at < len(code):
        match = _TOKEN.match(code, at)
        if match is None or match.lastgroup is None:
            raise _NotUnderstood(f"{code[at : at + 20]!r} is not understood")
        if match.lastgroup != "blank":
            tokens.append(_Token(match.lastgroup, match[0], not blank))
        blank, at = match.lastgroup == "blank", match.end()
    return tokens


def _constant(token: _Token) -> tuple[Value] | None:
    constants: Mapping[str, Value] = {"true": True, "false": False, "nil": None}
    return (constants[token.text],) if token.text in constants else None


_ASSIGNED = re.compile(r"\s*(\$\w+)\s*(:?)=(?!=)\s*(.*)", re.DOTALL)
_RANGED = re.compile(r"\s*(\$\w+)\s*(?:,\s*(\$\w+)\s*)?:=\s*(.*)", re.DOTALL)


def _assigned(code: str) -> tuple[str, bool, str]:
    """The variable that is set, empty where none is, whether it is a new one, and to what."""
    match = _ASSIGNED.fullmatch(code)
    return ("", False, code) if match is None else (match[1], bool(match[2]), match[3])


def _ranged(code: str) -> tuple[tuple[str, ...], str]:
    """The variables of each key and value, or of each value, and of what."""
    match = _RANGED.fullmatch(code)
    if match is None:
        return (), code
    return tuple(filter(None, (match[1], match[2]))), match[3]
