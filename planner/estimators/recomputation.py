"""What of its forward pass a configuration computes again in the backward pass."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from planner.arrays import BoolArray, FloatArray
from planner.configurations.training import TrainingConfigurations
from planner.enums import Recompute


@dataclass(frozen=True, kw_only=True)
class Recomputation:
    """``full``: share of the layers that are repeated whole, the same on every stage.

    ``selective``: every layer repeats some of its operators; ``feed_forward``: its feed-forward.
    """

    full: FloatArray
    selective: BoolArray
    feed_forward: BoolArray

    @classmethod
    def of(cls, c: TrainingConfigurations, num_hidden_layers: int) -> Recomputation:
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
        )

    @cached_property
    def of_some_feed_forward(self) -> bool:
        """Whether any configuration repeats feed-forward blocks alone."""
        return bool(np.any(self.feed_forward))

    @property
    def any_full(self) -> BoolArray:
        """Where some layers are repeated whole."""
        return np.asarray(self.full > 0)
