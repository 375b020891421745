"""Training runs as candidates: time and cost of a run, its columns, its source."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property

import numpy as np

from planner.base.arrays import CodeArray, FloatArray, IndexArray, Numeric, broadcast_flat, is_among
from planner.base.csv_cells import Value
from planner.base.enums import AdapterKind, Contract, Offload, Recompute, ZeroStage
from planner.base.records import record
from planner.base.training_aliases import TrainingObjective
from planner.base.units import GIB
from planner.confidence.evidence import training_groups
from planner.confidence.intervals import Confidence, fit_probability
from planner.configurations.configuration_tables import TrainingConfigurations
from planner.configurations.enumerate import OpenMesh
from planner.configurations.training_rules import REJECTING, RULES
from planner.estimators.power_draw import PowerDraw, power_draw
from planner.estimators.training.flops import max_utilization
from planner.estimators.training.micro_batch_share import TrainingInputs
from planner.estimators.training.peak_memory import MEMORY_PARTS
from planner.estimators.training.run_cost import RunCost, calendar_factors, training_cost
from planner.estimators.training.training_estimate import (
    Estimate,
    broken_rule,
    evaluate,
    host_need,
    rule_codes,
)
from planner.formulas.cost import cost_per_pflop_day
from planner.formulas.power import board_share, carbon, energy, range_of_product
from planner.optimize.source import Candidates, Columns, Need, Source
from planner.question.terms import terms_about
from planner.specs.operating_terms import OperatingTerms
from planner.specs.power import PowerProfile
from planner.workloads.assumptions import ComplexityLevel, packed, total
from planner.workloads.prediction_confidence import (
    training_confidence,
    training_memory_errors,
    training_share,
    with_energy,
)
from planner.workloads.workload import Quantity, format_parameter_column, repeated, term_columns

FEWEST_TOKENS = 4096
"""Tokens of a sequence on a rank below which context parallelism counts as unusual."""
USUAL_CHUNKS = (1, 2, 3, 4, 5, 7, 8, 12)
"""Chunks of layers on a pipeline stage of published layouts."""
MOST_MISSING = 3
"""Most layers missing to equal chunks in published layouts: 61 layers on 64 slots."""
FULL = 0.9
"""The share of its memory above which a GPU counts as full."""

# Launched in this order: what costs least first.
_RECOMPUTE = {
    Recompute.NONE: 0,
    Recompute.SELECTIVE: 1,
    Recompute.FEED_FORWARD: 2,
    Recompute.FULL: 3,
}
_BY_CODE = np.array([_RECOMPUTE[code] for code in Recompute])


def complexity(
    c: TrainingConfigurations, inputs: TrainingInputs, peak_memory: FloatArray
) -> IndexArray:
    """A number that orders plans by complexity; 0: the simplest.

    ``peak_memory``: bytes of the fullest GPU.
    """
    return packed([*_complexity_levels(c, inputs, peak_memory)])


def _complexity_levels(
    c: TrainingConfigurations, inputs: TrainingInputs, peak_memory: FloatArray
) -> Iterator[ComplexityLevel]:
    """Yield the levels of complexity of a plan, the most important first."""
    domain = inputs.machine.cluster.scale_up.domain_size
    tokens = inputs.workload.sequence_length / c.context_parallel
    yield 2, (c.context_parallel > 1) & (tokens < FEWEST_TOKENS)
    options = (~c.fused_attention, c.offload != Offload.NONE, c.fp8_attention)
    yield 4, total(options)
    yield 2, c.tensor_parallel > domain
    yield 2, c.expert_parallel > domain
    yield 2, (c.tensor_parallel > 1) & ~c.sequence_parallel
    has_no_replicas = c.data_parallel * c.context_parallel == 1
    stage = np.where(has_no_replicas, ZeroStage.NONE, inputs.framework.default_zero_stage)
    yield 2, c.zero_stage != stage
    is_usual = is_among(c.virtual_pipeline, USUAL_CHUNKS)
    missing = -inputs.model.num_hidden_layers % (c.pipeline_parallel * c.virtual_pipeline)
    yield 2, ~is_usual | (missing > MOST_MISSING)
    kinds = (c.tensor_parallel > 1, c.context_parallel > 1, c.pipeline_parallel > 1)
    yield 4, total(kinds)
    yield 2, peak_memory > FULL * inputs.machine.gpu.allocatable_memory
    yield len(_RECOMPUTE), _BY_CODE[c.recompute]
    splits = inputs.model.num_experts > 0 and inputs.framework.expert_parallel
    yield 2, (c.expert_parallel == 1) & (c.num_gpus > c.pipeline_parallel) & splits


_BLOCK_ROWS = 2**25


@record(kw_only=True)
class TrainingSource(Source):
    """Layouts of a run on one GPU with one framework.

    ``flops_efficiency`` as `planner.estimators.training.training_estimate.evaluate` takes it;
    ``site`` says on what terms its GPUs run. ``fit_confidence`` is how surely a plan must fit, as
    `planner.workloads.prediction_confidence.training_share` takes it.
    """

    inputs: TrainingInputs
    mesh: OpenMesh[TrainingConfigurations]
    counts: tuple[int, ...]
    site: OperatingTerms
    mode: str = ""
    flops_efficiency: float | tuple[float, ...] | None = None
    fit_confidence: float | None = None

    rules = REJECTING
    num_rules = len(RULES)
    block_rows = _BLOCK_ROWS
    joins_counts = True
    profile_kind = "framework"

    @property
    def named(self) -> Mapping[str, str]:
        """Result columns with the same value in all plans of this source."""
        return {**super().named, "adapter": str(self.inputs.workload.adapter)}

    @property
    def pace(self) -> Hashable:
        """The rate of interruptions of runs on this hardware, and their cost in time."""
        return self.site.reliability, self.site.contract == Contract.SPOT

    @property
    def run_length(self) -> float:
        """The tokens of a run."""
        return self.inputs.workload.total_tokens

    @property
    def question_columns(self) -> Mapping[str, Value]:
        """Columns that all plans share: tokens, training objective, failures and GPU price."""
        work = self.inputs.workload
        amount: dict[str, Value] = {
            name: getattr(work, name) for name in terms_about("training_amount")
        }
        amount["training_objective"] = str(work.training_objective)
        failures = {"reliability": self.site.reliability.name}
        slowdown = {"slowdown": self.inputs.slowdown}
        return {**amount, **slowdown, **failures, **self.site.columns, **self.site.grounds}

    def evidence_groups(self, configurations: TrainingConfigurations) -> IndexArray:
        """The group of evidence of each configuration: its layout and number format."""
        is_quantized = self.inputs.workload.adapter is AdapterKind.QLORA
        return training_groups(configurations, is_quantized=is_quantized)

    def _confidence(self, num_gpus: float, group: int) -> Confidence | None:
        """The 90 % intervals of predictions on ``num_gpus`` GPUs; None if there are none."""
        if self.flops_efficiency is not None:
            return None
        confidence = training_confidence(self.inputs, int(num_gpus), group)
        if confidence is None:
            return None
        failures = calendar_factors(self.inputs, self.site, num_gpus)
        together = range_of_product(confidence.factors["step_time"], failures)
        factors = {**confidence.factors, "calendar_time": together}
        confidence = replace(confidence, factors=factors, max_utilization=self._most_utilization)
        if self.site.power is None:
            return confidence
        boards = self.site.power.train
        return with_energy(confidence, self.inputs.machine, self.site, num_gpus, boards)

    @cached_property
    def _most_utilization(self) -> float:
        return max_utilization(self.inputs)

    def sure_share(self, num_gpus: FloatArray) -> Numeric:
        """The share of GPU memory up to which a predicted peak counts as fitting."""
        return self._of_counts(self._errors[2], num_gpus)

    def fit_probability(self, num_gpus: FloatArray, peak: FloatArray) -> FloatArray:
        """The probability that a GPU has enough memory for a predicted peak [bytes]."""
        center, deviation = (self._of_counts(values, num_gpus) for values in self._errors[:2])
        usable = self.inputs.machine.gpu.allocatable_memory
        return fit_probability(predicted=peak, usable=usable, center=center, deviation=deviation)

    @cached_property
    def _errors(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Center, deviation and usable share of memory errors, by number of GPUs in order."""
        counts = sorted(set(self.counts))
        errors = [training_memory_errors(self.inputs, count) for count in counts]
        shares = (training_share(self.inputs, count, self.fit_confidence) for count in counts)
        center, deviation = (
            [getattr(error, name) for error in errors] for name in ("center", "deviation")
        )
        return np.array(center), np.array(deviation), np.array([*shares])

    def _of_counts(self, values: FloatArray, num_gpus: FloatArray) -> Numeric:
        """The entry of ``values`` for each number of GPUs."""
        if len(values) == 1:
            return float(values[0])
        entries: FloatArray = values[np.searchsorted(sorted(set(self.counts)), num_gpus)]
        return entries

    def broken(self, configurations: TrainingConfigurations) -> CodeArray:
        """The one-based number of the first rule that each configuration breaks; 0: none."""
        return broken_rule(self.inputs, configurations)

    def rule_codes(self, configurations: TrainingConfigurations) -> list[CodeArray]:
        """Codes of broken rules in arrays of several shapes; the lowest are those of `broken`."""
        return rule_codes(self.inputs, configurations)

    def judged(
        self, configurations: TrainingConfigurations, broken: CodeArray | None = None
    ) -> TrainingRuns:
        """Predict time and memory of every configuration; ``broken``: codes of broken rules."""
        estimate = evaluate(
            self.inputs,
            configurations,
            flops_efficiency=self.flops_efficiency,
            broken=broken,
            usable_share=self.sure_share(configurations.num_gpus),
        )
        return TrainingRuns(
            source=self,
            configurations=configurations,
            rejected_by=estimate.rejected_by,
            estimate=estimate,
        )


