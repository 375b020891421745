"""NeMo-RL: the training step of a run, from its YAML and the files that ``defaults`` names.

Source: NVIDIA-NeMo/RL, ``examples/configs/grpo_math_1B.yaml`` (00294d9) for defaults where the file
of ``defaults`` is missing; ``nemo_rl/utils/config.py`` (7ea279a) for ``add``, ``mul``, ``div`` and
``max``, which extend OmegaConf's ``${section.key}``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from planner.base.training_aliases import Algorithm
from planner.documents.shell.edits import ParsedOption
from planner.documents.yaml_writer import yaml_text
from planner.launch.option_table import OptionTexts, ParameterNote, Quantities
from planner.launch.read.expression_rows import apply_read_rows
from planner.launch.read.hf_trainer.option_sources import TEACHER_NOTE
from planner.launch.read.hf_trainer.write_script import nest_options
from planner.launch.read.parsed_launch import (
    NOTHING,
    LaunchSettings,
    OptionReader,
    ParsedCommand,
    SettingsBuilder,
    flag,
    number,
    with_unknown_options,
)
from planner.launch.target import (
    CommandWords,
    LaunchDraft,
    LaunchJob,
    LaunchOutputFile,
    LaunchTarget,
    ShellVariable,
    option_texts,
    override,
)
from planner.launch.targets.rl_reader_writer import (
    OUTPUT,
    apply_step_rows,
    fsdp_quantities,
    reader_of_steps,
    set_dynamic_sampling,
    set_lengths,
    step_draft,
)
from planner.launch.targets.training_reader import (
    classify_unused_options,
    note_updates,
    require_model_ranks,
    set_full_training,
    set_lora,
    set_objective,
    set_token_budget,
)
from planner.question.request import Request
from planner.specs.catalogue import Catalogue

_PROGRAM = re.compile(r"run_(vlm_)?(grpo|sft|dpo|rm|ppo|distillation)\w*\.py")
_LORA, _MEGATRON = "policy.dtensor_cfg.lora_cfg.", "policy.megatron_cfg."
_ALGORITHMS = ("grpo.", "ppo.", "distillation.", "sft.", "dpo.", "rm.")
_CONFIG_SECTIONS = (*_ALGORITHMS, "policy.", "cluster.")
_SECTIONS = (
    *(
        *_CONFIG_SECTIONS,
        "loss_fn.",
        "data.",
        "env.",
        "logger.",
        "checkpointing.",
        "defaults",
        "--config",
    ),
    *("teacher.", "value.", "value_loss_fn.", "async_rl.", "data_plane."),
)


def matches_command(words: Sequence[str]) -> bool:
    """Whether a command starts NeMo-RL."""
    return any(_PROGRAM.fullmatch(word.rpartition("/")[2]) for word in words[:3])


def matches_document(values: Mapping[str, object]) -> bool:
    """Return whether a document is a NeMo-RL configuration, or extends one by ``defaults``.

    >>> matches_document({"policy.model_name": "Qwen/Qwen2.5-1.5B", "cluster.num_nodes": 1})
    True
    >>> matches_document({"defaults": "grpo_math_1B.yaml", "cluster.num_nodes": 4})
    True
    """
    if "defaults" in values and any(name.startswith(_CONFIG_SECTIONS) for name in values):
        return True
    return "policy.model_name" in values


def read_settings(reading: OptionReader) -> LaunchSettings:
    """Read the settings of NeMo-RL's weight update (training without generation).

    Raises LaunchError if the file's split of the model does not divide its GPUs.
    """
    command, missing_files = _merge_config_files(reading.command)
    reading = replace(reading, command=command)
    settings = option_texts(reading, "NeMo-RL")
    values = settings.values
    precision = "fp8" if flag(reading, f"{_MEGATRON}fp8_cfg.enabled") else "bf16"
    set_full_training(settings, precision)
    model = reading.text("policy.model_name") or ""
    settings.require("model", None if model.lower() in NOTHING else model)
    if missing_files:
        names = " and ".join(missing_files)
        settings.notes.append(f"{names} not found: the values of grpo_math_1B.yaml are used.")
    read: dict[str, Any] = {}
    apply_read_rows(reading, TARGET.table, settings, read)
    if rank := values.get("lora_rank"):
        takes_all = flag(reading, f"{_LORA}match_all_linear", default=True)
        dtensor_modules = () if takes_all else (f"{_LORA}target_modules",)
        megatron_modules = (f"{_MEGATRON}peft.target_modules",)
        set_lora(
            reading, settings, rank, *(megatron_modules if read["is_megatron"] else dtensor_modules)
        )
    if num_gpus := values.get("num_gpus"):
        require_model_ranks(reading, settings, num_gpus)
        for tokens in filter(None, map(read.get, ("packed_tokens", "sorted_tokens"))):
            set_token_budget(settings, tokens, read.get("sequences_per_rank"))
        # With packing, this many sequences set the tokens.
        most = max(values["global_batch_size"] // read["copies"], 1)
        values["micro_batch_size"] = min(values["micro_batch_size"], most)
    if read.get("is_distilled"):
        settings.notes.append(TEACHER_NOTE)
    elif "training_objective" not in values:
        set_objective(settings, read["has_reference"], read["has_critic"])
        note_updates(settings, "NeMo-RL", read.get("generated"), values["global_batch_size"])
    used = TARGET.table.used
    return settings.build(used_options=used, **classify_unused_options(reading, _SECTIONS, used))


def _merge_config_files(command: ParsedCommand) -> tuple[ParsedCommand, list[str]]:
    """Return the command with options of its configuration files, and names of missing files.

    Also returns the names of missing files.
    """
    missing_files: list[str] = []
    command = with_unknown_options(command)
    options = _merge_inherited(command, missing_files)

    def value(key: str) -> str | None:
        return None if key not in options else options[key].single

    for key, option in options.items():
        if (text := option.single) and (resolved := interpolate(text, value)) not in (None, text):
            options[key] = replace(option, texts=(resolved,))
    return replace(command, options=options), missing_files


def _merge_inherited(command: ParsedCommand, missing_files: list[str]) -> dict[str, ParsedOption]:
    """Merge a document's options over those of the files it extends; later files win.

    A section with ``_override_`` (``nemo_rl/utils/config.py``), or null, replaces all its keys.
    Adds the names of missing files to ``missing_files``.
    """
    options: dict[str, ParsedOption] = {}
    for key in ("defaults", "--config"):
        base = command.options.get(key)
        for name in filter(None, () if base is None else base.texts):
            if name in command.files:
                options |= _merge_inherited(command.files[name], missing_files)
            else:
                missing_files.append(name)
    marker = "._override_"
    overridden = tuple(
        name.removesuffix(marker[1:]) if name.endswith(marker) else f"{name}."
        for name in command.options
    )
    inherited = {
        name: option
        for name, option in options.items()
        if not (overridden and name.startswith(overridden))
    }
    return {**inherited, **command.options}


def _has_section(reading: OptionReader, name: str) -> bool:
    return any(option.startswith(f"{name}.") for option in reading.command.options)


_GENERATION = "policy.generation."


def _add_step_settings(
    reading: OptionReader, update: LaunchSettings, settings: SettingsBuilder
) -> None:
    """Set algorithm and lengths, and what the option table reads for a full step."""
    values = settings.values
    normalizes_rewards = flag(reading, "grpo.normalize_rewards", default=True)
    values["algorithm"] = str(Algorithm.GRPO if normalizes_rewards else Algorithm.RLOO)
    if flag(reading, "grpo.use_dynamic_sampling"):
        set_dynamic_sampling(settings)
    if any(option.startswith("ppo.") for option in reading.command.options):
        values["algorithm"] = str(Algorithm.PPO)
    length = int(update.values["sequence_length"])
    prompt_length = number(reading, "data.max_input_seq_length")
    # The recipe sets it to the length of the whole sequence.
    bounds_prompt = prompt_length is not None and prompt_length < length
    max_answer = number(reading, f"{_GENERATION}max_new_tokens")
    set_lengths(settings, length, max_answer, prompt_length if bounds_prompt else None)
    if values.get("engine") == "sglang":
        share = reading.amount(f"{_GENERATION}sglang_cfg.mem_fraction_static")
        settings.set("rollout_gpu_memory", share)
    read: dict[str, Any] = {
        "sequence_length": length,
        "trainer_gpus": update.values.get("num_gpus"),
    }
    apply_step_rows(reading, "nemo-rl", settings, read)


CONFIG = "grpo.yaml"
_CHECKOUT, _CHECKOUT_FOLDER = "NEMO_RL", "/opt/nemo-rl"
"""The folder of the checkout in NeMo-RL's containers."""


