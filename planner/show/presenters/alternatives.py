"""The alternatives to a recommended plan: one table, and a table for each compared value."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace

from planner.base.csv_cells import Row
from planner.base.formatting import format_count, format_parameter
from planner.base.records import record
from planner.optimize.result import SCALING_COLUMN as SCALING
from planner.optimize.result_columns import RUNS
from planner.question.names import NUM_GPUS
from planner.question.terms import glossary
from planner.show.output_blocks import (
    BAD,
    BEST,
    GAP,
    TIE,
    Block,
    Cell,
    Column,
    Table,
    fit_table,
    make_lines,
    text_table,
)  # fmt: skip
from planner.show.presenters.format_results import (
    common_scale,
    ends_in,
    format_in_common_unit,
    format_result,
    format_scaled,
    label,
    number_cells,
    number_of,
    result_cell,
    share,
    shortest_plan,
)
from planner.show.presenters.pareto_front import (
    RECOMMENDED,
    TIED,
    are_same_plan,
    front_size,
    is_lower_better,
    ranked_rows,
    search_goals,
)
from planner.show.presenters.prices import commitment_lines
from planner.show.presenters.row_tables import AXES
from planner.show.presenters.uncertainty import ties
from planner.show.reports import ResultRow, SearchReport
from planner.workloads.workload import Workload

LOWEST = "*"
"""The mark of the best value of a column."""

_ALL_LINES = 1000
_MOST_PLANS = 12
_MIN_CHANGE = 5e-4
_MEMORY = "peak_memory_gib"
# A narrow terminal omits columns of high rank first.
_RANKS = {"range": 4, "ranked_by": 3, "second": 3, RUNS: 2, "change": 1, "plan": 1}


@record(kw_only=True)
class Alternatives:
    """Plans to choose from, sorted by the column of the first objective, the better one first.

    ``axis`` is the compared input; "": they are plans of the front. ``recommended`` is an index.
    ``ranked_by`` are the values of the column in the bad case; empty: unknown.
    """

    axis: str
    column: str
    rows: Sequence[ResultRow]
    tied: Sequence[bool]
    recommended: int
    ranked_by: Sequence[float] = ()

    @property
    def best(self) -> float:
        """The best value of the column."""
        return number_of(self.rows[0], self.column)

    def first(self, number: int) -> Alternatives:
        """Return at most ``number`` alternatives, always with the recommended plan."""
        indexes = [*range(min(number, len(self.rows)))]
        if self.recommended not in indexes:
            indexes = [*indexes[:-1], self.recommended]
        return replace(
            self,
            rows=[self.rows[index] for index in indexes],
            tied=[self.tied[index] for index in indexes],
            recommended=indexes.index(self.recommended),
            ranked_by=[self.ranked_by[index] for index in indexes] if self.ranked_by else (),
        )


def alternatives(report: SearchReport) -> Alternatives | None:
    """Return the plans to choose from: of the compared input, or else along the front.

    None if there is no other plan, or no objective.
    """
    goals, best = search_goals(report), report.recommended_row
    if not goals or best is None:
        return None
    axis, column = main_axis(report), goals[0]
    sign, risks = 1 if is_lower_better(report) else -1, list[float]()
    if axis:
        compared = report.comparisons[axis]
        rows, risks = [*compared.rows], [*compared.risks]
        tied = [*compared.tied] or ties(
            [number_of(row, column) for row in rows], report.recommended_sure.tie_factor
        )
    else:
        rows = [best, *(r for r in _along_front(report) if not _is_same(report, r))]
        values = [number_of(row, column) for row in rows]
        tied = ties(values, report.recommended_sure.tie_factor)
    if len(rows) < 2:
        return None
    order = sorted(
        range(len(rows)),
        key=lambda n: (not math.isfinite(v := number_of(rows[n], column)), sign * v, n),
    )
    return Alternatives(
        axis=axis,
        column=column,
        rows=[rows[index] for index in order],
        tied=[tied[index] for index in order],
        recommended=order.index(0),
        ranked_by=[number_of(rows[n], column) * risks[n] ** sign for n in order] if risks else (),
    )


def main_axis(report: SearchReport) -> str:
    """The input whose values are the alternatives: one that lists values, or the software."""
    names = [*report.requested_axes, report.workload.profile_kind, *report.comparisons]
    compared = report.comparisons
    return next((name for name in names if name in compared and len(compared[name].rows) > 1), "")


def _is_same(report: SearchReport, row: ResultRow) -> bool:
    best = report.recommended_row
    return best is not None and are_same_plan(report.workload, row, best)


def _along_front(report: SearchReport) -> list[ResultRow]:
    """Return some plans of the front, spread evenly along it."""
    rows = [row.row for row in ranked_rows(report)]
    steps = min(len(rows), _MOST_PLANS)
    indexes = {round(step * (len(rows) - 1) / max(steps - 1, 1)) for step in range(steps)}
    return [rows[index] for index in sorted(indexes)]


def alternatives_table(
    report: SearchReport, chosen: Alternatives, max_characters: int | None = None
) -> Table:
    """Return a table of alternatives with their evidence and the change against the plan.

    ``max_characters`` limits the texts of plans; None: as long as they are.
    """
    rows, column, axis = chosen.rows, chosen.column, chosen.axis
    values = [number_of(row, column) for row in rows]
    texts, unit = _texts_in_unit(column, values)
    marks = [LOWEST * (value == chosen.best) for value in values]
    cells = [
        Cell(text=f"{mark}{text}", number=value, ends=ends_in(column, row))
        for row, value, text, mark in zip(rows, values, texts, marks, strict=True)
    ]
    names = [format_parameter(row[axis]) for row in rows] if axis else []
    plans = [
        _shorten(shortest_plan(report.workload, report.comparisons, row, axis), max_characters)
        for row in rows
    ]
    axis_label = AXES.get(axis) or axis.replace("_", " ")
    columns = [
        *([Column(axis, names, axis_label, numeric=False)] if axis else []),
        Column("mark", _marks(chosen), " ", numeric=False),
        Column(column, cells, _head(column, unit)),
        *_ranking_column(chosen),
        *_range_column(column, rows),
        *_second_columns(report, rows, column) * (not axis),
        Column("change", _changes(report, chosen), "vs\nrec."),
        *_run_columns(rows),
        Column("plan", plans, "plan", numeric=False),
    ]  # fmt: skip
    row_marks = [
        BEST if n == chosen.recommended else TIE if tied else ""
        for n, tied in enumerate(chosen.tied)
    ]
    table = fit_table(columns, lambda name: _RANKS.get(name, 0), row_marks, elsewhere="")
    caption = f"The recommended plan of each {axis_label}"
    return replace(
        table, name="alternatives", caption=caption if axis else "Plans along the front",
        is_small=True,
    )  # fmt: skip


def _ranking_column(chosen: Alternatives) -> list[Column]:
    """Return the column of the values that plans are ranked by; empty if they are unknown."""
    if not chosen.ranked_by:
        return []
    scale, _ = common_scale(chosen.column, [number_of(row, chosen.column) for row in chosen.rows])
    texts = [format_scaled(chosen.column, scale, value) for value in chosen.ranked_by]
    cells = [
        Cell(text=text, number=value) for text, value in zip(texts, chosen.ranked_by, strict=True)
    ]
    return [Column("ranked_by", cells, "ranked\nby")]


def _shorten(text: str, max_characters: int | None) -> str:
    if max_characters is None or len(text) <= max_characters:
        return text
    return f"{text[: max_characters - 3].rstrip(', ')}..."


def _texts_in_unit(column: str, values: Sequence[float]) -> tuple[list[str], str]:
    """Return the values of a column as texts in one unit, and the unit; counts as integers."""
    if column == NUM_GPUS:
        return [format_count(value) for value in values], ""
    return format_in_common_unit(column, values)


def _head(column: str, unit: str) -> str:
    """Return the head of a column of results in at most two lines."""
    name = label(column)
    if unit:
        return f"{name}\n{unit}"
    first, _, rest = name.rpartition(" ")
    return f"{first}\n{rest}" if first else name


def _marks(chosen: Alternatives) -> list[str]:
    return [
        RECOMMENDED if n == chosen.recommended else TIED * tied
        for n, tied in enumerate(chosen.tied)
    ]


def _range_column(column: str, rows: Sequence[ResultRow]) -> list[Column]:
    """Return the column of 90 % intervals in the unit of the results; empty without intervals."""
    ends = [ends_in(column, row) for row in rows]
    if not any(ends):
        return []
    scale, _ = common_scale(column, [number_of(row, column) for row in rows])
    return [Column("range", [_range_text(column, pair, scale) for pair in ends], "90 %\nrange")]


def _range_text(column: str, ends: tuple[float, float] | None, scale: float) -> str:
    if ends is None or not all(map(math.isfinite, ends)):
        return "-"
    low, high = (format_scaled(column, scale, end) for end in ends)
    return f"{low}-{high}"


def _second_columns(report: SearchReport, rows: Sequence[ResultRow], column: str) -> list[Column]:
    """Return the column of the second objective; empty if there is none."""
    names = [name for name in search_goals(report)[1:2] if name != column and name in rows[0]]
    columns = []
    for name in names:
        texts, unit = _texts_in_unit(name, [number_of(row, name) for row in rows])
        columns.append(Column("second", texts, _head(name, unit)))
    return columns


def _changes(report: SearchReport, chosen: Alternatives) -> list[Cell]:
    """Return the change of each plan against the recommended one, in percent."""
    base = number_of(chosen.rows[chosen.recommended], chosen.column)
    sign = 1 if is_lower_better(report) else -1
    cells = []
    for n, row in enumerate(chosen.rows):
        change = number_of(row, chosen.column) / base - 1 if base else math.nan
        is_shown = n != chosen.recommended and math.isfinite(change)
        mark = (BAD if sign * change > 0 else BEST) if is_shown and change else ""
        cells.append(Cell(text=change_text(change) if is_shown else "", mark=mark, number=change))
    return cells


def change_text(change: float) -> str:
    """Return a relative change in percent: ``-7.2 %``; ``same`` if it is negligible."""
    if abs(change) < _MIN_CHANGE:
        return "same"
    return f"{'+' if change > 0 else '-'}{share(abs(change))}"


def _run_columns(rows: Sequence[ResultRow]) -> list[Column]:
    """Return the column of published runs of each row's software on its GPU, if known."""
    if not any(math.isfinite(number_of(row, RUNS)) for row in rows):
        return []
    return [Column(RUNS, number_cells(rows, RUNS), "runs")]


