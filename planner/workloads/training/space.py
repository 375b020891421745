"""The search space of a training run: software, framework defaults, all configurations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import lru_cache
from itertools import compress
from typing import Any

import numpy as np

from planner.base.arrays import Values
from planner.base.csv_cells import Row, Value, number_of_row
from planner.base.enums import (
    AdapterKind,
    AdapterTargets,
    AttentionKernels,
    ComputePrecision,
    Precision,
)
from planner.base.software_enums import AttentionKernel, ExpertCompute, LossKernel, TorchCompile
from planner.base.training_aliases import TrainingObjective
from planner.confidence.medians import training_slowdown
from planner.confidence.profile_rules import (
    first_run_slowdown,
    framework_rule,
    is_first_run,
    usual_first_run_slowdown,
)
from planner.configurations.configuration_tables import NAMES, TrainingConfigurations
from planner.configurations.enumerate import (
    FOLLOWING,
    OpenMesh,
    SpecifiedValues,
    as_values,
    coded_values,
    refuse_unknown,
    training_mesh,
)
from planner.configurations.training_rules import has_kernel, unsupported
from planner.errors import SearchSpaceError
from planner.estimators.kernel_work import rates
from planner.estimators.training.loss_kernels import SHIFTED_BYTES
from planner.estimators.training.micro_batch_share import TrainingInputs
from planner.optimize.source import Source
from planner.question.request import PlanRequest, Request, Settings
from planner.question.terms import terms_of
from planner.specs.framework import FrameworkProfile
from planner.specs.gpu import GpuSpec
from planner.specs.model import ModelSpec
from planner.specs.search_space import SearchSpace
from planner.specs.training_workload import AdapterSetup, TrainingWorkload
from planner.workloads.prediction_confidence import has_set_efficiency
from planner.workloads.priced_hardware import share_of_peak
from planner.workloads.training.question import (
    has_precision,
    published_precision,
    with_framework_adapters,
)
from planner.workloads.training.results import TrainingSource
from planner.workloads.workload import HardwareScenario

# What every framework can do.
_PLAINEST = {
    name: int(term.least or 0)
    for name, term in terms_of("train", "parameter").items()
    if not term.default
}


def training_sources(scene: HardwareScenario) -> list[Source]:
    """The one source of a training search; refuses adapters that the framework cannot train."""
    question, place = scene.question, scene.place
    if question.work.is_frozen and not scene.profile.adapters:
        raise SearchSpaceError(
            f"{scene.profile.name} trains no adapters: leave out --framework or --adapter."
        )
    if question.work.adapter is AdapterKind.QLORA and not scene.profile.quantized_adapters:
        raise SearchSpaceError(
            f"{scene.profile.name} trains no adapters of weights in 4 bits: leave out --framework, "
            "or train lora."
        )
    if question.work.has_virtual_tokens and not scene.profile.virtual_tokens:
        raise SearchSpaceError(
            f"{scene.profile.name} trains no virtual tokens: leave out --framework, or train lora."
        )
    work = with_framework_adapters(question.work, question.request, question.model, scene.profile)
    settings = question.request.settings
    precision = published_precision(question.request, question.model, work.training_objective)
    if precision is not None and has_precision(place.machine.gpu, precision):
        settings = {**settings, "precision": [precision]}
    settings = {**settings, **framework_defaults(scene, work)}
    mesh = mesh_of(
        scene.space,
        settings,
        num_gpus=question.counts,
        model=question.model,
        framework=scene.profile,
        workload=work,
    )
    gpu = place.machine.gpu
    return [
        TrainingSource(
            inputs=TrainingInputs(
                machine=place.machine,
                model=question.model,
                framework=scene.profile.with_graphs_of(
                    scales_groups=gpu.scales_groups, has_state=question.model.has_state
                ),
                workload=work,
                specified=SpecifiedValues.of(settings),
                slowdown=_slowdown(scene, work),
            ),
            mesh=mesh,
            counts=question.counts,
            site=place.site,
            fit_confidence=question.request.confidence,
            flops_efficiency=_flops_efficiency(question.request, gpu, mesh.values("precision")),
        )
    ]


def _slowdown(scene: HardwareScenario, work: TrainingWorkload) -> float:
    """Step time over that of a tuned run; 1 where the request sets an efficiency."""
    request, machine = scene.question.request, scene.place.machine
    if request.flops_efficiency is not None or has_set_efficiency(machine):
        return 1.0
    label = framework_rule(scene.profile.name).label
    return training_slowdown(label, work.training_objective, work.tuned, tunes=work.is_frozen)


def framework_defaults(scene: HardwareScenario, work: AdapterSetup) -> dict[str, Value]:
    """The framework's default parameter values that neither the space nor the user sets.

    Empty for plans and launch files, which set everything. The defaults apply only all together:
    empty if one of them is set to another value.
    """
    request = scene.question.request
    if isinstance(request, PlanRequest):
        return {}
    specified = {**scene.space.parameters, **request.settings}
    values = default_values(scene.profile, work)
    tensor, context = (
        coded_values(name, as_values(request.settings.get(name, 1), {}))
        for name in ("tensor_parallel", "context_parallel")
    )
    if min(tensor) == 1:
        values.pop("sequence_parallel", None)
    if max(context) > 1:  # as the rule of split sequences asks for
        values.pop("flash_attention", None)
    is_other = any(
        coded_values(name, as_values(specified[name], {})) != coded_values(name, [value])
        for name, value in values.items()
        if name in specified
    )
    return {} if is_other else {n: value for n, value in values.items() if n not in specified}


def default_notes(scene: HardwareScenario) -> dict[str, str]:
    """Notes, by parameter, on the default values of the framework."""
    values = framework_defaults(scene, scene.question.work)
    name, request = scene.profile.name, scene.question.request
    notes = {term: f"{str(value).lower()} ({name}'s default)" for term, value in values.items()}
    specified = {**scene.space.parameters, **request.settings}
    is_open = "zero_stage" not in specified and not isinstance(request, PlanRequest)
    stage = scene.profile.default_zero_stage
    if is_open and stage and max(scene.question.counts) > 1:
        notes["zero_stage"] = f"{stage} (planner assumes it for {name}; 0 shards nothing)"
    return notes


def default_values(profile: FrameworkProfile, work: AdapterSetup) -> dict[str, Value]:
    """Default parameter values of the framework that differ from planner's, by name."""
    return {**profile.defaults.values(work.adapter)}


