"""slime: a step on rollouts, from the arguments of its ``train.py`` and ``train_async.py``.

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
from planner.launch.parsed_launch import (
    JobResources,
    LaunchSettings,
    OptionReader,
    SettingsBuilder,
    number,
    with_unknown_options,
)
from planner.launch.target import LaunchTarget
from planner.launch.targets.megatron_reader import read_megatron
from planner.launch.targets.rl_reader_writer import (
    put_lengths,
    put_redrawn,
    put_split,
    reader_of_steps,
)
from planner.launch.targets.training_reader import (
    note_updates,
    put_objective,
    put_token_budget,
    unread_of_sections,
)
from planner.specs.quantization import checkpoint_of

_MODEL = "--hf-checkpoint"
_SET = {"--bf16": "true", "--use-distributed-optimizer": "true", "--micro-batch-size": "1"}
"""What it sets of Megatron-LM where nobody does."""
_NODE = 8


def read_settings(reading: OptionReader) -> LaunchSettings:
    """What the update of the policy is; see the module.

    Raises LaunchError if the GPUs cannot be split as it says.
    """
    whole = with_unknown_options(reading.command)
    options = {name: implied_option(name, text) for name, text in _SET.items()} | {**whole.options}
    if "--fp16" in options:
        del options["--bf16"]
    gpus = whole.resources.requested_gpus or _actor_gpus(replace(reading, command=whole))
    world = JobResources(num_gpus=implied_option("num_gpus", str(gpus)), gpu=whole.resources.gpu)
    reading = OptionReader.of(
        replace(whole, options=options, resources=world), OptionTable.load("slime")
    )
    read = read_megatron(reading, "Megatron-LM")
    asked = [name for name in read.missing if name not in ("model", "global_batch_size")]
    found = SettingsBuilder(
        values={**read.values, "adapter": "none"},
        defaults={**read.defaults},
        missing=[name for name in asked if name != "sequence_length"],
        notes=[*read.notes],
    )
    found.require("model", reading.text(_MODEL))
    used = TARGET.table.used | TARGET.table.options | read.used_options
    unread = unread_of_sections(reading, ("--",), used)
    if reading.text("--loss-type") == "sft_loss":
        found.values["training_objective"] = "sft"
        found.require("sequence_length", number(reading, "--seq-length"))
        return found.build(used_options=used, **unread)
    _on_rollouts(reading, found)
    return found.build(used_options=used, **unread)


def _actor_gpus(reading: OptionReader) -> int:
    """GPUs that train, as options say: one node by default."""
    nodes = number(reading, "--actor-num-nodes") or 1
    return nodes * (number(reading, "--actor-num-gpus-per-node") or _NODE)


def _on_rollouts(reading: OptionReader, settings: SettingsBuilder) -> None:
    """Sequences of an update, each at its most, and how many are a micro-batch."""
    values = settings.values
    values.pop("total_tokens", None)  # a rollout is no iteration of Megatron's
    length = _longest(reading)
    settings.require("sequence_length", length)
    generated = _generated(reading)
    batch, times = number(reading, "--global-batch-size"), number(reading, _TIMES) or 1
    if batch is None and generated:
        batch = max(generated // times, 1)
    settings.require("global_batch_size", batch)
    if batch:
        note_updates(settings, "slime", generated, batch)
    if length and batch and (budget := _budget(reading, settings)):
        sizes = (int(values.get(f"{name}_parallel", 1)) for name in ("tensor", "pipeline"))
        ranks = int(values.get("context_parallel", 1))
        for size in sizes:
            ranks *= size
        copies = max(int(values["num_gpus"]) // ranks, 1)
        put_token_budget(settings, budget, None if batch % copies else batch // copies)
    penalty = reading.amount("--kl-coef") or 0.0
    has_critic = reading.text("--advantage-estimator") == "ppo"
    put_objective(settings, reading.has("--use-kl-loss") or penalty > 0, has_critic=has_critic)


_TIMES = "--num-steps-per-rollout"


def _generated(reading: OptionReader) -> int | None:
    """Answers of a step."""
    prompts = number(reading, "--rollout-batch-size")
    return prompts and prompts * (number(reading, "--n-samples-per-prompt") or 1)


def _longest(reading: OptionReader) -> int | None:
    """Tokens of a prompt and its answer at their most."""
    whole, answer = number(reading, _CONTEXT), number(reading, _ANSWER)
    if whole or answer is None:
        return whole
    return answer + (number(reading, _PROMPT) or max(answer // _OF_ANSWER, 1))


_CONTEXT, _PROMPT, _ANSWER = (
    "--rollout-max-context-len",
    "--rollout-max-prompt-len",
    "--rollout-max-response-len",
)
_OF_ANSWER = 8
"""Longest answer over a prompt, where no option bounds prompts."""


def _budget(reading: OptionReader, settings: SettingsBuilder) -> int | None:
    """Tokens of a micro-batch of all ranks of a sequence; None where sequences are counted."""
    tokens = number(reading, "--max-tokens-per-gpu")
    if tokens is None or not reading.has("--use-dynamic-batch-size"):
        return None
    return tokens * int(settings.values.get("context_parallel", 1))


def _put_step(reading: OptionReader, update: LaunchSettings, settings: SettingsBuilder) -> None:
    """What of a whole step is no row of the table: lengths, micro-batches, who runs where."""
    values = settings.values
    values["framework"] = "slime"
    values["old_logprob"] = not reading.has("--use-rollout-logprobs")
    if reading.has("--dynamic-sampling-filter-path"):
        put_redrawn(settings)
    length = update.values.get("sequence_length")
    if length is None:
        settings.mark_missing("output_cap")
    else:
        put_lengths(settings, int(length), number(reading, _ANSWER), number(reading, _PROMPT))
        longest = int(values["input_tokens"]) + int(values["output_cap"])
        budget = _budget(reading, settings)
        counted = int(update.values["micro_batch_size"]) * longest
        values["micro_batch_tokens"] = max(budget or counted, longest)
        if budget and budget < longest:
            settings.notes.append(
                f"--max-tokens-per-gpu is below the longest sequence, {longest:,} tokens, which is "
                "then a micro-batch of its own: micro-batches are taken to hold it."
            )
    if (checkpoint_of(reading.text(_MODEL) or "").quantization or "").startswith("fp8"):
        values["rollout_quantization"] = "fp8"
    _put_placement(reading, update, settings)


def _put_placement(
    reading: OptionReader, update: LaunchSettings, settings: SettingsBuilder
) -> None:
    """Where trainer and engines run.

    ``train_async.py`` generates the answers of the next step while this one is trained.
    """
    values = settings.values
    words = [word_option.single or "" for word_option in reading.command.positional]
    placement = Placement.SEPARATE
    if reading.has("--colocate"):
        placement = Placement.COLOCATED
        for name in ("train", "rollout"):
            values[f"offload_{name}"] = not reading.has(f"--no-offload-{name}")
    elif "fully_async" in (reading.text("--rollout-function-path") or ""):
        placement, values["staleness"] = Placement.ASYNC, 1
    elif any(word.endswith("train_async.py") for word in words):
        placement, values["staleness"] = Placement.ONE_STEP_OFF, 1
    train, rollout = _split_of(reading, placement)
    values["partial_rollout"] = reading.has("--partial-rollout") and placement in (
        Placement.COLOCATED,
        Placement.ASYNC,
    )
    put_split(settings, placement, train if rollout else None, rollout)


def _split_of(reading: OptionReader, placement: Placement) -> tuple[int, int]:
    """GPUs that train and that generate; 0 of the latter where nothing says how many.

    Raises LaunchError if the GPUs that the user names cannot be split like those of the file.
    """
    train, rollout = _actor_gpus(reading), number(reading, "--rollout-num-gpus") or 0
    total = reading.command.resources.requested_gpus
    if total is None or placement is Placement.COLOCATED:
        return train, rollout
    if rollout and total % (train + rollout) == 0:
        times = total // (train + rollout)
        return train * times, rollout * times
    if not rollout and total > train:
        return train, total - train
    own = f"{train} train and {rollout or 'others'} generate"
    raise LaunchError(
        f"{reading.place}: of the GPUs of the file {own}, and {total} cannot be split so: give "
        f"--gpus {2 * (train + rollout)}, or another multiple."
        if rollout
        else f"{reading.place}: of the GPUs of the file {own}, and of {total} none is left: give "
        f"more than --gpus {train}."
    )


TARGET = reader_of_steps(
    LaunchTarget.of("slime", answers=read_settings),
    profiles=("slime",),
    put=_put_step,
    whole=with_unknown_options,
)
