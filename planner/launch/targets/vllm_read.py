"""What a command of vLLM says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from planner.base.units import GIB
from planner.launch.accepted import Accepted
from planner.launch.adapters import put_adapters
from planner.launch.option_table import OptionTable
from planner.launch.served import (
    Told,
    fraction,
    json_table,
    known_gpu,
    note_lengths,
    put_draft_method,
    put_draft_model,
    put_experts,
    put_model,
    put_offload,
    put_quantization,
    whole,
    with_config,
    words_of,
)
from planner.launch.serving import AGGREGATED, DECODE_POOL, PREFILL_POOL
from planner.launch.understood import Answers, Reading
from planner.launch.versions import version_of
from planner.specs.model import ModelSpec

_TABLE = OptionTable.load("vllm")
_ACCEPTED = Accepted.of(("vllm-0.33.0",), _TABLE)
_MODULES = (
    "vllm.entrypoints.openai.api_server",
    "vllm.entrypoints.api_server",
    "vllm.entrypoints.cli.main",
    "dynamo.vllm",
)
_PROGRAMS = ("vllm", "serve", "python", "python3", "env", "-m", *_MODULES)
# Long options without their dashes, as no other tool spells them.
_OF_DOCUMENT = {
    *("tensor-parallel-size", "pipeline-parallel-size", "data-parallel-size", "max-num-seqs"),
    *("max-num-batched-tokens", "max-model-len", "gpu-memory-utilization", "kv-cache-dtype"),
    *("enable-expert-parallel", "no-enable-prefix-caching"),
}
_MODEL_OPTIONS = ("--model", "--model-tag")
_POOLS = {"kv_producer": PREFILL_POOL, "kv_consumer": DECODE_POOL}
# Of the server, by memory: arg_utils.get_batch_defaults of 0.33.
_LARGE, _LARGEST = 70 * GIB, 160 * GIB
_SECOND_ENGINE = (0, 8)
_LONG = 32_768  # config.py of 0.6: prompts of longer models are computed in chunks


def starts(words: Sequence[str]) -> bool:
    """Whether a command starts a server of vLLM."""
    first = [word.rsplit("/", 1)[-1] for word in words[:4]]
    if first[:1] == ["vllm"]:
        return first[1:2] == ["serve"]
    if any(word in _MODULES for word in first):
        return "serve" in words or "vllm.entrypoints.cli.main" not in first
    return any(word.replace("\\", "/").endswith("openai/api_server.py") for word in words[:3])


def is_of(values: Mapping[str, Any]) -> bool:
    """Whether a document has options of ``vllm serve``."""
    return len(_OF_DOCUMENT & {*values}) > 1


def answers(reading: Reading) -> Answers:
    """The deployment that a command starts."""
    reading = with_config(reading, _ACCEPTED, _TABLE)
    told = Told(reading=reading)
    name = model_name(reading)
    model = put_model(told, name)
    told.take("-m", "--model", "--served-model-name", "--config")
    told.values["engine"] = "vllm"
    tp, pp, dp = (
        told.count("tensor_parallel"),
        told.count("pipeline_parallel"),
        told.count("attention_data_parallel"),
    )
    is_dense = model is not None and not model.num_experts
    told.values.update(
        tensor_parallel=tp,
        pipeline_parallel=pp,
        attention_data_parallel=1 if is_dense else dp,
    )
    told.put_gpus(tp * pp * dp)
    if is_dense and dp > 1:
        told.notes.append(f"The {dp} data-parallel ranks of a dense model are replicas.")
    put_experts(told, model, tp * dp)
    put_quantization(told, name, model)
    told.copy("kv_cache")
    if is_first_engine(reading):
        _put_first_batch(told, model, 1 if is_dense else dp)
    _put_batch(told, 1 if is_dense else dp)
    _put_drafts(told, model)
    _put_lora(told)
    told.copy("gpu_memory_utilization")
    _note_offload(told)
    put_offload(told, model, "--cpu-offload-gb")
    _put_longest(told, model)
    note_lengths(told, whole(reading.value("max_model_len")))
    return told.answers(_pool(told))


def model_name(reading: Reading) -> str | None:
    """What is loaded: an option, or the word after the program."""
    for option in _MODEL_OPTIONS:
        if reading.text(option):
            return reading.text(option)
    words = (word for word in words_of(reading) if word.rsplit("/", 1)[-1] not in _PROGRAMS)
    return next((word for word in words if "=" not in word), None)


def is_first_engine(reading: Reading) -> bool:
    """Whether the file names a version before 0.8, which has other defaults."""
    version = version_of("vllm", reading.found)
    return version is not None and version.parts < _SECOND_ENGINE


def _put_first_batch(told: Told, model: ModelSpec | None, ranks: int) -> None:
    """What the engine before 0.8 takes where the command gives no batch.

    Prompts are computed whole, unless they may be long: then in chunks.
    """
    seqs = whole(told.reading.value("max_num_seqs"))
    if seqs is None:
        seqs = 256
        told.assume("concurrency", seqs * ranks, "--max-num-seqs is 256 by default before 0.8")
    if whole(told.reading.value("max_num_batched_tokens")) is None:
        most = whole(told.reading.value("max_model_len"))
        most = most or (model.max_position_embeddings if model else None) or 0
        tokens = max(2048, most if most <= _LONG else 0, seqs)
        why = f"--max-num-batched-tokens is {tokens:,} by default before 0.8"
        told.assume("max_num_batched_tokens", tokens, why)


def _put_batch(told: Told, ranks: int) -> None:
    """Requests and tokens of a step; the defaults depend on the GPU."""
    gpu = known_gpu(told.reading.found.world.gpu)
    memory = gpu.memory_capacity if gpu else 0.0
    is_large = memory >= _LARGE and gpu is not None and "a100" not in gpu.name.lower()
    seqs = whole(told.reading.value("max_num_seqs"))
    if seqs is None:
        seqs = 1024 if is_large else 256
        why = f"--max-num-seqs is {seqs:,} by default" + (
            "" if gpu else "; 1,024 on GPUs of 70 GiB and more but the A100"
        )
        told.assume("concurrency", seqs * ranks, why)
    else:
        told.values["concurrency"] = seqs * ranks
        told.take("--max-num-seqs")
    if told.reading.value("enforce_eager") == "true":
        told.values["enforce_eager"] = True
    tokens = whole(told.reading.value("max_num_batched_tokens"))
    if tokens is None:
        tokens = 2048 if not is_large else 8192 if memory < _LARGEST else 16384
        why = f"--max-num-batched-tokens is {tokens:,} by default" + (
            "" if gpu else "; 8,192 on GPUs of 70 GiB and more but the A100"
        )
        told.assume("max_num_batched_tokens", max(tokens, seqs), why)
    else:
        told.values["max_num_batched_tokens"] = tokens
    is_asked = told.reading.has("--enable-prefix-caching") or not is_first_engine(told.reading)
    if told.reading.value("prefix_caching") == "true" and is_asked:
        told.notes.append(
            "Prefixes are cached: give --prefix-cache-hit-rate, the share of prompts found there."
        )


def _put_longest(told: Told, model: ModelSpec | None) -> None:
    """The longest request, which vLLM has room for or does not start; -1 and auto: what fits."""
    given = told.reading.value("max_model_len")
    if whole(given):
        told.values["max_model_len"] = whole(given)
    elif given is None and model is not None and model.max_position_embeddings:
        why = "--max-model-len is the model's positions by default"
        told.assume("max_model_len", model.max_position_embeddings, why)


def _put_drafts(told: Told, model: ModelSpec | None) -> None:
    config = json_table(told.reading.text("--speculative-config"))
    told.take("--speculative-config", "--spec-method", "--spec-model", "--spec-tokens")
    number = whole(told.reading.value("draft_tokens")) or 0
    given: Any = config.get("num_speculative_tokens")
    if isinstance(given, int) and not isinstance(given, bool):
        number = given
    if number:
        told.values["draft_tokens"] = number
        method = config.get("method") or told.reading.text("--spec-method")
        path = config.get("model") or told.reading.text("--spec-model")
        if method in (None, "draft_model"):
            put_draft_model(told, path)
        if "draft_model" not in told.values:
            put_draft_method(told, str(method or ""), str(path or ""), model)
        told.notes.append(
            "Tokens are drafted: give --acceptance-rate, the probability that one is accepted."
        )


def _put_lora(told: Told) -> None:
    if told.reading.has("--enable-lora"):
        put_adapters(told, "--max-loras", 16)
        told.take("--lora-modules")


def _note_offload(told: Told) -> None:
    if fraction(told.reading.text("--kv-offloading-size")):
        told.take("--kv-offloading-size", "--kv-offloading-backend")
        told.notes.append(
            "What leaves the cache of a GPU is kept in host memory; its share is not known."
        )


def _pool(told: Told) -> str:
    config = json_table(told.reading.text("--kv-transfer-config"))
    told.take("--kv-transfer-config", "--disaggregation-mode", "--is-prefill-worker")
    told.take("--is-decode-worker")
    reading = told.reading
    mode = reading.text("--disaggregation-mode")
    if mode in (PREFILL_POOL, DECODE_POOL):
        return mode
    if reading.has("--is-prefill-worker"):
        return PREFILL_POOL
    if reading.has("--is-decode-worker"):
        return DECODE_POOL
    if config.get("kv_role") == "kv_both":
        told.notes.append(
            "kv_role is kv_both: whether it computes prompts or answers only the router tells; it "
            "is read as both."
        )
    return _POOLS.get(str(config.get("kv_role")), AGGREGATED)
