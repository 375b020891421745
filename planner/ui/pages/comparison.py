"""Pages of results of `planner size`, `planner compare` and `planner explain`."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from planner.base import formatting
from planner.decide.sizing.daily_schedule import DAYS_PER_MONTH
from planner.decide.sizing.fleet import order_by_cost
from planner.errors import SpecError
from planner.optimize.result_columns import evidence_rank_of
from planner.question.names import CONTRACT, GPU, NUM_GPUS
from planner.question.terms import term_of_column
from planner.show.output_blocks import (
    BEST,
    TIE,
    Bars,
    Block,
    Cell,
    Column,
    ColumnHead,
    Figure,
    Page,
    RankingChart,
    RankingRow,
    Section,
    Table,
    fit_table,
    make_lines,
    text_table,
)
from planner.show.presenters.day_schedules import (
    A_DAY,
    HOURLY,
    SCALED,
    days_table,
    hour_columns,
    scaled_table,
)
from planner.show.presenters.format_results import (
    common_scale,
    format_result,
    format_scaled,
    label,
    layout_of,
    number_of,
)
from planner.show.presenters.services import (
    CUTS,
    MOST_TOKENS,
    PER_MEGAWATT,
    PLACED,
    POOLS,
    carried_columns,
    cut_columns,
    placed_columns,
    pool_columns,
)
from planner.show.presenters.sizes import (
    BY_COST,
    COSTS,
    choice_columns,
)
from planner.specs.catalogue import Catalogue
from planner.ui.pages.headline import (
    ends_of_row,
    evidence,
    figures,
    format_price,
    headline,
    hints,
    ranking,
    verb,
    with_glossary,
)
from planner.ui.pages.result_json import ResultDocument, ResultRow, read_row, version_notes
from planner.ui.pages.result_tables import (
    MOST_BARS,
    MOST_ROWS,
    PLACEMENT_COLUMNS,
    PLAN,
    assumptions,
    breakdowns,
    front_chart,
    make_table,
    manifest_section,
    shown_columns,
    specs_of_rows,
)
from planner.workloads.workload import Workload

ResultObject = Mapping[str, Any]

_DIFFERENCES_TITLE = "How do they differ?"
_MOST_PARTS = 12


def comparison_page(table: Any, where: str) -> Page:
    """Return the page of a comparison of plans or specs.

    Raises SpecError if the comparison lacks a part or is damaged.
    """
    try:
        page = _specs_page(table) if "specs" in table else _plans_page(table)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise SpecError(f"{where}: is a damaged comparison ({error}).") from error
    manifest = table["manifest"]
    sections = [*page.sections, manifest_section(manifest)]
    question = [*page.question, *version_notes(str(manifest.get("version")))]
    page = replace(page, question=question, sections=sections)
    return with_glossary(page, str(table.get("plans", [{}])[0].get("workload", "")))


def _specs_page(table: ResultObject) -> Page:
    """Return the page of a comparison of specs: the numbers that differ."""
    blocks: list[Block] = []
    for name, numbers in table["specs"].items():
        letters = _letters(max(map(len, numbers.values()), default=0))
        rows = [
            (n, *("-" if number is None else str(number) for number in v))
            for n, v in numbers.items()
        ]
        numbers_table = text_table(
            ("differs", *letters), rows, text_columns=range(len(letters) + 1), name=f"of {name}"
        )
        blocks.append(replace(numbers_table, caption=name))
    count = sum(map(len, table["specs"].values()))
    return Page(
        title="How do these specs differ?",
        question=[],
        answer=[],
        headline=f"They differ in {formatting.format_count(count)} numbers."
        if count
        else "They do not differ.",
        sections=[Section(title=_DIFFERENCES_TITLE, blocks=blocks)],
    )


def _plans_page(table: ResultObject) -> Page:
    """Return the page of compared plans: the best one, by how much, and all differences."""
    names = [
        f"{a}: {plan['name']}" for a, plan in zip(_letters(table), table["plans"], strict=True)
    ]
    results = [result for result in table["results"] if _has_number(result["values"])]
    wins = Counter(result["best"] for result in results)
    best = wins.most_common(1)[0][0] if wins else 0
    possible = [index for index, plan in enumerate(table["plans"]) if not plan["impossible"]]
    if results:
        best_in = [label(result["name"]) for result in results if result["best"] == best]
        answer = f"{names[best]} is best in {formatting.join_words(best_in)}."
    else:
        answer = (
            "They do not differ." if len(possible) > 1 else "Fewer than two of them are possible."
        )
    row = {result["name"]: result["values"][best] for result in results}
    ends = {result["name"]: tuple(e) for result in results if (e := result["intervals"][best])}
    impossible = [(names[index], plan["impossible"]) for index, plan in enumerate(table["plans"])]
    missing = [*((n, reason) for n, reason in impossible if reason), *table["without_plan"].items()]
    sections = [
        Section(title="What does each reach?", blocks=[_results(results, names)]),
        Section(title=_DIFFERENCES_TITLE, blocks=[_settings(table["settings"], names)]),
        Section(title="Where do time and memory go?", blocks=[*_parts(table, names)]),
    ]
    if missing:
        no_plan = text_table(("plan", "why not"), missing, text_columns=(0, 1), name="no_plan")
        caption = f"{formatting.format_count(len(missing))} without a plan, and why"
        folded = replace(no_plan, caption=caption, is_folded=True)
        sections.append(Section(title="What is not possible, and why?", blocks=[folded]))
    answers = table["plans"][best]["asked"]
    return Page(
        title=f"Which of these {formatting.format_count(len(names))} plans is better?",
        question=[
            f"{name}: {_plan_subject(plan['asked'])}"
            for name, plan in zip(names, table["plans"], strict=True)
        ],
        answer=[*map(str, table["sentences"])],
        subject=str(answers.get("model", "")),
        headline=answer,
        figures=figures(row, ends) if results else [],
        evidence=evidence(table["plans"][best].get("basis")),
        chart=_ranking(results, names, best) if results else None,
        sections=sections,
    )


def _letters(things: Any) -> str:
    count = things if isinstance(things, int) else len(things["plans"])
    return "".join(chr(ord("A") + index) for index in range(count))


def _has_number(values: Sequence[Any]) -> bool:
    return any(isinstance(value, float | int) and math.isfinite(value) for value in values)


def _plan_subject(answers: Mapping[str, Any]) -> str:
    """Return the model, the GPUs and the software of a plan as one text."""
    count = answers.get("num_gpus")
    software = answers.get("framework") or answers.get("engine") or ""
    where = (
        f"{formatting.format_count(count)} x {answers.get('gpu')}"
        if count
        else str(answers.get("gpu"))
    )
    return ", ".join(filter(None, [str(answers.get("model") or ""), where, str(software)]))


def _ranking(results: Sequence[ResultObject], names: Sequence[str], best: int) -> RankingChart:
    """Return a chart of all plans by the first result in which the best plan is better."""
    result = next(result for result in results if result["best"] == best)
    column, values = result["name"], [math.nan if v is None else v for v in result["values"]]
    term, order = (
        term_of_column(column),
        [index for index, v in enumerate(values) if math.isfinite(v)],
    )
    is_high = term is not None and term.better == "high"
    order.sort(key=lambda index: (index != best, -values[index] if is_high else values[index]))
    scale, unit = common_scale(column, values)
    rows = []
    for index in order:
        ends = result["intervals"][index]
        hints = {label(other["name"]): _format_cell(other, index) for other in results}
        rows.append(
            RankingRow(
                label=names[index],
                value=values[index] / scale,
                text=f"{format_scaled(column, scale, values[index])} {unit}".strip(),
                ends=(ends[0] / scale, ends[1] / scale) if ends else None,
                mark=BEST if index == best else TIE if index in result["ties"] else "",
                hints=hints,
            )
        )
    caption = f"The {label(column)} of each, and 90 % intervals"
    unit = f"{label(column)}, {unit}" if unit else label(column)
    return RankingChart(name="answers", caption=caption, unit=unit, rows=rows)


def _format_cell(result: ResultObject, index: int) -> str:
    """Return the value of the plan ``index`` with its interval as text; ``-`` if unknown."""
    value, ends = result["values"][index], result["intervals"][index]
    return (
        "-"
        if value is None
        else format_result(result["name"], value, tuple(ends) if ends else None)
    )


def _results(results: Sequence[ResultObject], names: Sequence[str]) -> Table:
    """Return a table with a row for each result; the best cell of a row is marked."""
    rows = []
    for result in results:
        marks = [
            BEST if index == result["best"] else TIE * (index in result["ties"])
            for index in range(len(names))
        ]
        cells = [
            Cell(text=_format_cell(result, index), mark=mark) for index, mark in enumerate(marks)
        ]
        rows.append([Cell(text=label(result["name"])), *cells])
    results_table = text_table(
        ("result", *names), rows, text_columns=range(len(names) + 1), name="results"
    )
    titles = ["", *([""] * len(names))]
    heads = [
        ColumnHead(name=h.name, text=h.text, title=t)
        for h, t in zip(results_table.heads, titles, strict=True)
    ]
    return replace(
        results_table, heads=heads, caption="In bold the best of each row, with 90 % intervals"
    )


def _settings(settings: Mapping[str, Sequence[Any]], names: Sequence[str]) -> Block:
    """Return a table of the settings that differ between the plans, one column per plan."""
    rows = [
        (
            name.replace("_", " "),
            *("-" if value is None else formatting.format_parameter(value) for value in values),
        )
        for name, values in settings.items()
    ]
    if not rows:
        return make_lines("Their settings do not differ.")
    return text_table(
        ("setting", *names), rows, text_columns=range(len(names) + 1), name="settings"
    )


def _parts(table: ResultObject, names: Sequence[str]) -> Iterator[Block]:
    """Yield charts of the plans' step times and memory by part."""
    kinds = {f"Time of the {kind}": (parts, "s") for kind, parts in table["times_s"].items()}
    for caption, (parts, unit) in {
        **kinds,
        "Memory of the fullest GPU": (table["memory_gib"], "GiB"),
    }.items():
        shown = {
            n: [value or 0.0 for value in values]
            for n, values in parts.items()
            if _has_number(values)
        }
        if shown:
            name = caption.lower().replace(" ", "_")
            yield Bars(name=name, caption=f"{caption}: the parts in which they differ", unit=unit,
                       labels=names, parts=shown)  # fmt: skip


