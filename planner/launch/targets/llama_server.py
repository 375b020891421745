"""llama.cpp: ``llama-server`` and its options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from planner.errors import LaunchError
from planner.launch.drafting import draft_file
from planner.launch.job import Job
from planner.launch.option_table import OptionTable, Settings
from planner.launch.pools import Server, draft_of, servers_of
from planner.launch.serving import Worker, benchmark, common_quantities, workers_of
from planner.launch.target import Argument, Draft, Process, Target, Variable
from planner.launch.targets.llama_server_read import answers, starts
from planner.specs.quantization import GGUF_BITS

NAME = "llama-server"
# A type of GGUF files for each type of weights.
_FILES = {"w16a16": "F16", "w8a16": "Q8_0", "w4a16": "Q4_K_M", "mxfp4": "MXFP4"} | {
    code.word: code.name for code in GGUF_BITS
}
_ALL = "all"
_MOST_SLOTS = 256


def _worker_quantities(worker: Worker) -> dict[str, Any]:
    values, job = common_quantities(worker), worker.job
    tp, pp = int(values["tensor_parallel"]), int(values["pipeline_parallel"])
    slots = int(worker.values["concurrency"])
    if slots > _MOST_SLOTS:
        raise LaunchError(
            f"llama.cpp serves {_MOST_SLOTS} requests at once at most (LLAMA_MAX_SEQ), the plan "
            f"{slots}: plan with --set concurrency={_MOST_SLOTS} or less."
        )
    words = {str(values["quantization"])}
    if job.model.num_experts:
        words.add(str(values["expert_quantization"]))
    lacking = sorted(words - set(_FILES))
    # The output layer counts as one.
    layers, share = job.model.num_hidden_layers + 1, float(worker.values["weight_offload"])
    return {
        **values,
        "concurrency": slots,
        "split": None if worker.num_gpus == 1 else "row" if tp > 1 else "layer",
        "both_splits": f"{tp} x {pp}" if tp > 1 and pp > 1 else None,
        "context_size": slots * values["max_model_len"],
        "max_num_batched_tokens": int(worker.values["max_num_batched_tokens"]),
        "no_such_file": ", ".join(lacking) or None,
        "flash_attention": True,
        "layers_on_gpu": max(layers - round(share * layers), 0) if share else _ALL,
        "weight_offload": share,
        "kv_offload": worker.values["kv_offload"],
        "drafts": values["draft_tokens"],
        "adapters": values["lora_rank"],
    }


def _quantities(job: Job) -> Mapping[str, Any]:
    return _worker_quantities(workers_of(job)[-1])


def _model(worker: Worker, _: str | None) -> Variable:
    kind = _FILES.get(str(worker.values["quantization"]), "whatever type you have")
    return Variable(name="MODEL", meaning=f"GGUF file of {worker.job.model.name} in {kind}")


def _process(server: Server) -> Process:
    arguments = [
        Argument(words=("llama-server",)),
        Argument(words=("--model", server.model)),
        *server.listening,
        *map(Argument.of, server.settings.options),
    ]
    if server.worker.job["draft_tokens"]:
        drafts = draft_file(server.worker.job)
        arguments.append(Argument(words=("--spec-draft-model", drafts)))
    job = server.worker.job
    if not job["prefix_cache_hit_rate"] and not job["shared_prefix_tokens"]:
        note = "the plan computes every prompt"
        arguments.append(Argument(words=("--no-cache-prompt",), note=note))
    return server.process(arguments)


def _draft(job: Job, _: Settings) -> Draft:
    servers = servers_of(
        job, OptionTable.load(NAME), _worker_quantities, _model, routes_replicas=False
    )
    return draft_of(
        servers,
        tuple(map(_process, servers)),
        benchmark=benchmark("llama.cpp", job, _tokenizer(job), routes_replicas=False),
    )


def _tokenizer(job: Job) -> str | Variable:
    """What a benchmark takes the tokenizer of: GGUF files are none for it."""
    meaning = f"ORG/NAME or folder of the tokenizer of {job.model.name}"
    return job.hub_name or Variable(name="TOKENIZER", meaning=meaning)


TARGET = Target(
    name=NAME,
    title="llama.cpp",
    version="llama.cpp b11434",
    workloads=("inference",),
    profiles=("llama.cpp",),
    quantities=_quantities,
    draft=_draft,
    answers=answers,
    starts=starts,
    accepted=("llama-server-b11434",),
    aliases=("llama.cpp", "llama-cpp", "llamacpp"),
)
