"""OpenRLHF: the training step of its command-line programs, on rollouts or on a data set.

Source: OpenRLHF/OpenRLHF 021d1b0, ``openrlhf/cli/train_ppo_ray.py``, whose options got dots in
0.10 (``--actor.num_nodes`` for ``--actor_num_nodes``); both are read.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from planner.base.software_enums import Placement
from planner.base.training_aliases import Algorithm
from planner.errors import LaunchError
from planner.launch.option_table import OptionTexts, ParameterNote, Quantities
from planner.launch.read.parsed_launch import (
    LaunchSettings,
    OptionReader,
    SettingsBuilder,
    flag,
    number,
    option_text,
    require_split,
    total_gpus,
    with_unknown_options,
)
from planner.launch.target import CommandWords, LaunchDraft, LaunchJob, LaunchTarget, ShellVariable
from planner.launch.targets.rl_reader_writer import (
    MODEL,
    OUTPUT,
    has_separate_gpus,
    reader_of_steps,
    set_dynamic_sampling,
    set_lengths,
    set_placement,
    step_draft,
    step_quantities,
    tokens_per_rank,
)
from planner.launch.targets.training_reader import (
    make_update_reader,
    note_updates,
    set_lora,
    set_objective,
    set_token_budget,
)
from planner.launch.write.benchmark import STEPS

_MODULE = "openrlhf.cli.train_"
_OBJECTIVES = {"sft": "sft", "dpo": "dpo", "rm": "rm", "kto": "kto"}


def matches_command(words: Sequence[str]) -> bool:
    """Return whether a command starts a training program of OpenRLHF.

    >>> matches_command(["openrlhf.cli.train_ppo_ray", "--pretrain", "Qwen/Qwen3-8B"])
    True
    """
    return any(word.startswith(_MODULE) for word in words[:4])


def _add_unlisted_settings(reading: OptionReader, settings: SettingsBuilder) -> None:
    """Set what the option table does not read: the policy's update, or fine-tuning."""
    values = settings.values
    rank = number(reading, "--lora_rank", "--ds.lora.rank")
    if rank:
        set_lora(reading, settings, rank, "--target_modules", "--ds.lora.target_modules")
        if flag(reading, "--load_in_4bit", "--ds.load_in_4bit"):
            values["adapter"] = "qlora"
    values["framework"] = "HF Trainer" if rank else "DeepSpeed"
    values["tensor_parallel"] = number(reading, *_TENSOR) or 1
    values["context_parallel"] = number(reading, *_CONTEXT) or 1
    if values["context_parallel"] > 1:
        values["cp_comm_type"] = "p2p"
    values["pipeline_parallel"] = 1
    zero = next((stage for option in _ZERO if (stage := reading.number(option)) is not None), None)
    settings.set("zero_stage", zero)
    settings.assume("zero_stage", 2, "2 is OpenRLHF's --zero_stage")
    values["offload"] = "optimizer" if flag(reading, *_OFFLOAD) else "none"
    values["recompute"] = "full" if flag(reading, *_RECOMPUTE) else "none"
    program = _program_name(reading)
    if program in _OBJECTIVES:
        values["training_objective"] = _OBJECTIVES[program]
        settings.set("sequence_length", number(reading, "--max_len", "--data.max_len"))
        settings.assume("sequence_length", 2048, "no --max_len: 2,048 tokens are OpenRLHF's")
        num_gpus = total_gpus(reading.command.resources)
    else:
        _set_rollout_objective(reading, settings)
        num_gpus = (number(reading, *_NODES) or 1) * (
            number(reading, *_GPUS_PER_NODE) or _DEFAULT_GPUS_PER_NODE
        )
    _set_batch(reading, settings, num_gpus)


_MODELS = ("--pretrain", "--actor.model_name_or_path", "--model.model_name_or_path")
_TENSOR = ("--ds_tensor_parallel_size", "--ds.tensor_parallel_size")
_CONTEXT = ("--ring_attn_size", "--ds.ring_attn_size")
_ZERO = ("--zero_stage", "--ds.zero_stage")
_OFFLOAD = ("--adam_offload", "--ds.adam_offload")
_RECOMPUTE = (
    *("--gradient_checkpointing", "--ds.gradient_checkpointing", "--actor.gradient_checkpointing"),
    *("--actor.gradient_checkpointing_enable", "--model.gradient_checkpointing_enable"),
)
_NODES = ("--actor_num_nodes", "--actor.num_nodes")
_GPUS_PER_NODE = ("--actor_num_gpus_per_node", "--actor.num_gpus_per_node")
_DEFAULT_GPUS_PER_NODE = 8
_PROMPT = ("--prompt_max_len", "--data.prompt_max_len")
_ANSWER = ("--generate_max_len", "--rollout.max_new_tokens")
_ESTIMATOR = ("--advantage_estimator", "--algo.advantage.estimator")
_DIVERGENCE = ("--init_kl_coef", "--algo.kl.init_coef")
_DYNAMIC = ("--use_dynamic_batch", "--train.dynamic_batch_enable")
_DEFAULT_TOKEN_BUDGET = 16192
_BUDGET = ("--train_max_tokens_per_gpu", "--train.max_tokens_per_gpu")
_MICRO = ("--micro_train_batch_size", "--train.micro_batch_size")
_GLOBAL_BATCH_OPTIONS = ("--train_batch_size", "--train.batch_size")
_ROLLOUT_BATCH = ("--rollout_batch_size", "--rollout.batch_size")
_SAMPLES = ("--n_samples_per_prompt", "--rollout.n_samples_per_prompt")


