"""Megatron-DeepSpeed: ``pretrain_gpt.py`` of the fork, with its ``ds_config.json``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from planner.documents.shell.edits import ParsedOption, implied_option
from planner.errors import LaunchError
from planner.launch.benchmark import training_draft
from planner.launch.hf_trainer.write_script import json_file, nested
from planner.launch.option_table import (
    OptionAliasTable,
    OptionTable,
    OptionTexts,
    ParameterNote,
    Quantities,
)
from planner.launch.parsed_launch import LaunchSettings, OptionReader, ParsedCommand, parse_int
from planner.launch.target import CommandWords, LaunchDraft, LaunchJob, LaunchTarget, ShellVariable
from planner.launch.targets import megatron_lm
from planner.launch.targets.megatron_reader import is_deepspeed, read_megatron
from planner.launch.targets.megatron_shape import shape_words, strange_parts

_PROGRAMS = ("pretrain_gpt.py", "finetune_llama.py", "pretrain_llama.py")
_DIALECT = OptionAliasTable.load("megatron-deepspeed")
_OFFLOADED = ("cpu", "nvme")
_FEWEST_EXPERTS = 2
_EVERY = 2


def matches_command(words: Sequence[str]) -> bool:
    """Whether a command starts a fork of Megatron-DeepSpeed.

    >>> matches_command(["finetune_llama.py", "--deepspeed_config", "ds.json", "--model_name", "x"])
    False
    """
    is_program = any(word.rpartition("/")[2] in _PROGRAMS for word in words[:3])
    # A checkpoint of Hugging Face is none of a program whose options tell sizes.
    return is_program and is_deepspeed(words) and "--model_name" not in words


def read_settings(reading: OptionReader) -> LaunchSettings:
    """What such a command says.

    Raises LaunchError if it contradicts itself, or the number of GPUs.
    """
    found = reading.command
    config = _config(found)
    options = _translated(found, config)
    inner = OptionReader.of(replace(found, options=options), OptionTable.load("megatron-lm"))
    read = read_megatron(inner, "Megatron-DeepSpeed")
    own, notes = OptionTable.load("megatron-deepspeed"), list(read.notes)
    values = {name: value for name, value in read.values.items() if own.can_say(name, value)}
    values["zero_stage"], told = _zero(reading, config, str(values["precision"]))
    values["flash_attention"] = str("--use-flash-attn" in options).lower()
    if kernel := reading.value("attention_kernel"):
        values["attention_kernel"] = kernel
    values["offload"] = _offload(reading, config)
    if str(values.get("context_parallel", 1)) != "1":
        values["cp_comm_type"] = "a2a"  # --ds-sequence-parallel-size
    defaults = {name: text for name, text in read.defaults.items() if name not in _DECIDED}
    return replace(
        read,
        values=values,
        defaults=defaults,
        used_options=read.used_options
        | ((_DIALECT.names("is") | _DIALECT.names("used")) & frozenset(found.options)),
        notes=(*notes, *told),
    )


_DECIDED = ("zero_stage", "flash_attention")


def _config(command: ParsedCommand) -> Mapping[str, ParsedOption]:
    """The keys of its ``ds_config.json``; none where that is not there."""
    given = command.options.get("--deepspeed_config") or command.options.get("--deepspeed-config")
    text = given.texts[0] if given is not None and given.texts else None
    document = command.files.get(text) if text is not None else None
    return {} if document is None else document.options


def _translated(
    command: ParsedCommand, config: Mapping[str, ParsedOption]
) -> dict[str, ParsedOption]:
    """Arguments as Megatron-LM spells them; those of the configuration where nothing else is."""
    options: dict[str, ParsedOption] = {}
    renamed = _DIALECT.of("is")
    for each in (*command.options.values(), *command.unknown):
        name = renamed.get(each.option, each.option)
        options[name] = replace(each, option=name)
    for key, name in _DIALECT.of("config").items():
        if key in config and name not in options:
            options[name] = replace(config[key], option=name)
    for precision in ("bf16", "fp16"):
        is_open = not {"--bf16", "--fp16"} & set(options)
        if is_open and _is_true(config.get(f"{precision}.enabled")):
            options[f"--{precision}"] = _flag(f"--{precision}")
    for name in ("--fp8-hybrid", "--fp8-e4m3"):
        if name in options:
            named = replace(options[name], option="--fp8-format")
            options["--fp8-format"] = named.with_value(name.removeprefix("--fp8-"))
    groups = options.get("--num-key-value-heads")
    if groups is not None:
        options["--num-query-groups"] = replace(groups, option="--num-query-groups")
        options["--group-query-attention"] = _flag("--group-query-attention")
    _correct(options)
    layers = parse_int(options.get("--num-layers"))
    every = parse_int(options.get("--expert-interval")) or _EVERY  # second one has experts
    if "--num-experts" in options and layers and every > 1:
        name = "--moe-layer-freq"
        options[name] = implied_option(name, f"([0]*{every - 1}+[1]*1)*{layers // every}")
    return options


def _correct(options: dict[str, ParsedOption]) -> None:
    """Where the same name means something else."""
    experts = parse_int(options.get("--num-experts"))
    if experts is not None and experts < _FEWEST_EXPERTS:
        del options["--num-experts"]
    norm = options.get("--normalization")
    if norm is not None and norm.texts:
        spelled = "RMSNorm" if norm.texts[0] == "rmsnorm" else "LayerNorm"
        options["--normalization"] = replace(norm, texts=(spelled,))
    rotary = {"--use-rotary-position-embeddings", "--position-embedding-type"}
    if "--no-position-embedding" in options and not rotary & set(options):
        name = "--position-embedding-type"
        options[name] = implied_option(name, "none")
    if "--enable-expert-tensor-parallelism" not in options:
        name = "--expert-tensor-parallel-size"
        options[name] = implied_option(name, "1")
    if "--topk" not in options and "--num-experts" in options:
        name = "--moe-router-topk"
        options.setdefault(name, implied_option(name, "1"))


def _flag(name: str) -> ParsedOption:
    return ParsedOption(option=name, texts=(), line=1, spans=(), full_span=None)


def _text(option: ParsedOption | None) -> str:
    return "" if option is None else option.single or ""


def _is_true(option: ParsedOption | None) -> bool:
    return _text(option).lower() == "true"


def _zero(
    reading: OptionReader, config: Mapping[str, ParsedOption], precision: str
) -> tuple[str, tuple[str, ...]]:
    """The stage, and what is to be said of it: the configuration decides over the argument."""
    told = _text(config.get("zero_optimization.stage")) or _text(
        reading.command.options.get("--zero-stage")
    )
    notes: tuple[str, ...] = ()
    if told.isdecimal():
        stage = told
    else:
        stage, notes = "1", ("ZeRO stage unknown: 1 is assumed.",)
    if stage == "0" and precision == "bf16" and reading.has("--deepspeed"):
        note = "Stage 0 with bf16: DeepSpeed's BF16_Optimizer shards as ZeRO 1, which is taken."
        return "1", (*notes, note)
    return stage, notes


def _offload(reading: OptionReader, config: Mapping[str, ParsedOption]) -> str:
    def is_moved(key: str) -> bool:
        return _text(config.get(f"zero_optimization.{key}.device")) in _OFFLOADED

    checkpoints = _is_true(config.get("activation_checkpointing.cpu_checkpointing"))
    activations = checkpoints or reading.has("--checkpoint-in-cpu")
    if is_moved("offload_param") or reading.text("--remote-device") in _OFFLOADED:
        return "optimizer_weights"
    if is_moved("offload_optimizer") or reading.has("--cpu-optimizer"):
        return "optimizer_activations" if activations else "optimizer"
    return "activations" if activations else "none"


_PROGRAM = "pretrain_gpt.py"
_CONFIG = "ds_config.json"
_LACKING = {
    "kv_lora_rank": "latent attention",
    "shared_intermediate_size": "shared experts",
    "num_dense_layers": "dense layers before those with experts",
    "moe_latent_size": "a latent width of experts",
}
"""Words of a shape without which the model would be another one."""
_UNSAID = {
    "qk_norm": "norms of queries and keys",
    "sliding_window": "a sliding window",
    "sinks": "attention sinks",
    "attn_output_gate": "a gate of the output of attention",
    "router_bias": "a bias of the router",
}


def _quantities(job: LaunchJob) -> Quantities:
    shape = shape_words(job.model, int(job["tensor_parallel"]))
    for name, what in _LACKING.items():
        if shape[name]:
            raise LaunchError(
                f"Megatron-DeepSpeed has no argument for {what}, which {job.model.name} has: "
                "choose megatron-lm or megatron-bridge."
            )
    precise = job["precision"] == "bf16" and int(job["zero_stage"]) <= 1
    return {
        **shape,
        **megatron_lm.run_words(job),
        "cp_comm_type": job["cp_comm_type"] if job["context_parallel"] > 1 else None,
        "expert_interval": 1 if job.model.num_experts else None,
        "wide_gradients": precise,
    }


def _draft(job: LaunchJob, settings: OptionTexts) -> LaunchDraft:
    path = ShellVariable(
        name="MEGATRON_PATH",
        meaning="folder of a checkout of deepspeedai/Megatron-DeepSpeed",
        suffix=f"/{_PROGRAM}",
    )
    flags = [each for each in settings.options if each.option.startswith("--")]
    document = nested({each.option: each.text for each in settings.options if each not in flags})
    arguments = (
        CommandWords(words=(path,)),
        *map(CommandWords.of, flags),
        CommandWords(words=("--data-impl", "mmap")),
        *megatron_lm.user_arguments(job),
    )
    note = "DeepSpeed deals the layers evenly to the stages, and the first ones get what is over"
    split = ParameterNote(parameter="--split of the pipeline", value="", note=note)
    return training_draft(
        job,
        "megatron-deepspeed",
        arguments,
        environment=megatron_lm.environment_of(job),
        files=(json_file(_CONFIG, document, "how DeepSpeed shards"),),
        unexpressed=(*strange_parts(job.model, "Megatron-DeepSpeed"), *_unsaid(job)),
        left=(*megatron_lm.left_of(job), *((split,) if job["pipeline_parallel"] > 1 else ())),
    )


def _unsaid(job: LaunchJob) -> tuple[ParameterNote, ...]:
    shape = shape_words(job.model, 1)
    sharded = ParameterNote(
        parameter="zero_stage",
        value="0",
        note="in bf16 DeepSpeed's optimizer shards its states all the same, as stage 1 does",
    )
    is_sharded = int(job["zero_stage"]) == 0 and job["precision"] == "bf16"
    found = [what for name, what in _UNSAID.items() if shape[name]]
    if shape["qkv_bias"]:
        found.append("biases of queries, keys and values alone")
    note = "Megatron-DeepSpeed has no argument for it"
    remarks = [ParameterNote(parameter="model", value=what, note=note) for what in found]
    return (*remarks, *([sharded] if is_sharded else []))


TARGET = LaunchTarget.of(
    "megatron-deepspeed",
    quantities=_quantities,
    draft=_draft,
    answers=read_settings,
    starts=matches_command,
)
