"""A step of reinforcement learning: trainer and engine together, in time and in memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property

import numpy as np

from planner.base.arrays import BoolArray, CodeArray, FloatArray, add
from planner.base.enums import Quantization
from planner.base.records import record
from planner.base.software_enums import Placement, WeightSync
from planner.configurations.rl_configurations import RlConfigurations
from planner.estimators.rl.rl_inputs import RlInputs
from planner.estimators.rl.rollout import Rollout, estimate_rollout
from planner.estimators.rl.trainer import Trainer, estimate_trainer
from planner.estimators.training.flops import adapter_parameter_count
from planner.formulas.rollout import balanced_training_share, weight_sync_time
from planner.layers.model import count_parameters
from planner.specs.quantization import FORMATS
from planner.specs.training_workload import transfers

_BUCKET = 2 * 2**30
"""Bytes that are gathered at once to be handed to the engine: verl's bucket of 2 GB."""
_ADAPTER_BYTES = 2.0
"""Of a number of an adapter as engines keep it."""
_WEIGHT_BYTES = np.array([FORMATS[code].weight for code in Quantization])
ROLLOUT_PHASES = ("generate", "reward")
TRAINER_PHASES = ("old_logprob", "reference", "values", "update")
PHASES = (*ROLLOUT_PHASES, *TRAINER_PHASES, "switch", "sync")
"""What a step does, in this order where it does one after the other."""
HIDDEN = ((), TRAINER_PHASES, ROLLOUT_PHASES)
"""Phases that the other side's time hides."""
MEMORY_PHASES = ("generate", "wake_up", "update")


