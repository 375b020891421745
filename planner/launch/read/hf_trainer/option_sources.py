"""Gather the options of scripts and their files, and translate those of programs with a dialect.

Sources: artidoro/qlora at 7f4e95a, ``qlora.py``; tloen/alpaca-lora at 8bb8579, ``finetune.py``;
huggingface/autotrain-advanced at b5c98fb, ``trainers/clm/params.py``, ``utils.py``,
``parser.py`` and ``commands.py``;
deepspeedai/DeepSpeedExamples at 45b4b71, ``applications/DeepSpeed-Chat``:
``dschat/utils/ds_utils.py`` and ``training/*/main.py``, and ``training/DeepSpeed-SuperOffload``;
aws-samples/awsome-distributed-training at 7217859, ``pytorch/FSDP/src/model_utils/arguments.py``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

from planner.base.records import record
from planner.base.training_aliases import WITH_ROLLOUTS, TrainingObjective, parse_objective
from planner.documents.shell.edits import Changes, ParsedOption, implied_option
from planner.errors import LaunchError, SpecError
from planner.launch.option_table import (
    OptionAlias,
    OptionAliasTable,
    ParameterReading,
    program_defaults,
    shipped_rows,
)
from planner.launch.read.expression_rows import derive_options, holds_for_options
from planner.launch.read.parsed_launch import (
    JobResources,
    OptionReader,
    SettingsBuilder,
    total_gpus,
)


@dataclass(kw_only=True)
class OptionSources:
    """Options by source. The text of a flag is ``true``, that of an unreadable value None.

    ``name`` is the name of the file.
    """

    script: dict[str, ParsedOption] = field(default_factory=dict)
    deepspeed: dict[str, ParsedOption] = field(default_factory=dict)
    accelerate: dict[str, ParsedOption] = field(default_factory=dict)
    unknown: list[ParsedOption] = field(default_factory=list)
    spelled: dict[str, str] = field(default_factory=dict)
    worlds: list[JobResources] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    name: str = ""

    def put(self, section: dict[str, ParsedOption], name: str, option: ParsedOption) -> None:
        """Note an option of one of the places; the first of a name counts."""
        section.setdefault(name, option)
        self.spelled.setdefault(name.removeprefix("--"), option.option)

    def text(self, option: str) -> str | None:
        """The text of an option of the script, None if it is missing."""
        parsed = self.script.get(option)
        return None if parsed is None else text_of(parsed)


def text_of(option: ParsedOption) -> str | None:
    """The value as the tables have it; several are joined by blanks. None if it is unreadable."""
    text = option.joined if option.texts else "true"
    return text.lower() if text and text.lower() in ("true", "false") else text


def apply_program_defaults(sources: OptionSources, dialect: OptionAliasTable) -> dict[str, str]:
    """Add the program's defaults to the script's options; return reasons by parameter."""
    script, reasons = sources.script, dict[str, str]()
    for row in dialect.defaults:
        if row.into not in script and holds_for_options(row.text, script, sources.words):
            script[row.into] = implied_option(row.into, row.word)
            reasons[row.term] = row.note
    return reasons


def keep_loaded_weights(sources: OptionSources, program: str) -> dict[str, str]:
    """Set bf16 weights if a program trains all weights as loaded; return reason by parameter.

    ``weights.csv`` has the format of trained weights in each program, with its source.
    """
    row = next(
        row for row in shipped_rows("read/hf_trainer/weights.csv") if row["program"] == program
    )
    trains_all = sources.text("--finetuning_type") in (None, "full")
    if row["weights"] != "loaded" or not trains_all or {*row["unless"].split()} & {*sources.script}:
        return {}
    sources.script["--dtype"] = implied_option("--dtype", "bfloat16")
    return {"framework": f"{program} trains whole models in the bf16 that they are loaded in"}


def translate_options(sources: OptionSources, dialect: OptionAliasTable) -> None:
    """Translate a program's options to the Trainer's and DeepSpeed's in ``sources``."""
    program_options = {option: sources.script.get(f"--{option}") for option in dialect.options}
    for option, parsed in program_options.items():
        if parsed is None:
            continue
        for target_option, replacement in dialect.translate(option, sources.text(f"--{option}")):
            if not target_option.startswith("--"):
                translated = implied_option(
                    target_option,
                    (text_of(parsed) or "") if replacement is None else replacement,
                    parsed.line,
                )
                sources.deepspeed.setdefault(target_option, translated)
            elif replacement is None:
                sources.script.setdefault(target_option, parsed)
            else:
                sources.script[target_option] = parsed.with_value(replacement)


