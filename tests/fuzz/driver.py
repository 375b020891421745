"""Runs mutated inputs through the command in this process, and says what must not be."""

from __future__ import annotations

import contextlib
import io
import json
import os
import resource
import shutil
import signal
import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from mutations import (
    ODD,
    changed_bytes,
    changed_cells,
    changed_text,
    changed_tree,
    json_text,
    toml_text,
)
from seeds import KINDS, Seed, Seeds

from planner import errors
from planner.__main__ import run

CPU_SECONDS = 10
MEMORY = 2**30
# 130 is that of an interruption, which nobody sends here.
CODES = {0} | {
    kind.exit_code
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, errors.PlannerError) and kind.exit_code > 1
}
# The last words of a command in place of which others are put.
_WORDS = "words"
NAMES = (*KINDS, _WORDS, "paths")
_ADDRESS_SPACE = 4 * MEMORY
_PATHS = (
    "--plan", "--from", "--specs", "--prices", "--json", "--csv", "--save-plan", "--space",
    "--model", "--cluster", "--reliability", "--load", "--output", "--log", "--profile", "--plot",
    "--timeline", "--storage", "--markdown",
)  # fmt: skip
_ASKED = ("--model", "llama-7b", "--gpus", "8", "--gpu", "h100")
_COMMANDS = (
    ("estimate", *_ASKED, "--set", "tp=4"),
    ("search", *_ASKED, "--space", "small", "--quiet"),
    ("explain", *_ASKED, "--set", "tp=4", "--quiet"),
    ("size", *_ASKED[:2], "--gpu", "h100", "--tokens", "1B", "--deadline", "30d", "--quiet"),
    ("operators", "gemm", "-m", "8", "-n", "8", "-k", "8", "--quiet"),
    ("operators", "all-reduce", "--bytes", "1MiB", "--gpus", "16", "--quiet"),
    ("launch", "megatron-lm", *_ASKED, "--set", "tp=4"),
    ("validate", "x"), ("calibrate", "x"), ("report", "x"), ("compare", "x", "y"),
    ("compare", "h100", "a100"), ("sweep", "x"), ("sweep", "show", "x"), ("specs", "list", "gpus"),
    ("specs", "show", "gpus", "h100"), ("specs", "validate", "x"),
)  # fmt: skip


class TooLong(BaseException):
    """A command used more processor time than any may."""


@dataclass(frozen=True)
class Input:
    """An input by its kind and number: the same for the same seed."""

    seed: int
    kind: str
    number: int

    @property
    def again(self) -> str:
        """The command that runs it again."""
        name = f"PLANNER_SEED={self.seed} PLANNER_INPUT={self.kind}:{self.number}"
        return f"{name} python -m pytest -n 0 -m drawn tests/fuzz"


class Driver:
    """Makes inputs and runs them; at most ``few`` commands make its seeds."""

    def __init__(self, folder: Path, *, few: bool = False) -> None:
        self.folder = folder
        self.seeds = Seeds(folder / "seeds", self._quietly, few=few)

    def fault(self, one: Input) -> str:
        """What is wrong with how a command ended; empty where nothing is."""
        draw = Random(f"{one.seed}:{one.kind}:{one.number}")
        place = self.folder / "input"
        shutil.rmtree(place, ignore_errors=True)
        words = self._made(draw, one.kind, place)
        place.mkdir(parents=True, exist_ok=True)
        with contextlib.chdir(place):
            found = self._ran(words)
        return f"planner {' '.join(map(repr, words))[:600]}\n{found}\n{one.again}" if found else ""

    def _made(self, draw: Random, kind: str, place: Path) -> list[str]:
        """Write the files of an input; its command."""
        if kind == "paths":
            return _odd_path(draw, place)
        if kind == _WORDS:
            return _odd_words(draw)
        seed = draw.choice(self.seeds.of(kind))
        shutil.copytree(seed.folder, place)
        path = place / seed.file
        path.write_bytes(changed(draw, path.suffix, path.read_bytes()))
        return [word.replace("{}", seed.file) for word in draw.choice(seed.commands)]

    def _ran(self, words: Sequence[str]) -> str:
        out, err = io.StringIO(), io.StringIO()
        _forget_peak()
        before, started = _peak(), time.process_time()
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), bounded():
                code = run([*words, "--debug"])
        except TooLong:
            return f"more than {CPU_SECONDS} s of processor time\n{err.getvalue()[-2000:]}"
        except BaseException:
            return f"an exception left the command\n{traceback.format_exc()[-2000:]}"
        grown = _peak() - before
        text = err.getvalue()
        if "internal error" in text or code not in CODES:
            return f"exit code {code}\n{text[-3000:]}"
        if time.process_time() - started > CPU_SECONDS or grown > MEMORY:
            return f"{time.process_time() - started:.1f} s, {grown / 2**20:.0f} MiB more"
        return ""

    def _quietly(self, words: list[str]) -> int:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            return run(words)


