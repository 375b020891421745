"""Activation recomputation of each configuration."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property

import numpy as np

from planner.base.arrays import BoolArray, CodeArray, FloatArray, Numeric
from planner.base.enums import Recompute
from planner.base.records import record
from planner.base.software_enums import KeptTensors, RecomputedModules
from planner.configurations.configuration_tables import TrainingConfigurations
from planner.estimators.operators import Operator

_CORE, _FEED_FORWARD, _CHEAP = (
    int(RecomputedModules[RecomputedModules.canonical_word(word).upper()])
    for word in ("core_attn", "feed_forward", "layernorm+mla_up_proj+moe_act")
)


@record(kw_only=True)
class Recomputation:
    """``full``: share of the layers that are repeated whole, the same on every stage.

    ``modules``: those that every layer repeats (``RecomputedModules``). ``by_share``: the
    framework's selective recomputation repeats a share of everything else. ``saved`` and
    ``offloaded``: the tensors that layers repeated whole keep (``KeptTensors``).
    ``reads_without_overlap``: they repeat only what the backward pass reads.
    """

    full: FloatArray
    modules: CodeArray
    by_share: BoolArray
    saved: CodeArray
    offloaded: CodeArray
    reads_without_overlap: bool = False

    @classmethod
    def of(
        cls,
        c: TrainingConfigurations,
        num_hidden_layers: int,
        *,
        reads_without_overlap: bool = False,
        repeats_outputs: bool = False,
    ) -> Recomputation:
        """Return what full or selective recomputation repeats, for each configuration.

        ``repeats_outputs``: if no modules are specified, selective recomputation repeats norms,
        activation functions of experts and projections of latents, in addition to attention cores
        that no fused kernel recomputes.
        """
        full = np.where(c.recompute == Recompute.FULL, 1.0, 0.0)
        layers = c.recompute_num_layers
        if layers.any():
            stage = num_hidden_layers / c.pipeline_parallel
            full = full * np.where(layers > 0, np.minimum(layers / stage, 1.0), 1.0)
        default_modules: CodeArray | int = _CORE
        if repeats_outputs:
            default_modules = np.where(c.fused_attention, _CORE | _CHEAP, _CORE)
        named = c.recompute_modules != 0
        selective = np.asarray(c.recompute == Recompute.SELECTIVE)
        of_selective = np.where(selective, np.where(named, c.recompute_modules, default_modules), 0)
        blocks = c.recompute == Recompute.FEED_FORWARD
        return cls(
            full=full,
            modules=np.where(blocks, _FEED_FORWARD, of_selective),
            by_share=selective & ~named,
            saved=c.saved_tensors,
            offloaded=c.offloaded_tensors,
            reads_without_overlap=reads_without_overlap,
        )

    @cached_property
    def spares(self) -> bool:
        """Whether a configuration skips some operators in fully recomputed layers."""
        some = self.reads_without_overlap or np.any(self.saved) or np.any(self.offloaded)
        return bool(some and self.any_full.any())

    def keeps(self, tensor: str) -> BoolArray:
        """Return a mask: True if fully recomputed layers save a tensor, on GPU or host."""
        return np.asarray(
            KeptTensors.has(self.saved, tensor) | KeptTensors.has(self.offloaded, tensor)
        )

    @cached_property
    def some(self) -> frozenset[str]:
        """Return the modules that selective recomputation repeats in any configuration."""
        code: CodeArray = np.bitwise_or.reduce(self.modules, axis=None)
        return frozenset(
            name for name in RecomputedModules.names() if RecomputedModules.has(code, name)
        )

    def repeats(self, modules: Iterable[str]) -> BoolArray:
        """Return a mask: True if selective recomputation repeats one of these modules."""
        is_repeated = np.zeros((), dtype=np.bool_)
        for name in modules:
            if name in self.some:
                is_repeated = is_repeated | RecomputedModules.has(self.modules, name)
        return np.asarray(is_repeated)

    def share_of(self, modules: Iterable[str], parts: Mapping[str, Numeric]) -> Numeric:
        """Return the share of an operator repeated: all if in ``modules``, else from ``parts``."""
        shares: Numeric = 0.0
        for name, part in parts.items():
            if name in self.some:
                shares = np.maximum(shares, part * RecomputedModules.has(self.modules, name))
        if not self.some.isdisjoint(modules):
            shares = np.where(self.repeats(modules), 1.0, shares)
        return shares

    @cached_property
    def is_any(self) -> bool:
        """Whether any configuration computes anything again."""
        return bool(self.some or self.full.any() or self.by_share.any())

    @cached_property
    def any_full(self) -> BoolArray:
        """Mask of configurations with fully recomputed layers."""
        return np.asarray(self.full > 0)

    def repeated_time(self, operator: Operator) -> FloatArray:
        """Return seconds of an operator that recomputation repeats, averaged over layers."""
        if not (operator.repeatable and self.is_any):
            return np.zeros(())
        share = self.share_of(operator.repeated_by, operator.parts)
        some = operator.selective
        if some if isinstance(some, float) else some.any():
            share = np.where(self.by_share, np.maximum(some, share), share)
        repeated = self.full * (1 - operator.spared) * operator.forward
        return np.where(self.any_full, repeated, share * operator.forward)
