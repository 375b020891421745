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
from planner.base.units import GIB
from planner.configurations.rl import RlConfigurations
from planner.estimators.rl.rl_inputs import RlInputs
from planner.estimators.rl.rollout import Rollout, estimate_rollout
from planner.estimators.rl.trainer import Trainer, estimate_trainer
from planner.estimators.training.flops import adapter_parameter_count
from planner.formulas.rollout import balanced_training_share, weight_sync_time
from planner.layers.model import count_parameters
from planner.specs.quantization import FORMATS
from planner.specs.training_workload import transfers

_BUCKET = 2 * 2**30
"""Bytes that are gathered at once to be handed to the engine: verl's bucket of 2 GB.

Engines that receive one tensor at a time hold it whole on every GPU, as OpenRLHF's (at 012abcd,
trainer/ray/vllm_worker_wrap.py, ``update_weight``): 2.0 GiB of a 70B's embedding.
"""
_BEYOND_SHARE = 1.37 * GIB
"""Bytes that an engine with GPUs of its own takes of each of several beyond its share.

Communicators and workspaces come after the engine has sized its cache (vllm-project/vllm pull
request 51590, comment of 2026-09-21: vLLM 0.28 with tensor parallelism 8 was given 29.81 GiB of
each GPU and held 31.18; graphs were 0.06).
"""
_ADAPTER_BYTES = 2.0
"""Of a number of an adapter as engines keep it."""
_WEIGHT_BYTES = np.array([FORMATS[code].weight for code in Quantization])
ROLLOUT_PHASES = ("generate", "reward")
TRAINER_PHASES = ("old_logprob", "reference", "values", "update")
PHASES = (*ROLLOUT_PHASES, *TRAINER_PHASES, "switch", "sync")
"""What a step does, in this order where it does one after the other."""
HIDDEN = ((), TRAINER_PHASES, ROLLOUT_PHASES)
"""Phases that the other side's time hides."""
MEMORY_PHASES = ("generate", "wake_up", "update", "reference", "critic")
"""Phases with the GPU memory that each needs; the last two are of models with GPUs of their own."""


