"""Every reader answers 100 kB of one character, of blank lines or of one long line at once.

A reader whose work grows with the square of a file takes half a minute for them, one whose work
grows with the file less than two seconds: the limit between is in seconds of the processor.
"""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

import pytest
from driver import CODES, TooLong, bounded

from planner.__main__ import run

SIZE = 100_000
SECONDS = 5
_TRAIN = ("--model", "llama-7b", "--gpus", "8", "--gpu", "h100", "--set", "tp=4")
_ON = ("--gpus", "8", "--gpu", "h100", "--set", "tp=4")
_SERVE = ("--workload", "serve", "--model", "llama-3.1-8b", "--gpu", "h100", "--gpus", "8",
          "--set", "tp=2", "--set", "concurrency=8")  # fmt: skip
_SIZED = ("--workload", "serve", "--model", "llama-3.1-8b", "--gpu", "h100", "--engine", "vllm")
_LAUNCHES = ("sh", "yaml", "json", "toml", "py", "ipynb", "md", "rst", "txt", "csv", "service",
             "env", "cfg", "tf", "pbtxt", "html", "")  # fmt: skip

# The option that takes a file, or the command: the command, its file's suffix behind a point.
READERS: dict[str, tuple[str, ...]] = {
    **{f"--from.{suffix}": ("estimate", "--from", "{}", "--gpu", "h100") for suffix in _LAUNCHES},
    **{f"--plan.{suffix}": ("estimate", "--plan", "{}") for suffix in ("toml", "json")},
    **{f"--model.{suffix}": ("estimate", "--model", "{}", *_ON) for suffix in ("toml", "json")},
    **{f"--log.{suffix}": ("validate", "--log", "{}", "--plan", "plan.toml")
       for suffix in ("log", "json", "jsonl", "csv")},
    **{f"--trace.{suffix}": ("estimate", *_SERVE, "--trace", "{}")
       for suffix in ("csv", "json", "jsonl")},
    "--prices.csv": ("estimate", *_TRAIN, "--prices", "{}"),
    "--space.toml": ("search", *_TRAIN[:6], "--space", "{}"),
    "--gpu.toml": ("estimate", *_TRAIN[:4], "--gpu", "{}", *_TRAIN[6:]),
    "--cluster.toml": ("estimate", *_TRAIN, "--cluster", "{}"),
    "--framework.toml": ("estimate", *_TRAIN, "--framework", "{}"),
    "--reliability.toml": ("estimate", *_TRAIN, "--reliability", "{}"),
    "--engine.toml": ("estimate", *_SERVE, "--engine", "{}"),
    "--load.csv": ("size", *_SIZED, "--load", "{}"),
    "--services.toml": ("size", "--services", "{}", "--gpu", "h100"),
    "--profile.toml": ("validate", "--profile", "{}"),
    "sweep.toml": ("sweep", "{}", "--output", "out"),
    "validate.csv": ("validate", "{}"),
    "calibrate.csv": ("calibrate", "{}", "--output", "out.toml"),
    "compare.json": ("compare", "{}", "{}"),
    "compare.csv": ("compare", "{}", "{}"),
    "report.json": ("report", "{}", "--markdown", "out.md"),
    "specs validate.toml": ("specs", "validate", "{}"),
    "specs validate.csv": ("specs", "validate", "{}"),
}  # fmt: skip

# Repeated to 100 kB; behind a bar what stands before them.
CHARACTERS = "a 1,.:;-=#$&|<>(){}[]'\"`\\/*?!~%@+^_\t\n\r"
LINES = (" \n", "#\n", "---\n", "a: b\n", "a,b\n", "[a]\n", '{"a":1}\n', "```sh\na\n```\n")
WORDS = (
    "1,", "a ", "$a ", "--a b ", "$(", "${", "{{", '{"a":', "[1,", "a.b.", "step: 1 ",
    "vllm serve a |a ", "vllm serve a --max-model-len |1", "A=|1", "a: |- ", 'a = "|a', '{"a": "|a',
    '{"a": [|1,', "gpu,price\nh100,|1", "gpu,price\n|h100,1\n", "iteration 1/ 10 |1",
    "| ttft |1", "- a: |b ", "key: |a=b ", "model: |/a", "x = '|a",
)  # fmt: skip
CASES = [(reader, content) for reader in READERS for content in (*CHARACTERS, *LINES, *WORDS)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a plan."""
    place = tmp_path_factory.mktemp("large")
    words = ("search", *_TRAIN[:6], "--space", "small", "--quiet", "--save-plan")
    assert run([*words, str(place / "plan.toml")]) == 0
    return place


@pytest.fixture(autouse=True)
def inside(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In that folder, without a network."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.chdir(folder)


def _ran(words: list[str]) -> str:
    """What is wrong with how a command ended; empty where nothing is."""
    error = io.StringIO()
    try:
        with (
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(error),
            bounded(SECONDS),
        ):
            code = run(words)
    except TooLong:
        return f"more than {SECONDS} s of processor time"
    text = error.getvalue()
    return text[-2000:] if code not in CODES or "internal error" in text else ""


@pytest.mark.few(6)
@pytest.mark.parametrize(("reader", "content"), CASES)
def test_work_grows_with_the_file(reader: str, content: str, folder: Path) -> None:
    begins, _, unit = content.rpartition("|") if len(content) > 1 else ("", "", content)
    suffix = reader.rpartition(".")[2]
    path = folder / f"file.{suffix}"
    path.write_text(begins + (unit * (SIZE // len(unit) + 1))[:SIZE], newline="")
    fault = _ran([str(path) if word == "{}" else word for word in READERS[reader]])
    assert not fault, fault
