"""Programs inside the commands of a script, with the nodes and GPUs that they start on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from planner.base.records import record
from planner.documents.shell import Script, Word, read_shell
from planner.documents.shell.edits import ParsedOption, implied_option
from planner.errors import LaunchError
from planner.launch.option_table import option_aliases
from planner.launch.read.parsed_launch import JobResources
from planner.launch.wrappers.read_front_ends import unwrap_frontend
from planner.launch.wrappers.read_resources import (
    combine_resources,
    conflict_of,
    scheduler_resources,
    visible_device_count,
)
from planner.launch.wrappers.read_wrapped_commands import UnwrappedCommand, unwrap
from planner.launch.write.write_launch import WRITTEN_BY

_VISIBLE = (
    *("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"),
    *("NVIDIA_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES", "ASCEND_VISIBLE_DEVICES"),
)

_SELF_LAUNCHING = ("swift", "megatron", "llamafactory-cli", "lmf", "xtuner")
# The programs that start one process unless a variable sets the number.
_SINGLE_PROCESS_PROGRAMS = ("swift",)

GPUS_OF_COPY = "GPUS_OF_COPY"
"""The variable that lists the GPUs of a copy in batch scripts that are written here."""


@record(kw_only=True)
class StartedProgram:
    """A program without what starts it.

    ``words`` begin with the program: ``vllm serve``, ``pretrain_gpt.py``, ``-m module``; those of
    ``accelerate launch`` stay, as its options configure training. ``environment``: its variables;
    ``resources``: resources from schedulers and launchers around it. ``conflict``: why these
    contradict
    each other; empty if they do not. ``front``: the front end that starts the program with options
    of its own.
    """

    words: tuple[Word, ...]
    environment: Mapping[str, Word]
    resources: JobResources
    line: int
    conflict: str = ""
    front: str = ""

    def require_agreement(self, name: str) -> None:
        """Raise LaunchError if the scheduler allocates less than the launcher requests.

        The message has both lines of the file ``name``.
        """
        if self.conflict:
            raise LaunchError(f"{name}: {self.conflict} Change one of them.")


def read_script(
    text: str,
    environment: Mapping[str, str],
    name: str,
    read_sourced: Callable[[str], str | None] | None = None,
) -> Script:
    """Read a shell script; variables that its scheduler sets are known in the script.

    ``read_sourced`` returns the text of a file that it sources, None if there is none.

    Raises `LaunchError`: see `read_shell`.
    """
    script = read_shell(text, environment, name, read_sourced)
    set_by_scheduler = _scheduler_variables(script)
    if not set_by_scheduler:
        return script
    return read_shell(text, {**set_by_scheduler, **environment}, name, read_sourced)


def inner_commands(script: Script) -> tuple[StartedProgram, ...]:
    """Return all programs that a script starts, in order, also inside quotes and here-documents.

    Raises LaunchError if a script inside it is never closed, or nested too deeply.
    """
    head = scheduler_resources(script.directives)
    layers = (head,) if head.fields or head.gpu else ()
    return tuple(
        _started_program(script, unwrapped, command.copies)
        for command in script.commands
        for unwrapped in unwrap(script, command.words, command.environment, layers)
    )


def _started_program(script: Script, command: UnwrappedCommand, rounds: int) -> StartedProgram:
    """Return a program with the nodes and GPUs that launchers and environment specify.

    ``rounds`` is the number of times that a loop starts the program.
    """
    devices = next(
        (option for name in _VISIBLE if name in command.environment
         and (option := visible_device_count(command.environment[name])) is not None),
        None,
    )  # fmt: skip
    # A script of ours starts copies in its loop or steps.
    copies = _variable(command, "COPIES") if f"# {WRITTEN_BY} " in script.text else None
    if rounds > 1:
        copies = implied_option("the loop", str(rounds), command.words[0].line)
    resources = replace(combine_resources(command.layers, devices), copies=copies)
    program = (command.words[0].text or "").rpartition("/")[2]
    processes = _variable(command, "NPROC_PER_NODE")
    if resources.num_nodes is None and resources.num_gpus is None and program in _SELF_LAUNCHING:
        resources = replace(
            resources,
            num_nodes=_variable(command, "NNODES"),
            gpus_per_node=processes or resources.gpus_per_node,
        )
    is_single_process = program in _SINGLE_PROCESS_PROGRAMS and not any(
        _variable(command, name) for name in ("NPROC_PER_NODE", "NNODES")
    )
    is_one = (command.by_python or is_single_process) and not (
        command.is_launched or command.layers
    )
    resources = replace(resources, is_one_process=is_one or None)
    copy_gpus = command.environment.get(GPUS_OF_COPY)
    if copy_gpus is not None and (share := visible_device_count(copy_gpus)) is not None:
        resources = replace(resources, gpus_per_node=share)  # part of the job's GPUs on a node
    return StartedProgram(
        words=unwrap_frontend(command.words, command.environment),
        front=option_aliases("front").get((command.words[0].text or "").rpartition("/")[2], ""),
        environment=command.environment,
        resources=resources,
        line=command.words[0].line,
        conflict=conflict_of(command.layers),
    )


def _variable(command: UnwrappedCommand, name: str) -> ParsedOption | None:
    word = command.environment.get(name)
    return None if word is None else option_of_value(name, word)


def option_of_value(name: str, word: Word) -> ParsedOption:
    """Return the option ``name`` with a word of a script as its value."""
    return ParsedOption(
        option=name,
        texts=(word.text,),
        line=word.line,
        spans=(word.span,),
        full_span=None,
        unknown=word.unknown,
    )


def _scheduler_variables(script: Script) -> dict[str, str]:
    """Return variables that SLURM sets from the directives of a script; empty without them."""
    if not any(directive.kind == "SBATCH" for directive in script.directives):
        return {}
    layer = scheduler_resources(script.directives)
    nodes, tasks = layer.number("num_nodes"), layer.number("tasks")
    each, gpus = layer.number("tasks_per_node"), layer.number("gpus_per_node")
    if tasks is None and nodes is not None and each is not None:
        tasks = nodes * each
    variables = {
        "SLURM_NNODES": nodes, "SLURM_JOB_NUM_NODES": nodes, "SLURM_NTASKS": tasks,
        "SLURM_NPROCS": tasks, "SLURM_NTASKS_PER_NODE": each, "SLURM_GPUS_PER_NODE": gpus,
        "SLURM_GPUS_ON_NODE": gpus,
    }  # fmt: skip
    return {name: str(value) for name, value in variables.items() if value is not None}
