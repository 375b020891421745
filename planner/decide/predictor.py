"""The time of a batch of an engine, for simulators that schedule requests themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np

from planner.base.arrays import FloatArray, first
from planner.base.atomic_write import check_path, write_bytes_atomically
from planner.base.records import record
from planner.configurations.configuration_tables import ServingConfigurations
from planner.errors import SearchSpaceError
from planner.estimators.inference.batch_share import Batch, ServingInputs
from planner.estimators.inference.engine_step import step_time
from planner.estimators.inference.serving_memory import longest_request, sequence_bytes
from planner.estimators.inference.speculative_decoding import drafted_prompt_time, drafting_time
from planner.optimize.source import Candidates
from planner.question.parse_values import parse_int
from planner.workloads.serving.replicas import Replicas

Batched: TypeAlias = Sequence[tuple[int, int]]
"""Requests of a step: tokens of each in the cache, and tokens that the step computes of it."""
_POINTS = 64
_SHORTEST = 16


@record(kw_only=True)
class Predictor:
    """Step times of one replica of a serving deployment, for simulators of engines.

    Requests that decode have one new token (more with speculative decoding) and cached tokens; all
    others are prompts or chunks of prompts. Times contain kernels, collectives, host launches and
    offloading, as in `planner.estimate`.

    Parameters
    ----------
    inputs : model, hardware and engine
    configurations : the one configuration
    cache_tokens : capacity of the KV cache of the replica [tokens]
    """

    inputs: ServingInputs
    configurations: ServingConfigurations
    cache_tokens: float

    @classmethod
    def of(cls, candidates: Candidates) -> Predictor:
        """Build the predictor of the first candidate.

        Raises SearchSpaceError if prefill and decode have separate workers.

        Parameters
        ----------
        candidates : judged configurations; the first one is used
        """
        if not isinstance(candidates, Replicas):
            raise SearchSpaceError(
                "Batch times need replicas that do prefill and decode: serve (workload serve), "
                "with mode aggregated."
            )
        inputs, c = candidates.inputs, candidates.held
        longest = longest_request(inputs)
        size, ranks = candidates.estimate.memory.room.size, c.attention_data_parallel
        held = np.asarray(sequence_bytes(inputs, c, longest))
        room = size / held if held.any() else np.full(1, np.inf)  # encoders keep no cache
        return cls(
            inputs=inputs,
            configurations=c.rows(np.zeros(1, np.intp)),
            cache_tokens=first(np.asarray(room * ranks * longest)),
        )

    @property
    def stages(self) -> int:
        """Pipeline stages of a replica."""
        return int(first(self.configurations.pipeline_parallel))

    def predict(self, batch: Batched) -> float:
        """Predict the time of one step through all pipeline stages [s].

        Raises SearchSpaceError if a request has no new tokens, or one of its numbers is none.

        Parameters
        ----------
        batch : cached tokens and new tokens of each request in the step

        >>> import planner
        >>> one = planner.predictor(model="llama-3.1-8b", gpu="h100", num_gpus=1)
        >>> one.predict([(2048, 1)] * 32) < one.predict([(2048, 1)] * 32 + [(0, 512)])
        True
        """
        pairs = [
            (parse_int(old, "tokens in the cache"), parse_int(new, "new tokens", 1))
            for old, new in batch
        ]
        if not pairs:
            return 0.0
        each = 1 + self.inputs.workload.draft_tokens
        decoding = [old for old, new in pairs if old and new == each]
        prompts = [(old, new) for old, new in pairs if not (old and new == each)]
        old, new = np.array(prompts, np.float64).reshape(-1, 2).T
        tokens = max(float(new.sum()), 1.0)
        keys = float((new * (old + (new + 1) / 2)).sum()) / tokens
        step = Batch(
            decoding=np.asarray(float(len(decoding))),
            context=np.asarray(float(np.mean(decoding)) if decoding else 0.0),
            tokens_per_sequence=np.asarray(float(each)),
            prefill_tokens=np.asarray(float(new.sum())),
            prompts=np.asarray(float(len(prompts))),
            prefill_keys=np.asarray(keys),
            prefill_cached=np.asarray(float(old.mean()) if prompts else 0.0),
        )
        return first(self.seconds(step, decodes=not prompts))

    def seconds(self, batch: Batch, *, decodes: bool) -> FloatArray:
        """Predict the times of many steps through all pipeline stages [s].

        Parameters
        ----------
        batch : arrays of the batches
        decodes : no batch contains prompts
        """
        inputs, c = self.inputs, self.configurations
        with np.errstate(divide="ignore", invalid="ignore"):
            step = step_time(inputs, c, batch, decodes).total
            if decodes:
                step = step * (1 + inputs.workload.draft_cost)
                return step + drafting_time(inputs, c, batch)
            return step + drafted_prompt_time(inputs, c, batch)

    def save_mocker_profile(self, path: str | Path) -> None:
        """Write what Dynamo's mocker reads as ``--planner-profile-data``: an ``.npz`` file [1]_.

        Contains ``prefill_ttft_ms`` over ``prefill_isl``, the new tokens of a step; and
        ``decode_itl`` [ms] over ``decode_active_kv_tokens``, the KV tokens of all sequences, and
        ``decode_context_length``, the tokens of one sequence. The mocker interpolates in these
        tables.

        Raises OutputError or SearchSpaceError if the file cannot be written; or prompts are
        embedded, so that nothing decodes.

        Parameters
        ----------
        path : file to write, ``.npz``

        References
        ----------
        .. [1] github.com/ai-dynamo/dynamo, ``lib/mocker/src/common/perf_model.rs``,
           ``PerfModel::from_npz``.
        """
        check_path(Path(path))
        if self.inputs.workload.embeds:
            raise SearchSpaceError("Dynamo's mocker decodes: give --output-tokens above 0.")
        longest = longest_request(self.inputs)
        max_step_tokens = float(first(self.configurations.replica_step_tokens))
        new = _log_spaced_integers(_SHORTEST, max_step_tokens)
        context = _log_spaced_integers(_SHORTEST, longest)
        held = _log_spaced_integers(_SHORTEST, max(self.cache_tokens, longest))
        zero, single = np.zeros(()), np.ones(())
        prompts = Batch(
            decoding=zero, context=zero, tokens_per_sequence=single, prefill_tokens=new,
            prompts=np.ones_like(new), prefill_keys=(new + 1) / 2, prefill_cached=zero,
        )  # fmt: skip
        lengths = np.broadcast_to(context, (held.size, context.size)).ravel()
        sequences = np.maximum(np.repeat(held, context.size) / lengths, 1.0)
        each = 1.0 + self.inputs.workload.draft_tokens
        decoding = self.seconds(Batch.of_decode(sequences, lengths, each), decodes=True)
        with write_bytes_atomically(Path(path)) as stream:
            np.savez(
                stream,
                prefill_isl=new,
                prefill_ttft_ms=1e3 * self.seconds(prompts, decodes=False),
                decode_active_kv_tokens=held,
                decode_context_length=context,
                decode_itl=1e3 * decoding.reshape(held.size, context.size),
            )


def _log_spaced_integers(lower: float, upper: float) -> FloatArray:
    """Integers between two bounds with equal ratios."""
    numbers = np.geomspace(lower, max(upper, 2 * lower), _POINTS)
    return np.unique(np.round(numbers)).astype(np.float64)


class VidurRequest(Protocol):
    """The attributes of ``vidur.entities.Request`` that are read."""

    num_processed_tokens: int


class VidurBatch(Protocol):
    """The attributes of ``vidur.entities.Batch`` that are read: requests and their new tokens."""

    requests: Iterable[VidurRequest]
    num_tokens: Iterable[int]


@record(kw_only=True)
class VidurPredictor:
    """A predictor with the interface of Vidur's ``BaseExecutionTimePredictor`` [1]_.

    ``execution_time`` is ``vidur.entities.ExecutionTime``, whose parts are milliseconds of one
    layer. The time of a stage is reported as one product of one layer: ``model_time`` and
    ``total_time`` are right, a breakdown by operator is meaningless.

    References
    ----------
    .. [1] github.com/microsoft/vidur,
       ``vidur/execution_time_predictor/base_execution_time_predictor.py``.
    """

    predictor: Predictor
    execution_time: Callable[..., Any]

    def get_execution_time(self, batch: VidurBatch, pipeline_stage: int) -> Any:
        """Predict the time of one pipeline stage [s]; all stages take an equal part of the step."""
        pairs = [
            (request.num_processed_tokens, new)
            for request, new in zip(batch.requests, batch.num_tokens, strict=True)
        ]
        stage = 1e3 * self.predictor.predict(pairs) / self.predictor.stages
        parts = dict.fromkeys(_PARTS, 0.0) | {"mlp_layer_up_proj_execution_time": stage}
        return self.execution_time(num_layers_per_pipeline_stage=1, **parts)


class SGLangRequest(Protocol):
    """The attributes of ``ScheduleRequest`` of SGLang Simulator that are read."""

    extend_length: int
    past_kv_length: int


class SGLangBatch(Protocol):
    """The attribute of ``ScheduleBatch`` of SGLang Simulator that is read."""

    reqs: Iterable[SGLangRequest]


@record(kw_only=True)
class SGLangPredictor:
    """A predictor with the interface of SGLang Simulator's ``InferTimePredictor`` [1]_.

    References
    ----------
    .. [1] github.com/sgl-project/sglang,
       ``tools/sglang-simulator/src/sglang_simulator/time_predictor/base.py`` (pull request 33824).
    """

    predictor: Predictor

    def predict_infer_time(self, batch: SGLangBatch) -> float:
        """Predict the time of one forward pass of a batch [s]."""
        return self.predictor.predict(
            [(request.past_kv_length, request.extend_length) for request in batch.reqs]
        )

    def get_metrics(self) -> dict[str, float]:
        """Return what the simulator writes in addition to its results: nothing."""
        return {}

    def reset_metrics(self) -> None:
        """Do nothing: there are no metrics."""


_PARTS = (
    "attention_rope_execution_time",
    "attention_kv_cache_save_execution_time",
    "attention_decode_execution_time",
    "attention_prefill_execution_time",
    "attention_layer_pre_proj_execution_time",
    "attention_layer_post_proj_execution_time",
    "mlp_layer_up_proj_execution_time",
    "mlp_layer_down_proj_execution_time",
    "mlp_layer_act_execution_time",
    "attn_norm_time",
    "mlp_norm_time",
    "add_time",
    "tensor_parallel_communication_time",
    "pipeline_parallel_communication_time",
    "schedule_time",
    "sampler_e2e_time",
    "prepare_inputs_e2e_time",
    "process_model_outputs_time",
    "ray_comm_time",
)
