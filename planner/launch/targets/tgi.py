"""Text Generation Inference: its launcher's options, read-only.

Defaults are those of launcher/src/main.rs and docs/source/reference/launcher.md of
huggingface/text-generation-inference.
"""

from __future__ import annotations

from functools import partial

from planner.base.units import GIB
from planner.launch.read.parsed_launch import OptionReader, version_of
from planner.launch.read.serving_reader import (
    EngineReader,
    ServerSettings,
    default_gpu,
    parse_float,
    parse_size,
    read_engine,
    with_variables,
)
from planner.launch.target import LaunchTarget
from planner.specs.model import ModelSpec

NAME = "tgi"
# Shares of GPU memory in the profiles, if the launcher may use all of it: from 3.0 on, and before.
_MEMORY_SHARE, _SECOND_MEMORY_SHARE = 0.9, 1.0
_SECOND, _THIRD = (2,), (3,)
_EXTRA_PREFILL_TOKENS = 50
# 16-bit TFLOP/s that the launcher assumes for the cards it knows.
_TERAFLOPS_BY_CARD = {"rtx4090": 82, "t4": 65, "l4-": 121, "l40-": 181, "l40s": 363, "a10g": 125,
          "a40": 149,
          "h100-sxm-80gb": 900, "h100-nvl": 900, "a100-sxm": 312, "a100-pcie-80gb": 312,
          "h200": 989}  # fmt: skip
_MIN_PREFILL_TOKENS, _WIGGLE_ROOM = 100, 0.95
_PREFILL_REASON = (
    "from 3.0 on --max-batch-prefill-tokens defaults to what these cards compute in a second"
)


def _finish(server: ServerSettings) -> None:
    """Set the limit of sequences, and the share of memory if --cuda-memory-fraction is below 1."""
    server.values["max_num_seqs"] = server.values["concurrency"]
    if server.reading.text("--quantize") == "exl2":
        server.notes.append(
            "exl2 has weights of any number of bits, and only the checkpoint has that number: "
            "use --set quantization=TYPE."
        )
    share = parse_float(server.reading.value("memory_fraction"))
    if share is not None and share < 1:
        version = version_of(NAME, server.reading.command)
        is_second = version is not None and version.parts < _THIRD
        of_device = _SECOND_MEMORY_SHARE if is_second else _MEMORY_SHARE
        reason = f"{of_device:g} of the {share:g} that --cuda-memory-fraction leaves"
        server.assume("gpu_memory_utilization", round(of_device * share, 4), reason)


def _prepare(reading: OptionReader, engine: EngineReader) -> OptionReader:
    """Return a reader in which a variable is the default of its option: MODEL_ID of --model-id."""
    options = engine.accepts.options
    names = {name.lstrip("-").replace("-", "_").upper(): name for name in options}
    return with_variables(reading, names, engine.table)


def _assume_batch(server: ServerSettings, model: ModelSpec | None, _: int) -> None:
    """Set the default tokens of a prefill: before 3.0 by the longest prompt, then by the GPU."""
    reading, version = server.reading, version_of(NAME, server.reading.command)
    if reading.value("max_num_batched_tokens") is not None:
        return
    longest = parse_size(reading.value("longest_prompt"))
    if version is not None and version.parts < _THIRD:
        if version.parts >= _SECOND and longest:
            reason = (
                "--max-batch-prefill-tokens is the longest prompt and "
                f"{_EXTRA_PREFILL_TOKENS} by default in 2.x"
            )
            server.assume("max_num_batched_tokens", longest + _EXTRA_PREFILL_TOKENS, reason)
    elif model is not None and (tokens := _prefill_tokens(server, model)):
        server.assume("max_num_batched_tokens", tokens, _PREFILL_REASON)


def _prefill_tokens(server: ServerSettings, model: ModelSpec) -> int | None:
    """Return the prompt tokens of a step that TGI's launcher chooses for a known GPU.

    FLOP/s of the shards over FLOPs of a token, limited by the memory that 16-bit weights leave.
    None where the launcher keeps its default.
    """
    gpu_name, gib = default_gpu(server)
    teraflops = next(
        (
            card_teraflops
            for name, card_teraflops in _TERAFLOPS_BY_CARD.items()
            if (gpu_name or "").startswith(name)
        ),
        None,
    )
    (attention, *other_attentions), (dense, *other_feed_forwards) = (
        model.attentions,
        model.feed_forwards,
    )
    if (
        teraflops is None
        or other_attentions
        or other_feed_forwards
        or dense.num_experts
        or model.vision_tower is not None
    ):
        return None
    hidden_size, shards = model.hidden_size, int(server.values["tensor_parallel"])
    heads, kv_heads = attention.num_attention_heads, attention.num_key_value_heads
    head_dim, layers = attention.head_dim, model.num_hidden_layers
    intermediate_size = dense.intermediate_size
    flops_per_layer = (
        2 * head_dim * hidden_size * (3 * heads + 2 * kv_heads)
        + 6 * hidden_size * intermediate_size
    )
    tokens = int(shards * teraflops * 1e12 // (layers * flops_per_layer))
    if tokens <= _MIN_PREFILL_TOKENS:
        return None
    weight_bytes = layers * (
        3 * intermediate_size * hidden_size
        + (heads + 2 * kv_heads) * head_dim
        + heads * head_dim * hidden_size
    )
    weight_bytes = 2 * (weight_bytes + 2 * hidden_size * model.vocab_size)
    share = parse_float(server.reading.value("memory_fraction")) or 1.0
    free_bytes = gib * GIB * shards * share * _WIGGLE_ROOM - weight_bytes
    bytes_per_token = 4 * kv_heads * head_dim * layers + 6 * (
        intermediate_size + intermediate_size // 2
    )
    is_unquantized = server.values["quantization"] == "w16a16" or server.reading.has("--quantize")
    if (
        free_bytes >= 0 and is_unquantized
    ):  # the launcher does not see that a checkpoint is quantized
        tokens = min(tokens, int(free_bytes // bytes_per_token))
    return min(tokens, model.max_position_embeddings or tokens)


_ENGINE = EngineReader(
    name=NAME,
    model_options=("--model-id",),
    prepare=_prepare,
    batch=_assume_batch,
    finish=_finish,
    switches=("--lora-adapters",),
)

TARGET = LaunchTarget.of(NAME, answers=partial(read_engine, engine=_ENGINE))
