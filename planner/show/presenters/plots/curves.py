"""Curves and matrices of measures of two columns, and the front of the plans of a search."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

import numpy as np

from planner.base.arrays import BoolArray
from planner.base.csv_cells import Row
from planner.base.formatting import format_count
from planner.base.records import record
from planner.base.units import UNITS, ceil_div
from planner.decide.sizing.size import Size
from planner.decide.sizing.size_all import Sizes
from planner.errors import SearchSpaceError
from planner.optimize.result import SearchResult
from planner.optimize.result_columns import ends_of
from planner.optimize.source import Candidates
from planner.question.terms import glossary
from planner.show.presenters.format_results import label
from planner.show.presenters.infeasible import question_title
from planner.show.presenters.pareto_front import FrontPoints, Points, front_points
from planner.show.presenters.plots.picture import Canvas, Picture, decades, drawing, log_where_wide
from planner.show.presenters.search import search_report
from planner.show.presenters.serving_details import LATENCIES, latency_distribution
from planner.show.presenters.sizes import best_lines, question_lines
from planner.show.theme import axis_label, blend, readable_on, shades
from planner.workloads.make_plan import Plan
from planner.workloads.serving.results import Deployments

if TYPE_CHECKING:
    from matplotlib.axes import Axes


_MARKS = "osD^vPX"
_MOST_CURVES = 14
_MOST_PANELS = 6
_SMALLEST, _LARGEST = 22.0, 95.0
"""Areas of points in square points: the more GPUs, the larger."""


@record(kw_only=True)
class Curve:
    """Points of one kind of GPU: values, intervals, numbers of GPUs and ties.

    ``ends`` has the intervals of the second value, NaN without one. ``ties``: whether a point is
    tied with the best one.
    """

    name: str
    x: Sequence[float]
    y: Sequence[float]
    ends: Sequence[tuple[float, float]]
    counts: Sequence[int]
    ties: Sequence[bool]


@record(kw_only=True)
class Curves:
    """The contents of one panel.

    ``recommended`` is a point of the curves with the text ``recommended_label``. ``sign``: 1 if a
    low second value is better, -1 if a high one is; 0: the best is not marked. ``limits`` are
    bounds of the axes ``x`` and ``y``. ``is_by_place``: curves are side by side, and the x axis has
    no ticks.
    """

    title: str
    x_label: str
    y_label: str
    curves: Sequence[Curve]
    recommended: tuple[float, float] | None = None
    recommended_label: str = ""
    sign: int = 1
    limits: Mapping[str, float] = field(default_factory=dict)
    is_by_place: bool = False

    @property
    def is_by_count(self) -> bool:
        """Whether the x axis has numbers of GPUs."""
        return self.x_label.startswith("GPUs")

    @property
    def best(self) -> tuple[str, float, float] | None:
        """Name, x and y of the lowest point, or the highest; None: it is not marked."""
        points = [
            (curve.name, x, y)
            for curve in self.curves
            for x, y in zip(curve.x, curve.y, strict=True)
            if math.isfinite(y)
        ]
        if not points or not self.sign:
            return None
        return min(points, key=lambda point: self.sign * point[2])

    @property
    def best_word(self) -> str:
        """What the best point is called."""
        return "lowest" if self.sign > 0 else "highest"


def draw_curves(picture: Picture, title: str, panels: Sequence[Curves]) -> None:
    """Draw panels of curves into a file, the first ones of many.

    Raises OutputError if the file cannot be written.
    """
    shown = panels[:_MOST_PANELS]
    num_columns = 1 if picture.is_narrow or len(shown) == 1 else 2
    rows = ceil_div(len(shown), num_columns)
    height = min(max(0.5 * picture.width / num_columns, 300), 620)
    if len(shown) < len(panels):
        title = f"{title}; {len(shown)} of {len(panels)} works"
    with drawing(picture, height=rows * height) as canvas:
        canvas.title(title)
        grid = [axes for row in canvas.grid(rows, num_columns) for axes in row]
        series = canvas.theme.series
        names = dict.fromkeys(curve.name for panel in shown for curve in panel.curves)
        styles = {
            name: (
                series[index % len(series)],
                _MARKS[(index + index // len(series)) % len(_MARKS)],
            )
            for index, name in enumerate(names)
        }
        drawn: dict[str, object] = {}
        for axes, panel in zip(grid, shown, strict=False):
            drawn |= _draw_panel(canvas, axes, panel, styles, is_only=len(shown) == 1)
        for axes in grid[len(shown) :]:
            axes.set_visible(False)
        canvas.legend([*drawn.values()], [*drawn])


def _draw_panel(
    canvas: Canvas,
    axes: Axes,
    panel: Curves,
    styles: Mapping[str, tuple[str, str]],
    *,
    is_only: bool,
) -> dict[str, object]:
    """Draw a panel of curves; return its legend handles by label."""
    curves = panel.curves
    if len(curves) > _MOST_CURVES:
        cheapest = sorted(curves, key=lambda curve: min(curve.y, default=np.inf))[:_MOST_CURVES]
        curves = [curve for curve in curves if curve in cheapest]
    counts = [count for curve in curves for count in curve.counts]
    drawn: dict[str, object] = {}
    for curve in curves:
        curve_label = curve.name
        if is_only and not panel.is_by_place and curve.counts:
            curve_label += f", {_format_gpu_span(curve.counts)}"
        drawn[curve_label] = _draw_curve(canvas, axes, curve, *styles[curve.name], counts)
    drawn |= _draw_marks(canvas, axes, panel, is_only=is_only)
    if len(curves) < len(panel.curves):
        count_text = f"{len(curves)} of {len(panel.curves)} curves"
        axes.set_title(canvas.wrap(f"{panel.title} {count_text}".strip()), loc="left")
    elif panel.title:
        axes.set_title(canvas.wrap(panel.title), loc="left")
    axes.set(xlabel=panel.x_label, ylabel=panel.y_label)
    if panel.is_by_place:
        axes.set_xticks([])
        axes.margins(x=0.15)
    else:
        x = [value for curve in curves for value in curve.x]
        log_where_wide(axes.xaxis, x, is_full_size=panel.is_by_count)
    log_where_wide(axes.yaxis, [value for curve in curves for value in curve.y])
    return drawn


def _draw_marks(canvas: Canvas, axes: Axes, panel: Curves, *, is_only: bool) -> dict[str, object]:
    """Draw the best point and the limits; return their legend handles by label."""
    theme, drawn = canvas.theme, dict[str, object]()
    if any(tie for curve in panel.curves for tie in curve.ties):
        style: dict[str, Any] = {
            "markerfacecolor": theme.background,
            "markeredgecolor": theme.muted,
        }
        (drawn["hollow: tied with the best"],) = axes.plot([], [], "o", **style)
    best = panel.best
    if panel.recommended is not None:
        text = (
            "recommended" if best is None or best[1:] != panel.recommended else "recommended and "
        )
        text += panel.best_word if text.endswith("and ") else ""
        text += f": {panel.recommended_label}" if is_only and panel.recommended_label else ""
        (drawn[text],) = axes.plot(
            *panel.recommended,
            "*",
            color=theme.recommended,
            markeredgecolor=theme.background,
            markersize=16,
            zorder=6,
        )
    if best is not None and best[1:] != panel.recommended:
        name, *point = best
        text = f"{panel.best_word}: {name}" if is_only else panel.best_word
        (drawn[text],) = axes.plot(
            *point,
            "v" if panel.sign > 0 else "^",
            color=theme.series[2],
            markeredgecolor=theme.background,
            markersize=13,
            zorder=5,
        )
    for axis, bound in panel.limits.items():
        line = (axes.axvline if axis == "x" else axes.axhline)(
            bound, color=theme.bad, linewidth=1.4, linestyle=(0, (4, 2))
        )
        drawn["limit"] = line
    return drawn


def _draw_curve(
    canvas: Canvas, axes: Axes, curve: Curve, color: str, mark: str, counts: Sequence[int]
) -> object:
    """Draw a curve with its points and intervals; return its legend handle.

    Larger points have more GPUs; hollow points are ties.
    """
    x, y = np.asarray(curve.x, dtype=np.float64), np.asarray(curve.y, dtype=np.float64)
    order = np.argsort(curve.counts, kind="stable")
    axes.plot(x[order], y[order], color=color, linewidth=1.2, alpha=0.8)
    ends = np.asarray(curve.ends, dtype=np.float64).reshape(-1, 2).T
    has_interval = np.isfinite(ends).all(axis=0)
    if np.any(has_interval):
        lengths = np.maximum(np.abs(ends - y)[:, has_interval], 0.0)
        axes.errorbar(
            x[has_interval],
            y[has_interval],
            yerr=lengths,
            fmt="none",
            ecolor=color,
            elinewidth=0.8,
            alpha=0.45,
        )
    ties = np.asarray(curve.ties, dtype=bool)
    low, high = np.log(max(min(counts, default=1), 1)), np.log(max(max(counts, default=1), 1))
    share = (np.log(np.maximum(curve.counts, 1)) - low) / max(high - low, 1e-9)
    sizes = _SMALLEST + share * (_LARGEST - _SMALLEST)
    faces = [canvas.theme.background if tie else color for tie in ties]
    axes.scatter(x, y, s=sizes, marker=mark, facecolors=faces, edgecolors=color, zorder=3)
    (handle,) = axes.plot([], [], mark, color=color, linestyle="-", linewidth=1.2)
    return handle


def _format_gpu_span(counts: Sequence[int]) -> str:
    """Return the smallest and the largest number of GPUs as text: ``8 to 64 GPUs``."""
    lowest, highest = min(counts), max(counts)
    span = (
        format_count(lowest)
        if lowest == highest
        else f"{format_count(lowest)} to {format_count(highest)}"
    )
    return f"{span} GPUs"


_TIMES = ("calendar_time_days", "time_to_train_days")
_COSTS = ("cost_usd", "cost_per_hour_usd")


def size_title(sizes: Sizes) -> str:
    """The question, its limits and the confidence."""
    first, *others = question_lines(sizes)
    return f"Which {first}? {'; '.join(others)}".rstrip()


NO_DAY = "--picture day draws a load: give --load, or --trace with --startup-time."


def size_picture(name: str, sizes: Sizes) -> tuple[str, object]:
    """Return the title and the subject of a picture of GPU sizes: the cheapest day, or costs.

    Raises SearchSpaceError if there is no day.
    """
    if name == "day":
        if sizes.best is None or sizes.best.day is None:
            raise SearchSpaceError(NO_DAY)
        return size_title(sizes), sizes.best.day
    return size_title(sizes), [size_curves(sizes)]


def size_curves(sizes: Sizes) -> Curves:
    """Return a curve for each GPU and contract whose points are the best GPU counts."""
    if sizes.load is not None:
        return _day_curves(sizes)
    rows = [fleet.row for size in sizes.feasible for fleet in size.choices.values()]
    x_column, y_column = (_first_numeric_column(rows, names) for names in (_TIMES, _COSTS))
    best = sizes.best
    if best is not None and best.carried is not None:  # throughput within a budget is the answer
        x_column, y_column = y_column, "output_tokens_per_s"
    chosen = None if best is None else best.cheapest or best.fewest
    point = None if chosen is None else _point(chosen.row, x_column, y_column)
    return Curves(
        title="",
        x_label=axis_label(x_column),
        y_label=axis_label(y_column),
        curves=[_curve(size, x_column, y_column) for size in sizes.feasible],
        recommended=point if point and all(map(math.isfinite, point)) else None,
        sign=-1 if y_column == "output_tokens_per_s" else 1,
        recommended_label=best_lines(sizes)[0].partition(": ")[2].partition(";")[0],
        limits=_limits(sizes, x_column, y_column),
    )


def _first_numeric_column(rows: Sequence[Row], names: Sequence[str]) -> str:
    """The first column with a number in any row, else ``num_gpus``."""
    columns = (name for name in names if any(map(math.isfinite, (_value(r, name) for r in rows))))
    return next(columns, "num_gpus")


def _value(row: Row, name: str) -> float:
    value = row.get(name)
    return math.nan if value is None else float(value)


def _day_curves(sizes: Sizes) -> Curves:
    """Return a curve for each GPU: the cost of a day over the number of GPUs at the peak."""
    curves, points = [], {}
    for size in sizes.feasible:
        if size.day is None or not math.isfinite(size.day.cost):
            continue
        x, y = float(max(hour.num_gpus for hour in size.day.hours)), size.day.cost
        points[size.gpu] = (x, y)
        nothing = (math.nan, math.nan)
        curves.append(
            Curve(name=size.gpu, x=[x], y=[y], ends=[nothing], counts=[int(x)], ties=[False])
        )
    best = "" if sizes.best is None else sizes.best.gpu
    return Curves(
        title="",
        x_label="GPUs at the peak",
        y_label="cost of a day [USD]",
        curves=curves,
        recommended=points.get(best),
        recommended_label=best,
    )


def _curve(size: Size, x_column: str, y_column: str) -> Curve:
    """Return the curve of a GPU and contract over two result columns, without unknown points."""
    plans = [(choice, _point(choice.row, x_column, y_column)) for choice in size.choices.values()]
    finite = [(fleet, point) for fleet, point in plans if all(map(math.isfinite, point))]
    fleets, points = [fleet for fleet, _ in finite], [point for _, point in finite]
    return Curve(
        name=f"{size.gpu} {size.contract}".strip(),
        x=[x for x, _ in points],
        y=[y for _, y in points],
        ends=[_point(fleet.row, *ends_of(y_column)) for fleet in fleets],
        counts=[fleet.num_gpus for fleet in fleets],
        ties=[False] * len(fleets),
    )


def _limits(sizes: Sizes, x_column: str, y_column: str) -> dict[str, float]:
    """Return the limits on the x and the y axis in the units of the axes, where there are any."""
    fleet = None if sizes.best is None else sizes.best.fewest
    limits = {}
    for margin in () if fleet is None else fleet.margins:
        for axis, column in (("x", x_column), ("y", y_column)):
            if column.startswith(margin.name):
                term = glossary()[margin.name]
                limits[axis] = margin.bound / UNITS[term.type][term.unit]
    return limits


def _point(row: Row, x_column: str, y_column: str) -> tuple[float, float]:
    return _value(row, x_column), _value(row, y_column)


if TYPE_CHECKING:
    from matplotlib.axes import Axes

_ROW, _HEAD, _SMALL_ROW = 30, 70, 24
_MOST_MATRICES = 6
_STRONGEST = 0.85
"""Share of the colour in the best cell; the rest is background."""


@record(kw_only=True)
class Matrix:
    """Cells in rows and columns.

    ``texts`` has the texts of cells with their marks; ``values`` are NaN for cells without a
    number.
    ``sign``: 1 if less is better. ``best``: whether a cell is the best of its column or tied.
    ``recommended``: row and column of the recommended cell; None: none is recommended.
    """

    title: str
    rows: Sequence[str]
    columns: Sequence[str]
    texts: Sequence[Sequence[str]]
    values: Sequence[Sequence[float]]
    best: Sequence[Sequence[bool]]
    sign: int
    recommended: tuple[int, int] | None = None

    @property
    def lowest(self) -> tuple[int, int] | None:
        """Row and column of the lowest value, or of the highest if more is better."""
        cells = [
            (self.sign * value, (row, column))
            for row, values in enumerate(self.values)
            for column, value in enumerate(values)
            if math.isfinite(value)
        ]
        return min(cells)[1] if cells else None


def draw_matrix(picture: Picture, title: str, matrices: Sequence[Matrix], marks: str) -> None:
    """Draw matrices below each other into a file, the first ones of many; ``marks`` explains them.

    Raises OutputError if the file cannot be written.
    """
    shown = matrices[:_MOST_MATRICES]
    row = _SMALL_ROW if picture.is_narrow else _ROW
    heights = [_HEAD + row * len(matrix.rows) for matrix in shown]
    if len(shown) < len(matrices):
        title = f"{title}; {len(shown)} of {len(matrices)} works"
    with drawing(picture, height=sum(heights)) as canvas:
        canvas.title(title)
        grid = canvas.grid(len(shown), 1, height_ratios=heights)
        for (axes,), matrix in zip(grid, shown, strict=True):
            _draw_matrix(canvas, axes, matrix)
        canvas.note("; ".join([marks, *_outline_texts(shown)]))


def _outline_texts(matrices: Sequence[Matrix]) -> Iterator[str]:
    """Yield the meaning of the outlines of cells."""
    has_recommended = [matrix for matrix in matrices if matrix.recommended is not None]
    if has_recommended:
        is_lowest = all(matrix.recommended == matrix.lowest for matrix in has_recommended)
        word = "lowest" if matrices[0].sign > 0 else "highest"
        yield f"red outline: recommended{f' and {word}' * is_lowest}"
        if not is_lowest:
            yield f"dashed outline: {word}"


def _draw_matrix(canvas: Canvas, axes: Axes, matrix: Matrix) -> None:
    """Draw a matrix of coloured cells with their texts; the best cells are bold."""
    colors = _colors(canvas, matrix)
    letters = canvas.letters() / (len(matrix.columns) + 2.5)
    longest = max(len(cell) for cells in matrix.texts for cell in cells)
    size = min(canvas.size, canvas.size * letters / max(longest + 1, 1))
    for row, cells in enumerate(matrix.texts):
        for column, text in enumerate(cells):
            color, is_best = colors[row][column], matrix.best[row][column]
            axes.bar(
                column,
                1,
                width=1,
                bottom=row - 0.5,
                color=color,
                edgecolor=canvas.theme.background,
                linewidth=2,
            )
            axes.text(
                column,
                row,
                text,
                ha="center",
                va="center",
                fontsize=size,
                color=readable_on(color),
                fontweight="bold" if is_best else "normal",
            )
    _outline(canvas, axes, matrix)
    axes.set(xlim=(-0.5, len(matrix.columns) - 0.5), ylim=(len(matrix.rows) - 0.5, -0.5))
    axes.set_xticks(range(len(matrix.columns)), matrix.columns, fontsize=size)
    axes.set_yticks(range(len(matrix.rows)), matrix.rows, fontsize=size)
    axes.tick_params(length=0)
    axes.xaxis.tick_top()
    axes.grid(visible=False)
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.set_title(canvas.wrap(matrix.title), loc="left")


def _outline(canvas: Canvas, axes: Axes, matrix: Matrix) -> None:
    """Draw an outline around the recommended cell, and a dashed one around the lowest."""
    outlines = {matrix.recommended: ("-", canvas.theme.recommended)}
    if matrix.recommended is not None and matrix.lowest != matrix.recommended:
        outlines[matrix.lowest] = ("--", canvas.theme.text)
    for cell, (style, color) in outlines.items():
        if cell is None:
            continue
        row, column = cell
        axes.bar(
            column,
            0.9,
            width=0.97,
            bottom=row - 0.45,
            fill=False,
            edgecolor=color,
            linewidth=2.5,
            linestyle=style,
        )


def _colors(canvas: Canvas, matrix: Matrix) -> list[list[str]]:
    """Return the colour of each cell, from the background (worst) to the theme's best colour."""
    theme = canvas.theme
    good = iter(shades([value for row in matrix.values for value in row], matrix.sign))

    def color(share: float) -> str:
        if not math.isfinite(share):
            return theme.panel
        return blend(theme.background, theme.series[2], 0.08 + (_STRONGEST - 0.08) * share)

    return [[color(next(good)) for _ in row] for row in matrix.values]


