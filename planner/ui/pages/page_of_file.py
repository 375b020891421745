"""Builds the page of a file or directory."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from planner.base import formatting
from planner.base.read_files import RESULT, read_json
from planner.base.records import record
from planner.decide.assumptions import SensitiveAssumption
from planner.errors import InfeasibleError, PlannerError, SpecError
from planner.question.terms import terms_of
from planner.show.output_blocks import (
    Bars,
    Column,
    KeyValues,
    Page,
    Section,
    fit_table,
)
from planner.show.presenters.format_results import (
    Ends,
    format_result,
    label,
    layout_of,
    number_cell,
    number_of,
    plan_of,
)
from planner.show.presenters.infeasible import infeasible_message
from planner.show.presenters.json_files import add_estimate
from planner.show.presenters.load_check import start_pairs
from planner.show.presenters.pareto_front import objective_column, percentile_columns
from planner.show.presenters.uncertainty import (
    format_fit,
    report_columns,
    result_pairs,
    uncertainty_lines,
)
from planner.show.reports import (
    SUPPORTED_FILES,
    EstimateReport,
    ExplanationReport,
    Json,
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
    written_report,
)
from planner.specs.catalogue import Catalogue
from planner.sweeps.sweep_folder import Sweep
from planner.ui.pages.comparison import bounds_section, plans_page, sizes_page, specs_page
from planner.ui.pages.headline import (
    ends_of_row,
    evidence,
    figures,
    format_price,
    headline,
    with_glossary,
)
from planner.ui.pages.result_tables import (
    add_new_prediction,
    assumptions,
    breakdowns,
    facts_section,
    manifest_section,
    used_specs,
)
from planner.ui.pages.search_page import search_page
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
        page = plan_page(result.plan, result.where, catalogue)
        return replace(
            page,
            title=f"Where do the time and memory of {page.subject} go?",
            sections=[bounds_section(result), *page.sections],
        )
    raise SpecError(f"{result.where}: no page can be made of this result: {SUPPORTED_FILES}.")


def plan_page(pinned: SavedPlan, where: str, catalogue: Catalogue) -> Page:
    """Return the page of a plan file, with a new prediction."""
    try:
        plan = make_single_plan(pinned.request())
        evaluation = evaluate(plan)
        if evaluation.rejected_by:
            raise InfeasibleError(infeasible_message(plan, result_of(plan, evaluation), evaluation))
        command = ["estimate", "--plan", where]
        report = written_report(
            lambda files: add_estimate(files, plan, evaluation, command), EstimateReport
        )
    except PlannerError as error:
        raise type(error)(f"{where}: {error}") from error
    page = estimate_page(report, catalogue)
    notes = [line.replace("this page by", "estimated by") for line in version_notes(pinned.version)]
    if pinned.defaulted:
        notes.append(f"Missing parameters have their defaults: {', '.join(pinned.defaulted)}.")
    return add_new_prediction(replace(page, question=[*page.question, *notes]), pinned)


_PARTS = "Where do time and memory go?"
_SIZE_OF = re.compile(r" \([\d.,]+ \w+ parameters[^)]*\)")
_FIRST = 3
_MEMORY = "peak_memory_gib"


def _question_subject(report: Report) -> str:
    """The model and its GPUs as in the question, without the size of the model."""
    first = next(iter(report.manifest.get("question") or ()), report.manifest.get("model"))
    return _SIZE_OF.sub("", str(first or "it"))


@record()
class _Prediction:
    """What a file has of a predicted plan: evidence, limits, load and assumptions."""

    sure: PlanEvidence
    limits: Sequence[LimitChance]
    load: str
    facts: Sequence[SensitiveAssumption]


def _page(
    report: Report,
    catalogue: Catalogue,
    row: ResultRow,
    goals: Sequence[str],
    sections: Sequence[Section],
    prediction: _Prediction,
) -> Page:
    """Return the page of a row's plan: its results, their uncertainty and its assumptions."""
    manifest = report.manifest
    sure, limits, facts = prediction.sure, prediction.limits, prediction.facts
    wording, ends = report.workload.wording, ends_of_row(row)
    limited = percentile_columns(manifest.get("constraints") or (), row)
    names = report_columns(wording, goals, limited, row, row)
    start_text = ", ".join(f"{name} {text}" for name, text in start_pairs(row).items())
    started = f"At its start the engine prints: {start_text}." if start_text else ""
    changes = facts_section(wording, facts)
    price_text = format_price(row)
    return Page(
        title=f"How fast is {_question_subject(report)}, and what does it cost?",
        subject=str(manifest.get("model") or "the model"),
        question=[
            *map(str, manifest.get("question") or ()),
            *([f"Price: {price_text}."] if price_text else []),
            *report.version_notes,
        ],
        headline=headline(report.workload, row),
        figures=figures(row, ends, [limit.probability for limit in limits]),
        evidence=evidence(sure.basis, row.get("evidence_runs")),
        answer=[
            _sentence(report.workload, row, names, ends),
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
            changes,
            assumptions(used_specs(manifest.get("specs") or {}, [row]), catalogue, manifest),
            manifest_section(manifest),
        ],
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
) -> str:
    """Return a sentence with the plan, its first results, and its probability to fit."""
    costs = [name for name in names if name.endswith("_usd")]
    results = [
        f"{label(name)} {format_result(name, row[name], ends.get(name))}"
        for name in dict.fromkeys([*names[:_FIRST], *costs])
        if math.isfinite(number_of(row, name))
    ]
    where = f"{formatting.format_count(row['num_gpus'])} x {row['gpu']}"
    parts = [f"{where}, {plan_of(workload, row)}", *results, format_fit(row)]
    return f"{'; '.join(filter(None, parts))}."


