"""What of its forward pass a configuration computes again in the backward pass."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from planner.base.arrays import BoolArray, CodeArray, FloatArray
from planner.base.enums import Recompute
from planner.base.records import record
from planner.base.software_enums import has_tensor
from planner.configurations.training import TrainingConfigurations


@record(kw_only=True)
class Recomputation:
    """``full``: share of the layers that are repeated whole, the same on every stage.

    ``selective``: every layer repeats some of its operators; ``feed_forward``: its feed-forward.
    ``saved`` and ``offloaded``: the tensors that layers repeated whole keep (``KeptTensors``).
    ``reads_alone``: they repeat only what the backward pass reads.
    """

    full: FloatArray
    selective: BoolArray
    feed_forward: BoolArray
    saved: CodeArray
    offloaded: CodeArray
    reads_alone: bool = False

    @classmethod
    def of(
        cls, c: TrainingConfigurations, num_hidden_layers: int, *, reads_alone: bool = False
    ) -> Recomputation:
        """That of each configuration of a model with so many layers."""
        full = np.where(c.recompute == Recompute.FULL, 1.0, 0.0)
        layers = c.recompute_num_layers
        if np.any(layers):
            stage = num_hidden_layers / c.pipeline_parallel
            full = full * np.where(layers > 0, np.minimum(layers / stage, 1.0), 1.0)
        return cls(
            full=full,
            selective=np.asarray(c.recompute == Recompute.SELECTIVE),
            feed_forward=np.asarray(c.recompute == Recompute.FEED_FORWARD),
            saved=c.saved_tensors,
            offloaded=c.offloaded_tensors,
            reads_alone=reads_alone,
        )

    @cached_property
    def spares(self) -> bool:
        """Whether any configuration does not repeat some operators of layers repeated whole."""
        some = self.reads_alone or np.any(self.saved) or np.any(self.offloaded)
        return bool(some and np.any(self.any_full))

    def keeps(self, tensor: str) -> BoolArray:
        """Where layers repeated whole keep a tensor, on the GPU or on its host."""
        return np.asarray(has_tensor(self.saved, tensor) | has_tensor(self.offloaded, tensor))

    @cached_property
    def of_some_feed_forward(self) -> bool:
        """Whether any configuration repeats feed-forward blocks alone."""
        return bool(np.any(self.feed_forward))

    @property
    def any_full(self) -> BoolArray:
        """Where some layers are repeated whole."""
        return np.asarray(self.full > 0)
