"""TensorRT-LLM: ``trtllm-serve`` and the YAML of its further options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from planner.base.units import GIB
from planner.launch.drafting import draft_word
from planner.launch.job import Job
from planner.launch.option_table import OptionTable, Remark, Settings
from planner.launch.pools import Server, draft_of, servers_of
from planner.launch.serving import (
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
from planner.launch.target import Argument, Draft, File, Process, Target, Variable
from planner.launch.targets.tensorrt_llm_read import answers, is_of, starts
from planner.launch.yaml_text import yaml_text

NAME = "tensorrt-llm"
_ROUTER_NOTE = "trtllm-serve disaggregated takes the requests of both pools"
_SCRIPT = (
    'printf "%s\\n" "$@" > disaggregated.yaml; '
    "exec trtllm-serve disaggregated -c disaggregated.yaml"
)


def worker_quantities(worker: Worker) -> dict[str, Any]:
    """What TensorRT-LLM's table says of a worker."""
    values = common_quantities(worker)
    drafts, on_host = values["draft_tokens"], values["cache_on_host_gib"]
    splits = worker.ranks > 1 and worker.ranks == worker.stage_gpus
    uses_modules = values["draft_method"] == "mtp"
    return {
        **values,
        **with_online(worker, {}),
        "stage_gpus": worker.stage_gpus,
        "splits_requests": splits,
        "attention_data_parallel": worker.ranks if worker.ranks > 1 and not splits else None,
        "max_num_seqs": worker.max_num_seqs if splits else int(worker.values["concurrency"]),
        "chunked_prefill": bool(worker.job.profile.scheduler.chunked_prefill),
        "gpu_memory_utilization": worker.free_share,
        "weight_offload": worker.values["weight_offload"],
        "host_cache_bytes": None if on_host is None else round(on_host * GIB),
        "mtp_tokens": drafts if uses_modules else None,
        "draft_tokens": None if uses_modules else drafts,
    }


def _quantities(job: Job) -> Mapping[str, Any]:
    return worker_quantities(workers_of(job)[-1])


def document(server: Server) -> dict[str, Any]:
    """What stands in the YAML of a server: the options that are keys."""
    found: dict[str, Any] = {}
    for setting in server.settings.options:
        if setting.option.startswith("--"):
            continue
        section = found
        *sections, key = setting.option.split(".")
        for name in sections:
            section = section.setdefault(name, {})
        section[key] = _typed(setting.text or "")
    if "max_draft_len" in found.get("speculative_config", {}):
        drafts = draft_word(server.worker.job)
        word = drafts if isinstance(drafts, str) else drafts.name
        found["speculative_config"]["speculative_model"] = word
    return found


def _typed(text: str) -> str | int | bool:
    if text in ("true", "false"):
        return text == "true"
    return int(text) if text.isdigit() else text


def _process(server: Server) -> Process:
    worker = server.worker
    arguments = [
        Argument(words=("trtllm-serve", server.model)),
        *server.listening,
        *(Argument.of(one) for one in server.settings.options if one.option.startswith("--")),
        Argument(words=("--config", f"{worker.name}.yaml")),
    ]
    if worker.num_nodes == 1:
        return server.process(arguments)
    arguments.insert(0, Argument(words=("trtllm-llmapi-launch",)))
    return server.process(arguments, launcher="mpirun")


def _file(server: Server) -> File:
    notes = {setting.option: setting.note for setting in server.settings.options if setting.note}
    return File(
        name=f"{server.worker.name}.yaml",
        text=yaml_text(document(server), notes),
        meaning=f"further options of {server.worker.name}",
    )


def _router(servers: tuple[Server, ...]) -> list[Process]:
    if len(servers) == 1:
        return []
    lines: list[str | Variable] = ["hostname: 0.0.0.0", "port: 8000", "backend: pytorch"]
    for server in servers:
        kind = "context" if server.worker.name == PREFILL_POOL else "generation"
        lines += [f"{kind}_servers:", f"  num_instances: {server.worker.copies}", "  urls:"]
        lines += _addresses(server)
    arguments = (
        Argument(words=("sh", "-c", _SCRIPT, "sh"), note="each word below is a line of its YAML"),
        *(Argument(words=(line,)) for line in lines),
    )
    return [router(arguments, _ROUTER_NOTE)]


def _addresses(server: Server) -> list[Variable]:
    """HOST:PORT of every copy, as lines of YAML."""
    return [
        Variable(
            name=url.name.replace("_URL_", "_HOST_"),
            meaning=url.meaning,
            prefix='    - "',
            suffix=f':{server.port + copy}"',
        )
        for copy, url in enumerate(urls(server.worker))
    ]


def _asked(servers: tuple[Server, ...]) -> tuple[Remark, ...]:
    """The word of the YAML that the user replaces, where no name of the draft is known."""
    word = draft_word(servers[0].worker.job)
    if isinstance(word, str) or not any(word.name in str(document(one)) for one in servers):
        return ()
    return (
        Remark(
            parameter="speculative_config.speculative_model",
            value="",
            note=f"{word.meaning}: replace {word.name} in the YAML",
        ),
    )


def _draft(job: Job, _: Settings) -> Draft:
    servers = servers_of(
        job, OptionTable.load(NAME), worker_quantities, model_word, routes_replicas=False
    )
    processes = (*map(_process, servers), *_router(servers))
    return draft_of(
        servers,
        processes,
        files=tuple(map(_file, servers)),
        benchmark=benchmark(NAME, job, servers[-1].model, routes_replicas=False),
        left=_asked(servers),
    )


TARGET = Target(
    name=NAME,
    title="TensorRT-LLM",
    version="trtllm-serve 9e7f85f",
    workloads=("serve", "inference"),
    profiles=("TensorRT-LLM",),
    quantities=_quantities,
    draft=_draft,
    answers=answers,
    starts=starts,
    is_of=is_of,
    accepted=("trtllm-serve-9e7f85f", "trtllm-llmargs-92e3075"),
    aliases=("trtllm", "trtllm-serve", "tensorrt_llm"),
)
