"""MCP server: the questions as tools of the Model Context Protocol, over the standard streams.

Questions, workers and limits are the same as for the pages and the JSON interface. A tool returns
the object of ``--json`` with its first rows, and the first lines of the page.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from pathlib import Path

import mcp.types as types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

from planner.base.csv_cells import TypedRow
from planner.base.read_files import JsonObject, parse_json, require_table
from planner.base.version import __version__
from planner.commands.options import FILE, form_fields, option_name, option_rows
from planner.errors import PlannerError, SearchSpaceError, did_you_mean
from planner.optimize.result_columns import ends_of
from planner.question.names import CONTRACT, GPU, NUM_GPUS
from planner.question.request import Answers
from planner.question.terms import Term, glossary, terms_about
from planner.show.presenters.format_results import layout_of
from planner.show.presenters.sizes import COSTS
from planner.specs.catalogue import Catalogue
from planner.specs.spec_paths import SpecKind
from planner.ui.question import (
    AGAINST,
    SETTINGS,
    SUMMARIES,
    TARGET,
    THINGS,
    WORKLOAD,
    WRAPPER,
    Question,
    is_file,
)
from planner.ui.request_limits import Limits, RequestRefused
from planner.ui.worker_pool import MARKDOWN_FILE, OBJECT_FILE, Pool
from planner.workloads.registry import workload_names, workload_of
from planner.workloads.workload import Workload

COMMANDS = (
    "search", "estimate", "size", "sweep", "compare", "explain", "max-batch", "max-length",
    "launch",
)  # fmt: skip
"""Commands that are tools."""
REPORT, NAMES, TERMS, OPTION_NAMES = "report", "names", "terms", "options"
"""Tools that are no question, and the lists of ``names`` that are not specs."""
OPTIONS, COMMAND, ROWS, FULL = "options", "command", "most_rows", "full"
_ROWS = 5
_ALL_ROWS = 100
MOST_COLUMNS = 15
"""Columns of a row of an answer, unless all are requested."""
_LONG = 8 * 2**10
"""Characters above which a part of an answer is sent only on request."""
_FIELDS = tuple(n for n in terms_about("common_options") if n not in terms_about("rl_step"))
"""Fields that each tool names; all others are in its ``options``."""
_ARGUMENTS = (THINGS, TARGET, WRAPPER, AGAINST)
_CLIENT = "mcp"
_INSTRUCTIONS = (
    "Plans training and serving of language models on GPUs: which layout fits, how fast it is, "
    "what it costs, with 90 % intervals from published runs. Fields are the options of the "
    "command line; a value is a number or a text such as 8k, 40%, 30d, several with commas. "
    f"The tool {NAMES} lists models, GPUs and the {OPTIONS} of a tool. Columns end with their "
    "unit; X_low and X_high are the ends of a 90 % interval."
)
_VALUE = {"type": ["string", "number"]}
_DESCRIPTIONS = {
    WORKLOAD: "",
    "model": "name or ORG/NAME",
    "gpu": "names, or all",
    SETTINGS: "parameters, {tensor_parallel: [4, 8]}",
    THINGS: "GPUs, models or engines, with commas",
    AGAINST: "the other plan: tp=4 zero=3",
    "total_tokens": "1T",
    "calendar_time": "at most, 30d",
    "time_to_first_token": "at most, 500ms",
    "time_per_output_token": "at most",
    "request_rate": "per second",
    "budget": "5MUSD/year",
}
_REQUIRED = ["manifest"]
_ANSWER_SCHEMA: dict[str, object] = {"type": "object", "required": _REQUIRED}
_NO_MANIFEST = ("sweep", "launch")


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
            message = f"{type(error).__name__}: {mcp_message(str(error))}"
            content = types.TextContent(type="text", text=message)
            return types.CallToolResult(content=[content], is_error=True)

    return Server(
        "planner", version=__version__, instructions=_INSTRUCTIONS, on_list_tools=list_tools,
        on_call_tool=call_tool,
    )  # fmt: skip


def _tools(limits: Limits) -> list[types.Tool]:
    """Return the MCP tools: one per command, one for pages, and one that lists names."""
    bounds = f"at most {limits.seconds:g} s, {limits.rows:,} configurations"
    read_only = types.ToolAnnotations(read_only_hint=True)

    def tool(name: str, description: str, schema: Mapping[str, object]) -> types.Tool:
        is_answer = name in COMMANDS and name not in _NO_MANIFEST
        return types.Tool(
            name=name,
            description=description,
            input_schema={"type": "object", **schema},
            output_schema=_ANSWER_SCHEMA if is_answer else None,
            annotations=read_only,
        )

    kinds = {"type": "string", "enum": _kinds()}
    tools = {"type": "string", "enum": [*COMMANDS]}
    like = {"type": "string", "description": "a part of the names"}
    page_fields = {COMMAND: tools, **_field_schemas("size")}
    listed: dict[str, object] = {"kind": kinds, "like": like, COMMAND: tools}
    return [
        *(
            tool(
                command,
                f"{SUMMARIES[command].partition(', as planner')[0]}; {bounds}",
                {"properties": {**_field_schemas(command), **_answer_fields(command)}},
            )
            for command in COMMANDS
        ),
        tool(
            REPORT, "The page of an answer, as Markdown: recommendation, reasons, tables, sources",
            {"required": [COMMAND], "properties": page_fields},
        ),
        tool(
            NAMES,
            f"Names of models, GPUs and other specs; terms and their meaning; {OPTIONS} of a tool",
            {"required": ["kind"], "properties": listed},
        ),
    ]  # fmt: skip


def _kinds() -> list[str]:
    return [*map(str, SpecKind), TERMS, OPTION_NAMES]


def _fields_of(command: str) -> dict[str, Term | None]:
    """Return the fields of a command for any workload, without uploaded files."""
    fields: dict[str, Term | None] = {}
    for workload in workload_names():
        fields |= form_fields(command, workload)
    return {name: term for name, term in fields.items() if not is_file(name)}


def _argument_name(name: str) -> str:
    """Return the name of a field in a call: its option on the command line, without dashes."""
    return name if name in _ARGUMENTS else option_name(name).lstrip("-")


def _field_schemas(command: str) -> dict[str, object]:
    """Return the JSON schema of the fields that a tool names, by their option's name."""
    fields = _fields_of(command)
    names = [name for name in (*_ARGUMENTS, *_FIELDS, SETTINGS) if name in fields]
    schemas: dict[str, object] = {WORKLOAD: {"type": "string", "enum": [*workload_names()]}}
    for name in names:
        schema = {"type": "object"} if name == SETTINGS else _VALUE
        text = _DESCRIPTIONS.get(name, "")
        described = {"description": text} if text else {}
        schemas[_argument_name(name)] = {**schema, **described}
    schemas[OPTIONS] = {"type": "object", "description": f"further options: {NAMES} lists them"}
    return schemas


