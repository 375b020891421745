"""Workers of two kinds, and what a deployment costs, against the naive twin and by hand."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
import scalar_disaggregated
from drawn_replicas import DENSE, EXPERTS, make_replicas, make_setting, make_world
from scalar_disaggregated import Deployment
from scalar_serving_kernels import Replica

import planner
from planner.estimators.inference.batch_share import ServingInputs
from planner.estimators.inference.disaggregated import (
    Pools,
    decode_workers,
    disaggregated_run,
    prefill_workers,
)
from planner.specs.catalogue import load_model
from planner.specs.operating_terms import OperatingTerms
from planner.workloads.serving.prefill_decode_pools import PrefillDecodeSource
from planner.workloads.serving.prefill_decode_search import PrefillDecodeSpace

WORKLOADS: list[dict[str, Any]] = [
    {},
    {"input_tokens": 9000, "output_tokens": 300, "num_requests": 90},
    {"input_tokens": 100, "draft_tokens": 2, "acceptance_rate": 0.6, "draft_cost": 0.1},
]
SCHEDULERS: list[dict[str, Any]] = [{}, {"max_num_seqs": 4, "stream_interval": 10}]


def pools_of(setting: ServingInputs, d: Deployment) -> Pools:
    """The deployment's workers, evaluated one by one."""
    first = prefill_workers(setting, make_replicas([d.prefill]), d.inside_fabric)
    second = decode_workers(setting, make_replicas([d.decode]), d.inside_fabric)
    return Pools(
        prompt_time=first.prompt_time,
        service_time=first.service_time,
        transfer_time=np.maximum(first.transfer_time, second.transfer_time),
        prefill_workers=np.array([d.prefill_workers]),
        decode_workers=np.array([d.decode_workers]),
        fixed=second.fixed,
        slope=second.slope,
        places=second.places * d.decode_workers,
        stream_interval=np.array(float(setting.engine.scheduler.stream_interval)),
    )


def deployments(replicas: list[Replica]) -> list[Deployment]:
    """Each kind of worker with the next one, in several numbers."""
    numbers = ((1, 1), (2, 3), (0, 2), (40, 1), (1, 16))
    return [
        Deployment(
            prefill=replace(c, concurrency=1.0),
            decode=replicas[(place + 1) % len(replicas)],
            prefill_workers=prefill,
            decode_workers=decode,
            requests=decode * replicas[(place + 1) % len(replicas)].concurrency,
            inside_fabric=place % 2 == 0,
        )
        for place, c in enumerate(replicas)
        for prefill, decode in (numbers[place % 5], numbers[(place + 2) % 5])
    ]


@pytest.mark.few(1)
@pytest.mark.parametrize("scheduler", SCHEDULERS)
@pytest.mark.parametrize("workload", WORKLOADS)
@pytest.mark.parametrize(("model", "replicas"), [("llama-2-70b", DENSE), ("mixtral-8x7b", EXPERTS)])
def test_closed_loops_of_two_pools(
    model: str, replicas: list[Replica], workload: dict[str, Any], scheduler: dict[str, Any]
) -> None:
    setting = make_setting(model, scheduler=scheduler, **workload)
    world = make_world(setting)
    for d in deployments(replicas):
        found = disaggregated_run(setting, pools_of(setting, d), np.array([d.requests]))
        for name, value in scalar_disaggregated.serve(world, d).items():
            assert float(getattr(found, name)[0]) == pytest.approx(value, rel=1e-9), (name, d)


def test_full_workers_bound_every_deployment() -> None:
    setting = make_setting("llama-2-70b", input_tokens=2000)
    for d in deployments(DENSE):
        full = decode_workers(setting, make_replicas([d.decode]), d.inside_fabric)
        prefill = prefill_workers(setting, make_replicas([d.prefill]), d.inside_fabric)
        found = disaggregated_run(setting, pools_of(setting, d), np.array([d.requests]))
        assert found.time_per_output_token <= full.time_per_output_token * (1 + 1e-9)
        assert found.time_to_first_token > prefill.prompt_time + prefill.transfer_time
        assert found.load <= 1 + 1e-9
        np.testing.assert_allclose(prefill.request_rate, 0.9 / prefill.service_time)


@pytest.mark.parametrize(("prefill", "decode", "rate"), [(3.0, 1.0, 4.0), (1.0, 50.0, 5.0)])
def test_the_slower_pool_sets_the_rate(prefill: float, decode: float, rate: float) -> None:
    """Prompts of 0.2 s at one server; ten places of 20 ms steps, 125 steps an answer: 4 a second.

    The clients are many, so that both pools have as much to do as they can.
    """
    setting = make_setting("llama-2-70b", input_tokens=2000, output_tokens=125)
    pools = Pools(
        prompt_time=np.array(0.2),
        service_time=np.array(0.2),
        transfer_time=np.array(0.0),
        prefill_workers=np.array(prefill),
        decode_workers=np.array(decode),
        fixed=np.array(0.02),
        slope=np.array(0.0),
        places=np.array(10.0 * decode),
        stream_interval=np.array(1.0),
    )
    found = disaggregated_run(setting, pools, np.array(20_000.0))
    assert found.request_rate == pytest.approx(rate)
    # Little's law: those who do not decode wait for their first token.
    waiting = 20_000 / rate - 125 * 0.02
    assert found.time_to_first_token == pytest.approx(waiting + 0.02)


