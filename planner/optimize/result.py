"""Results of a search: front, recommended plan, comparisons along each axis."""

from __future__ import annotations

import time
from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from planner.base.csv_cells import TypedRow, Value, number_of_row
from planner.base.records import record
from planner.configurations.configuration_tables import ConfigurationTable
from planner.optimize.collector import (
    CellResult,
    IndexedCandidates,
    NearestMiss,
    best_row,
    group_by_axis_value,
    joined_columns,
    joint_front,
    main_rejection,
    nearest_misses,
)
from planner.optimize.problem import Problem
from planner.optimize.recommendation import (
    cell_of,
    expected_regret,
    is_tied_with,
    recommend_plan,
    tied_but_faster_plan,
)
from planner.optimize.result_columns import full_columns
from planner.optimize.source import Candidates, Columns, Source
from planner.optimize.tie_breaking import RankedConfiguration
from planner.question.terms import terms_about

if TYPE_CHECKING:
    import pandas as pd


Item = TypeVar("Item")
SCALING_COLUMN, THROUGHPUT_COLUMN = "scaling_efficiency", "tokens_per_s_per_gpu"
MATCHING_TERMS = terms_about("scaling_key")
"""The axes that plans of a scaling comparison must have in common."""


def add_scaling_efficiency(table: Columns, by_number: Columns) -> Columns:
    """The table with throughput per GPU divided by that on the fewest GPUs [1]_.

    ``by_number`` are the columns of the plans that one would launch on each number of GPUs.
    """
    if (
        THROUGHPUT_COLUMN not in table
        or "step_time_s" not in table
        or not len(by_number["num_gpus"])
    ):
        return table
    fewest = int(np.argmin(np.asarray(by_number["num_gpus"])))
    baseline = float(np.asarray(by_number[THROUGHPUT_COLUMN])[fewest])
    return insert_scaling_efficiency(
        table, np.asarray(table[THROUGHPUT_COLUMN], dtype=np.float64) / baseline
    )


def insert_scaling_efficiency(table: Mapping[str, Item], column: Item) -> dict[str, Item]:
    """The columns with ``column`` inserted after the throughput per GPU."""
    columns: dict[str, Item] = {}
    for name, values in table.items():
        columns[name] = values
        if name == THROUGHPUT_COLUMN:
            columns[SCALING_COLUMN] = column
    return columns


class FewestGpus:
    """Throughput per GPU of the fewest GPUs, for each set of otherwise equal answers."""

    def __init__(self, rows: Iterable[tuple[Hashable, Mapping[str, Value]]] = ()) -> None:
        self._baselines: dict[Hashable, tuple[float, float]] = {}
        for key, row in rows:
            self.add(key, row)

    def add(self, key: Hashable, row: Mapping[str, Value]) -> None:
        """Store the throughput per GPU of a row if it has the fewest GPUs of its key."""
        if not (row.get(THROUGHPUT_COLUMN) and row.get("num_gpus") and "step_time_s" in row):
            return
        rate, number = number_of_row(row, THROUGHPUT_COLUMN), number_of_row(row, "num_gpus")
        baseline = self._baselines.get(key)
        if baseline is None or baseline[0] > number:
            self._baselines[key] = (number, rate)

    def scaled(self, key: Hashable, row: Mapping[str, Value]) -> Mapping[str, Value]:
        """The row with its scaling efficiency, which is None if the key has no baseline."""
        base, has_throughput = (
            self._baselines.get(key),
            row.get(THROUGHPUT_COLUMN) and "step_time_s" in row,
        )
        efficiency = (
            number_of_row(row, THROUGHPUT_COLUMN) / base[1] if base and has_throughput else None
        )
        return {**row, SCALING_COLUMN: efficiency}


@record(kw_only=True, repr=False)
class Comparison:
    """Recommended plan of each value of one axis, such as the GPU.

    Parameters
    ----------
    axis : name of the axis
    table : result columns, one row for each value, the recommended value first, then by bad case
    losses : first objective of each row relative to the first row, less 1
    tied : whether each row is tied with the first one, within the error of predictions
    risks : what the first objective of each row counts worse by where plans are ranked
    without_plan : reason by value that has no plan
    """

    axis: str
    table: Columns
    losses: Sequence[float]
    without_plan: Mapping[Value, str]
    tied: Sequence[bool] = ()
    risks: Sequence[float] = ()

    def __repr__(self) -> str:
        best = f", best {self.table[self.axis][0]}" if self.losses else ""
        with_plan, without = len(self.losses), len(self.without_plan)
        return f"<Comparison by {self.axis}: {with_plan} with a plan{best}, {without} without>"


