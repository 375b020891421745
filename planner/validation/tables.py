"""The small table beside this module: how the texts of a run map to models."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from planner.base.records import record
from planner.confidence.tables import read_table

FOLDER = Path(__file__).parent


@record(kw_only=True)
class ModelRule:
    """The built-in model behind a name, or why none of the kind is predicted."""

    pattern: str
    model: str
    reason: str


@cache
def model_rule(name: str) -> ModelRule | None:
    """The first rule whose pattern is in a model's name, if there is one."""
    found = (rule for rule in _model_rules() if re.search(rf"\b(?:{rule.pattern})", name.lower()))
    return next(found, None)


@cache
def _model_rules() -> tuple[ModelRule, ...]:
    return tuple(ModelRule(**row) for row in read_table("models.csv", FOLDER))
