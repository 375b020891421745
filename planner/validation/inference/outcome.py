"""What one pass predicts for the runs of a group."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from planner.base.arrays import BoolArray, FloatArray, Numeric
from planner.base.records import record
from planner.estimators.inference.memory import ServingMemory
from planner.validation.inference.cases import InferenceCase


@record(kw_only=True)
class Outcome:
    """A column per quantity, in the units of the tables; memory in bytes on a GPU.

    ``reserved`` is what the allocator does not see of ``memory``; ``needed`` is what a run needs
    to start, or to go on where it cannot wait for room.
    """

    quantities: Mapping[str, FloatArray]
    memory: FloatArray
    reserved: FloatArray
    needed: FloatArray


@record(kw_only=True)
class Columns:
    """Numbers of the runs of a group, one column each."""

    input_tokens: FloatArray
    output_tokens: FloatArray
    replicas: FloatArray
    decode_rate: BoolArray
    weight_scale: FloatArray

    @classmethod
    def of(cls, cases: Sequence[InferenceCase]) -> Columns:
        """The columns of these cases."""
        return cls(
            input_tokens=np.array([case.traffic.input_tokens for case in cases]),
            output_tokens=np.array([case.traffic.output_tokens for case in cases]),
            replicas=np.array([case.replica.replicas for case in cases]),
            decode_rate=np.array([case.decode_rate for case in cases]),
            weight_scale=np.array([case.weight_scale for case in cases]),
        )


def rates(
    columns: Columns, *, request_rate: FloatArray, decode_rate: FloatArray
) -> dict[str, FloatArray]:
    """Requests and tokens per second of all replicas, as their source counts them.

    ``request_rate`` and ``decode_rate`` [tokens/s] are those of one replica.
    """
    requests = request_rate * columns.replicas
    output = requests * np.maximum(columns.output_tokens, 1.0)
    decoded = decode_rate * columns.replicas
    return {
        "requests_per_s": requests,
        "output_tokens_per_s": np.where(columns.decode_rate, decoded, output),
        "total_tokens_per_s": requests * (columns.input_tokens + columns.output_tokens),
    }


def in_waves(
    number: FloatArray,
    size: FloatArray,
    full: FloatArray,
    smaller: Callable[[FloatArray], FloatArray],
) -> FloatArray:
    """Seconds of a number of requests in waves of a size, one after the other.

    ``full``: seconds of a wave of that size, ``smaller``: of one of fewer requests, the last.
    """
    rest = np.mod(number, size)
    whole = np.floor(number / size) * full
    if not np.any(rest):
        return np.asarray(whole)
    return np.asarray(whole + np.where(rest > 0, smaller(np.maximum(rest, 1.0)), 0.0))


def whole_memory(memory: ServingMemory, scale: FloatArray) -> FloatArray:
    """The peak with weights larger than those of the format by ``scale``."""
    return np.asarray(memory.total + memory.weights * (scale - 1))


def needed_memory(memory: ServingMemory, columns: Columns, sequences: Numeric = 1.0) -> FloatArray:
    """What so many whole sequences on a GPU need, with weights of the runs' own size."""
    needed = memory.needed_for(sequences) + memory.weights * (columns.weight_scale - 1)
    return np.broadcast_to(needed, columns.weight_scale.shape)
