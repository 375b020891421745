"""Shell expansion of words, as far as the text of the script determines it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache

from planner.documents.shell.edits import Span
from planner.documents.shell.scope import ALL_ARGUMENTS, ONLY_AT_RUN_TIME, Scope
from planner.documents.shell.syntax import (
    MISSING_ARGUMENT,
    Arithmetic,
    Element,
    Fields,
    Literal,
    Parameter,
    Part,
    Pieces,
    RawWord,
    Source,
    Substitution,
    TextPiece,
    Variable,
    Word,
    computed_text,
    span_of,
    text_of,
    unknown_text,
    why_unknown,
)
from planner.errors import LaunchError

# The folder of the script itself: the script names files relative to it.
_DIRNAME = r"""\$\(\s*dirname\s+(?:--\s+)?"?\$(?:0|\{?BASH_SOURCE(?:\[0\])?\}?)"?\s*\)"""
_SCRIPT_FOLDER_PATTERN = re.compile(
    rf"""{_DIRNAME}|\$\(\s*cd\s+(?:--\s+)?"?{_DIRNAME}"?\s*(?:&>\s*/dev/null\s*)?&&\s*pwd\s*\)"""
)
# A variable with only its blanks changed: $(echo "$WORDS" | tr '\\n' ' ' | xargs).
_ECHOED = re.compile(
    r"""\$\(\s*echo\s+(?:-n\s+)?"?\$\{?([A-Za-z_]\w*)\}?"?\s*"""
    r"""(?:\|\s*(?:xargs|tr\s+(?:-s\s+)?'\\n'\s+' '|sed\s+'s/ {1,2}(?:\\\+|\*)/ /g')\s*)*\)"""
)


_SPECIAL = frozenset("*?[\\")
# More of both would take time that grows with a power of the length.
_MOST_STARS = 2
_LONGEST_MATCHED = 4096


def changed_by_pattern(text: str, operator: str, argument: str) -> str | None:
    """Apply a ``${X#...}``-like operator to ``text``: remove, replace, cut or change case."""
    if operator in ("#", "##", "%", "%%"):
        return _removed(text, operator, argument)
    if operator in ("/", "//"):
        pattern, _, replacement = argument.partition("/")
        if not pattern or _SPECIAL & set(pattern) or pattern[0] in "#%" or "&" in replacement:
            return None
        return text.replace(pattern, replacement, -1 if operator == "//" else 1)
    if operator == ":":
        match = re.fullmatch(r"\s*(-?\d{1,9})\s*(?::\s*(\d{1,9})\s*)?", argument)
        if match is None or abs(start := int(match[1])) > len(text):
            return "" if match is not None and int(match[1]) > len(text) else None
        rest = text[start:] if start >= 0 else text[len(text) + start :]
        return rest if match[2] is None else rest[: int(match[2])]
    cases = {"^^": text.upper(), ",,": text.lower(),
             "^": text[:1].upper() + text[1:], ",": text[:1].lower() + text[1:]}  # fmt: skip
    return cases.get(operator) if not argument else None


def matches_pattern(text: str, pattern: str) -> bool | None:
    """Return whether a pattern of ``case`` matches the text; None: it cannot be computed."""
    if not _SPECIAL & set(pattern):
        return text == pattern
    compiled = _compiled(pattern) if len(text) <= _LONGEST_MATCHED else None
    return None if compiled is None else compiled.fullmatch(text) is not None


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> re.Pattern[str] | None:
    """Return a shell pattern as a regular expression; None if its syntax is not supported."""
    if "\\" in pattern or pattern.count("*") > _MOST_STARS or re.search(r"[@?*+!]\(", pattern):
        return None
    parts, position = list[str](), 0
    while position < len(pattern):
        char = pattern[position]
        bracket = re.compile(r"\[([!^]?)([A-Za-z0-9_.-]+)\]").match(pattern, position)
        if bracket is not None:
            parts.append(f"[{'^' if bracket[1] else ''}{bracket[2]}]")
            position = bracket.end()
            continue
        if char == "[":
            return None
        parts.append({"*": ".*", "?": "."}.get(char, re.escape(char)))
        position += 1
    try:
        return re.compile("".join(parts), re.S)
    except re.error:
        return None


def _removed(text: str, operator: str, pattern: str) -> str | None:
    """Return the text without the prefix or suffix that a pattern matches; None: unsupported."""
    if not _SPECIAL & set(pattern):
        return text.removeprefix(pattern) if operator[0] == "#" else text.removesuffix(pattern)
    fixed = pattern.replace("*", "", 1)
    if _SPECIAL & set(fixed) or not fixed:
        return "" if pattern == "*" and len(operator) == 2 else None
    if operator[0] == "#" and pattern.startswith("*"):
        position = text.find(fixed) if operator == "#" else text.rfind(fixed)
        return text if position < 0 else text[position + len(fixed) :]
    if operator[0] == "%" and pattern.endswith("*"):
        position = text.rfind(fixed) if operator == "%" else text.find(fixed)
        return text if position < 0 else text[:position]
    return None


_TOKEN = re.compile(
    r"\s*(?:(0[xX][0-9a-fA-F]+|\d+(?!#))|([A-Za-z_]\w*)|"
    r"(\*\*|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%()<>&|^!~?:]))(?!=(?!=))"
)
_PRIORITIES = (
    ("||",), ("&&",), ("|",), ("^",), ("&",), ("==", "!="), ("<", ">", "<=", ">="),
    ("<<", ">>"), ("+", "-"), ("*", "/", "%"),
)  # fmt: skip
_MOST_TOKENS = 1000
_MOST_NESTED = 50
_OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "||": lambda a, b: int(bool(a or b)), "&&": lambda a, b: int(bool(a and b)),
    "|": lambda a, b: a | b, "^": lambda a, b: a ^ b, "&": lambda a, b: a & b,
    "==": lambda a, b: int(a == b), "!=": lambda a, b: int(a != b),
    "<": lambda a, b: int(a < b), ">": lambda a, b: int(a > b),
    "<=": lambda a, b: int(a <= b), ">=": lambda a, b: int(a >= b),
    "<<": lambda a, b: a << (b % 64), ">>": lambda a, b: a >> (b % 64),
    "+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b,
    "/": lambda a, b: _quotient(a, b), "%": lambda a, b: a - b * _quotient(a, b),
}  # fmt: skip