_MARKED = (50, 90, 99)
"""Percentiles that have a point."""


def draw_latencies(picture: Picture, plan: Plan, candidates: Candidates) -> None:
    """Draw the distribution of each time of a request into a file.

    Raises SearchSpaceError if the workload has no stream of requests, or its queue is unbounded.
    Raises OutputError if the file cannot be written.
    """
    if not isinstance(candidates, Deployments):
        raise SearchSpaceError("--picture latency is for requests: give --workload serve.")
    distribution = latency_distribution(candidates)
    curves = {
        name: np.array(distribution[f"{name}_s"], dtype=np.float64)
        for name in LATENCIES
        if None not in distribution[f"{name}_s"]
    }
    if not curves:
        raise SearchSpaceError("--picture latency: requests arrive without end.")
    percent = np.array(distribution["percent"])
    marked = np.isin(percent, _MARKED)
    with drawing(picture, height=min(max(0.5 * picture.width, 320), 620)) as canvas:
        ((axes,),) = canvas.grid(1, 1)
        canvas.title(f"How long do requests take? {question_title(plan)}")
        lines = []
        for seconds, color in zip(curves.values(), canvas.theme.series, strict=False):
            lines += axes.plot(seconds, percent, color=color)
            axes.plot(seconds[marked], percent[marked], "o", markersize=5, color=color)
        canvas.legend(lines, [label(f"{name}_s") for name in curves])
        all_seconds = np.concatenate([*curves.values()])
        decades(axes.xaxis, all_seconds.max() / all_seconds.min())
        axes.set_xlabel(axis_label("time_s"))
        axes.set_ylabel("requests within it [%]")
        axes.set_ylim(0, 100)


