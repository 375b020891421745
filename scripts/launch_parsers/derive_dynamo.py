"""What a worker of Dynamo makes of its arguments: {"argv": [...]}, the module first.

Its parsers are the groups of options of the runtime and of an engine. All options of a worker of
TensorRT-LLM are Dynamo's; those that are "left" go to the parser of vLLM or SGLang.
"""

from __future__ import annotations

import argparse
import json
from importlib import import_module
from typing import Any

import stubs

stubs.install_missing()

from dynamo.common.configuration.groups.runtime_args import DynamoRuntimeArgGroup  # noqa: E402

GROUPS = {
    "vllm": "DynamoVllmArgGroup",
    "sglang": "DynamoSGLangArgGroup",
    "trtllm": "DynamoTrtllmArgGroup",
}


def answer(case: dict[str, Any]) -> dict[str, Any]:
    module, *words = case["argv"]
    engine = module.rpartition(".")[2]
    parser = argparse.ArgumentParser(allow_abbrev=False, exit_on_error=False)
    DynamoRuntimeArgGroup().add_arguments(parser)
    getattr(import_module(f"{module}.backend_args"), GROUPS[engine])().add_arguments(parser)
    named, left = parser.parse_known_args(words)
    extra = getattr(named, "override_engine_args", None)
    json.loads(extra or "{}")
    return {
        "left": [word for word in left if word.startswith("-")],
        "tensor_parallel": getattr(named, "tensor_parallel_size", None),
        "max_num_tokens": getattr(named, "max_num_tokens", None),
    }