def _answer_fields(command: str) -> dict[str, object]:
    """Return the JSON schema of the fields that say how much of an answer is sent."""
    if command == "launch":
        return {}
    rows = {"type": "integer", "maximum": _ALL_ROWS, "default": _ROWS}
    return {ROWS: rows, FULL: {"type": "boolean", "description": "all columns and parts"}}


async def _answer(pool: Pool, name: str, arguments: Answers) -> types.CallToolResult:
    """Return the result of an MCP tool call.

    Raises PlannerError if the question is invalid, infeasible, or beyond a limit.
    """
    if name == NAMES:
        return _result(*_list_names(arguments, pool.specs))
    if name not in (*COMMANDS, REPORT):
        hint = did_you_mean(name, [*COMMANDS, REPORT, NAMES])
        raise SearchSpaceError(f"There is no tool {name}.{hint}")
    fields = dict(arguments)
    command = str(fields.pop(COMMAND, "")) if name == REPORT else name
    if command not in COMMANDS:
        hint = did_you_mean(command, COMMANDS)
        raise SearchSpaceError(f"{COMMAND} is one of {', '.join(COMMANDS)}.{hint}")
    max_rows = fields.pop(ROWS, _ROWS)
    if (
        isinstance(max_rows, bool)
        or not isinstance(max_rows, int)
        or not 0 <= max_rows <= _ALL_ROWS
    ):
        raise SearchSpaceError(f"{ROWS} is a whole number up to {_ALL_ROWS}, not {max_rows!r}.")
    if len(json.dumps(fields)) > pool.limits.question_bytes:
        raise RequestRefused(f"A question has at most {pool.limits.question_bytes:,} bytes.", 413)
    is_full = fields.pop(FULL, False) is True
    fields = _joined_options(fields)
    if uploaded := next((n for n in fields if is_file(_file_name(n))), ""):
        raise SearchSpaceError(
            f"{name} has no {uploaded}: MCP tools read no files. Give the model, the GPU and the "
            f"parameters in {_argument_name(SETTINGS)}."
        )
    file = MARKDOWN_FILE if name == REPORT else OBJECT_FILE
    job = pool.submit(Question.of_object(command, fields), _CLIENT, file)
    future = asyncio.wrap_future(job.future)
    try:
        content = (await future).content.decode()
    finally:
        if not job.future.done():  # the wrapped future is done as soon as it is cancelled
            job.cancel()
    if name == REPORT:
        return _result(content, None)
    answer = require_table(parse_json(content, name), name)
    result, text = require_table(answer["object"], name), str(answer["text"])
    rows = result.get("rows")
    if isinstance(rows, list) and len(rows) > max_rows:
        text += f"\n{len(rows) - max_rows} of {len(rows)} rows are left out: set {ROWS}."
        result["rows"] = rows[:max_rows]
    if not is_full:
        result, parts = _without_long_parts(_with_few_columns(result))
        text += f"\nRows have their first {MOST_COLUMNS} columns" if rows else ""
        text += f"\nLong parts are left out: {', '.join(parts)}" if parts else ""
        text += f"; set {FULL}." if rows or parts else ""
    return _result(text, result)