def _program_name(reading: OptionReader) -> str:
    """Return the program without its module prefix: ``sft``, ``dpo``, ``ppo_ray``; else ""."""
    words = [text for argument in reading.command.positional for text in argument.texts if text]
    words += filter(None, [reading.text("--module")])  # as launchers call it
    module = next((word for word in words if word.startswith(_MODULE)), "")
    return module.removeprefix(_MODULE)


def _set_rollout_objective(reading: OptionReader, settings: SettingsBuilder) -> None:
    """Set the longest sequence in tokens, and GRPO or DAPO by the reference model."""
    max_length = number(reading, "--max_len", "--data.max_len")
    prompt_length, answer_length = number(reading, *_PROMPT), number(reading, *_ANSWER)
    if max_length and prompt_length is None:
        settings.values["sequence_length"] = max_length
    else:
        settings.values["sequence_length"] = (prompt_length or 1024) + (answer_length or 1024)
        if prompt_length is None or answer_length is None:
            reason = "prompts and answers of 1,024 tokens are OpenRLHF's"
            settings.defaults["sequence_length"] = reason
    penalties = [penalty for penalty in map(reading.amount, _DIVERGENCE) if penalty is not None]
    has_critic = (option_text(reading, *_ESTIMATOR) or "gae") == "gae"
    set_objective(settings, not penalties or penalties[0] > 0, has_critic=has_critic)
    generated = (number(reading, *_ROLLOUT_BATCH) or 1024) * (number(reading, *_SAMPLES) or 1)
    note_updates(settings, "OpenRLHF", generated, number(reading, *_GLOBAL_BATCH_OPTIONS) or 128)


def _set_batch(reading: OptionReader, settings: SettingsBuilder, num_gpus: int | None) -> None:
    """Set the number of GPUs, and the sequences of an update and of a micro-batch."""
    values = settings.values
    sizes = {name: int(values[name]) for name in ("tensor_parallel", "context_parallel")}
    require_split(reading, num_gpus, **sizes)
    if num_gpus is None:
        settings.mark_missing("num_gpus")
    else:
        values["num_gpus"] = num_gpus
    settings.set("global_batch_size", number(reading, *_GLOBAL_BATCH_OPTIONS))
    settings.assume("global_batch_size", 128, "128 is OpenRLHF's --train_batch_size")
    batch = int(values["global_batch_size"])
    copies = (
        num_gpus // (sizes["tensor_parallel"] * sizes["context_parallel"]) if num_gpus else None
    )
    if flag(reading, *_DYNAMIC):
        budget = (number(reading, *_BUDGET) or _DEFAULT_TOKEN_BUDGET) * prod(sizes.values())
        batch_per_copy = batch // copies if copies and batch % copies == 0 else None
        set_token_budget(settings, budget, batch_per_copy)
        return
    settings.set("micro_batch_size", number(reading, *_MICRO))
    settings.assume("micro_batch_size", 4, "4 is OpenRLHF's --micro_train_batch_size")


_COLOCATED = ("--colocate_all_models", "--train.colocate_all")
_COLOCATION_OPTIONS = ("--colocate_actor_ref", "--train.colocate_actor_ref", *_COLOCATED)
_ASYNC = ("--async_train", "--train.async_enable")
_QUEUE = ("--async_queue_size", "--train.async_queue_size")
_PARTIAL = ("--partial_rollout", "--train.partial_rollout_enable")
_ENGINES = ("--vllm_num_engines", "--vllm.num_engines")
_FILTERS = ("--dynamic_filtering", "--algo.dynamic_filtering_enable")


