"""What more sharding, more recomputation and faster hardware may not do."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from draws import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from rows import each
from tables import FRAMEWORKS, GPUS, MODELS, mesh, setting, table, with_gpu, with_links

from planner import Request
from planner.configurations.configuration_tables import TrainingConfigurations
from planner.errors import SearchSpaceError
from planner.estimators.training.micro_batch_share import TrainingInputs
from planner.estimators.training.sharding import data_parallel_time, stage_parameters
from planner.estimators.training.training_estimate import Estimate, evaluate
from planner.workloads.make_plan import make_plan

SLOW = settings(max_examples=examples(20, 4))
SOME_MODEL, SOME_FRAMEWORK = st.sampled_from(MODELS), st.sampled_from(FRAMEWORKS)
FASTER = st.floats(1.001, 50)
LITTLE = 1 + 1e-9


def _block() -> TrainingConfigurations:
    (block,) = mesh(recompute=[0, 2], sequence_parallel=[True]).blocks()
    return block


def _time(s: TrainingInputs) -> np.ndarray:
    return evaluate(s, _block()).step_time


@SLOW
@given(model=SOME_MODEL, framework=SOME_FRAMEWORK, gpu=st.sampled_from(GPUS), factor=FASTER)
def test_time_does_not_rise_with_memory_bandwidth(
    model: str, framework: str, gpu: str, factor: float
) -> None:
    s = setting(model, framework, gpu)
    faster = with_gpu(s, memory_bandwidth=factor * s.machine.gpu.memory_bandwidth)
    assert np.all(_time(faster) <= _time(s) * LITTLE)
    assert np.any(_time(faster) < _time(s))


@SLOW
@given(model=SOME_MODEL, framework=SOME_FRAMEWORK, gpu=st.sampled_from(GPUS), factor=FASTER)
def test_time_does_not_rise_with_peak_flops(
    model: str, framework: str, gpu: str, factor: float
) -> None:
    s = setting(model, framework, gpu)
    peaks = {word: factor * rate for word, rate in s.machine.gpu.peak_flops.items()}
    faster = with_gpu(s, peak_flops=peaks)
    assert np.all(_time(faster) <= _time(s) * LITTLE)
    assert np.any(_time(faster) < _time(s))


@SLOW
@given(
    experts=st.sampled_from([("mixtral-8x7b", [4, 8]), ("deepseek-v3", [8, 32])]),
    framework=st.sampled_from([*FRAMEWORKS, "hai-llm"]),
    gpu=st.sampled_from(GPUS),
    links=st.sampled_from([1.0, 0.1]),
    factor=st.floats(1.001, 5),
)
def test_time_does_not_rise_with_peak_flops_where_exchanges_overlap(
    experts: tuple[str, list[int]], framework: str, gpu: str, links: float, factor: float
) -> None:
    """Nothing hides twice: experts' exchanges behind two passes, and gathers behind one of them."""
    model, over = experts
    s = with_links(setting(model, framework, gpu), links, links)
    peaks = {word: factor * rate for word, rate in s.machine.gpu.peak_flops.items()}
    (block,) = mesh(
        recompute=[0, 1],
        sequence_parallel=[True],
        overlap_expert_parallel=[True],
        expert_parallel=over,
        micro_batch_size=[1, 4],
    ).blocks()
    slow, fast = (evaluate(one, block).step_time for one in (s, with_gpu(s, peak_flops=peaks)))
    assert np.all(fast <= slow * LITTLE)


@SLOW
@given(
    model=SOME_MODEL,
    framework=SOME_FRAMEWORK,
    gpu=st.sampled_from(GPUS),
    up=FASTER,
    out=FASTER,
)
def test_time_does_not_rise_with_link_bandwidth(
    model: str, framework: str, gpu: str, up: float, out: float
) -> None:
    s = setting(model, framework, gpu)
    base = _time(s)
    for faster in (with_links(s, up=up), with_links(s, out=out), with_links(s, up, out)):
        assert np.all(_time(faster) <= base * LITTLE)
    assert np.any(_time(with_links(s, up, out)) < base)