def bounds_section(table: ResultObject, where: str) -> Section:
    """Return a section on the bottlenecks of each step of a plan, and its longest parts.

    Raises SpecError if the explanation is damaged.
    """
    blocks: list[Block] = []
    try:
        for step in table["steps"]:
            step_time = step["time_s"] or 1.0
            bounds = sorted(step["bounds_s"].items(), key=lambda item: -item[1])
            causes = [
                f"{name} {formatting.format_percent(time / step_time)}"
                for name, time in bounds
                if time
            ]
            rows = [
                [
                    operator["operator"].replace("_", " "),
                    Cell(
                        text=formatting.format_duration(operator["time_s"]),
                        number=operator["time_s"],
                    ),
                    Cell(
                        text=formatting.format_percent(operator["share"]), number=operator["share"]
                    ),
                    operator["bound"],
                    "-"
                    if operator["of_roofline"] is None
                    else formatting.format_percent(operator["of_roofline"]),
                ]
                for operator in step["operators"][:_MOST_PARTS]
            ]
            heads = ("part", "time", "share", "bound by", "of roofline")
            parts_table = text_table(
                heads, rows, text_columns=(0, 3), name=f"bounds of {step['step']}"
            )
            caption = (
                f"The {step['step']} takes {formatting.format_duration(step_time)}, bound by "
                f"{formatting.join_words(causes)}"
            )
            blocks.append(replace(parts_table, caption=caption))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise SpecError(f"{where}: is a damaged explanation ({error}).") from error
    return Section(title="What bounds it?", blocks=blocks)


