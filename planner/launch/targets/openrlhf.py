"""OpenRLHF: the training step of its command-line programs, on rollouts or on given answers.

Source: OpenRLHF/OpenRLHF 021d1b0, ``openrlhf/cli/train_ppo_ray.py``, whose options got dots in
0.10 (``--actor.num_nodes`` for ``--actor_num_nodes``); both are read.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from planner.base.software_enums import Placement
from planner.base.training_aliases import Algorithm
from planner.errors import LaunchError
from planner.launch.benchmark import STEPS
from planner.launch.option_table import OptionTexts, ParameterNote, Quantities
from planner.launch.parsed_launch import (
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
    per_rank,
    put_lengths,
    put_redrawn,
    put_split,
    reader_of_steps,
    step_draft,
    step_words,
)
from planner.launch.targets.training_reader import (
    make_update_reader,
    note_updates,
    put_lora,
    put_objective,
    put_token_budget,
)

_MODULE = "openrlhf.cli.train_"
_OBJECTIVES = {"sft": "sft", "dpo": "dpo", "rm": "rm", "kto": "kto"}


def matches_command(words: Sequence[str]) -> bool:
    """Whether a command starts a training program of OpenRLHF.

    >>> matches_command(["openrlhf.cli.train_ppo_ray", "--pretrain", "Qwen/Qwen3-8B"])
    True
    """
    return any(word.startswith(_MODULE) for word in words[:4])


def _add_unlisted_settings(reading: OptionReader, settings: SettingsBuilder) -> None:
    """What the update of the policy is; see the module."""
    values = settings.values
    rank = number(reading, "--lora_rank", "--ds.lora.rank")
    if rank:
        put_lora(reading, settings, rank, "--target_modules", "--ds.lora.target_modules")
        if flag(reading, "--load_in_4bit", "--ds.load_in_4bit"):
            values["adapter"] = "qlora"
    values["framework"] = "HF Trainer" if rank else "DeepSpeed"
    values["tensor_parallel"] = number(reading, *_TENSOR) or 1
    values["context_parallel"] = number(reading, *_RING) or 1
    if values["context_parallel"] > 1:
        values["cp_comm_type"] = "p2p"
    values["pipeline_parallel"] = 1
    zero = next((n for o in _ZERO if (n := reading.number(o)) is not None), None)
    settings.set("zero_stage", zero)
    settings.assume("zero_stage", 2, "2 is OpenRLHF's --zero_stage")
    values["offload"] = "optimizer" if flag(reading, *_AWAY) else "none"
    values["recompute"] = "full" if flag(reading, *_REPEATS) else "none"
    word = _word(reading)
    if word in _OBJECTIVES:
        values["training_objective"] = _OBJECTIVES[word]
        settings.set("sequence_length", number(reading, "--max_len", "--data.max_len"))
        settings.assume("sequence_length", 2048, "no --max_len: 2,048 tokens are OpenRLHF's")
        gpus = total_gpus(reading.command.resources)
    else:
        _on_rollouts(reading, settings)
        gpus = (number(reading, *_NODES) or 1) * (number(reading, *_EACH) or _NODE)
    _batch(reading, settings, gpus)


_MODELS = ("--pretrain", "--actor.model_name_or_path", "--model.model_name_or_path")
_TENSOR = ("--ds_tensor_parallel_size", "--ds.tensor_parallel_size")
_RING = ("--ring_attn_size", "--ds.ring_attn_size")
_ZERO = ("--zero_stage", "--ds.zero_stage")
_AWAY = ("--adam_offload", "--ds.adam_offload")
_REPEATS = (
    *("--gradient_checkpointing", "--ds.gradient_checkpointing", "--actor.gradient_checkpointing"),
    *("--actor.gradient_checkpointing_enable", "--model.gradient_checkpointing_enable"),
)
_NODES = ("--actor_num_nodes", "--actor.num_nodes")
_EACH = ("--actor_num_gpus_per_node", "--actor.num_gpus_per_node")
_NODE = 8
_PROMPT = ("--prompt_max_len", "--data.prompt_max_len")
_ANSWER = ("--generate_max_len", "--rollout.max_new_tokens")
_ESTIMATOR = ("--advantage_estimator", "--algo.advantage.estimator")
_DIVERGENCE = ("--init_kl_coef", "--algo.kl.init_coef")
_DYNAMIC = ("--use_dynamic_batch", "--train.dynamic_batch_enable")
_MICRO_TOKENS = 16192
_BUDGET = ("--train_max_tokens_per_gpu", "--train.max_tokens_per_gpu")
_MICRO = ("--micro_train_batch_size", "--train.micro_batch_size")
_GLOBAL_BATCH_OPTIONS = ("--train_batch_size", "--train.batch_size")
_GENERATED = ("--rollout_batch_size", "--rollout.batch_size")
_SAMPLES = ("--n_samples_per_prompt", "--rollout.n_samples_per_prompt")


def _word(reading: OptionReader) -> str:
    """What the name of the program trains."""
    words = [
        text for word_option in reading.command.positional for text in word_option.texts if text
    ]
    words += filter(None, [reading.text("--module")])  # as launchers call it
    module = next((word for word in words if word.startswith(_MODULE)), "")
    return module.removeprefix(_MODULE)


def _on_rollouts(reading: OptionReader, settings: SettingsBuilder) -> None:
    """Prompts with their answers at their most, and whether a reference model reads them."""
    longest = number(reading, "--max_len", "--data.max_len")
    prompt, answer = number(reading, *_PROMPT), number(reading, *_ANSWER)
    if longest and prompt is None:
        settings.values["sequence_length"] = longest
    else:
        settings.values["sequence_length"] = (prompt or 1024) + (answer or 1024)
        if prompt is None or answer is None:
            why = "prompts and answers of 1,024 tokens are OpenRLHF's"
            settings.defaults["sequence_length"] = why
    weights = [one for one in map(reading.amount, _DIVERGENCE) if one is not None]
    has_critic = (option_text(reading, *_ESTIMATOR) or "gae") == "gae"
    put_objective(settings, not weights or weights[0] > 0, has_critic=has_critic)
    generated = (number(reading, *_GENERATED) or 1024) * (number(reading, *_SAMPLES) or 1)
    note_updates(settings, "OpenRLHF", generated, number(reading, *_GLOBAL_BATCH_OPTIONS) or 128)


def _batch(reading: OptionReader, settings: SettingsBuilder, gpus: int | None) -> None:
    """Sequences of an update, and of a micro-batch on each rank."""
    values = settings.values
    sizes = {name: int(values[name]) for name in ("tensor_parallel", "context_parallel")}
    require_split(reading, gpus, **sizes)
    if gpus is None:
        settings.mark_missing("num_gpus")
    else:
        values["num_gpus"] = gpus
    settings.set("global_batch_size", number(reading, *_GLOBAL_BATCH_OPTIONS))
    settings.assume("global_batch_size", 128, "128 is OpenRLHF's --train_batch_size")
    batch = int(values["global_batch_size"])
    copies = gpus // (sizes["tensor_parallel"] * sizes["context_parallel"]) if gpus else None
    if flag(reading, *_DYNAMIC):
        budget = (number(reading, *_BUDGET) or _MICRO_TOKENS) * prod(sizes.values())
        share = batch // copies if copies and batch % copies == 0 else None
        put_token_budget(settings, budget, share)
        return
    settings.set("micro_batch_size", number(reading, *_MICRO))
    settings.assume("micro_batch_size", 4, "4 is OpenRLHF's --micro_train_batch_size")


_COLOCATED = ("--colocate_all_models", "--train.colocate_all")
_COLOCATION_OPTIONS = ("--colocate_actor_ref", "--train.colocate_actor_ref", *_COLOCATED)
_STREAMS = ("--async_train", "--train.async_enable")
_QUEUE = ("--async_queue_size", "--train.async_queue_size")
_PARTIAL = ("--partial_rollout", "--train.partial_rollout_enable")
_ENGINES = ("--vllm_num_engines", "--vllm.num_engines")
_FILTERS = ("--dynamic_filtering", "--algo.dynamic_filtering_enable")


def _put_step(reading: OptionReader, update: LaunchSettings, settings: SettingsBuilder) -> None:
    """What of a whole step is no row of the table: lengths, micro-batches, who runs where."""
    values = settings.values
    values["framework"] = "OpenRLHF"
    length = int(update.values["sequence_length"])
    answer, prompt = number(reading, *_ANSWER), number(reading, *_PROMPT)
    if prompt is None and answer is not None and answer < length:
        prompt = length - answer
    put_lengths(settings, length, answer, prompt)
    prompts = number(reading, "--data.max_samples")
    if prompts is not None and "prompts_per_step" in values:
        episodes = number(reading, "--train.num_episodes") or 1
        values["max_steps"] = max(prompts * episodes // int(values["prompts_per_step"]), 1)
    if flag(reading, *_FILTERS):
        put_redrawn(settings)
    if flag(reading, *_DYNAMIC):
        budget = number(reading, *_BUDGET) or _MICRO_TOKENS
        ranks = int(values["context_parallel"]) * int(values["tensor_parallel"])
        # A longer sequence is a micro-batch of its own (openrlhf/utils/seqlen_balancing.py).
        values["micro_batch_tokens"] = max(budget * ranks, length)
    else:
        values["micro_batch_tokens"] = int(update.values["micro_batch_size"]) * length
    _put_placement(reading, update, settings)


def _put_placement(
    reading: OptionReader, update: LaunchSettings, settings: SettingsBuilder
) -> None:
    """Where trainer and engines run; asynchronous engines are never on the trainer's GPUs."""
    values = settings.values
    placement = Placement.COLOCATED if flag(reading, *_COLOCATED) else Placement.SEPARATE
    if flag(reading, *_STREAMS):
        placement = Placement.ASYNC
        values["staleness"] = number(reading, *_QUEUE) or 1
        values["partial_rollout"] = flag(reading, *_PARTIAL)
    if values["reference_model"] and not any(
        flag(reading, option) for option in _COLOCATION_OPTIONS
    ):
        settings.notes.append("Its reference model has GPUs of its own: it is taken to be beside.")
    engines = number(reading, *_ENGINES)
    if engines is None and placement is not Placement.COLOCATED:
        settings.notes.append("It says no --vllm.num_engines: one is taken.")
    rollout = (engines or 1) * int(values.get("rollout_tensor_parallel", 1))
    put_split(settings, placement, update.values.get("num_gpus"), rollout)


