"""Training as a workload."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from planner.base.enums import AdapterKind, AdapterTargets, ComputePrecision, Precision
from planner.base.text import large
from planner.configurations.as_given import FOLLOWING, AsGiven
from planner.configurations.choices import checked, listed, refuse_unknown
from planner.configurations.enumerate import OpenMesh, training_mesh
from planner.configurations.table import word
from planner.configurations.training import NAMES, TrainingConfigurations
from planner.configurations.training_rules import unsupported
from planner.errors import SearchSpaceError
from planner.estimators.flops import adapter_parameter_count
from planner.estimators.ideal import ideal_framework
from planner.estimators.share import Setting
from planner.optimize.source import Candidates, Source
from planner.question.request import Request
from planner.question.terms import plain_values, terms_of
from planner.specs.framework import FrameworkProfile
from planner.specs.gpu import GpuSpec
from planner.specs.model import ModelSpec
from planner.specs.search_space import SearchSpace
from planner.specs.workload import TrainingWorkload
from planner.workloads.adapters import (
    adapter_answers,
    adapter_words,
    expert_words,
    sample_answers,
    with_expert_adapters,
)
from planner.workloads.base import Scene, Wording, Workload, judged_once
from planner.workloads.images import image_answers, trained_image_words
from planner.workloads.objectives import objective_answers, objective_words
from planner.workloads.open_facts import open_training
from planner.workloads.place import share_of_peak
from planner.workloads.published_precision import SINGLE, has_precision, published_precision
from planner.workloads.training_question import ask_training
from planner.workloads.training_runs import TrainingSource
from planner.workloads.training_software import other_software, usual_software
from planner.workloads.training_timed import training_steps
from planner.workloads.training_words import DEGREES, TOLD, beyond_positions, brief

# What every framework can do.
_PLAINEST = {"num_gpus": 1, "zero_stage": 0, "global_batch_size": 1}
_FRONT = ("throughput", "memory_headroom")


def _sources(scene: Scene) -> list[Source]:
    question, place = scene.question, scene.place
    if question.work.is_frozen and not scene.profile.adapters:
        raise SearchSpaceError(
            f"{scene.profile.name} trains no adapters: leave out --framework or --adapter."
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
            setting=Setting(
                machine=place.machine,
                model=question.model,
                framework=scene.profile,
                workload=work,
                as_given=AsGiven.of(settings),
            ),
            mesh=mesh,
            counts=question.counts,
            site=place.site,
            fit_confidence=question.request.confidence,
            flops_efficiency=_flops_efficiency(question.request, gpu, mesh.values("precision")),
        )
    ]


def mesh_of(
    space: SearchSpace,
    settings: Mapping[str, Any],
    *,
    num_gpus: Iterable[int],
    model: ModelSpec,
    framework: FrameworkProfile,
    workload: TrainingWorkload,
) -> OpenMesh[TrainingConfigurations]:
    """All combinations of the space's values, narrowed by ``settings``.

    ``settings`` maps a parameter to a value or several; it replaces what the space says. Where
    neither says a ZeRO stage, ranks that share their states with nobody shard nothing. What
    follows from others may be among the settings, where it agrees with them.

    Raises
    ------
    SearchSpaceError
        A parameter or a value is unknown, or there is no value left.
    """
    as_given = AsGiven.of(settings)
    settings = {name: value for name, value in settings.items() if name not in FOLLOWING}
    refuse_unknown(space, settings, NAMES, derived=FOLLOWING)
    counts = sorted(set(num_gpus))
    said: dict[str, Any] = {**space.parameters, **settings}
    choices: dict[str, Any] = {**_defaults(framework, workload), **said}
    table = {
        name: checked(name, _values(choice, counts, model, workload))
        for name, choice in choices.items()
    }
    for name in set(space.parameters) - set(settings):
        table[name] = _supported(name, table[name], framework)
    if "zero_stage" not in settings and not _is_of(space, framework):
        table["zero_stage"] = _usual_stages(table["zero_stage"], framework)
    table["num_gpus"] = checked("num_gpus", counts)
    alone = min(table["tensor_parallel"]) * min(table["pipeline_parallel"]) >= counts[-1]
    if alone and "zero_stage" not in said and 0 in framework.zero_stages:
        table["zero_stage"] = checked("zero_stage", [0])
    as_given.check(table)
    return training_mesh(table)


def _supported(name: str, values: list[Any], framework: FrameworkProfile) -> list[Any]:
    """Those of a space's values that the framework has at all; if it has none, all."""
    alone = TrainingConfigurations.of(**{**_PLAINEST, name: values})
    lacking = unsupported(alone, framework).get(name)
    if lacking is None:
        return values
    return [value for value, no in zip(values, lacking, strict=True) if not no] or values


def _usual_stages(stages: list[Any], framework: FrameworkProfile) -> list[Any]:
    """ZeRO stages of another framework's space; this one's if its usual one is not among them."""
    return stages if framework.default_zero_stage in stages else [*framework.zero_stages]


def _is_of(space: SearchSpace, framework: FrameworkProfile) -> bool:
    """Whether a space was made for a framework."""
    return space.framework in (framework.name.lower().replace(" ", "-"), *framework.aliases)


def _defaults(framework: FrameworkProfile, workload: TrainingWorkload) -> dict[str, Any]:
    """The value of each parameter that neither the space nor the user mentions."""
    return {
        **plain_values("train"),
        "global_batch_size": workload.global_batch_size,
        "zero_stage": framework.default_zero_stage,
    }


