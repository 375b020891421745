"""What a question tells an engine: sequences at once, graphs, copies of experts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import planner
from planner.base.units import GIB
from planner.errors import SearchSpaceError, SpecError
from planner.specs.software_profile import load_engine
from planner.workloads.serving.question import with_sequence_limit, without_cuda_graphs

ASKED: dict[str, Any] = {
    "workload": "serve", "model": "llama-3.2-1b", "gpu": "h100-sxm-80gb", "engine": "vllm",
    "num_gpus": 1, "input_tokens": 512, "output_tokens": 512,
}  # fmt: skip


def estimated(concurrency: int, **more: Any) -> Any:
    return planner.estimate(**ASKED, settings={"concurrency": concurrency}, **more).candidates


def test_without_graphs_the_host_sets_the_pace() -> None:
    graphs, alone = estimated(4), estimated(4, enforce_eager=True)
    assert alone.time_per_output_token > 1.15 * graphs.time_per_output_token
    without = load_engine("vllm").spec.without_graphs
    assert without is not None
    execution = without_cuda_graphs(load_engine("vllm").spec).execution
    assert execution.decode_launch_time == without.layer_launch_time
    assert execution.prefill_launch_time == without.layer_launch_time
    assert execution.decode_expert_launch_time == without.expert_launch_time
    # A profile that does not say launches as for prompts.
    tgi = load_engine("tgi").spec
    assert (
        without_cuda_graphs(tgi).execution.decode_launch_time == tgi.execution.prefill_launch_time
    )


def step_of(model: str, enforce_eager: bool) -> float:
    """Seconds between two tokens of one of 8 sequences on an H100."""
    found = planner.estimate(
        workload="serve", tuned=True,
        model=model, gpu="h100-sxm-80gb", engine="vllm", num_gpus=1,
        input_tokens=32, output_tokens=128, settings={"concurrency": 8},
        enforce_eager=enforce_eager,
    )  # fmt: skip
    return float(found.candidates.time_per_output_token[0])


def test_without_graphs_a_step_takes_what_vllm_s_developers_measured() -> None:
    """vllm-project/vllm pull request 10058: 128 steps of 8 sequences, 1.04 and 1.26 s."""
    assert step_of("llama-3.1-8b", enforce_eager=False) == pytest.approx(1.04 / 128, rel=0.2)
    assert step_of("llama-3.1-8b", enforce_eager=True) == pytest.approx(1.26 / 128, rel=0.2)


def test_without_graphs_routing_is_launched_too() -> None:
    graphs, alone = (step_of("deepseek-v2-lite", flag) for flag in (False, True))
    # 27 layers of 250 us and 26 times 600 us for their routing hide what the GPU does.
    assert alone == pytest.approx(27 * 250e-6 + 26 * 600e-6, rel=0.15)
    assert alone > 3 * graphs


def test_requests_beyond_the_engine_s_sequences_wait() -> None:
    free, few = estimated(64), estimated(64, max_num_seqs=8)
    assert few.time_to_first_token > 5 * free.time_to_first_token
    assert few.time_per_output_token < free.time_per_output_token
    assert estimated(64, max_num_seqs=64).time_per_output_token == free.time_per_output_token


def test_fewer_sequences_leave_more_room() -> None:
    usual, few = (estimated(4, **more).estimate.memory for more in ({}, {"max_num_seqs": 16}))
    saved = usual.activations - few.activations
    # vLLM captures 12 graphs for 16 sequences and 86 for 256.
    graphs = load_engine("vllm").spec.memory.graphs * (1 - 12 / 86)
    assert saved > 0
    assert few.room.size - usual.room.size == pytest.approx(saved + graphs)


def test_memory_of_graphs_follows_their_number() -> None:
    """Logged by "Graph capturing finished" in LMCache issue 3430 and club-3090 issue 32."""
    engine = load_engine("vllm").spec

    def graphs(sequences: int) -> float:
        memory = estimated(1, max_num_seqs=sequences).estimate.memory
        return float(memory.reserved[0]) - engine.memory.reserved

    taken = [graphs(number) for number in (1, 4, 16, 64, 256, 1024)]
    assert taken == sorted(taken)
    assert taken[-1] == taken[-2] == pytest.approx(engine.memory.graphs)
    # 2 graphs of pieces and 1 of a step take 0.07 GiB.
    assert 0.01 * GIB < taken[0] < 0.1 * GIB
    profile = with_sequence_limit(load_engine("vllm").spec, 16)
    assert (profile.scheduler.max_num_seqs, profile.memory.profiled_seqs) == (16, 16)


def test_copies_of_experts_take_memory() -> None:
    layout = {"tensor_parallel": 1, "attention_data_parallel": 64, "expert_parallel": 64,
              "concurrency": 64}  # fmt: skip

    def weights(copies: int | None) -> float:
        found = planner.estimate(
            workload="serve", tuned=True,
            model="deepseek-v3", gpu="h200", engine="sglang", num_gpus=64,
            settings=layout, redundant_experts=copies,
        )  # fmt: skip
        assert found.rejected_by == ""
        return float(found.candidates.estimate.memory.weights[0])

    none, many = weights(None), weights(64)
    # 256 experts fill 64 ranks; 64 copies are one more for each, in 58 layers of 8 bits.
    assert weights(0) == none
    expert = 3 * 7168 * 2048 * (1 + 4 / 128**2)
    assert round((many - none) / expert, 3) == 58


def test_copies_of_experts_are_read_where_tokens_visit_them() -> None:
    """512 requests visit most of two or three copies of Mixtral's eight experts."""
    layout = {"attention_data_parallel": 8, "expert_parallel": 8, "concurrency": 512}

    def decode(copies: int) -> float:
        asked: dict[str, Any] = {"gpu": "h200", "engine": "sglang", "num_gpus": 8}
        found = planner.estimate(
            workload="serve", tuned=True,
            model="mixtral-8x7b", settings=layout, redundant_experts=copies,
            input_tokens=16, output_tokens=1024, **asked,
        )  # fmt: skip
        return float(np.ravel(found.candidates.estimate.served.time_per_output_token)[0])

    # Some rank's two or three are all visited, and the others wait for it: it reads one more of
    # 3 x 4,096 x 14,336 weights of 16 bits in each of 32 layers.
    read = 32 * 3 * 4096 * 14336 * 2
    assert (decode(16) - decode(8)) * 4.8e12 / read == pytest.approx(1.0, abs=0.25)


