"""Graphs of NVIDIA Dynamo: each worker's command is read as one of its engine."""

from __future__ import annotations

from planner.errors import LaunchError
from planner.launch.understood import Answers, Reading


def answers(reading: Reading) -> Answers:
    """Refused: workers say what they do in the words of vLLM, SGLang or TensorRT-LLM.

    Raises
    ------
    LaunchError
        Always.
    """
    raise LaunchError(
        f"{reading.found.name}: no worker of the graph has a command of dynamo.vllm, "
        "dynamo.sglang or dynamo.trtllm."
    )
