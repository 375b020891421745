"""PaddleNLP and PaddleFormers: ``run_finetune.py config.json``, which is read and not written.

Source: PaddlePaddle/PaddleNLP at 003873a, ``paddlenlp/trainer/training_args.py``, ``llm/config``
and ``llm/docs/finetune.md`` for defaults; PaddlePaddle/PaddleFormers at 14435de,
``examples/config``, whose degrees are sizes and whose ``fine_tuning`` says what is trained.

Of 20 runs of PaddleNLP that FlagPerf publishes Megatron-LM is nearest: 1.05 to 1.39 times their
speed and 0.66 to 1.26 times their memory.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from math import prod

from planner.errors import SpecError
from planner.launch.imported import MODEL_SPLITS
from planner.launch.option_table import is_document
from planner.launch.target import Target, gathered
from planner.launch.targets.trained import put_objective, require_ranks
from planner.launch.trainer.said import objective_of_word
from planner.launch.understood import (
    Answers,
    Gathered,
    Reading,
    flag,
    gpus_of,
    number,
    told,
    worded,
)

_WHOLE, _SPLIT_ADAPTERS, _ADAPTERS = "Megatron-LM", "Megatron-Bridge", "HF Trainer"
_PROGRAM = re.compile(r"run_(finetune|pretrain|dpo|kto|rm|sft|reward|rl)\w*\.py")
_COMMANDS = ("paddleformers-cli", "erniekit")
_FILES = (".json", ".yaml", ".yml")
# Of adapters, and what they are called where they are none that is predicted.
_OTHERS = ("lokr", "vera", "reft", "longlora", "lorapro", "mora", "loraga", "dislora", "hqlora")
_FOUR_BITS = ("nf4", "fp4", "weight_only_int4", "wint4", "wint4/8")
_EIGHT_BITS = ("weight_only_int8", "wint8")
_PREFIX_TOKENS, _RANK, _BATCH = 128, 8, 8
_NAMED = ("pretrain", "dpo", "kto", "rm", "reward", "grpo", "ppo")
_LENGTHS = ("max_seq_length", "max_length", "max_seq_len")
_DEGREES = (*MODEL_SPLITS, "expert_parallel")


def starts(words: Sequence[str]) -> bool:
    """Whether a command starts it.

    >>> starts(["run_finetune.py", "config/llama/sft_argument.json"])
    True
    >>> starts(["paddleformers-cli", "train", "full.yaml"]), starts(["run_finetune.py", "--help"])
    (True, False)
    """
    own = [word.rpartition("/")[2] for word in words if not word.startswith("-")]
    if own[:1] and own[0] in _COMMANDS:
        return own[1:2] == ["train"]
    has_own = is_document("paddlenlp", {word.lstrip("-").partition("=")[0]: "" for word in words})
    has_file = any(word.endswith(_FILES) for word in own[1:2])
    return bool(own) and bool(_PROGRAM.fullmatch(own[0])) and (has_file or has_own)


def answers(reading: Reading) -> Answers:
    """What a configuration says, or a command with the one that it names.

    Raises
    ------
    LaunchError
        The GPUs cannot be split as it says.
    SpecError
        It trains something that is not predicted.
    """
    found = worded(reading.found)
    files = {name: option for file in found.files.values() for name, option in file.options.items()}
    plain = {name.lstrip("-"): option for name, option in found.options.items()}
    reading = TARGET.reading(replace(found, options={**files, **plain}))
    answer = gathered(reading, "PaddleNLP")
    values = answer.values
    for name in ("model", "sequence_length"):
        if name not in values:
            answer.ask(name)
    values |= {name: max(int(values.get(name, 1)), 1) for name in _DEGREES}
    values |= {"mtp_num_layers": 0, "sequence_parallel": flag(reading, "sequence_parallel")}
    if number(reading, "sep_parallel_degree", "sep_parallel_size") not in (None, 1):
        values["cp_comm_type"] = "a2a"
    _trained(reading, answer)
    _kernels(reading, answer)
    _batch(reading, answer)
    _objective(reading, answer)
    known = TARGET.table.used | {row.option for row in TARGET.table.rows}
    used = {name for name in found.options if name.lstrip("-") in known}
    unread = {name for name in found.options if not name.startswith("-")} - used
    return answer.made(used=frozenset(used), unread=frozenset(unread))


def _trained(reading: Reading, found: Gathered) -> None:
    """All weights, adapters or virtual tokens, and the profile that is nearest."""
    values = found.values
    other = next((name for name in _OTHERS if flag(reading, name)), None)
    if other is not None:
        raise SpecError(
            f"{reading.place}: {other} of PaddleNLP is not predicted: lora, prefix_tuning and all "
            "weights are."
        )
    is_split = any(values[name] > 1 for name in _DEGREES)
    kind = told(reading, "compute_type", "weight_quantize_algo") or ""
    if flag(reading, "lora") or told(reading, "fine_tuning") == "lora":
        values["adapter"] = "qlora" if kind in _FOUR_BITS else "lora"
        found.assume("lora_rank", _RANK, f"no lora_rank: {_RANK} is PaddleNLP's")
        found.assume("lora_targets", "all_linear", "PaddleNLP adapts every matrix of a layer")
    elif flag(reading, "prefix_tuning"):
        values["adapter"] = "prefix"
        values["virtual_tokens"] = number(reading, "num_prefix_tokens") or _PREFIX_TOKENS
    else:
        values["adapter"] = "none"
    if kind in _EIGHT_BITS:
        found.notes.append("Weights in 8 bits are not predicted: they are taken as 16 bits.")
    if values["adapter"] == "none":
        values["framework"] = _WHOLE
    else:
        values["framework"] = _SPLIT_ADAPTERS if is_split else _ADAPTERS
    if "freeze_vision" in (told(reading, "freeze_config") or ""):
        values["freeze_vision_tower"] = True


def _kernels(reading: Reading, found: Gathered) -> None:
    """What is repeated, sharded and moved, and the kernels."""
    values = found.values
    part = told(reading, "recompute_granularity")
    repeats = flag(reading, "recompute", default=reading.has("fine_tuning") and part is not None)
    values["recompute"] = ("full" if part in (None, "full") else "selective") if repeats else "none"
    words = (told(reading, "sharding") or "").split()
    stage = next((int(word[-1]) for word in words if word[:-1] == "stage"), 0)
    values["zero_stage"] = stage
    away = "offload" in words or flag(reading, "tensorwise_offload_optimizer", "offload_optim")
    values["offload"] = "optimizer" if away else "none"
    kernel = told(reading, "_attn_implementation", "attn_impl")
    usual = reading.has("fine_tuning")
    is_flash = flag(reading, "use_flash_attention", default=usual) or flag(reading, "flash_mask")
    values["flash_attention"] = kernel != "eager" if kernel else is_flash
    if "dualpipe" in (told(reading, "pipeline_parallel_config") or ""):
        found.notes.append("use_dualpipev is predicted as one forward, one backward pass in turn.")
    if flag(reading, "use_fused_head_and_loss_fn"):
        values["loss_kernel"] = "linear"
    kind = told(reading, "compute_type")
    if kind is not None and (kind == "fp8" or not (reading.has("bf16") or reading.has("fp16"))):
        values["precision"] = "fp8" if kind == "fp8" else "bf16"  # ERNIEKit's has no other flag
        found.defaults.pop("precision", None)


def _batch(reading: Reading, found: Gathered) -> None:
    """GPUs, and the sequences of a step."""
    values = found.values
    found.assume("micro_batch_size", _BATCH, f"no batch given: {_BATCH} is PaddleNLP's")
    gpus = gpus_of(reading.found.world)
    shards = number(reading, "sharding_parallel_degree", "sharding_parallel_size")
    if gpus is None and shards not in (None, 1):
        gpus = prod(values[name] for name in MODEL_SPLITS) * (shards or 1)
        found.assume("num_gpus", gpus, "its degrees fill them with one copy")
    if gpus is None:
        found.ask("num_gpus")
        return
    values["num_gpus"] = gpus
    ranks = gpus // require_ranks(reading, found, gpus)
    if shards and values["zero_stage"] and 1 < shards < ranks and ranks % shards == 0:
        found.notes.append(
            f"Its states are sharded over {shards} of {ranks} ranks; they are predicted over all."
        )
    steps = number(reading, "gradient_accumulation_steps") or 1
    values["global_batch_size"] = int(values["micro_batch_size"]) * steps * ranks
    total, length = number(reading, "max_steps"), number(reading, *_LENGTHS)
    if total and length:
        values["total_tokens"] = total * values["global_batch_size"] * length


def _objective(reading: Reading, found: Gathered) -> None:
    """By its key or its program, else by the name of the file or what only pretraining has."""
    name = reading.found.name
    stage = (told(reading, "stage", "rl_algorithm") or "").rpartition("-")[2]
    programs = [one.single or "" for one in reading.found.positional]
    parts = [one for text in (*programs, name) for one in re.split(r"[^a-z0-9]+", text.lower())]
    named = next((part for part in parts if part in _NAMED), None)
    word = stage or named or ("pretrain" if reading.has("input_dir") else "sft")
    objective = objective_of_word(word, name)
    if objective.needs_rollouts:
        weights = map(reading.amount, ("kl_loss_coeff", "kl_coeff"))
        put_objective(found, any((one or 0) > 0 for one in weights))
        found.notes.append("Its batches are of rollouts: a step of one update is predicted.")
    else:
        found.values["training_objective"] = str(objective)


TARGET = Target.of("paddlenlp", answers=answers, starts=starts)
