"""The command that shows a configuration of a search again, in full."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Mapping
from typing import Any

from planner.request import Request
from planner.terms import terms_of

_TIE = "\0"


def estimate_command(request: Request, row: Mapping[str, Any], **chosen: str) -> str:
    """``planner estimate`` for a row of result columns of ``request``.

    ``chosen``: answers to questions that the search made, such as the framework of its space.
    """
    workload = request.workload
    words = [] if workload == Request.workload else ["--workload", workload]
    for name, term in terms_of(workload, "question").items():
        given = chosen.get(name, getattr(request, name))
        plain = getattr(Request, name, None)
        if "parameter" in term.kind:
            words += [term.option_name, str(row[name])]
        elif term.type == "flag":
            words += [term.option_name] if given else []
        elif given not in (None, plain, 0) and name not in _OF_SEARCH:
            words += [term.option_name, f"{given:.15g}" if isinstance(given, float) else str(given)]
    words += ["--gpus", str(row["num_gpus"])]
    for name, term in terms_of(workload, "parameter").items():
        if not term.option and "question" not in term.kind and row[name] != term.plain:
            words += ["--set", f"{name}={str(row[name]).lower()}"]
    return "planner estimate " + shlex.join(words)


# One configuration is asked for without them.
_OF_SEARCH = ("space", "mode", "prefill_gpu", "request_rate")


def folded(command: str, width: int) -> str:
    """A command over several lines that a shell reads as one."""
    joined = command.replace("--set ", f"--set{_TIE}")
    lines = textwrap.wrap(joined, width - 6, break_long_words=False, break_on_hyphens=False)
    return " \\\n    ".join(lines).replace(_TIE, " ")
