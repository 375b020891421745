"""Derive settings from the combined options of the Trainer, DeepSpeed and accelerate."""

from __future__ import annotations

import re
from contextlib import suppress

from planner.base.training_aliases import (
    ExpertAdapters,
    TrainingObjective,
    is_one_end,
    is_paged,
    names_feed_forward,
    names_shared_experts,
    nearest_adapter_targets,
    parse_optimizer,
)
from planner.errors import LaunchError, PlannerError, SpecError
from planner.launch.option_table import MutableQuantities, OptionTable, Quantities
from planner.launch.read.expression_rows import apply_read_rows
from planner.launch.read.hf_trainer.option_sources import (
    ZERO_STAGE,
    TrainerOptions,
    derive_objective,
    generation_options,
    parse_positive_int,
)
from planner.launch.read.parsed_launch import LaunchSettings, SettingsBuilder, parse_int
from planner.question.parse_values import FEWEST_TOKENS
from planner.specs.catalogue import Catalogue
from planner.specs.model import ModelSpec
from planner.workloads.training.question import UNKNOWN_TOKENS

UNPACKED = (
    "Without packing, sequences are shorter than {option}: steps are faster and smaller than "
    "predicted, and have fewer tokens."
)
_EPOCHS = 3
_SPLIT_PART = re.compile(r"\[:(\d+)\]$")
_MODEL_OPTIONS = ("--model_name_or_path", "--model_name", "--base_model", "--model",
           "--config_name",
           "--model_id", "--model_path", "--pretrained_model_name_or_path")  # fmt: skip
# Names of checkpoints with weights in few bits.
_FEW_BITS = re.compile(r"(?i)(?<![a-z0-9])(gptq|awq|hqq|aqlm|(?:bnb-)?4bit|int4|nf4)(?![a-z0-9])")
# Of these each expert's matrix is a module with its packed weights.
_HAS_MODULES = re.compile(r"(?i)gptq|awq|hqq|aqlm|int4")

_OF_SETUP, _OF_RUN = OptionTable.load("trainer-setup"), OptionTable.load("trainer-run")
_SAMPLE_CAPS = ("--max_samples", "--max_train_samples")
# Options whose values are read even if no table of an option has them.
_WITH_ANY_VALUE = {
    *("eval_strategy", "fsdp", "load_in_4bit", "loss_type", "model_name_or_path"),
    "per_device_eval_batch_size",
}
_OFF_TEXTS = ("false", "auto", "null", "none", "no", "NO")
_SAMPLE_COUNT = re.compile(r"#(\d{1,12})$")


def derive_settings(options: TrainerOptions, name: str = "") -> LaunchSettings:
    """Derive the settings of a script and its files; ``name`` is the file in messages.

    Raises LaunchError if batch sizes or GPUs contradict each other.
    Raises SpecError if what it trains is not predicted.
    """
    settings = SettingsBuilder()
    model = next(
        (options.texts[option] for option in _MODEL_OPTIONS if options.texts.get(option)), None
    )
    if model:
        settings.values["model"] = model
    else:
        settings.mark_missing("model")
    derive_objective(options, settings, name)
    quantities = _program_quantities(options, settings)
    apply_read_rows(options.reading, _OF_SETUP, settings, quantities)
    _refuse_other_split(quantities, settings)
    _refuse_other_batch(options, quantities, settings)
    if "total_tokens" not in settings.values:
        _derive_samples(options, settings)
    apply_read_rows(options.reading, _OF_RUN, settings, quantities)
    _derive_optimizer(options, settings, name)
    _add_notes(options, settings)
    used_names = {
        option
        for source in (options.script, options.deepspeed, options.accelerate)
        for meaning in source.values()
        for option in meaning.options
    }
    tables = (OptionTable.load(name) for name in ("transformers", "deepspeed", "accelerate"))
    table_options = frozenset[str]().union(*(table.options for table in tables))
    of_rows = {name.removeprefix("--") for name in _OF_SETUP.used | _OF_RUN.used}
    used_names |= of_rows - (table_options - _WITH_ANY_VALUE)
    # An option that is switched off, or left to another file, counts as used.
    switched_off = {
        name.removeprefix("--") for name, text in options.texts.items() if text in _OFF_TEXTS
    }
    used_names |= switched_off & table_options
    used = frozenset(options.spelled[name] for name in used_names if name in options.spelled)
    return settings.build(
        used_options=used,
        ignored_options=generation_options(options) if quantities["on_rollouts"] else frozenset(),
    )


def _find_model(name: object) -> ModelSpec | None:
    """The model of a name or a path; None if it is not found."""
    with suppress(PlannerError):
        return Catalogue(None).load_model(str(name))
    return None


