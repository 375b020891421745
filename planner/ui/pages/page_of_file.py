"""Builds the page of a file or directory."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from planner.base import formatting
from planner.base.read_files import RESULT, read_json
from planner.errors import InfeasibleError, PlannerError, SpecError
from planner.question.names import GPU
from planner.question.terms import glossary, terms_of
from planner.show.output_blocks import (
    BEST,
    TIE,
    Bars,
    Block,
    Cell,
    ColumnHead,
    KeyValues,
    Page,
    RankingChart,
    Section,
    Table,
    text_table,
)  # fmt: skip
from planner.show.presenters.format_results import (
    Ends,
    format_result,
    label,
    layout_of,
    number_of,
    plan_of,
)
from planner.show.presenters.infeasible import infeasible_message
from planner.show.presenters.json_files import add_estimate, object_text
from planner.show.presenters.load_check import start_pairs
from planner.show.presenters.pareto_front import objective_column, percentile_columns
from planner.show.presenters.search import compared_columns, fastest_line, format_tie
from planner.show.presenters.uncertainty import (
    format_fit,
    format_regret,
    report_columns,
    result_pairs,
    ties,
    uncertainty_lines,
)
from planner.specs.catalogue import Catalogue
from planner.sweeps.sweep_folder import Sweep
from planner.ui.pages.comparison import bounds_section, comparison_page, sizes_page
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
from planner.ui.pages.result_json import (
    ESTIMATE,
    SEARCH,
    SIZE,
    ResultDocument,
    ResultRow,
    numbers,
    read_row,
    version_notes,
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
    facts_of,
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
_COMPARISON_KEYS, _EXPLANATION_KEYS = {"plans", "results", "sentences"}, {"plan", "row", "steps"}


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
    if isinstance(table, Mapping) and set(table) >= _PLAN_KEYS:
        return plan_page(SavedPlan.from_dict(table, str(path)), str(path), catalogue)
    if isinstance(table, Mapping) and isinstance(table.get("manifest"), Mapping):
        if set(table) >= _COMPARISON_KEYS or "specs" in table:
            return comparison_page(table, str(path))
        if set(table) >= _EXPLANATION_KEYS:
            return _explanation_page(table, str(path), catalogue)
    document = ResultDocument.of(table, str(path))
    page = document_page(document, catalogue)
    recommended = document.part("recommended", dict)
    if not recommended:
        return page
    return add_new_prediction(page, SavedPlan.from_dict(recommended, f"{path}: recommended"))


def _explanation_page(table: Mapping[str, Any], where: str, catalogue: Catalogue) -> Page:
    """Return the page of an explained plan: a new prediction, and its bottlenecks."""
    page = plan_page(SavedPlan.from_dict(table["plan"], where), where, catalogue)
    return replace(
        page,
        title=f"Where do the time and memory of {page.subject} go?",
        sections=[bounds_section(table, where), *page.sections],
    )


def document_page(document: ResultDocument, catalogue: Catalogue) -> Page:
    """The page of a result of a search, a size or an estimate."""
    return _PAGES[document.kind](document, catalogue)


def plan_page(pinned: SavedPlan, where: str, catalogue: Catalogue) -> Page:
    """Return the page of a plan file, with a new prediction."""
    try:
        table = _estimate_object(pinned, where)
    except PlannerError as error:
        raise type(error)(f"{where}: {error}") from error
    page = document_page(ResultDocument.of(table, where), catalogue)
    notes = [line.replace("this page by", "estimated by") for line in version_notes(pinned.version)]
    if pinned.defaulted:
        notes.append(f"Missing parameters have their defaults: {', '.join(pinned.defaulted)}.")
    return add_new_prediction(replace(page, question=[*page.question, *notes]), pinned)


def _estimate_object(pinned: SavedPlan, where: str) -> object:
    """Return the JSON object that ``planner estimate --plan`` writes."""
    plan = make_single_plan(pinned.request())
    evaluation = evaluate(plan)
    if evaluation.rejected_by:
        raise InfeasibleError(infeasible_message(plan, result_of(plan, evaluation), evaluation))
    command = ["estimate", "--plan", where]
    return json.loads(object_text(lambda files: add_estimate(files, plan, evaluation, command)))


_PARTS = "Where do time and memory go?"
_SIZE_OF = re.compile(r" \([\d.,]+ \w+ parameters[^)]*\)")
_FIRST = 3
_MEMORY = "peak_memory_gib"


def search_page(document: ResultDocument, catalogue: Catalogue) -> Page:
    """Return the page of a result of a search.

    Raises SpecError if the result lacks a part or a column.
    Raises InfeasibleError if the search recommends nothing.
    """
    row = document.row("recommended_row")
    if row is None:
        raise InfeasibleError(f"{document.where}: the search recommends no plan.")
    compared = _comparisons(document)
    goals = _goals(document, compared, row)
    factor = float(document.part("recommended_sure", dict).get("tie_factor") or 1.0)
    sections = [
        *([_alternatives(document, compared, goals, factor)] if compared else []),
        _front(document, row, goals, factor),
        _times(document, row, compared),
    ]
    best, better = document.row("fastest_row"), ""
    if best is not None and goals:
        better = fastest_line(goals[0], row, best, plan_of(document.workload, best))
    other = document.row("tied_row")
    tied = format_tie(document.workload, goals[0], row, other) if other and goals else ""
    page = _page(document, catalogue, row, goals, sections, "recommended_")
    try:
        moved = suggestion_ranking(row, document.part("levers", list))
    except (KeyError, TypeError, ValueError) as error:
        raise SpecError(f"{document.where}: its part levers is damaged ({error}).") from error
    regret = number_of(document.part("recommended_sure", dict), "regret")
    lost = format_regret(regret, label(goals[0])) if goals else ""
    page = replace(
        page,
        sure=[*page.sure, *([f"{lost}."] if lost else [])],
        sections=[
            replace(section, blocks=[moved, *section.blocks])
            if moved and section.title == CHANGES
            else section
            for section in page.sections
        ],
        title=f"What is the best way to {verb(document.workload)} {_question_subject(document)}?",
        answer=[*page.answer, *(f"{line}." for line in (tied, better) if line)],
        chart=_best_of_each(document, row, goals, compared, factor) if goals else None,
    )
    return with_glossary(page, document.workload.name)


def _question_subject(document: ResultDocument) -> str:
    """The model and its GPUs as in the question, without the size of the model."""
    first = next(iter(document.manifest.get("question") or ()), document.manifest.get("model"))
    return _SIZE_OF.sub("", str(first or "it"))


def _best_of_each(
    document: ResultDocument,
    row: ResultRow,
    goals: Sequence[str],
    compared: Compared,
    factor: float,
) -> RankingChart | None:
    """Return a chart of the best plan for each GPU or other compared value, by objective.

    Without a comparison, the chart has the first plans of the front.
    """
    workload = document.workload
    shown = [axis for axis in (GPU, *compared) if len(compared.get(axis, ((), {}))[0]) > 1]
    if shown:
        rows = compared[shown[0]][0]
        kind = AXES.get(shown[0]) or shown[0].replace("_", " ")
        plans_text, names = (
            f"the best plan of each {kind}",
            lambda plan_row: str(plan_row[shown[0]]),
        )
    else:
        rows = [
            row,
            *(candidate for candidate in document.rows if not _is_same(workload, candidate, row)),
        ]
        plans_text, names = "the first plans", lambda plan_row: layout_of(workload, plan_row)
    caption = f"The {label(goals[0])} of {plans_text}, and 90 % intervals"
    return ranking(workload, rows, goals[0], names, caption, factor)


def _page(
    document: ResultDocument,
    catalogue: Catalogue,
    row: ResultRow,
    goals: Sequence[str],
    sections: Sequence[Section],
    prefix: str = "",
) -> Page:
    """Return the page of a row's plan: its results, their uncertainty and its assumptions.

    ``prefix`` begins the names of the parts about this plan.
    """
    facts, manifest = facts_of(document), document.manifest
    confidence, limits = (
        document.part(f"{prefix}sure", dict),
        document.part(f"{prefix}limits", list),
    )
    wording, ends = document.workload.wording, ends_of_row(row)
    limited = percentile_columns(manifest.get("constraints") or (), row)
    names = report_columns(wording, goals, limited, row, row)
    specs = used_specs(manifest.get("specs") or {}, [row])
    start_text = ", ".join(f"{name} {text}" for name, text in start_pairs(row).items())
    started = f"At its start the engine prints: {start_text}." if start_text else ""
    model = str(manifest.get("model") or "the model")
    return Page(
        title=f"How fast is {_question_subject(document)}, and what does it cost?",
        subject=model,
        question=[
            *map(str, manifest.get("question") or ()),
            *([f"Price: {price_text}."] if (price_text := format_price(row)) else []),
            *document.notes,
        ],
        headline=headline(document.workload, row, "runs best" if prefix else "runs"),
        figures=figures(row, ends, limits),
        evidence=evidence(confidence.get("basis"), row.get("evidence_runs")),
        answer=[
            _sentence(document, row, goals, ends, "Recommended: " if prefix else ""),
            *filter(None, (document.part(f"{prefix}load", str), started)),
        ],
        reached=result_pairs(names, row, ends, row[_MEMORY] + row["memory_headroom_gib"]),
        sure=uncertainty_lines(
            str(confidence.get("basis") or ""),
            limits,
            facts,
            row.get("evidence_runs"),
            str(row.get("gpu") or ""),
        ),
        sections=[
            *sections,
            facts_section(wording, facts),
            assumptions(specs, catalogue, manifest),
            manifest_section(manifest),
        ],
    )


Compared = Mapping[str, tuple[Sequence[ResultRow], Mapping[str, str]]]


def _comparisons(document: ResultDocument) -> Compared:
    """Return the best plan of every value of each axis, and why values have no plan."""
    comparisons = {}
    for axis, comparison in document.part("comparisons", dict).items():
        table = comparison if isinstance(comparison, Mapping) else {}
        rows, without = table.get("rows"), table.get("without_plan", {})
        if not isinstance(rows, list) or not isinstance(without, Mapping):
            raise SpecError(f"{document.where}: its comparison of {axis} is damaged.")
        plans = [ResultRow(read_row(document.where, row), document.row_name) for row in rows]
        comparisons[str(axis)] = (plans, without)
    return comparisons


def _alternatives(
    document: ResultDocument, compared: Compared, goals: Sequence[str], factor: float
) -> Section:
    """Return a table for each axis, the recommended plan first; without plans folded."""
    blocks: list[Block] = []
    objectives = document.manifest.get("objectives") or [""]
    term, workload = glossary().get(str(objectives[0])), document.workload
    for axis, (rows, without) in compared.items():
        axis_label = AXES.get(axis) or axis.replace("_", " ")
        if rows and term is not None:
            first = compared_columns(
                workload, compared, axis, rows, [number_of(row, "loss") for row in rows],
                column=goals[0], goal=term.term, sign=term.sign,
            )  # fmt: skip
            shown = {PLAN, *(column.name for column in first)}
            others = shown_columns(workload, rows, goals, dict.fromkeys([axis, *PLACEMENT_COLUMNS]))
            names = [name for name in others if name not in shown]
            tied = ties([number_of(row, goals[0]) for row in rows], factor)
            caption, marks = (
                f"The best plan of each {axis_label}",
                [BEST, *[TIE if is_tied else "" for is_tied in tied[1:]]],
            )
            table = make_table(f"by_{axis}", caption, workload, rows, names, marks,
                               is_small=True, first=first)  # fmt: skip
            blocks.append(replace(table, hints=[hints(workload, row) for row in rows]))
        reasons = [(str(value), str(reason).replace("_", " ")) for value, reason in without.items()]
        if reasons:
            no_plan = text_table(
                (axis_label, "why it has no plan"), reasons, text_columns=(0, 1), name=f"no_{axis}"
            )
            caption = f"{formatting.format_count(len(reasons))} without a plan, and why"
            blocks.append(replace(no_plan, caption=caption, is_folded=True))
    return Section(title="How do the alternatives compare?", blocks=blocks)


def _front(
    document: ResultDocument, row: ResultRow, goals: Sequence[str], factor: float
) -> Section:
    """Return the front as a chart and a table; the recommended plan is marked and first."""
    workload, rows = document.workload, [*document.rows]
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


def _times(document: ResultDocument, row: ResultRow, compared: Compared) -> Section:
    """Return charts of time and memory of the recommended, fastest and alternative plans."""
    workload, fastest = document.workload, document.row("fastest_row")
    labelled_rows: list[tuple[str, ResultRow]] = [("recommended", row)]
    if fastest is not None and not _is_same(workload, fastest, row):
        labelled_rows.append(("best", fastest))
    for axis, (rows, _) in compared.items():
        labelled_rows += [(str(plan_row[axis]), plan_row) for plan_row in rows[1:]]
    labels = [
        f"{name}: {layout_of(workload, plan_row)}" for name, plan_row in labelled_rows[:MOST_BARS]
    ]
    return Section(
        title=_PARTS,
        blocks=breakdowns(labels, [plan_row for _, plan_row in labelled_rows[:MOST_BARS]]),
    )


def _goals(document: ResultDocument, axes: Collection[str], row: ResultRow) -> list[str]:
    """The columns of the objectives."""
    names = document.manifest.get("objectives") or []
    wording = document.workload.wording
    return [objective_column(wording, axes, str(name), row) for name in names]


def _sentence(
    document: ResultDocument,
    row: ResultRow,
    goals: Sequence[str],
    ends: Mapping[str, Ends],
    prefix: str,
) -> str:
    """Return a sentence with the plan, its first results, and its probability to fit."""
    names = report_columns(document.workload.wording, goals, (), row, row)
    costs = [name for name in names if name.endswith("_usd")]
    columns = [name for name in dict.fromkeys([*names[:_FIRST], *costs]) if numbers([row[name]])]
    results = [
        f"{label(name)} {format_result(name, row[name], ends.get(name))}" for name in columns
    ]
    where = f"{formatting.format_count(row['num_gpus'])} x {row['gpu']}"
    parts = [f"{prefix}{where}, {plan_of(document.workload, row)}", *results, format_fit(row)]
    return f"{'; '.join(filter(None, parts))}."


def estimate_page(document: ResultDocument, catalogue: Catalogue) -> Page:
    """Return the page of a result of an estimate.

    Raises SpecError if the result lacks a part or a column.
    Raises InfeasibleError if the configuration is rejected.
    """
    row, workload = document.rows[0], document.workload
    if rejected := row.get("rejected_by"):
        raise InfeasibleError(f"{document.where}: the configuration is rejected by {rejected}.")
    operators = document.part("operators", list)
    settings = {  # every parameter without its default
        label(name): formatting.format_parameter(row[name])
        for name, term in terms_of(workload.name, "parameter", "derived", "pool").items()
        if row.get(name) is not None and row[name] != term.default_value
    }
    sections = [
        Section(title="What is the plan?", blocks=[KeyValues(pairs=settings)]),
        Section(title=_PARTS, blocks=breakdowns([layout_of(workload, row)], [row])),
        *([_operators(document.where, operators)] if operators else []),
    ]
    page = _page(document, catalogue, row, _goals(document, (), row), sections)
    bars = [block for block in sections[1].blocks if isinstance(block, Bars)]
    if bars:
        rest = [block for block in sections[1].blocks if block is not bars[0]]
        sections = [
            replace(section, blocks=rest) if section.title == _PARTS else section
            for section in page.sections
        ]
        page = replace(page, chart=bars[0], sections=sections)
    return with_glossary(page, document.workload.name)


def _operators(where: str, operators: Sequence[object]) -> Section:
    """Return a table of the time of every operator, the longest first."""
    rows = [row for row in operators if isinstance(row, Mapping)]
    if len(rows) < len(operators):
        raise SpecError(f"{where}: its part operators is damaged.")
    names = [*dict.fromkeys(name for row in rows for name in row)]
    heads = [
        ColumnHead(name=name, text=head_text + " ms" * is_time, numeric=is_time)
        for name in names
        for head_text, is_time in [(name.removesuffix("_s").replace("_", " "), name.endswith("_s"))]
    ]
    if "total_s" in names:
        rows.sort(key=lambda row: -sum(numbers([row.get("total_s")])))
    cells = [[_cell(name, row.get(name)) for name in names] for row in rows]
    table = Table(name="operators", caption="Time by operator, of a step", heads=heads, rows=cells)
    return Section(title="Which operators take the time?", blocks=[table])


def _cell(name: str, value: object) -> Cell:
    if isinstance(value, float) and name.endswith("_s"):
        return Cell(text=f"{1e3 * value:,.2f}", number=1e3 * value)
    number = float(value) if isinstance(value, int | float) else None
    return Cell(text="-" if value is None else str(value), number=number)


_PAGES = {SEARCH: search_page, ESTIMATE: estimate_page, SIZE: sizes_page}