def _values(
    choice: Any, counts: list[int], model: ModelSpec, workload: TrainingWorkload
) -> list[Any]:
    bases = {
        "num_hidden_layers": model.num_hidden_layers,
        "num_experts": max(model.num_experts, 1),
        "global_batch_size": workload.global_batch_size,
        "sequence_length": workload.sequence_length,
    }
    return [value for count in counts for value in listed(choice, {**bases, "num_gpus": count})]


def _flops_efficiency(
    request: Request, gpu: GpuSpec, precisions: Sequence[int]
) -> float | tuple[float, ...] | None:
    """One share of every peak, or of an achieved rate the share of each precision's peak.

    A precision that the GPU lacks has none: a rule rejects it.
    """
    given, name = request.flops_efficiency, "flops_efficiency"
    if not isinstance(given, str):
        return share_of_peak(given, "flop/s", float("nan"), name)
    shares = [float("nan")] * len(ComputePrecision)
    for code in precisions:
        word = ComputePrecision(code).word
        peak = gpu.peak_flops.get(Precision(word))
        if peak is not None:
            shares[code] = share_of_peak(given, "flop/s", peak, f"{name} in {word}") or 0.0
    return tuple(shares)


def _suits(work: TrainingWorkload, framework: FrameworkProfile) -> bool:
    """Whether a framework is one for what is trained."""
    if work.has_virtual_tokens:
        return framework.virtual_tokens
    return framework.adapters if work.is_frozen else framework.whole_models


def _settled(source: Source) -> dict[str, Any]:
    """Answers that a plan was made with where the user gave none."""
    setting: Setting = source.setting
    work = setting.workload
    answers: dict[str, Any] = {
        "gpu": source.gpu,
        "framework": source.profile,
        "sequence_length": work.sequence_length,
        "total_tokens": work.total_tokens,
        "reliability": source.asked["reliability"],
    }
    answers |= sample_answers(work) | objective_answers(work) | image_answers(setting.model, work)
    if work.training_objective.is_preference and not work.is_frozen:
        return answers
    if not work.is_frozen:
        return answers | {"mtp_num_layers": setting.model.mtp_num_layers}
    return answers | adapter_answers(work) | {"adapter": str(work.adapter)}


def _asked(setting: Setting) -> list[str]:
    """What of a frozen model is trained, and what samples take beside a trained sequence."""
    work = setting.workload
    words = [*objective_words(work), *trained_image_words(setting.model, work)]
    if not work.is_frozen:
        return words
    count = large(adapter_parameter_count(setting))
    adapters = adapter_words(work)
    if setting.model.num_experts and work.lora_targets is AdapterTargets.ALL_LINEAR:
        adapters += f", {expert_words(work)}" if work.adapter.is_low_rank else ""
    return [f"{adapters}: {count} parameters trained", *words]


def _in_short(row: Mapping[str, Any]) -> str:
    """The values of a row that are not the plainest, as --set takes them."""
    return " ".join(
        f"{name}={str(row[name]).lower()}"
        for name, term in terms_of("train", "parameter").items()
        if not term.option and row[name] != term.plain
    )


def _blamed(candidates: Candidates, rule: str) -> str:
    """The options of a configuration that its framework does not support."""
    c: TrainingConfigurations = candidates.configurations
    if rule == "attention_kernel":
        kernel = word(rule, np.ravel(c.attention_kernel)[0])
        return f"{kernel} on {candidates.source.setting.machine.gpu.name}"
    if rule == "precision":
        own = candidates.source.setting.machine.gpu
        has = ", ".join(code for code in ComputePrecision.words() if code in own.peak_flops)
        return f"{word(rule, np.ravel(c.precision)[0])}; {own.name} has {has}"
    if rule != "framework":
        return ""
    asked = unsupported(c, candidates.source.setting.framework)
    options = ", ".join(
        f"{option}={word(option, np.ravel(getattr(c, option))[0])}"
        for option, is_unsupported in asked.items()
        if np.any(is_unsupported)
    )
    version = candidates.source.setting.framework.checked_version
    return f"{options} ({version} was checked)" if version and options else options


def _results(counts: Sequence[int]) -> tuple[str, ...]:
    several = ("tokens_per_s",) if len(counts) > 1 else ()
    names = ("step_time_s", "model_flops_utilization", "peak_memory_gib")
    return (*names, *several, "tokens_per_s_per_gpu")


TRAIN = Workload(
    name="train",
    profile_kind="framework",
    single=SINGLE,
    ask=ask_training,
    sources=_sources,
    objectives=lambda _: _FRONT,
    ideal=ideal_framework,
    settled=_settled,
    once=judged_once,
    advice_rows=30_000_000,
    adapters=(AdapterKind.NONE, AdapterKind.LORA, AdapterKind.QLORA),
    suits=lambda question, framework: _suits(question.work, framework),
    usual=usual_software,
    others=other_software,
    open_facts=open_training,
    weighed=("calendar_time_days", "cost_usd", "num_gpus", "energy_kwh"),
    ties=("throughput", "step_time", "time_to_train", "gpu_hours", "cost"),
    timed=training_steps,
    lengths=("sequence_length",),
    batch="micro_batch_size",
    wording=Wording(
        noun="configuration",
        in_short=_in_short,
        told=TOLD,
        brief=brief,
        degrees=DEGREES,
        blamed=_blamed,
        unusual=lambda setting: beyond_positions(setting.model, setting.workload.sequence_length),
        asked=_asked,
        results=_results,
        of_objective={
            "throughput": "step_time_s",
            "memory_headroom": "peak_memory_gib",
        },
        of_unlike={"throughput": "tokens_per_s"},
    ),
)
