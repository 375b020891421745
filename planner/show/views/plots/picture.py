"""Which picture is asked for and where it goes, checked before any work; who draws it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path

from planner.base.files import check_path
from planner.base.records import record
from planner.errors import MissingDependencyError, OutputError, SearchSpaceError, did_you_mean
from planner.question.inputs import whole
from planner.show.page import PICTURES, USUAL_WIDTH
from planner.show.theme import DARK, LIGHT, Theme

ENDINGS = (".png", ".svg")
LEAST_WIDTH, MOST_WIDTH = 320, 8000
_NARROW = 640
_DRAWN_BY: Mapping[str, str] = {
    "front": "front.draw_front",
    "parts": "parts.draw_parts",
    "roofline": "roofline.draw_roofline",
    "timeline": "timeline.draw_timelines",
    "cost": "curves.draw_curves",
    "day": "day.draw_day",
    "matrix": "curves.draw_matrix",
    "predicted": "predicted.draw_predicted",
    "latency": "curves.draw_latencies",
}


@record(kw_only=True)
class Picture:
    """A picture to be drawn: its name, its file, its look.

    ``width`` is in pixels; in an SVG file in pixels of which 96 make an inch.
    """

    path: Path
    name: str
    theme: Theme = LIGHT
    width: int = USUAL_WIDTH

    @property
    def kind(self) -> str:
        """``png`` or ``svg``."""
        return self.path.suffix[1:].lower()

    @property
    def is_narrow(self) -> bool:
        """Whether panels stand below each other and letters are small."""
        return self.width < _NARROW


def asked_picture(
    command: str,
    plot: Path | None,
    picture: str | None = None,
    *,
    dark: bool = False,
    width: str | None = None,
    others: Sequence[Path | None] = (),
) -> Picture | None:
    """The picture that options of a command ask for; None where they ask for none.

    ``others`` are files that the command writes, too.

    Raises
    ------
    OutputError
        The file is no picture's or another output's, or it cannot be written.
    SearchSpaceError
        The command has no such picture, or a width is impossible.
    MissingDependencyError
        There is no matplotlib.
    """
    if plot is None:
        given = {"--picture": picture, "--dark": dark, "--picture-width": width}
        for option, value in given.items():
            if value:
                raise SearchSpaceError(f"{option} is for a picture: give --plot FILE.png too.")
        return None
    names = PICTURES[command]
    name = (picture or names[0]).strip().lower()
    if name not in names:
        raise SearchSpaceError(
            f"--picture {picture}: `planner {command}` draws {' or '.join(names)}."
            f"{did_you_mean(name, names)}"
        )
    check_picture(plot, "--plot", others)
    return Picture(path=plot, name=name, theme=DARK if dark else LIGHT, width=read_width(width))


def check_picture(
    path: Path, said: str, others: Sequence[Path | None] = (), more: tuple[str, ...] = ()
) -> None:
    """Refuse a file that no picture can go to; ``more`` are endings of what is none.

    Raises
    ------
    OutputError, MissingDependencyError
        It has another ending, is another output's, cannot be written; there is no matplotlib.
    """
    endings = (*more, *ENDINGS)
    if path.suffix.lower() not in endings:
        listed = f"{', '.join(endings[:-1])} or {endings[-1]}"
        raise OutputError(f"{said} {path}: give a file that ends in {listed}.")
    if path in others:
        raise OutputError(f"{said} {path}: another output goes there; give another file.")
    check_path(path)
    if path.suffix.lower() in ENDINGS:
        _need_matplotlib(said)


def _need_matplotlib(said: str) -> None:
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise MissingDependencyError(
            f"{said} needs matplotlib: pip install 'llm-gpu-planner[plot]'."
        ) from error


def read_width(text: str | None) -> int:
    """Pixels of a picture's width.

    Raises
    ------
    SearchSpaceError
        It is no whole number, or none that a picture can have.
    """
    if text is None:
        return USUAL_WIDTH
    return whole(text, "--picture-width", LEAST_WIDTH, MOST_WIDTH)


def draw(picture: Picture, *subject: object) -> None:
    """Draw a picture of what its name is a picture of.

    Raises
    ------
    OutputError
        The file cannot be written.
    """
    module, _, name = _DRAWN_BY[picture.name].partition(".")
    function: Callable[..., None] = getattr(
        import_module(f"planner.show.views.plots.{module}"), name
    )
    function(picture, *subject)
