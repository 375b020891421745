"""Commands of a shell script as a tree of what they are; nothing is run."""

from __future__ import annotations

import re

from planner.shell.lexing import PLACEHOLDER, Lexer
from planner.shell.syntax import (
    Alone,
    Assignment,
    Case,
    Chain,
    Computed,
    Function,
    Group,
    HereText,
    If,
    Literal,
    Loop,
    Node,
    Not,
    RawWord,
    Redirection,
    Simple,
    Source,
)

DECLARING = frozenset(("export", "declare", "typeset", "local", "readonly"))
_ASSIGNED = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?:\[([^\]\n]*)\])?(\+?)=")
_RESERVED = re.compile(r"(?:[A-Za-z]+|[{}!]|\[\[)(?=[\s;&|<>()]|$)")
_REDIRECTION = re.compile(r"(\d*|\{\w+\})(<<-|<<<|<<|<>|<&|>>|>&|>\||&>>|&>|<|>)(?!\()")
_FUNCTION = re.compile(r"([^\s;&|<>()'\"\\$`=#]+)[ \t]*\([ \t]*\)")
_FUNCTION_WORD = re.compile(r"function[ \t]+([^\s;&|<>()'\"\\$`]+)[ \t]*(?:\([ \t]*\))?")
_ENDS = frozenset(("then", "elif", "else", "fi", "do", "done", "esac", "}"))
_OPERATORS = re.compile(r"&&|\|\||[<>()|&;]")


