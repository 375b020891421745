"""From a file or directory to a page."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from planner.base.reading import RESULT, read_json
from planner.errors import InfeasibleError, PlannerError
from planner.pages.assumptions import predicted_anew
from planner.pages.document import ESTIMATE, SEARCH, SIZE, Document, version_notes
from planner.pages.searched import estimate_page, search_page, sizes_page
from planner.pages.swept import sweep_page
from planner.plan.pinned import PinnedPlan
from planner.plan.plan import evaluated, one_configuration, result_of
from planner.show.page import Page
from planner.show.views.documents import add_estimate, object_text
from planner.show.views.infeasible import infeasible_message
from planner.specs.catalogue import Catalogue
from planner.sweeps.results import Sweep

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
