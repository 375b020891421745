"""Shell scripts of processes, and parts of scripts for all wrappers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from planner.base.records import record
from planner.documents.shell.edits import shell_word
from planner.errors import LaunchError
from planner.launch.target import (
    CommandWords,
    LaunchDraft,
    LaunchJob,
    LaunchOutputFile,
    LaunchTarget,
    Process,
    ShellVariable,
    Value,
    fill_template,
)
from planner.launch.write.write_launch import (
    EnvironmentDefault,
    comment,
    heading_lines,
    one_line,
    process_environment,
    user_variables,
)

MASTER_PORT = 29500
"""The rendezvous of processes on several nodes: the usual port of PyTorch."""

_VISIBLE_GPU_VARIABLES = {"AMD": "HIP_VISIBLE_DEVICES", "Huawei": "ASCEND_RT_VISIBLE_DEVICES"}
_WIDTH = 88
_LATER_ARRAY = "ON_LATER_NODES"
_NODE_LAUNCHERS = ("torchrun", "accelerate", "deepspeed", "ray")
_RANK_LAUNCHERS = ("mpirun", "srun")
_ESCAPES = str.maketrans({char: "\\" + char for char in '\\"$`}'})


def exports(assumed: Iterable[EnvironmentDefault]) -> list[str]:
    """Return lines that export environment variables, each below a comment with its reason."""
    lines = []
    for default in assumed:
        value = f'"{default.text}"' if default.is_shell else shell_word(default.text)
        lines += [*comment([default.reason]), f"export {default.name}={value}"]
    return lines


def check_user_variables(processes: Iterable[Process]) -> list[str]:
    """Return lines that set the user's variables to defaults, or end the script if none is set."""
    lines = []
    for variable in user_variables(processes):
        if variable.default is None:
            lines.append(f': "${{{variable.name}:?{_escape_for_quotes(variable.meaning)}}}"')
        elif "'" in variable.default:  # bash looks for its pair within "${NAME:=...}"
            lines.append(
                f'[[ -n "${{{variable.name}:-}}" ]] || '
                f"{variable.name}={shell_word(variable.default)}"
            )
        else:
            lines.append(f': "${{{variable.name}:={_escape_for_quotes(variable.default)}}}"')
    return lines


def array(arguments: Sequence[CommandWords], name: str = "ARGUMENTS") -> list[str]:
    """Return lines of a bash array with one argument per line, each with its note as a comment."""
    lines = [f"{name}=("]
    for argument in arguments:
        words = " ".join(map(expand_word, argument.words))
        lines.append(f"  {words}" + (f"  # {one_line(argument.note)}" if argument.note else ""))
    return [*lines, ")"]


def arguments_lines(process: Process) -> list[str]:
    """Return lines of an array with a process's arguments, and of one for nodes after the first."""
    lines = array(process.arguments)
    if has_followers(process):
        # A separate array: parsers of the script read the first one without evaluating "if".
        follower_lines = [f"  {line}" for line in array(process.follower_arguments, _LATER_ARRAY)]
        lines += [f"{_LATER_ARRAY}=()", 'if [[ "$NODE_RANK" != 0 ]]; then', *follower_lines, "fi"]
    return lines


def has_followers(process: Process) -> bool:
    """Whether nodes after the first get additional arguments."""
    return bool(process.follower_arguments) and process.num_nodes > 1


def command(process: Process) -> str:
    """Return the command that a node runs for a process: launcher and arguments, folded.

    Raises LaunchError if the launcher is unknown.
    """
    if process.launcher and process.launcher not in (*_NODE_LAUNCHERS, *_RANK_LAUNCHERS):
        raise LaunchError(f"{process.launcher} is not a known launcher.")
    words = [
        *_launcher_words(process),
        *(
            expand_word(word)
            for launcher_argument in process.launcher_arguments
            for word in launcher_argument.words
        ),
        *expand_arrays(process),
    ]
    return fold_words(words)


