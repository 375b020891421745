"""Simple commands of a script: assignments, builtins that change variables, here-documents."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from planner.shell import conditions
from planner.shell.expand import Expander
from planner.shell.scope import Scope
from planner.shell.script import Command, HereDocument
from planner.shell.syntax import (
    Assignment,
    Function,
    HereText,
    RawWord,
    Redirection,
    Simple,
    Source,
)
from planner.shell.text import Span
from planner.shell.values import (
    Element,
    Piece,
    Variable,
    Word,
    computed,
    text_of,
    why_unknown,
)

_SUCCEED = frozenset(("true", ":", "echo", "printf", "cd", "mkdir", "set", "shopt", "unset"))
_READ_IN = frozenset(("read", "mapfile", "readarray", "getopts", "let"))
_SOURCES = frozenset(("source", "."))


class SimpleCommands:
    """Variables, commands and files of a script so far."""

    def __init__(self, source: Source, environment: Mapping[str, str]) -> None:
        self.source = source
        self.scope = Scope()
        for name, text in environment.items():
            self.scope.put(name, Variable((Element(computed(text)),)))
        self.expander = Expander(source, self.scope)
        self.commands: list[Command] = []
        self.files: dict[str, HereDocument] = {}
        self.functions: dict[str, Function] = {}
        self.called: set[str] = set()
        self.exported: dict[str, None] = {}
        self._environment: dict[str, Word] | None = None

    def call(self, name: str, arguments: Sequence[Element]) -> bool | None:
        """Follows a function."""
        raise NotImplementedError

    def enter(self, scope: Scope) -> None:
        """Goes on with the variables of ``scope``."""
        self.scope = self.expander.scope = scope
        self._environment = None

    def simple(self, node: Simple) -> bool | None:
        """Follows one command; whether it succeeds, None if that is not told."""
        self.expander.count(1, node.start)
        if node.words and node.words[0].literal in ("[[", "[", "test"):
            return self._test(node)
        if node.declares or not node.words:
            for assignment in node.assignments:
                self._assign(assignment, node.declares)
        words = [word for raw in node.words for word in self.expander.words(raw)]
        self.redirections(node.redirections, words)
        if not words:
            return True
        name = words[0].text or ""
        if node.declares:
            self._declare(name, words[1:], node)
            return True
        if name in self.functions:
            return self.call(name, [Element(word.pieces, word.regions) for word in words[1:]])
        self._builtin(name, words)
        self._command(node, words)
        if name == "false" or (name == "getopts" and not self.expander.num_arguments):
            return False
        return True if name in _SUCCEED else None

    def _command(self, node: Simple, words: Sequence[Word]) -> None:
        given: Mapping[str, Word] = self._exports(node.start)
        if node.assignments:
            own = {item.name: self._value(item) for item in node.assignments}
            starts = {item.name: item.start for item in node.assignments}
            given = {**given, **{n: self._word(v, starts[n]) for n, v in own.items()}}
        span, line = Span(node.start, node.end), self.source.line(node.start)
        command = Command(words=tuple(words), environment=given, line=line, span=span)
        self.commands.append(command)

    def _test(self, node: Simple) -> bool | None:
        is_plain = node.words[0].literal != "[["
        if is_plain:
            words = [word.text for raw in node.words for word in self.expander.words(raw)]
        else:
            words = [text_of(self.expander.text(raw.parts, raw.start)) for raw in node.words]
        inside = words[1:-1] if words[-1] in ("]", "]]") else words[1:]
        return conditions.holds(inside)

    # Variables

    def _exports(self, position: int) -> dict[str, Word]:
        if self._environment is None:
            variables = {name: self.scope.get(name) for name in self.exported}
            self._environment = {
                name: self._word(variable, position)
                for name, variable in variables.items()
                if variable is not None
            }
            self.expander.spend([Piece("")] * len(variables), position)
        return self._environment

    def _word(self, variable: Variable, position: int) -> Word:
        start = variable.assigned[-1] if variable.assigned else position
        return variable_word(self.expander, variable, start)

    def _declare(self, name: str, words: Iterable[Word], node: Simple) -> None:
        if name == "export":
            names = [word.text or "" for word in words] + [a.name for a in node.assignments]
            self.exported.update(dict.fromkeys(names))
            self._environment = None

    def _assign(self, assignment: Assignment, declares: str) -> None:
        variable = self._value(assignment)
        if declares == "local":
            self.scope.local.add(assignment.name)
        self.put(assignment.name, variable)

    def put(self, name: str, variable: Variable | None) -> None:
        """Sets a variable."""
        self.scope.put(name, variable)
        if name in self.exported:
            self._environment = None

    def _value(self, item: Assignment) -> Variable:
        before = self.scope.get(item.name) if item.adds else None
        places = (*(before.assigned if before else ()), item.start)[-10:]
        if item.subscript or (before is not None and before.unknown):
            reason = before.unknown if before and before.unknown else ""
            reason = reason or f"${item.name} is assigned an element at a time"
            return Variable((), assigned=places, unknown=reason)
        if item.value is None:
            return self._array(item, before, places)
        pieces = self.expander.text(item.value.parts, item.value.start)
        if before is None:
            return Variable((Element(pieces or (Piece("", *_place(item.value)),)),), False, places)
        joined = (*before.pieces, *pieces)
        self.expander.spend(joined, item.start)
        first, rest = Element(joined), before.elements[1:]
        return Variable((first, *rest), before.is_array, assigned=places)

    def _array(
        self, item: Assignment, before: Variable | None, places: tuple[int, ...]
    ) -> Variable:
        if any((raw.literal or "").startswith("[") and "]=" in (raw.literal or "")
               for raw in item.elements):  # fmt: skip
            reason = f"${item.name} is assigned by keys (line {self.source.line(item.start)})"
            return Variable((), True, places, reason)
        elements = list(before.elements) if before is not None else []
        self.expander.count(len(elements), item.start)
        for raw in item.elements:
            elements += self.expander.elements(raw)
        return Variable(tuple(elements), True, places)

    def _builtin(self, name: str, words: Sequence[Word]) -> None:
        rest = [word.text or "" for word in words[1:]]
        line = words[0].line
        if name == "unset":
            for variable in rest:
                if not variable.startswith("-"):
                    self.put(variable, Variable((Element((Piece(""),)),)))
        elif name in _READ_IN:
            for variable in rest:
                known = variable.partition("=")[0]
                if known.isidentifier():
                    reason = f"${known} is read when it runs (line {line})"
                    self.put(known, Variable((), unknown=reason))
        elif name in _SOURCES:
            shown = " ".join(words[1].raw.split()) if len(words) > 1 else "a file"
            self.expander.elsewhere = f" (line {line} reads {shown})"
        elif name == "shift":
            self._shift(rest)
        elif name == "set" and "--" in rest:
            after = words[rest.index("--") + 2 :]
            self.expander.arguments = tuple(Element(w.pieces, w.regions) for w in after)

    def _shift(self, rest: Sequence[str]) -> None:
        if self.expander.arguments is not None:
            number = int(rest[0]) if rest and rest[0].isdecimal() and len(rest[0]) < 7 else 1
            self.expander.arguments = self.expander.arguments[number:]

    # Here-documents

    def redirections(self, items: Sequence[Redirection], words: Sequence[Word]) -> None:
        """Keeps the here-documents of a command by the file that it writes."""
        bodies = [item.body for item in items if item.body is not None]
        if not bodies:
            return
        outputs = [item.word for item in items if item.operator in (">", ">>", ">|", "&>", "&>>")]
        for body in bodies:
            self.files[self._output(body, outputs, words)] = self._document(body)

    def _output(self, body: HereText, outputs: Sequence[RawWord], words: Sequence[Word]) -> str:
        if outputs:
            named = self.expander.words(outputs[-1])
            return (named[0].text or named[0].raw) if named else ""
        if words and words[0].text == "tee":
            for word in words[1:]:
                if not word.raw.startswith("-"):
                    return word.text or word.raw
        return f"<<{body.delimiter} (line {self.source.line(body.start) - 1})"

    def _document(self, body: HereText) -> HereDocument:
        pieces = self.expander.text(body.parts, body.start)
        shown = tuple(self._as_written(piece) for piece in pieces)
        text = "".join(piece.text for piece in shown)
        own = self.source.text[body.start : body.end]
        return HereDocument(
            text=text,
            span=Span(body.start, body.end),
            line=self.source.line(body.start),
            expanded=text != own,
            unknown=why_unknown(pieces),
            pieces=shown,
        )

    def _as_written(self, piece: Piece) -> Piece:
        if not piece.unknown or not piece.trail:
            return piece
        start, end = piece.trail[-1].start, piece.trail[-1].end
        return Piece(self.source.text[start:end], start, end)


def variable_word(expander: Expander, variable: Variable, start: int) -> Word:
    """A variable as a word; an array with its elements joined by blanks."""
    if variable.unknown or not variable.is_array:
        return expander.word(Element(variable.pieces), start, start)
    pieces: list[Piece] = []
    for element in variable.elements:
        pieces += [*computed(" "), *element.pieces] if pieces else element.pieces
    return expander.word(Element(tuple(pieces) or computed("")), start, start)


def _place(raw: RawWord) -> tuple[int, int]:
    return raw.start, raw.end
