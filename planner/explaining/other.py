"""The plan that another one is compared with: settings changed, or a plan of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from planner.plan.given import Said, make_request
from planner.question.inputs import full_name
from planner.question.request import Request
from planner.question.terms import terms_of

_FIELDS = {field.name for field in fields(Request)}
_NO_ANSWERS = {"settings", "constraints", "objectives", "workload"}


def changed_request(base: Request, changes: Mapping[str, Any], said: Said = str) -> Request:
    """A request with other answers and settings, by their names or short names.

    Raises
    ------
    SpecError, SearchSpaceError
        A name is unknown, or a value is not what it takes.
    """
    known = terms_of(base.workload, "parameter", "question", "pool")
    answers: dict[str, Any] = {}
    settings: dict[str, Any] = {}
    for given, value in changes.items():
        name = full_name(given.replace("-", "_"), known)
        is_question = name in _FIELDS - _NO_ANSWERS and name not in base.settings
        (answers if is_question else settings)[name] = value
    if settings:
        answers["settings"] = settings
    return make_request(answers, base=base, said=said)
