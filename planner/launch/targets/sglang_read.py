"""What a command of SGLang says."""

from __future__ import annotations

from collections.abc import Sequence

from planner.base.units import GIB
from planner.launch.accepted import Accepted
from planner.launch.adapters import put_adapters
from planner.launch.option_table import OptionTable
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
from planner.launch.serving import AGGREGATED, DECODE_POOL, PREFILL_POOL
from planner.launch.understood import Answers, Reading
from planner.specs.model import ModelSpec

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
