"""The command that shows a configuration of a search again, in full."""

from __future__ import annotations

import shlex
import textwrap

from planner.estimators.estimate import Estimate
from planner.report.infeasible import layout
from planner.request import Request

_OPTIONS = (
    "gpu",
    "cluster",
    "framework",
    "sequence_length",
    "price",
    "mtp_num_layers",
    "lora_rank",
    "lora_targets",
    "flops_efficiency",
    "memory_efficiency",
)

_TIE = "\0"


def estimate_command(request: Request, framework: str, estimate: Estimate) -> str:
    """``planner estimate`` for the first row of an estimate of ``request``."""
    c = estimate.configurations
    words = ["--model", request.model, "--gpus", str(int(c.num_gpus.ravel()[0]))]
    for name in _OPTIONS:
        given = framework if name == "framework" else getattr(request, name)
        if given is not None:
            words += ["--" + name.replace("_", "-"), str(given)]
    words += ["--global-batch-size", str(int(c.global_batch_size.ravel()[0]))]
    if request.total_tokens is not None:
        words += ["--tokens", f"{request.total_tokens:.15g}"]
    if request.adapter != Request.adapter:
        words += ["--adapter", request.adapter]
    if request.ideal:
        words.append("--ideal")
    for assignment in layout(c).split():
        words += ["--set", assignment]
    return "planner estimate " + shlex.join(words)


def folded(command: str, width: int) -> str:
    """A command over several lines that a shell reads as one."""
    joined = command.replace("--set ", f"--set{_TIE}")
    lines = textwrap.wrap(joined, width - 6, break_long_words=False, break_on_hyphens=False)
    return " \\\n    ".join(lines).replace(_TIE, " ")
