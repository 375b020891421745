"""DeepSeek-V4 and layers that choose keys: what they cache, see and hold, worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from published_runs import configuration, setting
from serving_cases import replicas, serving_setting

from planner.base.enums import CacheType
from planner.base.units import GIB
from planner.estimators.inference.batch_share import ServingInputs
from planner.estimators.inference.serving_memory import sequence_bytes
from planner.estimators.inference.static_batch import static_batch
from planner.estimators.training.training_estimate import evaluate
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


def _core_times(name: str) -> list[tuple[float, float]]:
    """Forward and backward milliseconds of each kind of layer's attention core, 4,096 tokens."""
    c = configuration(
        num_gpus=256, micro_batch_size=1, global_batch_size=256, zero_stage=1, expert_parallel=64
    )
    inputs = setting(name, "megatron-bridge", gpu="b200-sxm-180gb", sequence_length=4096)
    blocks = evaluate(inputs, c).time.blocks
    cores = [o for b in blocks for o in b.time.operators if o.name == "attention_core"]
    return [(1e3 * float(np.max(o.forward)), 1e3 * float(np.max(o.backward))) for o in cores]


@pytest.mark.parametrize(
    ("name", "layer", "published"),
    # 64 heads of 512 numbers, 128 and 512 + 128 keys: 0.56 ms, and 1.23 to 1.48 of 512 to 640;
    # 128 heads of 576 and 512 numbers, 2,048 keys: twice the 4.3 ms of 1,024, 512 and 512 numbers.
    [("deepseek-v4-flash", 0, 0.56), ("deepseek-v4-flash", 1, 1.36), ("deepseek-v3.2", 1, 8.6)],
)
def test_backward_passes_of_sparse_cores_are_as_cudnn_measured(
    name: str, layer: int, published: float
) -> None:
    """NVIDIA/cudnn-frontend pull request 318, B200: keys of a latent, each slot of the chosen."""
    assert _core_times(name)[layer][1] == pytest.approx(published, rel=0.3)


def test_an_indexer_learns_from_scores_that_are_made_again() -> None:
    """Forward passes of layers with an indexer have a third product beside scores and values."""
    times = _core_times("deepseek-v4-flash")
    near, chosen = times[0], times[1]
    assert chosen[0] / chosen[1] == pytest.approx(1.5 * near[0] / near[1], rel=0.01)


def _prompt_attention(engine: str, ranks: int, tokens: int, gpu: str = "h200-sxm-141gb") -> float:
    """Seconds of the attention of one prompt in a layer of DeepSeek-V3.2, which has 128 heads."""
    inputs = serving_setting("deepseek-v3.2", gpu, engine=engine, input_tokens=tokens)
    c = replicas(num_gpus=ranks, tensor_parallel=ranks, max_num_batched_tokens=tokens)
    _, (_, operators) = static_batch(inputs, c).prefill_step.layers
    (core,) = (operator for operator in operators if operator.name == "attention_prefill")
    return float(core.forward.ravel()[0])


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_heads_of_a_rank_fill_a_block_of_sparse_attention(engine: str) -> None:
    """Of 128 heads 8 ranks have 16 each, and the kernels compute 64: no faster than 2 ranks."""
    two, eight = (_prompt_attention(engine, ranks, 8192) for ranks in (2, 8))
    assert eight == pytest.approx(two, rel=1e-6)
    assert _prompt_attention(engine, 1, 8192) > 1.8 * two


def test_prompts_no_longer_than_what_is_chosen_attend_to_all_keys() -> None:
    """A rank with fewer heads is faster, as its kernel pads none."""
    assert _prompt_attention("sglang", 8, 2048) < 0.4 * _prompt_attention("sglang", 2, 2048)
    # A token more, and every query has 2,048 keys of all the padded heads.
    assert _prompt_attention("sglang", 8, 2049) > 5 * _prompt_attention("sglang", 8, 2048)
