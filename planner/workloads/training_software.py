"""How a framework computes where nobody says it: what is told of it, and what else it could do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from planner.base.enums import AttentionKernels
from planner.base.software_enums import AttentionKernel, ExpertCompute, LossKernel, TorchCompile
from planner.confidence.first_runs import is_first_run, slower_at_first
from planner.confidence.frameworks import framework_rule
from planner.configurations.software_rules import has_kernel
from planner.estimators.attention_rates import rates
from planner.estimators.share import Setting
from planner.optimize.source import Source
from planner.specs.framework import FrameworkProfile
from planner.specs.gpu import GpuSpec
from planner.specs.model import ModelSpec
from planner.workloads.base import Scene

_KERNEL = "attention_kernel"
_LOSS = "loss_kernel"
_EXPERTS = "expert_compute"
_COMPILE = "torch_compile"
# In this order where several are as fast.
_TRIED = (AttentionKernel.FA2, AttentionKernel.FA3, AttentionKernel.FA4, AttentionKernel.CUDNN)
_OF_CLASS = {
    AttentionKernels.NATIVE: "as fast as the GPU's own",
    AttentionKernels.FLASH_ATTENTION_2: AttentionKernel.FA2.word,
    AttentionKernels.PORTABLE: AttentionKernel.TRITON.word,
}
_FASTER = 1.05
# Of 16-bit logits and their gradient.
_FEW_BYTES = 4.0
# Share of a GPU's memory.
_MUCH = 0.05


def usual_software(scene: Scene) -> dict[str, str]:
    """What a framework does by default where it could do something that changes the answer."""
    said = {**scene.space.parameters, **scene.question.request.settings}
    gpu, profile = scene.place.machine.gpu, scene.profile
    told = {}
    best = _faster_kernel(gpu, profile, AttentionKernel.AUTO)
    if _KERNEL not in said and best is not None:
        own = _OF_CLASS[profile.execution.attention_kernels]
        told[_KERNEL] = f"{own} ({profile.name}'s default; {best.word} is faster on this GPU)"
    if _LOSS not in said and not profile.tensor_parallel:
        logits = scene.question.model.vocab_size * scene.question.work.sequence_length
        each = profile.memory.per_logit
        if each > _FEW_BYTES and each * logits > _MUCH * gpu.memory_capacity:
            told[_LOSS] = (
                f"{each:g} bytes per logit ({profile.name}'s default; linear, as Liger's or cut "
                "cross-entropy, keeps almost none)"
            )
    if _EXPERTS not in said and _may_loop(profile, scene.question.model):
        told[_EXPERTS] = "grouped (Transformers from 5 on; loop before)"
    if _COMPILE not in said and profile.compilation.default:
        told[_COMPILE] = (
            f"true (as {profile.name}'s published runs; false is slower, and what PyTorch does "
            "where nothing enables it)"
        )
    slower = slower_at_first(framework_rule(profile.name).label)
    work = scene.question.work
    if work.tuned is None and slower > 1 and is_first_run(None, work.training_objective):
        told["tuned"] = (
            f"no, a first run, which may take {slower:g} times as long as one that was tuned as "
            f"{profile.name}'s published runs were: intervals hold both (--tuned: as those)"
        )
    return told


def other_software(source: Source, row: Mapping[str, Any]) -> dict[str, Mapping[str, str]]:
    """Settings that would make a plan faster or smaller, by what they change."""
    setting: Setting = source.setting
    found: dict[str, Mapping[str, str]] = {}
    is_fused = row["flash_attention"] and row[_KERNEL] != AttentionKernel.EAGER.word
    own = AttentionKernel[row[_KERNEL].upper()]
    best = _faster_kernel(setting.machine.gpu, setting.framework, own) if is_fused else None
    if best is not None:
        word = own.word if own else _OF_CLASS[setting.framework.execution.attention_kernels]
        found[f"{_KERNEL} {best.word} instead of {word}"] = {_KERNEL: best.word}
    each, split = setting.framework.memory.per_logit, row["tensor_parallel"]
    tokens = row["micro_batch_size"] * setting.workload.sequence_length / row["context_parallel"]
    kept = each * tokens * setting.model.vocab_size / split
    if row[_LOSS] == LossKernel.EAGER.word or (
        row[_LOSS] == LossKernel.AUTO.word
        and each > _FEW_BYTES
        and kept > _MUCH * setting.machine.gpu.memory_capacity
    ):
        word = LossKernel.LINEAR.word
        found[f"{_LOSS} {word} (Liger, cut cross-entropy)"] = {_LOSS: word}
    if setting.framework.compilation.selectable:
        found |= _compiled_or_not(setting.framework, row[_COMPILE])
    if _may_loop(setting.framework, setting.model):
        loops = row[_EXPERTS] == ExpertCompute.LOOP.word
        word = ExpertCompute.GROUPED.word if loops else ExpertCompute.LOOP.word
        since = "from 5 on" if loops else "before 5"
        found[f"{_EXPERTS} {word} (Transformers {since})"] = {_EXPERTS: word}
    return found


def _compiled_or_not(profile: FrameworkProfile, word: str) -> dict[str, Mapping[str, str]]:
    """The other way than a plan has it."""
    own = TorchCompile.TRUE if profile.compilation.default else TorchCompile.FALSE
    now = own.word if word == TorchCompile.AUTO.word else word
    other = TorchCompile.FALSE if now == TorchCompile.TRUE.word else TorchCompile.TRUE
    return {f"{_COMPILE} {other.word}": {_COMPILE: other.word}}


def _may_loop(profile: FrameworkProfile, model: ModelSpec) -> bool:
    """Whether versions of a framework loop over the experts of a model."""
    return profile.execution.expert_loop_time > 0 and model.num_experts > 0


def _faster_kernel(
    gpu: GpuSpec, profile: FrameworkProfile, own: AttentionKernel
) -> AttentionKernel | None:
    """The fastest kernel of the GPU; None where it is not worth naming."""
    codes = np.array([own, *(kernel for kernel in _TRIED if has_kernel(gpu, kernel))])
    forward, backward = rates(gpu.efficiency, codes, profile.execution.attention_kernels)
    both = 2 / (1 / forward + 1 / backward)
    best = int(np.argmax(both))
    return AttentionKernel(codes[best]) if both[best] > _FASTER * both[0] else None