def source_defaults(source: Any) -> dict[str, Value]:
    """The `default_values` of the framework and the run of a source."""
    return default_values(source.inputs.framework, source.inputs.workload)


def mesh_of(
    space: SearchSpace,
    settings: Settings,
    *,
    num_gpus: Iterable[int],
    model: ModelSpec,
    framework: FrameworkProfile,
    workload: TrainingWorkload,
) -> OpenMesh[TrainingConfigurations]:
    """All combinations of the search space's values, narrowed by the user's ``settings``.

    ``settings`` maps a parameter to a value or several, which replace those of the space. If
    neither sets a ZeRO stage, a single data-parallel rank shards nothing. Settings of derived
    parameters are allowed if they agree with the others.

    Raises SearchSpaceError if a parameter or a value is unknown, or there is no value left.
    """
    specified = SpecifiedValues.of(settings)
    settings = {name: value for name, value in settings.items() if name not in FOLLOWING}
    refuse_unknown(space, settings, NAMES, derived=FOLLOWING)
    counts = sorted(set(num_gpus))
    parameter_values: dict[str, object] = {**space.parameters, **settings}
    choices: dict[str, object] = {
        "global_batch_size": workload.global_batch_size,
        "zero_stage": framework.default_zero_stage,
        **parameter_values,
    }
    bases = {
        "num_hidden_layers": model.num_hidden_layers,
        "num_experts": max(model.num_experts, 1),
        "global_batch_size": workload.global_batch_size,
        "sequence_length": workload.sequence_length,
    }
    table = {name: [code] for name, code in TrainingConfigurations.default_codes().items()}
    for name, choice in choices.items():
        values = (value for n in counts for value in as_values(choice, {**bases, "num_gpus": n}))
        table[name] = coded_values(name, values)
    of_space = space.parameters.keys() - settings.keys()
    table |= _supported_choices({name: table[name] for name in of_space}, framework)
    is_open = "zero_stage" not in settings and not _is_made_for(space, framework)
    if is_open and framework.default_zero_stage not in table["zero_stage"]:
        table["zero_stage"] = [*framework.zero_stages]
    if "cp_comm_type" not in parameter_values and max(table["context_parallel"]) > 1:
        table["cp_comm_type"] = coded_values("cp_comm_type", [framework.cp_comm_type])
    table["num_gpus"] = coded_values("num_gpus", counts)
    has_no_replicas = min(table["tensor_parallel"]) * min(table["pipeline_parallel"]) >= counts[-1]
    if has_no_replicas and "zero_stage" not in parameter_values and 0 in framework.zero_stages:
        table["zero_stage"] = coded_values("zero_stage", [0])
    specified.check(table)
    return training_mesh(table)


