"""Columns of the tables of measured runs: which there must be, and what their cells hold."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

MEASURED = "measured_"


class TableKind(StrEnum):
    """What the rows of a table are: training steps, or batches and requests of inference."""

    TRAINING = "training"
    INFERENCE = "inference"


@dataclass(frozen=True, kw_only=True)
class Schema:
    """Columns by what their cells must be; other columns are kept as they are.

    ``counts`` are whole numbers above zero, ``counts_or_zero`` may be zero, ``flags`` are 0
    or 1, ``numbers`` are not negative, ``texts`` are known and free.
    """

    kind: TableKind
    needed: tuple[str, ...]
    counts: tuple[str, ...]
    counts_or_zero: tuple[str, ...]
    flags: tuple[str, ...]
    numbers: tuple[str, ...]
    texts: tuple[str, ...]

    @property
    def numeric(self) -> frozenset[str]:
        """Columns whose cells are numbers."""
        return frozenset((*self.counts, *self.counts_or_zero, *self.flags, *self.numbers))

    @property
    def known(self) -> frozenset[str]:
        """Columns that mean something."""
        return self.numeric | {*self.needed, *self.texts}

    def fault(self, name: str, cell: str) -> str | None:
        """What is wrong with a cell of a column, or None."""
        if not cell or not (name in self.numeric or name.startswith(MEASURED)):
            return None
        try:
            number = float(cell)
        except ValueError:
            return f"{cell!r} is not a number"
        if not math.isfinite(number):
            return f"{cell!r} is not a finite number"
        return self._number_fault(name, number)

    def _number_fault(self, name: str, number: float) -> str | None:
        if number < 0:
            return f"{number:g} is negative"
        if name in self.flags and number not in (0, 1):
            return f"{number:g} must be 0 or 1"
        if name == "zero_stage" and number not in (0, 1, 2, 3):
            return f"{number:g} must be 0, 1, 2 or 3"
        if name in (*self.counts, *self.counts_or_zero) and number != int(number):
            return f"{number:g} is not a whole number"
        return f"{number:g} must be above 0" if name in self.counts and number == 0 else None


TRAINING = Schema(
    kind=TableKind.TRAINING,
    needed=("framework", "gpu", "num_gpus", "sequence_length"),
    counts=(
        "num_hidden_layers",
        "hidden_size",
        "intermediate_size",
        "num_attention_heads",
        "num_key_value_heads",
        "vocab_size",
        "sequence_length",
        "num_gpus",
        "gpus_per_node",
        "nics_per_node",
        "tensor_parallel",
        "pipeline_parallel",
        "virtual_pipeline",
        "context_parallel",
        "data_parallel",
        "data_parallel_replicas",
        "recompute_num_layers",
        "micro_batch_size",
        "global_batch_size",
    ),
    counts_or_zero=(
        "mtp_num_layers",
        "num_experts",
        "num_experts_per_tok",
        "moe_intermediate_size",
        "expert_parallel",
    ),
    flags=(
        "gated_mlp",
        "tie_word_embeddings",
        "sequence_parallel",
        "flash_attention",
        "fp8_attention",
        "calibration",
        "memory_calibration",
        "scale_out_per_gpu",
        "tp_comm_overlap",
        "measured_out_of_memory",
    ),
    numbers=(
        "year",
        "zero_stage",
        "scale_out_gbit_per_s",
        "params_billion_reported",
        "lora_rank",
        "gpus_per_sequence",
    ),
    texts=("workload", "model"),
)

_PARALLEL = (
    "num_workers",
    "batch_size",
    "tensor_parallel",
    "pipeline_parallel",
    "attention_data_parallel",
    "expert_tensor_parallel",
    "expert_parallel",
)
# What a pool of workers, or a launch script, sets of the scheduler.
SCHEDULED = ("max_num_batched_tokens", "max_num_seqs", "stream_interval")
INFERENCE = Schema(
    kind=TableKind.INFERENCE,
    needed=("framework", "gpu", "model", "input_tokens", "output_tokens"),
    counts=("num_gpus", "gpus_per_node"),
    counts_or_zero=(
        *_PARALLEL[2:],
        "data_parallel",
        *(f"{pool}_{name}" for pool in ("prefill", "decode") for name in (*_PARALLEL, *SCHEDULED)),
    ),
    flags=("calibration", "measured_out_of_memory"),
    numbers=(
        "year",
        "concurrency",
        "engine_batch_size",
        "request_rate",
        "input_tokens",
        "output_tokens",
    ),
    texts=(
        "mode",
        "framework_version",
        "weight_precision",
        "activation_precision",
        "kv_cache_precision",
        "gemm_precision",
        "expert_precision",
        "notes",
        "source",
    ),
)


def schema_of(header: Sequence[str]) -> Schema:
    """The schema of the table that has these columns.

    Only tables of inference count prompt and answer apart; all others are of training.
    """
    apart = {"input_tokens", "output_tokens"} & set(header)
    return INFERENCE if apart and "sequence_length" not in header else TRAINING
