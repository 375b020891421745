"""Fine-tuning: what is trained, what is frozen, what that saves."""

from typing import Any

import numpy as np
import pytest

import planner
from planner.base.units import GIB
from planner.errors import SearchSpaceError, SpecError
from planner.estimators.training.flops import (
    adapter_parameter_count,
    matmul_parameters,
    model_flops_per_token,
)
from planner.estimators.training.training_estimate import Estimate
from planner.formulas.memory import NF4_BYTES
from planner.question.request import Request
from planner.workloads.make_plan import make_plan


def tuned(**request: Any) -> Estimate:
    asked = {
        "model": "llama-7b",
        "num_gpus": 1,
        "framework": "hf-trainer",
        "sequence_length": 1024,
        "global_batch_size": 8,
        "settings": {"recompute": "full"},
        **request,
    }
    estimate: Estimate = planner.estimate(**asked).estimate
    return estimate


def total(estimate: Estimate, part: str) -> float:
    return float(np.ravel(getattr(estimate.memory.fullest, part))[0])


def seconds(estimate: Estimate) -> float:
    return float(np.ravel(estimate.step_time)[0])


def test_adapters_of_the_last_layers_are_counted_as_mlx_lm_does() -> None:
    """Its log of Mistral 7B with 16 layers, rank 8: "Trainable parameters: 0.024% (1.704M/..."."""
    of_16, of_all = (
        tuned(
            model="mistral-7b",
            adapter="lora",
            lora_rank=8,
            lora_targets="query_value",
            trained_layers=layers,
        )
        for layers in (16, 0)
    )
    assert adapter_parameter_count(of_16.inputs) == 1_703_936
    assert adapter_parameter_count(of_all.inputs) == 2 * 1_703_936


@pytest.mark.parametrize(("framework", "low", "high"), [("hf-bf16", 16, 20), ("hf-fsdp", 20, 24)])
def test_two_trained_layers_of_7b_take_what_llama_factory_says(framework, low, high) -> None:
    """README of LLaMA-Factory, February 2024: Freeze in 16 bits, 7B: 20 GB; Full: 160 GB."""
    setup = {"model": "llama-2-7b", "framework": framework, "global_batch_size": 1}
    part = tuned(**setup, trained_layers=2, training_objective="sft")
    assert low < float(np.ravel(part.peak_memory)[0]) / 1e9 < high
    whole = tuned(**setup, training_objective="sft")
    assert part.peak_memory < whole.peak_memory / 2


def test_no_gradient_reaches_layers_before_the_trained_ones() -> None:
    """Trained layers take 6 FLOPs per weight and token, others 2, frozen logits 4."""
    part, whole = (
        tuned(trained_layers=layers, settings={"recompute": "none"}, sequence_length=16)
        for layers in (8, 0)
    )
    model = whole.inputs.model
    logits = model.vocab_size * model.hidden_size
    in_layers = matmul_parameters(model) - logits
    flops = model_flops_per_token(model, 16, part.inputs)
    expected = 2 * in_layers * (1 + 2 / 4) + 4 * logits
    assert flops == pytest.approx(expected, rel=1e-3)  # attention scores of 16 tokens
    kept = (float(np.ravel(one.memory.fullest.activations)[0]) for one in (part, whole))
    assert next(kept) == pytest.approx(next(kept) / 4)
    assert seconds(part) < seconds(whole) / 1.6


def test_more_layers_than_there_are_is_refused() -> None:
    with pytest.raises(SpecError, match="from 0 \\(all\\) to 32, the layers of"):
        tuned(trained_layers=33)


@pytest.mark.parametrize(
    ("model", "framework", "rank", "targets", "count"),
    [
        pytest.param("llama-7b", "hf-trainer", 8, "query_value", 4_194_304, id="alpaca-lora"),
        pytest.param("llama-13b", "hf-trainer", 8, "query_value", 6_553_600, id="alpaca-lora-13b"),
        pytest.param("llama-7b", "hf-trainer", 64, "all_linear", 159_907_840, id="qlora-paper"),
        pytest.param("llama-2-70b", "nemo", 16, "attention", 44_564_480, id="mlperf-lora"),
        pytest.param("mistral-7b", "hf-trainer", 16, "attention", 13_631_488, id="gqa"),
    ],
)
def test_parameters_of_adapters(model, framework, rank, targets, count) -> None:
    asked = Request(
        model=model,
        num_gpus=8,
        framework=framework,
        adapter="lora",
        lora_rank=rank,
        lora_targets=targets,
    )
    assert adapter_parameter_count(make_plan(asked).problem.inputs) == count


