"""What `planner.search`, `planner.estimate` and others return: results that can show themselves."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import fields
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

from planner.base.records import record
from planner.decide.api_comparison import ApiComparison, check_comparable, compared_with_apis
from planner.decide.open_facts import MovingFact, moving_facts
from planner.decide.sizing.size import Sizes
from planner.errors import InfeasibleError, SearchSpaceError
from planner.explaining.compared import ComparedPlans
from planner.explaining.explanation import Explanation
from planner.explaining.operators import OperatorTimes
from planner.optimize.collector import first_row
from planner.optimize.result import SearchResult
from planner.plan.plan import Plan, answered
from planner.workloads.base import Evaluation

if TYPE_CHECKING:
    import pandas as pd

_ROWS = 10


@record(kw_only=True, repr=False)
class Answer(SearchResult):
    """What a search found, with the plan of the question; a table in notebooks."""

    asked: Plan

    @classmethod
    def of_plan(cls, plan: Plan, result: SearchResult) -> Self:
        """The result of a search of a plan's problem."""
        return cls(asked=plan, **_values(result))

    @cached_property
    def plan(self) -> Plan:
        """The plan of the question, with what the result tells of what nobody gave."""
        return answered(self.asked, self)

    @cached_property
    def open_facts(self) -> list[MovingFact]:
        """The facts that the recommended plan assumes and that move it; none without one."""
        return [] if self.recommended is None else moving_facts(self.plan, self.recommended)

    def summary(self, *, width: int = 80) -> str:
        """The answer in about 30 lines of plain text.

        Raises
        ------
        SearchSpaceError
            The width is not that of a text.
        """
        from planner.report.brief import print_brief
        from planner.report.infeasible import infeasible_message

        if self.recommended is None:
            return infeasible_message(self.plan, self)
        return _printed(width, lambda console: print_brief(console, self.plan, self, _ROWS))

    def compare_api(self) -> ApiComparison:
        """The recommended deployment beside published prices per token of its model.

        Raises
        ------
        SearchSpaceError
            The workload is not ``serve``.
        InfeasibleError
            Nothing is feasible.
        SpecError
            A list of prices has faults.
        """
        from planner.report.infeasible import infeasible_message

        check_comparable(self.plan.workload.name)
        if self.recommended is None:
            raise InfeasibleError(infeasible_message(self.plan, self))
        return compared_with_apis(self.plan, self.recommended)

    def _repr_html_(self) -> str:
        from planner.report.html import answer_html
        from planner.report.infeasible import infeasible_message

        if self.recommended is None:
            return _preformatted(infeasible_message(self.plan, self))
        return answer_html(self.plan, self, _ROWS)


@record(kw_only=True, repr=False)
class Estimated(Evaluation):
    """One configuration judged, with the plan of the question; a table in notebooks."""

    plan: Plan

    @classmethod
    def of_plan(cls, plan: Plan, found: Evaluation) -> Self:
        """The one configuration of a plan."""
        return cls(plan=plan, **_values(found))

    @cached_property
    def open_facts(self) -> list[MovingFact]:
        """The facts that the configuration assumes and that move it."""
        return moving_facts(self.plan, self.candidates)

    def summary(self, *, width: int = 80) -> str:
        """What the configuration reaches and costs, in a few lines of plain text.

        Raises
        ------
        SearchSpaceError
            The width is not that of a text.
        """
        from planner.report.brief import print_one

        if self.rejected_by:
            return self._why_not()
        return _printed(width, lambda console: print_one(console, self.plan, self))

    def compare_api(self) -> ApiComparison:
        """The deployment beside published prices per token of its model.

        Raises
        ------
        SearchSpaceError
            The workload is not ``serve``.
        InfeasibleError
            It does not fit, or misses a limit.
        SpecError
            A list of prices has faults.
        """
        check_comparable(self.plan.workload.name)
        if self.rejected_by:
            raise InfeasibleError(self._why_not())
        return compared_with_apis(self.plan, self.candidates)

    def _repr_html_(self) -> str:
        from planner.report.html import one_html

        if self.rejected_by:
            return _preformatted(self._why_not())
        return one_html(self.plan, self)

    def _row(self) -> Mapping[str, Any]:
        return first_row(self.table())

    def _why_not(self) -> str:
        from planner.plan.plan import result_of
        from planner.report.infeasible import infeasible_message

        return infeasible_message(self.plan, result_of(self.plan, self), self)