def estimate_page(report: EstimateReport, catalogue: Catalogue) -> Page:
    """Return the page of a result of an estimate.

    Raises SpecError if the result lacks a part or a column.
    Raises InfeasibleError if the configuration is rejected.
    """
    row, workload = report.rows[0], report.workload
    if rejected := row.get("rejected_by"):
        raise InfeasibleError(f"{report.where}: the configuration is rejected by {rejected}.")
    settings = {  # every parameter without its default
        label(name): formatting.format_parameter(row[name])
        for name, term in terms_of(workload.name, "parameter", "derived", "pool").items()
        if row.get(name) is not None and row[name] != term.default_value
    }
    charts = breakdowns([layout_of(workload, row)], [row])
    chart = next((block for block in charts if isinstance(block, Bars)), None)
    sections = [
        Section(title="What is the plan?", blocks=[KeyValues(pairs=settings)]),
        Section(title=_PARTS, blocks=[block for block in charts if block is not chart]),
        *([_operators(report.operators)] if report.operators else []),
    ]
    prediction = _Prediction(report.sure, report.limits, report.load, report.open_facts)
    page = _page(report, catalogue, row, _goals(report, (), row), sections, prediction)
    return with_glossary(replace(page, chart=chart), workload.name)


def _operators(operators: Sequence[Json]) -> Section:
    """Return a table of the time of every operator, the longest first."""
    names = [*dict.fromkeys(name for row in operators for name in row)]
    rows = sorted(operators, key=lambda row: -number_of(row, "total_s") if "total_s" in row else 0)
    columns = [
        Column(
            name, [number_cell(1e3 * number_of(row, name), "{:,.2f}".format) for row in rows],
            f"{name.removesuffix('_s').replace('_', ' ')} ms",
        )
        if name.endswith("_s")
        else Column(name, [str(row.get(name) or "-") for row in rows], name.replace("_", " "),
                    numeric=False)
        for name in names
    ]  # fmt: skip
    table = replace(fit_table(columns), name="operators", caption="Time by operator, of a step")
    return Section(title="Which operators take the time?", blocks=[table])