_DEEPSPEED_FILE_OPTIONS = (
    "--deepspeed",
    "--deepspeed_config_file",
    "deepspeed_config.deepspeed_config_file",
)


@record(kw_only=True)
class TrainerOptions:
    """Options of each source as its table reads them, all of them in ``reading``, and their texts.

    ``texts`` are all options by name, None for an unreadable value; ``spelled`` are their names in
    the file. ``words`` are the program and its positional arguments. ``takes_sharding``: the
    user's own configuration of accelerate may set the sharding.
    """

    reading: OptionReader
    script: Mapping[str, ParameterReading]
    deepspeed: Mapping[str, ParameterReading]
    accelerate: Mapping[str, ParameterReading]
    texts: Mapping[str, str | None]
    has_deepspeed: bool
    deepspeed_keys: frozenset[str] = frozenset()
    has_script: bool
    is_supervised: bool
    unknown: tuple[str, ...] = ()
    spelled: Mapping[str, str] = field(default_factory=dict)
    words: tuple[str, ...] = ()
    takes_sharding: bool = False

    @property
    def trl_defaults(self) -> list[OptionAlias]:
        """The defaults of TRL that hold; empty for other programs."""
        rows = program_defaults("trl") if self.is_supervised else ()
        options = self.reading.command.options
        return [row for row in rows if holds_for_options(row.text, options, self.words)]

    def of(self, source: str, parameter: str) -> str | None:
        """The value of a parameter in one source; None where none of its options is set."""
        meaning = getattr(self, source).get(parameter)
        return meaning.value if meaning is not None and meaning.options else None

    def number(self, source: str, parameter: str) -> int | None:
        """The value of a parameter in one source as a positive integer, else None."""
        return parse_positive_int(self.of(source, parameter))

    @property
    def starts_elsewhere(self) -> bool:
        """Whether a missing file sets how it is launched, and its precision."""
        has_launcher_file = any(self.texts.get(name) for name in _LAUNCHER_FILE_OPTIONS)
        return not self.words or (has_launcher_file and "mixed_precision" not in self.texts)

    def absent_file(self) -> str | None:
        """Return the missing DeepSpeed file that an option names; None if no file is missing."""
        name = next(filter(None, map(self.texts.get, _DEEPSPEED_FILE_OPTIONS)), "")
        is_here = any("." in key or key == "train_batch_size" for key in self.deepspeed_keys)
        is_file = name.endswith((".json", ".conf")) or name.startswith("deepspeed_zero")
        return name if is_file and not is_here else None

    def is_on(self, *options: str) -> bool:
        """Return whether one of the flags is set to a value that is not false."""
        return any(
            option in self.texts and self.texts[option] not in ("false", "0", "None", "none")
            for option in options
        )


def parse_positive_int(text: str | None) -> int | None:
    """Parse an integer of at least 1; None if the text is anything else.

    >>> parse_positive_int("2_048"), parse_positive_int("auto"), parse_positive_int(None)
    (2048, None, None)
    """
    try:
        number = float((text or "").replace("_", ""))
    except ValueError:
        return None
    return int(number) if number >= 1 and number.is_integer() else None


