from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from serving_cases import serving_setting

import planner
from planner.base.enums import (
    CacheType,
)
from planner.errors import InfeasibleError, SearchSpaceError
from planner.estimators.inference.closed_loop import served_at_concurrency
from planner.estimators.inference.continuous_batching import decode_batch
from planner.estimators.inference.disaggregated import (
    cache_transfer_time,
    decode_workers,
    prefill_workers,
)
from planner.estimators.inference.engine_step import step_time
from planner.estimators.inference.kernels import Kernels
from planner.estimators.inference.serving_memory import serving_memory

SERVE = {"model": "llama-3.1-70b", "gpu": "h200-sxm-141gb", "num_gpus": 8}


def one(workload="serve", settings=None, **request) -> dict:
    """The row of one configuration on tensor_parallel 4, unless told otherwise."""
    given = {"tensor_parallel": 4, "quantization": "fp8", "concurrency": 32, **(settings or {})}
    found = planner.estimate(workload=workload, **{**SERVE, **request, "settings": given})
    return found.to_frame().iloc[0].to_dict()


def pool(settings=None, **request):
    given = {"tensor_parallel": 4, "quantization": "fp8", "concurrency": 32, **(settings or {})}
    found = planner.estimate(workload="serve", **{**SERVE, **request, "settings": given})
    return found.source.inputs, found.candidates.configurations


def test_memory_falls_with_tensor_parallelism():
    peaks = [one(settings={"tensor_parallel": t})["peak_memory_gib"] for t in (1, 2, 4, 8)]
    assert peaks == sorted(peaks, reverse=True)


def test_the_first_token_comes_later_after_longer_prompts():
    times = [one(input_tokens=n)["time_to_first_token_s"] for n in (100, 1000, 4000, 16000)]
    assert times == sorted(times)


def test_percentiles_surround_the_mean():
    row = one()
    for name in ("time_to_first_token", "time_per_output_token", "request_latency"):
        ordered = [row[f"{name}_{share}_s"] for share in ("p50", "p90", "p99")]
        assert ordered == sorted(ordered)
        assert ordered[0] <= row[f"{name}_s"] < ordered[2]


def test_memory_parts_add_up():
    row = one()
    parts = ("weights", "kv_cache", "activations", "reserved")
    assert sum(row[f"memory_{part}_gib"] for part in parts) == pytest.approx(row["peak_memory_gib"])


def test_a_rate_chooses_the_fewest_requests_in_flight_that_reach_it():
    free = {"tensor_parallel": 4, "quantization": "fp8"}
    found = planner.estimate(workload="serve", **SERVE, settings=free, request_rate=2.0)
    row = found.to_frame().iloc[0]
    assert row["requests_per_s"] == pytest.approx(2.0)
    below, reached = (one(settings={"concurrency": row["concurrency"] + n}) for n in (-1, 0))
    assert below["requests_per_s"] < 2.0 <= reached["requests_per_s"]


def test_a_rate_beyond_reach_says_what_is_reached():
    free = {"tensor_parallel": 4, "quantization": "fp8"}
    with pytest.raises(InfeasibleError, match=r"1e\+06 requests per second exceed the capacity of"):
        planner.estimate(workload="serve", **SERVE, settings=free, request_rate=1e6)


def test_several_values_are_not_one_configuration():
    with pytest.raises(SearchSpaceError, match="one value per parameter"):
        one(settings={"tensor_parallel": [1, 2]})


def test_a_batch_is_its_prefill_and_its_decode_steps():
    row = one("inference", input_tokens=512, output_tokens=128)
    expected = row["prefill_latency_s"] + 127 * row["decode_latency_s"]
    assert row["request_latency_s"] == pytest.approx(expected)
    rate = row["replicas"] * 32 * 128 / row["request_latency_s"]
    assert row["output_tokens_per_s"] == pytest.approx(rate)


def test_the_largest_batch_fits_and_one_more_does_not():
    row = one("inference", settings={"concurrency": 1})
    largest = int(row["largest_batch"])
    assert one("inference", settings={"concurrency": largest})["rejected_by"] == ""
    too_large = one("inference", settings={"concurrency": largest + 1})
    assert too_large["rejected_by"] == "out_of_memory"