def _quantities(job: LaunchJob) -> Quantities:
    """Return the values of DTensor's options for a planned job; {} for those of Megatron-Core."""
    return {} if job.profile.name == "NeMo-RL" else fsdp_quantities(job, "nemo-rl", _MEGATRON)


def _draft(job: LaunchJob, settings: OptionTexts) -> LaunchDraft:
    """Build the NeMo-RL command of a reinforcement-learning job and its YAML file."""
    options = {option.option: option.text for option in settings.options}
    notes = {option.option: option.note for option in settings.options if option.note}
    text = yaml_text(nest_options(options), notes)
    checkout = ShellVariable(
        name=_CHECKOUT, meaning="the checkout of NeMo-RL 0.7", default=_CHECKOUT_FOLDER
    )
    arguments = (
        CommandWords(words=("uv", "run", "--project", checkout)),
        CommandWords(words=(replace(checkout, suffix="/examples/run_grpo.py"),)),
        CommandWords(words=("--config", CONFIG)),
        override("checkpointing.checkpoint_dir", OUTPUT.name, OUTPUT.meaning, OUTPUT.default),
    )
    file = LaunchOutputFile(name=CONFIG, text=text, meaning="the training settings of NeMo-RL")
    return step_draft(job, "nemo-rl", arguments, files=(file,), left=_LEFT_TO_USER)


