"""Pictures: the requested picture, its figure in a theme, and its file."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from planner.base.atomic_write import check_path, write_bytes_atomically
from planner.base.formatting import printable
from planner.base.records import record
from planner.base.units import ceil_div
from planner.base.version import __version__
from planner.errors import MissingDependencyError, OutputError, SearchSpaceError, did_you_mean
from planner.question.parse_values import parse_int
from planner.show.output_blocks import PICTURES, USUAL_WIDTH
from planner.show.theme import DARK, LIGHT, Theme

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine
    from matplotlib.transforms import Transform
    from numpy.typing import ArrayLike


ENDINGS = (".png", ".svg")
LEAST_WIDTH, MOST_WIDTH = 320, 8000
_NARROW = 640
_DRAWN_BY: Mapping[str, str] = {
    "front": "curves.draw_front",
    "parts": "charts.draw_parts",
    "roofline": "charts.draw_roofline",
    "timeline": "timeline.draw_timelines",
    "cost": "curves.draw_curves",
    "day": "charts.draw_day",
    "matrix": "curves.draw_matrix",
    "predicted": "charts.draw_predicted",
    "latency": "curves.draw_latencies",
    "reuse": "charts.draw_reuse",
}


@record(kw_only=True)
class Picture:
    """A picture to draw: its name, file, theme and width.

    ``width`` is in pixels; in an SVG file at 96 pixels per inch.
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
        """Whether panels are below each other and letters are small."""
        return self.width < _NARROW


def requested_picture(
    command: str,
    plot: Path | None,
    picture: str | None = None,
    *,
    dark: bool = False,
    width: str | None = None,
    others: Sequence[Path | None] = (),
) -> Picture | None:
    """Return the picture that the options of a command request; None if none is requested.

    ``others`` are further output files of the command.
    Raises OutputError if the file is no picture's or another output's, or it cannot be written.
    Raises SearchSpaceError if the command has no such picture, or a width is impossible.
    Raises MissingDependencyError if there is no matplotlib.
    """
    if plot is None:
        picture_options = {"--picture": picture, "--dark": dark, "--picture-width": width}
        for option, value in picture_options.items():
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
    path: Path, option_name: str, others: Sequence[Path | None] = (), more: tuple[str, ...] = ()
) -> None:
    """Check that a picture can be written to a file; ``more`` are further allowed endings.

    Raises OutputError if the ending is not allowed, another output has the same file, or it cannot
    be written. Raises MissingDependencyError without matplotlib.
    """
    endings = (*more, *ENDINGS)
    if path.suffix.lower() not in endings:
        endings_text = f"{', '.join(endings[:-1])} or {endings[-1]}"
        raise OutputError(f"{option_name} {path}: give a file that ends in {endings_text}.")
    if path in others:
        raise OutputError(f"{option_name} {path}: another output has this file; give another one.")
    check_path(path)
    if path.suffix.lower() in ENDINGS:
        # Suppress its warnings about folders that it cannot write to.
        if not (log := logging.getLogger("matplotlib")).level:
            log.setLevel(logging.ERROR)
        try:
            import matplotlib  # noqa: F401
        except ImportError as error:
            raise MissingDependencyError(
                f"{option_name} needs matplotlib: pip install 'llm-gpu-planner[plot]'."
            ) from error


def read_width(text: str | None) -> int:
    """Return the width of a picture in pixels from its text.

    Raises SearchSpaceError if the text is not an integer in the allowed range.
    """
    if text is None:
        return USUAL_WIDTH
    return parse_int(text, "--picture-width", LEAST_WIDTH, MOST_WIDTH)


def draw(picture: Picture, *subject: object) -> None:
    """Draw a picture of a subject with the function of its name.

    Raises OutputError if the file cannot be written.
    """
    module, _, name = _DRAWN_BY[picture.name].partition(".")
    function: Callable[..., None] = getattr(
        import_module(f"planner.show.presenters.plots.{module}"), name
    )
    function(picture, *subject)


_DOTS_PER_INCH = 96
_LETTERS, _SMALL_LETTERS = 9.5, 7.5
"""Points."""
_LETTER_WIDTH = 0.6
"""Of the mean letter, over its height."""
_LINE_HEIGHT = 1.7
_TITLE = 1.15
_PADDING = 0.08
"""Inches around what is drawn."""
_WIDE = 6.0
_SMALL_SPAN = 50.0