@pytest.mark.parametrize(
    ("interval", "answer", "later"),
    [
        pytest.param(1.0, 125, 0, id="each token is sent"),
        pytest.param(10.0, 125, 9, id="the first waits for nine more"),
        pytest.param(10.0, 7, 6, id="an answer of seven has six more"),
        pytest.param(1000.0, 125, 124, id="all of it at once"),
    ],
)
def test_tokens_that_are_collected_come_later(interval: float, answer: int, later: int) -> None:
    """Of a lone request, in steps of 20 ms."""
    setting = make_setting("llama-2-70b", input_tokens=2000, output_tokens=answer)
    pools = Pools(
        prompt_time=np.array(0.2),
        service_time=np.array(0.2),
        transfer_time=np.array(0.3),
        prefill_workers=np.array(3.0),
        decode_workers=np.array(2.0),
        fixed=np.array(0.02),
        slope=np.array(0.0),
        places=np.array(20.0),
        stream_interval=np.array(interval),
    )
    found = disaggregated_run(setting, pools, np.array(1.0))
    overhead = setting.engine.execution.request_overhead
    first = 0.2 + 0.3 + 0.02 + overhead
    assert found.time_to_first_token == pytest.approx(first + later * 0.02)


def replica_of(row: Any, prefix: str) -> Replica:
    """A worker of a row of plans."""
    names = [field.name for field in fields(Replica) if f"{prefix}{field.name}" in row]
    given = {name: row[f"{prefix}{name}"] for name in names if name != "num_gpus"}
    return Replica(**{"concurrency": 1.0, **given})


def test_plans_of_a_search_are_those_of_the_twin() -> None:
    fixed = {"quantization": ["fp8"], "expert_quantization": ["fp8"], "kv_cache": ["fp8"]}
    request = {"model": "llama-3.1-70b", "gpu": "h200-sxm-141gb", "num_gpus": 16}
    lengths = {"input_tokens": 3000, "output_tokens": 200}
    found = planner.search(
        workload="serve",
        mode="disaggregated",
        engine="vllm",
        tuned=True,
        **request,
        **lengths,
        settings=fixed,
    )
    world = make_world(found.problem.inputs)
    rows = found.to_frame()
    for _, row in rows.iloc[::6].iterrows():
        first, second = replica_of(row, "prefill_"), replica_of(row, "")
        d = Deployment(
            prefill=first,
            decode=second,
            prefill_workers=row["prefill_replicas"],
            decode_workers=row["replicas"],
            requests=row["replicas"] * second.concurrency,
        )
        expected = scalar_disaggregated.serve(world, d)
        assert row["time_to_first_token_s"] == pytest.approx(expected["time_to_first_token"])
        assert row["time_per_output_token_s"] == pytest.approx(expected["time_per_output_token"])
        assert row["requests_per_s"] == pytest.approx(expected["request_rate"])
        assert row["utilization"] == pytest.approx(expected["load"])
        assert row["transfer_time_s"] == pytest.approx(scalar_disaggregated.transfer(world, d))


def test_a_pair_of_a_search_waits_for_the_slower_end_of_a_transfer() -> None:
    """Four GPUs send a cache that one receives, and the other way round."""
    setting = make_setting("llama-2-70b", input_tokens=8000)
    mesh: Any = None
    source = PrefillDecodeSource(
        inputs=setting,
        space=PrefillDecodeSpace(
            prefill_setting=setting, decode_setting=setting, prefill_mesh=mesh, decode_mesh=mesh
        ),
        counts=(),
        site=OperatingTerms(),
        prefill_site=OperatingTerms(),
    )
    wide, narrow = Replica(num_gpus=4, tensor_parallel=4, concurrency=9), Replica(concurrency=9)
    for first, second in ((wide, narrow), (narrow, wide)):
        prefill = prefill_workers(setting, make_replicas([first]), inside_fabric=False)
        decode = decode_workers(setting, make_replicas([second]), inside_fabric=False)
        codes = np.zeros(1, dtype=np.int8)
        found = source.deployed(prefill, decode, np.array([1.0]), np.array([2.0]), codes)
        d = Deployment(
            prefill=first,
            decode=second,
            prefill_workers=1,
            decode_workers=2,
            requests=18,
            inside_fabric=first.num_gpus + 2 * second.num_gpus <= 8,
        )
        expected = scalar_disaggregated.serve(make_world(setting), d)
        first_token = float(found.time_to_first_token.ravel()[0])
        assert first_token == pytest.approx(expected["time_to_first_token"])


def test_pools_whose_workers_draft_with_another_model() -> None:
    plain = make_setting("llama-3.1-70b", draft_tokens=3, acceptance_rate=0.7)
    setting = replace(plain, draft=load_model("llama-3.2-1b"))
    world, slower = make_world(setting), 0
    for d in deployments(DENSE[1:3]):
        found = disaggregated_run(setting, pools_of(setting, d), np.array([d.requests]))
        alone = disaggregated_run(plain, pools_of(plain, d), np.array([d.requests]))
        slower += found.time_per_output_token[0] > alone.time_per_output_token[0]
        for name, value in scalar_disaggregated.serve(world, d).items():
            assert float(getattr(found, name)[0]) == pytest.approx(value, rel=1e-9), (name, d)
    assert slower
