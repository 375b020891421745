"""vLLM: ``vllm serve`` and its options."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from planner.launch.option_table import Quantities
from planner.launch.parsed_launch import LaunchSettings, OptionReader, version_of
from planner.launch.serving_reader import (
    DraftSettings,
    EngineReader,
    ServerSettings,
    json_table,
    parse_size,
    put_experts,
    read_server,
    scheduler_default_of,
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
    HOST_ADDRESS,
    MASTER_ADDR,
    MASTER_PORT,
    NODE_RANK,
    CommandWords,
    LaunchTarget,
    Process,
    ShellVariable,
)
from planner.specs.model import ModelSpec

NAME = "vllm"
_MODULES = (
    "vllm.entrypoints.openai.api_server",
    "vllm.entrypoints.api_server",
    "vllm.entrypoints.cli.main",
    "dynamo.vllm",
)
# Long options without their dashes, as no other tool spells them.
_OF_DOCUMENT = {
    *("tensor-parallel-size", "pipeline-parallel-size", "data-parallel-size", "max-num-seqs"),
    *("max-num-batched-tokens", "max-model-len", "gpu-memory-utilization", "kv-cache-dtype"),
    *("enable-expert-parallel", "no-enable-prefix-caching"),
}
_POOLS = {"kv_producer": PREFILL_POOL, "kv_consumer": DECODE_POOL}
_OFFLINE = ("LLM", "throughput", "latency", "benchmark_throughput.py", "benchmark_latency.py")
_SECOND_ENGINE = (0, 8)
# gpu_memory_utilization of vllm/config/cache.py of 0.25 and 0.33; 0.9 before.
_LARGER_SHARE, _SHARE = (0, 25), "0.92"
_LONG = 32_768  # config.py of 0.6: prompts of longer models are computed in chunks


def matches_command(words: Sequence[str]) -> bool:
    """Whether a command starts a server of vLLM."""
    first = [word.rsplit("/", 1)[-1] for word in words[:4]]
    if first[:1] == ["vllm"]:
        return first[1:2] == ["serve"] or (first[1:2] == ["bench"] and first[2:3] != ["serve"])
    if first[:1] and first[0] in _OFFLINE[-2:]:
        return True
    if any(word in _MODULES for word in first) and "bench" not in words:
        return "serve" in words or "vllm.entrypoints.cli.main" not in first
    return any(word.replace("\\", "/").endswith("openai/api_server.py") for word in words[:3])


def matches_document(values: Mapping[str, object]) -> bool:
    """Whether a document has options of ``vllm serve``, or of Triton's ``model.json`` for vLLM."""
    names = {name.replace("_", "-") for name in values}
    accepted = _ENGINE.accepts
    own = _OF_DOCUMENT & names
    is_sure = len(own) > 1 or own & {*values, "gpu-memory-utilization"}
    is_own = bool(is_sure) and all(accepted.find(f"--{one}") for one in names)
    return is_own or len(_OF_DOCUMENT & {*values}) > 1


def read_settings(reading: OptionReader) -> LaunchSettings:
    """The deployment that a command starts."""
    reading = with_config(reading, _ENGINE)
    told = read_server(reading, _ENGINE, AGGREGATED)
    pool, values = _pool(told), told.values
    version = version_of("vllm", reading.command)
    if version is None or version.parts >= _LARGER_SHARE:  # without one it is the newest
        why = f"--gpu-memory-utilization is {_SHARE} by default from 0.25 on"
        told.assume("gpu_memory_utilization", _SHARE, why)
    if pool == AGGREGATED:
        # A rank samples as many sequences at its start as it may run at once, however few find
        # room, and has less cache for that (`gpu_model_runner.py`, `_dummy_sampler_run`). Two pools
        # of one plan have no number each.
        values["max_num_seqs"] = values["concurrency"] // values["attention_data_parallel"]
    return told.of_pool(pool)


_PARTITION = "VLLM_PP_LAYER_PARTITION"


