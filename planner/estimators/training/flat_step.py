"""A step that reaches a specified share of the peak, and its parts by their FLOPs."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import numpy as np

from planner.base.arrays import FloatArray, Numeric, add
from planner.base.enums import ComputePrecision
from planner.base.records import record
from planner.configurations.configuration_tables import TrainingConfigurations
from planner.estimators.training.flops import (
    HEAD,
    forward_flops_by_part,
    forward_flops_per_token,
    model_flops_per_token,
    recomputed_flops_per_token,
    repeated_modules_flops,
    tower_flops_per_token,
)
from planner.estimators.training.micro_batch_share import TrainingInputs, tokens_of_sample

PASSES = ("forward", "backward", "recompute", "reference")
TENSOR_PARALLEL = "tensor_parallel"
_TOWER = "vision_tower"


def hardware_flops_per_token(inputs: TrainingInputs, c: TrainingConfigurations) -> FloatArray:
    """Model FLOPs and recomputed FLOPs of a trained token."""
    of_model = model_flops_per_token(inputs.model, inputs.workload.sequence_length, inputs)
    return of_model + _recomputed(inputs, c)


def _recomputed(inputs: TrainingInputs, c: TrainingConfigurations) -> FloatArray:
    """Return FLOPs per token that each configuration recomputes in the backward pass."""
    return recomputed_flops_per_token(
        inputs.model,
        inputs.workload.sequence_length,
        inputs.recomputation(c),
        c.flash_attention,
        inputs.framework.execution.selective_share,
        inputs.framework.execution.selective_grouped,
    )


@record(kw_only=True)
class FlatStep:
    """A step whose FLOPs take a share of the peak, ``efficiency``: communication is inside it.

    The share is one number, or one of each `ComputePrecision`.
    """

    inputs: TrainingInputs
    configurations: TrainingConfigurations
    efficiency: float | tuple[float, ...]

    @property
    def share(self) -> FloatArray:
        """The share of the peak that each configuration reaches."""
        each = np.broadcast_to(self.efficiency, len(ComputePrecision))
        return np.asarray(each[self.configurations.precision])

    @cached_property
    def total(self) -> FloatArray:
        """Return seconds of a step at the specified FLOPs efficiency."""
        c, inputs = self.configurations, self.inputs
        tokens = c.global_batch_size * tokens_of_sample(inputs.workload)
        flops = tokens * hardware_flops_per_token(inputs, c)
        return np.asarray(flops / (c.num_gpus * inputs.machine.peak(c.precision) * self.share))

    def parts(self, communication: FloatArray) -> dict[str, FloatArray]:
        """Split the step's seconds by pass and tensor-parallel ``communication`` [s].

        What the share of the peak leaves no time for is hidden behind computation.
        """
        shown = np.fmin(communication, self.total * (1.0 - self.share))
        total_flops = add(self._flops)
        shares = (np.asarray((self.total - shown) * (flops / total_flops)) for flops in self._flops)
        return {**dict(zip(PASSES, shares, strict=True)), TENSOR_PARALLEL: shown}

    @cached_property
    def _flops(self) -> tuple[Numeric, Numeric, Numeric, Numeric]:
        """Return FLOPs per token of each pass, in the order of ``PASSES``."""
        inputs, work = self.inputs, self.inputs.workload
        forward = forward_flops_per_token(inputs.model, work.sequence_length)
        total_flops = hardware_flops_per_token(inputs, self.configurations)
        recomputation = _recomputed(inputs, self.configurations)
        reference = sum(work.forward_passes) * forward
        return forward, total_flops - recomputation - forward - reference, recomputation, reference

    def modules(self, communication: FloatArray) -> dict[str, dict[str, FloatArray]]:
        """Split the step's seconds by module and pass; communication [s] is one of the modules.

        The backward pass is split as the forward pass is, of frozen weights too.
        """
        times = self.parts(communication)
        forward = forward_flops_by_part(self.inputs.model, self.inputs.workload.sequence_length)
        of_tower = tower_flops_per_token(self.inputs) / self._flops[1]
        times[_TOWER], times["backward"] = (
            times["backward"] * share for share in (of_tower, 1 - of_tower)
        )
        weights: dict[str, Mapping[str, Numeric]] = {
            "forward": forward,
            "backward": forward,
            "recompute": self._repeated(forward),
        }
        modules: dict[str, dict[str, FloatArray]] = {}
        for name, parts in weights.items():
            total_flops = add(parts.values())
            for module, flops in parts.items():
                share = np.where(
                    total_flops > 0, flops / np.where(total_flops > 0, total_flops, 1.0), 0.0
                )
                modules.setdefault(module, {})[name] = times[name] * share
        for name in (_TOWER, "reference", TENSOR_PARALLEL):
            modules[name] = {name: times[name]}
        return modules

    def _repeated(self, forward: Mapping[str, float]) -> dict[str, Numeric]:
        """Split the recomputed FLOPs per token over modules."""
        inputs, c = self.inputs, self.configurations
        length, recomputation = inputs.workload.sequence_length, inputs.recomputation(c)
        repeated = repeated_modules_flops(inputs.model, length, recomputation, c.flash_attention)
        in_layers: dict[str, Numeric] = {**forward, HEAD: 0.0}
        named = dict(zip(("attention", "feed_forward"), repeated, strict=True))
        return {
            name: np.where(add(repeated) > 0, named.get(name, 0.0), flops)
            for name, flops in in_layers.items()
        }
