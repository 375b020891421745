"""Training as a workload."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import compress
from typing import Any

import numpy as np

from planner.base.arrays import Values, first
from planner.base.csv_cells import Value, number_of_row
from planner.base.enums import (
    AdapterKind,
    AdapterTargets,
    AttentionKernels,
    ComputePrecision,
    Precision,
)
from planner.base.formatting import format_large
from planner.base.software_enums import AttentionKernel, ExpertCompute, LossKernel, TorchCompile
from planner.confidence.profile_rules import first_run_slowdown, framework_rule, is_first_run
from planner.configurations.configuration_tables import (
    DEGREES,
    NAMES,
    SHOWN_COLUMNS,
    TrainingConfigurations,
    format_layout,
    format_value,
)
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
from planner.estimators.ideal_hardware import ideal_framework
from planner.estimators.kernel_work import rates
from planner.estimators.training.flat_step import TENSOR_PARALLEL
from planner.estimators.training.flops import adapter_parameter_count
from planner.estimators.training.micro_batch_share import TrainingInputs
from planner.estimators.training.step_time import StepTime
from planner.estimators.training.training_estimate import Estimate
from planner.optimize.source import Candidates, Source
from planner.question.request import PlanRequest, Request
from planner.question.terms import terms_about, terms_of
from planner.specs.framework import FrameworkProfile
from planner.specs.gpu import GpuSpec
from planner.specs.model import ModelSpec
from planner.specs.search_space import SearchSpace
from planner.specs.training_workload import AdapterSetup, TrainingWorkload
from planner.workloads.assumptions import (
    Assumption,
    EvaluatedChoice,
    open_network,
    open_parameters,
)
from planner.workloads.image_inputs import format_trained_images, image_answers
from planner.workloads.priced_hardware import share_of_peak
from planner.workloads.training.question import (
    SINGLE,
    adapter_answers,
    format_adapter,
    format_expert_adapters,
    format_objective,
    has_precision,
    make_training_question,
    objective_answers,
    published_precision,
    sample_answers,
    with_expert_adapters,
)
from planner.workloads.training.results import TrainingRuns, TrainingSource
from planner.workloads.workload import (
    ALL_MODULES,
    HardwareScenario,
    ResultWording,
    TimedPart,
    TimedStep,
    Workload,
    evaluate_single,
    merge_parts,
)


def training_steps(runs: Candidates) -> Mapping[str, TimedStep]:
    """The timed training step under the name ``step``; empty for other candidates."""
    if not isinstance(runs, TrainingRuns):
        return {}
    if runs.estimate.is_flat:
        parts = merge_parts(_flat_parts(runs.estimate))
        return {"step": TimedStep(seconds=first(runs.step_time), parts=parts)}
    return {"step": timed_training(runs.estimate.time)}


def _flat_parts(estimate: Estimate) -> Iterator[TimedPart]:
    """Yield the seconds of each module of a step if the user sets a FLOPS efficiency."""
    works = [
        work
        for operator, _ in estimate.time.operator_times()
        if operator.part == TENSOR_PARALLEL
        for work in operator.works
    ]
    for name, seconds in estimate.flat_modules.items():
        terms = {term: first(value) for term, value in seconds.items()}
        is_sent = name == TENSOR_PARALLEL
        part = TENSOR_PARALLEL if is_sent else "flops_efficiency"
        yield TimedPart.of(name, name, terms, works if is_sent else (), part=part)


def timed_training(time: StepTime, kind: str = "step") -> TimedStep:
    """An optimizer step part by part, as a step of a ``kind``."""
    parts = merge_parts((*_operators(time), *_remaining_parts(time, kind)))
    return TimedStep(seconds=first(time.total), parts=parts)


def _operators(time: StepTime) -> Iterator[TimedPart]:
    """Yield the seconds of each operator of a training step, by time term."""
    for operator, seconds in time.operator_times():
        terms = {name: first(value) for name, value in seconds.items()}
        if operator.part != "compute":
            terms = {operator.part: sum(terms.values())}
        yield TimedPart.of(
            operator.name, operator.module, terms, operator.works, part=operator.part
        )


def _remaining_parts(time: StepTime, kind: str) -> Iterator[TimedPart]:
    """Yield the seconds of each part of the step that belongs to no operator.

    Forward passes of a reference model run the kernels of the other forward passes.
    """
    in_operators: dict[str, float] = {}
    for part in _operators(time):
        for term, seconds in part.terms.items():
            in_operators[term] = in_operators.get(term, 0.0) + seconds
    for name, value in time.parts().items():
        rest = first(value) - in_operators.get(name, 0.0)
        if abs(rest) > 1e-9 * first(value):
            works = time.works.get(name, ())
            like = kind if name == "reference" and not works else ""
            yield TimedPart.of(name, ALL_MODULES, {name: rest}, works, part=name, like=like)


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
        if bytes_per_logit > _FEW_BYTES and bytes_per_logit * logits > _MUCH * gpu.memory_capacity:
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
    slower = first_run_slowdown(framework_rule(profile.name).label)
    work = scene.question.work
    if work.tuned is None and slower > 1 and is_first_run(None, work.training_objective):
        notes["tuned"] = (
            f"no, a first run, which may take {slower:g} times as long as one that was tuned as "
            f"{profile.name}'s published runs were: intervals hold both (--tuned: as those)"
        )
    return notes


def alternative_software(source: Source, row: Mapping[str, object]) -> dict[str, dict[str, str]]:
    """Software settings that may make a plan faster or smaller, by description."""
    inputs = _setting(source)
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


# What every framework can do.
_PLAINEST = {
    name: int(term.least or 0)
    for name, term in terms_of("train", "parameter").items()
    if not term.default
}
_FRONT = ("throughput", "memory_headroom")


def _sources(scene: HardwareScenario) -> list[Source]:
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
    work = with_expert_adapters(question.work, question.request, question.model, scene.profile)
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
                framework=scene.profile,
                workload=work,
                specified=SpecifiedValues.of(settings),
            ),
            mesh=mesh,
            counts=question.counts,
            site=place.site,
            fit_confidence=question.request.confidence,
            flops_efficiency=_flops_efficiency(question.request, gpu, mesh.values("precision")),
        )
    ]


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
    settings: Mapping[str, object],
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


def _can_train(work: TrainingWorkload, framework: FrameworkProfile) -> bool:
    """True if a framework can train the requested model."""
    if framework.rollouts is not None:
        return False
    if work.has_virtual_tokens:
        return framework.virtual_tokens
    return framework.adapters if work.is_frozen else framework.whole_models


def _setting(source: Source) -> TrainingInputs:
    if not isinstance(source, TrainingSource):
        raise TypeError(f"{source} does not train.")
    return source.inputs


def _reproducing_answers(source: Source) -> dict[str, Value]:
    """The answers, by question, with which a plan's open values are reproduced."""
    inputs = _setting(source)
    work = inputs.workload
    answers: dict[str, Value] = {"gpu": source.gpu, "framework": source.profile}
    answers |= {
        name: source.question_columns[name]
        for name in (*terms_about("training_amount"), "reliability")
    }
    answers |= sample_answers(work) | objective_answers(work) | image_answers(inputs.model, work)
    if work.training_objective.is_preference and not work.is_frozen:
        return answers
    if not work.is_frozen:
        return answers | {"mtp_num_layers": inputs.model.mtp_num_layers}
    return answers | adapter_answers(work) | {"adapter": str(work.adapter)}


