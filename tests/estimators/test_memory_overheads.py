"""What a GPU holds beside the model: less on one small card than on many large ones."""

from __future__ import annotations

from typing import Any

import pytest

import planner
from planner.base.units import GIB


def _memory(num_gpus: int = 1, gpu: str = "rtx4090", **question: Any) -> Any:
    asked = {"model": "llama-3.1-8b", "gpu": gpu, "sequence_length": 2048, "framework": "hf-bf16"}
    settings = {"recompute": "full", "zero": 0, **question.pop("settings", {})}
    request = {**asked, "global_batch_size": num_gpus, "settings": settings, **question}
    return planner.estimate(num_gpus=num_gpus, **request).candidates.estimate.memory


def test_one_gpu_has_no_buffers_of_collectives() -> None:
    assert _memory().fullest.communication_buffers.max() == 0
    sharded = _memory(2, settings={"zero": 2})
    assert sharded.fullest.communication_buffers.min() == 0.5 * GIB


def test_replicas_copy_all_gradients_into_buckets() -> None:
    """DistributedDataParallel: 2 bytes of 8.03 billion parameters, 4 of an adapter's 41.9 million.

    These are 160 MiB, less than the buffers that every run has; embedding and logits that are
    trained beside them have 2 bytes more for each of 2 x 128,256 x 4,096 parameters.
    """
    assert _memory(2).fullest.communication_buffers.max() == 2 * PARAMETERS
    asked = {"framework": "hf-trainer", "adapter": "lora", "lora_targets": "all_linear"}
    adapter = _memory(2, **asked).fullest
    assert adapter.communication_buffers.max() == 0.5 * GIB
    saved = _memory(2, **asked, modules_to_save="embed_tokens,lm_head").fullest
    assert saved.communication_buffers.max() == 4 * 41_943_040 + 4 * 128_256 * 4096


def test_what_has_buffers_of_its_own_for_gradients_has_no_copy() -> None:
    """Megatron-LM's gradients are views of the buffers that it reduces."""
    assert _memory(2, framework="megatron-lm").fullest.communication_buffers.max() == GIB


def test_a_small_gpu_keeps_its_context_and_less_that_is_idle() -> None:
    """Of 1.5 GiB half a GiB is the context; of the rest 24 of 80 GB."""
    assert _memory(gpu="a100-sxm-80gb").fullest.reserved == pytest.approx(1.5 * GIB)
    small = 0.5 + (1.5 - 0.5) * 25.757 / 80
    assert _memory().fullest.reserved == pytest.approx(small * GIB, rel=0.01)


def test_an_update_in_eight_bits_builds_up_no_copy_of_all_weights() -> None:
    """Two bytes of 8.03 billion parameters: 15 GiB of torch's foreach implementation."""
    usual = _memory(gpu="h200").moments[0][1].working
    narrow = _memory(gpu="h200", settings={"optimizer_state_precision": "int8"})
    assert usual.max() / GIB == pytest.approx(15.0, rel=0.01)
    assert narrow.moments[0][1].working.max() == 0


DEEPSPEED: dict[str, Any] = {"framework": "deepspeed", "gpu": "a100-sxm-80gb"}
PARAMETERS = 8_030_261_248


def _sharded(zero: int = 3, **settings: Any) -> Any:
    return _memory(8, settings={"zero": zero, **settings}, **DEEPSPEED)


def test_the_step_of_zero_3_makes_gradients_of_a_sub_group() -> None:
    """A rank owns 1,003,782,656 parameters, and a sub-group has 10^9 (DeepSpeed's config.py).

    Of each number a gradient in 32 bits and Adam's temporary, 4 + 4 bytes, beside the buffer of
    those in 16. In stage 2 these are gone by then, and a flat copy of them before it was 2 + 4.
    """
    assert _sharded().moments[0][1].working.max() == pytest.approx(8e9)
    small = _sharded(sub_group_size=100_000_000)
    assert small.moments[0][1].working.max() == pytest.approx(8e8)
    whole = _sharded(zero=2, sub_group_size=100_000_000)
    assert whole.moments[0][1].working.max() == pytest.approx(6 * PARAMETERS / 8)


