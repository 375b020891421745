"""The way from a plan to serve to the commands of all its servers and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from round_trip import found_of, job_of, lost, stated

from planner.launch.read.parsed_launch import LaunchSettings, ParsedCommand
from planner.launch.target import LaunchDraft, LaunchJob, LaunchTarget, Process, ShellVariable


def answered(target: LaunchTarget, draft: LaunchDraft) -> LaunchSettings:
    """What all servers of a draft say together; copies are those of the draft."""
    servers = [process for process in draft.processes if process.gpus_per_node]
    return together([(one, target.read_settings(found_of(target, draft, one))) for one in servers])


def together(answers: Sequence[tuple[Process, LaunchSettings]]) -> LaunchSettings:
    """The answers of several servers as one deployment, with the copies of each."""
    values: dict[str, Any] = {}
    for process, each in answers:
        values.update(each.values)
        for name in {"replicas", "prefill_replicas"} & {*each.values}:
            values[name] = int(each.values[name]) * process.copies
    gpus = [int(each.values["num_gpus"]) * process.copies for process, each in answers]
    return LaunchSettings(workload="serve", values={**values, "num_gpus": sum(gpus)})


def lost_between(target: LaunchTarget, job: LaunchJob) -> dict[str, tuple[Any, Any]]:
    """What is lost from a plan to the commands of a target and back, unless it is told.

    That a checkpoint must have a quantization is told; its name is the user's.
    """
    draft = target.make_draft(job)
    told = {remark.parameter for remark in draft.unexpressed}
    wrong = lost(target, job, answered(target, draft))
    return {
        name: pair
        for name, pair in wrong.items()
        if _TELLING.get(name) not in told and name not in told
    }


_TELLING = {
    f"{pool}{name}": f"{pool}checkpoint_quantization"
    for pool in ("", "prefill_")
    for name in ("quantization", "expert_quantization")
}


def planned(**asked: Any) -> LaunchJob:
    """A job that the rules allow; parameters of it are ``settings``."""
    job = job_of(**{"workload": "serve", "num_gpus": 8, "gpu": "h100-sxm", **asked})
    assert job is not None
    return job


def words(process: Process) -> list[str]:
    """The command of a process; variables as a shell writes them."""
    return [
        word if isinstance(word, str) else f"{word.prefix}{_value(word)}{word.suffix}"
        for argument in process.arguments
        for word in argument.words
    ]


def _value(word: ShellVariable) -> str:
    return f"$(({word.plus} + {word.times} * {word.name}))" if word.times else f"${{{word.name}}}"


def value_of(process: Process, option: str) -> str | None:
    """What follows an option; None where the option is not there."""
    all_words = words(process)
    return all_words[all_words.index(option) + 1] if option in all_words else None


def process_of(draft: LaunchDraft, name: str) -> Process:
    """The process of a name."""
    return next(process for process in draft.processes if process.name == name)


def found(target: LaunchTarget, *command: str, **options: str | None) -> ParsedCommand:
    """A user's command: words that are no options, and options with their values."""
    given = {f"--{name.replace('_', '-')}": text for name, text in options.items()}
    return ParsedCommand(
        target=target.name,
        name="serve.sh",
        text="",
        options={
            name: stated(name, *(() if text is None else (text,))) for name, text in given.items()
        },
        positional=tuple(stated("", word) for word in command),
    )


def variables_of(process: Process) -> set[str]:
    """Names of the variables in a command."""
    return {
        word.name
        for argument in process.arguments
        for word in argument.words
        if isinstance(word, ShellVariable)
    }
