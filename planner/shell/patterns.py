"""Changes of a text that ``${name...}`` asks for, and patterns of a shell."""

from __future__ import annotations

import re
from functools import lru_cache

_SPECIAL = frozenset("*?[\\")
# More of both would take time that grows with a power of the length.
_MOST_STARS = 2
_LONGEST_MATCHED = 4096


def changed(text: str, operator: str, argument: str) -> str | None:
    """``text`` without a prefix or suffix, replaced, cut or in another case; None if not told."""
    if operator in ("#", "##", "%", "%%"):
        return _removed(text, operator, argument)
    if operator in ("/", "//"):
        return _replaced(text, operator, argument)
    if operator == ":":
        return _cut(text, argument)
    cases = {"^^": text.upper(), ",,": text.lower(),
             "^": text[:1].upper() + text[1:], ",": text[:1].lower() + text[1:]}  # fmt: skip
    return cases.get(operator) if not argument else None


def matches(text: str, pattern: str) -> bool | None:
    """Whether a pattern of ``case`` takes the text; None if that is not told here."""
    if not _SPECIAL & set(pattern):
        return text == pattern
    compiled = _compiled(pattern) if len(text) <= _LONGEST_MATCHED else None
    return None if compiled is None else compiled.fullmatch(text) is not None


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> re.Pattern[str] | None:
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
    if not _SPECIAL & set(pattern):
        return text.removeprefix(pattern) if operator[0] == "#" else text.removesuffix(pattern)
    fixed = pattern.replace("*", "", 1)
    if _SPECIAL & set(fixed) or not fixed:
        return "" if pattern == "*" and len(operator) == 2 else None
    if operator[0] == "#" and pattern.startswith("*"):
        at = text.find(fixed) if operator == "#" else text.rfind(fixed)
        return text if at < 0 else text[at + len(fixed) :]
    if operator[0] == "%" and pattern.endswith("*"):
        at = text.rfind(fixed) if operator == "%" else text.find(fixed)
        return text if at < 0 else text[:at]
    return None


def _replaced(text: str, operator: str, argument: str) -> str | None:
    pattern, _, replacement = argument.partition("/")
    if not pattern or _SPECIAL & set(pattern) or pattern[0] in "#%" or "&" in replacement:
        return None
    return text.replace(pattern, replacement, -1 if operator == "//" else 1)


def _cut(text: str, argument: str) -> str | None:
    found = re.fullmatch(r"\s*(-?\d{1,9})\s*(?::\s*(\d{1,9})\s*)?", argument)
    if found is None or abs(start := int(found[1])) > len(text):
        return "" if found is not None and int(found[1]) > len(text) else None
    rest = text[start:] if start >= 0 else text[len(text) + start :]
    return rest if found[2] is None else rest[: int(found[2])]
