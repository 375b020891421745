"""Runs launch files with stand-ins for the programs they start."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from planner.launch.read.parsed_launch import LaunchSettings, OptionReader
from planner.launch.target import (
    CommandWords,
    LaunchDraft,
    LaunchJob,
    LaunchOutputFile,
    LaunchTarget,
    Process,
)
from planner.question.request import Request

SAID = "said.jsonl"
_STUB = """#!/usr/bin/env python3
import json, os, sys, time
names = {names!r}
with open({said!r}, "a") as stream:
    found = {{name: os.environ[name] for name in names if name in os.environ}}
    said = {{"program": os.path.basename(sys.argv[0]), "words": sys.argv[1:], "environment": found}}
    stream.write(json.dumps(said) + "\\n")
end = time.monotonic() + 30
while time.monotonic() < end:
    if len(open({said!r}).readlines()) >= int(os.environ.get("TOGETHER", 1)):
        break
    time.sleep(0.02)
"""
_SRUN = """#!/usr/bin/env bash
words=("$@")
tasks=1
each=1
while [[ $# -gt 0 && "$1" == -* ]]; do
  case "$1" in --ntasks=*) tasks="${1#*=}" ;; --ntasks-per-node=*) each="${1#*=}" ;; esac
  echo "$1" >> "$STEPS"
  shift
done
# A step has the GPUs of the job, whatever the script exported.
export CUDA_VISIBLE_DEVICES="$STEP_GPUS"
for ((rank = 0; rank < tasks; rank++)); do
  SLURM_PROCID=$rank SLURM_NODEID=$((rank / each)) "$@" &
done
wait
"""
_SCONTROL = """#!/usr/bin/env bash
[[ "$1 $2 $3" == "show hostnames nodes" ]] || exit 9
for ((i = 0; i < 64; i++)); do echo "node$i"; done
"""
_SEEN = (
    "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "PORT", "COPY", "NODE_RANK", "MASTER_ADDR",
    "MASTER_PORT", "CUDA_DEVICE_MAX_CONNECTIONS", "OMP_NUM_THREADS", "PYTORCH_CUDA_ALLOC_CONF",
    "ODD",
)  # fmt: skip


def no_answers(_: OptionReader) -> LaunchSettings:
    """What a target needs that is only written."""
    raise NotImplementedError


TARGET = LaunchTarget(
    name="trial",
    title="Trial",
    version="trial 1.2",
    workloads=("train", "serve"),
    profiles=(),
    quantities=lambda _: {},
    draft=lambda *_: LaunchDraft(processes=()),
    answers=no_answers,
)


@cache
def job_of(model: str = "llama-2-7b", framework: str = "megatron-lm", gpus: int = 16) -> LaunchJob:
    """A small plan to train."""
    settings = {"micro_batch_size": 1, "tensor_parallel": 8, "sequence_parallel": True}
    return LaunchJob.of(
        Request(
            workload="train", model=model, gpu="h100-sxm", num_gpus=gpus, framework=framework,
            global_batch_size=16, total_tokens=1e12, settings=settings,
        )
    )  # fmt: skip


def process(*words: object, **fields: object) -> Process:
    """A process of some words, each on a line."""
    arguments = tuple(CommandWords(words=(word,)) for word in words)  # type: ignore[arg-type]
    usual = {"name": "train", "num_nodes": 1, "gpus_per_node": 8, "arguments": arguments}
    return Process(**{**usual, **fields})  # type: ignore[arg-type]


def write(folder: Path, files: Sequence[LaunchOutputFile]) -> dict[str, str]:
    """The files in a folder, checked by bash."""
    for file in files:
        path = folder / file.name
        path.write_text(file.text, encoding="utf-8")
        if file.text.startswith("#!"):
            checked = subprocess.run(["bash", "-n", path], capture_output=True, text=True)
            assert checked.returncode == 0, checked.stderr
    return {file.name: file.text for file in files}


def run(
    folder: Path, name: str, programs: Sequence[str], environment: Mapping[str, str] | None = None
) -> tuple[list[dict[str, object]], subprocess.CompletedProcess[str]]:
    """What stand-ins of programs were told by a script, in order, and how it ended.

    Each runs until there were ``TOGETHER`` of them.
    """
    binaries = folder / "bin"
    binaries.mkdir(exist_ok=True)
    said = folder / SAID
    stub = _STUB.format(said=str(said), names=_SEEN)
    texts = {**dict.fromkeys(programs, stub), "srun": _SRUN, "scontrol": _SCONTROL}
    for program, text in texts.items():
        (binaries / program).write_text(text)
        (binaries / program).chmod(0o755)
    path = f"{binaries}{os.pathsep}{os.environ['PATH']}"
    given = {
        "PATH": path,
        "HOME": str(folder),
        "STEPS": str(folder / "steps"),
        "STEP_GPUS": "0,1,2,3,4,5,6,7",
        **(environment or {}),
    }
    ended = subprocess.run(
        ["bash", folder / name], cwd=folder, env=given, capture_output=True, text=True, timeout=60
    )
    lines = said.read_text().splitlines() if said.exists() else []
    return [json.loads(line) for line in lines], ended
