"""A launch file that does not fit: what its user can change is named, and no more is claimed."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

LLAMA_FACTORY = """\
model_name_or_path: {model}
stage: sft
do_train: true
finetuning_type: {tuning}
deepspeed: ds.json
dataset: d
template: qwen
cutoff_len: {length}
output_dir: o
per_device_train_batch_size: 1
gradient_accumulation_steps: {steps}
{precision}: true
"""
ZERO_3 = {
    "train_batch_size": "auto",
    "train_micro_batch_size_per_gpu": "auto",
    "gradient_accumulation_steps": "auto",
    "bf16": {"enabled": "auto"},
    "fp16": {"enabled": "auto"},
    "zero_optimization": {
        "stage": 3,
        "reduce_bucket_size": "auto",
        "stage3_max_live_parameters": 1e9,
    },
}


@pytest.fixture
def asked(planner, tmp_path: Path):
    """What planner says of a file of LLaMA-Factory beside a configuration of DeepSpeed."""

    def say(*options: str, precision: str = "bf16", **values: object) -> str:
        (tmp_path / "ds.json").write_text(json.dumps(ZERO_3))
        file = tmp_path / "train.yaml"
        file.write_text(LLAMA_FACTORY.format(precision=precision, **values))
        done = planner("estimate", "--from", file, *options, "--full")
        assert done.exit_code == 4 or done.out.startswith("May fit")
        text = " ".join(done.out.split())
        assert "No change of" not in text
        assert "No other plan" not in text
        return text

    return say


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("model", "gpu", "steps"),
    [("Qwen/Qwen2.5-14B-Instruct", "a100", 4), ("Qwen/Qwen2-7B-Instruct", "a800", 2)],
)
def test_a_loss_without_stored_logits_is_offered(asked, model: str, gpu: str, steps: int) -> None:
    """LoRA of 32,768 tokens, out of memory by its logits (hiyouga/LLaMA-Factory#4642)."""
    text = asked(
        "--gpu", gpu, "--gpus", "8", model=model, tuning="lora", length=32_768, steps=steps
    )
    assert "loss_kernel linear instead of auto" in text
    assert "+enable_liger_kernel: true" in text


@pytest.mark.slow
def test_offloading_is_offered(asked) -> None:
    """ZeRO-3 is out of memory, with offloading it runs (hiyouga/LLaMA-Factory#5977)."""
    text = asked(
        "--gpu", "rtx3090", "--gpus", "8",
        model="Meta-Llama-3-8B-Instruct", tuning="full", length=1024, steps=2, precision="fp16",
    )  # fmt: skip
    assert "offload optimizer instead of none" in text
    assert '"offload_optimizer": {"device": "cpu"' in text
    assert "cannot be said" not in text


@pytest.mark.slow
def test_where_nothing_fits_it_says_what_was_tried_and_how_many_gpus_fit(asked) -> None:
    text = asked(
        "--gpu", "rtx3090", "--gpus", "2",
        model="meta-llama/Llama-3.1-70B", tuning="full", length=4096, steps=2,
    )  # fmt: skip
    tried, _, others = text.partition("alone and up to three together: none of them fits.")
    for word in ("Tried: ", "offload optimizer", "loss_kernel lin"):
        assert word in tried
    assert "32 GPUs fit: global_batch_size 64 instead of 4" in others
    assert "paged_optimizer" not in text  # DeepSpeed has none


@pytest.mark.slow
def test_narrow_weights_are_offered_to_serve(planner, tmp_path: Path) -> None:
    file = tmp_path / "serve.sh"
    file.write_text("vllm serve meta-llama/Llama-3.1-70B-Instruct -tp 2 --max-model-len 131072\n")
    done = planner("estimate", "--from", file, "--gpu", "a100")
    text = " ".join(done.out.split())
    assert "Best change: quantization w4a16" in text
    # The cache holds 25,632 as predicted; what is offered starts in the bad case, too.
    assert "the cache holds 25,632; `--max-model-len 22258` may start" in text
    assert "instead of 19" not in text  # minutes of a plan that does not run
    file.write_text(file.read_text().replace("131072", "22258"))
    assert planner("estimate", "--from", file, "--gpu", "a100").out.startswith("May fit")


FULL_ON_HOST = """\
model: {_component_: torchtune.models.llama3_1.llama3_1_70b}
tokenizer: {_component_: torchtune.models.llama3.llama3_tokenizer, max_seq_len: 1024}
dataset: {_component_: torchtune.datasets.alpaca_dataset, packed: true}
optimizer: {_component_: torch.optim.AdamW}
loss: {_component_: torchtune.modules.loss.CEWithChunkedOutputLoss}
batch_size: 2
gradient_accumulation_steps: 1
enable_activation_checkpointing: true
fsdp_cpu_offload: true
dtype: bf16
"""


def test_a_full_host_is_told_with_the_memory_of_a_gpu(planner, tmp_path: Path) -> None:
    """500 GB of the host run out while a GPU holds 14 GB (meta-pytorch/torchtune#1871)."""
    file = tmp_path / "full.yaml"
    file.write_text(FULL_ON_HOST)
    done = planner(
        "estimate", "--from", file, "--gpu", "rtx4090", "--gpus", "8", "--host-memory", "500GB"
    )
    assert done.exit_code == 4
    text = " ".join(done.out.split())
    told = re.search(
        r"Does not fit: host memory ([\d.]+) of 466 GiB of a node; the fullest GPU needs "
        r"([\d.]+) of 23.4 GiB",
        text,
    )
    assert told is not None
    assert float(told[1]) > 466
    assert float(told[2]) == pytest.approx(14e9 / 2**30, rel=0.2)