_LEFT_TO_USER = (
    ParameterNote(
        parameter="data",
        value="",
        note=f"the data of the recipe: set yours in data and env of {CONFIG}",
    ),
    ParameterNote(
        parameter="learning rate",
        value="",
        note="lr of policy.megatron_cfg.optimizer or policy.optimizer, and its scheduler: yours; "
        "no effect on time or memory",
    ),
)


_DTENSOR_PROFILE = "NeMo-RL DTensor"


def _narrow_request(request: Request) -> Request:
    """Remove expert parallelism of DTensor from the request: only Megatron-Core has a key."""
    catalogue, frameworks = Catalogue(request.specs), request.framework
    names = (request.model,) if isinstance(request.model, str) else request.model
    if frameworks is None or not any(catalogue.load_model(name).num_experts for name in names):
        return request
    if isinstance(frameworks, tuple):
        return replace(
            request,
            framework=tuple(framework for framework in frameworks if framework != _DTENSOR_PROFILE),
        )
    if catalogue.load_framework(frameworks).spec.name != _DTENSOR_PROFILE:
        return request
    return replace(request, settings={"expert_parallel": 1, **request.settings})


TARGET = reader_of_steps(
    LaunchTarget.of(
        "nemo-rl",
        answers=read_settings,
        starts=matches_command,
        is_of=matches_document,
        inherits=True,
        narrowed=_narrow_request,
    ),
    profiles=("NeMo-RL", "NeMo-RL DTensor"),
    add_step_settings=_add_step_settings,
    complete_command=lambda command: _merge_config_files(command)[0],
    version="NeMo-RL 0.7",
    quantities=_quantities,
    draft=_draft,
    accepted=("nemo-rl-0.7.0",),
)


_INNERMOST_REFERENCE = re.compile(r"\$\{([^${}]*)\}")
_RESOLVER_CALL = re.compile(r"(\w+):\s*([\d.]+)\s*,\s*([\d.]+)\s*")
_RESOLVERS: Mapping[str, Callable[[float, float], float]] = {
    "add": lambda a, b: a + b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "max": max,
}
_MAX_REFERENCES = 32


def interpolate(text: str, value: Callable[[str], str | None]) -> str | None:
    """Resolve the ``${...}`` references in a text; None if one has no value.

    ``value`` returns the text of a key, None if it is not set.

    >>> interpolate("${mul:${a.b}, 16}", {"a.b": "64"}.get)
    '1024'
    >>> interpolate("${oc.env:HOME}", {}.get)
    """
    for _ in range(_MAX_REFERENCES):
        match = _INNERMOST_REFERENCE.search(text)
        if match is None:
            return text
        resolved = _resolve(match[1].strip(), value)
        if resolved is None:
            return None
        text = text[: match.start()] + resolved + text[match.end() :]
    return None


def _resolve(expression: str, value: Callable[[str], str | None]) -> str | None:
    """Return the value of one reference: a key, or a function of two numbers; None if unknown."""
    call = _RESOLVER_CALL.fullmatch(expression)
    if call is None:
        return value(expression)
    resolver = _RESOLVERS.get(call[1])
    try:
        number = None if resolver is None else resolver(float(call[2]), float(call[3]))
    except (ValueError, ZeroDivisionError):
        return None
    if number is None:
        return None
    return str(int(number)) if number.is_integer() else str(number)
