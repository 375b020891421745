"""Whether a script on Hugging Face's Trainer trains the vision tower of its model."""

from __future__ import annotations

from planner.launch.trainer.said import Collected, Said

# LLaMA-Factory's (0.9, hparams/finetuning_args.py) and ms-swift's (3.x, arguments/tuner_args.py).
_FREEZES = ("--freeze_vision_tower", "--freeze_vit")
_BESIDE = ("--freeze_multi_modal_projector", "--freeze_language_model", "--freeze_aligner",
           "--freeze_llm")  # fmt: skip
_OF_IMAGES = ("--image_max_pixels", "--video_max_pixels", "--max_pixels", *_BESIDE)
IMAGE_OPTIONS = (*_FREEZES, *_BESIDE)


def images_said(said: Said, found: Collected) -> None:
    """Whether the tower is frozen: as it is said, else as both do where a file is about images."""
    option = next((name for name in _FREEZES if name in said.texts), None)
    if option is not None:
        found.values["freeze_vision_tower"] = said.is_on(option)
    elif any(name in said.texts for name in _OF_IMAGES):
        reason = "no freeze_vision_tower: LLaMA-Factory and ms-swift freeze it"
        found.default("freeze_vision_tower", True, reason)
    is_adapted = found.values.get("adapter", "none") != "none"
    if is_adapted and found.values.get("freeze_vision_tower") is False:
        found.values["freeze_vision_tower"] = True
        found.notes.append("Adapters of the vision tower are not predicted: it is taken as frozen.")
