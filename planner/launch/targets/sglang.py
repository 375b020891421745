"""SGLang: ``sglang.launch_server`` and its options."""

from __future__ import annotations

import math
from collections.abc import Mapping

from planner.base.units import GIB
from planner.launch.option_table import Quantities
from planner.launch.parsed_launch import LaunchSettings, OptionReader
from planner.launch.serving_reader import (
    DraftSettings,
    EngineReader,
    ServerSettings,
    find_model_by_name,
    parse_size,
    read_server,
    with_config,
)
from planner.launch.serving_writer import (
    AGGREGATED,
    DECODE_POOL,
    PREFILL_POOL,
    ServerCommand,
    ServerGroup,
    common_quantities,
    draft_word,
    method_arguments,
    router,
    server_hooks,
    target_modules,
    urls,
    with_online,
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
from planner.specs.model import ModelSpec

NAME = "sglang"
_OF_DOCUMENT = {
    *("tp-size", "dp-size", "ep-size", "mem-fraction-static", "chunked-prefill-size"),
    *("max-running-requests", "enable-dp-attention", "disaggregation-mode", "context-length"),
}


def matches_document(values: Mapping[str, object]) -> bool:
    """Whether a document has options of SGLang's server."""
    return len(_OF_DOCUMENT & {name.replace("_", "-") for name in values}) > 1


def read_settings(reading: OptionReader) -> LaunchSettings:
    """The deployment that a command starts."""
    reading = with_config(reading, _ENGINE)
    pool = reading.value("pool") or AGGREGATED
    told = read_server(reading, _ENGINE, pool)
    kept = reading.number("--kt-num-gpu-experts")  # KTransformers: of each layer, on the GPUs
    model = find_model_by_name(str(told.values.get("model") or ""))
    if kept is not None and model is not None and (experts := model.num_experts):
        told.put_experts_on_host(model, max(1 - kept / experts, 0), "KTransformers")
    return told.of_pool(pool)


def _layout(server: ServerSettings, _: ModelSpec | None) -> int:
    """Attention ranks are inside the tensor-parallel group; one server may have whole copies."""
    stage, pp = server.count("stage_gpus"), server.count("pipeline_parallel")
    ranks, copies = server.count("attention_data_parallel"), server.count("server_copies")
    if server.reading.has("--enable-dp-attention") and ranks == 1:
        ranks, copies = copies, 1
    # A dispatcher of tokens sets the size (`server_args.py`, 0.5.23, `_handle_a2a_moe`).
    named = server.reading.text("--moe-a2a-backend") not in (None, "none")
    dispatched = named or server.reading.value("spread_experts")
    server.values.update(
        tensor_parallel=max(stage // ranks, 1),
        pipeline_parallel=pp,
        attention_data_parallel=ranks,
        expert_parallel=stage if dispatched else server.count("expert_parallel"),
    )
    server.put_gpus(stage * pp * copies)
    if ranks > stage or stage % ranks:
        server.notes.append(f"--tp-size {stage} is not a multiple of its {ranks} attention ranks.")
    return ranks


def _drafts(reading: OptionReader) -> DraftSettings | None:
    """Tokens that are verified in a step count the one before the drafted ones."""
    method = reading.text("--speculative-algorithm") or ""
    if not reading.has("--speculative-algorithm"):
        return None
    verified = parse_size(reading.text("--speculative-num-draft-tokens"))
    steps = parse_size(reading.text("--speculative-num-steps"))
    width = parse_size(reading.text("--speculative-eagle-topk")) or 1
    is_tree = bool(verified and steps and width > 1 and verified > steps + 1)
    return DraftSettings(
        number=verified - 1 if verified and (is_tree or not steps) else steps or 3,
        steps=steps if is_tree else None,
        method=method,
        path=reading.text("--speculative-draft-model-path") or "",
        is_model=method == "STANDALONE",
    )


_ENGINE = EngineReader(
    name=NAME,
    model_options=("--model-path", "--model"),
    layout=_layout,
    drafts=_drafts,
    switches=("--enable-lora", "--lora-paths"),
    host_cache="--enable-hierarchical-cache",
    weights_on_host="--cpu-offload-gb",
    finds_prefixes=lambda reading: reading.value("pool") != PREFILL_POOL,
)
_ONLINE = {"fp8": True}
_WIDTHS = (1, 2, 4, 8)
_MOST_PREFILL_TOKENS = 16384
_ROUTER_NOTE = "sglang_router (pip install sglang-router) spreads the requests"
_HEAD = ShellVariable(name=MASTER_ADDR.name, meaning=MASTER_ADDR.meaning, suffix=":20000")
# Each prefill worker of a node meets the others at a port of its own, counted from here.
_FIRST_PORT = 5000
_BOOTSTRAP = ShellVariable(name=COPY.name, meaning=COPY.meaning, times=1, plus=_FIRST_PORT)


def worker_quantities(worker: ServerGroup) -> Quantities:
    """What SGLang's table says of a worker."""
    tokens, drafts = worker.max_num_batched_tokens, worker.drafts
    offloaded, on_host = worker.offloaded_gib, worker.cache_on_host_gib
    steps = drafts and int(worker.job["draft_steps"] or drafts)
    decodes = worker.name == DECODE_POOL
    # Branches of a tree of so many tokens and steps.
    wide = [each for each in _WIDTHS if steps and drafts and each * steps >= drafts]
    width = None if steps is None else next(iter(wide), _WIDTHS[-1])
    is_rounded = offloaded is not None and offloaded % 1
    return {
        **common_quantities(worker),
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
        "verified_tokens": None if drafts is None else drafts + 1,
        "draft_steps": steps,
        "tree_width": width,
    }


def command_options(server: ServerCommand) -> list[CommandWords]:
    """The engine's options of a server, without where it listens and its nodes."""
    arguments = [CommandWords.of(setting) for setting in server.settings.options]
    if any(argument.words[1:] == ("STANDALONE",) for argument in arguments):
        named = draft_word(server.worker.job)
        arguments.append(CommandWords(words=("--speculative-draft-model-path", named)))
    job = server.worker.job
    options = ("--speculative-algorithm", "--speculative-draft-model-path")
    heads = method_arguments(job, *options, upper=True)
    return [*arguments, *heads, *target_modules(job, says_all=True)]


def _process(server: ServerCommand) -> Process:
    worker = server.worker
    arguments = [
        CommandWords(words=("python3", "-m", "sglang.launch_server")),
        CommandWords(words=("--model-path", server.model)),
        *server.listening,
        *command_options(server),
    ]
    if worker.name == PREFILL_POOL:
        port = _BOOTSTRAP if worker.copies > 1 else str(_FIRST_PORT)
        arguments.append(CommandWords(words=("--disaggregation-bootstrap-port", port)))
    if worker.num_nodes > 1:
        arguments.append(CommandWords(words=("--node-rank", NODE_RANK)))
        arguments.append(CommandWords(words=("--dist-init-addr", _HEAD)))
    return server.process(arguments)


def _router(servers: tuple[ServerCommand, ...]) -> list[Process]:
    words = ("python3", "-m", "sglang_router.launch_router"), ("--policy", "round_robin")
    pools = [
        CommandWords(words=("--prefill", url, str(_FIRST_PORT + copy)))
        for copy, url in enumerate(urls(servers[0].worker))
    ]
    pools += [CommandWords(words=("--decode", url)) for url in urls(servers[-1].worker)]
    program = [CommandWords(words=each) for each in words]
    return router(servers, program, "--pd-disaggregation", pools, _ROUTER_NOTE)


TARGET = LaunchTarget.of(
    NAME,
    answers=read_settings,
    is_of=matches_document,
    **server_hooks(NAME, worker_quantities, _process, _router),
)
