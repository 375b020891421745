"""Builds the page of a file or directory, and of a search."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from planner.base.csv_cells import Value, number_or_nan
from planner.base.read_files import RESULT, read_json
from planner.decide.explain.explanation import Explanation
from planner.decide.sizing.purchase import PriceChange
from planner.errors import InfeasibleError, PlannerError, SearchSpaceError, SpecError
from planner.question.names import (
    CONCURRENCY,
    ENGINE,
    INPUT_TOKENS,
    LIMITS_PROBABILITY,
    MODEL,
    NUM_GPUS,
    OUTPUT_TOKENS,
)
from planner.show.output_blocks import (
    Bars,
    Block,
    KeyValues,
    Lines,
    Page,
    RankingChart,
    Section,
    Table,
    Title,
    joined,
    load_blocks,
    make_lines,
)
from planner.show.presenters.alternatives import (
    Alternatives,
    alternatives,
    alternatives_table,
    axis_blocks,
    front_line,
    legend_lines,
)
from planner.show.presenters.explanation import sensitivities_blocks
from planner.show.presenters.format_results import (
    label,
    layout_of,
    number_of,
    plan_of,
)
from planner.show.presenters.infeasible import ASSUMED, infeasible_message
from planner.show.presenters.load_check import start_pairs
from planner.show.presenters.pareto_front import (
    are_same_plan,
    front_table,
    ranked_rows,
    search_goals,
)
from planner.show.presenters.plan_report import PlanReport, estimate_report, summary_blocks
from planner.show.presenters.prices import PRICES_TITLE
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
from planner.show.reports import (
    SUPPORTED_FILES,
    EstimateReport,
    ExplanationReport,
    LargestReport,
    PlansReport,
    Report,
    ResultRow,
    SearchReport,
    SizeReport,
    SpecsReport,
    result_from_json,
    version_notes,
)
from planner.specs.catalogue import Catalogue
from planner.sweeps.sweep_folder import Sweep
from planner.ui.pages.comparison import plans_page, sizes_page, specs_page
from planner.ui.pages.result_tables import (
    CHANGES,
    MOST_BARS,
    add_new_prediction,
    assumptions,
    breakdowns,
    evidence,
    facts_section,
    figures,
    format_gpus,
    front_chart,
    headline,
    hints,
    manifest_section,
    price_lines,
    ranking,
    suggestion_ranking,
    used_specs,
    verb,
    with_glossary,
)
from planner.ui.pages.sweep import sweep_page
from planner.validation.validated_runs import nearest_runs
from planner.workloads.make_plan import evaluate, make_single_plan, result_of
from planner.workloads.saved_plan import SavedPlan

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
    question = [*question_texts(report, has_price=False)[1:], *report.price_lines]
    if not any(line.startswith(PRICES_TITLE) for line in report.price_lines):
        question += price_lines(row)
    starts, notes = start_pairs(row), note_lines(report)
    start_text = ", ".join(f"{name} {text}" for name, text in starts.items())
    subject = _question_subject(report)
    chosen = alternatives(report)
    changes = facts_section(workload.wording, report.open_facts)
    moved = suggestion_ranking(row, report.levers)
    page = Page(
        title=f"What is the best way to {verb(workload)} {subject}?",
        subject=_model(report),
        question=[
            *(line for line in question if line and line not in notes),
            *report.version_notes,
        ],
        headline=headline(workload, row),
        figures=figures(row, row_ends(row), number_of(row, LIMITS_PROBABILITY)),
        evidence=evidence(report.recommended_sure.basis, row.get("evidence_runs")),
        answer=[
            f"Recommended: {format_gpus(row)}, {plan_of(workload, row)}.",
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


def _chart(report: SearchReport, chosen: Alternatives) -> RankingChart | None:
    """Return a chart of the alternatives by the first objective; None if no row has a value."""
    workload, axis = report.workload, chosen.axis
    caption = f"The {label(chosen.column)} of the alternatives, and 90 % intervals"
    rows = sorted(chosen.rows, key=lambda row: row is not chosen.rows[chosen.recommended])
    return ranking(
        workload,
        rows,
        chosen.column,
        lambda row: str(row[axis]) if axis else layout_of(workload, row),
        caption,
        report.recommended_sure.tie_factor,
    )


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
        has_table = axis != chosen.axis and len(compared.rows) > 1
        caption = f"The recommended plan of each {AXES.get(axis) or axis.replace('_', ' ')}"
        rows_hints = [hints(workload, row) for row in compared.rows]
        blocks += [
            replace(block, caption=caption, hints=rows_hints) if isinstance(block, Table) else block
            for block in axis_blocks(report, axis, has_table=has_table)
        ]
    return Section(title="How do the alternatives compare?", blocks=blocks)


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
        goals = search_goals(report)
        named_rows.append((f"first by {label(goals[0])}" if goals else "first", fastest))
    for axis, compared in report.comparisons.items():
        named_rows += [(str(plan_row[axis]), plan_row) for plan_row in compared.rows[1:]]
    named_rows = named_rows[:MOST_BARS]
    labels = [f"{name}: {layout_of(workload, plan_row)}" for name, plan_row in named_rows]
    return Section(
        title=_PARTS, blocks=breakdowns(labels, [plan_row for _, plan_row in named_rows])
    )


_PLAN_KEYS = {"workload", "answers", "parameters"}


def read_page(
    path: Path, specs: Path | None = None, price_change: PriceChange | None = None
) -> Page:
    """Return the page of a file with a result or a plan, or of the directory of a sweep.

    ``price_change`` changes the rental prices of a size.

    Raises SpecError if the file cannot be read, is no result, or lacks a part or column.
    Raises SearchSpaceError or InfeasibleError if the plan is invalid now, or does not fit.
    """
    catalogue = Catalogue(specs)
    if os.path.isdir(path):
        return sweep_page(Sweep(path), catalogue)
    if path.suffix == ".toml":
        return plan_page(SavedPlan.read(path), str(path), catalogue)
    table = read_json(path, RESULT)
    if isinstance(table, Mapping) and {*table} >= _PLAN_KEYS:
        return plan_page(SavedPlan.from_dict(table, str(path)), str(path), catalogue)
    result = result_from_json(table, str(path))
    if price_change is not None and not isinstance(result, SizeReport):
        raise SearchSpaceError("--price-change needs a result of planner size.")
    page = result_page(result, catalogue, price_change)
    if isinstance(result, SearchReport) and result.recommended is not None:
        return add_new_prediction(page, result.recommended)
    return page


def result_page(
    result: Report, catalogue: Catalogue, price_change: PriceChange | None = None
) -> Page:
    """Return the page of the result of a command.

    Raises SpecError if it has no page, or lacks a column; InfeasibleError if it has no plan.
    """
    if isinstance(result, SearchReport):
        return search_page(result, catalogue)
    if isinstance(result, EstimateReport | ExplanationReport):
        return prediction_page(result, catalogue)
    if isinstance(result, SizeReport):
        return sizes_page(result, catalogue, price_change)
    if isinstance(result, PlansReport):
        return plans_page(result)
    if isinstance(result, SpecsReport):
        return specs_page(result)
    if isinstance(result, LargestReport):
        return summary_page(result, LARGEST_TITLE)
    raise SpecError(f"{result.where}: no page can be made of this result: {SUPPORTED_FILES}.")


def plan_page(pinned: SavedPlan, where: str, catalogue: Catalogue) -> Page:
    """Return the page of a plan file, with a new prediction."""
    try:
        plan = make_single_plan(pinned.request())
        evaluation = evaluate(plan)
        if evaluation.rejected_by:
            raise InfeasibleError(infeasible_message(plan, result_of(plan, evaluation), evaluation))
        report = estimate_report(plan, evaluation, ["estimate", "--plan", where])
    except PlannerError as error:
        raise type(error)(f"{where}: {error}") from error
    page = prediction_page(report, catalogue)
    notes = [line.replace("this page by", "estimated by") for line in version_notes(pinned.version)]
    if pinned.defaulted:
        notes.append(f"Missing parameters have their defaults: {', '.join(pinned.defaulted)}.")
    explained = Explanation(plan=plan, evaluation=evaluation)
    changes = Section(title=CHANGES, blocks=[*sensitivities_blocks(explained, is_full=False)])
    sections = [*page.sections, changes]
    return replace(page, question=[*page.question, *notes], sections=sections)


LARGEST_TITLE = "What is the largest that fits?"
"""Title of the pages of `planner max-batch` and `planner max-length`."""

_SHOWN_SECTIONS = 3


def _model(report: Report) -> str:
    return str(report.manifest.get("model") or "the model")


def _question_subject(report: Report) -> str:
    """The model and its GPUs as in the question, without the size of the model."""
    first = next(iter(report.manifest.get("question") or ()), report.manifest.get("model"))
    return SIZE_OF.sub("", str(first or "it"))


def prediction_page(report: EstimateReport | ExplanationReport, catalogue: Catalogue) -> Page:
    """Return the page of an estimate or an explanation: its screen, charts and full report.

    Raises SpecError if the result lacks a part or a column.
    """
    if isinstance(report, ExplanationReport):
        rows: Sequence[ResultRow] = (report.row,)
        title = f"Where do the time and memory of {_model(report)} go?"
    else:
        rows = report.rows
        title = f"How fast is {_question_subject(report)}, and what does it cost?"
    page = summary_page(report, title)
    if not rows:
        return page
    row, workload, manifest = rows[0], report.workload, report.manifest
    runs = not row.get("rejected_by")
    charts = breakdowns([layout_of(workload, row)], [row])
    if not runs:
        charts = [block for block in charts if getattr(block, "name", "").startswith("memory")]
    chart = next((block for block in charts if isinstance(block, Bars)), None)
    page = replace(
        page,
        question=[*page.question, *price_lines(row)],
        headline=page.headline or headline(workload, row, "runs"),
        figures=figures(row, row_ends(row), number_of(row, LIMITS_PROBABILITY)) if runs else (),
        evidence=evidence(report.sure.basis, row.get("evidence_runs")) if runs else None,
        chart=chart,
        sections=[
            Section(title=_PARTS, blocks=[block for block in charts if block is not chart]),
            *page.sections,
            assumptions(used_specs(manifest.get("specs") or {}, [row]), catalogue, manifest),
            manifest_section(manifest),
        ],
    )
    return with_glossary(page, workload.name)


def summary_page(report: PlanReport, title: str) -> Page:
    """Return a page of a report: its first screen, and a section for each title of the details."""
    blocks = [*summary_blocks(report)]
    pairs = [block.pairs for block in blocks if isinstance(block, KeyValues)]
    lines = [line for block in blocks if isinstance(block, Lines) for line in block.lines]
    sure = report.summary.sure
    tables = [block for block in blocks if not isinstance(block, KeyValues | Lines)]
    manifest = report.manifest
    first = "What the file sets" if "launch_file" in report.more else "The question"
    return Page(
        title=title,
        subject=_model(report),
        question=[*map(str, manifest.get("question") or ()), *report.version_notes],
        headline=report.summary.verdict,
        answer=[line for line in (report.summary.plan, *lines) if line and line not in sure],
        reached=pairs[0] if pairs else {},
        sure=sure,
        sections=[
            *([Section(title="In short", blocks=tables)] if tables else []),
            *(
                replace(section, is_folded=number >= _SHOWN_SECTIONS)
                for number, section in enumerate(split_sections(first, load_blocks(report.details)))
                if section.title != ASSUMED
            ),
        ],
    )


def split_sections(title: str, blocks: Iterable[Block]) -> list[Section]:
    """Return sections of blocks by their titles; ``title`` is for blocks before the first one."""
    sections: list[tuple[str, list[Block]]] = [(title, [])]
    for block in blocks:
        if isinstance(block, Title):
            sections.append((block.text, []))
        else:
            sections[-1][1].append(block)
    return [Section(title=name, blocks=content) for name, content in sections if joined(content)]
