"""Pieces of shell text that all wrappers write: environment, variables, arguments, launcher."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from planner.base.records import record
from planner.errors import LaunchError
from planner.launch.heading import Assumed, comment, one_line, variables_of
from planner.launch.job import Job
from planner.launch.target import Argument, Process, Variable
from planner.shell.text import shell_word

MASTER_PORT = 29500
"""Where processes of several nodes find each other: the usual port of PyTorch."""

_WIDTH = 88
_LATER = "ON_LATER_NODES"
_PER_NODE = ("torchrun", "accelerate", "deepspeed")
_BY_RANK = ("mpirun", "srun")
_SPECIAL = str.maketrans({char: "\\" + char for char in '\\"$`}'})


def exports(assumed: Iterable[Assumed]) -> list[str]:
    """The environment, each variable below its reason."""
    lines = []
    for one in assumed:
        value = f'"{one.text}"' if one.is_shell else shell_word(one.text)
        lines += [*comment([one.reason]), f"export {one.name}={value}"]
    return lines


def asked(processes: Iterable[Process]) -> list[str]:
    """Lines that end the script where the user did not set what only he knows."""
    lines = []
    for one in variables_of(processes):
        if one.default is None:
            lines.append(f': "${{{one.name}:?{_in_quotes(one.meaning)}}}"')
        elif "'" in one.default:  # bash looks for its pair within "${NAME:=...}"
            lines.append(f'[[ -n "${{{one.name}:-}}" ]] || {one.name}={shell_word(one.default)}')
        else:
            lines.append(f': "${{{one.name}:={_in_quotes(one.default)}}}"')
    return lines


def array(arguments: Sequence[Argument], name: str = "ARGUMENTS") -> list[str]:
    """Arguments as an array, one on each line with its note."""
    return [f"{name}=(", *(f"  {_line(argument)}" for argument in arguments), ")"]


def arguments_lines(process: Process) -> list[str]:
    """The array of a process, and that of what is added on every node but the first."""
    lines = array(process.arguments)
    if has_followers(process):
        # An array of its own, so that readers of the script know the first one for certain.
        more = indented(array(process.follower_arguments, _LATER))
        lines += [f"{_LATER}=()", 'if [[ "$NODE_RANK" != 0 ]]; then', *more, "fi"]
    return lines


def has_followers(process: Process) -> bool:
    """Whether later nodes of a process get arguments of their own."""
    return bool(process.follower_arguments) and process.num_nodes > 1


def command(process: Process) -> str:
    """The launcher and the arguments: what runs on a node.

    Raises
    ------
    LaunchError
        The launcher is none that is known here.
    """
    if process.launcher and process.launcher not in (*_PER_NODE, *_BY_RANK):
        raise LaunchError(f"{process.launcher} is no launcher that is known here.")
    words = [
        *_launcher(process),
        *(expanded(word) for one in process.launcher_arguments for word in one.words),
        *given(process),
    ]
    return folded(words)


def given(process: Process) -> list[str]:
    """The arrays of a process as words of its command."""
    later = [f'"${{{_LATER}[@]}}"'] if has_followers(process) else []
    return ['"${ARGUMENTS[@]}"', *later]


def folded(words: Sequence[str]) -> str:
    """Words of a command, continued on further lines where one is too long."""
    lines = [""]
    for word in words:
        if lines[-1] and len(lines[-1]) + len(word) > _WIDTH and not word.startswith('"'):
            lines.append(word)
        else:
            lines[-1] += f" {word}" if lines[-1] else word
    return " \\\n    ".join(lines)


def visible_gpus(job: Job) -> str:
    """The variable that says which GPUs of a node a process sees."""
    return "HIP_VISIBLE_DEVICES" if job.gpu.vendor == "AMD" else "CUDA_VISIBLE_DEVICES"


def runs_by_rank(process: Process) -> bool:
    """Whether its launcher starts every rank of all nodes from one place."""
    return process.launcher in _BY_RANK


def expanded(word: str | Variable) -> str:
    """A word of a command, quoted, or the variable of the shell that holds it."""
    if isinstance(word, Variable):
        before, after = (shell_word(text) if text else "" for text in (word.prefix, word.suffix))
        value = f"${{{word.name}}}"
        if word.times:
            value = f"$(({word.plus} + {word.times} * {word.name}))"
        return f'{before}"{value}"{after}'
    return shell_word(word)


def indented(lines: Iterable[str], by: int = 2) -> list[str]:
    """Lines further to the right; quoted words of several lines are left as they are."""
    return [f"{' ' * by}{line}" if line else line for line in lines]


def uses(process: Process, *names: str) -> bool:
    """Whether a word of its arguments is one of these variables."""
    every = (*process.launcher_arguments, *process.arguments, *process.follower_arguments)
    return any(
        isinstance(word, Variable) and word.name in names for one in every for word in one.words
    )


def _launcher(process: Process) -> list[str]:
    nodes, gpus = process.num_nodes, process.gpus_per_node
    several = nodes > 1
    if process.launcher == "accelerate":
        words = ["accelerate", "launch", "--num_machines", str(nodes)]
        words += ["--num_processes", str(nodes * gpus)]
        place = ["--machine_rank", '"$NODE_RANK"', "--main_process_ip", '"$MASTER_ADDR"']
        return [*words, *place, "--main_process_port", '"$MASTER_PORT"'] if several else words
    if process.launcher == "deepspeed" and not several:
        return ["deepspeed", "--num_gpus", str(gpus)]
    if process.launcher in _BY_RANK:
        return ["mpirun", "-np", str(nodes * gpus)]
    if not process.launcher:
        return []
    if not several:
        return ["torchrun", "--standalone", "--nproc-per-node", str(gpus)]
    words = ["torchrun", "--nnodes", str(nodes), "--nproc-per-node", str(gpus)]
    words += ["--node-rank", '"$NODE_RANK"', "--master-addr", '"$MASTER_ADDR"']
    return [*words, "--master-port", '"$MASTER_PORT"']


def _line(argument: Argument) -> str:
    words = " ".join(expanded(word) for word in argument.words)
    return words + (f"  # {one_line(argument.note)}" if argument.note else "")


def _in_quotes(text: str) -> str:
    """Text inside ``"${NAME:?...}"``; a single quote would begin a text of its own there."""
    return one_line(text).replace("'", "\u2019").translate(_SPECIAL)


@record(kw_only=True)
class Placed:
    """A copy of a process; nodes and GPUs are counted from 0."""

    process: Process
    copy: int
    node: int
    gpu: int

    @property
    def gpus(self) -> str:
        """Its GPUs among those of the job on a node, counted from 1."""
        return ",".join(str(self.gpu + i + 1) for i in range(self.process.gpus_per_node))

    @property
    def port(self) -> int:
        """Where it listens; copies that share a node must differ."""
        return self.process.port + self.copy if self.process.port else 0

    @property
    def stem(self) -> str:
        """How variables call its process."""
        return self.process.name.upper().replace("-", "_")


def placed(processes: Sequence[Process], gpus_per_node: int) -> tuple[Placed, ...]:
    """Copies side by side on a node while they fit, those of several nodes on nodes of their own.

    What needs no GPU runs on the first node.
    """
    found, node, gpu = list[Placed](), 0, 0
    for process in processes:
        for copy in range(process.copies):
            if not process.gpus_per_node:
                found.append(Placed(process=process, copy=copy, node=0, gpu=0))
                continue
            if gpu and (process.num_nodes > 1 or gpu + process.gpus_per_node > gpus_per_node):
                node, gpu = node + 1, 0
            found.append(Placed(process=process, copy=copy, node=node, gpu=gpu))
            if process.num_nodes > 1:
                node += process.num_nodes
            else:
                gpu += process.gpus_per_node
    return tuple(found)


def num_nodes(places: Sequence[Placed]) -> int:
    """Nodes that all of them take."""
    return max((one.node + one.process.num_nodes for one in places), default=1)
