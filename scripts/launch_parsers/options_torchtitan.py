"""Overrides of torchtitan's configuration; its sections may hold one of several classes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import stubs

stubs.install("triton")
# ruff: noqa: E402
from rows import Row, distinct, of_class
from torchtitan.config import ConfigManager
from torchtitan.distributed import activation_checkpoint
from torchtitan.trainer import Trainer

# What a subcommand chooses, and the class that it stands for.
CHOSEN = {
    "activation-checkpoint:selective": activation_checkpoint.SelectiveAC.Config,
    "activation-checkpoint:full": activation_checkpoint.FullAC.Config,
    "activation-checkpoint:memory-budget": activation_checkpoint.MemoryBudgetAC.Config,
}


def overrides() -> Iterator[Row]:
    yield {"name": "--module", "type": "str", "choices": "", "default": "<required>"}
    yield {"name": "--config", "type": "str", "choices": "", "default": "<required>"}
    for row in of_class(Trainer.Config, "--"):
        if not row["name"].startswith(("--model_spec", "--activation_checkpoint.")):
            yield row
    for word, kind in CHOSEN.items():
        yield {"name": word, "type": "flag", "nargs": "0"}
        yield from of_class(kind, "--activation-checkpoint.")
    yield {"name": "activation-checkpoint:none", "type": "flag", "nargs": "0"}


def switches(rows: list[Row]) -> Iterator[Row]:
    """The rows; what is true or false is a word without a value, and another that says no."""
    for row in rows:
        if row.get("type") != "bool" or "." not in row["name"]:
            yield row
            continue
        section, _, name = row["name"].rpartition(".")
        yield {**row, "type": "flag", "nargs": "0"}
        yield {**row, "name": f"{section}.no_{name}", "type": "flag", "nargs": "0"}


def answer(case: dict[str, Any]) -> list[Row]:
    ConfigManager()
    return distinct(switches(distinct(overrides())))
