"""Keys of ds_config.json: sections that are classes, and the top level, which is read one by one.

Top-level keys are the names of module constants that DeepSpeedConfig asks its mapping for.
"""

from __future__ import annotations

from typing import Any

from deepspeed import comm
from deepspeed.runtime.config import DeepSpeedConfig
from derive_deepspeed import Read
from pydantic import BaseModel
from rows import Row, distinct, of_class


class Watched(Read):
    """A mapping with what DeepSpeed needs to go on."""


def answer(case: dict[str, Any]) -> list[Row]:
    comm.get_world_size = lambda *_: 1
    comm.get_rank = lambda *_: 0
    comm.is_initialized = lambda: True
    given = Watched({"train_batch_size": 1})
    config = DeepSpeedConfig(given)
    found: list[Row] = []
    made = {type(x).__name__: type(x) for x in vars(config).values() if isinstance(x, BaseModel)}
    for key in sorted(given.asked):
        found.append({"name": key})
        kind = case["sections"].get(key)
        if kind in made:
            found += of_class(made[kind], f"{key}.")
    return distinct(found)
