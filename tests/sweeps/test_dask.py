"""Sweeps on the workers of a real Dask cluster."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from distributed import Client, LocalCluster
from distributed.comm import CommClosedError

from planner.base.version import __version__
from planner.errors import MissingDependencyError
from planner.sweeps import dask_workers, sweep_folder
from planner.sweeps.dask_workers import ClusterError, on_dask
from planner.sweeps.find_plan import make_sweep
from planner.sweeps.plan import SweepPlan
from planner.sweeps.run_sweep import Done, Stopped, run_sweep
from planner.sweeps.scenario_batches import ScenarioBatch

PLAN = {
    "model": "llama-7b",
    "gpu": "a100-sxm-80gb",
    "num_gpus": [8, 16, 32, 64],
    "global_batch_size": list(range(256, 256 + 8 * 128, 128)),
    "space": "single",
    "framework": "fsdp",
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A worker process with two threads."""
    made: Any = LocalCluster
    with made(
        n_workers=1, threads_per_worker=2, processes=True, dashboard_address=":0", silence_logs=50
    ) as found:
        yield found


@pytest.fixture(scope="module")
def plan() -> SweepPlan:
    return make_sweep(PLAN)


@pytest.fixture(scope="module")
def here(plan: SweepPlan, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """What this process makes of the plan."""
    folder = tmp_path_factory.mktemp("here")
    run_sweep(plan, folder)
    return contents(folder)


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a directory."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.mark.slow
def test_a_cluster_makes_the_same_bytes(
    cluster: Any, plan: SweepPlan, here: dict[str, bytes], tmp_path: Path
) -> None:
    run_sweep(plan, tmp_path, run=on_dask(cluster.scheduler_address))
    assert contents(tmp_path) == here


@pytest.mark.drawn
def test_what_a_killed_worker_had_is_done_by_another(
    cluster: Any, plan: SweepPlan, here: dict[str, bytes], tmp_path: Path
) -> None:
    connected: Any = Client
    cluster.scale(2)
    with connected(cluster.scheduler_address, set_as_default=False) as client:
        client.wait_for_workers(2)
        processes = [*client.run(os.getpid).values()]
    killed = []

    def kill(done: int) -> None:
        if done and not killed:
            os.kill(processes[0], signal.SIGKILL)
            killed.append(done)

    run_sweep(plan, tmp_path, run=on_dask(cluster.scheduler_address), progress=kill)
    assert killed
    assert killed[0] < plan.num_scenarios, "it was killed after the work"
    assert contents(tmp_path) == here


@pytest.mark.drawn
def test_work_that_ends_its_workers_is_named(
    cluster: Any, plan: SweepPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def deadly(task: Any, part: ScenarioBatch) -> bytes:
        os._exit(1)

    monkeypatch.setattr(dask_workers, "run_on_worker", deadly)
    monkeypatch.setattr(cluster.scheduler, "allowed_failures", 0)
    with pytest.raises(ClusterError, match=r"Scenarios \d+ to \d+ crashed .* to continue"):
        run_sweep(plan, tmp_path, run=on_dask(cluster.scheduler_address))


def test_a_fault_of_the_program_is_not_taken_for_one_of_the_cluster(
    cluster: Any, plan: SweepPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def faulty(task: Any, part: ScenarioBatch) -> bytes:
        raise OSError("of a part")

    monkeypatch.setattr(dask_workers, "run_on_worker", faulty)
    with pytest.raises(OSError, match="of a part"):
        run_sweep(plan, tmp_path, run=on_dask(cluster.scheduler_address))


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (CommClosedError("in rpc"), ""),
        (OSError("Timed out trying to connect to tcp://10.0.0.1:40331 after 30 s"), ""),
        (ConnectionRefusedError(111, "Connection refused"), ""),
        (TimeoutError(), ""),
        (CancelledError(), ""),
        (FileNotFoundError(2, "No such file or directory", "gpus"), "no working planner"),
        (ModuleNotFoundError("No module named 'planner'"), "no working planner"),
        ({"planner": "another"}, "has another"),
    ],
)
def test_a_worker_that_is_lost_while_all_are_compared_is_no_other_planner(
    answer: Any, words: str
) -> None:
    """docs/how-to/clusters.md: work of a lost worker is given to others."""
    found = dask_workers._describe_mismatch({"planner": "mine"}, answer)
    assert words in found if words else not found


class OfScheduler:
    """A client of a scheduler with these workers; ``answers`` are those of its calls, in order."""

    status = "running"
    scheduler = type("Scheduler", (), {"address": "tcp://10.0.0.1:8786"})()

    def __init__(self, workers: list[str], answers: list[Any], is_lost: bool = False) -> None:
        self.workers, self.answers, self.is_lost = workers, answers, is_lost

    def nthreads(self) -> dict[str, int]:
        if self.is_lost:
            raise CommClosedError("in nthreads")
        return dict.fromkeys(self.workers, 1)

    def run(self, *arguments: Any, on_error: str) -> Any:
        answer = self.answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer


def check(plan: SweepPlan, client: OfScheduler) -> None:
    """Compare the workers of a client with this process, whose planner is called mine."""
    task = dask_workers._Task(plan=plan, identity={"planner": "mine"}, token="of this test")
    dask_workers._check_workers(client, task)


def test_a_worker_that_is_lost_in_the_start_check_is_not_the_scheduler(plan: SweepPlan) -> None:
    same = {"a": {"planner": "mine"}}
    for error in (CommClosedError("in rpc"), CancelledError(), TimeoutError()):
        client = OfScheduler(["a"], [error, same])
        check(plan, client)
        assert not client.answers, "the others are asked again"
        check(plan, OfScheduler(["a"], [error] * 9))  # each batch compares its worker
    with pytest.raises(ClusterError, match="worker a has another planner"):
        check(plan, OfScheduler(["a"], [CancelledError(), {"a": {"planner": "another"}}]))
    check(plan, OfScheduler(["b"], [{"a": ValueError("killed while it answered")}]))
    with pytest.raises(ClusterError, match="Lost the connection to the scheduler"):
        check(plan, OfScheduler(["a"], [CommClosedError("in rpc")], is_lost=True))


@pytest.mark.slow
def test_a_worker_that_ends_in_the_start_check_does_not_end_the_sweep(
    cluster: Any,
    plan: SweepPlan,
    here: dict[str, bytes],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended, results = tmp_path / "ended", tmp_path / "results"
    identity = dask_workers.identity_once

    def ends_once(token: str, plan: SweepPlan) -> Any:
        if not ended.exists():
            ended.touch()
            os._exit(1)
        return identity(token, plan)

    monkeypatch.setattr(dask_workers, "identity_once", ends_once)
    run_sweep(plan, results, run=on_dask(cluster.scheduler_address))
    assert ended.exists()
    assert contents(results) == here


@pytest.mark.slow
def test_the_user_stops_it_and_goes_on(
    cluster: Any,
    plan: SweepPlan,
    here: dict[str, bytes],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[int] = []
    monkeypatch.setattr(dask_workers, "is_stop_requested", lambda: bool(asked and asked[-1]))
    run = on_dask(cluster.scheduler_address)
    with pytest.raises(Stopped, match="to continue"):
        run_sweep(plan, tmp_path, run=run, progress=asked.append)
    assert cluster.scheduler.tasks == {}, "what is not wanted any more is cancelled"
    asked.clear()
    monkeypatch.undo()
    found: list[int] = []
    run_sweep(plan, tmp_path, run=run, progress=found.append)
    assert found[0] > 0, "it began anew"
    assert contents(tmp_path) == here


def test_few_parts_wait_on_the_cluster(
    cluster: Any, plan: SweepPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dask_workers, "_MIN_WAITING", 1)
    monkeypatch.setattr(dask_workers, "_WAITING_PER_THREAD", 1)
    given: list[ScenarioBatch] = []

    def parts() -> Iterator[ScenarioBatch]:
        for number in range(40):
            given.append(ScenarioBatch(number, number, number + 1))
            yield given[-1]

    run = on_dask(cluster.scheduler_address)
    found: Iterator[Done] = run(plan, parts())
    next(found)
    assert len(given) <= 4
    assert len([*found]) == 39


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"version": "9.9"}, rf"version \({re.escape(__version__)}, here 9\.9\)"),
        ({"numpy": "1.0"}, r"numpy \(\d+\.\d+\.\d+, here 1\.0\)"),
        ({"program": "other", "specs": "other"}, "program and specs"),
    ],
)
def test_workers_that_would_compute_something_else_are_named(
    cluster: Any,
    plan: SweepPlan,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    changed: dict[str, str],
    words: str,
) -> None:
    mine = {**sweep_folder.identity(plan), **changed}
    monkeypatch.setattr(dask_workers, "identity", lambda plan: mine)
    with pytest.raises(ClusterError, match=rf"worker tcp://\S+ has another {words}"):
        run_sweep(plan, tmp_path, run=on_dask(cluster.scheduler_address))
    assert not [*tmp_path.glob("parts/*.gz")]


