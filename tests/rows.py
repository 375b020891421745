"""Many short rows of a table as one test."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import Any

import pytest

_MOST_SHOWN = 5

Test = Callable[..., None]


def each(names: str | Sequence[str], rows: Iterable[Any]) -> Callable[[Test], Test]:
    """As ``pytest.mark.parametrize``, in one test: all rows run, and those that fail are named.

    For rows of a millisecond: pytest takes several for a test of its own. Fixtures are shared.
    """
    words = [name.strip() for name in names.split(",")] if isinstance(names, str) else [*names]
    given = [_values(row, len(words)) for row in rows]

    def decorate(test: Test) -> Test:
        @wraps(test)
        def run(**fixtures: Any) -> None:
            assert given, "there is no row"
            failed: dict[str, BaseException] = {}
            for number, values in enumerate(given, start=1):
                try:
                    test(**fixtures, **dict(zip(words, values, strict=True)))
                except (Exception, pytest.fail.Exception) as error:
                    name = f"row {number}, {', '.join(map(_word, values))}"
                    error.add_note(name)
                    failed[name] = error
            if failed:
                told = f"{len(failed)} of {len(given)} rows: {'; '.join(failed)}"
                raise BaseExceptionGroup(told, [*failed.values()][:_MOST_SHOWN])

        signature = inspect.signature(test)
        fixtures = [one for name, one in signature.parameters.items() if name not in words]
        run.__signature__ = signature.replace(parameters=fixtures)  # type: ignore[attr-defined]
        del run.__wrapped__  # type: ignore[attr-defined]
        return run

    return decorate


def _values(row: Any, number: int) -> tuple[Any, ...]:
    """The values of a row, of ``pytest.param`` or plain."""
    if hasattr(row, "values") and hasattr(row, "marks"):
        assert not row.marks, "a row with a mark is a test of its own"
        return tuple(row.values)
    return (row,) if number == 1 else tuple(row)


def _word(value: Any) -> str:
    return str(getattr(value, "__qualname__", value))[:80]
