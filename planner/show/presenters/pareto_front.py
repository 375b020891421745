"""The Pareto front as a table that fits the terminal."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from planner.base import formatting
from planner.base.arrays import FloatArray
from planner.base.csv_cells import Row, number_of_row
from planner.base.records import record
from planner.optimize.collector import iterate_rows
from planner.optimize.result import SearchResult
from planner.optimize.result_columns import ends_of, full_columns, intervals
from planner.optimize.source import Columns, first_row
from planner.question.parse_values import limit_column
from planner.question.terms import (
    glossary,
    is_answer_column,
    parse_percentile,
    term_of_column,
    terms_of,
)
from planner.show.output_blocks import (
    BEST,
    GAP,
    TIE,
    TOTAL,
    Block,
    Cell,
    Column,
    Table,
    TextChart,
    Title,
    fit_table,
    make_lines,
)
from planner.show.presenters.format_results import (
    SHORT_WORDS,
    degrees,
    format_in_common_unit,
    label,
    number_of,
    short_plan,
)
from planner.show.presenters.uncertainty import ties
from planner.workloads.make_plan import Plan
from planner.workloads.workload import ResultWording, Workload

# Columns that only differ if others differ.
_REDUNDANT = ("gradient_accumulation_steps", "pipeline_schedule")
# If these differ, the batches of a step differ.
_WORK = ("model", "adapter")
_NO_RANK = "30"
_OF_OBJECTIVES = 3
_PARALLEL = "_parallel"
_ALL = 1000


def front_blocks(plan: Plan, result: SearchResult, top: int) -> Iterator[Block]:
    """Yield the Pareto front as a table, best first, with the columns that vary."""
    if not result.table:
        return
    number = len(result.table["num_gpus"])
    rows = _shown_rows(plan, number, top)
    yield Title(text=_title(plan, number, len(rows)))
    chosen = {name: [values[row] for row in rows] for name, values in result.table.items()}
    shown = _with_layout(plan, chosen)
    settings = _shown_settings(plan, shown)
    varying = [name for name in settings if len(set(shown[name])) > 1 or name == "layout"]
    same = [
        f"{name} {formatting.format_parameter(shown[name][0])}"
        for name in settings
        if name not in varying
    ]
    if same:
        yield make_lines(f"Same for all rows: {', '.join(same)}", indent="", most=_ALL)
    if legend := plan.workload.wording.legend(shown):
        yield make_lines(legend, indent="")
    yield GAP
    tied, factor = tied_with_first(plan, chosen)
    ranks = [f"{row + 1}{'=' if tie else ''}" for row, tie in zip(rows, tied, strict=True)]
    yield _table(plan, _columns(plan, shown, ranks, varying), [TOTAL])
    if any(tied):
        yield make_lines(
            f"= tied with #1 within x{factor:.2f}, the 90 % error between published runs that "
            "differ only in layout.",
            indent="",
        )


def short_front_blocks(
    plan: Plan, result: SearchResult, top: int, recommended: Row
) -> Iterator[Block]:
    """Yield a short table of the Pareto front; nothing if the front has a single plan.

    A star marks the recommended plan.
    """
    number = len(result.table["num_gpus"])
    if number < 2:
        return
    rows = _shown_rows(plan, number, top)
    names = [*plan.problem.cells[0], *terms_of(plan.workload.name, "parameter", "pool")]
    names = [name for name in names if name in recommended]
    stars = [all(result.table[name][row] == recommended[name] for name in names) for row in rows]
    table = {name: [values[row] for row in rows] for name, values in result.table.items()}
    tied, factor = tied_with_first(plan, table)
    row_marks = zip(rows, tied, stars, strict=True)
    ranks = [f"{row + 1}{'=' * tie}{'*' * star}" for row, tie, star in row_marks]
    if not any(stars):  # a dominated recommended plan is not on the front
        ranks, stars = ["*", *ranks], [True, *stars]
        table = {name: [recommended[name], *values] for name, values in table.items()}
    shown = _with_layout(plan, table, is_short=True)
    hidden = plan.workload.wording.degrees
    settings = [name for name in _shown_settings(plan, shown) if name not in hidden]
    varying = [name for name in settings if len(set(shown[name])) > 1 or name == "layout"]
    yield Title(text=_title(plan, number, len(rows)).partition(", from")[0])
    columns = [_shorten_head(column) for column in _columns(plan, shown, ranks, varying)]
    yield _table(plan, columns, [BEST if star else "" for star in stars])
    marks = ["* recommended"] if any(stars) else []
    if any(tied):
        marks.append(f"= tied with #1 within x{factor:.2f}")
    yield make_lines("; ".join(marks))


def _shown_rows(plan: Plan, number: int, top: int) -> list[int]:
    """Return the indexes of at most ``top`` rows to show: the first, or spread evenly."""
    is_spread = plan.workload.wording.from_end_to_end
    if not is_spread or number <= top:
        return list(range(min(number, top)))
    return sorted({round(step * (number - 1) / max(top - 1, 1)) for step in range(top)})


def _title(plan: Plan, number: int, shown: int) -> str:
    """Return the title of the front: its objectives and how many of its plans are shown."""
    goals = ", ".join(objective.name for objective in plan.problem.objectives)
    count_text = f"{shown} of {number}" if shown < number else f"all {number}"
    if number == 1:
        return f"Best by {goals}"
    order = "from one end to the other" if plan.workload.wording.from_end_to_end else "best first"
    return f"Pareto front by {goals}: {count_text}, {order}"


def _shorten_head(column: Column) -> Column:
    """Return a column with its head broken into at most two lines."""
    term = term_of_column(column.name)
    if term is not None and term.short:
        return replace(column, header=term.short)
    parts = column.header.split()
    if len(parts) > 2:
        parts = re.sub(r"(/\S+) /", r"\1/", column.header).split()
    return replace(column, header=" ".join(parts[-2:]))


def _columns(
    plan: Plan, shown: Mapping[str, Any], ranks: Sequence[str], varying: Sequence[str]
) -> list[Column]:
    """Return the table columns: ranks, varying settings, objectives and other results."""
    goals = _goals(plan, shown)
    results = plan.workload.wording.results(plan.counts)
    names = dict.fromkeys([*varying, *goals, *percentile_limit_columns(plan, shown), *results])
    rank_cells = [Cell(text=rank, mark=TIE if rank.endswith("=") else "") for rank in ranks]
    return [
        Column("#", rank_cells, "#"),
        *(
            _column(name, values)
            for name in names
            if (values := shown.get(name)) is not None
            and not (is_answer_column(name) and all(value != value for value in values))
        ),
    ]


def percentile_limit_columns(plan: Plan, table: Mapping[str, object]) -> list[str]:
    """The columns of limits on percentiles."""
    return percentile_columns([limit.name for limit in plan.problem.constraints], table)


def percentile_columns(limits: Iterable[str], table: Mapping[str, object]) -> list[str]:
    """The columns of limits on percentiles, by the names of limits."""
    names = {name for name in limits if parse_percentile(name)}
    return [column for column in table if (term := term_of_column(column)) and term.term in names]


def _goals(plan: Plan, shown: Mapping[str, object]) -> list[str]:
    return [plan_objective_column(plan, goal.name, shown) for goal in plan.problem.objectives]


def _table(plan: Plan, columns: Sequence[Column], marked: Sequence[str]) -> Table:
    goals = _goals(plan, {column.name: column for column in columns})
    return fit_table(columns, lambda name: _rank(name, goals), marked)


def _with_layout(
    plan: Plan, table: Mapping[str, Sequence[object]], is_short: bool = False
) -> dict[str, Sequence[object]]:
    """Return the columns with a layout column, if the workload formats layouts."""
    wording = plan.workload.wording
    layout = wording.layout
    if is_short and wording.degrees:
        layout = partial(degrees, names=wording.degrees)
    if layout is None:
        return dict(table)
    return {**table, "layout": [layout(row) for row in iterate_rows(table)]}


def settings_of(
    workload: Workload, hardware_columns: Iterable[str], table: Mapping[str, Sequence[object]]
) -> list[str]:
    """Return the settings columns of a table: hardware first, then in the order of the terms.

    Columns that follow from others are omitted.
    """
    place_names = [*hardware_columns]
    hidden = {*_REDUNDANT, *workload.wording.in_layout} - {*place_names}
    parameters = terms_of(workload.name, "parameter", "derived")
    names = dict.fromkeys([*place_names, "num_gpus", "layout", *parameters])
    return [
        name
        for name in names
        if name in table
        and name not in hidden
        and ((other := name.removeprefix("expert_")) not in {*table} - {name}
             or list(table[name]) != list(table[other]))
    ]  # fmt: skip


def _shown_settings(plan: Plan, shown: Mapping[str, Sequence[object]]) -> list[str]:
    """Return the settings columns whose values are not in the title."""
    hardware_columns, terms = plan.problem.cells[0], glossary()
    return [
        name
        for name in settings_of(plan.workload, hardware_columns, shown)
        if (
            name in plan.problem.axes
            if name in hardware_columns or (name == "num_gpus" and plan.counts)
            else name not in terms or terms[name].type != "share" or any(shown[name])
        )
    ]


def plan_objective_column(plan: Plan, name: str, table: Mapping[str, object]) -> str:
    """The column of an objective: the workload's choice, or that of the term."""
    return objective_column(plan.workload.wording, plan.problem.axes, name, table)


