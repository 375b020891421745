"""``--plot FILE`` and ``--timeline FILE``: what a command draws of its result."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from planner.cli.options import Given

if TYPE_CHECKING:
    from planner.optimize.source import Candidates
    from planner.show.views.plots.picture import Picture
    from planner.workloads.plan import Plan

_NAMES = ("plot", "picture", "dark", "picture_width")


def picture_of(command: str, given: Given) -> Picture | None:
    """The picture that was asked for; None without one. The file of a timeline is checked, too.

    Raises
    ------
    OutputError, SearchSpaceError, MissingDependencyError
        It cannot be drawn, or not there.
    """
    plot, name, dark, width = (given.get(one) for one in _NAMES)
    timeline = given.get("timeline")
    if not any((plot, name, dark, width, timeline)):
        return None
    from planner.show.views.plots.picture import asked_picture, check_picture, read_width

    others = [given.get(other) for other in ("csv", "json", "output", "save_plan")]
    if timeline is not None:
        check_picture(timeline, "--timeline", others, more=(".json",))
        others.append(timeline)
        if plot is None and name is None:
            read_width(width)  # what is said of the look is said of the timeline
            return None
    return asked_picture(command, plot, name, dark=bool(dark), width=width, others=others)


def draw_plan(given: Given, picture: Picture | None, plan: Plan, candidates: Candidates) -> None:
    """Draw and write what was asked for of one configuration.

    Raises
    ------
    OutputError, SearchSpaceError
        A file cannot be written, or the workload has no timeline.
    """
    if picture is not None:
        from planner.show.views.plots.picture import draw

        draw(picture, plan, candidates)
    path: Path | None = given.get("timeline")
    if path is not None:
        from planner.show.views.trace import write_timeline

        write_timeline(path, plan, candidates, dark=given["dark"], width=given["picture_width"])