def legend_lines(report: SearchReport, chosen: Alternatives) -> list[str]:
    """Return the meaning of a table's marks, and the rule if another row is first."""
    better = "lowest" if is_lower_better(report) else "highest"
    parts = [f"{RECOMMENDED} recommended", f"{LOWEST} {better}"]
    if any(chosen.tied):
        parts.append(f"{TIED} tied: within the error")
    if any(math.isfinite(number_of(row, RUNS)) for row in chosen.rows):
        parts.append("runs: published")
    rule = report.recommended_rule
    return ["   ".join(parts), *([f"{rule}."] if rule and chosen.recommended else [])]


def front_line(report: SearchReport) -> str:
    """Return plans of the front that are better in the second objective; "" if there are none."""
    goals, best = search_goals(report), report.recommended_row
    if front_size(report) < 2 or best is None:
        return ""
    ahead = _better_in_second(report, best) if len(goals) > 1 and main_axis(report) else []
    if not ahead:
        return ""
    first, second = goals[:2]
    steps = min(len(ahead), 3)
    indexes = {round((n + 1) * (len(ahead) - 1) / steps) for n in range(steps)}
    shown = [ahead[index] for index in sorted(indexes)]
    (firsts, first_unit), (seconds, second_unit) = (
        _texts_in_unit(name, [number_of(row, name) for row in shown]) for name in (first, second)
    )
    units = f" {first_unit or label(first)}", f" {second_unit}".rstrip()
    pairs = [
        f"{value}{'' if n else units[0]} at {other}{'' if n else units[1]}"
        for n, (value, other) in enumerate(zip(firsts, seconds, strict=True))
    ]
    more = "Less" if _second_sign(report) > 0 else "More"
    return f"{more} {label(second).replace('peak memory', 'memory')}: {', '.join(pairs)}"


