"""The context shared by all configurations of a search: settings of trainer and engine."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from planner.base.arrays import FloatArray
from planner.base.enums import Padding
from planner.base.records import record
from planner.base.training_aliases import AdapterSync, TrainingObjective
from planner.configurations.rl import RlContext
from planner.estimators.inference.batch_share import ServingInputs
from planner.estimators.machine import Machine
from planner.estimators.training.micro_batch_share import TrainingInputs
from planner.formulas.rollout import answer_lengths
from planner.specs.engine import EngineProfile
from planner.specs.framework import FrameworkProfile
from planner.specs.model import ModelSpec
from planner.specs.serving_workload import ServingWorkload
from planner.specs.training_workload import (
    AdapterSetup,
    RlWorkload,
    RolloutProfile,
    TrainingWorkload,
)


@record(kw_only=True)
class RlInputs:
    """A machine, a model, a framework with its engine, and the workload of a step.

    ``engine_word``: the name that the user gave for the engine's profile. ``rollout_machine``: the
    machine of the engine, where it has GPUs of its own type; None: that of the trainer.
    """

    machine: Machine
    model: ModelSpec
    framework: FrameworkProfile
    engine: EngineProfile
    workload: RlWorkload
    engine_word: str = ""
    rollout_machine: Machine | None = None

    @property
    def engine_machine(self) -> Machine:
        """The machine whose GPUs generate."""
        return self.rollout_machine or self.machine

    @property
    def context(self) -> RlContext:
        """The context of the rules."""
        gpus = self.machine.gpu, self.engine_machine.gpu
        return RlContext(
            rollouts=self.rollouts,
            workload=self.workload,
            has_two_types=gpus[0].name != gpus[1].name,
            has_two_vendors=gpus[0].vendor != gpus[1].vendor,
        )

    @property
    def profile(self) -> FrameworkProfile:
        """The profile of the software: the framework."""
        return self.framework

    @property
    def rollouts(self) -> RolloutProfile:
        """The rollout profile of the framework. Raises TypeError if it has none."""
        if self.framework.rollouts is None:
            raise TypeError(f"{self.framework.name} generates no answers.")
        return self.framework.rollouts

    @property
    def budget(self) -> int:
        """Tokens of a micro-batch of the trainer."""
        return self.workload.micro_batch_tokens or max(
            self.rollouts.micro_batch_tokens, self.workload.longest
        )

    @property
    def adapter_sync(self) -> AdapterSync:
        """How the engine receives LoRA adapters; full weights if other modules are trained."""
        work, rollouts = self.workload, self.rollouts
        merges = (self.engine_word or rollouts.engine) in rollouts.merged_engines
        if work.saves_ends or (merges and work.adapter_sync is None):
            return AdapterSync.MERGED
        return work.adapter_sync or rollouts.adapter_sync

    @property
    def serves_adapter(self) -> bool:
        """Whether the engine applies adapters without merging them into the weights."""
        return self.workload.is_frozen and self.adapter_sync is AdapterSync.ADAPTER

    @cached_property
    def lengths(self) -> tuple[FloatArray, FloatArray]:
        """Answer lengths [tokens] and the share of longer answers: see `answer_lengths`."""
        work = self.workload
        return answer_lengths(
            mean=float(work.output_tokens),
            variation=work.output_variation,
            cap=float(work.output_cap),
        )

    @cached_property
    def deviation(self) -> float:
        """Standard deviation of the answers that were cut off [tokens]."""
        lengths, longer = self.lengths
        squares = np.sum(np.diff(lengths**2) * (longer[1:] + longer[:-1]) / 2)
        return float(np.sqrt(max(squares - self.workload.output_tokens**2, 0.0)))

    @cached_property
    def serving(self) -> ServingInputs:
        """Inputs of the rollout engine, with the answers as requests."""
        work = self.workload
        return ServingInputs(
            machine=self.engine_machine,
            model=self.model,
            engine=self.engine,
            workload=ServingWorkload(
                input_tokens=work.input_tokens,
                output_tokens=work.output_tokens,
                output_variation=self.deviation / work.output_tokens,
                max_model_len=work.longest,
                lora_rank=work.lora_rank if self.serves_adapter else 0,
                lora_targets=work.lora_targets,
                max_loras=1,
            ),
        )

    @cached_property
    def packed(self) -> TrainingInputs:
        """The policy in micro-batches that are full, which the trainer's memory must hold."""
        return self._training(False, sequence_length=self.budget, padding=Padding.PACKED)

    @cached_property
    def uneven(self) -> TrainingInputs:
        """Inputs of the trainer for answers of uneven length, used for its time."""
        work = self.workload
        mean, deviation = work.mean_length, max(round(self.deviation), 1)
        if self.rollouts.pads_linear_attention and self.model.has_linear_attention:
            mean, deviation = work.longest, 1
        return self._training(
            work.reference_model,
            sequence_length=work.longest,
            padding=Padding.NONE,
            mean_sample_length=mean,
            sample_length_deviation=deviation,
        )

    def _training(self, has_reference: bool, **lengths: object) -> TrainingInputs:
        """Return training inputs for these sample lengths: GRPO with a reference, else DAPO."""
        work = TrainingWorkload(
            global_batch_size=1,
            total_tokens=1.0,
            training_objective=(
                TrainingObjective.GRPO if has_reference else TrainingObjective.DAPO
            ),
            tuned=True,
            **{name: getattr(self.workload, name) for name in AdapterSetup.__dataclass_fields__},
            **lengths,  # type: ignore[arg-type]
        )
        return TrainingInputs(
            machine=self.machine, model=self.model, framework=self.framework, workload=work
        )
