"""slime: a training step on rollouts, from the arguments of ``train.py`` and ``train_async.py``.

Source: THUDM/slime at 624b824, ``slime/utils/arguments.py`` (options, and what follows from them),
``slime/backends/megatron_utils/arguments.py`` (what it sets of Megatron-LM's), and
``slime/backends/sglang_utils/arguments.py``: options of SGLang begin with ``--sglang-``.
"""

from __future__ import annotations

from dataclasses import replace

from planner.base.software_enums import Placement
from planner.documents.shell.edits import implied_option
from planner.errors import LaunchError
from planner.launch.option_table import OptionTable
from planner.launch.read.parsed_launch import (
    JobResources,
    LaunchSettings,
    OptionReader,
    SettingsBuilder,
    number,
    with_unknown_options,
)
from planner.launch.target import LaunchTarget
from planner.launch.targets.megatron_arguments import read_megatron_arguments
from planner.launch.targets.rl_reader_writer import (
    reader_of_steps,
    set_dynamic_sampling,
    set_lengths,
    set_placement,
)
from planner.launch.targets.training_reader import (
    classify_unused_options,
    note_updates,
    set_objective,
    set_token_budget,
)
from planner.specs.quantization import checkpoint_of

_MODEL = "--hf-checkpoint"
_IMPLIED_OPTIONS = {
    "--bf16": "true",
    "--use-distributed-optimizer": "true",
    "--micro-batch-size": "1",
}
"""Defaults of slime for options of Megatron-LM."""
_DEFAULT_GPUS_PER_NODE = 8


def read_settings(reading: OptionReader) -> LaunchSettings:
    """Read the settings of slime's weight update (training without generation).

    Raises LaunchError if the command's split of the model does not divide its GPUs.
    """
    command = with_unknown_options(reading.command)
    options = {name: implied_option(name, text) for name, text in _IMPLIED_OPTIONS.items()} | {
        **command.options
    }
    if "--fp16" in options:
        del options["--bf16"]
    num_gpus = command.resources.requested_gpus or _train_gpus(replace(reading, command=command))
    resources = JobResources(
        num_gpus=implied_option("num_gpus", str(num_gpus)), gpu=command.resources.gpu
    )
    reading = OptionReader.of(
        replace(command, options=options, resources=resources), OptionTable.load("slime")
    )
    megatron = read_megatron_arguments(reading, "Megatron-LM")
    missing = [name for name in megatron.missing if name not in ("model", "global_batch_size")]
    settings = SettingsBuilder(
        values={**megatron.values, "adapter": "none"},
        defaults={**megatron.defaults},
        missing=[name for name in missing if name != "sequence_length"],
        notes=[*megatron.notes],
    )
    settings.require("model", reading.text(_MODEL))
    used = TARGET.table.used | TARGET.table.options | megatron.used_options
    unread = classify_unused_options(reading, ("--",), used)
    if reading.text("--loss-type") == "sft_loss":
        settings.values["training_objective"] = "sft"
        settings.require("sequence_length", number(reading, "--seq-length"))
        return settings.build(used_options=used, **unread)
    _set_rollout_update(reading, settings)
    return settings.build(used_options=used, **unread)


def _train_gpus(reading: OptionReader) -> int:
    """GPUs that train; one node by default."""
    nodes = number(reading, "--actor-num-nodes") or 1
    return nodes * (number(reading, "--actor-num-gpus-per-node") or _DEFAULT_GPUS_PER_NODE)


