"""The kernels of attention: their rates on each generation of GPUs, and what they change."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from planner import Request
from planner.base.enums import (
    AttentionKernels,
)
from planner.base.software_enums import (
    AttentionKernel,
)
from planner.configurations.configuration_tables import TrainingConfigurations
from planner.decide.assumptions import sensitive_assumptions
from planner.estimators.ideal_hardware import ideal_hardware
from planner.estimators.kernel_work import rate_of_class, rates
from planner.estimators.layer_operators import layer_operators
from planner.estimators.training.micro_batch_share import MicroBatchShare
from planner.layers.model import layer_of
from planner.specs.catalogue import Catalogue
from planner.workloads.make_plan import evaluate, make_plan, make_single_plan


def _row(**asked: Any) -> dict[str, Any]:
    settings = {"recompute": "full", "zero_stage": 3, **asked.pop("settings", {})}
    request = {"model": "llama-3.1-8b", "gpu": "h100-sxm", "framework": "fsdp", "num_gpus": 8}
    request |= {"sequence_length": 131_072, "global_batch_size": 8, **asked}
    found = evaluate(make_single_plan(Request(**request, settings=settings)))
    return {name: np.ravel(values)[0] for name, values in found.table().items()}


def test_flash_attention_2_on_h100_is_as_published_beside_3() -> None:
    # arXiv:2407.08608, figures 5 and 6, heads of 128, 8k causal: 333 and 602, 318 and 559 TFLOP/s.
    e = Catalogue().load_gpu("h100-sxm").spec.efficiency
    codes = np.array([AttentionKernel.FA2, AttentionKernel.FA3, AttentionKernel.AUTO])
    forward, backward = rates(e, codes, AttentionKernels.FLASH_ATTENTION_2)
    assert forward == pytest.approx([333 / 602, 1, 333 / 602], abs=0.005)
    assert backward == pytest.approx([318 / 559, 1, 318 / 559], abs=0.005)


def test_the_backward_pass_has_a_rate_of_its_own() -> None:
    """Five products for two, at 0.8 of the forward pass' rate, and 0.57 of FA3's for 0.55."""
    asked = {"model": "llama-7b", "gpu": "h100-sxm", "num_gpus": 8, "framework": "fsdp"}
    setting = make_plan(Request(**asked, sequence_length=2048)).problem.inputs
    one = {"num_gpus": 8, "global_batch_size": 8, "zero_stage": 3}
    share = MicroBatchShare.of(setting, TrainingConfigurations.of(**one, attention_kernel=[3, 4]))
    layer = layer_of(setting.model, setting.model.layer_groups[0])
    (core,) = (op for op in layer_operators(share, layer) if op.name == "attention_core")
    ratio = core.backward / core.forward
    assert ratio == pytest.approx([2.5 / 0.8 * 0.55 / 0.57, 2.5 / 0.8])


def test_what_pytorch_chooses_is_cudnn_on_hopper_and_flash_attention_2_on_ampere() -> None:
    for gpu, same in (("h100-sxm", AttentionKernel.CUDNN), ("a100-sxm", AttentionKernel.FA2)):
        e = Catalogue().load_gpu(gpu).spec.efficiency
        forward, _ = rates(e, np.array([AttentionKernel.SDPA, same]), AttentionKernels.PORTABLE)
        assert forward[0] == forward[1] == 1.0


def test_a_gpu_without_a_row_takes_kernels_as_they_are_written() -> None:
    e = Catalogue().load_gpu("mi300x").spec.efficiency
    forward, backward = rates(e, np.arange(len(AttentionKernel)), AttentionKernels.NATIVE)
    portable = e.portable_attention_fraction
    assert forward[AttentionKernel.FA2] == backward[AttentionKernel.TRITON] == portable
    assert forward[AttentionKernel.AUTO] == forward[AttentionKernel.CUDNN] == 1.0
    assert rate_of_class(e, AttentionKernels.FLASH_ATTENTION_2) == portable


def test_the_roofline_knows_no_slower_kernels() -> None:
    plan = make_plan(Request(model="llama-7b", gpu="h100-sxm", num_gpus=8, framework="fsdp"))
    machine = plan.problem.inputs.machine
    gpu, _ = ideal_hardware(machine.gpu, machine.cluster)
    forward, _ = rates(gpu.efficiency, np.array([3, 7]), AttentionKernels.PORTABLE)
    assert np.all(forward == 1.0)


def test_flash_attention_3_makes_a_long_context_on_hopper_much_faster() -> None:
    """Attention alone by 1.8; where it is most of the step, nearly that."""
    usual, named, better = (
        _row(settings={"attention_kernel": kernel})["step_time_s"]
        for kernel in ("auto", "fa2", "fa3")
    )
    assert usual == named
    assert 1.5 < usual / better < 1 / 0.55


def test_eager_is_what_unfused_attention_is() -> None:
    def row(**settings: Any) -> dict[str, Any]:
        return _row(sequence_length=1024, settings={"recompute": "none", **settings})

    eager, unfused, fused = row(attention_kernel="eager"), row(flash_attention=False), row()
    for name in ("step_time_s", "peak_memory_gib"):
        assert eager[name] == unfused[name] > fused[name]


def test_a_plan_tells_the_kernels_that_nobody_named_where_others_are_faster() -> None:
    asked = {"model": "llama-3.1-8b", "num_gpus": 8, "framework": "fsdp", "gpu": "h100-sxm"}
    told = make_plan(Request(**asked)).defaults
    assert told["attention_kernel"] == "fa2 (FSDP's default; fa3 is faster on this GPU)"
    named = Request(**asked, settings={"attention_kernel": "fa2"})
    for other in (named, Request(**{**asked, "gpu": "a100-sxm"})):
        assert "attention_kernel" not in make_plan(other).defaults


def _core(
    tokens: int, kernel: AttentionKernel, gpu: str = "a100-sxm", model: str = "llama-7b"
) -> Any:
    asked = {"model": model, "gpu": gpu, "num_gpus": 8, "framework": "fsdp"}
    setting = make_plan(Request(**asked, sequence_length=tokens)).problem.inputs
    one = {"num_gpus": 8, "global_batch_size": 8, "zero_stage": 3, "attention_kernel": [kernel]}
    share = MicroBatchShare.of(setting, TrainingConfigurations.of(**one))
    layer = layer_of(setting.model, setting.model.layer_groups[0])
    (core,) = (op for op in layer_operators(share, layer) if op.name == "attention_core")
    return core


@pytest.mark.parametrize(
    ("gpu", "rate"), [("a100-sxm", 62), ("h100-sxm", 112), ("rtx-pro-6000", 40)]
)
def test_a_mask_of_padding_hides_the_diagonal_from_the_kernel(gpu: str, rate: float) -> None:
    """All pairs of tokens are scored, the mask is read, and sums of wide heads leave registers.

    universal-llm-trainer feeds random tokens under the masks of padded samples: of its 9.7, 4.7
    and 10.9 s for a micro-batch of Llama 3.1 8B these TFLOP/s are left for two passes forward and
    one backward.
    """
    tokens = 8192
    masked, fused = (
        _core(tokens, one, gpu) for one in (AttentionKernel.MASKED, AttentionKernel.FA2)
    )
    assert masked.flops == pytest.approx(2 * tokens / (tokens + 1) * fused.flops)
    passes = 4.5 * masked.flops / (2 * masked.forward + masked.backward) / 1e12
    assert passes == pytest.approx(rate, rel=0.25)


def test_the_kernel_of_a_mask_knows_heads_of_64_and_128() -> None:
    """Phi-3 mini's heads of 96 take as long as those of Llama 3.1 8B, of which there are as many.

    universal-llm-trainer measured 8.0 and 10.9 s on RTX PRO 6000, of which 6.3 and 7.8 are left.
    """
    wide, narrow = (
        _core(8192, AttentionKernel.MASKED, "rtx-pro-6000", model)
        for model in ("llama-7b", "phi-3-mini")
    )
    assert narrow.forward == pytest.approx(wide.forward, rel=0.01)
    assert narrow.flops == pytest.approx(0.75 * wide.flops)


def test_the_mask_has_16_bits_for_each_pair_of_tokens() -> None:
    asked = {"framework": "hf-trainer", "num_gpus": 1, "global_batch_size": 2, "adapter": "lora"}
    settings = {"zero_stage": 0, "micro_batch_size": 2, "recompute": "full"}
    asked |= {"sequence_length": 8192, "gpu": "h200"}
    peaks = [
        _row(**asked, settings={**settings, "attention_kernel": kernel})["peak_memory_gib"]
        for kernel in ("fa2", "masked")
    ]
    added = 2 * 2 * 8192**2 / 2**30
    assert added <= peaks[1] - peaks[0] <= 1.2 * added  # fragmentation


def test_padding_makes_a_mask_for_what_pytorch_chooses() -> None:
    """To the longest sample of a micro-batch it makes none in a micro-batch of one."""
    asked = {"framework": "hf-trainer", "num_gpus": 1, "global_batch_size": 8, "adapter": "lora"}
    asked |= {"sequence_length": 8192, "mean_sample_length": 4000}

    def seconds(padding: str, kernel: str, batch: int) -> float:
        settings = {"zero_stage": 0, "micro_batch_size": batch, "attention_kernel": kernel}
        return float(_row(**asked, padding=padding, settings=settings)["step_time_s"])

    for padding, batch, masks in (("longest", 1, False), ("longest", 2, True), ("full", 1, True)):
        chosen, masked = (seconds(padding, kernel, batch) for kernel in ("sdpa", "masked"))
        assert (chosen == masked) is masks, (padding, batch)
        assert seconds(padding, "fa3", batch) < masked


def test_what_padding_costs_is_told_where_it_is_not_known() -> None:
    asked = {"model": "llama-3.1-8b", "gpu": "h100-sxm", "num_gpus": 1, "adapter": "lora"}
    asked |= {"sequence_length": 8192, "framework": "hf-trainer", "global_batch_size": 8}
    plan = make_single_plan(Request(**asked, settings={"recompute": "full"}))
    (fact,) = (
        fact for fact in sensitive_assumptions(plan, evaluate(plan).candidates)
        if fact.name == "attention kernel"
    )  # fmt: skip
    low, high = fact.moved["step_time_s"]
    assert high > 1.5 * low


def test_an_operator_under_a_mask_has_all_pairs(planner) -> None:
    asked = ("operators", "attention", "--gpu", "a100-sxm", "--sequence-length", "8192",
             "--heads", "32", "--kv-heads", "8", "--json", "-", "--quiet")  # fmt: skip
    masked, fused = (
        json.loads(planner(*asked, "--attention-kernel", kernel).out)["rows"][0]
        for kernel in ("masked", "fa2")
    )
    pairs = {name: row["time_s"] * row["tflops"] for name, row in (("m", masked), ("f", fused))}
    assert pairs["m"] / pairs["f"] == pytest.approx(2, rel=0.01)
