"""MCP server: the questions as tools of the Model Context Protocol, over the standard streams.

Questions, workers and limits are the same as for the pages and the JSON interface. A tool returns
the object of ``--json`` with its first rows, and the first lines of the page.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import mcp.types as types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

from planner.base.read_files import parse_json, require_table
from planner.base.version import __version__
from planner.errors import PlannerError, SearchSpaceError, did_you_mean
from planner.question.terms import glossary, terms_about
from planner.specs.catalogue import Catalogue
from planner.specs.spec_paths import SpecKind
from planner.ui.question import SUMMARIES, Question, is_file, question_schema
from planner.ui.request_limits import Limits, RequestRefused
from planner.ui.worker_pool import OBJECT_FILE, Pool

COMMANDS = ("search", "estimate", "size", "compare", "explain", "max-batch", "max-length")
"""Commands that are tools; others write files, or answer with a page."""
NAMES = "names"
TERMS = "terms"
"""The tool that lists names, and the kind for the list of terms."""
MOST_ROWS, FULL = "most_rows", "full"
_ROWS = 5
_ALL_ROWS = 100
_LONG = 8 * 2**10
"""Characters above which a part of an answer is sent only on request."""
_FIELDS_WITH_DESCRIPTION = frozenset(
    (*terms_about("common_options"), "workload", "settings", "precision", "objectives")
)
_CLIENT = "mcp"
_INSTRUCTIONS = (
    "Plans training and serving of language models on GPUs: which layout fits, how fast it is, "
    "what it costs, with 90 % intervals from published runs. Values are as on the command line: "
    "8k, 40%, 30d, several with commas. The tool names lists models and GPUs."
)


_REQUIRED = ["manifest"]
_ROW_SCHEMA = {"type": ["object", "null"], "description": "one plan: columns as in rows"}
_ANSWER_SCHEMA: dict[str, object] = {
    "type": "object",
    "required": _REQUIRED,
    "properties": {
        "manifest": {
            "type": "object",
            "description": "version, command, digests of specs, and assumed values (defaults)",
        },
        "rows": {
            "type": "array",
            "items": {"type": "object"},
            "description": "the first rows; a column ends with its unit, X_low and X_high are the "
            f"ends of its 90 % interval, the tool {NAMES} explains terms",
        },
        **dict.fromkeys(("recommended_row", "tied_row", "proven_row", "fastest_row"), _ROW_SCHEMA),
    },
}
"""Schema of the object of ``--json``: the parts that all commands have in common."""
_NAMES_SCHEMA: dict[str, object] = {
    "type": "object",
    "additionalProperties": {"type": ["array", "object"], "description": "names, or terms"},
}


def serve(limits: Limits, specs: Path | None) -> None:
    """Answer MCP requests on the standard streams until the client closes them."""
    pool = Pool(limits, specs)
    try:
        asyncio.run(_serve(make_server(pool)))
    finally:
        pool.close()


async def _serve(server: Server[object]) -> None:
    async with stdio_server() as (reading, writing):
        await server.run(reading, writing, server.create_initialization_options())


def make_server(pool: Pool) -> Server[object]:
    """Return the MCP server whose questions a pool of workers answers."""

    async def list_tools(_: object, __: object) -> types.ListToolsResult:
        return types.ListToolsResult(tools=_tools(pool.limits))

    async def call_tool(_: object, params: types.CallToolRequestParams) -> types.CallToolResult:
        """Run the tool with this name; an error of planner becomes an error result."""
        try:
            return await _answer(pool, params.name, params.arguments or {})
        except PlannerError as error:
            content = types.TextContent(type="text", text=f"{type(error).__name__}: {error}")
            return types.CallToolResult(content=[content], is_error=True)

    return Server(
        "planner", version=__version__, instructions=_INSTRUCTIONS, on_list_tools=list_tools,
        on_call_tool=call_tool,
    )  # fmt: skip


def _tools(limits: Limits) -> list[types.Tool]:
    """Return the descriptions of the MCP tools: one per command, and one that lists names."""
    bounds = f"At most {limits.seconds:g} s of work and {limits.rows:,} configurations."
    read_only = types.ToolAnnotations(read_only_hint=True, idempotent_hint=True)
    return [
        *(
            types.Tool(
                name=command,
                description=f"{SUMMARIES[command]}. {bounds}",
                input_schema=_with_rows(question_schema(command)),
                output_schema=_ANSWER_SCHEMA,
                annotations=read_only,
            )
            for command in COMMANDS
        ),
        types.Tool(
            name=NAMES,
            description="The names of models, GPUs and other specs, or terms and their meaning",
            input_schema={
                "type": "object",
                "required": ["kind"],
                "properties": {
                    "kind": {"type": "string", "enum": _kinds()},
                    "like": {"type": "string", "description": "a part of the names"},
                },
            },
            output_schema=_NAMES_SCHEMA,
            annotations=read_only,
        ),
    ]


def _kinds() -> list[str]:
    return [*map(str, SpecKind), TERMS]


def _with_rows(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a question's JSON schema in short form, without uploads, with the answer's size."""
    fields = {
        name: field_schema
        for name, field_schema in schema["properties"].items()
        if not is_file(name)
    }
    limits = fields.pop("constraints", {}).get("properties", {})
    properties = {
        name: field_schema
        if name in _FIELDS_WITH_DESCRIPTION
        else _without_description(field_schema)
        for name, field_schema in fields.items()
    }
    if limits:
        properties["constraints"] = {
            "type": "object",
            "properties": {name: _without_description(schema) for name, schema in limits.items()},
            "description": f"limits; the tool {NAMES} explains them, and all other fields",
        }  # fmt: skip
    properties[MOST_ROWS] = {
        "type": "integer", "minimum": 0, "maximum": _ALL_ROWS, "default": _ROWS,
        "description": "rows of the answer, the best first",
    }  # fmt: skip
    properties[FULL] = {"type": "boolean", "default": False, "description": "include long parts"}
    return {**schema, "properties": properties}