_HOUR, _COST = "time", "cost_usd"
_DAY_COLUMNS = ("hours", "base_contract", "hourly_contract", "cost_usd")
_CHOICE_COLUMNS = (GPU, CONTRACT, "choice", NUM_GPUS)


def sizes_page(document: ResultDocument, catalogue: Catalogue) -> Page:
    """Return the page of a result of `planner size`. Raises SpecError if it lacks a column."""
    feasible = [row for row in document.rows if row.get("feasible", True)]
    infeasible = [row for row in document.rows if not row.get("feasible", True)]
    days, pools = document.part("days", list), document.part("pools", list)
    is_carried = bool(feasible) and PER_MEGAWATT in feasible[0]  # the most tokens first
    rows = feasible if is_carried or pools else order_by_cost(feasible)
    answer, notes = document.part("answer", list), document.part("notes", list)
    sections = []
    if rows and _HOUR in rows[0]:
        blocks = _day(document, feasible, days)
        sections.append(Section(title="What does the day take?", blocks=blocks))
    elif pools:
        blocks = _services(document, rows, pools)
        sections.append(Section(title="Where does each service run?", blocks=blocks))
    elif rows:
        blocks = _choices(document.workload, rows)
        sections.append(Section(title="Which choices are there?", blocks=blocks))
    if infeasible:
        reasons = [
            (_gpu_and_contract(row), str(row.get("reason") or "no plan")) for row in infeasible
        ]
        no_plan = text_table(("GPU", "why not"), reasons, text_columns=(0, 1), name="no_plan")
        caption = f"{formatting.format_count(len(reasons))} GPUs without a plan, and why"
        folded = replace(no_plan, caption=caption, is_folded=True)
        sections.append(Section(title="What is not possible, and why?", blocks=[folded]))
    if notes:
        sections.append(Section(title="Notes", blocks=[make_lines(*map(str, notes))]))
    question = document.part("question", list)
    default_model = document.manifest.get("model")
    model = str(
        rows[0].get("model") if rows and "model" in rows[0] else default_model or "the model"
    )
    page = Page(
        title=f"How many GPUs does it take to {verb(document.workload)} {model}?",
        subject=model,
        headline="No GPU does.",
        question=[*map(str, question), *document.notes],
        answer=[*map(str, answer)] or ["No GPU does."],
        sections=[
            *sections,
            assumptions(specs_of_rows(rows[:1]), catalogue),
            manifest_section(document.manifest),
        ],
    )
    first = page
    if days:
        first = _with_cheapest_day(page, document, days)
    elif pools:
        first = _with_services(page, document, rows, pools)
    elif rows and not is_carried:
        first = _with_cheapest_choice(page, document, rows)
    elif rows:
        basis = evidence(rows[0].get("basis"), rows[0].get("evidence_runs"))
        first = replace(page, headline=page.answer[0], answer=page.answer[1:], evidence=basis)
    return with_glossary(first, document.workload.name)


