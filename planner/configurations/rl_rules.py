"""Named rules: why a configuration of reinforcement learning is impossible."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from planner.base.arrays import BoolArray, Values
from planner.base.records import record
from planner.base.software_enums import Placement
from planner.configurations.configuration_tables import (
    OUT_OF_HOST_MEMORY,
    Reason,
    Rule,
    first_broken,
    is_indivisible,
    prediction_rule,
)
from planner.configurations.rl_configurations import RlConfigurations
from planner.configurations.serving_rules import SERVING_RULES
from planner.configurations.training_rules import OUT_OF_MEMORY, RULES
from planner.specs.training_workload import RlWorkload, RolloutProfile


@record(kw_only=True)
class RlContext:
    """The context of the rules: the framework's rollouts and the workload."""

    rollouts: RolloutProfile
    workload: RlWorkload


def _placement(c: RlConfigurations, context: RlContext) -> BoolArray:
    return ~_is_among(c, context.rollouts.placements)


def _is_among(c: RlConfigurations, placements: Sequence[str]) -> BoolArray:
    """True where the placement is one of ``placements``."""
    return np.isin(c.placement, [Placement[placement.upper()] for placement in placements])


def _split(c: RlConfigurations, _: RlContext) -> BoolArray:
    lacks_gpus = (c.trainer_gpus < 1) | (c.rollout_gpus < 1)
    has_other_split = (c.train_gpus > 0) & (c.train_gpus != c.num_gpus)
    return np.where(c.colocated, has_other_split, lacks_gpus)


def _rollout_split(c: RlConfigurations, _: RlContext) -> BoolArray:
    return is_indivisible(c.rollout_gpus, c.rollout_tensor_parallel)


def _batch(c: RlConfigurations, context: RlContext) -> BoolArray:
    return is_indivisible(float(context.workload.samples), c.global_batch_size)


def _ranks(c: RlConfigurations, _: RlContext) -> BoolArray:
    is_whole = c.data_parallel == np.floor(c.data_parallel)  # else a rule of the trainer is broken
    return np.asarray(
        is_whole & is_indivisible(c.global_batch_size, np.maximum(c.data_parallel, 1e-9))
    )


def _staleness(c: RlConfigurations, _: RlContext) -> BoolArray:
    allows_none = (c.placement == Placement.SEPARATE) | (c.colocated & ~c.partial_rollout)
    is_one_step_off = c.placement == Placement.ONE_STEP_OFF
    return np.asarray((allows_none & (c.staleness > 0)) | (is_one_step_off & (c.staleness != 1)))


def _partial(c: RlConfigurations, context: RlContext) -> BoolArray:
    possible = _is_among(c, context.rollouts.partial) & (c.staleness > 0)
    return np.asarray(c.partial_rollout & ~possible)


RL_ONLY_RULES: tuple[Rule[RlConfigurations, RlContext], ...] = tuple(
    Rule(name=name, description=description, violated=violated)
    for name, description, violated in (
        ("placement", "the framework does not support this placement of trainer and engine",
         _placement),
        ("gpu_split", "trainer and engine both need GPUs; colocated, both use all of them", _split),
        ("staleness", "older weights need placement async, one_step_off, which has staleness 1, "
         "or partial rollouts", _staleness),
        ("partial_rollout", "answers go on with new weights where staleness is 1 or more and "
         "the framework can do so in the placement", _partial),
        ("rollout_split", "rollout_tensor_parallel must divide the GPUs that generate",
         _rollout_split),
        ("step_batch", "global_batch_size must divide the answers of a step, prompts x samples",
         _batch),
        ("ranks", "copies of the trainer (tensor x context x pipeline parallel of its GPUs) must "
         "divide global_batch_size", _ranks),
    )
)  # fmt: skip
"""Rules of the whole step, those of the placement first."""

_OF_PLACEMENT = 4


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
