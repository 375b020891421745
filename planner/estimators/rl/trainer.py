"""The trainer of a step: passes without gradients, updates, memory."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from planner.base.arrays import FloatArray, add
from planner.base.records import record
from planner.configurations.configuration_tables import TrainingConfigurations
from planner.configurations.rl import RlConfigurations
from planner.estimators.rl.rl_inputs import RlInputs
from planner.estimators.training.micro_batch_share import fullest_and_mean_share
from planner.estimators.training.step_time import StepTime
from planner.estimators.training.training_estimate import Estimate, evaluate

_STATES = ("weights", "optimizer_states")
_BYTES = 2.0
"""Of a weight of a reference model, which is kept in 16 bits and split as the policy is."""
_ALL_KEPT = np.zeros((), dtype=np.int8)
_ONCE = ("data_parallel", "optimizer", "overhead", "slow_nodes", "pipeline_bubble")


@record(kw_only=True)
class Trainer:
    """Seconds and bytes of the trainer; arrays broadcast to the configurations' shape.

    ``estimate`` is that of an optimizer step over micro-batches that are full, ``time`` that of one
    over its answers. ``one_pass``: seconds of a pass without gradients over all answers;
    ``update``: of all optimizer steps of a step. ``states``: bytes of a GPU that wait while answers
    are generated; ``weights``: bytes that the engine receives; ``reference``: bytes of a
    reference model, ``reserved``: bytes that always stay.
    """

    estimate: Estimate
    time: StepTime
    one_pass: FloatArray
    update: FloatArray
    states: FloatArray
    weights: FloatArray
    reference: FloatArray
    reserved: FloatArray

    @property
    def peak_memory(self) -> FloatArray:
        """Bytes of the fullest GPU."""
        return self.estimate.peak_memory


def estimate_trainer(inputs: RlInputs, configurations: RlConfigurations) -> Trainer:
    """Predict the training phase of an RL step for every configuration.

    An optimizer step has as few micro-batches as hold its answers, of even sizes: frameworks deal
    answers to ranks by their lengths. Passes without gradients take all answers at once, so that
    their pipeline fills once.
    """
    work, batch = inputs.workload, configurations.global_batch_size
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        full = full_batches(inputs, configurations)
        # The search checks the rules together with those of the engine.
        # At most a rank's tokens per optimizer step, or one longest answer.
        rank_tokens = batch * work.mean_length / full.data_parallel
        share = np.minimum(np.maximum(rank_tokens, work.longest) / inputs.budget, 1.0)
        limited = replace(
            full, micro_batch_size=share, global_batch_size=full.global_batch_size * share
        )
        estimate = evaluate(inputs.packed, limited, broken=_ALL_KEPT)
        time = _uneven_times(inputs, full, estimate, batch)
        updates = work.samples / batch
        factor = inputs.rollouts.pass_factor
        passes = sum(inputs.uneven.workload.forward_passes)
        reference = np.asarray(sum(runs * block.reference for block, runs in time.runs))
        bubble = time.pipeline_bubble
        once = add(getattr(time, name) for name in _ONCE)
        filling = bubble * reference / (time.total - once)
        update = time.total - reference - filling
        fullest = estimate.memory.fullest
    has_reference = (
        work.reference_model and not work.is_frozen
    )  # else the reference is the model without adapters
    return Trainer(
        estimate=estimate,
        time=time,
        one_pass=np.asarray(factor * (reference * updates + filling) / passes),
        update=np.asarray(factor * update * updates * work.update_epochs),
        states=np.asarray(add(getattr(fullest, name) for name in _STATES)),
        weights=fullest.weights,
        reference=fullest.weights * _BYTES / inputs.framework.states.weight * has_reference,
        reserved=fullest.reserved,
    )


def full_batches(inputs: RlInputs, configurations: RlConfigurations) -> TrainingConfigurations:
    """Return trainer configurations with one sequence of a full micro-batch's tokens."""
    c = configurations.trainer
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        tokens = c.global_batch_size * inputs.workload.mean_length
        number = np.maximum(np.ceil(tokens / (c.data_parallel * inputs.budget)), 1.0)
        batch_size = c.data_parallel * number
    return replace(c, global_batch_size=batch_size, micro_batch_size=np.ones(()))


def _uneven_times(
    inputs: RlInputs, full: TrainingConfigurations, estimate: Estimate, batch: FloatArray
) -> StepTime:
    """Return times of an optimizer step over answers of uneven length."""
    each = batch / full.global_batch_size
    answers = replace(full, global_batch_size=batch, micro_batch_size=each)
    _, share = fullest_and_mean_share(inputs.uneven, answers)
    uneven = replace(
        estimate, inputs=inputs.uneven, configurations=answers, share=share, flops_efficiency=None
    )
    return uneven.time
