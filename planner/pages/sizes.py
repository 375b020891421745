"""The page of a size: the cheapest choice, the others, what a day takes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from planner.base import text
from planner.decide.sizing.day import DAYS_PER_MONTH
from planner.decide.sizing.fleet import by_cost
from planner.optimize.result_columns import lack_in
from planner.pages.assumptions import (
    assumptions,
    manifest_section,
    specs_of_rows,
)
from planner.pages.document import (
    Document,
    Row,
    numbers,
    read_row,
)
from planner.pages.first import (
    ends_of_row,
    evidence,
    figures,
    headline,
    hints,
    price_words,
    ranking,
    verb,
    with_meanings,
)
from planner.pages.table import (
    MOST_BARS,
    MOST_ROWS,
    PLACES,
    PLAN,
    breakdowns,
    front_chart,
    make_table,
    shown_columns,
)
from planner.question.terms import terms_about
from planner.show.page import (
    BEST,
    Block,
    Column,
    Figure,
    Page,
    Section,
    fitted,
    grid,
    said,
)  # fmt: skip
from planner.show.views.envelopes import MOST_TOKENS, PER_MEGAWATT, carried_columns
from planner.show.views.services import PLACED, POOLS, placed_columns, pool_columns
from planner.show.views.sizes import (
    A_DAY,
    BY_COST,
    COSTS,
    HOURLY,
    choice_columns,
    days_table,
    hour_columns,
)  # fmt: skip
from planner.show.views.told import layout_of, number_of, told
from planner.specs.catalogue import Catalogue
from planner.workloads.base import Workload

_HOUR, _COST = "time", "cost_usd"
_OF_DAY = ("hours", "base_contract", "hourly_contract", "cost_usd")
_GPU, _CONTRACT, _NUMBER = terms_about("priced")
_AMONG = (_GPU, _CONTRACT, "choice", _NUMBER)


def sizes_page(document: Document, catalogue: Catalogue) -> Page:
    """The page of what a size wrote.

    Raises
    ------
    SpecError
        It lacks a column.
    """
    found = [row for row in document.rows if row.get("feasible", True)]
    others = [row for row in document.rows if not row.get("feasible", True)]
    days, pools = document.part("days", list), document.part("pools", list)
    is_carried = bool(found) and PER_MEGAWATT in found[0]  # the most tokens first
    rows = found if is_carried or pools else by_cost(found)
    answer, notes = document.part("answer", list), document.part("notes", list)
    sections = []
    if rows and _HOUR in rows[0]:
        blocks = _day(document, found, days)
        sections.append(Section(title="What does the day take?", blocks=blocks))
    elif pools:
        blocks = _services(document, rows, pools)
        sections.append(Section(title="Where does each service run?", blocks=blocks))
    elif rows:
        blocks = _choices(document.workload, rows)
        sections.append(Section(title="Which choices are there?", blocks=blocks))
    if others:
        why = [(_named(row), str(row.get("reason") or "no plan")) for row in others]
        no_plan = grid(("GPU", "why not"), why, words=(0, 1), name="no_plan")
        caption = f"{text.count(len(why))} GPUs that do not do, and why"
        folded = replace(no_plan, caption=caption, is_folded=True)
        sections.append(Section(title="What is not possible, and why?", blocks=[folded]))
    if notes:
        sections.append(
            Section(title="What should be known of it?", blocks=[said(*map(str, notes))])
        )
    asked = document.part("question", list)
    given = document.manifest.get("model")
    model = str(rows[0].get("model") if rows and "model" in rows[0] else given or "the model")
    page = Page(
        title=f"How many GPUs does it take to {verb(document.workload)} {model}?",
        subject=model,
        headline="No GPU does.",
        question=[*map(str, asked), *document.notes],
        answer=[*map(str, answer)] or ["No GPU does."],
        sections=[
            *sections,
            assumptions(specs_of_rows(rows[:1]), catalogue),
            manifest_section(document.manifest),
        ],
    )
    first = page
    if days:
        first = _of_days(page, document, days)
    elif pools:
        first = _of_services(page, document, rows, pools)
    elif rows and not is_carried:
        first = _of_choice(page, document, rows)
    elif rows:
        grounds = evidence(rows[0].get("basis"), rows[0].get("evidence_runs"))
        first = replace(page, headline=page.answer[0], answer=page.answer[1:], evidence=grounds)
    return with_meanings(first, document.workload.name)


def _of_choice(page: Page, document: Document, rows: Sequence[Row]) -> Page:
    """The page with the cheapest choice on its first screen, and how surely it keeps its limits."""
    row, column = rows[0], next((name for name in COSTS if name in rows[0]), _NUMBER)
    sure = number_of(row, "confidence")
    kept = f" {text.chance(sure)} of runs like this keep the limits." if math.isfinite(sure) else ""
    limits = [{"probability": sure}] if math.isfinite(sure) else []
    cheapest = {_named(one): one for one in reversed(rows)}
    is_least = column == _NUMBER or row[column] <= min(numbers(one[column] for one in rows))
    wins = "is cheapest" if is_least else "runs best"  # what costs less is tied, and known less
    each = [one for one in rows if cheapest[_named(one)] is one]
    return replace(
        page,
        question=[*page.question, *([f"Price: {words}."] if (words := price_words(row)) else [])],
        headline=f"{headline(document.workload, row, wins)}{kept}",
        figures=figures(row, ends_of_row(row), limits, [_NUMBER, column]),
        evidence=evidence(row.get("basis"), row.get("evidence_runs")),
        chart=ranking(
            document.workload, each, column,
            lambda one: f"{text.count(one[_NUMBER])} x {_named(one)}",
            "The cost on each GPU, the best first",
        ),
    )  # fmt: skip


def _of_days(page: Page, document: Document, days: Sequence[object]) -> Page:
    """The page with the cheapest day on its first screen."""
    read = [Row(read_row(document.where, day), document.row_name) for day in days]
    day, basis = read[0], [one.get("basis") for one in document.rows if one.get("basis")]
    base, cost = text.count(day["base_gpus"]), told(_COST, day[_COST])
    return replace(
        page,
        headline=f"A day of {page.subject} is cheapest on {day[_GPU]}: "
        f"{text.count(day['most_gpus'])} GPUs at its peak, {base} held all day, {cost}.",
        figures=[
            Figure(name="GPUs at the peak", text=text.count(day["most_gpus"])),
            Figure(
                name="cost of a day", text=cost, between=f"{text.count(day['gpu_hours'])} GPU-hours"
            ),
            Figure(
                name="used", text=text.percent(day["utilization"]), between="of what is paid for"
            ),
        ],
        evidence=evidence(basis[0] if basis else ""),
        chart=ranking(
            document.workload, read, _COST, lambda one: str(one[_GPU]), "The cost of a day"
        ),
    )


def _of_services(
    page: Page, document: Document, rows: Sequence[Row], pools: Sequence[object]
) -> Page:
    """The page with where all services run on its first screen, and what that costs."""
    read = [Row(read_row(document.where, pool), document.row_name) for pool in pools]
    names = [*dict.fromkeys(str(row["service"]) for row in rows)]
    where = text.listed([f"{text.count(pool['most_gpus'])} x {pool[_GPU]}" for pool in read])
    total = sum(pool[_COST] for pool in read)
    gpus = sum(pool["most_gpus"] for pool in read)
    hours = text.count(sum(pool["gpu_hours"] for pool in read))
    placed = [row for row in rows if number_of(row, "share") > 0]
    least = max(placed, key=lack_in, default=rows[0])
    return replace(
        page,
        title=f"Where do {text.listed(names)} run together?",
        headline=f"{text.count(len(names))} services run on {where}: {told(_COST, total)} a day.",
        figures=[
            Figure(name="GPUs at most", text=text.count(gpus), between=f"{hours} GPU-hours a day"),
            Figure(
                name="cost of a day", text=told(_COST, total),
                between=f"{told(_COST, total * DAYS_PER_MONTH)} a month",
            ),
        ],
        answer=page.answer[1:],
        evidence=evidence(least.get("basis"), least.get("evidence_runs")),
    )  # fmt: skip


def _day(document: Document, rows: Sequence[Row], days: Sequence[object]) -> list[Block]:
    """What a day takes on each GPU, and every hour; files of older versions have hours alone."""
    gpus = [str(row["gpu"]) for row in rows]
    columns = hour_columns(rows)
    if len(set(gpus)) > 1:
        columns.insert(0, Column("gpu", gpus, "GPU", numeric=False))
    others = [name for name in rows[0] if name in _OF_DAY]
    hours = make_table("hours", HOURLY, document.workload, rows, others, first=columns)
    if not days:
        return [hours]
    read = [Row(read_row(document.where, day), document.row_name) for day in days]
    table = replace(days_table(read), name="days", caption=A_DAY, is_small=True)
    return [table, said(*map(str, document.part("day", list))), hours]


def _services(document: Document, rows: Sequence[Row], pools: Sequence[object]) -> list[Block]:
    """Where each service runs, and the GPUs of each type."""
    read = [Row(read_row(document.where, pool), document.row_name) for pool in pools]
    placed, shared = fitted(placed_columns(rows)), fitted(pool_columns(read))
    return [
        replace(placed, name="services", caption=PLACED),
        replace(shared, name="pools", caption=POOLS, is_small=True),
    ]


def _choices(workload: Workload, rows: Sequence[Row]) -> list[Block]:
    """Every choice as a table, and cost against what else matters as a chart."""
    is_carried = PER_MEGAWATT in rows[0]
    first = carried_columns(rows) if is_carried else [*choice_columns(rows)]
    margins = [name for name in rows[0] if name.startswith("spare_")]
    costs = [name for name in COSTS if name in rows[0]]
    shown = {PLAN, *(column.name for column in first)}
    others = shown_columns(workload, rows, costs, dict.fromkeys([*_AMONG, *PLACES]))
    names = [name for name in dict.fromkeys([*others, *margins]) if name not in shown]
    caption = MOST_TOKENS if is_carried else BY_COST
    table = make_table("choices", caption, workload, rows, names, [BEST], first=first)
    table = replace(table, hints=[hints(workload, row) for row in rows[:MOST_ROWS]])
    labels = [f"{row['num_gpus']:,} x {_named(row)}: {layout_of(workload, row)}" for row in rows]
    bars = breakdowns(labels[:MOST_BARS], rows[:MOST_BARS])
    axes = [head.name for head in table.heads]
    return [*front_chart("choices", axes, [*costs[:1], "num_gpus"]), table, *bars]


def _named(row: Mapping[str, Any]) -> str:
    """The GPU of a row and on what terms it is had."""
    return f"{row.get('gpu', '')} {row.get('contract') or ''}".strip()