def test_the_step_of_zero_makes_gradients_for_an_optimizer_in_8_bits_too() -> None:
    sharded = _sharded(optimizer_state_precision="int8")
    assert sharded.moments[0][1].working.max() == pytest.approx(6e9)
    narrow = _sharded(zero=2, optimizer_state_precision="int8")
    assert narrow.moments[0][1].working.max() == pytest.approx(6 * PARAMETERS / 8)


def test_the_step_of_zero_2_holds_what_a_failure_of_it_tells() -> None:
    """hiyouga/LLaMA-Factory issue 1221: LLaMA-7B, ZeRO-2 on 8 V100, 28.28 GiB allocated in Adam.

    16-bit weights 12.55, three states of 3.14 each, gradients in 32 bits 3.14, and the first of two
    temporaries of that PyTorch's Adam, 3.14: the flat and the 16-bit gradients are as much.
    """
    memory = planner.estimate(
        model="llama-7b",
        gpu="v100-sxm-32gb",
        num_gpus=8,
        framework="deepspeed",
        sequence_length=512,
        global_batch_size=8,
        settings={"zero": 2, "recompute": "full", "precision": "fp16"},
    ).candidates.estimate.memory
    step = memory.moments[0][1]
    held = step.weights + step.gradients + step.optimizer_states + step.working
    assert held.max() / GIB == pytest.approx(28.28, rel=0.01)


def test_gradients_are_looked_through_for_overflows_in_32_bits() -> None:
    """11 bytes of the embedding's 128,256 x 4,096 gradients where a rank owns all of them.

    On 64 GPUs it owns 125,472,832 numbers, fewer than these, and 6 bytes of each are made later.
    """
    few = _memory(2, settings={"zero": 2}, **DEEPSPEED).moments[0][1].working.max()
    assert few == pytest.approx(6 * PARAMETERS / 2)
    many = _memory(64, settings={"zero": 2}, **DEEPSPEED).moments[0][1].working.max()
    assert many == pytest.approx(11 * PARAMETERS / 64)
    settings = {"zero": 2, "recompute": "full"}
    found = planner.estimate(
        model="qwen1.5-7b",
        num_gpus=8,
        sequence_length=512,
        global_batch_size=8,
        settings=settings,
        **DEEPSPEED,
    ).candidates.estimate.memory
    assert found.moments[0][1].working.max() == pytest.approx(11 * 151_936 * 4096)


def test_stage_3_looks_through_all_it_owns_in_fp16_alone() -> None:
    """Of a copy without signs and a flag, 3 bytes of 4.0 billion parameters on two ranks.

    What it makes for a sub-group of 10^9 is less, 8 bytes of each.
    """
    settings = {"zero": 3, "precision": "fp16"}
    working = _memory(2, settings=settings, **DEEPSPEED).moments[0][1].working.max()
    assert working == pytest.approx(3 * PARAMETERS / 2)
    in_bf16 = _memory(2, settings={"zero": 3}, **DEEPSPEED).moments[0][1].working.max()
    assert in_bf16 == pytest.approx(8e9)


def _gathered(**settings: Any) -> float:
    return float(_sharded(**settings).moments[0][0].gathered.max())


def test_zero_3_keeps_as_many_whole_parameters_as_may_live() -> None:
    gradients = 2 * 128_256 * 4096  # those of the embedding are more than two layers'
    most = _gathered()
    assert most == pytest.approx(2e9 + gradients)
    few = _gathered(stage3_max_live_parameters=1)
    assert few == pytest.approx(2 * 128_256 * 4096 + gradients)
    every = _gathered(stage3_max_live_parameters=10**12)
    assert every == pytest.approx(2 * PARAMETERS + gradients)


def test_buckets_are_as_large_as_told() -> None:
    usual = _sharded().fullest.communication_buffers.max()
    assert usual == pytest.approx(2 * GIB)
    told = _sharded(reduce_bucket_size=4096**2).fullest.communication_buffers.max()
    assert told == pytest.approx(usual * 4096**2 / 5e8)


