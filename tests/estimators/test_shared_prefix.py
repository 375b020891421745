"""The beginning that all prompts have in common is computed and kept once."""

from __future__ import annotations

import pytest
from serving_cases import replicas, serving_setting

from planner.estimators.inference.continuous_batching import new_tokens
from planner.estimators.inference.serving_estimate import evaluate_serving
from planner.estimators.inference.serving_memory import sequence_bytes, serving_memory


def test_it_takes_room_once() -> None:
    """By hand: 128 KiB a token of Llama 3.1 8B; 9,900 once, 100 and a half answer in each."""
    c = replicas(concurrency=100)
    alone = serving_setting("llama-3.1-8b", "h100-sxm-80gb", input_tokens=10_000, output_tokens=200)
    alike = serving_setting(
        "llama-3.1-8b", "h100-sxm-80gb",
        input_tokens=10_000, output_tokens=200, shared_prefix_tokens=9900,
    )  # fmt: skip
    each, once = serving_memory(alone, c), serving_memory(alike, c)
    assert float(each.most_sequences) < 48
    assert float(once.most_sequences) > 1500
    token = 2**17
    assert float(sequence_bytes(alone, c, 16_000.0)) == pytest.approx(16_000 * token, rel=1e-3)
    assert float(once.room.shared) == pytest.approx(9900 * token, rel=1e-3)
    mean, longest = 10_100 - 9900, 10_200 - 9900
    expected = 9900 + 100 * (mean + (longest - mean) / 10)
    assert float(once.kv_cache) == pytest.approx(expected * token, rel=1e-3)
    assert float(once.room.longest) == float(each.room.longest)


def test_it_is_computed_once() -> None:
    c = replicas(concurrency=8)
    common = {"input_tokens": 4000, "output_tokens": 100}
    alike = serving_setting("llama-3.1-8b", "h100-sxm-80gb", shared_prefix_tokens=3000, **common)
    found = serving_setting("llama-3.1-8b", "h100-sxm-80gb", prefix_cache_hit_rate=0.75, **common)
    assert float(new_tokens(alike)) == float(new_tokens(found)) == 1000
    one, other = (evaluate_serving(each, c).served for each in (alike, found))
    assert float(one.time_to_first_token) == float(other.time_to_first_token)
    both = serving_setting(
        "llama-3.1-8b", "h100-sxm-80gb",
        shared_prefix_tokens=3000, prefix_cache_hit_rate=0.9, **common,
    )  # fmt: skip
    assert float(new_tokens(both)) == pytest.approx(400)
