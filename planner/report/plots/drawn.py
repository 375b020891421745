"""The picture that was asked for, drawn by the module that has it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from planner.report.plots.picture import Picture

_DRAWN_BY: Mapping[str, str] = {
    "front": "front.draw_front",
    "parts": "parts.draw_parts",
    "roofline": "roofline.draw_roofline",
    "timeline": "timeline.draw_timelines",
    "cost": "curves.draw_curves",
    "matrix": "matrix.draw_matrix",
    "predicted": "predicted.draw_predicted",
}


def draw(picture: Picture, *subject: Any) -> None:
    """Draw a picture of what its name is a picture of.

    Raises
    ------
    OutputError
        The file cannot be written.
    """
    module, _, name = _DRAWN_BY[picture.name].partition(".")
    function: Callable[..., None] = getattr(import_module(f"planner.report.plots.{module}"), name)
    function(picture, *subject)