def test_states_of_adapters_are_whole_and_weights_are_not() -> None:
    """Weights in 4 bits but for the ends; gradient 4 and Adam 8 bytes per trained parameter."""
    estimate = tuned(adapter="qlora", lora_rank=8, lora_targets="query_value")
    ends = 2 * 32000 * 4096 + 4096
    layers = 6_738_415_616 - ends
    weights = layers * NF4_BYTES + 2 * ends + 4 * 4_194_304
    assert total(estimate, "weights") == pytest.approx(weights, rel=1e-12)
    assert total(estimate, "gradients") == 4 * 4_194_304
    assert total(estimate, "optimizer_states") == 8 * 4_194_304


@pytest.mark.parametrize("gpu", ["rtx3090-24gb", "rtx4090-24gb", "a800-sxm-80gb"])
def test_each_step_of_saving_saves(gpu) -> None:
    """Full training needs more memory than LoRA, that more than QLoRA, which is slower."""
    full, lora, qlora = (tuned(gpu=gpu, adapter=kind) for kind in ("none", "lora", "qlora"))
    assert full.peak_memory > 1.5 * lora.peak_memory > 1.5 * 1.3 * qlora.peak_memory
    assert lora.step_time < full.step_time
    assert lora.step_time < qlora.step_time < 2 * full.step_time
    assert qlora.rejected_by == 0


def test_65_billion_parameters_on_one_gpu_of_48_gb() -> None:
    """arXiv:2305.14314, abstract: QLoRA finetunes a 65B model on a single 48 GB GPU."""
    asked = {"model": "llama-65b", "gpu": "l40s-48gb", "sequence_length": 512}
    estimate = tuned(**asked, adapter="qlora", lora_rank=16, lora_targets="all_linear")
    assert estimate.peak_memory < 48 * GIB
    assert tuned(**asked, adapter="lora").peak_memory > 120 * GIB


def test_utilization_counts_four_flops_per_frozen_parameter() -> None:
    estimate = tuned(adapter="lora", lora_rank=8, lora_targets="query_value")
    setting = estimate.inputs
    attention = 12 * 32 * 4096 * 1024
    per_token = 4 * matmul_parameters(setting.model) + attention + 6 * 4_194_304
    expected = estimate.tokens_per_second * per_token / setting.machine.peak(np.int8(0))
    assert estimate.model_flops_utilization == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("zero_stage", [0, 1, 2, 3])
@pytest.mark.parametrize("kind", ["lora", "qlora"])
def test_parts_add_up(kind, zero_stage) -> None:
    settings = {"recompute": "full", "zero_stage": zero_stage}
    estimate = tuned(adapter=kind, num_gpus=8, settings=settings)
    assert sum(estimate.time.parts().values()) == pytest.approx(estimate.step_time, rel=1e-12)
    assert estimate.rejected_by == 0


def test_larger_ranks_take_more() -> None:
    estimates = [tuned(adapter="lora", lora_rank=rank) for rank in (1, 8, 64, 512)]
    times = [float(np.ravel(e.step_time)[0]) for e in estimates]
    sizes = [float(np.ravel(e.peak_memory)[0]) for e in estimates]
    assert times == sorted(times)
    assert sizes == sorted(sizes)


def test_gathers_of_quantized_weights_are_a_quarter() -> None:
    """ZeRO-3 on slow links: what shows of the gathers follows the bytes of the weights."""
    settings = {"recompute": "full", "zero_stage": 3}
    asked = {"num_gpus": 8, "gpu": "rtx4090-24gb", "settings": settings}
    lora, qlora = (tuned(adapter=kind, **asked).time.parts() for kind in ("lora", "qlora"))
    assert qlora["weight_gather"] < 0.5 * lora["weight_gather"]