class UnknownExpression(Exception):
    """The value of an expression cannot be read from the text; the message is the reason."""


def arithmetic_value(text: str, variable: Callable[[str], int]) -> int:
    """Return the value of ``$((text))`` in the 64-bit arithmetic of shells.

    ``variable`` returns the number of a name. Raises `UnknownExpression`.

    >>> arithmetic_value("2 * (3 + n) % 7", {"n": 1}.__getitem__)
    1
    """
    tokens, position = list[str](), 0
    stripped = text.rstrip()
    if "++" in text or "--" in text:
        raise UnknownExpression(f"$(({text})) changes a variable")
    while position < len(stripped):
        match = _TOKEN.match(stripped, position)
        if match is None or len(tokens) > _MOST_TOKENS:
            raise UnknownExpression(f"$(({text})) is not computed here")
        tokens.append(match[0].strip())
        position = match.end()
    reader = _Reader(tokens, variable, text)
    result = reader.choice(0)
    if reader.position < len(tokens):
        raise UnknownExpression(f"$(({text})) is not computed here")
    return result


class _Reader:
    def __init__(self, tokens: list[str], variable: Callable[[str], int], text: str) -> None:
        self.tokens, self.variable, self.text = tokens, variable, text
        self.position = 0

    def _take(self, *tokens: str) -> str:
        if self.position < len(self.tokens) and self.tokens[self.position] in tokens:
            self.position += 1
            return self.tokens[self.position - 1]
        return ""

    def choice(self, depth: int) -> int:
        """Evaluate ``a ? b : c``, or an expression without ``?``, from the current token on."""
        if depth > _MOST_NESTED:
            raise UnknownExpression("an expression is nested too deep")
        condition = self._binary(0, depth)
        if not self._take("?"):
            return condition
        yes = self.choice(depth + 1)
        if not self._take(":"):
            raise UnknownExpression(f"$(({self.text})) is not computed here")
        no = self.choice(depth + 1)
        return yes if condition else no

    def _binary(self, priority: int, depth: int) -> int:
        """Evaluate binary operators of this and higher priorities, wrapped to 64 bits."""
        if priority == len(_PRIORITIES):
            return self._power(depth)
        left = self._binary(priority + 1, depth)
        while operator := self._take(*_PRIORITIES[priority]):
            right = self._binary(priority + 1, depth)
            left = _wrapped(_OPERATIONS[operator](left, right))
        return left

    def _power(self, depth: int) -> int:
        """Evaluate ``a ** b``, from right to left; raise UnknownExpression if b is negative."""
        base = self._unary(depth)
        if not self._take("**"):
            return base
        exponent = self._power(depth + 1)
        if exponent < 0 or depth > _MOST_NESTED:
            raise UnknownExpression(f"$(({self.text})) is not computed here")
        return _wrapped(pow(base, exponent, 1 << 64))

    def _unary(self, depth: int) -> int:
        """Evaluate an operand with signs or negations in front, or an expression in parentheses."""
        if depth > _MOST_NESTED:
            raise UnknownExpression("an expression is nested too deep")
        operator = self._take("-", "+", "!", "~")
        if operator:
            operand = self._unary(depth + 1)
            return {"-": _wrapped(-operand), "+": operand, "!": int(not operand), "~": ~operand}[
                operator
            ]
        if self._take("("):
            inside = self.choice(depth + 1)
            if not self._take(")"):
                raise UnknownExpression(f"$(({self.text})) is not computed here")
            return inside
        return self._operand()

    def _operand(self) -> int:
        """Return the number or variable's value at this token; 0 for an empty expression."""
        if self.position >= len(self.tokens):
            if not self.tokens:
                return 0
            raise UnknownExpression(f"$(({self.text})) is not computed here")
        token = self.tokens[self.position]
        self.position += 1
        if token[0].isdigit():
            return arithmetic_number(token)
        if token[0].isalpha() or token[0] == "_":
            return self.variable(token)
        raise UnknownExpression(f"$(({self.text})) is not computed here")


