"""On which node and GPU each copy of a process runs, and how the others reach it."""

from __future__ import annotations

from collections.abc import Sequence

from planner.base.records import record
from planner.launch.target import Process


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
