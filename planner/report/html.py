"""Results as tables of a notebook, readable on a light and on a dark page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from planner.decide.open_facts import moving_facts
from planner.optimize.collector import first_row
from planner.optimize.result import SearchResult, row_of
from planner.optimize.source import Candidates
from planner.plan.plan import Plan
from planner.report.brief import (
    assumed_line,
    fastest_line,
    question_lines,
    recommended_pairs,
    sure_lines,
)
from planner.report.compared import compared_lines
from planner.report.fitted import Column
from planner.report.front import short_front
from planner.report.open_facts import short_open_lines
from planner.report.short import short_plan
from planner.workloads.base import Evaluation

# Half transparent: the page's own colour shows through.
_MARKED = "background: rgba(46, 160, 67, 0.2); font-weight: bold"
_CELL = "padding: 0.1em 0.8em 0.1em 0; text-align: {}; white-space: nowrap"


def answer_html(plan: Plan, result: SearchResult, top: int) -> str:
    """The question, the recommended plan and the front; there must be one."""
    if result.recommended is None or result.fastest is None:
        return ""
    row = row_of(result.recommended)
    front = short_front(plan, result, top, row)
    rows = zip(*(column.cells for column in front.columns), strict=True)
    return _page(
        _question(plan),
        _told(plan, result.recommended, row, f"Recommended: {short_plan(plan, row)}"),
        _lines(filter(None, [fastest_line(plan, row, row_of(result.fastest))])),
        _lines(compared_lines(plan, result)),
        f"<p><b>{escape(front.title)}</b></p>",
        _table(
            rows,
            heads=[column.header for column in front.columns],
            numeric=[column.numeric for column in front.columns],
            marked=front.stars,
        ),
        _lines([front.marks]),
    )


def one_html(plan: Plan, found: Evaluation) -> str:
    """The question of one configuration, and what it reaches and costs."""
    row = first_row(found.table())
    return _page(_question(plan), _told(plan, found.candidates, row, short_plan(plan, row)))


def columns_table(columns: Sequence[Column]) -> str:
    """Columns as a table, the first row marked; empty without rows."""
    if not columns:
        return ""
    rows = [*zip(*(column.cells for column in columns), strict=True)]
    return _table(
        rows,
        heads=[column.header for column in columns],
        numeric=[column.numeric for column in columns],
        marked=[number == 0 for number in range(len(rows))],
    )


def _page(*parts: str) -> str:
    return f"<div>{''.join(parts)}</div>"


def _question(plan: Plan) -> str:
    title, *asked = question_lines(plan)
    lines = [line for line in (*asked, assumed_line(plan)) if line]
    return f"<p><b>{escape(title)}</b></p>{_lines(lines)}"


def _told(plan: Plan, candidates: Candidates, row: Mapping[str, Any], title: str) -> str:
    sure = plan.source_of(row).confidence(row["num_gpus"])
    facts = moving_facts(plan, candidates)
    pairs = recommended_pairs(plan, row, sure, facts)
    head = f'<p><span style="{_MARKED}">{escape(title)}</span></p>'
    return (
        head
        + _table(pairs.items())
        + _lines([*sure_lines(plan, candidates, sure, facts), *short_open_lines(plan, facts)])
    )


def _lines(lines: Iterable[str]) -> str:
    found = "<br>".join(map(escape, lines))
    return f"<p>{found}</p>" if found else ""


def _table(
    rows: Iterable[Sequence[str]],
    *,
    heads: Sequence[str] = (),
    numeric: Sequence[bool] = (False, False),
    marked: Sequence[bool] | None = None,
) -> str:
    sides = ["right" if is_number else "left" for is_number in numeric]
    styles = [_CELL.format(side) for side in sides]

    def line(cells: Sequence[str], tag: str, style: str = "") -> str:
        inner = "".join(
            f'<{tag} style="{one}">{escape(cell)}</{tag}>'
            for cell, one in zip(cells, styles, strict=True)
        )
        return f'<tr style="{style}">{inner}</tr>'

    lines = [*rows]
    stars = marked or [False] * len(lines)
    body = "".join(
        line(cells, "td", _MARKED if star else "") for cells, star in zip(lines, stars, strict=True)
    )
    head = f"<thead>{line(heads, 'th')}</thead>" if heads else ""
    return f"<table>{head}<tbody>{body}</tbody></table>"