def _add_step_settings(
    reading: OptionReader, update: LaunchSettings, settings: SettingsBuilder
) -> None:
    """Set what the option table does not read: lengths, micro-batches and placement."""
    values = settings.values
    values["framework"] = "OpenRLHF"
    length = int(update.values["sequence_length"])
    answer_length, prompt_length = number(reading, *_ANSWER), number(reading, *_PROMPT)
    if prompt_length is None and answer_length is not None and answer_length < length:
        prompt_length = length - answer_length
    set_lengths(settings, length, answer_length, prompt_length)
    prompts = number(reading, "--data.max_samples")
    if prompts is not None and "prompts_per_step" in values:
        episodes = number(reading, "--train.num_episodes") or 1
        values["max_steps"] = max(prompts * episodes // int(values["prompts_per_step"]), 1)
    if flag(reading, *_FILTERS):
        set_dynamic_sampling(settings)
    if flag(reading, *_DYNAMIC):
        budget = number(reading, *_BUDGET) or _DEFAULT_TOKEN_BUDGET
        ranks = int(values["context_parallel"]) * int(values["tensor_parallel"])
        # A longer sequence is a micro-batch of its own (openrlhf/utils/seqlen_balancing.py).
        values["micro_batch_tokens"] = max(budget * ranks, length)
    else:
        values["micro_batch_tokens"] = int(update.values["micro_batch_size"]) * length
    _set_placement(reading, update, settings)


def _set_placement(
    reading: OptionReader, update: LaunchSettings, settings: SettingsBuilder
) -> None:
    """Set on which GPUs trainer and engines run; asynchronous engines have separate GPUs."""
    values = settings.values
    placement = Placement.COLOCATED if flag(reading, *_COLOCATED) else Placement.SEPARATE
    if flag(reading, *_ASYNC):
        placement = Placement.ASYNC
        values["staleness"] = number(reading, *_QUEUE) or 1
        values["partial_rollout"] = flag(reading, *_PARTIAL)
    if values["reference_model"] and not any(
        flag(reading, option) for option in _COLOCATION_OPTIONS
    ):
        settings.notes.append("The reference model has GPUs of its own, which are not counted.")
    num_engines = number(reading, *_ENGINES)
    if num_engines is None and placement is not Placement.COLOCATED:
        settings.notes.append("--vllm.num_engines is not set: planner assumes 1.")
    rollout_gpus = (num_engines or 1) * int(values.get("rollout_tensor_parallel", 1))
    set_placement(settings, placement, update.values.get("num_gpus"), rollout_gpus)


_KL_COEFFICIENT = 0.01
"""The default of ``--algo.kl.init_coef``."""


def _quantities(job: LaunchJob) -> Quantities:
    """Return the values that OpenRLHF's options write for a planned job, by parameter name.

    Raises LaunchError if OpenRLHF cannot start such a step.
    """
    quantities = step_quantities(job)
    is_separate, is_ppo = has_separate_gpus(job), job["algorithm"] == Algorithm.PPO
    if is_ppo and is_separate:
        raise LaunchError(
            "OpenRLHF's critic has separate GPUs if the engine has: --set "
            "placement=colocated, or an --algorithm without a critic."
        )
    train_nodes, gpus_per_node = quantities["train_nodes"], quantities["train_each"]
    has_reference = bool(job["reference_model"])
    return quantities | {
        "token_budget": tokens_per_rank(
            quantities["token_budget"], job["context_parallel"], job["tensor_parallel"]
        ),
        "divergence": _KL_COEFFICIENT if has_reference else 0,
        "num_prompts": int(job["prompts_per_step"]) * int(job["max_steps"]),
        "shares_reference": has_reference and is_separate,
        "reference_nodes": train_nodes if has_reference else None,
        "reference_each": gpus_per_node if has_reference else None,
        "critic_nodes": train_nodes if is_ppo else None,
        "critic_each": gpus_per_node if is_ppo else None,
        "num_engines": int(job["rollout_gpus"]) // int(job["rollout_tensor_parallel"]),
    }


def _draft(job: LaunchJob, settings: OptionTexts) -> LaunchDraft:
    """Build the OpenRLHF command of a job; the benchmark limits the number of prompts."""
    options = [CommandWords.of(option) for option in settings.options]
    if job.hub_name is None:
        options.insert(0, CommandWords(words=("--actor.model_name_or_path", MODEL)))
    arguments = (
        CommandWords(words=("python3", "-m", "openrlhf.cli.train_ppo_ray")),
        *options,
        CommandWords(words=("--data.prompt_dataset", _PROMPTS)),
        CommandWords(words=("--reward.remote_url", _REWARDS)),
        CommandWords(words=("--ckpt.output_dir", OUTPUT)),
    )
    benchmark_prompts = STEPS * int(job["prompts_per_step"])
    benchmark_words = ("--data.max_samples", str(benchmark_prompts))
    return step_draft(job, "openrlhf", arguments, benchmark_words, left=_LEFT_TO_USER)


_PROMPTS = ShellVariable(
    name="PROMPTS", meaning="prompts to train on: a name on Hugging Face or a file"
)
_REWARDS = ShellVariable(name="REWARDS", meaning="rewards: a .py file with reward_func, or a URL")
_LEFT_TO_USER = (
    ParameterNote(
        parameter="learning rate",
        value="",
        note="--actor.adam.lr, with schedule and decay: yours; no effect on time or memory",
    ),
)


TARGET = reader_of_steps(
    LaunchTarget.of(
        "openrlhf",
        answers=make_update_reader("openrlhf", _add_unlisted_settings, _MODELS, ("--",)),
        starts=matches_command,
    ),
    profiles=("OpenRLHF",),
    add_step_settings=_add_step_settings,
    complete_command=with_unknown_options,
    version="OpenRLHF 0.11",
    quantities=_quantities,
    draft=_draft,
    accepted=("openrlhf-0.11.0",),
)
