from __future__ import annotations

import fcntl
from pathlib import Path

import pytest

from planner.base import atomic_write
from planner.base.atomic_write import (
    check_outputs,
    check_path,
    manifest_path,
    remove_unfinished,
    write_atomically,
)
from planner.errors import OutputError


def test_a_file_appears_whole(tmp_path):
    path = tmp_path / "a.txt"
    with write_atomically(path) as stream:
        stream.write("new")
        assert not path.exists()
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def fail_while_writing(path: Path, error: type[BaseException]) -> None:
    with write_atomically(path) as stream:
        stream.write("new")
        raise error


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, MemoryError])
def test_a_failure_keeps_the_old_file_and_leaves_no_other(tmp_path, error):
    path = tmp_path / "a.txt"
    path.write_text("old")
    with pytest.raises(error):
        fail_while_writing(path, error)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_becomes_an_output_error(tmp_path):
    path = tmp_path / "a.txt"
    with pytest.raises(OutputError, match="No space left on device"), write_atomically(path):
        raise OSError(28, "No space left on device")
    assert list(tmp_path.iterdir()) == []


def test_a_link_stays_a_link(tmp_path):
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("old")
    link.symlink_to(target)
    with write_atomically(link) as stream:
        stream.write("new")
    assert link.is_symlink()
    assert target.read_text() == "new"


@pytest.mark.parametrize("name", [".", "nowhere/a.csv", "a" * 300])
def test_paths_that_cannot_be_written_are_refused(tmp_path, name):
    with pytest.raises(OutputError):
        check_path(tmp_path / name)


def test_a_manifest_may_not_land_on_the_json(tmp_path):
    csv = tmp_path / "a.csv"
    assert manifest_path(csv).name == "a.manifest.json"
    with pytest.raises(OutputError, match="manifest"):
        check_outputs(csv, manifest_path(csv))


def test_what_a_living_writer_has_begun_is_left_to_it(tmp_path):
    left = tmp_path / ".planner-0123456789ab.tmp"
    left.write_text("of one that was killed")
    with write_atomically(tmp_path / "a.txt") as stream:
        assert not left.exists()
        stream.write("new")
        remove_unfinished(tmp_path)
    assert (tmp_path / "a.txt").read_text() == "new"


def test_a_file_that_was_taken_for_left_behind_is_begun_again(tmp_path, monkeypatch):
    lock, taken = fcntl.flock, []

    def after_another_looked(number, how):
        if not taken:
            taken.extend(tmp_path.glob(atomic_write.TEMPORARY))
            taken[0].unlink()
        lock(number, how)

    monkeypatch.setattr(fcntl, "flock", after_another_looked)
    with write_atomically(tmp_path / "a.txt") as stream:
        stream.write("new")
    assert len(taken) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


def test_where_there_are_no_locks_files_are_written_all_the_same(tmp_path, monkeypatch):
    def none(number, how):
        raise OSError(37, "No locks available")

    monkeypatch.setattr(fcntl, "flock", none)
    left = tmp_path / ".planner-0123456789ab.tmp"
    left.touch()
    with write_atomically(tmp_path / "a.txt") as stream:
        stream.write("new")
    assert left.exists()  # it may be another's
    assert (tmp_path / "a.txt").read_text() == "new"