_MOST_INTERVALS = 24
"""More of them hide the points."""


def draw_front(picture: Picture, plan: Plan, result: SearchResult) -> None:
    """Draw the front of a search into a file. Raises OutputError if the file cannot be written."""
    front = front_points(search_report(plan, result))
    with drawing(picture, height=min(max(0.5 * picture.width, 320), 640)) as canvas:
        ((axes,),) = canvas.grid(1, 1)
        canvas.title(f"Which plan for {question_title(plan)}?")
        canvas.legend(*_marks(canvas, axes, front))
        axes.set_xlabel(axis_label(front.first.column))
        axes.set_ylabel(axis_label(front.second.column))
        log_where_wide(axes.xaxis, front.first.values)
        log_where_wide(axes.yaxis, front.second.values)


def _marks(canvas: Canvas, axes: Axes, front: FrontPoints) -> tuple[list[object], list[str]]:
    """Draw every kind of point; return legend handles and labels."""
    theme, ties = canvas.theme, np.asarray(front.ties, dtype=bool)
    x, y = front.first, front.second
    number = len(x.values)
    indexes = np.linspace(0, number - 1, min(number, _MOST_INTERVALS))
    shown = np.unique(np.round(indexes).astype(int))
    whiskers = _intervals(axes, x, y, shown, theme.muted)
    size = 5.0 if canvas.picture.is_narrow else 7.0
    drawn: list[tuple[object, str]] = []

    def points(mask: BoolArray, label: str, **style: Any) -> None:
        if np.any(mask):
            line = axes.plot(x.values[mask], y.values[mask], "o", markersize=size, **style)
            drawn.append((line[0], label))

    blue = theme.series[0]
    points(~ties, f"on the front ({number:,})", color=blue)
    tie = "tied with #1"
    points(ties, tie, markerfacecolor=theme.background, markeredgecolor=blue, markeredgewidth=1.6)
    recommended_text, best_text, last_text = front.texts
    name = axis_label(x.column).partition(" [")[0]
    ends = {"^": (0, best_text, f"best {name}"), "v": (number - 1, last_text, "last on the front")}
    for mark, (index, plan_text, point_name) in ends.items() if number > 1 else ():
        line = axes.plot(
            x.values[index], y.values[index], mark, color=theme.series[2], markersize=1.5 * size
        )
        drawn.append((line[0], f"{point_name}: {plan_text}"))
    drawn.append((_recommended(canvas, axes, front, size), f"recommended: {recommended_text}"))
    if whiskers is not None:
        drawn.append((whiskers, "90 % interval"))
    drawn.sort(key=lambda entry: not entry[1].startswith("recommended"))
    handles, labels = zip(*drawn, strict=True)
    return list(handles), list(labels)


