"""Keys of LoraConfig."""

from __future__ import annotations

from typing import Any

from peft import LoraConfig
from rows import Row, distinct, of_class


def answer(case: dict[str, Any]) -> list[Row]:
    rows = distinct(of_class(LoraConfig, "LoraConfig."))
    return [row for row in rows if row["name"].count(".") == 1]
