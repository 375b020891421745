"""The timeline of a plan as a trace or as a picture, by the ending of its file."""

from __future__ import annotations

from pathlib import Path

from planner.errors import SearchSpaceError
from planner.optimize.collector import first_row
from planner.optimize.source import Candidates
from planner.plan.plan import Plan
from planner.report.details import details_of
from planner.report.overview import question_title
from planner.report.plots.drawn import draw
from planner.report.plots.picture import Picture, read_width
from planner.report.short import short_plan
from planner.report.theme import DARK, LIGHT
from planner.report.trace import write_trace
from planner.version import __version__


def write_timeline(
    path: Path, plan: Plan, candidates: Candidates, *, dark: bool = False, width: str | None = None
) -> None:
    """Write the steps of one configuration over time.

    Raises
    ------
    SearchSpaceError
        Nothing tells what its steps do when.
    OutputError
        The file cannot be written.
    """
    found = details_of(plan).timelines(candidates)
    if not found:
        raise SearchSpaceError(
            "--timeline: the whole step reaches a given share of the peak, so nothing tells when "
            "it does what: leave out --flops-efficiency."
        )
    question = question_title(plan)
    words = short_plan(plan, first_row(candidates.columns()))
    if path.suffix.lower() == ".json":
        write_trace(path, found, {"question": question, "plan": words, "planner": __version__})
        return
    theme = DARK if dark else LIGHT
    picture = Picture(path=path, name="timeline", theme=theme, width=read_width(width))
    draw(picture, f"{question}: {words}", found)
