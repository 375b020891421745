"""Builds the page of a file or directory."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from planner.base import formatting
from planner.base.read_files import RESULT, read_json
from planner.base.records import record
from planner.decide.assumptions import SensitiveAssumption
from planner.decide.explain.explanation import Explanation
from planner.errors import InfeasibleError, PlannerError, SpecError
from planner.question.names import GPU
from planner.question.terms import glossary, terms_of
from planner.show.output_blocks import (
    BEST,
    TIE,
    Bars,
    Block,
    KeyValues,
    Lines,
    Page,
    RankingChart,
    Section,
    Title,
    joined,
    text_table,
)
from planner.show.presenters.explanation import sensitivities_blocks
from planner.show.presenters.format_results import (
    Ends,
    format_result,
    label,
    layout_of,
    number_of,
    plan_of,
)
from planner.show.presenters.infeasible import infeasible_message
from planner.show.presenters.load_check import start_pairs
from planner.show.presenters.pareto_front import objective_column, percentile_columns
from planner.show.presenters.plan_report import PlanReport, estimate_report, summary_blocks
from planner.show.presenters.question_summary import ASSUMED
from planner.show.presenters.search import compared_columns, fastest_line, format_tie
from planner.show.presenters.uncertainty import (
    format_fit,
    format_regret,
    report_columns,
    result_pairs,
    ties,
    uncertainty_lines,
)
from planner.show.reports import (
    SUPPORTED_FILES,
    EstimateReport,
    ExplanationReport,
    LargestReport,
    LimitChance,
    PlanEvidence,
    PlansReport,
    Report,
    ResultRow,
    SearchReport,
    SizeReport,
    SpecsReport,
    result_from_json,
    version_notes,
)
from planner.show.saved_blocks import load_blocks
from planner.specs.catalogue import Catalogue
from planner.sweeps.sweep_folder import Sweep
from planner.ui.pages.comparison import plans_page, sizes_page, specs_page
from planner.ui.pages.headline import (
    ends_of_row,
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
    AXES,
    CHANGES,
    MOST_BARS,
    MOST_ROWS,
    PLACEMENT_COLUMNS,
    PLAN,
    add_new_prediction,
    assumptions,
    breakdowns,
    facts_section,
    front_chart,
    make_table,
    manifest_section,
    shown_columns,
    used_specs,
)
from planner.ui.pages.sweep import sweep_page
from planner.workloads.make_plan import evaluate, make_single_plan, result_of
from planner.workloads.saved_plan import SavedPlan
from planner.workloads.workload import Workload

_PLAN_KEYS = {"workload", "answers", "parameters"}


def read_page(path: Path, specs: Path | None = None) -> Page:
    """Return the page of a file with a result or a plan, or of the directory of a sweep.

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
    page = result_page(result, catalogue)
    if isinstance(result, SearchReport) and result.recommended is not None:
        return add_new_prediction(page, result.recommended)
    return page


def result_page(result: Report, catalogue: Catalogue) -> Page:
    """Return the page of the result of a command.

    Raises SpecError if it has no page, or lacks a column; InfeasibleError if it has no plan.
    """
    if isinstance(result, SearchReport):
        return search_page(result, catalogue)
    if isinstance(result, EstimateReport):
        return estimate_page(result, catalogue)
    if isinstance(result, SizeReport):
        return sizes_page(result, catalogue)
    if isinstance(result, PlansReport):
        return plans_page(result)
    if isinstance(result, SpecsReport):
        return specs_page(result)
    if isinstance(result, ExplanationReport):
        page, _ = _predicted_page(result.plan, result.where, catalogue)
        explained = summary_page(result, f"Where do the time and memory of {page.subject} go?")
        sections = [*explained.sections, *page.sections]
        return replace(page, title=explained.title, answer=explained.answer, sections=sections)
    if isinstance(result, LargestReport):
        return summary_page(result, LARGEST_TITLE)
    raise SpecError(f"{result.where}: no page can be made of this result: {SUPPORTED_FILES}.")


def plan_page(pinned: SavedPlan, where: str, catalogue: Catalogue) -> Page:
    """Return the page of a plan file, with a new prediction."""
    page, explained = _predicted_page(pinned, where, catalogue)
    changes = Section(title=CHANGES, blocks=[*sensitivities_blocks(explained, is_full=False)])
    return replace(page, sections=[*page.sections, changes])


