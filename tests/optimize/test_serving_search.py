from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from rows import each

import planner
from planner.errors import SearchSpaceError, SpecError
from planner.optimize.exhaustive import exhaustive_search, without_assumed
from planner.question.request import Request
from planner.workloads.make_plan import make_plan

SMALL = {
    "model": "llama-3.1-8b",
    "engine": "vllm",
    "gpu": "h100-sxm-80gb",
    "num_gpus": 8,
    "input_tokens": 1000,
    "output_tokens": 200,
    "settings": {"concurrency": [1, 4, 16, 64, 128], "max_num_batched_tokens": [2048, 8192]},
}


SMALLER_IS_BETTER = ("request_latency_s", "cost_per_million_tokens_usd")


def all_rows(**request) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The front and every feasible row."""
    tables: list[pd.DataFrame] = []
    problem = make_plan(Request(workload="serve", **{**SMALL, **request})).problem
    result = exhaustive_search(problem, sink=lambda table: tables.append(pd.DataFrame(table)))
    return result.to_frame(), pd.concat(tables, ignore_index=True)


def not_dominated(values: np.ndarray) -> np.ndarray:
    """The O(n^2) definition, smaller is better."""
    return np.array(
        [
            not ((values <= row).all(axis=1) & (values < row).any(axis=1)).any()
            for row in values
        ]
    )  # fmt: skip


@pytest.mark.few(4)
@pytest.mark.parametrize("mode", ["aggregated", "disaggregated"])
@pytest.mark.parametrize(
    ("objectives", "columns"),
    [
        (
            ("throughput_per_gpu", "interactivity"),
            ["output_tokens_per_s_per_gpu", "tokens_per_s_per_user"],
        ),
        (
            ("cost_per_million_tokens", "time_to_first_token", "request_latency"),
            ["cost_per_million_tokens_usd", "time_to_first_token_s", "request_latency_s"],
        ),
    ],
)
def test_the_front_is_that_of_all_rows(mode, objectives, columns):
    front, rows = all_rows(mode=mode, objectives=objectives)
    signs = np.array([-1 if column.startswith(("output", "tokens")) else 1 for column in columns])
    expected = np.unique(
        np.round(rows.loc[not_dominated(rows[columns].to_numpy() * signs), columns], 9), axis=0
    )
    found = np.unique(np.round(front[columns], 9), axis=0)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def allowed_workers(workers, values, allowed, goals):
    return np.flatnonzero(np.broadcast_to(allowed, workers.configurations.shape))


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("objectives", "columns"),
    [
        (
            ("throughput_per_gpu", "interactivity"),
            ["output_tokens_per_s_per_gpu", "tokens_per_s_per_user"],
        ),
        (
            ("request_latency", "cost_per_million_tokens"),
            ["request_latency_s", "cost_per_million_tokens_usd"],
        ),
        (("memory_headroom", "throughput"), ["memory_headroom_gib", "output_tokens_per_s"]),
    ],
)
@pytest.mark.parametrize("limits", [{}, {"memory_headroom": 30 * 2.0**30}])
def test_dominated_workers_are_missed_in_no_plan_by_much(monkeypatch, objectives, columns, limits):
    """Workers are chosen by what they reach when they are full, before they stand in a loop.

    A slower pool of prefill workers also lets fewer requests decode, which can be faster: a
    plan that a smaller concurrency of the other workers comes close to.
    """
    request = {"mode": "disaggregated", "objectives": objectives, "constraints": limits}
    filtered, _ = all_rows(**request)
    monkeypatch.setattr("planner.workloads.serving.prefill_decode_search._fronts", allowed_workers)
    everything, _ = all_rows(**request)
    mine, all_plans = (table[columns].to_numpy() for table in (filtered, everything))
    signs = np.array([1 if name in SMALLER_IS_BETTER else -1 for name in columns])
    behind = (mine[None] / all_plans[:, None]) ** signs
    nearest = behind.max(axis=2).min(axis=1)
    assert nearest.mean() < 1.02
    assert nearest.max() < 1.15
    for name, sign in zip(columns, signs, strict=True):
        assert (sign * filtered[name]).min() == pytest.approx((sign * everything[name]).min())


def test_both_modes_share_a_front_and_each_has_its_best():
    result = planner.search(workload="serve", **SMALL)
    front, rows = all_rows()
    again = result.to_frame()
    again = again[again["rank"].notna()].sort_values("rank").reset_index(drop=True)
    pd.testing.assert_frame_equal(front, again[front.columns])
    assert set(rows["mode"]) == {"aggregated", "disaggregated"}
    best = pd.DataFrame(result.comparisons["mode"].table)
    for mode, throughput in zip(best["mode"], best["output_tokens_per_s_per_gpu"], strict=True):
        of_mode = rows.loc[rows["mode"] == mode, "output_tokens_per_s_per_gpu"]
        # The chance to keep the limits counts as much as the speed, down to one half.
        factor = 2 * result.recommended.source.confidence(8).layout_tie_factor
        assert of_mode.max() / factor <= throughput <= of_mode.max()


def test_every_row_keeps_the_limits_and_uses_the_gpus():
    limits = {
        "time_to_first_token": 0.2,
        "time_per_output_token": 0.02,
        "request_latency": 4.0,
        "cost_per_million_tokens": 3.0,
    }
    _, rows = all_rows(constraints=limits)
    assert (rows["time_to_first_token_s"] <= 0.2).all()
    assert (rows["time_per_output_token_s"] <= 0.02).all()
    assert (rows["request_latency_s"] <= 4).all()
    assert (rows["cost_per_million_tokens_usd"] <= 3).all()
    assert (rows["num_gpus"] == 8).all()
    split = rows.filter(regex="^(tensor|pipeline|attention_data)_parallel$").prod(axis=1)
    prefill = rows.filter(regex="^prefill_(tensor|pipeline|attention_data)_parallel$")
    prefill_gpus = prefill.fillna(0).prod(axis=1) * rows["prefill_replicas"].fillna(0)
    assert (rows["replicas"] * split + prefill_gpus == 8).all()


def test_small_blocks_change_nothing(monkeypatch):
    whole = all_rows(mode="aggregated")
    monkeypatch.setattr("planner.workloads.serving.replicas.ReplicaSource.block_rows", 50)
    cut = all_rows(mode="aggregated")
    pd.testing.assert_frame_equal(whole[0], cut[0])
    order = [name for name in cut[1] if cut[1][name].notna().all()]
    pd.testing.assert_frame_equal(
        whole[1].sort_values(order, ignore_index=True),
        cut[1].sort_values(order, ignore_index=True),
        rtol=1e-12,
    )


def test_a_row_of_the_search_is_what_the_estimate_says():
    front, _ = all_rows(mode="aggregated")
    row = front.iloc[0]
    names = ("tensor_parallel", "pipeline_parallel", "concurrency", "max_num_batched_tokens")
    settings = {name: int(row[name]) for name in names}
    settings |= {"quantization": row["quantization"], "kv_cache": row["kv_cache"]}
    again = planner.estimate(workload="serve", **{**SMALL, "settings": settings}).to_frame().iloc[0]
    for name in ("time_to_first_token_s", "output_tokens_per_s", "peak_memory_gib"):
        assert again[name] == pytest.approx(row[name])


def test_several_numbers_of_gpus_are_searched_together():
    _, rows = all_rows(num_gpus=(4, 8), mode="disaggregated")
    assert set(rows["num_gpus"]) == {4, 8}
    result = planner.search(workload="serve", **{**SMALL, "num_gpus": (4, 8)})
    assert set(result.to_frame()["num_gpus"]) <= {4, 8}


def test_counts_add_up():
    problem = make_plan(Request(workload="serve", **SMALL)).problem
    result = exhaustive_search(problem)
    rejected = sum(result.rejected_by.values())
    assert result.configurations_evaluated == result.configurations_feasible + rejected


def test_what_the_memory_rejects_altogether_is_counted_all_the_same():
    request = {**SMALL, "model": "llama-3.1-405b", "mode": "aggregated"}
    problem = without_assumed(make_plan(Request(workload="serve", **request)).problem)
    (source,) = problem.sources
    codes = np.broadcast_to((found := source.judged(source.mesh.table())).rejected_by, found.shape)
    expected = {
        name: int(np.count_nonzero(codes == number))
        for number, name in enumerate(source.rejections, start=1)
    }
    result = exhaustive_search(problem)
    assert result.rejected_by == {name: count for name, count in expected.items() if count}
    assert result.rejected_by["out_of_memory"] >= 50
    assert result.configurations_evaluated == problem.num_rows


@pytest.mark.parametrize("rate", [0.5, 20.0, 300.0])
def test_sizing_meets_the_rate_with_no_replica_to_spare(rate):
    front, rows = all_rows(num_gpus=None, request_rate=rate)
    assert (rows["capacity_requests_per_s"] >= rate * (1 - 1e-9)).all()
    alone = rows[(rows["mode"] == "aggregated") & (rows["replicas"] > 1)]
    without_one = alone["capacity_requests_per_s"] * (1 - 1 / alone["replicas"])
    assert (without_one < rate).all()
    assert front["num_gpus"].iloc[0] == rows["num_gpus"].min()


def test_pools_that_are_sized_have_places_for_requests_that_wait_for_their_prompt():
    short = {"input_tokens": 8000, "output_tokens": 20, "mode": "disaggregated"}
    _, rows = all_rows(num_gpus=None, request_rate=30.0, **short)
    assert (rows["capacity_requests_per_s"] >= 30 * (1 - 1e-9)).all()


@pytest.mark.parametrize(("asked", "bound"), [({}, 8), ({"max_gpus": 4}, 4), ({"max_gpus": 99}, 8)])
def test_sizing_ends_at_the_smaller_of_the_cluster_and_what_is_asked(asked, bound):
    sized = {"model": "llama-2-7b", "cluster": "rtx4090-pcie", "request_rate": 2.0}
    plan = make_plan(Request(workload="serve", constraints=asked, **sized))
    (limit,) = (one for one in plan.problem.constraints if not one.assumed)
    assert (limit.name, limit.bound) == ("max_gpus", bound)


def test_a_rate_on_given_gpus_is_a_limit():
    _, rows = all_rows(request_rate=10.0)
    assert (rows["capacity_requests_per_s"] >= 10).all()


def test_several_gpus_are_compared_by_their_best_plan():
    request = {**SMALL, "gpu": ("a100-sxm-80gb", "h100-sxm-80gb", "t4-16gb")}
    result = planner.search(
        workload="serve", **{**request, "constraints": {"time_per_output_token": 0.005}}
    )
    compared = result.comparisons["gpu"]
    frame = pd.DataFrame(compared.table)
    assert len(frame) == len(set(frame["gpu"])) == 2
    assert frame["output_tokens_per_s_per_gpu"].is_monotonic_decreasing
    rates = frame["output_tokens_per_s_per_gpu"]
    assert compared.losses == pytest.approx(list(1 - rates / rates[0]))
    assert dict(compared.without_plan) == {"t4-16gb": "time_per_output_token"}
    single = planner.search(
        workload="serve",
        **{**SMALL, "gpu": "h100-sxm-80gb", "constraints": {"time_per_output_token": 0.005}},
    )
    (first,) = single.recommended.columns()["output_tokens_per_s_per_gpu"]
    row = frame.loc[frame["gpu"] == "h100-sxm-80gb", "output_tokens_per_s_per_gpu"]
    assert row.item() == pytest.approx(first)


def test_every_engine_can_be_searched_at_once():
    result = planner.search(workload="serve", **{**SMALL, "engine": ("vllm", "sglang")})
    assert set(all_rows(engine=("vllm", "sglang"))[1]["engine"]) == {"vLLM", "SGLang"}
    assert result.configurations_feasible > 0


def test_prefill_may_run_on_another_gpu():
    _, rows = all_rows(prefill_gpu="l40s-48gb", mode="disaggregated")
    assert set(rows["prefill_gpu"]) == {"l40s-48gb"}
    assert set(rows["gpu"]) == {"h100-sxm-80gb"}


@pytest.mark.parametrize(
    ("model", "quantization", "experts"),
    [
        ("gpt-oss-20b", {"w16a16"}, {"mxfp4"}),
        ("deepseek-v3", {"fp8_block"}, {"fp8_block"}),
        ("llama-3.1-8b", {"w16a16", "fp8"}, {"w16a16", "fp8"}),
    ],
)
def test_published_types_of_weights_are_the_default(model, quantization, experts):
    _, rows = all_rows(model=model, gpu="h200-sxm-141gb", num_gpus=16)
    assert set(rows["quantization"]) <= quantization
    assert set(rows["expert_quantization"]) <= experts


def test_what_the_user_sets_replaces_the_default():
    settings = {**SMALL["settings"], "quantization": "w8a16", "kv_cache": "fp8"}
    _, rows = all_rows(model="gpt-oss-20b", settings=settings)
    assert set(rows["quantization"]) == set(rows["expert_quantization"]) == {"w8a16"}
    assert set(rows["kv_cache"]) == {"fp8"}


@each(
    ("request_", "error", "words"),
    [
        ({"num_gpus": None}, SearchSpaceError, "--request-rate"),
        ({"space": "small"}, SearchSpaceError, "--workload train"),
        ({"engine": "transformers"}, SearchSpaceError, "has static batches only"),
        (
            {"engine": "llama-cpp", "mode": "disaggregated"},
            SearchSpaceError,
            "cannot send caches between servers",
        ),
        ({"engine": "vlm"}, SpecError, "Did you mean vllm?"),
        ({"engine": "vllm-v0-xpu"}, SearchSpaceError, "kernels for GPUs of Intel, not for"),
        (
            {"engine": "tensorrt-llm", "gpu": "h100-sxm-80gb", "prefill_gpu": "mi300x-192gb"},
            SearchSpaceError,
            "not for mi300x-192gb of AMD",
        ),
        (
            {"engine": "vllm-v0-ports", "gpu": ("h100-sxm-80gb", "b200-sxm-180gb")},
            SearchSpaceError,
            "vLLM V0 ports has kernels for GPUs of AMD, not for b200",
        ),
        ({"mode": "agregated"}, SearchSpaceError, "Did you mean aggregated"),
        ({"mode": "aggregated", "prefill_gpu": "h100"}, SearchSpaceError, "--mode disaggregated"),
        ({"objectives": ("interactivty",)}, SearchSpaceError, "Did you mean interactivity"),
        ({"constraints": {"ttft": 1.0}}, SearchSpaceError, "Unknown constraint"),
        ({"settings": {"tensor_paralel": 2}}, SearchSpaceError, "Did you mean tensor_parallel"),
        ({"settings": {"replicas": 2}}, SearchSpaceError, "follows from the number of GPUs"),
        ({"settings": {"kv_offload": 2}}, SearchSpaceError, "share from 0 to 1"),
        ({"settings": {"quantization": "fp9"}}, SearchSpaceError, "Did you mean fp8"),
        ({"gpu": "all", "cluster": "dgx-h100"}, SearchSpaceError, "leave out --cluster"),
        ({"input_tokens": 10**6}, SpecError, "positions for 131,072 tokens"),
        ({"input_tokens": 0}, SpecError, "input_tokens must be at least 1"),
        ({"acceptance_rate": 1.5}, SpecError, "acceptance_rate must be less than 1"),
    ],
)
def test_bad_requests_say_what_is_wrong(request_, error, words):
    with pytest.raises(error, match=words):
        make_plan(Request(workload="serve", **{**SMALL, **request_}))


def test_engines_are_compared_on_the_gpus_they_have_kernels_for():
    gpus = ("mi300x-192gb", "h100-sxm-80gb")
    plan = make_plan(
        Request(workload="serve", **{**SMALL, "engine": "all", "gpu": gpus, "mode": "aggregated"})
    )
    pairs = {(source.gpu, source.profile) for source in plan.problem.sources}
    assert ("mi300x-192gb", "vLLM V0 ports") in pairs
    assert ("h100-sxm-80gb", "TensorRT-LLM") in pairs
    assert ("mi300x-192gb", "TensorRT-LLM") not in pairs
    assert {gpu for gpu, engine in pairs if engine == "vLLM"} == set(gpus)


def test_training_does_not_take_a_space_of_serving():
    with pytest.raises(SearchSpaceError, match="--workload serve"):
        planner.search(model="llama-7b", num_gpus=8, space="serve")
