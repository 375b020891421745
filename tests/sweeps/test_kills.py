"""A sweep that is killed at any moment goes on with the same command, and ends the same."""

from __future__ import annotations

import gzip
import json
import re
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from planner.errors import OutputError
from planner.sweeps import sweep_folder
from planner.sweeps.find_plan import read_plan
from planner.sweeps.plan import SweepPlan
from planner.sweeps.run_sweep import on_cores, run_sweep
from planner.sweeps.scenario_batches import ScenarioBatch, is_complete_part
from planner.sweeps.sweep_folder import Store

PLAN = """
model = "llama-7b"
gpu = "a100-sxm-80gb"
num_gpus = [8, 16, 32, 64]
global_batch_size = [256, 384, 512, 640, 768, 896, 1024, 1152, 1280, 1408, 1536, 1664, 1792, 1920]
space = "single"
framework = "fsdp"
"""
PATIENCE_S = 120.0


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("plan") / "plan.toml"
    path.write_text(PLAN)
    return path


@pytest.fixture(scope="module")
def plan(file: Path) -> SweepPlan:
    return read_plan(str(file))


@pytest.fixture(scope="module")
def whole(plan: SweepPlan, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """What nobody disturbed."""
    folder = tmp_path_factory.mktemp("whole")
    run_sweep(plan, folder)
    return contents(folder)


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a directory but the lock."""
    files = sorted(
        path for path in folder.rglob("*") if path.is_file() and path.name != sweep_folder.LOCK
    )
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def started(file: Path, folder: Path, *options: str, **extra: Any) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "planner", "sweep", str(file), "--output", str(folder)]
    return subprocess.Popen(
        [*command, *(options or ("--workers", "2"))],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        **extra,
    )


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    _, words = process.communicate(timeout=PATIENCE_S)
    return process.returncode, words


def until(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.005)


@pytest.mark.drawn
def test_killed_at_random_it_ends_with_the_bytes_of_one_that_was_not(tmp_path: Path) -> None:
    kills = 100
    script = Path(__file__).with_name("killed_at_random.py")
    words = [sys.executable, script, tmp_path, str(kills)]
    ran = subprocess.run(words, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    print(ran.stdout)  # the seed
    assert sum(map(int, re.findall("ended ([0-9]+) times", ran.stdout))) == kills


@pytest.mark.slow
def test_killed_at_each_write_it_ends_the_same(tmp_path: Path) -> None:
    script = Path(__file__).with_name("killed_at_writes.py")
    ran = subprocess.run([sys.executable, script, tmp_path], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert int(ran.stdout) > 30


def test_workers_end_with_the_program_and_leave_the_directory_free(
    file: Path, plan: SweepPlan, tmp_path: Path
) -> None:
    process = started(file, tmp_path)
    until(lambda: any((tmp_path / "parts").glob("*.gz")))
    workers = psutil.Process(process.pid).children()
    assert len(workers) == 2
    for worker in workers:
        worker.suspend()  # they still have what they had of the program
    process.kill()
    process.wait()
    assert process.stderr is not None
    process.stderr.close()
    with Store.opened(tmp_path, plan) as again:
        assert again.done
    for worker in workers:
        worker.resume()
    _, left = psutil.wait_procs(workers, timeout=PATIENCE_S)
    assert not left


@pytest.mark.drawn
def test_a_worker_that_is_killed_is_replaced(
    plan: SweepPlan, whole: dict[str, bytes], tmp_path: Path
) -> None:
    known = {child.pid for child in psutil.Process().children()}
    killed = []

    def kill(done: int) -> None:
        if done and not killed:
            (first, *_) = (c for c in psutil.Process().children() if c.pid not in known)
            first.kill()
            killed.append(first)

    run_sweep(plan, tmp_path, run=on_cores(2), progress=kill)
    assert killed
    assert contents(tmp_path) == whole


@pytest.mark.drawn
def test_a_full_disk_is_told_and_the_rest_goes_on(
    file: Path, whole: dict[str, bytes], tmp_path: Path
) -> None:
    largest = max(map(len, whole.values()))
    parts = 10_000
    assert parts < largest

    def small_disk() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (parts, parts))

    code, words = ended(started(file, tmp_path, preexec_fn=small_disk))
    assert code == 8
    assert "cannot be written" in words
    assert "Traceback" not in words
    assert not [*tmp_path.rglob(".planner-*")]
    assert ended(started(file, tmp_path)) == (0, "")
    assert contents(tmp_path) == whole


@pytest.mark.slow
def test_a_second_one_is_kept_from_the_directory_of_the_first(
    file: Path, plan: SweepPlan, tmp_path: Path
) -> None:
    with Store.opened(tmp_path, plan):
        code, words = ended(started(file, tmp_path))
    assert code == 8
    assert "another sweep is writing there" in words


def test_a_place_that_cannot_be_written_is_told(planner: Any, file: Path) -> None:
    ran = planner("sweep", file, "--output", file / "within a file")
    assert ran.exit_code == 8
    assert "give another --output" in ran.err


@pytest.fixture(scope="module")
def stopped(plan: SweepPlan, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with some of the parts."""
    folder = tmp_path_factory.mktemp("stopped")

    def stop(done: int) -> None:
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_sweep(plan, folder, progress=stop)
    return folder


@pytest.fixture
def part_done(stopped: Path, tmp_path: Path) -> Path:
    """A copy of it that a test may change."""
    shutil.copytree(stopped, tmp_path, dirs_exist_ok=True)
    return tmp_path


@pytest.mark.parametrize("damage", [lambda old: old[:-9], lambda old: b"", lambda old: old[:40]])
def test_a_damaged_part_is_run_again(
    plan: SweepPlan, part_done: Path, damage: Callable[[bytes], bytes]
) -> None:
    (path,) = (part_done / "parts").glob("*.gz")
    before = path.read_bytes()
    path.write_bytes(damage(before))
    with Store.opened(part_done, plan) as found:
        assert found.done == 0
    path.write_bytes(before)
    with Store.opened(part_done, plan) as found:
        assert found.done == 16


def test_a_part_with_other_bytes_is_not_whole(tmp_path: Path) -> None:
    path, part = tmp_path / "part.gz", ScenarioBatch(0, 0, 2)
    path.write_bytes(gzip.compress(b"{}\n" * 5, mtime=0))
    assert is_complete_part(path, part)
    content = bytearray(path.read_bytes())
    content[-8] ^= 1  # the checksum of what is in it
    path.write_bytes(content)
    assert not is_complete_part(path, part)


@pytest.mark.parametrize("name", ["version", "numpy", "program", "specs", "files"])
def test_results_of_something_else_are_not_gone_on_with(
    plan: SweepPlan, part_done: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    other = {**sweep_folder.identity(plan), name: "other"}
    monkeypatch.setattr(sweep_folder, "identity", lambda plan: other)
    with (
        pytest.raises(OutputError, match=f"different {name}.*--fresh"),
        Store.opened(part_done, plan),
    ):
        pass
    with Store.opened(part_done, plan, fresh=True) as begun:
        assert begun.done == 0


def test_another_plan_is_refused_and_begun_afresh(part_done: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.toml"
    other.write_text(PLAN.replace("llama-7b", "llama-13b"))
    asked = read_plan(str(other))
    other.unlink()
    with pytest.raises(OutputError, match=r"another plan.*--fresh"), Store.opened(part_done, asked):
        pass
    with Store.opened(part_done, asked, fresh=True) as begun:
        assert begun.done == 0
        assert json.loads((part_done / "plan.json").read_text())["digest"] == asked.digest


def test_a_file_that_a_plan_names_is_part_of_it(tmp_path: Path) -> None:
    named = tmp_path / "own.toml"
    named.write_text(Path("search_spaces/single.toml").read_text())
    file = tmp_path / "plan.toml"
    file.write_text(PLAN.replace('"single"', f'"{named}"'))
    asked = read_plan(str(file))
    with Store.opened(tmp_path / "out", asked):
        pass
    named.write_text(named.read_text() + "\n# changed\n")
    with (
        pytest.raises(OutputError, match="different files"),
        Store.opened(tmp_path / "out", asked),
    ):
        pass


def test_own_specs_that_change_are_noticed(file: Path, tmp_path: Path) -> None:
    specs = tmp_path / "specs"
    (specs / "gpus").mkdir(parents=True)
    own = specs / "gpus" / "own.toml"
    own.write_text(Path("hardware_specs/gpus/a100-sxm-80gb.toml").read_text())
    asked = read_plan(str(file), specs)
    with Store.opened(tmp_path / "out", asked):
        pass
    own.write_text(own.read_text() + "\n# changed\n")
    with (
        pytest.raises(OutputError, match="different specs"),
        Store.opened(tmp_path / "out", asked),
    ):
        pass


@pytest.mark.parametrize("fresh", [False, True])
def test_files_of_somebody_else_are_left_alone(
    plan: SweepPlan, tmp_path: Path, fresh: bool
) -> None:
    (tmp_path / "manifest.json").write_text("{}")
    with (
        pytest.raises(OutputError, match=r"do not belong to a sweep, such as manifest\.json"),
        Store.opened(tmp_path, plan, fresh=fresh),
    ):
        pass
    assert (tmp_path / "manifest.json").read_text() == "{}"


@pytest.mark.parametrize("found", ["[]", "{", '{"digest": 1}'])
def test_a_plan_that_is_no_sweeps_is_told(plan: SweepPlan, tmp_path: Path, found: str) -> None:
    (tmp_path / "plan.json").write_text(found)
    with (
        pytest.raises(OutputError, match="is not a file of a sweep"),
        Store.opened(tmp_path, plan),
    ):
        pass
