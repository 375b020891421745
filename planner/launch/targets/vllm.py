"""vLLM: ``vllm serve`` and its options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from planner.launch.adapters import target_modules
from planner.launch.drafting import beside_table, draft_word, method_arguments
from planner.launch.job import Job
from planner.launch.option_table import OptionTable, Settings
from planner.launch.pools import Server, draft_of, servers_of
from planner.launch.serving import (
    DECODE_POOL,
    PREFILL_POOL,
    Worker,
    benchmark,
    common_quantities,
    model_word,
    router,
    urls,
    with_online,
    workers_of,
)
from planner.launch.target import (
    COPY,
    HOST_ADDRESS,
    MASTER_ADDR,
    MASTER_PORT,
    NODE_RANK,
    Argument,
    Draft,
    Process,
    Target,
    Variable,
)
from planner.launch.targets.vllm_read import answers, is_of, starts

NAME = "vllm"
# Of all matrices, or of experts alone.
_ONLINE = {"fp8": True, "fp8_block": True, "w8a16": False, "nvfp4": False}
_LORA_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
# Each copy needs some ports of its own on a node, counted from here, below those that systems
# hand out.
_SIDE_CHANNEL = {PREFILL_POOL: 16000, DECODE_POOL: 24000}
_PORTS_OF_COPY = 10
_ROUTER_NOTE = "vllm-router (pip install vllm-router) spreads the requests"


def worker_quantities(worker: Worker) -> dict[str, Any]:
    """What vLLM's table says of a worker."""
    values = common_quantities(worker)
    experts, stage = int(values["expert_parallel"]), worker.stage_gpus
    on_host, rank = values["cache_on_host_gib"], values["lora_rank"]
    rounded = next((known for known in _LORA_RANKS if known >= (rank or 0)), _LORA_RANKS[-1])
    return {
        **values,
        **with_online(worker, _ONLINE),
        "expert_parallel": None if experts in (1, stage) else experts,
        "splits_experts": experts > 1 and experts == stage,
        "gpu_memory_utilization": worker.total_share,
        "cache_on_host_total_gib": None if on_host is None else on_host * worker.num_gpus,
        "draft_method": None if beside_table(worker.job) else values["draft_method"],
        "lora_rank": rounded if rank else None,
        "adapters": rank if rank and rank != rounded else None,
    }


def _quantities(job: Job) -> Mapping[str, Any]:
    return worker_quantities(workers_of(job)[-1])


def command_options(server: Server) -> list[Argument]:
    """The engine's options of a server, without where it listens and its nodes."""
    arguments = [Argument.of(setting) for setting in server.settings.options]
    drafts = any(argument.words[1:] == ("draft_model",) for argument in arguments)
    named = Argument(words=("--spec-model", draft_word(server.worker.job)))
    job = server.worker.job
    heads = method_arguments(job, "--spec-method", "--spec-model", upper=False)
    adapted = target_modules(job, says_all=False)
    return [*arguments, *([named] if drafts else []), *heads, *adapted]


def _process(server: Server) -> Process:
    worker = server.worker
    arguments = [Argument(words=("vllm", "serve", server.model))]
    if worker.name in _SIDE_CHANNEL:
        channel = "VLLM_NIXL_SIDE_CHANNEL_"
        first = _SIDE_CHANNEL[worker.name]
        port: str | Variable = f"{channel}PORT={first}"
        if worker.copies > 1:
            port = replace(COPY, prefix=f"{channel}PORT=", times=_PORTS_OF_COPY, plus=first)
        host = Variable(
            name=HOST_ADDRESS.name, meaning=HOST_ADDRESS.meaning, prefix=f"{channel}HOST="
        )
        arguments.insert(0, Argument(words=("env", port, host)))
    arguments += [*server.listening, *command_options(server)]
    followers: tuple[Argument, ...] = ()
    if worker.num_nodes > 1:
        arguments.append(Argument(words=("--node-rank", NODE_RANK)))
        arguments.append(Argument(words=("--master-addr", MASTER_ADDR)))
        arguments.append(Argument(words=("--master-port", MASTER_PORT)))
        followers = (Argument(words=("--headless",), note="the first node answers requests"),)
    return server.process(arguments, follower_arguments=followers)


def _router(servers: tuple[Server, ...]) -> list[Process]:
    if not servers[0].has_router:
        return []
    arguments = [Argument(words=("vllm-router", "--policy", "round_robin"))]
    if len(servers) == 1:
        arguments.append(Argument(words=("--worker-urls", *urls(servers[0].worker))))
    else:
        arguments.append(Argument(words=("--vllm-pd-disaggregation",)))
        arguments += [
            Argument(words=(f"--{server.worker.name}", url))
            for server in servers
            for url in urls(server.worker)
        ]
    arguments.append(Argument(words=("--host", "0.0.0.0", "--port", "8000")))
    return [router(tuple(arguments), _ROUTER_NOTE)]


def _draft(job: Job, _: Settings) -> Draft:
    servers = servers_of(job, OptionTable.load(NAME), worker_quantities, model_word)
    processes = (*map(_process, servers), *_router(servers))
    return draft_of(servers, processes, benchmark=benchmark(NAME, job, servers[-1].model))


TARGET = Target(
    name=NAME,
    title="vLLM",
    version="vLLM 0.33.0",
    workloads=("serve", "inference"),
    profiles=("vLLM",),
    quantities=_quantities,
    draft=_draft,
    answers=answers,
    starts=starts,
    is_of=is_of,
    accepted=("vllm-0.33.0",),
)