def _set_rollout_update(reading: OptionReader, settings: SettingsBuilder) -> None:
    """Set the sequences of an update, the longest sequence and the micro-batch."""
    values = settings.values
    values.pop("total_tokens", None)  # a rollout is not one iteration of Megatron-LM
    max_length = _max_sequence_length(reading)
    settings.require("sequence_length", max_length)
    answers_per_step = _answers_per_step(reading)
    batch, updates = (
        number(reading, "--global-batch-size"),
        number(reading, _UPDATES_PER_ROLLOUT) or 1,
    )
    if batch is None and answers_per_step:
        batch = max(answers_per_step // updates, 1)
    settings.require("global_batch_size", batch)
    if batch:
        note_updates(settings, "slime", answers_per_step, batch)
    if max_length and batch and (budget := _token_budget(reading, settings)):
        sizes = (int(values.get(f"{name}_parallel", 1)) for name in ("tensor", "pipeline"))
        ranks = int(values.get("context_parallel", 1))
        for size in sizes:
            ranks *= size
        copies = max(int(values["num_gpus"]) // ranks, 1)
        set_token_budget(settings, budget, None if batch % copies else batch // copies)
    kl_coefficient = reading.amount("--kl-coef") or 0.0
    has_critic = reading.text("--advantage-estimator") == "ppo"
    set_objective(
        settings, reading.has("--use-kl-loss") or kl_coefficient > 0, has_critic=has_critic
    )


_UPDATES_PER_ROLLOUT = "--num-steps-per-rollout"


def _answers_per_step(reading: OptionReader) -> int | None:
    """Generated answers of a step; None where the command does not set its prompts."""
    prompts = number(reading, "--rollout-batch-size")
    return prompts and prompts * (number(reading, "--n-samples-per-prompt") or 1)


def _max_sequence_length(reading: OptionReader) -> int | None:
    """Return the most tokens of a prompt plus answer; None if no option bounds them."""
    context, max_answer = number(reading, _CONTEXT), number(reading, _ANSWER)
    if context or max_answer is None:
        return context
    return max_answer + (number(reading, _PROMPT) or max(max_answer // _ANSWER_PER_PROMPT, 1))


_CONTEXT, _PROMPT, _ANSWER = (
    "--rollout-max-context-len",
    "--rollout-max-prompt-len",
    "--rollout-max-response-len",
)
_ANSWER_PER_PROMPT = 8
"""Longest answer over the prompt length, if no option bounds prompts."""


def _token_budget(reading: OptionReader, settings: SettingsBuilder) -> int | None:
    """Return a micro-batch's tokens over all context-parallel ranks; None if not set so."""
    tokens = number(reading, "--max-tokens-per-gpu")
    if tokens is None or not reading.has("--use-dynamic-batch-size"):
        return None
    return tokens * int(settings.values.get("context_parallel", 1))


def _add_step_settings(
    reading: OptionReader, update: LaunchSettings, settings: SettingsBuilder
) -> None:
    """Set what the option table does not read: lengths, micro-batches and placement."""
    values = settings.values
    values["framework"] = "slime"
    values["old_logprob"] = not reading.has("--use-rollout-logprobs")
    if reading.has("--dynamic-sampling-filter-path"):
        set_dynamic_sampling(settings)
    length = update.values.get("sequence_length")
    if length is None:
        settings.mark_missing("output_cap")
    else:
        set_lengths(settings, int(length), number(reading, _ANSWER), number(reading, _PROMPT))
        longest = int(values["input_tokens"]) + int(values["output_cap"])
        budget = _token_budget(reading, settings)
        micro_batch_tokens = int(update.values["micro_batch_size"]) * longest
        values["micro_batch_tokens"] = max(budget or micro_batch_tokens, longest)
        if budget and budget < longest:
            settings.notes.append(
                f"--max-tokens-per-gpu is below the longest sequence, {longest:,} tokens. planner "
                "assumes micro-batches of that length."
            )
    if (checkpoint_of(reading.text(_MODEL) or "").quantization or "").startswith("fp8"):
        values["rollout_quantization"] = "fp8"
    _set_placement(reading, update, settings)


def _set_placement(
    reading: OptionReader, update: LaunchSettings, settings: SettingsBuilder
) -> None:
    """Set on which GPUs trainer and engines run, and how many updates old the weights may be.

    ``train_async.py`` generates the answers of the next step while this one trains.
    """
    values = settings.values
    words = [argument.single or "" for argument in reading.command.positional]
    placement = Placement.SEPARATE
    if reading.has("--colocate"):
        placement = Placement.COLOCATED
        for name in ("train", "rollout"):
            values[f"offload_{name}"] = not reading.has(f"--no-offload-{name}")
    elif "fully_async" in (reading.text("--rollout-function-path") or ""):
        placement, values["staleness"] = Placement.ASYNC, 1
    elif any(word.endswith("train_async.py") for word in words):
        placement, values["staleness"] = Placement.ONE_STEP_OFF, 1
    train_gpus, rollout_gpus = _split_gpus(reading, placement)
    values["partial_rollout"] = reading.has("--partial-rollout") and placement in (
        Placement.COLOCATED,
        Placement.ASYNC,
    )
    set_placement(settings, placement, train_gpus if rollout_gpus else None, rollout_gpus)


def _split_gpus(reading: OptionReader, placement: Placement) -> tuple[int, int]:
    """Return the GPUs that train and the GPUs that generate; 0 generate if not set.

    Raises LaunchError if the GPUs that the user sets cannot be split like those of the file.
    """
    train_gpus, rollout_gpus = _train_gpus(reading), number(reading, "--rollout-num-gpus") or 0
    num_gpus = reading.command.resources.requested_gpus
    if num_gpus is None or placement is Placement.COLOCATED:
        return train_gpus, rollout_gpus
    if rollout_gpus and num_gpus % (train_gpus + rollout_gpus) == 0:
        multiple = num_gpus // (train_gpus + rollout_gpus)
        return train_gpus * multiple, rollout_gpus * multiple
    if not rollout_gpus and num_gpus > train_gpus:
        return train_gpus, num_gpus - train_gpus
    split = f"{train_gpus} train and {rollout_gpus or 'others'} generate"
    if rollout_gpus:
        gpus = 2 * (train_gpus + rollout_gpus)
        advice = f"cannot be split so: give --gpus {gpus}, or another multiple."
    else:
        advice = f"leave none to generate: give more than --gpus {train_gpus}."
    raise LaunchError(
        f"{reading.position}: of the GPUs of the file {split}, and {num_gpus} {advice}"
    )


TARGET = reader_of_steps(
    LaunchTarget.of("slime", answers=read_settings),
    profiles=("slime",),
    add_step_settings=_add_step_settings,
    complete_command=with_unknown_options,
)
