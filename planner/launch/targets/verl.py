"""verl: the training step of a run on rollouts, from the hydra words of ``main_ppo``.

Source: volcengine/verl 0.7, ``verl/trainer/config/_generated_ppo_trainer.yaml`` and
``_generated_ppo_megatron_trainer.yaml`` for defaults; ``verl/workers/actor/dp_actor.py``: budgets
of tokens are of a rank and count its sequence-parallel ranks. Of fine-tuning on given answers
``verl/trainer/fsdp_sft_trainer.py`` with ``config/sft_trainer.yaml``, and the later
``sft_trainer.py`` with ``config/sft_trainer_engine.yaml``. Of whole steps
``verl/trainer/config/rollout/rollout.yaml``, and of ``docs/advance`` one_step_off.md,
fully_async.md with ``fully_async_ppo_trainer.yaml``, and the page of the V1 async trainer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import ceil

from planner.base.software_enums import Placement
from planner.base.training_aliases import Algorithm
from planner.errors import LaunchError
from planner.launch.benchmark import STEPS
from planner.launch.hf_trainer.derive_settings import UNPACKED
from planner.launch.option_table import OptionText, OptionTexts, ParameterNote, Quantities, Words
from planner.launch.parsed_launch import (
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
    MODEL,
    OF_FSDP,
    OUTPUT,
    has_separate_gpus,
    per_rank,
    put_redrawn,
    put_sequences,
    put_split,
    reader_of_steps,
    step_draft,
    step_words,
    words_of_fsdp,
)
from planner.launch.targets.training_reader import (
    fsdp_profile,
    make_update_reader,
    note_updates,
    put_lora,
    put_megatron_split,
    put_objective,
    put_token_budget,
    require_ranks,
)

_PROGRAMS = (
    *("verl.trainer.main_ppo", "main_ppo.py", "recipe.dapo.main_dapo", "main_dapo.py"),
    *("one_step_off_policy.main_ppo", "one_step_off_policy.async_main_ppo"),
    *("fully_async_policy.fully_async_main", "fully_async_main.py"),
)
_SUPERVISED = ("fsdp_sft_trainer", "fsdp_sft_trainer.py", "verl.trainer.sft_trainer")
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
"""What others that extend its trainer are told, too."""
_MODELS = (f"{_MODEL}path", "model.partial_pretrain", "model.path")
_HOST = (
    "param_offload and optimizer_offload move weights and states to the host between the phases of "
    "a step: in the update, which is predicted, they are on the GPU."
)


_ADAPTED = ("lora.target_modules", "target_modules")


def matches_command(words: Sequence[str]) -> bool:
    """Whether a command starts verl's training on rollouts, or another that is told as it is.

    >>> matches_command(["verl.trainer.main_ppo", "data.train_batch_size=1024"])
    True
    >>> matches_command(["recipe.spo.main", "actor_rollout_ref.model.path=Qwen/Qwen3-8B"])
    True
    """
    if any(word.endswith((*_PROGRAMS, *_SUPERVISED)) for word in words[:3]):
        return True
    is_script = any(word.endswith(".sh") for word in words[:3])
    return not is_script and any(word.lstrip("+").startswith(_RECOGNIZED_BY) for word in words)


def matches_document(values: Mapping[str, object]) -> bool:
    """Whether a document is a configuration of its training on rollouts."""
    return f"{_MODEL}path" in values or f"{_ACTOR}ppo_mini_batch_size" in values


def _add_unlisted_settings(reading: OptionReader, settings: SettingsBuilder) -> None:
    """What the update of the policy is; see the module."""
    _tell_program(reading, settings)
    if any(
        (word_option.single or "").endswith(_SUPERVISED)
        for word_option in reading.command.positional
    ):
        _supervised(reading, settings)
        return
    if rank := number(reading, f"{_MODEL}lora_rank", f"{_MODEL}lora.rank"):
        put_lora(reading, settings, rank, *(f"{_MODEL}{name}" for name in _ADAPTED))
    strategy = (
        option_text(reading, f"{_ACTOR}strategy") or option_text(reading, "--config-name") or ""
    )
    is_megatron = "megatron" in strategy or (
        not strategy and any(name.startswith(_MEGATRON) for name in reading.command.options)
    )
    (_on_megatron if is_megatron else _on_fsdp)(reading, settings)
    length = _length(reading, settings)
    _batch(reading, settings, length)
    has_reference = flag(reading, f"{_ACTOR}use_kl_loss")
    has_critic = (option_text(reading, "algorithm.adv_estimator") or "gae") == "gae"
    has_reference = has_reference or flag(reading, "algorithm.use_kl_in_reward")
    put_objective(settings, has_reference, has_critic=has_critic)
    if any(flag(reading, f"{part}{name}") for part in (_FSDP, _MEGATRON) for name in _MOVED):
        settings.notes.append(_HOST)


def _tell_program(reading: OptionReader, settings: SettingsBuilder) -> None:
    """Say that a program is read as verl's own."""
    words = [
        text for word_option in reading.command.positional for text in word_option.texts if text
    ]
    if words and not any(word.endswith((*_PROGRAMS, *_SUPERVISED)) for word in words[:3]):
        settings.notes.append(
            f"{words[0]} is read as verl.trainer.main_ppo: what it does otherwise is not predicted."
        )


