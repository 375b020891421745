"""The command that shows a configuration of a search again, in full."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Mapping
from typing import Any

from planner.pinned import settings_of
from planner.plan import Plan
from planner.request import ALL, Request
from planner.terms import terms_of

_TIE = "\0"
# One configuration is asked for without them.
_OF_SEARCH = ("space", "request_rate")


def estimate_command(plan: Plan, row: Mapping[str, Any]) -> str:
    """``planner estimate`` for a row of result columns of a plan."""
    name_of = plan.workload.name
    words = [] if name_of == Request.workload else ["--workload", name_of]
    settled = plan.settled(row)
    for name, term in terms_of(name_of, "question").items():
        given, plain = _answer(plan, name, settled), getattr(Request, name, None)
        if "parameter" in term.kind:
            words += [term.option_name, str(row[name])]
        elif term.type == "flag":
            words += [term.option_name] if given else []
        elif given not in (None, plain, 0) and name not in _OF_SEARCH:
            words += [term.option_name, f"{given:.15g}" if isinstance(given, float) else str(given)]
    words += ["--gpus", str(row["num_gpus"])]
    for name, value in settings_of(plan.workload.name, row).items():
        words += ["--set", f"{name}={str(value).lower()}"]
    return "planner estimate " + shlex.join(words)


def _answer(plan: Plan, name: str, settled: Mapping[str, Any]) -> Any:
    """What the user gave, or what was chosen among several, or by the space."""
    given = getattr(plan.request, name)
    if name in ("mode", "prefill_gpu"):
        return settled.get(name)
    if given == ALL or isinstance(given, tuple):
        return settled[name]
    if given is None and name == plan.workload.profile_kind:
        return settled[name]
    return given


def folded(command: str, width: int) -> str:
    """A command over several lines that a shell reads as one."""
    joined = command.replace("--set ", f"--set{_TIE}")
    lines = textwrap.wrap(joined, width - 6, break_long_words=False, break_on_hyphens=False)
    return " \\\n    ".join(lines).replace(_TIE, " ")
