"""The answers that options of Trainer, DeepSpeed and accelerate give together."""

from __future__ import annotations

import re
from functools import cache

from planner.base.adapter_names import ExpertAdapters, is_one_end, names_feed_forward, targets_of
from planner.base.optimizer_names import optimizer_of
from planner.base.training_objectives import TrainingObjective
from planner.launch.option_table import OptionTable
from planner.launch.trainer.batch import batch_said, split_said
from planner.launch.trainer.images import IMAGE_OPTIONS, images_said
from planner.launch.trainer.objective import OBJECTIVE_OPTIONS, objective_said
from planner.launch.trainer.said import Collected, Said, whole
from planner.launch.trainer.states import (
    buckets_said,
    framework_said,
    kernels_said,
    precision_said,
    states_said,
)
from planner.launch.understood import Answers
from planner.workloads.run_length import UNKNOWN_TOKENS

_TRL_LENGTH = 1024
UNPACKED = (
    "Without packing sequences are shorter than {option}: steps are faster and smaller than "
    "predicted, and hold fewer tokens."
)
_EPOCHS = 3
_PART = re.compile(r"\[:(\d+)\]$")
_RANKS = {True: 16, False: 8}
_LORA_FLAGS = ("--use_lora", "--lora", "--lora_enable", "--use_peft_lora", "--enable_lora")
_QLORA_FLAGS = ("--q_lora", "--qlora", "--load_in_4bit", "--use_4bit_quantization", "--use_4bit")
_IN_8_BITS = ("--load_in_8bit", "--use_8bit_quantization")
_OFF = ("false", "auto", "null", "none", "no", "NO")
_BITS = ("--bits", "--quantization_bit")
_MODELS = ("--model_name_or_path", "--model_name", "--base_model", "--model", "--config_name")


def answered(said: Said, name: str = "") -> Answers:
    """The answers of a script and the files beside it; ``name`` is that of the file.

    Raises
    ------
    LaunchError
        Batch sizes or GPUs contradict each other.
    SpecError
        What it trains is not predicted.
    """
    found = Collected()
    _model(said, found)
    objective_said(said, found, name)
    _adapter(said, found)
    images_said(said, found)
    split_said(said, found)
    batch_said(said, found)
    _length(said, found)
    states_said(said, found)
    buckets_said(said, found)
    kernels_said(said, found)
    precision_said(said, found)
    framework_said(said, found)
    _optimizer(said, found)
    _told(said, found)
    told = {
        option
        for source in (said.script, said.deepspeed, said.accelerate)
        for meaning in source.values()
        for option in meaning.options
    }
    told |= {name.removeprefix("--") for name in (*_MODELS, *_LORA_FLAGS, *_QLORA_FLAGS)}
    told |= {name.removeprefix("--") for name in (*OBJECTIVE_OPTIONS, *IMAGE_OPTIONS)}
    told |= {
        "deepspeed",
        "fsdp",
        "fsdp_config",
        "bits",
        "num_train_epochs",
        "max_samples",
        "dataset_train_split",
    }
    # What is switched off, or left to others, says that it has no part in it.
    told |= {
        name.removeprefix("--") for name, text in said.texts.items() if text in _OFF
    } & _known()
    used = frozenset(said.spelled[name] for name in told if name in said.spelled)
    return Answers(
        workload="train",
        values=found.values,
        used=used,
        defaults=found.defaults,
        asked=tuple(found.asked),
        notes=tuple(found.notes),
    )


@cache
def _known() -> frozenset[str]:
    tables = (OptionTable.load(name) for name in ("transformers", "deepspeed", "accelerate"))
    return frozenset().union(*(table.options for table in tables))


def _model(said: Said, found: Collected) -> None:
    for option in _MODELS:
        if name := said.texts.get(option):
            found.values["model"] = name
            return
    found.ask("model")


