"""Translate options of LLaMA-Factory to those of the Trainer.

Sources: hiyouga/LLaMA-Factory at ff6d4d1, ``src/llamafactory/hparams`` (``finetuning_args.py``,
``model_args.py``, ``data_args.py``, ``training_args.py``) and ``model/model_utils``
(``checkpointing.py``): every layer is recomputed unless ``disable_gradient_checkpointing`` is set.
Its v1 (``USE_V1=1``) has a trainer and options of its own: ``src/llamafactory/v1/config``,
``core/base_trainer.py`` and ``core/model_engine.py``, which trains whole models in fp32 weights.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import replace

from planner.documents.shell.edits import implied_option
from planner.errors import SpecError
from planner.launch.option_table import OptionAliasTable, OptionTable
from planner.launch.read.expression_rows import derive_options, parse_parameters
from planner.launch.read.hf_trainer.option_sources import (
    OptionSources,
    apply_program_defaults,
    parse_positive_int,
    text_of,
    translate_options,
)
from planner.launch.read.parsed_launch import LaunchSettings, total_gpus
from planner.question.terms import terms_about

_FACTORY_ONLY_KEYS = {
    *("finetuning_type", "cutoff_len", "template", "dataset_dir", "pref_loss", "lora_target")
}
_DEGREES = terms_about("parallel_degree", "train")
_STAGES = ("pt", "sft", "rm", "ppo", "dpo", "kto")
_PROGRAMS = ("llamafactory-cli", "lmf")
_UNPREDICTED = (
    *("use_galore", "use_apollo", "use_badam", "use_llama_pro", "use_mca", "use_adam_mini"),
    *("use_asft_loss", "use_kt", "use_hyper_parallel", "mixture_of_depths"),
)
LLAMA_FACTORY = OptionAliasTable.load("llama-factory")
"""LLaMA-Factory's options with those of the Trainer, TRL and Megatron that they stand for."""
V1 = OptionAliasTable.load("llama-factory-v1")
"""The same for LLaMA-Factory's v1."""
_V1_COMMANDS = ("train", "sft", "dpo", "rm")


def is_llama_factory_document(values: Mapping[str, object]) -> bool:
    """Return whether a document has LLaMA-Factory's arguments.

    >>> is_llama_factory_document({"stage": "sft", "finetuning_type": "lora"})
    True
    """
    return len(_FACTORY_ONLY_KEYS & set(values)) >= 1 + (values.get("stage") not in _STAGES)


def is_llama_factory(sources: OptionSources) -> bool:
    """Return whether the gathered options belong to LLaMA-Factory."""
    if any(word.rpartition("/")[2] in _PROGRAMS for word in sources.words[:1]):
        return True
    stage = sources.script.get("--stage")
    values = {name.removeprefix("--"): "" for name in sources.script}
    return is_llama_factory_document(values | {"stage": stage.single if stage else ""})


def translate_factory_options(sources: OptionSources, name: str) -> dict[str, str]:
    """Translate LLaMA-Factory's keys to the Trainer's; return reasons of defaults.

    Raises SpecError if it trains something that is not predicted.
    """
    _refuse_unpredicted(sources, name)
    script = sources.script
    translate_options(sources, LLAMA_FACTORY)
    for option in ("--lora_target", "--lora_modules_to_save"):
        if modules := sources.text(option):
            script[option] = script[option].with_value(" ".join(modules.replace(",", " ").split()))
    derive_options(script, LLAMA_FACTORY)
    return apply_program_defaults(sources, LLAMA_FACTORY)


def _refuse_unpredicted(sources: OptionSources, name: str) -> None:
    """Raise SpecError if a LLaMA-Factory file trains by a method that is not predicted."""
    finetuning_type = sources.text("--finetuning_type")
    off_texts = (None, "false", "null", "none")
    unpredicted = next(
        (key for key in _UNPREDICTED if sources.text(f"--{key}") not in off_texts), None
    )
    if finetuning_type == "freeze" and unpredicted is None:
        unpredicted = _unpredicted_freezing(sources)
        finetuning_type = "full"
    if finetuning_type in (None, "lora", "full") and unpredicted is None:
        return
    training = (
        f"finetuning_type: {finetuning_type}"
        if unpredicted is None
        else f"{unpredicted}: {sources.text(f'--{unpredicted}')}"
    )
    raise SpecError(
        f"{name}: LLaMA-Factory's {training} is not predicted, as it trains or keeps other "
        "parameters: finetuning_type lora and full are, and freeze of whole last layers."
    )