def expand_arrays(process: Process) -> list[str]:
    """The arrays of a process as words of its command."""
    later = [f'"${{{_LATER_ARRAY}[@]}}"'] if has_followers(process) else []
    return ['"${ARGUMENTS[@]}"', *later]


def fold_words(words: Sequence[str]) -> str:
    """Join words to a command; fold long lines with a backslash."""
    lines = [""]
    for word in words:
        if lines[-1] and len(lines[-1]) + len(word) > _WIDTH and not word.startswith('"'):
            lines.append(word)
        else:
            lines[-1] += f" {word}" if lines[-1] else word
    return " \\\n    ".join(lines)


def visible_gpus(job: LaunchJob) -> str:
    """The environment variable with the visible GPUs of a process."""
    return _VISIBLE_GPU_VARIABLES.get(job.gpu.vendor, "CUDA_VISIBLE_DEVICES")


def runs_by_rank(process: Process) -> bool:
    """Whether its launcher starts the ranks of all nodes from one node."""
    return process.launcher in _RANK_LAUNCHERS


def expand_word(word: str | ShellVariable) -> str:
    """Return a word as shell text: quoted, or a reference to a shell variable such as "${NAME}"."""
    if isinstance(word, ShellVariable):
        before, after = (shell_word(text) if text else "" for text in (word.prefix, word.suffix))
        value = f"${{{word.name}}}"
        if word.times:
            value = f"$(({word.plus} + {word.times} * {word.name}))"
        return f'{before}"{value}"{after}'
    return shell_word(word)


def uses_variable(process: Process, *names: str) -> bool:
    """True if the arguments of a process use one of the shell variables ``names``."""
    all_arguments = (*process.launcher_arguments, *process.arguments, *process.follower_arguments)
    return any(
        isinstance(word, ShellVariable) and word.name in names
        for argument in all_arguments
        for word in argument.words
    )


def _launcher_words(process: Process) -> list[str]:
    """Return the words that start a launcher, such as torchrun; empty for no launcher."""
    nodes, gpus = process.num_nodes, process.gpus_per_node
    has_several_nodes = nodes > 1
    if process.launcher == "accelerate":
        words = ["accelerate", "launch", "--num_machines", str(nodes)]
        words += ["--num_processes", str(nodes * gpus)]
        rank_arguments = ["--machine_rank", '"$NODE_RANK"', "--main_process_ip", '"$MASTER_ADDR"']
        return (
            [*words, *rank_arguments, "--main_process_port", '"$MASTER_PORT"']
            if has_several_nodes
            else words
        )
    if process.launcher == "deepspeed" and not has_several_nodes:
        return ["deepspeed", "--num_gpus", str(gpus)]
    if process.launcher in _RANK_LAUNCHERS:
        return ["mpirun", "-np", str(nodes * gpus)]
    if not process.launcher or (process.launcher == "ray" and not has_several_nodes):
        return []
    if process.launcher == "ray":  # joins the nodes, and runs the command on the first only
        words = ["ray", "symmetric-run", "--address", '"$MASTER_ADDR:$MASTER_PORT"']
        return [*words, "--min-nodes", str(nodes), "--"]
    if not has_several_nodes:
        return ["torchrun", "--standalone", "--nproc-per-node", str(gpus)]
    words = ["torchrun", "--nnodes", str(nodes), "--nproc-per-node", str(gpus)]
    words += ["--node-rank", '"$NODE_RANK"', "--master-addr", '"$MASTER_ADDR"']
    return [*words, "--master-port", '"$MASTER_PORT"']


def _escape_for_quotes(text: str) -> str:
    """Text inside ``"${NAME:?...}"``, without single quotes, which would begin a string."""
    return one_line(text).replace("'", "\u2019").translate(_ESCAPES)