def test_a_burst_of_more_requests_ends_later():
    def ends(number: int) -> float:
        found = planner.estimate(
            workload="serve",
            **SERVE,
            settings={"tensor_parallel": 4, "quantization": "fp8", "concurrency": 50},
            burst=number,
        )
        assert found.detail is not None
        assert found.detail.answered_within(0.5) <= found.detail.answered_within(1 - 1e-9)
        assert found.detail.answered_within(1 - 1e-9) <= found.detail.makespan
        assert found.detail.first_within(0.5) < found.detail.answered_within(0.5)
        return found.detail.makespan

    one_wave = ends(100)  # two replicas hold 50 each
    assert ends(2) < ends(20) < one_wave
    assert ends(4000) - ends(3900) < one_wave  # others have the places of short answers


def test_a_burst_fills_the_engine_where_no_concurrency_is_given():
    def answered(number: int, **settings: int) -> tuple[float, float]:
        fixed = {"tensor_parallel": 4, "quantization": "fp8"}
        found = planner.estimate(
            workload="serve", **SERVE, settings={**fixed, **settings}, burst=number
        )
        assert found.detail is not None
        assert not found.rejected_by
        return found.detail.makespan, float(found.estimate.configurations.concurrency[0])

    assert answered(7) == answered(7, concurrency=4)  # two replicas hold 4 and 3
    makespan, held = answered(100_000)
    assert held > 50
    assert makespan < answered(100_000, concurrency=50)[0]


def test_a_static_answer_without_a_cache_computes_all_again():
    assert (
        one("inference", settings={"kv_cache": "none"})["decode_latency_s"]
        > one("inference")["decode_latency_s"]
    )


def served(model="llama-3.1-70b", concurrency=32.0, execution=None, **scheduler):
    """A replica on 8 GPUs, the engine's scheduler and execution changed."""
    setting, c = pool(model=model, settings={"tensor_parallel": 8, "concurrency": concurrency})
    engine = replace(
        setting.engine,
        scheduler=replace(setting.engine.scheduler, **scheduler),
        execution=replace(setting.engine.execution, **(execution or {})),
    )
    setting = replace(setting, engine=engine)
    return served_at_concurrency(setting, c, serving_memory(setting, c))


def test_requests_wait_for_the_scheduler_to_look():
    often, seldom = served(poll_interval=1), served(poll_interval=31)
    step = float(often.phases.decode_step(often.decoding).ravel()[0])
    later = float((seldom.time_to_first_token - often.time_to_first_token).ravel()[0])
    assert later == pytest.approx(15 * step, rel=0.25)


def test_prompts_wait_for_others_to_be_computed_with():
    alone, gathered = served(batch_wait=0), served(batch_wait=20)
    step = float(alone.phases.decode_step(alone.decoding).ravel()[0])
    later = float((gathered.time_to_first_token - alone.time_to_first_token).ravel()[0])
    assert 10 * step < later < 21 * step


def test_requests_that_come_at_a_rate_do_not_start_together():
    """As often as they come, not as answers end; both replicas hold as many."""
    setting, c = pool(input_tokens=4000, output_tokens=500, settings={"concurrency": 64})
    scheduler = replace(setting.engine.scheduler, clustering=0.5)
    setting = replace(setting, engine=replace(setting.engine, scheduler=scheduler))
    memory = serving_memory(setting, c)
    waiting, coming = (
        served_at_concurrency(
            replace(setting, workload=replace(setting.workload, request_rate=rate)), c, memory
        )
        for rate in (None, 5.0)
    )
    assert np.all(coming.time_to_first_token < waiting.time_to_first_token)
    np.testing.assert_array_equal(coming.phases.prefill, waiting.phases.prefill)