def _recommended(canvas: Canvas, axes: Axes, front: FrontPoints, size: float) -> object:
    """Draw the recommended plan as a star with its intervals; return its legend handle."""
    theme, (x, y) = canvas.theme, front.recommended
    _intervals(axes, x, y, np.array([0]), theme.recommended, strong=True)
    return axes.plot(
        x.values,
        y.values,
        "*",
        color=theme.recommended,
        markeredgecolor=theme.background,
        markersize=2.4 * size,
        zorder=5,
    )[0]


def _intervals(
    axes: Axes, x: Points, y: Points, rows: Any, color: str, *, strong: bool = False
) -> Any:
    """Draw the intervals of some points in both directions; return None if there are none."""
    style: dict[str, Any] = {"fmt": "none", "ecolor": color, "elinewidth": 1.6 if strong else 0.7}
    drawn = None
    for points, name in ((x, "xerr"), (y, "yerr")):
        values, ends = points.values[rows], points.ends[:, rows]
        has_interval = np.isfinite(ends).all(axis=0)
        if not np.any(has_interval):
            continue
        lengths = np.maximum(np.abs(ends - values)[:, has_interval], 0.0)
        positions = {"x": x.values[rows][has_interval], "y": y.values[rows][has_interval]}
        alpha = 1.0 if strong else 0.55
        drawn = axes.errorbar(alpha=alpha, **positions, **{name: lengths}, **style)
    return drawn
