"""The largest batch and the longest sequence that fit, of one layout and of each method."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace

import numpy as np

from planner.base.arrays import CodeArray, FloatArray, first
from planner.base.csv_cells import Row, Value
from planner.base.records import record
from planner.base.units import ceil_div
from planner.configurations.configuration_tables import ConfigurationTable, TrainingConfigurations
from planner.decide.near import TARGET_FIT_PROBABILITY
from planner.errors import SearchSpaceError
from planner.optimize.collector import value_or_none
from planner.optimize.result_columns import fit_probability
from planner.optimize.source import Source
from planner.question.request import ALL, Request
from planner.question.terms import glossary
from planner.specs.training_workload import RlWorkload
from planner.specs.validated import replace_unvalidated
from planner.workloads.make_plan import Plan, make_plan
from planner.workloads.registry import workload_of
from planner.workloads.workload import Evaluation, Workload, as_single_table

_MOST_TOKENS = 2**20
"""Longest sequence that is tried if only memory limits it [tokens]."""

_MOST_BATCH = 2**16
_SHARE = "the sequences of a batch that a data-parallel rank has"
_HALVES = 5
_COARSE = 2**12
"""Numbers that are judged at once; beyond them, those between the last that fits and the next."""

SourceAtSize = Callable[[FloatArray], tuple[Source, ConfigurationTable]]
"""Function from sizes to the source and configurations of a plan with these sizes."""


@record(kw_only=True)
class LargestFit:
    """The largest batch or length with which a plan is feasible.

    Parameters
    ----------
    name : parameter or question that grows
    current : value of the plan
    most : largest value that was tried
    ends_at : name of what limits ``most``
    largest : largest feasible value; None: none
    largest_likely : largest value that is at least 90 % likely to fit; None: none
    following : next value that the rules allow; None: none
    reason : what rejects ``following``
    rows : result columns by value, for some values and the largest
    """

    name: str
    current: int
    most: int
    ends_at: str
    largest: int | None
    largest_likely: int | None
    following: int | None
    reason: str
    rows: Mapping[int, Row]

    @property
    def row(self) -> Row | None:
        """Result columns at the largest value; None: nothing is feasible."""
        return None if self.largest is None else self.rows[self.largest]

    def to_dict(self) -> dict[str, object]:
        """Return the largest value as a dictionary for JSON."""
        rows = [
            {self.name: number, **{name: value_or_none(value) for name, value in row.items()}}
            for number, row in self.rows.items()
        ]
        fields = {name: value for name, value in vars(self).items() if name != "rows"}
        return {**fields, "rows": rows}


def largest_batch(plan: Plan, evaluation: Evaluation) -> LargestFit:
    """The largest micro-batch, or number of concurrent requests of a replica or worker."""
    return largest_batch_of_configuration(
        plan, evaluation.source, evaluation.candidates.configurations
    )


def largest_batch_of_configuration(
    plan: Plan, source: Source, configurations: ConfigurationTable, *, is_only: bool = False
) -> LargestFit:
    """Find the largest batch of one configuration that fits; ``is_only``: report no other."""
    _check_batch(plan.workload)
    name, max_batch = plan.workload.batch, _MOST_BATCH
    if isinstance(configurations, TrainingConfigurations):  # a rank's share of it
        batch = first(configurations.global_batch_size)
        max_batch = max(int(batch // first(configurations.data_parallel)), 1)

    def grown(numbers: FloatArray) -> tuple[Source, ConfigurationTable]:
        rows = configurations.rows(np.zeros(numbers.size, dtype=np.intp))
        return source.with_immediate_admission, replace(rows, **{name: rows.cast(name, numbers)})

    return _find_largest(
        plan,
        name,
        current=int(np.ravel(getattr(configurations, name))[0]),
        max_size=max_batch,
        grown=grown,
        ends_at=_SHARE if max_batch < _MOST_BATCH else "",
        is_only=is_only,
    )


def _check_batch(workload: Workload) -> None:
    """Raise SearchSpaceError if the workload has no batch size that can grow."""
    if not workload.batch:
        raise SearchSpaceError(
            "Micro-batches have room for the longest sequence here: run planner max-length to get "
            "its length."
        )


def largest_length(plan: Plan, evaluation: Evaluation, name: str) -> LargestFit:
    """Find the longest sequence, prompt or answer [tokens] that fits; other lengths are fixed.

    All concurrent requests must have room at this length; if not all of the plan's requests fit at
    once, as many requests as do fit.

    Raises SearchSpaceError if samples have lengths of their own, or it is no length of the
    workload.
    """
    work, workload = evaluation.source.inputs.workload, plan.workload
    length_names = workload.longest or workload.lengths
    if name not in length_names:
        raise SearchSpaceError(f"{name} is not a length: choose {' or '.join(length_names)}.")
    if getattr(work, "mean_sample_length", 0):
        raise SearchSpaceError("Samples of given lengths have no longest sequence: leave them out.")
    current, least = int(getattr(work, name)), 1
    others = sum(getattr(work, other) for other in length_names if other != name)
    if isinstance(work, RlWorkload):  # a cap, which is the mean at least
        others, least = work.longest - current, work.output_tokens
    model, max_model_len = evaluation.source.inputs.model, getattr(work, "max_model_len", None)
    serves = plan.workload.profile_kind == "engine"
    positions = model.max_position_embeddings if serves else model.most_positions
    budget = getattr(work, "micro_batch_tokens", None)
    bound = min(filter(None, (max_model_len, positions, budget)), default=None)
    ends_at = {
        max_model_len: "the longest request that the engine takes",
        budget: "micro_batch_tokens",
        positions: "the positions of the model",
    }.get(bound, "")
    configurations = evaluation.candidates.held

    def grown(numbers: FloatArray) -> tuple[Source, ConfigurationTable]:
        """Return the search inputs and configurations with other lengths [tokens]."""
        lengths = int(numbers[0]) if numbers.size == 1 else numbers
        source = evaluation.source.with_immediate_admission.changed(
            lambda inputs: replace(
                inputs, workload=replace_unvalidated(inputs.workload, **{name: lengths})
            )
        )
        return source, configurations.rows(np.zeros(numbers.size, dtype=np.intp))

    return _find_largest(
        plan,
        name,
        current=current,
        max_size=max(int((bound or _MOST_TOKENS) - others), least),
        grown=grown,
        ends_at=ends_at if bound else "",
        least=least,
    )


def _find_largest(
    plan: Plan,
    name: str,
    *,
    current: int,
    max_size: int,
    grown: SourceAtSize,
    ends_at: str,
    is_only: bool = False,
    least: int = 1,
) -> LargestFit:
    """Search ``least`` to ``max_size`` for the largest feasible size; ``grown`` applies a size."""
    numbers = np.arange(float(least), max_size + 1)
    if plan.workload.longest:
        tried, codes = _bisect_sizes(plan, grown, numbers)
    else:
        source, configurations = grown(numbers)
        broken = np.broadcast_to(source.broken(configurations), configurations.shape)
        is_allowed = (broken == 0) | (broken >= plan.problem.first_soft)
        # If a rule forbids all sizes, all are evaluated to report that rule.
        numbers = numbers[is_allowed] if is_allowed.any() else numbers
        tried, codes = _evaluate_sizes(plan, grown, numbers)
    feasible = np.flatnonzero(codes == 0)
    last = int(feasible[-1]) if feasible.size else -1
    following = last + 1 if last + 1 < tried.size else None
    largest = int(tried[last]) if feasible.size else None
    # If none is feasible, the reported rule is the last one in the order of rules.
    code = 0 if following is None else codes[following] if feasible.size else codes.max()
    likely = None
    if largest is not None and not is_only:
        likely = _largest_likely(grown, numbers[numbers <= largest])
    return LargestFit(
        name=name,
        current=current,
        most=int(numbers[-1]),
        ends_at=ends_at,
        largest=largest,
        largest_likely=likely,
        following=None if following is None else int(tried[following]),
        reason=_rejection_text(plan, int(code)) if code else "",
        rows={
            number: _row(grown, number)
            for number in _reported_sizes(numbers, largest, likely, current, is_only)
        },
    )


def _largest_likely(grown: SourceAtSize, feasible: FloatArray) -> int | None:
    """Return the largest of ascending feasible sizes that is likely to fit; None: none is."""
    above = bisect_left(
        feasible,
        True,
        key=lambda number: fit_probability(_row(grown, int(number))) < TARGET_FIT_PROBABILITY,
    )
    return int(feasible[above - 1]) if above else None


def _evaluate_sizes(
    plan: Plan, grown: SourceAtSize, numbers: FloatArray
) -> tuple[FloatArray, CodeArray]:
    """Return sizes and their rejection codes (0: feasible); of many, only near the largest."""
    if numbers.size <= _COARSE:
        return numbers, _rejection_codes(plan, grown, numbers)
    step = ceil_div(numbers.size, _COARSE)
    feasible = np.flatnonzero(_rejection_codes(plan, grown, numbers[::step]) == 0)
    start = int(feasible[-1]) * step if feasible.size else 0
    near = numbers[start : start + step + 1]
    return near, _rejection_codes(plan, grown, near)


def _bisect_sizes(
    plan: Plan, grown: SourceAtSize, numbers: FloatArray
) -> tuple[FloatArray, CodeArray]:
    """Find the largest feasible size and the next by bisection; returns them with codes."""
    low, high = 0, numbers.size - 1
    codes = {
        indices: int(_rejection_codes(plan, grown, numbers[indices : indices + 1])[0])
        for indices in (low, high)
    }
    while high - low > 1 and codes[low] == 0 and codes[high]:
        middle = (low + high) // 2
        codes[middle] = int(_rejection_codes(plan, grown, numbers[middle : middle + 1])[0])
        low, high = (low, middle) if codes[middle] else (middle, high)
    indices = sorted({low, high})
    return numbers[indices], np.array([codes[index] for index in indices], dtype=np.int8)


def _rejection_codes(plan: Plan, grown: SourceAtSize, numbers: FloatArray) -> CodeArray:
    """Rejection code of each size, limits of the question included; 0: feasible."""
    source, configurations = grown(numbers)
    return plan.problem.codes(source.judged(configurations)).ravel()


def _row(grown: SourceAtSize, number: int) -> Row:
    """The result columns at one number."""
    source, configurations = grown(np.array([float(number)]))
    return source.judged(configurations).row


def _rejection_text(plan: Plan, code: int) -> str:
    """Text of a rejection."""
    name = plan.problem.rejections[code - 1]
    rules = {rule.name: rule.description for rule in plan.problem.sources[0].rules}
    return rules.get(name, f"it misses the limit {name}")


def _reported_sizes(
    numbers: FloatArray, largest: int | None, likely: int | None, current: int, is_only: bool
) -> list[int]:
    """Return feasible sizes to report: the largest, about halves of it, the likely, the plan's."""
    if largest is None:
        return []
    if is_only:
        return [largest]
    feasible = numbers[numbers <= largest].astype(int)
    halves = [feasible[np.searchsorted(feasible, largest / 2**power)] for power in range(_HALVES)]
    further = [number for number in (current, likely) if number in feasible]
    return sorted({*map(int, halves), *filter(None, further)})


