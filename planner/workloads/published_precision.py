"""The precision of a published run, where its sequence and batch are taken over, too."""

from __future__ import annotations

from planner.base.enums import ComputePrecision, Precision
from planner.base.training_objectives import TrainingObjective
from planner.errors import PlannerError
from planner.question.request import ALL, Request
from planner.specs.catalogue import Catalogue
from planner.specs.gpu import GpuSpec
from planner.specs.model import ModelSpec

SINGLE = "single"
"""The space of one configuration, which says nothing."""
_SAID = ("precision", "global_batch_size")


def published_precision(
    request: Request, model: ModelSpec, objective: TrainingObjective
) -> str | None:
    """The word of that precision; None where it is the usual one, or something else was asked.

    Who names a space, a sequence, a batch or a precision asks for another run.
    """
    published = model.training
    if published is None or published.precision == "bf16":
        return None
    given = (request.precision, request.sequence_length, request.global_batch_size)
    if any(value is not None for value in given) or any(name in request.settings for name in _SAID):
        return None
    is_own_space = request.space not in (None, SINGLE)
    if is_own_space or objective is not TrainingObjective.PRETRAIN:
        return None
    return published.precision


def has_precision(gpu: GpuSpec, word: str) -> bool:
    """Whether a GPU multiplies in a precision."""
    return Precision(word) in gpu.peak_flops


def unmeasured_note(request: Request) -> str:
    """What is assumed of precisions of which no published run is among those that were fitted."""
    said = request.settings.get("precision", request.precision)
    asked = said if isinstance(said, list | tuple) else str(said or "").split(",")
    words = {ComputePrecision.meant(str(word)) for word in asked}
    rare = [
        word for word in ComputePrecision.words() if word in words - {*ComputePrecision.usual()}
    ]
    if not rare:
        return ""
    told = (
        f"{', '.join(rare)}: kernels not measured in it reach the share of the peak that bf16's do"
    )
    narrow = "; what int8 products do not read stays as in bf16" if "int8" in rare else ""
    return f"{told}, and no published run is in it{narrow}"


def precision_note(request: Request, catalogue: Catalogue, model: ModelSpec, word: str) -> str:
    """What is said of it; empty where the one GPU that was named lacks it."""
    gpu = request.gpu
    if isinstance(gpu, str) and gpu != ALL:
        try:
            if not has_precision(catalogue.load_gpu(gpu).spec, word):
                return ""
        except PlannerError:  # said where the GPU is asked for
            return ""
    elif gpu is None and request.cluster is None:
        return ""
    return f"{word}, --precision bf16 is the other (published run of {model.name})"