_WEIGHT = 0.01
"""``--algo.kl.init_coef`` where nobody sets it."""


def _quantities(job: LaunchJob) -> Quantities:
    """What its words need that the plan has otherwise.

    Raises LaunchError if it cannot be told so.
    """
    words = step_words(job)
    apart, is_ppo = has_separate_gpus(job), job["algorithm"] == Algorithm.PPO
    if is_ppo and apart:
        raise LaunchError(
            "OpenRLHF's critic has GPUs of its own where the engine has: --set "
            "placement=colocated, or an --algorithm without a critic."
        )
    nodes, each = words["train_nodes"], words["train_each"]
    shares = bool(job["reference_model"])
    return words | {
        "token_budget": per_rank(
            words["token_budget"], job["context_parallel"], job["tensor_parallel"]
        ),
        "divergence": _WEIGHT if shares else 0,
        "num_prompts": int(job["prompts_per_step"]) * int(job["max_steps"]),
        "shares_reference": shares and apart,
        "reference_nodes": nodes if shares else None,
        "reference_each": each if shares else None,
        "critic_nodes": nodes if is_ppo else None,
        "critic_each": each if is_ppo else None,
        "num_engines": int(job["rollout_gpus"]) // int(job["rollout_tensor_parallel"]),
    }


def _draft(job: LaunchJob, settings: OptionTexts) -> LaunchDraft:
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
    some = STEPS * int(job["prompts_per_step"])
    more = ("--data.max_samples", str(some))
    return step_draft(job, "openrlhf", arguments, more, left=_LEFT)


_PROMPTS = ShellVariable(
    name="PROMPTS", meaning="prompts to train on: a name on Hugging Face or a file"
)
_REWARDS = ShellVariable(
    name="REWARDS", meaning="what judges: a .py file with reward_func, or a URL"
)
_LEFT = (
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
    put=_put_step,
    whole=with_unknown_options,
    version="OpenRLHF 0.11",
    quantities=_quantities,
    draft=_draft,
    accepted=("openrlhf-0.11.0",),
)