def test_stages_1_and_2_reduce_one_bucket_while_the_next_fills() -> None:
    """stage_1_and_2.py of DeepSpeed: two buffers of 500 million numbers with overlap_comm."""
    for stage in (1, 2):
        held = _sharded(zero=stage).fullest.communication_buffers.max()
        assert held == pytest.approx(2 * GIB)
    assert _sharded(zero=0).fullest.communication_buffers.max() == pytest.approx(GIB)


def test_full_fine_tuning_of_8b_by_zero_3_with_default_buckets_overfills_24_gb() -> None:
    """As people found: eight cards of 24 GB run out in the step of ZeRO-3."""
    found = planner.estimate(
        model="llama-3.1-8b",
        gpu="rtx4090",
        num_gpus=8,
        framework="deepspeed",
        sequence_length=2048,
        global_batch_size=8,
        settings={"zero": 3, "recompute": "full"},
    )
    assert found.rejected_by == "out_of_memory"


def test_without_zero_init_each_gpu_holds_the_whole_model_first() -> None:
    """Two bytes of 8.03 billion parameters, before each of eight ranks keeps its share."""
    whole = _sharded(zero3_init=False)
    loading = whole.moments[0][-1]
    assert loading.weights.max() == pytest.approx(2 * PARAMETERS)
    assert loading.optimizer_states.max() == loading.activations.max() == 0
    assert len(_sharded().moments[0]) == len(whole.moments[0]) - 1


def test_a_model_that_is_sharded_as_it_loads_overfills_small_cards_without_zero_init() -> None:
    """hiyouga/LLaMA-Factory issue 3035: LoRA of 14.2 billion parameters on two RTX 4090, ZeRO-3.

    26.4 GiB of weights lie on a card of 24 before they are sharded.
    """
    asked: dict[str, Any] = {
        "model": "qwen1.5-14b-chat",
        "gpu": "rtx4090",
        "num_gpus": 2,
        "framework": "hf-trainer",
        "adapter": "lora",
        "lora_targets": "query_value",
        "sequence_length": 1024,
        "global_batch_size": 12,
    }
    layout = {"zero": 3, "recompute": "full", "micro_batch_size": 1}
    found = planner.estimate(**asked, settings=layout | {"zero3_init": False})
    assert found.rejected_by == "out_of_memory"
    assert planner.estimate(**asked, settings=layout).rejected_by != "out_of_memory"


@pytest.mark.parametrize("kernel", ["auto", "linear"])
def test_an_evaluation_holds_the_logits_of_its_sequences(kernel: str) -> None:
    """2 + 4 + 4 bytes each, with Liger too, whose loss has parts in training alone."""
    found = [
        planner.estimate(
            model="qwen2.5-7b",
            gpu="h200",
            num_gpus=1,
            framework="hf-trainer",
            adapter="lora",
            sequence_length=4096,
            global_batch_size=1,
            settings={"recompute": "full", "loss_kernel": kernel, "eval_batch_size": sequences},
        ).table()["peak_memory_gib"][0]
        for sequences in (8, 16)
    ]
    logits = 10 * 8 * 4096 * 152_064 / GIB
    assert logits < found[1] - found[0] < 1.25 * logits


def test_a_ring_of_pytorch_gathers_the_keys_and_values_of_all_ranks() -> None:
    """TRL pull request 6845, Qwen3-0.6B on 8 H100: 27.9 GB of 1 Mi tokens, 73.7 GB of 4 Mi.

    A ring that passes them on, or ranks that trade tokens for heads, take less.
    """
    layout = {"context_parallel": 8, "zero": 3, "offload": "activations", "loss_kernel": "linear"}

    def peak(tokens: int, **more: Any) -> float:
        asked = {"model": "qwen3-0.6b", "gpu": "h200-sxm-141gb", "framework": "hf-fsdp"}
        settings = {"micro_batch_size": 1, **layout, **more}
        question = {"sequence_length": tokens, "global_batch_size": 1, "settings": settings}
        return float(_memory(8, **{**asked, **question}).peak.max())

    each = (peak(2**22) - peak(2**20)) / 3
    assert each / 1e9 == pytest.approx((73.7 - 27.9) / 3, rel=0.03)
    assert peak(2**20, cp_comm_type="a2a") < peak(2**20) - 3e9
