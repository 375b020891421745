"""What MaxText reads: {"argv": [...], "nodes": n, "gpus_per_node": n}; no GPU is looked at."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import stubs

sys.modules["pytest"] = stubs.Empty("pytest")  # with it no distributed system is started
devices = stubs.Empty("maxtext.utils.max_utils")
sys.modules["maxtext.utils.max_utils"] = devices
for name in ("maxtext.utils.gcs_utils", "maxtext.utils.elastic_utils"):
    sys.modules[name] = stubs.Empty(name)

from maxtext.configs import pyconfig  # noqa: E402

CONFIGS = Path(str(next(iter(find_spec("maxtext.configs").submodule_search_locations))))  # type: ignore[union-attr, arg-type]


def answer(case: dict[str, Any]) -> dict[str, Any]:
    nodes, gpus = case["nodes"], case["nodes"] * case["gpus_per_node"]
    fake = [
        SimpleNamespace(
            slice_index=i // 8, process_index=i // 8, platform="gpu", device_kind="H100"
        )
        for i in range(gpus)
    ]
    jax.devices, jax.device_count = lambda *_: fake, lambda *_: gpus
    jax.process_count, jax.process_index = lambda: nodes, lambda: 0
    devices.get_num_slices = lambda *_, **__: nodes
    devices.get_num_target_devices = lambda *_, **__: gpus
    os.environ["JAX_PLATFORMS"] = "cpu"
    file, *overrides = case["argv"]
    path = CONFIGS / file.partition("/configs/")[2]
    config = pyconfig.initialize_pydantic(["maxtext", str(path), *overrides])
    return {
        "global_batch_size": config.global_batch_size_to_train_on,
        "sequence_length": config.max_target_length,
        "adapter": config.lora.enable_lora,
        "lora_rank": config.lora.lora_rank,
    }
