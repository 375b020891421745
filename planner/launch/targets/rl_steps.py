"""The whole step of a program that trains on generated answers, around the update of its reader.

Rows of its table ``options/<program>-step.csv`` say what names an option of the step has; what is
here is alike for all programs: what the update keeps, lengths, who trains beside the policy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from planner.base.software_enums import Placement
from planner.base.training_names import Algorithm, TrainingObjective
from planner.launch.option_table import Settings
from planner.launch.target import Draft, Job, Target, gathered
from planner.launch.targets.rl_drafts import saying_all
from planner.launch.understood import Answers, Found, Gathered, Reading
from planner.question.terms import terms_of

OF_MEAN = 4
"""A cap over the mean of answers, as `--output-cap` is where nobody gives one."""
_MOST_PROMPT, _OF_LENGTH = 1024, 8
"""Tokens of a prompt, and a sequence over its prompt, where an option bounds sequences alone."""
_APART = "micro_batch_size"
"""Of the update alone: a step packs answers into micro-batches of tokens."""


_ON_ANSWERS = (TrainingObjective.GRPO, TrainingObjective.DAPO)
_WHOLE = "--workload rl predicts the whole step: generation, passes, update, transfer of weights."


def reader_of_steps(
    target: Target,
    profiles: tuple[str, ...],
    put: Callable[[Reading, Answers, Gathered], None],
    whole: Callable[[Found], Found],
    table: str = "",
    draft: Callable[[Job, Settings], Draft] | None = None,
    **written: Any,
) -> Target:
    """The target with what reads its files as whole steps, and writes them where it has a draft.

    ``put`` adds what no row of the table tells, given the answers of the update; ``table`` is the
    name of that table where it is not the target's own; ``draft`` and ``written`` are those of
    `Target`.
    """

    def of_update(reading: Reading) -> Answers:
        update = target.answers(reading)
        return replace(update, notes=(*update.notes, _WHOLE)) if _generates(update) else update

    def answers(reading: Reading) -> Answers:
        update = target.answers(reading)
        if not _generates(update):
            return update
        found = _around(reading, update, target)
        put(reading, update, found)
        _complete(found)
        names = step.table.options | step.table.used
        used = {one.option for name, one in reading.found.options.items() if name in names}
        return found.made("rl", used=update.used | used, ignored=update.ignored)

    step = replace(
        target,
        words=table or f"{target.name}-step",
        workloads=("rl",),
        profiles=profiles,
        answers=answers,
        whole=whole,
        **written,
    )
    if draft is not None:
        step = replace(step, draft=saying_all(step, draft))
    return replace(target, answers=of_update, step=step)


def _generates(update: Answers) -> bool:
    """Whether it trains on answers that it generates."""
    return update.values.get("training_objective") in _ON_ANSWERS


def _around(reading: Reading, update: Answers, target: Target) -> Gathered:
    """What rows tell of the step, over what of the update is of a step too."""
    known = terms_of("rl", "parameter", "question").keys() - {_APART, "framework"}
    found = gathered(reading, target.title, "rl")
    kept = {name: value for name, value in update.values.items() if name in known}
    found.values = {**kept, **found.values}
    if found.values["adapter"] == "none":
        found.values.pop("adapter_sync", None)
    found.defaults = {
        **{name: why for name, why in update.defaults.items() if name in kept},
        **found.defaults,
    }
    found.asked = [name for name in update.asked if name in known]
    found.otherwise = {name: one for name, one in update.otherwise.items() if name in kept}
    found.values["reference_model"] = update.values["training_objective"] == TrainingObjective.GRPO
    return found


def _complete(found: Gathered) -> None:
    """Lengths that no file tells, and who is there beside the policy."""
    values = found.values
    if "output_cap" in values:
        mean = max(int(values["output_cap"]) // OF_MEAN, 1)
        told = f"{mean:,}, a quarter of the longest: files do not tell the mean"
        found.assume("output_tokens", mean, told)
    values["critic"] = values.get("algorithm") == Algorithm.PPO
    if values.get("placement", Placement.COLOCATED.word) != Placement.COLOCATED.word:
        for name in ("offload_train", "offload_rollout"):
            values.pop(name, None)
            found.defaults.pop(name, None)


def put_lengths(
    found: Gathered, length: int, answer: int | None, prompt: int | None = None
) -> None:
    """Prompts, and answers at their most, within sequences of a length."""
    if prompt is None:
        prompt = max(min(length // _OF_LENGTH, _MOST_PROMPT), 1)
        why = f"an eighth of a sequence, {_MOST_PROMPT:,} at most: no option tells it"
        found.assume("input_tokens", prompt, f"{prompt:,}, {why}")
    found.values["input_tokens"] = prompt
    most = max(length - prompt, 1)
    found.values["output_cap"] = min(answer or most, most)


def put_split(found: Gathered, placement: Placement, train: int | None, rollout: int) -> None:
    """Where both sides run, on so many GPUs each; ``rollout`` is not read of colocated ones."""
    values = found.values
    values["placement"] = placement.word
    if placement is Placement.COLOCATED:
        return
    if train is None:
        values.pop("num_gpus", None)
        found.ask("num_gpus")
        return
    values |= {"train_gpus": train, "num_gpus": train + rollout}
