"""What an engine prints when it starts, and why it would not start."""

from __future__ import annotations

import math
from collections.abc import Mapping

from planner.base import text
from planner.configurations.serving import PoolConfigurations, ServingConfigurations
from planner.estimators.inference.memory import longest_that_fits, serving_memory
from planner.estimators.inference.setting import ServingSetting
from planner.launch.option_table import Role
from planner.launch.targets import targets
from planner.optimize.collector import NearestMiss
from planner.question.terms import glossary
from planner.show.views.sure import fits_words
from planner.show.views.told import number_of

_OPTION = "max_model_len"
# A whole context of which the slots of a server have equal parts.
_SHARED = "context_size"


def start_pairs(row: Mapping[str, object], *, shortens: bool = False) -> dict[str, str]:
    """Weights and cache of a GPU in the words of engines' logs; nothing without a cache.

    ``shortens``: the engine takes what the cache holds for its longest request.
    """
    at_once, tokens = number_of(row, "max_concurrency"), number_of(row, "kv_cache_tokens")
    if not math.isfinite(at_once) or not at_once:
        return {}
    weights = number_of(row, "memory_weights_gib") + number_of(row, "memory_adapters_gib")
    found = {
        "weights": f"{weights:.2f} GiB",
        "KV cache": f"{number_of(row, 'kv_cache_size_gib'):.2f} GiB, {text.count(tokens)} tokens",
        "maximum concurrency": f"{at_once:,.2f}x for {text.count(tokens / at_once)} tokens per "
        "request",
    }
    if shortens and at_once < 1:
        held = f"{text.count(tokens)} tokens, as the cache holds no more"
        found["longest request"] = held
    return found


def no_start(miss: NearestMiss) -> str:
    """Why an engine does not start with its longest request, or not surely, and with which it
    would; empty where that is not what is missed."""
    setting, c = miss.source.setting, miss.configuration
    if not isinstance(setting, ServingSetting) or not isinstance(c, ServingConfigurations):
        return ""
    if setting.workload.max_model_len is None:
        return ""
    if setting.engine.memory.shortens_longest:
        return ""
    c = c.decode if isinstance(c, PoolConfigurations) else c
    memory, longest = serving_memory(setting, c), setting.workload.max_model_len
    most = longest_that_fits(setting, memory, c)
    surely = longest_that_fits(setting, memory, c, min(setting.sure_share, 1.0))
    if not 0 < surely < longest:
        return ""
    slots = 1 if setting.engine.scheduler.continuous else int(c.concurrency[0])
    option, number = _told(setting.engine.name, surely, slots)
    how, held = "does not start", f"{most:,}"
    if most >= longest:
        how, held = "may not start", f"little more ({fits_words(miss.row)})"
    if slots > 1:
        held = f"{held} in each of {slots} slots"
    return f"{how}: longest request {longest:,} tokens, the cache holds {held}; {option} {number}"


def _told(engine: str, most: int, slots: int) -> tuple[str, int]:
    """The engine's own option for its longest request, and its number."""
    for target in targets().values():
        if any(engine.startswith(profile) for profile in target.profiles):
            for name, number in ((_OPTION, most), (_SHARED, most * slots)):
                for row in target.table.rows_of(name, Role.IS):
                    return row.option, number
    return glossary()[_OPTION].option_name, most