def _states(estimate: Estimate) -> np.ndarray:
    memory = estimate.memory
    return np.stack([m.weights + m.gradients + m.optimizer_states for m in memory.stages])


def _falls(values: np.ndarray) -> np.ndarray:
    return np.diff(values) <= values[..., :-1] * 1e-12


@each("framework", FRAMEWORKS)
@each("model", MODELS)
def test_zero_stages_shard_more_and_more(model: str, framework: str) -> None:
    """Model states fall with each stage; gathered units come on top from stage 3 on."""
    layout = table(zero_stage=[0, 1, 2, 3], tensor_parallel=2, sequence_parallel=True)
    estimate = evaluate(setting(model, framework), layout)
    assert np.all(_falls(_states(estimate)))
    assert np.all(_falls(estimate.peak_memory[:2]))
    persistent = estimate.peak_memory - estimate.memory.fullest.gathered
    assert np.all(_falls(persistent))


@pytest.mark.parametrize(("framework", "zero"), [("megatron-lm", 1), ("torchtitan", 3)])
@pytest.mark.parametrize("model", MODELS)
def test_more_copies_hold_more_states(model: str, framework: str, zero: int) -> None:
    """Two copies over 64 ranks are each what one over 32 is."""
    s = setting(model, framework)
    copies = evaluate(s, table(zero_stage=zero, data_parallel_replicas=[1, 2, 4, 32]))
    assert np.all(_falls(_states(copies)[..., ::-1]))
    fewer = evaluate(s, table(zero_stage=[zero], num_gpus=32, global_batch_size=256))
    assert _states(copies)[..., 1] == pytest.approx(_states(fewer)[..., 0])


def test_copies_within_a_node_gather_over_its_fabric_alone() -> None:
    """FSDP over a slow network: gathers stay in a node, sums of shards do not."""
    slow = with_links(setting("llama-65b", "fsdp"), out=1e-3)
    layouts = (table(zero_stage=3, data_parallel_replicas=copies) for copies in (1, 8))
    whole, hybrid = (
        data_parallel_time(slow, layout, stage_parameters(slow.model, layout)) for layout in layouts
    )
    assert hybrid.layer_forward[0] < whole.layer_forward[0] / 100
    in_node = hybrid.layer_forward[0]
    assert 10 * in_node < hybrid.layer_backward[0] < whole.layer_backward[0]


@each("zero", [0, 1, 3])
@each("model", MODELS)
def test_tensor_parallelism_needs_no_more_memory(model: str, zero: int) -> None:
    """On a fixed number of replicas (more GPUs), every part falls or stays."""
    tensor = np.array([1, 2, 4, 8])
    layout = table(
        num_gpus=16 * tensor,
        tensor_parallel=tensor,
        sequence_parallel=tensor > 1,
        zero_stage=zero,
    )
    memory = evaluate(setting(model), layout).memory
    for part in ("weights", "gradients", "optimizer_states", "activations", "working", "gathered"):
        assert np.all(_falls(np.broadcast_to(getattr(memory.fullest, part), 4))), part
    assert np.all(_falls(memory.peak))


@pytest.mark.parametrize("parallel", ["pipeline_parallel", "context_parallel"])
@pytest.mark.parametrize("model", ["llama-65b", "gpt-3-175b", "mixtral-8x7b", "gemma-2-9b"])
def test_more_stages_and_more_context_ranks_need_no_more_memory(model: str, parallel: str) -> None:
    """With enough micro-batches for any number of stages; 1F1B holds no more than one model."""
    ways = np.array([1, 2, 4, 8])
    layout = table(num_gpus=8 * ways, **{parallel: ways}, global_batch_size=512)
    memory = evaluate(setting(model), layout).memory
    assert np.all(_falls(memory.fullest.weights))
    if parallel == "context_parallel":
        assert np.all(_falls(memory.fullest.activations))
        assert np.all(_falls(memory.peak))


