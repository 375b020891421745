"""What training minimizes: the objectives that are predicted, and their names in the field."""

from __future__ import annotations

from enum import StrEnum

from planner.errors import SpecError, did_you_mean


class TrainingObjective(StrEnum):
    """What training minimizes, and so which passes a sample takes.

    ``PRETRAIN`` and ``SFT``: cross-entropy of next tokens, in SFT of a model that is trained
    already. Of a chosen and a rejected answer: ``DPO`` [1]_ (and IPO, which computes the same),
    ``ORPO`` [2]_ (and SimPO, CPO: no reference model), ``RM``, a reward model with one number in
    place of the logits. ``KTO`` [3]_: one answer, and another one that does not belong to its
    prompt, whose divergence is estimated without gradients.

    Of answers that an engine generated: ``GRPO`` [4]_ (and PPO, RLOO, GSPO: the same passes of the
    policy), with a pass for the log-probabilities before the update and one of a reference model;
    ``DAPO`` [5]_, without a reference model. The training step is predicted: neither generation
    nor reward and value models.

    References
    ----------
    .. [1] R. Rafailov et al., "Direct preference optimization," 2023, arXiv:2305.18290.
    .. [2] J. Hong et al., "ORPO," 2024, arXiv:2403.07691.
    .. [3] K. Ethayarajh et al., "KTO," 2024, arXiv:2402.01306.
    .. [4] Z. Shao et al., "DeepSeekMath," 2024, arXiv:2402.03300.
    .. [5] Q. Yu et al., "DAPO," 2025, arXiv:2503.14476.
    """

    PRETRAIN = "pretrain"
    SFT = "sft"
    DPO = "dpo"
    ORPO = "orpo"
    KTO = "kto"
    RM = "rm"
    GRPO = "grpo"
    DAPO = "dapo"

    @property
    def sequences_per_sample(self) -> int:
        """Sequences of a sample that are trained."""
        return 2 if self in _OF_PAIRS else 1

    @property
    def has_reference(self) -> bool:
        """Whether log-probabilities of a reference model are needed."""
        of_reference = (TrainingObjective.DPO, TrainingObjective.KTO, TrainingObjective.GRPO)
        return self in of_reference

    @property
    def needs_rollouts(self) -> bool:
        """Whether answers are generated before they are trained, which is not predicted.

        Passes without gradients run before the update then, so that no logits meet.
        """
        return self in (TrainingObjective.GRPO, TrainingObjective.DAPO)

    @property
    def is_preference(self) -> bool:
        """Whether it learns from judged answers."""
        return self not in (TrainingObjective.PRETRAIN, TrainingObjective.SFT)

    def forward_passes(self, *, precomputed: bool) -> tuple[int, int]:
        """Passes without gradients over the trained sequences: of the policy, of the reference.

        Those of KTO read as many sequences again that do not belong together, as trl 1.10 does
        (trl/trainer/kto_trainer.py, ``_compute_kl_logps``). ``precomputed``: the reference's were
        computed before training. On rollouts the policy's log-probabilities before the update are
        computed again, as verl 0.7 does (verl/trainer/ppo/ray_trainer.py).
        """
        if self.needs_rollouts:
            return 1, int(self.has_reference)
        if not self.has_reference:
            return 0, 0
        policy, reference = (1, 2) if self is TrainingObjective.KTO else (0, 1)
        return policy, 0 if precomputed else reference


_OF_PAIRS = (TrainingObjective.DPO, TrainingObjective.ORPO, TrainingObjective.RM)


_SAME = {
    "ipo": TrainingObjective.DPO,
    "simpo": TrainingObjective.ORPO,
    "cpo": TrainingObjective.ORPO,
    "pt": TrainingObjective.PRETRAIN,
    "gkd": TrainingObjective.SFT,
    "reward": TrainingObjective.RM,
    "ppo": TrainingObjective.GRPO,
    "rloo": TrainingObjective.GRPO,
    "gspo": TrainingObjective.GRPO,
    "gdpo": TrainingObjective.GRPO,
    "reinforce++": TrainingObjective.GRPO,
}
"""Other names, and losses that take the same passes over the same sequences."""
WITH_ROLLOUTS = ("online_dpo", "nash_md", "xpo")
"""Training on pairs of answers that an engine generates in each step."""


def objective_named(word: str) -> TrainingObjective:
    """The objective that a word of the field stands for.

    Raises
    ------
    SpecError
        It is unknown, or needs answers that are generated in each step.

    >>> str(objective_named("SimPO"))
    'orpo'
    """
    text = str(word).strip().lower().replace("-", "_")
    if text in WITH_ROLLOUTS:
        raise SpecError(
            f"{word} trains on pairs of answers that the model generates in each step (rollouts), "
            "which is not predicted: neither their time, nor their engine's memory, nor reward and "
            "value models. Known: " + ", ".join(TrainingObjective) + "."
        )
    if text in _SAME:
        return _SAME[text]
    known = [*TrainingObjective, *_SAME]
    if text not in known:
        hint = did_you_mean(text, known)
        raise SpecError(
            f"training_objective {word!r} is unknown.{hint} Known: {', '.join(TrainingObjective)}."
        )
    return TrainingObjective(text)


def is_objective(word: str) -> bool:
    """Whether a word names what training minimizes, predicted or not."""
    text = word.strip().lower().replace("-", "_")
    return text in (*TrainingObjective, *_SAME, *WITH_ROLLOUTS)
