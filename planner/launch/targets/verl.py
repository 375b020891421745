"""verl: the training step of a run on rollouts, from the hydra words of ``main_ppo``.

Source: volcengine/verl 0.7, ``verl/trainer/config/_generated_ppo_trainer.yaml`` and
``_generated_ppo_megatron_trainer.yaml`` for defaults; ``verl/workers/actor/dp_actor.py``: budgets
of tokens are of a rank and count its sequence-parallel ranks. For supervised fine-tuning
``verl/trainer/fsdp_sft_trainer.py`` with ``config/sft_trainer.yaml``, and the later
``sft_trainer.py`` with ``config/sft_trainer_engine.yaml``. For whole steps
``verl/trainer/config/rollout/rollout.yaml``, and in ``docs/advance`` one_step_off.md,
fully_async.md with ``fully_async_ppo_trainer.yaml``, and the page of the V1 async trainer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import ceil

from planner.base.software_enums import Placement
from planner.base.training_aliases import Algorithm
from planner.base.units import ceil_div
from planner.errors import LaunchError
from planner.launch.option_table import (
    MutableQuantities,
    OptionText,
    OptionTexts,
    ParameterNote,
    Quantities,
)
from planner.launch.read.hf_trainer.derive_settings import UNPACKED
from planner.launch.read.parsed_launch import (
    LaunchSettings,
    OptionReader,
    SettingsBuilder,
    flag,
    has_unknown_value,
    number,
    option_text,
    total_gpus,
    with_unknown_options,
)
from planner.launch.target import CommandWords, LaunchDraft, LaunchJob, LaunchTarget, override
from planner.launch.targets.rl_reader_writer import (
    FSDP_SUFFIX,
    MODEL,
    OUTPUT,
    fsdp_quantities,
    has_separate_gpus,
    reader_of_steps,
    set_dynamic_sampling,
    set_placement,
    set_sequences_per_micro_batch,
    step_draft,
    step_quantities,
    tokens_per_rank,
)
from planner.launch.targets.training_reader import (
    fsdp_profile,
    make_update_reader,
    note_updates,
    require_model_ranks,
    set_lora,
    set_megatron_parallelism,
    set_objective,
    set_token_budget,
)
from planner.launch.write.benchmark import STEPS

_PROGRAMS = (
    *("verl.trainer.main_ppo", "main_ppo.py", "recipe.dapo.main_dapo", "main_dapo.py"),
    *("one_step_off_policy.main_ppo", "one_step_off_policy.async_main_ppo"),
    *("fully_async_policy.fully_async_main", "fully_async_main.py"),
)
_FINE_TUNING_PROGRAMS = ("fsdp_sft_trainer", "fsdp_sft_trainer.py", "verl.trainer.sft_trainer")
_ACTOR = "actor_rollout_ref.actor."
_MEGATRON = f"{_ACTOR}megatron."
_FSDP = f"{_ACTOR}fsdp_config."
_MODEL = "actor_rollout_ref.model."
_OVERRIDES = f"{_MEGATRON}override_transformer_config."
_SECTIONS = (
    *("actor_rollout_ref.rollout.", "actor_rollout_ref.ref.", "critic.", "reward_model."),
    *("reward.", "custom_reward_function.", "algorithm.", "trainer.", "data.", "ray_kwargs."),
    *("ray_init.", "global_profiler.", "reward_manager.", f"{_ACTOR}optim.", f"{_ACTOR}clip_"),
    *(f"{_ACTOR}kl_", f"{_ACTOR}entropy_", f"{_ACTOR}loss_", f"{_ACTOR}grad_clip"),
    *(f"{_ACTOR}policy_loss.", f"{_ACTOR}checkpoint.", f"{_ACTOR}profiler.", _OVERRIDES, _MEGATRON),
    *(_FSDP, _MODEL, "--config-path", "actor_rollout_ref.hybrid_engine", "transfer_queue."),
    *("model.", "optim.", "engine.", "engine=", "checkpoint."),  # of fine-tuning
)
_RECOGNIZED_BY = (f"{_MODEL}path=", f"{_ACTOR}ppo_mini_batch_size=")
"""Options that programs take which extend verl's trainer."""
_MODELS = (f"{_MODEL}path", "model.partial_pretrain", "model.path")
_OFFLOAD_NOTE = (
    "param_offload and optimizer_offload move weights and states to the host between the phases of "
    "a step: in the update, which is predicted, they are on the GPU."
)


