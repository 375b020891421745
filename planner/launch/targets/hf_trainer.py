"""Scripts on Hugging Face's Trainer: with FSDP, with DeepSpeed, or started by accelerate.

Also reads whole reinforcement-learning steps of TRL's and ms-swift's GRPO and RLOO.

Source: huggingface/trl at f2cd577, ``trl/trainer/grpo_config.py``, ``rloo_config.py`` (names,
defaults, size of a generation), ``grpo_trainer.py`` (slots of its engine, log-probabilities) and
``scripts/vllm_serve.py``; that sizes of DeepSpeed Ulysses multiply to all GPUs:
huggingface/accelerate 1.15.0, ``docs/source/concept_guides/sequence_parallelism.md`` and
``utils/dataclasses.py``; modelscope/ms-swift, ``swift/rlhf_trainers/args_mixin.py`` and
``swift/arguments/rlhf_args.py``, which extends TRL's trainer.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from math import prod

from planner.documents.shell.edits import implied_option
from planner.launch.option_table import (
    MutableQuantities,
    OptionRole,
    OptionTable,
    OptionTexts,
    Quantities,
)
from planner.launch.read.hf_trainer.option_precedence import split_by_precedence
from planner.launch.read.hf_trainer.option_sources import OptionSources
from planner.launch.read.hf_trainer.read_script import (
    gather_options,
    is_trainer_document,
    read_settings,
    starts_swift,
    starts_trainer,
)
from planner.launch.read.hf_trainer.write_script import (
    FSDP_FILE,
    SECTION,
    adapter_notes,
    expert_adapter_notes,
    has_adapter,
    json_file,
    nest_options,
    offloaded_activations,
    recomputes_in_fsdp,
    script_arguments,
    script_files,
    script_quantities,
    script_settings,
    yaml_file,
)
from planner.launch.read.parsed_launch import (
    OptionReader,
    ParsedCommand,
    number,
    option_text,
    parse_int,
    with_unknown_options,
)
from planner.launch.target import (
    CommandWords,
    LaunchDraft,
    LaunchJob,
    LaunchOutputFile,
    LaunchTarget,
)
from planner.launch.targets.rl_reader_writer import reader_of_steps
from planner.launch.write.benchmark import training_draft


def _script_quantities(job: LaunchJob) -> Quantities:
    """Quantities of a script that DeepSpeed or accelerate starts."""
    return {**script_quantities(job), "offload": offloaded_activations(job)}


def _trainer_draft(job: LaunchJob, settings: OptionTexts) -> LaunchDraft:
    """Build the command of a Trainer script with FSDP and the JSON file of its FSDP keys."""
    keys = {
        option.option: option.text
        for option in settings.options
        if option.option.startswith(SECTION)
    }
    files = list(script_files(job))
    fsdp_arguments = []
    if keys:
        document = nest_options(
            {"version": "2", **{key.removeprefix(SECTION): text for key, text in keys.items()}}
        )
        files.append(json_file(FSDP_FILE, document, "how FSDP shards"))
        fsdp_arguments.append(CommandWords(words=("--fsdp_config", FSDP_FILE)))
    notes: tuple[str, ...] = ()
    if has_adapter(job):
        note = "peft adds the adapters with TRL's default lora_alpha and lora_dropout."
        notes = (note, *adapter_notes(job))
    return training_draft(
        job,
        "transformers",
        script_arguments(job, settings, *fsdp_arguments),
        files=tuple(files),
        unexpressed=expert_adapter_notes(job),
        notes=notes,
    )


TRANSFORMERS = LaunchTarget.of(
    "transformers",
    quantities=script_quantities,
    draft=_trainer_draft,
    answers=read_settings,
    starts=starts_trainer,
    is_of=is_trainer_document,
    honoured=split_by_precedence,
)


def _without_script_parameters(job: LaunchJob, target: str) -> MutableQuantities:
    """Return None for each parameter that the script sets and the target's file cannot."""
    expressed = {
        row.parameter for row in OptionTable.load(target).rows if row.role is OptionRole.IS
    }
    return dict.fromkeys(script_quantities(job).keys() - {"layer_split", *expressed})


DEEPSPEED_FILE = "ds_config.json"
_WRITTEN = ("bf16", "fp16", "fp32")


def deepspeed_file(settings: OptionTexts) -> LaunchOutputFile:
    """The file ``ds_config.json`` with the options of the table."""
    document = nest_options({option.option: option.text for option in settings.options})
    return json_file(DEEPSPEED_FILE, document, "what DeepSpeed shards")


def _deepspeed_draft(job: LaunchJob, settings: OptionTexts) -> LaunchDraft:
    """Build the command of a Trainer script with DeepSpeed and its ``ds_config.json``."""
    script = script_settings(
        job,
        # The script sets what the file cannot.
        precision=job["precision"] if job["precision"] in _WRITTEN else "bf16",
        offload=offloaded_activations(job),
        quantized_storage=(
            "bfloat16" if job["zero_stage"] == 3 and job["adapter"] == "qlora" else None
        ),
    )
    return training_draft(
        job,
        "deepspeed",
        script_arguments(job, script, CommandWords(words=("--deepspeed", DEEPSPEED_FILE))),
        files=(deepspeed_file(settings), *script_files(job)),
        unexpressed=(*script.unexpressed, *expert_adapter_notes(job)),
        notes=adapter_notes(job),
    )