@contextmanager
def drawing(picture: Picture, *, height: float) -> Iterator[Canvas]:
    """Yield a canvas with a height in pixels; the file is written atomically at the end.

    Legends below the axes add to the height.
    Raises OutputError if the file cannot be written.
    """
    size = _SMALL_LETTERS if picture.is_narrow else _LETTERS
    with _style(picture.theme, size):
        canvas = Canvas(picture, size=size, height=height)
        yield canvas
        canvas.add_source()
        with write_bytes_atomically(picture.path) as stream:
            metadata = {"Date": None} if picture.kind == "svg" else None
            canvas.figure.savefig(stream, format=picture.kind, metadata=metadata)


def picture_date() -> str:
    """Return today's date in UTC; for reproducible builds the one of ``SOURCE_DATE_EPOCH``."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH", "")
    day = datetime.fromtimestamp(int(epoch), UTC) if epoch.isdigit() else datetime.now(UTC)
    return f"{day:%Y-%m-%d}"


class Canvas:
    """A figure while it is drawn; ``size`` is the font size in points, ``source`` its data."""

    def __init__(self, picture: Picture, *, size: float, height: float) -> None:
        """Create an empty figure of a picture; ``size`` in points, ``height`` in pixels."""
        from matplotlib.figure import Figure

        self.picture, self.theme, self.size = picture, picture.theme, size
        self.source = "published runs and datasheets"
        self._notes: list[str] = []
        inches = picture.width / _DOTS_PER_INCH, height / _DOTS_PER_INCH
        self.figure: Figure = Figure(figsize=inches, dpi=_DOTS_PER_INCH, layout=_layout())

    def grid(self, rows: int, columns: int, **more: Any) -> list[list[Axes]]:
        """Return axes in rows and columns, each with a light grid in the background."""
        axes_array = self.figure.subplots(rows, columns, squeeze=False, **more)
        for axes in axes_array.ravel():
            axes.set_axisbelow(True)
            axes.grid(visible=True, linewidth=0.6)
            axes.spines[["top", "right"]].set_visible(False)
        return [list(row) for row in axes_array]

    def title(self, text: str) -> None:
        """Add the heading of the figure, wrapped."""
        folded = self.wrap(text, _TITLE)
        self._heighten(_TITLE * (folded.count("\n") + 1))
        self.figure.suptitle(folded, x=0.01, ha="left")

    def legend(self, handles: Sequence[Any], labels: Sequence[str], *, note: str = "") -> None:
        """Add a legend below the axes, with a ``note`` above it."""
        if not handles:
            return
        shown = [self.wrap(label) for label in labels]
        longest = max(len(line) for label in shown for line in label.split("\n"))
        columns = min(len(handles), max(int(self.letters() / (longest + 5)), 1))
        title = self.wrap(note) if note else None
        rows = ceil_div(len(shown), columns)
        self._heighten(
            sum(max(label.count("\n") + 1 for label in shown[row::rows]) for row in range(rows))
            + (title.count("\n") + 1 if title else 0)
        )
        self.figure.legend(
            handles, shown, loc="outside lower left", ncols=columns, title=title, alignment="left"
        )

    def note(self, text: str) -> None:
        """Add a note at the bottom, wrapped."""
        self._notes.append(self.wrap(text))

    def add_source(self) -> None:
        """Add the notes, and below them the source and the date of the picture."""
        source = f"Source: planner {__version__} from {self.source}, {picture_date()}"
        folded = "\n".join([*self._notes, self.wrap(source)])
        before = self.figure.get_figheight()
        self._heighten(folded.count("\n") + 1)
        height = self.figure.get_figheight()
        below = (height - before) / height
        color = self.theme.muted
        self.figure.text(0.01, 0.2 * below, folded, fontsize=self.size, color=color, va="bottom")
        legends = self._legends_height() / height
        for legend in self.figure.legends:
            legend.set_bbox_to_anchor((0, below, 1, 1 - below), self.figure.transFigure)
        self.figure.set_layout_engine(_layout(below + legends))

    def _legends_height(self) -> float:
        """The height of the legends, with space around them [inch]."""
        from matplotlib.backends.backend_agg import FigureCanvasAgg

        renderer: Any = FigureCanvasAgg(self.figure).get_renderer()  # type: ignore[no-untyped-call]
        boxes = [legend.get_window_extent(renderer) for legend in self.figure.legends]
        return sum((box.height / self.figure.dpi + _PADDING for box in boxes), _PADDING)

    def below(self, axes: Axes, lines: float) -> Transform:
        """Return the transform of a position some text lines below the left end of the x axis."""
        from matplotlib.transforms import ScaledTranslation

        down = -lines * self.size / 72
        return axes.transAxes + ScaledTranslation(0, down, self.figure.dpi_scale_trans)

    def _heighten(self, lines: float) -> None:
        """Increase the height of the figure by a number of lines."""
        inches = (lines * _LINE_HEIGHT * self.size + self.size) / 72
        self.figure.set_figheight(self.figure.get_figheight() + inches)

    def letters(self, times: float = 1.0) -> float:
        """Letters that fit a line, at ``times`` the normal size."""
        points = 72 * self.picture.width / _DOTS_PER_INCH
        return 0.96 * points / (times * self.size * _LETTER_WIDTH)

    def wrap(self, text: str, times: float = 1.0) -> str:
        """Return a text broken into lines that fit the width of the figure."""
        import textwrap

        max_letters = max(int(self.letters(times)) - 6, 16)
        return "\n".join(textwrap.wrap(printable(text).replace("\n", " "), max_letters)) or " "


def _layout(below: float = 0.0) -> ConstrainedLayoutEngine:
    """Return the layout of the axes above a share of the height."""
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    return ConstrainedLayoutEngine(w_pad=_PADDING, h_pad=_PADDING, rect=(0, below, 1, 1 - below))


@contextmanager
def _style(theme: Theme, size: float) -> Iterator[None]:
    """Apply matplotlib settings while a picture is drawn: names are text, never formulas."""
    import matplotlib as mpl

    settings = {
        "axes.edgecolor": theme.muted,
        "axes.facecolor": theme.background,
        "axes.labelcolor": theme.text,
        "axes.titlecolor": theme.text,
        "axes.titlesize": size,
        "axes.titleweight": "bold",
        "axes.labelsize": size,
        "figure.facecolor": theme.background,
        "figure.titlesize": _TITLE * size,
        "figure.titleweight": "bold",
        "font.family": ["DejaVu Sans"],
        "font.size": size,
        "grid.color": theme.grid,
        "legend.columnspacing": 1.4,
        "legend.fontsize": size,
        "legend.frameon": False,
        "legend.handlelength": 1.6,
        "legend.labelcolor": theme.text,
        "legend.title_fontsize": size,
        "savefig.facecolor": theme.background,
        "svg.hashsalt": "planner",
        "text.color": theme.text,
        "text.parse_math": False,
        "xtick.color": theme.muted,
        "xtick.labelcolor": theme.text,
        "xtick.labelsize": size,
        "ytick.color": theme.muted,
        "ytick.labelcolor": theme.text,
        "ytick.labelsize": size,
    }
    with mpl.rc_context(settings), warnings.catch_warnings():  # type: ignore[arg-type]
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        yield


def log_where_wide(axis: Any, values: ArrayLike, *, is_full_size: bool = False) -> None:
    """Make an axis logarithmic if the values on it span a wide range.

    Otherwise its ticks are integers if ``is_full_size``.
    """
    import numpy as np
    from matplotlib.ticker import LogLocator, MaxNLocator

    numbers = np.asarray(values, dtype=np.float64)
    numbers = numbers[np.isfinite(numbers)]
    if numbers.size and numbers.min() > 0 and numbers.max() > _WIDE * numbers.min():
        axis._set_axes_scale("log")
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    elif is_full_size:
        axis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    axis.set_major_formatter(_number)
    axis.set_minor_formatter("")


def decades(axis: Any, span: float) -> None:
    """Make an axis logarithmic with ticks at powers of ten; more ticks for a small ``span``."""
    from matplotlib.ticker import LogLocator, MaxNLocator

    axis._set_axes_scale("log")
    subs = (1.0, 2.0, 5.0) if span < _SMALL_SPAN else (1.0,)
    wide = span > _WIDE  # a small span would have too few or too many of these ticks
    axis.set_major_locator(LogLocator(subs=subs, numticks=5) if wide else MaxNLocator(4))
    axis.set_major_formatter(_number)
    axis.set_minor_formatter("")


def _number(value: float, _: object = None) -> str:
    """Return the number of a tick as a short text: ``2.5M``, ``40k``, ``1,200``, ``0.05``."""
    for minimum, unit, letter in ((1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k")):
        if abs(value) >= minimum:
            return f"{value / unit:g}{letter}"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.4g}"
