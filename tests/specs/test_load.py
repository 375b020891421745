"""Files are read whole only where they are files, and no larger than such files are."""

from __future__ import annotations

import os
import tracemalloc
from pathlib import Path

import pytest

from planner.base.read_files import SMALL
from planner.errors import SpecError
from planner.specs.catalogue import load_gpu, load_model
from planner.specs.price import read_prices
from planner.specs.spec_files import read_bytes, read_text, read_toml


@pytest.fixture
def endless(tmp_path: Path) -> Path:
    device = Path("/dev/zero")
    if not device.exists():
        pytest.skip("the system has no such device")
    return device


def test_a_device_is_refused_before_it_is_read(endless: Path) -> None:
    for read in (read_bytes, read_text, read_toml, read_prices):
        with pytest.raises(SpecError, match="/dev/zero: is not a regular file"):
            read(endless)


@pytest.mark.parametrize("name", ["m.json", "m.toml", "folder/config.json"])
def test_a_link_to_a_device_is_no_model(name: str, tmp_path: Path, endless: Path) -> None:
    link = tmp_path / name
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(endless)
    with pytest.raises(SpecError, match="is not a regular file"):
        load_model(str(link))


def test_a_device_is_no_gpu(endless: Path) -> None:
    with pytest.raises(SpecError, match="is not a regular file"):
        load_gpu(str(endless))


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.toml"
    os.mkfifo(pipe)
    with pytest.raises(SpecError, match="is not a regular file"):
        read_toml(pipe)


def test_a_larger_file_is_refused_without_being_held(tmp_path: Path) -> None:
    path = tmp_path / "large.json"
    path.touch()
    os.truncate(path, 2**34)
    tracemalloc.start()
    with pytest.raises(SpecError, match=r"large\.json: is larger than 4 MiB"):
        load_model(str(path))
    assert tracemalloc.get_traced_memory()[1] < 4 * SMALL
    tracemalloc.stop()


def test_the_limit_is_the_largest_size(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_bytes(b"12345")
    assert read_text(path, 5) == "12345"
    with pytest.raises(SpecError, match="is larger than"):
        read_text(path, 4)


@pytest.mark.parametrize("content", [b"a\r\nb\n", b"a\rb\r\n", b"a\nb\n"])
def test_lines_end_with_one_newline(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_bytes(content)
    assert read_text(path) == "a\nb\n"


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    path = tmp_path / "text"
    with pytest.raises(SpecError, match=r"text: cannot be read \(No such file"):
        read_text(path)
    path.write_bytes(b"\xff")
    with pytest.raises(SpecError, match=r"text: is not UTF-8 text"):
        read_text(path)
    with pytest.raises(SpecError, match=r"cannot be read"):
        read_text(Path("a\0b"))
