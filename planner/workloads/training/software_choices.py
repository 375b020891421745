"""Software settings of a training run: notes on defaults, and faster alternatives."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from planner.base.csv_cells import number_of_row
from planner.base.enums import (
    AttentionKernels,
)
from planner.base.software_enums import AttentionKernel, ExpertCompute, LossKernel, TorchCompile
from planner.base.training_aliases import TrainingObjective
from planner.confidence.profile_rules import (
    first_run_slowdown,
    framework_rule,
    is_first_run,
    usual_first_run_slowdown,
)
from planner.configurations.training_rules import has_kernel
from planner.estimators.kernel_work import rates
from planner.estimators.training.micro_batch_share import TrainingInputs
from planner.optimize.source import Source
from planner.specs.framework import FrameworkProfile
from planner.specs.gpu import GpuSpec
from planner.specs.model import ModelSpec
from planner.workloads.training.space import default_notes, training_inputs
from planner.workloads.workload import (
    HardwareScenario,
)

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


IN_CHUNKS = "in chunks, as Unsloth from 2025.8 on"
WITHOUT_PADDING = "flash attention, as in packed sequences"
UNDER_PADDING = "masked, as PyTorch's in padded ones"
# Of 16-bit logits and their gradient.
_FEW_BYTES = 4.0


# Share of a GPU's memory.
_MUCH = 0.05


def software_default_notes(scene: HardwareScenario) -> dict[str, str]:
    """Notes, by parameter, on framework defaults that change the prediction."""
    specified = {**scene.space.parameters, **scene.question.request.settings}
    gpu, profile = scene.place.machine.gpu, scene.profile
    notes = default_notes(scene)
    best = _faster_kernel(gpu, profile, AttentionKernel.AUTO)
    if _KERNEL not in specified and best is not None:
        default_kernel = _OF_CLASS[profile.execution.attention_kernels]
        notes[_KERNEL] = (
            f"{default_kernel} ({profile.name}'s default; {best.word} is faster on this GPU)"
        )
    if _LOSS not in specified and not profile.tensor_parallel:
        logits = scene.question.model.vocab_size * scene.question.work.sequence_length
        bytes_per_logit = profile.memory.per_logit
        if profile.memory.loss_room:
            notes[_LOSS] = f"{IN_CHUNKS}; fused before"
        elif (
            bytes_per_logit > _FEW_BYTES and bytes_per_logit * logits > _MUCH * gpu.memory_capacity
        ):
            notes[_LOSS] = (
                f"{bytes_per_logit:g} bytes per logit ({profile.name}'s default; linear, as "
                "Liger's or cut "
                "cross-entropy, keeps almost none)"
            )
    if _EXPERTS not in specified and _may_loop(profile, scene.question.model):
        notes[_EXPERTS] = "grouped (Transformers from 5 on; loop before)"
    if _COMPILE not in specified and profile.compilation.default:
        notes[_COMPILE] = (
            f"true (as {profile.name}'s published runs; false is slower, and what PyTorch does "
            "where nothing enables it)"
        )
    label = framework_rule(profile.name).label
    slower, usual = first_run_slowdown(label), usual_first_run_slowdown(label)
    work = scene.question.work
    if work.tuned is None and slower > 1 and is_first_run(None, work.training_objective):
        like = f"as long as one tuned as {profile.name}'s published runs"
        times = f"takes {usual:g} times {like}, at most {slower:g} times"
        if work.training_objective.needs_rollouts:
            times = f"may take {slower:g} times {like}"
        notes["tuned"] = f"no, a first run, which {times} (--tuned: as those)"
    return notes


def alternative_software(source: Source, row: Mapping[str, object]) -> dict[str, dict[str, str]]:
    """Software settings that may make a plan faster or smaller, by description."""
    inputs = training_inputs(source)
    alternatives: dict[str, dict[str, str]] = {}
    is_fused = row["flash_attention"] and row[_KERNEL] != AttentionKernel.EAGER.word
    kernel = AttentionKernel[str(row[_KERNEL]).upper()]
    best = _faster_kernel(inputs.machine.gpu, inputs.framework, kernel) if is_fused else None
    if best is not None:
        choice = kernel.word if kernel else _OF_CLASS[inputs.framework.execution.attention_kernels]
        alternatives[f"{_KERNEL} {best.word} instead of {choice}"] = {_KERNEL: best.word}
    bytes_per_logit, split = (
        inputs.framework.memory.per_logit,
        number_of_row(row, "tensor_parallel"),
    )
    length = inputs.workload.sequence_length / number_of_row(row, "context_parallel")
    tokens = number_of_row(row, "micro_batch_size") * length
    logit_bytes = bytes_per_logit * tokens * inputs.model.vocab_size / split
    if row[_LOSS] == LossKernel.EAGER.word or (
        row[_LOSS] == LossKernel.AUTO.word
        and bytes_per_logit > _FEW_BYTES
        and logit_bytes > _MUCH * inputs.machine.gpu.memory_capacity
    ):
        choice = LossKernel.LINEAR.word
        alternatives[f"{_LOSS} {choice} (Liger, cut cross-entropy)"] = {_LOSS: choice}
    if inputs.framework.compilation.selectable:
        compile_mode = str(row[_COMPILE])
        if compile_mode == TorchCompile.AUTO.word:
            compiles = inputs.framework.compilation.default
            compile_mode = (TorchCompile.TRUE if compiles else TorchCompile.FALSE).word
        other = TorchCompile.FALSE if compile_mode == TorchCompile.TRUE.word else TorchCompile.TRUE
        alternatives[f"{_COMPILE} {other.word}"] = {_COMPILE: other.word}
    if _may_loop(inputs.framework, inputs.model):
        loops = row[_EXPERTS] == ExpertCompute.LOOP.word
        choice = ExpertCompute.GROUPED.word if loops else ExpertCompute.LOOP.word
        since = "from 5 on" if loops else "before 5"
        alternatives[f"{_EXPERTS} {choice} (Transformers {since})"] = {_EXPERTS: choice}
    return alternatives


def may_pad(inputs: TrainingInputs) -> bool:
    """Whether a run fine-tunes by software on Transformers that may attend under a mask."""
    work, rule = inputs.workload, framework_rule(inputs.framework.name)
    fine_tunes = work.is_frozen or work.training_objective is not TrainingObjective.PRETRAIN
    on_transformers = rule.copies_logits_until is not None  # its loss is theirs
    return fine_tunes and on_transformers and not inputs.framework.memory.loss_room


def _may_loop(profile: FrameworkProfile, model: ModelSpec) -> bool:
    """True if some version of the framework computes the model's experts one by one."""
    return profile.execution.expert_loop_time > 0 and model.num_experts > 0


def _faster_kernel(
    gpu: GpuSpec, profile: FrameworkProfile, current: AttentionKernel
) -> AttentionKernel | None:
    """The fastest attention kernel of the GPU; None if it is at most 5 % faster."""
    codes = np.array([current, *(kernel for kernel in _TRIED if has_kernel(gpu, kernel))])
    forward, backward = rates(gpu.efficiency, codes, profile.execution.attention_kernels)
    rates_of_step = 2 / (1 / forward + 1 / backward)
    best = int(np.argmax(rates_of_step))
    return (
        AttentionKernel(codes[best]) if rates_of_step[best] > _FASTER * rates_of_step[0] else None
    )
