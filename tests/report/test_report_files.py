from __future__ import annotations

from pathlib import Path

import pytest

from planner.errors import OutputError
from planner.files import check_outputs, check_path, manifest_path, written_whole


def test_a_file_appears_whole(tmp_path):
    path = tmp_path / "a.txt"
    with written_whole(path) as stream:
        stream.write("new")
        assert not path.exists()
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def fail_while_writing(path: Path, error: type[BaseException]) -> None:
    with written_whole(path) as stream:
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
    with pytest.raises(OutputError, match="No space left on device"), written_whole(path):
        raise OSError(28, "No space left on device")
    assert list(tmp_path.iterdir()) == []


def test_a_link_stays_a_link(tmp_path):
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("old")
    link.symlink_to(target)
    with written_whole(link) as stream:
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