@record(kw_only=True, repr=False)
class Explained(Explanation):
    """A plan explained, able to show itself."""

    @classmethod
    def of_explanation(cls, explained: Explanation) -> Self:
        """The same, able to show itself."""
        return cls(**_values(explained))

    def __repr__(self) -> str:
        return f"<Explanation of {self.plan.problem.sources[0].told}>"

    def summary(self, *, width: int = 80, full: bool = False) -> str:
        """What bounds the plan and what would change it, as plain text; ``full``: all of it.

        Raises
        ------
        SearchSpaceError
            The width is not that of a text.
        """
        from planner.report.explanation import print_explanation

        return _printed(width, lambda console: print_explanation(console, self, is_full=full))

    def to_dict(self) -> dict[str, Any]:
        """Plain words and numbers, sentences among them; times in seconds, memory in GiB."""
        from planner.report.explained import explanation_dict

        return explanation_dict(Explanation(**_values(self)))

    def _repr_html_(self) -> str:
        return _preformatted(self.summary())


@record(kw_only=True, repr=False)
class Compared(ComparedPlans):
    """Plans side by side, able to show themselves."""

    @classmethod
    def of_plans(cls, found: ComparedPlans) -> Self:
        """The same, able to show itself."""
        return cls(**_values(found))

    def __repr__(self) -> str:
        return f"<Comparison of {', '.join(seen.name for seen in self.seens)}>"

    def summary(self, *, width: int = 80, full: bool = False) -> str:
        """What differs, who wins where, what is a tie, as plain text; ``full``: every part.

        Raises
        ------
        SearchSpaceError
            The width is not that of a text.
        """
        from planner.report.comparison import print_comparison

        return _printed(width, lambda console: print_comparison(console, self, is_full=full))

    def to_dict(self) -> dict[str, Any]:
        """Plain words and numbers, sentences among them; times in seconds, memory in GiB."""
        from planner.report.comparison import comparison_dict

        return dict(comparison_dict(ComparedPlans(**_values(self))))

    def _repr_html_(self) -> str:
        return _preformatted(self.summary())


@record(kw_only=True, repr=False)
class Sized(Sizes):
    """What it takes of each GPU; a table in notebooks."""

    @classmethod
    def of_sizes(cls, sizes: Sizes) -> Self:
        """The same, able to show itself."""
        return cls(**_values(sizes))

    def summary(self, *, width: int = 80) -> str:
        """The fewest and the cheapest GPUs with their margins, in plain text.

        Raises
        ------
        SearchSpaceError
            The width is not that of a text.
        """
        from planner.report.sizes import print_sizes

        return _printed(width, lambda console: print_sizes(console, self))

    def _repr_html_(self) -> str:
        from planner.report.sizes import sizes_html

        return sizes_html(self)


@record(kw_only=True, repr=False)
class Operators(OperatorTimes):
    """Operators with their times, able to show themselves."""

    @classmethod
    def of_times(cls, times: OperatorTimes) -> Self:
        """The same, able to show itself."""
        return cls(**_values(times))

    def __repr__(self) -> str:
        return f"<{len(self)} operators>"

    def summary(self, *, width: int = 80) -> str:
        """Times, rates and what bounds them, as a table in plain text.

        Raises
        ------
        SearchSpaceError
            The width is not that of a text.
        """
        from planner.report.operators import print_operators

        return _printed(width, lambda console: print_operators(console, self))

    def to_frame(self) -> pd.DataFrame:
        """The rows as a pandas frame; times in seconds, rates in TFLOP/s and GB/s."""
        import pandas as pd

        return pd.DataFrame(self.columns)

    def _repr_html_(self) -> str:
        from planner.report.operators import operators_html

        return operators_html(self)


def _values(found: Any) -> dict[str, Any]:
    return {field.name: getattr(found, field.name) for field in fields(found)}


def _printed(width: int, show: Any) -> str:
    from planner.report.console import text_console

    if isinstance(width, bool) or not isinstance(width, int) or not 20 <= width <= 1000:
        raise SearchSpaceError(f"The width is a number of characters from 20 on, not {width!r}.")
    stream = io.StringIO()
    show(text_console(stream, width))
    return stream.getvalue().rstrip("\n")


def _preformatted(text: str) -> str:
    from html import escape

    return f"<pre>{escape(text)}</pre>"
