"""Which of a model's published checkpoints is served where nobody says: as its GPUs multiply."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from planner.base.enums import Quantization
from planner.specs.catalogue import in_format, stored_types
from planner.specs.gpu import GpuSpec
from planner.specs.model import Checkpoint, ModelSpec
from planner.specs.quantization import FORMATS, SIXTEEN_BIT_BYTES, compute_precision
from planner.workloads.base import Scene

_TYPES = ("quantization", "expert_quantization")
_SIXTEEN = FORMATS[Quantization.W16A16].compute


def on_gpus(scene: Scene) -> Scene:
    """The scene with the checkpoint of its model that all its GPUs multiply as it is stored.

    It takes the place of the publisher's where that one is unpacked to 16 bit on them: what is
    published in integers of 4 bit is served in NVFP4 on Blackwell. A checkpoint that is named, by
    its repository or by the types of its weights, stays.
    """
    question = scene.question
    model, name = question.model, str(question.request.model)
    is_named = "/" in name and not name.endswith(".toml")
    if is_named or _has_types(scene) or not _is_unpacked(stored_types(model)[1], _gpus(scene)):
        return scene
    found = next((one for one in _others(scene) if _suits(one.quantization, _gpus(scene))), None)
    if found is None:
        return scene
    return replace(scene, question=replace(question, model=in_format(model, found.quantization)))


def weights_note(scene: Scene) -> Mapping[str, str]:
    """Of a scene that `on_gpus` made, the types of its weights where several are published."""
    model = scene.question.model
    suited = [one for one in _others(scene) if _suits(one.quantization, _gpus(scene))]
    if not suited or _has_types(scene):
        return {}
    name = str(scene.question.request.model)
    published = scene.place.machine.catalogue.load_model(name)
    served = next((one for one in suited if one.quantization in stored_types(model)), None)
    if served is not None and stored_types(model) != stored_types(published):
        of = f"of {served.repository}, not {stored_types(published)[1]} as published"
        why = "which is unpacked to 16 bit"
        return {"quantization": f"{words_of(model)} {of}, {why} ({served.source})"}
    also = [f"{one.quantization} as {one.repository}" for one in suited if one is not served]
    beside = f", published in {' and '.join(also)} too" if also else ""
    return {"quantization": f"{words_of(model)}{beside} (published weights of {model.name})"}


def words_of(model: ModelSpec) -> str:
    """The types of a model's published weights in words."""
    dense, experts = stored_types(model)
    return f"{dense}, experts {experts}"


def _has_types(scene: Scene) -> bool:
    """Whether the types of weights are set."""
    return bool({*_TYPES} & set(scene.question.request.settings))


def _gpus(scene: Scene) -> list[GpuSpec]:
    return [place.machine.gpu for place in (scene.place, *scene.others.values())]


def _others(scene: Scene) -> list[Checkpoint]:
    """Checkpoints beside the publisher's that the engine serves on all the GPUs."""
    engine, vendors = scene.profile, {gpu.vendor for gpu in _gpus(scene)}
    return [
        one
        for one in scene.question.model.checkpoints
        if one.repository
        and one.quantization in engine.quantizations
        and all(one.is_served(engine.name, vendor) for vendor in vendors)
    ]


def _is_unpacked(word: str, gpus: Sequence[GpuSpec]) -> bool:
    """Whether narrow weights of a type are multiplied in 16 bit on every GPU."""
    code = Quantization[word.upper()]
    return FORMATS[code].weight < SIXTEEN_BIT_BYTES and not any(
        _is_multiplied(code, gpu) for gpu in gpus
    )


def _suits(word: str, gpus: Sequence[GpuSpec]) -> bool:
    """Whether every GPU multiplies a type as narrow as it is stored."""
    return all(_is_multiplied(Quantization[word.upper()], gpu) for gpu in gpus)


def _is_multiplied(code: Quantization, gpu: GpuSpec) -> bool:
    return compute_precision(code, gpu.peak_flops) not in (None, *_SIXTEEN)
