"""What programs may ask: the questions of a command as JSON Schema, out of the table of terms."""

from __future__ import annotations

from planner.launch import TARGETS, WRAPPERS
from planner.question.terms import Term
from planner.ui.question import (
    AGAINST,
    FILE,
    OBJECTIVES,
    SETTINGS,
    TARGET,
    THINGS,
    WORKLOAD,
    WRAPPER,
    fields_of,
)
from planner.workloads.registry import workload_names

SUMMARIES = {
    "search": "The Pareto front and the recommended plan, as planner search --json",
    "estimate": "One configuration in full, as planner estimate --json",
    "size": "The fewest and the cheapest GPUs that keep the limits, as planner size --json",
    "sweep": "Every combination of the listed values, a row each",
    "compare": "Things side by side, as planner compare --json",
    "explain": "Why a plan takes what it takes, as planner explain --json",
    "max-batch": "The most that fits, as planner max-batch --json",
    "launch": "The files that start a plan, by name",
}
"""What each command answers."""
_OTHERS = {
    SETTINGS: "parameters and their values, pinned or narrowed; in a query tp=4,8 mbs=1",
    OBJECTIVES: "one to three names, the first one counts first",
    "precision": "number format of the matrix products, several, or all",
    THINGS: "two or more GPUs, models, frameworks or engines",
    AGAINST: "what the other plan sets otherwise: tp=4 zero=3",
    TARGET: f"the tool whose files are written: {', '.join(TARGETS)}",
    WRAPPER: f"what starts it: {', '.join(WRAPPERS)}",
    FILE: "what /uploads called the files of a launch or a model",
}


def question_schema(command: str) -> dict[str, object]:
    """The object of a question: an entry for every field, limits under ``constraints``."""
    fields = described_fields(command)
    properties: dict[str, object] = {
        n: one for n, (one, is_limit) in fields.items() if not is_limit
    }
    if limits := {n: one for n, (one, is_limit) in fields.items() if is_limit}:
        properties["constraints"] = {"type": "object", "properties": limits}
    return {"type": "object", "required": ["model"], "properties": properties}


def described_fields(command: str) -> dict[str, tuple[dict[str, object], bool]]:
    """The schema of each field, and whether it is a limit."""
    terms: dict[str, Term | None] = {WORKLOAD: None}
    for workload in workload_names():
        terms |= fields_of(command, workload)
    return {name: _described(name, term) for name, term in terms.items()}


def _described(name: str, term: Term | None) -> tuple[dict[str, object], bool]:
    """The schema of a field, and whether it is a limit."""
    if name == WORKLOAD:
        words = {"type": "string", "enum": [*workload_names()], "default": "train"}
        return {**words, "description": "training, static batches, or serving requests"}, False
    if term is None:
        kind = {"type": ["object", "string"]} if name == SETTINGS else {"type": ["array", "string"]}
        return {**kind, "description": _OTHERS[name]}, False
    of = f" ({', '.join(term.of)})" if term.of else ""
    is_limit = "limit" in term.kind and "question" not in term.kind
    bound = ("at most: " if term.sign > 0 else "at least: ") if is_limit else ""
    kinds = ["number", "string", "array"] if "parameter" in term.kind else ["number", "string"]
    if term.type == "flag":
        kinds = ["boolean", "string"]
    elif term.is_word:
        kinds = ["string", "array"]
    return {"type": kinds, "description": f"{bound}{term.description}{of}"}, is_limit