@record(kw_only=True)
class PlacedProcess:
    """A copy of a process; nodes and GPUs are counted from 0."""

    process: Process
    copy: int
    node: int
    gpu: int

    @property
    def gpus(self) -> str:
        """Its GPUs among the job's GPUs of a node, counted from 1."""
        return ",".join(str(self.gpu + i + 1) for i in range(self.process.gpus_per_node))

    @property
    def port(self) -> int:
        """Its port; copies on the same node have different ones."""
        return self.process.port + self.copy if self.process.port else 0

    @property
    def stem(self) -> str:
        """Prefix of variables of its process."""
        return self.process.name.upper().replace("-", "_")


def place_processes(processes: Sequence[Process], gpus_per_node: int) -> tuple[PlacedProcess, ...]:
    """Assign the copies of processes to nodes and GPUs, in order.

    Copies of one node share a node while they fit; copies of several nodes get whole nodes.
    Processes without GPUs run on the first node.
    """
    placed, node, gpu = list[PlacedProcess](), 0, 0
    for process in processes:
        for copy in range(process.copies):
            if not process.gpus_per_node:
                placed.append(PlacedProcess(process=process, copy=copy, node=0, gpu=0))
                continue
            if gpu and (process.num_nodes > 1 or gpu + process.gpus_per_node > gpus_per_node):
                node, gpu = node + 1, 0
            placed.append(PlacedProcess(process=process, copy=copy, node=node, gpu=gpu))
            if process.num_nodes > 1:
                node += process.num_nodes
            else:
                gpu += process.gpus_per_node
    return tuple(placed)


def num_nodes(placed_processes: Sequence[PlacedProcess]) -> int:
    """Number of nodes of all placed processes."""
    return max((placed.node + placed.process.num_nodes for placed in placed_processes), default=1)


def process_values(target: LaunchTarget, job: LaunchJob, process: Process) -> dict[str, Value]:
    """Return the values of a process that the templates of all wrappers have.

    Raises LaunchError if its launcher is unknown.
    """
    return {
        "environment": exports(process_environment(target, job, process)),
        "asked": check_user_variables([process]),
        "several_nodes": process.num_nodes > 1,
        "num_nodes": process.num_nodes,
        "several_copies": process.copies > 1,
        "copies": process.copies,
        "names_host": uses_variable(process, "HOST_ADDRESS"),
        "master_port": MASTER_PORT,
        "port": process.port,
        "visible": visible_gpus(job),
        "arguments": arguments_lines(process),
        "command": command(process),
    }


START = "start.sh"
_MAX_SHOWN = 8
MEASURES = "measures what was predicted"
SOME_STEPS = "It runs a few steps of the job and stops."
_NEEDS_SERVER_NOTE = "It sends requests to a running server."


def make_files(
    target: LaunchTarget, job: LaunchJob, draft: LaunchDraft
) -> tuple[LaunchOutputFile, ...]:
    """Return a script per process, one that starts all on one node, and files that they read.

    Raises LaunchError if a word cannot be quoted for a shell, or a launcher is unknown.
    """
    placed_processes = place_processes(draft.processes, job.cluster.gpus_per_node)
    start_scripts = _start_all_script(draft, placed_processes)
    scripts = []
    for process in draft.processes:
        lines, commands = _starts(process, job, placed_processes)
        nodes = process.num_nodes
        scripts.append(
            LaunchOutputFile(
                name=f"{process.name}.sh",
                text=_script_text(target, job, draft, process, lines, placed_processes),
                is_executable=True,
                meaning=f"starts {process.name} "
                + (f"on each of {nodes} nodes" if nodes > 1 else "on a node"),
                start="" if start_scripts else "\n".join(commands),
            )
        )
    return (*start_scripts, *scripts, *draft.files, *benchmark(target, job, draft))