_SUPERVISED = ("sft", "pt")
_PREFERENCES = ("dpo", "ipo", "orpo", "simpo", "cpo", "kto", "rm", "reward")
_ON_ROLLOUTS = ("grpo", "rloo", "gspo", "gdpo", "dapo", "ppo")
DISTILLATION = "gkd"
"""ms-swift's name of distillation: training on a teacher's distribution."""
TEACHER_NOTE = "Only the student is predicted, without its teacher's weights and forward passes."
_OBJECTIVE_NAMES = (*_SUPERVISED, *_PREFERENCES, *_ON_ROLLOUTS, *WITH_ROLLOUTS)
_STARTERS = ("trl", "swift")
_LAUNCHER = ("accelerate", "launch")
_LAUNCHER_FILE_OPTIONS = ("--config_file", "--accelerate_config")
ZERO_STAGE = re.compile(r"(?:zero|stage|(?<![a-z0-9])(?:ds[_-]?)?z|(?<![a-z0-9])s)[_-]?([0-3])")
"""The ZeRO stage in the name of a file."""
_STAGE = "deepspeed_config.zero_stage"
_TYPES_BY_NAME = {"fsdp": "FSDP", "multi_gpu": "MULTI_GPU", "single_gpu": "NO", "ddp": "MULTI_GPU"}
_SHARDING_SECTIONS = ("distributed_type", "deepspeed_config", "fsdp_config", "parallelism_config")
# Options of the objective in LLaMA-Factory, ms-swift and axolotl.
_OPTIONS = ("--rlhf_type", "--rl", "--stage")
# Those of users' own documents.
_METHODS = ("--training_method", "--train_method", "--method", "--algorithm")
_EMPTY_TEXTS = (None, "", "null", "none", "false")
_LOSSES = ("--pref_loss", "--loss_type")
# Losses of pairs that need no reference model (LLaMA-Factory 0.9, hparams/finetuning_args.py).
_WITHOUT_REFERENCE = ("orpo", "simpo")
_GENERATION = (
    *("num_generations", "use_vllm", "temperature", "top_p", "top_k", "reward_funcs"),
    *("reward_weights", "reward_model_path", "num_iterations", "epsilon", "scale_rewards"),
)
OBJECTIVE_OPTIONS = (
    *(*_OPTIONS, *_LOSSES, "--reward_model", "--precompute_ref_log_probs"),
    *("--beta", "--max_prompt_length", "--max_completion_length", "--max_new_tokens"),
    "--response_length",
)


def takes_sharding(sources: OptionSources) -> bool:
    """Return whether accelerate's configuration of the user may decide how states are sharded.

    It does for ``accelerate launch`` and ``trl`` without a file or options of one: accelerate
    1.15, commands/launch.py then reads its default file. It may for a document without a command.
    """
    if any(name.partition(".")[0] in _SHARDING_SECTIONS for name in sources.accelerate):
        return False
    words = tuple(sources.words)
    return not words or words[:2] == _LAUNCHER or words[:1] == _STARTERS[:1]


def assume_sharding_of_file_name(sources: OptionSources) -> str:
    """Set the sharding that a missing accelerate file's name implies; return why, or "".

    TRL ships files with such names: huggingface/trl 0.19, ``docs/source/clis.md``. A document
    without a command may have the name, too, as LLaMA-Factory's ``examples/ascend``.
    """
    file_option = next(
        (text for name in _LAUNCHER_FILE_OPTIONS if (text := sources.text(name))), None
    )
    is_bare_document = not sources.words and not {"--deepspeed", "--fsdp"} & {*sources.script}
    if (
        file_option is None
        and is_bare_document
        and "fsdp" in sources.name.lower()
        and takes_sharding(sources)
    ):
        sources.accelerate["distributed_type"] = implied_option("distributed_type", "FSDP")
        return f"FSDP from the name {sources.name}"
    if file_option is None or not takes_sharding(sources):
        return ""
    name = file_option.rpartition("/")[2].lower()
    stage = ZERO_STAGE.search(name)
    distributed_type = next(
        (distributed_type for word, distributed_type in _TYPES_BY_NAME.items() if word in name),
        "DEEPSPEED",
    )
    if stage is None and distributed_type == "DEEPSPEED":
        return ""
    sources.accelerate["distributed_type"] = implied_option("distributed_type", distributed_type)
    if stage is not None:
        sources.accelerate[_STAGE] = implied_option(_STAGE, stage[1])
    return f"{file_option} not found: taken from its name"


def objective_of_program_name(words: Sequence[str]) -> str | None:
    """Return the training objective in a program's name; None if there is none.

    >>> (objective_of_program_name(["trl", "dpo"]),
    ... objective_of_program_name(["examples/train_rm.py"]))
    ('dpo', 'rm')
    """
    command_words = (
        words[len(_LAUNCHER) :] if tuple(words[: len(_LAUNCHER)]) == _LAUNCHER else words
    )
    program, *arguments = [word.rpartition("/")[2].lower() for word in command_words[:2]] or [""]
    if program in _STARTERS and arguments:
        program = arguments[0]
    parts = re.split(r"[^a-z0-9]+", program)
    return next((part for part in parts if part in _OBJECTIVE_NAMES), None)


# Names of programs without an objective.
_GENERIC_PROGRAMS = ("main.py", "train.py", "finetune.py", "run.py")


