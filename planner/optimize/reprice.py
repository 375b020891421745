"""Reprice a search for other operating terms and run lengths: predict once.

It is searched again only if they matter.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

from planner.base.records import record
from planner.optimize.collector import CellResult, IndexedCandidates, NearestMiss
from planner.optimize.exhaustive import exhaustive_search, search_together
from planner.optimize.problem import Problem
from planner.optimize.result import SearchResult
from planner.optimize.source import Candidates, Source
from planner.question.names import STEP_TIME
from planner.question.terms import glossary, terms_about


def search_with_shared_predictions(problems: Sequence[Problem]) -> list[SearchResult]:
    """Search problems that differ only in operating terms (prices) and lengths of the run.

    Configurations are predicted once for all, and judged again only if these change the ranking.
    """
    if len({len(problem.sources) for problem in problems}) != 1:
        return [*map(exhaustive_search, problems)]
    terms = [_terms(problem) for problem in problems]
    firsts = dict(reversed([*zip(terms, problems, strict=True)]))
    results = dict(zip(firsts, search_together([*firsts.values()]), strict=True))
    return [
        results[prices] if firsts[prices] is problem else _moved(results[prices], problem)
        for prices, problem in zip(terms, problems, strict=True)
    ]


def _terms(problem: Problem) -> Hashable:
    """A key of the operating terms and run lengths on which the result of a search depends."""
    names = [goal.name for goal in problem.objectives]
    names += [limit.name for limit in problem.constraints]
    weighed = [glossary()[name] for name in names]
    has_money = any(
        term.type == "usd" or term.term in terms_about("electricity") for term in weighed
    )
    has_time = any(term.type == "second" and term.term != STEP_TIME for term in weighed)
    return tuple(
        (
            source.sites if has_money else source.pace,
            source.run_length if has_money or has_time else None,
        )
        for source in problem.sources
    )


@record(kw_only=True, repr=False)
class _RepricedResult(SearchResult):
    """A result with the plans of the ``first`` result at other prices, without new predictions.

    ``sources`` : new source by ``id`` of the source that it replaces.
    """

    first: SearchResult
    sources: Mapping[int, Source]

    def reprice_candidates(self, candidates: Candidates) -> Candidates:
        """The candidates with this result's prices."""
        return candidates.moved(self.sources[id(candidates.source)])

    @cached_property
    def fastest(self) -> Candidates | None:
        """The plan with the best first objective; None: nothing is feasible."""
        return None if self.first.fastest is None else self.reprice_candidates(self.first.fastest)

    @cached_property
    def recommended(self) -> Candidates | None:
        """The recommended plan; None: nothing is feasible."""
        return (
            None
            if self.first.recommended is None
            else self.reprice_candidates(self.first.recommended)
        )

    @cached_property
    def proven(self) -> Candidates | None:
        """The recommended plan among software that was measured on its GPU."""
        if self.first.proven is self.first.recommended:
            return self.recommended
        return None if self.first.proven is None else self.reprice_candidates(self.first.proven)

    @cached_property
    def better_tied(self) -> Candidates | None:
        """The plan tied with the recommended plan and predicted to be better; None: none."""
        return (
            None
            if self.first.better_tied is None
            else self.reprice_candidates(self.first.better_tied)
        )

    @cached_property
    def recommended_and_front(self) -> IndexedCandidates:
        """The recommended plan and the front, at this result's prices."""
        return [
            (places, self.reprice_candidates(judged))
            for places, judged in self.first.recommended_and_front
        ]


def _moved(result: SearchResult, problem: Problem) -> SearchResult:
    """The result with the prices of another problem, without new predictions."""
    sources = dict(zip(map(id, result.problem.sources), problem.sources, strict=True))
    # Limits that were assumed may have been widened.
    problem = replace(problem, constraints=result.problem.constraints)
    groups = [
        CellResult(cell=group.cell, collector=group.collector.moved(problem, sources))
        for group in result.groups
    ]

    def miss_of(miss: NearestMiss) -> NearestMiss:
        moved_miss = replace(miss, source=sources[id(miss.source)])
        vars(moved_miss).update(candidates=miss.candidates.moved(moved_miss.source))
        return moved_miss

    same = {name: getattr(result, name) for name in SearchResult.__dataclass_fields__}
    same |= {"problem": problem, "groups": groups}
    misses = tuple(map(miss_of, result.nearest_misses))
    return _RepricedResult(**{**same, "nearest_misses": misses}, first=result, sources=sources)
