"""What NeMo-RL reads of a configuration of GRPO: {"config": path of the YAML}.

Its loader merges the files of ``defaults`` and resolves references; its schema checks the types.
"""

from __future__ import annotations

import os
import sys
import typing
from pathlib import Path
from typing import Any

import stubs
import typing_extensions

FOLDER = Path(sys.prefix) / "nemo_rl"  # a checkout
sys.path.insert(0, str(FOLDER))
stubs.install_missing("attr", "attrs")
sys.modules["transformers"] = transformers = stubs.Empty("transformers")
transformers.__version__, transformers.__path__ = "5.0", []  # those from 5.12 on are refused
if sys.version_info < (3, 12):  # pydantic takes no other before
    typing.TypedDict = typing_extensions.TypedDict

from nemo_rl.algorithms.grpo import MasterConfig  # noqa: E402
from nemo_rl.utils.config import (  # noqa: E402
    load_config_with_inheritance,
    register_omegaconf_resolvers,
)
from omegaconf import OmegaConf  # noqa: E402
from pydantic import TypeAdapter  # noqa: E402

register_omegaconf_resolvers()
SCHEMA = TypeAdapter(MasterConfig)


def answer(case: dict[str, Any]) -> dict[str, Any]:
    os.environ["NEMO_RL"] = str(FOLDER)
    config = OmegaConf.to_container(load_config_with_inheritance(case["config"]), resolve=True)
    SCHEMA.validate_python(config)
    policy, grpo = config["policy"], config["grpo"]
    return {
        "global_batch_size": policy["train_global_batch_size"],
        "samples_per_prompt": grpo["num_generations_per_prompt"],
        "prompts_per_step": grpo["num_prompts_per_step"],
        "rollout_tensor_parallel": policy["generation"]["vllm_cfg"]["tensor_parallel_size"],
    }