def _starts_deepspeed(words: Sequence[str]) -> bool:
    """Return whether the words of a command start a known program with DeepSpeed options."""
    names = {word.partition("=")[0] for word in words}
    is_configured = bool(names & {"--deepspeed", "--deepspeed_config", "--zero_stage"})
    # Programs with batch sizes in DeepSpeed's file.
    is_deepspeed_chat = {"--model_name", "--num_train_epochs"} <= names
    return is_configured and (is_deepspeed_chat or starts_trainer(words))


DEEPSPEED = LaunchTarget.of(
    "deepspeed",
    quantities=partial(_without_script_parameters, target="deepspeed"),
    draft=_deepspeed_draft,
    answers=read_settings,
    starts=_starts_deepspeed,
    honoured=split_by_precedence,
    script=_script_quantities,
)


_ACCELERATE_FILE = "accelerate.yaml"
_UNKNOWN_PRECISIONS = ("fp4", "int8", "tf32")


def _accelerate_draft(job: LaunchJob, settings: OptionTexts) -> LaunchDraft:
    """Build a job's accelerate command and YAML."""
    is_fsdp = any(option.text == "FSDP" for option in settings.options)
    recomputes_inside = recomputes_in_fsdp(job, is_sharded=is_fsdp)
    is_set_by_accelerate = job["precision"] in ("fp8", *_UNKNOWN_PRECISIONS)
    script = script_settings(
        job,
        precision=None if is_set_by_accelerate else job["precision"],
        precision_elsewhere=True if job["precision"] == "fp8" else None,
        precision_kept=True if job["precision"] in ("fp4", "int8") else None,
        recompute="none" if recomputes_inside else job["recompute"],
        offload=offloaded_activations(job),
        quantized_storage="bfloat16" if is_fsdp and job["adapter"] == "qlora" else None,
    )
    config = yaml_file(_ACCELERATE_FILE, settings, "how accelerate starts and shards")
    return training_draft(
        job,
        "accelerate",
        script_arguments(job, script),
        launcher="accelerate",
        launcher_arguments=(CommandWords(words=("--config_file", _ACCELERATE_FILE)),),
        files=(config, *script_files(job)),
        unexpressed=(*script.unexpressed, *expert_adapter_notes(job)),
        notes=adapter_notes(job),
    )


ACCELERATE = LaunchTarget.of(
    "accelerate",
    quantities=partial(_without_script_parameters, target="accelerate"),
    draft=_accelerate_draft,
    answers=read_settings,
    honoured=split_by_precedence,
    script=_script_quantities,
)


_ENGINE_TENSOR_PARALLEL = "--vllm_tensor_parallel_size"
_SERVERS = ("--vllm_server_host", "--vllm_server_base_url")
_SERVER = re.compile(
    r"\b(?:trl\s+vllm-serve|swift\s+rollout)\b(?P<words>(?:[^\n\\]|\\\s*\n[#\s]*)*)"
)
_SPLITS = re.compile(r"--(?:vllm[-_])?(?:tensor|data)[-_]parallel[-_]size[\s=]+(\d{1,4})\b")


def with_step(target: LaunchTarget) -> LaunchTarget:
    """Return a Trainer target that also reads full reinforcement-learning steps."""
    update_target = LaunchTarget.of(target.name, answers=target.answers)
    step_target = reader_of_steps(
        update_target, ("TRL",), _merge_config_files, _step_facts, table="trl-step"
    )
    return replace(target, answers=step_target.answers, step=step_target.step)


def _merge_config_files(command: ParsedCommand) -> ParsedCommand:
    """Return the command with options as the parser spells them, plus options of its files.

    The number of GPUs that a user sets includes those of a generation server.
    """
    command = with_unknown_options(command)
    sources = OptionSources(name=command.name)
    gather_options(command, sources)
    parsed_names = {gpu_option.option for gpu_option in sources.script.values()}
    unparsed = {
        name: option
        for name, option in command.options.items()
        if option.option not in parsed_names
    }
    command = replace(command, options={**unparsed, **sources.script})
    gpu_option, server_gpus = (
        command.resources.num_gpus,
        _server_gpus(OptionReader(command=command, meanings={})),
    )
    num_gpus = parse_int(gpu_option) or 0
    if gpu_option and server_gpus and not gpu_option.line and num_gpus > server_gpus:
        option = implied_option(gpu_option.option, str(num_gpus - server_gpus), gpu_option.line)
        command = replace(command, resources=replace(command.resources, num_gpus=option))
    return command


def _server_gpus(reading: OptionReader) -> int | None:
    """Return the GPUs of the vLLM server that generates; None if there is no server."""
    mode = option_text(reading, "--vllm_mode")
    if mode != "server" and (mode or not any(map(reading.has, _SERVERS))):
        return None
    match = _SERVER.search(reading.command.text)
    if match is None:
        return number(reading, _ENGINE_TENSOR_PARALLEL) or 1
    return prod(int(size) for size in _SPLITS.findall(match["words"]))


def _step_facts(reading: OptionReader) -> MutableQuantities:
    """The GPUs of the server that generates, whether the file starts it, and by which program."""
    return {
        "is_swift": starts_swift(reading.command.words),
        "server_gpus": _server_gpus(reading),
        "has_server": _SERVER.search(reading.command.text) is not None,
    }


TARGETS = tuple(with_step(target) for target in (TRANSFORMERS, DEEPSPEED, ACCELERATE))
