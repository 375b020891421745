"""vLLM: ``vllm serve`` and its options."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from planner.base.units import ceil_div
from planner.launch.read.serving_reader import (
    EngineReader,
    ServerSettings,
    merge_config,
    parse_size,
    read_engine,
    scheduler_default_of,
)
from planner.launch.target import (
    COPY,
    HOST_ADDRESS,
    MASTER_ADDR,
    MASTER_PORT,
    NODE_RANK,
    CommandWords,
    LaunchTarget,
    Process,
    ShellVariable,
)
from planner.launch.write.server_groups import AGGREGATED, DECODE_POOL, PREFILL_POOL
from planner.launch.write.serving_writer import (
    ServerCommand,
    draft_arguments,
    make_routers,
    server_hooks,
    server_urls,
    target_modules,
)
from planner.specs.model import ModelSpec

NAME = "vllm"
_MODULES = (
    "vllm.entrypoints.openai.api_server",
    "vllm.entrypoints.api_server",
    "vllm.entrypoints.cli.main",
    "dynamo.vllm",
)
# Long options without dashes, in the spelling of vLLM only.
_DOCUMENT_KEYS = {
    *("tensor-parallel-size", "pipeline-parallel-size", "data-parallel-size", "max-num-seqs"),
    *("max-num-batched-tokens", "max-model-len", "gpu-memory-utilization", "kv-cache-dtype"),
    *("enable-expert-parallel", "no-enable-prefix-caching"),
}
_POOLS = {"kv_producer": PREFILL_POOL, "kv_consumer": DECODE_POOL}
_OFFLINE = ("LLM", "throughput", "latency", "benchmark_throughput.py", "benchmark_latency.py")


def matches_document(values: Mapping[str, object]) -> bool:
    """Return whether a document has ``vllm serve`` options, or is Triton's for vLLM."""
    keys = {name.replace("_", "-") for name in values}
    accepted = _ENGINE.accepts
    document_keys = _DOCUMENT_KEYS & keys
    is_certain = len(document_keys) > 1 or document_keys & {*values, "gpu-memory-utilization"}
    is_config = bool(is_certain) and all(accepted.find(f"--{key}") for key in keys)
    return is_config or len(_DOCUMENT_KEYS & {*values}) > 1


_PARTITION = "VLLM_PP_LAYER_PARTITION"


def _set_uneven_stages(server: ServerSettings, stages: int) -> None:
    """Set the layers of the fullest stage if the file splits layers unevenly; add a note."""
    partition = server.reading.command.environment.get(_PARTITION)
    layers = [parse_size(part) or 0 for part in ((partition and partition.single) or "").split(",")]
    if stages > 1 and max(layers) > ceil_div(sum(layers), stages):
        server.values["stage_layers"] = max(layers)
        server.notes.append(
            f"{_PARTITION} gives the stages {', '.join(map(str, layers))} layers: memory and the "
            f"slowest stage are those of {max(layers)} layers."
        )


def _assume_batch(server: ServerSettings, _: ModelSpec | None, __: int) -> None:
    """Set the default batch of offline programs, and the layers of uneven stages."""
    words = {word.rsplit("/", 1)[-1] for word in server.reading.command.words}
    if words & {*_OFFLINE} and server.reading.value("max_num_batched_tokens") is None:
        step_tokens, reason = scheduler_default_of(server, _ENGINE, "offline_batched_tokens")
        server.values["max_num_batched_tokens"] = step_tokens
        server.defaults["max_num_batched_tokens"] = reason
    _set_uneven_stages(server, int(server.values["pipeline_parallel"]))


