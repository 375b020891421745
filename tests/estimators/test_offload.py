"""Offloading: what leaves the GPU, what the host holds, what copies and updates take."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import planner
from planner.base.units import GIB
from planner.configurations.configuration_tables import OUT_OF_HOST_MEMORY
from planner.estimators.training.training_estimate import REJECTIONS, Estimate, evaluate
from planner.layers.model import count_parameters
from planner.optimize.source import first_row
from planner.show.presenters.format_results import memory_table
from planner.show.terminal import print_blocks
from planner.specs.catalogue import load_model

PARAMETERS = count_parameters(load_model("llama-2-7b")).total
LINK = 0.75 * 32e9
HOST = 51.2e9


def offloaded(kind: str, **changes: Any) -> Estimate:
    """Llama 2 7B with full recomputation on GPUs of one A100 node."""
    asked: dict[str, Any] = {
        "model": "llama-2-7b",
        "gpu": "a100-sxm-80gb",
        "num_gpus": 8,
        "framework": "deepspeed",
        "sequence_length": 2048,
        "global_batch_size": 64,
        **{name: value for name, value in changes.items() if name != "settings"},
    }
    asked["settings"] = {
        "zero_stage": 3,
        "recompute": "full",
        "offload": kind,
        "micro_batch_size": 4,
        **changes.get("settings", {}),
    }
    return planner.estimate(**asked).estimate


def number(values: Any) -> float:
    return float(np.ravel(values)[0])


def test_optimizer_on_the_host_leaves_weights_on_the_gpu() -> None:
    """ZeRO-Offload: 2 of 16 bytes per parameter stay on the GPU, 12 + 4 move to the host."""
    memory = offloaded("optimizer", num_gpus=1, settings={"zero_stage": 0}).memory
    assert number(memory.fullest.weights) == pytest.approx(2 * PARAMETERS, rel=1e-6)
    assert number(memory.fullest.gradients) == number(memory.fullest.optimizer_states) == 0
    assert number(memory.host) == pytest.approx(1.5 * 16 * PARAMETERS, rel=1e-6)


def test_gradients_that_are_not_sharded_are_added_up_on_the_gpu() -> None:
    """Megatron-LM's buffer of fp32 gradients stays, and each rank's share is copied once."""
    settings = {"zero_stage": 1, "micro_batch_size": 1}
    kept = offloaded("optimizer", framework="megatron-lm", settings=settings)
    assert number(kept.memory.fullest.gradients) == pytest.approx(4 * PARAMETERS, rel=1e-6)
    assert number(kept.memory.fullest.optimizer_states) == 0
    assert number(kept.memory.host) == pytest.approx(16 * PARAMETERS / 8, rel=1e-6)
    # They cross the link once, before the update, and not after every micro-batch.
    assert number(kept.time.parts()["offload"]) == 0
    updated = PARAMETERS / 8 * (38 / (0.5 * HOST) + (4 + 2) / LINK)
    assert number(kept.time.optimizer) == pytest.approx(updated, rel=1e-2)
    sharded = offloaded("optimizer", settings={"zero_stage": 2}).memory
    assert number(sharded.fullest.gradients) == 0


def test_weights_on_the_host_are_gathered_by_layers() -> None:
    memory = offloaded("optimizer_weights").memory
    assert number(memory.fullest.weights) == 0
    assert number(memory.fullest.gathered) > 0
    assert number(memory.host) == pytest.approx(1.5 * 18 * PARAMETERS / 8, rel=1e-3)
    alone = offloaded("optimizer_weights", num_gpus=1, settings={"zero_stage": 0}).memory
    assert number(alone.fullest.weights) == 0
    assert number(alone.fullest.gathered) == pytest.approx(number(memory.fullest.gathered))


def test_activations_on_the_host_leave_two_layers() -> None:
    settings = {"recompute": "none", "micro_batch_size": 1}
    kept = offloaded("none", settings=settings).memory
    moved = offloaded("activations", settings=settings).memory
    whole = number(kept.fullest.activations)
    backward = moved.moments[0][0]  # what is fullest then is the step of the optimizer
    assert number(backward.activations) == pytest.approx(whole * 2 / 32)
    assert number(moved.host) == pytest.approx(whole)


def test_the_host_updates_at_the_speed_of_its_memory() -> None:
    """38 bytes per parameter at half of the bandwidth, then 2 over the link."""
    time = offloaded("optimizer", settings={"zero_stage": 2}).time
    owned = PARAMETERS / 8
    assert number(time.optimizer) == pytest.approx(owned * (38 / (0.5 * HOST) + 2 / LINK), rel=1e-2)
    streamed = offloaded("optimizer", framework="llmq", settings={"zero_stage": 1}).time
    assert number(streamed.optimizer) == pytest.approx(owned * 4 / LINK, rel=1e-2)


def test_copies_show_where_there_is_little_to_compute() -> None:
    """A rank fetches its eighth of the weights twice, and brings its gradients away once."""
    time = offloaded("optimizer_weights", settings={"micro_batch_size": 1}).time
    shown = number(time.parts()["offload"])
    copied = 8 * 6 * PARAMETERS / 8 / LINK
    assert 0.3 * copied * 0.98 < shown < copied
    more = offloaded("optimizer_weights", settings={"micro_batch_size": 8}).time
    assert number(more.parts()["offload"]) < shown / 7


def test_gpus_share_the_bandwidth_of_host_memory() -> None:
    """GB200's link to its host is faster than its half of the host's memory."""
    estimate = offloaded("optimizer_weights", gpu="gb200-nvl72", num_gpus=4)
    machine = estimate.inputs.machine
    assert number(machine.host_copy_time(1e9, 1.0)) == pytest.approx(1e9 / 225e9)
    slow = replace(machine, cluster=replace(machine.cluster, host_memory_bandwidth=20e9))
    assert number(slow.host_copy_time(1e9, 1.0)) == pytest.approx(1e9 / 20e9)


def test_host_memory_has_an_end() -> None:
    """18 x 1.5 bytes of 7 billion parameters are 169 GiB; a DGX A100 has 2,048."""
    fits = offloaded("optimizer_weights", cluster="dgx-a100")
    assert number(fits.rejected_by) == 0
    cluster = replace(fits.inputs.machine.cluster, host_memory=80 * GIB)
    machine = replace(fits.inputs.machine, cluster=cluster)
    full = evaluate(replace(fits.inputs, machine=machine), fits.configurations)
    assert REJECTIONS[int(number(full.rejected_by)) - 1] == OUT_OF_HOST_MEMORY.name


def test_deepspeed_takes_half_as_much_again_of_the_host() -> None:
    """estimate_zero3_model_states_mem_needs: 18 bytes x 1.5 of every parameter on a node."""
    held = offloaded("optimizer_weights").memory.host
    assert 8 * number(held) == pytest.approx(PARAMETERS * 18 * 1.5, rel=1e-3)


def test_each_process_loads_the_whole_model_where_weights_are_not_sharded() -> None:
    whole = offloaded("optimizer", settings={"zero_stage": 2}).memory.loading
    assert number(whole) == pytest.approx(2 * PARAMETERS, rel=1e-3)
    assert number(offloaded("optimizer").memory.loading) == 0


@pytest.mark.parametrize(("adapter", "zero_stage"), [("none", 3), ("qlora", 3), ("none", 0)])
def test_one_process_of_a_node_loads_what_fsdp_shards(adapter: str, zero_stage: int) -> None:
    """Llama 2 70B in 16 bits: killed with 125 GB, runs with 250 GB (axolotl pull request 1742)."""
    settings = {"zero_stage": zero_stage}
    asked = {"framework": "hf-fsdp", "adapter": adapter, "settings": settings}
    loading = number(offloaded("none", **asked).memory.loading)
    processes = 1 if zero_stage else 8
    assert 8 * loading == pytest.approx(processes * 2 * PARAMETERS, rel=1e-3)


def test_a_node_is_shared_by_the_gpus_of_the_job_that_are_in_it() -> None:
    machine = offloaded("none", cluster="dgx-a100").inputs.machine
    rooms = machine.host_room(np.array([1, 2, 8, 64])) / GIB
    assert rooms.tolist() == [2048, 1024, 256, 256]


def test_the_host_memory_of_a_node_is_given_or_assumed() -> None:
    """A load of two bytes of 7 billion parameters by each of 8 processes takes 100 GiB."""
    small = {"settings": {"zero_stage": 2}, "node_host_memory": 64 * GIB}
    full = offloaded("none", **small)
    assert REJECTIONS[int(number(full.rejected_by)) - 1] == OUT_OF_HOST_MEMORY.name
    assert number(offloaded("none", **{**small, "node_host_memory": 128 * GIB}).rejected_by) == 0
    assumed = offloaded("none", gpu="h100-nvl").inputs.machine.cluster
    assert assumed.host_memory is None
    assert assumed.host_memory_per_gpu == pytest.approx(2.5 * 94 * GIB, rel=0.1)


def test_offloading_fits_what_does_not_fit() -> None:
    """The paper's claim: 13 billion parameters on a GPU of 32 GB (arXiv:2101.06840)."""
    asked: dict[str, Any] = {"model": "llama-2-13b", "gpu": "v100-sxm-32gb", "num_gpus": 1}
    asked["node_host_memory"] = 1.5e12  # a DGX-2, table 2
    settings = {"precision": "fp16", "zero_stage": 0, "micro_batch_size": 1}
    whole = offloaded("none", **asked, settings=settings)
    moved = offloaded("optimizer", **asked, settings=settings)
    assert number(whole.rejected_by) > 0
    assert number(moved.rejected_by) == 0