def preference_of_folder(words: Sequence[str], folders: Sequence[str]) -> str | None:
    """Return the preference objective in a folder's name if the program's name has none.

    Folders of ``DeepSpeed-Chat/training`` have such names.

    >>> preference_of_folder(["main.py"], ["step2_dpo_finetuning", "training_scripts", "llama2"])
    'dpo'
    """
    if not words or words[0].rpartition("/")[2] not in _GENERIC_PROGRAMS:
        return None
    parts = re.split(r"[^a-z0-9]+", "/".join(folders).lower())
    return next((part for part in reversed(parts) if part in _PREFERENCES), None)


# Options of pretrained weights.
_CHECKPOINTS = {"--model_name_or_path", "--base_model", "--model_id", "--model_name"}


def derive_objective(options: TrainerOptions, settings: SettingsBuilder, name: str) -> None:
    """Set the training objective, and whether reference log-probabilities are precomputed.

    Raises SpecError if the objective trains on rollouts and is not predicted.
    """
    words = [
        text
        for option in _OPTIONS
        if (text := options.texts.get(option)) and text in _OBJECTIVE_NAMES
    ]
    # An unknown objective is refused, not replaced by another option's.
    words += [
        text for option in _OPTIONS[:2] if (text := options.texts.get(option)) not in _EMPTY_TEXTS
    ]
    words += [
        text
        for option in _METHODS
        if (text := (options.texts.get(option) or "").lower()) in _OBJECTIVE_NAMES
    ]
    word = next(iter(words), None) or objective_of_program_name(options.words)
    if options.is_on("--reward_model") and word not in _ON_ROLLOUTS:
        word = "rm"
    word = word or _objective_of_options(options, name)
    if word is None and not _CHECKPOINTS & set(options.texts):
        return
    objective = objective_of_word(word or "sft", name)
    if word == DISTILLATION:
        settings.notes.append(TEACHER_NOTE)
    loss = next((options.texts[name] for name in _LOSSES if options.texts.get(name)), None)
    if objective is TrainingObjective.DPO and loss in _WITHOUT_REFERENCE:
        objective = TrainingObjective.ORPO
    if word == "grpo" and not _kl_weight(options):
        objective = TrainingObjective.DAPO
        settings.notes.append("No beta above 0: GRPO then has no reference model, like DAPO.")
    settings.values["training_objective"] = str(objective)
    if options.is_on("--precompute_ref_log_probs") and objective.has_reference:
        settings.values["precompute_ref_log_probs"] = True


# Options of TRL's preference and rollout configurations that its SFTConfig lacks.
_PREFERENCE_OPTIONS = ("--beta", "--max_prompt_length", "--pref_beta", "--rpo_alpha")
_ROLLOUT_OPTIONS = (
    "--num_generations",
    "--max_completion_length",
    "--vllm_server_host",
    "--use_vllm",
)
_TITLES = ("--output_dir", "--hub_model_id", "--run_name")


def _objective_of_options(options: TrainerOptions, name: str) -> str | None:
    """Return the training objective that a file's options imply; None if they imply none.

    Names of output folders have the preference loss, as in recipes of
    huggingface/alignment-handbook; the default is DPO.
    """
    if any(option in options.texts for option in _ROLLOUT_OPTIONS):
        return "grpo"
    if not any(option in options.texts for option in _PREFERENCE_OPTIONS):
        return None
    titles = " ".join([name, *(options.texts.get(option) or "" for option in _TITLES)]).lower()
    parts = re.split(r"[^a-z0-9]+", titles)
    return next((part for part in parts if part in (*_PREFERENCES, *_ON_ROLLOUTS)), "dpo")


def _kl_weight(options: TrainerOptions) -> float:
    """Return the weight of the KL divergence from the reference model, 0 by default."""
    try:
        return float(options.texts.get("--beta") or 0)
    except ValueError:
        return 0.0


def generation_options(options: TrainerOptions) -> frozenset[str]:
    """Return options of generation and rewards, which do not affect the training step."""
    return frozenset(
        spelled
        for name, spelled in options.spelled.items()
        if name.startswith("vllm_") or name in _GENERATION
    )


def refuse_unknown_training(kind: str, name: str) -> None:
    """Raise SpecError if ms-swift's training kind is neither lora nor full.

    Raises `SpecError`: it is another kind.
    """
    if kind not in ("lora", "full"):
        raise SpecError(
            f"{name}: ms-swift's train_type {kind} is not predicted, as it trains or keeps other "
            "parameters. lora and full are."
        )