def _program_quantities(options: TrainerOptions, settings: SettingsBuilder) -> MutableQuantities:
    """Return the names that expressions of the tables ``trainer-setup`` and ``trainer-run`` use.

    ``script_``, ``deepspeed_`` and ``accelerate_`` are before parameters in options of the source,
    ``trl_`` and ``why_`` before terms with a default of TRL that holds, and its reason.
    """
    few_bits = _FEW_BITS.search(str(settings.values.get("model", "")))
    modules = options.of("script", "lora_modules")
    saved = (options.of("script", "saved_modules") or "").replace(",", " ").split()
    saved_ends = " ".join(filter(is_one_end, saved))
    flash, absent_file = options.script.get("flash_attention"), options.absent_file() or ""
    world = options.reading.command.resources
    launcher = (options.of("accelerate", "kind") or "").upper()
    last_of_path = absent_file.rpartition("/")[2].lower()
    stage = ZERO_STAGE.search(last_of_path)
    objective = TrainingObjective(settings.values.get("training_objective") or "sft")
    quantities: MutableQuantities = {
        "on_rollouts": objective.needs_rollouts,
        "sequences_per_sample": objective.sequences_per_sample,
        "fewest_tokens": FEWEST_TOKENS,
        "unpacked": UNPACKED.format(option="--max_length"),
        "absent_file": absent_file,
        "last_of_path": last_of_path,
        "stage_of_name": None if stage is None else int(stage[1]),
        "takes_sharding": options.takes_sharding,
        "is_supervised": options.is_supervised,
        "has_script": options.has_script,
        "has_deepspeed": options.has_deepspeed,
        "starts_elsewhere": options.starts_elsewhere,
        # A bare --fsdp, with text None, counts.
        "is_fsdp": launcher == "FSDP"
        or options.texts.get("--fsdp", "false") not in ("", "false", "False"),
        "launcher": launcher,
        "deepspeed_is_flag": options.texts.get("--deepspeed") == "true",
        "world_gpus": parse_int(world.num_gpus),
        "starts_one_process": bool(world.is_one_process)
        and not any((world.num_nodes, world.gpus_per_node, world.num_gpus)),
        "few_bits": None if few_bits is None else few_bits[1],
        "packs_experts": few_bits is not None
        and _HAS_MODULES.fullmatch(few_bits[1]) is not None
        and (model := _find_model(settings.values["model"])) is not None
        and model.num_experts > 0,
        "flash_attention_of_file": None if flash is None else flash.value,
        "holds_out": any(
            (options.texts.get(option) or "0").strip("0.")
            for option in ("--val_set_size", "--split_dataset_ratio")
        ),
        "saved_ends": saved_ends,
        "saves_one_end": is_one_end(saved_ends),
    }
    if modules is not None:
        targets = nearest_adapter_targets(modules.replace(",", " ").split())
        quantities["adapted_matrices"] = str(targets)
        if names_feed_forward(modules):
            quantities["adapted_experts"] = str(ExpertAdapters.EACH)
        elif names_shared_experts(modules):
            quantities["adapted_experts"] = str(ExpertAdapters.NONE)
    if options.texts.get("zero_optimization.reduce_bucket_size") == "auto" and (
        model := _find_model(settings.values.get("model"))
    ):
        quantities["hidden_size"] = model.hidden_size
    for source in ("script", "deepspeed", "accelerate"):
        for name in getattr(options, source):
            number = options.number(source, name)
            quantities[f"{source}_{name}"] = options.of(source, name) if number is None else number
    for row in options.trl_defaults:
        number = parse_positive_int(row.word)
        quantities[f"trl_{row.term}"] = row.word if number is None else number
        quantities[f"why_{row.term}"] = row.note
    return quantities


def _derive_samples(options: TrainerOptions, settings: SettingsBuilder) -> None:
    """Set samples and epochs as far as the file determines them, else default total tokens.

    LLaMA-Factory's ``max_samples`` bounds each data set (0.9, data/loader.py takes
    ``min(max_samples, len(dataset))``), ``max_train_samples`` of Transformers' examples all of
    them. ms-swift draws the number after ``#`` of a data set (swift/llm/dataset/loader.py).
    """
    epochs = options.texts.get("--num_train_epochs")
    split_match = _SPLIT_PART.search(options.texts.get("--dataset_train_split") or "")
    datasets = re.split(r"[,\s]+", options.texts.get("--dataset") or "")
    sample_counts = [_SAMPLE_COUNT.search(name) for name in datasets]
    num_samples = parse_positive_int(split_match[1] if split_match else None)
    if all(sample_counts):
        num_samples = sum(int(number[1]) for number in sample_counts if number)
        datasets = datasets[:1]
    cap_option = next(
        (name for name in _SAMPLE_CAPS if parse_positive_int(options.texts.get(name))), ""
    )
    if num_samples is None and cap_option:
        num_samples = parse_positive_int(options.texts[cap_option])
    with suppress(ValueError):
        if float(epochs or 0) > 0:
            settings.values["epochs"] = float(epochs or 0)
    if "epochs" not in settings.values and num_samples is not None:
        settings.assume("epochs", _EPOCHS, f"no num_train_epochs: {_EPOCHS} are the Trainer's")
    if num_samples is not None:
        settings.values["num_samples"] = num_samples * (
            len(datasets) if cap_option == _SAMPLE_CAPS[0] else 1
        )
        if cap_option and not all(sample_counts) and split_match is None:
            cap_note = (
                f"{cap_option.strip('-')} is the most that is taken: time and cost are upper limits"
            )
            settings.defaults["num_samples"] = f"{cap_note}, --samples gives the number"
    elif not options.has_script or (
        settings.values.get("training_objective") == TrainingObjective.PRETRAIN
    ):
        # Fine-tuning does not repeat the tokens of pretraining.
        reason = "the file does not set its samples: time and cost are for a billion tokens"
        settings.assume("total_tokens", UNKNOWN_TOKENS, reason)