def objective_column(
    wording: ResultWording, axes: Collection[str], name: str, table: Mapping[str, object]
) -> str:
    """Return the name of an objective's column for rows that vary along ``axes``."""
    chosen = wording.of_objective.get(name)
    if set(_WORK) & set(axes):
        chosen = wording.of_unlike.get(name, chosen)
    matching = (
        column for column in table if (term := term_of_column(column)) and term.term == name
    )
    return chosen or next(matching, name)


def tied_with_first(plan: Plan, table: Columns) -> tuple[list[bool], float]:
    """Return whether each row ties with the first in the first objective, and the factor."""
    goal = plan.problem.objectives[0].name
    row = first_row(table)
    confidence = plan.source_of(row).confidence_of(row)
    if confidence is None or not plan.problem.has_ties:
        return [False] * len(table["num_gpus"]), 1.0
    values = np.asarray(table[plan_objective_column(plan, goal, table)], dtype=np.float64)
    return ties(values.tolist(), confidence.layout_tie_factor), confidence.layout_tie_factor


def marked_rows(plan: Plan, result: SearchResult) -> Columns:
    """Return the recommended plan, then the front, with its marks as first columns.

    The columns are ``recommended``, ``rank`` and ``tied`` with the first plan.

    The rank is the position on the front; None if the recommended plan is not on it.
    """
    front, best = result.table, result.recommended_row
    number = len(front["num_gpus"])
    ranks: list[int | None] = [*range(1, number + 1)]
    tied, factor = tied_with_first(plan, front)
    identity = {*plan.problem.sources[0].named, *terms_of(plan.workload.name, "parameter", "pool")}
    matching_indexes = [*range(number)]
    for name in identity & {*front}:
        matching_indexes = [index for index in matching_indexes if front[name][index] == best[name]]
    order = [
        *matching_indexes[:1],
        *(index for index in range(number) if index not in matching_indexes[:1]),
    ]
    table = {name: [values[index] for index in order] for name, values in front.items()}
    marks = {"rank": [ranks[index] for index in order], "tied": [tied[index] for index in order]}
    if not matching_indexes:
        goal = plan_objective_column(plan, plan.problem.objectives[0].name, front)
        values = [number_of_row(row, goal) for row in (first_row(front), best)]
        is_tied = ties(values, factor)[1] or result.better_tied is not None
        table = {name: [best[name], *values] for name, values in table.items()}
        marks = {"rank": [None, *marks["rank"]], "tied": [is_tied, *marks["tied"]]}
    recommended = [index == 0 for index in range(len(table["num_gpus"]))]
    return {"recommended": recommended, **marks, **result.scaled(table)}


