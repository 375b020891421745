"""Predictions that several searches of one question share."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any, TypeVar

import numpy as np

Predict = TypeVar("Predict", bound=Callable[..., Any])

_MOST_KEPT = 64
_latest: ContextVar[deque[tuple[object, object, Any]] | None] = ContextVar("latest", default=None)


@contextmanager
def shared_predictions() -> Iterator[None]:
    """Keep the latest predictions of `shared` functions, for searches with other limits."""
    token = _latest.set(deque(maxlen=_MOST_KEPT))
    try:
        yield
    finally:
        _latest.reset(token)


def shared(predict: Predict) -> Predict:
    """Decorate a pure function of inputs and configurations; see `shared_predictions`.

    Its results must not be changed in place.
    """

    @wraps(predict)
    def predict_once(inputs: object, *tables: object, **options: object) -> Any:
        latest = _latest.get()
        if latest is None:
            return predict(inputs, *tables, **options)
        key = predict, *map(_content, tables), *options.items()
        for other_inputs, other_key, prediction in latest:
            if other_key == key and other_inputs == inputs:
                return prediction
        prediction = predict(inputs, *tables, **options)
        latest.append((inputs, key, prediction))
        return prediction

    return predict_once  # type: ignore[return-value]


def _content(table: object) -> object:
    """Return the shapes and bytes of an array, or of the arrays of a table."""
    if isinstance(table, np.ndarray):
        return table.shape, table.dtype.str, table.tobytes()
    return (
        None if table is None else [_content(np.asarray(value)) for value in vars(table).values()]
    )
