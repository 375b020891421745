"""OpenRLHF: the training step of its command-line programs, on rollouts or on a data set.

Source: OpenRLHF/OpenRLHF 021d1b0, ``openrlhf/cli/train_ppo_ray.py``, whose options got dots in
0.10 (``--actor.num_nodes`` for ``--actor_num_nodes``); both are read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from planner.launch.option_table import (
    OptionTable,
    OptionTexts,
    ParameterNote,
)
from planner.launch.read.expression_rows import apply_read_rows
from planner.launch.read.parsed_launch import (
    LaunchSettings,
    OptionReader,
    SettingsBuilder,
    flag,
    number,
    with_unknown_options,
)
from planner.launch.target import CommandWords, LaunchDraft, LaunchJob, LaunchTarget, ShellVariable
from planner.launch.targets.rl_reader_writer import (
    MODEL,
    OUTPUT,
    apply_step_rows,
    reader_of_steps,
    set_dynamic_sampling,
    set_lengths,
    step_draft,
)
from planner.launch.targets.training_reader import (
    make_update_reader,
    note_updates,
    require_model_ranks,
    set_lora,
    set_objective,
    set_token_budget,
)
from planner.launch.write.benchmark import STEPS

_MODULE = "openrlhf.cli.train_"


def matches_command(words: Sequence[str]) -> bool:
    """Return whether a command starts a training program of OpenRLHF.

    >>> matches_command(["openrlhf.cli.train_ppo_ray", "--pretrain", "Qwen/Qwen3-8B"])
    True
    """
    return any(word.startswith(_MODULE) for word in words[:4])


def _add_unlisted_settings(reading: OptionReader, settings: SettingsBuilder) -> None:
    """Set the adapter and what the rows read; note the updates of a step and its micro-batches."""
    read: dict[str, Any] = {"program": _program_name(reading)}
    apply_read_rows(reading, OptionTable.load("openrlhf"), settings, read)
    values = settings.values
    if rank := values.get("lora_rank"):
        set_lora(reading, settings, rank, "--target_modules", "--ds.lora.target_modules")
        if flag(reading, "--load_in_4bit", "--ds.load_in_4bit"):
            values["adapter"] = "qlora"
    if num_gpus := values.get("num_gpus"):
        require_model_ranks(reading, settings, num_gpus)
    if read["has_rollouts"]:
        set_objective(settings, read["has_reference"], has_critic=read["has_critic"])
        note_updates(settings, "OpenRLHF", read["generated"], values["global_batch_size"])
    if budget := read.get("token_budget"):
        set_token_budget(settings, budget, read.get("sequences_per_rank"))


_MODELS = ("--pretrain", "--actor.model_name_or_path", "--model.model_name_or_path")
_PROMPT = ("--prompt_max_len", "--data.prompt_max_len")
_ANSWER = ("--generate_max_len", "--rollout.max_new_tokens")
_FILTERS = ("--dynamic_filtering", "--algo.dynamic_filtering_enable")


def _program_name(reading: OptionReader) -> str:
    """Return the program without its module prefix: ``sft``, ``dpo``, ``ppo_ray``; else ""."""
    words = [text for argument in reading.command.positional for text in argument.texts if text]
    words += filter(None, [reading.text("--module")])  # as launchers call it
    module = next((word for word in words if word.startswith(_MODULE)), "")
    return module.removeprefix(_MODULE)


def _add_step_settings(
    reading: OptionReader, update: LaunchSettings, settings: SettingsBuilder
) -> None:
    """Set lengths, dynamic sampling, what the rows read, and placement."""
    length = int(update.values["sequence_length"])
    answer_length, prompt_length = number(reading, *_ANSWER), number(reading, *_PROMPT)
    if prompt_length is None and answer_length is not None and answer_length < length:
        prompt_length = length - answer_length
    set_lengths(settings, length, answer_length, prompt_length)
    if flag(reading, *_FILTERS):
        set_dynamic_sampling(settings)
    # A longer sequence is a micro-batch of its own (openrlhf/utils/seqlen_balancing.py).
    read: dict[str, Any] = {
        "longest": length,
        "sequences": update.values.get("micro_batch_size"),
        "trainer_gpus": update.values.get("num_gpus"),
    }
    apply_step_rows(reading, "openrlhf", settings, read)


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
    draft=_draft,
    accepted=("openrlhf-0.11.0",),
)