@pytest.mark.parametrize("varied", [0, 1])
def test_engines_that_reserve_whole_answers_hold_fewer_requests(varied):
    """Of answers that vary those that run are longer: by 1 they are twice as long."""
    lengths = {"input_tokens": 1000, "output_tokens": 3000, "output_variation": varied}
    setting, c = pool(**lengths, settings={"concurrency": 64})
    engine = replace(
        setting.engine, scheduler=replace(setting.engine.scheduler, whole_requests=True)
    )
    grown, reserved = (serving_memory(one, c) for one in (setting, replace(setting, engine=engine)))
    whole = reserved.most_whole_sequences * 4000 / (1000 + 3000 * (1 + varied))
    np.testing.assert_allclose(reserved.most_sequences, whole, rtol=0.01)
    assert np.all(reserved.most_sequences < 0.8 * grown.most_sequences)


def test_launching_experts_slows_prompts_and_not_answers():
    slow = {"expert_launch_time": 0.01}
    dense, launched = (served(execution=e).phases for e in (None, slow))
    np.testing.assert_array_equal(launched.prompt_time, dense.prompt_time)
    fast, launched = (served("qwen3-235b-a22b", execution=e).phases for e in (None, slow))
    assert np.all(launched.prompt_time > 2 * fast.prompt_time)
    np.testing.assert_array_equal(launched.fixed, fast.fixed)


def test_padding_of_attention_counts_as_tokens_of_the_context():
    setting = serving_setting("gpt-j-6b", gpu="h100-sxm-80gb", engine="tensorrt-llm-cpp")
    offset = setting.machine.gpu.efficiency.attention_decode["fp8"].sequence_offset

    def seconds(share, context):
        execution = replace(setting.engine.execution, attention_padding_fraction=share)
        engine = replace(setting.engine, execution=execution)
        shape = {
            "sequences": 64.0,
            "cache_bytes_per_token": 8192.0,
            "heads": 32.0,
            "group": 1.0,
            "query_bytes": 0.0,
        }
        return Kernels(machine=setting.machine, engine=engine).decode_attention(
            context=context, flops=0.0, cache=np.asarray(CacheType.FP8), **shape
        )

    assert offset > 100  # FlashAttention 3 reads whole pages
    assert seconds(0.5, 256.0) == pytest.approx(seconds(0.0, 256.0 + offset / 2))
    assert seconds(0.0, 256.0) < 0.8 * seconds(1.0, 256.0)


def test_queued_prompts_share_what_a_step_costs():
    costs = served("qwen3-235b-a22b", 64.0, {"expert_launch_time": 0.01}).phases
    assert np.all(costs.queued < costs.prefill / 2)


def test_attention_ranks_have_their_own_steps():
    _, c = pool(settings={"tensor_parallel": 2, "attention_data_parallel": 4})
    np.testing.assert_array_equal(c.replica_step_tokens, 4 * c.max_num_batched_tokens)


def test_decode_workers_are_not_slowed_by_prompts():
    setting, c = pool(input_tokens=4000, output_tokens=500)
    alone = decode_workers(setting, c, True)
    mixed = one(input_tokens=4000, output_tokens=500)
    assert float(alone.time_per_output_token.ravel()[0]) < mixed["time_per_output_token_s"]
    rate = 32 / (500 * float(alone.step_time.ravel()[0]))
    assert float(alone.request_rate.ravel()[0]) == pytest.approx(rate)


def test_full_steps_of_short_prompts_cost_less_each():
    setting, c = pool(input_tokens=128)
    workers = prefill_workers(setting, c, True)
    assert float(workers.service_time.ravel()[0]) < float(workers.prompt_time.ravel()[0])


def test_the_cache_leaves_faster_inside_the_fabric_and_in_fp8():
    setting, c = pool(input_tokens=4000)
    network = cache_transfer_time(setting, c, False)
    assert (cache_transfer_time(setting, c, True) < network).all()
    _, small = pool(input_tokens=4000, settings={"kv_cache": "fp8"})
    assert (cache_transfer_time(setting, small, False) < network).all()
    share = setting.machine.gpu.scale_out_bandwidth * setting.machine.cluster.scale_out.efficiency
    per_gpu = 4000 * 80 * 2 * 8 * 128 * 2 / 4
    assert float(np.ravel(network)[0]) == pytest.approx(per_gpu / share, rel=0.02)