def _unpredicted_freezing(sources: OptionSources) -> str | None:
    """Return the key that trains anything but whole layers at the end; None if there is none."""
    layers = sources.text("--freeze_trainable_layers")
    if layers is not None and not parse_positive_int(layers):
        return "freeze_trainable_layers"
    if sources.text("--freeze_trainable_modules") not in (None, "all"):
        return "freeze_trainable_modules"
    is_more = sources.text("--freeze_extra_modules") not in (None, "null", "")
    return "freeze_extra_modules" if is_more else None


def with_megatron_options(settings: LaunchSettings, sources: OptionSources) -> LaunchSettings:
    """Return the settings with Megatron-Core's parallelism, if the file sets it.

    Both backends, Megatron Bridge and ``mcore_adapter``, take the Trainer's batch options.
    """
    megatron_names = {
        name for name in LLAMA_FACTORY.of("is").values() if "-" in name.removeprefix("--")
    }
    options = {name: text_of(option) for name, option in sources.script.items() if "-" in name[2:]}
    if not megatron_names & set(options):
        return settings
    table = OptionTable.load("megatron-lm")
    megatron_values = parse_parameters(
        {meaning.parameter: meaning for meaning in table.read(options).values()}
    )
    sizes = {name: parse_positive_int(str(megatron_values.get(name))) or 1 for name in _DEGREES}
    values = {
        **settings.values,
        **megatron_values,
        **sizes,
        "zero_stage": megatron_values.get("zero_stage", "0"),
    }
    is_adapted = values["adapter"] != "none"
    values["framework"] = "Megatron-Bridge" if is_adapted else "Megatron-LM"
    values.pop("reduce_bucket_size", None)
    num_gpus, micro_batch = (
        parse_positive_int(str(values.get("num_gpus"))),
        values["micro_batch_size"],
    )
    steps = parse_positive_int(sources.text("--gradient_accumulation_steps")) or 1
    ranks = math.prod(sizes[name] for name in terms_about("model_parallel", "train"))
    if num_gpus is not None and num_gpus % ranks == 0:
        values["global_batch_size"] = micro_batch * steps * (num_gpus // ranks)
    defaults = {
        name: reason
        for name, reason in settings.defaults.items()
        if name not in ("recompute", *megatron_values)
    }
    note = "Its keys of Megatron are read as Megatron-LM's, as with USE_MCA=1."
    return replace(settings, values=values, defaults=defaults, notes=(*settings.notes, note))


def translate_v1_options(sources: OptionSources, name: str) -> dict[str, str]:
    """Translate the keys of LLaMA-Factory v1 to the Trainer's; return reasons of defaults.

    Raises SpecError if it trains something that is not predicted.
    """
    adapter, script = sources.text("--peft_config.name"), sources.script
    if adapter not in (None, "lora", "null"):
        raise SpecError(
            f"{name}: LLaMA-Factory's peft_config of {adapter} is not predicted, as it trains "
            "other parameters. lora, and no peft_config, are."
        )
    # The command names the stage, else the name of the file, else a preference loss.
    words = [*sources.words[1:2], *re.split(r"[^a-z0-9]+", name.lower())]
    stages = (word for word in words if word in _V1_COMMANDS[1:])
    stage = next(stages, "dpo" if "--pref_loss" in script else "sft")
    script.setdefault("--stage", implied_option("--stage", stage))
    translate_options(sources, V1)
    replicas_key = "parallelism_config.parallelism_config_dp_replicate_size"
    if replicate_option := script.get("--mp_replicate_size"):
        sources.put(sources.accelerate, replicas_key, replicate_option)
    derive_options(script, V1, num_gpus=total_gpus(sources.worlds[0]))
    return apply_program_defaults(sources, V1)
