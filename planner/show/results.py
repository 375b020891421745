"""Return types of `planner.search`, `planner.estimate` and others: text, frames, notebook HTML."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Self

from planner.base.records import record
from planner.decide.api_comparison import ApiComparison, compare_with_apis, require_token_pricing
from planner.decide.assumptions import SensitiveAssumption, sensitive_assumptions
from planner.decide.explain.explanation import Explanation
from planner.decide.explain.operators import OperatorTimes
from planner.decide.explain.plan_comparison import ComparedPlans
from planner.decide.sizing.length_pools import LengthPools
from planner.decide.sizing.shared_services import SharedFleet
from planner.decide.sizing.size_all import Sizes
from planner.errors import InfeasibleError, SearchSpaceError
from planner.optimize.result import SearchResult
from planner.optimize.result_columns import full_columns
from planner.show.presenters.infeasible import infeasible_message
from planner.workloads.make_plan import Plan, result_of, with_assumption_notes
from planner.workloads.workload import Evaluation

if TYPE_CHECKING:
    import pandas as pd

    from planner.show.output_blocks import Block
from collections.abc import Callable, Mapping, Sequence
from html import escape

from planner.show.output_blocks import (
    BEST,
    FAINT,
    TOTAL,
    Block,
    Cell,
    Code,
    KeyValues,
    Lines,
    SideBySide,
    Table,
    TextChart,
    Title,
    text_table,
)

_ROWS = 10


class Displayable:
    """A result with a text summary and HTML tables in notebooks."""

    @classmethod
    def from_result(cls, result: Any, **more: Any) -> Self:
        """Return a displayable result with the fields of another result.

        Parameters
        ----------
        result : result
        more : further fields
        """
        return cls(**{field.name: getattr(result, field.name) for field in fields(result)}, **more)

    def summary(self, *, width: int = 80, full: bool = False) -> str:
        """Return the result as plain text: a few lines, or the report in ``full``.

        Raises SearchSpaceError if the width is not that of a text.

        Parameters
        ----------
        width : columns of the text
        full : whether to write the full report
        """
        from planner.show.terminal import terminal_text

        if isinstance(width, bool) or not isinstance(width, int) or not 20 <= width <= 1000:
            raise SearchSpaceError(
                f"The width is a number of characters from 20 on, not {width!r}."
            )
        return terminal_text(self._blocks(full), width)

    def _repr_html_(self) -> str:
        return notebook(self._blocks(False))

    def _blocks(self, full: bool) -> Iterable[Block]:
        raise NotImplementedError


class _Deployable(Displayable):
    """A result of a deployment: can be compared with API prices, or shows why it is infeasible."""

    plan: Plan
    _deployed: ClassVar[str]
    """Name of the attribute with the plan; the attribute is None if a search finds none."""

    @cached_property
    def open_facts(self) -> list[SensitiveAssumption]:
        """The assumptions that change the predictions, of a search of the recommended plan."""
        deployed = getattr(self, self._deployed)
        return [] if deployed is None else sensitive_assumptions(self.plan, deployed)

    def compare_api(self) -> ApiComparison:
        """Compare the cost of the plan, or the recommended one, with API prices per token.

        Raises SearchSpaceError if the workload is not ``serve``; InfeasibleError if nothing is
        feasible, or it does not fit or misses a limit; SpecError if a list of prices has errors.
        """
        require_token_pricing(self.plan.workload.name)
        if reason := self._why_not():
            raise InfeasibleError(reason)
        return compare_with_apis(self.plan, getattr(self, self._deployed))

    def _blocks(self, full: bool) -> Iterable[Block]:
        from planner.show.output_blocks import Code

        reason = self._why_not()
        return [Code(text=reason)] if reason else self._feasible_blocks(full)

    def _why_not(self) -> str:
        raise NotImplementedError

    def _feasible_blocks(self, full: bool) -> Iterable[Block]:
        raise NotImplementedError


@record(kw_only=True, repr=False)
class SearchAnswer(_Deployable, SearchResult):
    """Result of `planner.search`; a table in notebooks.

    Parameters
    ----------
    base_plan : plan of the question
    """

    base_plan: Plan
    _deployed = "recommended"

    @cached_property
    def plan(self) -> Plan:  # type: ignore[override]
        """The plan of the question, completed by assumptions that depend on the result."""
        return with_assumption_notes(self.base_plan, self)

    def to_frame(self) -> pd.DataFrame:
        """Return the recommended plan and the front as a pandas frame, one row per plan."""
        if self.recommended is None:
            return super().to_frame()
        import pandas as pd

        from planner.show.presenters.pareto_front import marked_rows

        return pd.DataFrame(full_columns(marked_rows(self.plan, self), self.problem.sources))

    def _why_not(self) -> str:

        return infeasible_message(self.plan, self) if self.recommended is None else ""

    def _feasible_blocks(self, full: bool) -> Iterable[Block]:
        from planner.show.presenters.search import recommended_details, search_blocks, search_report

        report = search_report(self.plan, self)
        details = recommended_details(self.plan, self) if full else ()
        return search_blocks(report, _ROWS, is_full=full, details=details)


@record(kw_only=True, repr=False)
class EstimateAnswer(_Deployable, Evaluation):
    """Result of `planner.estimate`; a table in notebooks.

    Parameters
    ----------
    plan : plan of the question
    """

    plan: Plan
    _deployed = "candidates"

    def _why_not(self) -> str:
        """Return why the configuration is infeasible; "" if it is feasible."""

        if not self.rejected_by:
            return ""
        return infeasible_message(self.plan, result_of(self.plan, self), self)

    def _blocks(self, full: bool) -> Iterable[Block]:
        from planner.decide.suggestions.infeasible import suggest_feasible
        from planner.show.presenters.plan_report import estimate_report, plan_blocks

        result = result_of(self.plan, self)
        suggestions = suggest_feasible(self.plan, result) if self.rejected_by else ()
        report = estimate_report(self.plan, self, suggestions=suggestions)
        return plan_blocks(report, is_full=full)


@record(kw_only=True, repr=False)
class ExplainAnswer(Displayable, Explanation):
    """Result of `planner.explain`; tables in notebooks."""

    def __repr__(self) -> str:
        return f"<Explanation of {self.plan.problem.sources[0].description}>"

    def to_dict(self) -> dict[str, object]:
        """The explanation as a dictionary for JSON; times in seconds, memory in GiB."""
        from planner.show.presenters.explanation import explanation_dict

        return explanation_dict(self)

    def _blocks(self, full: bool) -> Iterable[Block]:
        from planner.show.presenters.explanation import explanation_report
        from planner.show.presenters.plan_report import plan_blocks

        return plan_blocks(explanation_report(self), is_full=full)


@record(kw_only=True, repr=False)
class CompareAnswer(Displayable, ComparedPlans):
    """Result of `planner.compare`; tables in notebooks."""

    def __repr__(self) -> str:
        return f"<Comparison of {', '.join(seen.name for seen in self.predicted)}>"

    def to_dict(self) -> dict[str, object]:
        """The comparison as a dictionary for JSON; times in seconds, memory in GiB."""
        from planner.show.presenters.comparison import comparison_dict

        return comparison_dict(self)

    def _blocks(self, full: bool) -> Iterable[Block]:
        from planner.show.presenters.comparison import comparison_blocks

        return comparison_blocks(self, is_full=full)


@record(kw_only=True, repr=False)
class SizeAnswer(Displayable, Sizes):
    """Result of `planner.size`; a table in notebooks."""

    def _blocks(self, full: bool) -> Iterable[Block]:
        from planner.show.presenters.sizes import sizes_blocks

        return sizes_blocks(self, is_full=full)


@record(kw_only=True, repr=False)
class ServicesAnswer(Displayable, SharedFleet):
    """Result of `planner.size_services`; tables in notebooks."""

    def _blocks(self, full: bool) -> Iterable[Block]:
        from planner.show.presenters.services import services_blocks

        return services_blocks(self, is_full=full)


@record(kw_only=True, repr=False)
class PoolsAnswer(Displayable, LengthPools):
    """Result of `planner.size_pools`; tables in notebooks."""

    def _blocks(self, full: bool) -> Iterable[Block]:
        from planner.show.presenters.services import length_pools_blocks

        return length_pools_blocks(self, is_full=full)


@record(kw_only=True, repr=False)
class OperatorsAnswer(Displayable, OperatorTimes):
    """Result of `planner.operators`; a table in notebooks."""

    def __repr__(self) -> str:
        return f"<{len(self)} operators>"

    def to_frame(self) -> pd.DataFrame:
        """The rows as a pandas frame; times in seconds, rates in TFLOP/s and GB/s."""
        import pandas as pd

        return pd.DataFrame(self.columns)

    def _blocks(self, full: bool) -> Iterable[Block]:
        from planner.show.presenters.explanation import operators_blocks

        return operators_blocks(self)


# Half transparent, for light and dark pages.
_MARKED = "background: rgba(46, 160, 67, 0.2); font-weight: bold"
_STYLES = {
    BEST: _MARKED,
    TOTAL: "font-weight: bold",
    FAINT: "opacity: 0.6",
}
_CELL = "padding: 0.1em 0.8em 0.1em 0; text-align: {}; white-space: nowrap"
_WIDTH = 80


def notebook(blocks: Iterable[Block]) -> str:
    """Return blocks as HTML for a notebook cell; consecutive sentences are a paragraph."""
    parts: list[str] = []
    sentences: list[Lines] = []
    for block in (*blocks, None):
        if isinstance(block, Lines):
            sentences.append(block)
            continue
        parts.append(_paragraphs(sentences))
        sentences = []
        if block is not None:
            parts.append(_WRITERS[type(block)](block))
    return f"<div>{''.join(parts)}</div>"


def _paragraphs(line_blocks: Iterable[Lines]) -> str:
    """Return blocks of sentences as HTML paragraphs; an empty line begins a new one."""
    lines = [
        (f'<span style="{style}">{escape(line)}</span>' if style else escape(line))
        for line_block in line_blocks
        for style in [_STYLES.get(line_block.mark)]
        for line in line_block.lines
    ]
    html = "<br>".join(lines).removeprefix("<br>").removesuffix("<br>")
    return f"<p>{html.replace('<br><br>', '</p><p>')}</p>" if html else ""


def _table(table: Table) -> str:
    """Return a table as HTML, with its notes below."""
    styles = [_CELL.format("right" if head.numeric else "left") for head in table.heads]
    heads = [Cell(text=head.text) for head in table.heads]
    body = "".join(
        _row(cells, styles, "td", _STYLES.get(table.mark_of(number), ""))
        for number, cells in enumerate(table.rows)
    )
    has_head = any(head.text.strip() for head in heads)
    head = f"<thead>{_row(heads, styles, 'th', '')}</thead>" if has_head else ""
    notes = "".join(f"<p>{escape(note)}</p>" for note in table.notes)
    return f"<table>{head}<tbody>{body}</tbody></table>{notes}"


def _row(cells: Sequence[Cell], styles: Sequence[str], tag: str, style: str) -> str:
    """Return a row of cells as HTML with the element ``tag``, ``td`` or ``th``."""
    inner = "".join(
        f'<{tag} style="{cell_style}">{escape(cell.text)}</{tag}>'
        for cell, cell_style in zip(cells, styles, strict=True)
    )
    return f'<tr style="{style}">{inner}</tr>'


def _pairs(pairs: KeyValues) -> str:
    return _table(text_table(("", ""), pairs.pairs.items(), text_columns=(0, 1)))


def _preformatted(text: str) -> str:
    return f"<pre>{escape(text)}</pre>"


_WRITERS: Mapping[type, Callable[..., str]] = {
    Title: lambda title: f"<p><b>{escape(title.text)}</b></p>",
    Code: lambda code: _preformatted(code.text),
    KeyValues: _pairs,
    Table: _table,
    SideBySide: lambda block: "".join(
        f"<p><b>{escape(title)}</b></p>{_table(table)}" for title, table in block.tables.items()
    ),
    TextChart: lambda drawn: _preformatted("\n".join(drawn.lines(_WIDTH, True))),
}