def _better_in_second(report: SearchReport, best: ResultRow) -> list[ResultRow]:
    """Return the plans of the front that are better than ``best`` in the second objective."""
    second, sign = search_goals(report)[1], _second_sign(report)
    value = number_of(best, second)
    return [
        row.row
        for row in ranked_rows(report)
        if row.rank is not None and sign * number_of(row.row, second) < sign * value
    ]


def _second_sign(report: SearchReport) -> int:
    """Return 1 if low values of the column of the second objective are better, else -1."""
    second = search_goals(report)[1]
    return 1 if second == _MEMORY or _is_low_better(report, second) else -1


def _is_low_better(report: SearchReport, column: str) -> bool:
    goals = search_goals(report)
    name = str(report.manifest["objectives"][goals.index(column)])
    return glossary()[name].better != "high"


def other_axis_lines(report: SearchReport) -> list[str]:
    """Return a line for each compared input that the table does not show."""
    main = main_axis(report)
    sign = 1 if _goal_is_low(report) else -1
    return [
        f"By {axis.replace('_', ' ')}: {', '.join(_axis_changes(sign, axis, compared.rows))}"
        for axis, compared in report.comparisons.items()
        if axis != main and len(compared.rows) > 1
    ]


def _goal_is_low(report: SearchReport) -> bool:
    (goal, *_) = report.manifest["objectives"]
    return glossary()[str(goal)].better != "high"


