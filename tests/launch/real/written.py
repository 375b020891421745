"""What a written launch script starts: it is run by bash, with programs that only say it."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from planner.launch.write.write_launch import WrittenLaunch

PROGRAMS = ("torchrun", "accelerate", "deepspeed", "vllm", "python", "python3")
PROGRAMS += ("trtllm-serve", "llama-server")
RECORD = "STARTED"
RECORDER = """\
#!{python}
import json, os, sys
said = {{"words": [os.path.basename(sys.argv[0]), *sys.argv[1:]], "environment": dict(os.environ)}}
with open(os.environ["STARTED"], "a") as file:
    file.write(json.dumps(said) + "\\n")
"""
ASKED = re.compile(r'^\s*: "\$\{(\w+):\?', re.MULTILINE)
NUMBERS = {"LEARNING_RATE": "1e-4", "NODE_RANK": "0", "MASTER_PORT": "29500"}
KEPT = ("CUDA_", "NCCL_", "PYTORCH_", "VLLM_", "SGLANG_", "NVTE_")


@dataclass(frozen=True, kw_only=True)
class Started:
    """A command that a script started, with the variables that it set for it."""

    words: list[str]
    environment: dict[str, str]

    @property
    def world(self) -> int:
        """Processes that torchrun starts on all nodes."""
        nodes = int(self.after("--nnodes")) if "--nnodes" in self.words else 1
        return nodes * int(self.after("--nproc-per-node"))

    def after(self, word: str) -> str:
        return self.words[self.words.index(word) + 1]

    @property
    def arguments(self) -> list[str]:
        """Behind the program that a launcher starts, or behind the program itself."""
        if self.words[0] == "torchrun":
            script = next(x for x in self.words if x.endswith(".py"))
            return self.words[self.words.index(script) + 1 :]
        return self.words[1:]


MEASURING = "benchmark.sh"


def commands(
    launch: WrittenLaunch, folder: Path, python: str, *, measuring: bool = False
) -> Iterator[Started]:
    """What the scripts of a launch start, or its benchmark alone, run in a folder."""
    programs = folder / "programs"
    programs.mkdir(parents=True)
    for name in PROGRAMS:
        (programs / name).write_text(RECORDER.format(python=python))
        (programs / name).chmod(0o755)
    for file in launch.files:
        path = folder / file.name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(file.text, encoding="utf-8")
    for file in launch.files:
        is_asked = (file.name == MEASURING) == measuring
        if file.name.endswith(".sh") and file.name not in ("router.sh", "start.sh") and is_asked:
            yield from _started(folder, file.name, file.text)


def _started(folder: Path, script: str, text: str) -> Iterator[Started]:
    asked = {name: f"/of/{name.lower()}" for name in ASKED.findall(text)}
    record = folder / f"{script}.jsonl"
    own = {RECORD: str(record), "PATH": f"{folder / 'programs'}:{os.environ['PATH']}"}
    variables = {**asked, **{k: v for k, v in NUMBERS.items() if k in asked}, **own}
    variables["HOME"] = str(folder)
    done = subprocess.run(
        ["bash", script], cwd=folder, env=variables, capture_output=True, text=True, timeout=60
    )
    assert record.exists(), done.stderr
    for line in record.read_text().splitlines():
        said = json.loads(line)
        kept = {k: v for k, v in said["environment"].items() if k.startswith(KEPT)}
        yield Started(words=said["words"], environment=kept)
