"""The page of one configuration: what it reaches, and where its time and memory go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from planner.base import text
from planner.errors import InfeasibleError, SpecError
from planner.pages.answer import goals_of, reached, sentence, sure_lines
from planner.pages.assumptions import assumptions, rests_of
from planner.pages.content import Cell, Head, Page, Pairs, Section, Table
from planner.pages.document import Document
from planner.pages.facts import facts_of, facts_section
from planner.pages.manifest import manifest_section
from planner.pages.parts import breakdowns
from planner.pages.table import layout_of
from planner.question.terms import terms_of
from planner.report.told import label
from planner.specs.catalogue import Catalogue


def estimate_page(document: Document, catalogue: Catalogue) -> Page:
    """The page of what an estimate wrote.

    Raises
    ------
    SpecError
        It lacks a part or a column.
    InfeasibleError
        The configuration is rejected.
    """
    row, manifest = document.rows[0], document.manifest
    if rejected := row.get("rejected_by"):
        raise InfeasibleError(f"{document.where}: the configuration is rejected by {rejected}.")
    facts = facts_of(document)
    goals = goals_of(document, (), row)
    limits, sure = document.part("limits", list), document.part("sure", dict)
    operators = document.part("operators", list)
    return Page(
        title=str(manifest.get("model") or "Estimate"),
        question=[*map(str, manifest.get("question") or ()), *document.notes],
        answer=[sentence(document, row, goals, facts, "")],
        reached=reached(document, row, goals, facts),
        sure=sure_lines(document, sure, limits, facts),
        sections=[
            _configuration(document),
            Section(
                title="Time and memory",
                blocks=breakdowns([layout_of(document.workload, row)], [row]),
            ),
            *([_operators(document.where, operators)] if operators else []),
            facts_section(document.workload.wording, facts),
            assumptions(rests_of(manifest, row), catalogue),
            manifest_section(manifest),
        ],
    )


def _configuration(document: Document) -> Section:
    """Every parameter that is not at its plain value."""
    row = document.rows[0]
    known = terms_of(document.workload.name, "parameter", "derived", "pool")
    pairs = {
        label(name): text.value(row[name])
        for name, term in known.items()
        if row.get(name) is not None and row[name] != term.plain
    }
    return Section(title="The configuration", blocks=[Pairs(pairs=pairs)])


def _operators(where: str, operators: Sequence[Mapping[str, object]]) -> Section:
    """The time of every operator, the longest first."""
    names = [*dict.fromkeys(name for one in operators for name in _checked(where, one))]
    heads = [
        Head(name=name, text=name.removesuffix("_s").replace("_", " ") + _unit(name),
             numeric=name.endswith("_s"))
        for name in names
    ]  # fmt: skip
    rows = [[_cell(name, one.get(name)) for name in names] for one in operators]
    table = Table(name="operators", caption="Time by operator, of a step", heads=heads, rows=rows)
    return Section(title="Operators", blocks=[table])


def _checked(where: str, operator: object) -> Mapping[str, object]:
    if not isinstance(operator, Mapping):
        raise SpecError(f"{where}: its part operators is damaged.")
    return operator


def _unit(name: str) -> str:
    return " ms" if name.endswith("_s") else ""


def _cell(name: str, value: object) -> Cell:
    if isinstance(value, float) and name.endswith("_s"):
        return Cell(text=f"{1e3 * value:,.2f}", number=1e3 * value)
    number = float(value) if isinstance(value, int | float) else None
    return Cell(text="-" if value is None else str(value), number=number)