def objective_of_word(word: str, name: str) -> TrainingObjective:
    """Return the training objective of a word in the file ``name``.

    Raises `SpecError`: it is unknown, or trains on rollouts and is not predicted.
    """
    try:
        return parse_objective(word)
    except SpecError as error:
        raise SpecError(f"{name}: {error}") from error


@record(kw_only=True)
class KnownScript:
    """A program that is recognized by its options, all of ``keys``, and by its file name if set.

    ``length`` is its option of the longest sequence. ``kinds`` are prefixes of the values of the
    option ``kind`` that are predicted. ``extends``: it takes the Trainer's options, too.
    ``framework`` is its profile, if that is not the Trainer's.
    """

    dialect: str
    keys: frozenset[str]
    length: str
    file: str
    kind: str
    kinds: tuple[str, ...]
    extends: bool
    framework: str

    def is_of(self, words: Sequence[str], values: Mapping[str, object]) -> bool:
        """Return whether a command, or a document without words, belongs to this program."""
        has_file_name = not self.file or any(
            word.rpartition("/")[2] == self.file for word in words[:3]
        )
        kind = str(values.get(self.kind) or "")
        return (
            has_file_name and self.keys <= set(values) and (not kind or kind.startswith(self.kinds))
        )


_LLAMA = {"tie_word_embeddings": False, "position_embedding": "rotary", "gated": True}


@cache
def shipped_scripts() -> tuple[KnownScript, ...]:
    """Return the programs of ``dialects/scripts.csv``, in order of precedence."""
    return tuple(
        KnownScript(
            keys=frozenset(row["keys"].split()),
            kinds=tuple(row["kinds"].split()) or ("",),
            extends=bool(row["extends"]),
            **{name: row[name] for name in ("dialect", "length", "file", "kind", "framework")},
        )
        for row in shipped_rows("dialects/scripts.csv")
    )


def script_of(words: Sequence[str], values: Mapping[str, object]) -> KnownScript | None:
    """Return the known program whose option names a command or document has; None if unknown.

    >>> script_of(["finetune.py"], {"base_model": "llama-7b"}).dialect
    'alpaca-lora'
    >>> script_of([], {"task": "image-classification", "base_model": "vit"})
    """
    return next((script for script in shipped_scripts() if script.is_of(words, values)), None)


def translate_program_options(sources: OptionSources, dialect: OptionAliasTable) -> dict[str, str]:
    """Translate a program's options to the Trainer's; return reasons of defaults."""
    translate_options(sources, dialect)
    reasons = apply_program_defaults(sources, dialect)
    return reasons | derive_options(
        sources.script, dialect, num_gpus=total_gpus(sources.worlds[0]) or 1
    )


def llama_shape(sources: OptionSources, dialect: OptionAliasTable) -> dict[str, object] | None:
    """Sizes of a model like Llama that the options set; None if the dialect has no sizes."""
    rows = [row for row in dialect.rows if row.role == "shape"]
    sizes = {row.into: parse_positive_int(sources.text(f"--{row.option}")) for row in rows}
    return {**_LLAMA, **{name: size for name, size in sizes.items() if size}} if rows else None


_ACCUMULATION = "gradient_accumulation_steps"


def translate_changes(name: str, changes: Changes, *, extends: bool) -> Changes:
    """Translate changes of the Trainer's options to options of the program ``name``.

    Raises LaunchError if it has no option for one of them, and does not take the Trainer's own.
    """
    program_changes: dict[str, tuple[str, ...] | None] = {}
    rows = OptionAliasTable.load(name).rows
    for option, texts in changes.items():
        matching_rows = [row for row in rows if row.into == f"--{option}"]
        is_derived = any(row.role == "derive" for row in matching_rows)
        if option == _ACCUMULATION and is_derived and not extends:
            continue  # the program computes it from all samples of a step
        writable_rows = [
            row
            for row in sorted(matching_rows, key=lambda row: row.role != "written")
            if row.role in ("written", "is", "word")
            if not row.text or texts is None or row.word == texts[0]
        ]
        # Several values for the same text are ambiguous.
        is_unambiguous = (
            len(writable_rows) == 1
            or texts is None
            or (bool(writable_rows) and not writable_rows[0].text)
        )
        row = next(iter(writable_rows), None) if is_unambiguous else None
        if row is not None:
            program_changes[row.option] = (row.text,) if row.text and texts else texts
        elif extends:
            program_changes[option] = texts
        else:
            raise LaunchError(f"{name} has no option for {option}.")
    return program_changes
