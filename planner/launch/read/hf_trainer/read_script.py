"""Read scripts on Hugging Face's Trainer, with the files they are started with.

The command line of a script, ``TrainingArguments`` in YAML or JSON, ``ds_config.json`` and
accelerate's YAML are read together, whichever are there.

LLaMA-Factory and ms-swift start the Trainer with options and defaults of their own.
Source: modelscope/ms-swift 3.9, ``swift/llm/argument`` (``train_args.py``, ``tuner_args.py``,
``base_args``) and ``swift/llm/ds_config``; 4 calls ``train_type`` ``tuner_type``, 2 ``sft_type``.
``mlx_lm.lora`` on Apple silicon: ml-explore/mlx-lm at 0304b28, ``mlx_lm/lora.py``
(``CONFIG_DEFAULTS``: 4 sequences of 2,048 tokens, 1,000 steps, the last 16 layers, rank 8).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from planner.documents.python_calls import IS_BF16
from planner.documents.shell.edits import ParsedOption, implied_option
from planner.errors import SpecError
from planner.launch.option_table import (
    OptionAliasTable,
    OptionTable,
    ParameterReading,
    is_command,
    is_document,
    option_aliases,
)
from planner.launch.read.expression_rows import derive_options
from planner.launch.read.hf_trainer.derive_settings import UNPACKED, derive_settings
from planner.launch.read.hf_trainer.llama_factory import (
    LLAMA_FACTORY,
    V1,
    is_llama_factory,
    is_llama_factory_document,
    translate_factory_options,
    translate_v1_options,
    with_megatron_options,
)
from planner.launch.read.hf_trainer.option_sources import (
    OBJECTIVE_OPTIONS,
    KnownScript,
    OptionSources,
    TrainerOptions,
    apply_program_defaults,
    assume_sharding_of_file_name,
    keep_loaded_weights,
    llama_shape,
    objective_of_program_name,
    parse_positive_int,
    preference_of_folder,
    refuse_unknown_training,
    script_of,
    takes_sharding,
    text_of,
    translate_options,
    translate_program_options,
)
from planner.launch.read.hf_trainer.write_script import SECTION
from planner.launch.read.parsed_launch import (
    JobResources,
    LaunchSettings,
    OptionReader,
    ParsedCommand,
    parse_int,
    total_gpus,
)

_PROGRAM = "swift"
_TUNER_OPTIONS = ("--tuner_type", "--train_type", "--sft_type")
SWIFT = OptionAliasTable.load("ms-swift")
"""ms-swift's options with those of the Trainer, TRL and DeepSpeed that they stand for."""


_FILE = re.compile(r"(?:^|/)swift(?:/cli/(sft|pt|rlhf)\.py|\.cli\.(sft|pt|rlhf))$")


def _normalize_swift_command(words: Sequence[str]) -> list[str]:
    """Return the words with ``swift sft`` in place of ``swift/cli/sft.py`` or its module."""
    for index, word in enumerate(words[:3]):
        if file := _FILE.search(word):
            return [_PROGRAM, file[1] or file[2], *words[index + 1 :]]
    return [*words]


def starts_swift(words: Sequence[str]) -> bool:
    """Return whether a command trains with ms-swift.

    >>> starts_swift(["swift", "sft"]), starts_swift(["swift", "infer"])
    (True, False)
    """
    return is_command("ms-swift", _normalize_swift_command(words))


def translate_swift_options(sources: OptionSources, name: str) -> dict[str, str]:
    """Translate ms-swift's options to the Trainer's; return reasons of defaults.

    Raises SpecError if it trains something that is not predicted.
    """
    script, reasons = sources.script, dict[str, str]()
    translate_options(sources, SWIFT)
    _set_finetuning_type(sources, name, reasons)
    if data := sources.text("--dataset"):  # further data sets follow it
        script["--dataset"] = script["--dataset"].with_value(" ".join([data, *sources.words[2:]]))
    if modules := sources.text("--lora_target_modules"):
        script["--lora_target_modules"] = implied_option("--lora_target_modules", modules)
    world, reasons = sources.worlds[0], reasons | apply_program_defaults(sources, SWIFT)
    one_process, num_gpus = bool(world.is_one_process), total_gpus(world)
    reasons |= derive_options(script, SWIFT, one_process=one_process, num_gpus=num_gpus)
    reasons |= keep_loaded_weights(sources, "ms-swift")
    return reasons


