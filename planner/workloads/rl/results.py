"""Steps of reinforcement learning as candidates: their predictions and columns."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from planner.base.arrays import (
    CodeArray,
    FloatArray,
    IndexArray,
    Values,
    add,
    broadcast_flat,
    first,
)
from planner.base.csv_cells import Row, Value
from planner.base.records import record
from planner.base.software_enums import Placement
from planner.base.units import GIB, ceil_div
from planner.confidence.error_classes import gpu_class, has_experts
from planner.confidence.intervals import Confidence, fit_probability
from planner.confidence.rl import FittedSteps, least_certain, rl_confidence
from planner.configurations.configuration_tables import first_broken
from planner.configurations.enumerate import OpenMesh
from planner.configurations.rl_configurations import RlConfigurations
from planner.configurations.rl_rules import RL_ONLY_RULES, RL_REJECTING, RL_RULES
from planner.configurations.training_rules import RULES
from planner.estimators.inference.serving_estimate import broken_serving_rule
from planner.estimators.rl.rl_inputs import RlInputs
from planner.estimators.rl.rl_step import HIDDEN, MEMORY_PHASES, PHASES, RlStep, evaluate_rl
from planner.estimators.rl.trainer import full_batches
from planner.estimators.training.run_cost import RunCost, calendar_factors, run_cost
from planner.estimators.training.training_estimate import broken_rule
from planner.formulas.power import range_of_product
from planner.optimize.source import Candidates, Columns, Need, Source
from planner.question.terms import terms_of
from planner.specs.operating_terms import OperatingTerms
from planner.specs.training_workload import AdapterSetup
from planner.workloads.complexity import packed
from planner.workloads.prediction_confidence import training_memory_errors
from planner.workloads.quantity import Quantity
from planner.workloads.workload import format_parameter_column, repeated, term_columns

_BLOCK_ROWS = 2**20
_CACHE, _HOST, _FULL = (np.int8(len(RL_RULES) + more) for more in range(3))
_SPLITS = 128
"""Most splits of the GPUs to try, if the request sets none."""
_ENGINE = "engine_"
SIDES = ("trainer", "rollout")
"""What a step waits for."""


def _is_trainer(part: str) -> bool:
    """Whether a part of the memory of a phase is the trainer's."""
    return not part.startswith(_ENGINE)


