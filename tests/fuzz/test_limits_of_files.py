"""What is longer than any file of its kind is refused, with what and how much."""

from __future__ import annotations

from pathlib import Path

import pytest

from planner.base.read_files import parse_csv, parse_toml
from planner.documents.code_blocks import blocks_of
from planner.documents.shell import read_shell
from planner.errors import LaunchError, SpecError


def test_a_table_has_at_most_a_thousand_columns() -> None:
    assert len(next(parse_csv(["1," * 999], Path("a.csv")))[1]) == 1000
    with pytest.raises(SpecError, match=r"a.csv:1: has 1,001 cells; tables of up to 1,000"):
        next(parse_csv(["1," * 1000], Path("a.csv")))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a\n" * 4001, "up to 4,000 commands"),
        ("a " * 20_001, "up to 20,000 words"),
        ("f() {\n" + "a\n" * 100 + "}\n" + "f\n" * 100, "up to 4,000 commands"),
    ],
)
def test_a_script_has_so_many_commands_and_words(text: str, words: str) -> None:
    with pytest.raises(LaunchError, match=words):
        read_shell(text, name="run.sh")


def test_a_long_key_of_toml_is_too_deep() -> None:
    with pytest.raises(SpecError, match="nested more than 100 deep"):
        parse_toml("a" + ".b" * 50_000 + " = 1", "a.toml")
    assert parse_toml("# " + "." * 500 + "\na.b = 1", "a.toml") == {"a": {"b": 1}}


def test_blocks_of_a_long_text_are_too_many() -> None:
    block = "```sh\na\n```\n"
    assert len([*blocks_of(block * 100, ("sh",))]) == 100
    with pytest.raises(LaunchError, match="5,000 blocks of code in 60,000 characters"):
        next(blocks_of(block * 5000, ("sh",)))
