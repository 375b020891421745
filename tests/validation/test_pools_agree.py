"""A plan of prefill and decode pools is the same in a search, an estimate and a table of runs."""

import pytest
from sample_inference import DISAGGREGATED, row, runs_of

import planner
from planner.validation.accuracy import predict
from planner.validation.inference import cases

QUESTION = {
    "workload": "serve",
    "model": "deepseek-v3",
    "gpu": "h200-sxm-141gb",
    "num_gpus": 32,
    "input_tokens": 4000,
    "output_tokens": 1000,
    "input_variation": 0,
    "output_variation": 0,
    "mode": "disaggregated",
    "engine": "sglang",
}
SIZES = ("tensor_parallel", "pipeline_parallel", "attention_data_parallel", "expert_parallel")
TIMES = ("time_to_first_token_s", "time_per_output_token_s")


def whole(value: object) -> object:
    return int(value) if isinstance(value, float) and value == int(value) else value


def settings_of(found: dict) -> dict:
    words = (*SIZES, "max_num_batched_tokens", "quantization", "expert_quantization", "kv_cache")
    names = ("concurrency", "replicas", "prefill_replicas", *words)
    names = (*names, *(f"prefill_{word}" for word in words))
    return {name: whole(found[name]) for name in names}


def run_of(found: dict) -> dict:
    """The plan as a row of published runs whose clients are as many as its places."""
    pools = {"prefill": "prefill_", "decode": ""}
    sizes = {
        f"{pool}_{name}": str(int(found[f"{prefix}{name}"]))
        for pool, prefix in pools.items()
        for name in SIZES
    }
    return row(**{
        **DISAGGREGATED,
        **sizes,
        "gpu": QUESTION["gpu"],
        "num_gpus": str(int(found["num_gpus"])),
        "input_tokens": "4000",
        "output_tokens": "1000",
        "concurrency": str(int(found["concurrency"] * found["replicas"])),
        "kv_cache_precision": found["kv_cache"],
        "prefill_num_workers": str(int(found["prefill_replicas"])),
        "decode_num_workers": str(int(found["replicas"])),
        "prefill_max_num_batched_tokens": str(int(found["prefill_max_num_batched_tokens"])),
        "decode_max_num_seqs": "4096",
    })  # fmt: skip


def test_a_plan_of_pools_is_predicted_as_a_run_of_it_is(monkeypatch):
    """Benchmarks start all requests at once; a search is for a steady load, so here both are."""
    monkeypatch.setattr(cases, "WAVES", float("inf"))
    table = planner.search(**QUESTION).table
    rows = len(table["num_gpus"])
    plans = [{name: values[i] for name, values in table.items()} for i in range(0, rows, rows // 7)]
    for plan, run in zip(plans, predict(runs_of(*map(run_of, plans))), strict=True):
        question = QUESTION | {"num_gpus": int(plan["num_gpus"])}
        again = planner.estimate(**question, settings=settings_of(plan)).table()
        for name in TIMES:
            assert again[name][0] == pytest.approx(plan[name], rel=1e-9)
            assert run.values[name] == pytest.approx(plan[name], rel=1e-6)
