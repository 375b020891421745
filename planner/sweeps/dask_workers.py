"""Runs parts of a sweep on the workers of a Dask cluster."""

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
_POLL_S = 0.2
# Enough parts wait to make an adaptive cluster grow. Their unfetched results take a few MB.
_MIN_WAITING, _WAITING_PER_THREAD = 256, 4
_CONNECTED = ("running", "connecting")
_MOST_NAMED = 3
_MOST_CALLS = 3
_LOST = (OSError, CancelledError, asyncio.CancelledError, TimeoutError)
"""Errors of a lost connection; distributed's own are OSErrors."""
_RESUME_HINT = "Finished scenarios are kept: run the same command to continue."


class _Scheduler(Protocol):
    address: str


class _Client(Protocol):
    """The used methods of a client of distributed; types of the library differ by version."""

    status: str
    scheduler: _Scheduler

    def nthreads(self) -> Mapping[str, int]: ...

    def run(
        self, function: Callable[..., object], *arguments: object, on_error: str
    ) -> Mapping[str, BaseException | Mapping[str, str]]: ...

    def submit(
        self, function: Callable[..., object], *arguments: object, key: str, pure: bool
    ) -> _Future: ...

    def close(self, timeout: float) -> object: ...


class _Future(Protocol):
    """The used methods of a future of distributed."""

    status: str
    client: _Client

    def exception(self) -> BaseException: ...

    def result(self) -> bytes: ...

    def release(self) -> object: ...

    def add_done_callback(self, callback: Callable[[_Future], object]) -> object: ...


class ClusterError(WorkersLost):
    """A Dask cluster cannot be reached, would give other results, or lost its workers."""


def on_dask(address: str, report: Callable[[str], None] | None = None) -> Run:
    """Return a function that runs scenario batches on the Dask scheduler at an address.

    ``report`` receives lines about waiting for workers; None: no lines.

    Raises MissingDependencyError if dask's distributed is not installed.
    """
    try:
        import distributed  # noqa: F401
    except ImportError as error:
        raise MissingDependencyError(
            "--dask needs distributed: pip install 'llm-gpu-planner[dask]'."
        ) from error

    def run(plan: SweepPlan, parts: Iterable[ScenarioBatch]) -> Iterator[Done]:
        """Run the scenario batches of a sweep on a Dask cluster and yield each result."""
        # Workers may run in other folders, so the specs folder must be absolute.
        resolved_plan = replace(plan, specs=plan.specs and plan.specs.resolve())
        with _quiet(), _connect(address) as client:
            cluster = _Cluster(client, report or (lambda line: None))
            cluster.await_workers()
            task = _Task(
                plan=resolved_plan,
                identity=identity(resolved_plan),
                token=f"sweep-{time.time_ns()}",
            )
            _check_workers(client, task)
            yield from _stream_results(cluster, task, parts)

    return run


@record(kw_only=True)
class _Task:
    """The data that is sent with every part of a sweep; ``token`` identifies the sweep."""

    plan: SweepPlan
    identity: Mapping[str, str]
    token: str


class _Cluster:
    """The workers of a client's scheduler, with messages about waiting for them."""

    def __init__(self, client: _Client, report: Callable[[str], None]) -> None:
        self.client, self._report = client, report
        self._without_workers_since: float | None = None
        self._next_look = 0.0

    @property
    def threads(self) -> int:
        """Number of threads of all workers."""
        with _scheduler_errors(self.client):
            return sum(self.client.nthreads().values())

    def await_workers(self) -> None:
        """Wait until the cluster has a worker; this may take hours."""
        while not self.threads:
            self.check()
            time.sleep(_POLL_S)
        self.check()

    def check(self) -> None:
        """Raise StopSearch or ClusterError if the user stopped or the scheduler is lost.

        Reports when all workers are lost, and when one joins.
        """
        if is_stop_requested():
            raise StopSearch
        if self.client.status not in _CONNECTED:
            raise _connection_lost(self.client)
        now = time.monotonic()
        if self._without_workers_since is None and now < self._next_look:
            return
        self._next_look = now + _PATIENCE_S
        if self.threads:
            if self._without_workers_since is not None:
                self._report(f"A worker came after {now - self._without_workers_since:.0f} s.")
            self._without_workers_since = None
        elif self._without_workers_since is None:
            self._report(f"No worker at {self.client.scheduler.address}: waiting for the first.")
            self._without_workers_since = now


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence Dask's log of lost connections while the context is open."""
    log = logging.getLogger("distributed.client")
    before = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(before)


@contextmanager
def _connect(address: str) -> Iterator[_Client]:
    """Connect a client to a scheduler, and close the client when the context ends."""
    library = import_module("distributed")
    try:
        # In a thread, because a notebook already runs an event loop here.
        with ThreadPoolExecutor(1) as executor:
            executor.submit(asyncio.run, _greet(address)).result()
        client: _Client = library.Client(address, timeout=_PATIENCE_S, set_as_default=False)
    except Exception as error:  # any server may answer at the address
        raise ClusterError(
            f"No Dask scheduler answers at {address} ({_short_message(error)}): give --dask the "
            "address that it prints when it starts, such as tcp://10.0.0.1:8786."
        ) from error
    try:
        yield client
    finally:
        with suppress(Exception):  # the scheduler may have ended
            client.close(timeout=_PATIENCE_S)


async def _greet(address: str) -> None:
    """Raise an error if no Dask scheduler answers at the address."""
    library = import_module("distributed")
    options = library.Security().get_connection_args("client")
    connection = await library.core.connect(address, timeout=_PATIENCE_S, **options)
    try:
        reply = await library.core.send_recv(connection, op="identity")
    finally:
        connection.abort()
    if reply["type"] != "Scheduler":
        raise ValueError(f"that is the address of a {reply['type'].lower()}")


