"""Configurations of reinforcement learning: a trainer, an engine, and where they run."""

from __future__ import annotations

from dataclasses import replace

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

    ``num_gpus`` are all GPUs, ``train_gpus`` the trainer's; 0: the default of the placement.
    ``reference_gpus`` and ``critic_gpus`` are further models' own; 0: they are on the trainer's.
    ``rollout_gpu_memory`` 0: the default of the framework.
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
    reference_gpus: FloatArray
    critic_gpus: FloatArray

    @property
    def colocated(self) -> BoolArray:
        """True where trainer and engine share their GPUs."""
        return np.asarray(self.placement == Placement.COLOCATED)

    @property
    def trainer_gpus(self) -> FloatArray:
        """The number of GPUs that train."""
        shared = self.num_gpus - self.other_gpus
        open_share = np.where(self.colocated, shared, np.floor(shared / 2))
        return np.where(self.train_gpus > 0, self.train_gpus, open_share)

    @property
    def other_gpus(self) -> FloatArray:
        """The number of GPUs of further models alone."""
        return np.asarray(self.reference_gpus + self.critic_gpus)

    @property
    def rollout_gpus(self) -> FloatArray:
        """The number of GPUs that generate answers."""
        shared = self.num_gpus - self.other_gpus
        return np.where(self.colocated, shared, shared - self.trainer_gpus)

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

    def trainer_on(self, gpus: FloatArray) -> RlConfigurations:
        """The trainer alone on ``gpus``; where they are 0, on those that it has."""
        none, number = np.zeros(()), np.where(gpus > 0, gpus, self.trainer_gpus)
        return replace(
            self,
            num_gpus=number,
            train_gpus=number,
            reference_gpus=none,
            critic_gpus=none,
            placement=np.full((), Placement.COLOCATED, dtype=np.int8),
        )

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
