"""Words of a shell: quotes, escapes, and what a dollar begins."""

from __future__ import annotations

import re

from planner.errors import LaunchError
from planner.shell.syntax import (
    Arithmetic,
    Literal,
    Parameter,
    Part,
    RawWord,
    Run,
    Source,
)

MOST_NESTED = 50
META = " \t\n;&|<>()"
_PLAIN = re.compile(r"[^ \t\n\r;&|<>()'\"\\$`]+|\r")
_IN_DOUBLE = re.compile(r'[^"\\$`]+')
_IN_HERE = re.compile(r"[^\\$`]+")
_IN_BRACES = re.compile(r"[^}'\"\\$`]+")
_IN_BRACES_QUOTED = re.compile(r"[^}\"\\$`]+")
# A place to fill in, <PATH TO vocab.json>, that the shell itself would take for a redirection.
PLACEHOLDER = re.compile(r"<[A-Za-z_](?:[^<>\n|&;]*[^\s<>|&;])?>(?=[\s\"'/]|$)")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|[0-9]|[@*#?$!-]")
_BRACED = re.compile(r"([#!]?)([A-Za-z_][A-Za-z0-9_]*|[0-9]+|[@*#?$!-])")
_OPERATOR = re.compile(r":[-=+?]|%%|##|//|\^\^|,,|[-=+?%#/^,:@]")
_SUBSCRIPT = re.compile(r"\[([^\]\n]*)\]")
_CONTINUED = re.compile(r"\\\r?\n")
_ANSI = re.compile(
    r"\\(?:x([0-9A-Fa-f]{1,2})|u([0-9A-Fa-f]{1,4})|U([0-9A-Fa-f]{1,8})|([0-7]{1,3})|(.))", re.S
)
_ANSI_LETTERS = dict(zip("abeEfnrtv", "\a\b\x1b\x1b\f\n\r\t\v", strict=True))
_BRACES = re.compile(r"\{([^{}]*)\}")


class Lexer:
    """Reads words from a position of a script; ``position`` is the next character."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.text = source.text
        self.position = 0
        self.limit = len(source.text)
        self.depth = 0

    def fault(self, what: str, position: int) -> LaunchError:
        """An error that names file and line."""
        return LaunchError(f"{self.source.at(position)}: {what}")

    def deeper(self, start: int) -> None:
        """Counts a level of nesting."""
        self.depth += 1
        if self.depth > MOST_NESTED:
            raise self.fault(f"nested more than {MOST_NESTED} deep: that is not read.", start)

    def blanks(self) -> None:
        """Skips blanks, continued lines and a comment, but no end of a line."""
        text, length = self.text, len(self.text)
        while self.position < length:
            char = text[self.position]
            if char in " \t" or (char == "\r" and text.startswith("\r\n", self.position)):
                self.position += 1
            elif found := _CONTINUED.match(text, self.position):
                self.position = found.end()
            elif char == "#":
                end = text.find("\n", self.position)
                self.position = length if end < 0 else end
            else:
                return

    def word(self) -> RawWord:
        """The word that begins here; empty if none does."""
        start, parts = self.position, list[Part]()
        text, length = self.text, len(self.text)
        while self.position < length:
            char = text[self.position]
            if char == "<" and (found := PLACEHOLDER.match(text, self.position)):
                parts.append(Run(self.position, found.end(), False))
                self.position = found.end()
            elif char in "<>" and text.startswith("(", self.position + 1):
                parts.append(self._run(self.position + 2, quoted=False))
            elif char in META or text.startswith("\r\n", self.position):
                break
            elif found := _PLAIN.match(text, self.position):
                parts.append(Literal(found[0], self.position, found.end(), ""))
                self.position = found.end()
            else:
                parts += self._special(char, quoted=False)
        self._whole_braces(start, parts)
        return RawWord(tuple(parts), start, self.position)

    def _whole_braces(self, start: int, parts: list[Part]) -> None:
        """Words that the shell would make several of, ``{1..4}``, become one that is not told."""
        if not any(isinstance(p, Literal) and not p.quote and "{" in p.text for p in parts):
            return
        bare = "".join(
            part.text if isinstance(part, Literal) and not part.quote else "x" for part in parts
        )
        if any("," in inside or ".." in inside for inside in _BRACES.findall(bare)):
            parts[:] = [Run(start, self.position, False)]

    def _special(self, char: str, *, quoted: bool) -> list[Part]:
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
        if found := _CONTINUED.match(self.text, start):
            self.position = found.end()
            return []
        self.position = min(start + 2, len(self.text))
        return [Literal(self.text[start + 1 : start + 2] or "\\", start, self.position, "\\")]

    def _single(self, start: int) -> Literal:
        end = self.text.find("'", start)
        if end < 0:
            raise self.fault("the quote ' is never closed.", start - 1)
        self.position = end + 1
        return Literal(self.text[start:end], start, end, "'")

    def _ansi(self) -> Literal:
        start = self.position + 2
        end = start
        while end < len(self.text) and self.text[end] != "'":
            end += 2 if self.text[end] == "\\" else 1
        if end >= len(self.text):
            raise self.fault("the quote $' is never closed.", start - 2)
        self.position = end + 1
        return Literal(_ANSI.sub(_ansi_character, self.text[start:end]), start, end, "$'")

    def _double(self) -> list[Part]:
        start = self.position
        self.position += 1
        parts = self.quoted_parts(_IN_DOUBLE, '"', start)
        return parts or [Literal("", start + 1, start + 1, '"')]

    def quoted_parts(self, plain: re.Pattern[str], end: str, start: int) -> list[Part]:
        """Parts in double quotes, up to ``end``; without it up to the limit."""
        parts, text = list[Part](), self.text
        escapable = '$`"\\' if end else "$`\\"
        while self.position < self.limit:
            char = text[self.position]
            if char == end:
                self.position += 1
                return parts
            if found := plain.match(text, self.position, self.limit):
                parts.append(Literal(found[0], self.position, found.end(), '"'))
                self.position = found.end()
            elif char == "\\":
                parts += self._escaped_in_quotes(escapable)
            else:
                parts += self._special(char, quoted=True)
        if end or self.position > self.limit:
            raise self.fault(f"the quote {end or '$'} is never closed.", start)
        return parts

    def _escaped_in_quotes(self, escapable: str) -> list[Part]:
        start, following = self.position, self.text[self.position + 1 : self.position + 2]
        if found := _CONTINUED.match(self.text, start):
            self.position = found.end()
            return []
        if following and following in escapable:
            self.position = start + 2
            return [Literal(following, start, start + 2, '"')]
        self.position = start + 1
        return [Literal("\\", start, start + 1, '"')]

    def here_parts(self, start: int, end: int) -> tuple[Part, ...]:
        """The parts of a here-document or of arithmetic, which stands from ``start`` to ``end``."""
        self.deeper(start)
        after = self.position, self.limit
        self.position, self.limit = start, end
        parts = self.quoted_parts(_IN_HERE, "", start)
        self.position, self.limit = after
        self.depth -= 1
        return tuple(parts)

    def _backquoted(self, *, quoted: bool) -> Run:
        start = self.position
        end = start + 1
        while end < len(self.text) and self.text[end] != "`":
            end += 2 if self.text[end] == "\\" else 1
        if end >= len(self.text):
            raise self.fault("the quote ` is never closed.", start)
        self.position = end + 1
        return Run(start, end + 1, quoted)

    def _dollar(self, *, quoted: bool) -> Part:
        start, text = self.position, self.text
        if text.startswith("$((", start):
            if (computed := self._arithmetic(quoted=quoted)) is not None:
                return computed
            self.position = start
        if text.startswith("$(", start):
            return self._run(start + 2, quoted=quoted)
        if text.startswith("${", start):
            return self._braced(quoted=quoted)
        if found := _NAME.match(text, start + 1):
            self.position = found.end()
            return Parameter(found[0], start, self.position, quoted)
        self.position = start + 1
        return Literal("$", start, start + 1, '"' if quoted else "")

    def _arithmetic(self, *, quoted: bool) -> Arithmetic | None:
        start = self.position
        end = self.closing(start + 3)
        if end < 0 or not self.text.startswith("))", end):
            return None
        inside = self.here_parts(start + 3, end)
        self.position = end + 2
        return Arithmetic(inside, start, end + 2, quoted)

    def closing(self, position: int) -> int:
        """Where the parenthesis closes that opened before ``position``; -1 if nowhere."""
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
        """The end of a quote that is not looked into; -1 if it has none."""
        text, length = self.text, len(self.text)
        if quote == "'" and not text.startswith("$", position - 1):
            return text.find("'", position + 1)
        position += 1
        while position < length and text[position] != quote:
            position += 2 if text[position] == "\\" else 1
        return position if position < length else -1

    def _run(self, inside: int, *, quoted: bool) -> Run:
        start = self.position
        end = self.closing(inside)
        if end < 0:
            raise self.fault(f"{self.text[start:inside]} is never closed.", start)
        self.position = end + 1
        return Run(start, self.position, quoted)

    def _braced(self, *, quoted: bool) -> Part:
        start, text = self.position, self.text
        found = _BRACED.match(text, start + 2)
        if found is not None and found[0][0] in "#!" and text.startswith("}", start + 3):
            self.position = start + 4
            return Parameter(found[0][0], start, start + 4, quoted)
        if found is None:
            return self._odd_braces(start, quoted=quoted)
        self.position = found.end()
        subscript = operator = ""
        if index := _SUBSCRIPT.match(text, self.position):
            subscript, self.position = index[1], index.end()
        if symbol := _OPERATOR.match(text, self.position):
            operator, self.position = symbol[0], symbol.end()
        argument = self._argument(start, quoted=quoted)
        prefix = {"#": "length", "!": "indirect"}.get(found[1], operator)
        return Parameter(found[2], start, self.position, quoted, subscript, prefix, argument)

    def _argument(self, start: int, *, quoted: bool) -> tuple[Part, ...]:
        parts, text, length = list[Part](), self.text, len(self.text)
        plain = _IN_BRACES_QUOTED if quoted else _IN_BRACES
        self.deeper(start)
        while self.position < length:
            char = text[self.position]
            if char == "}":
                self.position += 1
                self.depth -= 1
                return tuple(parts)
            if found := plain.match(text, self.position):
                parts.append(Literal(found[0], self.position, found.end(), '"' if quoted else ""))
                self.position = found.end()
            elif quoted and char == "\\":
                parts += self._escaped_in_quotes('$`"\\}')
            else:
                parts += self._special(char, quoted=quoted and char != '"')
        raise self.fault("${ is never closed.", start)

    def _odd_braces(self, start: int, *, quoted: bool) -> Run:
        end = self.text.find("}", start)
        if end < 0:
            raise self.fault("${ is never closed.", start)
        self.position = end + 1
        return Run(start, end + 1, quoted)


def _ansi_character(found: re.Match[str]) -> str:
    *numbers, letter = found.groups()
    for digits, base in zip(numbers, (16, 16, 16, 8), strict=True):
        if digits is not None:
            code = int(digits, base) & (0xFF if base == 8 else 0x7FFFFFFF)
            return chr(code) if code <= 0x10FFFF else found[0]
    return _ANSI_LETTERS.get(letter) or (letter if letter in "\\'\"?" else found[0])
