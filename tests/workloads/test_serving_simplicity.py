"""Of two ways to serve that are ties, the plainer one has the smaller complexity."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from rows import each

import planner
from planner.base.enums import (
    CacheType,
    Quantization,
)
from planner.confidence.intervals import MAX_TIE_FACTOR
from planner.configurations.configuration_tables import PoolConfigurations, ServingConfigurations
from planner.estimators.inference.batch_share import ServingInputs
from planner.optimize.exhaustive import exhaustive_search
from planner.optimize.tie_breaking import ComplexityTieBreaker
from planner.question.request import Request
from planner.show.presenters.uncertainty import tie_text
from planner.workloads.assumptions import (
    HIGHEST_LOAD,
    LONGEST_BATCH,
    batch_complexity,
    pool_complexity,
    replica_complexity,
)
from planner.workloads.make_plan import make_plan
from planner.workloads.serving.prefill_decode_pools import PrefillDecodeSource

SERVE: dict[str, Any] = {
    "workload": "serve", "model": "llama-3.1-70b", "gpu": "h100", "num_gpus": 16,
    "engine": "vllm",
}  # fmt: skip
PLAIN: dict[str, Any] = {
    "num_gpus": 16, "concurrency": 64, "quantization": Quantization.W16A16,
    "expert_quantization": Quantization.W16A16, "kv_cache": CacheType.BF16,
    "max_num_batched_tokens": 8192,
}  # fmt: skip
# Each is plainer than the one behind it; everything else is plain.
ORDER: tuple[dict[str, Any], ...] = (
    {},
    {"max_num_batched_tokens": 16384},
    {"kv_cache": CacheType.FP8},
    {"quantization": Quantization.FP8, "expert_quantization": Quantization.FP8},
    {"num_gpus": 18},
    {"tensor_parallel": 2},
    {"tensor_parallel": 6},
    {"expert_parallel": 2},
    {"tensor_parallel": 4, "expert_parallel": 4},
    {"expert_parallel": 4, "attention_data_parallel": 4},
    {"pipeline_parallel": 2},
    {"tensor_parallel": 2, "pipeline_parallel": 2},
    {"tensor_parallel": 8, "pipeline_parallel": 2},
    {"tensor_parallel": 16},
    {"kv_offload": 0.5},
)


def setting(model: str = "llama-3.1-70b") -> ServingInputs:
    (source,) = make_plan(
        Request(**{**SERVE, "model": model, "mode": "aggregated"})
    ).problem.sources
    found: ServingInputs = source.inputs
    return found


def complexity(more: dict[str, Any], model: str = "llama-3.1-70b") -> int:
    c = ServingConfigurations.of(**{**PLAIN, **more})
    return int(replica_complexity(setting(model), c, c.num_gpus))


@each("place", range(1, len(ORDER)))
def test_the_order(place: int) -> None:
    assert complexity(ORDER[place - 1]) < complexity(ORDER[place])


def test_what_comes_first_outweighs_all_that_follows() -> None:
    unusual = {"num_gpus": 18, **ORDER[1], **ORDER[2], **ORDER[3]}
    assert complexity({}) == 0
    assert complexity(unusual) < complexity({"tensor_parallel": 2})
    inside = {**unusual, "tensor_parallel": 2, "pipeline_parallel": 2, "expert_parallel": 2}
    assert complexity(inside) < complexity({"tensor_parallel": 16})


def test_published_weights_are_plain_whatever_their_type() -> None:
    own = {"quantization": Quantization.FP8_BLOCK, "expert_quantization": Quantization.FP8_BLOCK}
    assert complexity(own, "deepseek-v3") == 0
    assert complexity({}, "deepseek-v3") > 0
    experts = {"expert_quantization": Quantization.MXFP4}
    assert complexity(experts, "gpt-oss-120b") == 0


def test_a_long_batch_is_less_plain_than_any_layout_inside_memory() -> None:
    c = ServingConfigurations.of(**PLAIN)
    times = np.array([LONGEST_BATCH, LONGEST_BATCH * 1.01])
    short, long = batch_complexity(setting(), c, times)
    across = ServingConfigurations.of(**{**PLAIN, "tensor_parallel": 16})
    assert short == 0 < batch_complexity(setting(), across, times[0]) < long


def test_pools_are_less_plain_than_replicas() -> None:
    problem = make_plan(Request(**SERVE)).problem
    fewest, most = {}, {}
    for source in problem.sources:
        for block in source.blocks(problem.objectives, problem.constraints):
            if block.candidates is not None:
                found = block.candidates.complexity
                assert np.broadcast_shapes(found.shape, block.candidates.shape) == (
                    block.candidates.shape
                )
                assert np.issubdtype(found.dtype, np.integer)
                mode = source.mode
                fewest[mode] = min(fewest.get(mode, found.min()), found.min())
                most[mode] = max(most.get(mode, 0), found.max())
    assert most["aggregated"] < fewest["disaggregated"]
    assert most["aggregated"] > fewest["aggregated"]


def test_prefill_workers_without_time_to_spare_are_less_plain() -> None:
    source = make_plan(Request(**{**SERVE, "mode": "disaggregated"})).problem.sources[0]
    assert isinstance(source, PrefillDecodeSource)
    one = ServingConfigurations.of(**{**PLAIN, "num_gpus": 1})
    c = PoolConfigurations.combine_workers(one, one, np.array([1.0]), np.array([1.0]))
    idle, spare, full = pool_complexity(
        source.inputs, source.inputs, c, c.num_gpus, np.array([0.1, HIGHEST_LOAD, 0.91])
    )
    assert idle == spare < full
    slow = ServingConfigurations.of(**{**PLAIN, "num_gpus": 16, "tensor_parallel": 16})
    across = PoolConfigurations.combine_workers(slow, one, np.array([1.0]), np.array([1.0]))
    (most,) = pool_complexity(
        source.inputs, source.inputs, across, across.num_gpus, np.array([0.1])
    )
    assert spare < most < full


def test_the_recommended_pools_have_time_to_spare() -> None:
    long = {"num_gpus": 32, "gpu": "h200", "input_tokens": 4000, "output_tokens": 1000}
    found = planner.search(**{**SERVE, **long, "mode": "disaggregated"})
    assert found.recommended is not None
    (load,) = found.recommended.columns()["utilization"]
    assert load <= HIGHEST_LOAD
    assert max(found.table["utilization"]) > HIGHEST_LOAD


def test_every_kind_of_candidates_has_one() -> None:
    batches = make_plan(Request(**{**SERVE, "workload": "inference"})).problem
    (source,) = batches.sources
    judged = source.judged(source.mesh.table())
    assert len(np.unique(judged.complexity)) > 10
    assert exhaustive_search(batches).configurations_feasible
    assert planner.search(**SERVE).configurations_feasible


def test_replicas_that_do_all_are_recommended_where_pools_are_a_tie() -> None:
    found = planner.search(**{**SERVE, "model": "gpt-oss-120b", "gpu": "h200"})
    fastest, recommended = found.fastest, found.recommended
    assert fastest is not None
    assert recommended is not None
    gain = float(fastest.value("throughput_per_gpu").ravel()[0])
    mine = float(recommended.value("throughput_per_gpu").ravel()[0])
    factor = recommended.source.confidence(16).layout_tie_factor
    assert 1 < gain / mine <= min(factor, 1.25)
    assert (fastest.source.mode, recommended.source.mode) == ("disaggregated", "aggregated")
    assert int(np.ravel(recommended.complexity)[0]) < int(np.ravel(fastest.complexity)[0])
    compared = found.comparisons["mode"]
    assert compared.table["mode"] == ["aggregated", "disaggregated"]
    assert compared.losses[0] == 0
    assert -0.25 <= compared.losses[1] < 0


def test_sizing_takes_replicas_for_a_few_gpus_more() -> None:
    sized = {**SERVE, "model": "llama-3.1-8b", "num_gpus": None, "request_rate": 200.0}
    found = planner.search(**{**sized, "engine": "sglang"})
    fastest, recommended = found.fastest, found.recommended
    assert fastest is not None
    assert recommended is not None
    assert recommended.source.mode == "aggregated"
    fewest, mine = (float(np.ravel(one.value("num_gpus"))[0]) for one in (fastest, recommended))
    assert fewest <= mine <= 1.25 * fewest


def test_modes_are_joined_in_whatever_order() -> None:
    found = planner.search(**{**SERVE, "model": "deepseek-v3", "gpu": "h200"})
    kept = [group.collector.simplest for group in found.groups]
    for several in (kept, kept[::-1]):
        together = ComplexityTieBreaker.join(several)
        assert together.best is not None
        assert together.best.bad_case == min(each.best.bad_case for each in kept if each.best)
        assert (near := together.simplest_within(1.3)) is not None
        assert near.source.mode == "aggregated"
        assert together.simplest_within(1.0) is together.best
    assert ComplexityTieBreaker.join([]).best is None


def test_layouts_of_dense_models_are_told_apart_sooner_than_those_of_experts() -> None:
    factors = []
    for model in ("llama-3.1-70b", "deepseek-v3"):
        plan = make_plan(Request(**{**SERVE, "model": model}))
        sure = [source.confidence(16) for source in plan.problem.sources]
        assert len({one.layout_tie_factor for one in sure if one is not None}) == 1
        factors.append(sure[0].layout_tie_factor if sure[0] is not None else 0.0)
    dense, experts = factors
    assert 1.1 < dense < 1.2 < experts == MAX_TIE_FACTOR
    told = (Path(__file__).parents[2] / "docs" / "background" / "uncertainty.md").read_text()
    assert "larger for models with experts, and answers print it" in told
    capped = "within x1.25, the most that counts as a tie"
    answer = planner.search(**{**SERVE, "model": "deepseek-v3"}).summary(full=True)
    assert capped in " ".join(answer.split())
    assert tie_text(dense) == f"within x{dense:.2f}, the error between layouts"