_OF_SFT = {
    "rank": ("model.lora_rank", "model.lora.rank"),
    "ulysses": ("ulysses_sequence_parallel_size", "engine.ulysses_sequence_parallel_size"),
    "length": ("data.max_length",),
    "batch": ("data.train_batch_size",),
    "micro": ("data.micro_batch_size_per_gpu", "data.micro_batch_size"),
    "repeats": ("model.enable_gradient_checkpointing",),
    "offload": ("model.fsdp_config.cpu_offload", "engine.offload_policy"),
}
_SFT_DEFAULTS = {"length": 1024, "batch": 256, "micro": 4}


def _supervised(reading: OptionReader, settings: SettingsBuilder) -> None:
    """Fine-tuning on given answers, by FSDP."""
    values = settings.values
    if (engine := option_text(reading, "engine", "model.strategy")) and not engine.startswith(
        "fsdp"
    ):
        raise LaunchError(
            f"{reading.place}: {engine} of verl's fine-tuning is not read: only FSDP is."
        )
    if rank := number(reading, *_OF_SFT["rank"]):
        put_lora(reading, settings, rank, *(f"model.{name}" for name in _ADAPTED))
    values["training_objective"] = "sft"
    _shard(reading, settings, _OF_SFT)
    names = {"length": "sequence_length", "batch": "global_batch_size", "micro": "micro_batch_size"}
    for key, name in names.items():
        size = number(reading, *_OF_SFT[key])
        values[name] = size or _SFT_DEFAULTS[key]
        if size is None:
            settings.defaults[name] = f"{_SFT_DEFAULTS[key]:,} is verl's"
    if (gpus := total_gpus(reading.command.resources)) is None:
        settings.mark_missing("num_gpus")
    else:
        values["num_gpus"] = gpus
    if epochs := number(reading, "trainer.total_epochs"):
        values["epochs"] = epochs
    settings.notes.append(UNPACKED.format(option="data.max_length"))


_MOVED = ("param_offload", "optimizer_offload", "grad_offload")


def _on_fsdp(reading: OptionReader, settings: SettingsBuilder) -> None:
    """Weights, gradients and states of the policy sharded by FSDP."""
    name = "ulysses_sequence_parallel_size"
    options = {
        "ulysses": (f"{_ACTOR}{name}", f"{_FSDP}{name}"),
        "offload": (f"{_FSDP}offload_policy",),
        "repeats": (f"{_MODEL}enable_gradient_checkpointing",),
    }
    _shard(reading, settings, options)
    if flag(reading, f"{_MODEL}enable_activation_offload"):
        settings.values["offload"] = "activations"
    if not flag(reading, f"{_FSDP}reshard_after_forward", default=True):
        settings.values["zero_stage"] = 2