def _supported_choices(
    space: Mapping[str, list[float]], framework: FrameworkProfile
) -> dict[str, list[float]]:
    """The values of each parameter that the framework supports; all if none is supported."""
    several = tuple((name, tuple(values)) for name, values in space.items() if len(values) > 1)
    supported = _supported_values(several, framework)
    return {**space, **{name: list(values) for name, values in supported.items()}}


@lru_cache(maxsize=256)
def _supported_values(
    choices: tuple[tuple[str, tuple[float, ...]], ...], framework: FrameworkProfile
) -> Mapping[str, tuple[float, ...]]:
    """The supported values of parameters with several values, cached."""
    several = dict(choices)
    end_rows = dict(zip(several, np.cumsum([*map(len, several.values())]).tolist(), strict=True))
    rows = {name: slice(end - len(several[name]), end) for name, end in end_rows.items()}
    plainest = {**TrainingConfigurations.default_codes(), **_PLAINEST}
    # Each value in a row of its own, everything else plain.
    columns = {name: np.full(max(end_rows.values()), plainest[name], float) for name in several}
    for name, values in several.items():
        columns[name][rows[name]] = values
    configurations = TrainingConfigurations.of(**{**_PLAINEST, **columns})
    lacking = unsupported(configurations, framework)
    supported = {}
    for name in several.keys() & lacking.keys():
        no = np.broadcast_to(lacking[name], configurations.shape)[rows[name]]
        supported[name] = (*compress(several[name], ~no),) or several[name]
    return supported


def _is_made_for(space: SearchSpace, framework: FrameworkProfile) -> bool:
    """True if the search space names this framework."""
    return space.framework in (framework.name.lower().replace(" ", "-"), *framework.aliases)


def _flops_efficiency(
    request: Request, gpu: GpuSpec, precisions: Values
) -> float | tuple[float, ...] | None:
    """The FLOPS efficiency that the user sets, or one per precision for a rate [flop/s].

    None: the user sets none.
    """
    efficiency, name = request.flops_efficiency, "flops_efficiency"
    if not isinstance(efficiency, str):
        return share_of_peak(efficiency, "flop/s", float("nan"), name)
    shares = [float("nan")] * len(ComputePrecision)
    for code in precisions.tolist():
        precision = ComputePrecision(code).word
        peak = gpu.peak_flops.get(Precision(precision))
        if peak is not None:
            shares[code] = (
                share_of_peak(efficiency, "flop/s", peak, f"{name} in {precision}") or 0.0
            )
    return tuple(shares)


def training_inputs(source: Source) -> TrainingInputs:
    """The inputs of a source, checked to be of training.

    Raises TypeError if the source does not train.
    """
    if not isinstance(source, TrainingSource):
        raise TypeError(f"{source} does not train.")
    return source.inputs


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
IN_ONE_TENSOR = "grouped with 16-bit experts, as Transformers from 5 on"
WIDE_EXPERTS = (
    "From Transformers 5 on bitsandbytes leaves experts in 16 bits; before, or where each expert "
    "is a module: --set expert_compute=loop"
)
WITHOUT_PADDING = "flash attention, as in packed sequences"
LABELS_SHIFTED = "labels shifted, as Transformers from 2025 on"
LOGITS_SHIFTED = "logits shifted and copied, before"
UNDER_PADDING = "masked, as PyTorch's in padded ones"
# Of 16-bit logits and their gradient.
_FEW_BYTES = 4.0


# Share of a GPU's memory.
_MUCH = 0.05