def arithmetic_number(text: str) -> int:
    """Parse an integer as shells write it: ``0x1f`` has base 16, ``017`` base 8.

    Raises `UnknownExpression` if it is none.
    """
    digits = text.strip()
    sign = -1 if digits.startswith("-") else 1
    digits = digits.lstrip("+-") if digits[1:] else digits
    base = 16 if digits[:2].lower() == "0x" else 8 if digits[:1] == "0" else 10
    if len(digits) > 30 or not re.fullmatch(r"0[xX][0-9a-fA-F]+|[0-9]+", digits):
        raise UnknownExpression(f"{text.strip()[:40]!r} is not a whole number")
    try:
        return _wrapped(sign * int(digits, base))
    except ValueError:
        raise UnknownExpression(f"{text.strip()[:40]!r} is not a whole number") from None


def _wrapped(result: int) -> int:
    return (result + (1 << 63)) % (1 << 64) - (1 << 63)


def _quotient(a: int, b: int) -> int:
    if b == 0:
        raise UnknownExpression("a division by zero")
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


MOST_WORDS = 200_000
LONGEST_WORD = 1_000_000
_MOST_PIECES = 2_000_000
_MOST_CHARACTERS = 64_000_000
_LONGEST_SHOWN = 60
_AT_RUN_TIME = frozenset("?$!-_")


