"""Factors of torch.compile on an eager profile, and of eager mode on a compiled one.

A profile describes one of the two modes. In the other mode the traffic of elementwise kernels,
their saved tensors and their launches differ, and are counted from the operators
(`planner.layers.feed_forward`).
"""

from __future__ import annotations

import numpy as np

from planner.base.arrays import BoolArray, Numeric
from planner.estimators.training.micro_batch_share import MicroBatchShare
from planner.layers.operators import Elementwise


def elementwise_tensors(share: MicroBatchShare, op: Elementwise) -> tuple[Numeric, Numeric]:
    """Count 16-bit tensors that an operator's kernels read and write: (forward, backward)."""
    framework = share.inputs.framework
    default_passes = framework.execution.elementwise_passes
    other = share.compiled_otherwise
    if not other.any():
        return op.forward * default_passes, op.backward * default_passes
    compilation = framework.compilation
    forward, backward = op.in_eager if compilation.default else (op.forward, op.backward)
    passes = compilation.elementwise_passes
    return (
        np.where(other, forward * passes, op.forward * default_passes),
        np.where(other, backward * passes, op.backward * default_passes),
    )


def layer_launch_time(share: MicroBatchShare) -> Numeric:
    """Return host seconds to launch the forward kernels of one layer."""
    framework = share.inputs.framework
    default_time, other = framework.execution.layer_launch_time, share.compiled_otherwise
    if not other.any():
        return default_time
    compilation = framework.compilation
    is_split = compilation.default & (share.tensor_parallel > 1)
    dispatched = is_split * compilation.tensor_parallel_launch_time
    return np.where(other, compilation.layer_launch_time + dispatched, default_time)


def keeps_eager_copies(share: MicroBatchShare) -> BoolArray:
    """Where eager kernels keep tensors that the profile does not count."""
    if not share.inputs.framework.compilation.default:
        return np.zeros((), dtype=np.bool_)
    return share.compiled_otherwise


def saved_activation_factor(share: MicroBatchShare) -> Numeric:
    """Return saved activation bytes relative to those of fused kernels."""
    framework = share.inputs.framework
    default_factor, compiled = (
        framework.memory.kept_activations,
        framework.compilation.kept_activations,
    )
    if framework.compilation.default or not share.compiled_otherwise.any():
        return default_factor
    return np.where(share.compiled_otherwise, compiled, default_factor)