def _read_pool(server: ServerSettings) -> str:
    """Return the server's pool: prefill, decode, or both in one; note an undecided role."""
    reading = server.reading
    if pool := reading.value("pool"):
        return pool
    role = reading.text("--kv-transfer-config.kv_role")
    option = reading.command.options.get("--kv-transfer-config")
    if option is not None and option.full_span is not None and None in option.texts:
        # The role is readable even if the script computes a port in the same text.
        text = reading.command.text[option.full_span.start : option.full_span.end]
        role = next(iter(re.findall(r"kv_role\W+(kv_\w+)", text)), None)
    if role == "kv_both":
        server.notes.append(
            "kv_role is kv_both: only the router knows whether it is a prefill or decode worker. "
            "It is read as both."
        )
    return _POOLS.get(str(role), AGGREGATED)


_ENGINE = EngineReader(
    name=NAME,
    model_options=("--model", "--model-tag"),
    programs=(
        *(*_OFFLINE, "AsyncEngineArgs", "EngineArgs", "vllm", "serve", "bench"),
        *("python", "python3", "env", "-m", *_MODULES),
    ),
    prepare=merge_config,
    batch=_assume_batch,
    # At its start a rank samples max_num_seqs sequences, however few fit, and has less cache for
    # that (`gpu_model_runner.py`, `_dummy_sampler_run`). A plan with two pools has no number for
    # each.
    has_rank_limit=True,
    finish=_read_pool,
    switches=("--enable-lora",),
    host_cache="--kv-offloading-size",
    weights_on_host="--cpu-offload-gb",
)
# Online quantization, and whether it covers all matrices or only experts.
ONLINE_QUANTIZATION = {"fp8": True, "fp8_block": True, "w8a16": False, "nvfp4": False}
# First port of the copies on a node, below the ports that systems assign.
_SIDE_CHANNEL = {PREFILL_POOL: 16000, DECODE_POOL: 24000}
_PORTS_OF_COPY = 10
_ROUTER_NOTE = "vllm-router (pip install vllm-router) spreads the requests"


def command_options(server: ServerCommand) -> list[CommandWords]:
    """Return the engine options of a server's command, without address and nodes."""
    job = server.worker.job
    drafts = draft_arguments(server, "draft_model", "--spec-method", "--spec-model", upper=False)
    return [*server.options, *drafts, *target_modules(job, says_all=False)]


def _process(server: ServerCommand) -> Process:
    """Build the vLLM process, with ports for KV-cache transfer and options for several nodes."""
    worker = server.worker
    arguments = [*server.start, *command_options(server)]
    if worker.name in _SIDE_CHANNEL:
        channel = "VLLM_NIXL_SIDE_CHANNEL_"
        first = _SIDE_CHANNEL[worker.name]
        port: str | ShellVariable = f"{channel}PORT={first}"
        if worker.copies > 1:
            port = replace(COPY, prefix=f"{channel}PORT=", times=_PORTS_OF_COPY, plus=first)
        host = ShellVariable(
            name=HOST_ADDRESS.name, meaning=HOST_ADDRESS.meaning, prefix=f"{channel}HOST="
        )
        arguments.insert(0, CommandWords(words=("env", port, host)))
    followers: tuple[CommandWords, ...] = ()
    if worker.num_nodes > 1:
        arguments += [
            CommandWords(words=("--node-rank", NODE_RANK)),
            CommandWords(words=("--master-addr", MASTER_ADDR)),
            CommandWords(words=("--master-port", MASTER_PORT)),
        ]
        followers = (CommandWords(words=("--headless",), note="the first node answers requests"),)
    return server.process(arguments, follower_arguments=followers)


def _router(servers: tuple[ServerCommand, ...]) -> list[Process]:
    """Return the vLLM router of replicas or of two pools; empty if one server needs none."""
    program = [CommandWords(words=("vllm-router", "--policy", "round_robin"))]
    pools = [
        CommandWords(words=(f"--{server.worker.name}", url))
        for server in servers
        for url in server_urls(server.worker)
    ]
    return make_routers(servers, program, "--vllm-pd-disaggregation", pools, _ROUTER_NOTE)


TARGET = LaunchTarget.of(
    NAME,
    answers=partial(read_engine, engine=_ENGINE),
    is_of=matches_document,
    **server_hooks(NAME, process=_process, router=_router, online=ONLINE_QUANTIZATION),
)