def _predicted_page(
    pinned: SavedPlan, where: str, catalogue: Catalogue
) -> tuple[Page, Explanation]:
    """Return the page of a new prediction of a plan, and its explanation."""
    try:
        plan = make_single_plan(pinned.request())
        evaluation = evaluate(plan)
        if evaluation.rejected_by:
            raise InfeasibleError(infeasible_message(plan, result_of(plan, evaluation), evaluation))
        report = estimate_report(plan, evaluation, ["estimate", "--plan", where])
    except PlannerError as error:
        raise type(error)(f"{where}: {error}") from error
    page = estimate_page(report, catalogue)
    notes = [line.replace("this page by", "estimated by") for line in version_notes(pinned.version)]
    if pinned.defaulted:
        notes.append(f"Missing parameters have their defaults: {', '.join(pinned.defaulted)}.")
    page = replace(page, question=[*page.question, *notes])
    return page, Explanation(plan=plan, evaluation=evaluation)


LARGEST_TITLE = "What is the largest that fits?"
"""Title of the pages of `planner max-batch` and `planner max-length`."""

_SHOWN_SECTIONS = 3
_PARTS = "Where do time and memory go?"
_SIZE_OF = re.compile(r" \([\d.,]+ \w+ parameters[^)]*\)")
_FIRST = 3
_MEMORY = "peak_memory_gib"


def search_page(report: SearchReport, catalogue: Catalogue) -> Page:
    """Return the page of a result of a search.

    Raises SpecError if the result lacks a part or a column.
    Raises InfeasibleError if the search recommends nothing.
    """
    row, workload = report.recommended_row, report.workload
    if row is None:
        raise InfeasibleError(f"{report.where}: the search recommends no plan.")
    goals = _goals(report, report.comparisons, row)
    sure = report.recommended_sure
    best, other, lines = report.fastest_row, report.tied_row, list[str]()
    if other is not None and goals:
        lines.append(format_tie(workload, goals[0], row, other))
    if best is not None and goals:
        lines.append(fastest_line(goals[0], row, best, plan_of(workload, best)))
    moved = suggestion_ranking(row, report.levers)
    changes = Section(title=CHANGES, blocks=[moved] if moved else [])
    page = _page(
        report,
        catalogue,
        row,
        goals,
        [
            *([_alternatives(report, goals)] if report.comparisons else []),
            _front(report, row, goals),
            _times(report, row),
        ],
        _Prediction(
            sure, report.recommended_limits, report.recommended_load, report.open_facts, changes
        ),
    )
    lost = format_regret(sure.regret, label(goals[0])) if goals else ""
    page = replace(
        page,
        sure=[*page.sure, *([f"{lost}."] if lost else [])],
        title=f"What is the best way to {verb(workload)} {_question_subject(report)}?",
        answer=[*page.answer, *(f"{line}." for line in lines if line)],
        chart=_best_of_each(report, row, goals) if goals else None,
    )
    return with_glossary(page, workload.name)


def _question_subject(report: Report) -> str:
    """The model and its GPUs as in the question, without the size of the model."""
    first = next(iter(report.manifest.get("question") or ()), report.manifest.get("model"))
    return _SIZE_OF.sub("", str(first or "it"))


def _best_of_each(
    report: SearchReport, row: ResultRow, goals: Sequence[str]
) -> RankingChart | None:
    """Return a chart of the best plan for each GPU or other compared value, by objective.

    Without a comparison, the chart has the first plans of the front.
    """
    workload, compared = report.workload, report.comparisons
    shown = [axis for axis in (GPU, *compared) if axis in compared and len(compared[axis].rows) > 1]
    rows: Sequence[ResultRow]
    if shown:
        rows = compared[shown[0]].rows
        plans_text = f"the best plan of each {AXES.get(shown[0]) or shown[0].replace('_', ' ')}"
        names = [str(plan_row[shown[0]]) for plan_row in rows]
    else:
        rows = [row, *(other for other in report.rows if not _is_same(workload, other, row))]
        plans_text = "the first plans"
        names = [layout_of(workload, plan_row) for plan_row in rows]
    caption = f"The {label(goals[0])} of {plans_text}, and 90 % intervals"
    named = {id(plan_row): name for plan_row, name in zip(rows, names, strict=True)}
    factor = report.recommended_sure.tie_factor
    return ranking(workload, rows, goals[0], lambda plan_row: named[id(plan_row)], caption, factor)


