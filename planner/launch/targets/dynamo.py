"""NVIDIA Dynamo: a graph of workers of an engine behind a frontend, for Kubernetes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from planner.documents.yaml_writer import yaml_scalar
from planner.errors import LaunchError
from planner.launch.option_table import OptionTexts, Quantities, option_aliases, tool_row
from planner.launch.read.parsed_launch import LaunchSettings, OptionReader
from planner.launch.target import (
    CommandWords,
    LaunchDraft,
    LaunchJob,
    LaunchOutputFile,
    LaunchTarget,
    ShellVariable,
    Values,
    fill_template,
)
from planner.launch.targets import sglang, tensorrt_llm, vllm
from planner.launch.wrappers.write_kubernetes import dns_label
from planner.launch.write.server_groups import (
    AGGREGATED,
    PREFILL_POOL,
    ServerGroup,
    draft_model_argument,
    server_groups,
    server_quantities,
)
from planner.launch.write.serving_writer import (
    ServerCommand,
    make_benchmark,
    make_draft,
    make_servers,
    model_argument,
)
from planner.launch.write.write_launch import heading_lines


def read_settings(reading: OptionReader) -> LaunchSettings:
    """Raise LaunchError: only workers with a command of vLLM, SGLang or TensorRT-LLM are read."""
    raise LaunchError(
        f"{reading.command.name}: no worker of the graph has a command of dynamo.vllm, "
        "dynamo.sglang or dynamo.trtllm."
    )


NAME = "dynamo"
_VERSION = tool_row(NAME)["version"].rpartition(" ")[2]
_GRAPH = "graph.yaml"
_TRANSFER = '{"kv_connector":"NixlConnector","kv_role":"kv_both"}'
_TRANSFER_OPTION = "--kv-transfer-config"
_DRAFT_METHODS = ("draft_model", "STANDALONE", "Draft_Target")
_TYPES = {AGGREGATED: "worker", PREFILL_POOL: "prefill", "decode": "decode"}
_ENGINES: Mapping[str, Any] = {"vLLM": vllm, "SGLang": sglang, "TensorRT-LLM": tensorrt_llm}


def _arguments(server: ServerCommand) -> list[str]:
    """Return the arguments of a worker; options of TensorRT-LLM without a flag become JSON."""
    model = server.model if isinstance(server.model, str) else server.model.name
    pool = server.worker.name
    mode = [] if pool == AGGREGATED else ["--disaggregation-mode", pool]
    start = ["--model-path", model, "--served-model-name", model]
    if server.engine == vllm.NAME:
        transfer = [_TRANSFER_OPTION, _TRANSFER] if mode else []
        return ["--model", model, *_words(vllm.command_options(server)), *mode, *transfer]
    if server.engine == sglang.NAME:
        return [*start, "--host", "0.0.0.0", *_words(sglang.command_options(server))]
    renamed, yaml_options = option_aliases("dynamo.trtllm"), dict[str, str | None]()
    for option in server.settings.options:
        if option.option in renamed:
            start += [renamed[option.option], *filter(None, (option.text,))]
        elif option.option == "--enable_chunked_prefill":
            yaml_options["enable_chunked_prefill"] = "true"
    document = json.dumps(tensorrt_llm.yaml_options(server, yaml_options), separators=(",", ":"))
    return [*start, *mode, "--override-engine-args", document]


def _words(arguments: list[CommandWords]) -> list[str]:
    """Return arguments as words, without the cache's transfer, which Dynamo sets by itself."""
    return [
        word if isinstance(word, str) else word.name
        for argument in arguments
        if argument.words[0] != _TRANSFER_OPTION
        for word in argument.words
    ]


def _graph(job: LaunchJob, servers: tuple[ServerCommand, ...]) -> str:
    """Return the graph of a deployment: one frontend and the pools of workers."""
    engine = servers[0].engine
    image = f"nvcr.io/nvidia/ai-dynamo/{engine.replace('-', '')}-runtime:{_VERSION}"
    workers: list[Values] = [
        {
            "pool": server.worker.name,
            "type": _TYPES[server.worker.name],
            "copies": server.worker.copies,
            "nodes": server.worker.num_nodes if server.worker.num_nodes > 1 else 0,
            "arguments": [f"- {yaml_scalar(word)}" for word in _arguments(server)],
            "gpus": server.worker.gpus_per_node,
        }
        for server in servers
    ]
    framework = "trtllm" if engine == tensorrt_llm.NAME else engine
    values = {"name": yaml_scalar(dns_label(job.model.name)), "framework": framework}
    return fill_template(
        "dynamo_graph.txt", {**values, "image": yaml_scalar(image), "workers": workers}
    )


def _draft(job: LaunchJob, settings: OptionTexts) -> LaunchDraft:
    """Build the Dynamo graph file of a job, with notes on the placeholders to replace."""
    engine = _ENGINES[job.profile.name]

    def quantities(worker: ServerGroup) -> Quantities:
        """Quantities of the engine without nodes: the operator connects them."""
        online = engine.ONLINE_QUANTIZATION
        return {**server_quantities(worker, engine.NAME, online), "num_nodes": None}

    servers = make_servers(job, engine.NAME, quantities, model_argument)
    unset = [server.model for server in servers if isinstance(server.model, ShellVariable)]
    texts = (option.text for server in servers for option in server.settings.options)
    if any(text in _DRAFT_METHODS for text in texts):
        draft_model = draft_model_argument(job)
        unset += [draft_model] if isinstance(draft_model, ShellVariable) else []
    port = f"kubectl port-forward svc/{dns_label(job.model.name)}-frontend 8000:8000"
    notes = [f"`{port}` lets the benchmark reach the frontend."]
    placeholders = {word.name: word for word in unset}.values()
    notes += [f"Replace {word.name} in the graph: {word.meaning}." for word in placeholders]
    # The frontend has OpenAI's API, whatever the engine.
    draft = make_draft(servers, (), benchmark=make_benchmark(NAME, job, servers[-1].model))
    # The engine's own table has further parameters without an option.
    draft = replace(
        draft,
        unexpressed=(*servers[-1].settings.unexpressed, *draft.unexpressed),
        notes=(*draft.notes, *notes),
    )
    start = f"kubectl apply -f {_GRAPH}"
    header = heading_lines(TARGET, job, replace(draft, left=settings.left), [], [start])
    text = "".join(f"{line}\n" for line in header) + _graph(job, servers)
    meaning = "the graph of workers, for the operator of Dynamo"
    graph = LaunchOutputFile(name=_GRAPH, text=text, meaning=meaning, start=start)
    return replace(draft, files=(graph,))


TARGET = LaunchTarget.of(
    NAME,
    quantities=lambda job: {"pool": server_groups(job)[-1].name},
    draft=_draft,
    answers=read_settings,
)