def test_offload_frees_the_gpu_and_takes_time():
    kept, moved = one("inference"), one("inference", settings={"weight_offload": 0.5})
    assert moved["memory_weights_gib"] == pytest.approx(kept["memory_weights_gib"] / 2)
    assert moved["decode_latency_s"] > kept["decode_latency_s"]


@pytest.mark.parametrize(
    ("model", "gpu", "settings"),
    [
        ("falcon-7b", "rtx4090-24gb", {}),
        ("llama-3.1-8b", "mi300x-192gb", {}),
        ("deepseek-v2-lite", "h100-sxm-80gb", {}),
        ("gpt-oss-20b", "rtx5090-32gb", {}),
        ("qwen3-next-80b-a3b", "h200-sxm-141gb", {"tensor_parallel": 2}),
        ("llama-7b", "epyc-9654-2s", {"concurrency": 2}),
    ],
)
@pytest.mark.parametrize("workload", ["inference", "serve"])
def test_every_kind_of_model_and_device_can_be_estimated(model, gpu, settings, workload):
    found = planner.estimate(
        workload=workload, model=model, gpu=gpu, input_tokens=500, output_tokens=100,
        settings=settings,
    )  # fmt: skip
    row = found.to_frame().iloc[0]
    assert row["rejected_by"] == ""
    assert 0 < row["output_tokens_per_s"] < 1e5


@pytest.mark.parametrize(("concurrency", "busy"), [(1, 1), (4, 4), (64, 4)])
def test_a_full_pipeline_waits_for_the_stage_with_the_logits(concurrency, busy):
    shape = {"tensor_parallel": 1, "pipeline_parallel": 4, "concurrency": concurrency}
    setting, configurations = pool(settings=shape)
    batch = decode_batch(setting, np.asarray(concurrency / busy))
    step = step_time(setting, configurations, batch, decoding=True)
    ends = sum(o.forward for o in step.ends)
    alike = (step.total - step.pipeline - step.overhead - step.untuned - ends) / 4
    stage = alike + step.pipeline / 3 + ends + step.overhead
    assert step.slowest_stage == pytest.approx(setting.slowdown * stage)
    assert step.cycle(1) == step.total
    assert step.cycle(busy) == max(step.total, busy * step.slowest_stage)
    row = one(settings=shape)
    draws = row["time_per_output_token_s"] / step.cycle(busy)
    assert 0.95 <= draws < 2.0


def test_a_layer_more_makes_the_slowest_stage():
    uneven = {"tensor_parallel": 1, "pipeline_parallel": 3}
    setting, configurations = pool(settings=uneven, num_gpus=3)
    step = step_time(setting, configurations, decode_batch(setting, np.asarray(8.0)), decoding=True)
    layers = step.total - step.pipeline - step.overhead - sum(o.forward for o in step.ends)
    stage = step.slowest_stage - step.pipeline / 2 - step.overhead
    assert stage >= 27 / 80 * layers > layers / 3


def test_hosts_that_do_not_plan_ahead_delay_steps_that_verify_drafts():
    setting, c = pool(model="llama-3.1-70b", settings={"tensor_parallel": 8, "concurrency": 16})

    def seconds(tokens_per_sequence, **execution):
        changed = replace(setting.engine.execution, **execution)
        own = replace(setting, engine=replace(setting.engine, execution=changed))
        batch = replace(
            decode_batch(own, np.asarray(16.0)), tokens_per_sequence=tokens_per_sequence
        )
        return step_time(own, c, batch, decoding=True).total.ravel()[0]

    free = {"draft_overhead": 0.0, "draft_sequence_overhead": 0.0}
    slow = {"draft_overhead": 0.004, "draft_sequence_overhead": 0.001}
    verifying, plain = np.asarray(4.0), np.asarray(1.0)
    late = seconds(verifying, **slow) - seconds(verifying, **free)
    assert late == pytest.approx(setting.slowdown * (0.004 + 16 * 0.001))
    assert seconds(plain, **slow) == seconds(plain, **free)
