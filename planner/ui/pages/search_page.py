"""The page of the result of a search."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from planner.base import formatting
from planner.base.csv_cells import Value, number_or_nan
from planner.errors import InfeasibleError
from planner.question.names import (
    CONCURRENCY,
    ENGINE,
    INPUT_TOKENS,
    MODEL,
    NUM_GPUS,
    OUTPUT_TOKENS,
)
from planner.show.output_blocks import (
    Block,
    Page,
    RankingChart,
    Section,
    Table,
    make_lines,
    text_table,
)
from planner.show.presenters.alternatives import (
    Alternatives,
    alternatives,
    alternatives_table,
    axis_table,
    front_line,
    legend_lines,
)
from planner.show.presenters.format_results import label, layout_of, plan_of
from planner.show.presenters.load_check import start_pairs
from planner.show.presenters.pareto_front import (
    are_same_plan,
    front_table,
    ranked_rows,
    search_goals,
)
from planner.show.presenters.recommendation import (
    SIZE_OF,
    answer_pairs,
    better_sentence,
    evidence_lines,
    note_lines,
    other_plan_lines,
    question_texts,
    regret_line,
    row_ends,
)
from planner.show.presenters.row_tables import AXES, MOST_ROWS, make_table
from planner.show.reports import ResultRow, SearchReport
from planner.specs.catalogue import Catalogue
from planner.ui.pages.headline import (
    evidence,
    figures,
    format_price,
    headline,
    hints,
    ranking,
    suggestion_ranking,
    verb,
    with_glossary,
)
from planner.ui.pages.result_tables import (
    CHANGES,
    MOST_BARS,
    assumptions,
    breakdowns,
    facts_section,
    front_chart,
    manifest_section,
    used_specs,
)
from planner.validation.nearest_runs import nearest_runs

_PARTS = "Where do time and memory go?"
_MEASURED = "measured"
_LENGTHS = (INPUT_TOKENS, OUTPUT_TOKENS)
_TIPS = ("source", "date", MODEL, ENGINE, NUM_GPUS, CONCURRENCY, *_LENGTHS)


def search_page(report: SearchReport, catalogue: Catalogue) -> Page:
    """Return the page of a result of a search.

    Raises SpecError if the result lacks a part or a column.
    Raises InfeasibleError if the search recommends nothing.
    """
    row, workload = report.recommended_row, report.workload
    if row is None:
        raise InfeasibleError(f"{report.where}: the search recommends no plan.")
    question = question_texts(report, has_price=False)[1:]
    price, starts = format_price(row), start_pairs(row)
    question += [f"Price: {price}."] if price else []
    notes = note_lines(report)
    start_text = ", ".join(f"{name} {text}" for name, text in starts.items())
    subject = SIZE_OF.sub("", str(next(iter(report.manifest.get("question") or ["it"]))))
    chosen = alternatives(report)
    changes = facts_section(workload.wording, report.open_facts)
    moved = suggestion_ranking(row, report.levers)
    page = Page(
        title=f"What is the best way to {verb(workload)} {subject}?",
        subject=str(report.manifest.get("model") or "the model"),
        question=[
            *filter(None, question),
            *(line for line in report.price_lines if line not in notes),
            *report.version_notes,
        ],
        headline=headline(workload, row),
        figures=figures(row, row_ends(row), [o.probability for o in report.recommended_limits]),
        evidence=evidence(report.recommended_sure.basis, row.get("evidence_runs")),
        answer=[
            f"Recommended: {_format_gpus(row)}, {plan_of(workload, row)}.",
            *notes,
            *other_plan_lines(report),
            *filter(None, [better_sentence(report)]),
            *([f"At its start the engine prints: {start_text}."] if starts else []),
        ],
        reached=answer_pairs(report),
        sure=[*evidence_lines(report), *filter(None, [regret_line(report)])],
        chart=None if chosen is None else _chart(report, chosen),
        sections=[
            *([_alternatives_section(report, chosen)] if chosen is not None else []),
            _front_section(report, catalogue),
            _parts_section(report, row),
            Section(title=CHANGES, blocks=[*([moved] if moved else []), *changes.blocks]),
            assumptions(
                used_specs(report.manifest.get("specs") or {}, [row]), catalogue, report.manifest
            ),
            manifest_section(report.manifest),
        ],
    )
    return with_glossary(page, workload.name)


def _format_gpus(row: ResultRow) -> str:
    return formatting.format_gpus_of_row(row)


def _chart(report: SearchReport, chosen: Alternatives) -> RankingChart | None:
    """Return a chart of the alternatives by the first objective; None if no row has a value."""
    workload, axis = report.workload, chosen.axis
    caption = f"The {label(chosen.column)} of the alternatives, and 90 % intervals"
    best, *others = [chosen.rows[chosen.recommended], *_others(chosen)]
    names = {
        id(row): str(row[axis]) if axis else layout_of(workload, row) for row in chosen.rows
    }  # fmt: skip
    factor = report.recommended_sure.tie_factor
    return ranking(
        workload, [best, *others], chosen.column, lambda row: names[id(row)], caption, factor
    )


def _others(chosen: Alternatives) -> list[ResultRow]:
    return [row for n, row in enumerate(chosen.rows) if n != chosen.recommended]


def _alternatives_section(report: SearchReport, chosen: Alternatives) -> Section:
    """Return the alternatives, a table for each further input, and values without a plan."""
    workload = report.workload
    table = replace(
        alternatives_table(report, chosen),
        hints=[hints(workload, row) for row in chosen.rows],
        notes=legend_lines(report, chosen),
    )
    blocks: list[Block] = [table]
    for axis, compared in report.comparisons.items():
        if axis != chosen.axis and len(compared.rows) > 1:
            caption = f"The recommended plan of each {_axis_label(axis)}"
            rows_hints = [hints(workload, row) for row in compared.rows]
            blocks.append(replace(axis_table(report, axis), caption=caption, hints=rows_hints))
        texts = report.rejection_texts
        reasons = [
            (value, texts.get(name, name.replace("_", " ")))
            for value, name in compared.without_plan.items()
        ]
        if reasons:
            heads = (_axis_label(axis), "why it has no plan")
            no_plan = text_table(heads, reasons, text_columns=(0, 1), name=f"no_{axis}")
            caption = f"{formatting.format_count(len(reasons))} without a plan, and why"
            blocks.append(replace(no_plan, caption=caption, is_folded=True))
    return Section(title="How do the alternatives compare?", blocks=blocks)


def _axis_label(axis: str) -> str:
    return AXES.get(axis) or axis.replace("_", " ")


def _front_section(report: SearchReport, catalogue: Catalogue) -> Section:
    """Return the front as a chart and a table with the recommended plan marked."""
    rows = ranked_rows(report)
    table = front_table(report, rows)
    table = replace(table, hints=[hints(report.workload, row.row) for row in rows[:MOST_ROWS]])
    columns = [head.name for head in table.heads]
    line = front_line(report)
    measured = _measured_table(report, catalogue)
    return Section(
        title="Which plans are on the Pareto front?",
        blocks=[
            *([make_lines(line)] if line else []),
            *front_chart(table.name, columns, search_goals(report), _MEASURED * bool(measured)),
            table,
            *measured,
        ],
    )


def _measured_table(report: SearchReport, catalogue: Catalogue) -> list[Table]:
    """Return a table of the published runs nearest to a service, in a list; empty: none."""
    answers = report.manifest.get("answers") or {}
    lengths = [number_or_nan(answers.get(name)) for name in _LENGTHS]
    if report.workload.name != "serve" or not all(map(math.isfinite, lengths)):
        return []
    gpus = {str(row["gpu"]) for row in report.rows}
    runs = nearest_runs(catalogue, str(answers.get("model")), sorted(gpus), *lengths)
    if not runs:
        return []
    columns = [name for name in runs[0] if any(run[name] not in (None, "") for run in runs)]
    caption = "Published runs of this model on these GPUs with the nearest lengths"
    tips = [{label(name): _tip(run[name]) for name in _TIPS if run[name]} for run in runs]
    table = make_table(_MEASURED, caption, report.workload, runs, columns)
    return [replace(table, hints=tips, is_folded=True)]


def _tip(value: Value) -> str:
    return f"{value:,.6g}" if isinstance(value, int | float) else str(value)


def _parts_section(report: SearchReport, row: ResultRow) -> Section:
    """Return charts of time and memory of the recommended and the alternative plans."""
    workload, fastest = report.workload, report.fastest_row
    named_rows: list[tuple[str, ResultRow]] = [("recommended", row)]
    if fastest is not None and not are_same_plan(workload, fastest, row):
        named_rows.append((_first_name(report), fastest))
    for axis, compared in report.comparisons.items():
        named_rows += [(str(plan_row[axis]), plan_row) for plan_row in compared.rows[1:]]
    named_rows = named_rows[:MOST_BARS]
    labels = [f"{name}: {layout_of(workload, plan_row)}" for name, plan_row in named_rows]
    return Section(
        title=_PARTS, blocks=breakdowns(labels, [plan_row for _, plan_row in named_rows])
    )


def _first_name(report: SearchReport) -> str:
    goals: Sequence[str] = search_goals(report)
    return f"first by {label(goals[0])}" if goals else "first"
