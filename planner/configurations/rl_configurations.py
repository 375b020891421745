"""Configurations of reinforcement learning: a trainer, an engine, and where they run."""

from __future__ import annotations

import numpy as np

from planner.base.arrays import BoolArray, CodeArray, FloatArray
from planner.base.records import record
from planner.base.software_enums import Placement
from planner.configurations.configuration_tables import (
    NAMES,
    ServingConfigurations,
    TrainingConfigurations,
)

ROLLOUT = "rollout_"


@record(kw_only=True)
class RlConfigurations(TrainingConfigurations):
    """Layouts of a reinforcement learning step; names without a prefix are the trainer's.

    ``num_gpus`` are the GPUs of both sides, ``train_gpus`` the trainer's; 0: the default of the
    placement. ``rollout_gpu_memory`` 0: the default of the framework.
    """

    workload = "rl"

    placement: CodeArray
    train_gpus: FloatArray
    staleness: FloatArray
    partial_rollout: BoolArray
    rollout_tensor_parallel: FloatArray
    rollout_expert_parallel: FloatArray
    rollout_gpu_memory: FloatArray
    rollout_quantization: CodeArray
    offload_train: BoolArray
    offload_rollout: BoolArray
    weight_sync: CodeArray

    @property
    def colocated(self) -> BoolArray:
        """True where trainer and engine share all GPUs."""
        return np.asarray(self.placement == Placement.COLOCATED)

    @property
    def trainer_gpus(self) -> FloatArray:
        """The number of GPUs that train."""
        open_share = np.where(self.colocated, self.num_gpus, np.floor(self.num_gpus / 2))
        return np.where(self.train_gpus > 0, self.train_gpus, open_share)

    @property
    def rollout_gpus(self) -> FloatArray:
        """The number of GPUs that generate answers."""
        return np.where(self.colocated, self.num_gpus, self.num_gpus - self.trainer_gpus)

    @property
    def replicas(self) -> FloatArray:
        """The number of engine replicas; a fraction if they do not fill the engine's GPUs."""
        return self.rollout_gpus / self.rollout_tensor_parallel

    @property
    def data_parallel(self) -> FloatArray:
        """The number of model copies that train."""
        return self.trainer.data_parallel

    @property
    def trainer(self) -> TrainingConfigurations:
        """The configurations of the trainer on its GPUs."""
        values = {name: getattr(self, name) for name in NAMES}
        return TrainingConfigurations(**{**values, "num_gpus": self.trainer_gpus})

    def engine(
        self, memory_share: FloatArray, concurrency: FloatArray, step_tokens: float
    ) -> ServingConfigurations:
        """The configurations of one engine replica, with at most ``step_tokens`` tokens a step."""
        return ServingConfigurations.of(
            num_gpus=self.rollout_tensor_parallel,
            tensor_parallel=self.rollout_tensor_parallel,
            expert_parallel=self.rollout_expert_parallel,
            concurrency=concurrency,
            max_num_batched_tokens=step_tokens,
            quantization=self.rollout_quantization,
            expert_quantization=self.rollout_quantization,
            gpu_memory_utilization=memory_share,
        )
