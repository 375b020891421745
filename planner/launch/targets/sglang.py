"""SGLang: ``sglang.launch_server`` and its options."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from planner.launch.accepted import Accepted
from planner.launch.adapters import put_adapters, target_modules
from planner.launch.drafting import beside_table, draft_word, method_arguments
from planner.launch.job import Job
from planner.launch.option_table import OptionTable, Settings
from planner.launch.pools import Server, draft_of, servers_of
from planner.launch.served import (
    Told,
    known_gpu,
    note_lengths,
    put_draft_method,
    put_draft_model,
    put_model,
    put_offload,
    put_quantization,
    whole,
    with_config,
)
from planner.launch.serving import (
    AGGREGATED,
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
from planner.launch.understood import Answers, Reading
from planner.specs.model import ModelSpec
from planner.units import GIB

_TABLE = OptionTable.load("sglang")
_ACCEPTED = Accepted.of(("sglang-0.5.23",), _TABLE)
_MODULES = ("sglang.launch_server", "dynamo.sglang")
_MODEL_OPTIONS = ("--model-path", "--model")
_SEQS = 256
# Of a step by memory of the GPU: memory_hook.py of 0.5.23.
_STEPS = ((160, 16384), (60, 8192), (20, 4096), (0, 2048))


def starts(words: Sequence[str]) -> bool:
    """Whether a command starts a server of SGLang."""
    first = [word.rsplit("/", 1)[-1] for word in words[:4]]
    if first[:2] == ["sglang", "serve"]:
        return True
    return any(word in _MODULES or word == "launch_server.py" for word in first)


def answers(reading: Reading) -> Answers:
    """The deployment that a command starts."""
    reading = with_config(reading, _ACCEPTED, _TABLE)
    told = Told(reading=reading)
    name = next((reading.text(one) for one in _MODEL_OPTIONS if reading.text(one)), None)
    model = put_model(told, name)
    told.take("-m", *_MODEL_OPTIONS, "--served-model-name", "--config")
    told.values["engine"] = "sglang"
    stage, pp = told.count("stage_gpus"), told.count("pipeline_parallel")
    ranks, replicas = _ranks(told)
    told.values.update(
        tensor_parallel=max(stage // ranks, 1),
        pipeline_parallel=pp,
        attention_data_parallel=ranks,
        expert_parallel=told.count("expert_parallel"),
    )
    told.put_gpus(stage * pp * replicas)
    if ranks > stage or stage % ranks:
        told.notes.append(f"--tp-size {stage} is no multiple of its {ranks} attention ranks.")
    put_quantization(told, name, model)
    told.copy("kv_cache")
    pool = reading.value("pool") or AGGREGATED
    _put_batch(told, ranks, pool)
    _put_drafts(told, model)
    if reading.has("--enable-lora") or reading.has("--lora-paths"):
        put_adapters(told, "--max-loras-per-batch", 16)
        told.take("--lora-paths")
    told.copy("gpu_memory_utilization")
    put_offload(told, model, "--cpu-offload-gb")
    if reading.has("--enable-hierarchical-cache"):
        told.take("--enable-hierarchical-cache", "--hicache-ratio", "--hicache-size")
        told.notes.append(
            "What leaves the cache of a GPU is kept in host memory; its share is not known."
        )
    note_lengths(told, whole(reading.value("max_model_len")))
    return told.answers(pool)


def _ranks(told: Told) -> tuple[int, int]:
    """Attention ranks inside the tensor-parallel group, and whole copies in one server."""
    reading = told.reading
    told.take("--enable-dp-attention", "--load-balance-method")
    ranks, copies = told.count("attention_data_parallel"), told.count("server_copies")
    if reading.has("--enable-dp-attention") and ranks == 1:
        return copies, 1
    return ranks, copies


def _put_batch(told: Told, ranks: int, pool: str) -> None:
    reading = told.reading
    seqs = whole(reading.value("server_seqs"))
    if seqs is None:
        why = "as many as the cache has room for; without --max-running-requests 256 are assumed"
        told.assume("concurrency", max(_SEQS, ranks), why)
    else:
        told.values["concurrency"] = seqs
    tokens = whole(reading.value("server_step_tokens"))
    if pool == DECODE_POOL:
        each = -(-int(told.values["concurrency"]) // ranks)
        told.assume("max_num_batched_tokens", each, "one token of each request of a rank")
    elif tokens is None:
        gpu = known_gpu(reading.found.world.gpu)
        size = gpu.memory_capacity / GIB if gpu else 80.0
        step = next(tokens for least, tokens in _STEPS if size >= least)
        why = f"--chunked-prefill-size is {step:,} by default on GPUs of {size:.0f} GiB"
        told.assume("max_num_batched_tokens", max(step // ranks, 1), why)
    else:
        told.values["max_num_batched_tokens"] = max(tokens // ranks, 1)
    if reading.value("enforce_eager") == "true":
        told.values["enforce_eager"] = True
    if copies := whole(reading.value("redundant_experts")):
        told.values["redundant_experts"] = copies
    if reading.value("prefix_caching") == "true" and pool != PREFILL_POOL:
        told.notes.append(
            "Prefixes are cached: give --prefix-cache-hit-rate, the share of prompts found there."
        )


def _put_drafts(told: Told, model: ModelSpec | None) -> None:
    reading = told.reading
    options = ("algorithm", "num-draft-tokens", "num-steps", "eagle-topk", "draft-model-path")
    told.take(*(f"--speculative-{option}" for option in options))
    if not reading.has("--speculative-algorithm"):
        return
    verified = whole(reading.text("--speculative-num-draft-tokens"))
    steps = whole(reading.text("--speculative-num-steps"))
    width = whole(reading.text("--speculative-eagle-topk")) or 1
    is_tree = bool(verified and steps and width > 1 and verified > steps + 1)
    number = verified - 1 if verified and (is_tree or not steps) else steps or 3
    told.values["draft_tokens"] = number
    if is_tree:
        told.values["draft_steps"] = steps
    algorithm = reading.text("--speculative-algorithm")
    path = reading.text("--speculative-draft-model-path")
    if algorithm == "STANDALONE":
        put_draft_model(told, path)
    else:
        put_draft_method(told, algorithm, path, model)
    told.notes.append(
        "Tokens are drafted: give --acceptance-rate, the probability that one is accepted."
    )


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
        arguments.append(
            Argument(
                words=(
                    "--disaggregation-bootstrap-port",
                    (_BOOTSTRAP if worker.copies > 1 else str(_FIRST_PORT)),
                )
            )
        )
    if worker.num_nodes > 1:
        arguments.append(Argument(words=("--node-rank", NODE_RANK)))
        arguments.append(Argument(words=("--dist-init-addr", _HEAD)))
    return server.process(arguments)


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
