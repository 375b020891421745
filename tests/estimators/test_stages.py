"""Which layers stand on which pipeline stage."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from published_runs import configuration, setting

import planner
from planner.errors import SpecError
from planner.estimators.training.sharding import (
    chunk_sizes,
    layer_kinds,
    stage_layers,
    stage_parameters,
)
from planner.layers.model import count_parameters, layer_parameters
from planner.specs.catalogue import load_model

FIRST, LAST = 0, -1


@given(layers=st.integers(1, 500), data=st.data())
def test_chunks_hold_all_layers_as_evenly_as_possible(layers: int, data: st.DataObject) -> None:
    chunks = data.draw(st.integers(1, layers))
    sizes = chunk_sizes(layers, chunks, 1)
    assert sizes.sum() == layers
    assert sizes.max() - sizes.min() <= 1
    assert sizes[0] <= sizes[1:-1].min(initial=layers)
    assert sizes[-1] <= sizes.min()


def _stages(model: str, pipeline: int, virtual: int = 1) -> np.ndarray:
    """Layers on the first, the fullest inner and the last stage."""
    spec = setting(model).model
    return stage_layers(spec, np.float64(pipeline), np.float64(virtual)).counts.sum(axis=1)


def test_llama_3_405b_has_126_layers_for_lighter_ends() -> None:
    """arXiv:2407.21783, section 3.3.2: one layer less on the first and on the last stage."""
    assert _stages("llama-3.1-405b", 16).tolist() == [7, 8, 7]


@pytest.mark.parametrize(
    ("model", "pipeline", "virtual", "expected"),
    [
        pytest.param("llama-65b", 8, 1, [10, 10, 10], id="80 layers divide by 8"),
        pytest.param("llama-65b", 8, 5, [10, 10, 10], id="and by 8 x 5"),
        pytest.param("llama-65b", 1, 1, [80, 80, 80], id="one stage holds all"),
        pytest.param("llama-65b", 3, 1, [27, 27, 26], id="the last stage has the least"),
        pytest.param("llama-65b", 6, 1, [13, 14, 13], id="extra layers stand inside"),
        pytest.param("llama-65b", 100, 1, [0, 0, 0], id="more stages than layers"),
    ],
)
def test_uneven_stages(model: str, pipeline: int, virtual: int, expected: list[int]) -> None:
    assert _stages(model, pipeline, virtual).tolist() == expected


@pytest.mark.parametrize(
    ("model", "pipeline", "virtual", "expected"),
    [
        pytest.param("llama-3.1-405b", 16, 8, [7, 8, 7], id="126 layers on 128 chunks"),
        pytest.param("kimi-k2", 4, 4, [16, 16, 13], id="the last chunk has one layer"),
        pytest.param("kimi-k2", 8, 2, [8, 8, 5], id="and so it has on eight stages"),
        pytest.param("kimi-k2", 16, 2, [3, 4, 2], id="the last chunk has the loss alone"),
        pytest.param("qwen3-235b-a22b", 8, 12, [11, 12, 11], id="94 layers on 96 chunks"),
    ],
)
def test_chunks_of_embedding_and_loss(
    model: str, pipeline: int, virtual: int, expected: list[int]
) -> None:
    """Layouts of Megatron-Bridge's performance recipes: ends make way for embedding and loss."""
    assert _stages(model, pipeline, virtual).tolist() == expected


def test_gemma_alternates_windows() -> None:
    """arXiv:2408.00118, section 2: local and global layers in every other layer."""
    kinds = layer_kinds(setting("gemma-2-9b").model.layer_groups)
    assert kinds.tolist() == [0, 1] * 21


def test_deepseek_v3_starts_with_three_dense_layers() -> None:
    """arXiv:2412.19437, section 4.2: all but the first three layers have experts."""
    spec = load_model("deepseek-v3")
    assert layer_kinds(spec.layer_groups).tolist() == [0] * 3 + [1] * 58
    layers = stage_layers(spec, np.float64(16), np.float64(1)).counts
    assert layers[FIRST].tolist() == [3, 0]
    assert layers[LAST].tolist() == [0, 3]


