"""Signatures of functions that take the fields of a request."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import MISSING, Field, fields
from typing import Any

from planner.question.request import Request


def signature_of(function: Callable[..., Any]) -> inspect.Signature:
    """The signature of a function with the fields of a request in place of ``**request``."""
    own = [*inspect.signature(function).parameters.values()][:-1]
    asked = [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=_default(field),
            annotation=field.type,
        )
        for field in fields(Request)
        if field.name not in {one.name for one in own}
    ]
    places = sorted([*asked, *own], key=lambda place: place.kind)
    return inspect.Signature(places, return_annotation=function.__annotations__["return"])


def _default(field: Field[Any]) -> Any:
    if field.default_factory is not MISSING:
        return field.default_factory()
    return inspect.Parameter.empty if field.default is MISSING else field.default
