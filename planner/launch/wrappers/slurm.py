"""A batch script of SLURM: all processes of a plan in one job, each as a step of it."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from planner.base.text import duration
from planner.base.units import DAY, HOUR
from planner.launch.benchmark import STEPS
from planner.launch.environment import environment_of
from planner.launch.heading import heading, variables_of
from planner.launch.job import Job
from planner.launch.launchers import GPUS_OF_COPY
from planner.launch.target import Draft, File, Process, Target
from planner.launch.wrappers.placing import Placed, num_nodes, placed
from planner.launch.wrappers.script import HEAD, MEASURES, SOME_STEPS, STRICT, benchmark
from planner.launch.wrappers.shell import (
    MASTER_PORT,
    arguments_lines,
    asked,
    command,
    exports,
    folded,
    given,
    indented,
    runs_by_rank,
    uses,
)

_ALL_CPUS = '--cpus-per-task="$SLURM_CPUS_ON_NODE"'
_ALSO = (
    "SBATCH_ACCOUNT and SBATCH_PARTITION, where your cluster wants them (sbatch reads both)",
    "SBATCH_TIMELIMIT: how long it may run, in place of --time",
)
_CORES = "--cpus-per-gpu beside sbatch, where a part of a node comes with a single core"


def wrapped(target: Target, job: Job, draft: Draft) -> tuple[File, ...]:
    """The batch script, the files beside it, and what measures the job.

    Raises
    ------
    LaunchError
        A word cannot be written in a shell, or a launcher is unknown.
    """
    batch = _batch(target, job, draft, is_benchmark=False)
    if not job.is_training:
        return (batch, *draft.files, *benchmark(target, job, draft))
    steps = (
        _batch(target, job, Draft(processes=(one,)), is_benchmark=True) for one in draft.benchmark
    )
    return (batch, *draft.files, *steps)


def _batch(target: Target, job: Job, draft: Draft, *, is_benchmark: bool) -> File:
    """The batch script of all processes of a draft; a benchmark runs some steps of a training."""
    places = placed(draft.processes, job.cluster.gpus_per_node)
    names = [process.name for process in draft.processes]
    name = f"{names[0] if len(names) == 1 else 'launch'}.sbatch"
    how = [SOME_STEPS] if is_benchmark else _checkpoints(job)
    how = [f"Submit it where it lies: sbatch {name}", *how]
    cores = () if _gpus_of_node(job, places) >= job.cluster.gpus_per_node else (_CORES,)
    also = (*_ALSO, *cores)
    body = [
        [*HEAD, *_directives(job, places, is_benchmark=is_benchmark)],
        heading(target, job, draft, draft.processes, how, also),
        [*STRICT, 'cd -- "${SLURM_SUBMIT_DIR:?not started by sbatch}"'],
        _asked(draft.processes),
        ["# All nodes, in the order of the network.", *_nodes()],
        _addresses(places),
        *(_function(target, job, process, places) for process in draft.processes),
        _steps(places),
    ]
    text = "\n\n".join("\n".join(part) for part in body if part) + "\n"
    meaning = MEASURES if is_benchmark else "the batch job"
    return File(name=name, text=text, meaning=meaning, start=f"sbatch {name}")


def time_limit(days: float) -> str:
    """Days as SLURM reads a limit, in whole hours that are not shorter.

    >>> time_limit(33.131)
    '33-04:00:00'
    """
    hours = max(math.ceil(days * DAY / HOUR), 1)
    return f"{hours // 24}-{hours % 24:02d}:00:00"


def _directives(job: Job, places: Sequence[Placed], *, is_benchmark: bool) -> list[str]:
    nodes = num_nodes(places)
    gpus = min(_gpus_of_node(job, places), job.cluster.gpus_per_node)
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", job.model.name).strip("-").lower() or "planner"
    said = [f"--job-name={name}", f"--nodes={nodes}", "--ntasks-per-node=1"]
    said += [f"--gpus-per-node={gpus}"] if gpus else []
    said += ["--exclusive"] if gpus == job.cluster.gpus_per_node else []
    said += ["--output=%x-%j.log"]
    lines = [f"#SBATCH {one}" for one in said]
    if is_benchmark:
        return lines + _limit_of_benchmark(job)
    if (days := job.row.get("calendar_time_high_days") or job.row.get("calendar_time_days")) and (
        job.is_training and math.isfinite(days)
    ):
        lines.append("# The upper end of the predicted calendar time, interruptions included.")
        lines.append(f"#SBATCH --time={time_limit(days)}")
    if job.is_training:
        lines.append("# A node that fails puts the job back into the queue; its log goes on.")
        lines += ["#SBATCH --requeue", "#SBATCH --open-mode=append"]
    return lines


def _limit_of_benchmark(job: Job) -> list[str]:
    step = job.row.get("step_time_high_s") or job.row.get("step_time_s")
    if not step or not math.isfinite(step):
        return []
    return [
        f"# {STEPS} steps at the upper end of the predicted time, and an hour to start.",
        f"#SBATCH --time={time_limit((STEPS * step + HOUR) / DAY)}",
    ]


def _gpus_of_node(job: Job, places: Sequence[Placed]) -> int:
    """Most GPUs that the job takes of one node."""
    return max((one.gpu + one.process.gpus_per_node for one in places), default=job.gpus_per_node)


def _checkpoints(job: Job) -> list[str]:
    interval, failures = job["checkpoint_interval_s"], job["interruptions"]
    if not job.is_training or not interval or not failures:
        return []
    lines = [
        f"{failures:.1f} interruptions are expected: save a checkpoint every "
        f"{duration(float(interval))}, and load the newest one at the start."
    ]
    if spare := int(job["num_spare_gpus"] or 0):
        lines.append(f"{spare} spare GPUs beside the job are part of what was predicted.")
    return lines


def _asked(processes: Sequence[Process]) -> list[str]:
    """Checked before any step starts, and handed on to all of them."""
    names = [one.name for one in variables_of(processes)]
    return [*asked(processes), *([f"export {' '.join(names)}"] if names else [])]


def _nodes() -> list[str]:
    return [
        'mapfile -t NODES < <(scontrol show hostnames "$SLURM_JOB_NODELIST")',
        f'export MASTER_ADDR="${{NODES[0]}}" MASTER_PORT={MASTER_PORT}',
    ]


def _addresses(places: Sequence[Placed]) -> list[str]:
    """How processes reach each other, where there are several."""
    if len({one.process.name for one in places}) == 1:
        return []
    lines = []
    for one in (place for place in places if place.port):
        host, node = f"{one.stem}_HOST_{one.copy}", f"${{NODES[{one.node}]}}"
        lines.append(f'export {host}="{node}" {one.stem}_URL_{one.copy}="http://{node}:{one.port}"')
    return lines


def _function(target: Target, job: Job, process: Process, places: Sequence[Placed]) -> list[str]:
    """What runs on each node of a process."""
    inside = exports(environment_of(target, job, process))
    if len(places) > 1 and process.gpus_per_node:
        first = next(place.gpus for place in places if place.process is process)
        inside += [f'export {GPUS_OF_COPY}="${{{GPUS_OF_COPY}:-{first}}}"']
        inside += _slice(_visible(job), _gpus_of_node(job, places))
    inside += [f"export COPIES={process.copies}"] if process.copies > 1 else []
    if process.num_nodes > 1:
        rank = "SLURM_NODEID" if runs_by_rank(process) else "SLURM_PROCID"
        inside += [f'export NUM_NODES={process.num_nodes} NODE_RANK="${rank}"']
    last = " ".join(given(process)) if runs_by_rank(process) else command(process)
    inside += ['HOST_ADDRESS="$(hostname)"'] if uses(process, "HOST_ADDRESS") else []
    inside += [*arguments_lines(process), f"exec {last}"]
    return [f"{_name(process)}() {{", *indented(inside), "}"]


def _visible(job: Job) -> str:
    return "HIP_VISIBLE_DEVICES" if job.gpu.vendor == "AMD" else "CUDA_VISIBLE_DEVICES"


def _slice(variable: str, num_gpus: int) -> list[str]:
    """GPUs of one copy: SLURM sets the variable anew in every step, to all those of the job."""
    every = ",".join(map(str, range(num_gpus)))
    return [
        "# The step sees all GPUs of the job: these of them are its own, counted from 1.",
        f'{variable}="$(cut -d, -f"${GPUS_OF_COPY}" <<< "${{{variable}:-{every}}}")"',
        f"export {variable}",
    ]


def _name(process: Process) -> str:
    return "run_" + re.sub(r"\W", "_", process.name)


def _steps(places: Sequence[Placed]) -> list[str]:
    """A step for each copy; the job ends with the first that does."""
    if len(places) == 1:
        return [_step(places[0], [*_place(places[0]), "srun"])]
    lines = ["# The nodes from one on, as srun takes them.", "nodes() {"]
    lines += ["  local IFS=,", '  echo "${NODES[*]:$1:$2}"', "}"]
    for one in places:
        words = _place(one)
        if one.process.gpus_per_node:
            words += [f"{GPUS_OF_COPY}={one.gpus}"]
        words += [f'MASTER_ADDR="${{NODES[{one.node}]}}"'] if one.process.num_nodes > 1 else []
        where = f'--nodelist="$(nodes {one.node} {one.process.num_nodes})"'
        lines.append(_step(one, [*words, "srun", "--overlap", where]) + " &")
    return [*lines, "wait -n"]


def _place(place: Placed) -> list[str]:
    port = [f"PORT={place.port}"] if place.port else []
    return [*([f"COPY={place.copy}"] if place.process.copies > 1 else []), *port]


def _step(place: Placed, words: list[str]) -> str:
    process = place.process
    ranks = process.gpus_per_node if runs_by_rank(process) else 1
    words = [*words, f"--nodes={process.num_nodes}", f"--ntasks={process.num_nodes * ranks}"]
    words += [f"--ntasks-per-node={ranks}"]
    words += ["--mpi=pmix"] if ranks > 1 else [_ALL_CPUS]
    # Shell functions are not inherited by the tasks of a step: the text of this one is given.
    name = _name(process)
    words += [
        "--kill-on-bad-exit=1",
        "bash",
        "-c",
        f'"set -euo pipefail; $(declare -f {name}); {name}"',
    ]
    return folded(words)