def _check_workers(client: _Client, task: _Task) -> None:
    """Raise ClusterError if workers have another version, specs or files than this process.

    Workers that are lost meanwhile are ignored; workers that join later are checked per batch.
    """
    identities = _ask_workers(client, task)
    with _scheduler_errors(client):
        connected = {*client.nthreads()}
    mismatches = [
        f"worker {worker} {mismatch}"
        for worker, worker_identity in sorted(identities.items())
        if worker in connected and (mismatch := _describe_mismatch(task.identity, worker_identity))
    ]
    if mismatches:
        more = f" and {len(mismatches) - _MOST_NAMED} more" if len(mismatches) > _MOST_NAMED else ""
        raise ClusterError(
            f"Workers differ: {'; '.join(mismatches[:_MOST_NAMED])}{more}. "
            "Install the same planner and the same specs folders on all workers."
        )


def _ask_workers(client: _Client, task: _Task) -> Mapping[str, BaseException | Mapping[str, str]]:
    """Return the identity of each worker, or its error.

    A lost worker may end the whole call: then the others are called again. After several calls none
    is called, because every batch compares its worker. Raises ClusterError if the
    scheduler is lost.
    """
    for _ in range(_MOST_CALLS):
        try:
            with _scheduler_errors(client):
                return client.run(identity_once, task.token, task.plan, on_error="return")
        except ClusterError:
            if client.status not in _CONNECTED:
                raise
            with _scheduler_errors(client):
                client.nthreads()
    return {}


def _describe_mismatch(
    expected: Mapping[str, str], actual: BaseException | Mapping[str, str]
) -> str:
    """Say how a worker's planner differs from this one; empty: it matches or has no connection.

    Dask raises errors of connections without a number; those of a worker's files have one.
    """
    if isinstance(actual, (*_LOST, EOFError)) and (
        isinstance(actual, ConnectionError | TimeoutError) or not getattr(actual, "errno", None)
    ):
        return ""
    if isinstance(actual, BaseException):
        return f"has no working planner ({_short_message(actual)})"
    differ = differences(expected, actual)
    return f"has another {differ}" if differ else ""


def _stream_results(
    cluster: _Cluster, task: _Task, parts: Iterable[ScenarioBatch]
) -> Iterator[Done]:
    """Submit batches and yield results as they arrive; limits waiting batches for memory."""
    client, remaining = cluster.client, iter(parts)
    ready: queue.SimpleQueue[_Future] = queue.SimpleQueue()
    waiting: dict[_Future, ScenarioBatch] = {}
    while True:
        max_waiting = max(_MIN_WAITING, _WAITING_PER_THREAD * cluster.threads)
        while len(waiting) < max_waiting and (part := next(remaining, None)) is not None:
            with _scheduler_errors(client):
                future = client.submit(
                    run_on_worker, task, part, key=f"{task.token}-{part.number}", pure=False
                )
                waiting[future] = part
                future.add_done_callback(ready.put)
        if not waiting:
            return
        for future in _finished_futures(cluster, ready):
            part = waiting.pop(future)
            yield part, _part_content(future, part)


def _finished_futures(cluster: _Cluster, ready: queue.SimpleQueue[_Future]) -> Iterator[_Future]:
    """Wait for a finished future; yield it and all other finished ones."""
    future = None
    while future is None:
        cluster.check()
        with suppress(queue.Empty):
            future = ready.get(timeout=_POLL_S)
    yield future
    while not ready.empty():
        cluster.check()
        yield ready.get()


def _part_content(future: _Future, part: ScenarioBatch) -> bytes:
    """Return the file content of a finished batch; raises the error of its worker."""
    from distributed import KilledWorker

    if future.status == "error":
        with _scheduler_errors(future.client):
            error = future.exception()
        if isinstance(error, KilledWorker):
            raise ClusterError(
                f"Scenarios {part.first} to {part.end - 1} crashed their workers repeatedly: "
                f"give workers more memory, or read their logs. {_RESUME_HINT}"
            ) from error
        raise error
    with _scheduler_errors(future.client):
        content = future.result()
        future.release()
    return content


@contextmanager
def _scheduler_errors(client: _Client) -> Iterator[None]:
    """Raise ClusterError in place of each error of a lost scheduler in the context."""
    try:
        yield
    except _LOST as error:
        raise _connection_lost(client) from error
    except RuntimeError as error:  # a client that was closed
        if client.status in _CONNECTED:
            raise
        raise _connection_lost(client) from error


def _connection_lost(client: _Client) -> ClusterError:
    address = getattr(client.scheduler, "address", "")
    return ClusterError(f"Lost the connection to the scheduler {address}. {_RESUME_HINT}")


def _short_message(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def run_on_worker(task: _Task, part: ScenarioBatch) -> bytes:
    """Run a part on a worker, which may have joined after the check of the others."""
    if differ := differences(task.identity, identity_once(task.token, task.plan)):
        raise ClusterError(f"A new worker has a different {differ}. {_RESUME_HINT}")
    return run_part(task.plan, part)


_identities: dict[str, Mapping[str, str]] = {}


def identity_once(token: str, plan: SweepPlan) -> Mapping[str, str]:
    """Return the digests of this worker's files, computed once per ``token`` of a sweep."""
    cached = _identities.get(token)
    if cached is None:
        _identities.clear()
        cached = _identities[token] = identity(plan)
    return cached