def _column(name: str, values: Sequence[object]) -> Column:
    """Return the table column of a result or setting with its formatted values."""
    term = term_of_column(name)
    is_degree = name.endswith(_PARALLEL) and name != "sequence_parallel"
    return Column(
        name,
        [_cell(name, value) for value in values],
        term.column_header if term else name,
        numeric=term is not None and not term.is_word,
        short=name.removesuffix(_PARALLEL) if is_degree else "",
    )


def _cell(name: str, value: object) -> str:
    """Return a value of the column ``name`` as text without unit; ``-`` if it is not finite."""
    if not isinstance(value, float):
        text = formatting.format_parameter(value)
        return SHORT_WORDS.get(text, text)
    if not math.isfinite(value):
        return "-"
    if name == _UTILIZATION:
        return f"{100 * value:.1f}%"
    if name == _FITS:
        return formatting.format_probability(value)
    if name == "cost_usd":
        return formatting.format_count(value)
    if name.endswith("_usd") and 0 < value < 0.01:
        return f"{value:.2g}"
    if name == "peak_memory_gib":
        return f"{value:.1f}"
    return formatting.format_significant(_scale_of(name) * value)


def row_column(name: str, rows: Sequence[Row]) -> Column:
    """Return the column of a result or setting of rows, with numbers to sort by and intervals."""
    term = term_of_column(name)
    if term is not None and name == limit_column(term.term):
        header = f"{label(term.term)} limit"
    else:
        header = (term.short or term.column_header) if term else name.replace("_", " ")
    cells = [_row_cell(name, row) for row in rows]
    return Column(
        name, cells, header, numeric=all(c.number is not None or c.text == "-" for c in cells)
    )


