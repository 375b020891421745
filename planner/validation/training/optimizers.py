"""What a run says of its optimizer, and of the formats of what that keeps."""

from __future__ import annotations

from typing import Any

from planner.base.enums import MainPrecision, StatePrecision
from planner.base.optimizer_names import optimizer_of
from planner.validation.models import NotPredicted
from planner.validation.runs import Run

_FORMATS: dict[str, type[StatePrecision | MainPrecision]] = {
    "optimizer_state_precision": StatePrecision,
    "main_params_precision": MainPrecision,
    "main_grads_precision": MainPrecision,
}


def told_states(run: Run) -> dict[str, Any]:
    """Codes of the optimizer and of its formats, of those that a row tells.

    Raises
    ------
    NotPredicted
        A word is none that is known.
    """
    found: dict[str, Any] = {}
    if word := run.word("optimizer"):
        known = optimizer_of(word)
        if known is None:
            raise NotPredicted(f"the optimizer {word} is not modelled yet")
        found |= known
    for name, kind in _FORMATS.items():
        if word := run.word(name):
            codes = {code.word: code for code in kind}
            if word not in codes:
                raise NotPredicted(f"{name} {word} is none of {', '.join(codes)}")
            found[name] = codes[word]
    if run.flag("optimizer_in_backward"):
        found["optimizer_in_backward"] = True
    return found
