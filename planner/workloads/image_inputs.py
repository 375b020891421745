"""Images in samples and prompts: the answers of a request and the lines of a plan."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, TypeAlias

from planner.base.csv_cells import Value
from planner.base.formatting import format_large
from planner.base.read_files import UncheckedTable
from planner.errors import SpecError
from planner.layers.model import tower_parameters
from planner.question.request import Request
from planner.question.terms import terms_about
from planner.specs.image_processing import audio_tokens, count_image_tokens
from planner.specs.model import ModelSpec, VisionTower
from planner.specs.training_workload import TrainingWorkload
from planner.workloads.assumptions import PlanNotes

if TYPE_CHECKING:
    from planner.specs.serving_workload import ServingWorkload

_Work: TypeAlias = "TrainingWorkload | ServingWorkload"


def image_fields(
    request: Request, model: ModelSpec, sequence_length: int | None, notes: PlanNotes
) -> dict[str, object]:
    """The image fields of a workload, checked; assumed values are added to ``notes``.

    ``sequence_length``: tokens of a sequence with its images; None: unlimited.

    Raises SpecError if the model has no vision tower, a size is invalid, or the images do not fit
    in the sequence.
    """
    answers = {
        name: value
        for name in terms_about("image")
        if (value := getattr(request, name)) is not None
    }
    if not any(value is False or value for value in answers.values()):
        return {}
    tower, images = model.vision_tower, request.images_per_sample or 0.0
    if tower is None and not images:
        notes.defaults["freeze_vision_tower"] = f"nothing: no tower of {model.name} is described"
        return {}
    if tower is None:
        reason = "is a text model" if not model.omitted_parts else "has a tower of unknown sizes"
        raise SpecError(
            f"{model.name} {reason}: {next(iter(answers))} needs a model whose file has a "
            "vision_tower."
        )
    if request.adapter != "none" and request.freeze_vision_tower is False:
        raise SpecError(
            "The vision tower is frozen with an adapter: leave out freeze_vision_tower, or "
            "the adapter."
        )
    tokens_per_image = request.tokens_per_image or tower.tokens_per_image
    if request.image_size is not None:
        tokens_per_image, size_text = _sized_image_tokens(request, model, tower)
        notes.defaults["tokens_per_image"] = f"{tokens_per_image:,} ({size_text})"
    elif images and request.tokens_per_image is None:
        side = tower.image_size
        notes.defaults["tokens_per_image"] = (
            f"{tokens_per_image:,} (an image of {side} x {side} pixels)"
        )
    if images and request.workload == "train" and request.freeze_vision_tower is None:
        notes.defaults["freeze_vision_tower"] = (
            "yes, with an adapter"
            if request.adapter != "none"
            else "no, it is trained (LLaMA-Factory and ms-swift freeze it by default)"
        )
    if sequence_length is not None and images * tokens_per_image > sequence_length:
        raise SpecError(
            f"{images:g} images of {tokens_per_image:,} tokens are "
            f"{images * tokens_per_image:,.0f} of the {sequence_length:,} tokens of a sequence: "
            "give fewer images_per_sample or tokens_per_image, or longer sequences."
        )
    fields: dict[str, object] = {"images_per_sample": images}
    if images:
        fields["tokens_per_image"] = tokens_per_image
    if request.freeze_vision_tower is not None:
        fields["freeze_vision_tower"] = request.freeze_vision_tower
    return fields


def image_tokens(fields: UncheckedTable) -> int:
    """Tokens of all images of a prompt."""
    return round(float(str(fields["images_per_sample"])) * int(str(fields["tokens_per_image"])))


def _sized_image_tokens(request: Request, model: ModelSpec, tower: VisionTower) -> tuple[int, str]:
    """Tokens of an image of the requested size, and a text on its size and tiles."""
    size_text = str(request.image_size)
    match = re.fullmatch(r"(\d{1,6})\s*[xX\u00d7]\s*(\d{1,6})", size_text.strip())
    width, height = (int(part) for part in match.groups()) if match else (0, 0)
    if not width or not height:
        raise SpecError(
            f"image_size is width x height in pixels, such as 1024x768, not {size_text!r}."
        )
    image = count_image_tokens(tower, width, height)
    tokens_per_image = request.tokens_per_image
    if tokens_per_image is not None and (
        image is None or tokens_per_image != image.tokens
    ):  # a plan has both
        raise SpecError(
            f"image_size {size_text} and tokens_per_image {tokens_per_image:,} do not agree: "
            "give one."
        )
    if image is None:
        raise SpecError(
            f"How {model.name} resizes images is not known: give tokens_per_image in place of "
            f"image_size {size_text}."
        )
    tiles = "" if image.tiles == 1 else f" as {image.tiles} tiles"
    return image.tokens, f"an image of {width} x {height} pixels{tiles}"


def image_answers(model: ModelSpec, work: _Work) -> dict[str, Value]:
    """The answers on images and audio, by question; empty without them."""
    answers: dict[str, Value] = {}
    if work.images_per_sample:
        answers = {name: getattr(work, name) for name in ("images_per_sample", "tokens_per_image")}
    if isinstance(work, TrainingWorkload) and work.freeze_vision_tower is not None:
        answers["freeze_vision_tower"] = work.freeze_vision_tower
    if not isinstance(work, TrainingWorkload) and work.audio_seconds:
        answers["audio_seconds"] = work.audio_seconds
    return answers


def format_trained_images(model: ModelSpec, work: TrainingWorkload) -> list[str]:
    """Lines on the images of a sequence and the vision tower; empty for a text model."""
    tower = model.vision_tower
    if tower is None or not work.has_tower:
        return []
    parameters = format_large(tower_parameters(tower))
    trained = "frozen" if work.freezes_tower else "trained"
    parts = [f"Vision tower of {parameters} parameters, {trained}"]
    if work.images_per_sample:
        parts.append(f"{_format_images(work)} of the {work.sequence_length:,} tokens of a sequence")
    return ["; ".join(parts)]


def format_served_images(model: ModelSpec, work: ServingWorkload) -> list[str]:
    """Texts on images and audio of a prompt, with their tokens; empty without them."""
    parts = []
    if model.vision_tower is not None and work.images_per_sample:
        parts.append(f"{_format_images(work)} of the tokens in")
    if model.audio_tower is not None and work.audio_seconds:
        tokens = audio_tokens(model.audio_tower, work.audio_seconds)
        parts.append(f"{work.audio_seconds:g} s of sound, {tokens:,} of the tokens in")
    return parts


def tower_lines(model: ModelSpec, work: _Work) -> list[str]:
    """A line on a vision tower that the workload does not use, or on what it leaves to the host."""
    if work.images_per_sample and not isinstance(work, TrainingWorkload):
        return ["The host's decoding and resizing of images is not counted: it may be the limit"]
    if model.vision_tower is None or work.images_per_sample:
        return []
    if isinstance(work, TrainingWorkload) and work.has_tower:
        return []
    parameters = format_large(tower_parameters(model.vision_tower))
    if not isinstance(work, TrainingWorkload):
        return [
            f"The vision tower ({parameters} parameters) is loaded; --images-per-sample uses it"
        ]
    return [
        f"As a text model: the vision tower ({parameters} parameters) is left out; "
        "--images-per-sample sets the images of a sample"
    ]


def _format_images(work: _Work) -> str:
    count, tokens = work.images_per_sample, work.tokens_per_image
    noun = "image" if count == 1 else "images"
    return f"{count:g} {noun}, {count * tokens:,.0f}"