_Quantity = Quantity["TrainingRuns"]


@record(kw_only=True, repr=False)
class TrainingRuns(Candidates):
    """Runs of ``total_tokens``; what can be optimized or limited, in SI units.

    ``at_first``: the same runs with the operating terms with which they were predicted.
    """

    source: TrainingSource
    configurations: TrainingConfigurations
    rejected_by: CodeArray
    estimate: Estimate
    at_first: TrainingRuns | None = None

    num_gpus = _Quantity(lambda runs: runs.configurations.num_gpus)

    @property
    def memory(self) -> tuple[Need, Need]:
        """(Needed, usable) bytes of host memory per GPU, and of the fullest GPU."""
        memory, machine = self.estimate.memory, self.estimate.inputs.machine
        usable = self.source.sure_share(self.num_gpus) * machine.gpu.allocatable_memory
        needed = host_need(self.estimate.inputs, memory)
        return (needed, machine.host_room(self.num_gpus)), (memory.least, usable)

    fit_probability = _Quantity(
        lambda runs: runs.source.fit_probability(runs.num_gpus, runs.estimate.memory.least)
    )
    throughput = _Quantity(lambda runs: runs.estimate.tokens_per_second)
    tokens_per_s_per_gpu = _Quantity(lambda runs: runs.throughput / runs.num_gpus)
    tflops_per_gpu = _Quantity(lambda runs: runs.estimate.model_flops_per_second_per_gpu)
    host_memory = _Quantity(
        lambda runs: np.maximum(runs.estimate.memory.host, runs.estimate.memory.loading)
    )
    step_time = _Quantity(lambda runs: runs.estimate.step_time)
    time_to_train = _Quantity(lambda runs: runs.run.time_to_train)
    calendar_time = _Quantity(lambda runs: runs.run.calendar_time)
    gpu_hours = _Quantity(lambda runs: runs.time_to_train * runs.num_gpus)
    campaign_gpu_hours = _Quantity(lambda runs: runs.run.gpu_seconds)
    cost = _Quantity(lambda runs: runs.run.cost)
    goodput = _Quantity(lambda runs: runs.run.goodput.ratio)
    carbon = _Quantity(
        lambda runs: carbon(energy=runs.energy, carbon_intensity=runs.source.site.carbon_intensity)
    )
    model_flops_utilization = _Quantity(lambda runs: runs.estimate.model_flops_utilization)

    def fit_probability_at(self, rows: IndexArray) -> FloatArray:
        """The fit probability of the plans at ``rows``, without computing all others."""
        several = len(self.source.counts) > 1
        num_gpus = self.at(self.num_gpus, rows) if several else self.num_gpus
        return self.source.fit_probability(num_gpus, self.at(self.estimate.memory.least, rows))

    def moved(self, source: TrainingSource) -> TrainingRuns:
        """The runs with operating terms (prices, power) and tokens of ``source``; same steps."""
        return replace(self, source=source, at_first=self.at_first or self)

    def complexity_at(self, rows: IndexArray) -> IndexArray:
        """The complexity of some plans, see `planner.workloads.training.results.complexity`."""
        peak = self.at(self.estimate.peak_memory, rows)
        return complexity(self.configurations.rows(rows), self.estimate.inputs, peak)

    @cached_property
    def run(self) -> RunCost:
        """Time, GPU-seconds and cost of the whole run."""
        return training_cost(self.estimate, self.source.site, self.source.run_length)

    @cached_property
    def draws(self) -> tuple[PowerDraw, ...]:
        """The electric power of all GPUs by part."""
        machine, profile = self.estimate.inputs.machine, self.source.site.power
        return (power_draw(machine, profile, self.num_gpus, self._boards),)

    def _boards(self, profile: PowerProfile) -> FloatArray:
        """The mean power of the GPU boards as a share of their design power."""
        if self.estimate.is_flat:
            return np.asarray(profile.train.value)
        return board_share(
            active=profile.compute.value,
            waiting=profile.wait.value,
            time_share=self.estimate.time.computing_share,
        )

    tokens_per_s = throughput

    @property
    def samples_per_s(self) -> FloatArray | None:
        """Trained samples per second; a sample of preference training is a pair of sequences."""
        objective = self.estimate.inputs.workload.training_objective
        return self.estimate.samples_per_second if objective.is_preference else None

    @property
    def paged_states(self) -> FloatArray | None:
        """Bytes of optimizer states paged to the host for lack of GPU memory, if paging is on."""
        return self.estimate.memory.paged if self.configurations.paged_optimizer.any() else None

    @property
    def cost_per_million_trained_tokens(self) -> FloatArray | None:
        """USD of a million trained tokens, of fine-tuning."""
        work = self.source.inputs.workload
        is_tuned = work.training_objective is not TrainingObjective.PRETRAIN
        return self.run.cost * (1e6 / work.total_tokens) if is_tuned else None

    @property
    def cost_per_pflop_day(self) -> FloatArray:
        """USD for 1e15 model FLOP/s over a day; recomputation is not counted."""
        rate = self.estimate.model_flops_per_second_per_gpu * self.num_gpus
        return cost_per_pflop_day(cost=self.cost, flops=rate * self.time_to_train)

    @property
    def energy(self) -> FloatArray:
        """The energy of a training run [J]: GPUs, hosts, network, building; with lost time.

        Lost time draws as much power as training: most of it repeats steps, recoveries are a small
        part. Spare GPUs are switched off: they are paid for and draw nothing.
        """
        return energy(power=self.power, duration=self.run.calendar_time)

    @cached_property
    def power(self) -> FloatArray:
        """The power of all GPUs, hosts, network and building [W]."""
        return self.draws[0].total

    @property
    def memory_headroom(self) -> FloatArray:
        """Free bytes of the fullest GPU."""
        capacity = self.estimate.inputs.machine.gpu.allocatable_memory
        return np.asarray(capacity - self.estimate.peak_memory)

    def columns(self) -> Columns:
        """The result columns: configuration, predictions, memory and time by part."""
        is_placed, shape = self.source.site.is_placed, self.shape
        names = [name for name in terms_about("training_results") if name != "carbon" or is_placed]
        results = term_columns(names, self, self.run, self.run.goodput, self.estimate)
        configuration, parts = (self.at_first or self)._columns_without_terms
        listed = {name: broadcast_flat(np.asarray(value), shape) for name, value in results.items()}
        return {**repeated(self.source.named, shape), **configuration, **listed, **parts}

    @cached_property
    def _columns_without_terms(self) -> tuple[Columns, Columns]:
        """The parameters, and memory and time by part, which no operating terms change."""
        fullest = self.estimate.memory.fullest
        parts = {
            **{f"memory_{part}_gib": getattr(fullest, part) / GIB for part in MEMORY_PARTS},
            **{f"time_{part}_s": s for part, s in self.estimate.time_parts.items()},
        }
        shape = self.shape
        listed = {name: broadcast_flat(np.asarray(value), shape) for name, value in parts.items()}
        return self._configuration(), listed

    def _configuration(self) -> Columns:
        """The parameter columns of every configuration, with derived degrees and micro-batches."""
        c = self.configurations
        table = {
            name: format_parameter_column(name, getattr(c, name), c.shape) for name in c.names()
        }
        for name, count in (
            ("data_parallel", c.data_parallel),
            ("gradient_accumulation_steps", c.num_micro_batches),
        ):
            table[name] = broadcast_flat(count, c.shape).astype(int).tolist()
        return table