def _row_cell(name: str, row: Row) -> Cell:
    """Return the cell of a row in a column; ``-`` if the row has no value."""
    value = row.get(name)
    if value in (None, ""):
        return Cell(text="-")
    text = _cell(name, value)
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        return Cell(text=text if len(text) <= _MAX_CHARACTERS else f"{text[:_MAX_CHARACTERS]}...")
    scale = _scale_of(name)
    ends = [number_of(row, end) for end in ends_of(name)]
    if not all(map(math.isfinite, ends)):
        return Cell(text=text, number=scale * value)
    low, high = ends
    between = f"{_cell(name, low)} to {_cell(name, high)}"
    return Cell(text=text, more=between, number=scale * value, ends=(scale * low, scale * high))


def _scale_of(name: str) -> float:
    """The factor from a column's values to the numbers shown under its head."""
    term = term_of_column(name)
    if name == _UTILIZATION:
        return 100.0
    return 1e3 if term is not None and term.column_header.endswith(" ms") else 1.0


def _rank(name: str, goals: Sequence[str]) -> int:
    """Return the rank of a column; columns of high rank are omitted first if space is short."""
    term = term_of_column(name)
    if term is None or name == "gpu":
        return 0
    term_rank = int(term.rank or _NO_RANK)
    return min(term_rank, _OF_OBJECTIVES) if name in goals else term_rank


_MEMORY = "peak_memory_gib"
_UTILIZATION, _FITS = "model_flops_utilization", "fit_probability"
_MAX_CHARACTERS = 60
_HEIGHT = 6
_MOST_WIDTH = 64
_LEAST_WIDTH = 8
_WIDE = 6.0
_RECOMMENDED, _TIE, _OTHER, _ASCII_MARKS = "*", "=", "■", "o"


@record(kw_only=True)
class Points:
    """Values of a column for each plan, with the ends of their 90 % intervals.

    ``ends`` has shape ``(2, plans)``, NaN where there is no interval.
    """

    column: str
    values: FloatArray
    ends: FloatArray


@record(kw_only=True)
class FrontPoints:
    """The front and the recommended plan, which may not be on it.

    ``first`` has the first objective. ``ties``: whether each plan is tied with the first one.
    ``texts`` are texts of the recommended plan, the first and the last of the front.
    """

    first: Points
    second: Points
    ties: Sequence[bool]
    recommended: tuple[Points, Points]
    texts: tuple[str, str, str]


def front_points(plan: Plan, result: SearchResult) -> FrontPoints:
    """Return the points of a search's front by its first two objectives, for a chart.

    With one objective the second column is the memory, or the workload's first shown column.
    """
    if result.recommended is None:
        raise ValueError("The search found no plan.")
    table = full_columns(result.table, plan.problem.sources)
    recommended = result.recommended.row
    goals = [plan_objective_column(plan, goal.name, table) for goal in plan.problem.objectives]
    columns = dict.fromkeys((*goals, _MEMORY, *plan.workload.wording.shown_columns))
    first, second = [name for name in columns if name in table][:2]
    number = len(table["num_gpus"])
    rows = [{name: values[index] for name, values in table.items()} for index in (0, number - 1)]
    source = result.recommended.source
    ends = intervals(recommended, source.confidence_of(recommended))
    recommended_text, best_text, last_text = (short_plan(plan, row) for row in (recommended, *rows))
    return FrontPoints(
        first=_points(first, table),
        second=_points(second, table),
        ties=tied_with_first(plan, result.table)[0],
        recommended=(_point(first, recommended, ends), _point(second, recommended, ends)),
        texts=(recommended_text, best_text, last_text),
    )


