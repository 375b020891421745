"""Whole numbers as a shell computes them; expressions are read, never evaluated as code."""

from __future__ import annotations

import re
from collections.abc import Callable

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


class NotKnown(Exception):
    """The expression has no value that text alone tells; the message says why."""


def value(text: str, variable: Callable[[str], int]) -> int:
    """What ``$((text))`` is, with 64 bits as shells have them.

    ``variable`` gives the number of a name. Raises `NotKnown`.

    >>> value("2 * (3 + n) % 7", {"n": 1}.__getitem__)
    1
    """
    tokens, position = list[str](), 0
    stripped = text.rstrip()
    if "++" in text or "--" in text:
        raise NotKnown(f"$(({text})) changes a variable")
    while position < len(stripped):
        found = _TOKEN.match(stripped, position)
        if found is None or len(tokens) > _MOST_TOKENS:
            raise NotKnown(f"$(({text})) is not computed here")
        tokens.append(found[0].strip())
        position = found.end()
    reader = _Reader(tokens, variable, text)
    result = reader.choice(0)
    if reader.position < len(tokens):
        raise NotKnown(f"$(({text})) is not computed here")
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
        if depth > _MOST_NESTED:
            raise NotKnown("an expression is nested too deep")
        condition = self._binary(0, depth)
        if not self._take("?"):
            return condition
        yes = self.choice(depth + 1)
        if not self._take(":"):
            raise NotKnown(f"$(({self.text})) is not computed here")
        no = self.choice(depth + 1)
        return yes if condition else no

    def _binary(self, priority: int, depth: int) -> int:
        if priority == len(_PRIORITIES):
            return self._power(depth)
        left = self._binary(priority + 1, depth)
        while operator := self._take(*_PRIORITIES[priority]):
            right = self._binary(priority + 1, depth)
            left = _wrapped(_OPERATIONS[operator](left, right))
        return left

    def _power(self, depth: int) -> int:
        base = self._unary(depth)
        if not self._take("**"):
            return base
        exponent = self._power(depth + 1)
        if exponent < 0 or depth > _MOST_NESTED:
            raise NotKnown(f"$(({self.text})) is not computed here")
        return _wrapped(pow(base, exponent, 1 << 64))

    def _unary(self, depth: int) -> int:
        if depth > _MOST_NESTED:
            raise NotKnown("an expression is nested too deep")
        operator = self._take("-", "+", "!", "~")
        if operator:
            operand = self._unary(depth + 1)
            return {"-": _wrapped(-operand), "+": operand, "!": int(not operand), "~": ~operand}[
                operator
            ]
        if self._take("("):
            inside = self.choice(depth + 1)
            if not self._take(")"):
                raise NotKnown(f"$(({self.text})) is not computed here")
            return inside
        return self._operand()

    def _operand(self) -> int:
        if self.position >= len(self.tokens):
            if not self.tokens:
                return 0
            raise NotKnown(f"$(({self.text})) is not computed here")
        token = self.tokens[self.position]
        self.position += 1
        if token[0].isdigit():
            return number(token)
        if token[0].isalpha() or token[0] == "_":
            return self.variable(token)
        raise NotKnown(f"$(({self.text})) is not computed here")


def number(text: str) -> int:
    """A number as shells write it: ``0x1f`` and ``017`` are of base 16 and 8.

    Raises `NotKnown` if it is none.
    """
    digits = text.strip()
    sign = -1 if digits.startswith("-") else 1
    digits = digits.lstrip("+-") if digits[1:] else digits
    base = 16 if digits[:2].lower() == "0x" else 8 if digits[:1] == "0" else 10
    if len(digits) > 30 or not re.fullmatch(r"0[xX][0-9a-fA-F]+|[0-9]+", digits):
        raise NotKnown(f"{text.strip()[:40]!r} is not a whole number")
    try:
        return _wrapped(sign * int(digits, base))
    except ValueError:
        raise NotKnown(f"{text.strip()[:40]!r} is not a whole number") from None


def _wrapped(result: int) -> int:
    return (result + (1 << 63)) % (1 << 64) - (1 << 63)


def _quotient(a: int, b: int) -> int:
    if b == 0:
        raise NotKnown("a division by zero")
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
