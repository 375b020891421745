"""Models as recipes and file names of frameworks call them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

from planner.errors import PlannerError
from planner.specs.catalogue import Catalogue

_LONGEST = 200
_VERSION = re.compile(r"^([a-z]+)-?(\d)(\d)?(?=[_-]|$)")
_KINDS = ("_pretrain", "_sft", "_peft", "_finetune", "_lora")


@cache
def model_named(text: str) -> str | None:
    """The model that planner knows by such a name: ``llama31_405b``, ``llama3.1_405B.yaml``.

    >>> model_named("llama31_405b"), model_named("qwen3_30b_a3b_pretrain_16gpu_h100_bf16_config")
    ('llama-3.1-405b', 'qwen3-30b-a3b')
    """
    if len(text) > _LONGEST:
        return None
    return next((name for name in _spelled(text) if _is_known(name)), None)


def _spelled(text: str) -> Iterator[str]:
    yield text
    plain = text.lower().removesuffix(".yaml").removesuffix(".yml").rpartition("/")[2]
    for kind in _KINDS:
        plain = plain.partition(kind)[0]
    plain = plain.replace("_", "-")
    yield plain
    yield re.sub(r"^([a-z]+)(\d)", r"\1-\2", plain)
    found = _VERSION.match(plain)
    if found is not None:
        rest = plain[found.end() :]
        number = found[2] + (f".{found[3]}" if found[3] else "")
        yield f"{found[1]}-{number}{rest}"
        yield f"{found[1]}{number}{rest}"


def _is_known(name: str) -> bool:
    try:
        Catalogue(None).load_model(name)
    except (PlannerError, OSError):
        return False
    return True
