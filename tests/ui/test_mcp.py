"""`planner mcp` asked by the client of the protocol's own SDK, over the standard streams."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Callable, Coroutine, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from planner.commands.options import option_name
from planner.question.terms import terms_of
from planner.specs.catalogue import Catalogue
from planner.ui.mcp_server import COMMANDS, MOST_COLUMNS

if TYPE_CHECKING:
    from mcp import Client

SMALL = {"model": "llama-2-7b", "gpu": "h100-sxm-80gb", "num_gpus": 8}
EVERYTHING = {"model": "all", "gpu": "all", "num_gpus": "all", "framework": "all"}


def asked(use: Callable[[Client], Coroutine[Any, Any, Any]], *options: str) -> Any:
    """What a client gets that is connected to ``planner mcp``."""
    from mcp import Client, StdioServerParameters  # which takes a fifth of collecting all tests

    words = ["-m", "planner", "mcp", "--workers", "1", *options]

    async def ask() -> Any:
        server = StdioServerParameters(command=sys.executable, args=words)
        async with Client(server, read_timeout_seconds=120) as client:
            return await use(client)

    # Tests in a browser leave a loop running in this thread.
    with ThreadPoolExecutor(max_workers=1) as thread:
        return thread.submit(asyncio.run, ask()).result()


def in_process(pool: Any, calls: Mapping[str, Mapping[str, object]]) -> dict[str, Any]:
    """Answers of the tools of a pool to a client that holds each to the schema of its tool."""
    from mcp import Client

    from planner.ui.mcp_server import make_server

    async def ask() -> dict[str, Any]:
        async with Client(make_server(pool), read_timeout_seconds=120) as client:
            await client.list_tools()  # with the schemas that it checks answers by
            return {
                word: await client.call_tool(word, dict(given)) for word, given in calls.items()
            }

    with ThreadPoolExecutor(max_workers=1) as thread:
        return thread.submit(asyncio.run, ask()).result()


@pytest.fixture(scope="module")
def pool() -> Iterator[Any]:
    from planner.ui.request_limits import Limits
    from planner.ui.worker_pool import Pool

    made = Pool(Limits(workers=1, seconds=600))
    yield made
    made.close()


def text_of(result: Any) -> str:
    return "".join(part.text for part in result.content)


async def everything(client: Client) -> dict[str, Any]:
    """All that is asked of one server, by a word."""
    calls = {
        "search": ("search", {**SMALL, "most_rows": 2}),
        "full": ("search", {**SMALL, "most_rows": 0, "full": True}),
        "estimate": ("estimate", {**SMALL, "settings": {"tensor_parallel": 8}}),
        "unknown model": ("search", {**SMALL, "model": "lama-2-7b"}),
        "infeasible": ("search", {**SMALL, "model": "llama-3.1-405b", "num_gpus": 1}),
        "path": ("search", {**SMALL, "model": "/etc/passwd"}),
        "unknown field": ("search", {**SMALL, "modle": "x"}),
        "long": ("search", {**SMALL, "settings": "x" * 20_000}),
        "rows": ("search", {**SMALL, "most_rows": 10**6}),
        "gpus": ("names", {"kind": "gpus", "like": "h100"}),
        "terms": ("names", {"kind": "terms", "like": "zero_stage"}),
        "options": ("names", {"kind": "options", "command": "size", "like": "power"}),
        "twice": ("search", {**SMALL, "options": {"model": "llama-2-7b"}}),
        "file": ("estimate", {"options": {"from": "train.sh"}}),
        "kind": ("names", {"kind": "gpu"}),
        "no tool": ("serch", SMALL),
    }
    found: dict[str, Any] = {"tools": (await client.list_tools()).tools}
    for word, (tool, arguments) in calls.items():
        found[word] = await client.call_tool(tool, arguments)
    with suppress(TimeoutError):
        await asyncio.wait_for(client.call_tool("search", EVERYTHING), 0.5)
    found["after one that was given up"] = await client.call_tool("search", SMALL)
    return found


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    # The client waits for less than the worker might work on what nobody waits for.
    return asked(everything, "--time-limit", "600")


def test_every_question_is_a_tool_with_the_names_of_the_command_line(
    found: dict[str, Any],
) -> None:
    tools = {tool.name: tool for tool in found["tools"]}
    assert [*tools] == [*COMMANDS, "report", "names"]
    options = {option_name(name).lstrip("-") for name in terms_of("serve", "question", "limit")}
    options |= {"gpus", "set", "workload", "options", "most_rows", "full"}
    fields = tools["search"].input_schema["properties"]
    missing = {*fields} - options - {"framework", "global-batch-size", "sequence-length"}
    assert missing <= {option_name(name).lstrip("-") for name in terms_of("train", "limit")} | {
        "tokens"
    }
    assert {"ttft", "request-rate", "gpus"} <= {*fields}


def test_the_tool_list_is_small(found: dict[str, Any]) -> None:
    """At most 15 kB as sent, and at most 20 fields a tool."""
    texts = [tool.model_dump_json(by_alias=True, exclude_none=True) for tool in found["tools"]]
    assert sum(len(text.encode()) for text in texts) <= 15_000
    assert all(len(tool.input_schema["properties"]) <= 20 for tool in found["tools"])
    questions = [tool for tool in found["tools"] if tool.name != "names"]
    assert all(tool.input_schema["properties"]["options"] for tool in questions)


def test_answers_are_what_their_schema_says(found: dict[str, Any]) -> None:
    """The client of the SDK holds every answer of this module to the schema of its tool."""
    schemas = {tool.name: tool.output_schema or {} for tool in found["tools"]}
    for word, tool in {"search": "search", "estimate": "estimate", "gpus": "names"}.items():
        answer = found[word].structured_content
        assert {*schemas[tool].get("required", ())} <= {*answer}


def test_a_search_answers_with_the_object_and_the_sentence(found: dict[str, Any]) -> None:
    result = found["search"]
    assert not result.is_error
    assert len(result.structured_content["rows"]) == 2
    assert result.structured_content["recommended_row"]["num_gpus"] == 8
    assert "Llama 2 7B" in text_of(result)
    assert "rows are left out: set most_rows" in text_of(result)
    assert "Long parts are left out: comparisons" in text_of(result)
    assert len(str(result.structured_content)) < 16_000
    assert "comparisons" in found["full"].structured_content
    assert found["estimate"].structured_content["rows"][0]["layout"] == "tp8"


def test_rows_have_at_most_15_columns_unless_all_are_requested(found: dict[str, Any]) -> None:
    result = found["search"].structured_content
    for row in [*result["rows"], result["recommended_row"], result["fastest_row"]]:
        assert len(row) <= MOST_COLUMNS
        assert {"gpu", "num_gpus", "framework", "layout", "step_time_s", "step_time_low_s"} <= {
            *row
        }
    assert len(found["full"].structured_content["recommended_row"]) > 40
    assert "Rows have their first 15 columns" in text_of(found["search"])


def test_messages_speak_of_fields(found: dict[str, Any]) -> None:
    assert "--" not in text_of(found["infeasible"])
    assert "The tool search for workload train has no" in text_of(found["unknown field"])
    assert "`planner mcp --specs DIR`" in text_of(found["path"])
    assert "upload" not in text_of(found["path"])


def one_of_each_tool(gpu: str) -> dict[str, dict[str, object]]:
    """A question for each tool, about a GPU."""
    served: dict[str, object] = {"workload": "serve", "model": "llama-3.2-1b", "gpu": gpu}
    if gpu == "p40-24gb":  # the one GPU that no engine of the default list has kernels for
        served["engine"] = "llama-cpp"
    one = {**served, "num_gpus": 1, "settings": {"concurrency": 2}}
    return {
        "search": {"model": "llama-3.2-1b", "gpu": gpu, "num_gpus": 8},
        "estimate": one,
        "size": {**served, "request_rate": 0.1, "constraints": {"time_to_first_token": "60s"}},
        "compare": {"things": [gpu, "a100-sxm-80gb"], "model": "llama-3.2-1b", "num_gpus": 8},
        "explain": one,
        "max-batch": {**one, "settings": {}},
        "max-length": one,
    }


@pytest.mark.few(1)
@pytest.mark.parametrize("gpu", Catalogue(None).names("gpus"))
def test_every_tool_of_every_gpu_keeps_its_schema(pool: Any, gpu: str) -> None:
    """The client raises where an answer breaks the schema; what is impossible is an error."""
    found = in_process(pool, one_of_each_tool(gpu))
    errors = {word: text_of(one) for word, one in found.items() if one.is_error}
    assert not any("nternal" in said for said in errors.values()), errors
    assert len(errors) < len(found), errors


def test_tools_the_command_and_python_give_the_same_rows(
    pool: Any, planner: Any, tmp_path: Path
) -> None:
    """Values, intervals and the probability to fit, of lengths that nobody specified."""
    import planner as package

    asked: dict[str, Any] = {"workload": "serve", "model": "llama-3.2-1b", "gpu": "h100"}
    asked |= {"num_gpus": 1, "engine": "vllm"}
    words = ("--workload", "serve", "--model", "llama-3.2-1b", "--gpu", "h100", "--gpus", "1")
    files = ("--json", tmp_path / "r.json", "--save-plan", tmp_path / "p.toml", "--quiet")
    assert planner("search", *words, "--engine", "vllm", *files).exit_code == 0
    best = json.loads((tmp_path / "r.json").read_text())["recommended_row"]
    one = {name: best[name] for name in terms_of("serve", "parameter") if name != "num_gpus"}
    whole = {**asked, "full": True}
    found = in_process(pool, {"search": whole, "estimate": {**whole, "settings": one}})
    rows = [found["search"].structured_content["recommended_row"]]
    rows.append(found["estimate"].structured_content["rows"][0])
    rows.append(package.search(**asked).to_frame().iloc[0].to_dict())
    rows.append(package.estimate(**asked, settings=one).to_frame().iloc[0].to_dict())
    names = [name for name in best if best[name] and re.search("_(low|high)(_|$)", name)]
    assert len(names) > 20
    for row in rows:
        for name in (*names, "fit_probability", "time_to_first_token_s", "peak_memory_gib"):
            assert row[name] == pytest.approx(best[name], rel=1e-9), name


def test_long_parts_are_named_and_what_is_required_stays(pool: Any) -> None:
    asked = one_of_each_tool("rtx-4090")
    found = in_process(pool, {word: asked[word] for word in ("max-batch", "explain")})
    for result in found.values():
        assert "version" in result.structured_content["manifest"]
    result = found["max-batch"]
    assert re.search(r"Long parts are left out: .*largest\.rows; set full\.", text_of(result))
    assert result.structured_content["largest"]["name"]


def test_a_sweep_a_launch_and_a_page_are_tools_too(pool: Any) -> None:
    served = {"workload": "serve", "model": "llama-3.2-1b", "request-rate": 1, "gpus": 1}
    lengths = {"options": {"equal-lengths": True}, "input-tokens": 100, "output-tokens": 10}
    one = {**served, "gpu": "h100", "engine": "vllm"}
    found = in_process(
        pool,
        {
            "sweep": {**served, **lengths, "gpu": "h100,a100-sxm-80gb"},
            "launch": {**one, "target": "vllm"},
            "report": {**one, **lengths, "command": "search"},
        },
    )
    assert not any(result.is_error for result in found.values()), [*map(text_of, found.values())]
    rows = found["sweep"].structured_content["rows"]
    assert [row["gpu"] for row in rows] == ["h100-sxm-80gb", "a100-sxm-80gb"]
    assert all(len(row) <= MOST_COLUMNS and row["layout"] for row in rows)
    assert "vllm serve" in json.dumps(found["launch"].structured_content)
    assert text_of(found["report"]).startswith("# ")
    assert "h100-sxm-80gb" in text_of(found["report"])


def test_an_object_loses_its_longest_entries_first() -> None:
    from planner.ui.mcp_server import _without_long_parts

    long = "x" * 9000
    found = {"manifest": {"version": 1, "assumed": long}, "row": {"a": 1}, "rows": long, "o": long}
    kept, left_out = _without_long_parts(found)
    assert kept == {"manifest": {"version": 1}, "row": {"a": 1}, "rows": long}
    assert left_out == ["manifest.assumed", "o"]


def test_names_of_the_command_line_are_read_or_explained(pool: Any) -> None:
    options = {
        "workload": "serve", "model": "llama-3.2-1b", "gpu": "h100", "gpus": 1,
        "input-tokens": 500, "--output-tokens": 100, "ttft": "10s",
        "set": {"concurrency": [1, 8]}, "most_rows": 0, "full": True,
    }  # fmt: skip
    result = in_process(pool, {"search": options})["search"]
    assert not result.is_error, text_of(result)
    told = result.structured_content["recommended_row"]
    assert (told["input_tokens"], told["output_tokens"], told["num_gpus"]) == (500, 100, 1)
    result = in_process(pool, {"search": {**SMALL, "tp": 2}})["search"]
    assert "'tp'. It is a parameter: write settings={'tensor_parallel': ...}." in text_of(result)
    result = in_process(pool, {"search": {**SMALL, "gpus": 2}})["search"]
    assert "gpus gives num_gpus twice" in text_of(result)


FAULTS = {
    "unknown model": "Did you mean llama-2-7b",
    "infeasible": "InfeasibleError",
    "path": "is a path",
    "unknown field": "Did you mean model",
    "long": "A question has at most 16,384 bytes",
    "rows": "most_rows is a whole number up to 100",
    "kind": "Did you mean gpus",
    "no tool": "Did you mean search",
    "twice": "model is given twice: leave it out of options",
    "file": "MCP tools read no files",
}


def test_what_is_wrong_is_an_error_of_the_tool(found: dict[str, Any]) -> None:
    for word, said in FAULTS.items():
        assert found[word].is_error, word
        assert said in text_of(found[word]), (word, text_of(found[word]))


def test_names_and_terms_are_listed(found: dict[str, Any]) -> None:
    assert "h100-sxm-80gb" in found["gpus"].structured_content["gpus"]
    assert all("h100" in name for name in found["gpus"].structured_content["gpus"])
    assert "zero_stage: " in text_of(found["terms"])
    assert [*found["options"].structured_content["options"]] == ["power"]


def test_who_gives_up_leaves_the_worker_to_others(found: dict[str, Any]) -> None:
    assert not found["after one that was given up"].is_error


@pytest.mark.slow
def test_work_that_takes_too_long_is_ended() -> None:
    large = {
        "model": "llama-65b", "gpu": "all", "framework": "all", "total_tokens": "1T",
        "constraints": {"calendar_time": "60d"},
    }  # fmt: skip

    async def use(client: Client) -> Any:
        return await client.call_tool("size", large)

    result = asked(use, "--time-limit", "1")
    assert result.is_error, text_of(result)
    assert "1 s" in text_of(result)


def test_what_is_not_installed_is_named(planner: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name, package=None: None)
    ran = planner("mcp")
    assert ran.exit_code == 7
    assert ran.err == "planner mcp needs mcp: pip install 'llm-gpu-planner[mcp]'.\n"
