"""What a training run minimizes: the answers of a request, and what a plan says of it."""

from __future__ import annotations

from typing import Any

from planner.base.training_objectives import TrainingObjective, objective_named
from planner.errors import SpecError
from planner.question.request import Request
from planner.specs.workload import TrainingWorkload


def objective_of(request: Request, *, is_frozen: bool) -> TrainingObjective:
    """The objective of a request: without one that of fine-tuning where an adapter is trained.

    Raises
    ------
    SpecError
        It is unknown, or something beside it makes no sense.
    """
    usual = TrainingObjective.SFT if is_frozen else TrainingObjective.PRETRAIN
    given = request.training_objective
    found = usual if given is None else objective_named(given)
    if request.precompute_ref_log_probs and not found.has_reference:
        raise SpecError("precompute_ref_log_probs needs training_objective dpo or kto.")
    if request.mtp_num_layers and found.is_preference:
        raise SpecError(
            f"{found} trains no modules of multi-token prediction: leave out mtp_num_layers."
        )
    return found


def objective_answers(work: TrainingWorkload) -> dict[str, Any]:
    """What a plan says of its objective; what is as usual not."""
    usual = TrainingObjective.SFT if work.is_frozen else TrainingObjective.PRETRAIN
    found: dict[str, Any] = {}
    if work.training_objective is not usual:
        found["training_objective"] = str(work.training_objective)
    if work.precompute_ref_log_probs:
        found["precompute_ref_log_probs"] = True
    return found


def objective_words(work: TrainingWorkload) -> list[str]:
    """What a sample takes beyond a sequence that is trained; nothing where that is all."""
    objective = work.training_objective
    if not objective.is_preference:
        return []
    sequences = "1 sequence" if work.sequences_per_sample == 1 else "2 sequences"
    words = [f"{objective}: {sequences} a sample"]
    of_policy, of_reference = work.forward_passes
    if objective is TrainingObjective.RM:
        words.append("one number in place of the logits")
    if of_policy:
        words.append("1 forward pass more of another answer")
    if of_reference:
        passes = "1 forward pass" if of_reference == 1 else f"{of_reference} forward passes"
        whose = "a reference model, whose weights are kept"
        words.append(
            f"{passes} of {whose if work.keeps_reference else 'the adapters switched off'}"
        )
    elif objective.has_reference:
        words.append("the reference was computed before, which is not counted")
    return [", ".join(words)]
