"""Results of the twin that every stage asks for again."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def remembered(function: Callable[P, R]) -> Callable[P, R]:
    """Keeps what a function said of the last world or model and layout; nobody may change it.

    Objects are told apart by identity: a twin compares the same ones all along.
    """
    last: list[Any] = [None, None]
    kept: dict[tuple[int | str, ...], R] = {}

    @wraps(function)
    def wrapped(*arguments: P.args, **named: P.kwargs) -> R:
        assert not named
        layouts = [one for one in arguments if type(one).__name__ == "Layout"]
        if arguments[0] is not last[0] or layouts[0] is not last[1]:
            last[:] = [arguments[0], layouts[0]]
            kept.clear()
        key = tuple(one if isinstance(one, int | str) else id(one) for one in arguments)
        if key not in kept:
            kept[key] = function(*arguments, **named)
        return kept[key]

    return wrapped
