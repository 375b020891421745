"""GPUs that share one memory with their host: what moves to the host stays where it is."""

from __future__ import annotations

import pytest

from planner import estimate
from planner.errors import SearchSpaceError
from planner.specs.catalogue import Catalogue
from planner.specs.spec_paths import SpecKind

_TRAIN = {"model": "llama-3.2-1b", "num_gpus": 1, "sequence_length": 2048}
_TRAIN |= {"global_batch_size": 4, "framework": "deepspeed"}
_ONE_MEMORY = ("gb10", "strix-halo", "jetson-agx-orin", "m3-max", "m4-max", "mi300a")


def _row(**asked):
    return estimate(**asked).candidates.row


def test_gpus_that_say_so_have_one_memory():
    """Those of the files' own notes; a Grace Hopper has two, whose link is fast."""
    catalogue = Catalogue(None)
    specs = [catalogue.load_gpu(name).spec for name in catalogue.names(SpecKind.GPUS)]
    shared = {spec.name for spec in specs if spec.unified_memory}
    noted = {spec.name for spec in specs if "shared with the CPU" in spec.notes}
    assert noted <= shared
    assert {catalogue.load_gpu(name).spec.name for name in _ONE_MEMORY} <= shared
    assert not {"gh200-96gb", "gb200-nvl72", "gb300-nvl72", "h100-sxm-80gb"} & shared
    assert not any(spec.unified_memory and spec.host for spec in specs)


@pytest.mark.parametrize("offload", ["optimizer", "optimizer_weights"])
@pytest.mark.parametrize("gpu", ["gb10", "strix-halo", "jetson-agx-orin"])
def test_offloading_frees_nothing_of_one_memory(gpu, offload):
    settings = {"zero_stage": 3, "recompute": "full"}
    asked = {**_TRAIN, "gpu": gpu}
    own = _row(**asked, settings=settings)
    moved = _row(**asked, settings={**settings, "offload": offload})
    assert moved["peak_memory_gib"] == pytest.approx(own["peak_memory_gib"])
    assert moved["host_memory_gib"] == 0
    # Copies within a memory still take time.
    assert moved["step_time_s"] > own["step_time_s"]


def test_unsloth_fine_tunes_on_one_memory():
    asked = {**_TRAIN, "gpu": "gb10", "framework": "unsloth", "adapter": "lora"}
    found = estimate(**asked)
    row = found.candidates.row
    assert not found.rejected_by
    assert (row["offload"], row["host_memory_gib"]) == ("activations", 0)
    kept = _row(**asked, settings={"recompute": "full", "offload": "none"})
    assert row["peak_memory_gib"] == pytest.approx(kept["peak_memory_gib"])


@pytest.mark.parametrize("gpu", _ONE_MEMORY)
def test_a_server_has_the_cache_of_its_own_memory(gpu):
    """No host memory is there, and none is needed: it held one request at once."""
    asked = {"workload": "serve", "model": "llama-3.2-1b", "gpu": gpu, "num_gpus": 1}
    asked |= {"engine": "llama.cpp", "input_tokens": 1000, "output_tokens": 1000}
    row = _row(**asked, settings={"concurrency": 4})
    requests = int(row["kv_cache_tokens"] / 2000)
    assert row["most_sequences"] >= requests > 4


def test_two_memories_are_freed_as_before():
    asked = {**_TRAIN, "gpu": "gh200", "settings": {"zero_stage": 3}}
    own = _row(**asked)
    moved = _row(**{**asked, "settings": {"zero_stage": 3, "offload": "optimizer_weights"}})
    assert moved["peak_memory_gib"] < 0.5 * own["peak_memory_gib"]
    assert moved["host_memory_gib"] > 0


def test_rollouts_leave_nothing_to_one_memory():
    asked = {"workload": "rl", "model": "llama-3.2-1b", "gpu": "gb10", "num_gpus": 1}
    asked |= {"prompts_per_step": 8, "samples_per_prompt": 4, "output_tokens": 256}
    asked |= {"framework": "verl"}
    sizes = [
        _row(**asked, settings={"offload_train": train, "offload_rollout": rollout})
        for train in (False, True)
        for rollout in (False, True)
    ]
    assert len({round(one["peak_memory_gib"], 6) for one in sizes}) == 1
    assert not any(one["host_memory_gib"] for one in sizes)


def test_memory_of_a_host_cannot_be_set_besides_it():
    with pytest.raises(SearchSpaceError, match="one memory of 128"):
        estimate(**_TRAIN, gpu="gb10", node_host_memory="320GiB")
    with pytest.raises(SearchSpaceError, match="leave out --host-cache"):
        estimate(
            workload="serve", model="llama-3.1-8b", gpu="gb10", num_gpus=1, engine="vllm",
            turns=4, think_time="5s", input_tokens=4000, output_tokens=100,
            host_cache="64GiB", settings={"concurrency": 4},
        )  # fmt: skip


def test_serving_moves_no_weights_within_one_memory():
    asked = {"workload": "inference", "model": "llama-3.1-8b", "gpu": "gb10", "num_gpus": 1}
    found = estimate(**asked, engine="vllm", settings={"weight_offload": 0.5, "concurrency": 1})
    assert found.rejected_by == "offload"