def benchmark(
    target: LaunchTarget, job: LaunchJob, draft: LaunchDraft
) -> tuple[LaunchOutputFile, ...]:
    """Scripts of the benchmark: some steps of a training, or a load of requests."""
    return tuple(_benchmark_script(target, job, draft, process) for process in draft.benchmark)


def _benchmark_script(
    target: LaunchTarget, job: LaunchJob, draft: LaunchDraft, process: Process
) -> LaunchOutputFile:
    """Return the script that measures a server, or runs some steps of a training."""
    placed_processes = place_processes([process], job.cluster.gpus_per_node)
    lines, commands = _starts(process, job, placed_processes)
    start_lines = [SOME_STEPS, *lines] if job.is_training else [_NEEDS_SERVER_NOTE]
    return LaunchOutputFile(
        name=f"{process.name}.sh",
        text=_script_text(target, job, draft, process, start_lines),
        is_executable=True,
        meaning=MEASURES,
        start="\n".join(commands),
    )


def addresses(
    placed_processes: Sequence[PlacedProcess], reached: Sequence[PlacedProcess]
) -> list[str]:
    """Return lines that set host and URL of the process copies in ``reached``, with defaults.

    On several nodes the user sets the address of each node.
    """
    has_several_nodes = num_nodes(placed_processes) > 1
    nodes = dict.fromkeys(placed.node for placed in reached if has_several_nodes)
    lines = [f': "${{NODE_{node}:?address of node {node}}}"' for node in nodes]
    for placed in (place for place in reached if place.port):
        host, node_address = f"{placed.stem}_HOST_{placed.copy}", f"${{NODE_{placed.node}}}"
        lines.append(f': "${{{host}:={node_address if has_several_nodes else "127.0.0.1"}}}"')
        lines.append(f': "${{{placed.stem}_URL_{placed.copy}:=http://${{{host}}}:{placed.port}}}"')
    return lines


def find_reached_copies(
    process: Process, placed_processes: Sequence[PlacedProcess]
) -> list[PlacedProcess]:
    """Return the process copies whose address is in the arguments of ``process``."""
    names = {getattr(word, "name", "") for argument in process.arguments for word in argument.words}
    return [
        placed
        for placed in placed_processes
        if {f"{placed.stem}_{suffix}_{placed.copy}" for suffix in ("URL", "HOST")} & names
    ]


def _script_text(
    target: LaunchTarget,
    job: LaunchJob,
    draft: LaunchDraft,
    process: Process,
    start_lines: Sequence[str],
    placed_processes: Sequence[PlacedProcess] = (),
) -> str:
    """Return the script of a process, with ``start_lines`` in its heading.

    Without ``placed_processes`` it is the script of a benchmark.
    """
    gpus, of_node = process.gpus_per_node, job.cluster.gpus_per_node
    is_single_node, copies_on_node = process.num_nodes == 1, copies_per_node(process, of_node)
    shown_draft = draft if placed_processes else LaunchDraft(processes=())
    values: dict[str, Value] = {
        **process_values(target, job, process),
        "heading": heading_lines(target, job, shown_draft, [process], start_lines),
        "has_files": bool(draft.files),
        "links": addresses(placed_processes, find_reached_copies(process, placed_processes)),
        "by_rank": runs_by_rank(process),
        "one_here": process.copies == 1 or not is_single_node,
        "copies_here": process.copies > 1 and is_single_node,
        "here": copies_on_node,
        "fit": f"({of_node} - FIRST_GPU) / {gpus}" if gpus else str(copies_on_node),
        "gpus": gpus,
        "has_neighbours": bool(gpus) and is_single_node and len(draft.processes) > 1,
    }
    return fill_template("script.sh", values)


