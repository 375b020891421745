"""A shell script for each kind of process; on several nodes it is run on each of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from planner.launch.heading import environment_of, heading
from planner.launch.job import Job
from planner.launch.target import Draft, File, Process, Target
from planner.launch.wrappers.shell import (
    MASTER_PORT,
    Placed,
    arguments_lines,
    asked,
    command,
    exports,
    num_nodes,
    placed,
    runs_by_rank,
    uses,
    visible_gpus,
)
from planner.launch.wrappers.templates import Value, filled

START = "start.sh"
_MOST_SHOWN = 8
MEASURES = "measures what was predicted"
SOME_STEPS = "It runs some steps of the job, and ends."
_BESIDE_A_SERVER = "It asks a server that runs."


def wrapped(target: Target, job: Job, draft: Draft) -> tuple[File, ...]:
    """A script for each kind of process, one that starts all on a node, the files beside them.

    Raises
    ------
    LaunchError
        A word cannot be written in a shell, or a launcher is unknown.
    """
    places = placed(draft.processes, job.cluster.gpus_per_node)
    all_at_once = _start(draft, places)
    scripts = [
        File(
            name=f"{process.name}.sh",
            text=_script(target, job, draft, process, places),
            is_executable=True,
            meaning=_meaning(process),
            start="" if all_at_once else "\n".join(_starts(process, job, places)),
        )
        for process in draft.processes
    ]
    return (*all_at_once, *scripts, *draft.files, *benchmark(target, job, draft))


def benchmark(target: Target, job: Job, draft: Draft) -> tuple[File, ...]:
    """Scripts that measure what was predicted: some steps of a training, or a load of requests."""
    return tuple(_benchmark(target, job, draft, process) for process in draft.benchmark)


def _benchmark(target: Target, job: Job, draft: Draft, process: Process) -> File:
    places = placed([process], job.cluster.gpus_per_node)
    how = [_BESIDE_A_SERVER]
    if job.is_training:
        how = [SOME_STEPS, *_how(process, job, places)]
    head = heading(target, job, Draft(processes=()), [process], how)
    return File(
        name=f"{process.name}.sh",
        text=_text(target, job, draft, process, head),
        is_executable=True,
        meaning=MEASURES,
        start="\n".join(_starts(process, job, places)),
    )


def addresses(places: Sequence[Placed], reached: Sequence[Placed]) -> list[str]:
    """How processes reach each other: on this node, or where the user says that nodes are."""
    several = num_nodes(places) > 1
    nodes = dict.fromkeys(one.node for one in reached if several)
    lines = [f': "${{NODE_{node}:?address of node {node}}}"' for node in nodes]
    for one in (place for place in reached if place.port):
        host, where = f"{one.stem}_HOST_{one.copy}", f"${{NODE_{one.node}}}"
        lines.append(f': "${{{host}:={where if several else "127.0.0.1"}}}"')
        lines.append(f': "${{{one.stem}_URL_{one.copy}:=http://${{{host}}}:{one.port}}}"')
    return lines


def reaches(process: Process, places: Sequence[Placed]) -> list[Placed]:
    """The copies whose address a process names."""
    names = {getattr(word, "name", "") for one in process.arguments for word in one.words}
    return [
        place
        for place in places
        if {f"{place.stem}_{kind}_{place.copy}" for kind in ("URL", "HOST")} & names
    ]


def _script(
    target: Target, job: Job, draft: Draft, process: Process, places: Sequence[Placed]
) -> str:
    head = heading(target, job, draft, [process], _how(process, job, places))
    links = addresses(places, reaches(process, places))
    return _text(target, job, draft, process, head, links)


def _text(
    target: Target,
    job: Job,
    draft: Draft,
    process: Process,
    head: Sequence[str],
    links: Sequence[str] = (),
) -> str:
    gpus, of_node = process.gpus_per_node, job.cluster.gpus_per_node
    is_one, here = process.num_nodes == 1, copies_here(process, of_node)
    values: dict[str, Value] = {
        "heading": head,
        "has_files": bool(draft.files),
        "environment": exports(environment_of(target, job, process)),
        "asked": asked([process]),
        "links": links,
        "several_nodes": not is_one,
        "num_nodes": process.num_nodes,
        "by_rank": runs_by_rank(process),
        "master_port": MASTER_PORT,
        "names_host": uses(process, "HOST_ADDRESS"),
        "one_here": process.copies == 1 or not is_one,
        "several_copies": process.copies > 1,
        "copies_here": process.copies > 1 and is_one,
        "copies": process.copies,
        "here": here,
        "fit": f"({of_node} - FIRST_GPU) / {gpus}" if gpus else str(here),
        "port": process.port,
        "gpus": gpus,
        "has_neighbours": bool(gpus) and is_one and len(draft.processes) > 1,
        "visible": visible_gpus(job),
        "arguments": arguments_lines(process),
        "command": command(process),
    }
    return filled("script.sh", values)


def copies_here(process: Process, gpus_per_node: int) -> int:
    """Copies of a process that one node holds."""
    if process.num_nodes > 1 or not process.gpus_per_node:
        return process.copies
    return max(min(process.copies, gpus_per_node // process.gpus_per_node), 1)


def _start(draft: Draft, places: Sequence[Placed]) -> tuple[File, ...]:
    """What starts every process on this node, where they all fit on it."""
    if len(draft.processes) < 2 or num_nodes(places) > 1:
        return ()
    starts = []
    for place in (one for one in places if one.copy == 0):
        gpu = f"FIRST_GPU={place.gpu} " if place.process.gpus_per_node else ""
        starts.append(f"{gpu}bash ./{place.process.name}.sh &")
    return (
        File(
            name=START,
            text=filled(START, {"starts": starts}),
            is_executable=True,
            meaning="starts all on one node",
            start=f"bash {START}",
        ),
    )


def _how(process: Process, job: Job, places: Sequence[Placed]) -> list[str]:
    if len(places) > process.copies and num_nodes(places) == 1:
        return [f"bash {START} starts it beside the others; FIRST_GPU says which GPUs are its."]
    own = [place for place in places if place.process is process]
    if process.num_nodes > 1 and not runs_by_rank(process) and len(own) == len(places) == 1:
        return [
            f"Run it on each of {process.num_nodes} nodes, with the number of the node and the "
            "address of the first:",
            _by_hand(process, job),
        ]
    if num_nodes(places) == 1 or runs_by_rank(process):
        return [_by_hand(process, job)]
    lines = [f"  {where}: {line}" for where, line in _on_nodes(own)]
    more = ["  and so on"] if len(lines) > _MOST_SHOWN else []
    nodes = num_nodes(places)
    return [f"The plan has nodes 0 to {nodes - 1}; run it", *lines[:_MOST_SHOWN], *more]


def _starts(process: Process, job: Job, places: Sequence[Placed]) -> list[str]:
    """The commands that start a process, each with the node that it is for."""
    own = [place for place in places if place.process is process]
    by_hand = _by_hand(process, job).strip()
    if num_nodes(places) == 1 or runs_by_rank(process):
        return [by_hand]
    if len(own) == len(places) == 1:
        last = process.num_nodes - 1
        others = f"1 to {last} on the others" if last > 1 else "1 on the other"
        return [f"{by_hand}  # on the first node; NODE_RANK={others}"]
    lines = [f"{line}  # {where}" for where, line in _on_nodes(own)]
    more = [f"# and so on: {process.name}.sh says how"] if len(lines) > _MOST_SHOWN else []
    return [*lines[:_MOST_SHOWN], *more]


def _on_nodes(own: Sequence[Placed]) -> Iterator[tuple[str, str]]:
    """The command for each node of a process, or for each of its groups of nodes."""
    seen = set()
    for one in own:
        nodes, name = one.process.num_nodes, one.process.name
        if nodes > 1:
            copy = f"COPY={one.copy} " * (one.process.copies > 1)
            last = one.node + nodes - 1
            yield (
                f"on nodes {one.node} to {last}, NODE_RANK=0 to {nodes - 1}",
                f"NODE_RANK=0 MASTER_ADDR=NODE_{one.node} {copy}bash {name}.sh",
            )
        elif one.node not in seen:
            first = f"FIRST_COPY={one.copy} " * (one.copy > 0)
            gpu = f"FIRST_GPU={one.gpu} " * (one.gpu > 0)
            yield f"on node {one.node}", f"{first}{gpu}bash {name}.sh"
        seen.add(one.node)


def _by_hand(process: Process, job: Job) -> str:
    """The command that starts a script on the first node."""
    several = process.num_nodes > 1 and not runs_by_rank(process)
    address = "MASTER_ADDR=$(hostname) " * (process.num_nodes > 1)
    first = "FIRST_COPY=0 " * (process.copies > copies_here(process, job.cluster.gpus_per_node))
    return f"  {'NODE_RANK=0 ' * several}{address}{first}bash {process.name}.sh"


def _meaning(process: Process) -> str:
    nodes = f"on each of {process.num_nodes} nodes" if process.num_nodes > 1 else "on a node"
    return f"starts {process.name} {nodes}"
