"""From the workers of a plan to the processes of an engine, in the same way for every engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from planner.base.records import record
from planner.configurations.serving import OF_PREFILL, PREFILL
from planner.launch.job import Job
from planner.launch.option_table import OptionTable, Remark, Settings
from planner.launch.serving import PREFILL_POOL, Worker, port_of, workers_of
from planner.launch.target import PORT, Argument, Draft, File, Process, Variable

_OF_POOL = ("checkpoint_quantization",)
_NO_ROUTER = (
    "The engine brings no router for replicas: any balancer of HTTP in front of them will do. The "
    "benchmark measures the first of them under its share of the load."
)


@record(kw_only=True)
class Server:
    """A worker in the options of its engine.

    ``has_router``: it is one of several servers behind one address.
    """

    worker: Worker
    settings: Settings
    model: str | Variable
    has_router: bool

    @property
    def listening(self) -> list[Argument]:
        """On which port, for everybody."""
        port: str | Variable = PORT if self.worker.copies > 1 else str(self.port)
        return [Argument(words=("--host", "0.0.0.0")), Argument(words=("--port", port))]

    @property
    def port(self) -> int:
        """Where the first copy listens."""
        return port_of(self.worker, self.has_router)

    def process(self, arguments: list[Argument], **other: Any) -> Process:
        """The server as a process."""
        worker = self.worker
        gpu = worker.gpu.name
        notes = () if gpu == worker.job.gpu.name else (f"runs on {gpu}",)
        return Process(
            name=worker.name,
            arguments=tuple(arguments),
            num_nodes=worker.num_nodes,
            gpus_per_node=worker.gpus_per_node,
            copies=worker.copies,
            port=self.port,
            notes=notes,
            **other,
        )


def servers_of(
    job: Job,
    table: OptionTable,
    quantities: Callable[[Worker], Mapping[str, Any]],
    model: Callable[[Worker, str | None], str | Variable],
    *,
    routes_replicas: bool = True,
) -> tuple[Server, ...]:
    """Every kind of server of a plan; ``model`` says what it loads.

    ``routes_replicas``: the engine has a router for replicas too, not for pools alone.
    """
    workers = workers_of(job)
    servers = []
    for worker in workers:
        values = quantities(worker)
        servers.append(
            Server(
                worker=worker,
                settings=table.written(values),
                model=model(worker, values.get("checkpoint_quantization")),
                has_router=len(workers) > 1 or (routes_replicas and workers[0].copies > 1),
            )
        )
    return tuple(servers)


def draft_of(
    servers: tuple[Server, ...],
    processes: tuple[Process, ...],
    *,
    benchmark: tuple[Process, ...],
    files: tuple[File, ...] = (),
    left: tuple[Remark, ...] = (),
) -> Draft:
    """The draft of servers; what the table of the prefill pool cannot say has its name."""
    first = servers[0]
    unexpressed = [
        Remark(parameter=PREFILL + remark.parameter, value=remark.value, note=remark.note)
        for server in servers[:-1]
        for remark in server.settings.unexpressed
        if remark.parameter in OF_PREFILL or remark.parameter in _OF_POOL
    ]
    unexpressed += [remark for server in servers for remark in _raised(server)]
    return Draft(
        processes=processes,
        files=files,
        unexpressed=tuple(unexpressed),
        left=left,
        benchmark=benchmark,
        notes=() if first.has_router or first.worker.copies == 1 else (_NO_ROUTER,),
    )


def _raised(server: Server) -> list[Remark]:
    """That a step must have a token for each sequence, where an option bounds it."""
    worker = server.worker
    name, tokens = "max_num_batched_tokens", worker.max_num_batched_tokens
    planned = int(worker.values[name])
    told = {remark.parameter for remark in server.settings.unexpressed}
    if tokens == planned or name in told:
        return []
    prefix = PREFILL if worker.name == PREFILL_POOL else ""
    note = f"engines need one for each sequence of a rank; the file has {tokens:,}"
    return [Remark(parameter=prefix + name, value=str(planned), note=note)]
