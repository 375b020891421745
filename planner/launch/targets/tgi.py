"""Text Generation Inference: its launcher's options, read-only.

Defaults are those of launcher/src/main.rs and docs/source/reference/launcher.md of
huggingface/text-generation-inference.
"""

from __future__ import annotations

from functools import partial

from planner.launch.option_table import OptionTable
from planner.launch.read.expression_rows import apply_read_rows
from planner.launch.read.parsed_launch import OptionReader, version_of
from planner.launch.read.serving_reader import (
    EngineReader,
    ServerSettings,
    default_gpu,
    parse_float,
    read_engine,
    with_variables,
)
from planner.launch.target import LaunchTarget
from planner.specs.model import ModelSpec

NAME = "tgi"
# Shares of GPU memory in the profiles, if the launcher may use all of it: from 3.0 on, and before.
_MEMORY_SHARE, _SECOND_MEMORY_SHARE = 0.9, 1.0
_THIRD = (3,)
_PREFILL = OptionTable.load("tgi-prefill")


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
    """Set the default tokens of a prefill: before 3.0 by the longest prompt, then by the GPU.

    From 3.0 on FLOP/s of the shards over FLOPs of a token, limited by the memory that 16-bit
    weights leave, where the launcher knows the GPU.
    """
    reading, (gpu, gib) = server.reading, default_gpu(server)
    if reading.value("max_num_batched_tokens") is None:
        quantities = {**server.quantities, "gpu": gpu, "gib": gib}
        apply_read_rows(reading, _PREFILL, server, quantities, "serve", model=model)


_ENGINE = EngineReader(
    name=NAME,
    model_options=("--model-id",),
    prepare=_prepare,
    batch=_assume_batch,
    finish=_finish,
    switches=("--lora-adapters",),
)

TARGET = LaunchTarget.of(NAME, answers=partial(read_engine, engine=_ENGINE))