def test_interleaved_chunks_stand_a_pipeline_apart() -> None:
    """arXiv:2104.04473, section 2.2.2: with p = 2 and v = 2 stage 0 holds chunks 0 and 2."""
    layers = stage_layers(load_model("deepseek-v3"), np.float64(2), np.float64(15)).counts
    # 30 chunks of 61 layers: chunk 1 has three layers, the others two.
    assert layers[FIRST].sum() == 30
    assert layers[LAST].sum() == 31
    assert layers[FIRST].tolist() == [2, 28]
    assert layers[LAST].tolist() == [1, 30]


@pytest.mark.parametrize(
    "model",
    ["llama-7b", "gemma-2-9b", "mixtral-8x7b", "gpt-3-175b", "bloom-7b1", "deepseek-v3"],
)
def test_one_stage_holds_every_parameter(model: str) -> None:
    spec = setting(model).model
    held = stage_parameters(spec, configuration(num_gpus=1, global_batch_size=1))
    total = held.dense[FIRST] + held.experts[FIRST]
    assert total == count_parameters(spec).total


@pytest.mark.parametrize("model", ["llama-7b", "mixtral-8x7b"])
def test_two_stages_of_four_ranks_hold_the_model_once(model: str) -> None:
    spec = setting(model).model
    layout = configuration(
        num_gpus=8, tensor_parallel=4, pipeline_parallel=2, expert_parallel=4, global_batch_size=1
    )
    held = stage_parameters(spec, layout)
    count = count_parameters(spec)
    experts = 4 * (held.experts[FIRST] + held.experts[LAST])
    assert experts == count.experts
    copied = 3 * (count.router + count.norms)  # whole on each of four ranks
    dense = 4 * (held.dense[FIRST] + held.dense[LAST])
    assert dense - copied == count.total - count.experts


def test_stages_of_many_kinds_are_told_by_their_rank() -> None:
    """DeepSeek-V3 on 32 stages: after two dense stages the fullest hold two expert layers."""
    layers = stage_layers(setting("deepseek-v3").model, np.float64(32), np.float64(1))
    inner = layers.counts[1:-1].tolist()
    assert [0, 2] in inner
    assert [2, 0] in inner
    assert layers.ranks[0] == 0
    assert layers.ranks[-1] == 31
    assert layers.ranks[1:-1].min() >= 1
    assert layers.ranks[1:-1].max() <= 30


@pytest.mark.parametrize("tensor", [1, 4])
@pytest.mark.parametrize(
    ("model", "first_norms", "last_norms"),
    [("bloom-7b1", 2, 2), ("gpt-3-175b", 0, 2), ("llama-7b", 0, 1)],
)
def test_every_rank_of_the_ends_holds_their_norms(
    model: str, first_norms: int, last_norms: int, tensor: int
) -> None:
    """Weight and bias, or the weight alone; BLOOM has a norm behind its embedding too."""
    spec = setting(model).model
    p = spec.num_hidden_layers
    layout = configuration(
        num_gpus=p * tensor, tensor_parallel=tensor, pipeline_parallel=p, global_batch_size=1
    )
    held, count = stage_parameters(spec, layout), count_parameters(spec)
    ends = held.dense - held.layer_dense[0]
    matrix = spec.vocab_size * spec.hidden_size  # a copy of its own even where it is tied
    assert ends[FIRST] == count.embedding / tensor + first_norms * spec.hidden_size
    assert ends[LAST] == matrix / tensor + last_norms * spec.hidden_size
    assert ends[1:-1].tolist() == [0] * (len(ends) - 2)