@record()
class _Prediction:
    """What a file has of a predicted plan: evidence, limits, load, and what would change it."""

    sure: PlanEvidence
    limits: Sequence[LimitChance]
    load: str
    facts: Sequence[SensitiveAssumption]
    changes: Section | None = None


def _page(
    report: Report,
    catalogue: Catalogue,
    row: ResultRow,
    goals: Sequence[str],
    sections: Sequence[Section],
    prediction: _Prediction,
) -> Page:
    """Return the page of a row's plan: its results, their uncertainty and its assumptions."""
    manifest, is_search = report.manifest, isinstance(report, SearchReport)
    sure, limits, facts = prediction.sure, prediction.limits, prediction.facts
    wording, ends = report.workload.wording, ends_of_row(row)
    limited = percentile_columns(manifest.get("constraints") or (), row)
    names = report_columns(wording, goals, limited, row, row)
    start_text = ", ".join(f"{name} {text}" for name, text in start_pairs(row).items())
    started = f"At its start the engine prints: {start_text}." if start_text else ""
    changes = facts_section(wording, facts)
    moved = [] if prediction.changes is None else prediction.changes.blocks
    price_text = format_price(row)
    return Page(
        title=f"How fast is {_question_subject(report)}, and what does it cost?",
        subject=str(manifest.get("model") or "the model"),
        question=[
            *map(str, manifest.get("question") or ()),
            *([f"Price: {price_text}."] if price_text else []),
            *report.version_notes,
        ],
        headline=headline(report.workload, row, "runs best" if is_search else "runs"),
        figures=figures(row, ends, [limit.probability for limit in limits]),
        evidence=evidence(sure.basis, row.get("evidence_runs")),
        answer=[
            _sentence(report.workload, row, names, ends, "Recommended: " if is_search else ""),
            *filter(None, (prediction.load, started)),
        ],
        reached=result_pairs(names, row, ends, row[_MEMORY] + row["memory_headroom_gib"]),
        sure=uncertainty_lines(
            sure.basis,
            [{"name": o.name, "bound": o.bound, "probability": o.probability} for o in limits],
            facts,
            row.get("evidence_runs"),
            str(row.get("gpu") or ""),
        ),
        sections=[
            *sections,
            replace(changes, blocks=[*moved, *changes.blocks]),
            assumptions(used_specs(manifest.get("specs") or {}, [row]), catalogue, manifest),
            manifest_section(manifest),
        ],
    )


def _alternatives(report: SearchReport, goals: Sequence[str]) -> Section:
    """Return a table for each axis, the recommended plan first; without plans folded."""
    blocks: list[Block] = []
    objectives = report.manifest.get("objectives") or [""]
    term, workload = glossary().get(str(objectives[0])), report.workload
    for axis, compared in report.comparisons.items():
        rows = compared.rows
        axis_label = AXES.get(axis) or axis.replace("_", " ")
        if rows and term is not None:
            first = compared_columns(
                workload, report.comparisons, axis, rows, [number_of(row, "loss") for row in rows],
                column=goals[0], goal=term.term, sign=term.sign,
            )  # fmt: skip
            shown = {PLAN, *(column.name for column in first)}
            others = shown_columns(workload, rows, goals, dict.fromkeys([axis, *PLACEMENT_COLUMNS]))
            names = [name for name in others if name not in shown]
            factor = report.recommended_sure.tie_factor
            tied = ties([number_of(row, goals[0]) for row in rows], factor)
            caption = f"The best plan of each {axis_label}"
            marks = [BEST, *[TIE if is_tied else "" for is_tied in tied[1:]]]
            table = make_table(f"by_{axis}", caption, workload, rows, names, marks,
                               is_small=True, first=first)  # fmt: skip
            blocks.append(replace(table, hints=[hints(workload, row) for row in rows]))
        reasons = [(n, reason.replace("_", " ")) for n, reason in compared.without_plan.items()]
        if reasons:
            no_plan = text_table(
                (axis_label, "why it has no plan"), reasons, text_columns=(0, 1), name=f"no_{axis}"
            )
            caption = f"{formatting.format_count(len(reasons))} without a plan, and why"
            blocks.append(replace(no_plan, caption=caption, is_folded=True))
    return Section(title="How do the alternatives compare?", blocks=blocks)


