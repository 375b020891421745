"""Files of users: regular, bounded, of numbers that can be computed with."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from planner import errors
from planner.base import read_files
from planner.errors import LaunchError, SpecError

ROOT = Path(__file__).resolve().parents[1]


def test_a_pipe_without_a_writer_and_a_device_are_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path, Path("/dev/zero"), Path("/dev/null")):
        with pytest.raises(LaunchError, match="is not a regular file"):
            read_files.read_bytes(path, error=LaunchError)


def test_what_cannot_be_opened_says_why(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    for name in ("x" * 300, "loop", "loop/x", "none", "a\0b", "\ud800"):
        with pytest.raises(SpecError, match="cannot be read"):
            read_files.read_text(tmp_path / name)


def test_a_file_is_no_larger_than_such_files_are(tmp_path: Path) -> None:
    path = tmp_path / "large"
    with path.open("wb") as file:
        file.truncate(read_files.MEBIBYTE + 1)
    assert len(read_files.read_bytes(path, read_files.MEBIBYTE + 1)) == read_files.MEBIBYTE + 1
    with pytest.raises(SpecError, match="is larger than 1 MiB"):
        read_files.read_bytes(path, read_files.MEBIBYTE)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[" * 150 + "]" * 150, "nested more than 100 deep"),
        ("[" * 10_000, "nested too deep"),
        ('{"a": [1, ' + "9" * 400 + "]}", r"a\.1 is a whole number beyond"),
        ('{"a": {"b": ' + "9" * 5000 + "}}", "is not valid JSON"),
        ('{"a": 1e999}', "a is not a finite number"),
        ('{"a": NaN}', "a is not a finite number"),
        ('{"a": "\\ud800"}', "a is not valid text"),
        ('{"\\ud800": 1}', "a key is not valid text"),
        ('{"a": 1', "is not valid JSON"),
    ],
)
def test_json_is_shallow_and_finite(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(SpecError, match=rf"a\.json: .*{said}"):
        read_files.read_json(path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a = " + "[" * 150 + "]" * 150, "nested more than 100 deep"),
        (".".join("a" * 5000) + " = 1", "nested more than 100 deep"),
        ("[a]\nb = " + "9" * 400, r"a\.b is a whole number beyond"),
        ("a = 1e999", "a is not a finite number"),
        ("a = ", "is not valid TOML"),
    ],
)
def test_toml_is_shallow_and_finite(text: str, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        read_files.parse_toml(text, "a.toml")


def test_a_mark_of_the_byte_order_is_no_part_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes("\ufeffa = 1\r\nb = 2\r".encode())
    assert read_files.read_toml(path) == {"a": 1, "b": 2}
    path.write_bytes("\ufeffa,b\r\n1,2\r\n".encode())
    assert [*read_files.read_csv(path)] == [(1, ["a", "b"]), (2, ["1", "2"])]
    path.write_bytes("a".encode("utf-16"))
    for read in (read_files.read_text, lambda one: [*read_files.read_csv(one)]):
        with pytest.raises(SpecError, match="is not UTF-8 text"):
            read(path)


def test_a_line_of_a_table_is_bounded(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("x" * (read_files.LONGEST_LINE + 1))
    with pytest.raises(SpecError, match="has a line of more than 1,048,576 characters"):
        [*read_files.read_csv(path)]
    path.write_text('a\n"b')
    with pytest.raises(SpecError, match=r"a\.csv:2: is not valid CSV"):
        [*read_files.read_csv(path)]


# Files of the package itself, texts of its own, and streams that are written.
_OTHERS = re.compile(
    r"files\(|\.open\(\"(x|w|a)|lambda temporary|os\.open\(|"
    r"(json_nodes|yaml_tree|user_cache|specs/file_cache|base/read_files|html|option_table|terms|hugging_face_families)\.py|"
    r"(logs/log_reader|logs/source|logs/traces|pages/page_of_file|workloads/saved_plan|ui/app)\.py"
)
_READS = re.compile(
    r"\.read_text\(encoding|\.read_bytes\(\)|\.open\(|json\.loads\(|tomllib\.loads?\("
)


def test_files_are_read_in_one_place() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in sorted((ROOT / "planner").rglob("*.py"))
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if _READS.search(line) and not _OTHERS.search(f"{path}{line}")
    ]
    assert found == [], "read files by planner.base.read_files"


def test_the_table_of_exit_codes_is_that_of_the_errors() -> None:
    table = (ROOT / "docs" / "how-to" / "files.md").read_text().partition("## Exit codes")[2]
    told = {int(code) for code in re.findall(r"^\| (\d+) \|", table, re.M)}
    kinds = [one for one in vars(errors).values() if isinstance(one, type)]
    raised = {one.exit_code for one in kinds if issubclass(one, errors.PlannerError)}
    assert told == {0, *raised}
