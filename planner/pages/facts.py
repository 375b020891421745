"""What would change the answer: the facts that nobody gave and that move it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from planner.decide.open_facts import MovingFact, widened
from planner.errors import PlannerError, SpecError
from planner.explaining.explanation import Explanation
from planner.optimize.result_columns import ends_of
from planner.pages.document import Document, Row
from planner.plan.pinned import PinnedPlan
from planner.plan.plan import evaluated, one_configuration
from planner.report.explanation import HEADS, question_lines, what_if_rows
from planner.report.sure import moved_columns, other_formats, range_words
from planner.report.told import Ends
from planner.show.page import Block, Cell, Head, Lines, Page, Section, Table
from planner.workloads.base import Wording

CHANGES = "What would change the answer"
"""The title of the section of open facts and of what other hardware or questions would give."""

_NOTHING = "Nothing that nobody gave moves the answer by more than 10 %."
_HELD = "The intervals on this page hold each of these, one at a time."
_OTHER_SPECS = (
    "Specs have changed since, so that nothing is predicted anew here: planner explain does it."
)


def facts_of(document: Document) -> list[MovingFact]:
    """The facts of a document.

    Raises
    ------
    SpecError
        They are damaged.
    """
    try:
        return [MovingFact.from_dict(one) for one in document.part("open_facts", list)]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise SpecError(f"{document.where}: its part open_facts is damaged ({error}).") from error


def facts_section(wording: Wording, facts: Sequence[MovingFact]) -> Section:
    """What was assumed, what else was tried, and what that moves, a row for each fact."""
    rows = []
    for fact in facts:
        moved = [range_words(name, *fact.moved[name]) for name in moved_columns(wording, fact)]
        lacking = [f"does not fit with {' or '.join(fact.does_not_fit)}"] * bool(fact.does_not_fit)
        cells = (
            fact.name,
            fact.assumed,
            ", ".join(fact.tried),
            "; ".join([*moved, *other_formats(fact), *lacking]),
        )
        rows.append([Cell(text=words) for words in cells])
    heads = ("fact", "assumed", "tried", "then")
    table = Table(
        name="facts",
        caption="Not given, and it matters",
        heads=[Head(name=name, text=name) for name in heads],
        rows=rows,
        is_small=True,
    )
    is_open = any(fact.ends for fact in facts)
    blocks: list[Block] = [table] if rows else [Lines(lines=[_NOTHING])]
    return Section(
        title=CHANGES,
        blocks=[*blocks, Lines(lines=[_HELD])] if is_open else blocks,
    )


def ends_in(row: Row, facts: Sequence[MovingFact]) -> Mapping[str, Ends]:
    """The ends of the intervals of a row by column, as wide as facts ask."""
    ends = {}
    for column in row:
        low, high = ends_of(column)
        if isinstance(row.get(low), float | int) and isinstance(row.get(high), float | int):
            ends[column] = (float(row[low]), float(row[high]))
    return widened(ends, facts)


def with_what_if(page: Page, pinned: PinnedPlan) -> Page:
    """The page with what 10 % of each fact, a node or another length would change."""
    blocks = _blocks(pinned)
    return replace(
        page,
        sections=[
            replace(one, blocks=[*one.blocks, *blocks]) if one.title == CHANGES else one
            for one in page.sections
        ],
    )


def _blocks(pinned: PinnedPlan) -> list[Block]:
    try:
        plan = one_configuration(pinned.request())
    except PlannerError as error:  # a file or a folder of specs is no longer there
        return [Lines(lines=[f"Not predicted anew: {error}"])]
    if any(pinned.specs.get(name, digest) != digest for name, digest in plan.digests.items()):
        return [Lines(lines=[_OTHER_SPECS])]
    explained = Explanation(plan=plan, found=evaluated(plan))
    table = Table(
        name="what_if",
        caption="10 % worse and better, each predicted anew",
        heads=[Head(name=name, text=name, numeric=name in HEADS[2:]) for name in HEADS],
        rows=[[Cell(text=word) for word in row] for row in what_if_rows(explained, is_full=False)],
        is_small=True,
    )
    return [table, Lines(lines=[*question_lines(explained, is_full=False)])]
