"""SLURM batch script: all processes of a plan in one job, each as a job step."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from planner.base.formatting import format_duration
from planner.base.units import DAY, HOUR
from planner.launch.target import (
    LaunchDraft,
    LaunchJob,
    LaunchOutputFile,
    LaunchTarget,
    Process,
    Value,
    fill_template,
)
from planner.launch.wrappers.read_programs import GPUS_OF_COPY
from planner.launch.wrappers.write_script import (
    MASTER_PORT,
    MEASURES,
    SOME_STEPS,
    PlacedProcess,
    benchmark,
    check_user_variables,
    expand_arrays,
    fold_words,
    num_nodes,
    place_processes,
    process_values,
    runs_by_rank,
    visible_gpus,
)
from planner.launch.write.benchmark import STEPS
from planner.launch.write.write_launch import heading_lines, user_variables

_ALL_CPUS = '--cpus-per-task="$SLURM_CPUS_ON_NODE"'
_USER_SETTINGS = (
    "SBATCH_ACCOUNT and SBATCH_PARTITION, where your cluster wants them (sbatch reads both)",
    "SBATCH_TIMELIMIT: how long it may run, in place of --time",
)
_CPU_SETTING = "--cpus-per-gpu as an option of sbatch, if part of a node comes with a single core"


def make_files(
    target: LaunchTarget, job: LaunchJob, draft: LaunchDraft
) -> tuple[LaunchOutputFile, ...]:
    """Return the batch script, files that it reads, and the benchmark of the job.

    Raises LaunchError if a word cannot be quoted for a shell, or a launcher is unknown.
    """
    batch = _batch_file(target, job, draft, is_benchmark=False)
    if not job.is_training:
        return (batch, *draft.files, *benchmark(target, job, draft))
    steps = (
        _batch_file(target, job, LaunchDraft(processes=(process,)), is_benchmark=True)
        for process in draft.benchmark
    )
    return (batch, *draft.files, *steps)


def _batch_file(
    target: LaunchTarget, job: LaunchJob, draft: LaunchDraft, *, is_benchmark: bool
) -> LaunchOutputFile:
    """Return the batch script for all processes of a launch draft.

    ``is_benchmark``: True if it runs some steps of a training.
    """
    placed_processes = place_processes(draft.processes, job.cluster.gpus_per_node)
    base_name = draft.processes[0].name if len(draft.processes) == 1 else "launch"
    name = f"{base_name}.sbatch"
    names = [variable.name for variable in user_variables(draft.processes)]
    start_lines = [SOME_STEPS] if is_benchmark else _checkpoint_notes(job)
    start_lines = [f"Submit it from its folder: sbatch {name}", *start_lines]
    most_gpus = max(
        (placed.gpu + placed.process.gpus_per_node for placed in placed_processes),
        default=job.gpus_per_node,
    )
    gpus = min(most_gpus, job.cluster.gpus_per_node)
    cores = () if gpus == job.cluster.gpus_per_node else (_CPU_SETTING,)
    user_settings = (*_USER_SETTINGS, *cores)
    days, reason = _time_limit_days(job, is_benchmark=is_benchmark)
    has_several_steps = len(placed_processes) != 1
    values: dict[str, Value] = {
        "name": re.sub(r"[^A-Za-z0-9._-]+", "-", job.model.name).strip("-").lower() or "planner",
        "nodes": num_nodes(placed_processes),
        "gpus": gpus,
        "whole_nodes": gpus == job.cluster.gpus_per_node,
        "limit": "" if days is None else time_limit(days),
        "limit_is": reason,
        "goes_on": job.is_training and not is_benchmark,
        "heading": heading_lines(target, job, draft, draft.processes, start_lines, user_settings),
        # Checked before any step starts, and exported to all of them.
        "asked": [
            *check_user_variables(draft.processes),
            *([f"export {' '.join(names)}"] if names else []),
        ],
        "master_port": MASTER_PORT,
        "addresses": _addresses(placed_processes),
        "gpus_of_copy": GPUS_OF_COPY,
        "visible": visible_gpus(job),
        "every_gpu": ",".join(map(str, range(most_gpus))),
        "processes": [
            _function_values(target, job, process, placed_processes) for process in draft.processes
        ],
        "several_steps": has_several_steps,
        "steps": _job_steps(placed_processes),
    }
    text = fill_template("slurm.sbatch", values)
    meaning = MEASURES if is_benchmark else "the batch job"
    return LaunchOutputFile(name=name, text=text, meaning=meaning, start=f"sbatch {name}")


def time_limit(days: float) -> str:
    """Format days as a time limit of SLURM, rounded up to hours.

    >>> time_limit(33.131)
    '33-04:00:00'
    """
    hours = max(math.ceil(days * DAY / HOUR), 1)
    return f"{hours // 24}-{hours % 24:02d}:00:00"


def _time_limit_days(job: LaunchJob, *, is_benchmark: bool) -> tuple[float | None, str]:
    """Return the time limit of a training or its benchmark [days], None if unknown; and why."""
    if is_benchmark:
        step = job.row.get("step_time_high_s") or job.row.get("step_time_s") or math.inf
        days = (STEPS * step + HOUR) / DAY
        reason = f"{STEPS} steps at the upper end of the predicted time, and an hour to start."
    else:
        days = job.row.get("calendar_time_high_days") or job.row.get("calendar_time_days")
        days = days if days and job.is_training else math.inf
        reason = "The upper end of the predicted calendar time, interruptions included."
    return days if math.isfinite(days) else None, reason


def _checkpoint_notes(job: LaunchJob) -> list[str]:
    """Return notes on expected interruptions, checkpoint interval and spare GPUs of a training."""
    interval, failures = job["checkpoint_interval_s"], job["interruptions"]
    if not job.is_training or not interval or not failures:
        return []
    lines = [
        f"{failures:.1f} interruptions are expected: save a checkpoint every "
        f"{format_duration(float(interval))}, and load the latest at the start."
    ]
    if spare := int(job["num_spare_gpus"] or 0):
        lines.append(f"{spare} spare GPUs are part of the prediction.")
    return lines


def _addresses(placed_processes: Sequence[PlacedProcess]) -> list[str]:
    """Return lines that export host and URL of processes with a port; empty for one process."""
    if len({placed.process.name for placed in placed_processes}) == 1:
        return []
    lines = []
    for placed in (placed for placed in placed_processes if placed.port):
        host, node = f"{placed.stem}_HOST_{placed.copy}", f"${{NODES[{placed.node}]}}"
        lines.append(
            f'export {host}="{node}" {placed.stem}_URL_{placed.copy}="http://{node}:{placed.port}"'
        )
    return lines


def _function_values(
    target: LaunchTarget,
    job: LaunchJob,
    process: Process,
    placed_processes: Sequence[PlacedProcess],
) -> dict[str, Value]:
    """Return template values for the shell function that runs on each node of a process."""
    by_rank = runs_by_rank(process)
    values = process_values(target, job, process)
    return {
        **values,
        "function": _function_name(process),
        "shares_nodes": len(placed_processes) > 1 and process.gpus_per_node > 0,
        "first_gpus": next(placed.gpus for placed in placed_processes if placed.process is process),
        "rank": "SLURM_NODEID" if by_rank else "SLURM_PROCID",
        "command": " ".join(expand_arrays(process)) if by_rank else values["command"],
    }


def _function_name(process: Process) -> str:
    return "run_" + re.sub(r"\W", "_", process.name)


def _job_steps(placed_processes: Sequence[PlacedProcess]) -> list[str]:
    """Return an ``srun`` command for each copy of a process.

    The job ends with the first command that ends.
    """
    if len(placed_processes) == 1:
        return [_job_step(placed_processes[0], [*_copy_environment(placed_processes[0]), "srun"])]
    lines = []
    for placed in placed_processes:
        words = _copy_environment(placed)
        if placed.process.gpus_per_node:
            words += [f"{GPUS_OF_COPY}={placed.gpus}"]
        words += (
            [f'MASTER_ADDR="${{NODES[{placed.node}]}}"'] if placed.process.num_nodes > 1 else []
        )
        node_option = f'--nodelist="$(nodes {placed.node} {placed.process.num_nodes})"'
        lines.append(_job_step(placed, [*words, "srun", "--overlap", node_option]) + " &")
    return lines


def _copy_environment(placed: PlacedProcess) -> list[str]:
    port = [f"PORT={placed.port}"] if placed.port else []
    return [*([f"COPY={placed.copy}"] if placed.process.copies > 1 else []), *port]


def _job_step(placed: PlacedProcess, words: list[str]) -> str:
    """Return ``words`` with the options and function that run a process on its nodes, folded."""
    process = placed.process
    ranks = process.gpus_per_node if runs_by_rank(process) else 1
    words = [*words, f"--nodes={process.num_nodes}", f"--ntasks={process.num_nodes * ranks}"]
    words += [f"--ntasks-per-node={ranks}"]
    words += ["--mpi=pmix"] if ranks > 1 else [_ALL_CPUS]
    # Tasks of a step do not inherit shell functions: its text is passed.
    name = _function_name(process)
    words += [
        "--kill-on-bad-exit=1",
        "bash",
        "-c",
        f'"set -euo pipefail; $(declare -f {name}); {name}"',
    ]
    return fold_words(words)
