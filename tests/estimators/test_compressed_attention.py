"""DeepSeek-V4 and layers that choose keys: what they cache, see and hold, worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from serving_cases import replicas, serving_setting

from planner.base.enums import CacheType
from planner.base.units import GIB
from planner.estimators.inference.batch_share import ServingInputs
from planner.estimators.inference.serving_memory import sequence_bytes
from planner.layers.model import count_parameters, layer_of
from planner.specs.catalogue import load_model
from planner.specs.model import LayerGroup, ModelSpec

# A head of 512 numbers that are keys and values, in 16 bit; the indexer's 128 numbers in 8 bit.
ENTRY, INDEX = 1024, 128


def _sequence(setting: ServingInputs, tokens: float) -> float:
    """Bytes of a sequence; no new tokens of a step beside its windows."""
    return float(sequence_bytes(setting, replicas(max_num_batched_tokens=1), tokens))


def test_a_sequence_caches_windows_and_entries() -> None:
    """43 windows of 128 tokens; 21 layers an entry and its index for 4 tokens, 20 one for 128."""
    setting = serving_setting("deepseek-v4-flash", "b200-sxm-180gb")
    tokens = 2**20
    by_hand = 43 * 128 * ENTRY + 21 * tokens / 4 * (ENTRY + INDEX) + 20 * tokens / 128 * ENTRY
    assert _sequence(setting, tokens) == pytest.approx(by_hand, rel=2e-4)


@pytest.mark.parametrize(("name", "smaller"), [("flash", 13.7), ("pro", 9.5)])
def test_a_cache_of_a_million_tokens_is_as_much_smaller_as_published(
    name: str, smaller: float
) -> None:
    """Figure 1 of the report of DeepSeek-V4: 9.5 times for Pro, 13.7 for Flash, than V3.2.

    There the rotary part alone is in 16 bit, and the indexer's keys in 4, which this leaves out.
    """
    whole = _sequence(serving_setting("deepseek-v3.2", "b200-sxm-180gb"), 2**20)
    own = _sequence(serving_setting(f"deepseek-v4-{name}", "b200-sxm-180gb"), 2**20)
    assert whole / own == pytest.approx(smaller, rel=0.1)


def test_sglang_divides_its_pools_at_the_start() -> None:
    """github.com/sgl-project/sglang/issues/23933: 33.6 GiB of an H20 hold 1,059,584 tokens.

    It stores 584 bytes of a token beside 576 here, and states of the compression.
    """
    setting = serving_setting("deepseek-v4-pro", "h20-96gb", "sglang")
    c = replicas(kv_cache=CacheType.FP8)
    of_token = float(sequence_bytes(setting, c, 2**20)) / 2**20
    assert 33.55 * GIB / of_token == pytest.approx(1_059_584, rel=0.15)


def test_a_query_sees_its_window_and_the_entries_that_are_chosen() -> None:
    model = load_model("deepseek-v4-flash")
    cores = {
        group.attention.compress_ratio: layer_of(model, group).core
        for group in model.layer_groups
        if group.attention
    }
    near, sparse, heavy = cores[0], cores[4], cores[128]
    assert near
    assert sparse
    assert heavy
    contexts = np.array([256, 1024, 65_536])
    assert [*sparse.compressed_keys(contexts)] == [64, 256, 512]
    assert [*heavy.compressed_keys(contexts)] == [2, 8, 512]
    assert float(near.compressed_keys(65_536)) == 0
    assert near.most_keys == 128


@pytest.mark.parametrize(
    ("name", "total", "active"),
    [("deepseek-v4-flash", 284e9, 13e9), ("deepseek-v4-pro", 1.6e12, 49e9)],
)
def test_parameters_are_those_of_the_model_card(name: str, total: float, active: float) -> None:
    counts = count_parameters(load_model(name))
    assert counts.total == pytest.approx(total, rel=0.02)
    assert counts.active == pytest.approx(active, rel=0.025)


def _streams(model: ModelSpec, number: int) -> ModelSpec:
    def with_streams(group: LayerGroup) -> LayerGroup:
        return replace(group, residual_streams=number)

    return replace(model, layer_groups=tuple(map(with_streams, model.layer_groups)))


def test_streams_of_residuals_have_their_projections() -> None:
    """By hand, of 2 blocks in 32 layers of width 4096: 24 rows of 4 x 4096, 24 biases, 3 scales.

    After the last layer 4 rows, 4 biases, one scale.
    """
    model = load_model("llama-3.1-8b")
    beyond = count_parameters(_streams(model, 4)).total - count_parameters(model).total
    assert beyond == 64 * (24 * 4 * 4096 + 24 + 3) + 4 * 4 * 4096 + 4 + 1


def test_a_layer_that_shares_a_choice_caches_no_index() -> None:
    """78 layers of 576 numbers in 16 bit; 21 of GLM-5.2, all of GLM-5 have 128 of an index."""
    for name, indexers in (("glm-5", 78), ("glm-5.2", 21)):
        by_hand = 16_000 * (78 * 576 * 2 + indexers * 128)
        own = _sequence(serving_setting(name, "b200-sxm-180gb"), 16_000)
        assert own == pytest.approx(by_hand, rel=1e-3)  # the last page is half full