def _axis_changes(sign: int, axis: str, rows: Sequence[ResultRow]) -> list[str]:
    texts = []
    for index, row in enumerate(rows):
        change = _loss_text(sign, number_of(row, "loss")) if index else ""
        texts.append(" ".join(filter(None, (format_parameter(row[axis]), change))))
    return texts


def _loss_text(sign: int, loss: float) -> str:
    """Return the relative change of the first objective: ``-12 %`` of a lower rate.

    Returns "as good" without a loss, "" if the loss is unknown.
    """
    if not math.isfinite(loss):
        return ""
    is_less = (loss > 0) == (sign < 0)
    return f"{'-' if is_less else '+'}{share(abs(loss))}" if loss else "as good"


def axis_blocks(report: SearchReport, axis: str, *, has_table: bool = True) -> Iterator[Block]:
    """Yield a table with the recommended plan of each value of an input, and those without."""
    compared = report.comparisons[axis]
    if compared.rows and has_table:
        yield GAP
        yield axis_table(report, axis)
    if axis == "contract":
        lines = [f"{row[axis]}: {line}" for row in compared.rows for line in commitment_lines(row)]
        yield make_lines(*lines, most=_ALL_LINES)
    for line in without_plan_lines(report, axis):
        yield make_lines(line, most=_ALL_LINES)


def axis_table(report: SearchReport, axis: str) -> Table:
    """Return a table with the recommended plan of each value of an input, and its loss."""
    rows = report.comparisons[axis].rows
    columns = compared_columns(
        report.workload, report.comparisons, axis, rows, [number_of(row, "loss") for row in rows],
        column=search_goals(report)[0], goal=str(report.manifest["objectives"][0]),
        sign=1 if _goal_is_low(report) else -1,
    )  # fmt: skip
    cells = [*zip(*(column.cells for column in columns), strict=True)]
    return text_table(
        [column.header for column in columns], cells, text_columns=(0, 1), marked=[BEST],
        name=f"by_{axis}",
    )  # fmt: skip


def compared_columns(
    workload: Workload,
    axes: Collection[str],
    axis: str,
    rows: Sequence[Row],
    losses: Sequence[float],
    *,
    column: str,
    goal: str,
    sign: int,
) -> list[Column]:
    """Return the table columns of the best plan of each value of an axis, and its loss.

    The plans were chosen by ``goal``, shown in ``column``; low is better if ``sign`` is 1.
    """
    result_cells = [
        replace(
            result_cell(column, row, format_result(column, row[column], ends_in(column, row))),
            more="",
        )
        if column in row
        else Cell(text="")
        for row in rows
    ]
    changes = [
        Cell(
            text=_loss_text(sign, loss) if index else "", mark=BAD if loss > 0 else BEST,
            number=loss,
        )
        for index, loss in enumerate(losses)
    ]  # fmt: skip
    scaling = [number_of(row, SCALING) for row in rows if SCALING in row]
    plans = [shortest_plan(workload, axes, row, axis) for row in rows]
    values = [format_parameter(row[axis]) for row in rows]
    return [
        Column(axis, values, f"by {axis.replace('_', ' ')}", numeric=False),
        Column("plan", plans, "plan", numeric=False),
        Column(column, result_cells, label(column)),
        Column("loss", changes, goal.replace("_", " ")),
        *(
            [Column(SCALING, [f"{efficiency:.1%}" for efficiency in scaling], label(SCALING))]
            if scaling
            else []
        ),
    ]


def without_plan_lines(report: SearchReport, axis: str) -> list[str]:
    """Values of an input without a plan, a line for each reason."""
    texts = report.rejection_texts
    reasons = report.comparisons[axis].without_plan
    return no_plan_lines((value, texts.get(name, name)) for value, name in reasons.items())


def no_plan_lines(why: Iterable[tuple[object, str]]) -> list[str]:
    """Return the values that have no plan, one line for each reason."""
    reasons: dict[str, list[str]] = {}
    for value, reason in why:
        reasons.setdefault(reason, []).append(format_parameter(value))
    ordered = sorted(reasons.items(), key=lambda item: -len(item[1]))
    return [
        f"no plan: {len(values)} ({reason}): {', '.join(values)}"
        if len(values) > 1
        else f"no plan: {values[0]} ({reason})"
        for reason, values in ordered
    ]
