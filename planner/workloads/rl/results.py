"""Steps of reinforcement learning as candidates: predictions, columns and texts."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

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
from planner.base.csv_cells import Row, Value, number_of_row
from planner.base.formatting import format_gib, format_large
from planner.base.records import record
from planner.base.software_enums import Placement
from planner.base.units import GIB, ceil_div
from planner.confidence.error_classes import gpu_class, has_experts
from planner.confidence.intervals import Confidence, fit_probability
from planner.confidence.rl import FittedSteps, least_certain, rl_confidence
from planner.configurations.configuration_tables import DEGREES, Reason, first_broken, format_value
from planner.configurations.enumerate import OpenMesh
from planner.configurations.rl import (
    RL_ONLY_RULES,
    RL_REJECTING,
    RL_RULES,
    ROLLOUT,
    ROLLOUT_CACHE,
    RlConfigurations,
)
from planner.configurations.training_rules import RULES
from planner.estimators.inference.continuous_batching import decode_batch
from planner.estimators.inference.engine_step import step_time
from planner.estimators.inference.serving_estimate import broken_serving_rule
from planner.estimators.rl.rl_inputs import RlInputs
from planner.estimators.rl.rl_step import (
    HIDDEN,
    MEMORY_PHASES,
    PHASES,
    TRAINER_PHASES,
    RlStep,
    evaluate_rl,
)
from planner.estimators.rl.trainer import full_batches
from planner.estimators.training.flops import adapter_parameter_count
from planner.estimators.training.run_cost import RunCost, calendar_factors, run_cost
from planner.estimators.training.training_estimate import broken_rule
from planner.formulas.power import range_of_product
from planner.optimize.source import Candidates, Columns, InputsChange, Need, Source
from planner.question.terms import terms_of
from planner.specs.operating_terms import OperatingTerms
from planner.specs.training_workload import AdapterSetup
from planner.workloads.assumptions import packed
from planner.workloads.prediction_confidence import training_memory_errors
from planner.workloads.serving.wording import timed_inference
from planner.workloads.timed_steps import ALL_MODULES, TimedPart, TimedStep
from planner.workloads.training.question import (
    format_adapter,
)
from planner.workloads.training.workload import timed_training
from planner.workloads.workload import Quantity, format_parameter_column, repeated, term_columns

_BLOCK_ROWS = 2**20
_CACHE, _HOST, _FULL = (np.int8(len(RL_RULES) + more) for more in range(3))
_SPLITS = 128
"""Most splits of the GPUs to try, if the request sets none."""
_ENGINE = "engine_"
SIDES = ("trainer", "rollout")
"""What a step waits for."""


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

    def changed(self, change: InputsChange) -> RlSource:
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
            trainer = np.asarray(
                add(part for name, part in parts.items() if (not name.startswith(_ENGINE)))
            )
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


def question_lines(inputs: RlInputs) -> list[str]:
    """Lines of text on an RL step: prompts, answers, lengths, further models, LoRA adapters."""
    work = inputs.workload
    lengths = f"{work.input_tokens:,} tokens in, {work.output_tokens:,} out on average"
    lines = [
        f"{work.algorithm}: {work.prompts_per_step:,} prompts x {work.samples_per_prompt:,} "
        f"answers a step, {lengths}, {work.output_cap:,} at most"
    ]
    models = [
        name for name in ("reference model", "critic") if getattr(work, name.replace(" ", "_"))
    ]
    passes = ["old log-probabilities"] if work.old_logprob else []
    if models or passes:
        lines.append(f"Besides the update, the trainer computes {', '.join([*passes, *models])}")
    if work.is_frozen:
        lines.append(_format_adapter_sync(inputs))
    return lines


def _format_adapter_sync(inputs: RlInputs) -> str:
    """A line on the trained LoRA parameters and on the weights that the engine receives."""
    work = inputs.workload
    served = "the adapters only" if inputs.serves_adapter else "all weights, adapters merged"
    count = format_large(adapter_parameter_count(inputs.packed))
    return (
        f"{format_adapter(work)}: {count} parameters trained; the engine gets {served}; no "
        "published step trains adapters, so intervals are those of full training"
    )


ENGINE_DEGREES = {"tp": f"{ROLLOUT}tensor_parallel", "ep": f"{ROLLOUT}expert_parallel"}


def layout(row: Row) -> str:
    """``async(1) 24+40: tp2 ep8 / 20 x tp2``: placement with staleness, the split, the layouts."""
    partial = ["partial"] if row["partial_rollout"] else []
    details = " ".join([*_format_staleness(row), *partial])
    return f"{row['placement']}{f'({details})' if details else ''} {_format_split(row)}"


def plan_words(row: Row) -> str:
    """The layout of a row as text, with the details in brackets spelled out."""
    older = [f"staleness {steps}" for steps in _format_staleness(row)]
    partial = ["partial rollouts"] if row["partial_rollout"] else []
    return ", ".join([f"{row['placement']} {_format_split(row)}", *older, *partial])


def _format_staleness(row: Row) -> list[str]:
    """The staleness, unless the placement implies it."""
    is_implied = row["placement"] == Placement.ONE_STEP_OFF.word or not row["staleness"]
    return [] if is_implied else [str(row["staleness"])]


def _format_split(row: Row) -> str:
    """GPUs and layouts as text, ``24+40: tp2 ep8 / 20 x tp2``: trainer, then engines."""
    train, rollout = number_of_row(row, "train_gpus"), number_of_row(row, "rollout_gpus")
    has_separate_gpus = row["placement"] != Placement.COLOCATED.word
    others = number_of_row(row, "reference_gpus") + number_of_row(row, "critic_gpus")
    sides = [train, rollout] if has_separate_gpus else [rollout]
    gpus = "+".join(f"{side:,.0f}" for side in (*sides, others) if side)
    terms = terms_of("train", "parameter")
    sizes = {terms[name].short: number_of_row(row, name) for name in DEGREES if name in row}
    degrees = (
        " ".join(f"{abbreviation}{n:,.0f}" for abbreviation, n in sizes.items() if n > 1) or "dp"
    )
    split = " ".join(
        f"{abbreviation}{number_of_row(row, name):,.0f}"
        for abbreviation, name in ENGINE_DEGREES.items()
        if number_of_row(row, name) > 1
    )
    number = rollout / number_of_row(row, ENGINE_DEGREES["tp"])
    return f"{gpus}: {degrees} / {number:,.0f} x {split or 'tp1'}"


def format_broken_rule(candidates: Candidates, rule: str) -> str:
    """The values that break a rule, and the nearest value that satisfies it, as text."""
    if not isinstance(candidates, RlRuns):
        raise TypeError(f"{candidates!r} is not reinforcement learning.")
    text = _broken_rule_texts(candidates).get(rule, "")
    remedies = _remedies(candidates).get(rule, {})
    fixes = (_nearest_remedy(candidates, rule, name, values) for name, values in remedies.items())
    nearest = next(filter(None, fixes), "")
    if rule == "ranks" and not nearest:
        work = candidates.source.inputs.workload
        ranks = int(first(candidates.configurations.data_parallel))
        unit = ranks // math.gcd(ranks, work.samples_per_prompt)
        nearest = f"prompts_per_step={max(round(work.prompts_per_step / unit), 1) * unit}"
    return f"{text}; nearest: {nearest}" if nearest else text


def _broken_rule_texts(runs: RlRuns) -> dict[str, str]:
    """Text on the values of the first configuration that each rule checks, by rule."""
    c, inputs, name = runs.configurations, runs.source.inputs, runs.source.profile
    rollouts, batch = inputs.rollouts, first(c.global_batch_size)
    placement = Placement(int(first(c.placement))).word
    tp, generates = first(c.rollout_tensor_parallel), first(c.rollout_gpus)
    texts = (
        f"{name} has {', '.join(rollouts.placements)}",
        f"{first(c.trainer_gpus):,.0f} of {first(c.num_gpus):,.0f} GPUs train",
        f"the trainer is on {inputs.machine.gpu.name}, the engine on "
        f"{inputs.engine_machine.gpu.name}; {name} has {', '.join(rollouts.placements)}",
        f"staleness {first(c.staleness):g} of {placement}",
        f"{name} can in {', '.join(rollouts.partial) or 'no placement'}",
        f"{name} can with {' and '.join(rollouts.separate_models) or 'none'}",
        f"{tp:,.0f} of {generates:,.0f} GPUs",
        f"{batch:,.0f} of {inputs.workload.samples:,}",
        f"{batch:,.0f} sequences on {first(c.data_parallel):g} copies",
        f"{first(c.reference_gpus):,.0f} and {first(c.critic_gpus):,.0f} GPUs",
        f"{inputs.machine.gpu.name} and {inputs.engine_machine.gpu.name}",
        f"that takes {format_gib(first(runs.step.rollout.needed))} a GPU with all weights",
    )
    rules: tuple[Reason, ...] = (*RL_ONLY_RULES, ROLLOUT_CACHE)
    return {rule.name: text for rule, text in zip(rules, texts, strict=True)}


def _remedies(runs: RlRuns) -> dict[str, dict[str, Sequence[float]]]:
    """Values to try for parameters that may satisfy a broken rule, by rule and parameter."""
    c = runs.configurations
    gpus: dict[str, Sequence[float]] = {"train_gpus": range(1, int(first(c.num_gpus)) + 1)}
    batches: dict[str, Sequence[float]] = {
        "global_batch_size": _divisors(runs.source.inputs.workload.samples)
    }
    degrees: dict[str, Sequence[float]] = {
        "rollout_tensor_parallel": _divisors(int(first(c.rollout_gpus)))
    }
    return {
        "gpu_split": gpus,
        "staleness": {"staleness": (0, 1)},
        "partial_rollout": {"staleness": (1,), "partial_rollout": (0,)},
        "rollout_split": degrees,
        "step_batch": batches,
        "ranks": {**batches, **gpus},
        "gpu_types": {"placement": [Placement.SEPARATE, Placement.ASYNC, Placement.ONE_STEP_OFF]},
        "further_models": {"reference_gpus": (0,), "critic_gpus": (0,)},
        ROLLOUT_CACHE.name: {"rollout_gpu_memory": [n / 100 for n in range(1, 100)], **degrees},
    }


def _nearest_remedy(runs: RlRuns, rule: str, name: str, values: Sequence[float]) -> str:
    """The value nearest to the current one that satisfies a rule, as ``name=value``.

    Empty if no value does.
    """
    candidates = np.array(values, dtype=np.float64)
    codes = runs.otherwise(**{name: RlConfigurations.cast(name, candidates)}).rejected_by
    number = 1 + [rejecting.name for rejecting in RL_REJECTING].index(rule)
    accepted = candidates[np.broadcast_to((codes == 0) | (codes > number), candidates.shape)]
    if not accepted.size:
        return ""
    current = first(getattr(runs.configurations, name))
    best = min(accepted, key=lambda value: abs(value - current))
    return f"{name}={format_value(name, best)}".lower()


def _divisors(number: int) -> list[float]:
    """All divisors of a number, ascending."""
    return [float(n) for n in range(1, number + 1) if number % n == 0]


def rl_steps(candidates: Candidates) -> Mapping[str, TimedStep]:
    """The timed RL step by phase, and the optimizer and decode steps in it; else empty."""
    if not isinstance(candidates, RlRuns):
        return {}
    step, total = candidates.step, first(candidates.step_time)
    kinds = {"generate": "decode", **dict.fromkeys(TRAINER_PHASES, "training")}
    parts = [
        TimedPart.of(name, ALL_MODULES, {name: seconds}, (), part=name, like=kinds.get(name, ""))
        for name, seconds in step.shown_times().items()
    ]
    serving, engine = step.inputs.serving, step.rollout.configurations
    decode = step_time(serving, engine, decode_batch(serving, engine.concurrency), decoding=True)
    return {
        "step": TimedStep(seconds=total, parts=tuple(parts)),
        "training": timed_training(step.trainer.time, "training"),
        "decode": replace(timed_inference(decode), software=serving.engine.name),
    }