def _shard(
    reading: OptionReader, settings: SettingsBuilder, options: Mapping[str, Sequence[str]]
) -> None:
    """All sharded by FSDP, sequences by Ulysses, as the options of each say."""
    values = settings.values
    values["tensor_parallel"] = values["pipeline_parallel"] = 1
    values["context_parallel"] = number(reading, *options["ulysses"]) or 1
    values |= {"framework": fsdp_profile(values), "zero_stage": 3}
    if values["context_parallel"] > 1:
        values |= {"cp_comm_type": "a2a", "framework": "HF Trainer FSDP"}
    values["offload"] = "optimizer_weights" if flag(reading, *options["offload"]) else "none"
    if any(map(reading.has, options["repeats"])):
        values["recompute"] = "full" if flag(reading, *options["repeats"]) else "none"
    settings.assume("recompute", "full", "full: verl's default")


def _on_megatron(reading: OptionReader, settings: SettingsBuilder) -> None:
    """Tensors, stages, sequences and experts split by Megatron-Core."""
    values = settings.values
    values["framework"] = "Megatron-LM" if values["adapter"] == "none" else "Megatron-Bridge"
    put_megatron_split(reading, settings, _MEGATRON)
    splits = flag(reading, f"{_MEGATRON}sequence_parallel", default=True)
    values["sequence_parallel"] = splits and values["tensor_parallel"] > 1
    sharded = flag(reading, f"{_MEGATRON}use_distributed_optimizer", default=True)
    values["zero_stage"] = 1 if sharded else 0
    on_host = f"{_ACTOR}optim.override_optimizer_config.optimizer_cpu_offload"
    values["offload"] = "optimizer" if flag(reading, on_host) else "none"
    kind = option_text(reading, f"{_OVERRIDES}recompute_granularity")
    layers = number(reading, f"{_OVERRIDES}recompute_num_layers")
    values["recompute"] = kind if kind in ("full", "selective") else "none"
    if (
        kind == "full"
        and layers
        and option_text(reading, f"{_OVERRIDES}recompute_method") == "block"
    ):
        values["recompute_num_layers"] = layers * int(values.get("virtual_pipeline", 1))
    if kind is None:
        settings.defaults["recompute"] = "none: verl sets no recompute_granularity"


def _length(reading: OptionReader, settings: SettingsBuilder) -> int | None:
    """Tokens of a prompt and its answer at their most; None where text does not tell them."""
    names = ("data.max_prompt_length", "data.max_response_length")
    if has_unknown_value(reading, *names):
        settings.mark_missing("sequence_length")
        return None
    parts = [number(reading, name) for name in names]
    length = sum(part or _TOKENS for part in parts)
    settings.values["sequence_length"] = length
    if None in parts:
        settings.defaults["sequence_length"] = f"{_TOKENS} of a prompt or an answer are verl's"
    return length


_TOKENS, _MINI, _NODE = 512, 256, 8