def _set_finetuning_type(sources: OptionSources, name: str, reasons: dict[str, str]) -> None:
    """Set the fine-tuning type: LoRA by default, all weights for ``swift pt``.

    Raises SpecError if the type is not predicted.
    """
    script = sources.script
    finetuning_type = next(
        (text for option in _TUNER_OPTIONS if (text := sources.text(option))), None
    )
    if finetuning_type is None:
        trains_all = "pt" in sources.words[1:2]
        finetuning_type = "full" if trains_all else "lora"
        reasons["adapter"] = f"no train_type: ms-swift trains {'all' if trains_all else 'adapters'}"
    refuse_unknown_training(finetuning_type, name)
    if parse_positive_int(sources.text("--lisa_activated_layers")):
        raise SpecError(
            f"{name}: ms-swift's lisa_activated_layers is not predicted, as it trains a few layers "
            "at a time: leave it out to have all of them predicted."
        )
    # LLaMA-Factory's option, which the Trainer's reader knows.
    script["--finetuning_type"] = implied_option("--finetuning_type", finetuning_type)


def _with_loss_chunks(settings: LaunchSettings, chunk_tokens: int | None) -> LaunchSettings:
    """Return the settings with a loss in chunks of ``chunk_tokens`` tokens if sequences split.

    Source: modelscope/ms-swift at 3602360, ``swift/trainers/utils.py``.
    """
    values = settings.values
    ranks, length = values["context_parallel"], values.get("sequence_length")
    if chunk_tokens is None or ranks == 1 or length is None:
        return settings
    chunks = math.ceil(values["micro_batch_size"] * length / ranks / chunk_tokens)
    return replace(settings, values={**values, "loss_kernel": "chunked", "loss_chunks": chunks})


_TRAINER_MARKERS = (
    *("--per_device_train_batch_size", "--per_gpu_train_batch_size"),
    "--gradient_accumulation_steps",
)
# A program with these alone works out a batch: it trains nothing.
_BATCH_OPTIONS = {"--batch_size", "--gradient_accumulation_steps", "--world_size"}
_TRAINER_ARGUMENTS = {
    *("learning_rate", "output_dir", "num_train_epochs", "max_steps", "use_peft", "lora_r")
}
_TRAINER_PROGRAMS = ("run_clm.py", "sft.py")
_TRL_SCRIPTS = re.compile(
    r"(?:^|/)trl[./]scripts[./]\w"
    r"|(?:^|/)examples/scripts/(?:\w+_)?(?:sft|dpo|orpo|cpo|kto|bco|gkd|grpo|rloo|reward\w*)(?:_\w+)?\.py"
)
_MEGATRON_OPTIONS = ("--tensor-model-parallel-size", "--micro-batch-size", "--seq-length")


def starts_trainer(words: Sequence[str]) -> bool:
    """Return whether a command starts a script that takes the Trainer's arguments."""
    if is_command("llama-factory", words) or starts_swift(words) or is_command("mlx-lm", words):
        return True
    names = {_option_name(word.partition("=")[0]) for word in words if word.startswith("--")}
    if names & set(_MEGATRON_OPTIONS) or any(word.startswith("--tensor-model") for word in words):
        return False
    if words and words[0] == "trl" and objective_of_program_name(words):
        return True
    options = (word.partition("=") for word in words if word.startswith("--"))
    if words and script_of(words, {_option_name(name)[2:]: text for name, _, text in options}):
        return True
    if any(word.endswith(_TRAINER_PROGRAMS) or _TRL_SCRIPTS.search(word) for word in words[:3]):
        return True
    return bool(words) and bool(names & set(_TRAINER_MARKERS)) and not names <= _BATCH_OPTIONS


