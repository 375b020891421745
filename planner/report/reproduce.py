"""The command that shows a configuration of a search again, in full."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from planner.plan.pinned import answers_of, settings_of
from planner.plan.plan import Plan
from planner.question.request import Request
from planner.question.terms import Term, terms_of


def estimate_command(plan: Plan, row: Mapping[str, Any]) -> str:
    """``planner estimate`` for a row of result columns of a plan."""
    workload, request = plan.workload, plan.request
    words = [] if workload.name == Request.workload else ["--workload", workload.name]
    answers = answers_of(plan, row)
    open_ones = {workload.profile_kind, "mode", "prefill_gpu", "training_objective"}
    for name, term in terms_of(workload.name, "question").items():
        if "parameter" in term.kind:
            words += [term.option_name, str(row[name])]
        elif name in open_ones or getattr(request, name, None) is not None:
            words += _option(term, answers.get(name), getattr(Request, name, None))
    words += ["--gpus", str(row["num_gpus"])]
    known = terms_of(workload.name, "parameter")
    for name, value in settings_of(workload.name, row).items():
        short = known[name].short if name in known else ""
        words += ["--set", f"{short or name}={str(value).lower()}"]
    if request.specs is not None:
        words += ["--specs", str(request.specs)]
    return "planner estimate " + shlex.join(words)


def _option(term: Term, answer: Any, plain: Any) -> list[str]:
    """An option and its value; none where the answer is the plain one."""
    if answer is None or answer == plain:
        return []
    return (
        [term.option_name]
        if term.type == "flag"
        else [
            term.option_name,
            str(answer).removesuffix(".0") if isinstance(answer, float) else str(answer),
        ]
    )
