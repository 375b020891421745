"""The one evaluate function: specs and configurations to an estimate."""

from __future__ import annotations

import numpy as np

from planner.base.arrays import CodeArray, FloatArray, Numeric
from planner.base.enums import ComputePrecision
from planner.base.records import record
from planner.configurations.rule import OUT_OF_HOST_MEMORY
from planner.configurations.training import TrainingConfigurations
from planner.configurations.training_rules import REJECTING, Context, first_broken_rule
from planner.estimators.training.flops import (
    forward_flops_per_token,
    model_flops_per_token,
    recomputed_flops_per_token,
)
from planner.estimators.training.memory import Memory, peak_memory
from planner.estimators.training.pretraining import step_time
from planner.estimators.training.sharding import stage_parameters
from planner.estimators.training.share import Setting, fullest_and_mean_share, tokens_of_sample
from planner.estimators.training.stages import logits_in_layers
from planner.estimators.training.step_time import StepTime

REJECTIONS = tuple(rule.name for rule in REJECTING)

_OUT_OF_HOST_MEMORY = np.int8(REJECTIONS.index(OUT_OF_HOST_MEMORY.name) + 1)


@record(kw_only=True)
class Estimate:
    """Predictions for every configuration; arrays broadcast to the configurations' shape.

    ``rejected_by`` is 0 where a configuration is possible and fits, else the one-based
    position in ``REJECTIONS`` of the first rule that rejects it. Predictions of rejected
    configurations have no meaning, except the memory of those that run out of it.
    """

    setting: Setting
    configurations: TrainingConfigurations
    memory: Memory
    time: StepTime
    step_time: FloatArray
    rejected_by: CodeArray

    @property
    def peak_memory(self) -> FloatArray:
        """Bytes on the fullest GPU."""
        return self.memory.peak

    @property
    def is_flat(self) -> bool:
        """Whether ``step_time`` comes from a flat efficiency, and ``time`` does not explain it."""
        return self.step_time is not self.time.total

    @property
    def time_parts(self) -> dict[str, FloatArray]:
        """Seconds of a step by part; of a flat efficiency those that the FLOPs of each take.

        Communication and bubble are inside them then.
        """
        if not self.is_flat:
            return self.time.parts()
        setting, model = self.setting, self.setting.model
        forward = forward_flops_per_token(model, setting.workload.sequence_length)
        whole = _hardware_flops_per_token(setting, self.configurations)
        again = _recomputed_flops_per_token(setting, self.configurations)
        reference = sum(setting.workload.forward_passes) * forward
        of_parts: dict[str, Numeric] = {
            "forward": forward,
            "backward": whole - again - forward - reference,
            "recompute": again,
            "reference": reference,
        }
        return {
            name: np.asarray(self.step_time * (flops / whole)) for name, flops in of_parts.items()
        }

    @property
    def tokens_per_step(self) -> FloatArray:
        """Trained tokens of one step."""
        return self.configurations.global_batch_size * tokens_of_sample(self.setting.workload)

    @property
    def samples_per_second(self) -> FloatArray:
        """Samples per second on all GPUs."""
        return np.asarray(self.configurations.global_batch_size / self.step_time)

    @property
    def tokens_per_second(self) -> FloatArray:
        """Trained tokens per second on all GPUs."""
        return np.asarray(self.tokens_per_step / self.step_time)

    @property
    def model_flops_utilization(self) -> FloatArray:
        """Model FLOPs over the dense peak of the precision in use."""
        setting = self.setting
        length = setting.workload.sequence_length
        per_token = model_flops_per_token(setting.model, length, setting)
        return self._utilization(np.asarray(per_token))

    @property
    def hardware_flops_utilization(self) -> FloatArray:
        """Model FLOPs and recomputed FLOPs over the dense peak."""
        return self._utilization(_hardware_flops_per_token(self.setting, self.configurations))

    @property
    def model_flops_per_second_per_gpu(self) -> FloatArray:
        """Achieved FLOP/s per GPU, recomputation excluded."""
        return self.model_flops_utilization * _peak(self.setting, self.configurations)

    def _utilization(self, flops_per_token: FloatArray) -> FloatArray:
        peak = self.configurations.num_gpus * _peak(self.setting, self.configurations)
        return np.asarray(self.tokens_per_second * flops_per_token / peak)


