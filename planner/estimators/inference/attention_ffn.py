"""Attention-FFN disaggregation: attention and feed-forward blocks of decode workers on own GPUs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from planner.base.arrays import CodeArray, FloatArray, add
from planner.base.enums import Quantization
from planner.base.records import record
from planner.configurations.configuration_tables import AttentionFfnConfigurations
from planner.estimators.experts import reached_by_token
from planner.estimators.inference.batch_share import BatchShare, ServingInputs
from planner.estimators.inference.continuous_batching import decode_batch
from planner.estimators.inference.engine_step import host_overhead, launch_time
from planner.estimators.inference.serving_estimate import broken_serving_rule
from planner.estimators.inference.serving_memory import ServingMemory, serving_memory
from planner.estimators.layer_operators import layer_operators
from planner.layers.model import Layer, embedding_of, layer_of, logits_of
from planner.layers.operators import ExpertExchange, LayerOperator
from planner.specs.model import LayerGroup
from planner.specs.quantization import SIXTEEN_BIT_BYTES, format_on
from planner.specs.validated import replace_unvalidated

MICRO_BATCHES = (1, 2, 3, 4)
"""Numbers of micro-batches that are tried; more make experts inefficient (MegaScale-Infer,
arXiv:2504.02263, section 4.2)."""
_FFN_MODULES = ("feed_forward", "activation", "experts")


def ffn_splits(inputs: ServingInputs) -> tuple[int, ...]:
    """Return on how many GPUs each expert may be: one, or all of a node."""
    return 1, inputs.machine.cluster.gpus_per_node


def side_memory(
    inputs: ServingInputs, c: AttentionFfnConfigurations
) -> tuple[ServingMemory, ServingMemory]:
    """Return the memory of a GPU for attention, with the caches, and of one for the FFN."""
    ffn = serving_memory(inputs, c.ffn(1))
    no_cache = ffn.room.mapped(np.zeros_like)
    return serving_memory(inputs, c), replace(
        ffn, kv_cache=np.zeros_like(ffn.kv_cache), room=no_cache
    )


def broken_ffn_rules(inputs: ServingInputs, c: AttentionFfnConfigurations) -> list[CodeArray]:
    """Return the first rule that the GPUs for the FFN break, by split of the experts; 0: none.

    Servers of experts alone are not bound to the ways in which the engine spreads layers.
    """
    engine = replace_unvalidated(inputs.engine, undivided=())
    free = replace(inputs, engine=engine)
    return [broken_serving_rule(free, c.ffn(split), is_pool=True) for split in ffn_splits(inputs)]


def attention_ffn_cycle(
    inputs: ServingInputs, c: AttentionFfnConfigurations, sequences: FloatArray
) -> FloatArray:
    r"""Return seconds between two tokens of each of ``sequences`` that a worker decodes.

    .. math:: \max\left(m \max(t_A, t_F, t_{AF}, t_{FA}),\ t_A + t_{AF} + t_F + t_{FA}\right)

    A layer takes this with m micro-batches: the GPUs for attention, the link in either direction
    and the GPUs for the FFN work on different ones, and each returns when it has passed all
    four [1]_ [2]_. The fastest m, and split of the experts, is taken. While a kernel of one starts,
    kernels of the other micro-batches keep a GPU busy: over 12 requests of 64k tokens on each GPU a
    layer takes 208 us, and reading the caches alone takes 201 us [3]_.

    References
    ----------
    .. [1] StepFun, "Step-3 is large yet affordable: Model-system co-design for cost-effective
       decoding," 2025, arXiv:2507.19427, sections 3 and 7.
    .. [2] R. Zhu et al., "MegaScale-Infer: Serving mixture-of-experts at scale with disaggregated
       expert parallelism," 2025, arXiv:2504.02263, section 4.1.
    """
    all_requests = BatchShare(
        inputs=inputs, configurations=c.attention, batch=decode_batch(inputs, sequences)
    )
    ffns = [c.ffn(split) for split in ffn_splits(inputs)]
    allowed = [code == 0 for code in broken_ffn_rules(inputs, c)]
    times = []
    for number in MICRO_BATCHES:
        batch = decode_batch(inputs, sequences / number)
        others = inputs if number == 1 else _without_latencies(inputs)
        attention = replace(all_requests, inputs=others, batch=batch)
        ends = number * _ends(attention)
        for ffn, is_allowed in zip(ffns, allowed, strict=True):
            step = _MicroBatch(attention=attention, ffn=replace(attention, configurations=ffn))
            layers = add(
                group.num_hidden_layers * step.layer_time(group, number)
                for group in inputs.model.layer_groups
            )
            times.append(np.where(is_allowed, layers + ends, np.inf))
    fastest = np.minimum.reduce(np.broadcast_arrays(*times))
    return np.asarray(inputs.slowdown * (fastest + host_overhead(all_requests)))


def _without_latencies(inputs: ServingInputs) -> ServingInputs:
    """Return the inputs with kernels whose starts other micro-batches hide."""
    execution = replace_unvalidated(inputs.engine.execution, kernel_latency_fraction=0.0)
    return replace(inputs, engine=replace_unvalidated(inputs.engine, execution=execution))


@record(kw_only=True)
class _MicroBatch:
    """The shares of a micro-batch on a GPU of either side."""

    attention: BatchShare
    ffn: BatchShare

    def layer_time(self, group: LayerGroup, micro_batches: int) -> FloatArray:
        """Return seconds of a layer until all ``micro_batches`` have passed."""
        stages = self.stages(group)
        slowest = np.maximum.reduce(np.broadcast_arrays(*stages))
        return np.asarray(np.maximum(add(stages), micro_batches * slowest))

    def stages(self, group: LayerGroup) -> tuple[FloatArray, ...]:
        """Return seconds in a layer: attention, to the FFN, the FFN, and back."""
        layer = layer_of(self.attention.inputs.model, group)
        of_ffn = [op for op in layer.operators if op.in_feed_forward and op.module in _FFN_MODULES]
        others = [op for op in layer.operators if op not in of_ffn]
        computed = [op for op in of_ffn if not isinstance(op, ExpertExchange)]
        return (
            np.maximum(
                _seconds(self.attention, others), launch_time(self.attention, group, decoding=True)
            ),
            self._sent(layer, self._number_bytes),
            _seconds(self.ffn, computed),
            self._sent(layer, np.asarray(SIXTEEN_BIT_BYTES)),
        )

    @property
    def _number_bytes(self) -> FloatArray:
        """Bytes of a number that the experts get: as they multiply it; results have 16 bits."""
        peaks = self.ffn.machine.gpu.peak_flops
        formats = np.array([format_on(code, peaks).activation for code in Quantization])
        return np.asarray(formats[self.ffn.configurations.expert_quantization])

    def _sent(self, layer: Layer, number_bytes: FloatArray) -> FloatArray:
        """Return seconds to send the tokens of all GPUs of one side to the other.

        A token crosses the network once for each scale-up domain with one of its experts, and the
        fabric once for each GPU with a part of one. The side with fewer GPUs sets the time.
        """
        machine, c = self.ffn.machine, self.ffn.configurations
        attention_gpus, ffn_gpus = self.attention.configurations.stage_gpus, c.stage_gpus
        domain = machine.cluster.scale_up.domain_size
        groups, domains = (
            reached_by_token(layer, number)
            for number in (c.expert_parallel, np.ceil(ffn_gpus / domain))
        )
        num_bytes = number_bytes * self.ffn.hidden_size * self.ffn.batch.tokens
        copies = groups * c.expert_tensor_parallel
        fewer = np.minimum(attention_gpus, ffn_gpus)
        is_inside = attention_gpus + ffn_gpus <= domain
        inside = machine.send_time(num_bytes * copies / np.where(is_inside, fewer, ffn_gpus), 1.0)
        across = machine.send_time(num_bytes * domains / fewer, np.inf)
        return np.where(is_inside, inside, across + inside)


def _ends(share: BatchShare) -> FloatArray:
    """Return seconds of embedding and logits."""
    model = share.inputs.model
    return add(_seconds(share, end.operators) for end in (embedding_of(model), logits_of(model)))


def _seconds(share: BatchShare, operators: Iterable[LayerOperator]) -> FloatArray:
    """Return seconds of some operators of a layer."""
    part = Layer(operators=tuple(operators))
    return add(op.forward for op in layer_operators(share, part))