def _with_cheapest_choice(page: Page, document: ResultDocument, rows: Sequence[ResultRow]) -> Page:
    """Return the page with the cheapest GPUs first, and their probability to keep the limits."""
    row, column = rows[0], next((name for name in COSTS if name in rows[0]), NUM_GPUS)
    confidence = number_of(row, "confidence")
    confidence_note = (
        f" {formatting.format_probability(confidence)} of runs like this keep the limits."
        if math.isfinite(confidence)
        else ""
    )
    limits = [{"probability": confidence}] if math.isfinite(confidence) else []
    cheapest = {_gpu_and_contract(choice): choice for choice in reversed(rows)}
    is_least = column == NUM_GPUS or number_of(row, column) <= min(
        number_of(choice, column) for choice in rows
    )
    wins = "is cheapest" if is_least else "runs best"  # a cheaper one is tied and has less evidence
    choices = [choice for choice in rows if cheapest[_gpu_and_contract(choice)] is choice]
    price_text = format_price(row)
    return replace(
        page,
        question=[*page.question, *([f"Price: {price_text}."] if price_text else [])],
        headline=f"{headline(document.workload, row, wins)}{confidence_note}",
        figures=figures(row, ends_of_row(row), limits, [NUM_GPUS, column]),
        evidence=evidence(row.get("basis"), row.get("evidence_runs")),
        chart=ranking(
            document.workload, choices, column,
            lambda choice: (
                f"{formatting.format_count(choice[NUM_GPUS])} x "
                f"{_gpu_and_contract(choice)}"
            ),
            "The cost on each GPU, the best first",
        ),
    )  # fmt: skip


def _with_cheapest_day(page: Page, document: ResultDocument, days: Sequence[object]) -> Page:
    """Return the page with the cheapest daily schedule first."""
    day_rows = [ResultRow(read_row(document.where, day), document.row_name) for day in days]
    day, basis = day_rows[0], [row.get("basis") for row in document.rows if row.get("basis")]
    base, cost = formatting.format_count(day["base_gpus"]), format_result(_COST, day[_COST])
    return replace(
        page,
        headline=f"A day of {page.subject} is cheapest on {day[GPU]}: "
        f"{formatting.format_count(day['most_gpus'])} GPUs at its peak, {base} held all "
        f"day, {cost}.",
        figures=[
            Figure(name="GPUs at the peak", text=formatting.format_count(day["most_gpus"])),
            Figure(
                name="cost of a day",
                text=cost,
                between=f"{formatting.format_count(day['gpu_hours'])} GPU-hours",
            ),
            Figure(
                name="used",
                text=formatting.format_percent(day["utilization"]),
                between="of what is paid for",
            ),
        ],
        evidence=evidence(basis[0] if basis else ""),
        chart=ranking(
            document.workload, day_rows, _COST, lambda row: str(row[GPU]), "The cost of a day"
        ),
    )