def test_the_table_of_memory_ends_with_what_the_host_holds() -> None:
    """In GiB, and as a share of the 256 GiB that a GPU of a DGX A100 has there."""
    found = planner.estimate(
        model="llama-2-7b",
        cluster="dgx-a100",
        num_gpus=8,
        framework="deepspeed",
        settings={"zero_stage": 3, "offload": "optimizer_weights", "recompute": "full"},
    )
    host = number(found.estimate.memory.host) / GIB
    console = Console(width=100, file=StringIO(), record=True)
    row = first_row(found.candidates.columns())
    print_blocks(console, [memory_table(row, found.source.inputs.machine)])
    assert console.export_text().split("in host memory")[1].split() == [
        f"{host:.2f}",
        f"{100 * host / 256:.1f}",
    ]
    assert row["host_memory_gib"] == pytest.approx(host)


@pytest.mark.parametrize("model", ["llama-3-8b", "mixtral-8x7b"])
def test_four_bits_are_faster_than_eight_and_slower_than_twice_as_fast(model: str) -> None:
    steps = {
        precision: number(
            planner.estimate(
                model=model,
                gpu="b200-sxm-180gb",
                num_gpus=8,
                framework="megatron-bridge",
                sequence_length=8192,
                global_batch_size=16,
                settings={"precision": precision, "zero_stage": 1, "micro_batch_size": 1},
            ).estimate.step_time
        )
        for precision in ("bf16", "fp8", "fp4")
    }
    assert steps["fp4"] < steps["fp8"] < steps["bf16"] < 2 * steps["fp8"] < 4 * steps["fp4"]
