"""Scripts as trees of commands: words, quotes, here-documents, and the grammar over them."""

from __future__ import annotations

import re

from planner.documents.shell.syntax import (
    AndOrList,
    Arithmetic,
    ArithmeticCommand,
    Assignment,
    Case,
    Function,
    Group,
    HereDocBody,
    If,
    Literal,
    Loop,
    Negation,
    Node,
    Parameter,
    Part,
    RawWord,
    Redirection,
    SimpleCommand,
    Source,
    Subshell,
    Substitution,
)
from planner.errors import LaunchError

MOST_NESTED = 50
META = " \t\n;&|<>()"
_UNQUOTED = re.compile(r"[^ \t\n\r;&|<>()'\"\\$`]+|\r")
_IN_DOUBLE = re.compile(r'[^"\\$`]+')
_IN_HERE = re.compile(r"[^\\$`]+")
_SHOWN = re.compile(r"\s*cat\s*<<-?\s*(?P<quote>['\"\\]?)(?P<ends>\w+)['\"]?[ \t]*\r?\n")
# ``expr`` computes as the shell does if it gets only numbers, + and /.
_EXPR = re.compile(r"\s*expr\s(?P<sum>[\s\w${}+/%-]*)")
_IN_BRACES = re.compile(r"[^}'\"\\$`]+")
_IN_BRACES_QUOTED = re.compile(r"[^}\"\\$`]+")
# A place to fill in, <PATH TO vocab.json>, that the shell itself would take for a redirection.
PLACEHOLDER = re.compile(r"<[A-Za-z_](?:[^<>\n|&;]*[^\s<>|&;])?>(?=[\s\"'/]|$)")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|[0-9]|[@*#?$!-]")
_BRACED = re.compile(r"([#!]?)([A-Za-z_][A-Za-z0-9_]*|[0-9]+|[@*#?$!-])")
_OPERATOR = re.compile(r":[-=+?]|%%|##|//|\^\^|,,|[-=+?%#/^,:@]")
_SUBSCRIPT = re.compile(r"\[([^\]\n]*)\]")
_BLANK = re.compile(r"(?:[ \t]|\r(?=\n))+")
_EMPTY_LINES = re.compile(r"[ \t\n]+")
_CONTINUED = re.compile(r"\\\r?\n")
_ANSI = re.compile(
    r"\\(?:x([0-9A-Fa-f]{1,2})|u([0-9A-Fa-f]{1,4})|U([0-9A-Fa-f]{1,8})|([0-7]{1,3})|(.))", re.S
)
_ANSI_LETTERS = dict(zip("abeEfnrtv", "\a\b\x1b\x1b\f\n\r\t\v", strict=True))
_BRACES = re.compile(r"\{([^{}]*)\}")


MOST_COMMANDS, MOST_WORDS = 4000, 20_000
"""Of a script: each command is compared with the programs of all tools."""


def too_many(units: str, maximum: int) -> str:
    """Error text for a script that is longer than any that starts a job."""
    return f"scripts of up to {maximum:,} {units} are read: give the part that starts the job."


class Lexer:
    """Reads words from a position of a script; ``position`` is the next character."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.text = source.text
        self.position = 0
        self.limit = len(source.text)
        self.depth = 0
        self.words = 0
        self.commands = 0

    def error(self, problem: str, position: int) -> LaunchError:
        """An error that names file and line."""
        return LaunchError(f"{self.source.at(position)}: {problem}")

    def deeper(self, start: int) -> None:
        """Counts a level of nesting."""
        self.depth += 1
        if self.depth > MOST_NESTED:
            raise self.error(f"nested more than {MOST_NESTED} deep: that is not read.", start)

    def blanks(self) -> None:
        """Skip blanks, continued lines and a comment, up to the end of the line."""
        text, length = self.text, len(self.text)
        while self.position < length:
            char = text[self.position]
            if match := _BLANK.match(text, self.position) or _CONTINUED.match(text, self.position):
                self.position = match.end()
            elif char == "#":
                end = text.find("\n", self.position)
                self.position = length if end < 0 else end
            else:
                return

    def word(self) -> RawWord:
        """Read the word that begins at the position; empty if none does."""
        start, parts = self.position, list[Part]()
        text, length = self.text, len(self.text)
        self.words += 1
        if self.words > MOST_WORDS:
            raise self.error(too_many("words", MOST_WORDS), start)
        while self.position < length:
            char = text[self.position]
            if char == "<" and (match := PLACEHOLDER.match(text, self.position)):
                parts.append(Substitution(self.position, match.end(), False))
                self.position = match.end()
            elif char in "<>" and text.startswith("(", self.position + 1):
                parts.append(self._run(self.position + 2, quoted=False))
            elif char in META or text.startswith("\r\n", self.position):
                break
            elif match := _UNQUOTED.match(text, self.position):
                parts.append(Literal(match[0], self.position, match.end(), ""))
                self.position = match.end()
            else:
                parts += self._special(char, quoted=False)
        self._whole_braces(start, parts)
        return RawWord(tuple(parts), start, self.position)

    def _whole_braces(self, start: int, parts: list[Part]) -> None:
        """Replace the parts of a word with braces that expand, ``{1..4}``, by one unknown part."""
        if not any(isinstance(p, Literal) and not p.quote and "{" in p.text for p in parts):
            return
        bare = "".join(
            part.text if isinstance(part, Literal) and not part.quote else "x" for part in parts
        )
        if any("," in inside or ".." in inside for inside in _BRACES.findall(bare)):
            parts[:] = [Substitution(start, self.position, False)]

    def _special(self, char: str, *, quoted: bool) -> list[Part]:
        """Read the quote, escape or expansion that begins here."""
        start = self.position
        if char == "\\":
            return self._escaped()
        if char == "'":
            return [self._single(start + 1)]
        if char == '"':
            return self._double()
        if char == "`":
            return [self._backquoted(quoted=quoted)]
        if not quoted and self.text.startswith("$'", start):
            return [self._ansi()]
        if not quoted and self.text.startswith('$"', start):
            self.position += 1
            return self._double()
        return [self._dollar(quoted=quoted)]

    def _escaped(self) -> list[Part]:
        start = self.position
        if match := _CONTINUED.match(self.text, start):
            self.position = match.end()
            return []
        self.position = min(start + 2, len(self.text))
        return [Literal(self.text[start + 1 : start + 2] or "\\", start, self.position, "\\")]

    def _single(self, start: int) -> Literal:
        end = self.text.find("'", start)
        if end < 0:
            raise self.error("the quote ' is never closed.", start - 1)
        self.position = end + 1
        return Literal(self.text[start:end], start, end, "'")

    def _ansi(self) -> Literal:
        start = self.position + 2
        end = start
        while end < len(self.text) and self.text[end] != "'":
            end += 2 if self.text[end] == "\\" else 1
        if end >= len(self.text):
            raise self.error("the quote $' is never closed.", start - 2)
        self.position = end + 1
        return Literal(_ANSI.sub(_ansi_character, self.text[start:end]), start, end, "$'")

    def _double(self) -> list[Part]:
        start = self.position
        self.position += 1
        parts = self.quoted_parts(_IN_DOUBLE, '"', start)
        return parts or [Literal("", start + 1, start + 1, '"')]

    def quoted_parts(self, literal: re.Pattern[str], end: str, start: int) -> list[Part]:
        """Read double-quoted text up to ``end``, or up to the limit if ``end`` is empty."""
        parts, text = list[Part](), self.text
        escapable = '$`"\\' if end else "$`\\"
        while self.position < self.limit:
            char = text[self.position]
            if char == end:
                self.position += 1
                return parts
            if match := literal.match(text, self.position, self.limit):
                parts.append(Literal(match[0], self.position, match.end(), '"'))
                self.position = match.end()
            elif char == "\\":
                parts += self._escaped_in_quotes(escapable)
            else:
                parts += self._special(char, quoted=True)
        if end or self.position > self.limit:
            raise self.error(f"the quote {end or '$'} is never closed.", start)
        return parts

    def _escaped_in_quotes(self, escapable: str) -> list[Part]:
        """Read a backslash in double quotes, which escapes only ``escapable`` characters."""
        start, following = self.position, self.text[self.position + 1 : self.position + 2]
        if match := _CONTINUED.match(self.text, start):
            self.position = match.end()
            return []
        if following and following in escapable:
            self.position = start + 2
            return [Literal(following, start, start + 2, '"')]
        self.position = start + 1
        return [Literal("\\", start, start + 1, '"')]

    def here_parts(self, start: int, end: int) -> tuple[Part, ...]:
        """Read the parts of a here-document or arithmetic expression from ``start`` to ``end``."""
        self.deeper(start)
        after = self.position, self.limit
        self.position, self.limit = start, end
        parts = self.quoted_parts(_IN_HERE, "", start)
        self.position, self.limit = after
        self.depth -= 1
        return tuple(parts)

    def _backquoted(self, *, quoted: bool) -> Substitution:
        start = self.position
        end = start + 1
        while end < len(self.text) and self.text[end] != "`":
            end += 2 if self.text[end] == "\\" else 1
        if end >= len(self.text):
            raise self.error("the quote ` is never closed.", start)
        self.position = end + 1
        return Substitution(start, end + 1, quoted)

    def _dollar(self, *, quoted: bool) -> Part:
        """Read the expansion that begins with ``$``; a lone ``$`` is text."""
        start, text = self.position, self.text
        if text.startswith("$((", start):
            if (computed := self._arithmetic(quoted=quoted)) is not None:
                return computed
            self.position = start
        if text.startswith("$(", start):
            return self._run(start + 2, quoted=quoted)
        if text.startswith("${", start):
            return self._braced(quoted=quoted)
        if match := _NAME.match(text, start + 1):
            self.position = match.end()
            return Parameter(match[0], start, self.position, quoted)
        self.position = start + 1
        return Literal("$", start, start + 1, '"' if quoted else "")

    def _arithmetic(self, *, quoted: bool) -> Arithmetic | None:
        """Read ``$((...))``; None if it does not end with two parentheses."""
        start = self.position
        end = self.closing(start + 3)
        if end < 0 or not self.text.startswith("))", end):
            return None
        inside = self.here_parts(start + 3, end)
        self.position = end + 2
        return Arithmetic(inside, start, end + 2, quoted)

    def closing(self, position: int) -> int:
        """Return where the parenthesis opened before ``position`` is closed; -1 if it is not."""
        depth, text, length = 1, self.text, len(self.text)
        while position < length:
            char = text[position]
            if char == "\\":
                position += 1
            elif char in "'\"`":
                position = self._quote_end(char, position)
            elif char == "#" and text[position - 1] in " \t\n;(":
                position = text.find("\n", position)
            elif char in "()":
                depth += 1 if char == "(" else -1
                if depth == 0:
                    return position
            if position < 0:
                return -1
            position += 1
        return -1

    def _quote_end(self, quote: str, position: int) -> int:
        """Return the end of a quote, without parsing its content; -1: it has no end."""
        text, length = self.text, len(self.text)
        if quote == "'" and not text.startswith("$", position - 1):
            return text.find("'", position + 1)
        position += 1
        while position < length and text[position] != quote:
            position += 2 if text[position] == "\\" else 1
        return position if position < length else -1

    def _run(self, inside: int, *, quoted: bool) -> Substitution | Arithmetic:
        """Read ``$(...)`` up to its end: a shown here-document, ``expr`` or any command."""
        start = self.position
        if (begins := _SHOWN.match(self.text, inside)) and (
            ends := re.compile(rf"^\t*{begins['ends']}\s*\)", re.M).search(self.text, begins.end())
        ):
            literal = Literal(
                self.text[begins.end() : ends.start()], begins.end(), ends.start(), "'"
            )
            is_quoted = bool(begins["quote"])
            parts = (literal,) if is_quoted else self.here_parts(begins.end(), ends.start())
            self.position = ends.end()
            return Substitution(start, self.position, quoted, parts)
        end = self.closing(inside)
        if end < 0:
            raise self.error(f"{self.text[start:inside]} is never closed.", start)
        if counts := _EXPR.fullmatch(self.text, inside, end):
            parts = self.here_parts(counts.start("sum"), end)
            self.position = end + 1
            return Arithmetic(parts, start, end + 1, quoted)
        self.position = end + 1
        return Substitution(start, self.position, quoted)

    def _braced(self, *, quoted: bool) -> Part:
        """Read ``${...}`` with subscript, operator and argument."""
        start, text = self.position, self.text
        match = _BRACED.match(text, start + 2)
        if match is not None and match[0][0] in "#!" and text.startswith("}", start + 3):
            self.position = start + 4
            return Parameter(match[0][0], start, start + 4, quoted)
        if match is None:
            end = text.find("}", start)
            if end < 0:
                raise self.error("${ is never closed.", start)
            self.position = end + 1
            return Substitution(start, end + 1, quoted)
        self.position = match.end()
        subscript = operator = ""
        if index := _SUBSCRIPT.match(text, self.position):
            subscript, self.position = index[1], index.end()
        if symbol := _OPERATOR.match(text, self.position):
            operator, self.position = symbol[0], symbol.end()
        argument = self._argument(start, quoted=quoted)
        prefix = {"#": "length", "!": "indirect"}.get(match[1], operator)
        return Parameter(match[2], start, self.position, quoted, subscript, prefix, argument)

    def _argument(self, start: int, *, quoted: bool) -> tuple[Part, ...]:
        """Read the argument of ``${...}`` and skip the closing brace."""
        parts, text, length = list[Part](), self.text, len(self.text)
        literal = _IN_BRACES_QUOTED if quoted else _IN_BRACES
        self.deeper(start)
        while self.position < length:
            char = text[self.position]
            if char == "}":
                self.position += 1
                self.depth -= 1
                return tuple(parts)
            if match := literal.match(text, self.position):
                parts.append(Literal(match[0], self.position, match.end(), '"' if quoted else ""))
                self.position = match.end()
            elif quoted and char == "\\":
                parts += self._escaped_in_quotes('$`"\\}')
            else:
                parts += self._special(char, quoted=quoted and char != '"')
        raise self.error("${ is never closed.", start)


def _ansi_character(match: re.Match[str]) -> str:
    *numbers, letter = match.groups()
    for digits, base in zip(numbers, (16, 16, 16, 8), strict=True):
        if digits is not None:
            code = int(digits, base) & (0xFF if base == 8 else 0x7FFFFFFF)
            return chr(code) if code <= 0x10FFFF else match[0]
    return _ANSI_LETTERS.get(letter) or (letter if letter in "\\'\"?" else match[0])


DECLARING = frozenset(("export", "declare", "typeset", "local", "readonly"))
_ASSIGNED = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?:\[([^\]\n]*)\])?(\+?)=")
_RESERVED = re.compile(r"(?:[A-Za-z]+|[{}!]|\[\[)(?=[\s;&|<>()]|$)")
_REDIRECTION = re.compile(r"(\d*|\{\w+\})(<<-|<<<|<<|<>|<&|>>|>&|>\||&>>|&>|<|>)(?!\()")
_FUNCTION = re.compile(r"([^\s;&|<>()'\"\\$`=#]+)[ \t]*\([ \t]*\)")
_FUNCTION_WORD = re.compile(r"function[ \t]+([^\s;&|<>()'\"\\$`]+)[ \t]*(?:\([ \t]*\))?")
_ENDS = frozenset(("then", "elif", "else", "fi", "do", "done", "esac", "}"))
_OPERATORS = re.compile(r"&&|\|\||[<>()|&;]")


class Parser(Lexer):
    """Reads commands; ``here`` are here-documents with bodies after the current line."""

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self.here: list[Redirection] = []
        self.assigned: list[tuple[str, int]] = []

    def script(self) -> tuple[Node, ...]:
        """Read all commands of the text; raise LaunchError if a command cannot be parsed."""
        nodes = self._list()
        if self.position < len(self.text):
            symbol = self._reserved() or self.text[self.position]
            raise self.error(f"a command cannot begin with {symbol}.", self.position)
        if self.here:
            self._bodies()
        return nodes

    def _list(self) -> tuple[Node, ...]:
        """Read commands up to a word or bracket that ends the list."""
        nodes: list[Node] = []
        while True:
            self._lines()
            if self.position >= len(self.text) or self.text[self.position] == ")":
                return tuple(nodes)
            if self._ends_clause() or self._reserved() in _ENDS:
                return tuple(nodes)
            node = self._chain()
            self.blanks()
            if self._takes("&") and not self.text.startswith("&", self.position):
                node = Subshell((node,), in_background=True)
            elif self.text.startswith(";", self.position) and not self._ends_clause():
                self.position += 1
            nodes.append(node)

    def _ends_clause(self) -> bool:
        return self.text.startswith((";;", ";&"), self.position)

    def _lines(self) -> None:
        """Skip blanks, comments and line ends, and read the here-documents that follow a line."""
        while True:
            if not self.here and (empty_lines := _EMPTY_LINES.match(self.text, self.position)):
                self.position = empty_lines.end()
            self.blanks()
            if self.text.startswith("\r\n", self.position):
                self.position += 1
            if not self.text.startswith("\n", self.position):
                return
            self.position += 1
            if self.here:
                self._bodies()

    def _bodies(self) -> None:
        """Read the bodies of here-documents whose redirections precede this line."""
        waiting, self.here = self.here, []
        for redirection in waiting:
            word = redirection.word
            ends = "".join(p.text if isinstance(p, Literal) else "" for p in word.parts)
            quoted = any(isinstance(p, Literal) and p.quote for p in word.parts)
            strips, start, position = redirection.operator == "<<-", self.position, self.position
            while True:
                if position >= len(self.text):
                    raise self.error(f"the here-document <<{ends} never ends.", word.start)
                end = self.text.find("\n", position)
                end = len(self.text) if end < 0 else end
                line = self.text[position:end].removesuffix("\r")
                if (line.lstrip("\t") if strips else line) == ends:
                    break
                position = end + 1
            literal = Literal(self.text[start:position], start, position, "'")
            parts = (literal,) if quoted else self.here_parts(start, position)
            redirection.body = HereDocBody(parts, start, position, ends)
            self.position = min(end + 1, len(self.text))

    def _reserved(self) -> str:
        match = _RESERVED.match(self.text, self.position)
        return match[0] if match else ""

    def _takes(self, text: str) -> bool:
        if self.text.startswith(text, self.position):
            self.position += len(text)
            return True
        return False

    def _expect(self, *words: str, start: int, construct: str) -> str:
        """Read one of the reserved words ``words`` and return it; raise LaunchError if missing."""
        self._lines()
        reserved = self._reserved()
        if reserved not in words:
            raise self.error(f"{construct} has no {' or '.join(words)}.", start)
        self.position += len(reserved)
        return reserved

    def _chain(self) -> Node:
        """Read pipelines joined by ``&&`` and ``||``."""
        items: list[tuple[str, Node]] = [("", self._pipe())]
        while True:
            self.blanks()
            operator = self.text[self.position : self.position + 2]
            if operator not in ("&&", "||"):
                return items[0][1] if len(items) == 1 else AndOrList(tuple(items))
            self.position += 2
            self._lines()
            items.append((operator, self._pipe()))

    def _pipe(self) -> Node:
        """Read a pipeline: one command, or several as a subshell; ``!`` negates it."""
        self.blanks()
        word = self._reserved()
        if word in ("!", "time"):
            self.position += len(word)
            self.deeper(self.position)
            node = self._pipe()
            self.depth -= 1
            return Negation(node) if word == "!" else node
        nodes = [self._command()]
        while True:
            self.blanks()
            if self.text.startswith("||", self.position) or not self._takes("|"):
                return nodes[0] if len(nodes) == 1 else Subshell(tuple(nodes))
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
        """Read a compound command or function; any other text as a simple command."""
        word = self._reserved()
        end = self.closing(start + 2) if self.text.startswith("((", start) else -1
        if end > 0 and self.text.startswith("))", end):
            self.position = end + 2
            return self._redirected(ArithmeticCommand(self.here_parts(start + 2, end), start))
        if self._takes("("):
            body = self._list()
            if not self._takes(")"):
                raise self.error("( is never closed.", start)
            return self._redirected(Subshell(body))
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

    def _redirection(self, redirections: list[Redirection]) -> bool:
        """Read a redirection into the list; False: none begins here."""
        self.blanks()
        symbol = _REDIRECTION.match(self.text, self.position)
        if symbol is None or PLACEHOLDER.match(self.text, self.position):
            return False
        self.position = symbol.end()
        self.blanks()
        redirection = Redirection(symbol[2], self.word())
        redirections.append(redirection)
        if symbol[2] in ("<<", "<<-"):
            self.here.append(redirection)
        return True

    def _group(self, start: int) -> Node:
        body = self._list()
        self._expect("}", start=start, construct="{")
        return Group(body)

    def _if(self, start: int) -> Node:
        clauses, otherwise = [], None
        while True:
            condition = self._list()
            self._expect("then", start=start, construct="if")
            clauses.append((condition, self._list()))
            end = self._expect("elif", "else", "fi", start=start, construct="if")
            if end == "else":
                otherwise = self._list()
                end = self._expect("fi", start=start, construct="if")
            if end == "fi":
                return If(tuple(clauses), otherwise)

    def _while(self, start: int) -> Node:
        before, until = len(self.assigned), self.text.startswith("until", start)
        condition = self._list()
        body = self._do(start)
        return Loop("", (), condition, body, start, tuple(self.assigned[before:]), until)

    def _for(self, start: int) -> Node:
        """Read ``for`` or ``select`` with its words and body."""
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
        opening = self._expect("do", "{", start=start, construct="the loop")
        body = self._list()
        self._expect("done" if opening == "do" else "}", start=start, construct="the loop")
        return body

    def _next_word(self) -> RawWord | None:
        """The next word of the same command."""
        self.blanks()
        word = self.word()
        return word if word.end > word.start else None

    def _case(self, start: int) -> Node:
        """Read ``case`` with its clauses, up to ``esac``."""
        self.blanks()
        word, clauses = self.word(), list[tuple[tuple[RawWord, ...], tuple[Node, ...]]]()
        self._expect("in", start=start, construct="case")
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
                raise self.error("case has no esac.", start)

    def _patterns(self, start: int) -> tuple[RawWord, ...]:
        """Read the patterns of a ``case`` clause, up to the parenthesis."""
        patterns: list[RawWord] = []
        self._takes("(")
        while True:
            pattern = self._next_word()
            if pattern is None:
                raise self.error("case has no esac.", start)
            patterns.append(pattern)
            self.blanks()
            if self._takes(")"):
                return tuple(patterns)
            if not self._takes("|"):
                raise self.error("case has no esac.", start)

    def _simple(self) -> Node:
        """Read a simple command: assignments, words and redirections."""
        start, assignments = self.position, list[Assignment]()
        self.commands += 1
        if self.commands > MOST_COMMANDS:
            raise self.error(too_many("commands", MOST_COMMANDS), start)
        words, redirections, declares = list[RawWord](), list[Redirection](), ""
        end = start
        while True:
            tests = bool(words) and words[0].literal == "[["
            if tests:
                self._lines()
            elif self._redirection(redirections):
                continue
            if (declares or not words) and (assignment := self._assignment()) is not None:
                assignments.append(assignment)
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
            raise self.error(f"a command cannot begin with {here}.", start)
        return SimpleCommand(
            tuple(assignments), tuple(words), tuple(redirections), start, end, declares
        )

    def _assignment(self) -> Assignment | None:
        """Read an assignment; None if none begins here."""
        match = _ASSIGNED.match(self.text, self.position)
        if match is None:
            return None
        start, self.position = self.position, match.end()
        self.assigned.append((match[1], start))
        adds, subscript = bool(match[3]), match[2] or ""
        if not self._takes("("):
            return Assignment(match[1], start, adds, subscript, value=self.word())
        elements: list[RawWord] = []
        while True:
            self._lines()
            if self._takes(")"):
                return Assignment(match[1], start, adds, subscript, elements=tuple(elements))
            element = self.word()
            if element.end == element.start:
                raise self.error(f"the array {match[1]}=( is never closed.", start)
            elements.append(element)