MOST_METHODS = 2_000


@record(kw_only=True)
class Method:
    """The largest batch of one method.

    Parameters
    ----------
    values : values of the settings that differ between methods
    largest : largest batch; None: the method is invalid
    reason : what limits the batch, or why there is none
    """

    values: Row
    largest: LargestFit | None
    reason: str = ""

    @property
    def row(self) -> Row:
        """Result columns at the largest batch; empty: nothing is feasible."""
        row = None if self.largest is None else self.largest.row
        return {} if row is None else row


@record(kw_only=True)
class Methods:
    """The largest batch of each method, in the order of the listed values.

    Parameters
    ----------
    plan : plan of the question
    name : parameter that grows: ``micro_batch_size`` to train, ``concurrency`` to serve
    methods : methods with their largest batches
    """

    plan: Plan
    name: str
    methods: Sequence[Method]

    @property
    def columns(self) -> dict[str, list[Value]]:
        """Return columns of equal length: differing parameters, largest batch and its results.

        A value is None if nothing is feasible.
        """
        values = dict.fromkeys(name for method in self.methods for name in method.values)
        results = dict.fromkeys(name for method in self.methods for name in method.row)
        result_names = [name for name in results if name not in values and name != self.name]
        return {
            **{name: [method.values.get(name) for method in self.methods] for name in values},
            self.name: [
                method.largest.largest if method.largest else None for method in self.methods
            ],
            **{
                n: [value_or_none(method.row.get(n)) for method in self.methods]
                for n in result_names
            },
            "ended_by": [method.reason for method in self.methods],
        }


