"""What a reference model adds to the memory of training: weights, and logits at the same time."""

from __future__ import annotations

import numpy as np

from planner.base.arrays import FloatArray
from planner.base.enums import ZeroStage
from planner.configurations.training import TrainingConfigurations
from planner.estimators.frozen import end_bytes, frozen_bytes
from planner.estimators.sharding import StageParameters, sharded
from planner.estimators.share import Setting

_LOGIT_GRADIENT = 4.0


def untrained_bytes(
    setting: Setting, c: TrainingConfigurations, parameters: StageParameters, stage: int
) -> FloatArray:
    """Bytes of weights that are not trained on one GPU: frozen ones, or a reference model's."""
    if setting.workload.is_frozen:
        return frozen_bytes(setting, c, parameters, stage)
    if setting.workload.keeps_reference:
        return reference_bytes(setting, c, parameters, stage)
    return np.zeros(())


def reference_bytes(
    setting: Setting, c: TrainingConfigurations, parameters: StageParameters, stage: int
) -> FloatArray:
    """Bytes of the 16-bit weights of a reference model on one GPU of a stage.

    They are sharded as those of the policy are, and have neither gradients nor optimizer states
    (trl 1.10, trl/trainer/dpo_trainer.py: ``prepare_deepspeed``, ``prepare_fsdp``).
    """
    sharded_from = ZeroStage(setting.framework.states.weights_sharded_from)
    width = end_bytes(c.precision)
    held = (
        (parameters.dense[stage], width, parameters.dense_group),
        (parameters.experts[stage], width, parameters.expert_group),
    )
    return sharded(c, sharded_from, held)


def bytes_per_logit(setting: Setting, usual: FloatArray) -> FloatArray:
    """Bytes of a logit with its copies where the loss is fullest, of ``usual`` without others.

    Passes without gradients run while the policy's logits wait for their backward pass: both have
    all but the gradient, of 4 bytes, then (trl 1.10, trl/trainer/dpo_trainer.py, ``_compute_loss``;
    LLaMA-Factory 0.9, train/dpo/trainer.py, ``get_batch_loss_metrics``).
    """
    if not any(setting.workload.forward_passes):
        return usual
    return np.maximum(usual, 2 * (usual - _LOGIT_GRADIENT))
