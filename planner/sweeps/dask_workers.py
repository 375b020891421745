"""Parts of a sweep on the workers of a Dask cluster, which does the work between machines."""

from __future__ import annotations

import asyncio
import logging
import queue
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from importlib import import_module
from typing import Protocol

from planner.base.records import record
from planner.base.signals import is_stop_requested
from planner.errors import MissingDependencyError, WorkersLost
from planner.optimize.exhaustive import StopSearch
from planner.sweeps.plan import SweepPlan
from planner.sweeps.run_sweep import Done, Run
from planner.sweeps.scenario_batches import ScenarioBatch, run_part
from planner.sweeps.sweep_folder import differences, identity

_PATIENCE_S = 10.0
_LOOK_S = 0.2
# So many parts wait that a cluster that grows with its work does so, and the results of them
# that nobody has fetched yet take some MB at most.
_LEAST_WAITING, _WAITING = 256, 4
_CONNECTED = ("running", "connecting")
_MOST_NAMED = 3
_RESUME_HINT = "Finished scenarios are kept: run the same command to continue."


class _Scheduler(Protocol):
    address: str


class _Client(Protocol):
    """What is asked of a client of the library, whose own types differ between its versions."""

    status: str
    scheduler: _Scheduler

    def nthreads(self) -> Mapping[str, int]: ...

    def run(
        self, function: Callable[..., object], *given: object, on_error: str
    ) -> Mapping[str, BaseException | Mapping[str, str]]: ...

    def submit(
        self, function: Callable[..., object], *given: object, key: str, pure: bool
    ) -> _Future: ...

    def close(self, timeout: float) -> object: ...


class _Future(Protocol):
    """What is asked of a result that is still to come."""

    status: str
    client: _Client

    def exception(self) -> BaseException: ...

    def result(self) -> bytes: ...

    def release(self) -> object: ...

    def add_done_callback(self, told: Callable[[_Future], object]) -> object: ...


class ClusterError(WorkersLost):
    """A Dask cluster is out of reach, would compute something else, or lost its workers."""


def on_dask(address: str, report: Callable[[str], None] | None = None) -> Run:
    """The workers of the scheduler at an address such as ``tcp://10.0.0.1:8786``.

    ``report`` is given lines on what is waited for.

    Raises MissingDependencyError if dask's distributed is not installed.
    """
    try:
        import distributed  # noqa: F401
    except ImportError as error:
        raise MissingDependencyError(
            "--dask needs distributed: pip install 'llm-gpu-planner[dask]'."
        ) from error

    def run(plan: SweepPlan, parts: Iterable[ScenarioBatch]) -> Iterator[Done]:
        # The folder of own specs is the same from whichever folder a worker runs in.
        asked = replace(plan, specs=plan.specs and plan.specs.resolve())
        with _quiet(), _connected(address) as client:
            cluster = _Cluster(client, report or (lambda line: None))
            cluster.await_workers()
            task = _Task(plan=asked, identity=identity(asked), token=f"sweep-{time.time_ns()}")
            _check_workers(client, task)
            yield from _streamed(cluster, task, parts)

    return run


@record(kw_only=True)
class _Task:
    """What every part of a sweep is sent with; ``token`` names the sweep."""

    plan: SweepPlan
    identity: Mapping[str, str]
    token: str


class _Cluster:
    """The workers of a client's scheduler, and what is told of them."""

    def __init__(self, client: _Client, report: Callable[[str], None]) -> None:
        self.client, self._told = client, report
        self._alone_since: float | None = None
        self._next_look = 0.0

    @property
    def threads(self) -> int:
        """Of all workers."""
        with _reached(self.client):
            return sum(self.client.nthreads().values())

    def await_workers(self) -> None:
        """Wait until there is a worker: on a cluster with a queue that may take hours."""
        while not self.threads:
            self.look()
            time.sleep(_LOOK_S)
        self.look()

    def look(self) -> None:
        """See while waiting whether the user, the scheduler or all workers gave up."""
        if is_stop_requested():
            raise StopSearch
        if self.client.status not in _CONNECTED:
            raise _lost(self.client)
        now = time.monotonic()
        if self._alone_since is None and now < self._next_look:
            return
        self._next_look = now + _PATIENCE_S
        if self.threads:
            if self._alone_since is not None:
                self._told(f"A worker came after {now - self._alone_since:.0f} s.")
            self._alone_since = None
        elif self._alone_since is None:
            self._told(f"No worker at {self.client.scheduler.address}: waiting for the first.")
            self._alone_since = now


@contextmanager
def _quiet() -> Iterator[None]:
    """What Dask logs of a lost connection is told in one line here."""
    log = logging.getLogger("distributed.client")
    before = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(before)