def splits(count: int, node: int) -> list[float]:
    """Numbers of trainer GPUs out of ``count``, in multiples of a node; fewer on one node.

    >>> splits(32, 8), splits(4, 8)
    ([8.0, 16.0, 24.0], [1.0, 2.0, 3.0])
    """
    unit = node if count > node else max(count // 8, 1)
    step = unit * max(1, ceil_div(count, unit * _SPLITS))
    return [float(number) for number in range(step, count, step)]


@record(kw_only=True)
class RlSource(Source):
    """Ways to run a step on one GPU with one framework."""

    inputs: RlInputs
    mesh: OpenMesh[RlConfigurations]
    counts: tuple[int, ...]
    site: OperatingTerms
    rollout_site: OperatingTerms | None = None
    mode: str = ""

    rules = RL_REJECTING
    num_rules = len(RL_RULES)
    block_rows = _BLOCK_ROWS
    profile_kind = "framework"

    @property
    def named(self) -> Mapping[str, str]:
        """Result columns with the same value in all plans of this source."""
        inputs = self.inputs
        engine = {"engine": inputs.engine.name, "adapter": str(inputs.workload.adapter)}
        if inputs.rollout_machine is not None:
            engine = {"rollout_gpu": inputs.rollout_machine.gpu.name, **engine}
        return {**super().named, **engine}

    @property
    def gpus(self) -> tuple[str, ...]:
        """Names of the GPUs of trainer and engine."""
        other = self.inputs.rollout_machine
        return (self.gpu,) if other is None else (self.gpu, other.gpu.name)

    @property
    def sites(self) -> tuple[OperatingTerms, ...]:
        """The operating terms of the GPUs of trainer and engine."""
        return (self.site,) if self.rollout_site is None else (self.site, self.rollout_site)

    def usable_memory(self, row: Row) -> float:
        """Usable bytes of the GPU of the engine, if it is fullest, or else of the trainer."""
        generates = row.get("fullest_phase") == MEMORY_PHASES[0]
        machine = self.inputs.engine_machine if generates else self.inputs.machine
        return float(machine.gpu.allocatable_memory)

    def changed(self, change: Callable[[Any], Any]) -> RlSource:
        """The source with ``change`` applied to the inputs, on both kinds of GPUs."""
        inputs, other = change(self.inputs), self.inputs.rollout_machine
        if other is not None:
            engine = change(replace(self.inputs, machine=other)).machine
            inputs = replace(inputs, rollout_machine=engine)
        return replace(self, inputs=inputs)

    @property
    def pace(self) -> Hashable:
        """The rate of interruptions of runs on this hardware, and their cost in time."""
        return self.site.reliability, self.site.contract

    @property
    def question_columns(self) -> Mapping[str, Value]:
        """Columns that all plans share: the RL step's answers, failures and GPU price."""
        work = self.inputs.workload
        answers: dict[str, Value] = {
            name: getattr(work, name)
            for name in terms_of("rl", "question")
            if name not in AdapterSetup.__dataclass_fields__
            and isinstance(getattr(work, name, None), int | float)
        }
        answers["micro_batch_tokens"] = work.micro_batch_tokens or None  # not specified
        failures: dict[str, Value] = {"reliability": self.site.reliability.name}
        rollout = {} if self.rollout_site is None else self.rollout_site.columns
        prices = {f"rollout_{name}": value for name, value in rollout.items()}
        return {**answers, **failures, **self.site.columns, **self.site.grounds, **prices}

    def _confidence(self, num_gpus: float, group: int) -> Confidence | None:
        """The 90 % intervals of RL predictions on ``num_gpus`` GPUs, failures included."""
        inputs, gpu = self.inputs, self.inputs.machine.gpu
        kind = "moe" if has_experts(inputs.model) else "dense"
        rollouts = inputs.rollouts
        fitted = FittedSteps(runs=rollouts.calibration_runs, error=rollouts.calibration_error)
        calibration = fitted if gpu.name in rollouts.calibration_gpus and fitted.runs else None
        confidences = [
            rl_confidence(inputs.framework.name, each.name, gpu_class(each), kind, calibration)
            for each in {spec.name: spec for spec in (gpu, inputs.engine_machine.gpu)}.values()
        ]
        confidence = least_certain(confidences)
        failures = calendar_factors(inputs.packed, self.site, num_gpus)
        together = range_of_product(confidence.factors["step_time"], failures)
        return replace(confidence, factors={**confidence.factors, "calendar_time": together})

    def fit_probability(
        self, num_gpus: FloatArray, trainer: FloatArray, usable: FloatArray
    ) -> FloatArray:
        """The probability that a trainer of ``trainer`` bytes fits in ``usable`` bytes of a GPU."""
        counts, index = np.unique(num_gpus, return_inverse=True)
        errors = [training_memory_errors(self.inputs.packed, int(count)) for count in counts]
        center, deviation = (
            np.reshape([getattr(error, name) for error in errors], -1)[index].reshape(
                np.shape(num_gpus)
            )
            for name in ("center", "deviation")
        )
        return fit_probability(predicted=trainer, usable=usable, center=center, deviation=deviation)

    def broken(self, configurations: RlConfigurations) -> CodeArray:
        """The one-based number of the first rule that each configuration breaks; 0: none."""
        inputs, c = self.inputs, configurations
        codes = first_broken(RL_ONLY_RULES, c, inputs.context)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            trainer = broken_rule(inputs.packed, full_batches(inputs, c))
            engine = broken_serving_rule(inputs.serving, c.engine(np.zeros(()), np.ones(()), 1.0))
        for part_codes, before in (
            (trainer, len(RL_ONLY_RULES)),
            (engine, len(RL_ONLY_RULES) + len(RULES)),
        ):
            numbered = np.where(part_codes > 0, part_codes + np.int8(before), np.int8(0)).astype(
                np.int8
            )
            codes = np.where(codes > 0, codes, numbered)
        return codes

    def judged(self, configurations: RlConfigurations, broken: CodeArray | None = None) -> RlRuns:
        """Predict time and memory of every configuration; ``broken``: codes of broken rules."""
        codes = self.broken(configurations) if broken is None else broken
        step = evaluate_rl(self.inputs, configurations)
        machine = self.inputs.machine
        host_capacity = machine.host_room(configurations.num_gpus)
        for number, bad in (
            (_CACHE, ~step.rollout.fits),
            (_HOST, (step.host_memory > 0) & ~(step.host_memory <= host_capacity)),
            (_FULL, ~(step.headroom >= 0)),
        ):
            codes = np.where((codes == 0) & bad, number, codes)
        return RlRuns(source=self, configurations=configurations, rejected_by=codes, step=step)


_Quantity = Quantity["RlRuns"]


@record(kw_only=True, repr=False)
class RlRuns(Candidates):
    """Runs of so many steps; what can be optimized or limited, in SI units."""

    source: RlSource
    configurations: RlConfigurations
    rejected_by: CodeArray
    step: RlStep

    @property
    def estimate(self) -> RlStep:
        """The step behind the predictions."""
        return self.step

    @property
    def memory(self) -> tuple[Need, Need]:
        """(Needed, usable) bytes of host memory per GPU, and of the fullest GPU."""
        machine = self.source.inputs.machine
        host_capacity = machine.host_room(self.num_gpus)
        return (self.step.host_memory, host_capacity), (
            self.peak_memory,
            self.step.capacity,
        )

    def complexity_at(self, rows: IndexArray) -> IndexArray:
        """The complexity of the plans at ``rows``; separate GPUs and stale weights raise it."""
        c = self.configurations.rows(rows)
        steps = [
            (len(Placement), c.placement),
            (2, c.partial_rollout),
            (4, np.minimum(c.staleness, 3)),
            (2, c.context_parallel > 1),
            (2, c.pipeline_parallel > 1),
            (2, c.tensor_parallel > 1),
        ]
        return packed(steps)

    num_gpus = _Quantity(lambda runs: runs.configurations.num_gpus)
    rollout_gpus = _Quantity(lambda runs: runs.configurations.rollout_gpus)
    step_time = _Quantity(lambda runs: runs.step.total)
    samples_per_step = _Quantity(
        lambda runs: np.asarray(float(runs.source.inputs.workload.samples))
    )
    samples_per_s = _Quantity(lambda runs: runs.samples_per_step / runs.step_time)
    throughput = _Quantity(
        lambda runs: runs.samples_per_s * runs.source.inputs.workload.mean_length
    )
    tokens_per_s_per_gpu = _Quantity(lambda runs: runs.throughput / runs.num_gpus)
    time_to_train = _Quantity(lambda runs: runs.step_time * runs.source.inputs.workload.steps)
    calendar_time = _Quantity(lambda runs: runs.run.calendar_time)
    gpu_hours = _Quantity(lambda runs: runs.time_to_train * runs.num_gpus)
    campaign_gpu_hours = _Quantity(lambda runs: runs.run.gpu_seconds)
    cost = _Quantity(lambda runs: runs.run.cost)
    cost_per_million_trained_tokens = _Quantity(
        lambda runs: np.asarray(1e6 * runs.cost / (runs.throughput * runs.time_to_train))
    )
    peak_memory = _Quantity(lambda runs: runs.step.peak_memory)
    fit_probability = _Quantity(lambda runs: runs._least_fit_probability)
    memory_headroom = _Quantity(lambda runs: runs.step.headroom)
    host_memory = _Quantity(lambda runs: runs.step.host_memory)
    time_wait = _Quantity(lambda runs: np.asarray(runs.source.inputs.rollouts.step_overhead))
    trainer_idle = _Quantity(lambda runs: runs.step.trainer_idle)
    rollout_idle = _Quantity(lambda runs: runs.step.rollout_idle)
    lanes_idle = _Quantity(lambda runs: runs.step.tail_share * runs.step.rollout.lanes_idle)

    tokens_per_s = throughput

    @cached_property
    def run(self) -> RunCost:
        """Calendar time [s], GPU-seconds and cost of all steps, computed as for training."""
        inputs, source = self.source.inputs.packed, self.source
        others = None if source.rollout_site is None else (source.rollout_site, self.rollout_gpus)
        return run_cost(
            inputs,
            source.site,
            duration=self.time_to_train,
            num_gpus=self.num_gpus,
            on_other_terms=others,
        )

    @cached_property
    def _least_fit_probability(self) -> FloatArray:
        """The probability that the trainer fits in the phase that leaves it least room.

        What the engine takes is set, as a share of the GPU or as the size of its weights; errors
        are those of training.
        """
        least = np.ones(self.shape)
        for usable, parts in zip(self.step.capacities, self.step.memory_parts, strict=True):
            trainer = np.asarray(add(part for name, part in parts.items() if _is_trainer(name)))
            engine = add(parts.values()) - trainer
            num_gpus, held, room = np.broadcast_arrays(self.num_gpus, trainer, usable - engine)
            fits = self.source.fit_probability(num_gpus, held, np.maximum(room, 0.0))
            least = np.minimum(least, np.where(held > 0, fits, 1.0))
        return least

    def moved(self, source: RlSource) -> RlRuns:
        """The runs with the operating terms (prices, power) of ``source``; same predictions."""
        return replace(self, source=source)

    def otherwise(self, **values: Values) -> RlRuns:
        """Predict the first configuration with other values; one parameter may have several."""
        single_row = self.configurations.rows(np.array([0]))
        return self.source.judged(replace(single_row, **values))  # type: ignore[arg-type]

    def fastest_split(self) -> tuple[float, float]:
        """The number of trainer GPUs with the shortest RL step, and the time of that step [s].

        The current split if no other is faster; other parameters are unchanged.
        """
        c = self.configurations
        current, total = first(c.trainer_gpus), int(first(c.num_gpus - c.other_gpus))
        trains = np.array(
            [current, *splits(total, self.source.inputs.machine.cluster.gpus_per_node)]
        )
        runs = self.otherwise(train_gpus=trains)
        possible = np.broadcast_to(runs.rejected_by == 0, trains.shape)
        times = np.where(possible, runs.step_time, np.inf)
        times[0] = first(self.step_time)
        best = int(np.argmin(times))
        return float(trains[best]), float(times[best])

    @property
    def bottleneck(self) -> CodeArray:
        """The index in ``SIDES`` of the slower side."""
        return np.asarray(self.step.rollout_is_longer, dtype=np.int8)

    @property
    def fullest_phase(self) -> CodeArray:
        """The number of the phase with the least free memory."""
        return self.step.fullest_phase

    def columns(self) -> Columns:
        """The result columns: configuration, predictions, time by phase, idle shares."""
        c, shape = self.configurations, self.shape
        terms = terms_of("rl", "result", "limit", "objective")
        labels_by_column = {"bottleneck": SIDES, "fullest_phase": MEMORY_PHASES}
        holders = type(self), RunCost
        names = [name for name in terms if any(hasattr(holder, name) for holder in holders)]
        without = {"num_gpus", "throughput", *labels_by_column}
        numbers = term_columns([name for name in names if name not in without], self, self.run)
        numbers |= {f"time_{name}_s": self.step.times[name] for name in PHASES}
        memory = zip(MEMORY_PHASES, self.step.phase_memory, strict=True)
        numbers |= {f"{phase}_memory_gib": size / GIB for phase, size in memory}
        table = {name: format_parameter_column(name, getattr(c, name), shape) for name in c.names()}
        # Of colocated ones as it is set, so that a plan on other GPUs has all of them again.
        trains = np.where(c.colocated, c.train_gpus, c.trainer_gpus)
        table["train_gpus"] = broadcast_flat(trains, shape).astype(int).tolist()
        table["rollout_gpus"] = broadcast_flat(c.rollout_gpus, shape).astype(int).tolist()
        texts = {
            name: [labels[code] for code in broadcast_flat(getattr(self, name), shape)]
            for name, labels in labels_by_column.items()
        }
        hidden = broadcast_flat(self.step.hidden_phases, shape)
        texts["hidden_phases"] = [" ".join(HIDDEN[number]) for number in hidden]
        listed = {name: broadcast_flat(np.asarray(value), shape) for name, value in numbers.items()}
        return {**repeated(self.source.named, shape), **table, **listed, **texts}
