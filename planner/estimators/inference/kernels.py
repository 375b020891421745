"""Seconds of an engine's kernels on a machine."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import numpy as np

from planner.base.arrays import CodeArray, FloatArray, Numeric
from planner.base.enums import AttentionKernels, CacheType, Precision, Quantization
from planner.base.records import record
from planner.estimators.kernel_table import KernelTable, select_rows
from planner.estimators.kernel_work import (
    SIXTEEN_BIT_BYTES,
    KernelVisibility,
    Rows,
    cache_work,
    dense_rows,
    expert_rows,
    num_multiprocessors,
    peak_work,
)
from planner.estimators.machine import CommunicationGroup, Machine
from planner.formulas.routing import experts_touched, fullest_rank_expert_share
from planner.specs.engine import EngineProfile
from planner.specs.quantization import KernelFormat, format_on

SIXTEEN_BIT = np.asarray(Quantization.W16A16, dtype=np.int8)
_SCORE_BYTES = 4.0


@record(kw_only=True)
class Kernels:
    """Matrices, attention and elementwise work as an engine runs them.

    ``biased_experts``: experts add biases.
    """

    machine: Machine
    engine: EngineProfile
    biased_experts: bool = False

    def matrices(self, quantization: CodeArray) -> dict[str, FloatArray]:
        """Efficiency of products in each of several formats, for `linear`."""
        return select_rows(self._matrices, quantization)

    def linear(
        self, rows: Numeric, columns: Numeric, depth: Numeric, e: Mapping[str, FloatArray]
    ) -> FloatArray:
        """Return seconds of a product A B with quantized weights B, casts included.

        ``e``: what the ``matrices`` of their types reach.
        """
        time = self.table.dense(rows, columns, depth, e)
        time = time + self._row_time(rows, np.asarray(columns) * np.asarray(depth), e["weight"])
        least = self.engine.execution.unpacked_rows
        if least == 0:
            return time
        packed = e["weight"]
        weights = np.asarray(columns) * np.asarray(depth)
        moved = self.engine.execution.unpacking_bytes or packed + SIXTEEN_BIT_BYTES
        begin = self.machine.mark
        unpacked = self.machine.memory_time(moved * weights) + self.table.dense(
            rows, columns, depth, self.matrices(SIXTEEN_BIT)
        )
        unpacks = (packed < SIXTEEN_BIT_BYTES) & (np.asarray(rows) >= least)
        self.machine.unused(~unpacks, since=begin)
        return np.where(unpacks, unpacked, time)

    def _row_time(
        self, rows: Numeric, weights: FloatArray, weight_bytes: FloatArray
    ) -> FloatArray | float:
        """Return seconds of vector instructions of the rows after the first, in few rows.

        The first row's are hidden behind reading the weights.
        """
        execution, peaks = self.engine.execution, self.machine.gpu.peak_flops
        if not execution.row_instructions or Precision.FP32 not in peaks:
            return 0.0
        instructions = weights * self.engine.row_instructions_by_architecture.get(
            self.machine.gpu.architecture, execution.row_instructions
        )
        few = (np.asarray(rows) <= execution.vector_rows) & (weight_bytes < SIXTEEN_BIT_BYTES)
        # A lane's fused multiply-add is one instruction and two FLOPs.
        flops = np.where(few, 2.0 * np.maximum(np.asarray(rows) - 1.0, 0.0) * instructions, 0.0)
        peak = peaks[Precision.FP32]
        if np.any(flops):
            self.machine.record(peak_work(flops, peak, 1.0, flops / peak))
        return np.asarray(flops / peak)

    def cache_unpacking(self, num_bytes: Numeric, element_bytes: FloatArray) -> FloatArray:
        """Return seconds to unpack a KV cache of fewer than 16 bits before attention."""
        moved = self.engine.execution.unpacking_bytes
        if moved == 0:
            return np.zeros(())
        is_packed = (element_bytes > 0) & (element_bytes < SIXTEEN_BIT_BYTES)
        elements = np.asarray(num_bytes) / np.where(is_packed, element_bytes, 1.0)
        return np.where(is_packed, self.machine.memory_time(moved * elements), 0.0)

    def experts(
        self,
        *,
        tokens: Numeric,
        pairs: Numeric,
        num_experts: Numeric,
        num_experts_per_tok: int,
        local_experts: Numeric,
        hidden_size: int,
        width: Numeric,
        matrices: int,
        quantization: CodeArray,
        dispersion: float,
        uneven_ranks: Numeric = 1.0,
    ) -> FloatArray:
        """Return seconds of the expert matrices of a rank on ``pairs`` (token, expert) pairs.

        ``tokens`` of the whole replica decide which of its ``local_experts`` are read; the others
        wait for the one of the ``uneven_ranks`` that reads most.
        """
        e = select_rows(self._expert_matrices, quantization)
        share = experts_touched(
            num_experts=num_experts,
            num_experts_per_tok=num_experts_per_tok,
            tokens=tokens,
            dispersion=dispersion,
        ) / np.asarray(num_experts)
        time = self.table.experts(
            pairs=pairs,
            local_experts=local_experts,
            hidden_size=hidden_size,
            width=width,
            matrices=matrices,
            e=e,
            touched_share=fullest_rank_expert_share(
                share=share, ranks=uneven_ranks, local_experts=local_experts
            ),
            tile_rows=np.minimum(tokens, self.engine.execution.expert_tile_rows),
        )
        return np.where(np.asarray(pairs) > 0, time, 0.0)

    def decode_attention(
        self,
        *,
        sequences: Numeric,
        context: Numeric,
        cache_bytes_per_token: Numeric,
        heads: Numeric,
        group: Numeric,
        query_bytes: Numeric,
        flops: Numeric,
        cache: CodeArray,
    ) -> FloatArray:
        """Return seconds of decode attention of a rank's ``heads`` over its KV cache.

        It reads each key once, and again for a share of the ``group`` of its query heads.
        """
        e = select_rows(self._decode_attention, cache)
        padding = self.engine.execution.attention_padding_fraction * e["sequence_offset"]
        share, repeated = self._cache_reads(np.asarray(sequences) * heads, np.asarray(context))
        keys, reached = np.asarray(context) + padding, e["bandwidth_fraction"] * share
        reads = 1.0 + repeated * (np.asarray(group) - 1)
        moved = sequences * (cache_bytes_per_token * reads) * keys + query_bytes
        if self.machine.memory_efficiency is not None:
            reached = np.asarray(self.machine.memory_efficiency)
        bandwidth = self.machine.gpu.memory_bandwidth * reached
        peak = self.machine.peak(self.machine.sixteen_bit)
        rate = peak * self._attention_compute_fraction
        in_fp8 = self._of_architecture(self.engine.fp8_cache_compute_by_architecture)
        rate = rate * np.where(np.asarray(cache) == CacheType.FP8, in_fp8, 1.0)
        time = np.maximum(moved / bandwidth, flops / rate)
        by_bytes = time
        each = self._instruction_time(cache, group, sequences, heads)
        if np.any(each):
            cached = np.asarray(sequences) * cache_bytes_per_token * np.asarray(context)
            time = np.maximum(time, cached * group * each)
        block_bandwidth = self.engine.execution.attention_block_bandwidth
        if block_bandwidth:
            of_head = np.asarray(cache_bytes_per_token) * group / heads
            time = np.maximum(time, of_head * context / block_bandwidth)
        latency = e["latency"] * self._kernel_latency_fraction
        total = np.where(np.asarray(sequences) > 0, time + latency, 0.0)
        if self.machine.ledger is not None:
            self.machine.record(
                cache_work(
                    self.machine.gpu,
                    moved=moved,
                    bandwidth=bandwidth,
                    flops=flops,
                    rate=rate,
                    peak=peak,
                    others=np.where(time > by_bytes, time, 0.0),
                    latency=latency,
                    time=total,
                    cache=CacheType(int(np.ravel(cache)[0])).word,
                )
            )
        return total

    def _instruction_time(
        self, cache: CodeArray, group: Numeric, sequences: Numeric, heads: Numeric
    ) -> Numeric:
        """Return seconds of vector instructions per cached byte and query head."""
        execution, peaks = self.engine.execution, self.machine.gpu.peak_flops
        sixteen_bit = execution.vector_attention_instructions
        eight_bit = execution.vector_attention_instructions_8bit
        unpacked = 0.0 if Precision.FP8 in peaks else execution.fp8_unpack_instructions
        is_free = sixteen_bit == eight_bit == unpacked == 0
        if is_free or Precision.FP32 not in peaks:
            return 0.0
        blocks = np.asarray(sequences) * heads / group
        is_small = blocks < execution.tensor_core_blocks * num_multiprocessors(self.machine.gpu)
        on_lanes = (np.asarray(group) != execution.tensor_core_group) | is_small
        of_cache = {
            CacheType.BF16: on_lanes * sixteen_bit / SIXTEEN_BIT_BYTES,
            CacheType.FP8: np.maximum(on_lanes * eight_bit, unpacked),
            CacheType.INT8: on_lanes * eight_bit,
        }
        instructions = np.select([cache == code for code in of_cache], list(of_cache.values()))
        # A lane's fused multiply-add is one instruction and two FLOPs.
        return np.asarray(2.0 * instructions / peaks[Precision.FP32])

    def _cache_reads(self, blocks: Numeric, context: FloatArray) -> tuple[Numeric, Numeric]:
        """Return decode-attention speed relative to the measured one, and reads per key."""
        execution, split = self.engine.execution, self.engine.attention_split
        share, repeated = execution.attention_bandwidth_fraction, execution.repeated_read_fraction
        if split is None:
            return share, repeated
        crowded = np.asarray(blocks) / self.machine.gpu.num_devices > split.blocks
        unsplit = crowded | (context <= split.context)
        return (
            share * np.where(unsplit, split.unsplit_bandwidth_fraction, 1.0),
            np.where(unsplit, split.unsplit_repeated_read_fraction, repeated),
        )

    def prefill_attention(
        self,
        *,
        flops: Numeric,
        prompts: Numeric,
        head_dim: int,
        sinks: bool = False,
        **sizes: Numeric,
    ) -> FloatArray:
        """Return seconds of causal attention over prompts; ``sizes``: of `prompt_kernel`.

        ``sinks``: each head has a learned sink.
        """
        kernels = self.engine.execution.attention_kernels
        rate = self._of_architecture(self.engine.sink_rate_by_architecture) if sinks else 1.0
        time = self.prompt_kernel(
            flops=np.asarray(flops) / rate,
            prompts=prompts,
            head_dim=head_dim,
            kernels=kernels,
            **sizes,
        )
        passes = self.engine.execution.score_passes
        if passes > 0:
            # A score costs four FLOPs per element of a head: of the query's and of the value's sum.
            scores = np.asarray(flops) / (4.0 * head_dim)
            time = time + self.machine.memory_time(passes * _SCORE_BYTES * scores)
        return np.where(np.asarray(prompts) > 0, time, 0.0)

    def prompt_kernel(
        self,
        *,
        flops: Numeric,
        num_bytes: Numeric,
        prompts: Numeric,
        heads: Numeric,
        queries: Numeric,
        head_dim: int,
        kernels: AttentionKernels,
    ) -> FloatArray:
        """Return seconds of a fused attention kernel over prompts of ``queries`` new tokens."""
        time = self.machine.kernels.attention(
            flops / self.engine.execution.compute_fraction,
            num_bytes,
            prompts,
            heads,
            np.maximum(queries, 1.0),
            head_dim,
            rate=self.machine.attention_rate(kernels),
        )
        return np.where(np.asarray(prompts) > 0, time, 0.0)

    def elementwise(self, num_bytes: Numeric, kernels: int = 1) -> FloatArray:
        """Seconds of memory-bound kernels, as the engine fuses them."""
        passes = self.engine.execution.elementwise_passes
        visible = kernels * self._kernel_latency_fraction
        return self.machine.memory_time(np.asarray(num_bytes) * passes, kernels=visible)

    def all_reduce(self, num_bytes: Numeric, group: CommunicationGroup) -> FloatArray:
        """Return seconds of an all-reduce by NCCL or a one-shot kernel, whichever is faster."""
        execution, inside = self.engine.execution, self.machine.num_domains(group) <= 1
        ring = self.machine.collective("all_reduce", num_bytes, group)
        callback = np.where(inside, 0.0, execution.network_callback_time)
        launched = execution.collective_launch_time + callback
        ring = ring + np.where(np.asarray(group.size) > 1, launched, 0.0)
        if not execution.custom_all_reduce or not self.machine.has_collective("custom_all_reduce"):
            return ring
        direct = self.machine.collective("custom_all_reduce", num_bytes, group)
        if self.machine.ledger is not None:
            is_faster = inside & (direct < ring)
            self.machine.unused(is_faster, "all_reduce")
            self.machine.unused(~is_faster, "custom_all_reduce")
        return np.where(inside, np.minimum(ring, direct), ring)

    @property
    def _kernel_latency_fraction(self) -> float:
        architecture_factor = self._of_architecture(self.engine.kernel_latency_by_architecture)
        return self.engine.execution.kernel_latency_fraction * architecture_factor

    def _of_architecture(self, factors: Mapping[str, float]) -> float:
        """The engine's factor for the generation of this GPU, which is 1 if it names none."""
        return factors.get(self.machine.gpu.architecture, 1.0)

    @property
    def sparse_heads(self) -> int:
        """Heads of a block of the engine's kernel of sparse latent attention over prompts."""
        return self.engine.sparse_heads_by_architecture.get(self.machine.gpu.architecture, 1)

    @property
    def _attention_compute_fraction(self) -> float:
        table = self.machine.gpu.efficiency.attention
        fraction = table["head_dim_128"].compute_fraction
        return fraction * self.engine.execution.compute_fraction

    @cached_property
    def table(self) -> KernelTable:
        """Kernel efficiencies of the GPU as the engine reaches them."""
        execution, engine = self.engine.execution, self.engine
        return self.machine.kernel_table(
            KernelVisibility(
                sustained=execution.sustained_clock,
                compute=execution.compute_fraction,
                dense_compute=self._of_architecture(engine.linear_compute_by_architecture),
                expert_compute=self._of_architecture(engine.expert_compute_by_architecture),
                bandwidth=execution.weight_bandwidth_fraction,
                quantized_bandwidth=execution.quantized_bandwidth_fraction,
                latency=self._kernel_latency_fraction,
                dense_latency=self._of_architecture(engine.dense_latency_by_architecture),
                expert_latency=self._of_architecture(engine.expert_latency_by_architecture),
                vector_bandwidth=execution.vector_bandwidth,
                triton_experts=execution.triton_experts,
                fused_casts=execution.fused_quantization,
                reads_casts=execution.reads_casts,
                half_accumulation=execution.half_accumulation,
            )
        )

    @cached_property
    def _matrices(self) -> Rows:
        return dense_rows(self.machine.gpu, self._formats, self.table.shown)

    @cached_property
    def _expert_matrices(self) -> Rows:
        rows = expert_rows(self.machine.gpu, self._formats, self.table.shown)
        if not (self.biased_experts and self.slow_experts):
            return rows
        rates = np.array([self.slow_experts.get(code.word, 1.0) for code in Quantization])
        return {**rows, "compute_fraction": rows["compute_fraction"] * rates}

    @property
    def slow_experts(self) -> Mapping[str, float]:
        """Compute rates of experts with biases that the engine has no kernels for, by type."""
        return self.engine.slow_experts_by_architecture.get(self.machine.gpu.architecture, {})

    @cached_property
    def _formats(self) -> list[KernelFormat]:
        return [format_on(code, self.machine.gpu.peak_flops) for code in Quantization]

    @cached_property
    def _decode_attention(self) -> dict[str, FloatArray]:
        """Return the measured decode-attention efficiency, as an array over the KV cache types."""
        rows = self.machine.gpu.efficiency.attention_decode
        names = [
            "fp8" if code in (CacheType.FP8, CacheType.INT8, CacheType.INT4) else "bf16"
            for code in CacheType
        ]
        return {
            name: np.array([getattr(rows[key], name) for key in names])
            for name in ("bandwidth_fraction", "latency", "sequence_offset")
        }