@record(kw_only=True)
class RlStep:
    """A step of every configuration; arrays broadcast to the configurations' shape.

    ``generate`` is the time of the answers in the placement, between that of a whole batch with its
    tail and that of engines which never run empty. ``trains``: seconds of the trainer's passes and
    updates, ``times`` the phases by name, ``total`` the step. ``reference_model`` and ``critic``
    are those models on GPUs of their own; None: no configuration has such.
    """

    inputs: RlInputs
    configurations: RlConfigurations
    trainer: Trainer
    rollout: Rollout
    reference_model: Trainer | None = None
    critic: Trainer | None = None

    @cached_property
    def times(self) -> Mapping[str, FloatArray]:
        """Seconds per step of each phase in ``PHASES``.

        Models with GPUs of their own work at the same time as the policy: their phases have the
        seconds that the policy waits for them (OpenRLHF, trainer/ppo_utils/experience_maker.py).
        """
        work, one_pass, c = self.inputs.workload, self.trainer.one_pass, self.configurations
        old_logprob = one_pass if work.old_logprob else np.zeros(())
        reference = one_pass if work.reference_model else np.zeros(())
        values = one_pass + self.trainer.update if work.critic else np.zeros(())
        if (model := self.reference_model) is not None:
            waited = np.maximum(model.one_pass - old_logprob, 0.0)
            reference = np.where(c.reference_gpus > 0, waited, reference)
        if (model := self.critic) is not None:
            waited = np.maximum(model.one_pass - old_logprob - reference, 0.0)
            waited = waited + np.maximum(model.update - self.trainer.update, 0.0)
            values = np.where(c.critic_gpus > 0, waited, values)
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
        with np.errstate(invalid="ignore"):  # both are infinite where no answer fits
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
        both = c.num_gpus - c.other_gpus
        share = c.trainer_gpus / both
        balanced = balanced_training_share(
            generating=self.generate, training=self.trains, share=share
        )
        return np.where(c.colocated, both, balanced * both)

    @cached_property
    def method(self) -> CodeArray:
        """Weight-sync method of each configuration (code of `WeightSync`)."""
        requested, rollouts = self.configurations.weight_sync, self.inputs.rollouts
        names = rollouts.colocated_sync, rollouts.separate_sync
        if self.inputs.context.has_two_vendors:
            names = names[0], WeightSync.STORE.word
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
        methods = transfers(self.inputs.framework.name, self.inputs.engine.name)
        start, rate, sent, sharded, senders = (
            np.array([getattr(methods[code], name) if code else 1.0 for code in WeightSync])[
                self.method
            ]
            for name in ("start", "rate", "sent_share", "sharded", "senders")
        )
        num_bytes = self._synced_bytes
        network = self._network_rate(sharded, senders) / sent
        seconds = weight_sync_time(num_bytes=num_bytes, start=start, rate=np.minimum(rate, network))
        rollouts = self.inputs.rollouts
        start_time = np.where(self.method == WeightSync.IPC, rollouts.ipc_start, 0.0)
        return (seconds + start_time) * rollouts.sync_factor

    def _network_rate(self, sharded: FloatArray, senders: FloatArray) -> FloatArray:
        """Return the bytes/s that the networks of both sides let through, inf inside a fabric.

        The cards of ``senders`` GPUs of a node carry a broadcast; where each GPU receives its own
        part, ``sharded``, all GPUs of an engine receive, and the trainer sends to every engine.
        """
        c, inputs = self.configurations, self.inputs
        rates = []
        sides = (inputs.machine, c.trainer_gpus), (inputs.engine_machine, c.rollout_gpus)
        for machine, gpus in sides:
            cluster = machine.cluster
            card = cluster.scale_out.bandwidth * cluster.scale_out.efficiency
            in_node = np.minimum(np.minimum(gpus, cluster.gpus_per_node), senders)
            of_engine = gpus / np.maximum(c.replicas, 1e-9)
            rates.append(card * np.where(sharded > 0, of_engine, in_node))
        inside = inputs.machine.cluster.scale_up.domain_size
        is_local = c.colocated | ((c.num_gpus <= inside) & (not inputs.context.has_two_types))
        return np.where(is_local, np.inf, np.minimum(*rates))

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
        Weights are handed over before the cache is allocated again. An engine with GPUs of its own
        receives them in addition to its cache. The trainer has the memory that the engine leaves.
        The cache includes the engine's activations. Where the trainer is offloaded to host memory,
        other models wait there for their passes.
        """
        trainer, memory, c = self.trainer, self.rollout.memory, self._residents
        critic = self._shares_critic * trainer.states
        others = (1.0 - c.offload_train) * (critic + self._shares_reference * trainer.reference)
        engine = np.maximum(memory.usable, self.rollout.needed)
        cache = engine - memory.weights - memory.reserved
        awake, separate = 1.0 - c.offload_rollout, 1.0 - c.colocated
        bucket = np.minimum(float(_BUCKET), self._synced_bytes)
        group = self.inputs.framework.memory.communication_buffer
        beyond = np.where(c.rollout_tensor_parallel > 1, _BEYOND_SHARE, 0.0)
        generate = {
            "engine_weights": memory.weights,
            "engine_cache": cache,
            "engine_reserved": memory.reserved,
            "engine_beyond": separate * beyond,
            "trainer_states": c.colocated * ((1.0 - c.offload_train) * trainer.states + others),
            "trainer_reserved": c.colocated * trainer.reserved,
            "sync_bucket": separate * bucket,
            "sync_group": separate * group,
        }
        wake_up = {
            "engine_weights": memory.weights,
            "engine_reserved": memory.reserved,
            "trainer_weights": trainer.weights,
            "trainer_reserved": trainer.reserved,
            "bucket": bucket,
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
        return generate, wakes, update, *self._further_models_memory

    @property
    def _shares_reference(self) -> BoolArray:
        """Mask of configurations with the reference model on the trainer's GPUs."""
        return np.asarray(self.configurations.reference_gpus == 0)

    @property
    def _shares_critic(self) -> BoolArray:
        """Mask of configurations with the critic on the trainer's GPUs."""
        return np.asarray((self.configurations.critic_gpus == 0) & self.inputs.workload.critic)

    @property
    def _further_models_memory(self) -> tuple[Mapping[str, FloatArray], ...]:
        """Return bytes of the GPUs of models that have their own; none: zeros.

        A pass without gradients has at most the activations of an update.
        """
        c, parts = self.configurations, list[Mapping[str, FloatArray]]()
        for model, gpus, states in (
            (self.reference_model, c.reference_gpus, "reference"),
            (self.critic, c.critic_gpus, "states"),
        ):
            if model is None:
                parts.append({"": np.zeros(())})
                continue
            sizes = {
                "states": getattr(model, states),
                "activations": model.peak_memory - model.states - model.reserved,
                "reserved": model.reserved,
            }
            parts.append({f"model_{name}": (gpus > 0) * size for name, size in sizes.items()})
        return tuple(parts)

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

    @property
    def capacities(self) -> tuple[float, ...]:
        """Usable bytes of the GPUs of each phase of ``MEMORY_PHASES``."""
        engine, trainer = (
            machine.gpu.allocatable_memory
            for machine in (self.inputs.engine_machine, self.inputs.machine)
        )
        return engine, *(len(MEMORY_PHASES) - 1) * (trainer,)

    @cached_property
    def _free_by_phase(self) -> FloatArray:
        """Free bytes of the fullest GPU in each of ``MEMORY_PHASES``, the first axis."""
        sizes = zip(self.capacities, self.phase_memory, strict=True)
        return np.stack(np.broadcast_arrays(*(capacity - size for capacity, size in sizes)))

    @property
    def headroom(self) -> FloatArray:
        """Free bytes of the fullest GPU in the phase that leaves least."""
        return np.asarray(self._free_by_phase.min(axis=0))

    @cached_property
    def peak_memory(self) -> FloatArray:
        """Bytes of the fullest GPU in the phase that leaves least."""
        first, *others = self.phase_memory
        if len(set(self.capacities)) > 1:
            return np.choose(self.fullest_phase, np.broadcast_arrays(first, *others))
        for other in others:
            first = np.maximum(first, other)
        return first

    @property
    def capacity(self) -> FloatArray:
        """Usable bytes of the GPU that is fullest."""
        return np.asarray(self.capacities)[self.fullest_phase]

    @property
    def fullest_phase(self) -> CodeArray:
        """The number of that phase among ``MEMORY_PHASES``."""
        return np.asarray(np.argmin(self._free_by_phase, axis=0), dtype=np.int8)

    @cached_property
    def host_memory(self) -> FloatArray:
        """Bytes of host memory per GPU: offloaded by rollout and by training."""
        c, memory = self._residents, self.rollout.memory
        critics = 1.0 + self._shares_critic
        states = np.where(c.offload_train, critics * self.trainer.states, 0.0)
        slept = np.where(c.offload_rollout, memory.weights, 0.0)
        waiting = np.where(c.colocated, states + slept, 0.0)
        waits_on_host = c.offload_train & self._shares_reference
        reference = np.where(waits_on_host, self.trainer.reference, 0.0)
        return waiting + reference + self.trainer.estimate.memory.host


def evaluate_rl(inputs: RlInputs, configurations: RlConfigurations) -> RlStep:
    """Predict time and memory of an RL step of every configuration."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return RlStep(
            inputs=inputs,
            configurations=configurations,
            trainer=estimate_trainer(inputs, configurations),
            rollout=estimate_rollout(inputs, configurations),
            reference_model=_further_model(inputs, configurations, configurations.reference_gpus),
            critic=_further_model(inputs, configurations, configurations.critic_gpus),
        )


def _further_model(inputs: RlInputs, c: RlConfigurations, gpus: FloatArray) -> Trainer | None:
    """Return the trainer's layout on ``gpus`` of a further model; None: none has GPUs alone."""
    return estimate_trainer(inputs, c.trainer_on(gpus)) if np.any(gpus > 0) else None
