"""Parts of a sweep on the workers of a Dask cluster, which does the work between machines."""

from __future__ import annotations

import asyncio
import queue
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

from planner.errors import MissingDependencyError, PlannerError
from planner.interrupts import is_asked_to_stop
from planner.optimize.exhaustive import StopSearch
from planner.sweeps.identity import differences, identity
from planner.sweeps.parts import Part, run_part
from planner.sweeps.plan import SweepPlan
from planner.sweeps.workers import Done, Run

_PATIENCE_S = 10.0
_LOOK_S = 0.2
# So many parts wait that a cluster that grows with its work does so, and the results of them
# that nobody has fetched yet take some MB at most.
_LEAST_WAITING, _WAITING = 256, 4
_MOST_NAMED = 3
_KEPT = "What is done is kept: the same command goes on."


class ClusterError(PlannerError):
    """A Dask cluster is out of reach, would compute something else, or lost its workers."""


def on_dask(address: str, told: Callable[[str], None] | None = None) -> Run:
    """The workers of the scheduler at an address such as ``tcp://10.0.0.1:8786``.

    ``told`` is given lines on what is waited for.

    Raises
    ------
    MissingDependencyError
        Dask's distributed is not installed.
    """
    try:
        import distributed  # noqa: F401
    except ImportError as error:
        raise MissingDependencyError(
            "--dask needs distributed: pip install 'llm-gpu-planner[dask]'."
        ) from error

    def run(plan: SweepPlan, parts: Iterable[Part]) -> Iterator[Done]:
        # The folder of own specs is the same from whichever folder a worker runs in.
        asked = replace(plan, specs=plan.specs and plan.specs.resolve())
        with _connected(address) as client:
            mine = identity(asked)
            _await_workers(client, told or (lambda line: None))
            _check_workers(client, asked, mine)
            yield from _streamed(client, asked, mine, parts)

    return run


@contextmanager
def _connected(address: str) -> Iterator[Any]:
    """A client that is closed in the end, and with it what it asked for."""
    import distributed

    of_library: Any = distributed  # types of its own differ between its versions
    try:
        # In a thread, because a notebook has a loop of its own here.
        with ThreadPoolExecutor(1) as aside:
            aside.submit(asyncio.run, _greet(address, of_library)).result()
        client = of_library.Client(address, timeout=_PATIENCE_S, set_as_default=False)
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


async def _greet(address: str, of_library: Any) -> None:
    """Connect once before there is a client: one that fails to begin cannot be closed."""
    how = of_library.Security().get_connection_args("client")
    connection = await of_library.core.connect(address, timeout=_PATIENCE_S, **how)
    await connection.close()


def _await_workers(client: Any, told: Callable[[str], None]) -> None:
    """Wait until there is a worker: on a cluster with a queue that may take hours."""
    since = None
    while not client.nthreads():
        if since is None:
            told(f"No worker yet at {client.scheduler.address}: waiting for the first.")
            since = time.monotonic()
        _look_up(client)
        time.sleep(_LOOK_S)
    if since is not None:
        told(f"The first worker came after {time.monotonic() - since:.0f} s.")


def _check_workers(client: Any, plan: SweepPlan, mine: Mapping[str, str]) -> None:
    """Refuse to begin where results of workers would differ."""
    found = client.run(identity, plan, on_error="return")
    faults = [
        f"worker {worker} {fault}"
        for worker, theirs in sorted(found.items())
        if (fault := _fault(mine, theirs))
    ]
    if faults:
        more = f" and {len(faults) - _MOST_NAMED} more" if len(faults) > _MOST_NAMED else ""
        raise ClusterError(
            f"Not every worker would compute the same: {'; '.join(faults[:_MOST_NAMED])}{more}. "
            "Install the same planner there, and give all the same folders of specs."
        )


def _fault(mine: Mapping[str, str], theirs: Any) -> str:
    if isinstance(theirs, BaseException):
        return f"has no planner that answers ({_brief(theirs)})"
    differ = differences(mine, theirs)
    return f"has another {differ}" if differ else ""


def _streamed(
    client: Any, plan: SweepPlan, mine: Mapping[str, str], parts: Iterable[Part]
) -> Iterator[Done]:
    """Results as they come; so few parts wait that memory does not grow with the plan."""
    ready: queue.SimpleQueue[Any] = queue.SimpleQueue()
    waiting: dict[Any, Part] = {}
    todo, token = iter(parts), f"planner-sweep-{time.time_ns()}"
    try:
        while True:
            most = max(_LEAST_WAITING, _WAITING * sum(client.nthreads().values()))
            while len(waiting) < most and (part := next(todo, None)) is not None:
                name = f"{token}-{part.number}"
                future = client.submit(run_there, plan, part, mine, token, key=name, pure=False)
                waiting[future] = part
                future.add_done_callback(ready.put)
            if not waiting:
                return
            for future in _ready(client, ready):
                part = waiting.pop(future)
                yield part, _content(future, part)
    finally:
        with suppress(Exception):
            client.cancel([*waiting], force=True)


def _ready(client: Any, ready: queue.SimpleQueue[Any]) -> Iterator[Any]:
    """What has ended, at least one; nothing is waited for twice."""
    found = None
    while found is None:
        _look_up(client)
        with suppress(queue.Empty):
            found = ready.get(timeout=_LOOK_S)
    yield found
    while not ready.empty():
        yield ready.get()


def _look_up(client: Any) -> None:
    """See while waiting whether the user or the scheduler gave up."""
    if is_asked_to_stop():
        raise StopSearch
    if client.status not in ("running", "connecting"):
        raise _lost(client, None)


def _content(future: Any, part: Part) -> bytes:
    """The file of a part."""
    from distributed import KilledWorker

    if future.status == "error":
        error = future.exception()
        if isinstance(error, KilledWorker):
            raise ClusterError(
                f"Scenarios {part.first} to {part.end - 1} ended their workers again and again: "
                f"give workers more memory, or look into their logs. {_KEPT}"
            ) from error
        raise error
    try:
        content: bytes = future.result()
    except (OSError, CancelledError) as error:
        raise _lost(future.client, error) from error
    future.release()
    return content


def _lost(client: Any, error: BaseException | None) -> ClusterError:
    why = f" ({_brief(error)})" if error is not None else ""
    return ClusterError(f"The scheduler {client.scheduler.address} was lost{why}. {_KEPT}")


def _brief(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def run_there(plan: SweepPlan, part: Part, expected: Mapping[str, str], token: str) -> bytes:
    """A part on a worker, which may have come after the others were checked."""
    if differ := differences(expected, _identity_once(token, plan)):
        raise ClusterError(f"A worker came that has another {differ}. {_KEPT}")
    return run_part(plan, part)


_known: dict[str, dict[str, str]] = {}


def _identity_once(token: str, plan: SweepPlan) -> Mapping[str, str]:
    """Digests of this worker's files, taken once a sweep."""
    if token not in _known:
        _known.clear()
        _known[token] = identity(plan)
    return _known[token]
