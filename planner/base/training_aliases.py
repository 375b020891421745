"""Names of objectives, optimizers and adapters in libraries, launch files and tables of runs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import StrEnum

from planner.base.enums import AdapterTargets, OptimizerKind, StatePrecision
from planner.errors import SpecError, did_you_mean

_KINDS = {
    OptimizerKind.ADAM: ("adam", "adamw"),
    OptimizerKind.SGD: ("sgd",),
    OptimizerKind.MOMENTUM: ("momentum", "sgd_momentum"),
    OptimizerKind.LION: ("lion", "lionw"),
    OptimizerKind.ADAFACTOR: ("adafactor",),
    OptimizerKind.MUON: ("muon", "dist_muon"),
}
_BY_NAME = {name: kind for kind, names in _KINDS.items() for name in names}
_FORMATS = {
    **dict.fromkeys(("8bit", "8_bit", "8b", "int8"), StatePrecision.INT8),
    "fp8": StatePrecision.FP8,
    **dict.fromkeys(("bf16", "bfloat16"), StatePrecision.BF16),
    **dict.fromkeys(("32bit", "fp32"), StatePrecision.FP32),
}
# Suffixes of implementations; paged states are on the GPU while they fit.
_IMPLEMENTATIONS = re.compile(
    r"^(paged|fused|cpu|deepspeed|ao|decoupled)_|_(torch|hf|bnb|apex|fused|xla|npu|torchao)$"
)


_OF_TRANSFORMERS = {
    ("adam", "int8"): "adamw_8bit",
    ("lion", "framework"): "lion_32bit",
    ("lion", "fp32"): "lion_32bit",
    ("lion", "int8"): "lion_8bit",
    ("adafactor", "framework"): "adafactor",
    ("sgd", "framework"): "sgd",
}


_PAGED = {"adam": "paged_adamw", "lion": "paged_lion"}


def transformers_name(optimizer: str, state_precision: str, *, paged: bool = False) -> str | None:
    """Return the Transformers ``optim`` name of an optimizer; None: the default, or no such name.

    >>> transformers_name("adam", "int8", paged=True), transformers_name("adam", "fp32", paged=True)
    ('paged_adamw_8bit', 'paged_adamw_32bit')
    """
    if paged and optimizer in _PAGED:
        return f"{_PAGED[optimizer]}_{'8bit' if state_precision == 'int8' else '32bit'}"
    return _OF_TRANSFORMERS.get((optimizer, state_precision))


def optimizer_settings(name: str) -> Mapping[str, str]:
    """Return the training parameters of an optimizer name in a library; {} if unknown.

    >>> optimizer_settings("paged_adamw_8bit")
    {'optimizer': 'adam', 'optimizer_state_precision': 'int8', 'paged_optimizer': 'true'}
    """
    parameters = parse_optimizer(name)
    if parameters is None:
        return {}
    settings = {
        parameter: code.word
        for parameter, code in parameters.items()
        if code or parameter == "optimizer"
    }
    return settings | ({"paged_optimizer": "true"} if is_paged(name) else {})


def is_paged(name: str) -> bool:
    """Whether the states of an optimizer of this name are in unified memory."""
    return _snake_case(name).startswith("paged_")


def _snake_case(name: str) -> str:
    """A name, or a class name (PagedAdamW8bit), in snake case."""
    text = re.sub(r"[\s-]+", "_", name.strip().lower())
    return re.sub(r"^(paged|fused)(?=[a-z])|(?<=[a-z])(?=\d+bit|fp8)", r"\g<0>_", text)


def parse_optimizer(name: str) -> Mapping[str, OptimizerKind | StatePrecision] | None:
    """Return the training parameters of an optimizer name; None if unknown.

    >>> parse_optimizer("paged_adamw_8bit")["optimizer_state_precision"].word
    'int8'
    >>> parse_optimizer("PagedAdamW8bit") == parse_optimizer("paged_adamw_8bit")
    True
    >>> parse_optimizer("adamw_torch_fused")["optimizer"].word
    'adam'
    >>> parse_optimizer("lbfgs"), parse_optimizer("AdamW4bit")
    (None, None)
    """
    # Paged optimizers are bitsandbytes', in fp32 without 8bit in the name (bitsandbytes/optim).
    text = _snake_case(name)
    state_precision = StatePrecision.FP32 if is_paged(name) else StatePrecision.FRAMEWORK
    while text not in _BY_NAME:
        shorter = _IMPLEMENTATIONS.sub("", text)
        for word, code in _FORMATS.items():
            if shorter.endswith("_" + word):
                shorter, state_precision = shorter.removesuffix("_" + word), code
                break
        if shorter == text:
            return None
        text = shorter
    return {"optimizer": _BY_NAME[text], "optimizer_state_precision": state_precision}


class SavedModules(StrEnum):
    """Modules that are fully trained with an adapter: none, or embedding and logits."""

    NONE = "none"
    EMBEDDINGS = "embeddings"


class ExpertAdapters(StrEnum):
    """Adapters of routed experts where all linear layers have one.

    ``NONE``: fused experts of Transformers 5 and of gpt-oss are no linear layers, though PEFT's
    development of August 2026 finds those of Mixtral and Qwen by ``all-linear``, too.
    ``SHARED``: one for all experts of a rank (NVIDIA-NeMo/Megatron-Bridge@067f987d, peft/lora.py,
    ``share_expert_adapters``). ``EACH``: one for each, as ms-swift gives them on Megatron, and PEFT
    where modules are named (huggingface/peft@5d602fdb, utils/transformers_weight_conversion.py).
    """

    NONE = "none"
    SHARED = "shared"
    EACH = "each"


_QUERY_VALUE = {"q_proj", "v_proj", "q_b_proj", "kv_b_proj", "c_attn", "query_key_value"}
_ATTENTION = {
    *_QUERY_VALUE,
    *("k_proj", "o_proj", "out_proj", "qkv_proj", "dense", "c_proj", "wq", "wk", "wv", "wo"),
    *("q_a_proj", "kv_a_proj_with_mqa", "linear_qkv", "linear_proj"),
}
_FORWARD = ("gate", "up_proj", "down_proj", "mlp", "fc1", "fc2", "c_fc", "h_to", "w1", "linear")
_FEED_FORWARD = {
    *("gate_proj", "up_proj", "down_proj", "gate_up_proj", "fc1", "fc2", "c_fc", "w1", "w2", "w3"),
    *("dense_h_to_4h", "dense_4h_to_h", "linear_fc1", "linear_fc2", "all-linear"),
}
_EMBEDDING = {
    *("embed_tokens", "wte", "embed_in", "word_embeddings", "tok_embeddings", "embedding")
}
_ALL = AdapterTargets.ALL_LINEAR
_LOGITS = {"lm_head", "embed_out", "output_layer"}


def nearest_adapter_targets(modules: Iterable[str]) -> AdapterTargets:
    """Return the predicted LoRA target set nearest to these module names.

    >>> nearest_adapter_targets(["model.layers.0.q_proj,v_proj"]).value
    'query_value'
    >>> nearest_adapter_targets(["all-linear"]).value
    'all_linear'
    """
    names = _module_names(modules)
    if names == {"all"} or any(map(_is_forward, names)):
        return AdapterTargets.ALL_LINEAR
    return AdapterTargets.QUERY_VALUE if names <= _QUERY_VALUE else AdapterTargets.ATTENTION


_SHARED = "shared_expert"


def names_feed_forward(text: str) -> bool:
    """Return whether feed-forward modules are named one by one, not as "all linear".

    Those of shared experts alone are none that routed ones have.

    >>> names_feed_forward("q_proj,gate_proj"), names_feed_forward("all_linear")
    (True, False)
    >>> names_feed_forward("q_proj,shared_expert.gate_proj")
    False
    """
    routed = [name for name in re.split(r"[,\s]+", text) if _SHARED not in name]
    names = _module_names(routed) - {"all-linear", "all"}
    return bool(names & _FEED_FORWARD) or any(map(_is_forward, names - {str(_ALL)}))


def names_shared_experts(text: str) -> bool:
    """Whether modules of shared experts are named."""
    return _SHARED in text


def parse_adapter_targets(text: str) -> str:
    """Return the word of a LoRA target set, from the word or a list of module names.

    >>> parse_adapter_targets("q_proj,k_proj,v_proj,o_proj"), parse_adapter_targets("q_prj")
    ('attention', 'q_prj')
    """
    names = _module_names([text])
    is_complete = names <= _ATTENTION | _FEED_FORWARD
    return str(nearest_adapter_targets(names)) if names and is_complete else text


def served_targets(text: str | None) -> AdapterTargets:
    """Return the matrices with LoRA slots in an engine, from a word or module names.

    All where nothing is given. Raises ValueError if a name is unknown.

    >>> served_targets("qkv_proj,o_proj").value, served_targets(None).value
    ('attention', 'all_linear')
    """
    return AdapterTargets(parse_adapter_targets(text)) if text else AdapterTargets.ALL_LINEAR


def saved_modules(text: str | None) -> str:
    """Return the word of the modules trained fully besides LoRA; unknown names are unchanged.

    >>> saved_modules("embed_tokens,lm_head"), saved_modules(None), saved_modules("mlp")
    ('embeddings', 'none', 'mlp')
    """
    names = _module_names([text or ""])
    if not names:
        return str(SavedModules.NONE)
    return str(SavedModules.EMBEDDINGS) if names <= _EMBEDDING | _LOGITS else str(text)


def is_one_end(text: str | None) -> bool:
    """Return whether the names are of the embedding alone or of the logits alone.

    >>> is_one_end("lm_head"), is_one_end("embed_tokens,lm_head"), is_one_end(None)
    (True, False, False)
    """
    names = _module_names([text or ""])
    return bool(names) and (names <= _EMBEDDING or names <= _LOGITS)


def _is_forward(name: str) -> bool:
    return name not in _ATTENTION and any(word in name for word in _FORWARD)


def _module_names(modules: Iterable[str]) -> set[str]:
    """Last parts of module names that commas or spaces separate."""
    parts = (word for each in modules for word in each.replace(",", " ").split())
    return {word.strip("[]'\", ").rsplit(".", 1)[-1] for word in parts} - {""}


class TrainingObjective(StrEnum):
    """Training objective, which sets the passes of a sample.

    ``PRETRAIN`` and ``SFT``: cross-entropy of next tokens, in SFT of a model that is trained
    already. From a chosen and a rejected answer: ``DPO`` [1]_ (and IPO, which computes the same),
    ``ORPO`` [2]_ (and SimPO, CPO: no reference model), ``RM``, a reward model with one number in
    place of the logits. ``KTO`` [3]_: one answer, and another one that does not belong to its
    prompt, whose divergence is estimated without gradients.

    From answers that an engine generated: ``GRPO`` [4]_ (and PPO, RLOO, GSPO: the same passes of
    the policy), with a pass for the log-probabilities before the update and one of a reference
    model; ``DAPO`` [5]_, without a reference model. The training step is predicted: neither
    generation nor reward and value models.

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
        """Number of trained sequences per sample."""
        return 2 if self in _OF_PAIRS else 1

    @property
    def has_reference(self) -> bool:
        """Whether log-probabilities of a reference model are needed."""
        of_reference = (TrainingObjective.DPO, TrainingObjective.KTO, TrainingObjective.GRPO)
        return self in of_reference

    @property
    def needs_rollouts(self) -> bool:
        """True if answers are generated before each update (RL).

        Passes without gradients run before the update then, so that no logits meet.
        """
        return self in (TrainingObjective.GRPO, TrainingObjective.DAPO)

    @property
    def is_preference(self) -> bool:
        """Whether it trains on preference data."""
        return self not in (TrainingObjective.PRETRAIN, TrainingObjective.SFT)

    def forward_passes(self, *, precomputed: bool) -> tuple[int, int]:
        """Return forward-only passes per sequence: (policy, reference model).

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


class AdapterSync(StrEnum):
    """How the rollout engine receives low-rank adapters that are trained.

    ``ADAPTER``: only the adapters, which it applies with its own weights. ``MERGED``: all weights,
    with the adapters merged into them.
    """

    ADAPTER = "adapter"
    MERGED = "merged"


class Algorithm(StrEnum):
    """Reinforcement learning algorithm of generated answers; see `TrainingObjective`.

    ``RLOO`` [1]_ takes the passes of GRPO; ``PPO`` [2]_ has a critic.

    References
    ----------
    .. [1] A. Ahmadian et al., "Back to basics," 2024, arXiv:2402.14740.
    .. [2] J. Schulman et al., "Proximal policy optimization," 2017, arXiv:1707.06347.
    """

    GRPO = "grpo"
    DAPO = "dapo"
    RLOO = "rloo"
    PPO = "ppo"


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


def parse_objective(word: str) -> TrainingObjective:
    """Return the training objective of a common name such as "SimPO".

    Raises SpecError if it is unknown, or needs answers that are generated in each step.

    >>> str(parse_objective("SimPO"))
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
    choices = [*TrainingObjective, *_SAME]
    if text not in choices:
        hint = did_you_mean(text, choices)
        raise SpecError(
            f"training_objective {word!r} is unknown.{hint} Known: {', '.join(TrainingObjective)}."
        )
    return TrainingObjective(text)


def is_objective(word: str) -> bool:
    """Whether a word names a training objective, predicted or not."""
    text = word.strip().lower().replace("-", "_")
    return text in (*TrainingObjective, *_SAME, *WITH_ROLLOUTS)
