"""The highest concurrency with which a configuration is accepted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from planner.base.arrays import FloatArray
from planner.configurations.configuration_tables import ConfigurationTable, ServingConfigurations
from planner.estimators.inference.batch_share import ServingInputs
from planner.estimators.inference.serving_memory import (
    ServingMemory,
    has_memory_to_start,
    serving_memory,
)
from planner.optimize.source import Candidates, Source

_GRID = 64
LARGEST_BATCH = _GRID**4


def max_concurrency(source: Source, configurations: ConfigurationTable) -> int:
    """The highest concurrency at which a configuration is accepted; 0: none is.

    Searched in narrowing grids, with full evaluations: bytes of a sequence and time of a step
    depend on the concurrency.
    """
    fewest, step = 0, LARGEST_BATCH // _GRID
    while step:
        grid = fewest + step * np.arange(1.0, _GRID + 1)
        candidates = source.with_immediate_admission.judged(_with_concurrency(configurations, grid))
        accepted = grid[np.broadcast_to(candidates.rejected_by == 0, grid.shape)]
        fewest = int(accepted[-1]) if accepted.size else fewest
        step //= _GRID
    return fewest


def at_max_concurrency(source: Source, configurations: ConfigurationTable) -> Candidates | None:
    """Evaluate a configuration at its highest accepted concurrency; None: none is accepted."""
    maximum = max_concurrency(source, configurations)
    if not maximum:
        return None
    return source.with_immediate_admission.judged(
        _with_concurrency(configurations, np.array([float(maximum)]))
    )


def with_filled_cache(
    inputs: ServingInputs,
    configurations: ServingConfigurations,
    memory: ServingMemory,
    run: Callable[[ServingConfigurations], ServingConfigurations] = lambda c: c,
) -> ServingConfigurations:
    """The configurations with the concurrency that fits in the KV cache, where requests wait.

    Configurations are unchanged if all requests fit, if the engine does not start, or if not even
    one request fits. ``memory``: memory of the configurations; ``run``: maps configurations with
    another concurrency to those that then run.
    """
    c = configurations
    if np.all(memory.most_sequences >= c.concurrency):
        return c
    single_request = run(replace(c, concurrency=np.ones_like(c.concurrency)))
    single_memory = serving_memory(inputs, single_request)
    runs = (single_memory.most_sequences >= 1) & has_memory_to_start(
        inputs, single_memory, single_request
    )
    # Of fewer requests each may take more, so that not even those that more have room for fit.
    middle = np.where(runs, np.minimum(memory.most_sequences, c.concurrency), c.concurrency)
    middle = np.maximum(middle, 1.0)
    low = np.where(runs, 1.0, c.concurrency)
    high = c.concurrency + np.zeros_like(low)
    while np.any(high - low > 1):
        attempted = run(replace(c, concurrency=middle))
        fits = serving_memory(inputs, attempted).most_sequences >= middle
        low = np.where(fits, np.maximum(middle, low), low)
        high = np.where(fits, high, np.minimum(middle, high))
        middle = np.ceil((low + high) / 2)
    return replace(c, concurrency=low)


def _with_concurrency(
    configurations: ConfigurationTable, numbers: FloatArray
) -> ConfigurationTable:
    rows = configurations.rows(np.zeros(numbers.size, dtype=np.intp))
    return replace(rows, concurrency=rows.cast("concurrency", numbers))
