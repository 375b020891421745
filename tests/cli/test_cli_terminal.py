"""What a name with control characters does to a terminal: nothing."""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path

import pytest

from planner.base.formatting import printable
from planner.show.output_blocks import TOTAL, make_lines, text_table
from planner.show.terminal import make_console, print_blocks

EVIL = "x\x1b]0;owned\x07\x1b[31m\x9b2J\r\u202e"
CONTROLS = re.compile(r"[^\n\x20-\x7e\xa0-\u2029\u202f-\uffff]")
ROOT = Path(__file__).parents[2]
# As a terminal of rich's gets it: colours and weights, no other sequence.
STYLE = re.compile(r"\x1b\[[0-9;]*m")


def copied(source: Path, target: Path, name: str) -> Path:
    """A copy of a TOML file with another name in it."""
    text = source.read_text(encoding="utf-8")
    target.write_text(
        re.sub("^name = .*$", lambda _: f"name = {json.dumps(name)}", text, flags=re.MULTILINE),
        encoding="utf-8",
    )
    return target


@pytest.mark.parametrize("command", ["search", "estimate"])
@pytest.mark.parametrize("output", [(), ("--csv", "-"), ("--json", "-")])
def test_names_in_files_reach_no_terminal(planner, tmp_path, command, output):
    model = copied(ROOT / "planner/model_specs/llama-7b.toml", tmp_path / "m.toml", EVIL)
    gpu = copied(ROOT / "hardware_specs/gpus/h100-sxm-80gb.toml", tmp_path / "g.toml", EVIL)
    if command == "estimate" and "--csv" in output:
        pytest.skip("an estimate is no table")
    words = ("--model", model, "--gpu", gpu, "--gpus", "8", *output)
    ran = planner(command, *words, *(("--space", "small") if command == "search" else ()))
    assert ran.exit_code == 0
    assert "owned" in ran.out + ran.err
    assert not CONTROLS.search(ran.out + ran.err)


def test_names_of_gpus_that_serve_reach_no_terminal(planner, tmp_path):
    gpu = copied(ROOT / "hardware_specs/gpus/h100-sxm-80gb.toml", tmp_path / "g.toml", EVIL)
    words = ("search", "--workload", "serve", "--model", "llama-7b", "--gpu", gpu, "--gpus", "1")
    ran = planner(*words, "--set", "concurrency=4", "--csv", "-")
    assert ran.exit_code == 0
    assert "owned" in ran.out
    assert not CONTROLS.search(ran.out + ran.err)


@pytest.mark.parametrize(
    "arguments",
    [
        (EVIL,),
        ("search", f"--{EVIL}"),
        ("search", "--model", f"{EVIL}.toml", "--gpus", "8"),
        ("search", "--model", "llama-7b", "--gpus", EVIL),
        ("search", "--model", "llama-7b", "--gpus", "8", "--driver", EVIL),
        ("search", "--model", "llama-7b", "--gpus", "8", "--csv", f"/{EVIL}/a"),
        ("search", "--model", "llama-7b", "--gpus", "8", "--gpu", f"{EVIL}.toml", "--debug"),
    ],
    ids=["command", "option", "file", "number", "choice", "folder", "debug"],
)
def test_wrong_words_reach_no_terminal(capsys, arguments):
    from planner.__main__ import run

    assert run(arguments) in (2, 3, 8)
    err = capsys.readouterr().err
    assert "owned" in err
    assert not CONTROLS.search(err)


def test_a_terminal_gets_styles_and_nothing_else(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr(sys, "stdout", Terminal())
    print_blocks(make_console(), [text_table([EVIL], [[EVIL]]), make_lines(EVIL, mark=TOTAL)])
    shown = sys.stdout.getvalue()  # type: ignore[attr-defined]
    assert STYLE.search(shown)
    assert shown.count("owned") == 3
    assert not CONTROLS.search(STYLE.sub("", shown))


def test_what_can_be_printed_stays():
    words = "64 x H100 — 80 GiB\nüber ∞ 中\n"
    assert printable(words) == words
