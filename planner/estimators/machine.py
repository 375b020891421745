"""The silicon and its links as functions from work to seconds."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from planner.base.arrays import BoolArray, CodeArray, FloatArray, Numeric
from planner.base.enums import AttentionKernels, ComputePrecision, Precision
from planner.base.records import record
from planner.estimators.kernel_rows import Rows, Shown, dense_rows, expert_rows, rate_of_class
from planner.estimators.kernel_table import KernelTable, chosen
from planner.estimators.kernel_work import copy_work, peak_work
from planner.estimators.links import Group, Links
from planner.formulas.roofline import gemm_flops
from planner.specs.gpu import HostLink
from planner.specs.quantization import TRAINING_FORMATS

__all__ = ["Group", "Machine"]

# An eighth of two sockets with eight channels of DDR4-3200.
_USUAL_HOST_MEMORY_BANDWIDTH = 51.2e9
# ZeRO-Infinity (arXiv:2104.07857, section 3): drives of a DGX-2 node give each of its 16 GPUs
# 1.6 GB/s.
_USUAL_DRIVE_BANDWIDTH = 1.6e9
# Hours of products at the sustained clock; casts and the sorting of experts' tokens are operators
# of their own.
_TRAINING = Shown(permutes=False)


@record(kw_only=True)
class Machine(Links):
    """A GPU in a cluster.

    ``ideal`` says that the specs and profiles are those of `planner.estimators.ideal`: the
    roofline bound. ``memory_efficiency`` replaces the reached share of the memory bandwidth,
    ``flops_efficiency`` that of the peak in an ideal machine.
    """

    ideal: bool = False
    flops_efficiency: float | None = None
    memory_efficiency: float | None = None

    @property
    def sixteen_bit(self) -> CodeArray:
        """The 16-bit precision of what is never computed in 8: bf16 where the GPU has it."""
        has_bf16 = Precision.BF16 in self.gpu.peak_flops
        code = ComputePrecision.BF16 if has_bf16 else ComputePrecision.FP16
        return np.asarray(code, dtype=np.int8)

    def peak(self, precision: CodeArray) -> FloatArray:
        """Dense peak [FLOP/s] of each precision code; NaN where the GPU lacks it."""
        return np.asarray(self._peaks[precision])

    def gemm_time(
        self,
        rows: Numeric,
        columns: Numeric,
        depth: Numeric,
        precision: CodeArray,
        output_bytes: Numeric = 2,
    ) -> FloatArray:
        """Seconds of ``C[rows, columns] = A B`` under a sustained clock, `cast_time` left out.

        ``precision``: a code of `ComputePrecision`, or of ``TRAINING_FORMATS``.
        """
        e = chosen(self._dense, precision)
        return self.kernels.without_casts(rows, columns, depth, e, output_bytes)

    def cast_time(self, elements: Numeric, precision: CodeArray) -> FloatArray:
        """Seconds in which kernels of their own quantize so many numbers for products."""
        return self.kernels.casts(elements, {"cast_bytes": self._dense["cast_bytes"][precision]})

    def expert_cast_time(self, elements: Numeric, precision: CodeArray) -> FloatArray:
        """The same for the grouped products of experts."""
        return self.kernels.casts(elements, {"cast_bytes": self._experts["cast_bytes"][precision]})

    def vector_product_time(self, rows: Numeric, columns: Numeric, depth: Numeric) -> FloatArray:
        """Seconds of a 16-bit product without tensor cores; 0 where its rate is not known."""
        reached = self.gpu.efficiency.vector_product_fraction
        peak = self.gpu.peak_flops.get(Precision.FP32)
        if reached is None or peak is None:
            return np.zeros(())
        flops = gemm_flops(rows=rows, columns=columns, depth=depth)
        time = flops / (peak * reached)
        if self.ledger is not None:
            self.record(peak_work(flops, peak, reached, time))
        return time

    def peak_time(self, flops: Numeric) -> FloatArray:
        """Seconds of so many 16-bit FLOPs at the dense peak."""
        peak = self.peak(self.sixteen_bit)
        time = np.asarray(flops / peak)
        if self.ledger is not None:
            self.record(peak_work(flops, peak, 1.0, time))
        return time

    def grouped_gemm_time(
        self,
        pairs: Numeric,
        experts: Numeric,
        hidden_size: Numeric,
        width: Numeric,
        matrices: Numeric,
        precision: CodeArray,
    ) -> FloatArray:
        """Seconds of all matrices of ``experts`` local experts on ``pairs`` tokens.

        The measured kernels' own permutation is left out: it is an operator of its own.
        """
        return self.kernels.experts(
            pairs=pairs,
            local_experts=experts,
            hidden_size=hidden_size,
            width=width,
            matrices=matrices,
            e=chosen(self._experts, precision),
        )

    def attention_time(
        self,
        flops: Numeric,
        num_bytes: Numeric,
        sequences: Numeric,
        num_heads: Numeric,
        sequence_length: Numeric,
        head_dim: int,
        rate: Numeric,
    ) -> FloatArray:
        """Seconds of a fused attention kernel in 16 bit, forward, at a rate over the GPU's own."""
        return self.kernels.attention(
            flops=flops,
            num_bytes=num_bytes,
            sequences=sequences,
            num_heads=num_heads,
            sequence_length=sequence_length,
            head_dim=head_dim,
            rate=rate,
        )

    def attention_rate(self, kernels: AttentionKernels) -> float:
        """Rate forward of a class of attention kernels over those written for this GPU."""
        return rate_of_class(self.gpu.efficiency, kernels)

    def fp8_attention_rates(self, used: BoolArray) -> tuple[FloatArray, FloatArray]:
        """Rates of attention in 8 bit over those in 16 bit where it is ``used``, else 1.

        Forward, then backward.
        """
        e = self.gpu.efficiency.fp8_attention
        if e is None or not np.any(used):
            return np.ones(()), np.ones(())
        return np.where(used, e.forward, 1.0), np.where(used, e.backward, 1.0)

    def memory_time(self, num_bytes: Numeric, kernels: float = 1) -> FloatArray:
        """Seconds of ``kernels`` memory-bound kernels that move ``num_bytes`` together."""
        return self.kernels.memory_time(num_bytes, kernels)

    def kernel_table(self, shown: Shown) -> KernelTable:
        """The kernels of the GPU as some software shows them."""
        return KernelTable(
            gpu=self.gpu,
            shown=shown,
            gemm_table=self.catalogue.gemm_table(self.gpu),
            memory_efficiency=self.memory_efficiency,
            ledger=self.ledger,
        )

    def host_copy_time(self, num_bytes: Numeric, link_fraction: float) -> FloatArray:
        """Seconds to copy between a GPU and its host while its neighbours do so too."""
        link = self._host.bandwidth or np.nan
        rate = np.minimum(link * link_fraction, self._host_memory_bandwidth)
        return self._copied(num_bytes, rate, link)

    def host_memory_time(self, num_bytes: Numeric, memory_fraction: float) -> FloatArray:
        """Seconds in which the host reads and writes so many bytes for each of its GPUs."""
        rate = self._host_memory_bandwidth
        return self._copied(num_bytes, rate * memory_fraction, rate)

    def drive_copy_time(self, num_bytes: Numeric) -> FloatArray:
        """Seconds in which the drives of a host read or write so many bytes for one of its GPUs."""
        return self._copied(num_bytes, self.drive_bandwidth, self.drive_bandwidth)

    @property
    def drive_bandwidth(self) -> float:
        """A GPU's share of what the drives of its node read and write [B/s]."""
        return self.cluster.drive_bandwidth or _USUAL_DRIVE_BANDWIDTH

    def _copied(self, num_bytes: Numeric, rate: Numeric, peak: Numeric) -> FloatArray:
        time = np.asarray(num_bytes / rate)
        if self.ledger is not None:
            self.record(copy_work(num_bytes, rate, peak, time))
        return time

    @property
    def host_memory(self) -> float:
        """Bytes of host memory of a GPU of a full node; infinite where nobody says."""
        cluster = self.cluster
        if cluster.host_memory is not None:
            return cluster.host_memory / cluster.gpus_per_node
        return cluster.host_memory_per_gpu or self._host.memory_per_gpu or np.inf

    def host_room(self, num_gpus: Numeric) -> FloatArray:
        """Bytes of host memory for each of so many GPUs, which fill nodes one by one."""
        if self.cluster.host_memory is None:
            return np.asarray(self.host_memory)
        in_node = np.minimum(num_gpus, self.cluster.gpus_per_node)
        return np.asarray(self.cluster.host_memory / in_node)

    @property
    def _host(self) -> HostLink:
        return self.gpu.host or HostLink(description="unknown")

    @property
    def _host_memory_bandwidth(self) -> float:
        own = self._host.memory_bandwidth
        return self.cluster.host_memory_bandwidth or own or _USUAL_HOST_MEMORY_BANDWIDTH

    @cached_property
    def _peaks(self) -> FloatArray:
        peaks = self.gpu.peak_flops
        return np.array([peaks.get(Precision(code.word), np.nan) for code in ComputePrecision])

    @cached_property
    def kernels(self) -> KernelTable:
        """The kernels of the GPU as training shows them."""
        return self.kernel_table(_TRAINING)

    @cached_property
    def _dense(self) -> Rows:
        return dense_rows(self.gpu, TRAINING_FORMATS, _TRAINING)

    @cached_property
    def _experts(self) -> Rows:
        return expert_rows(self.gpu, TRAINING_FORMATS, _TRAINING)