def test_a_worker_without_planner_is_named(
    cluster: Any, plan: SweepPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(token: str, plan: SweepPlan) -> dict[str, str]:
        raise ModuleNotFoundError("No module named 'planner'")

    monkeypatch.setattr(dask_workers, "identity_once", missing)
    with pytest.raises(ClusterError, match=r"worker \S+ has no working planner .*No module named"):
        run_sweep(plan, tmp_path, run=on_dask(cluster.scheduler_address))


def test_a_worker_that_comes_later_is_checked_too(plan: SweepPlan) -> None:
    mine = {**sweep_folder.identity(plan), "program": "other"}
    task = dask_workers._Task(plan=plan, identity=mine, token="of this test")
    with pytest.raises(ClusterError, match="new worker has a different program"):
        dask_workers.run_on_worker(task, ScenarioBatch(0, 0, 1))


def test_without_workers_it_waits_and_says_so(
    plan: SweepPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    monkeypatch.setattr(dask_workers, "is_stop_requested", lambda: bool(told))
    made: Any = LocalCluster
    with (
        made(n_workers=0, processes=False, dashboard_address=":0", silence_logs=50) as empty,
        pytest.raises(Stopped),
    ):
        run_sweep(plan, tmp_path, run=on_dask(empty.scheduler_address, told.append))
    assert "No worker at" in told[0]


def _nobody() -> str:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return f"tcp://127.0.0.1:{listening.getsockname()[1]}"


def _web_server() -> str:
    listening = socket.create_server(("127.0.0.1", 0))

    def answer() -> None:
        with listening:
            connection, _ = listening.accept()
            with connection:
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 9)
                connection.recv(4096)

    threading.Thread(target=answer, daemon=True).start()
    return f"127.0.0.1:{listening.getsockname()[1]}"


@pytest.mark.parametrize("address", [_nobody, _web_server, lambda: "word://a:1", lambda: ""])
def test_an_address_without_a_scheduler_is_one_error(
    plan: SweepPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: Callable[[], str]
) -> None:
    monkeypatch.setattr(dask_workers, "_PATIENCE_S", 1.0)
    with pytest.raises(ClusterError, match="No Dask scheduler answers at"):
        run_sweep(plan, tmp_path, run=on_dask(address()))


class _Gone:
    """What a client has of a cluster whose scheduler ends when ``at`` is asked of it."""

    def __init__(self, at: str, error: BaseException) -> None:
        self.at, self.error, self.client = at, error, self
        self.status = "error" if at == "exception" else "running"
        self.scheduler: Any = type("Scheduler", (), {"address": "tcp://10.0.0.1:8786"})

    def __getattr__(self, name: str) -> Any:
        def ask(*words: Any, **more: Any) -> Any:
            if name == self.at:
                self.status = "closed"
                raise self.error
            return {"nthreads": {"worker": 1}, "run": {}, "submit": self}.get(name)

        return ask

    def add_done_callback(self, told: Callable[[Any], None]) -> None:
        told(self)


@pytest.mark.parametrize("at", ["nthreads", "run", "submit", "exception", "result", "release"])
@pytest.mark.parametrize(
    "error",
    [CommClosedError("in <TCP>"), TimeoutError(), CancelledError("key"), RuntimeError("closed")],
    ids=lambda error: type(error).__name__,
)
def test_a_scheduler_that_ends_in_the_middle_is_one_error(
    plan: SweepPlan,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    at: str,
    error: BaseException,
) -> None:
    monkeypatch.setattr(dask_workers, "_connect", lambda address: nullcontext(_Gone(at, error)))
    monkeypatch.setattr(dask_workers, "identity", lambda plan: {})
    monkeypatch.setattr(sweep_folder, "identity", lambda plan: {})
    with pytest.raises(
        ClusterError,
        match=r"Lost .* tcp://10\.0\.0\.1:8786\. .*to continue",
    ):
        run_sweep(plan, tmp_path, run=on_dask("tcp://10.0.0.1:8786"))


@pytest.mark.drawn
def test_a_scheduler_that_is_killed_has_an_exit_code_of_its_own(tmp_path: Path) -> None:
    script = Path(__file__).with_name("a_scheduler.py")
    words = [sys.executable, "-m", "planner", "sweep", "--model", "llama-7b", "--gpus", "8"]
    with subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True) as scheduler:
        assert scheduler.stdout is not None
        address = scheduler.stdout.readline().strip()
        more = ["--output", str(tmp_path / "out"), "--dask", address]
        with subprocess.Popen([*words, *more], stderr=subprocess.PIPE, text=True) as sweep:
            assert sweep.stderr is not None
            assert "No worker at" in sweep.stderr.readline()
            scheduler.kill()
            told = sweep.stderr.read()
    assert sweep.returncode == 9, told
    assert f"Lost the connection to the scheduler {address}." in told


def test_the_address_of_a_worker_is_told(cluster: Any, plan: SweepPlan, tmp_path: Path) -> None:
    worker = next(iter(cluster.scheduler.workers))
    with pytest.raises(ClusterError, match="that is the address of a worker"):
        run_sweep(plan, tmp_path, run=on_dask(worker))


@pytest.mark.slow
def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(MissingDependencyError, match=r"llm-gpu-planner\[dask\]"):
        on_dask("tcp://127.0.0.1:1")


@pytest.mark.slow
def test_processes_and_a_cluster_are_not_asked_for_together(planner: Any, tmp_path: Path) -> None:
    ran = planner(
        "sweep",
        "--model",
        "llama-7b",
        "--output",
        tmp_path / "out",
        "--dask",
        "a:1",
        "--workers",
        2,
    )
    assert ran.exit_code == 3
    assert "--workers" in ran.err