@pytest.mark.parametrize(
    ("model", "tensor", "copied_heads"),
    [
        ("llama-3-70b", 8, 0.0),  # one of 8 key-value heads on each rank
        ("llama-3-70b", 16, 0.5),  # one instead of half a head
        ("falcon-7b", 4, 0.75),  # one head for all
        ("llama-65b", 16, 0.0),
        ("deepseek-v3", 16, 0.0),  # latent attention has no heads to copy
    ],
)
def test_key_value_heads_are_copied_not_split(model: str, tensor: int, copied_heads: float) -> None:
    spec = setting(model).model
    layout = configuration(num_gpus=tensor, tensor_parallel=tensor, global_batch_size=1)
    held = stage_parameters(spec, layout)
    for group, dense in zip(spec.layer_groups, held.layer_dense, strict=True):
        layer = layer_parameters(spec.hidden_size, group)
        split = (layer.attention + layer.feed_forward) / tensor
        copied = copied_heads * spec.hidden_size * 2 * group.attention.head_dim
        assert dense == split + layer.norms + layer.router + copied


@pytest.mark.parametrize("pipeline", [1, 2])
def test_short_pipelines_repeat_the_first_stage_as_inner(pipeline: int) -> None:
    layers = stage_layers(setting("deepseek-v3").model, np.float64(pipeline), np.float64(1))
    assert set(layers.ranks[:-1].tolist()) == {0}
    assert layers.ranks[LAST] == pipeline - 1
    for inner in layers.counts[1:-1]:
        assert inner.tolist() == layers.counts[FIRST].tolist()


def _told(layout: str, **others: int) -> Any:
    sizes = {"pipeline_parallel": 4, "micro_batch_size": 1, **others}
    return planner.estimate(
        model="llama-7b",
        gpu="a100-sxm-80gb",
        num_gpus=4,
        framework="megatron-lm",
        global_batch_size=16,
        pipeline_layout=layout or None,
        settings=sizes,
    )


def _counts(estimate: Any) -> set[float]:
    """Layers of the stages that are looked at."""
    c = estimate.configurations
    held = stage_parameters(estimate.inputs.model, c, estimate.inputs).layers.counts[:, 0]
    return {float(count.flat[0]) for count in held}


def test_the_split_that_is_dealt_costs_the_same_where_it_is_told() -> None:
    dealt, told = (_told(layout).candidates.estimate for layout in ("", "Et*8|(t*8|)*2t*8L"))
    assert told.step_time == dealt.step_time
    assert told.peak_memory == dealt.peak_memory


@pytest.mark.parametrize("layout", ["6,8,8,10", "Et*6|(t*8|)*2t*10L"])
def test_the_heaviest_told_stage_sets_the_pace_and_holds_most(layout: str) -> None:
    """Ten layers of 32 on the last stage: as an even pipeline of 40 layers, or nearly so."""
    even, told = (_told(each).candidates.estimate for each in ("", layout))
    counts = _counts(told)
    assert counts == {6.0, 8.0, 10.0}
    ratio = float(np.max(told.step_time / even.step_time))
    assert 1.1 < ratio < 10 / 8


def test_ends_can_stand_alone() -> None:
    """Chunks of the embedding and of the loss alone, as in layouts of Megatron-Bridge."""
    told = _told("E|t*6|t*6|t*6|t*6|t*4|t*4|L", virtual_pipeline=2)
    assert told.rejected_by == ""
    counts = _counts(told.candidates.estimate)
    assert counts == {6.0, 10.0}


@pytest.mark.parametrize(
    ("layout", "others"),
    [("8,8,8,8", {"pipeline_parallel": 2}), ("16,0,8,8", {})],
)
def test_layouts_of_other_chunks_or_empty_ones_are_refused(
    layout: str, others: dict[str, int]
) -> None:
    assert _told(layout, **others).rejected_by == "pipeline_layout"


@pytest.mark.parametrize("layout", ["Et*8|t*8|t*8|t*7L", "t*16|Et*16L", "Et*16|t*16", "abc"])
def test_layouts_that_are_none_are_faults(layout: str) -> None:
    with pytest.raises(SpecError):
        _told(layout)