def _adapter(said: Said, found: Collected) -> None:
    kind = said.of("script", "adapter") or "none"
    four_bits = said.is_on(*_QLORA_FLAGS) or "4" in map(said.texts.get, _BITS)
    is_factory = said.texts.get("--finetuning_type") == "lora"
    if kind == "none" and (said.is_on(*_LORA_FLAGS) or is_factory):
        kind = "lora"
    if kind == "none" and not said.is_supervised:
        rank = said.number("script", "lora_rank")
        kind = "lora" if rank else "none"
    if four_bits and (kind != "none" or not said.is_supervised):
        kind = "qlora"
    # Transformers leaves out modules of multi-token prediction.
    found.values |= {"adapter": kind, "mtp_num_layers": 0}
    if said.is_on(*_IN_8_BITS) or "8" in map(said.texts.get, _BITS):
        found.notes.append("Weights in 8 bits are not predicted: they are taken as 16 bits.")
    if kind == "none":
        return
    if saved := said.of("script", "saved_modules"):
        found.values["modules_to_save"] = "embeddings"
        if is_one_end(saved):
            found.notes.append(f"{saved} alone is not predicted: embedding and logits are counted.")
    if kind == "qlora":
        _scales(said, found)
    rank = said.number("script", "lora_rank")
    if rank is None:
        default = _RANKS[said.is_supervised]
        found.default("lora_rank", default, f"no rank is given: {default} is the library's")
    else:
        found.values["lora_rank"] = rank
    modules = said.of("script", "lora_modules")
    if modules is None:
        reason = "no matrices are named: peft takes queries and values of most models"
        found.default("lora_targets", "query_value", reason)
    else:
        found.values["lora_targets"] = lora_targets(modules.split())
        if names_feed_forward(modules):
            found.values["expert_adapters"] = str(ExpertAdapters.EACH)


def _scales(said: Said, found: Collected) -> None:
    """Whether the scales of 4-bit weights are quantized too."""
    told = said.of("script", "double_quantization")
    if told == "false":
        found.values["double_quantization"] = False
    elif told is None and said.is_supervised:
        reason = "no --use_bnb_nested_quant: TRL leaves the scales in 32 bits"
        found.default("double_quantization", False, reason)


def lora_targets(modules: list[str]) -> str:
    """The nearest set of matrices that is predicted.

    >>> lora_targets(["q_proj", "v_proj"]), lora_targets(["all-linear"])
    ('query_value', 'all_linear')
    """
    return str(targets_of(modules))


def _length(said: Said, found: Collected) -> None:
    length = said.number("script", "trl_length") or said.number("script", "block_length")
    if length is not None:
        found.values["sequence_length"] = length
        if said.is_supervised and said.of("script", "packing") != "true":
            found.notes.append(UNPACKED.format(option="--max_length"))
    elif said.is_supervised and not said.is_hidden("--max_length"):
        reason = "no --max_length: 1,024 tokens are TRL's"
        found.default("sequence_length", _TRL_LENGTH, reason)
    else:
        found.ask("sequence_length")
    steps, batch = said.number("script", "training_steps"), found.values.get("global_batch_size")
    length = found.values.get("sequence_length")
    if steps and batch and length:
        found.values["total_tokens"] = steps * batch * length * _sequences(found)
    else:
        _samples(said, found)


def _samples(said: Said, found: Collected) -> None:
    """Samples of all data sets and how often they are trained, as far as the file tells them.

    LLaMA-Factory's ``max_samples`` is of each data set (0.9, hparams/data_args.py).
    """
    epochs = said.texts.get("--num_train_epochs")
    part = _PART.search(said.texts.get("--dataset_train_split") or "")
    each = whole(said.texts.get("--max_samples")) or whole(part[1] if part else None)
    if epochs is not None and _is_positive(epochs):
        found.values["epochs"] = float(epochs)
    elif each is not None:
        found.default("epochs", _EPOCHS, f"no num_train_epochs: {_EPOCHS} are the Trainer's")
    if each is not None:
        sets = (said.texts.get("--dataset") or "").count(",") + 1
        found.values["num_samples"] = each * sets
    elif found.values.get("training_objective") == TrainingObjective.PRETRAIN:
        # Weights that are trained on are not trained on all that they were once trained on.
        reason = "its samples are not in the file: time and cost are of a billion tokens"
        found.default("total_tokens", UNKNOWN_TOKENS, reason)


def _is_positive(text: str) -> bool:
    try:
        return float(text) > 0
    except ValueError:
        return False


def _sequences(found: Collected) -> int:
    """Sequences of a sample."""
    objective = found.values.get("training_objective")
    return TrainingObjective(objective).sequences_per_sample if objective else 1


def _optimizer(said: Said, found: Collected) -> None:
    name = said.of("script", "optimizer_name")
    if name is None:
        return
    known = optimizer_of(name)
    if known is None:
        found.notes.append(f"The optimizer {name} is taken as Adam.")
        return
    found.values.update({parameter: code.word for parameter, code in known.items() if code})


def _told(said: Said, found: Collected) -> None:
    if said.unknown:
        names = ", ".join(said.unknown[:5])
        found.notes.append(f"DeepSpeed lets pass what it does not know: {names} does nothing.")
    if "auto" in said.texts.values() and not said.has_script:
        names = ", ".join(name for name, text in said.texts.items() if text == "auto")
        found.notes.append(
            f'"auto" is set by the script\'s arguments, which are not here: {names}.'
        )
