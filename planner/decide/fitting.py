"""Make a plan fit in memory: changed parameters, another plan, more GPUs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import combinations_with_replacement

import numpy as np

from planner.base.arrays import BoolArray
from planner.base.csv_cells import Row, Value, number_or_nan
from planner.base.records import record
from planner.confidence.intervals import MEDIAN
from planner.configurations.configuration_tables import (
    OUT_OF_HOST_MEMORY,
    ConfigurationTable,
    ServingConfigurations,
    TrainingConfigurations,
)
from planner.configurations.training_rules import OUT_OF_MEMORY
from planner.decide.near import (
    CHANGES,
    FOLLOWING,
    TARGET_FIT_PROBABILITY,
    WORTH,
    Best,
    Change,
    MayBe,
    best_candidates_by_distance,
    default_space_plan,
    free_parameter_values,
    limit_concurrency,
    make_change,
)
from planner.errors import PlannerError
from planner.estimators.inference.batch_share import ServingInputs
from planner.estimators.training.micro_batch_share import TrainingInputs
from planner.optimize.collector import full_rows
from planner.optimize.exhaustive import exhaustive_search
from planner.optimize.problem import Problem
from planner.optimize.result_columns import fit_probability
from planner.optimize.source import Candidates, Source
from planner.question.terms import glossary, remedies_of, terms_about
from planner.specs.engine import MemoryShare
from planner.workloads.make_plan import Plan, evaluate, make_plan, make_single_plan
from planner.workloads.saved_plan import SavedPlan
from planner.workloads.workload import Evaluation

MEMORIES = (OUT_OF_MEMORY.name, OUT_OF_HOST_MEMORY.name)
MOST_GPUS = 1024
"""Largest number of GPUs that is tried."""

MUCH_FASTER = 3.0
"""Gain from which another number format, or what a file cannot express, is named first."""

_FASTER = 1.05
# A few of many values show what memory allows.
_MOST_VALUES = 8
_CAP = "concurrency"
_SHARE = "gpu_memory_utilization"
# Their values are those of the framework's default space.
_SPACE_PARAMETERS = ("tensor_parallel", "pipeline_parallel")
_EXCHANGE, _SPLIT = "cp_comm_type", "context_parallel"
_REQUESTS = (1, 8, 64)
_ROUNDED = ("StatePrecision", "MainPrecision")


@record(kw_only=True)
class Fitting:
    """Changes that make a plan fit.

    ``changes`` has the fastest for each number of changed parameters, those that keep all number
    formats before others, unless these are several times as fast. ``tried`` has the values that may
    need less memory and that the framework or engine supports, by parameter.
    """

    changes: Sequence[Change]
    tried: Mapping[str, Sequence[Value]]


@record(kw_only=True)
class MoreGpus:
    """The fewest GPUs that fit, of the numbers up to ``most``.

    ``changes`` has numbers of GPUs with their changes: the fewest with only another layout, and
    before it fewer ones with other changes. It is empty if no number fits.
    """

    most: int
    changes: Sequence[tuple[int, Change]]


def changes_that_fit(plan: Plan, evaluation: Evaluation, may_be: MayBe) -> Fitting:
    """Try all sets of up to three changes to a plan that lacks memory; return those that fit."""
    current = evaluation.candidates.row
    wide = default_space_plan(plan, current)
    if wide is None:
        return Fitting(changes=(), tried={})
    table = evaluation.candidates.configurations
    nearby = [
        _NearbyConfigurations.of(plan, wide, table, current, may_be, lowers_limit=lowers_limit)
        for lowers_limit in ([False, True] if _samples_its_limit(plan) else [False])
    ]
    unchanged = _best_of_all(nearby, keeps_formats=True)
    others = _best_of_all(nearby, keeps_formats=False)
    fastest = max((value for _, (_, _, value) in unchanged.values()), default=0.0)
    faster = {count: item for count, item in others.items() if item[1][2] > _FASTER * fastest}
    changes = [_all_changes(unchanged), _all_changes(faster)]
    if any(value > MUCH_FASTER * fastest for _, (_, _, value) in faster.values()):
        changes.reverse()
    return Fitting(changes=[*changes[0], *changes[1]], tried=nearby[0].tried)


def gpus_that_fit(plan: Plan, evaluation: Evaluation, may_be: MayBe) -> MoreGpus:
    """Find the fewest GPUs, by doubling, on which the plan fits with up to three changes.

    Tries changes of the layout first, then all changes on fewer GPUs. The global batch stays if the
    GPUs divide it, or else grows in proportion.
    """
    current = evaluation.candidates.row
    end = min(MOST_GPUS, evaluation.source.inputs.machine.cluster.max_gpus or MOST_GPUS)
    doublings = range(1, int(math.log2(max(end / number_or_nan(current["num_gpus"]), 1))) + 1)
    counts = [int(number_or_nan(current["num_gpus"])) * 2**power for power in doublings]
    max_count = max(counts, default=0)
    changes: list[tuple[int, Change]] = []
    for only_layout in (True, False):
        for count in counts:
            if change := best_change_on_gpus(plan, evaluation, may_be, count, only_layout):
                changes.insert(0, (count, change))
                counts = [item for item in counts if item < count]
                break
    return MoreGpus(most=max_count, changes=changes)


def best_change_on_gpus(
    plan: Plan, evaluation: Evaluation, may_be: MayBe, count: int, only_layout: bool
) -> Change | None:
    """Return the fastest layout, or the fewest changes, with which the plan fits on other GPUs.

    None: no change that was tried fits.
    """
    current = evaluation.candidates.row
    row = current if count == current["num_gpus"] else _on_gpus(current, count)
    table = evaluation.candidates.configurations
    names = ("num_gpus", "global_batch_size")
    columns = {
        name: np.full(table.shape, table.cast(name, glossary()[name].encode(row[name])))
        for name in names
        if name in table.names()
    }
    base = replace(table, **columns)
    wide = default_space_plan(plan, row)
    if wide is None:
        return None
    near = _NearbyConfigurations.of(plan, wide, base, row, may_be, only_layout)
    best = near.best(near.keeps_formats, range(CHANGES.stop), (TARGET_FIT_PROBABILITY,))
    if not best:
        return None
    fastest = max(best, key=lambda changes: best[changes][2])
    chosen = fastest if only_layout and 0 not in best else min(best)
    change = near.changes({chosen: best[chosen]})[0]
    grown = {name: (current[name], row[name]) for name in row if row[name] != current[name]}
    grown.pop("num_gpus", None)
    return replace(change, changed={**grown, **change.changed})


def adapter_that_fits(plan: Plan) -> tuple[str, Row] | None:
    """Return the first adapter (LoRA, QLoRA) with which the plan fits, with its row; None: none."""
    request = plan.request
    kinds = plan.workload.adapters
    if str(getattr(request, "adapter", kinds[-1])) not in kinds:
        return None
    for kind in kinds[kinds.index(str(request.adapter)) + 1 :]:
        with suppress(PlannerError):
            other = make_single_plan(request.changed(adapter=kind))
            judged = evaluate(other)
            (row,) = full_rows(judged.table(), [judged.source])
            if not judged.rejected_by and not fit_probability(row) < TARGET_FIT_PROBABILITY:
                return kind, row
    return None


def options_that_raise_fit_probability(plan: Plan, row: Row) -> dict[str, float]:
    """Return options that raise the fit probability to 90 % or more, with the probability reached.

    Empty: the fit probability is already 90 %, or is unknown.
    """
    if not fit_probability(row) < TARGET_FIT_PROBABILITY:
        return {}
    current = make_single_plan(SavedPlan.of(plan, row).request())
    evaluation, options = evaluate(current), {}
    if evaluation.source.mesh is not None and not evaluation.rejected_by:
        changes = changes_that_fit(current, evaluation, lambda *_: True).changes
        for change in [item for item in changes if item.fit_probability >= TARGET_FIT_PROBABILITY][
            :1
        ]:
            settings = (f"--set {name}={value}" for name, (_, value) in change.changed.items())
            options[" ".join(settings).lower()] = change.fit_probability
    if adapter := adapter_that_fits(current) or _adapter_of_other_software(plan):
        options[f"--adapter {adapter[0]}"] = fit_probability(adapter[1])
    return options


def _adapter_of_other_software(plan: Plan) -> tuple[str, Row] | None:
    """Return the first adapter with which a plan of any requested software fits; None: none."""
    kinds, current = plan.workload.adapters, plan.request.adapter
    for kind in kinds[kinds.index(current) + 1 :] if current in kinds else ():
        with suppress(PlannerError):
            best = exhaustive_search(make_plan(plan.request.changed(adapter=kind)).problem)
            if best.recommended is not None:
                row = best.recommended.row
                if not fit_probability(row) < TARGET_FIT_PROBABILITY:
                    return kind, row
    return None


def _layout(source: Source) -> tuple[str, ...]:
    """Parameters that depend on the number of GPUs."""
    degrees = terms_about("model_parallel", _workload_of(source))
    return (*degrees, "zero_stage", "micro_batch_size")


def relief_values(source: Source, current: Row, may_be: MayBe) -> dict[str, list[Value]]:
    """Return, by parameter, values that may need less memory than the plan's, least saving first.

    The table of terms lists the values of a parameter in this order.
    """
    relief: dict[str, list[Value]] = {}
    for name, texts in remedies_of(_workload_of(source)).items():
        term = glossary()[name]
        if name not in current or (name == "precision" and current[name] not in ("fp32", "tf32")):
            continue
        choices = [term.decode(term.encode(_parse_value(text, term.type))) for text in texts]
        now: object = current[name]
        saves_less = choices.index(now) + 1 if now in choices else 0
        if name == "offload" and saves_less:  # the host's memory may be what is too small
            choices = [str(term.default_value), *(item for item in choices if item != now)]
            saves_less = 0
        values = [value for value in choices[saves_less:] if may_be(name, value)]
        if values and name not in (
            *_SPACE_PARAMETERS,
            *unsupported_memory_savers(source, number_or_nan(current["num_gpus"])),
        ):
            relief[name] = list(dict.fromkeys(values))
    return relief


def _smaller_cache_share(source: Source, current: Row, may_be: MayBe) -> dict[str, list[Value]]:
    """Return the default share of a cache that takes a larger one before any step runs."""
    inputs = source.inputs
    if not isinstance(inputs, ServingInputs):
        return {}
    memory, share = inputs.engine.memory, number_or_nan(current.get(_SHARE))
    is_first = memory.memory_share is MemoryShare.LOADED and share > memory.gpu_memory_utilization
    if not is_first or not may_be(_SHARE, memory.gpu_memory_utilization):
        return {}
    return {_SHARE: [memory.gpu_memory_utilization]}


def without_formats(values: Mapping[str, Sequence[Value]]) -> dict[str, Sequence[Value]]:
    """The values of parameters that change no number format."""
    return {name: several for name, several in values.items() if not _is_format(name)}


def _is_format(name: str) -> bool:
    term = glossary()[name]
    return term.is_format or term.type.partition(":")[2] in _ROUNDED


def _workload_of(source: Source) -> str:
    mesh = source.mesh
    return "" if mesh is None else mesh.kind.workload


def unsupported_memory_savers(source: Source, num_gpus: float) -> list[str]:
    """Return memory-saving parameters that the framework lacks although no rule forbids them.

    Frameworks with interleaved pipelines have built-in losses, so that ``loss_kernel`` has no
    effect. Paged optimizers of bitsandbytes do not support FSDP shards (bitsandbytes issues 89 and
    1633, torchtune issue 1856), which have no ZeRO stage 1.
    """
    inputs = source.inputs
    if not isinstance(inputs, TrainingInputs):
        return []
    is_fsdp = 1 not in inputs.framework.zero_stages and num_gpus > 1
    names = {"loss_kernel": inputs.framework.interleaved_schedule, "paged_optimizer": is_fsdp}
    return [name for name, is_unsupported in names.items() if is_unsupported]


def _parse_value(text: str, type_: str) -> object:
    if type_ == "flag":
        return text == "true"
    return float(text) if type_ in ("count", "share", "number") else text


def _on_gpus(current: Row, count: int) -> dict[str, Value]:
    """Return the row of a plan on ``count`` GPUs; its global batch grows only if it must."""
    row = {**current, "num_gpus": count}
    if "global_batch_size" in current:
        batch = number_or_nan(current["global_batch_size"])
        before = number_or_nan(current["num_gpus"])
        copies = number_or_nan(current["data_parallel"]) * count / before
        if batch % (copies * number_or_nan(current["micro_batch_size"])):
            row["global_batch_size"] = int(batch * count / before)
    return row


@record(kw_only=True)
class _NearbyConfigurations:
    """All configurations with up to three changes that break no rule, judged."""

    plan: Plan
    problem: Problem
    candidates: Candidates
    current: Row
    relief: Mapping[str, Sequence[Value]]
    most_requests: float = 1.0

    @classmethod
    def of(
        cls,
        plan: Plan,
        wide: Plan,
        base: ConfigurationTable,
        current: Row,
        may_be: MayBe,
        only_layout: bool = False,
        lowers_limit: bool = False,
    ) -> _NearbyConfigurations:
        """Predict configurations near ``current`` that break no rule, with the user's limits.

        ``lowers_limit``: the option for requests at once is one of the parameters to change.
        """
        problem = limit_concurrency(wide.problem, plan, current)
        # Only the limits that the user sets: whatever fits counts, however slow.
        user_limits = {limit.name for limit in plan.problem.constraints if not limit.assumed}
        limits = tuple(item for item in problem.constraints if item.name in user_limits)
        problem = replace(problem, constraints=limits)
        (source,) = problem.sources
        if plan.workload.name == "serve" and not lowers_limit:
            # An engine takes in as many requests as it has room for: that is no change.
            current, base = _with_fewer_requests(current, base)
            source = source.changed(_with_kept_limit)
            problem = replace(problem, sources=(source,))
        relief = relief_values(source, current, may_be)
        if only_layout:
            relief = {name: relief[name] for name in _layout(source) if name in relief}
        values = {
            name: _evenly_spread([value for value in several if value != current[name]])
            for name, several in free_parameter_values(wide, current, may_be).items()
            if name in _layout(source) or not only_layout
        }
        relief |= {} if only_layout else _smaller_cache_share(source, current, may_be)
        for name in _SPACE_PARAMETERS:
            more = [
                value
                for value in values.get(name, ())
                if number_or_nan(value) > number_or_nan(current[name])
            ]
            relief |= {name: more} if more else {}
        for name, several in relief.items():
            values[name] = list(dict.fromkeys([*values.get(name, ()), *several]))
        table = nearby_configurations(base, values, may_be, max(CHANGES))
        if isinstance(source.inputs, TrainingInputs) and current[_SPLIT] == 1:
            # The exchange follows the framework where sequences are split: no change of the user's.
            current = _with_open_parameter(current, _EXCHANGE)
            usual = glossary()[_EXCHANGE].encode(source.inputs.framework.cp_comm_type)
            exchange = np.where(getattr(table, _SPLIT) > 1, usual, getattr(table, _EXCHANGE))
            table = replace(table, **{_EXCHANGE: table.cast(_EXCHANGE, exchange)})
        possible = np.flatnonzero(np.broadcast_to(source.broken(table) == 0, table.shape))
        # Where rules reject all of them one is judged, and rejected as well.
        table = table.rows(possible if possible.size else np.zeros(1, dtype=np.intp))
        judged = source.judged(table)
        return cls(
            plan=plan,
            problem=problem,
            candidates=judged,
            current=current,
            relief=relief,
            most_requests=float(np.max(getattr(base, _CAP, 1.0))),
        )

    @property
    def keeps_formats(self) -> BoolArray:
        """Return True for each configuration with the same number formats as the plan."""
        table = self.candidates.configurations
        unchanged = np.ones(table.shape, dtype=np.bool_)
        for name in table.names():
            if _is_format(name):
                unchanged &= getattr(table, name) == glossary()[name].encode(self.current[name])
        return unchanged

    @property
    def tried(self) -> dict[str, list[Value]]:
        """Return, by parameter, the memory-saving values that break no rule."""
        table = self.candidates.configurations
        tried = {}
        for name, several in self.relief.items():
            codes = {float(code) for code in np.unique(getattr(table, name))}
            if values := [item for item in several if glossary()[name].encode(item) in codes]:
                tried[name] = values
        return tried

    def best(
        self,
        among: BoolArray,
        counts: range = CHANGES,
        fit_probabilities: Sequence[float] = (TARGET_FIT_PROBABILITY, MEDIAN),
    ) -> Best:
        """Return the fastest configuration per number of changes, if possible with a sure fit."""
        for min_fit_probability in fit_probabilities:
            best = best_candidates_by_distance(
                self.problem, self.candidates, self.current, min_fit_probability, counts, among
            )
            if best:
                return best
        return {}

    def changes(self, best: Best, reached: float = 0.0) -> list[Change]:
        """Return the changes of the best rows, fewest first, if more changes gain more.

        ``reached``: the objective that they must exceed.
        """
        changes: list[Change] = []
        for candidates, place, value in map(
            self._fill_with_requests, (best[count] for count in sorted(best))
        ):
            if value > reached * (1 + WORTH):
                changes.append(make_change(candidates, place, self.current, value, np.nan))
                reached = value
        return changes

    def _fill_with_requests(
        self, best: tuple[Candidates, int, float]
    ) -> tuple[Candidates, int, float]:
        """Raise the concurrent requests of a configuration to as many as fit, if that is faster."""
        candidates, place, value = best
        if _CAP in self.current or not hasattr(candidates.configurations, _CAP):
            return best
        (source,) = self.problem.sources
        row_table = candidates.configurations.rows(np.array([place]))
        room = self.plan.workload.fitting(source, row_table).get(_CAP, 1.0)
        max_requests = min(room, self.most_requests)
        judged = source.judged(replace(row_table, **{_CAP: np.array([max_requests])}))
        filled = float(np.ravel(judged.value(self.problem.objectives[0].name))[0])
        return (judged, 0, filled) if filled > value else best


_BestByCount = dict[int, tuple[_NearbyConfigurations, tuple[Candidates, int, float]]]
"""For each number of changed parameters the best configuration, and the search that has it."""


def _best_of_all(nearby: Sequence[_NearbyConfigurations], *, keeps_formats: bool) -> _BestByCount:
    """Return the fastest of all configurations per number of changes, the surest first."""
    for probability in (TARGET_FIT_PROBABILITY, MEDIAN):
        best: _BestByCount = {}
        for near in nearby:
            among = near.keeps_formats if keeps_formats else ~near.keeps_formats
            for count, item in near.best(among, fit_probabilities=(probability,)).items():
                if count not in best or item[2] > best[count][1][2]:
                    best[count] = near, item
        if best:
            return best
    return {}


def _all_changes(best: _BestByCount) -> list[Change]:
    """Return the changes of the best rows, fewest first, if more changes gain more."""
    changes: list[Change] = []
    for count in sorted(best):
        near, item = best[count]
        changes += near.changes({count: item}, changes[-1].value if changes else 0.0)
    return changes


def _evenly_spread(values: Sequence[Value]) -> list[Value]:
    """At most some of many values, evenly spread."""
    step = max(1, len(values) // _MOST_VALUES)
    return [*values[::step]]


def _with_fewer_requests(current: Row, base: ConfigurationTable) -> tuple[Row, ConfigurationTable]:
    """Free the number of concurrent requests of a plan: its row, and tables with fewer requests."""
    current_requests = number_or_nan(current[_CAP])
    fewer = np.unique([*(item for item in _REQUESTS if item < current_requests), current_requests])
    rows = base.rows(np.zeros(fewer.size, dtype=np.intp))
    return _with_open_parameter(current, _CAP), replace(rows, **{_CAP: fewer})


def _with_kept_limit(inputs: ServingInputs) -> ServingInputs:
    """Inputs whose engine samples the sequences of its option at its start, however few run."""
    return replace(inputs, engine_max_num_seqs=None)


def _samples_its_limit(plan: Plan) -> bool:
    """Return True if the engine samples as many sequences at its start as its option allows."""
    inputs = plan.problem.inputs
    return (
        plan.workload.name == "serve"
        and isinstance(inputs, ServingInputs)
        and inputs.engine.memory.fixed_profiled_seqs
    )


def _with_open_parameter(row: Row, parameter: str) -> Row:
    """A row in which a parameter is open, so that another value of it is no change."""
    return {name: value for name, value in row.items() if name != parameter}


def nearby_configurations(
    base: ConfigurationTable, values: Mapping[str, Sequence[Value]], may_be: MayBe, max_changes: int
) -> ConfigurationTable:
    """Return all configurations that differ from ``base`` in up to ``max_changes`` values."""
    edits = [(name, item) for name, several in values.items() for item in several]
    edits = [(name, item) for name, item in edits if name not in FOLLOWING]
    # The last place stands for no edit, and the same edit twice is one.
    picks = np.array([*combinations_with_replacement(range(len(edits) + 1), max_changes)])
    table = base.rows(np.repeat(np.arange(base.size), len(picks)))
    picks = np.tile(picks, (base.size, 1))
    columns = {name: getattr(table, name).copy() for name, _ in edits}
    for place, (name, value) in enumerate(edits):
        columns[name][(picks == place).any(axis=1)] = glossary()[name].encode(value)
    table = replace(table, **columns)
    return type(table).stacked([*_variants(table, may_be)])


def _variants(table: ConfigurationTable, may_be: MayBe) -> Iterator[ConfigurationTable]:
    """Yield the configurations, then with dependent parameters reset or changed."""
    plain_values = table.default_codes()
    dependent = {
        name: np.full(table.shape, plain_values[name], getattr(table, name).dtype)
        for name in (*terms_about("dependent"), *FOLLOWING)
        if name in plain_values and np.any(getattr(table, name) != plain_values[name])
    }
    yield table
    if dependent:
        yield replace(table, **dependent)
    if isinstance(table, TrainingConfigurations) and may_be("sequence_parallel", True):
        yield replace(table, sequence_parallel=np.ones(table.shape, dtype=np.bool_))
    if isinstance(table, ServingConfigurations):
        yield replace(table, expert_quantization=table.quantization)