def _question_lines(inputs: TrainingInputs) -> list[str]:
    """Lines on the trained LoRA adapters, passes of preference samples, and images."""
    work = inputs.workload
    lines = [*format_objective(work), *format_trained_images(inputs.model, work)]
    if not work.is_frozen:
        return lines
    count = format_large(adapter_parameter_count(inputs))
    adapters = format_adapter(work)
    if inputs.model.num_experts and work.lora_targets is AdapterTargets.ALL_LINEAR:
        adapters += f", {format_expert_adapters(work)}" if work.adapter.is_low_rank else ""
    return [f"{adapters}: {count} parameters trained", *lines]


def _format_short(row: Mapping[str, object]) -> str:
    """The values of a row that differ from the simplest, as ``--set`` takes them."""
    return " ".join(
        f"{name}={str(row[name]).lower()}"
        for name, term in terms_of("train", "parameter").items()
        if not term.option and row[name] != term.default_value
    )


def _format_broken_options(candidates: Candidates, rule: str) -> str:
    """The options of a configuration that the framework does not support, as text."""
    c, inputs = candidates.configurations, _setting(candidates.source)
    if not isinstance(c, TrainingConfigurations):
        raise TypeError(f"{candidates!r} is no training.")
    if rule == "attention_kernel":
        kernel = format_value(rule, np.ravel(c.attention_kernel)[0])
        return f"{kernel} on {inputs.machine.gpu.name}"
    if rule == "precision":
        gpu = inputs.machine.gpu
        supported = ", ".join(code for code in ComputePrecision.words() if code in gpu.peak_flops)
        return f"{format_value(rule, np.ravel(c.precision)[0])}; {gpu.name} has {supported}"
    if rule != "framework":
        return ""
    violations = unsupported(c, inputs.framework)
    options = ", ".join(
        f"{option}={format_value(option, np.ravel(getattr(c, option))[0])}"
        for option, is_unsupported in violations.items()
        if np.any(is_unsupported)
    )
    version = inputs.framework.checked_version
    return f"{options} ({version} was checked)" if version and options else options