_LORA_TARGET_KEYS = ("lora.target_modules", "target_modules")


def matches_command(words: Sequence[str]) -> bool:
    """Return whether a command starts verl, or a program with verl's trainer options.

    >>> matches_command(["verl.trainer.main_ppo", "data.train_batch_size=1024"])
    True
    >>> matches_command(["recipe.spo.main", "actor_rollout_ref.model.path=Qwen/Qwen3-8B"])
    True
    """
    if any(word.endswith((*_PROGRAMS, *_FINE_TUNING_PROGRAMS)) for word in words[:3]):
        return True
    is_script = any(word.endswith(".sh") for word in words[:3])
    return not is_script and any(word.lstrip("+").startswith(_RECOGNIZED_BY) for word in words)


def matches_document(values: Mapping[str, object]) -> bool:
    """Whether a document configures verl's training on rollouts."""
    is_fine_tuning = {"model.partial_pretrain", "data.max_length"} <= {*values}
    return f"{_MODEL}path" in values or f"{_ACTOR}ppo_mini_batch_size" in values or is_fine_tuning


def _add_unlisted_settings(reading: OptionReader, settings: SettingsBuilder) -> None:
    """Set what the option table does not read: the policy's update, or fine-tuning."""
    _note_other_program(reading, settings)
    if reading.has("model.partial_pretrain") or any(
        (argument.single or "").endswith(_FINE_TUNING_PROGRAMS)
        for argument in reading.command.positional
    ):
        _set_fine_tuning(reading, settings)
        return
    if rank := number(reading, f"{_MODEL}lora_rank", f"{_MODEL}lora.rank"):
        set_lora(reading, settings, rank, *(f"{_MODEL}{name}" for name in _LORA_TARGET_KEYS))
    strategy = (
        option_text(reading, f"{_ACTOR}strategy") or option_text(reading, "--config-name") or ""
    )
    is_megatron = "megatron" in strategy or (
        not strategy and any(name.startswith(_MEGATRON) for name in reading.command.options)
    )
    (_set_megatron_parallelism if is_megatron else _set_fsdp_parallelism)(reading, settings)
    length = _set_sequence_length(reading, settings)
    _set_batch(reading, settings, length)
    has_reference = flag(reading, f"{_ACTOR}use_kl_loss")
    has_critic = (option_text(reading, "algorithm.adv_estimator") or "gae") == "gae"
    has_reference = has_reference or flag(reading, "algorithm.use_kl_in_reward")
    set_objective(settings, has_reference, has_critic=has_critic)
    if any(flag(reading, f"{part}{name}") for part in (_FSDP, _MEGATRON) for name in _OFFLOAD_KEYS):
        settings.notes.append(_OFFLOAD_NOTE)


def _note_other_program(reading: OptionReader, settings: SettingsBuilder) -> None:
    """Add a note if the command starts another program than verl's, read as ``main_ppo``."""
    words = [text for argument in reading.command.positional for text in argument.texts if text]
    if words and not any(word.endswith((*_PROGRAMS, *_FINE_TUNING_PROGRAMS)) for word in words[:3]):
        settings.notes.append(
            f"{words[0]} is read as verl.trainer.main_ppo: its differences are not predicted."
        )


_FINE_TUNING_OPTIONS = {
    "rank": ("model.lora_rank", "model.lora.rank"),
    "ulysses": ("ulysses_sequence_parallel_size", "engine.ulysses_sequence_parallel_size"),
    "length": ("data.max_length",),
    "batch": ("data.train_batch_size",),
    "micro": ("data.micro_batch_size_per_gpu", "data.micro_batch_size"),
    "repeats": ("model.enable_gradient_checkpointing",),
    "offload": ("model.fsdp_config.cpu_offload", "engine.offload_policy"),
}
_SFT_DEFAULTS = {"length": 1024, "batch": 256, "micro": 4}


