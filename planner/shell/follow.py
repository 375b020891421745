"""Follows the branches and loops of a script as they would run, and runs none."""

from __future__ import annotations

from collections.abc import Sequence

from planner.shell import arithmetic, patterns
from planner.shell.scope import Scope, merge
from planner.shell.simple import SimpleCommands
from planner.shell.syntax import (
    Alone,
    Case,
    Chain,
    Computed,
    Function,
    Group,
    If,
    Loop,
    Node,
    Not,
    Parameter,
    Simple,
)
from planner.shell.values import Element, Variable, text_of

_DEEPEST_CALL = 40
_ARGUMENTS = frozenset(("#", "1", "@", "*"))
_LEAVE = frozenset(("exit", "return", "break", "continue"))


class Follower(SimpleCommands):
    """What a script does to variables, and which commands it comes to."""

    _depth = 0

    def script(self, nodes: Sequence[Node]) -> None:
        """Follows a whole script; functions that nothing calls are read last."""
        self.run(nodes)
        for name, function in list(self.functions.items()):
            if name not in self.called:
                self.called.add(name)
                self._apart([function.body])

    def run(self, nodes: Sequence[Node]) -> bool | None:
        """Follows commands; whether the last succeeds, None if that is not told."""
        status: bool | None = True
        for node in nodes:
            self._depth += 1
            status = self._node(node)
            self._depth -= 1
        return status

    def _node(self, node: Node) -> bool | None:
        match node:
            case Simple():
                return self.simple(node)
            case Chain():
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
            case Alone():
                self._apart(node.body)
            case Not():
                status = self.run([node.node])
                return None if status is None else not status
            case Computed():
                return self._computed(node)
            case Function():
                self.functions[node.name] = node
                return True
        return None

    # Branches

    def _apart(self, nodes: Sequence[Node], outer: Scope | None = None) -> Scope:
        """Follows commands whose variables go no further, and gives these."""
        before = self.scope
        self.enter(Scope(outer or before))
        self.run(nodes)
        inside = self.scope
        self.enter(before)
        return inside

    def call(self, name: str, arguments: Sequence[Element]) -> bool | None:
        """Follows a function that a command calls; too deep a call is left out."""
        function = self.functions[name]
        if self._depth > _DEEPEST_CALL:
            return None
        self.called.add(name)
        before, given = self.scope, self.expander.arguments
        self.expander.arguments = tuple(arguments)
        self.enter(Scope(before, is_function=True))
        status = self.run([function.body])
        inside = self.scope
        self.enter(before)
        self.expander.arguments = given
        inside.keep(before)
        return status

    def _one_of(self, branches: Sequence[Sequence[Node]], *, or_none: bool) -> None:
        """Follows branches one of which, or none, is taken."""
        outcomes = [Scope(self.scope)] if or_none else []
        for branch in branches:
            inside = self._apart(branch)
            if not _leaves(branch):
                outcomes.append(inside)
        if outcomes:
            merge(self.scope, outcomes, self.source.line)
            self.enter(self.scope)

    def _chain(self, node: Chain) -> bool | None:
        status: bool | None = True
        for operator, item in node.items:
            if status is None:
                self._one_of([[item]], or_none=True)
            elif not operator or status == (operator == "&&"):
                status = self.run([item])
        return status

    def _if(self, node: If) -> bool | None:
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
        pieces = self.expander.text(node.word.parts, node.word.start)
        text, possible, certain = text_of(pieces), list[Sequence[Node]](), False
        for alternatives, body in node.clauses:
            taken = [self._matches(text, pattern.literal) for pattern in alternatives]
            certain = True in taken
            if certain and not possible:
                return self.run(body)
            if certain or None in taken:
                possible.append(body)
            if certain:
                break
        self._one_of(possible, or_none=not certain)
        return None

    def _matches(self, text: str | None, pattern: str | None) -> bool | None:
        if pattern == "*":
            return True
        return None if text is None or pattern is None else patterns.matches(text, pattern)

    def _loop(self, node: Loop) -> bool | None:
        if node.condition and self._never_begins(node):
            return True
        start, inside = node.start, Scope(self.scope)
        line = self.source.line(start)
        for name, place in node.assigned:
            reason = f"${name} changes in the loop (line {line})"
            inside.put(name, Variable((), assigned=(place,), unknown=reason))
        if node.variable:
            words = [element for raw in node.words for element in self.expander.elements(raw)]
            inside.put(node.variable, self._each(node.variable, words, start))
        outcome = self._apart([*node.condition, *node.body], inside)
        outcome.own = {**inside.own, **outcome.own}
        merge(self.scope, [Scope(self.scope), outcome], self.source.line)
        self.enter(self.scope)
        return None

    def _never_begins(self, node: Loop) -> bool:
        """Whether the condition does not hold at first: no argument is left to look at."""
        if self.expander.arguments is None and _looks_at_arguments(node.condition):
            return True  # a script is read as started without arguments
        before, number = self.scope, len(self.commands)
        self.enter(Scope(before))
        status = self.run(node.condition)
        self.enter(before)
        del self.commands[number:]
        return status is node.is_until

    def _each(self, name: str, words: Sequence[Element], start: int) -> Variable:
        if len(words) == 1:
            return Variable((words[0],), assigned=(start,))
        told = ", ".join(text_of(word.pieces) or "?" for word in words[:4]) or "the arguments"
        more = ", ..." if len(words) > 4 else ""
        reason = f"${name} is each of {told[:60]}{more} (line {self.source.line(start)})"
        return Variable((), assigned=(start,), unknown=reason)

    def _computed(self, node: Computed) -> bool | None:
        text = text_of(self.expander.text(node.parts, node.start))
        try:
            return None if text is None else arithmetic.value(text, self.expander.number) != 0
        except arithmetic.NotKnown:
            return None


def _leaves(branch: Sequence[Node]) -> bool:
    """Whether a branch ends the script, so that what it sets matters no more."""
    last = branch[-1] if branch else None
    if isinstance(last, Group):
        return _leaves(last.body)
    return isinstance(last, Simple) and bool(last.words) and last.words[0].literal in _LEAVE


def _looks_at_arguments(condition: Sequence[Node]) -> bool:
    """Whether a loop goes on while there are arguments of the script."""
    words = [word for node in condition if isinstance(node, Simple) for word in node.words]
    parts = [part for word in words for part in word.parts]
    return any(isinstance(part, Parameter) and part.name in _ARGUMENTS for part in parts)