def _results(counts: Sequence[int]) -> tuple[str, ...]:
    several = ("tokens_per_s",) if len(counts) > 1 else ()
    names = ("step_time_s", "model_flops_utilization", "peak_memory_gib")
    return (*names, *several, "tokens_per_s_per_gpu")


def position_warnings(model: ModelSpec, sequence_length: int) -> list[str]:
    """A warning if sequences are longer than the model's trained positions; else empty."""
    max_positions = model.max_position_embeddings
    if max_positions is None or sequence_length <= max_positions:
        return []
    return [
        f"Sequences of {sequence_length:,} tokens are beyond the {max_positions:,} positions that "
        f"{model.name} was trained with."
    ]


def open_training(chosen: EvaluatedChoice) -> list[Assumption]:
    """The assumptions of a training plan: network, number format, recomputation.

    Defaults of the framework's program do not count as assumptions.
    """
    inputs: Any = chosen.source.inputs
    defaults = inputs.framework.defaults.values(inputs.workload.adapter)
    names = [name for name in ("precision", "recompute") if name not in defaults]
    return [*open_network(chosen), *open_parameters(chosen, names)]


TRAIN = Workload(
    name="train",
    profile_kind="framework",
    single=SINGLE,
    ask=make_training_question,
    sources=_sources,
    objectives=lambda _: _FRONT,
    ideal=ideal_framework,
    reproducing_answers=_reproducing_answers,
    evaluate_once=evaluate_single,
    advice_rows=30_000_000,
    adapters=(AdapterKind.NONE, AdapterKind.LORA, AdapterKind.QLORA),
    suits=lambda question, framework: _can_train(question.work, framework),
    usual=software_default_notes,
    unset_defaults=source_defaults,
    others=alternative_software,
    open_facts=open_training,
    comparison_columns=("calendar_time_days", "cost_usd", "num_gpus", "energy_kwh"),
    ties=terms_about("throughput", "train"),
    timed=training_steps,
    lengths=terms_about("length", "train"),
    batch="micro_batch_size",
    wording=ResultWording(
        noun="configuration",
        format_short=_format_short,
        shown_columns=SHOWN_COLUMNS,
        format_brief=format_layout,
        degrees=DEGREES,
        broken_rule_text=_format_broken_options,
        unusual=lambda inputs: position_warnings(inputs.model, inputs.workload.sequence_length),
        question_lines=_question_lines,
        results=_results,
        of_objective={"throughput": "step_time_s", "memory_headroom": "peak_memory_gib"},
        of_unlike={"throughput": "tokens_per_s"},
    ),
)
