"""What a script on Hugging Face's Trainer minimizes: SFT, preferences, a reward."""

from __future__ import annotations

import re
from collections.abc import Sequence

from planner.base.training_objectives import WITH_ROLLOUTS, TrainingObjective, objective_named
from planner.errors import SpecError
from planner.launch.trainer.said import Collected, Said

_SUPERVISED = ("sft", "pt")
_PREFERENCES = ("dpo", "ipo", "orpo", "simpo", "cpo", "kto", "rm", "reward")
_NAMED = (*_SUPERVISED, *_PREFERENCES, *WITH_ROLLOUTS)
_STARTERS = ("trl", "swift")
_LAUNCHER = ("accelerate", "launch")
# LLaMA-Factory's, ms-swift's and axolotl's.
_OPTIONS = ("--rlhf_type", "--rl", "--stage")
_LOSSES = ("--pref_loss", "--loss_type")
# Losses of pairs that need no reference model (LLaMA-Factory 0.9, hparams/finetuning_args.py).
_WITHOUT_REFERENCE = ("orpo", "simpo")
OBJECTIVE_OPTIONS = (*_OPTIONS, *_LOSSES, "--reward_model", "--precompute_ref_log_probs")


def named_by_program(words: Sequence[str]) -> str | None:
    """What the name of a program says it trains; None where it says nothing.

    >>> named_by_program(["trl", "dpo"]), named_by_program(["examples/train_rm.py"])
    ('dpo', 'rm')
    """
    own = words[len(_LAUNCHER) :] if tuple(words[: len(_LAUNCHER)]) == _LAUNCHER else words
    first, *others = [word.rpartition("/")[2].lower() for word in own[:2]] or [""]
    if first in _STARTERS and others:
        first = others[0]
    parts = re.split(r"[^a-z0-9]+", first)
    return next((part for part in parts if part in _NAMED), None)


def objective_said(said: Said, found: Collected, name: str) -> None:
    """The objective of the file ``name``, and whether its reference model is asked before training.

    Raises
    ------
    SpecError
        It trains on answers that are generated in each step.
    """
    words = [text for option in _OPTIONS if (text := said.texts.get(option)) and text in _NAMED]
    word = next(iter(words), None) or named_by_program(said.words)
    if said.is_on("--reward_model"):
        word = "rm"
    if word is None and not _has_weights(said):
        return
    objective = objective_of_word(word or "sft", name)
    loss = next((said.texts[name] for name in _LOSSES if said.texts.get(name)), None)
    if objective is TrainingObjective.DPO and loss in _WITHOUT_REFERENCE:
        objective = TrainingObjective.ORPO
    found.values["training_objective"] = str(objective)
    if said.is_on("--precompute_ref_log_probs") and objective.has_reference:
        found.values["precompute_ref_log_probs"] = True


def objective_of_word(word: str, name: str) -> TrainingObjective:
    """The objective that a word of the file ``name`` means.

    Raises
    ------
    SpecError
        It is none, or trains on answers that are generated in each step.
    """
    try:
        return objective_named(word)
    except SpecError as error:
        raise SpecError(f"{name}: {error}") from error


def _has_weights(said: Said) -> bool:
    """Whether trained weights are loaded: a ``config_name`` alone has none."""
    return "--model_name_or_path" in said.texts or "--base_model" in said.texts
