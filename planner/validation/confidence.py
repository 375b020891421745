"""How sure a prediction for a plan is: the errors of published runs of its kind."""

from __future__ import annotations

from typing import Any

from planner.validation.intervals import Confidence

TRAINING = "training"


def confidence(published: str, setting: Any, num_gpus: int) -> Confidence:
    """The confidence in predictions of a setting on so many GPUs.

    ``published`` is what runs of its kind are called: ``training``, or the mode of a run of
    inference (`planner.validation.inference.cases.Mode`).
    """
    # Each is read when it is asked for: the runs of the other kind take as long to import.
    if published == TRAINING:
        from planner.validation.training.confidence import training_confidence

        return training_confidence(setting, num_gpus)
    from planner.validation.inference.confidence import inference_confidence

    return inference_confidence(setting, published)
