"""The questions as tools of the Model Context Protocol, over the standard streams.

The same questions, workers and limits as those of the pages and of the JSON interface; a tool
answers with the object of ``--json``, its rows cut to the first, and with what the page says first.
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

COMMANDS = ("search", "estimate", "size", "compare", "explain", "max-batch")
"""Commands that are tools; others write files, or answer with a page."""
NAMES = "names"
TERMS = "terms"
"""The tool that lists names, and the kind of its list that explains terms."""
MOST_ROWS, FULL = "most_rows", "full"
_ROWS = 5
_ALL_ROWS = 100
_LONG = 8 * 2**10
"""Characters of a part of an answer that is sent only where all is asked for."""
_DESCRIBED = frozenset(
    (*terms_about("common_options"), "workload", "settings", "precision", "objectives")
)
_CLIENT = "mcp"
_SAYS = (
    "Plans training and serving of language models on GPUs: which layout fits, how fast it is, "
    "what it costs, with 90 % intervals from published runs. Values are as on the command line: "
    "8k, 40%, 30d, several with commas. Names of models and GPUs are told by the tool names."
)


_REQUIRED = ["manifest"]
_ROW = {"type": ["object", "null"], "description": "one plan: columns as in rows"}
_ANSWER: dict[str, object] = {
    "type": "object",
    "required": _REQUIRED,
    "properties": {
        "manifest": {
            "type": "object",
            "description": "version, command, digests of specs, and what was assumed (defaults)",
        },
        "rows": {
            "type": "array",
            "items": {"type": "object"},
            "description": "the first rows; a column ends with its unit, X_low and X_high are the "
            f"ends of its 90 % interval, the tool {NAMES} says what terms mean",
        },
        **dict.fromkeys(("recommended_row", "tied_row", "proven_row", "fastest_row"), _ROW),
    },
}
"""The object of ``--json``: what is the same of all commands; others have more parts."""
_NAMED: dict[str, object] = {
    "type": "object",
    "additionalProperties": {"type": ["array", "object"], "description": "names, or terms"},
}


def serve(limits: Limits, specs: Path | None) -> None:
    """Answer on the standard streams until the client closes them."""
    pool = Pool(limits, specs)
    try:
        asyncio.run(_serve(make_server(pool)))
    finally:
        pool.close()


async def _serve(server: Server[object]) -> None:
    async with stdio_server() as (reading, writing):
        await server.run(reading, writing, server.create_initialization_options())


def make_server(pool: Pool) -> Server[object]:
    """The server of a pool of workers."""

    async def listed(_: object, __: object) -> types.ListToolsResult:
        return types.ListToolsResult(tools=_tools(pool.limits))

    async def called(_: object, asked: types.CallToolRequestParams) -> types.CallToolResult:
        try:
            return await _answer(pool, asked.name, asked.arguments or {})
        except PlannerError as error:
            said = types.TextContent(type="text", text=f"{type(error).__name__}: {error}")
            return types.CallToolResult(content=[said], is_error=True)

    return Server(
        "planner", version=__version__, instructions=_SAYS, on_list_tools=listed,
        on_call_tool=called,
    )  # fmt: skip


def _tools(limits: Limits) -> list[types.Tool]:
    bounds = f"At most {limits.seconds:g} s of work and {limits.rows:,} configurations."
    is_read = types.ToolAnnotations(read_only_hint=True, idempotent_hint=True)
    return [
        *(
            types.Tool(
                name=command,
                description=f"{SUMMARIES[command]}. {bounds}",
                input_schema=_with_rows(question_schema(command)),
                output_schema=_ANSWER,
                annotations=is_read,
            )
            for command in COMMANDS
        ),
        types.Tool(
            name=NAMES,
            description="The names of models, GPUs and other specs, or terms and what they mean",
            input_schema={
                "type": "object",
                "required": ["kind"],
                "properties": {
                    "kind": {"type": "string", "enum": _kinds()},
                    "like": {"type": "string", "description": "what a name has in it"},
                },
            },
            output_schema=_NAMED,
            annotations=is_read,
        ),
    ]


def _kinds() -> list[str]:
    return [*map(str, SpecKind), TERMS]


def _with_rows(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of a question without uploads, in short, with how much is answered."""
    fields = {name: one for name, one in schema["properties"].items() if not is_file(name)}
    limits = fields.pop("constraints", {}).get("properties", {})
    kept = {name: one if name in _DESCRIBED else _bare(one) for name, one in fields.items()}
    if limits:
        kept["constraints"] = {
            "type": "object", "properties": {name: _bare(one) for name, one in limits.items()},
            "description": f"limits; the tool {NAMES} says what each is, as of all other fields",
        }  # fmt: skip
    kept[MOST_ROWS] = {
        "type": "integer", "minimum": 0, "maximum": _ALL_ROWS, "default": _ROWS,
        "description": "rows of the answer, the best first",
    }  # fmt: skip
    kept[FULL] = {"type": "boolean", "default": False, "description": "long parts, too"}
    return {**schema, "properties": kept}