def is_trainer_document(values: Mapping[str, object]) -> bool:
    """Return whether a document has ``TrainingArguments``, as TRL's YAML does."""
    is_of_program = is_llama_factory_document(values) or is_document("llama-factory-v1", values)
    is_of_program = (
        is_of_program or is_document("mlx-lm", values) or script_of([], values) is not None
    )
    if "per_device_train_batch_size" in values or is_of_program:
        return True
    return "model_name_or_path" in values and bool(_TRAINER_ARGUMENTS & set(values))


def read_settings(reading: OptionReader) -> LaunchSettings:
    """Read the settings of a Trainer script or document, by parameter name.

    Raises LaunchError if options contradict each other.
    Raises SpecError if it trains something that is not predicted.
    """
    sources = OptionSources(name=reading.command.name)
    gather_options(reading.command, sources)
    sources.words = _normalize_swift_command(sources.words)
    if is_command("ms-swift", sources.words) or (
        not sources.words and {*_TUNER_OPTIONS} & {*sources.script}
    ):
        settings = _read_program(sources, SWIFT, translate_swift_options, "--max_length")
        return _with_loss_chunks(
            settings, parse_int(reading.command.environment.get("CELOSS_PARALLEL_SIZE"))
        )
    keys = {name.removeprefix("--"): "" for name in sources.script}
    if is_command("mlx-lm", sources.words) or is_document("mlx-lm", keys):
        settings = _read_program(sources, MLX, translate_mlx_options, "max_seq_length")
        return with_apple_gpu(settings, sources)
    if is_document("llama-factory-v1", keys):
        return _read_program(sources, V1, translate_v1_options, "cutoff_len")
    preference = preference_of_folder(sources.words, reading.command.search_folders)
    if preference and not {*OBJECTIVE_OPTIONS} & {*sources.script}:
        sources.script["--rl"] = implied_option("--rl", preference)
    texts = {name.removeprefix("--"): sources.text(name) for name in sources.script}
    if script := script_of(sources.words, texts):
        return _read_script(sources, script)
    sharding_reason = assume_sharding_of_file_name(sources)
    if is_llama_factory(sources):
        settings = _read_program(sources, LLAMA_FACTORY, translate_factory_options, "cutoff_len")
        answers = with_megatron_options(settings, sources)
    else:
        answers = build_settings(sources, _is_supervised(sources), takes_sharding(sources))
        depends_on_gpu = any(
            word in reading.command.text for word in (*IS_BF16, "FastLanguageModel")
        )
        fallbacks = {**answers.fallbacks, **(_OLDER_GPU_FALLBACK if depends_on_gpu else {})}
        answers = replace(answers, fallbacks=fallbacks)
    sharding_default = {"zero_stage": sharding_reason} if sharding_reason else {}
    return replace(answers, defaults={**answers.defaults, **sharding_default})


_OLDER_GPU_FALLBACK = {
    "precision": ("fp16", "the program asks whether the GPU has bf16, which it lacks")
}


def _read_program(
    sources: OptionSources,
    dialect: OptionAliasTable,
    translate: Callable[[OptionSources, str], dict[str, str]],
    length_option: str,
) -> LaunchSettings:
    """Read the settings of a program whose options ``translate`` converts to the Trainer's.

    ``length_option`` is its option of the longest sequence, empty where every sequence is full.
    """
    keys = frozenset(sources.spelled.values())
    defaults = translate(sources, sources.name)
    settings = build_settings(sources, is_supervised=False)
    reasons = {name: reason for name, reason in defaults.items() if name in settings.values}
    notes = settings.notes
    packing = sources.script.get("--packing")
    if length_option and (packing is None or text_of(packing) != "true"):
        notes = (*notes, UNPACKED.format(option=length_option))
    names_by_role = dialect.names("used") | {*dialect.options}, dialect.names("ignored")
    used, ignored = (
        {key for key in keys if key.lstrip("-").replace("-", "_") in role_names}
        for role_names in names_by_role
    )
    return replace(
        settings,
        defaults={**settings.defaults, **reasons},
        notes=notes,
        used_options=settings.used_options | used,
        ignored_options=settings.ignored_options | ignored,
    )