def _points(column: str, table: Mapping[str, object]) -> Points:
    values = np.asarray(table[column], dtype=np.float64)
    ends = [np.asarray(table[name], float) for name in ends_of(column) if name in table]
    interval_ends = ends if len(ends) == 2 else [np.full(values.shape, np.nan)] * 2
    return Points(column=column, values=values, ends=np.stack(interval_ends))


def _point(column: str, row: Mapping[str, Any], ends: Mapping[str, tuple[float, float]]) -> Points:
    interval = np.asarray(ends.get(column, (np.nan, np.nan)), dtype=np.float64)
    return Points(column=column, values=np.array([float(row[column])]), ends=interval[:, None])


def points_blocks(plan: Plan, result: SearchResult) -> Iterator[Block]:
    """Yield a text chart of the front by two results; nothing for a single plan."""
    front = front_points(plan, result)
    if len(front.first.values) < 2:
        return
    yield Title(text=f"The front: {_name(front, second=True)} over {_name(front)}")
    yield TextChart(lines=partial(block_lines, front))
    marks = f"{_RECOMMENDED} recommended"
    if any(front.ties):
        marks += f"; {_TIE} tied with #1"
    yield make_lines(marks)


def block_lines(front: FrontPoints, width: int, is_plain: bool = True) -> list[str]:
    """Return the lines of the text chart, and the smallest and largest value of each axis.

    The recommended plan hides ties, and ties hide others.
    """
    x, y = (
        np.append(points.values, recommended.values)
        for points, recommended in zip((front.first, front.second), front.recommended, strict=True)
    )
    across_ends, across_unit = format_in_common_unit(front.first.column, [x.min(), x.max()])
    down_ends, down_unit = format_in_common_unit(front.second.column, [y.min(), y.max()])
    end_texts = [f"{value} {down_unit}".strip() for value in down_ends]
    margin = max(map(len, end_texts))
    columns = max(min(width - margin - 3, _MOST_WIDTH), _LEAST_WIDTH)
    grid = [[" "] * columns for _ in range(_HEIGHT)]
    other = _ASCII_MARKS if is_plain else _OTHER
    marks = [_TIE if tie else other for tie in front.ties] + [_RECOMMENDED]
    rank = {other: 0, _TIE: 1, _RECOMMENDED: 2, " ": -1}
    positions = zip(_cell_indexes(x, columns), _cell_indexes(y, _HEIGHT), marks, strict=True)
    for column, row, mark in positions:
        line = grid[_HEIGHT - 1 - row]
        if rank[mark] > rank[line[column]]:
            line[column] = mark
    labels = [end_texts[1], *[""] * (_HEIGHT - 2), end_texts[0]]
    lines = [
        f"{label:>{margin}} |{''.join(cells)}".rstrip()
        for label, cells in zip(labels, grid, strict=True)
    ]
    ends = [f"{value} {across_unit}".strip() for value in across_ends]
    between = max(columns - len(ends[0]) - len(ends[1]), 1)
    return [
        *lines,
        f"{'':>{margin}} +{'-' * columns}",
        f"{'':>{margin}}  {ends[0]}{' ' * between}{ends[1]}",
    ]


def _cell_indexes(values: FloatArray, cells: int) -> list[int]:
    """Return the chart cell of each value on an axis, logarithmic for a wide range."""
    numbers = np.asarray(values, dtype=np.float64)
    if numbers.min() > 0 and numbers.max() > _WIDE * numbers.min():
        numbers = np.log(numbers)
    span = numbers.max() - numbers.min()
    shares = (numbers - numbers.min()) / span if span > 0 else np.zeros(numbers.shape)
    return [int(cell) for cell in np.round(shares * (cells - 1))]


def _name(front: FrontPoints, *, second: bool = False) -> str:
    return label((front.second if second else front.first).column)