def _joined_options(fields: Answers) -> dict[str, object]:
    """Return the fields of a call with those of its ``options``.

    Raises SearchSpaceError if ``options`` is no object, or repeats a field.
    """
    named = {name: value for name, value in fields.items() if name != OPTIONS}
    options = fields.get(OPTIONS) or {}
    if not isinstance(options, Mapping):
        raise SearchSpaceError(f"{OPTIONS} is an object of names and values, not {options!r}.")
    if repeated := next((name for name in options if name in named), ""):
        raise SearchSpaceError(f"{repeated} is given twice: leave it out of {OPTIONS}.")
    return {**named, **options}


def _file_name(name: str) -> str:
    """Return the field of an option that names a file."""
    words = name.lstrip("-").replace("-", "_")
    return FILE if words in ("from", "from_file", "plan") else words


_OPTION = re.compile(
    r"(?<![\w-])--([a-z][a-z0-9-]*)(?:[ =](?=[\w.{\"]*[\d=])([\w.,=+*/%-]*[\w%]))?"
)
_PHRASES = (
    (
        re.compile(r"planner ([\w-]+) --workload (\w+) has no"),
        r"The tool \1 for workload \2 has no",
    ),
    (re.compile(r",? or (?:use|on) the command line"), ""),
    (re.compile(r", or upload your file"), ""),
    (re.compile(r"`planner ui "), "`planner mcp "),
)
"""Phrases of messages about the command line or a browser, and those for an assistant."""


def mcp_message(message: str) -> str:
    """Return an error message with the fields of tools in place of options of a command line.

    >>> mcp_message("Give --gpus 16, or a --ttft that it keeps.")
    'Give gpus: 16, or a ttft that it keeps.'
    """
    for pattern, phrase in _PHRASES:
        message = pattern.sub(phrase, message)

    def field(match: re.Match[str]) -> str:
        return match[1] if match[2] is None else f"{match[1]}: {match[2]}"

    parts = re.split(r"(`planner [^`]*`)", message)  # commands stay as they are
    return "".join(part if part.startswith("`planner") else _OPTION.sub(field, part)
                   for part in parts)  # fmt: skip