def _front(report: SearchReport, row: ResultRow, goals: Sequence[str]) -> Section:
    """Return the front as a chart and a table; the recommended plan is marked and first."""
    workload, rows, factor = report.workload, [*report.rows], report.recommended_sure.tie_factor
    tied = [bool(candidate["tied"]) for candidate in rows if "tied" in candidate]
    tied = tied or ties(
        [number_of(candidate, goals[0] if goals else "") for candidate in rows], factor
    )
    best = [_is_same(workload, candidate, row) for candidate in rows]
    marks = [BEST if b else TIE if tie else "" for b, tie in zip(best, tied, strict=True)]
    first = marks.index(BEST) if BEST in marks else None
    rows = [row, *(candidate for n, candidate in enumerate(rows) if n != first)]
    marks = [BEST, *(mark for n, mark in enumerate(marks) if n != first)]
    columns = shown_columns(workload, rows, goals)
    notes = ["Marked: the recommended plan."]
    if TIE in marks:
        notes.append(f"~ tied with the best within x{factor:.2f}.")
    names = " and ".join(label(name) for name in goals)
    table = make_table("front", f"No plan beats these in {names}", workload, rows, columns, marks,
                       notes)  # fmt: skip
    table = replace(table, hints=[hints(workload, candidate) for candidate in rows[:MOST_ROWS]])
    return Section(
        title="Which plans are on the Pareto front?",
        blocks=[*front_chart(table.name, columns, goals), table],
    )


def _is_same(workload: Workload, first: ResultRow, second: ResultRow) -> bool:
    names = [*PLACEMENT_COLUMNS, *terms_of(workload.name, "parameter", "pool")]
    return all(first.get(name) == second.get(name) for name in names)


def _times(report: SearchReport, row: ResultRow) -> Section:
    """Return charts of time and memory of the recommended, fastest and alternative plans."""
    workload, fastest = report.workload, report.fastest_row
    labelled_rows: list[tuple[str, ResultRow]] = [("recommended", row)]
    if fastest is not None and not _is_same(workload, fastest, row):
        labelled_rows.append(("best", fastest))
    for axis, compared in report.comparisons.items():
        labelled_rows += [(str(plan_row[axis]), plan_row) for plan_row in compared.rows[1:]]
    labels = [
        f"{name}: {layout_of(workload, plan_row)}" for name, plan_row in labelled_rows[:MOST_BARS]
    ]
    return Section(
        title=_PARTS,
        blocks=breakdowns(labels, [plan_row for _, plan_row in labelled_rows[:MOST_BARS]]),
    )


def _goals(report: Report, axes: Collection[str], row: ResultRow) -> list[str]:
    """The columns of the objectives."""
    names = report.manifest.get("objectives") or []
    return [objective_column(report.workload.wording, axes, str(name), row) for name in names]


def _sentence(
    workload: Workload,
    row: ResultRow,
    names: Sequence[str],
    ends: Mapping[str, Ends],
    prefix: str,
) -> str:
    """Return a sentence with the plan, its first results, and its probability to fit."""
    costs = [name for name in names if name.endswith("_usd")]
    results = [
        f"{label(name)} {format_result(name, row[name], ends.get(name))}"
        for name in dict.fromkeys([*names[:_FIRST], *costs])
        if math.isfinite(number_of(row, name))
    ]
    where = f"{formatting.format_count(row['num_gpus'])} x {row['gpu']}"
    parts = [f"{prefix}{where}, {plan_of(workload, row)}", *results, format_fit(row)]
    return f"{'; '.join(filter(None, parts))}."


def estimate_page(report: EstimateReport, catalogue: Catalogue) -> Page:
    """Return the page of a result of an estimate: its screen, charts and full report.

    Raises SpecError if the result lacks a part or a column.
    """
    page = summary_page(report, f"How fast is {_question_subject(report)}, and what does it cost?")
    if not report.rows:
        return page
    row, workload, manifest = report.rows[0], report.workload, report.manifest
    runs = not row.get("rejected_by")
    charts = breakdowns([layout_of(workload, row)], [row])
    if not runs:
        charts = [block for block in charts if getattr(block, "name", "").startswith("memory")]
    chart = next((block for block in charts if isinstance(block, Bars)), None)
    price_text = format_price(row)
    chances = [limit.probability for limit in report.limits]
    page = replace(
        page,
        question=[*page.question, *([f"Price: {price_text}."] if price_text else [])],
        headline=page.headline or headline(workload, row, "runs"),
        figures=figures(row, ends_of_row(row), chances) if runs else (),
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
    first = "What the file sets" if "launch_file" in report.more else "What was asked"
    return Page(
        title=title,
        subject=str(manifest.get("model") or "the model"),
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