@pytest.mark.parametrize("flash", [True, False])
@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("model", MODELS)
def test_recomputation_trades_kept_activations_for_time(
    model: str, framework: str, flash: bool
) -> None:
    layout = table(recompute=[0, 1, 2], micro_batch_size=2, flash_attention=flash)
    estimate = evaluate(setting(model, framework), layout)
    kept = np.stack([stage.activations for stage in estimate.memory.stages])
    assert np.all(_falls(kept))
    # None are left at the optimizer step, where that is the fullest moment.
    assert np.all((kept[:, 2] < kept[:, 0]) | (kept[:, 0] == 0))
    again = np.broadcast_to(estimate.time.parts()["recompute"], 3)
    assert again[0] == 0
    assert again[0] <= again[1] <= again[2]
    assert again[2] > 0


@pytest.mark.parametrize("model", MODELS)
def test_recomputation_lowers_the_peak_where_a_stage_has_several_layers(model: str) -> None:
    layout = table(recompute=[0, 2], micro_batch_size=2, pipeline_parallel=4)
    peak = evaluate(setting(model), layout).peak_memory
    assert peak[1] < peak[0]


@pytest.mark.parametrize("model", MODELS)
def test_larger_micro_batches_need_more_memory(model: str) -> None:
    layout = table(micro_batch_size=[1, 2, 4], num_gpus=8)
    peak = evaluate(setting(model), layout).peak_memory
    assert np.all(np.diff(peak) > 0)


@each("framework", [*FRAMEWORKS, "hf-trainer", "unsloth", "trl", "hf-bf16"])
def test_memory_does_not_fall_with_batch_sequence_and_vocabulary(framework: str) -> None:
    """With adapters, with pairs of answers and without either; it rises with all together."""
    base = {"model": "gemma-2-9b", "gpu": "b200", "num_gpus": 8, "framework": framework}
    for more in ({}, {"adapter": "lora"}, {"training_objective": "dpo"}):
        try:
            shorter, longer = (
                make_plan(Request(**base, **more, sequence_length=tokens)).problem.inputs  # type: ignore[arg-type]
                for tokens in (4096, 8192)
            )
        except SearchSpaceError:
            continue
        larger = replace(
            longer, model=replace(longer.model, vocab_size=2 * longer.model.vocab_size)
        )
        zero = shorter.framework.default_zero_stage
        for recompute in (0, 2):
            layout = table(micro_batch_size=[1, 2, 4], num_gpus=8, zero_stage=zero)
            layout = replace(layout, recompute=np.full((3,), recompute, np.int8))
            peaks = [evaluate(s, layout).peak_memory for s in (shorter, longer, larger)]
            assert np.all(np.diff(peaks, axis=0) >= 0), (more, recompute)
            assert np.all(np.diff(peaks, axis=1) >= 0), (more, recompute)
            assert peaks[2][2] > peaks[0][0], (more, recompute)


@each("framework", FRAMEWORKS)
@each("model", MODELS)
def test_steps_take_longer_with_more_sequences(model: str, framework: str) -> None:
    """And never in less than proportion to what one more micro-batch of a stage costs."""
    layout = table(global_batch_size=[64, 128, 192, 640])
    time = evaluate(setting(model, framework), layout).step_time
    steps = np.diff(time)
    assert np.all(steps > 0)
    assert steps[1] == pytest.approx(steps[0], rel=1e-9)
    assert steps[2] == pytest.approx(7 * steps[0], rel=1e-9)


@pytest.mark.parametrize("model", ["llama-65b", "gpt-3-175b"])
def test_virtual_stages_divide_the_bubble_and_hold_more(model: str) -> None:
    layout = table(pipeline_parallel=8, virtual_pipeline=[1, 2], global_batch_size=512)
    estimate = evaluate(setting(model, "megatron-deepspeed"), layout)
    bubble = estimate.time.parts()["pipeline_bubble"]
    assert bubble[1] == pytest.approx(bubble[0] / 2, rel=0.05)
    held = estimate.memory.stages[0].activations
    assert held[1] / held[0] == pytest.approx(1 + 7 / 16, rel=1e-9)
