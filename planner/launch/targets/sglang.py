"""SGLang: ``sglang.launch_server`` and its options."""

from __future__ import annotations

from functools import partial

from planner.launch.read.serving_reader import (
    EngineReader,
    ServerSettings,
    merge_config,
    read_engine,
)
from planner.launch.target import (
    COPY,
    MASTER_ADDR,
    NODE_RANK,
    CommandWords,
    LaunchTarget,
    Process,
    ShellVariable,
)
from planner.launch.write.server_groups import PREFILL_POOL
from planner.launch.write.serving_writer import (
    ServerCommand,
    draft_arguments,
    make_routers,
    server_hooks,
    server_urls,
    target_modules,
)

NAME = "sglang"


def _set_experts_on_host(server: ServerSettings) -> None:
    """Set the experts that KTransformers keeps in host memory: all but some of each layer."""
    gpu_experts = server.reading.number("--kt-num-gpu-experts")
    model = server.model
    if gpu_experts is not None and model is not None and (experts := model.num_experts):
        server.set_experts_on_host(model, max(1 - gpu_experts / experts, 0))
        server.notes.append(
            "The plan reads all experts in host memory over the link in a step; KTransformers "
            "computes the chosen ones on the host: it is faster than predicted."
        )


_ENGINE = EngineReader(
    name=NAME,
    model_options=("--model-path", "--model"),
    prepare=merge_config,
    finish=_set_experts_on_host,
    switches=("--enable-lora", "--lora-paths"),
    host_cache="--enable-hierarchical-cache",
    weights_on_host="--cpu-offload-gb",
)
ONLINE_QUANTIZATION = {"fp8": True}
_ROUTER_NOTE = "sglang_router (pip install sglang-router) spreads the requests"
_MASTER_ADDRESS = ShellVariable(name=MASTER_ADDR.name, meaning=MASTER_ADDR.meaning, suffix=":20000")
# First port of the prefill workers on a node; each has its own.
_FIRST_PORT = 5000
_BOOTSTRAP = ShellVariable(name=COPY.name, meaning=COPY.meaning, times=1, plus=_FIRST_PORT)


def command_options(server: ServerCommand) -> list[CommandWords]:
    """Return the engine options of a server's command, without address and nodes."""
    options = ("--speculative-algorithm", "--speculative-draft-model-path")
    drafts = draft_arguments(server, "STANDALONE", *options, upper=True)
    return [*server.options, *drafts, *target_modules(server.worker.job, says_all=True)]


def _process(server: ServerCommand) -> Process:
    """Build the process of an SGLang server, with ports for prefill and several nodes."""
    worker = server.worker
    arguments = [*server.start, *command_options(server)]
    if worker.name == PREFILL_POOL:
        port = _BOOTSTRAP if worker.copies > 1 else str(_FIRST_PORT)
        arguments.append(CommandWords(words=("--disaggregation-bootstrap-port", port)))
    if worker.num_nodes > 1:
        arguments.append(CommandWords(words=("--node-rank", NODE_RANK)))
        arguments.append(CommandWords(words=("--dist-init-addr", _MASTER_ADDRESS)))
    return server.process(arguments)


def _router(servers: tuple[ServerCommand, ...]) -> list[Process]:
    """Return the SGLang router of replicas or of two pools; empty if one server needs none."""
    commands = ("python3", "-m", "sglang_router.launch_router"), ("--policy", "round_robin")
    pools = [
        CommandWords(words=("--prefill", url, str(_FIRST_PORT + copy)))
        for copy, url in enumerate(server_urls(servers[0].worker))
    ]
    pools += [CommandWords(words=("--decode", url)) for url in server_urls(servers[-1].worker)]
    program = [CommandWords(words=words) for words in commands]
    return make_routers(servers, program, "--pd-disaggregation", pools, _ROUTER_NOTE)


TARGET = LaunchTarget.of(
    NAME,
    answers=partial(read_engine, engine=_ENGINE),
    **server_hooks(NAME, process=_process, router=_router, online=ONLINE_QUANTIZATION),
)
