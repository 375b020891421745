"""Adapters of routed experts: who has them by default, how many weights, what they cost."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import planner
from planner.base.units import GIB
from planner.errors import LaunchError, SearchSpaceError
from planner.estimators.training.flops import adapter_parameter_count, matmul_parameters
from planner.estimators.training.training_estimate import Estimate
from planner.launch.read.read_launch import read_launch
from planner.launch.write.write_launch import make_launch
from planner.question.request import Request

ATTENTION = 48 * 8 * (2048 + 4096 + 2 * (2048 + 512) + 4096 + 2048)
"""Rank 8 in Qwen3-30B-A3B: queries, keys and values, output of 48 layers."""
EXPERT = 8 * 3 * (2048 + 768)
"""Gate, up and down of one of its experts."""
NAMES = "q_proj,k_proj,v_proj,o_proj,gate_proj,up_proj,down_proj"


def tuned(framework: str = "hf-trainer", **request: Any) -> Estimate:
    asked = {
        "model": "qwen3-30b-a3b",
        "gpu": "h200",
        "num_gpus": 8,
        "framework": framework,
        "adapter": "lora",
        "lora_rank": 8,
        "lora_targets": "all_linear",
        "sequence_length": 2048,
        "global_batch_size": 8,
        **request,
    }
    settings = {"recompute": "full", "zero_stage": 0, **request.get("settings", {})}
    estimate: Estimate = planner.estimate(**{**asked, "settings": settings}).estimate
    return estimate


def part(estimate: Estimate, name: str) -> float:
    return float(np.ravel(getattr(estimate.memory.fullest, name))[0])


@pytest.mark.parametrize(
    ("request_", "count"),
    [
        pytest.param({}, ATTENTION, id="all-linear-of-fused-experts"),
        pytest.param({"lora_targets": NAMES}, ATTENTION + 48 * 128 * EXPERT, id="by-name"),
        pytest.param({"expert_adapters": "each"}, ATTENTION + 48 * 128 * EXPERT, id="each"),
        pytest.param({"expert_adapters": "shared"}, ATTENTION + 48 * EXPERT, id="shared"),
    ],
)
def test_parameters_of_qwen3_30b_a3b(request_, count) -> None:
    """6.685 million on attention, 415.2 million more on 128 experts of 48 layers."""
    assert adapter_parameter_count(tuned(**request_).inputs) == count


def test_unsloth_adapts_experts_by_default() -> None:
    """Qwen3-30B-A3B in 4 bits does not load on 24 GB (unslothai/unsloth issue 2504)."""
    asked = {"adapter": "qlora", "gpu": "rtx4090", "num_gpus": 1, "lora_targets": None}
    estimate = tuned("unsloth", **asked, settings={"micro_batch_size": 2})
    assert adapter_parameter_count(estimate.inputs) == ATTENTION + 48 * 128 * EXPERT
    assert part(estimate, "total") > 24 * GIB


def test_megatron_bridge_shares_one_adapter_on_a_rank() -> None:
    """Joined gate and up: 8 (2,048 + 1,536) and 8 (768 + 2,048) a layer on every rank."""
    with_experts = tuned("megatron-bridge", settings={"expert_parallel": 4})
    without = tuned("megatron-bridge", expert_adapters="none", settings={"expert_parallel": 4})
    more = 48 * 8 * (2048 + 2 * 768 + 768 + 2048)
    states = with_experts.inputs.framework.states
    weights = part(with_experts, "weights") - part(without, "weights")
    assert weights == pytest.approx(states.weight * more)


def test_states_of_each_expert_are_on_its_rank() -> None:
    """A quarter of 128 experts on each of 4 ranks, which no data-parallel rank of theirs shards."""
    asked = {"settings": {"expert_parallel": 4}}
    each = tuned("megatron-bridge", expert_adapters="each", **asked)
    none = tuned("megatron-bridge", expert_adapters="none", **asked)
    more = 48 * 32 * 8 * (2048 + 2 * 768 + 768 + 2048)
    for name in ("weights", "gradients", "optimizer_states"):
        width = getattr(each.inputs.framework.states, name.split("_")[0].removesuffix("s"))
        assert part(each, name) - part(none, name) == pytest.approx(width * more)
    assert each.step_time > none.step_time


def test_a_token_meets_the_adapters_of_its_experts() -> None:
    """6 FLOPs for those of 8 experts of a layer, not of 128."""
    each = tuned(expert_adapters="each")
    attention = 12 * 48 * 32 * 128 * 2048
    trained = ATTENTION + 48 * 8 * EXPERT
    per_token = 4 * matmul_parameters(each.inputs.model) + attention + 6 * trained
    peak = 8 * each.inputs.machine.peak(np.int8(0))
    expected = each.tokens_per_second * per_token / peak
    assert each.model_flops_utilization == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    "request_",
    [{"model": "llama-7b"}, {"lora_targets": "attention"}, {"adapter": "none", "lora_rank": None}],
)
def test_without_experts_to_adapt_it_is_refused(request_) -> None:
    targets = {"lora_targets": None} if "adapter" in request_ else {}
    with pytest.raises(SearchSpaceError, match="expert_adapters needs"):
        tuned("deepspeed", expert_adapters="each", **{**targets, **request_})


_COMMAND = (
    "torchrun --nproc-per-node 8 sft.py --per_device_train_batch_size 1 --use_peft --lora_r 8"
)


@pytest.mark.parametrize(
    ("model", "modules", "told"),
    [
        ("Qwen/Qwen3-30B-A3B", NAMES.replace(",", " "), "each"),
        ("Qwen/Qwen3-30B-A3B", "all-linear", None),
        ("openai/gpt-oss-20b", NAMES.replace(",", " "), "none"),
        ("meta-llama/Llama-3.1-8B", NAMES.replace(",", " "), None),
        ("meta-llama/Llama-4-Scout-17B-16E", "q_proj shared_expert.gate_proj", "none"),
    ],
)
def test_files_name_matrices_of_experts(tmp_path: Path, model, modules, told) -> None:
    path = tmp_path / "run.sh"
    path.write_text(f"{_COMMAND} --model_name_or_path {model} --lora_target_modules {modules}\n")
    found = read_launch(path).values
    assert found.get("expert_adapters") == told
    assert found["lora_targets"] == "all_linear"


def _plan(framework: str, **request: Any) -> Request:
    return Request(
        model="Qwen/Qwen3-30B-A3B",
        gpu="h200",
        num_gpus=8,
        framework=framework,
        adapter="lora",
        sequence_length=2048,
        global_batch_size=8,
        settings={"recompute": "full", "zero_stage": 0},
        **request,
    )


def test_written_files_name_the_matrices_of_experts() -> None:
    by_name = make_launch(_plan("hf-trainer", lora_targets=NAMES), "transformers", "script")
    assert any("gate_proj" in file.text for file in by_name.files[:-1])
    usual = make_launch(_plan("hf-trainer", lora_targets="all_linear"), "transformers", "script")
    assert not any("gate_proj" in file.text for file in usual.files[:-1])
    each = _plan("megatron-bridge", lora_targets="all_linear", expert_adapters="each")
    with pytest.raises(LaunchError, match="expert_adapters each is not written"):
        make_launch(each, "megatron-bridge", "script")