def _read_script(sources: OptionSources, script: KnownScript) -> LaunchSettings:
    """Read the settings of a program in the dialect tables, with its model's sizes."""
    dialect = OptionAliasTable.load(script.dialect)
    settings = _read_program(
        sources,
        dialect,
        lambda options, _: translate_program_options(options, dialect),
        script.length,
    )
    if script.framework:
        settings = replace(settings, values={**settings.values, "framework": script.framework})
    shape = llama_shape(sources, dialect)
    if shape is None:
        return settings
    return replace(
        settings, shape=shape, missing=tuple(name for name in settings.missing if name != "model")
    )


def build_settings(
    sources: OptionSources, is_supervised: bool, is_sharded_elsewhere: bool = False
) -> LaunchSettings:
    """Build settings from the gathered options; ``is_supervised``: TRL's defaults hold.

    ``is_sharded_elsewhere`` if none of these files may set the sharding.
    Raises LaunchError if the options contradict each other.
    """
    all_options = {**sources.script, **sources.deepspeed, **sources.accelerate}
    command = ParsedCommand(
        target="transformers", name=sources.name, text="", options=all_options,
        resources=sources.worlds[0],
    )  # fmt: skip
    options = TrainerOptions(
        reading=OptionReader(command=command, meanings={}),
        script=_read_table("transformers", sources.script),
        deepspeed=_read_table("deepspeed", sources.deepspeed),
        accelerate=_read_table("accelerate", sources.accelerate),
        texts={name: text_of(option) for name, option in all_options.items()},
        has_deepspeed=bool(sources.deepspeed)
        or bool({"--deepspeed", "--deepspeed_config"} & {*sources.script}),
        deepspeed_keys=frozenset(sources.deepspeed),
        has_script=bool(sources.script),
        is_supervised=is_supervised,
        unknown=tuple(option.option for option in sources.unknown),
        spelled=sources.spelled,
        words=tuple(sources.words),
        takes_sharding=is_sharded_elsewhere,
    )
    return derive_settings(options, sources.name)


def _is_supervised(sources: OptionSources) -> bool:
    """Return whether the script is TRL's, whose defaults differ from the Trainer's.

    huggingface/trl 1.10, ``trl/trainer/base_config.py``: every class of it computes in bf16 and
    recomputes layers by default; the scripts of ``examples/scripts`` use these classes.
    """
    words = sources.words[:3]
    names = {word.rpartition("/")[2] for word in words}
    if names & {"trl", "sft.py", "run_sft.py"} or any(map(_TRL_SCRIPTS.search, words)):
        return True
    if not words and "--rlhf_type" in sources.script:  # a program with a configuration of TRL
        return True
    options = {"--max_length", "--use_peft", "--packing"}
    # A document without a command, with TRL's option of a data set on the hub; run_clm.py has it,
    # too, and cuts texts into blocks.
    options |= set() if words or "--block_size" in sources.script else {"--dataset_name"}
    return bool(options & set(sources.script))


def _read_table(table: str, options: Mapping[str, ParsedOption]) -> dict[str, ParameterReading]:
    """Read the options through a table, by parameter; null and ``auto`` count as missing."""
    texts = {name.removeprefix("--"): text_of(option) for name, option in options.items()}
    readable = {
        name: text for name, text in texts.items() if text not in (None, "auto", "", "null")
    }
    return OptionTable.load(table).read(readable)


def _option_name(option: str) -> str:
    """An option as the script's parser names it: hyphens and underscores are the same there."""
    return "--" + option.lstrip("-").replace("-", "_")


def gather_options(command: ParsedCommand, sources: OptionSources) -> None:
    """Add options of a command or document and its files to their section in ``sources``."""
    options = {**{option.option: option for option in command.unknown}, **command.options}
    sources.worlds.append(command.resources)
    if is_document("accelerate", options):
        for option in options.values():
            section, dot, key = option.option.partition(".")
            # Keys may lack the section's prefix.
            prefix = option_aliases("accelerate section").get(section, "") if dot else ""
            full_key = key if key.startswith(prefix) else prefix + key
            sources.put(sources.accelerate, f"{section}{dot}{full_key}", option)
    elif is_document("deepspeed", options):
        for name, option in options.items():
            sources.put(sources.deepspeed, name, option)
        sources.unknown += command.unknown
    else:
        sources.words += [text for option in command.positional if (text := text_of(option))]
        for name, option in options.items():
            _gather_argument(name, option, sources)
    for file in command.files.values():
        if file.options or file.unknown:
            _gather_file(file, sources)


