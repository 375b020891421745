"""Configurations of reinforcement learning (trainer, engine, where they run) and their rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from planner.base.arrays import BoolArray, CodeArray, FloatArray, Values
from planner.base.records import record
from planner.base.software_enums import Placement, WeightSync
from planner.configurations.configuration_tables import (
    NAMES,
    OUT_OF_HOST_MEMORY,
    Reason,
    Rule,
    ServingConfigurations,
    TrainingConfigurations,
    first_broken,
    is_indivisible,
    prediction_rule,
)
from planner.configurations.serving_rules import SERVING_RULES
from planner.configurations.training_rules import OUT_OF_MEMORY, RULES
from planner.specs.training_workload import RlWorkload, RolloutProfile, transfers

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


@record(kw_only=True)
class RlContext:
    """The context of the rules: the framework's rollouts, the workload and the kinds of GPUs.

    ``has_two_types``: trainer and engine are on different types, ``has_two_vendors``: of different
    vendors, between which only some methods of weight transfer work.
    """

    rollouts: RolloutProfile
    workload: RlWorkload
    has_two_types: bool = False
    has_two_vendors: bool = False


def _is_among(c: RlConfigurations, placements: Sequence[str]) -> BoolArray:
    """True where the placement is one of ``placements``."""
    return np.isin(c.placement, [Placement[placement.upper()] for placement in placements])


def _split(c: RlConfigurations, _: RlContext) -> BoolArray:
    lacks_gpus = (c.trainer_gpus < 1) | (c.rollout_gpus < 1)
    has_other_split = (c.train_gpus > 0) & (c.train_gpus != c.rollout_gpus)
    lacks_gpus = lacks_gpus | (c.other_gpus >= c.num_gpus)
    return np.where(c.colocated, has_other_split, lacks_gpus)


def _further_models(c: RlConfigurations, context: RlContext) -> BoolArray:
    work, supported = context.workload, context.rollouts.separate_models
    has_reference = work.reference_model and not work.is_frozen and "reference" in supported
    has_critic = work.critic and "critic" in supported
    return np.asarray(
        ((c.reference_gpus > 0) & (not has_reference)) | ((c.critic_gpus > 0) & (not has_critic))
    )


def _further_copies(c: RlConfigurations, _: RlContext) -> BoolArray:
    """True where a further model's GPUs hold no whole number of copies of its layout."""
    of_copy = c.trainer_gpus / np.maximum(c.data_parallel, 1e-9)
    return np.asarray(
        is_indivisible(c.reference_gpus, of_copy) | is_indivisible(c.critic_gpus, of_copy)
    )


def _weight_sync(c: RlConfigurations, context: RlContext) -> BoolArray:
    works = [WeightSync.AUTO, *(method for method, t in transfers().items() if t.across_vendors)]
    return np.asarray(context.has_two_vendors & ~np.isin(c.weight_sync, works))


def _ranks(c: RlConfigurations, _: RlContext) -> BoolArray:
    is_whole = c.data_parallel == np.floor(c.data_parallel)  # else a rule of the trainer is broken
    return np.asarray(
        is_whole & is_indivisible(c.global_batch_size, np.maximum(c.data_parallel, 1e-9))
    )


def _staleness(c: RlConfigurations, _: RlContext) -> BoolArray:
    allows_none = (c.placement == Placement.SEPARATE) | (c.colocated & ~c.partial_rollout)
    is_one_step_off = c.placement == Placement.ONE_STEP_OFF
    return np.asarray((allows_none & (c.staleness > 0)) | (is_one_step_off & (c.staleness != 1)))


RL_ONLY_RULES: tuple[Rule[RlConfigurations, RlContext], ...] = tuple(
    Rule(name=name, description=description, violated=violated)
    for name, description, violated in (
        ("placement", "the framework does not support this placement of trainer and engine",
         lambda c, context: ~_is_among(c, context.rollouts.placements)),
        ("gpu_split", "trainer and engine both need GPUs; colocated, both use all of them", _split),
        ("gpu_types", "trainer and engine on GPUs of two types cannot be colocated",
         lambda c, context: np.asarray(c.colocated & context.has_two_types)),
        ("staleness", "older weights need placement async, one_step_off, which has staleness 1, "
         "or partial rollouts", _staleness),
        ("partial_rollout", "answers go on with new weights where staleness is 1 or more and "
         "the framework can do so in the placement",
         lambda c, context: np.asarray(c.partial_rollout & ~(_is_among(c, context.rollouts.partial)
                                                            & (c.staleness > 0)))),
        ("further_models", "a reference model or a critic with GPUs of its own needs a framework "
         "that can do so, and the model in the step", _further_models),
        ("rollout_split", "rollout_tensor_parallel must divide the GPUs that generate",
         lambda c, _: is_indivisible(c.rollout_gpus, c.rollout_tensor_parallel)),
        ("step_batch", "global_batch_size must divide the answers of a step, prompts x samples",
         lambda c, context: is_indivisible(float(context.workload.samples), c.global_batch_size)),
        ("ranks", "copies of the trainer (tensor x context x pipeline parallel of its GPUs) must "
         "divide global_batch_size", _ranks),
        ("further_copies", "the layout of the trainer must divide reference_gpus and critic_gpus",
         _further_copies),
        ("weight_sync", "GPUs of two vendors exchange weights through files or objects: "
         "weight_sync=store", _weight_sync),
    )
)  # fmt: skip
"""Rules of the whole step, those of the placement first."""

_OF_PLACEMENT = 5


def is_misplaced(columns: Mapping[str, Values], context: RlContext) -> BoolArray:
    """True where a rule excludes a placement, whatever layouts trainer and engine have."""
    ones = {
        name: 1 for name in RlConfigurations.names() if name not in RlConfigurations.default_codes()
    }
    rows = RlConfigurations.of(**{**ones, **columns})
    codes = first_broken(RL_ONLY_RULES[:_OF_PLACEMENT], rows, context)
    return np.broadcast_to(codes > 0, rows.shape)


ROLLOUT_CACHE = prediction_rule(
    "rollout_cache", "the engine's share of the memory has no room for the longest answer"
)
RL_RULES: tuple[Reason, ...] = (
    *RL_ONLY_RULES,
    *RULES,
    *(
        Reason(name=f"rollout_{rule.name}", description=f"of the engine, {rule.description}")
        for rule in SERVING_RULES
    ),
    ROLLOUT_CACHE,
)
"""Rules of the step, then of the trainer, then of the engine."""
RL_REJECTING: tuple[Reason, ...] = (*RL_RULES, OUT_OF_HOST_MEMORY, OUT_OF_MEMORY)
"""All reasons that reject a configuration before the user's limits, in order."""