class Expander:
    """Expands words with the variables of `scope`; raises LaunchError on too much text."""

    def __init__(self, source: Source, scope: Scope) -> None:
        """Start with no arguments of the script and with empty counts of words and characters."""
        self.source = source
        self.scope = scope
        self.arguments: tuple[Element, ...] | None = None
        self.elsewhere = ""
        self._pieces = 0
        self._characters = 0
        self._words = 0

    def words(self, raw: RawWord) -> list[Word]:
        """Expand a word of the script to words with lines: none, one or several."""
        elements = self.elements(raw)
        word_span = Span(raw.start, raw.end)
        spans = [
            word_span if len(elements) == 1 else self._place(element, word_span)
            for element in elements
        ]
        return [
            self.word(element, span.start, span.end)
            for element, span in zip(elements, spans, strict=True)
        ]

    def _place(self, element: Element, word_span: Span) -> Span:
        """Position of one of several words, as in an array; else the position of all."""
        (innermost, *_) = (*element.regions, word_span)
        return innermost if innermost.end <= len(self.source.text) else word_span

    def word(self, element: Element, start: int, end: int) -> Word:
        """Return an element as a word at ``start`` to ``end`` of the file."""
        pieces, span = element.pieces, span_of(element.pieces)
        return Word(
            text=text_of(pieces),
            span=span,
            line=self.source.line(start if span is None else span.start),
            raw=self.source.text[start:end],
            unknown=why_unknown(pieces),
            pieces=pieces,
            regions=element.regions,
        )

    def elements(self, raw: RawWord) -> list[Element]:
        """Expand a word of the script to elements (words without lines): none, one or several."""
        fields = Fields()
        for part in raw.parts:
            self._part(part, fields)
        fields.end()
        for element in fields.ended:
            self.spend(element.pieces, raw.start)
        self.count(len(fields.ended), raw.start)
        word_span = Span(raw.start, raw.end)
        if len(fields.ended) == 1:
            first = fields.ended[0]
            return [Element(first.pieces, tuple(dict.fromkeys((*first.regions, word_span))))]
        return fields.ended

    def count(self, number: int, position: int) -> None:
        """Add to the number of words so far; raise LaunchError if there are too many."""
        self._words += number
        if self._words > MOST_WORDS:
            raise LaunchError(
                f"{self.source.at(position)}: the script becomes more than {MOST_WORDS:,} words: "
                "that is not read."
            )

    def spend(self, pieces: Sequence[TextPiece], position: int) -> None:
        """Add to the characters and pieces so far; raise LaunchError if there are too many."""
        length = sum(len(piece.text) for piece in pieces)
        self._pieces += len(pieces)
        self._characters += length
        too_long = length > LONGEST_WORD
        if too_long or self._pieces > _MOST_PIECES or self._characters > _MOST_CHARACTERS:
            raise LaunchError(
                f"{self.source.at(position)}: the variables expand to too much text "
                f"(more than {LONGEST_WORD if too_long else _MOST_CHARACTERS:,} characters)."
            )

    def text(self, parts: Iterable[Part], position: int) -> Pieces:
        """Expand parts to one text that is not split, as in an assignment or in quotes."""
        pieces: list[TextPiece] = []
        for part in parts:
            pieces += self._joined(part)
        self.spend(pieces, position)
        return tuple(pieces)

    def _part(self, part: Part, fields: Fields) -> None:
        """Add the text of one part of a word to the fields; unquoted expansions are split."""
        if isinstance(part, Literal):
            fields.join((_piece(part),))
        elif isinstance(part, Parameter) and self._is_list(part):
            self._list(part, fields)
        elif part.quoted:
            fields.join(self._joined(part))
        elif (
            isinstance(part, Parameter) and part.argument and part.operator[-1:] in ("-", "=", "+")
        ):
            # Quotes in the default count: ${X:---option "a b"}.
            self._default(part, fields)
        else:
            fields.split(self._joined(part))

    def _joined(self, part: Part) -> Pieces:
        """Return the text of a part as unsplit pieces; a command's output is mostly unknown."""
        if isinstance(part, Literal):
            return (_piece(part),)
        span = Span(part.start, part.end)
        if isinstance(part, Substitution) and part.parts:
            return _without_last_newlines(self.text(part.parts, part.start))
        if isinstance(part, Substitution):
            if echoed := _ECHOED.fullmatch(self.source.text[span.start : span.end]):
                pieces = self.parameter(Parameter(echoed[1], part.start, part.end, part.quoted))
                return tuple(piece.through(span) for piece in pieces)
            if _SCRIPT_FOLDER_PATTERN.fullmatch(self.source.text[span.start : span.end]):
                return tuple(piece.through(span) for piece in computed_text("."))
            shown = self._shown(span)
            is_gap = shown.startswith("<") and shown.endswith(">")
            reason = f"{shown} is {'to be filled in' if is_gap else ONLY_AT_RUN_TIME}"
            return (TextPiece("", unknown=reason, trail=(span,)),)
        if isinstance(part, Arithmetic):
            return tuple(piece.through(span) for piece in self._number(part))
        if self._is_list(part):
            return self._list_text(part)
        pieces = self.parameter(part)
        self.spend(pieces, part.start)
        return tuple(piece.through(span) for piece in pieces)

    def _shown(self, span: Span) -> str:
        text = " ".join(self.source.text[span.start : span.end].split())
        return text if len(text) <= _LONGEST_SHOWN else f"{text[: _LONGEST_SHOWN - 3]}..."

    def _number(self, part: Arithmetic) -> Pieces:
        """Return the value of ``$((...))`` as text, or the reason why it is unknown."""
        pieces = self.text(part.parts, part.start)
        text = text_of(pieces)
        if text is None:
            return unknown_text(why_unknown(pieces))
        try:
            return computed_text(str(arithmetic_value(text, self.number)))
        except UnknownExpression as error:
            return unknown_text(str(error))

    def number(self, name: str) -> int:
        """Return the integer in a variable, 0 if blank; raise UnknownExpression if unknown."""
        pieces = self.parameter(Parameter(name, 0, 0, True))
        text = text_of(pieces)
        if text is None:
            raise UnknownExpression(why_unknown(pieces))
        return arithmetic_number(text) if text.strip() else 0

    # Parameters

    def parameter(self, part: Parameter) -> Pieces:
        """Return the value of ``${...}`` as one text, unknown with a reason if not computed."""
        variable, operator = self.variable(part), part.operator
        if operator in (":-", "-", ":=", "=", ":+", "+", ":?", "?"):
            return self._chosen(part, variable)
        if operator == "length":
            return self._length(part, variable)
        if variable is None:
            return unknown_text(self.unset(part))
        pieces = self._subscripted(part, variable)
        text = text_of(pieces)
        if not operator and not part.argument:
            return pieces
        if text is None:
            return unknown_text(why_unknown(pieces))
        if operator == "indirect":
            return self.parameter(Parameter(text, part.start, part.end, part.quoted))
        argument = self.text(part.argument, part.start)
        pattern = text_of(argument)
        if pattern is None:
            return unknown_text(why_unknown(argument))
        result = changed_by_pattern(text, operator, pattern)
        shown = self._shown(Span(part.start, part.end))
        if result is None:
            return unknown_text(f"{shown} is not computed here")
        return computed_text(result)

    def variable(self, part: Parameter) -> Variable | None:
        """Return the variable that a parameter names; a digit names an argument. None: not set."""
        if part.name.isdigit() and self.arguments is not None:
            index = int(part.name[:6]) - 1
            if 0 <= index < len(self.arguments):
                return Variable((self.arguments[index],))
            return None if index >= 0 else self.scope.get(part.name)
        if part.name == "#":
            return Variable((Element(computed_text(str(self.num_arguments))),))
        return self.scope.get(part.name)

    @property
    def num_arguments(self) -> int:
        """Return the number of arguments of the function, or of the script."""
        if self.arguments is not None:
            return len(self.arguments)
        number = 0
        while self.scope.get(str(number + 1)) is not None:
            number += 1
        return number

    def unset(self, part: Parameter) -> str:
        """Return the reason why a parameter that is not set has no value."""
        name = part.name
        if name in _AT_RUN_TIME or name == "0":
            return f"${name} is {ONLY_AT_RUN_TIME}"
        if name.isdigit():
            return f"${name} {MISSING_ARGUMENT}"
        return f"${name} is set by nothing in this file{self.elsewhere}"

    def _default_expansion(self, part: Parameter, variable: Variable | None) -> Pieces | None:
        """Return the value of ``${X:-default}`` or a similar form; None: the argument is used."""
        operator = part.operator
        pieces = None if variable is None else self._subscripted(part, variable)
        if pieces is not None and any(piece.unknown for piece in pieces):
            return pieces
        is_set = pieces is not None and (operator[0] != ":" or bool(text_of(pieces)))
        if operator[-1] == "+":
            return None if is_set else (TextPiece(""),)
        return pieces if is_set else None

    def _chosen(self, part: Parameter, variable: Variable | None) -> Pieces:
        """Return the text of `${X:-a}`, `${X:=a}` or `${X:+a}`; `:=` also assigns the variable."""
        expansion = self._default_expansion(part, variable)
        if expansion is not None:
            return expansion
        if part.operator[-1] == "?":
            return unknown_text(f"${part.name} is required by line {self.source.line(part.start)}")
        argument = self.text(part.argument, part.start)
        if part.operator[-1] == "=":
            self.scope.put(part.name, Variable((Element(argument),), assigned=(part.start,)))
        return argument

    def _default(self, part: Parameter, fields: Fields) -> None:
        """Add ``${X:-a}`` or ``${X:+a}`` to the fields; the argument's quotes prevent splitting."""
        through = Span(part.start, part.end)
        expansion = self._default_expansion(part, self.variable(part))
        if expansion is not None or part.operator[-1] == "=":
            fields.split(self._joined(part))
            return
        for inner in part.argument:
            if isinstance(inner, Literal) and not inner.quote:
                fields.split((_piece(inner).through(through),))
            else:
                self._part(inner, fields)

    def _subscripted(self, part: Parameter, variable: Variable) -> Pieces:
        """Return the text of ``${X[i]}``, or of ``$X``; empty if the index is out of range."""
        if not part.subscript or variable.unknown:
            return variable.pieces
        try:
            index = arithmetic_value(part.subscript, self.number)
        except UnknownExpression as error:
            return unknown_text(str(error))
        if not -len(variable.elements) <= index < len(variable.elements):
            return (TextPiece(""),)
        return variable.elements[index].pieces

    def _length(self, part: Parameter, variable: Variable | None) -> Pieces:
        """Return ``${#X}`` in characters, or ``${#X[@]}`` in elements; else why it is unknown."""
        if variable is None:
            return unknown_text(self.unset(part))
        if part.subscript in ("@", "*"):
            is_readable = not variable.unknown
            if is_readable:
                return computed_text(str(len(variable.elements)))
            return unknown_text(variable.unknown)
        pieces = self._subscripted(part, variable)
        text = text_of(pieces)
        return unknown_text(why_unknown(pieces)) if text is None else computed_text(str(len(text)))

    # Lists: arrays and arguments

    def _is_list(self, part: Parameter) -> bool:
        is_all = part.name in ("@", "*") or part.subscript in ("@", "*")
        return is_all and part.operator != "length"

    def _elements(self, part: Parameter) -> tuple[Element, ...] | str:
        """Return the elements of ``$@`` or ``${A[@]}``, or the reason why they are unknown."""
        if part.operator or part.argument:
            return self._of_list(part)
        if part.name in ("@", "*"):
            if self.arguments is None and self.scope.get(ALL_ARGUMENTS) is not None:
                numbers = map(str, range(1, self.num_arguments + 1))
                arguments = filter(None, map(self.scope.get, numbers))
                return tuple(element for variable in arguments for element in variable.elements)
            reason = f"${part.name} are the arguments of the script"
            return reason if self.arguments is None else self.arguments
        variable = self.scope.get(part.name)
        if variable is None:
            return self.unset(part)
        return variable.unknown or variable.elements

    def _of_list(self, part: Parameter) -> tuple[Element, ...] | str:
        """Return the elements of ``${A[@]:-default}`` and ``${A[@]+...}``; else a reason."""
        array = Parameter(part.name, part.start, part.end, part.quoted, part.subscript)
        values = self._elements(array)
        is_set = self.scope.get(part.name) is not None or self.arguments is not None
        if part.operator[-1:] == "+" and (not is_set or values == ()):
            return ()
        if part.operator in ("-", ":-") and (not is_set or values == ()):
            fields = Fields()
            for inner in part.argument:
                self._part(inner, fields)
            fields.end()
            return tuple(fields.ended)
        if part.operator in ("-", ":-", "+", ":+"):
            return values
        return f"{self._shown(Span(part.start, part.end))} is not computed here"

    def _list(self, part: Parameter, fields: Fields) -> None:
        """Add the elements of `$@` or `${A[@]}` to the fields, each a separate word if quoted."""
        values, span = self._elements(part), Span(part.start, part.end)
        if isinstance(values, str):
            fields.join((TextPiece("", unknown=values, trail=(span,)),))
            return
        if part.quoted and "*" in (part.name, part.subscript):
            fields.join(self._list_text(part))
            return
        self.count(len(values), part.start)
        for index, value in enumerate(values):
            self.spend(value.pieces, part.start)
            pieces = tuple(piece.through(span) for piece in value.pieces)
            if index:
                fields.end()
            text = text_of(pieces)
            if part.quoted or (text and not any(blank in text for blank in " \t\n")):
                fields.element(Element(pieces, value.regions))
            else:
                fields.split(pieces)

    def _list_text(self, part: Parameter) -> Pieces:
        """Return the elements of ``$*`` or ``${A[*]}`` as one text, joined by blanks."""
        values = self._elements(part)
        if isinstance(values, str):
            return unknown_text(values)
        pieces: list[TextPiece] = []
        for value in values:
            self.spend(value.pieces, part.start)
            pieces += [*computed_text(" "), *value.pieces] if pieces else value.pieces
        return tuple(pieces) or (TextPiece(""),)


def _without_last_newlines(pieces: Pieces) -> Pieces:
    """Remove newlines at the end, as the shell does with the output of ``$(command)``."""
    while pieces and not pieces[-1].unknown:
        last = pieces[-1]
        length = len(last.text.rstrip("\n"))
        if length:
            return (*pieces[:-1], last.part(0, length))
        pieces = pieces[:-1]
    return pieces


def _piece(part: Literal) -> TextPiece:
    return TextPiece(part.text, part.start, part.end, part.quote)
