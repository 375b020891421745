"""Real parsers of launch files, run in the environments of make_launch_environments.py.

`ask` runs a module of this folder by an environment's interpreter. The other modules import
nothing of planner and run there: `options_*` list what a parser accepts, `derive_*` say what it
derives of a launch file.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
VARIABLE = "PLANNER_LAUNCH_ENVIRONMENTS"
CHECKOUTS = {"trtllm": "PLANNER_TENSORRT_LLM"}  # of parsers that no light package has
DEFAULT = "~/.cache/planner/launch"
ENVIRONMENTS = {
    "megatron": "train",
    "torchtitan": "train",
    "deepspeed": "train",
    "accelerate": "train",
    "transformers": "train",
    "peft": "train",
    "trl": "train",
    "axolotl": "train",
    "axolotl_schema": "schemas",
    "maxtext": "schemas",
    "verl": "schemas",
    "openrlhf": "schemas",
    "nemo_rl": "schemas",
    "dynamo": "schemas",
    "trtllm": "schemas",
    "vllm": "serve",
    "sglang": "serve",
}
QUIET = {"DS_ACCELERATOR": "cpu", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
QUIET["PYTHONHASHSEED"] = "0"  # sets of choices come in one order


class ParserFailed(Exception):
    """The interpreter of an environment ended without an answer."""


def folder() -> Path:
    """Where the environments are: the variable of that name, or its default."""
    return Path(os.environ.get(VARIABLE) or DEFAULT).expanduser()


def interpreter(parser: str) -> Path:
    """The Python of the environment that has a parser; it need not exist."""
    return folder() / ENVIRONMENTS[parser] / "bin" / "python"


def ask(question: str, parser: str, cases: list[dict[str, Any]]) -> list[Any]:
    """Answers of `QUESTION_PARSER.py` to cases, in their order.

    Raises ParserFailed where the environment is missing, or with the last lines of what the
    parser said where it cannot be run.
    """
    command = [str(interpreter(parser)), str(HERE / "main.py"), f"{question}_{parser}"]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")} | QUIET
    if not interpreter(parser).exists():
        raise ParserFailed(f"{command[0]} is missing: make it by make_launch_environments.py")
    done = subprocess.run(
        command, input=json.dumps(cases), env=environment, capture_output=True, text=True
    )
    if done.returncode:
        tail = "\n".join(done.stderr.splitlines()[-15:])
        raise ParserFailed(f"{' '.join(command)}\n{tail}")
    answers: list[Any] = json.loads(done.stdout)
    return answers
