"""The largest batch of each of several methods."""

from __future__ import annotations

import pytest

import planner
from planner.errors import SearchSpaceError

TRAINED = {"model": "llama-7b", "num_gpus": 8, "framework": "deepspeed"}
SERVED = {
    "workload": "serve",
    "model": "llama-3.1-8b",
    "num_gpus": 8,
    "input_tokens": 4000,
    "output_tokens": 1000,
}


def test_each_row_is_the_largest_batch_of_its_method_alone():
    lists = {"zero_stage": [2, 3], "offload": ["none", "optimizer"], "recompute": "none,full"}
    found = planner.max_batches(**TRAINED, settings=lists)
    assert len(found.methods) == 8
    for method in found.methods:
        alone = planner.max_batch(**TRAINED, settings=dict(method.values))
        assert (method.largest.largest, method.reason) == (alone.largest, alone.reason)
        assert method.row == alone.row


def test_methods_that_cannot_be_keep_a_row_with_the_reason():
    lists = {"zero_stage": [0, 3], "offload": ["none", "optimizer"]}
    columns = planner.max_batches(**TRAINED, settings=lists).columns
    assert columns["zero_stage"] == [0, 0, 3, 3]
    assert columns["offload"] == ["none", "optimizer"] * 2
    # 6.7 billion parameters x 16 bytes are 100 GiB of an 80 GB GPU without sharding.
    assert columns["micro_batch_size"][:2] == [None, None]
    assert columns["peak_memory_gib"][:2] == [None, None]
    assert "needs more memory" in columns["ended_by"][0]
    assert "cannot offload" in columns["ended_by"][1]
    assert all(columns["micro_batch_size"][2:])


def test_offloaded_states_leave_the_gpu_by_their_bytes():
    lists = {"offload": ["none", "optimizer"], "recompute": "full", "zero_stage": 3}
    columns = planner.max_batches(**TRAINED, settings=lists).columns
    assert len(set(columns["micro_batch_size"])) == 1
    kept, moved = columns["peak_memory_gib"]
    # Main parameters and two moments of Adam, fp32, of 6.738 billion parameters over 8 GPUs.
    states = 12 * 6.738e9 / 8 / 2**30
    assert kept - moved == pytest.approx(states, rel=0.2)


def test_methods_of_gpus_and_engines_keep_the_limits():
    asked = {**SERVED, "constraints": {"tpot": "30ms"}}
    found = planner.max_batches(
        **asked, gpu="a100,h100", engine="vllm,sglang", settings={"tp": "2,4"}
    )
    assert len(found.methods) == 8
    assert found.name == "concurrency"
    for method in found.methods[::3]:
        values = dict(method.values)
        tensor = {"tp": values.pop("tensor_parallel")}
        alone = planner.max_batch(**asked, **values, settings=tensor)
        assert method.largest.largest == alone.largest
        assert "time_per_output_token" in method.reason


def test_an_adapter_and_a_precision_are_methods_too():
    adapters = planner.max_batches(
        model="llama-7b", num_gpus=8, adapter="lora,qlora", settings={"zero_stage": 3}
    )
    assert [one.values["adapter"] for one in adapters.methods] == ["lora", "qlora"]
    products = planner.max_batches(
        model="llama-7b", num_gpus=8, gpu="h100", framework="megatron-bridge", precision="bf16,fp8"
    )
    assert [one.values["precision"] for one in products.methods] == ["bf16", "fp8"]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"mbs": [1, 2]}, "micro_batch_size is what grows"),
        ({"loss_chunks": list(range(1, 2100))}, "give lists of 2,000 at most"),
    ],
)
def test_lists_that_cannot_be_are_refused(settings, said):
    with pytest.raises(SearchSpaceError, match=said):
        planner.max_batches(**TRAINED, settings=settings)
