"""The largest batch and the longest sequence of a plan, over every number there is.

All numbers are one array of configurations, judged at once by the rules, the memory and the limits
of the question; nothing is searched step by step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from planner.base.arrays import CodeArray, FloatArray, first
from planner.base.cells import Row
from planner.base.records import record
from planner.configurations.table import ConfigurationTable
from planner.configurations.training import TrainingConfigurations
from planner.errors import SearchSpaceError
from planner.optimize.collector import first_row, known_value
from planner.optimize.source import Source
from planner.plan.plan import Plan
from planner.specs.checked import unchecked
from planner.workloads.base import Evaluation

_MOST_TOKENS = 2**20
"""Tokens that are tried where nothing but memory ends a sequence."""

_MOST_BATCH = 2**16
_SHARE = "the sequences of a batch that a data-parallel rank has"
_HALVES = 5
_COARSE = 2**12
"""Numbers that are judged at once; beyond them, those between the last that fits and the next."""

Grown = Callable[[FloatArray], tuple[Source, ConfigurationTable]]
"""The source and the configurations of a plan with each of some numbers."""


@record(kw_only=True)
class Largest:
    """The largest number of a thing with which a plan is feasible.

    ``name`` is the parameter or question, ``own`` the plan's number, ``most`` the largest that was
    tried, and ``ends_at`` what ends there. ``largest`` is None where not even one is feasible.
    ``following`` is the next number that the rules allow, and ``reason`` what rejects it. ``rows``
    are the result columns of some numbers, the largest among them.
    """

    name: str
    own: int
    most: int
    ends_at: str
    largest: int | None
    following: int | None
    reason: str
    rows: Mapping[int, Row]

    @property
    def row(self) -> Row | None:
        """The result columns at the largest."""
        return None if self.largest is None else self.rows[self.largest]

    def to_dict(self) -> dict[str, object]:
        """Plain words and numbers, as JSON takes them."""
        rows = [
            {self.name: number, **{name: known_value(value) for name, value in row.items()}}
            for number, row in self.rows.items()
        ]
        told = {name: value for name, value in vars(self).items() if name != "rows"}
        return {**told, "rows": rows}


def largest_batch(plan: Plan, found: Evaluation) -> Largest:
    """The most sequences of a micro-batch, or requests at once of a replica or worker."""
    return largest_batch_of(plan, found.source, found.candidates.configurations)


def largest_batch_of(
    plan: Plan, source: Source, configurations: ConfigurationTable, *, alone: bool = False
) -> Largest:
    """The same of the one configuration of a source; ``alone``: its row and no smaller ones."""
    name, most = plan.workload.batch, _most_in_batch(configurations)

    def grown(numbers: FloatArray) -> tuple[Source, ConfigurationTable]:
        rows = configurations.rows(np.zeros(numbers.size, dtype=np.intp))
        return source.without_waiting, replace(rows, **{name: rows.cast(name, numbers)})

    return _largest(
        plan,
        name,
        own=int(np.ravel(getattr(configurations, name))[0]),
        most=most,
        grown=grown,
        ends_at=_SHARE if most < _MOST_BATCH else "",
        alone=alone,
    )


def largest_length(plan: Plan, found: Evaluation, name: str) -> Largest:
    """The longest sequence, prompt or answer, the other lengths as they are.

    All requests at once find room for it; of a plan with more than have room, as many as do.

    Raises
    ------
    SearchSpaceError
        Samples have lengths of their own, or it is no length of the workload.
    """
    work, known = found.source.setting.workload, plan.workload.lengths
    if name not in known:
        raise SearchSpaceError(f"{name} is no length: choose {' or '.join(known)}.")
    if getattr(work, "mean_sample_length", 0):
        raise SearchSpaceError("Samples of given lengths have no longest sequence: leave them out.")
    others = sum(getattr(work, other) for other in known if other != name)
    model, taken = found.source.setting.model, getattr(work, "max_model_len", None)
    serves = plan.workload.profile_kind == "engine"
    positions = model.max_position_embeddings if serves else model.most_positions
    bound = min(filter(None, (taken, positions)), default=None)
    ends_at = "the positions of the model" if bound == positions else "max_model_len of the engine"
    configurations = found.candidates.held

    def grown(numbers: FloatArray) -> tuple[Source, ConfigurationTable]:
        lengths = int(numbers[0]) if numbers.size == 1 else numbers
        source = found.source.without_waiting.changed(
            lambda setting: replace(
                setting, workload=unchecked(setting.workload, **{name: lengths})
            )
        )
        return source, configurations.rows(np.zeros(numbers.size, dtype=np.intp))

    return _largest(
        plan,
        name,
        own=int(getattr(work, name)),
        most=max(int((bound or _MOST_TOKENS) - others), 1),
        grown=grown,
        ends_at=ends_at if bound else "",
    )


def _most_in_batch(configurations: ConfigurationTable) -> int:
    """What a batch may have at most: a rank's share of it in training."""
    if not isinstance(configurations, TrainingConfigurations):
        return _MOST_BATCH
    batch = first(configurations.global_batch_size)
    return max(int(batch // first(configurations.data_parallel)), 1)


def _largest(
    plan: Plan, name: str, *, own: int, most: int, grown: Grown, ends_at: str, alone: bool = False
) -> Largest:
    numbers = _allowed(plan, grown, np.arange(1.0, most + 1))
    tried, codes = _judged(plan, grown, numbers)
    feasible = np.flatnonzero(codes == 0)
    last = int(feasible[-1]) if feasible.size else -1
    following = last + 1 if last + 1 < tried.size else None
    largest = int(tried[last]) if feasible.size else None
    # Where none is feasible the rule is told that the furthest of them break.
    code = 0 if following is None else codes[following] if feasible.size else codes.max()
    return Largest(
        name=name,
        own=own,
        most=int(numbers[-1]),
        ends_at=ends_at,
        largest=largest,
        following=None if following is None else int(tried[following]),
        reason=_reason(plan, int(code)) if code else "",
        rows={number: _row(grown, number) for number in _shown(numbers, largest, own, alone)},
    )


def _allowed(plan: Plan, grown: Grown, numbers: FloatArray) -> FloatArray:
    """The numbers that no rule forbids; all where it forbids every one, which is told then."""
    source, configurations = grown(numbers)
    broken = np.broadcast_to(source.broken(configurations), configurations.shape)
    allowed = numbers[(broken == 0) | (broken >= plan.problem.first_soft)]
    return allowed if allowed.size else numbers


def _judged(plan: Plan, grown: Grown, numbers: FloatArray) -> tuple[FloatArray, CodeArray]:
    """Numbers in order and what rejects each; of very many those about the end of what fits."""
    if numbers.size <= _COARSE:
        return numbers, _codes(plan, grown, numbers)
    step = -(-numbers.size // _COARSE)
    feasible = np.flatnonzero(_codes(plan, grown, numbers[::step]) == 0)
    at = int(feasible[-1]) * step if feasible.size else 0
    near = numbers[at : at + step + 1]
    return near, _codes(plan, grown, near)


def _codes(plan: Plan, grown: Grown, numbers: FloatArray) -> CodeArray:
    """0 or the number of what rejects each, the limits of the question among it."""
    source, configurations = grown(numbers)
    return plan.problem.codes(source.judged(configurations)).ravel()


def _row(grown: Grown, number: int) -> Row:
    """The result columns at one number."""
    source, configurations = grown(np.array([float(number)]))
    return first_row(source.judged(configurations).columns())


def _reason(plan: Plan, code: int) -> str:
    """What a rejection says."""
    name = plan.problem.rejections[code - 1]
    rules = {rule.name: rule.description for rule in plan.problem.sources[0].rules}
    return rules.get(name, f"it misses the limit {name}")


def _shown(numbers: FloatArray, largest: int | None, own: int, alone: bool) -> list[int]:
    """Some numbers up to the largest: about halves of it, and the plan's own, or it ``alone``."""
    if largest is None:
        return []
    if alone:
        return [largest]
    known = numbers[numbers <= largest].astype(int)
    halves = [known[np.searchsorted(known, largest / 2**power)] for power in range(_HALVES)]
    return sorted({*map(int, halves), *({own} & set(known.tolist()))})
