"""What a prefix found in the cache adds to the time of the prompt behind it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from planner.base.arrays import FloatArray
from planner.configurations.serving import ServingConfigurations
from planner.estimators.inference.serving import new_tokens, prompt_batch
from planner.estimators.inference.setting import ServingSetting
from planner.estimators.inference.step import step_time


def cached_tokens(setting: ServingSetting) -> FloatArray:
    """Prompt tokens of a request that are found in the prefix cache."""
    return np.asarray(setting.workload.input_tokens - new_tokens(setting))


def prefix_share(setting: ServingSetting, configurations: ServingConfigurations) -> FloatArray:
    """Share of the time of prompts that goes into looking back at their cached tokens.

    That is what a step full of prompts would lose if nothing stood before them: the new tokens
    attend to the cached ones, whose keys and values are read. Nothing else is computed for them.
    """
    c, new, cached = configurations, new_tokens(setting), cached_tokens(setting)
    if not cached > 0:
        return np.zeros(())
    prompts = np.clip(np.floor(c.replica_step_tokens / new), 1.0, np.maximum(c.concurrency, 1.0))
    tokens = np.minimum(prompts * new, c.replica_step_tokens)
    whole = prompt_batch(setting, prompts, tokens, np.zeros(()))
    alone = replace(
        whole,
        prefill_keys=whole.prefill_keys - cached,
        prefill_cached=whole.prefill_cached - cached,
    )
    times = [step_time(setting, c, batch, decoding=False).total for batch in (whole, alone)]
    return np.asarray(np.clip(1.0 - times[1] / times[0], 0.0, 1.0))
