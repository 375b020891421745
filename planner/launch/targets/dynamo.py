"""NVIDIA Dynamo: a graph of workers of an engine behind a frontend, for Kubernetes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from planner.base.records import record
from planner.documents.yaml_writer import yaml_text
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
)
from planner.launch.targets import sglang, tensorrt_llm, vllm
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
_DRAFT_METHODS = ("draft_model", "STANDALONE", "Draft_Target")
_TYPES = {AGGREGATED: "worker", PREFILL_POOL: "prefill", "decode": "decode"}


def _vllm_arguments(server: ServerCommand, model: str) -> list[str]:
    """Return the command line of a vLLM worker; a prefill or decode pool also gets its role."""
    pool = server.worker.name
    arguments = [
        "--model",
        model,
        *_flatten_words(vllm.command_options(server), "--kv-transfer-config"),
    ]
    if pool != AGGREGATED:
        arguments += ["--disaggregation-mode", pool, "--kv-transfer-config", _TRANSFER]
    return arguments


def _sglang_arguments(server: ServerCommand, model: str) -> list[str]:
    arguments = ["--model-path", model, "--served-model-name", model, "--host", "0.0.0.0"]
    return [*arguments, *_flatten_words(sglang.command_options(server))]


def _trtllm_arguments(server: ServerCommand, model: str) -> list[str]:
    """Return the command line of a TensorRT-LLM worker; options without a flag become JSON."""
    arguments = ["--model-path", model, "--served-model-name", model]
    renamed, yaml_options = option_aliases("dynamo.trtllm"), dict[str, str | None]()
    for inputs in server.settings.options:
        if inputs.option in renamed:
            arguments += [renamed[inputs.option], *([inputs.text] if inputs.text else [])]
        elif inputs.option == "--enable_chunked_prefill":
            yaml_options["enable_chunked_prefill"] = "true"
    if server.worker.name != AGGREGATED:
        arguments += ["--disaggregation-mode", server.worker.name]
    document = json.dumps(tensorrt_llm.yaml_options(server, yaml_options), separators=(",", ":"))
    return [*arguments, "--override-engine-args", document]


def _flatten_words(arguments: list[CommandWords], left_out: str = "") -> list[str]:
    """Join arguments to one list of words, without the option ``left_out``."""
    return [
        word if isinstance(word, str) else word.name
        for argument in arguments
        for word in argument.words
        if argument.words[0] != left_out
    ]


@record(kw_only=True)
class _DynamoEngine:
    """An engine in Dynamo: its target module, its name and image there, its options as words."""

    module: Any
    framework: str
    image: str
    words: Callable[[ServerCommand, str], list[str]]


_ENGINES = {
    "vLLM": _DynamoEngine(module=vllm, framework="vllm", image="vllm", words=_vllm_arguments),
    "SGLang": _DynamoEngine(
        module=sglang, framework="sglang", image="sglang", words=_sglang_arguments
    ),
    "TensorRT-LLM": _DynamoEngine(
        module=tensorrt_llm, framework="trtllm", image="tensorrtllm", words=_trtllm_arguments
    ),
}
_REGISTRY = "nvcr.io/nvidia/ai-dynamo/"


def _component(server: ServerCommand, engine: _DynamoEngine) -> dict[str, object]:
    """Return the graph component of one worker pool: command, image, GPUs and replicas."""
    worker = server.worker
    model = server.model if isinstance(server.model, str) else server.model.name
    container = {
        "name": "main",
        "image": f"{_REGISTRY}{engine.image}-runtime:{_VERSION}",
        "command": ["python3", "-m", f"dynamo.{engine.framework}"],
        "args": engine.words(server, model),
        "envFrom": [{"secretRef": {"name": "hf-token-secret"}}],
        "resources": {"limits": {"nvidia.com/gpu": str(worker.gpus_per_node)}},
    }
    multinode = {"multinode": {"nodeCount": worker.num_nodes}} if worker.num_nodes > 1 else {}
    return {
        "name": worker.name,
        "type": _TYPES[worker.name],
        "replicas": worker.copies,
        **multinode,
        "podTemplate": {"spec": {"containers": [container]}},
    }


def _graph(
    job: LaunchJob, servers: tuple[ServerCommand, ...], engine: _DynamoEngine
) -> dict[str, object]:
    """Build the Kubernetes resource of a deployment: one frontend and the worker components."""
    container = {"name": "main", "image": f"{_REGISTRY}{engine.image}-runtime:{_VERSION}"}
    frontend = {
        "name": "Frontend",
        "type": "frontend",
        "replicas": 1,
        "podTemplate": {"spec": {"containers": [container]}},
    }
    workers = [_component(server, engine) for server in servers]
    return {
        "apiVersion": "nvidia.com/v1beta1",
        "kind": "DynamoGraphDeployment",
        "metadata": {"name": _kubernetes_name(job)},
        "spec": {"backendFramework": engine.framework, "components": [frontend, *workers]},
    }


def _kubernetes_name(job: LaunchJob) -> str:
    """A name of Kubernetes: small letters, digits and hyphens."""
    slug = re.sub(r"[^a-z0-9]+", "-", job.model.name.lower())[:40].strip("-")
    return slug if slug[:1].isalpha() else f"model-{slug}".strip("-")


def _draft(job: LaunchJob, settings: OptionTexts) -> LaunchDraft:
    """Build the Dynamo graph file of a job, with notes on the placeholders to replace."""
    engine = _ENGINES[job.profile.name]

    def quantities(worker: ServerGroup) -> Quantities:
        """Quantities of the engine without nodes: the operator connects them."""
        online = engine.module.ONLINE_QUANTIZATION
        return {**server_quantities(worker, engine.module.NAME, online), "num_nodes": None}

    servers = make_servers(job, engine.module.NAME, quantities, model_argument)
    unset = [server.model for server in servers if isinstance(server.model, ShellVariable)]
    texts = (option.text for server in servers for option in server.settings.options)
    if any(text in _DRAFT_METHODS for text in texts):
        draft_model = draft_model_argument(servers[0].worker.job)
        unset += [draft_model] if isinstance(draft_model, ShellVariable) else []
    port = f"kubectl port-forward svc/{_kubernetes_name(job)}-frontend 8000:8000"
    notes = [f"`{port}` lets the benchmark reach the frontend."]
    placeholders = {word.name: word for word in unset}.values()
    notes += [f"Replace {word.name} in the graph: {word.meaning}." for word in placeholders]
    # The frontend has OpenAI's API, whatever the engine.
    benchmark_process = make_benchmark(NAME, job, servers[-1].model)
    draft = make_draft(servers, (), benchmark=benchmark_process)
    # The engine's own table has further parameters without an option.
    draft = replace(
        draft,
        unexpressed=(*servers[-1].settings.unexpressed, *draft.unexpressed),
        notes=(*draft.notes, *notes),
    )
    start = f"kubectl apply -f {_GRAPH}"
    header = heading_lines(TARGET, job, replace(draft, left=settings.left), [], [start])
    text = "".join(f"{line}\n" for line in header) + yaml_text(_graph(job, servers, engine))
    graph = LaunchOutputFile(
        name=_GRAPH,
        text=text,
        meaning="the graph of workers, for the operator of Dynamo",
        start=start,
    )
    return replace(draft, files=(graph,))


TARGET = LaunchTarget.of(
    NAME,
    quantities=lambda job: {"pool": server_groups(job)[-1].name},
    draft=_draft,
    answers=read_settings,
)
