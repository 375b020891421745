"""The small tables of inference: precisions behind the words of a run."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache

from planner.base.enums import CacheType, Quantization
from planner.confidence.tables import read_table
from planner.validation.runs import Run
from planner.validation.tables import FOLDER

# Bits per weight from which a format of open size is nearer to 8 than to 4 bits.
_NEARER_EIGHT = 6.0
_NAMED = re.compile(r"mxfp4|fp4|fp8|awq|gptq|int4|int8")


def quantizations(run: Run) -> tuple[Quantization, Quantization]:
    """Of the matrices and of the experts: from the columns, and what checkpoints are known for."""
    weights = run.word("weight_precision") or run.word("gemm_precision")
    if run.word("gemm_precision") in ("fp8_block", "mxfp4"):
        weights = run.word("gemm_precision")
    if not weights and (named := _NAMED.search(run.word("model"))):
        weights = named[0]
    if not weights and (bits := run.number("bits_per_weight")):
        weights = "int8" if bits >= _NEARER_EIGHT else "int4"
    row = _first("quantizations.csv", model=run.word("model"), weights=weights,
                 activations=run.word("activation_precision"))  # fmt: skip
    dense, experts = row["quantization"], row["expert_quantization"]
    return Quantization[dense.upper()], Quantization[experts.upper()]


def cache_type(run: Run, profile: str) -> CacheType:
    """The number format of the key-value cache."""
    row = _first(
        "kv_caches.csv",
        engine=profile,
        weights=run.word("weight_precision"),
        cache=run.word("kv_cache_precision"),
    )
    return CacheType[row["cache_type"].upper()]


def _first(table: str, **words: str) -> Mapping[str, str]:
    """The first row whose patterns are in all of these words; an empty pattern is in any."""
    return _matching(table, tuple(words.items()))


@cache
def _matching(table: str, words: tuple[tuple[str, str], ...]) -> Mapping[str, str]:
    return next(
        row
        for row in read_table(table, FOLDER)
        if all(not row[name] or re.search(row[name], word) for name, word in words)
    )
