"""Follows the branches and loops of a script as they would run, and runs none."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest

from planner.documents.shell.edits import Span
from planner.documents.shell.expansion import (
    Expander,
    UnknownExpression,
    arithmetic_number,
    arithmetic_value,
    matches_pattern,
)
from planner.documents.shell.parser import Parser
from planner.documents.shell.printed import printed_text
from planner.documents.shell.scope import READ_AT_RUN_TIME, Scope, merge
from planner.documents.shell.syntax import (
    AndOrList,
    ArithmeticCommand,
    Assignment,
    Case,
    Command,
    Element,
    Function,
    Group,
    HereDocBody,
    HereDocument,
    If,
    Loop,
    Negation,
    Node,
    Parameter,
    Pieces,
    RawWord,
    Redirection,
    SimpleCommand,
    Source,
    Subshell,
    TextPiece,
    Variable,
    Word,
    computed_text,
    text_of,
    unknown_text,
    why_unknown,
)
from planner.errors import LaunchError

_COMPARED: dict[str, Callable[[int, int], bool]] = {
    "-eq": lambda a, b: a == b, "-ne": lambda a, b: a != b, "-lt": lambda a, b: a < b,
    "-le": lambda a, b: a <= b, "-gt": lambda a, b: a > b, "-ge": lambda a, b: a >= b,
}  # fmt: skip


def evaluate_test(words: Sequence[str | None]) -> bool | None:
    """Return whether a test of these words holds; None: it cannot be computed.

    >>> [evaluate_test(words) for words in (["8", "-gt", "4"], ["-z", None], ["a", "=", "b"])]
    [True, None, False]
    """
    if "(" in words or ")" in words:
        return None
    alternatives = [_all(part) for part in _split(words, ("||", "-o"))]
    if True in alternatives:
        return True
    return None if None in alternatives else False


def _all(words: Sequence[str | None]) -> bool | None:
    conditions = [_evaluate_single(part) for part in _split(words, ("&&", "-a"))]
    if False in conditions:
        return False
    return None if None in conditions else True


def _split(words: Sequence[str | None], operators: tuple[str, ...]) -> list[Sequence[str | None]]:
    """Split the words of a test at ``operators``; an operator without words before is a word."""
    parts, start = list[Sequence[str | None]](), 0
    for index, word in enumerate(words):
        if word in operators and index > start:
            parts.append(words[start:index])
            start = index + 1
    return [*parts, words[start:]]


def _evaluate_single(words: Sequence[str | None]) -> bool | None:
    """Return whether a test without "and" or "or" holds; None: unknown words or operators."""
    if len(words) > 1 and words[0] == "!":
        inner = _evaluate_single(words[1:])
        return None if inner is None else not inner
    if None in words or len(words) > 3:
        return None
    texts = [word or "" for word in words]
    if len(texts) < 2:
        return any(texts)
    if len(texts) == 2:
        return {"-z": not texts[1], "-n": bool(texts[1])}.get(texts[0])
    return _compared(*texts)


def _compared(left: str, operator: str, right: str) -> bool | None:
    """Return whether a comparison of two texts or numbers holds; None: it cannot be computed."""
    if operator in ("=", "==", "!="):
        equal = matches_pattern(left, right)
        return None if equal is None else equal == (operator != "!=")
    if operator not in _COMPARED:
        return None
    try:
        return _COMPARED[operator](arithmetic_number(left), arithmetic_number(right))
    except UnknownExpression:
        return None


_SUCCEED = frozenset(("true", ":", "echo", "printf", "cd", "mkdir", "set", "shopt", "unset"))
_READ_IN = frozenset(("read", "mapfile", "readarray", "getopts", "let"))
_SOURCES = frozenset(("source", "."))


class SimpleCommands:
    """Variables, commands and files of a script so far."""

    def __init__(
        self,
        source: Source,
        environment: Mapping[str, str],
        read_sourced: Callable[[str], str | None] | None = None,
    ) -> None:
        """Start with the variables of ``environment`` and no commands, files or functions yet."""
        self.source = source
        self.read_sourced = read_sourced
        self.scope = Scope()
        for name, text in environment.items():
            self.scope.put(name, Variable((Element(computed_text(text)),)))
        self.expander = Expander(source, self.scope)
        self.commands: list[Command] = []
        self.files: dict[str, HereDocument] = {}
        self.functions: dict[str, Function] = {}
        self.called: set[str] = set()
        self.exported: dict[str, None] = {}
        self._environment: dict[str, Word] | None = None
        self.rounds, self.in_background = 1, False

    def call(self, name: str, arguments: Sequence[Element]) -> bool | None:
        """Follows a function."""
        raise NotImplementedError

    def enter(self, scope: Scope) -> None:
        """Continues with the variables of ``scope``."""
        self.scope = self.expander.scope = scope
        self._environment = None

    def simple(self, node: SimpleCommand) -> bool | None:
        """Run a simple command; return whether the command succeeds, None: unknown."""
        self.expander.count(1, node.start)
        if node.words and node.words[0].literal in ("[[", "[", "test"):
            return self._test(node)
        if node.declares or not node.words:
            for assignment in node.assignments:
                variable = self._value(assignment)
                if node.declares == "local":
                    self.scope.local.add(assignment.name)
                self.put(assignment.name, variable)
        words = [word for raw in node.words for word in self.expander.words(raw)]
        self.redirections(node.redirections, words)
        if not words:
            return True
        name = words[0].text or ""
        if node.declares:
            if name == "export":
                names = [word.text or "" for word in words[1:]] + [a.name for a in node.assignments]
                self.exported.update(dict.fromkeys(names))
                self._environment = None
            return True
        if name in self.functions:
            return self.call(name, [Element(word.pieces, word.regions) for word in words[1:]])
        self._builtin(name, words)
        if name == "read" and any((word.text or "").startswith("-d") for word in words):
            self._read_whole(node, words[-1])
        elif name == "read":
            self._read_words(node, words)
        self._command(node, words)
        if name == "false" or (name == "getopts" and not self.expander.num_arguments):
            return False
        return True if name in _SUCCEED else None

    def _command(self, node: SimpleCommand, words: Sequence[Word]) -> None:
        """Record a command with its expanded words, environment, position and copies."""
        environment: Mapping[str, Word] = self._exports(node.start)
        if node.assignments:
            assigned = {item.name: self._value(item) for item in node.assignments}
            starts = {item.name: item.start for item in node.assignments}
            environment = {
                **environment,
                **{n: self._word(v, starts[n]) for n, v in assigned.items()},
            }
        span, line = Span(node.start, node.end), self.source.line(node.start)
        # Each round of a loop is a separate copy if it has its own devices.
        sets_devices = any(item.name.endswith(_VISIBLE_DEVICES_SUFFIX) for item in node.assignments)
        copies = self.rounds if self.in_background and sets_devices else 1
        command = Command(
            words=tuple(words), environment=environment, line=line, span=span, copies=copies
        )
        self.commands.append(command)

    def _test(self, node: SimpleCommand) -> bool | None:
        """Return whether the test `[ ... ]`, `[[ ... ]]` or `test` holds; None: it is unknown."""
        is_plain = node.words[0].literal != "[["
        if is_plain:
            words = [word.text for raw in node.words for word in self.expander.words(raw)]
        else:
            words = [text_of(self.expander.text(raw.parts, raw.start)) for raw in node.words]
        inside = words[1:-1] if words[-1] in ("]", "]]") else words[1:]
        return evaluate_test(inside)

    # Variables

    def _exports(self, position: int) -> dict[str, Word]:
        """Return the exported variables with a value as words by name; the result is cached."""
        if self._environment is None:
            variables = {name: self.scope.get(name) for name in self.exported}
            self._environment = {
                name: self._word(variable, position)
                for name, variable in variables.items()
                if variable is not None
            }
            self.expander.spend([TextPiece("")] * len(variables), position)
        return self._environment

    def _word(self, variable: Variable, position: int) -> Word:
        start = variable.assigned[-1] if variable.assigned else position
        return variable_word(self.expander, variable, start)

    def put(self, name: str, variable: Variable | None) -> None:
        """Sets a variable."""
        self.scope.put(name, variable)
        if name in self.exported:
            self._environment = None

    def _value(self, item: Assignment) -> Variable:
        """Return the variable after an assignment, ``+=`` included; unknown if set by elements."""
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
            return Variable(
                (Element(pieces or (TextPiece("", *(item.value.start, item.value.end)),)),),
                False,
                places,
            )
        joined = (*before.pieces, *pieces)
        self.expander.spend(joined, item.start)
        first, rest = Element(joined), before.elements[1:]
        return Variable((first, *rest), before.is_array, assigned=places)

    def _array(
        self, item: Assignment, before: Variable | None, places: tuple[int, ...]
    ) -> Variable:
        """Return the variable after an array assignment; unknown if its elements have keys."""
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
        """Apply `unset`, `read`, `source`, `shift` or `set --` to variables and arguments."""
        rest = [word.text or "" for word in words[1:]]
        line = words[0].line
        if name == "unset":
            for variable in rest:
                if not variable.startswith("-"):
                    self.put(variable, Variable((Element((TextPiece(""),)),)))
        elif name in _READ_IN:
            for variable in rest:
                target = variable.partition("=")[0]
                if target.isidentifier():
                    reason = f"${target} {READ_AT_RUN_TIME} (line {line})"
                    self.put(target, Variable((), unknown=reason))
        elif name in _SOURCES and not self._source_file(words[1:2]):
            shown = " ".join(words[1].raw.split()) if len(words) > 1 else "a file"
            self.expander.elsewhere = f" (line {line} reads {shown})"
        elif name == "shift":
            if self.expander.arguments is not None:
                number = int(rest[0]) if rest and rest[0].isdecimal() and len(rest[0]) < 7 else 1
                self.expander.arguments = self.expander.arguments[number:]
        elif name == "set" and "--" in rest:
            after = words[rest.index("--") + 2 :]
            self.expander.arguments = tuple(Element(w.pieces, w.regions) for w in after)

    def follow_sourced(self, source: Source) -> None:
        """Takes the variables that a sourced file sets."""
        raise NotImplementedError

    def _source_file(self, names: Sequence[Word]) -> bool:
        """Take the variables of a sourced file; return False if it cannot be read.

        Of a path with an unknown beginning, the known end counts.
        """
        name = "".join(
            "" if piece.unknown else piece.text for word in names for piece in word.pieces
        )
        text = self.read_sourced(name) if self.read_sourced and name else None
        if text is None:
            return False
        try:
            self.follow_sourced(Source(text, name))
        except LaunchError:  # another program reads it
            return False
        return True

    def _read_whole(self, node: SimpleCommand, name: Word) -> None:
        """Set the variable of ``read -r -d '' NAME <<EOF`` to the here-document's text."""
        bodies = [item.body for item in node.redirections if item.body is not None]
        if bodies and (name.text or "").isidentifier():
            pieces = self.expander.text(bodies[-1].parts, bodies[-1].start)
            self.put(name.text or "", Variable((Element(pieces),), assigned=(node.start,)))

    def _read_words(self, node: SimpleCommand, words: Sequence[Word]) -> None:
        """Set the variables of ``read A B <<< TEXT`` to the split text, an array to all parts."""
        here_strings = [item.word for item in node.redirections if item.operator == "<<<"]
        text = (
            text_of(self.expander.text(here_strings[-1].parts, here_strings[-1].start))
            if here_strings
            else None
        )
        if text is None:
            return
        options = [word.text or "" for word in words[1:] if word.begins.startswith("-")]
        names = [word.text or "" for word in words[1:] if not word.begins.startswith("-")]
        separators = next((text_of(self._value(item).pieces) for item in node.assignments
                     if item.name == "IFS"), None)  # fmt: skip
        is_array = any("a" in option for option in options)
        max_splits = 0 if is_array else len(names) - 1
        parts = re.split(
            f"[{re.escape(separators)}]" if separators else r"\s+",
            text.strip(),
            maxsplit=max_splits,
        )
        places = (node.start,)
        if is_array and names:
            elements = tuple(Element(computed_text(part)) for part in parts)
            self.put(names[-1], Variable(elements, True, places))
            return
        for name, part in zip_longest(names, parts[: len(names)], fillvalue=""):
            if name.isidentifier():
                self.put(
                    name,
                    Variable((Element(computed_text(part) or (TextPiece(""),)),), False, places),
                )

    # Here-documents

    def redirections(self, items: Sequence[Redirection], words: Sequence[Word]) -> None:
        """Store the here-documents or printed text of a command under the file it writes."""
        bodies = [item.body for item in items if item.body is not None]
        outputs = [item.word for item in items if item.operator in (">", ">>", ">|", "&>", "&>>")]
        appends = any(item.operator in (">>", "&>>") for item in items)
        if outputs and not bodies and (pieces := printed_text(words)):
            start, end = items[0].word.start, items[0].word.start
            placed = next((piece for piece in pieces if piece.start >= 0), None)
            span = Span(start, end) if placed is None else Span(placed.start, placed.end)
            self._keep(self._file_name(outputs[-1]), self._written(pieces, span), appends=appends)
        for body in bodies:
            name = self._output(body, outputs, words)
            pieces = self.expander.text(body.parts, body.start)
            written = self._written(pieces, Span(body.start, body.end))
            self._keep(name, written, appends=appends)

    def _keep(self, name: str, written: HereDocument, *, appends: bool) -> None:
        """Store the text written to a file; with ``appends``, after the text already stored."""
        before = self.files.get(name)
        if appends and before is not None:
            written = replace(
                before,
                text=before.text + written.text,
                expanded=True,
                unknown=before.unknown or written.unknown,
                pieces=(*before.pieces, *written.pieces),
            )
        self.files[name] = written

    def _output(self, body: HereDocBody, outputs: Sequence[RawWord], words: Sequence[Word]) -> str:
        """Return the name of the file that a here-document is written to, else its delimiter."""
        if outputs:
            return self._file_name(outputs[-1])
        if words and words[0].text == "tee":
            for word in words[1:]:
                if not word.raw.startswith("-"):
                    return word.text or word.raw
        return f"<<{body.delimiter} (line {self.source.line(body.start) - 1})"

    def _file_name(self, output: RawWord) -> str:
        words = self.expander.words(output)
        return (words[0].text or words[0].raw) if words else ""

    def _written(self, pieces: Pieces, span: Span) -> HereDocument:
        """Return a here-document of expanded pieces, with the reason if part of it is unknown."""
        written = tuple(self._as_written(piece) for piece in pieces)
        text = "".join(piece.text for piece in written)
        return HereDocument(
            text=text,
            span=span,
            line=self.source.line(span.start),
            expanded=text != self.source.text[span.start : span.end],
            unknown=why_unknown(pieces),
            pieces=written,
        )

    def _as_written(self, piece: TextPiece) -> TextPiece:
        if not piece.unknown or not piece.trail:
            return piece
        start, end = piece.trail[-1].start, piece.trail[-1].end
        return TextPiece(self.source.text[start:end], start, end)