def evaluate(
    setting: Setting,
    configurations: TrainingConfigurations,
    flops_efficiency: float | tuple[float, ...] | None = None,
    broken: CodeArray | None = None,
    usable_share: Numeric = 1.0,
    *,
    every_stage: bool = False,
) -> Estimate:
    """Predict memory and time of every configuration, and what rejects it.

    ``flops_efficiency`` replaces the time model: it is the share of the dense peak that
    the whole step reaches, communication and bubble inside it; or one for each
    `ComputePrecision`. ``broken`` is the `broken_rule` of the configurations where it is known
    already. ``usable_share`` is the share of a GPU's memory that the predicted peak may reach.
    ``every_stage``: all stages of the pipelines are told, not those alone that may be the slowest
    or fullest; the predictions are the same.
    """
    c = configurations
    if broken is None:
        broken = broken_rule(setting, c)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        fullest, mean = fullest_and_mean_share(setting, c)
        parameters = stage_parameters(setting.model, c, setting, every_stage=every_stage)
        memory = peak_memory(fullest, c, parameters)
        time = step_time(mean, c, parameters, memory.paged)
        total = time.total
        if flops_efficiency is not None:
            total = _flat_step_time(setting, c, flops_efficiency)
        too_large = ~(memory.least <= usable_share * setting.machine.gpu.allocatable_memory)
        needed = host_need(setting, memory)
        if np.any(needed):
            host_full = (broken == 0) & ~(needed <= setting.machine.host_room(c.num_gpus))
            broken = np.where(host_full, _OUT_OF_HOST_MEMORY, broken)
    full = np.int8(len(REJECTIONS))
    rejected_by = np.where((broken == 0) & too_large, full, broken)
    return Estimate(
        setting=setting,
        configurations=c,
        memory=memory,
        time=time,
        step_time=total,
        rejected_by=rejected_by,
    )


def host_need(setting: Setting, memory: Memory) -> FloatArray:
    """Bytes that each GPU must find in host memory.

    That whole models find room while they load is asked where a node's memory is known.
    """
    if setting.machine.cluster.host_memory is None:
        return memory.host
    return np.maximum(memory.host, memory.loading)


def broken_rule(setting: Setting, configurations: TrainingConfigurations) -> CodeArray:
    """One-based number of the first rule each configuration breaks, else 0."""
    context = Context(
        gpu=setting.machine.gpu,
        model=setting.model,
        framework=setting.framework,
        workload=setting.workload,
        logits_in_layers=logits_in_layers(setting.model),
        as_given=setting.as_given,
    )
    return first_broken_rule(configurations, context)


def _peak(setting: Setting, c: TrainingConfigurations) -> FloatArray:
    return setting.machine.peak(c.precision)


def _hardware_flops_per_token(setting: Setting, c: TrainingConfigurations) -> FloatArray:
    of_model = model_flops_per_token(setting.model, setting.workload.sequence_length, setting)
    return of_model + _recomputed_flops_per_token(setting, c)


def _recomputed_flops_per_token(setting: Setting, c: TrainingConfigurations) -> FloatArray:
    return recomputed_flops_per_token(
        setting.model,
        setting.workload.sequence_length,
        setting.recomputation(c),
        c.flash_attention,
        setting.framework.execution.selective_share,
    )


def _flat_step_time(
    setting: Setting, c: TrainingConfigurations, flops_efficiency: float | tuple[float, ...]
) -> FloatArray:
    tokens = c.global_batch_size * tokens_of_sample(setting.workload)
    flops = tokens * _hardware_flops_per_token(setting, c)
    share = np.broadcast_to(flops_efficiency, len(ComputePrecision))[c.precision]
    return np.asarray(flops / (c.num_gpus * _peak(setting, c) * share))