@contextmanager
def _connected(address: str) -> Iterator[_Client]:
    """A client that is closed in the end: its scheduler drops what it asked for."""
    library = import_module("distributed")
    try:
        # In a thread, because a notebook has a loop of its own here.
        with ThreadPoolExecutor(1) as aside:
            aside.submit(asyncio.run, _greet(address)).result()
        client: _Client = library.Client(address, timeout=_PATIENCE_S, set_as_default=False)
    except Exception as error:  # whatever answers may be anything
        raise ClusterError(
            f"No Dask scheduler answers at {address} ({_brief(error)}): give --dask the address "
            "that it prints when it starts, such as tcp://10.0.0.1:8786."
        ) from error
    try:
        yield client
    finally:
        with suppress(Exception):  # a scheduler that has ended cannot be told
            client.close(timeout=_PATIENCE_S)


async def _greet(address: str) -> None:
    """Connect once before there is a client: one that fails to begin cannot be closed."""
    library = import_module("distributed")
    how = library.Security().get_connection_args("client")
    connection = await library.core.connect(address, timeout=_PATIENCE_S, **how)
    try:
        found = await library.core.send_recv(connection, op="identity")
    finally:
        connection.abort()
    if found["type"] != "Scheduler":
        raise ValueError(f"that is the address of a {found['type'].lower()}")


def _check_workers(client: _Client, task: _Task) -> None:
    """Refuse to begin where results of workers would differ.

    A worker that is lost meanwhile gives no results; one that comes in its place is compared then.
    """
    with _reached(client):
        found = client.run(identity_once, task.token, task.plan, on_error="return")
    faults = [
        f"worker {worker} {fault}"
        for worker, theirs in sorted(found.items())
        if (fault := _fault(task.identity, theirs))
    ]
    if faults:
        more = f" and {len(faults) - _MOST_NAMED} more" if len(faults) > _MOST_NAMED else ""
        raise ClusterError(
            f"Workers differ: {'; '.join(faults[:_MOST_NAMED])}{more}. "
            "Install the same planner there, and give all the same folders of specs."
        )


def _fault(mine: Mapping[str, str], theirs: BaseException | Mapping[str, str]) -> str:
    from distributed.comm import CommClosedError

    if isinstance(theirs, CommClosedError):
        return ""
    if isinstance(theirs, BaseException):
        return f"has no working planner ({_brief(theirs)})"
    differ = differences(mine, theirs)
    return f"has another {differ}" if differ else ""


def _streamed(cluster: _Cluster, task: _Task, parts: Iterable[ScenarioBatch]) -> Iterator[Done]:
    """Results as they come; so few parts wait that memory does not grow with the plan."""
    client, todo = cluster.client, iter(parts)
    ready: queue.SimpleQueue[_Future] = queue.SimpleQueue()
    waiting: dict[_Future, ScenarioBatch] = {}
    while True:
        most = max(_LEAST_WAITING, _WAITING * cluster.threads)
        while len(waiting) < most and (part := next(todo, None)) is not None:
            with _reached(client):
                future = client.submit(
                    run_there, task, part, key=f"{task.token}-{part.number}", pure=False
                )
                waiting[future] = part
                future.add_done_callback(ready.put)
        if not waiting:
            return
        for future in _ended(cluster, ready):
            part = waiting.pop(future)
            yield part, _content(future, part)


def _ended(cluster: _Cluster, ready: queue.SimpleQueue[_Future]) -> Iterator[_Future]:
    """What has ended meanwhile, at least one."""
    found = None
    while found is None:
        cluster.look()
        with suppress(queue.Empty):
            found = ready.get(timeout=_LOOK_S)
    yield found
    while not ready.empty():
        cluster.look()
        yield ready.get()


def _content(future: _Future, part: ScenarioBatch) -> bytes:
    """The file of a part."""
    from distributed import KilledWorker

    if future.status == "error":
        with _reached(future.client):
            error = future.exception()
        if isinstance(error, KilledWorker):
            raise ClusterError(
                f"Scenarios {part.first} to {part.end - 1} crashed their workers repeatedly: "
                f"give workers more memory, or look into their logs. {_RESUME_HINT}"
            ) from error
        raise error
    with _reached(future.client):
        content = future.result()
        future.release()
    return content


@contextmanager
def _reached(client: _Client) -> Iterator[None]:
    """Something asked of the scheduler; that it is gone is one error, whatever Dask makes of it."""
    try:
        yield
    except (OSError, CancelledError, asyncio.CancelledError, TimeoutError) as error:
        raise _lost(client) from error
    except RuntimeError as error:  # a client that was closed
        if client.status in _CONNECTED:
            raise
        raise _lost(client) from error


def _lost(client: _Client) -> ClusterError:
    address = getattr(client.scheduler, "address", "")
    return ClusterError(f"Lost the connection to the scheduler {address}. {_RESUME_HINT}")


def _brief(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def run_there(task: _Task, part: ScenarioBatch) -> bytes:
    """A part on a worker, which may have come after the others were checked."""
    if differ := differences(task.identity, identity_once(task.token, task.plan)):
        raise ClusterError(f"A worker came that has another {differ}. {_RESUME_HINT}")
    return run_part(task.plan, part)


_known: dict[str, Mapping[str, str]] = {}


def identity_once(token: str, plan: SweepPlan) -> Mapping[str, str]:
    """Digests of this worker's files, taken once for the sweep of that token."""
    found = _known.get(token)
    if found is None:
        _known.clear()
        found = _known[token] = identity(plan)
    return found