def _set_fine_tuning(reading: OptionReader, settings: SettingsBuilder) -> None:
    """Set what the option table does not read for supervised fine-tuning with FSDP.

    Raises LaunchError if another engine than FSDP trains.
    """
    values = settings.values
    if (engine := option_text(reading, "engine", "model.strategy")) and not engine.startswith(
        "fsdp"
    ):
        raise LaunchError(
            f"{reading.position}: {engine} of verl's fine-tuning is not read: only FSDP is."
        )
    if rank := number(reading, *_FINE_TUNING_OPTIONS["rank"]):
        set_lora(reading, settings, rank, *(f"model.{name}" for name in _LORA_TARGET_KEYS))
    values["training_objective"] = "sft"
    _set_fsdp_sharding(reading, settings, _FINE_TUNING_OPTIONS)
    names = {"length": "sequence_length", "batch": "global_batch_size", "micro": "micro_batch_size"}
    for key, name in names.items():
        size = number(reading, *_FINE_TUNING_OPTIONS[key])
        values[name] = size or _SFT_DEFAULTS[key]
        if size is None:
            settings.defaults[name] = f"{_SFT_DEFAULTS[key]:,} is verl's"
    if (num_gpus := total_gpus(reading.command.resources)) is None:
        settings.mark_missing("num_gpus")
    else:
        values["num_gpus"] = num_gpus
    _, total_micro_batch = _FINE_TUNING_OPTIONS["micro"]
    if not reading.has(_FINE_TUNING_OPTIONS["micro"][0]) and reading.has(total_micro_batch):
        # fsdp_sft_trainer.py: it is divided by the data-parallel ranks
        total = number(reading, total_micro_batch)
        if total and num_gpus:
            values["micro_batch_size"] = max(total // num_gpus, 1)
        elif total:
            settings.assume("micro_batch_size", 1, "the micro-batch is that of all GPUs")
    if epochs := number(reading, "trainer.total_epochs"):
        values["epochs"] = epochs
    settings.notes.append(UNPACKED.format(option="data.max_length"))


_OFFLOAD_KEYS = ("param_offload", "optimizer_offload", "grad_offload")


def _set_fsdp_parallelism(reading: OptionReader, settings: SettingsBuilder) -> None:
    """Set degrees of parallelism, ZeRO stage, offload and recomputation of the FSDP backend."""
    name = "ulysses_sequence_parallel_size"
    options = {
        "ulysses": (f"{_ACTOR}{name}", f"{_FSDP}{name}"),
        "offload": (f"{_FSDP}offload_policy",),
        "repeats": (f"{_MODEL}enable_gradient_checkpointing",),
    }
    _set_fsdp_sharding(reading, settings, options)
    if flag(reading, f"{_MODEL}enable_activation_offload"):
        settings.values["offload"] = "activations"
    if not flag(reading, f"{_FSDP}reshard_after_forward", default=True):
        settings.values["zero_stage"] = 2


def _set_fsdp_sharding(
    reading: OptionReader, settings: SettingsBuilder, option_names: Mapping[str, Sequence[str]]
) -> None:
    """Set Ulysses degree, ZeRO stage, offload and recomputation from the named options."""
    values = settings.values
    values["tensor_parallel"] = values["pipeline_parallel"] = 1
    values["context_parallel"] = number(reading, *option_names["ulysses"]) or 1
    values |= {"framework": fsdp_profile(values), "zero_stage": 3}
    if values["context_parallel"] > 1:
        values |= {"cp_comm_type": "a2a", "framework": "HF Trainer FSDP"}
    values["offload"] = "optimizer_weights" if flag(reading, *option_names["offload"]) else "none"
    if any(map(reading.has, option_names["repeats"])):
        values["recompute"] = "full" if flag(reading, *option_names["repeats"]) else "none"
    settings.assume("recompute", "full", "full: verl's default")


def _set_megatron_parallelism(reading: OptionReader, settings: SettingsBuilder) -> None:
    """Set parallelism, ZeRO stage, offload and recomputation of the Megatron-Core backend."""
    values = settings.values
    values["framework"] = "Megatron-LM" if values["adapter"] == "none" else "Megatron-Bridge"
    set_megatron_parallelism(reading, settings, _MEGATRON)
    is_sequence_split = flag(reading, f"{_MEGATRON}sequence_parallel", default=True)
    values["sequence_parallel"] = is_sequence_split and values["tensor_parallel"] > 1
    is_sharded = flag(reading, f"{_MEGATRON}use_distributed_optimizer", default=True)
    values["zero_stage"] = 1 if is_sharded else 0
    offload_option = f"{_ACTOR}optim.override_optimizer_config.optimizer_cpu_offload"
    values["offload"] = "optimizer" if flag(reading, offload_option) else "none"
    granularity = option_text(reading, f"{_OVERRIDES}recompute_granularity")
    layers = number(reading, f"{_OVERRIDES}recompute_num_layers")
    values["recompute"] = granularity if granularity in ("full", "selective") else "none"
    if (
        granularity == "full"
        and layers
        and option_text(reading, f"{_OVERRIDES}recompute_method") == "block"
    ):
        values["recompute_num_layers"] = layers * int(values.get("virtual_pipeline", 1))
    if granularity is None:
        settings.defaults["recompute"] = "none: verl sets no recompute_granularity"


def _set_sequence_length(reading: OptionReader, settings: SettingsBuilder) -> int | None:
    """Set and return the most tokens of a prompt plus answer; None if a value is unknown."""
    names = ("data.max_prompt_length", "data.max_response_length")
    if has_unknown_value(reading, *names):
        settings.mark_missing("sequence_length")
        return None
    lengths = [number(reading, name) for name in names]
    length = sum(part_length or _DEFAULT_LENGTH for part_length in lengths)
    settings.values["sequence_length"] = length
    if None in lengths:
        settings.defaults["sequence_length"] = (
            f"{_DEFAULT_LENGTH} of a prompt or an answer are verl's"
        )
    return length


_DEFAULT_LENGTH, _DEFAULT_MINI_BATCH, _DEFAULT_GPUS_PER_NODE = 512, 256, 8


def _set_batch(reading: OptionReader, settings: SettingsBuilder, length: int | None) -> None:
    """Set the number of GPUs, and the sequences of an optimizer step and of a micro-batch.

    ``ppo_mini_batch_size`` counts prompts, each with its ``rollout.n`` answers.
    """
    values = settings.values
    num_gpus = model_ranks = None
    if has_unknown_value(reading, "trainer.nnodes", "trainer.n_gpus_per_node"):
        settings.mark_missing("num_gpus")
    else:
        nodes = number(reading, "trainer.nnodes") or 1
        num_gpus = nodes * (number(reading, "trainer.n_gpus_per_node") or _DEFAULT_GPUS_PER_NODE)
        values["num_gpus"] = num_gpus
        model_ranks = require_model_ranks(reading, settings, num_gpus)
    mini_batch_option = f"{_ACTOR}ppo_mini_batch_size"
    if has_unknown_value(reading, mini_batch_option, "actor_rollout_ref.rollout.n"):
        settings.mark_missing("global_batch_size")
        return
    mini_batch, samples_per_prompt = (
        number(reading, mini_batch_option),
        number(reading, "actor_rollout_ref.rollout.n"),
    )
    batch = (mini_batch or _DEFAULT_MINI_BATCH) * (samples_per_prompt or 1)
    values["global_batch_size"] = batch
    if mini_batch is None:
        settings.defaults["global_batch_size"] = (
            f"ppo_mini_batch_size of {_DEFAULT_MINI_BATCH} prompts is verl's"
        )
    copies = num_gpus // model_ranks if num_gpus and model_ranks else None
    batch_per_copy = batch // copies if copies and batch % copies == 0 else None
    steps = number(reading, "trainer.total_training_steps")
    prompts_per_step = number(reading, "data.train_batch_size")
    note_updates(settings, "verl", prompts_per_step, mini_batch or _DEFAULT_MINI_BATCH)
    if steps and prompts_per_step and length:
        values["total_tokens"] = steps * prompts_per_step * (samples_per_prompt or 1) * length
    if flag(reading, f"{_ACTOR}use_dynamic_bsz") and length:
        budget = number(reading, f"{_ACTOR}ppo_max_token_len_per_gpu") or _DEFAULT_TOKEN_BUDGET
        set_token_budget(settings, budget * int(values["context_parallel"]), batch_per_copy)
    else:
        _set_micro_batch(reading, settings, copies)


def _set_micro_batch(reading: OptionReader, settings: SettingsBuilder, copies: int | None) -> None:
    """Set the sequences of a micro-batch per rank; older keys count the sequences of all ranks."""
    total_micro_batch = number(reading, f"{_ACTOR}ppo_micro_batch_size")
    micro_batch = number(reading, f"{_ACTOR}ppo_micro_batch_size_per_gpu")
    if micro_batch is None and total_micro_batch and copies:
        micro_batch = max(total_micro_batch // copies, 1)
    settings.require("micro_batch_size", micro_batch)
    if flag(reading, f"{_MODEL}use_remove_padding"):
        settings.notes.append(
            "Padding is removed: micro-batches with answers below max_response_length have "
            "fewer tokens than predicted. use_dynamic_bsz bounds them."
        )


_DEFAULT_TOKEN_BUDGET = 16384
_PROMPTS_PER_STEP, _DEFAULT_PROMPTS_PER_STEP = "data.train_batch_size", 1024
_ROLLOUT = "actor_rollout_ref.rollout."
_ASYNC = "async_training."
_V1 = "trainer.v1."
_DEFAULT_WARMUP_BATCHES, _MAX_VERSIONS = 1, 8
"""Defaults of ``num_warmup_batches``, by which prompts run ahead of training, and of
``max_off_policy_threshold``, above which answers are dropped."""
_DEFAULT_STALENESS, _DEFAULT_UPDATES_PER_SYNC, _DEFAULT_CONCURRENT_PROMPTS = 0.1, 4, 16
"""Defaults of ``fully_async_ppo_trainer.yaml``: share of older answers, updates between two
weight transfers, concurrent prompts of each engine."""


def _add_step_settings(
    reading: OptionReader, update: LaunchSettings, settings: SettingsBuilder
) -> None:
    """Set what the option table does not read for a full step: placement, passes, offload."""
    values = settings.values
    _note_other_program(reading, settings)
    is_megatron = str(update.values["framework"]).startswith("Megatron")
    values["framework"] = "verl Megatron" if is_megatron else "verl"
    values["old_logprob"] = not flag(reading, "algorithm.rollout_correction.bypass_mode")
    if flag(reading, "algorithm.filter_groups.enable"):
        set_dynamic_sampling(settings)
    section = _MEGATRON if is_megatron else _FSDP
    offload_flags = [flag(reading, f"{section}{name}") for name in _OFFLOAD_KEYS[:2]]
    values["offload_train"] = all(offload_flags)
    if any(offload_flags) and not all(offload_flags):
        settings.notes.append(
            "The file offloads either weights or states: planner assumes that both stay."
        )
    if has_unknown_value(reading, _PROMPTS_PER_STEP):
        settings.mark_missing("prompts_per_step")
    else:  # asynchronous trainers set 0
        settings.set("prompts_per_step", number(reading, _PROMPTS_PER_STEP))
        settings.assume(
            "prompts_per_step",
            _DEFAULT_PROMPTS_PER_STEP,
            f"{_DEFAULT_PROMPTS_PER_STEP:,}, verl's default",
        )
    _set_micro_batch_tokens(reading, update, settings)
    _set_placement(reading, update, settings)


def _set_micro_batch_tokens(
    reading: OptionReader, update: LaunchSettings, settings: SettingsBuilder
) -> None:
    """Set the tokens of a micro-batch, from a token budget or a number of sequences."""
    if flag(reading, f"{_ACTOR}use_dynamic_bsz"):
        budget = number(reading, f"{_ACTOR}ppo_max_token_len_per_gpu") or _DEFAULT_TOKEN_BUDGET
        settings.values["micro_batch_tokens"] = budget * int(update.values["context_parallel"])
        return
    micro_batch, sequence_length = (
        update.values.get(n) for n in ("micro_batch_size", "sequence_length")
    )
    if micro_batch is not None and sequence_length is not None:
        is_packed = flag(reading, f"{_MODEL}use_remove_padding", default=True)
        set_sequences_per_micro_batch(
            settings, int(str(micro_batch)), int(str(sequence_length)), is_packed=is_packed
        )


def _set_placement(
    reading: OptionReader, update: LaunchSettings, settings: SettingsBuilder
) -> None:
    """Set on which GPUs trainer and engine run, and how many updates old the weights may be."""
    values = settings.values
    words = [text for argument in reading.command.positional for text in argument.texts if text]
    words += filter(None, [reading.text("--config-name")])
    mode = option_text(reading, f"{_V1}trainer_mode") or ""
    placement = Placement.COLOCATED
    if any("one_step_off" in word for word in words):
        placement, values["staleness"] = Placement.ONE_STEP_OFF, 1
    elif any("fully_async" in word for word in words):
        placement = Placement.ASYNC
        _set_async_step(reading, settings)
    elif mode.endswith("_async"):
        placement = Placement.ASYNC if mode.startswith("separate") else Placement.COLOCATED
        warmup_batches = reading.number(f"{_V1}{mode}.num_warmup_batches")
        values["staleness"] = _DEFAULT_WARMUP_BATCHES if warmup_batches is None else warmup_batches
        values["partial_rollout"] = values["staleness"] > 0
    elif not flag(reading, "actor_rollout_ref.hybrid_engine", default=True):
        placement = Placement.SEPARATE
    sections = ("rollout.", _ROLLOUT)
    num_nodes, gpus_per_node = (
        number(reading, *(f"{section}{name}" for section in sections))
        for name in ("nnodes", "n_gpus_per_node")
    )
    train_gpus = update.values.get("num_gpus")
    set_placement(
        settings,
        placement,
        train_gpus,
        (num_nodes or 1) * (gpus_per_node or _DEFAULT_GPUS_PER_NODE),
    )


def _set_async_step(reading: OptionReader, settings: SettingsBuilder) -> None:
    """Set prompts, staleness and concurrency of a step of the fully asynchronous trainer.

    The staleness threshold is a share of the answers of a step; it is rounded up to steps.
    """
    values = settings.values
    mini_batch = number(reading, f"{_ACTOR}ppo_mini_batch_size") or _DEFAULT_MINI_BATCH
    batches = number(reading, f"{_ASYNC}require_batches") or 1
    updates = number(reading, f"{_ASYNC}trigger_parameter_sync_step") or _DEFAULT_UPDATES_PER_SYNC
    values["prompts_per_step"] = mini_batch * batches * updates
    if "global_batch_size" in values:
        values["global_batch_size"] = int(values["global_batch_size"]) * batches
    settings.defaults.pop("prompts_per_step", None)
    settings.missing = [name for name in settings.missing if name != "prompts_per_step"]
    threshold = reading.amount(f"{_ASYNC}staleness_threshold")
    values["staleness"] = ceil(_DEFAULT_STALENESS if threshold is None else threshold)
    is_partial = flag(reading, f"{_ASYNC}partial_rollout", default=True)
    values["partial_rollout"] = is_partial and values["staleness"] > 0
    prompts = (
        number(reading, f"{_ASYNC}concurrent_samples_per_replica") or _DEFAULT_CONCURRENT_PROMPTS
    )
    max_sequences = prompts * int(values.get("samples_per_prompt", 0))
    if 0 < max_sequences < int(values.get("max_num_seqs", 0)):
        values["max_num_seqs"] = max_sequences
        settings.defaults.pop("max_num_seqs", None)
        settings.notes.append(
            f"Each engine has {prompts} concurrent prompts: {max_sequences:,} answers."
        )
    values["old_logprob"] = not flag(
        reading,
        "algorithm.rollout_correction.bypass_mode",
        f"{_ACTOR}use_rollout_log_probs",
        f"{_ASYNC}use_rollout_log_probs",
        default=True,
    )


_SEPARATED_PACKAGE = "verl.experimental"
_PROGRAMS_BY_PLACEMENT = {
    Placement.COLOCATED.word: ("verl.trainer.main_ppo", "ppo"),
    Placement.ONE_STEP_OFF.word: (
        f"{_SEPARATED_PACKAGE}.one_step_off_policy.main_ppo",
        "one_step_off_ppo",
    ),
    Placement.ASYNC.word: (
        f"{_SEPARATED_PACKAGE}.fully_async_policy.fully_async_main",
        "fully_async_ppo",
    ),
}
"""Programs of verl 0.9 by placement, each with the prefix of its configurations."""


def _program_of(job: LaunchJob) -> tuple[str, str]:
    """Return the Python module that starts a planned job and the name of its configuration.

    Raises LaunchError if verl has no such placement, or no dynamic sampling with it.
    """
    if job["placement"] not in _PROGRAMS_BY_PLACEMENT:
        raise LaunchError(
            "verl runs a synchronous trainer and engine only on the same GPUs: --set "
            "placement=colocated, or placement=one_step_off or async for separate GPUs."
        )
    if job["algorithm"] == Algorithm.DAPO and (has_separate_gpus(job) or job["partial_rollout"]):
        raise LaunchError(
            "verl resamples prompts (dapo) only where both sides take turns on the same GPUs: "
            "--set placement=colocated with --set partial_rollout=false, or --algorithm grpo "
            "--no-reference-model."
        )
    module, stem = _PROGRAMS_BY_PLACEMENT[str(job["placement"])]
    config_suffix = "megatron_trainer" if job.profile.name == "verl Megatron" else "trainer"
    return module, f"{stem}_{config_suffix}"


def _quantities(job: LaunchJob) -> Quantities:
    """Return the values that verl's option table writes for a planned job, by parameter name.

    Raises LaunchError if no program of verl can start such a step.
    """
    quantities = step_quantities(job)
    _, config = _program_of(job)
    global_batch_size, samples_per_prompt = (
        int(job["global_batch_size"]),
        int(job["samples_per_prompt"]),
    )
    if global_batch_size % samples_per_prompt:
        nearest = max(round(global_batch_size / samples_per_prompt), 1) * samples_per_prompt
        raise LaunchError(
            f"ppo_mini_batch_size counts prompts with {samples_per_prompt} answers each, and "
            f"{global_batch_size} answers are no multiple of that; nearest: "
            f"--global-batch-size {nearest}."
        )
    is_megatron = job.profile.name == "verl Megatron"
    budget = tokens_per_rank(quantities["token_budget"], job["context_parallel"])
    prompts_per_step = int(job["prompts_per_step"])
    is_async, is_ppo = bool(quantities["streams"]), job["algorithm"] == Algorithm.PPO
    quantities |= {
        "strategy": "megatron" if is_megatron else "fsdp2",
        "program_config": config if has_separate_gpus(job) or is_megatron else None,
        "train_batch": 0 if is_async else prompts_per_step,
        "mini_batch": global_batch_size // samples_per_prompt,
        "filters": job["algorithm"] == Algorithm.DAPO,
        "bypass": not job["old_logprob"],
        "max_num_seqs": job["max_num_seqs"] or job.profile.rollouts.max_num_seqs,
        "token_budget": budget,
        "critic_path": job.hub_name if is_ppo else None,
        "critic_budget": budget if is_ppo else None,
    }
    if has_separate_gpus(job):
        quantities |= {"offload_rollout": False}
    else:
        quantities |= _colocated_quantities(job)
    if is_async:
        quantities |= {
            "hybrid": "False",
            "stream_prompts": 1,
            "updates": prompts_per_step * samples_per_prompt // global_batch_size,
            "prompts_at_once": ceil_div(int(str(quantities["max_num_seqs"])), samples_per_prompt),
            "partial_rollout": _format_flag(job["partial_rollout"]),
            "total_prompts": prompts_per_step * int(job["max_steps"]),
        }
    return quantities | (
        _megatron_quantities(job, quantities) if is_megatron else _fsdp_quantities(job, quantities)
    )


def _colocated_quantities(job: LaunchJob) -> MutableQuantities:
    """Return the trainer mode of a job on shared GPUs, with the batches generated in advance."""
    if not job["partial_rollout"]:
        return {"trainer_mode": "sync"}
    batches_ahead = int(job["staleness"])
    max_versions = _MAX_VERSIONS - _DEFAULT_WARMUP_BATCHES + batches_ahead
    return {
        "trainer_mode": "colocate_async",
        "batches_ahead": batches_ahead,
        "most_versions": max_versions,
    }


def _format_flag(value: object) -> str:
    """A boolean as hydra's YAML spells it."""
    return str(bool(value))


def _megatron_quantities(job: LaunchJob, common: MutableQuantities) -> MutableQuantities:
    """Return the option values of a job with the Megatron-Core backend, by parameter name.

    Raises LaunchError if the chunks of a stage cannot share the recomputed layers equally.
    """
    quantities: MutableQuantities = {"sequence_parallel": _format_flag(job["sequence_parallel"])}
    if "offload_train" not in common:
        quantities["offload_train"] = _format_flag(job["offload_train"])
    layers, chunks = int(job["recompute_num_layers"]), int(job["virtual_pipeline"])
    if layers % chunks:
        raise LaunchError(
            f"recompute_num_layers {layers} is no multiple of the {chunks} chunks of a stage: "
            f"nearest: --set recompute_num_layers={max(round(layers / chunks), 1) * chunks}."
        )
    if job["recompute"] == "full":
        quantities["recompute_method"] = "block" if layers else "uniform"
        quantities["recompute_layers"] = layers // chunks or 1
    if int(job["expert_parallel"]) == 1:
        quantities |= {"expert_parallel": None, "expert_tensor_parallel": None}
    return quantities


def _fsdp_quantities(job: LaunchJob, common: MutableQuantities) -> MutableQuantities:
    """Return the option values of a job with the FSDP backend; Megatron-Core's are None."""
    quantities = fsdp_quantities(job, "verl", _MEGATRON)
    if int(job["context_parallel"]) == 1:
        quantities[f"cp_comm_type{FSDP_SUFFIX}"] = None
    offload = None if "offload_train" in common else _format_flag(job["offload_train"])
    return quantities | {f"offload_train{FSDP_SUFFIX}": offload, "packed by FSDP": True}


def _draft(job: LaunchJob, settings: OptionTexts) -> LaunchDraft:
    """Build the verl command of a job, with the critic's options if the algorithm is PPO."""
    module, _ = _program_of(job)
    options = _format_arguments(settings.options)
    is_ppo = job["algorithm"] == Algorithm.PPO
    if job.hub_name is None:
        names = [f"{_MODEL}path", *(["critic.model.path"] if is_ppo else [])]
        options[:0] = [override(name, MODEL.name, MODEL.meaning) for name in names]
    if is_ppo:
        options += _format_arguments(_critic_options(settings))
    arguments = (
        CommandWords(words=("python3", "-m", module)),
        *options,
        override("data.train_files", "TRAIN_FILES", "prompts to train on: a parquet file"),
        override("data.val_files", "VAL_FILES", "prompts to evaluate: a parquet file"),
        override("trainer.default_local_dir", OUTPUT.name, OUTPUT.meaning, OUTPUT.default),
    )
    benchmark_prompts = STEPS * int(job["prompts_per_step"])
    benchmark_words = (
        [f"rollout.total_rollout_steps={benchmark_prompts}"] if "fully_async" in module else []
    )
    left = (*([_WORKING_FOLDER_NOTE] if has_separate_gpus(job) else []), *_LEFT_TO_USER)
    return step_draft(job, "verl", arguments, benchmark_words, left=left)


def _format_arguments(options: Iterable[OptionText]) -> list[CommandWords]:
    """Return hydra's options as two words each, and configuration keys as ``KEY=TEXT``."""
    return [
        CommandWords.of(option)
        if option.option.startswith("-")
        else CommandWords(words=(f"{option.option}={option.text}",), note=option.note)
        for option in options
    ]


_CRITIC = {_MEGATRON: "critic.megatron.", _FSDP: "critic.fsdp."}


def _critic_options(settings: OptionTexts) -> Iterator[OptionText]:
    """Yield the critic's sharding options, copied from the policy's sharding options."""
    for option in settings.options:
        for actor, critic in _CRITIC.items():
            if option.option.startswith(actor):
                yield replace(option, option=option.option.replace(actor, critic), note="")


_WORKING_FOLDER_NOTE = ParameterNote(
    parameter="where it starts",
    value="",
    note="in a checkout of verl 0.9: its configuration extends verl/trainer/config there",
)
_LEFT_TO_USER = (
    ParameterNote(
        parameter="learning rate",
        value="",
        note=f"{_ACTOR}optim.lr, with schedule and decay: yours; no effect on time or memory",
    ),
    ParameterNote(
        parameter="rewards",
        value="",
        note="custom_reward_function.path, or data with a data_source that verl can score: yours",
    ),
)


TARGET = reader_of_steps(
    LaunchTarget.of(
        "verl",
        answers=make_update_reader("verl", _add_unlisted_settings, _MODELS, _SECTIONS),
        starts=matches_command,
        is_of=matches_document,
    ),
    profiles=("verl", "verl Megatron"),
    add_step_settings=_add_step_settings,
    complete_command=with_unknown_options,
    version="verl 0.9",
    quantities=_quantities,
    draft=_draft,
    accepted=("verl-0.9.0",),
)