class Parser(Lexer):
    """Reads commands; ``here`` are here-documents whose bodies follow the current line."""

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self.here: list[Redirection] = []
        self.assigned: list[tuple[str, int]] = []

    def script(self) -> tuple[Node, ...]:
        """Every command of the text."""
        nodes = self._list()
        if self.position < len(self.text):
            found = self._reserved() or self.text[self.position]
            raise self.fault(f"{found} stands where a command begins.", self.position)
        if self.here:
            self._bodies()
        return nodes

    def _list(self) -> tuple[Node, ...]:
        nodes: list[Node] = []
        while True:
            self._lines()
            if self._at_end_of_list():
                return tuple(nodes)
            node = self._chain()
            self.blanks()
            if self._takes("&") and not self.text.startswith("&", self.position):
                node = Alone((node,))
            elif self.text.startswith(";", self.position) and not self._ends_clause():
                self.position += 1
            nodes.append(node)

    def _ends_clause(self) -> bool:
        return self.text.startswith((";;", ";&"), self.position)

    def _at_end_of_list(self) -> bool:
        if self.position >= len(self.text) or self.text[self.position] == ")":
            return True
        return self._ends_clause() or self._reserved() in _ENDS

    def _lines(self) -> None:
        """Skips blanks, comments and ends of lines, after which here-documents stand."""
        while True:
            self.blanks()
            if self.text.startswith("\r\n", self.position):
                self.position += 1
            if not self.text.startswith("\n", self.position):
                return
            self.position += 1
            if self.here:
                self._bodies()

    def _bodies(self) -> None:
        waiting, self.here = self.here, []
        for redirection in waiting:
            word = redirection.word
            ends = "".join(p.text if isinstance(p, Literal) else "" for p in word.parts)
            quoted = any(isinstance(p, Literal) and p.quote for p in word.parts)
            strips, start, position = redirection.operator == "<<-", self.position, self.position
            while True:
                if position >= len(self.text):
                    raise self.fault(f"the here-document <<{ends} never ends.", word.start)
                end = self.text.find("\n", position)
                end = len(self.text) if end < 0 else end
                line = self.text[position:end].removesuffix("\r")
                if (line.lstrip("\t") if strips else line) == ends:
                    break
                position = end + 1
            literal = Literal(self.text[start:position], start, position, "'")
            parts = (literal,) if quoted else self.here_parts(start, position)
            redirection.body = HereText(parts, start, position, ends)
            self.position = min(end + 1, len(self.text))

    def _reserved(self) -> str:
        found = _RESERVED.match(self.text, self.position)
        return found[0] if found else ""

    def _takes(self, text: str) -> bool:
        if self.text.startswith(text, self.position):
            self.position += len(text)
            return True
        return False

    def _expect(self, *words: str, start: int, of: str) -> str:
        self._lines()
        found = self._reserved()
        if found not in words:
            raise self.fault(f"{of} has no {' or '.join(words)}.", start)
        self.position += len(found)
        return found

    def _chain(self) -> Node:
        items: list[tuple[str, Node]] = [("", self._pipe())]
        while True:
            self.blanks()
            operator = self.text[self.position : self.position + 2]
            if operator not in ("&&", "||"):
                return items[0][1] if len(items) == 1 else Chain(tuple(items))
            self.position += 2
            self._lines()
            items.append((operator, self._pipe()))

    def _pipe(self) -> Node:
        self.blanks()
        word = self._reserved()
        if word in ("!", "time"):
            self.position += len(word)
            self.deeper(self.position)
            node = self._pipe()
            self.depth -= 1
            return Not(node) if word == "!" else node
        nodes = [self._command()]
        while True:
            self.blanks()
            if self.text.startswith("||", self.position) or not self._takes("|"):
                return nodes[0] if len(nodes) == 1 else Alone(tuple(nodes))
            self._takes("&")
            self._lines()
            nodes.append(self._command())

    def _command(self) -> Node:
        start = self.position
        self.deeper(start)
        node = self._compound(start)
        self.depth -= 1
        return node

    def _compound(self, start: int) -> Node:
        word = self._reserved()
        end = self.closing(start + 2) if self.text.startswith("((", start) else -1
        if end > 0 and self.text.startswith("))", end):
            self.position = end + 2
            return self._redirected(Computed(self.here_parts(start + 2, end), start))
        if self._takes("("):
            body = self._list()
            if not self._takes(")"):
                raise self.fault("( is never closed.", start)
            return self._redirected(Alone(body))
        readers = {"if": self._if, "while": self._while, "until": self._while, "case": self._case,
                   "for": self._for, "select": self._for, "{": self._group}  # fmt: skip
        if word in readers:
            self.position += len(word)
            return self._redirected(readers[word](start))
        if function := _FUNCTION_WORD.match(self.text, start) or _FUNCTION.match(self.text, start):
            self.position = function.end()
            self._lines()
            return Function(function[1], self._command())
        return self._simple()

    def _redirected(self, node: Node) -> Node:
        redirections: list[Redirection] = []
        while self._redirection(redirections):
            pass
        return Group((node,), tuple(redirections)) if redirections else node

    def _redirection(self, found: list[Redirection]) -> bool:
        self.blanks()
        symbol = _REDIRECTION.match(self.text, self.position)
        if symbol is None or PLACEHOLDER.match(self.text, self.position):
            return False
        self.position = symbol.end()
        self.blanks()
        redirection = Redirection(symbol[2], self.word())
        found.append(redirection)
        if symbol[2] in ("<<", "<<-"):
            self.here.append(redirection)
        return True

    def _group(self, start: int) -> Node:
        body = self._list()
        self._expect("}", start=start, of="{")
        return Group(body)

    def _if(self, start: int) -> Node:
        clauses, otherwise = [], None
        while True:
            condition = self._list()
            self._expect("then", start=start, of="if")
            clauses.append((condition, self._list()))
            end = self._expect("elif", "else", "fi", start=start, of="if")
            if end == "else":
                otherwise = self._list()
                end = self._expect("fi", start=start, of="if")
            if end == "fi":
                return If(tuple(clauses), otherwise)

    def _while(self, start: int) -> Node:
        before, until = len(self.assigned), self.text.startswith("until", start)
        condition = self._list()
        body = self._do(start)
        return Loop("", (), condition, body, start, tuple(self.assigned[before:]), until)

    def _for(self, start: int) -> Node:
        before = len(self.assigned)
        self.blanks()
        if self.text.startswith("((", self.position):
            end = self.closing(self.position + 2)
            inside = self.text[self.position + 2 : max(end, self.position + 2)]
            self.assigned += [(name, start) for name in re.findall(r"[A-Za-z_]\w*", inside)]
            self.position = end + 2 if end > 0 else len(self.text)
            return Loop("", (), (), self._do(start), start, tuple(self.assigned[before:]))
        variable, words = self.word(), list[RawWord]()
        self._lines()
        if self._reserved() == "in":
            self.position += 2
            while (word := self._next_word()) is not None:
                words.append(word)
        name = variable.literal or ""
        self.assigned.append((name, start))
        body = self._do(start)
        return Loop(name, tuple(words), (), body, start, tuple(self.assigned[before:]))

    def _do(self, start: int) -> tuple[Node, ...]:
        self._lines()
        self._takes(";")
        opening = self._expect("do", "{", start=start, of="the loop")
        body = self._list()
        self._expect("done" if opening == "do" else "}", start=start, of="the loop")
        return body

    def _next_word(self) -> RawWord | None:
        """The next word of the same command."""
        self.blanks()
        word = self.word()
        return word if word.end > word.start else None

    def _case(self, start: int) -> Node:
        self.blanks()
        word, clauses = self.word(), list[tuple[tuple[RawWord, ...], tuple[Node, ...]]]()
        self._expect("in", start=start, of="case")
        while True:
            self._lines()
            if self._reserved() == "esac":
                self.position += 4
                return Case(word, tuple(clauses))
            patterns = self._patterns(start)
            clauses.append((patterns, self._list()))
            if self._ends_clause():
                self.position += 2
                self._takes("&")
            elif self._reserved() != "esac":
                raise self.fault("case has no esac.", start)

    def _patterns(self, start: int) -> tuple[RawWord, ...]:
        patterns: list[RawWord] = []
        self._takes("(")
        while True:
            pattern = self._next_word()
            if pattern is None:
                raise self.fault("case has no esac.", start)
            patterns.append(pattern)
            self.blanks()
            if self._takes(")"):
                return tuple(patterns)
            if not self._takes("|"):
                raise self.fault("case has no esac.", start)

    def _simple(self) -> Node:
        start, assignments = self.position, list[Assignment]()
        words, redirections, declares = list[RawWord](), list[Redirection](), ""
        end = start
        while True:
            tests = bool(words) and words[0].literal == "[["
            if tests:
                self._lines()
            elif self._redirection(redirections):
                continue
            if (declares or not words) and (found := self._assignment()) is not None:
                assignments.append(found)
            elif tests and (operator := _OPERATORS.match(self.text, self.position)):
                self.position = operator.end()
                literal = Literal(operator[0], operator.start(), operator.end(), "")
                words.append(RawWord((literal,), operator.start(), operator.end()))
            elif (word := self._next_word()) is not None:
                words.append(word)
                if len(words) == 1 and (word.literal or "") in DECLARING:
                    declares = word.literal or ""
            else:
                break
            end = self.position
            if tests and words[-1].literal == "]]":
                break
        if end == start and not redirections:
            here = self.text[start : start + 1] or "the end"
            raise self.fault(f"{here} stands where a command begins.", start)
        return Simple(tuple(assignments), tuple(words), tuple(redirections), start, end, declares)

    def _assignment(self) -> Assignment | None:
        found = _ASSIGNED.match(self.text, self.position)
        if found is None:
            return None
        start, self.position = self.position, found.end()
        self.assigned.append((found[1], start))
        adds, subscript = bool(found[3]), found[2] or ""
        if not self._takes("("):
            return Assignment(found[1], start, adds, subscript, value=self.word())
        elements: list[RawWord] = []
        while True:
            self._lines()
            if self._takes(")"):
                return Assignment(found[1], start, adds, subscript, elements=tuple(elements))
            element = self.word()
            if element.end == element.start:
                raise self.fault(f"the array {found[1]}=( is never closed.", start)
            elements.append(element)
