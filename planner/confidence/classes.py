"""The classes that errors of published runs are pooled by."""

from __future__ import annotations

from collections.abc import Iterator

from planner.base.enums import (
    LinkKind,
    Precision,
)
from planner.specs.engine import EngineProfile
from planner.specs.gpu import GpuSpec
from planner.specs.model import LayerGroup, ModelSpec

_LARGEST_CLUSTER = 512
_UNMEASURED = "unmeasured"


def gpu_class(gpu: GpuSpec) -> str:
    """Cards on PCIe, NVIDIA's generations of fast fabric, another vendor, or one unmeasured."""
    if gpu.unmeasured:
        return _UNMEASURED
    if gpu.vendor.lower() != "nvidia":
        return gpu.vendor.lower()
    if gpu.scale_up.kind is LinkKind.PCIE or gpu.scale_up.domain_size <= 2:
        return "card"
    for precision, name in (
        (Precision.FP4, "blackwell"),
        (Precision.FP8, "hopper"),
        (Precision.BF16, "ampere"),
    ):
        if precision in gpu.peak_flops:
            return name
    return "volta"


def scale(num_gpus: int, gpus_per_node: int) -> str:
    """One GPU, one node, a cluster of up to 512 GPUs, or a larger one."""
    if num_gpus <= gpus_per_node:
        return "gpu" if num_gpus == 1 else "node"
    return "cluster" if num_gpus <= _LARGEST_CLUSTER else "large"


def training_task(*, tunes: bool) -> str:
    """What is trained: weights from scratch, or (``tunes``) those that are there already."""
    return "finetune" if tunes else "pretrain"


def has_experts(model: ModelSpec) -> bool:
    """Whether any layer is a mixture of experts."""
    return model.num_experts > 0


def architecture_of(model: ModelSpec) -> frozenset[str]:
    """The kinds of layers that a model has, whatever their number and sizes.

    Attention is standard, latent, sparse (latent with an indexer) or keeps a state, and may have
    windows and sinks; experts are whole, or latent where tokens are projected to them.

    >>> from planner.specs.catalogue import Catalogue
    >>> sorted(architecture_of(Catalogue().load_model("gpt-oss-120b")))
    ['experts', 'sinks', 'standard', 'window']
    """
    return frozenset(kind for group in model.layer_groups for kind in _kinds(group))


def _kinds(group: LayerGroup) -> Iterator[str]:
    feed_forward = group.feed_forward
    for attention in group.mixers:
        yield "sparse" if attention.index_topk else str(attention.kind)
        if attention.sliding_window:
            yield "window"
        if attention.sinks:
            yield "sinks"
    if feed_forward is not None and feed_forward.num_experts:
        yield "latent_experts" if feed_forward.moe_latent_size else "experts"


def batching(engine: EngineProfile) -> str:
    """How requests meet on an engine: ``continuous`` where they wait for room, else ``static``."""
    return "continuous" if engine.scheduler.continuous else "static"