def _bare(field: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in field.items() if name != "description"}


async def _answer(pool: Pool, name: str, arguments: Mapping[str, object]) -> types.CallToolResult:
    """The answer of a tool.

    Raises PlannerError if the question is unknown, impossible, infeasible or beyond a limit.
    """
    if name == NAMES:
        return _result(*_named(arguments, pool.specs))
    if name not in COMMANDS:
        hint = did_you_mean(name, [*COMMANDS, NAMES])
        raise SearchSpaceError(f"There is no tool {name}.{hint}")
    given = dict(arguments)
    most = given.pop(MOST_ROWS, _ROWS)
    if isinstance(most, bool) or not isinstance(most, int) or not 0 <= most <= _ALL_ROWS:
        raise SearchSpaceError(f"{MOST_ROWS} is a whole number up to {_ALL_ROWS}, not {most!r}.")
    if len(json.dumps(given)) > pool.limits.question_bytes:
        raise RequestRefused(f"A question has at most {pool.limits.question_bytes:,} bytes.", 413)
    if uploaded := next(filter(is_file, given), ""):
        raise SearchSpaceError(f"{name} has no {uploaded}: nothing is uploaded here.")
    is_full = given.pop(FULL, False) is True
    job = pool.submit(Question.of_object(name, given), _CLIENT, OBJECT_FILE)
    future = asyncio.wrap_future(job.future)
    try:
        made = require_table(parse_json((await future).content.decode(), name), name)
    finally:
        if not job.future.done():  # the wrapped one is done as soon as it is cancelled
            job.cancel()
    found, text = require_table(made["object"], name), str(made["text"])
    rows = found.get("rows")
    if isinstance(rows, list) and len(rows) > most:
        text += f"\n{len(rows) - most} of {len(rows)} rows are left out: ask with {MOST_ROWS}."
        found["rows"] = rows[:most]
    if not is_full:
        found, parts = _without_long_parts(found)
        if parts:
            text += f"\nLong parts are left out: {', '.join(parts)}; ask with {FULL}."
    return _result(text, found)


def _without_long_parts(answer: Mapping[str, object]) -> tuple[dict[str, object], list[str]]:
    """An answer without its long parts, and their names; of objects without the longest entries."""
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


def _result(text: str, found: object) -> types.CallToolResult:
    said = types.TextContent(type="text", text=text)
    return types.CallToolResult(content=[said], structured_content=found)


def _named(arguments: Mapping[str, object], specs: Path | None) -> tuple[str, dict[str, object]]:
    """Names of a kind, or terms with what they mean."""
    kind, like = str(arguments.get("kind", "")), str(arguments.get("like") or "").lower()
    if kind not in _kinds():
        raise SearchSpaceError(
            f"kind is one of {', '.join(_kinds())}.{did_you_mean(kind, _kinds())}"
        )
    if kind == TERMS:
        terms = {name: term.description for name, term in glossary().items()}
        found: dict[str, object] = {n: said for n, said in terms.items() if like in n}
        return "\n".join(f"{name}: {said}" for name, said in found.items()), {TERMS: found}
    names = [name for name in Catalogue(specs).names(kind) if like in name.lower()]
    return ", ".join(names) or "none", {kind: names}
