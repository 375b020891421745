"""Edits by span, diffs, and values quoted so that shells, YAML and JSON read them back."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
import yaml
from draws import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.documents.shell.edits import Span, apply_edits, make_patch, shell_word
from planner.documents.yaml_writer import json_scalar, yaml_scalar
from planner.errors import LaunchError

ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), ANY_TEXT,
    st.sampled_from(["yes", "No", "~", "null", "1e5", "0x1f", "1_000", "012", "1:30", "=", "<<",
                     "- a", "a: b", "a #b", "{a}", "*a", "&a", "!a", "%a", "@a", "`a", "2020-01-01",
                     "it's", '"', "\n", "\t", " a ", "", "---", "...", "é", "\u2028", "\x85"]),
)  # fmt: skip


def test_edits_replace_put_in_and_remove() -> None:
    text = "a bb ccc"
    assert apply_edits(text, {Span(2, 4): "XYZ", Span(0, 0): "<", Span(4, 8): ""}) == "<a XYZ"


@pytest.mark.parametrize("spans", [[(0, 3), (2, 4)], [(5, 9)], [(3, 2)], [(1, 3), (2, 2)]])
def test_edits_that_overlap_or_lie_outside_are_refused(spans: list[tuple[int, int]]) -> None:
    with pytest.raises(ValueError, match="overlaps"):
        apply_edits("abcde", {Span(*span): "x" for span in spans})


@pytest.mark.skipif(shutil.which("patch") is None, reason="needs the command patch")
@settings(max_examples=examples(200, 12))
@given(before=st.text("ab\n\x0c\u2028", max_size=30), after=st.text("ab\n\x0c\u2028", max_size=30))
def test_patch_takes_a_diff(before: str, after: str) -> None:
    difference = make_patch(before, after, "run.sh")
    assert bool(difference) == (before != after)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "run.sh")
        file.write_bytes(before.encode())
        done = subprocess.run(["patch", "-p0"], input=difference.encode(), cwd=folder, check=False)
        assert done.returncode == 0
        assert (file.read_bytes().decode() if file.exists() else "") == after


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_reads_quoted_words_back() -> None:
    words = [
        *("", "a b", "it's", '"', "$(touch x)", "`id`", "$HOME", "~", "a\nb", "!x", "*", "{1,2}"),
        *("\\", "é\u2028", "-n", "a=~", "#x", ";", "&", "|", "<(x)", "a\\'b", "\x7f\x1b"),
    ]
    script = "printf '%s\\0' " + " ".join(map(shell_word, words))
    done = subprocess.run(["bash", "-c", script], capture_output=True, check=True)
    assert done.stdout.decode().split("\0")[:-1] == words


def test_no_word_holds_a_nul() -> None:
    with pytest.raises(LaunchError, match="NUL"):
        shell_word("a\0b")


@settings(max_examples=examples(1000, 40))
@given(SCALARS)
def test_yaml_reads_scalars_back(value: str | float | bool | None) -> None:
    written = yaml_scalar(value)
    assert "\n" not in written
    assert yaml.safe_load(f"- {written}\n- [{written}, 1]\n- k: {written}  # x") == [
        value, [value, 1], {"k": value},
    ]  # fmt: skip
    assert type(yaml.safe_load(written + "  # x")) is type(value)


@settings(max_examples=examples(1000, 40))
@given(SCALARS.filter(lambda value: value not in (float("inf"), float("-inf"))))
def test_json_reads_scalars_back(value: str | float | bool | None) -> None:
    assert json.loads(json_scalar(value)) == value


@pytest.mark.parametrize("number", [float("inf"), float("nan")])
def test_json_has_no_such_number(number: float) -> None:
    with pytest.raises(LaunchError, match="JSON has no number"):
        json_scalar(number)


@pytest.mark.parametrize("text", ["yes", "No", "on", "y", "true", "null", "~", "1e5", "nan", ""])
def test_text_that_reads_as_something_else_is_quoted(text: str) -> None:
    assert yaml_scalar(text) == f'"{text}"'


def test_plain_values_stay_plain() -> None:
    assert list(map(yaml_scalar, ("bf16", "/data/x.json", 3, -0.5))) == [
        "bf16", "/data/x.json", "3", "-0.5",
    ]  # fmt: skip
    assert shell_word("--tp=8") == "--tp=8"