def test_the_ideal_has_no_launches_and_one_pass() -> None:
    real = tuned(adapter="qlora")
    ideal = tuned(adapter="qlora", ideal=True)
    assert ideal.step_time < 0.7 * real.step_time


def test_saved_modules_are_trained_in_16_bits_beside_their_frozen_copies() -> None:
    """Weight and gradient 2, Adam 4, its temporary 2 bytes of embedding and logits."""
    asked = {"adapter": "lora", "lora_rank": 8, "lora_targets": "query_value"}
    plain, saved = tuned(**asked), tuned(**asked, modules_to_save="embeddings")
    ends = 2 * 32000 * 4096
    for part, width in (("weights", 2), ("gradients", 2), ("optimizer_states", 4)):
        assert total(saved, part) - total(plain, part) == pytest.approx(width * ends, rel=1e-12)
    assert saved.step_time > plain.step_time
    assert adapter_parameter_count(saved.inputs) == 4_194_304 + ends


def test_tied_ends_are_saved_once() -> None:
    asked = {"model": "gemma-2b", "adapter": "lora"}
    plain, saved = tuned(**asked), tuned(**asked, modules_to_save="embeddings")
    matrix = 256_000 * 2048
    assert total(saved, "gradients") - total(plain, "gradients") == pytest.approx(2 * matrix)


def test_scales_in_32_bits_take_three_eighths_of_a_bit_more() -> None:
    asked = {"adapter": "qlora", "lora_rank": 8, "lora_targets": "query_value"}
    double, single = tuned(**asked), tuned(**asked, double_quantization=False)
    layers = 6_738_415_616 - 2 * 32000 * 4096 - 4096
    more = layers * (4.5 / 8 - NF4_BYTES)
    assert total(single, "weights") - total(double, "weights") == pytest.approx(more, rel=1e-9)
    assert single.step_time > double.step_time


@pytest.mark.parametrize(
    ("kind", "count"),
    [
        pytest.param("prompt", 20 * 4096, id="an embedding per token"),
        pytest.param("prefix", 20 * 32 * 2 * 4096, id="a key and a value per layer and token"),
    ],
)
def test_virtual_tokens_are_what_is_trained(kind, count) -> None:
    estimate = tuned(adapter=kind, virtual_tokens=20)
    assert adapter_parameter_count(estimate.inputs) == count
    assert total(estimate, "gradients") == pytest.approx(4 * count)


def test_prompts_are_computed_and_not_counted() -> None:
    """A prompt as long as the sequences takes about twice the time, and none of the tokens."""
    short, long = (tuned(adapter="prompt", virtual_tokens=count) for count in (1, 1024))
    assert 1.8 < seconds(long) / seconds(short) < 2.5
    per_step = np.ravel(long.tokens_per_second * long.step_time)[0]
    assert per_step == pytest.approx(8 * 1024)


def test_prefixes_are_read_by_every_token_and_computed_by_none() -> None:
    none, prefix = (tuned(adapter="prefix", virtual_tokens=count) for count in (1, 4096))
    assert 1.05 < seconds(prefix) / seconds(none) < 1.6


def test_layers_that_are_spread_take_turns() -> None:
    """Two GPUs hold half of the layers each, and are as fast as one."""
    asked = {"adapter": "lora", "sequence_length": 512}
    one = tuned(**asked)
    settings = {"recompute": "full", "pipeline_parallel": 2, "layer_split": True}
    two = tuned(**asked, num_gpus=2, settings=settings)
    assert two.rejected_by == 0
    assert seconds(two) / seconds(one) == pytest.approx(1, abs=0.05)
    layers = 32 * (4 * 4096**2 + 3 * 4096 * 11008) * 2
    assert total(one, "weights") - total(two, "weights") == pytest.approx(layers / 2, rel=0.06)
    assert total(two, "activations") == pytest.approx(total(one, "activations") / 2)


SAMPLES = {"adapter": "lora", "mean_sample_length": 300, "sample_length_deviation": 240}
FOUR = {"recompute": "full", "micro_batch_size": 4}


