"""Whether ``[ ... ]`` and ``[[ ... ]]`` hold, where text alone tells."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from planner.shell import arithmetic, patterns

_COMPARED: dict[str, Callable[[int, int], bool]] = {
    "-eq": lambda a, b: a == b, "-ne": lambda a, b: a != b, "-lt": lambda a, b: a < b,
    "-le": lambda a, b: a <= b, "-gt": lambda a, b: a > b, "-ge": lambda a, b: a >= b,
}  # fmt: skip


def holds(words: Sequence[str | None]) -> bool | None:
    """Whether a test of these words holds; None if that is not told.

    >>> holds(["8", "-gt", "4"]), holds(["-z", None]), holds(["a", "=", "b"])
    (True, None, False)
    """
    if "(" in words or ")" in words:
        return None
    alternatives = [_all(part) for part in _split(words, ("||", "-o"))]
    if True in alternatives:
        return True
    return None if None in alternatives else False


def _all(words: Sequence[str | None]) -> bool | None:
    conditions = [_one(part) for part in _split(words, ("&&", "-a"))]
    if False in conditions:
        return False
    return None if None in conditions else True


def _split(words: Sequence[str | None], operators: tuple[str, ...]) -> list[Sequence[str | None]]:
    parts, start = list[Sequence[str | None]](), 0
    for index, word in enumerate(words):
        if word in operators and index > start:
            parts.append(words[start:index])
            start = index + 1
    return [*parts, words[start:]]


def _one(words: Sequence[str | None]) -> bool | None:
    if len(words) > 1 and words[0] == "!":
        inner = _one(words[1:])
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
    if operator in ("=", "==", "!="):
        equal = patterns.matches(left, right)
        return None if equal is None else equal == (operator != "!=")
    if operator not in _COMPARED:
        return None
    try:
        return _COMPARED[operator](arithmetic.number(left), arithmetic.number(right))
    except arithmetic.NotKnown:
        return None
