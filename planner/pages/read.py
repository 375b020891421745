"""From a file or directory to a page."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from planner.base.cells import Value
from planner.base.reading import RESULT, read_json
from planner.errors import InfeasibleError, PlannerError
from planner.pages.assumptions import assumptions, manifest_section, predicted_anew, specs_of_rows
from planner.pages.document import ESTIMATE, SEARCH, SIZE, Document, Row, version_notes
from planner.pages.searched import estimate_page, front_chart, search_page, sizes_page
from planner.pages.table import MOST_ROWS, PLACES, breakdowns, make_table, shown_columns
from planner.question.cells import limit_column
from planner.show.page import BEST, Block, Page, Section
from planner.show.views.documents import add_estimate, object_text
from planner.show.views.infeasible import infeasible_message
from planner.show.views.sure import fits_words
from planner.specs.catalogue import Catalogue
from planner.sweeps.columns import COST, MEASURES, TIME
from planner.sweeps.columns import PLACES as TERMS
from planner.sweeps.plan import SweepPlan
from planner.sweeps.results import Sweep
from planner.sweeps.screen import (
    BRACKETS,
    TITLES,
    best_words,
    by_group,
    counts_lines,
    found_blocks,
    group_title,
    marks_lines,
    nowhere_lines,
    plan_in_short,
)
from planner.sweeps.summary import Group, summarize
from planner.workloads.pinned import PinnedPlan
from planner.workloads.plan import evaluated, one_configuration, result_of
from planner.workloads.registry import workload_of


def sweep_page(sweep: Sweep, catalogue: Catalogue) -> Page:
    """The page of the directory of a sweep, finished or not.

    Raises
    ------
    SpecError
        It cannot be read, or a column is lacking.
    """
    plan, where = sweep.plan, str(sweep.folder)
    summary = summarize(sweep.rows(), plan)
    groups = summary.groups
    fronts = by_group(sweep.front_rows(), groups)
    first = itertools.islice(sweep.rows(), MOST_ROWS + 1)
    rows = [Row(dict(row.items()), where) for row in first]
    best = [row for group in groups for row in group.best.values()]
    numbers = {row["scenario"] for row in best}
    lines = [line for group in groups for line in _answers(group, is_named=len(groups) > 1)]
    sections = [
        Section(
            title=group_title(group),
            blocks=[
                *found_blocks(
                    group, fronts.get((group.work, group.model), ()), name=f"matrix{number}"
                ),
                *_parts(group, rows, number),
            ],
        )
        for number, group in enumerate(groups)
        if group.best
    ]
    if rows:
        sections.append(Section(title="All scenarios", blocks=_scenarios(rows, plan, numbers)))
    used = specs_of_rows(best[:1])
    how = {"version": sweep.version, "command": f"planner sweep show {where}"}
    asked = [*filter(None, [plan.description]), *counts_lines(sweep, summary)]
    return Page(
        title=plan.name,
        question=[*asked, *version_notes(sweep.version)],
        answer=lines or ["No scenario has a plan."],
        sure=[BRACKETS, *marks_lines(groups)] if best else [],
        sections=[*sections, assumptions(used, catalogue), manifest_section(how)],
    )


def _answers(group: Group, *, is_named: bool) -> list[str]:
    """The best scenarios of a group, a sentence each."""
    before = f"{group_title(group)}: " if is_named else ""
    if not group.best:
        return [f"{before}no plan at all; {'; '.join(nowhere_lines(group))}"]
    same: dict[Value, list[str]] = {}
    for measure, row in group.best.items():
        same.setdefault(row["scenario"], []).append(TITLES[measure])
    rows = {row["scenario"]: row for row in group.best.values()}
    words = {n: [*best_words(row).split("\n"), fits_words(row)] for n, row in rows.items()}
    return [
        f"{before}{' and '.join(titles).capitalize()}: {'; '.join(filter(None, words[number]))}."
        for number, titles in same.items()
    ]


def _parts(group: Group, rows: Sequence[Row], number: int) -> list[Block]:
    """Time and memory of the best scenarios."""
    best = {row["scenario"] for row in group.best.values()}
    chosen = [row for row in rows if row["scenario"] in best]
    labels = [f"{row['num_gpus']:,} x {row['gpu']}: {plan_in_short(row)}" for row in chosen]
    return breakdowns(labels, chosen, f"group{number}_") if chosen else []


def _scenarios(rows: Sequence[Row], plan: SweepPlan, best: Collection[object]) -> list[Block]:
    """Every scenario as a table, one for each workload, and cost against time as a chart."""
    blocks: list[Block] = []
    measures = [name for one in (COST, TIME) for name in MEASURES[one]]
    for workload in map(workload_of, dict.fromkeys(work.workload for work in plan.works)):
        those = [row for row in rows if row["workload"] == workload.name]
        if not those:
            continue
        goals = [name for name in measures if any(row.get(name) is not None for row in those)]
        varied = [name if name in those[0] else limit_column(name) for name in plan.varied]
        among = dict.fromkeys(["work", *varied, *TERMS, *PLACES])
        columns = ["scenario", *shown_columns(workload, those, goals, among)]
        if any(not row["feasible"] for row in those):
            columns.append("reason")
        name = f"scenarios_{workload.name}"
        table = make_table(
            name, f"Scenarios of {workload.name}", workload, those, columns,
            [BEST if row["scenario"] in best else "" for row in those],
            ["Marked: the best of each kind, as above."],
        )  # fmt: skip
        blocks += [*front_chart(name, columns, goals), table]
    return blocks


_PAGES = {SEARCH: search_page, ESTIMATE: estimate_page, SIZE: sizes_page}
_OF_PLAN = {"workload", "answers", "parameters"}


def page_of(path: Path, specs: Path | None = None) -> Page:
    """The page of a result, a plan, or the directory of a sweep.

    Raises
    ------
    SpecError
        It cannot be read, is no result, or lacks a part or column.
    SearchSpaceError, InfeasibleError
        Of a plan: it is impossible now, or does not fit.
    """
    catalogue = Catalogue(specs)
    if os.path.isdir(path):
        return sweep_page(Sweep(path), catalogue)
    if path.suffix == ".toml":
        return plan_page(PinnedPlan.read(path), str(path), catalogue)
    table = read_json(path, RESULT)
    if isinstance(table, Mapping) and set(table) >= _OF_PLAN:
        return plan_page(PinnedPlan.from_dict(table, str(path)), str(path), catalogue)
    document = Document.of(table, str(path))
    page = document_page(document, catalogue)
    recommended = document.part("recommended", dict)
    if not recommended:
        return page
    return predicted_anew(page, PinnedPlan.from_dict(recommended, f"{path}: recommended"))


def document_page(document: Document, catalogue: Catalogue) -> Page:
    """The page of what a search, a size or an estimate wrote."""
    return _PAGES[document.kind](document, catalogue)


def plan_page(pinned: PinnedPlan, where: str, catalogue: Catalogue) -> Page:
    """The page of a plan, estimated anew."""
    try:
        table = _estimated(pinned, where)
    except PlannerError as error:
        raise type(error)(f"{where}: {error}") from error
    page = document_page(Document.of(table, where), catalogue)
    notes = [line.replace("this page by", "estimated by") for line in version_notes(pinned.version)]
    if pinned.defaulted:
        notes.append(
            f"It lacks parameters, which have their defaults: {', '.join(pinned.defaulted)}."
        )
    return predicted_anew(replace(page, question=[*page.question, *notes]), pinned)


def _estimated(pinned: PinnedPlan, where: str) -> object:
    """What ``planner estimate --plan`` writes."""
    plan = one_configuration(pinned.request())
    found = evaluated(plan)
    if found.rejected_by:
        raise InfeasibleError(infeasible_message(plan, result_of(plan, found), found))
    command = ["estimate", "--plan", where]
    return json.loads(object_text(lambda files: add_estimate(files, plan, found, command)))