def copies_per_node(process: Process, gpus_per_node: int) -> int:
    """Copies of a process that one node holds."""
    if process.num_nodes > 1 or not process.gpus_per_node:
        return process.copies
    return max(min(process.copies, gpus_per_node // process.gpus_per_node), 1)


def _start_all_script(
    draft: LaunchDraft, placed_processes: Sequence[PlacedProcess]
) -> tuple[LaunchOutputFile, ...]:
    """Return the script that starts all processes; empty if they need several nodes, or are one."""
    if len(draft.processes) < 2 or num_nodes(placed_processes) > 1:
        return ()
    starts = []
    for placed in placed_processes:
        if placed.copy:
            continue
        gpu = f"FIRST_GPU={placed.gpu} " if placed.process.gpus_per_node else ""
        starts.append(f"{gpu}bash ./{placed.process.name}.sh &")
    return (
        LaunchOutputFile(
            name=START,
            text=fill_template(START, {"starts": starts}),
            is_executable=True,
            meaning="starts all on one node",
            start=f"bash {START}",
        ),
    )


def _starts(
    process: Process, job: LaunchJob, placed_processes: Sequence[PlacedProcess]
) -> tuple[list[str], list[str]]:
    """Return comment lines on how to start the script of a process, and the commands for that.

    Each command ends with a comment on its node.
    """
    places = [placed for placed in placed_processes if placed.process is process]
    by_hand = _manual_command(process, job)
    nodes = num_nodes(placed_processes)
    if nodes == 1 or runs_by_rank(process):
        has_others = nodes == 1 and len(placed_processes) > process.copies
        with_others = f"bash {START} starts it with the others; FIRST_GPU is its first GPU."
        return [with_others if has_others else by_hand], [by_hand.strip()]
    if len(places) == len(placed_processes) == 1:
        last = process.num_nodes - 1
        others = f"1 to {last} on the others" if last > 1 else "1 on the other"
        each = (
            f"Run it on each of {process.num_nodes} nodes, with the number of the node and the "
            "address of the first:"
        )
        comment = f"# on the first node; NODE_RANK={others}"
        return [each, by_hand], [f"{by_hand.strip()}  {comment}"]
    commands = [*_node_commands(places)]
    has_more = len(commands) > _MAX_SHOWN
    lines = [f"  {label}: {line}" for label, line in commands[:_MAX_SHOWN]]
    starts = [f"{line}  # {label}" for label, line in commands[:_MAX_SHOWN]]
    return (
        [f"The plan has nodes 0 to {nodes - 1}; run it", *lines, *["  and so on"] * has_more],
        [*starts, *[f"# and so on: see {process.name}.sh"] * has_more],
    )


def _node_commands(placed_processes: Sequence[PlacedProcess]) -> Iterator[tuple[str, str]]:
    """Yield label and command for each node of a process, or for each group of its nodes."""
    seen = set()
    for placed in placed_processes:
        nodes, name = placed.process.num_nodes, placed.process.name
        if nodes > 1:
            copy = f"COPY={placed.copy} " * (placed.process.copies > 1)
            last = placed.node + nodes - 1
            yield (
                f"on nodes {placed.node} to {last}, NODE_RANK=0 to {nodes - 1}",
                f"NODE_RANK=0 MASTER_ADDR=NODE_{placed.node} {copy}bash {name}.sh",
            )
        elif placed.node not in seen:
            first = f"FIRST_COPY={placed.copy} " * (placed.copy > 0)
            gpu = f"FIRST_GPU={placed.gpu} " * (placed.gpu > 0)
            yield f"on node {placed.node}", f"{first}{gpu}bash {name}.sh"
        seen.add(placed.node)


def _manual_command(process: Process, job: LaunchJob) -> str:
    """Return the command with which a user starts a process's script on the first node."""
    has_several_nodes = process.num_nodes > 1 and not runs_by_rank(process)
    address = "MASTER_ADDR=$(hostname) " * (process.num_nodes > 1)
    first = "FIRST_COPY=0 " * (process.copies > copies_per_node(process, job.cluster.gpus_per_node))
    return f"  {'NODE_RANK=0 ' * has_several_nodes}{address}{first}bash {process.name}.sh"