@record(kw_only=True)
class RlStep:
    """A step of every configuration; arrays broadcast to the configurations' shape.

    ``generate`` is the time of the answers in the placement, between that of a whole batch with its
    tail and that of engines which never run empty. ``trains``: seconds of the trainer's passes and
    updates, ``times`` the phases by name, ``total`` the step.
    """

    inputs: RlInputs
    configurations: RlConfigurations
    trainer: Trainer
    rollout: Rollout

    @cached_property
    def times(self) -> Mapping[str, FloatArray]:
        """Seconds per step of each phase in ``PHASES``."""
        work, one_pass = self.inputs.workload, self.trainer.one_pass
        old_logprob = one_pass if work.old_logprob else np.zeros(())
        reference = one_pass if work.reference_model else np.zeros(())
        values = one_pass + self.trainer.update if work.critic else np.zeros(())
        reward = np.asarray(work.reward_time)
        parts = (self.generate, reward, old_logprob, reference, values, self.trainer.update)
        return dict(zip(PHASES, (*parts, self._switch, self._sync), strict=True))

    @property
    def overlaps(self) -> BoolArray:
        """Mask of configurations in which both sides work at once, on answers of older weights."""
        c = self.configurations
        stale = (c.placement == Placement.ASYNC) & (c.staleness > 0)
        return np.asarray(stale | (c.placement == Placement.ONE_STEP_OFF))

    @property
    def hidden_phases(self) -> CodeArray:
        """The number among ``HIDDEN`` of what the longer side hides."""
        side = np.where(self.rollout_is_longer, 1, 2)
        return np.where(self.overlaps, side, 0).astype(np.int8)

    @cached_property
    def tail_share(self) -> FloatArray:
        """Share of a rollout batch's tail (slowest answers) that a step waits for.

        0 with partial rollouts, where a step takes the finished answers. If a step waits for its
        own batch, an engine that may run k batches ahead has the tail of one batch in k steps: with
        weights one step old, all of it.
        """
        c = self.configurations
        waited_share = (
            1 / np.maximum(c.staleness, 1.0) if self.inputs.rollouts.waits_for_batch else 0.0
        )
        separate = np.where(c.placement == Placement.ASYNC, waited_share, 1.0)
        return np.where(c.partial_rollout, np.where(c.colocated, 0.0, separate), 1.0)

    @cached_property
    def generate(self) -> FloatArray:
        """Seconds per step to generate the answers."""
        rollout, colocated = self.rollout, self.configurations.colocated
        recompute_time = np.where(
            colocated & self.configurations.partial_rollout, rollout.again, 0.0
        )
        tail = self.tail_share * (rollout.batch - rollout.steady)
        return np.minimum(rollout.steady + tail + recompute_time, rollout.batch)

    @cached_property
    def trains(self) -> FloatArray:
        """Seconds in which the trainer works."""
        return add(self.times[name] for name in TRAINER_PHASES)

    @cached_property
    def total(self) -> FloatArray:
        """Seconds of an RL step: rollout, reward, training and weight sync."""
        times = self.times
        overhead = self.inputs.rollouts.step_overhead
        answers = times["generate"] + times["reward"]
        one_after_other = answers + self.trains + times["switch"]
        longer = np.maximum(answers, self.trains)
        return np.where(self.overlaps, longer, one_after_other) + times["sync"] + overhead

    def shown_times(self) -> dict[str, float]:
        """Return seconds per phase of the first configuration; they add up to its step."""
        hidden = HIDDEN[int(np.ravel(self.hidden_phases)[0])]
        times = {
            name: float(np.ravel(seconds)[0])
            for name, seconds in self.times.items()
            if name not in hidden
        }
        times["wait"] = self.inputs.rollouts.step_overhead
        return {name: seconds for name, seconds in times.items() if seconds > 0}

    @property
    def trainer_idle(self) -> FloatArray:
        """Share of the step in which the GPUs that train do nothing."""
        return self._idle(self.trains)

    @property
    def rollout_idle(self) -> FloatArray:
        """Share of the step in which the GPUs that generate do nothing."""
        return self._idle(self.times["generate"])

    def _idle(self, side_time: FloatArray) -> FloatArray:
        """Return the share of a step in which GPUs of one side (rollout or training) are idle."""
        colocated_time = self.times["generate"] + self.trains + self.times["switch"]
        busy = (
            np.where(self.configurations.colocated, colocated_time, side_time) + self.times["sync"]
        )
        return np.asarray(np.clip(1 - busy / self.total, 0.0, 1.0))

    @property
    def rollout_is_longer(self) -> BoolArray:
        """Mask of configurations in which rollouts take longer than training."""
        return np.asarray(self.generate + self.times["reward"] > self.trains)

    @property
    def imbalance(self) -> FloatArray:
        """Relative difference between the times of both sides."""
        answers = self.generate + self.times["reward"]
        longer = np.maximum(answers, self.trains)
        return np.asarray(longer / np.minimum(answers, self.trains) - 1)

    @property
    def balanced_train_gpus(self) -> FloatArray:
        """Number of training GPUs at which rollout and training take equally long."""
        c = self.configurations
        share = c.trainer_gpus / c.num_gpus
        balanced = balanced_training_share(
            generating=self.generate, training=self.trains, share=share
        )
        return np.where(c.colocated, c.num_gpus, balanced * c.num_gpus)

    @cached_property
    def method(self) -> CodeArray:
        """Weight-sync method of each configuration (code of `WeightSync`)."""
        requested, rollouts = self.configurations.weight_sync, self.inputs.rollouts
        names = rollouts.colocated_sync, rollouts.separate_sync
        colocated, separate = (int(WeightSync[name.upper()]) for name in names)
        default = np.where(self.configurations.colocated, colocated, separate)
        return np.where(requested == WeightSync.AUTO, default, requested).astype(np.int8)

    @cached_property
    def _synced_bytes(self) -> FloatArray:
        """Bytes of new weights that the rollout engine receives per step."""
        if self.inputs.serves_adapter:
            return np.asarray(_ADAPTER_BYTES * adapter_parameter_count(self.inputs.packed))
        size = count_parameters(self.inputs.model).total
        return np.asarray(size * _WEIGHT_BYTES[self.configurations.rollout_quantization])

    @cached_property
    def _sync(self) -> FloatArray:
        """Return seconds per step to send new weights from trainer to rollout engines."""
        methods = transfers()
        start, rate = (
            np.array([getattr(methods[code], name) if code else 1.0 for code in WeightSync])
            for name in ("start", "rate")
        )
        num_bytes = self._synced_bytes
        seconds = weight_sync_time(
            num_bytes=num_bytes, start=start[self.method], rate=rate[self.method]
        )
        rollouts = self.inputs.rollouts
        start_time = np.where(self.method == WeightSync.IPC, rollouts.ipc_start, 0.0)
        return (seconds + start_time) * rollouts.sync_factor

    @cached_property
    def _switch(self) -> FloatArray:
        """Return seconds per step in which trainer and engine swap GPU memory, both ways."""
        c, inputs = self.configurations, self.inputs
        link = inputs.framework.offloading.host_link_fraction
        moved = np.where(c.offload_train, 2 * self.trainer.states, 0.0)
        sleeping = np.where(c.offload_rollout, 2 * inputs.rollouts.sleep_time, 0.0)
        switch = inputs.machine.host_copy_time(moved, link) + sleeping
        return np.where(c.colocated, switch, 0.0)

    @cached_property
    def memory_parts(self) -> tuple[Mapping[str, FloatArray], ...]:
        """Return bytes of the fullest GPU by part, in each phase of ``MEMORY_PHASES``.

        On the same GPU the engine shares its specified memory with the trainer's remaining states.
        Weights are handed over before the cache is allocated again. The trainer has the memory
        that the engine leaves. The cache includes the engine's activations. Where the trainer is
        offloaded to host memory, other models wait there for their passes.
        """
        trainer, memory, c = self.trainer, self.rollout.memory, self._residents
        critic = trainer.states if self.inputs.workload.critic else np.zeros(())
        others = (1.0 - c.offload_train) * (critic + trainer.reference)
        engine = np.maximum(memory.usable, self.rollout.needed)
        cache = engine - memory.weights - memory.reserved
        awake = 1.0 - c.offload_rollout
        generate = {
            "engine_weights": memory.weights,
            "engine_cache": cache,
            "engine_reserved": memory.reserved,
            "trainer_states": c.colocated * ((1.0 - c.offload_train) * trainer.states + others),
            "trainer_reserved": c.colocated * trainer.reserved,
        }
        wake_up = {
            "engine_weights": memory.weights,
            "engine_reserved": memory.reserved,
            "trainer_weights": trainer.weights,
            "trainer_reserved": trainer.reserved,
            "bucket": np.minimum(float(_BUCKET), self._synced_bytes),
        }
        update = {
            "trainer_states": trainer.states + others,
            "trainer_activations": trainer.peak_memory - trainer.states - trainer.reserved,
            "trainer_reserved": trainer.reserved,
            "engine_weights": c.colocated * awake * memory.weights,
            "engine_cache": c.colocated * awake * cache,
            "engine_reserved": c.colocated * memory.reserved,
        }
        wakes = {name: c.colocated * size for name, size in wake_up.items()}
        return generate, wakes, update

    @property
    def _residents(self) -> RlConfigurations:
        """Configurations without offloads that free nothing in unified memory."""
        if not self.inputs.machine.gpu.unified_memory:
            return self.configurations
        no = np.zeros((), dtype=np.bool_)
        return replace(self.configurations, offload_train=no, offload_rollout=no)

    @cached_property
    def phase_memory(self) -> tuple[FloatArray, ...]:
        """Bytes of the fullest GPU in each of ``MEMORY_PHASES``."""
        return tuple(np.asarray(add(parts.values())) for parts in self.memory_parts)

    @cached_property
    def peak_memory(self) -> FloatArray:
        """Bytes of the fullest GPU in the phase that needs most."""
        first, *others = self.phase_memory
        for other in others:
            first = np.maximum(first, other)
        return first

    @property
    def fullest_phase(self) -> CodeArray:
        """The number of that phase among ``MEMORY_PHASES``."""
        stacked = np.stack(np.broadcast_arrays(*self.phase_memory))
        return np.asarray(np.argmax(stacked, axis=0), dtype=np.int8)

    @cached_property
    def host_memory(self) -> FloatArray:
        """Bytes of host memory per GPU: offloaded by rollout and by training."""
        c, memory = self._residents, self.rollout.memory
        critics = 2.0 if self.inputs.workload.critic else 1.0
        states = np.where(c.offload_train, critics * self.trainer.states, 0.0)
        slept = np.where(c.offload_rollout, memory.weights, 0.0)
        waiting = np.where(c.colocated, states + slept, 0.0)
        reference = np.where(c.offload_train, self.trainer.reference, 0.0)
        return waiting + reference + self.trainer.estimate.memory.host


def evaluate_rl(inputs: RlInputs, configurations: RlConfigurations) -> RlStep:
    """Predict time and memory of an RL step of every configuration."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return RlStep(
            inputs=inputs,
            configurations=configurations,
            trainer=estimate_trainer(inputs, configurations),
            rollout=estimate_rollout(inputs, configurations),
        )