def software_default_notes(scene: HardwareScenario) -> dict[str, str]:
    """Notes, by parameter, on framework defaults that change the prediction."""
    specified = {**scene.space.parameters, **scene.question.request.settings}
    gpu, profile, work = scene.place.machine.gpu, scene.profile, scene.question.work
    notes = default_notes(scene)
    best = _faster_kernel(gpu, profile, AttentionKernel.AUTO)
    if _KERNEL not in specified and best is not None:
        default_kernel = _OF_CLASS[profile.execution.attention_kernels]
        notes[_KERNEL] = (
            f"{default_kernel} ({profile.name}'s default; {best.word} is faster on this GPU)"
        )
    if _LOSS not in specified and not profile.tensor_parallel:
        logits = scene.question.model.vocab_size * work.sequence_length
        bytes_per_logit = profile.memory.per_logit
        if profile.memory.loss_room:
            notes[_LOSS] = f"{IN_CHUNKS}; fused before"
        elif (
            bytes_per_logit > _FEW_BYTES and bytes_per_logit * logits > _MUCH * gpu.memory_capacity
        ):
            notes[_LOSS] = (
                f"{bytes_per_logit:g} bytes per logit ({profile.name}'s default; linear, as "
                "Liger's or cut cross-entropy, keeps almost none)"
            )
    is_other = profile.lora_targets is not AdapterTargets.ATTENTION
    if is_other and work.adapter.is_low_rank and scene.question.request.lora_targets is None:
        notes["lora_targets"] = f"{profile.lora_targets} ({profile.name}'s default)"
    if _EXPERTS not in specified and _may_loop(profile, scene.question.model):
        notes[_EXPERTS] = "grouped (Transformers from 5 on; loop before)"
    if _COMPILE not in specified and profile.compilation.default:
        notes[_COMPILE] = (
            f"true (as {profile.name}'s published runs; false is slower, and what PyTorch does "
            "where nothing enables it)"
        )
    label = framework_rule(profile.name).label
    slower, usual = first_run_slowdown(label), usual_first_run_slowdown(label)
    if work.tuned is None and slower > 1 and is_first_run(None, work.training_objective):
        like = f"as long as one tuned as {profile.name}'s published runs"
        times = f"takes {usual:g} times {like}, at most {slower:g} times"
        if work.training_objective.needs_rollouts:
            times = f"may take {slower:g} times {like}"
        notes["tuned"] = f"no, a first run, which {times} (--tuned: as those)"
    return notes


def alternative_software(source: Source, row: Row) -> dict[str, dict[str, str]]:
    """Software settings that may make a plan faster or smaller, by description."""
    inputs = training_inputs(source)
    alternatives: dict[str, dict[str, str]] = {}
    is_fused = row["flash_attention"] and row[_KERNEL] != AttentionKernel.EAGER.word
    kernel = AttentionKernel[str(row[_KERNEL]).upper()]
    best = _faster_kernel(inputs.machine.gpu, inputs.framework, kernel) if is_fused else None
    if best is not None:
        choice = kernel.word if kernel else _OF_CLASS[inputs.framework.execution.attention_kernels]
        alternatives[f"{_KERNEL} {best.word} instead of {choice}"] = {_KERNEL: best.word}
    bytes_per_logit = inputs.framework.memory.per_logit
    split = number_of_row(row, "tensor_parallel")
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


def copies_of_logits_vary(inputs: TrainingInputs) -> bool:
    """Whether the loss is that of Transformers, whose older releases copy the logits."""
    memory, rule = inputs.framework.memory, framework_rule(inputs.framework.name)
    return rule.copies_logits_until is not None and memory.per_logit > memory.per_logit_fused


def with_shifted_logits(inputs: TrainingInputs) -> TrainingInputs:
    """Return the inputs with the loss of older releases of Transformers."""
    memory = inputs.framework.memory
    memory = replace(memory, per_logit=memory.per_logit + SHIFTED_BYTES)
    return replace(inputs, framework=replace(inputs.framework, memory=memory))


def has_wide_experts(inputs: TrainingInputs) -> bool:
    """Whether 4-bit adapters leave the experts in 16 bits."""
    is_quantized = inputs.workload.adapter is AdapterKind.QLORA
    return is_quantized and inputs.model.num_experts > 0 and not inputs.framework.quantized_experts


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
