"""What Axolotl's schema makes of a configuration: {"values": {...}, "folder": ...}.

`values` are those of the YAML with the options of the command, `folder` has the files that it
names, `gpus` and `nodes` are those of the job, on GPUs like an H100.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import stubs

stubs.install("torch", "transformers", "accelerate", "datasets", "peft", "trl")
FOLDER = Path(str(find_spec("axolotl").origin)).parents[1]  # type: ignore[union-attr]
stubs.pass_over(FOLDER, "axolotl", "axolotl.utils", "axolotl.integrations")
for name in ("axolotl.utils.logging", "axolotl.utils.datasets", "axolotl.integrations.base"):
    sys.modules[name] = stubs.Empty(name)

sys.modules["axolotl.utils.datasets"].get_default_process_count = lambda: 8  # type: ignore[attr-defined]
import_module("transformers.utils.import_utils").is_torch_npu_available = lambda: False  # type: ignore[attr-defined]

from axolotl.utils.schemas.config import AxolotlConfigWCapabilities, AxolotlInputConfig  # noqa: E402

GPU = {"bf16": True, "fp8": True, "tf32": True, "compute_capability": "sm_90"}


def answer(case: dict[str, Any]) -> dict[str, Any]:
    os.chdir(case["folder"])
    values = {**case["values"], "world_size": case["gpus"]}
    config = AxolotlConfigWCapabilities(
        **values,
        capabilities={**GPU, "n_gpu": case["gpus"] // case["nodes"], "n_node": case["nodes"]},
        env_capabilities={"torch_version": "2.13.0"},
    )
    return {
        "micro_batch_size": config.micro_batch_size,
        "gradient_accumulation_steps": config.gradient_accumulation_steps,
        "sequence_length": config.sequence_len,
        "adapter": config.adapter,
        "lora_rank": config.lora_r,
        "unknown": sorted({*case["values"]} - {*AxolotlInputConfig.model_fields}),
    }