def _note_stages(server: ServerSettings, stages: int) -> None:
    """That a file deals the layers unevenly, which is predicted as if it did not."""
    given = server.reading.command.environment.get(_PARTITION)
    layers = [parse_size(part) or 0 for part in ((given and given.single) or "").split(",")]
    if stages > 1 and max(layers) > -(-sum(layers) // stages):
        server.notes.append(
            f"{_PARTITION} gives the stages {', '.join(map(str, layers))} layers; even stages are "
            f"predicted. The fullest GPU has {max(layers) * stages / sum(layers):.2f} x the "
            "weights and cache per layer of an even stage: less room and a slower pipeline."
        )


def _layout(server: ServerSettings, model: ModelSpec | None) -> int:
    """Ranks of a dense model know nothing of each other."""
    tp, pp = server.count("tensor_parallel"), server.count("pipeline_parallel")
    dp = server.count("attention_data_parallel")
    is_dense = model is not None and not model.num_experts
    ranks = 1 if is_dense else dp
    server.values.update(tensor_parallel=tp, pipeline_parallel=pp, attention_data_parallel=ranks)
    server.put_gpus(tp * pp * dp)
    if is_dense and dp > 1:
        server.notes.append(f"The {dp} data-parallel ranks of a dense model are replicas.")
    put_experts(server, model, tp * dp)
    _note_stages(server, pp)
    return ranks


def _is_first_engine(reading: OptionReader) -> bool:
    """Whether the file names a version before 0.8, which has other defaults."""
    version = version_of("vllm", reading.command)
    return version is not None and version.parts < _SECOND_ENGINE


def _first_batch(server: ServerSettings, model: ModelSpec | None, ranks: int) -> None:
    """What a program without a server, or the engine before 0.8, takes where no batch is given.

    Prompts are computed whole, unless they may be long: then in chunks.
    """
    positional = server.reading.command.positional
    words = {
        (text or "").rsplit("/", 1)[-1] for word_option in positional for text in word_option.texts
    }
    if words & {*_OFFLINE} and server.reading.value("max_num_batched_tokens") is None:
        step, why = scheduler_default_of(server, _ENGINE, "offline_batched_tokens")
        server.assume("max_num_batched_tokens", step, why)
    if not _is_first_engine(server.reading):
        return
    seqs = parse_size(server.reading.value("max_num_seqs"))
    if seqs is None:
        seqs = 256
        server.assume("concurrency", seqs * ranks, "--max-num-seqs is 256 by default before 0.8")
    if parse_size(server.reading.value("max_num_batched_tokens")) is None:
        most = parse_size(server.reading.value("max_model_len"))
        most = most or (model.max_position_embeddings if model else None) or 0
        tokens = max(2048, most if most <= _LONG else 0, seqs)
        why = f"--max-num-batched-tokens is {tokens:,} by default before 0.8"
        server.assume("max_num_batched_tokens", tokens, why)


def _longest(server: ServerSettings, model: ModelSpec | None) -> None:
    """The longest request, which vLLM has room for or does not start; -1 and auto: what fits."""
    given = server.reading.value("max_model_len")
    if parse_size(given):
        server.values["max_model_len"] = parse_size(given)
    elif given is None and model is not None and model.max_position_embeddings:
        why = "--max-model-len is the model's positions by default"
        server.assume("max_model_len", model.max_position_embeddings, why)


def _drafts(reading: OptionReader) -> DraftSettings | None:
    config = json_table(reading.text("--speculative-config"))
    number = parse_size(reading.value("draft_tokens")) or 0
    given = config.get("num_speculative_tokens")
    if isinstance(given, int) and not isinstance(given, bool):
        number = given
    method = config.get("method") or reading.text("--spec-method")
    path = config.get("model") or reading.text("--spec-model")
    if not number:
        return None
    return DraftSettings(
        number=number,
        method=str(method or ""),
        path=str(path or ""),
        is_model=method in (None, "draft_model"),
    )


def _pool(server: ServerSettings) -> str:
    reading = server.reading
    config = {**json_table(reading.text("--kv-transfer-config"))}
    given = reading.command.options.get("--kv-transfer-config")
    if given is not None and given.full_span is not None and None in given.texts:
        # Of a text with a port that the script counts the role is told all the same.
        part = reading.command.text[given.full_span.start : given.full_span.end]
        config["kv_role"] = next(iter(re.findall(r"kv_role\W+(kv_\w+)", part)), None)
    mode = reading.text("--disaggregation-mode")
    if mode in (PREFILL_POOL, DECODE_POOL):
        return mode
    if reading.has("--is-prefill-worker"):
        return PREFILL_POOL
    if reading.has("--is-decode-worker"):
        return DECODE_POOL
    if config.get("kv_role") == "kv_both":
        server.notes.append(
            "kv_role is kv_both: only the router knows whether it computes prompts or answers; it "
            "is read as both."
        )
    return _POOLS.get(str(config.get("kv_role")), AGGREGATED)


_ENGINE = EngineReader(
    name=NAME,
    model_options=("--model", "--model-tag"),
    programs=(
        *_OFFLINE,
        "AsyncEngineArgs",
        "EngineArgs",
        "vllm",
        "serve",
        "bench",
        "python",
        "python3",
        "env",
        "-m",
        *_MODULES,
    ),
    layout=_layout,
    batch=_first_batch,
    drafts=_drafts,
    longest=_longest,
    switches=("--enable-lora",),
    host_cache="--kv-offloading-size",
    weights_on_host="--cpu-offload-gb",
    finds_prefixes=lambda reading: (
        reading.has("--enable-prefix-caching") or not _is_first_engine(reading)
    ),
)
# Of all matrices, or of experts alone.
_ONLINE = {"fp8": True, "fp8_block": True, "w8a16": False, "nvfp4": False}
_LORA_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
# Each copy needs some ports of its own on a node, counted from here, below those that systems
# hand out.
_SIDE_CHANNEL = {PREFILL_POOL: 16000, DECODE_POOL: 24000}
_PORTS_OF_COPY = 10
_ROUTER_NOTE = "vllm-router (pip install vllm-router) spreads the requests"


def worker_quantities(worker: ServerGroup) -> Quantities:
    """What vLLM's table says of a worker."""
    experts, stage = int(worker.values["expert_parallel"]), worker.stage_gpus
    on_host, rank = worker.cache_on_host_gib, worker.lora_rank
    rounded = next((known for known in _LORA_RANKS if known >= (rank or 0)), _LORA_RANKS[-1])
    return {
        **common_quantities(worker),
        **with_online(worker, _ONLINE),
        "expert_parallel": None if experts in (1, stage) else experts,
        "splits_experts": experts > 1 and experts == stage,
        "gpu_memory_utilization": worker.total_share,
        "cache_on_host_total_gib": None if on_host is None else on_host * worker.num_gpus,
        "lora_rank": rounded if rank else None,
        "adapters": rank if rank and rank != rounded else None,
    }


def command_options(server: ServerCommand) -> list[CommandWords]:
    """The engine's options of a server, without where it listens and its nodes."""
    arguments = [CommandWords.of(setting) for setting in server.settings.options]
    drafts = any(argument.words[1:] == ("draft_model",) for argument in arguments)
    named = CommandWords(words=("--spec-model", draft_word(server.worker.job)))
    job = server.worker.job
    heads = method_arguments(job, "--spec-method", "--spec-model", upper=False)
    adapted = target_modules(job, says_all=False)
    return [*arguments, *([named] if drafts else []), *heads, *adapted]


def _process(server: ServerCommand) -> Process:
    worker = server.worker
    arguments = [CommandWords(words=("vllm", "serve", server.model))]
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
    arguments += [*server.listening, *command_options(server)]
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
    program = [CommandWords(words=("vllm-router", "--policy", "round_robin"))]
    pools = [
        CommandWords(words=(f"--{server.worker.name}", url))
        for server in servers
        for url in urls(server.worker)
    ]
    return router(servers, program, "--vllm-pd-disaggregation", pools, _ROUTER_NOTE)


TARGET = LaunchTarget.of(
    NAME,
    answers=read_settings,
    starts=matches_command,
    is_of=matches_document,
    **server_hooks(NAME, worker_quantities, _process, _router),
)
