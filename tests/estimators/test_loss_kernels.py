"""The loss: how many copies of the logits each way of computing it keeps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from planner import Request
from planner.workloads.make_plan import evaluate, make_plan, make_single_plan

# Qwen2.5-7B: 152,064 entries of the vocabulary, at 8,192 tokens 1.246 billion logits.
LOGITS = 152_064 * 8_192
GIB = 2**30


def _row(**settings: Any) -> dict[str, Any]:
    framework = settings.pop("framework", "hf-fsdp")
    request = Request(
        model="qwen2.5-7b",
        gpu="h100-sxm",
        num_gpus=8,
        framework=framework,
        sequence_length=8_192,
        global_batch_size=8,
        settings={"recompute": "full", "zero_stage": 3, **settings},
    )
    found = evaluate(make_single_plan(request))
    return {name: np.ravel(values)[0] for name, values in found.table().items()}


@pytest.mark.parametrize(
    ("loss", "chunks", "each"),
    # 4 + 4 + 4; 2 + 2; Unsloth's 4 + 2 + 2; 4 + 10 / 8 and / 2; 14 / 2.
    [("eager", 0, 12), ("auto", 0, 12), ("compiled", 0, 4), ("fused", 0, 8), ("chunked", 0, 5.25),
     ("chunked", 2, 9), ("linear", 2, 7)],
)  # fmt: skip
def test_copies_of_the_logits_are_those_of_the_loss(loss: str, chunks: int, each: float) -> None:
    found = _row(loss_kernel=loss, loss_chunks=chunks)
    assert found["memory_working_gib"] == pytest.approx(each * LOGITS / GIB, rel=1e-6)


def test_a_loss_fused_with_its_matrix_leaves_the_layers_to_decide_the_peak() -> None:
    assert (
        _row(loss_kernel="linear")["peak_memory_gib"]
        < _row(loss_kernel="compiled")["peak_memory_gib"]
    )


def test_copies_are_read_and_written_more_often_the_more_there_are() -> None:
    times = [_row(loss_kernel=loss)["step_time_s"] for loss in ("linear", "compiled", "eager")]
    assert times == sorted(times)
    assert times[0] < times[-1]


def test_a_framework_that_keeps_less_itself_keeps_no_more() -> None:
    """Megatron-Bridge's own is Transformer Engine's: 4 bytes; LLMQ takes parts: 0.5."""
    for framework in ("fsdp-bf16", "llmq"):
        own = make_plan(Request(model="llama-7b", num_gpus=8, framework=framework)).problem.inputs
        assert own.framework.memory.per_logit <= 4
        settings = {"framework": framework, "zero_stage": own.framework.default_zero_stage}
        same = [_row(**settings, loss_kernel=loss)["peak_memory_gib"] for loss in ("auto", "fused")]
        assert same[0] == same[1]


def test_chunks_of_eager_logits_are_as_torchtitan_measured() -> None:
    """PR 996: 8B at 8,192 tokens, 49.58 GiB before and 42.26 after, of 1.05 billion logits."""
    saved = (49.58 - 42.26) * GIB / (128_256 * 8_192)
    assert pytest.approx(saved, rel=0.2) == 14 - (4 + 10 / 8)


def test_a_plan_tells_an_eager_loss_whose_logits_fill_the_gpu() -> None:
    asked: dict[str, Any] = {"num_gpus": 8, "gpu": "h100-sxm", "framework": "hf-fsdp"}
    told = make_plan(Request(model="qwen2.5-7b", sequence_length=8_192, **asked)).defaults
    assert told["loss_kernel"].startswith("12 bytes per logit (HF Trainer FSDP's default; linear")
    # 32,000 x 1,024 x 12 bytes are half a percent of the GPU.
    assert (
        "loss_kernel"
        not in make_plan(Request(model="llama-7b", sequence_length=1_024, **asked)).defaults
    )


@pytest.mark.parametrize(("gpu", "fp32_logits"), [("t4", None), ("h100-sxm", 4 * GIB)])
def test_the_loss_of_unsloth_takes_what_half_of_the_free_memory_holds(
    gpu: str, fp32_logits: float | None
) -> None:
    """unsloth_zoo/fused_losses: at most 4 GiB in 32 bits, and as many logits in 16 beside them."""
    request = Request(
        model="llama-3.1-8b",
        gpu=gpu,
        num_gpus=1,
        framework="unsloth",
        adapter="qlora",
        sequence_length=32_768,
        global_batch_size=2,
        settings={"recompute": "full", "offload": "activations", "precision": "fp16"},
    )
    setting = make_plan(request).problem.inputs
    row = evaluate(make_single_plan(request)).table()
    size = {
        name: float(np.ravel(values)[0]) * GIB for name, values in row.items() if "_gib" in name
    }
    loss = size["memory_working_gib"]
    padding = 1 + setting.framework.memory.fragmentation
    free = setting.machine.gpu.allocatable_memory - (size["peak_memory_gib"] - padding * loss)
    assert loss == pytest.approx(6 / 4 * (fp32_logits or free / 2), rel=1e-6)


def test_kernels_of_unsloth_keep_no_input_of_the_last_matrix() -> None:
    """unsloth/kernels/fast_lora.py: LoRA_MLP keeps its input and both halves of the gate."""
    kept = {}
    for framework in ("unsloth", "hf-trainer-triton"):
        request = Request(
            model="llama-2-7b",
            gpu="h100-sxm",
            num_gpus=1,
            framework=framework,
            adapter="lora",
            lora_targets="all_linear",
            sequence_length=1_024,
            global_batch_size=1,
            settings={"recompute": "none"},
        )
        profile = make_plan(request).problem.inputs.framework.memory
        row = evaluate(make_single_plan(request)).table()
        size = float(np.ravel(row["memory_activations_gib"])[0]) * GIB
        kept[framework] = size / profile.kept_activations
    assert kept["hf-trainer-triton"] - kept["unsloth"] == pytest.approx(32 * 1_024 * 2 * 11_008)


@pytest.mark.parametrize(("tokens", "published"), [(65_536, 80.0), (102_400, None)])
def test_unsloth_until_2025_has_all_logits_at_once(tokens: int, published: float | None) -> None:
    """hiyouga/LlamaFactory issue 3638: an 8B in 4 bit fills an A100 at 65,536; 102,400 run out."""
    request = Request(
        model="llama-3-8b", gpu="a100", num_gpus=1, framework="unsloth", adapter="qlora",
        lora_targets="query_value", sequence_length=tokens, global_batch_size=4,
        settings={"loss_kernel": "fused"},
    )  # fmt: skip
    peak, in_chunks = (
        evaluate(make_single_plan(each)).table()["peak_memory_gib"].item()
        for each in (request, replace(request, settings={}))
    )
    assert in_chunks < 30
    if published is None:
        assert peak > 100
    else:
        assert peak == pytest.approx(published, rel=0.1)
    assert "fused before" in make_plan(replace(request, settings={})).defaults["loss_kernel"]