def without_positions(variable: Variable) -> Variable:
    """Return a variable of another file: no position of this one sets it."""
    elements = tuple(
        Element(tuple(TextPiece(piece.text, unknown=piece.unknown) for piece in element.pieces))
        for element in variable.elements
    )
    return replace(variable, elements=elements, assigned=())


def variable_word(expander: Expander, variable: Variable, start: int) -> Word:
    """Return a variable as one word; elements of an array are joined by blanks."""
    if variable.unknown or not variable.is_array:
        return expander.word(Element(variable.pieces), start, start)
    pieces: list[TextPiece] = []
    for element in variable.elements:
        pieces += [*computed_text(" "), *element.pieces] if pieces else element.pieces
    return expander.word(Element(tuple(pieces) or computed_text("")), start, start)


_DEEPEST_CALL, _DEEPEST_SOURCE = 40, 3
_VISIBLE_DEVICES_SUFFIX = "VISIBLE_DEVICES"
_ARGUMENTS = frozenset(("#", "1", "@", "*"))
_LEAVE = frozenset(("exit", "return", "break", "continue"))


class Follower(SimpleCommands):
    """Follows the commands of a script, and collects them with its variables."""

    _depth = 0
    _num_sourcing = 0

    def script(self, nodes: Sequence[Node]) -> None:
        """Run a full script; functions that no command calls are run last."""
        self.run(nodes)
        for name, function in list(self.functions.items()):
            if name not in self.called:
                self.called.add(name)
                self._run_subshell([function.body])

    def run(self, nodes: Sequence[Node]) -> bool | None:
        """Run commands in order; return whether the last succeeds, None: unknown."""
        status: bool | None = True
        for node in nodes:
            self._depth += 1
            status = self._node(node)
            self._depth -= 1
        return status

    def _node(self, node: Node) -> bool | None:
        """Run one node of the syntax tree; True: success, False: failure, None: unknown."""
        match node:
            case SimpleCommand():
                return self.simple(node)
            case AndOrList():
                return self._chain(node)
            case If():
                return self._if(node)
            case Loop():
                return self._loop(node)
            case Case():
                return self._case(node)
            case Group():
                status = self.run(node.body)
                self.redirections(node.redirections, ())
                return status
            case Subshell():
                before, self.in_background = self.in_background, node.in_background
                self._run_subshell(node.body)
                self.in_background = before
            case Negation():
                status = self.run([node.node])
                return None if status is None else not status
            case ArithmeticCommand():
                return self._computed(node)
            case Function():
                self.functions[node.name] = node
                return True
        return None

    def follow_sourced(self, source: Source) -> None:
        """Take the variables of a sourced file; its words have no positions in this script."""
        read_further = self.read_sourced if self._num_sourcing < _DEEPEST_SOURCE else None
        follower = Follower(source, {}, read_further)
        follower._num_sourcing = self._num_sourcing + 1
        follower.enter(Scope(self.scope))
        follower.script(Parser(source).script())
        for name, variable in follower.scope.variables.items():
            self.put(name, variable and without_positions(variable))
        self.exported.update(follower.exported)
        self._environment = None

    # Branches

    def _run_subshell(self, nodes: Sequence[Node], outer: Scope | None = None) -> Scope:
        """Run commands in a separate scope and return that scope."""
        before = self.scope
        self.enter(Scope(outer or before))
        self.run(nodes)
        inside = self.scope
        self.enter(before)
        return inside

    def call(self, name: str, arguments: Sequence[Element]) -> bool | None:
        """Run a function with arguments; None: its status is unknown, or the call is too deep."""
        function = self.functions[name]
        if self._depth > _DEEPEST_CALL:
            return None
        self.called.add(name)
        before, arguments_before = self.scope, self.expander.arguments
        self.expander.arguments = tuple(arguments)
        self.enter(Scope(before, is_function=True))
        status = self.run([function.body])
        inside = self.scope
        self.enter(before)
        self.expander.arguments = arguments_before
        inside.keep(before)
        return status

    def _one_of(self, branches: Sequence[Sequence[Node]], *, or_none: bool) -> None:
        """Run alternative branches and merge their variables; ``or_none``: maybe none runs."""
        outcomes = [Scope(self.scope)] if or_none else []
        for branch in branches:
            inside = self._run_subshell(branch)
            if not _leaves(branch):
                outcomes.append(inside)
        if outcomes:
            merge(self.scope, outcomes, self.source.line)
            self.enter(self.scope)

    def _chain(self, node: AndOrList) -> bool | None:
        """Run commands joined by `&&` and `||`; return whether the last succeeds, None: unknown."""
        status: bool | None = True
        for operator, item in node.items:
            if status is None:
                self._one_of([[item]], or_none=True)
            elif not operator or status == (operator == "&&"):
                status = self.run([item])
        return status

    def _if(self, node: If) -> bool | None:
        """Run the branch that is taken, or every possible branch; None: the result is unknown."""
        possible: list[Sequence[Node]] = []
        for condition, body in node.clauses:
            status = self.run(condition)
            if status is False:
                continue
            if status and not possible:
                return self.run(body)
            possible.append(body)
            if status:
                break
        else:
            if not possible:
                return self.run(node.otherwise or ())
            if node.otherwise is not None:
                possible.append(node.otherwise)
            self._one_of(possible, or_none=node.otherwise is None)
            return None
        self._one_of(possible, or_none=False)
        return None

    def _case(self, node: Case) -> bool | None:
        """Run the clause that matches, or every possible clause; None: the result is unknown."""
        pieces = self.expander.text(node.word.parts, node.word.start)
        text, possible, certain = text_of(pieces), list[Sequence[Node]](), False
        for alternatives, body in node.clauses:
            matches = [self._matches(text, pattern.literal) for pattern in alternatives]
            certain = True in matches
            if certain and not possible:
                return self.run(body)
            if certain or None in matches:
                possible.append(body)
            if certain:
                break
        self._one_of(possible, or_none=not certain)
        return None

    def _matches(self, text: str | None, pattern: str | None) -> bool | None:
        if pattern == "*":
            return True
        return None if text is None or pattern is None else matches_pattern(text, pattern)

    def _loop(self, node: Loop) -> bool | None:
        """Run a loop's body once, with assigned variables unknown; True: the body never runs."""
        if node.condition and self._never_begins(node):
            return True
        if node.variable and self.expander.arguments is None and _is_each_argument(node.words):
            return True  # a script is read as started without arguments
        start, inside = node.start, Scope(self.scope)
        line = self.source.line(start)
        for name, place in node.assigned:
            reason = f"${name} changes in the loop (line {line})"
            inside.put(name, _changing(self.scope.get(name), place, reason))
        words: list[Element] = []
        if node.variable:
            words = [element for raw in node.words for element in self.expander.elements(raw)]
            inside.put(node.variable, self._each(node.variable, words, start))
        before = self.rounds
        if node.variable and all(text_of(word.pieces) for word in words):
            self.rounds *= max(len(words), 1)
        outcome = self._run_subshell([*node.condition, *node.body], inside)
        self.rounds = before
        outcome.variables = {**inside.variables, **outcome.variables}
        merge(self.scope, [Scope(self.scope), outcome], self.source.line)
        self.enter(self.scope)
        return None

    def _never_begins(self, node: Loop) -> bool:
        """Return whether a loop's body never runs, as its condition fails at first."""
        if self.expander.arguments is None and _looks_at_arguments(node.condition):
            return True  # a script is read as started without arguments
        before, number = self.scope, len(self.commands)
        self.enter(Scope(before))
        status = self.run(node.condition)
        self.enter(before)
        del self.commands[number:]
        return status is node.is_until

    def _each(self, name: str, words: Sequence[Element], start: int) -> Variable:
        """Return a loop's variable: its only word, or unknown with a reason that lists words."""
        if len(words) == 1:
            return Variable((words[0],), assigned=(start,))
        shown = ", ".join(text_of(word.pieces) or "?" for word in words[:4]) or "the arguments"
        ellipsis = ", ..." if len(words) > 4 else ""
        reason = f"${name} is each of {shown[:60]}{ellipsis} (line {self.source.line(start)})"
        return Variable((), assigned=(start,), unknown=reason)

    def _computed(self, node: ArithmeticCommand) -> bool | None:
        """Return whether ``((...))`` is not 0; None: its value is unknown."""
        text = text_of(self.expander.text(node.parts, node.start))
        try:
            return None if text is None else arithmetic_value(text, self.expander.number) != 0
        except UnknownExpression:
            return None


