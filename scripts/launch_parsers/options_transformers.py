"""Keys of TrainingArguments, which are also the options of the HF Trainer's scripts."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from rows import Row, distinct, of_class
from transformers import TrainingArguments


def answer(case: dict[str, Any]) -> list[Row]:
    rows = distinct(of_class(TrainingArguments))
    counts = {x.name: x.metadata.get("nargs", "") for x in fields(TrainingArguments)}
    own = [row for row in rows if "." not in row["name"]]
    return [{**row, "nargs": str(counts[row["name"]])} for row in own]
