"""How many tokens a run trains: as given, by its steps or samples, or as assumed."""

from __future__ import annotations

from dataclasses import replace

from planner.base.text import large
from planner.base.training_objectives import TrainingObjective
from planner.errors import SpecError
from planner.estimators.parameters import count_parameters
from planner.estimators.share import tokens_of_sample
from planner.question.inputs import whole
from planner.question.request import Request
from planner.specs.model import ModelSpec
from planner.specs.workload import TrainingWorkload
from planner.workloads.notes import Notes

LENGTHS = {"total_tokens": "--tokens", "max_steps": "--steps", "num_samples": "--samples"}
"""What says how long a run is, each with its option; one of them is enough."""
UNKNOWN_TOKENS = 1e9
"""Tokens that time and cost are told of where nobody knows how many a fine-tuning has."""
_TOKENS_PER_PARAMETER = 20
_MOST = 1e18
# A product that is divided again may come out one rounding above a whole number of steps.
_ROUNDING = 1e-12


def with_tokens(
    work: TrainingWorkload, request: Request, model: ModelSpec, notes: Notes
) -> TrainingWorkload:
    """The workload with the tokens of its whole run; what follows or is assumed is noted.

    Those that the request gives it has already.

    Raises
    ------
    SpecError
        Several things say how long the run is, or the epochs are none.
    """
    given = {name: value for name in LENGTHS if (value := getattr(request, name)) is not None}
    if len(given) > 1:
        options = " and ".join(LENGTHS[name] for name in given)
        raise SpecError(f"Each of {options} says how long the run is: give one of them.")
    epochs = 1.0 if request.epochs is None else request.epochs
    if not epochs > 0:
        raise SpecError(f"epochs is a number above 0, not {epochs:g}.")
    if request.total_tokens is not None:
        return work
    if request.max_steps is not None:
        steps = whole(request.max_steps, "max_steps", 1)
        tokens = steps * work.global_batch_size * tokens_of_sample(work) * (1 - _ROUNDING)
        origin = f"{steps:,} steps"
    elif request.num_samples is not None:
        samples = whole(request.num_samples, "num_samples", 1)
        each, words = _tokens_of_each(work, request)
        tokens = epochs * samples * each
        origin = f"{epochs:g} x {samples:,} samples of {words}"
    else:
        tokens, origin = _assumed(work.training_objective, model)
    if not 0 < tokens < _MOST:
        raise SpecError(f"A run of {origin} has {tokens:g} tokens: no run has {_MOST:g} or more.")
    words = f"{tokens / 1e9:,.0f} billion" if tokens >= 1e9 else large(tokens)
    notes.defaults["total_tokens"] = f"{words} ({origin})"
    if work.training_objective is not TrainingObjective.PRETRAIN and not given:
        notes.defaults["total_tokens"] = (
            f"{words}, of which time and cost are told, as neither samples nor steps are "
            f"given: --samples N --epochs E tell those of a run ({origin})"
        )
    return replace(work, total_tokens=tokens)


def _tokens_of_each(work: TrainingWorkload, request: Request) -> tuple[float, str]:
    """Tokens of a sample, and these in words."""
    mean = request.mean_sample_length
    if mean is not None and not work.mean_sample_length:  # packed: none is cut off or padded
        return float(mean * work.sequences_per_sample), f"{mean:,} tokens"
    each = tokens_of_sample(work)
    full = "" if work.mean_sample_length else ", as if each filled its sequence"
    return each, f"{each:,.0f} tokens{full}"


def _assumed(objective: TrainingObjective, model: ModelSpec) -> tuple[float, str]:
    """Tokens of a run where the user says nothing of it, and where they come from."""
    if objective is not TrainingObjective.PRETRAIN:
        return UNKNOWN_TOKENS, "default of fine-tuning"
    given = model.training.total_tokens if model.training else None
    if given is not None:
        return given, f"published run of {model.name}"
    tokens = float(_TOKENS_PER_PARAMETER * count_parameters(model).total)
    return tokens, "20 per parameter, arXiv:2203.15556"