def _batch(reading: OptionReader, settings: SettingsBuilder, length: int | None) -> None:
    """GPUs, sequences of an optimizer step, and of a micro-batch on each rank.

    ``ppo_mini_batch_size`` counts prompts, each with its ``rollout.n`` answers.
    """
    values = settings.values
    gpus = ranks = None
    if has_unknown_value(reading, "trainer.nnodes", "trainer.n_gpus_per_node"):
        settings.mark_missing("num_gpus")
    else:
        nodes = number(reading, "trainer.nnodes") or 1
        gpus = nodes * (number(reading, "trainer.n_gpus_per_node") or _NODE)
        values["num_gpus"] = gpus
        ranks = require_ranks(reading, settings, gpus)
    mini = f"{_ACTOR}ppo_mini_batch_size"
    if has_unknown_value(reading, mini, "actor_rollout_ref.rollout.n"):
        settings.mark_missing("global_batch_size")
        return
    prompts, answers_each = number(reading, mini), number(reading, "actor_rollout_ref.rollout.n")
    batch = (prompts or _MINI) * (answers_each or 1)
    values["global_batch_size"] = batch
    if prompts is None:
        settings.defaults["global_batch_size"] = f"ppo_mini_batch_size of {_MINI} prompts is verl's"
    copies = gpus // ranks if gpus and ranks else None
    share = batch // copies if copies and batch % copies == 0 else None
    steps = number(reading, "trainer.total_training_steps")
    generated = number(reading, "data.train_batch_size")
    note_updates(settings, "verl", generated, prompts or _MINI)
    if steps and generated and length:
        values["total_tokens"] = steps * generated * (answers_each or 1) * length
    if flag(reading, f"{_ACTOR}use_dynamic_bsz") and length:
        budget = number(reading, f"{_ACTOR}ppo_max_token_len_per_gpu") or _BUDGET
        put_token_budget(settings, budget * int(values["context_parallel"]), share)
    else:
        _told_micro_batch(reading, settings, copies)


