"""SGLang: ``sglang.launch_server`` and its options."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from planner.base.units import GIB
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
    MASTER_ADDR,
    NODE_RANK,
    Argument,
    Draft,
    Process,
    Target,
    Variable,
)
from planner.launch.targets.sglang_read import answers, starts

NAME = "sglang"
_ONLINE = {"fp8": True}
_WIDTHS = (1, 2, 4, 8)
_MOST_PREFILL_TOKENS = 16384
_ROUTER_NOTE = "sglang_router (pip install sglang-router) spreads the requests"
_HEAD = Variable(name=MASTER_ADDR.name, meaning=MASTER_ADDR.meaning, suffix=":20000")
# Each prefill worker of a node meets the others at a port of its own, counted from here.
_FIRST_PORT = 5000
_BOOTSTRAP = Variable(name=COPY.name, meaning=COPY.meaning, times=1, plus=_FIRST_PORT)


def worker_quantities(worker: Worker) -> dict[str, Any]:
    """What SGLang's table says of a worker."""
    values = common_quantities(worker)
    tokens, drafts = worker.max_num_batched_tokens, values["draft_tokens"]
    offloaded, on_host = values["offloaded_gib"], values["cache_on_host_gib"]
    steps = values["draft_steps"] or drafts
    decodes = worker.name == DECODE_POOL
    is_rounded = offloaded is not None and offloaded % 1
    return {
        **values,
        **with_online(worker, _ONLINE),
        "stage_gpus": worker.stage_gpus,
        "server_seqs": worker.max_num_seqs * worker.ranks,
        "server_step_tokens": None if decodes else tokens * worker.ranks,
        "most_prefill_tokens": tokens if tokens > _MOST_PREFILL_TOKENS and not decodes else None,
        "max_num_batched_tokens": worker.values["max_num_batched_tokens"] if decodes else None,
        "gpu_memory_utilization": worker.static_share,
        "offloaded_whole_gib": None if offloaded is None else math.ceil(offloaded),
        "weight_offload": worker.values["weight_offload"] if is_rounded else None,
        "cache_on_host_gb": None if on_host is None else math.ceil(on_host * GIB / 1e9),
        "draft_method": None if beside_table(worker.job) else values["draft_method"],
        "verified_tokens": None if drafts is None else drafts + 1,
        "draft_steps": steps,
        "tree_width": None if steps is None else _width(drafts, steps),
    }


def _width(drafts: int, steps: int) -> int:
    """Branches of a tree of so many tokens and steps; SGLang has 1, 2, 4 and 8."""
    wanted = -(-drafts // steps)
    return next((width for width in _WIDTHS if width >= wanted), _WIDTHS[-1])


def _quantities(job: Job) -> Mapping[str, Any]:
    return worker_quantities(workers_of(job)[-1])


def command_options(server: Server) -> list[Argument]:
    """The engine's options of a server, without where it listens and its nodes."""
    arguments = [Argument.of(setting) for setting in server.settings.options]
    if any(argument.words[1:] == ("STANDALONE",) for argument in arguments):
        named = draft_word(server.worker.job)
        arguments.append(Argument(words=("--speculative-draft-model-path", named)))
    job = server.worker.job
    options = ("--speculative-algorithm", "--speculative-draft-model-path")
    heads = method_arguments(job, *options, upper=True)
    return [*arguments, *heads, *target_modules(job, says_all=True)]


def _process(server: Server) -> Process:
    worker = server.worker
    arguments = [
        Argument(words=("python3", "-m", "sglang.launch_server")),
        Argument(words=("--model-path", server.model)),
        *server.listening,
        *command_options(server),
    ]
    if worker.name == PREFILL_POOL:
        arguments.append(Argument(words=("--disaggregation-bootstrap-port", _bootstrap(worker))))
    if worker.num_nodes > 1:
        arguments.append(Argument(words=("--node-rank", NODE_RANK)))
        arguments.append(Argument(words=("--dist-init-addr", _HEAD)))
    return server.process(arguments)


def _bootstrap(worker: Worker) -> str | Variable:
    return _BOOTSTRAP if worker.copies > 1 else str(_FIRST_PORT)


def _router(servers: tuple[Server, ...]) -> list[Process]:
    if not servers[0].has_router:
        return []
    program = ("python3", "-m", "sglang_router.launch_router")
    arguments = [Argument(words=program), Argument(words=("--policy", "round_robin"))]
    if len(servers) == 1:
        arguments.append(Argument(words=("--worker-urls", *urls(servers[0].worker))))
    else:
        prefill, decode = servers
        arguments.append(Argument(words=("--pd-disaggregation",)))
        arguments += [
            Argument(words=("--prefill", url, str(_FIRST_PORT + copy)))
            for copy, url in enumerate(urls(prefill.worker))
        ]
        arguments += [Argument(words=("--decode", url)) for url in urls(decode.worker)]
    arguments.append(Argument(words=("--host", "0.0.0.0", "--port", "8000")))
    return [router(tuple(arguments), _ROUTER_NOTE)]


def _draft(job: Job, _: Settings) -> Draft:
    servers = servers_of(job, OptionTable.load(NAME), worker_quantities, model_word)
    processes = (*map(_process, servers), *_router(servers))
    return draft_of(servers, processes, benchmark=benchmark(NAME, job, servers[-1].model))


TARGET = Target(
    name=NAME,
    title="SGLang",
    version="SGLang 0.5.23",
    workloads=("serve", "inference"),
    profiles=("SGLang",),
    quantities=_quantities,
    draft=_draft,
    answers=answers,
    starts=starts,
    accepted=("sglang-0.5.23",),
)
