"""The whole step of a program that trains on generated answers, read and written.

Rows of its table ``options/<program>-step.csv`` say what names an option of the step has; what is
here is alike for all programs. Reading is around that of the update: what it keeps, lengths, who
trains beside the policy. Written, both sides are one job of Ray, which ``ray symmetric-run`` starts
on every node (Ray's user guide of SLURM, from 2.49 on); the program runs on the first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from math import ceil, prod
from typing import Any

from planner.base.software_enums import Placement
from planner.base.training_aliases import Algorithm, TrainingObjective
from planner.errors import LaunchError
from planner.launch.benchmark import training_draft
from planner.launch.option_table import (
    OptionRole,
    OptionTable,
    OptionTexts,
    ParameterNote,
    Quantities,
    Words,
    word_of,
)
from planner.launch.parsed_launch import (
    LaunchSettings,
    OptionReader,
    ParsedCommand,
    SettingsBuilder,
)
from planner.launch.target import (
    CommandWords,
    LaunchDraft,
    LaunchJob,
    LaunchOutputFile,
    LaunchTarget,
    ShellVariable,
    option_texts,
)
from planner.question.terms import terms_of

OF_MEAN = 4
"""A cap over the mean of answers, as `--output-cap` is where nobody gives one."""
_MOST_PROMPT, _OF_LENGTH = 1024, 8
"""Tokens of a prompt, and a sequence over its prompt, where an option bounds sequences alone."""
_MICRO_BATCH = "micro_batch_size"
"""Of the update alone: a step packs answers into micro-batches of tokens."""


_ON_ANSWERS = (TrainingObjective.GRPO, TrainingObjective.DAPO)
_FULL_STEP_HINT = (
    "--workload rl predicts the whole step: generation, passes, update, transfer of weights."
)


def reader_of_steps(
    target: LaunchTarget,
    profiles: tuple[str, ...],
    put: Callable[[OptionReader, LaunchSettings, SettingsBuilder], None],
    whole: Callable[[ParsedCommand], ParsedCommand],
    table: str = "",
    draft: Callable[[LaunchJob, OptionTexts], LaunchDraft] | None = None,
    **written: Any,
) -> LaunchTarget:
    """The target with what reads its files as whole steps, and writes them where it has a draft.

    ``put`` adds what no row of the table tells, given the answers of the update; ``table`` is the
    name of that table where it is not the target's own; ``draft`` and ``written`` are those of
    `Target`.
    """

    def of_update(reading: OptionReader) -> LaunchSettings:
        update = target.answers(reading)
        return (
            replace(update, notes=(*update.notes, _FULL_STEP_HINT))
            if _generates(update)
            else update
        )

    def answers(reading: OptionReader) -> LaunchSettings:
        update = target.answers(reading)
        if not _generates(update):
            return update
        found = _around(reading, update, target)
        put(reading, update, found)
        _complete(found)
        names = step.table.options | step.table.used
        used = {option.option for name, option in reading.command.options.items() if name in names}
        return found.build(
            "rl",
            used_options=update.used_options | used,
            unread=update.unread | update.ignored_options,
        )

    step = replace(
        target,
        words=table or f"{target.name}-step",
        workloads=("rl",),
        profiles=profiles,
        answers=answers,
        complete=whole,
        **written,
    )
    if draft is not None:
        step = replace(step, draft=require_all_expressed(step, draft))
    return replace(target, answers=of_update, step=step)


def _generates(update: LaunchSettings) -> bool:
    """Whether it trains on answers that it generates."""
    return update.values.get("training_objective") in _ON_ANSWERS


def _around(reading: OptionReader, update: LaunchSettings, target: LaunchTarget) -> SettingsBuilder:
    """What rows tell of the step, over what of the update is of a step too."""
    known = terms_of("rl", "parameter", "question").keys() - {_MICRO_BATCH, "framework"}
    found = option_texts(reading, target.title, "rl")
    kept = {name: value for name, value in update.values.items() if name in known}
    found.values = {**kept, **found.values}
    if found.values["adapter"] == "none":
        for name in ("adapter", "adapter_sync"):
            found.values.pop(name, None)
    found.defaults = {
        **{name: why for name, why in update.defaults.items() if name in kept},
        **found.defaults,
    }
    found.missing = [name for name in update.missing if name in known]
    found.fallbacks = {name: one for name, one in update.fallbacks.items() if name in kept}
    found.values["reference_model"] = update.values["training_objective"] == TrainingObjective.GRPO
    return found


def _complete(settings: SettingsBuilder) -> None:
    """Lengths that no file tells, and who is there beside the policy."""
    values = settings.values
    if "output_cap" in values:
        mean = max(int(values["output_cap"]) // OF_MEAN, 1)
        told = f"{mean:,}, a quarter of the longest: files do not tell the mean"
        settings.assume("output_tokens", mean, told)
    values["critic"] = values.get("algorithm") == Algorithm.PPO
    if values.get("placement", Placement.COLOCATED.word) != Placement.COLOCATED.word:
        for name in ("offload_train", "offload_rollout"):
            values.pop(name, None)
            settings.defaults.pop(name, None)


def put_redrawn(settings: SettingsBuilder) -> None:
    """Prompts that are drawn again, as DAPO does it; no option tells how many."""
    settings.values["algorithm"] = str(Algorithm.DAPO)
    settings.notes.append("How many prompts are drawn again is no option: --flat-groups says it.")


def put_lengths(
    settings: SettingsBuilder, length: int, answer: int | None, prompt: int | None = None
) -> None:
    """Prompts, and answers at their most, within sequences of a length."""
    if prompt is None:
        prompt = max(min(length // _OF_LENGTH, _MOST_PROMPT), 1)
        why = f"an eighth of a sequence, {_MOST_PROMPT:,} at most: no option tells it"
        settings.assume("input_tokens", prompt, f"{prompt:,}, {why}")
    settings.values["input_tokens"] = prompt
    most = max(length - prompt, 1)
    settings.values["output_cap"] = min(answer or most, most)


def put_sequences(settings: SettingsBuilder, size: int, length: int, is_packed: bool) -> None:
    """Micro-batches of so many sequences: at their mean where packed, of the longest at least."""
    mean = int(settings.values["input_tokens"]) + int(settings.values["output_cap"]) // OF_MEAN
    each = mean if is_packed and size > 1 else length
    settings.values["micro_batch_tokens"] = max(size * each, length)
    if each != length:
        settings.notes.append(
            f"Padding is removed: {size} sequences of a micro-batch are taken at {mean:,} tokens."
        )


def put_split(
    settings: SettingsBuilder, placement: Placement, train: int | None, rollout: int
) -> None:
    """Where both sides run, on so many GPUs each; ``rollout`` is not read of colocated ones."""
    values = settings.values
    values["placement"] = placement.word
    if placement is Placement.COLOCATED:
        return
    if train is None:
        values.pop("num_gpus", None)
        settings.mark_missing("num_gpus")
        return
    values |= {"train_gpus": train, "num_gpus": train + rollout}


MODEL = ShellVariable(name="MODEL", meaning="the model: ORG/NAME on Hugging Face, or a folder")
OUTPUT = ShellVariable(
    name="OUTPUT_DIR", meaning="where checkpoints go", default="output", is_output=True
)


def has_separate_gpus(job: LaunchJob) -> bool:
    """Whether trainer and engine have GPUs of their own."""
    return bool(job["placement"] != Placement.COLOCATED.word)


_OLDER = ("staleness", "partial_rollout")
"""Of asynchronous steps: the other placements say it themselves."""


def step_words(job: LaunchJob) -> Words:
    """What all programs are told alike, of a plan.

    Raises LaunchError if its programs cannot be told so.
    """
    if job["adapter"] not in (None, "none"):
        raise LaunchError(
            f"adapter {job['adapter']} is not written for steps of reinforcement learning: write "
            "the plan without --adapter, and add the program's own words for it."
        )
    rollouts, apart = job.profile.rollouts, has_separate_gpus(job)
    own = rollouts.separate_sync if apart else rollouts.colocated_sync
    if job["weight_sync"] not in ("auto", own):
        raise LaunchError(
            f"weight_sync {job['weight_sync']} is not written: {job.profile.name} hands weights "
            f"over by {own} where the placement is {job['placement']}: leave it out."
        )
    if job["critic"] != (job["algorithm"] == Algorithm.PPO):
        raise LaunchError(
            f"{job['algorithm']} with critic {word_of(job['critic'])} is not written: a critic is "
            "there with --algorithm ppo, and with no other."
        )
    longest = job["input_tokens"] + job["output_cap"]
    streams = job["placement"] == Placement.ASYNC.word
    nodes, each = _nodes(job, job["train_gpus"] or job["num_gpus"])
    return {
        "model_path": job.hub_name,
        "longest": longest,
        "token_budget": job["micro_batch_tokens"] or max(rollouts.micro_batch_tokens, longest),
        "rollout_gpu_memory": job["rollout_gpu_memory"]
        or (rollouts.separate_memory if apart else rollouts.colocated_memory),
        "weight_sync": None,
        "colocated": not apart,
        "streams": streams,
        **{name: job[name] if streams else None for name in _OLDER},
        "num_nodes": job.num_nodes,
        "node_size": job.gpus_per_node,
        "train_nodes": nodes,
        "train_each": each,
        **(_rollout_gpus(job) if apart else {}),
    }


def _rollout_gpus(job: LaunchJob) -> Words:
    """The GPUs that generate; what colocated sides tell of each other says nothing."""
    nodes, each = _nodes(job, job["rollout_gpus"])
    return {
        "rollout_nodes": nodes,
        "rollout_each": each,
        "offload_train": None,
        "offload_rollout": None,
    }


def _nodes(job: LaunchJob, gpus: int) -> tuple[int, int]:
    """Nodes of a side, and its GPUs on each.

    Raises LaunchError if the sides have neither whole nodes nor as many GPUs on each.
    """
    node, sides = job.gpus_per_node, (job["train_gpus"], job["rollout_gpus"])
    if all(side % node == 0 for side in sides):
        return gpus // node, node
    if all(side % job.num_nodes == 0 for side in sides):
        return job.num_nodes, gpus // job.num_nodes
    near = max(round(sides[0] / node), 1) * node
    raise LaunchError(
        f"{sides[0]} GPUs that train and {sides[1]} that generate are neither whole nodes of "
        f"{node} nor as many on each of {job.num_nodes}: nearest: --set train_gpus={near}."
    )


def per_rank(budget: object, *degrees: object) -> int:
    """A budget of tokens as programs count it that have one for each rank of a sequence."""
    return ceil(int(str(budget)) / prod(int(str(degree)) for degree in degrees))


OF_FSDP = " of FSDP"
"""How rows are called of what FSDP is told in words of its own."""


def words_of_fsdp(job: LaunchJob, target: str, others: str) -> Words:
    """The parameters that rows of a target's step call `OF_FSDP`, as the plan has them.

    Nothing is said of them, nor of any other, by options that begin with ``others``.
    """
    table = OptionTable.load(f"{target}-step")
    own = {name: name.removesuffix(OF_FSDP) for name in table.parameters if OF_FSDP in name}
    found: Words = {row.parameter: None for row in table.rows if row.option.startswith(others)}
    return found | dict.fromkeys(own.values()) | {name: job[plain] for name, plain in own.items()}


def require_all_expressed(
    target: LaunchTarget, draft: Callable[[LaunchJob, OptionTexts], LaunchDraft]
) -> Callable[[LaunchJob, OptionTexts], LaunchDraft]:
    """The draft, which refuses a plan of which the target's table cannot say a parameter.

    Answers that no option has, as the mean length, are told in the file.
    """

    def drafted(job: LaunchJob, settings: OptionTexts) -> LaunchDraft:
        said = job.option_values(target.table_input(job))
        if wrong := [*_unsaid(target.table, said)]:
            raise LaunchError(
                f"{target.title} cannot start this plan: {'; '.join(wrong)}. Change it with --set."
            )
        return draft(job, settings)

    return drafted


_SELF_SUFFICIENT_ROLES = (OptionRole.USUAL, OptionRole.OMITTED, OptionRole.DERIVED)


def _unsaid(table: OptionTable, said: Quantities) -> Iterator[str]:
    """The values that no option says, each with the values that one does.

    What is off needs no option, unless the table tells what its program does without one.
    """
    answers = terms_of("rl", "question")
    for name in table.parameters:
        value, rows = said.get(name), table.rows_of(name, *OptionRole)
        if value is None:
            continue
        notes = [row.note for row in rows if row.role is OptionRole.NONE and row.is_of(value)]
        if notes and name in answers:  # which the file tells
            continue
        ways = [
            row
            for row in rows
            if row.role not in (OptionRole.NONE, OptionRole.LEFT, OptionRole.READS)
        ]
        is_free = not value and not any(row.role in _SELF_SUFFICIENT_ROLES for row in rows)
        if notes or not (is_free or not ways or any(row.is_of(value) for row in ways)):
            has = " and ".join(dict.fromkeys(row.value for row in ways))
            yield f"{name} {word_of(value)} ({notes[0] if notes else f'it has {has}'})"


def step_draft(
    job: LaunchJob,
    target: str,
    arguments: Sequence[CommandWords],
    more: Sequence[str] = (),
    files: tuple[LaunchOutputFile, ...] = (),
    left: tuple[ParameterNote, ...] = (),
) -> LaunchDraft:
    """The one job of Ray that trains and generates, and what measures some of its steps.

    ``more`` are words of the measurement.
    """
    return training_draft(job, target, arguments, launcher="ray", more=more, files=files, left=left)
