"""Files as they lie on a disk: devices, sizes, ends of lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from planner.errors import LaunchError
from planner.launch.read.read_launch import read_launch

SCRIPT = "vllm serve meta-llama/Llama-3.1-70B-Instruct \\\r\n  --tensor-parallel-size 8\r\n"


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="needs /dev/zero")
def test_a_file_without_end_is_refused() -> None:
    with pytest.raises(LaunchError, match="is not a regular file"):
        read_launch(Path("/dev/zero"))


def test_a_large_file_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "big.yaml"
    with path.open("wb") as file:
        file.truncate(100_000_000)
    with pytest.raises(LaunchError, match="larger than 4 MiB"):
        read_launch(path)


def test_ends_of_lines_stay(tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_bytes(SCRIPT.encode())
    imported = read_launch(path)
    assert imported.command.text == SCRIPT
    assert imported.command.options["--tensor-parallel-size"].texts == ("8",)
