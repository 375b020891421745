"""What tokens of each kind cost, as result columns that add up to what all GPUs cost."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from planner.arrays import FloatArray
from planner.estimators.inference.prefix import cached_tokens
from planner.estimators.inference.setting import ServingSetting
from planner.formulas.money import cost_per_million


def token_costs(
    setting: ServingSetting,
    *,
    price: FloatArray,
    prompt_price: FloatArray,
    prefix_share: FloatArray,
    request_rate: FloatArray,
) -> Mapping[str, FloatArray]:
    """Columns of what a million tokens of each kind cost; together they pay the ``price`` [USD/s].

    GPU time that computes prompts is paid by their new tokens, but for what looking back at the
    cached ones adds, which these pay; all other time is paid by the generated tokens.
    """
    work, cached = setting.workload, cached_tokens(setting)
    kinds = {
        "input": (prompt_price * (1 - prefix_share), work.input_tokens - cached),
        "cached_input": (prompt_price * prefix_share, cached),
        "output": (price - prompt_price, np.asarray(work.output_tokens)),
    }
    return {
        f"cost_per_million_{kind}_tokens_usd": cost_per_million(
            cost_rate=cost, token_rate=request_rate * tokens
        )
        for kind, (cost, tokens) in kinds.items()
    }