def _with_services(
    page: Page, document: ResultDocument, rows: Sequence[ResultRow], pools: Sequence[object]
) -> Page:
    """Return the page with the GPUs of all services and their cost first."""
    pool_rows = [ResultRow(read_row(document.where, pool), document.row_name) for pool in pools]
    names = [*dict.fromkeys(str(row["service"]) for row in rows)]
    where = formatting.join_words(
        [f"{formatting.format_count(pool['most_gpus'])} x {pool[GPU]}" for pool in pool_rows]
    )
    total = sum(pool[_COST] for pool in pool_rows)
    gpus = sum(pool["most_gpus"] for pool in pool_rows)
    hours = formatting.format_count(sum(pool["gpu_hours"] for pool in pool_rows))
    placed = [row for row in rows if number_of(row, "share") > 0]
    weakest = max(placed, key=evidence_rank_of, default=rows[0])
    return replace(
        page,
        title=f"Where do {formatting.join_words(names)} run together?",
        headline=(
            f"{formatting.format_count(len(names))} services run on {where}: "
            f"{format_result(_COST, total)} a day."
        ),
        figures=[
            Figure(name="GPUs at most", text=formatting.format_count(gpus), between=(
                f"{hours} "
                "GPU-hours a day"
            )),
            Figure(
                name="cost of a day", text=format_result(_COST, total),
                between=f"{format_result(_COST, total * DAYS_PER_MONTH)} a month",
            ),
        ],
        answer=page.answer[1:],
        evidence=evidence(weakest.get("basis"), weakest.get("evidence_runs")),
    )  # fmt: skip


def _day(
    document: ResultDocument, rows: Sequence[ResultRow], days: Sequence[object]
) -> list[Block]:
    """Return tables of a day on each GPU and by hour; files of older versions have only hours."""
    gpus = [str(row["gpu"]) for row in rows]
    columns = hour_columns(rows)
    if len(set(gpus)) > 1:
        columns.insert(0, Column("gpu", gpus, "GPU", numeric=False))
    others = [name for name in rows[0] if name in _DAY_COLUMNS]
    hours = make_table("hours", HOURLY, document.workload, rows, others, first=columns)
    if not days:
        return [hours]
    day_rows = [ResultRow(read_row(document.where, day), document.row_name) for day in days]
    table = replace(days_table(day_rows), name="days", caption=A_DAY, is_small=True)
    blocks: list[Block] = [table, make_lines(*map(str, document.part("day", list)))]
    if scaled := document.part("scaled", list):
        day_rows = [ResultRow(read_row(document.where, day), document.row_name) for day in scaled]
        scaled_days = scaled_table(day_rows)
        blocks.append(replace(scaled_days, name="scaled", caption=SCALED, is_small=True))
    return [*blocks, hours]


def _services(
    document: ResultDocument, rows: Sequence[ResultRow], pools: Sequence[object]
) -> list[Block]:
    """Return tables of the GPU types of each service, and of the GPUs of each type."""
    pool_rows = [ResultRow(read_row(document.where, pool), document.row_name) for pool in pools]
    placed, shared = fit_table(placed_columns(rows)), fit_table(pool_columns(pool_rows))
    cuts = [
        ResultRow(read_row(document.where, cut), document.row_name)
        for cut in document.part("cuts", list)
    ]
    tables: list[Block] = [
        replace(placed, name="services", caption=PLACED),
        replace(shared, name="pools", caption=POOLS, is_small=True),
    ]
    if len(cuts) > 1:
        tables.append(
            replace(fit_table(cut_columns(cuts)), name="cuts", caption=CUTS, is_small=True)
        )
    return tables


def _choices(workload: Workload, rows: Sequence[ResultRow]) -> list[Block]:
    """Return a table of all choices, and a chart of their cost and number of GPUs."""
    is_carried = PER_MEGAWATT in rows[0]
    first = carried_columns(rows) if is_carried else [*choice_columns(rows)]
    margins = [name for name in rows[0] if name.startswith("spare_")]
    costs = [name for name in COSTS if name in rows[0]]
    shown = {PLAN, *(column.name for column in first)}
    others = shown_columns(
        workload, rows, costs, dict.fromkeys([*_CHOICE_COLUMNS, *PLACEMENT_COLUMNS])
    )
    names = [name for name in dict.fromkeys([*others, *margins]) if name not in shown]
    caption = MOST_TOKENS if is_carried else BY_COST
    table = make_table("choices", caption, workload, rows, names, [BEST], first=first)
    table = replace(table, hints=[hints(workload, row) for row in rows[:MOST_ROWS]])
    labels = [
        f"{row['num_gpus']:,} x {_gpu_and_contract(row)}: {layout_of(workload, row)}"
        for row in rows
    ]
    bars = breakdowns(labels[:MOST_BARS], rows[:MOST_BARS])
    axes = [head.name for head in table.heads]
    return [*front_chart("choices", axes, [*costs[:1], "num_gpus"]), table, *bars]


def _gpu_and_contract(row: Mapping[str, Any]) -> str:
    """The GPU and the contract of a row."""
    return f"{row.get('gpu', '')} {row.get('contract') or ''}".strip()