def _gather_file(command: ParsedCommand, sources: OptionSources) -> None:
    """Add the options of a file that a command names, including FSDP's own file."""
    options = {**{option.option: option for option in command.unknown}, **command.options}
    if set(options) & {"reshard_after_forward", "activation_checkpointing", "cpu_offload"}:
        for name, option in options.items():
            sources.put(sources.script, SECTION + name.removeprefix("fsdp_"), option)
        return
    gather_options(command, sources)


_INLINE = "deepspeed."


def _gather_argument(name: str, option: ParsedOption, sources: OptionSources) -> None:
    """Add an argument to the script's, accelerate's or DeepSpeed's section of ``sources``."""
    spelled_name = _option_name(name)
    bare_name = spelled_name.removeprefix("--")
    if name.startswith(SECTION):
        key = name.removeprefix(SECTION).removeprefix("fsdp_")
        sources.put(sources.script, SECTION + key, option)
    elif name.startswith(_INLINE):  # the mapping itself in place of its file
        sources.put(sources.deepspeed, name.removeprefix(_INLINE), option)
    elif kind := option_aliases("accelerate flag").get(spelled_name):
        sources.put(sources.accelerate, "distributed_type", option.with_value(kind))
    elif target_option := option_aliases("accelerate launch").get(spelled_name):
        sources.put(sources.accelerate, target_option, option)
    elif spelled_name == "--zero_stage":
        sources.put(sources.deepspeed, "zero_optimization.stage", option)
    elif bare_name.startswith("fsdp_") and bare_name != "fsdp_config":
        sources.put(sources.accelerate, f"fsdp_config.{bare_name}", option)
    elif bare_name.startswith("parallelism_config_"):
        sources.put(sources.accelerate, f"parallelism_config.{bare_name}", option)
    else:
        sources.put(sources.script, spelled_name, option)


MLX = OptionAliasTable.load("mlx-lm")
"""mlx_lm's options with those of the Trainer that they stand for."""
_DEFAULT_APPLE_GPU = "apple-m2ultra-76c-192gb"


def translate_mlx_options(sources: OptionSources, name: str) -> dict[str, str]:
    """Translate mlx_lm's options to the Trainer's; return reasons of defaults.

    Raises SpecError if it trains something that is not predicted.
    """
    script, finetuning_type = sources.script, sources.text("--fine_tune_type") or "lora"
    if finetuning_type not in ("lora", "full"):
        raise SpecError(
            f"{name}: mlx_lm's fine_tune_type {finetuning_type} is not predicted: lora and "
            "full are."
        )
    translate_options(sources, MLX)
    reasons = apply_program_defaults(sources, MLX) | derive_options(script, MLX)
    if finetuning_type == "lora":
        keys = sources.text("--lora_parameters.keys")
        reasons |= (
            {} if keys else {"lora_targets": "no keys: mlx_lm adapts every matrix of a layer"}
        )
        modules = " ".join(key.rpartition(".")[2] for key in (keys or "all-linear").split())
        script["--lora_target_modules"] = implied_option("--lora_target_modules", modules)
    sources.worlds[0] = JobResources(
        num_gpus=implied_option("mlx_lm", "1"), gpu=sources.worlds[0].gpu
    )
    return reasons


def with_apple_gpu(settings: LaunchSettings, sources: OptionSources) -> LaunchSettings:
    """Return settings for one Apple chip: the chip in the file, else an M2 Ultra."""
    values = {**settings.values, "framework": "MLX"}
    defaults = dict(settings.defaults)
    if sources.worlds[0].gpu is None:
        values["gpu"] = _DEFAULT_APPLE_GPU
        defaults["gpu"] = "mlx_lm runs on Apple silicon, and no chip is named"
    return replace(settings, values=values, defaults=defaults)