def test_padding_is_computed_and_not_trained() -> None:
    """Padded to the sequence, a step is as long as a packed one, and trains the samples alone."""
    packed = tuned(adapter="lora", settings=FOUR)
    padded = tuned(**SAMPLES, padding="full", settings=FOUR)
    assert seconds(padded) == pytest.approx(seconds(packed), rel=1e-12)
    assert padded.peak_memory == pytest.approx(packed.peak_memory, rel=1e-12)
    ratio = np.ravel(padded.tokens_per_second / packed.tokens_per_second)[0]
    assert ratio == pytest.approx(290 / 1024, rel=0.02)  # of 300 tokens, 1,024 at most


def test_less_padding_is_faster_and_none_takes_less_memory() -> None:
    kinds = ("full", "longest", "none")
    full, longest, none = (tuned(**SAMPLES, padding=kind, settings=FOUR) for kind in kinds)
    assert seconds(full) > seconds(longest) > seconds(none)
    assert full.peak_memory == pytest.approx(longest.peak_memory)
    assert none.peak_memory < 0.95 * longest.peak_memory
    assert none.tokens_per_second > longest.tokens_per_second > full.tokens_per_second


def test_a_sample_alone_is_never_padded() -> None:
    settings = {"recompute": "full", "micro_batch_size": 1}
    longest, equal = (
        tuned(**{**SAMPLES, "sample_length_deviation": 1}, padding=kind, settings=settings)
        for kind in ("longest", "none")
    )
    assert seconds(longest) == pytest.approx(seconds(equal), rel=1e-3)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"padding": "longest"}, "needs mean_sample_length"),
        ({"mean_sample_length": 100}, "Samples that are packed fill their sequences"),
        ({"padding": "full", "mean_sample_length": 4096}, "from 1 to those of a sequence, 1,024"),
        ({"modules_to_save": "embeddings"}, "modules_to_save needs an adapter"),
        ({"adapter": "lora", "virtual_tokens": 5}, "virtual_tokens needs an adapter: prompt"),
        ({"adapter": "lora", "double_quantization": False}, "needs an adapter: qlora"),
        ({"adapter": "prompt", "lora_rank": 8}, "lora_rank needs an adapter: lora or qlora"),
        ({"adapter": "prompt", "framework": "nemo"}, "trains no virtual tokens"),
    ],
)
def test_what_says_nothing_is_refused(asked, said) -> None:
    with pytest.raises(SearchSpaceError, match=said):
        tuned(**asked)


def test_who_loads_the_whole_model_holds_it_beside_its_shard() -> None:
    """LitGPT's table: 7B on two GPUs takes a model and a half, whatever the micro-batch."""
    asked = {"framework": "litgpt", "adapter": "lora", "num_gpus": 2, "global_batch_size": 8}
    peaks = []
    for micro_batch_size in (1, 2):
        settings = {"recompute": "full", "zero_stage": 3, "micro_batch_size": micro_batch_size}
        estimate = tuned(**asked, settings=settings)
        assert total(estimate, "weights") > 1.5 * 2 * 6_738_415_616
        peaks.append(float(np.ravel(estimate.peak_memory)[0]))
    assert peaks[0] == peaks[1]
    alone = tuned(**{**asked, "num_gpus": 1, "settings": {"recompute": "full"}})
    assert total(alone, "weights") < 1.01 * 2 * 6_738_415_616


def test_hooks_of_zero_3_around_each_matrix_decide_short_steps() -> None:
    """hiyouga/LlamaFactory issue 5014: LoRA of Llama 3 8B, ZeRO-3, 8 A800: 4 s of 2 x 1,024."""
    asked: dict[str, Any] = {
        "model": "llama-3-8b", "gpu": "a800", "num_gpus": 8, "adapter": "lora",
        "lora_targets": "all_linear", "global_batch_size": 16,
    }  # fmt: skip
    layout = {"recompute": "full", "micro_batch_size": 1}
    replicas, sharded = (
        seconds(tuned(**asked, settings={**layout, "zero_stage": stage})) for stage in (0, 3)
    )
    assert sharded > 2.5 * replicas
    assert sharded == pytest.approx(4, rel=0.35)
    # Longer sequences hide them.
    long = (
        seconds(tuned(**asked, sequence_length=16_384, settings={**layout, "zero_stage": stage}))
        for stage in (0, 3)
    )
    assert next(long) == pytest.approx(next(long), rel=0.1)