def _told_micro_batch(reading: OptionReader, settings: SettingsBuilder, copies: int | None) -> None:
    """Sequences of a micro-batch on each rank; older files count those of all ranks."""
    whole = number(reading, f"{_ACTOR}ppo_micro_batch_size")
    micro = number(reading, f"{_ACTOR}ppo_micro_batch_size_per_gpu")
    if micro is None and whole and copies:
        micro = max(whole // copies, 1)
    settings.require("micro_batch_size", micro)
    if flag(reading, f"{_MODEL}use_remove_padding"):
        settings.notes.append(
            "Padding is removed, so that micro-batches of answers below max_response_length hold "
            "fewer tokens than predicted: use_dynamic_bsz bounds them."
        )


_BUDGET = 16384
_GENERATED, _PROMPTS = "data.train_batch_size", 1024
_ROLLOUT = "actor_rollout_ref.rollout."
_ASYNC = "async_training."
_V1 = "trainer.v1."
_AHEAD, _VERSIONS = 1, 8
"""``num_warmup_batches``, by which prompts run ahead of what trains, and
``max_off_policy_threshold``, above which answers are dropped, where nobody sets them."""
_STALE, _SYNC_STEPS, _CONCURRENT = 0.1, 4, 16
"""Of ``fully_async_ppo_trainer.yaml``: share of older answers, updates between two transfers,
prompts of each engine at once."""


def _put_step(reading: OptionReader, update: LaunchSettings, settings: SettingsBuilder) -> None:
    """What of a whole step is no row of the table: who runs where, and passes beside the update."""
    values = settings.values
    _tell_program(reading, settings)
    is_megatron = str(update.values["framework"]).startswith("Megatron")
    values["framework"] = "verl Megatron" if is_megatron else "verl"
    values["old_logprob"] = not flag(reading, "algorithm.rollout_correction.bypass_mode")
    if flag(reading, "algorithm.filter_groups.enable"):
        put_redrawn(settings)
    part = _MEGATRON if is_megatron else _FSDP
    moved = [flag(reading, f"{part}{name}") for name in _MOVED[:2]]
    values["offload_train"] = all(moved)
    if any(moved) and not all(moved):
        settings.notes.append(
            "Of weights and states it offloads one alone: both are taken to stay."
        )
    if has_unknown_value(reading, _GENERATED):
        settings.mark_missing("prompts_per_step")
    else:  # those that stream say 0
        settings.set("prompts_per_step", number(reading, _GENERATED))
        settings.assume("prompts_per_step", _PROMPTS, f"{_PROMPTS:,}, verl's default")
    _put_micro_batch(reading, update, settings)
    _put_placement(reading, update, settings)


def _put_micro_batch(
    reading: OptionReader, update: LaunchSettings, settings: SettingsBuilder
) -> None:
    """Tokens of a micro-batch: a budget, or sequences."""
    if flag(reading, f"{_ACTOR}use_dynamic_bsz"):
        budget = number(reading, f"{_ACTOR}ppo_max_token_len_per_gpu") or _BUDGET
        settings.values["micro_batch_tokens"] = budget * int(update.values["context_parallel"])
        return
    size, length = (update.values.get(n) for n in ("micro_batch_size", "sequence_length"))
    if size is not None and length is not None:
        packs = flag(reading, f"{_MODEL}use_remove_padding", default=True)
        put_sequences(settings, int(str(size)), int(str(length)), is_packed=packs)


def _put_placement(
    reading: OptionReader, update: LaunchSettings, settings: SettingsBuilder
) -> None:
    """Where trainer and engine run, and how old the weights of answers may be."""
    values = settings.values
    words = [
        text for word_option in reading.command.positional for text in word_option.texts if text
    ]
    words += filter(None, [reading.text("--config-name")])
    mode = option_text(reading, f"{_V1}trainer_mode") or ""
    placement = Placement.COLOCATED
    if any("one_step_off" in word for word in words):
        placement, values["staleness"] = Placement.ONE_STEP_OFF, 1
    elif any("fully_async" in word for word in words):
        placement = Placement.ASYNC
        _put_streamed(reading, settings)
    elif mode.endswith("_async"):
        placement = Placement.ASYNC if mode.startswith("separate") else Placement.COLOCATED
        ahead = reading.number(f"{_V1}{mode}.num_warmup_batches")
        values["staleness"] = _AHEAD if ahead is None else ahead
        values["partial_rollout"] = values["staleness"] > 0
    elif not flag(reading, "actor_rollout_ref.hybrid_engine", default=True):
        placement = Placement.SEPARATE
    sections = ("rollout.", _ROLLOUT)
    nodes, each = (
        number(reading, *(f"{section}{name}" for section in sections))
        for name in ("nnodes", "n_gpus_per_node")
    )
    train = update.values.get("num_gpus")
    put_split(settings, placement, train, (nodes or 1) * (each or _NODE))


def _put_streamed(reading: OptionReader, settings: SettingsBuilder) -> None:
    """A step of the fully asynchronous trainer: what it trains between two transfers of weights.

    Its threshold is a share of the answers of a step, and a share of a step is a step at most.
    """
    values = settings.values
    mini = number(reading, f"{_ACTOR}ppo_mini_batch_size") or _MINI
    batches = number(reading, f"{_ASYNC}require_batches") or 1
    times = number(reading, f"{_ASYNC}trigger_parameter_sync_step") or _SYNC_STEPS
    values["prompts_per_step"] = mini * batches * times
    if "global_batch_size" in values:
        values["global_batch_size"] = int(values["global_batch_size"]) * batches
    settings.defaults.pop("prompts_per_step", None)
    settings.missing = [name for name in settings.missing if name != "prompts_per_step"]
    share = reading.amount(f"{_ASYNC}staleness_threshold")
    values["staleness"] = ceil(_STALE if share is None else share)
    partial = flag(reading, f"{_ASYNC}partial_rollout", default=True)
    values["partial_rollout"] = partial and values["staleness"] > 0
    prompts = number(reading, f"{_ASYNC}concurrent_samples_per_replica") or _CONCURRENT
    places = prompts * int(values.get("samples_per_prompt", 0))
    if 0 < places < int(values.get("max_num_seqs", 0)):
        values["max_num_seqs"] = places
        settings.defaults.pop("max_num_seqs", None)
        settings.notes.append(f"Each engine has {prompts} prompts at once: {places:,} answers.")
    values["old_logprob"] = not flag(
        reading,
        "algorithm.rollout_correction.bypass_mode",
        f"{_ACTOR}use_rollout_log_probs",
        f"{_ASYNC}use_rollout_log_probs",
        default=True,
    )


_SEPARATED_PACKAGE = "verl.experimental"
_PLACED = {
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
"""Programs of verl 0.9, each with how its configurations begin, by placement."""


def _program(job: LaunchJob) -> tuple[str, str]:
    """The module that starts a plan, and its configuration."""
    if job["placement"] not in _PLACED:
        raise LaunchError(
            "verl runs trainer and engine one after the other on the same GPUs alone: "
            "--set placement=one_step_off or async has GPUs of their own, colocated the same."
        )
    if job["algorithm"] == Algorithm.DAPO and (has_separate_gpus(job) or job["partial_rollout"]):
        raise LaunchError(
            "verl draws prompts again (dapo) where both sides take turns on the same GPUs alone: "
            "--set placement=colocated with --set partial_rollout=false, or --algorithm grpo "
            "--no-reference-model."
        )
    module, stem = _PLACED[str(job["placement"])]
    kind = "megatron_trainer" if job.profile.name == "verl Megatron" else "trainer"
    return module, f"{stem}_{kind}"


def _quantities(job: LaunchJob) -> Quantities:
    """What its words need that the plan has otherwise.

    Raises LaunchError if its programs cannot be told so.
    """
    words = step_words(job)
    _, config = _program(job)
    batch, each = int(job["global_batch_size"]), int(job["samples_per_prompt"])
    if batch % each:
        near = max(round(batch / each), 1) * each
        raise LaunchError(
            f"ppo_mini_batch_size counts prompts with their {each} answers each, which "
            f"{batch} answers are no multiple of: nearest: --global-batch-size {near}."
        )
    is_megatron = job.profile.name == "verl Megatron"
    budget = per_rank(words["token_budget"], job["context_parallel"])
    steps = int(job["prompts_per_step"])
    streams, is_ppo = bool(words["streams"]), job["algorithm"] == Algorithm.PPO
    words |= {
        "strategy": "megatron" if is_megatron else "fsdp2",
        "program_config": config if has_separate_gpus(job) or is_megatron else None,
        "train_batch": 0 if streams else steps,
        "mini_batch": batch // each,
        "filters": job["algorithm"] == Algorithm.DAPO,
        "bypass": not job["old_logprob"],
        "max_num_seqs": job["max_num_seqs"] or job.profile.rollouts.max_num_seqs,
        "token_budget": budget,
        "critic_path": job.hub_name if is_ppo else None,
        "critic_budget": budget if is_ppo else None,
    }
    if has_separate_gpus(job):
        words |= {"offload_rollout": False}
    else:
        words |= _colocated(job)
    if streams:
        words |= {
            "hybrid": "False",
            "stream_prompts": 1,
            "updates": steps * each // batch,
            "prompts_at_once": -(-int(str(words["max_num_seqs"])) // each),
            "partial_rollout": _flag(job["partial_rollout"]),
            "total_prompts": steps * int(job["max_steps"]),
        }
    return words | (_by_megatron(job, words) if is_megatron else _by_fsdp(job, words))


def _colocated(job: LaunchJob) -> Words:
    """How both sides share GPUs: in turns, or with answers that go on with the next weights."""
    if not job["partial_rollout"]:
        return {"trainer_mode": "sync"}
    ahead = int(job["staleness"])
    most = _VERSIONS - _AHEAD + ahead
    return {"trainer_mode": "colocate_async", "batches_ahead": ahead, "most_versions": most}


def _flag(value: object) -> str:
    """As hydra's YAML has it."""
    return str(bool(value))


def _by_megatron(job: LaunchJob, words: Words) -> Words:
    """The words of Megatron-Core.

    Raises LaunchError if a part of the layers of a chunk would be repeated.
    """
    found: Words = {"sequence_parallel": _flag(job["sequence_parallel"])}
    if "offload_train" not in words:
        found["offload_train"] = _flag(job["offload_train"])
    layers, chunks = int(job["recompute_num_layers"]), int(job["virtual_pipeline"])
    if layers % chunks:
        raise LaunchError(
            f"recompute_num_layers {layers} is no multiple of the {chunks} chunks of a stage: "
            f"nearest: --set recompute_num_layers={max(round(layers / chunks), 1) * chunks}."
        )
    if job["recompute"] == "full":
        found["recompute_method"] = "block" if layers else "uniform"
        found["recompute_layers"] = layers // chunks or 1
    if int(job["expert_parallel"]) == 1:
        found |= {"expert_parallel": None, "expert_tensor_parallel": None}
    return found


def _by_fsdp(job: LaunchJob, words: Words) -> Words:
    """The words of FSDP, and none of Megatron-Core's."""
    found = words_of_fsdp(job, "verl", _MEGATRON)
    if int(job["context_parallel"]) == 1:
        found[f"cp_comm_type{OF_FSDP}"] = None
    away = None if "offload_train" in words else _flag(job["offload_train"])
    return found | {f"offload_train{OF_FSDP}": away, "packed by FSDP": True}


def _draft(job: LaunchJob, settings: OptionTexts) -> LaunchDraft:
    module, _ = _program(job)
    options = _arguments(settings.options)
    is_ppo = job["algorithm"] == Algorithm.PPO
    if job.hub_name is None:
        names = [f"{_MODEL}path", *(["critic.model.path"] if is_ppo else [])]
        options[:0] = [override(name, MODEL.name, MODEL.meaning) for name in names]
    if is_ppo:
        options += _arguments(_of_critic(settings))
    arguments = (
        CommandWords(words=("python3", "-m", module)),
        *options,
        override("data.train_files", "TRAIN_FILES", "prompts to train on: a parquet file"),
        override("data.val_files", "VAL_FILES", "prompts to evaluate: a parquet file"),
        override("trainer.default_local_dir", OUTPUT.name, OUTPUT.meaning, OUTPUT.default),
    )
    some = STEPS * int(job["prompts_per_step"])
    more = [f"rollout.total_rollout_steps={some}"] if "fully_async" in module else []
    left = (*([_FOLDER] if has_separate_gpus(job) else []), *_LEFT)
    return step_draft(job, "verl", arguments, more, left=left)


def _arguments(options: Iterable[OptionText]) -> list[CommandWords]:
    """The options of hydra as two words, keys of the configuration as ``KEY=TEXT``."""
    return [
        CommandWords.of(option)
        if option.option.startswith("-")
        else CommandWords(words=(f"{option.option}={option.text}",), note=option.note)
        for option in options
    ]


_CRITIC = {_MEGATRON: "critic.megatron.", _FSDP: "critic.fsdp."}


def _of_critic(settings: OptionTexts) -> Iterator[OptionText]:
    """What the critic is told as the policy is: how it is sharded."""
    for option in settings.options:
        for actor, critic in _CRITIC.items():
            if option.option.startswith(actor):
                yield replace(option, option=option.option.replace(actor, critic), note="")


_FOLDER = ParameterNote(
    parameter="where it starts",
    value="",
    note="in a checkout of verl 0.9: its configuration begins from verl/trainer/config there",
)
_LEFT = (
    ParameterNote(
        parameter="learning rate",
        value="",
        note=f"{_ACTOR}optim.lr, with schedule and decay: yours; no effect on time or memory",
    ),
    ParameterNote(
        parameter="rewards",
        value="",
        note="custom_reward_function.path, or data whose data_source verl judges by itself: yours",
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
    put=_put_step,
    whole=with_unknown_options,
    version="verl 0.9",
    quantities=_quantities,
    draft=_draft,
    accepted=("verl-0.9.0",),
)