def has_several(request: Request) -> bool:
    """Return True if any answer or setting of the request lists several values."""
    answers = [getattr(request, field.name) for field in fields(request)]
    tuples = [
        answer for answer in answers if isinstance(answer, tuple) and answer != request.objectives
    ]
    is_all = any(answer == ALL for answer in answers)
    return (
        is_all
        or any(answer == (ALL,) or _is_several(answer) for answer in tuples)
        or bool(_settings_with_several_values(request))
    )


def methods_of_layouts(request: Request) -> Methods:
    """Find the largest batch for each combination of the listed values of a request.

    A parameter that the request does not set has its default.

    Raises SpecError or SearchSpaceError if something is unknown, faulty or impossible, or there are
    too many methods.
    """
    workload = workload_of(request.workload)
    _check_batch(workload)
    batch = request.settings.get(workload.batch)
    if _is_several(batch):
        raise SearchSpaceError(f"{workload.batch} is what grows: leave its list out.")
    plan = make_plan(replace(request, space=workload.single))
    problem = plan.problem
    if any(source.mesh is None for source in problem.sources):
        raise SearchSpaceError("Several methods are compared for --mode aggregated alone.")
    if problem.num_rows > MOST_METHODS:
        raise SearchSpaceError(
            f"That is {problem.num_rows:,} methods: give lists of {MOST_METHODS:,} at most."
        )
    several = _settings_with_several_values(request)
    methods = [
        Method(values={name: cell.get(name) for name in problem.axes}, largest=None, reason=why)
        for cell, why in problem.refused
    ]
    for source, cell in zip(problem.sources, problem.cells, strict=True):
        axis_values = {name: cell.get(name) for name in problem.axes}
        table = as_single_table(source)
        # Those of the first name's first value first.
        columns = [np.broadcast_to(getattr(table, name), table.size) for name in reversed(several)]
        for place in np.lexsort(columns) if several else range(table.size):
            configuration = table.rows(np.array([place]))
            values = {
                name: glossary()[name].decode(getattr(configuration, name)[0]) for name in several
            }
            largest = largest_batch_of_configuration(plan, source, configuration, is_only=True)
            reason = largest.reason
            if largest.largest is not None and largest.following is None:
                ends = largest.ends_at
                reason = f"it ends with {ends}" if ends else "more were not tried"
            methods.append(Method(values=axis_values | values, largest=largest, reason=reason))
    return Methods(plan=plan, name=workload.batch, methods=methods)


def _is_several(values: object) -> bool:
    return isinstance(values, list | tuple) and len(values) > 1


def _settings_with_several_values(request: Request) -> list[str]:
    """The settings that have several values."""
    return [name for name, values in request.settings.items() if _is_several(values)]