def changed(draw: Random, suffix: str, content: bytes) -> bytes:
    """The content of a file with something wrong."""
    kind = draw.randrange(10)
    if kind < 2 or suffix in (".db", ".gz"):
        return changed_bytes(draw, content)
    text = content.decode(errors="replace")
    if kind < 6 and suffix == ".json":
        with contextlib.suppress(ValueError):
            tree = changed_tree(draw, json.loads(text))
            return json_text(tree).encode(errors="surrogatepass")
    if kind < 6 and suffix == ".toml":
        import tomllib

        with contextlib.suppress(ValueError):
            tree = changed_tree(draw, tomllib.loads(text))
            return toml_text(tree).encode(errors="surrogatepass")
    if kind < 6 and suffix == ".csv":
        return changed_cells(draw, text).encode(errors="surrogatepass")
    return changed_text(draw, text).encode(errors="surrogatepass")


def _odd_words(draw: Random) -> list[str]:
    """A command with other words: values and options exchanged, left out, twice, odd."""
    words = [*draw.choice(_COMMANDS)]
    for _ in range(draw.choice((1, 1, 2, 3))):
        at = draw.randrange(len(words) + 1)
        kind = draw.randrange(5)
        texts = [str(one) for one in ODD if one is not None and len(str(one)) < 6000]
        if kind == 0 and at < len(words):
            del words[at]
        elif kind == 1 and words:
            words.insert(at, draw.choice(words))
        elif kind == 2:
            words[at:at] = [draw.choice(_options()), draw.choice(texts)]
        elif kind == 3 and at < len(words):
            words[at] = draw.choice(texts)
        elif at < len(words):
            words[at] = draw.choice(draw.choice(_COMMANDS))
    if words[:1] == ["validate"] and "--template" not in words:
        words.append("x")  # else every published run is predicted
    return [word for word in words if word != "ui"]


def _odd_path(draw: Random, place: Path) -> list[str]:
    """A command with an odd path at an option that takes one."""
    place.mkdir(parents=True)
    (place / "folder").mkdir()
    (place / "loop").symlink_to("loop")
    (place / "gone").symlink_to("nowhere")
    (place / "empty.toml").touch()
    os.mkfifo(place / "pipe")
    shutil.copytree(place / "folder", place / "closed")
    (place / "closed").chmod(0)
    stems = [
        "x" * 300,
        "x" * 5000,
        "a\0b",
        "folder",
        "loop",
        "gone",
        "pipe",
        "closed/x",
        ".",
        "..",
        "/",
        "/dev/zero",
        "/dev/null",
        "/proc/self/mem",
        "empty.toml/x",
        "loop/x",
        "\ud800",
        "",
        " ",
        "~",
        "/dev/stdin",
        "/dev/full",
        "a\nb",
        "folder/",
        "é" * 200,
        "-",
        "--",
        "/proc/self/fd",
    ]
    suffix = draw.choice(("", "", ".toml", ".json", ".csv", ".sh", ".yaml", ".png", ":1"))
    path = f"{draw.choice(stems)}{suffix}"
    words = [*draw.choice(_COMMANDS)]
    if {"x"} & {*words}:
        return [path if word == "x" else word for word in words] + ["--output", "out"] * (
            words[0] in ("report", "calibrate")
        )
    return [*words, draw.choice(_PATHS), path]


def _options() -> list[str]:
    from planner.question.terms import glossary

    return [option for term in glossary().values() for option in term.options] + [*_PATHS, "--set"]


@contextlib.contextmanager
def bounded(seconds: float = CPU_SECONDS) -> Iterator[None]:
    """At most so much processor time and address space."""

    def end(*_: object) -> None:
        raise TooLong

    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    before = signal.signal(signal.SIGPROF, end)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + _ADDRESS_SPACE, hard))
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _forget_peak() -> None:
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def _peak() -> int:
    """The most memory that this process had [bytes]."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


__all__ = ["CODES", "NAMES", "Driver", "Input", "Seed", "TooLong", "bounded", "changed"]
