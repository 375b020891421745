"""What a share of a GPU's memory that an engine is told leaves for its cache."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from serving_cases import replicas, serving_setting

from planner.base.units import GIB
from planner.errors import PlannerError
from planner.estimators.inference.batch_share import ServingInputs
from planner.estimators.inference.serving_estimate import evaluate_serving
from planner.estimators.inference.serving_memory import ServingMemory, serving_memory
from planner.question.request import Request
from planner.workloads.make_plan import evaluate, make_single_plan


def setting_of(engine: str, model: str = "llama-3.1-8b", gpu: str = "h100-sxm") -> ServingInputs:
    return serving_setting(model, gpu, engine, input_tokens=1024, output_tokens=512)


def memory_of(setting: ServingInputs, *shares: float) -> ServingMemory:
    return serving_memory(setting, replicas(concurrency=8, gpu_memory_utilization=np.array(shares)))


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt-llm"])
def test_a_smaller_share_has_room_for_fewer_requests(engine: str) -> None:
    room = memory_of(setting_of(engine), 0.95, 0.9, 0.5, 0.3).most_sequences
    assert (np.diff(room) < 0).all()
    assert room[0] > 1.8 * room[2] > 2.4 * room[3] > 0


def test_room_of_8b_on_an_h100_by_the_share_of_vllm() -> None:
    # 79.1 GiB, of which .95, .5 and .3 less 15.0 of weights and 4.8 to 5.1 beside them.
    memory = memory_of(setting_of("vllm-0.8"), 0.95, 0.5, 0.3)
    room, size = memory.room.size / GIB, setting_of("vllm-0.8").machine.gpu.allocatable_memory / GIB
    beside = (memory.weights + memory.activations + memory.reserved) / GIB
    assert room == pytest.approx(np.array([0.95, 0.5, 0.3]) * size - beside)
    assert memory.most_sequences == pytest.approx([328, 116, 22], abs=3)


def test_the_default_of_a_profile_is_that_share() -> None:
    setting = setting_of("vllm")
    told, default = memory_of(setting, setting.engine.memory.gpu_memory_utilization, 0.0).usable
    assert told == default == setting.usable_memory


def test_sglang_keeps_weights_and_cache_in_its_share_and_the_rest_beside_it() -> None:
    setting = setting_of("sglang")
    memory, size = memory_of(setting, 0.5), setting.machine.gpu.allocatable_memory
    assert memory.weights + memory.room.size == pytest.approx(0.5 * size)
    # Of more than the whole GPU nothing is had.
    full = memory_of(setting, 1.0)
    assert full.usable == pytest.approx(size)


def test_tensorrt_llm_gives_its_cache_a_share_of_what_is_free() -> None:
    setting = setting_of("tensorrt-llm")
    memory = memory_of(setting, 0.5)
    beside = memory.weights + memory.activations + memory.reserved
    free = setting.machine.gpu.allocatable_memory - beside
    assert memory.room.size == pytest.approx(0.5 * free)


@pytest.mark.parametrize(("engine", "share"), [("tensorrt-llm", 0.9), ("lmdeploy", 0.8)])
def test_the_default_of_such_engines_is_of_what_is_free_too(engine: str, share: float) -> None:
    """``free_gpu_memory_fraction`` and ``cache_max_entry_count`` where nobody gives them."""
    memory = memory_of(setting_of(engine), 0.0, share)
    steps = memory.activations if engine == "tensorrt-llm" else 0.0
    free = setting_of(engine).machine.gpu.allocatable_memory - memory.weights - memory.reserved
    assert memory.room.size == pytest.approx(share * (free - steps))


def test_a_cache_that_is_allocated_before_the_first_step_must_leave_its_activations() -> None:
    """github.com/InternLM/lmdeploy/issues/3280: three large images crash with 0.99 on an H100."""
    setting = serving_setting("qwen2.5-vl-7b", "h100-sxm", "lmdeploy", input_tokens=9000)
    setting = replace(setting, workload=replace(setting.workload, images_per_sample=3.0))
    shares = np.linspace(0.8, 1.0, 21)
    c = replicas(concurrency=2, gpu_memory_utilization=shares)
    found = evaluate_serving(setting, c)
    free = setting.machine.gpu.allocatable_memory - found.memory.weights - found.memory.reserved
    enough = (1 - shares) * free >= found.memory.activations
    assert (found.rejected_by > 0).tolist() == (~enough).tolist()
    assert enough[shares < 0.97].all()
    assert not enough[shares > 0.985].any()


def test_weights_beyond_the_share_do_not_fit() -> None:
    setting = setting_of("vllm", "qwen2.5-7b", "l4")
    shares = np.array([0.9, 0.4])
    found = evaluate_serving(setting, replicas(concurrency=1, gpu_memory_utilization=shares))
    assert found.memory.usable / GIB == pytest.approx([19.8, 8.8], rel=0.02)
    assert found.memory.weights / GIB == pytest.approx(14.2, rel=0.01)
    assert (found.rejected_by > 0).tolist() == [False, True]


def asked(engine: str, workload: str = "serve", share: float = 0.5) -> Request:
    return Request(
        workload=workload,
        model="llama-3.1-8b",
        gpu="h100-sxm",
        engine=engine,
        num_gpus=1,
        input_tokens=1024,
        output_tokens=512,
        mode="aggregated" if workload == "serve" else None,
        settings={"gpu_memory_utilization": share, "concurrency": 8},
    )


@pytest.mark.parametrize("workload", ["serve", "inference"])
def test_a_share_is_set_and_is_a_column(workload: str) -> None:
    row = evaluate(make_single_plan(asked("vllm", workload))).table()
    assert row["gpu_memory_utilization"][0] == 0.5
    more = evaluate(make_single_plan(asked("vllm", workload, 0.9))).table()
    assert more["most_sequences"][0] > 2 * row["most_sequences"][0]


def test_an_engine_without_such_an_option_refuses_it() -> None:
    with pytest.raises(PlannerError, match="Transformers has no option"):
        make_single_plan(asked("transformers", "inference"))


@pytest.mark.parametrize("ranks", [1, 2])
def test_outputs_wait_for_all_reduces_only_where_there_are_any(ranks: int) -> None:
    """Two outputs of each of 32 layers, 4,096 wide, of 8,192 tokens; one GPU reduces nothing."""
    setting = serving_setting("llama-7b", "a100-sxm-80gb", input_tokens=1000, output_tokens=10)
    memory, kept = setting.engine.memory, []
    for queued in (False, True):
        engine = replace(setting.engine, memory=replace(memory, queued_all_reduces=queued))
        layout = replicas(num_gpus=ranks, tensor_parallel=ranks, concurrency=1)
        kept.append(serving_memory(replace(setting, engine=engine), layout).activations)
    assert float((kept[1] - kept[0]).max()) == (2 * 32 * 2 * 8192 * 4096 if ranks > 1 else 0)
