"""What was assumed for a run because its row leaves it open, in words."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from planner.confidence.intervals import Rule
from planner.errors import did_you_mean
from planner.specs.model import ModelSpec
from planner.validation.kinds import Kind
from planner.validation.library import spelled
from planner.validation.models import OF_COLUMNS
from planner.validation.prediction import Case
from planner.validation.runs import Run

UNKNOWN = "is not known"
"""What is said of software that no rule names."""
_OTHER = "other"


def assumed(run: Run, case: Case, kind: Kind) -> tuple[str, ...]:
    """Every choice that was made for a run, one text each."""
    return (
        *_software(run.text("framework"), case.software, kind.labels()),
        *_model(run.text("model"), case.model),
        *kind.choices(run, case),
    )


def _software(text: str, rule: Rule, labels: Iterable[str]) -> Iterator[str]:
    """Which profile stands for the software of a run, unless it is plainly its own."""
    if rule.label == _OTHER:
        known = {name.lower(): name for name in labels if name != _OTHER}
        what = f"framework {text!r} {UNKNOWN}" if text else "framework is not given"
        yield f"{what}: {rule.profile} stands in.{did_you_mean(text, known)}"
    elif rule.nearest:
        yield f"framework {rule.label}: {rule.profile} stands in as the closest profile"
    elif not text.lower().startswith(re.split(r"[-.]", spelled(rule.label))[0]):
        yield f"framework {text!r} is taken for {rule.label}"


def _model(name: str, model: ModelSpec) -> Iterator[str]:
    """Which model stands for the name of a run, unless it is its own."""
    if model.source == OF_COLUMNS:
        yield f"model {name!r} is made of the row's columns"
    elif spelled(name) not in map(spelled, (model.name, *model.aliases)):
        yield f"model {name!r} is taken for {model.name}"