@record(kw_only=True, repr=False)
class SearchResult:
    """The Pareto front of a search, ordered by the first objective, and the rejected
    configurations.

    Parameters
    ----------
    problem : question of the search
    groups : front and counts of each model, GPU, framework and so on
    configurations_evaluated : configurations of the space
    configurations_predicted : configurations that break no rule, whose time and memory were
        predicted
    configurations_feasible : configurations that keep every limit
    rejected_by : number of rejected configurations by rule or limit
    nearest_misses : configuration closest to each limit, if nothing is feasible
    search_time : duration of the search [s]
    interrupted : not all configurations were searched
    """

    problem: Problem
    groups: Sequence[CellResult]
    configurations_evaluated: int
    configurations_predicted: int
    configurations_feasible: int
    rejected_by: Mapping[str, int]
    nearest_misses: tuple[NearestMiss, ...]
    search_time: float
    interrupted: bool = False

    @classmethod
    def of(
        cls,
        problem: Problem,
        groups: Sequence[CellResult],
        started: float,
        interrupted: bool = False,
    ) -> SearchResult:
        """Build the result of a search that began at ``started``.

        Parameters
        ----------
        problem : question of the search
        groups : front and counts of each cell
        started : start of the search, of `time.perf_counter` [s]
        interrupted : whether the search was stopped early
        """
        counts = np.sum([group.collector.counts for group in groups], axis=0)
        first_beyond_rules = problem.sources[0].num_rules + 1
        return cls(
            problem=problem,
            groups=groups,
            configurations_evaluated=int(counts.sum()),
            configurations_predicted=int(counts[0] + counts[first_beyond_rules:].sum()),
            configurations_feasible=int(counts[0]),
            rejected_by={
                name: int(count)
                for name, count in zip(problem.rejections, counts[1:], strict=True)
                if count
            },
            nearest_misses=tuple(nearest_misses(groups)),
            search_time=time.perf_counter() - started,
            interrupted=interrupted,
        )

    def __repr__(self) -> str:
        """Counts of feasible and evaluated configurations and of the front, as text."""
        feasible, all_of = self.configurations_feasible, self.configurations_evaluated
        text = f"{feasible:,} of {all_of:,} configurations feasible"
        if self.table:
            text += f", {len(self.table['num_gpus']):,} on the front"
        return f"<{type(self).__name__}: {text}; {self.problem!r}>"

    @cached_property
    def fastest(self) -> Candidates | None:
        """The feasible configuration with the best first objective; None: nothing is feasible."""
        best = best_row(self.groups)
        if best is None:
            return None
        predicted = (choice for choice in (self._choice, self._tied_choice) if choice is not None)
        same = next((choice for choice in predicted if _is_same(choice, *best)), None)
        return best[0].judged(best[1]) if same is None else same.judged

    @cached_property
    def recommended(self) -> Candidates | None:
        """The recommended plan with its predictions; None: nothing is feasible.

        Among ties: of the cell with the best bad case, or of a tied cell with more evidence, the
        simplest plan that is tied with its fastest.
        """
        return None if self._choice is None else self._choice.judged

    @property
    def recommended_configuration(self) -> ConfigurationTable | None:
        """The configuration of the recommended plan; None: nothing is feasible."""
        return None if self._choice is None else self._choice.configuration

    @cached_property
    def proven(self) -> Candidates | None:
        """The recommended plan among software that was measured on its GPU; None: none was."""
        choice = recommend_plan(self.problem, self.groups, is_proven=True)
        recommended = self._choice
        if (
            choice is None
            or recommended is None
            or _is_same(choice, recommended.source, recommended.configuration)
        ):
            return None if choice is None else self.recommended
        return choice.judged

    @cached_property
    def better_tied(self) -> Candidates | None:
        """The plan of another cell that is tied and predicted to be better; None: there is none."""
        return None if self._tied_choice is None else self._tied_choice.judged

    @cached_property
    def _tied_choice(self) -> RankedConfiguration | None:
        choice = self._choice
        return choice and tied_but_faster_plan(self.problem, self.groups, choice)

    @cached_property
    def regret(self) -> float:
        """Expected loss of the recommended plan against the best plans of other cells, as a share
        of its first objective; NaN: unknown."""
        return expected_regret(self.problem, self.groups, self._choice) if self._choice else np.nan

    @cached_property
    def recommended_row(self) -> TypedRow:
        """Result columns of the recommended plan; empty: nothing is feasible."""
        return {} if self.recommended is None else self.recommended.row

    @cached_property
    def _choice(self) -> RankedConfiguration | None:
        return recommend_plan(self.problem, self.groups)

    @cached_property
    def table(self) -> Columns:
        """Result columns of the front, predicted again at the first use; empty: nothing is
        feasible."""
        return columns_of(joint_front(self.groups, self.problem.max_front_factor))

    @cached_property
    def recommended_and_front(self) -> IndexedCandidates:
        """The recommended plan followed by the front, as judged candidates."""
        return joint_front(self.groups, self.problem.max_front_factor, self._choice)

    @cached_property
    def comparisons(self) -> Mapping[str, Comparison]:
        """The comparison along each outer axis with several values, by axis."""
        return {axis: self._comparison(axis) for axis in self.problem.axes}

    def to_frame(self) -> pd.DataFrame:
        """The front as a pandas frame: one row per configuration, with intervals.

        Units are in the names of the columns.
        """
        import pandas as pd

        return pd.DataFrame(full_columns(self.scaled(self.table), self.problem.sources))

    def scaled(self, table: Columns) -> Columns:
        """The columns with scaling efficiency, if the search compares only numbers of GPUs.

        The column is added if the search compares numbers of GPUs of one kind, for one model.

        Parameters
        ----------
        table : result columns of plans
        """
        axes = self.problem.axes
        if "num_gpus" not in axes or any(name in axes for name in MATCHING_TERMS):
            return table
        return add_scaling_efficiency(table, self.comparisons["num_gpus"].table)

    def _comparison(self, axis: str) -> Comparison:
        """Compare the best plans by value of an axis: rows, losses, reasons for missing plans."""
        chosen, plans = self._choice, list[RankedConfiguration]()
        without: dict[Value, str] = {}
        chosen_value = None if chosen is None else cell_of(self.problem, chosen)[axis]
        for value, groups in group_by_axis_value(self.problem, self.groups, axis).items():
            best = recommend_plan(self.problem, groups)
            if best is not None:
                plans += [best] if value != chosen_value else []
            elif reason := _rejection_text(self.problem, groups) or self._refusal(axis, value):
                without[value] = reason
        plans.sort(key=lambda plan: (plan.bad_case, *plan.values))
        plans = plans if chosen is None else [chosen, *plans]
        rows = [self.recommended_row if plan is chosen else plan.judged.row for plan in plans]
        losses = [_relative_loss(plan.values[0], plans[0].values[0]) for plan in plans]
        return Comparison(
            axis=axis,
            table={name: [row[name] for row in rows] for name in (rows[0] if rows else ())},
            losses=losses,
            without_plan=without,
            tied=[is_tied_with(self.problem, plan, plans[0]) for plan in plans],
            risks=[plan.risk for plan in plans],
        )

    def _refusal(self, axis: str, value: object) -> str:
        """The reason why a value of an axis was not searched; empty: it was."""
        reasons = (why for cell, why in self.problem.refused if cell.get(axis) == value)
        return next(reasons, "")


def columns_of(pieces: IndexedCandidates) -> Columns:
    """The result columns of candidates of several sources, in order of their positions."""
    return joined_columns([(places, judged.columns()) for places, judged in pieces])


def _is_same(choice: RankedConfiguration, source: Source, configuration: object) -> bool:
    """True if a plan has this source and the same value of each parameter."""
    choice_table = choice.configuration
    return choice.source is source and all(
        np.array_equal(getattr(choice_table, name), getattr(configuration, name))
        for name in choice_table.names()
    )


def _rejection_text(problem: Problem, groups: Sequence[CellResult]) -> str:
    """The name of the limit that rejected most plans; a hint if its value is unknown."""
    reason = main_rejection(problem, groups)
    misses = [
        miss for group in groups for miss in group.collector.misses if miss.rejection == reason
    ]
    if misses and not any(np.isfinite(miss.value) for miss in misses):
        return f"{reason} is unknown: give --price"
    return reason


def _relative_loss(value: float, first: float) -> float:
    """The relative loss of a minimized value against ``first``; NaN: ``first`` is 0."""
    if value == first:
        return 0.0
    return float(value - first) / abs(float(first)) if first else np.nan