def _without_description(field: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in field.items() if name != "description"}


async def _answer(pool: Pool, name: str, arguments: Mapping[str, object]) -> types.CallToolResult:
    """Return the result of an MCP tool call.

    Raises PlannerError if the question is invalid, infeasible, or beyond a limit.
    """
    if name == NAMES:
        return _result(*_list_names(arguments, pool.specs))
    if name not in COMMANDS:
        hint = did_you_mean(name, [*COMMANDS, NAMES])
        raise SearchSpaceError(f"There is no tool {name}.{hint}")
    fields = dict(arguments)
    max_rows = fields.pop(MOST_ROWS, _ROWS)
    if (
        isinstance(max_rows, bool)
        or not isinstance(max_rows, int)
        or not 0 <= max_rows <= _ALL_ROWS
    ):
        raise SearchSpaceError(
            f"{MOST_ROWS} is a whole number up to {_ALL_ROWS}, not {max_rows!r}."
        )
    if len(json.dumps(fields)) > pool.limits.question_bytes:
        raise RequestRefused(f"A question has at most {pool.limits.question_bytes:,} bytes.", 413)
    if uploaded := next(filter(is_file, fields), ""):
        raise SearchSpaceError(f"{name} has no {uploaded}: this interface has no uploads.")
    is_full = fields.pop(FULL, False) is True
    job = pool.submit(Question.of_object(name, fields), _CLIENT, OBJECT_FILE)
    future = asyncio.wrap_future(job.future)
    try:
        answer = require_table(parse_json((await future).content.decode(), name), name)
    finally:
        if not job.future.done():  # the wrapped future is done as soon as it is cancelled
            job.cancel()
    result, text = require_table(answer["object"], name), str(answer["text"])
    rows = result.get("rows")
    if isinstance(rows, list) and len(rows) > max_rows:
        text += f"\n{len(rows) - max_rows} of {len(rows)} rows are left out: ask with {MOST_ROWS}."
        result["rows"] = rows[:max_rows]
    if not is_full:
        result, parts = _without_long_parts(result)
        if parts:
            text += f"\nLong parts are left out: {', '.join(parts)}; ask with {FULL}."
    return _result(text, result)


def _without_long_parts(answer: Mapping[str, object]) -> tuple[dict[str, object], list[str]]:
    """Return an answer without its longest parts, and the names of those parts."""
    shortened: dict[str, object] = {}
    left_out: list[str] = []
    for part, value in answer.items():
        entries = dict(value) if isinstance(value, Mapping) else {}
        sizes = {name: len(json.dumps(entry)) for name, entry in entries.items()}
        size = sum(sizes.values()) if entries else len(json.dumps(value))
        if part == "rows" or size <= _LONG:
            shortened[part] = value
            continue
        left_out += [] if entries else [part]
        for name in sorted(sizes, key=sizes.__getitem__, reverse=True):
            if size <= _LONG:
                break
            size -= sizes[name]
            left_out.append(f"{part}.{name}")
            del entries[name]
        if entries or part in _REQUIRED:
            shortened[part] = entries
    return shortened, left_out


def _result(text: str, structured: object) -> types.CallToolResult:
    content = types.TextContent(type="text", text=text)
    return types.CallToolResult(content=[content], structured_content=structured)


def _list_names(
    arguments: Mapping[str, object], specs: Path | None
) -> tuple[str, dict[str, object]]:
    """Return the names of a kind of spec, or the terms with their descriptions."""
    kind, like = str(arguments.get("kind", "")), str(arguments.get("like") or "").lower()
    if kind not in _kinds():
        raise SearchSpaceError(
            f"kind is one of {', '.join(_kinds())}.{did_you_mean(kind, _kinds())}"
        )
    if kind == TERMS:
        terms = {name: term.description for name, term in glossary().items()}
        matches: dict[str, object] = {
            n: description for n, description in terms.items() if like in n
        }
        return "\n".join(f"{name}: {description}" for name, description in matches.items()), {
            TERMS: matches
        }
    names = [name for name in Catalogue(specs).names(kind) if like in name.lower()]
    return ", ".join(names) or "none", {kind: names}
