"""Arguments of TRL's SFT script that the Trainer has not, or with another default."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from rows import Row, distinct, of_class
from transformers import TrainingArguments
from trl import ModelConfig, ScriptArguments, SFTConfig


def answer(case: dict[str, Any]) -> list[Row]:
    trainer = {row["name"]: row["default"] for row in of_class(TrainingArguments)}
    found: list[Row] = []
    for kind in (ScriptArguments, SFTConfig, ModelConfig):
        counts = {x.name: x.metadata.get("nargs", "") for x in fields(kind)}
        for row in of_class(kind):
            name = row["name"]
            if name in counts and row["default"] != trainer.get(name, object()):
                found.append({**row, "nargs": str(counts[name])})
    return distinct(found)