def _changing(before: Variable | None, place: int, reason: str) -> Variable:
    """Return a variable that a loop changes: unknown, but a list keeps its known elements."""
    if before is None or before.unknown or not (before.is_array or len(before.words) > 1):
        return Variable((), assigned=(place,), unknown=reason)
    change = Element(unknown_text(reason))
    words = (change, *before.words, change)
    return before.of_words(words, (*before.assigned, place))


def _leaves(branch: Sequence[Node]) -> bool:
    """Return whether the branch ends the script or loop, so that its variables do not matter."""
    last = branch[-1] if branch else None
    if isinstance(last, Group):
        return _leaves(last.body)
    return isinstance(last, SimpleCommand) and bool(last.words) and last.words[0].literal in _LEAVE


def _looks_at_arguments(condition: Sequence[Node]) -> bool:
    """Whether a loop runs while the script has arguments."""
    words = [word for node in condition if isinstance(node, SimpleCommand) for word in node.words]
    parts = [part for word in words for part in word.parts]
    parts += [p for node in condition if isinstance(node, ArithmeticCommand) for p in node.parts]
    return any(isinstance(part, Parameter) and part.name in _ARGUMENTS for part in parts)


def _is_each_argument(words: Sequence[RawWord]) -> bool:
    """Whether a loop is over the arguments of a script alone."""
    parts = [part for word in words for part in word.parts]
    return bool(parts) and all(isinstance(part, Parameter) and part.name in "@*" for part in parts)
