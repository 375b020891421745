"""The search space of a training run: framework defaults, and the mesh of all configurations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import compress
from typing import Any

import numpy as np

from planner.base.arrays import Values
from planner.base.csv_cells import Value
from planner.base.enums import (
    AdapterKind,
    ComputePrecision,
    Precision,
)
from planner.confidence.medians import training_slowdown
from planner.confidence.profile_rules import framework_rule
from planner.configurations.configuration_tables import (
    NAMES,
    TrainingConfigurations,
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
from planner.configurations.training_rules import unsupported
from planner.errors import SearchSpaceError
from planner.estimators.training.micro_batch_share import TrainingInputs
from planner.optimize.source import Source
from planner.question.request import PlanRequest, Request
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
    with_expert_adapters,
)
from planner.workloads.training.results import TrainingSource
from planner.workloads.workload import (
    HardwareScenario,
)

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


def training_inputs(source: Source) -> TrainingInputs:
    """The inputs of a source, checked to be of training.

    Raises TypeError if the source does not train.
    """
    if not isinstance(source, TrainingSource):
        raise TypeError(f"{source} does not train.")
    return source.inputs
