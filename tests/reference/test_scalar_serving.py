"""The vectorized estimators of serving equal the naive twin, on tables of replicas."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scalar_phases
import scalar_serving
import scalar_serving_memory
import scalar_serving_step
from drawn_replicas import (
    DENSE,
    EXECUTIONS,
    EXPERTS,
    SCHEDULERS,
    WORKLOADS,
    make_replicas,
    make_setting,
    make_world,
)
from scalar_serving_kernels import Replica, ServingWorld
from scalar_serving_step import StepBatch

from planner.base.enums import (
    AdapterTargets,
)
from planner.estimators.inference.batch_share import Batch, ServingInputs
from planner.estimators.inference.continuous_batching import wave_time
from planner.estimators.inference.engine_step import step_time
from planner.estimators.inference.percentiles import (
    request_latency_percentile,
    time_per_output_token_percentile,
    time_to_first_token_percentile,
)
from planner.estimators.inference.serving_estimate import evaluate_serving
from planner.estimators.inference.serving_memory import serving_memory
from planner.estimators.inference.static_batch import static_batch
from planner.specs.catalogue import load_model
from planner.specs.quantization import Checkpoint

CASES = [
    ("llama-2-70b", DENSE),
    ("mistral-7b", DENSE),
    ("mixtral-8x7b", EXPERTS),
    ("gpt-oss-120b", EXPERTS),
    ("deepseek-v3", EXPERTS),
]
# Every scheduler with two of the workloads.
TRAFFIC = [
    (scheduler, WORKLOADS[(place + more) % len(WORKLOADS)])
    for place, scheduler in enumerate(SCHEDULERS)
    for more in (0, 1)
]
BATCHES = [
    StepBatch(decoding=1, context=900),
    StepBatch(decoding=37, context=5000, per_sequence=4),
    StepBatch(new_tokens=700, prompts=1, keys=350.5),
    StepBatch(new_tokens=3000, prompts=12, keys=900, cached=775, decoding=20, context=1500),
]


def at(values: Any, row: int, rows: int) -> float:
    """One of the rows of what broadcasts to them."""
    return float(np.broadcast_to(values, (rows,))[row])


def same(found: float, expected: float) -> bool:
    return found == pytest.approx(expected, rel=1e-9, abs=1e-13)


@pytest.mark.few(6)
@pytest.mark.parametrize(
    ("gpu", "execution"),
    [("a100-sxm-80gb", {}), *(("h100-sxm-80gb", execution) for execution in EXECUTIONS)],
)
@pytest.mark.parametrize(("model", "replicas"), CASES)
def test_steps_and_their_stages(
    model: str, replicas: list[Replica], gpu: str, execution: dict[str, Any]
) -> None:
    setting = make_setting(model, gpu, execution=execution)
    in_four = {"quantization": "nvfp4", "expert_quantization": "nvfp4"}
    of_files = {"quantization": "q4_k_m", "expert_quantization": "q6_k"}
    replicas = [*replicas, *(replace(replicas[0], **types) for types in (in_four, of_files))]
    check_steps(setting, replicas)


@pytest.mark.parametrize(
    ("model", "engine", "experts"),
    [("deepseek-v2-lite", "vllm-v0", "w16a16"), ("mixtral-8x7b", "tensorrt-llm", "fp8")],
)
def test_steps_of_engines_with_caches_and_experts_of_their_own(
    model: str, engine: str, experts: str
) -> None:
    replicas = [
        Replica(num_gpus=t, tensor_parallel=t, concurrency=8, expert_quantization=experts)
        for t in (1, 2)
    ]
    setting = make_setting(model, "h100-sxm-80gb", engine, execution={"host_expert_time": 2e-3})
    own = {"host_experts_by_architecture": {"hopper": ("fp8",)}}
    check_steps(replace(setting, engine=replace(setting.engine, **own)), replicas)


def check_steps(setting: ServingInputs, replicas: list[Replica]) -> None:
    world, table = make_world(setting), make_replicas(replicas)
    for batch in BATCHES:
        decoding = batch.prompts == 0
        arrays = Batch(
            decoding=np.asarray(batch.decoding),
            context=np.asarray(batch.context),
            tokens_per_sequence=np.asarray(batch.per_sequence),
            prefill_tokens=np.asarray(batch.new_tokens),
            prompts=np.asarray(batch.prompts),
            prefill_keys=np.asarray(batch.keys),
            prefill_cached=np.asarray(batch.cached),
        )
        found = step_time(setting, table, arrays, decoding)
        for row, c in enumerate(replicas):
            expected = scalar_serving_step.step(world, c, batch, decoding)
            for (_, operators), layer in zip(found.layers, expected.layers, strict=True):
                assert {o.name for o in operators} == set(layer)
                for o in operators:
                    assert same(at(o.forward, row, len(replicas)), layer[o.name]), (
                        o.name,
                        c,
                        batch,
                    )
            for o in found.ends:
                assert same(at(o.forward, row, len(replicas)), expected.ends[o.name]), (o.name, c)
            for name in ("total", "slowest_stage"):
                value = at(getattr(found, name), row, len(replicas))
                assert same(value, getattr(expected, name)), (name, c)
            assert same(at(found.transfer_wait, row, len(replicas)), expected.waits), c
            assert same(at(found.cycle(3.0), row, len(replicas)), expected.cycle(3.0)), c


@pytest.mark.parametrize("scheduler", SCHEDULERS)
@pytest.mark.parametrize(("model", "replicas"), CASES)
def test_memory_and_room(model: str, replicas: list[Replica], scheduler: dict[str, Any]) -> None:
    for workload in WORKLOADS[:2]:
        setting = make_setting(model, scheduler=scheduler, **workload)
        world, table = make_world(setting), make_replicas(replicas)
        found = serving_memory(setting, table)
        for row, c in enumerate(replicas):
            expected = scalar_serving_memory.memory(world, c)
            for name, value in expected.parts.items():
                assert same(at(getattr(found, name), row, len(replicas)), value), (name, c)
            for name in ("host", "most_sequences", "most_whole_sequences"):
                value = at(getattr(found, name), row, len(replicas))
                assert same(value, getattr(expected, name)), (name, c)
            for name in ("room", "host_room"):
                for part, value in vars(getattr(expected, name)).items():
                    mine = at(getattr(getattr(found, name), part), row, len(replicas))
                    assert same(mine, value), (name, part, c)


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt-llm"])
def test_room_by_the_share_of_memory_that_an_engine_is_told(engine: str) -> None:
    setting = make_setting("llama-2-70b", "h100-sxm-80gb", engine, input_tokens=3000)
    replicas = [
        Replica(num_gpus=t, tensor_parallel=t, concurrency=n, gpu_memory_utilization=share,
                weight_offload=host)
        for t, n, host in ((4, 5, 0.0), (4, 900, 0.0), (2, 40, 0.25), (1, 1, 0.0))
        for share in (0.0, 0.2, 0.55, 0.9, 1.0)
    ]  # fmt: skip
    world, found = make_world(setting), serving_memory(setting, make_replicas(replicas))
    for row, c in enumerate(replicas):
        expected = scalar_serving_memory.memory(world, c)
        for name, value in {**expected.parts, "usable": expected.usable}.items():
            assert same(at(getattr(found, name), row, len(replicas)), value), (name, c)
        assert same(at(found.room.size, row, len(replicas)), expected.room.size), c


@pytest.mark.few(2)
@pytest.mark.parametrize(("scheduler", "workload"), TRAFFIC)
@pytest.mark.parametrize(("model", "replicas"), [CASES[0], CASES[2]])
def test_continuous_batching_and_its_spread(
    model: str, replicas: list[Replica], scheduler: dict[str, Any], workload: dict[str, Any]
) -> None:
    setting = make_setting(model, scheduler=scheduler, **workload)
    world = make_world(setting)
    found = evaluate_serving(setting, make_replicas(replicas))
    for row, c in enumerate(replicas):
        expected = scalar_serving.answers(world, c)

        def check(values: Any, value: float, name: str, row: int = row, c: Replica = c) -> None:
            assert same(at(values, row, len(replicas)), value), (name, c)

        costs = vars(expected.costs)
        for name, value in costs.items():
            check(getattr(found.served.phases, name), value, name)
        for name in ("decoding", "utilization", "wait"):
            check(getattr(found.served, name), getattr(expected, name), name)
        check(found.served.placed_first, expected.first, "first")
        for name, value in vars(expected.met).items():
            check(getattr(found.served.queue, name), value, name)
        check(found.served.time_per_output_token, expected.per_token, "per_token")
        check(found.served.request_rate, expected.rate, "rate")
        alone = wave_time(setting, make_replicas([c]))
        assert same(float(alone[0]), _wave(world, c)), c
        for share in (0.5, 0.9, 0.99):
            first = scalar_serving.first_token_within(world, expected, share)
            check(time_to_first_token_percentile(found, share), first, "first")
            each = scalar_serving.per_token_within(world, expected, share)
            check(time_per_output_token_percentile(found, share), each, "per_token")
            latency = scalar_serving.latency_within(world, expected, share)
            check(request_latency_percentile(found, share), latency, "latency")


def _wave(world: ServingWorld, c: Replica) -> float:
    steps = scalar_phases.decode_steps(world)
    return scalar_phases.costs(world, c, c.concurrency).wave(c.concurrency, steps)


@pytest.mark.parametrize(("scheduler", "workload"), TRAFFIC)
@pytest.mark.parametrize(("model", "replicas"), [CASES[0], CASES[2]])
def test_static_batches(
    model: str, replicas: list[Replica], scheduler: dict[str, Any], workload: dict[str, Any]
) -> None:
    setting = make_setting(model, scheduler=scheduler, **workload)
    world = make_world(setting)
    found = static_batch(setting, make_replicas(replicas))
    for row, c in enumerate(replicas):
        names = ("time_to_first_token", "time_per_output_token", "request_latency")
        for name, value in zip(names, scalar_serving.static(world, c), strict=True):
            assert same(at(getattr(found, name), row, len(replicas)), value), (name, c)


@pytest.mark.parametrize(
    "of_memory",
    [
        {},
        {"profiled_seqs": 0, "expert_workspace": False, "gathered_logits": False},
        {"queued_all_reduces": True, "logit_bytes": 14.0, "profiled_seqs": 16},
        {"profiled_seqs": 0, "warm_up_logit_bytes": 4.0, "cache_share": 0.95},
        {"profiled_seqs": 1024, "fixed_profiled_seqs": True},
    ],
)
@pytest.mark.parametrize("gpu", ["h100-sxm-80gb", "l40s-48gb"])
def test_memory_of_published_checkpoints(gpu: str, of_memory: dict[str, Any]) -> None:
    stored = (
        Checkpoint(quantization="w4a16", source="test", group_size=32, zero_point_bytes=0.5),
        Checkpoint(quantization="fp8", source="test", engines=("none",)),
        Checkpoint(
            quantization="fp8", source="test", sixteen_bit=("attention", "shared_experts"),
            sixteen_bit_layers=3, vendors=("nvidia",),
        ),
        Checkpoint(quantization="nvfp4", source="test", weight_bits=3.5, eight_bit=("attention",)),
    )  # fmt: skip
    for name, word in (
        ("llama-2-70b", "fp8"), ("deepseek-v3", "fp8"), ("mixtral-8x7b", "w4a16"),
        ("llama-2-70b", "nvfp4"),
    ):  # fmt: skip
        setting = make_setting(name, gpu)
        engine = replace(setting.engine, memory=replace(setting.engine.memory, **of_memory))
        model = replace(setting.model, checkpoints=stored)
        setting = replace(setting, model=model, engine=engine)
        replicas = [
            Replica(num_gpus=8, tensor_parallel=4, pipeline_parallel=2, concurrency=n,
                    quantization=word, expert_quantization=word)
            for n in (1, 60, 900)
        ]  # fmt: skip
        world, found = make_world(setting), serving_memory(setting, make_replicas(replicas))
        batch = Batch.of_decode(np.asarray(30.0), np.asarray(900.0))
        step = step_time(setting, make_replicas(replicas), batch, decoding=True)
        for row, c in enumerate(replicas):
            other = scalar_serving_step.step(world, c, StepBatch(decoding=30, context=900), True)
            assert same(at(step.total, row, 3), other.total), (name, c)
            expected = scalar_serving_memory.memory(world, c)
            for part, value in expected.parts.items():
                assert same(at(getattr(found, part), row, 3), value), (name, part, c)
            assert same(at(found.room.size, row, 3), expected.room.size), (name, c)


@pytest.mark.parametrize("gpu", ["b200-sxm-180gb", "h200-sxm-141gb"])
@pytest.mark.parametrize("cache", ["fp8", "bf16"])
def test_latent_attention_over_caches(gpu: str, cache: str) -> None:
    setting = make_setting("deepseek-v3", gpu, "tensorrt-llm", input_tokens=8000)
    ranks = {"num_gpus": 8, "attention_data_parallel": 8, "expert_parallel": 8}
    c = Replica(**ranks, concurrency=512, kv_cache=cache)
    found = evaluate_serving(setting, make_replicas([c]))
    expected = scalar_serving.answers(make_world(setting), c)
    for name, value in vars(expected.costs).items():
        assert same(at(getattr(found.served.phases, name), 0, 1), value), name


@pytest.mark.parametrize("draft", ["llama-3.2-1b", "llama-3.1-8b"])
def test_a_model_that_drafts(draft: str) -> None:
    replicas = [
        Replica(concurrency=5, weight_offload=0.5),
        Replica(num_gpus=16, tensor_parallel=16, concurrency=40, quantization="fp8"),
        Replica(num_gpus=8, tensor_parallel=4, pipeline_parallel=2, concurrency=16),
    ]
    more = {"draft_tokens": 3, "acceptance_rate": 0.7, "draft_cost": 0.02}
    plain = make_setting("llama-3.1-70b", "b200-sxm-180gb", **more)
    setting = replace(plain, draft=load_model(draft))
    world, table = make_world(setting), make_replicas(replicas)
    found, alone = evaluate_serving(setting, table), evaluate_serving(plain, table)
    static = static_batch(setting, table)
    for row, c in enumerate(replicas):
        expected, memory = scalar_serving.answers(world, c), scalar_serving_memory.memory(world, c)
        for name, value in memory.parts.items():
            assert same(at(getattr(found.memory, name), row, 3), value), (name, c)
        assert same(at(found.memory.room.longest, row, 3), memory.room.longest)
        for name, value in vars(expected.costs).items():
            assert same(at(getattr(found.served.phases, name), row, 3), value), (name, c)
        first, each, latency = scalar_serving.static(world, c)
        assert same(at(static.time_to_first_token, row, 3), first)
        assert same(at(static.time_per_output_token, row, 3), each)
        assert same(at(static.request_latency, row, 3), latency)
    assert np.all(found.memory.weights > alone.memory.weights)
    assert np.all(found.served.phases.fixed > alone.served.phases.fixed)
    assert np.all(found.served.phases.prompt_time > alone.served.phases.prompt_time)


ADAPTERS: list[dict[str, Any]] = [
    {"lora_rank": 16, "max_loras": 4},
    {"lora_rank": 64, "max_loras": 64, "input_tokens": 3000, "request_rate": 2.0},
    {"lora_rank": 8, "lora_targets": AdapterTargets.ATTENTION},
]


@pytest.mark.parametrize("execution", [EXECUTIONS[0], EXECUTIONS[2]])
@pytest.mark.parametrize("workload", ADAPTERS)
@pytest.mark.parametrize(("model", "replicas"), CASES[:4])
def test_adapters_beside_a_model(
    model: str,
    replicas: list[Replica],
    workload: dict[str, Any],
    execution: dict[str, Any],
) -> None:
    setting = make_setting(model, execution=execution, **workload)
    world, table, rows = make_world(setting), make_replicas(replicas), len(replicas)
    memory = serving_memory(setting, table)
    batch = Batch.of_decode(np.asarray(30.0), np.asarray(900.0))
    step = step_time(setting, table, batch, decoding=True)
    for row, c in enumerate(replicas):
        expected = scalar_serving_memory.memory(world, c)
        for name, value in expected.parts.items():
            assert same(at(getattr(memory, name), row, rows), value), (name, c)
        assert same(at(memory.room.size, row, rows), expected.room.size), c
        other = scalar_serving_step.step(world, c, StepBatch(decoding=30, context=900), True)
        for (_, operators), layer in zip(step.layers, other.layers, strict=True):
            assert {o.name for o in operators} == set(layer)
            for o in operators:
                assert same(at(o.forward, row, rows), layer[o.name]), (o.name, c)
        assert same(at(step.total, row, rows), other.total), c
