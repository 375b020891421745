"""Summarizes the scenarios of a sweep in one pass over its rows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import combinations, pairwise
from typing import TypeAlias

from planner.base.csv_cells import Row, Value, number_or_nan
from planner.base.records import record
from planner.confidence.ranking import (
    RankedPlan,
    are_plans_tied,
    expected_regrets,
    recommended_index,
)
from planner.optimize.result_columns import evidence_rank_of, rank_row
from planner.question.request import Answers
from planner.show.presenters.format_results import label
from planner.sweeps.columns import (
    COST,
    MEASURES,
    PLACES,
    TIME,
    VALUE,
    better,
    column_of_measure,
    measured,
    measured_ends,
)
from planner.sweeps.plan import SweepPlan, work_questions

Place: TypeAlias = tuple[str, ...]
Spot: TypeAlias = tuple[Place, Value]
"""A place, and a number of GPUs or another value of the columns of a matrix."""

CHOSEN_BY = (COST, TIME, VALUE)
RECOMMENDED = "recommended"
"""The headline of the row to run, in addition to those of `CHOSEN_BY`."""
MEMORY, LIMIT, UNKNOWN, IMPOSSIBLE = "m", "l", "?", "x"
"""Reasons for no plan: memory, a limit, an unknown number, anything else."""

_MIN_DIFFERENCE = 1e-3


@dataclass(slots=True)
class BestAtCount:
    """Best scenario of a place and number of GPUs.

    Parameters
    ----------
    best_by_measure : best scenario by measure
    reason : why there is no plan; empty: there is a plan
    feasible : whether a scenario has a plan
    """

    best_by_measure: dict[str, RankedPlan] = field(default_factory=dict)
    reason: str = ""
    feasible: bool = False


@record(kw_only=True)
class Crossover:
    """The number of GPUs from which one place is better than another.

    Parameters
    ----------
    measure : measure of the comparison
    first : place that is better with fewer GPUs
    second : place that is better with ``num_gpus`` or more
    before : next smaller number of GPUs
    num_gpus : number of GPUs from which ``second`` is better
    behind : relative disadvantage of ``second`` with ``before`` GPUs
    ahead : relative advantage of ``second`` with ``num_gpus`` GPUs
    is_of_winners : ``first`` is the best place with ``before`` GPUs, ``second`` with ``num_gpus``
    is_tie : published runs do not distinguish the two
    """

    measure: str
    first: Place
    second: Place
    before: int
    num_gpus: int
    behind: float
    ahead: float
    is_of_winners: bool
    is_tie: bool


@dataclass
class WorkloadGroup:
    """Scenarios of equal work, which can be ranked against each other.

    Parameters
    ----------
    work : name of the work in the plan
    workload : ``train``, ``inference``, ``serve`` or ``rl``
    model : name of the model
    shared_answers : answers to questions that differ between groups
    shown : measure to show, cost by default
    by : labels of the rows and the columns of a matrix
    scenarios : number of scenarios
    feasible : number of scenarios with a plan
    unpriced : places without a price
    lowest_price_with_work : lowest price of an hour with work [USD] over solid prices, with its row
    prices : first row of each GPU and contract
    spots : best scenario of each place and number of GPUs
    """

    work: str
    workload: str
    model: str
    shared_answers: Answers
    shown: str = COST
    by: tuple[str, str] = ("GPU", "number of GPUs")
    scenarios: int = 0
    feasible: int = 0
    unpriced: set[Place] = field(default_factory=set)
    lowest_price_with_work: tuple[float, Row] | None = None
    prices: dict[tuple[Value, Value], Row] = field(default_factory=dict)
    spots: dict[Spot, BestAtCount] = field(default_factory=dict)
    # The best rows by measure, whether the price is solid, and lack of evidence: by the
    # prediction, and by the bad case.
    _lowest: dict[tuple[str, bool, int], Row] = field(default_factory=dict)
    _surest: dict[tuple[str, bool, int], Row] = field(default_factory=dict)
    _spots_of_rows: dict[object, Spot] = field(default_factory=dict)

    def add(self, row: Row, spot: Spot) -> None:
        """Add a scenario to the counts, prices and best scenarios of the group.

        Parameters
        ----------
        row : result columns of the scenario
        spot : place and number of GPUs of the scenario
        """
        self.scenarios += 1
        spot_best = self.spots.setdefault(spot, BestAtCount())
        if not row["feasible"]:
            spot_best.reason = str(row.get("reason") or "")
            return
        self.feasible += 1
        spot_best.feasible = True
        values = {COST: measured(COST, row), TIME: measured(TIME, row)}
        values[VALUE] = values[COST] * values[TIME]
        if self.shown not in values:
            values[self.shown] = measured(self.shown, row)
        if math.isnan(values[COST]):
            self.unpriced.add(spot[0])
        self.prices.setdefault((row.get("gpu"), row.get("contract")), row)
        is_solid = not row.get("price_doubts")
        share = number_or_nan(row.get("campaign_gpu_hours")) * number_or_nan(
            row.get("price_per_gpu_hour_usd")
        )
        if is_solid and share < (
            self.lowest_price_with_work[0] if self.lowest_price_with_work else math.inf
        ):
            self.lowest_price_with_work = share, row
        for measure, value in values.items():
            if math.isnan(value):
                continue
            leader = spot_best.best_by_measure.get(measure)
            if leader is None or better(measure) * (leader.value - value) > 0:
                spot_best.best_by_measure[measure] = _ranked_plan(measure, row)
            if measure in CHOSEN_BY:
                key = measure, is_solid, evidence_rank_of(row)
                for rows, order in ((self._lowest, _value_key), (self._surest, _bad_case_key)):
                    previous = rows.get(key)
                    if previous is None or order(measure, row) < order(measure, previous):
                        rows[key] = row
                        self._spots_of_rows[row["scenario"]] = spot

    @property
    def best(self) -> dict[str, Row]:
        """The row with the lowest predicted value by measure, as tables show it."""
        return self._best()

    @property
    def proven(self) -> dict[str, Row]:
        """The best row by measure among plans with published runs of their software and GPU."""
        return self._best(is_proven=True)

    @property
    def solid(self) -> dict[str, Row]:
        """The best row by measure among prices without doubts."""
        return self._best(is_solid=True)

    def _best(self, *, is_proven: bool = False, is_solid: bool = False) -> dict[str, Row]:
        """Return the best row by measure; optionally only of proven plans or solid prices."""
        best = {}
        for measure in CHOSEN_BY:
            rows = [
                row
                for (name, has_solid_price, _), row in self._lowest.items()
                if name == measure
                and (has_solid_price or not is_solid)
                and (not is_proven or _ranked_plan(measure, row).is_proven)
            ]
            if rows:
                best[measure] = min(rows, key=partial(_value_key, measure))
        return best

    @property
    def recommended(self) -> Row | None:
        """The row to run: the lowest cost in a bad case, or a tied row with more evidence.

        Prices without doubts count first; without a cost, the shortest time. None: no plan.
        """
        for measure in CHOSEN_BY:
            of_measure = {key[1:]: row for key, row in self._surest.items() if key[0] == measure}
            solid = [row for (is_solid, _), row in of_measure.items() if is_solid]
            rows = solid or [*of_measure.values()]
            rows.sort(key=partial(_bad_case_key, measure))
            if rows:
                return rows[recommended_index([_ranked_plan(measure, row) for row in rows])]
        return None

    @property
    def recommended_spot(self) -> Spot | None:
        """The place and the number of GPUs of the recommended row; None: no plan."""
        row = self.recommended
        return None if row is None else self._spots_of_rows[row["scenario"]]

    @property
    def main_measure(self) -> str:
        """The measure by which a row is recommended: cost, or time if no cost is known."""
        return COST if COST in self.best else TIME

    @property
    def regret(self) -> float:
        """The expected loss of the recommended row against all others, as a share of its cost
        or time; NaN: unknown errors.
        """
        measure = self.main_measure
        recommended, sign = self.recommended, better(measure)
        others = (spot_best.best_by_measure.get(measure) for spot_best in self.spots.values())
        plans = [plan for plan in others if plan is not None]
        if recommended is None or len(plans) < 2:
            return math.nan
        plans.sort(key=lambda plan: sign * plan.value, reverse=True)
        best_of_kin = {plan.error_group: plan for plan in plans}  # the best of each stands for all
        ranked = [_ranked_plan(measure, recommended), *best_of_kin.values()]
        return float(expected_regrets(ranked, int(sign))[0])

    def bad_case(self, row: Row) -> float:
        """Return the value of the main measure that 9 of 10 runs like a row keep.

        Parameters
        ----------
        row : result columns of a scenario
        """
        return _ranked_plan(self.main_measure, row).bad

    def is_tied(self, measure: str, row: Row, other: Row) -> bool:
        """Return whether the difference of two rows is within the error of the predictions.

        Parameters
        ----------
        measure : name of the measure, such as ``cost_usd``
        row : result columns of a scenario
        other : result columns of another scenario
        """
        return are_plans_tied(_ranked_plan(measure, row), _ranked_plan(measure, other))

    @property
    def headlines(self) -> list[tuple[str, bool, Row]]:
        """Return measure, True if only solid prices count, and best row, for each measure.

        The first is the recommended row, under `RECOMMENDED`.
        """
        headlines: list[tuple[str, bool, Row]] = []
        if (recommended := self.recommended) is not None:
            headlines.append((RECOMMENDED, False, recommended))
        all_solid = self.solid
        for measure, row in self.best.items():
            headlines.append((measure, False, row))
            solid = all_solid.get(measure)
            if measure != TIME and row.get("price_doubts") and solid is not None:
                headlines.append((measure, True, solid))
        return headlines

    @property
    def places(self) -> list[Place]:
        """The places of the scenarios, in order."""
        return [*dict.fromkeys(place for place, _ in self.spots)]

    @property
    def counts(self) -> list[Value]:
        """The requested numbers of GPUs, in order; None: not specified."""
        unique = {count: None for _, count in self.spots}
        return sorted(unique, key=_numbers_first_key)

    @property
    def metric(self) -> str:
        """The measure to show: the requested one, or time if no cost is known."""
        return TIME if self.shown in CHOSEN_BY and not self.has_measure(self.shown) else self.shown

    def has_measure(self, measure: str) -> bool:
        """Return True if any scenario of the group has this measure.

        Parameters
        ----------
        measure : name of the measure, such as ``cost_usd``
        """
        return any(measure in here.best_by_measure for here in self.spots.values())

    def best_spot(self, measure: str, count: Value = None) -> Spot | None:
        """Return place (GPU, contract) and number of GPUs where a measure is best; None: unknown.

        Parameters
        ----------
        measure : name of the measure, such as ``cost_usd``
        count : number of GPUs; None: any
        """
        spots = [
            spot
            for spot, spot_best in self.spots.items()
            if measure in spot_best.best_by_measure and count in (None, spot[1])
        ]
        return self._first(measure, spots)

    def _first(self, measure: str, spots: Iterable[Spot]) -> Spot | None:
        """The spot with the lowest predicted value; the bad case decides between equal ones."""
        return min(spots, key=lambda spot: self._order(measure, spot), default=None)

    def _order(self, measure: str, spot: Spot) -> tuple[float, float]:
        """Sort key of spots: the value, then the bad case, both minimized."""
        plan, sign = self.spots[spot].best_by_measure[measure], better(measure)
        return sign * plan.value, sign * plan.bad

    def ties(self, measure: str, spot: Spot | None = None) -> list[Spot]:
        """Return the places and numbers of GPUs that are tied with ``spot`` (None: the best).

        Parameters
        ----------
        measure : name of the measure, such as ``cost_usd``
        spot : place and number of GPUs; None: the best
        """
        spot = spot or self.best_spot(measure)
        if spot is None:
            return []
        first = self.spots[spot].best_by_measure[measure]
        return [
            other
            for other, here in self.spots.items()
            if other != spot
            and measure in here.best_by_measure
            and are_plans_tied(first, here.best_by_measure[measure])
        ]

    def crossovers(self, measure: str) -> list[Crossover]:
        """Return the numbers of GPUs from which one GPU type beats another of the same contract.

        Parameters
        ----------
        measure : name of the measure, such as ``cost_usd``
        """
        places_by_terms: dict[Place, list[Place]] = {}
        for place in self.places:
            places_by_terms.setdefault(place[1:], []).append(place)
        crossovers, counts = [], self.counts
        for places in places_by_terms.values():
            winners = {count: self._winner(measure, count, places) for count in counts}
            for first, second in combinations(places, 2):
                if first[0] != second[0]:
                    crossovers += self._crossovers_between(measure, first, second, winners)
        return sorted(
            crossovers,
            key=lambda crossover: (
                not crossover.is_of_winners,
                crossover.is_tie,
                -min(crossover.behind, crossover.ahead),
            ),
        )

    def _crossovers_between(
        self, measure: str, place: Place, other_place: Place, winners: Mapping[Value, Place | None]
    ) -> list[Crossover]:
        """Return where, as GPUs increase, the better of two places (GPU, contract) changes."""
        by_count = {
            count: [
                self.spots[compared, count].best_by_measure[measure]
                for compared in (place, other_place)
            ]
            for count in winners
            if isinstance(count, int)
            and all(
                self._has_measure_at(measure, compared, count) for compared in (place, other_place)
            )
        }
        crossovers = []
        for before, after in pairwise(by_count):
            old, new = (_log_advantage(measure, *by_count[count]) for count in (before, after))
            if min(abs(old), abs(new)) < math.log1p(_MIN_DIFFERENCE) or (old > 0) == (new > 0):
                continue
            first, second = (place, other_place) if old > 0 else (other_place, place)
            crossovers.append(
                Crossover(
                    measure=measure,
                    first=first,
                    second=second,
                    before=before,
                    num_gpus=after,
                    behind=math.expm1(abs(old)),
                    ahead=math.expm1(abs(new)),
                    is_of_winners=[winners[before], winners[after]] == [first, second],
                    is_tie=are_plans_tied(*by_count[after]),
                )
            )
        return crossovers

    def _has_measure_at(self, measure: str, place: Place, count: Value) -> bool:
        here = self.spots.get((place, count))
        return here is not None and measure in here.best_by_measure

    def _winner(self, measure: str, count: Value, places: Sequence[Place]) -> Place | None:
        spots = [(place, count) for place in places if self._has_measure_at(measure, place, count)]
        first = self._first(measure, spots)
        return None if first is None else first[0]

    def places_without_plan(self) -> dict[str, list[Place]]:
        """Return, by reason, the places (GPU, contract) without a plan at any number of GPUs."""
        reasons: dict[Place, str] = {}
        for (place, _), spot_best in sorted(
            self.spots.items(), key=lambda item: _numbers_first_key(item[0][1])
        ):
            reasons[place] = spot_best.reason
        feasible_places = {
            place for (place, _), spot_best in self.spots.items() if spot_best.feasible
        }
        places_by_reason: dict[str, list[Place]] = {}
        for place in self.places:
            if place not in feasible_places:
                places_by_reason.setdefault(reasons[place].partition(":")[0], []).append(place)
        return places_by_reason


@record(kw_only=True)
class Summary:
    """Scenarios of a sweep in groups of equal work.

    Parameters
    ----------
    plan : plan of the sweep
    groups : groups of scenarios
    """

    plan: SweepPlan
    groups: tuple[WorkloadGroup, ...]

    @property
    def scenarios(self) -> int:
        """The number of scenarios with results."""
        return sum(group.scenarios for group in self.groups)

    @property
    def feasible(self) -> int:
        """The number of scenarios with a plan."""
        return sum(group.feasible for group in self.groups)


def summarize(
    rows: Iterable[Row], plan: SweepPlan, shown: str = COST, pivot: Sequence[str] = ()
) -> Summary:
    """Group the scenarios of a sweep by work and model, with the best plan per place and count.

    ``pivot`` names the columns that identify a place, and last the column across; empty: GPU and
    contract, across numbers of GPUs.
    """
    groups: dict[tuple[str, ...], WorkloadGroup] = {}
    questions_by_work = {
        work.name: tuple(name for name in work_questions(work) if name not in pivot)
        for work in plan.works
    }
    varied = [name for name in PLACES if name in plan.varied or name in ("gpu", "cluster")]
    axis_labels = ("GPU", "number of GPUs")
    if pivot:
        axis_labels = (" and ".join(map(_axis_label, pivot[:-1])), _axis_label(pivot[-1]))
    for row in rows:
        scenario = plan.scenario(int(number_or_nan(row["scenario"])))
        names = questions_by_work[scenario.work.name]
        model = "" if "model" in pivot else row.get("model") or scenario.values.get("model", "")
        key = (scenario.work.name, str(model), *(str(scenario.values[name]) for name in names))
        if key not in groups:
            groups[key] = WorkloadGroup(
                work=scenario.work.name,
                workload=scenario.work.workload,
                model=str(model),
                shared_answers={name: scenario.values[name] for name in names if name != "model"},
                shown=shown,
                by=axis_labels,
            )
        place = tuple(str(row[n]) for n in pivot[:-1] or varied if row.get(n) is not None)
        count = row["num_gpus"] if "num_gpus" in scenario.values else None
        groups[key].add(row, (place, row.get(pivot[-1]) if pivot else count))
    return Summary(plan=plan, groups=tuple(groups.values()))


def _axis_label(name: str) -> str:
    return "GPU" if name == "gpu" else "number of GPUs" if name == "num_gpus" else label(name)


def _numbers_first_key(value: object) -> tuple[bool, float, str]:
    is_number = isinstance(value, int | float)
    return not is_number, number_or_nan(value) if is_number else 0.0, str(value)


def reason_mark(reason: str) -> str:
    """Return the letter that stands for a reason for no plan in tables.

    >>> reason_mark("out of memory: 9.0 GiB against 8.0 GiB"), reason_mark("cost is unknown")
    ('m', '?')
    """
    if reason.startswith("out of memory"):
        return MEMORY
    if reason.endswith("is unknown"):
        return UNKNOWN
    return LIMIT if " against " in reason else IMPOSSIBLE


def _bad_case_key(measure: str, row: Row) -> tuple[float, ...]:
    """Return the sort key of a row: bad case, then value, then cost; the smallest is best."""
    sign = better(measure)
    return (
        sign * _ranked_plan(measure, row).bad,
        (measured(COST, row) * measured(TIME, row) if measure == VALUE else measured(measure, row)),
        measured(COST, row),
    )


def _value_key(measure: str, row: Row) -> tuple[float, ...]:
    """Return the sort key of a row: the predicted value, then the bad case, then the cost."""
    sign, plan = better(measure), _ranked_plan(measure, row)
    return sign * plan.value, sign * plan.bad, measured(COST, row)


def _ranked_plan(measure: str, row: Row) -> RankedPlan:
    """Return the measure of a scenario and its interval, ready to be ranked."""
    if measure == VALUE:
        cost, time = _ranked_plan(COST, row), _ranked_plan(TIME, row)
        ends = {n: getattr(cost, n) * getattr(time, n) for n in ("value", "low", "high", "bad")}
        return time._replace(**ends)
    column = column_of_measure(measure, row) if measure in MEASURES else measure
    plan = rank_row(column, row, int(better(measure)))
    if math.isnan(plan.low) and (ends_of_parts := measured_ends(measure, row)):
        plan = plan._replace(low=ends_of_parts[0], high=ends_of_parts[1])
    return plan._replace(time=measured(TIME, row))


def _log_advantage(measure: str, plan: RankedPlan, other: RankedPlan) -> float:
    """Logarithm of the advantage of a plan over the other; 0 if a value is not positive."""
    if plan.value <= 0 or other.value <= 0:
        return 0.0
    return better(measure) * math.log(other.value / plan.value)
