"""The JSON interface as OpenAPI describes it, made from the table of terms."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from planner.question.terms import Term
from planner.ui.limits import Limits
from planner.ui.question import COMMANDS, OBJECTIVES, SETTINGS, WORKLOAD, fields_of
from planner.version import __version__
from planner.workloads.registry import workload_names

_SUMMARIES = {
    "search": "The Pareto front and the plan one would launch, as planner search --json",
    "estimate": "One configuration in full, as planner estimate --json",
    "size": "The fewest and the cheapest GPUs that keep limits, as planner size --json",
}
_STATUSES = {
    "200": "the object that --json writes",
    "400": "something is unknown, faulty or impossible",
    "408": "the question did not come whole in time",
    "413": "the question or its answer is too large",
    "422": "nothing is feasible; the message says what came closest",
    "503": "too many questions wait, or there are too many connections",
    "504": "it took too long",
}
_OTHERS = {
    SETTINGS: "parameters and their values, pinned or narrowed; in a query tp=4,8 mbs=1",
    OBJECTIVES: "one to three names, the first one counts first",
    "precision": "number format of the matrix products, several, or all",
}


@cache
def openapi(limits: Limits) -> Mapping[str, Any]:
    """The description of all paths, which says what one request may take."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "planner",
            "version": __version__,
            "description": f"At most {limits.seconds:g} s of work, {limits.rows:,} configurations "
            f"and {limits.question_bytes:,} bytes a question. Values are as on the command line: "
            "8k, 40%, 30d, several with commas.",
        },
        "paths": {f"/api/{command}": _path(command) for command in COMMANDS},
    }


def _path(command: str) -> dict[str, Any]:
    fields = {name: _described(name, term) for name, term in _fields(command).items()}
    limits = {n: one for n, (one, is_limit) in fields.items() if is_limit}
    others = {n: one for n, (one, is_limit) in fields.items() if not is_limit}
    properties: dict[str, Any] = {**others}
    if limits:
        properties["constraints"] = {"type": "object", "properties": limits}
    body = {"type": "object", "required": ["model"], "properties": properties}
    return {
        "get": {
            "summary": f"{_SUMMARIES[command]}; the query is that of a page's link",
            "operationId": f"{command}_of_query",
            "parameters": [
                {"name": name, "in": "query", "schema": {"type": "string"}}
                | {"description": one["description"]}
                for name, (one, _) in fields.items()
            ],
            "responses": _responses(),
        },
        "post": {
            "summary": _SUMMARIES[command],
            "operationId": command,
            "requestBody": {
                "required": True,
                "content": {"application/json": {"schema": body}},
            },
            "responses": _responses(),
        },
    }


def _fields(command: str) -> dict[str, Term | None]:
    """The fields of all workloads."""
    found: dict[str, Term | None] = {WORKLOAD: None}
    for workload in workload_names():
        found |= fields_of(command, workload)
    return found


def _described(name: str, term: Term | None) -> tuple[dict[str, Any], bool]:
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
    return {"type": _types(term), "description": f"{bound}{term.description}{of}"}, is_limit


def _types(term: Term) -> list[str]:
    if term.type == "flag":
        return ["boolean", "string"]
    if term.is_word:
        return ["string", "array"]
    return ["number", "string", "array"] if "parameter" in term.kind else ["number", "string"]


def _responses() -> dict[str, Any]:
    error = {
        "type": "object",
        "properties": {"error": {"type": "string"}, "message": {"type": "string"}},
    }
    of_error = {"content": {"application/json": {"schema": error}}}
    answer = {"content": {"application/json": {"schema": {"type": "object"}}}}
    return {
        status: {"description": words, **(answer if status == "200" else of_error)}
        for status, words in _STATUSES.items()
    }
