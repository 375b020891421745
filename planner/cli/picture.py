"""``--plot FILE``: the picture that a command draws of its result."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner.cli.options import Given

if TYPE_CHECKING:
    from planner.report.plots.picture import Picture


def picture_of(command: str, given: Given) -> Picture | None:
    """The picture that was asked for; None without one.

    Raises
    ------
    OutputError, SearchSpaceError, MissingDependencyError
        It cannot be drawn, or not there.
    """
    names = ("plot", "picture", "dark", "picture_width")
    if not any(given[name] for name in names):
        return None
    from planner.report.plots.picture import asked_picture

    plot, name, dark, width = (given[name] for name in names)
    others = [given.get(other) for other in ("csv", "json", "output", "save_plan")]
    return asked_picture(command, plot, name, dark=dark, width=width, others=others)