def _with_few_columns(result: JsonObject) -> JsonObject:
    """Return an answer whose rows have at most `MOST_COLUMNS` columns."""
    manifest = result.get("manifest")
    name = manifest.get(WORKLOAD) if isinstance(manifest, Mapping) else None
    workload = workload_of(name) if name in workload_names() else None
    shortened = dict(result)
    for part, value in result.items():
        if part == "rows" and isinstance(value, list):
            shortened[part] = [_with_first_columns(row, workload) for row in value]
        elif part.endswith("_row") and isinstance(value, Mapping):
            shortened[part] = _with_first_columns(value, workload)
    return shortened


_PLACED = ("scenario", "recommended", "choice", "reason", GPU, NUM_GPUS, CONTRACT)
_SURE = ("fit_probability", "evidence_runs")


def _with_first_columns(row: TypedRow, workload: Workload | None) -> JsonObject:
    """Return the columns of a row that decide: hardware, layout, results, their intervals."""
    if len(row) <= MOST_COLUMNS or row.get(WORKLOAD, "") is None:
        return dict(row)
    if row.get(WORKLOAD) in workload_names():  # a scenario of a sweep
        workload = workload_of(row[WORKLOAD])
    if workload is None or NUM_GPUS not in row:
        return dict([*row.items()][:MOST_COLUMNS])
    names = [workload.profile_kind, *COSTS]
    shown = {name: row[name] for name in (*_PLACED, *names, *_SURE) if _has_value(row.get(name))}
    if shown.get("reason"):
        return shown
    shown["layout"] = layout_of(workload, row)
    results = [name for name in workload.wording.results(()) if _has_value(row.get(name))]
    for name in dict.fromkeys([*results, "peak_memory_gib"]):
        ends = [column for column in ends_of(name) if _has_value(row.get(column))]
        new = [column for column in (name, *ends) if column not in shown and column in row]
        if len(shown) + len(new) <= MOST_COLUMNS:
            shown |= {column: row[column] for column in new}
    return dict([*shown.items()][:MOST_COLUMNS])


def _has_value(value: object) -> bool:
    return value not in (None, "")


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


def _result(text: str, structured: JsonObject | None) -> types.CallToolResult:
    content = types.TextContent(type="text", text=text)
    return types.CallToolResult(content=[content], structured_content=structured)


def _list_names(arguments: Answers, specs: Path | None) -> tuple[str, dict[str, object]]:
    """Return names of specs, or the terms or the options of a tool with their descriptions."""
    kind, like = str(arguments.get("kind", "")), str(arguments.get("like") or "").lower()
    if kind not in _kinds():
        raise SearchSpaceError(
            f"kind is one of {', '.join(_kinds())}.{did_you_mean(kind, _kinds())}"
        )
    if kind in (TERMS, OPTION_NAMES):
        command = str(arguments.get(COMMAND) or "search")
        if command not in COMMANDS:
            raise SearchSpaceError(
                f"{COMMAND} is one of {', '.join(COMMANDS)}.{did_you_mean(command, COMMANDS)}"
            )
        described = (
            {name: term.description for name, term in glossary().items()}
            if kind == TERMS
            else _option_descriptions(command)
        )
        matches: dict[str, object] = {n: text for n, text in described.items() if like in n}
        return "\n".join(f"{name}: {text}" for name, text in matches.items()), {kind: matches}
    names = [name for name in Catalogue(specs).names(kind) if like in name.lower()]
    return ", ".join(names) or "none", {kind: names}


def _option_descriptions(command: str) -> dict[str, str]:
    """Return the options of a tool that it does not name, with their descriptions."""
    named = {*_field_schemas(command)}
    rows = option_rows()[""]
    return {
        name: term.description if term is not None else rows.get(field, {}).get("help", "")
        for field, term in _fields_of(command).items()
        if (name := _argument_name(field)) not in named
    }
