"""Jobs of Kubeflow Trainer that torchtune trains, as the command that its runtime starts.

Source: kubeflow/trainer at 8c0f505, ``pkg/runtime/framework/plugins/torch/torchtune.go`` (recipe
and configuration) and ``manifests/base/runtimes/torchtune`` (two GPUs).
"""

from __future__ import annotations

from collections.abc import Sequence

_USUAL_GPUS = 2
_ADAPTED, _QUANTIZED = "model.lora_attn_modules", "model.quantize_base"


def command_of(runtime: str, arguments: Sequence[str], gpus: str | None) -> tuple[str, ...]:
    """Return the words of the command of a runtime; empty if it is not torchtune's.

    >>> " ".join(command_of("torchtune-llama3.2-1b", ["batch_size=4"], "1"))
    'full_finetune_single_device --config llama3_2/1B_full_single_device batch_size=4'
    """
    parts = runtime.split("-")
    if len(parts) != 3 or parts[0] != "torchtune":
        return ()
    texts = [text.lower() for text in arguments]
    kind = "lora" if any(text.startswith(_ADAPTED) for text in texts) else "full"
    ending = "qlora" if f"{_QUANTIZED}=true" in texts else kind
    recipe = "lora" if ending == "qlora" else kind
    is_one = gpus == "1"
    device_mode = "single_device" if is_one else "distributed"
    config = f"{parts[1].replace('.', '_')}/{parts[2].upper()}_{ending}"
    words = (
        f"{recipe}_finetune_{device_mode}",
        "--config",
        f"{config}_{device_mode}" if is_one else config,
    )
    launched = () if is_one else ("tune", "run", "--nproc_per_node", gpus or str(_USUAL_GPUS))
    return (*launched, *words, *arguments)
