"""What the launcher of TGI chooses by itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from planner.launch.read.read_launch import read_launch

_IMAGE = "ghcr.io/huggingface/text-generation-inference"
_START = (
    "docker run --gpus '\"device=0,1\"' {image}:{version} --model-id {model} --num-shard 2 {more}"
)


# launcher/src/main.rs (3.3.5), compute_optimal and vram_maximum: what two cards compute in a second
# by the work of a token, 147.64 GFLOP of Llama 3.1 70B and 15.03 of the 8B; 121 and 900 TFLOP/s.
# Two L4 have room for the 16 GB of the 8B and 260,096 bytes of a token beside them.
@pytest.mark.parametrize(
    ("version", "model", "more", "gpu", "tokens"),
    [
        ("3.0.1", "meta-llama/Llama-3.1-70B-Instruct", "--quantize bitsandbytes-nf4", "l4", 1639),
        ("3.3.5", "meta-llama/Llama-3.1-8B-Instruct", "", "h100", 119741),
        ("3.3.5", "meta-llama/Llama-3.1-8B-Instruct", "", "l4", 16098),
        (
            "3.3.5",
            "meta-llama/Llama-3.1-8B-Instruct",
            "--max-batch-prefill-tokens 8192",
            "l4",
            8192,
        ),
        ("3.3.5", "meta-llama/Llama-3.1-8B-Instruct", "", "b200", 4096),
        ("2.4.0", "meta-llama/Llama-3.1-8B-Instruct", "--max-input-tokens 3000", "l4", 3050),
    ],
)
def test_the_tokens_of_a_prefill_are_those_of_the_launcher(
    tmp_path: Path, version: str, model: str, more: str, gpu: str, tokens: int
) -> None:
    path = tmp_path / "run.sh"
    path.write_text(_START.format(image=_IMAGE, version=version, model=model, more=more) + "\n")

    assert read_launch(path, gpu=gpu).values["max_num_batched_tokens"] == tokens
