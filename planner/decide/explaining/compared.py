"""Several plans side by side: in what they differ, who wins where, and what is a tie."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property

from planner.base.cells import Value, number
from planner.base.records import record
from planner.decide.explaining.against import Seen
from planner.optimize.collector import known_value
from planner.optimize.result_columns import FOLLOWING

_MEMORY = "peak_memory_gib"
_HIGH = ("per_s", "utilization", "headroom", "probability", "tflops", "goodput")
_EQUAL = 1e-9


@record(kw_only=True)
class Result:
    """A result column of several plans; NaN of one that is impossible or has none.

    ``ends`` are 90 % intervals. ``best`` is the place of the winner; ``ties`` are the places of
    those that published runs do not tell from it.
    """

    name: str
    values: tuple[float, ...]
    ends: tuple[tuple[float, float] | None, ...]
    best: int
    ties: tuple[int, ...]

    def to_dict(self) -> dict[str, object]:
        """Plain words and numbers, as JSON takes them."""
        return {
            "name": self.name,
            "values": [*map(known_value, self.values)],
            "intervals": [e and [*map(known_value, e)] for e in self.ends],
            "best": self.best,
            "ties": list(self.ties),
        }


@record(kw_only=True)
class ComparedPlans:
    """Plans by their names; ``missing`` has what has no plan, and why.

    At least one of them is possible.
    """

    seens: tuple[Seen, ...]
    missing: Mapping[str, str]

    @cached_property
    def settings(self) -> dict[str, tuple[Value, ...]]:
        """Questions and parameters that differ, with the value of each plan."""
        names = dict.fromkeys(name for seen in self.seens for name in seen.asked)
        values = {name: tuple(seen.asked.get(name) for seen in self.seens) for name in names}
        return {name: each for name, each in values.items() if len(set(map(str, each))) > 1}

    @cached_property
    def results(self) -> list[Result]:
        """The results that differ, in the order in which such plans are told."""
        shown = (*self.seens[0].plan.workload.wording.told, _MEMORY, "memory_headroom_gib")
        names = [name for name in dict.fromkeys(shown) if any(name in s.row for s in self.seens)]
        found = [self._result(name) for name in names]
        return [one for one in found if one is not None]

    @cached_property
    def times(self) -> dict[str, dict[str, tuple[float, ...]]]:
        """Seconds by kind of step and by term, of each plan."""
        kinds = dict.fromkeys(kind for seen in self._possible for kind in seen.steps)
        return {
            kind: _side_by_side(
                [
                    {} if seen.reason or kind not in seen.steps else seen.steps[kind].terms
                    for seen in self.seens
                ]
            )
            for kind in kinds
        }

    @cached_property
    def memory(self) -> dict[str, tuple[float, ...]]:
        """GiB by part, of each plan."""
        return _side_by_side([seen.memory for seen in self.seens])

    def tie_factor(self, one: int, other: int) -> float:
        """Within which factor published runs do not tell two plans apart; 1: they do."""
        plans = self.seens[one], self.seens[other]
        factors = (seen.sure.layout for seen in plans if seen.sure is not None)
        has_ties = all(seen.plan.problem.has_ties for seen in plans)
        return max(factors, default=1.0) if has_ties else 1.0

    @property
    def wins(self) -> dict[int, list[str]]:
        """The columns that each plan alone is best in, ties left out."""
        found: dict[int, list[str]] = {}
        for one in self.results:
            if not one.ties:
                found.setdefault(one.best, []).append(one.name)
        return found

    def to_dict(self) -> dict[str, object]:
        """Plain words and numbers, as JSON takes them; times in seconds, memory in GiB."""
        return {
            "plans": [
                {"name": seen.name, "impossible": seen.reason, "asked": seen.asked}
                for seen in self.seens
            ],
            "without_plan": dict(self.missing),
            "settings": {name: list(values) for name, values in self.settings.items()},
            "results": [one.to_dict() for one in self.results],
            "times_s": {
                kind: {term: list(values) for term, values in terms.items()}
                for kind, terms in self.times.items()
            },
            "memory_gib": {part: list(values) for part, values in self.memory.items()},
        }

    @property
    def _possible(self) -> list[Seen]:
        return [seen for seen in self.seens if not seen.reason]

    def _result(self, name: str) -> Result | None:
        values = tuple(
            math.nan if seen.reason else number(seen.row.get(name)) for seen in self.seens
        )
        known = [at for at, value in enumerate(values) if math.isfinite(value)]
        if len(known) < 2 or _are_equal([values[at] for at in known]):
            return None
        best = (max if is_better_high(name) else min)(known, key=lambda at: values[at])
        ties = [
            at
            for at in known
            if at != best
            and _is_published(name)
            and _factor(values[at], values[best]) < self.tie_factor(best, at)
        ]
        ends = tuple(None if seen.reason else seen.ends.get(name) for seen in self.seens)
        return Result(name=name, values=values, ends=ends, best=best, ties=tuple(ties))


def is_better_high(column: str) -> bool:
    """Whether more of a result is better: of rates and of what stays free.

    >>> is_better_high("tokens_per_s_per_gpu"), is_better_high("cost_usd")
    (True, False)
    """
    return any(word in column for word in _HIGH)


def _is_published(column: str) -> bool:
    """Whether published runs tell how far apart plans must be in a column."""
    return any(
        column in columns
        for quantity, both in FOLLOWING.items()
        if quantity != "peak_memory"
        for columns in both
    )


def _factor(one: float, other: float) -> float:
    low, high = sorted((one, other))
    return high / low if low > 0 else math.inf


def _are_equal(values: Sequence[float]) -> bool:
    return max(values) - min(values) <= _EQUAL * max(map(abs, values))


def _side_by_side(each: Sequence[Mapping[str, float]]) -> dict[str, tuple[float, ...]]:
    """Parts that differ, those that differ most first."""
    names = dict.fromkeys(name for parts in each for name in parts)
    found = {name: tuple(parts.get(name, 0.0) for parts in each) for name in names}
    differing = {name: values for name, values in found.items() if not _are_equal(values)}
    return dict(sorted(differing.items(), key=lambda item: min(item[1]) - max(item[1])))