_OTHER_STATES = re.compile("galore|apollo|lomo|badam|adam_mini")


def _derive_optimizer(options: TrainerOptions, settings: SettingsBuilder, file_name: str) -> None:
    """Set the optimizer that the options name, if any; raise SpecError for unsupported states."""
    name = options.of("script", "optimizer_name")
    if name is None:
        return
    if parse_optimizer(name) is None and _OTHER_STATES.search(name):
        raise SpecError(
            f"{file_name}: the optimizer {name} keeps neither the states nor the gradients "
            "of Adam, and is not predicted: name another one to have the rest predicted."
        )
    settings.set_optimizer(name)
    if not is_paged(name):
        return
    framework = Catalogue(None).load_framework(str(settings.values["framework"])).spec
    if not framework.paged_optimizer or settings.values.get("offload", "none") != "none":
        settings.notes.append(f"The states of {name} are predicted without paging.")
        del settings.values["paged_optimizer"]


def _add_notes(options: TrainerOptions, settings: SettingsBuilder) -> None:
    """Add notes on ignored keys and values of "auto" without a script."""
    if options.unknown:
        names = ", ".join(options.unknown[:5])
        settings.notes.append(f"DeepSpeed ignores unknown keys: {names} has no effect.")
    if "auto" in options.texts.values() and not options.has_script:
        names = ", ".join(name for name, text in options.texts.items() if text == "auto")
        settings.notes.append(
            f'"auto" is set by the script\'s arguments, which are missing: {names}.'
        )


def _refuse_other_split(quantities: Quantities, settings: SettingsBuilder) -> None:
    """Raise LaunchError if the degrees of a file split another number of GPUs than it starts."""
    split_gpus, started_gpus = map(quantities.get, ("split_gpus", "started_gpus"))
    if split_gpus is None or started_gpus in (None, split_gpus):
        return
    tensor, context = map(settings.values.get, ("tensor_parallel", "context_parallel"))
    raise LaunchError(
        f"parallelism_config splits {split_gpus} GPUs (copies {quantities['replicas']} x "
        f"shards {quantities['shards']} x tensor {tensor} x context {context} "
        f"x experts {quantities['expert_ranks']}), but {started_gpus} are started: change one of "
        "them."
    )


def _refuse_other_batch(
    options: TrainerOptions, quantities: Quantities, settings: SettingsBuilder
) -> None:
    """Raise LaunchError if batch sizes contradict each other, or the GPUs."""
    keys = {
        "micro_batch_size": ("train_micro_batch_size_per_gpu", "per_device_train_batch_size"),
        "gradient_accumulation_steps": ("gradient_accumulation_steps",) * 2,
    }
    for parameter, (key, option) in keys.items():
        of_script, of_file = (options.number(each, parameter) for each in ("script", "deepspeed"))
        if of_script and of_file and of_script != of_file:
            raise LaunchError(
                f"{key} is {of_file} in DeepSpeed's file, but --{option} is {of_script}: the "
                'Trainer refuses that. Write "auto" in the file, or the same.'
            )
    tensor, context = (int(settings.values[f"{name}_parallel"]) for name in ("tensor", "context"))
    num_gpus = settings.values.get("num_gpus")
    if num_gpus is not None and num_gpus % (tensor * context):
        raise LaunchError(
            f"{num_gpus} GPUs cannot be split by {tensor} x {context}: change one of them."
        )
    names = ("stated_batch", "micro", "accumulated", "ranks", "counted_ranks")
    batch, micro, steps, ranks, counted = (int(quantities.get(name) or 0) for name in names)
    ranks *= counted
    if not batch or not ranks:
        return
    if micro and steps and micro * steps * ranks != batch:
        raise LaunchError(
            f"train_batch_size {batch} is not micro-batch {micro} x accumulation {steps} x "
            f"{ranks} ranks = {micro * steps * ranks}: DeepSpeed refuses that."
        )
    if batch % ranks:
        raise LaunchError(f"train_batch_size {batch} cannot be split over {ranks} ranks.")