def test_copies_even_out_what_ranks_have_to_do() -> None:
    """Without them the rank with the popular experts has most of the tokens of long prompts."""

    def prefill(copies: int) -> float:
        found = planner.estimate(
            workload="serve", tuned=True,
            model="mixtral-8x7b", gpu="h200", engine="sglang", num_gpus=8,
            redundant_experts=copies, input_tokens=8000, output_tokens=10,
            settings={
                "attention_data_parallel": 8, "expert_parallel": 8, "concurrency": 8,
                "max_num_batched_tokens": 16384,
            },
        )  # fmt: skip
        return float(np.ravel(found.candidates.estimate.served.time_to_first_token)[0])

    assert prefill(8) < 0.8 * prefill(0)


def test_copies_of_experts_need_an_engine_that_holds_them() -> None:
    asked: dict[str, Any] = {**ASKED, "model": "mixtral-8x7b", "num_gpus": 4, "engine": "tgi"}
    with pytest.raises(SpecError, match="TGI has no redundant experts: leave out"):
        planner.estimate(**asked, redundant_experts=4)
    with pytest.raises(SpecError, match="an engine that does"):
        planner.search(**asked, redundant_experts=4)
    planner.search(**asked, redundant_experts=0)


def test_a_model_that_drafts_by_name() -> None:
    asked = {**ASKED, "model": "llama-3.1-8b", "draft_tokens": 4, "acceptance_rate": 0.7}

    def found(**more: Any) -> Any:
        return planner.estimate(**asked, settings={"concurrency": 2}, **more).candidates

    free, drafted = found(), found(draft_model="meta-llama/Llama-3.2-1B")
    assert drafted.time_per_output_token > 1.1 * free.time_per_output_token
    more = drafted.estimate.memory.weights[0] - free.estimate.memory.weights[0]
    assert round(more / 2e9, 2) == 1.24
    with pytest.raises(SpecError, match="has 151,936 tokens, not 128,256"):
        found(draft_model="qwen3-0.6b")
    with pytest.raises(SearchSpaceError, match="draft_model needs draft_tokens"):
        planner.estimate(**ASKED, draft_model="llama-3.2-1b")
    best = planner.search(**{**asked, "num_gpus": 2}, draft_model="llama-3.2-1b")
    assert best.recommended is not None


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
@pytest.mark.parametrize(("model", "shards"), [("deepseek-v3", 8.0), ("llama-3.1-70b", 1.0)])
def test_ranks_hold_parts_of_a_cache_where_they_would_hold_copies(
    model: str, shards: float, engine: str
) -> None:
    """github.com/vllm-project/vllm/issues/26877: an eighth of one latent head, of 8 heads all."""
    found = [
        planner.estimate(
            workload="serve", model=model, gpu="h200", num_gpus=8, engine=engine,
            settings={"tensor_parallel": 8, "concurrency": 4}, input_tokens=4096,
            decode_context_parallel=ranks,
        ).table()
        for ranks in (1, 8)
    ]  # fmt: skip
    one, eight = (table["kv_cache_tokens"][0] for table in found)
    assert eight / one == pytest.approx(shards, rel=0.01)
    # Gathering queries and outputs takes longer than short contexts save.
    times = [table["time_per_output_token_s"][0] for table in found]
    assert (times[1] > times[0]) == (shards > 1)


def test_context_parallelism_in_decoding_needs_an_engine_that_has_it() -> None:
    with pytest.raises(SpecError, match="decode context parallelism"):
        planner.estimate(
            workload="serve", model="deepseek-v3", gpu="h200", num_gpus=8, engine="tgi",
            settings={"tensor_parallel": 8}, decode_context_parallel=8,
        )  # fmt: skip


def test_the_stage_of_most_layers_decides_memory_and_rate() -> None:
    """github.com/vllm-project/vllm/issues/34076: 16 and 32 layers leave no room where 24 do."""
    asked: dict[str, Any] = {
        "workload": "serve", "model": "qwen3-30b-a3b-2507", "gpu": "rtx5090", "num_gpus": 2,
        "engine": "vllm", "max_model_len": 200_000,
        "settings": {"pipeline_parallel": 2, "concurrency": 2, "quantization": "fp8_block",
                     "expert_quantization": "fp8_block"},
    }  # fmt: skip
    even, uneven = (planner.estimate(**asked, stage_layers=layers) for layers in (None, 32))
    assert even.rejected_by == ""
    assert uneven.rejected_by == "out_of_memory"
    weights = [each.table()["memory_weights_gib"][0] for each in (even, uneven)]
    assert weights[1] / weights[0] == pytest.approx(32 / 24, rel=0.02)
