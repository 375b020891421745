"""LMDeploy: ``lmdeploy serve api_server`` and its options, read-only.

Defaults are those of lmdeploy/cli/utils.py, lmdeploy/utils.py (`get_max_batch_size`) and, for
ranks of the attention, lmdeploy/pytorch/config.py (`DistConfig`) of InternLM/lmdeploy 0.16.0.
"""

from __future__ import annotations

from functools import partial

from planner.launch.read.serving_reader import (
    EngineReader,
    ServerSettings,
    find_gpu_by_name,
    read_engine,
)
from planner.launch.target import LaunchTarget
from planner.specs.model import ModelSpec

NAME = "lmdeploy"
_MAX_BATCH_BY_GPU = {"a100": 384, "a800": 384, "h100": 1024, "h800": 1024, "h200": 1024}
_UNKNOWN = "h100"


def _note_backend(server: ServerSettings) -> None:
    """Add a note if the PyTorch engine runs, which has no profile of its own."""
    if server.reading.text("--backend") == "pytorch":
        server.notes.append("The PyTorch engine is predicted as TurboMind is.")


def _assume_batch(server: ServerSettings, model: ModelSpec | None, ranks: int) -> None:
    """Set the default number of concurrent requests for the GPU type, if it is known."""
    if server.reading.value("max_num_seqs") is not None:
        return
    gpu = find_gpu_by_name(server.reading.command.resources.gpu)
    name = _UNKNOWN if gpu is None else gpu.name.lower()
    max_requests = next(
        (number for gpu_name, number in _MAX_BATCH_BY_GPU.items() if gpu_name in name), None
    )
    if max_requests is not None:
        reason = f"--max-batch-size is {max_requests:,} by default on {name.split('-')[0].upper()}"
        server.assume("concurrency", max_requests * ranks, reason)


_ENGINE = EngineReader(
    name=NAME,
    programs=("lmdeploy", "serve", "api_server"),
    batch=_assume_batch,
    finish=_note_backend,
    has_rank_limit=True,
    switches=("--adapters",),
)

TARGET = LaunchTarget.of("lmdeploy", answers=partial(read_engine, engine=_ENGINE))
