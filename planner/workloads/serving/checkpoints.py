"""Published checkpoints of a model: the one that the GPUs multiply without unpacking."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from planner.base.enums import Quantization
from planner.specs.catalogue import in_format, stored_types
from planner.specs.gpu import GpuSpec
from planner.specs.quantization import FORMATS, SIXTEEN_BIT_BYTES, Checkpoint, compute_precision
from planner.workloads.serving.question import format_weight_formats
from planner.workloads.workload import HardwareScenario

_PUBLISHED_TYPES = ("quantization", "expert_quantization")


_SIXTEEN = FORMATS[Quantization.W16A16].compute


def on_gpus(scene: HardwareScenario) -> HardwareScenario:
    """The scenario with a published checkpoint that all GPUs multiply without unpacking.

    The publisher's checkpoint is replaced if the GPUs unpack its weights: 4-bit integers are
    served in NVFP4 on Blackwell. A checkpoint named by repository or by weight types stays.
    """
    question = scene.question
    model, name = question.model, str(question.request.model)
    is_named = "/" in name and not name.endswith(".toml")
    if (
        is_named
        or _has_weight_formats(scene)
        or not _is_unpacked(stored_types(model)[1], _all_gpus(scene))
    ):
        return scene
    checkpoint = next(
        (
            other
            for other in _further_checkpoints(scene)
            if _multiplies_format(other.quantization, _all_gpus(scene))
        ),
        None,
    )
    if checkpoint is None:
        return scene
    return replace(
        scene, question=replace(question, model=in_format(model, checkpoint.quantization))
    )


def weights_note(scene: HardwareScenario) -> Mapping[str, str]:
    """A note on the weight formats of a scenario, if several checkpoints are published."""
    model = scene.question.model
    suited = [
        checkpoint
        for checkpoint in _further_checkpoints(scene)
        if _multiplies_format(checkpoint.quantization, _all_gpus(scene))
    ]
    if not suited or _has_weight_formats(scene):
        return {}
    name = str(scene.question.request.model)
    published = scene.place.machine.catalogue.load_model(name)
    served = next(
        (checkpoint for checkpoint in suited if checkpoint.quantization in stored_types(model)),
        None,
    )
    if served is not None and stored_types(model) != stored_types(published):
        source_text = f"of {served.repository}, not {stored_types(published)[1]} as published"
        reason = "which is unpacked to 16 bit"
        return {
            "quantization": (
                f"{format_weight_formats(model)} {source_text}, {reason} ({served.source})"
            )
        }
    other_texts = [
        f"{checkpoint.quantization} as {checkpoint.repository}"
        for checkpoint in suited
        if checkpoint is not served
    ]
    others_text = f", published in {' and '.join(other_texts)} too" if other_texts else ""
    return {
        "quantization": (
            f"{format_weight_formats(model)}{others_text} (published weights of {model.name})"
        )
    }


def _has_weight_formats(scene: HardwareScenario) -> bool:
    """True if the user sets a number format of the weights."""
    return bool({*_PUBLISHED_TYPES} & set(scene.question.request.settings))


def _all_gpus(scene: HardwareScenario) -> list[GpuSpec]:
    return [place.machine.gpu for place in (scene.place, *scene.others.values())]


def _further_checkpoints(scene: HardwareScenario) -> list[Checkpoint]:
    """Published checkpoints, other than the default, that the engine serves on all GPUs."""
    engine, vendors = scene.profile, {gpu.vendor for gpu in _all_gpus(scene)}
    return [
        checkpoint
        for checkpoint in scene.question.model.checkpoints
        if checkpoint.repository
        and checkpoint.quantization in engine.quantizations
        and all(checkpoint.is_served(engine.name, vendor) for vendor in vendors)
    ]


def _is_unpacked(quantization: str, gpus: Sequence[GpuSpec]) -> bool:
    """True if weights of a format below 16 bits are unpacked to 16 bits on every GPU."""
    code = Quantization[quantization.upper()]
    return FORMATS[code].weight < SIXTEEN_BIT_BYTES and not any(
        _is_multiplied(code, gpu) for gpu in gpus
    )


def _multiplies_format(quantization: str, gpus: Sequence[GpuSpec]) -> bool:
    """True if every GPU multiplies a weight format without unpacking it."""
    return all(_is_multiplied(Quantization[quantization.upper()], gpu) for gpu in gpus)


def _is_multiplied(code: Quantization, gpu: GpuSpec) -> bool:
    return compute_precision(code, gpu.peak_flops) not in (None, *_SIXTEEN)
