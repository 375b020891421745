"""What if: the plan of a page predicted anew, with hardware, terms or the question changed."""

from __future__ import annotations

from dataclasses import replace

from planner.errors import PlannerError
from planner.explaining.explanation import Explanation
from planner.pages.content import Block, Cell, Head, Lines, Page, Table
from planner.pages.facts import CHANGES
from planner.plan.pinned import PinnedPlan
from planner.plan.plan import evaluated, one_configuration
from planner.report.what_if import HEADS, question_lines, what_if_rows

_OTHER_SPECS = (
    "Specs have changed since, so that nothing is predicted anew here: planner explain does it."
)


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
