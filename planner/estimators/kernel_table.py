"""Seconds of a GPU's kernels by kind, format and size, for training and serving.

The efficiency of the hardware comes from the GPU's efficiency files; factors of the software come
from `KernelVisibility` of a framework or engine profile. If these agree, both workloads take the
same time for the same kernel.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

import numpy as np

from planner.base.arrays import CodeArray, FloatArray, Numeric
from planner.base.enums import Precision
from planner.base.records import record
from planner.estimators.kernel_work import (
    SIXTEEN_BIT_BYTES,
    KernelFlops,
    KernelVisibility,
    Ledger,
    Rows,
    clock,
    kernel_work,
    moved_work,
    num_multiprocessors,
)
from planner.formulas.attention import wave_fill_factor
from planner.formulas.roofline import (
    memory_bound_time,
    roofline_time,
    tiled_gemm_flops,
    time_with_extra_traffic,
    trilinear,
)
from planner.question.names import COLUMNS, DEPTH, ROWS
from planner.specs.gpu import AttentionEfficiency, GpuSpec
from planner.specs.hardware import GemmTable


def nearest_head(table: Mapping[str, AttentionEfficiency], head_dim: int) -> dict[str, FloatArray]:
    """The efficiencies of attention of the measured head size next to ``head_dim``."""
    nearest = min(table, key=lambda key: abs(int(key.rpartition("_")[2]) - head_dim))
    row = table[nearest]
    return {name: np.asarray([getattr(row, name)])[0] for name in row.__dataclass_fields__}


def select_rows(columns: Mapping[str, FloatArray], index: CodeArray) -> dict[str, FloatArray]:
    """The efficiencies of each of some codes."""
    return {name: column[index] for name, column in columns.items()}


_VECTOR_ROWS = 8
_LEAST_SIZE = 1e-9


@record(kw_only=True)
class KernelTable:
    """Kernels of a GPU as some software shows them.

    ``memory_efficiency`` replaces the reached share of the memory bandwidth; ``gemm_table``:
    measured 16-bit products. ``ledger``: where what kernels do is recorded, if anywhere.
    """

    gpu: GpuSpec
    shown: KernelVisibility = field(default_factory=KernelVisibility)
    gemm_table: GemmTable | None = None
    memory_efficiency: float | None = None
    ledger: Ledger | None = field(default=None, compare=False, repr=False)

    def dense(
        self, rows: Numeric, columns: Numeric, depth: Numeric, e: Rows, output_bytes: Numeric = 2.0
    ) -> FloatArray:
        """Return seconds of a product A B in formats of `dense_rows`, casts of A included."""
        m, n, k = rows, np.asarray(columns), np.asarray(depth)
        return self._dense(m, n, k, e, output_bytes) + self.casts(m * k, e)

    def casts(self, elements: Numeric, e: Rows) -> FloatArray:
        """Seconds of separate kernels that quantize so many activations."""
        if not e["cast_bytes"].any():
            return np.zeros(())
        return np.where(e["cast_bytes"] > 0, self.memory_time(e["cast_bytes"] * elements), 0.0)

    def experts(
        self,
        *,
        pairs: Numeric,
        local_experts: Numeric,
        hidden_size: Numeric,
        width: Numeric,
        matrices: Numeric,
        e: Rows,
        touched_share: Numeric = 1.0,
        tile_rows: Numeric = 0.0,
    ) -> FloatArray:
        """Return seconds of all expert matrices of a rank on ``pairs`` (token, expert) pairs.

        ``touched_share``: share of the experts that have tokens. Each computes whole tiles of
        ``tile_rows``; the last tile is half empty on average.
        """
        local = np.asarray(local_experts)
        touched = np.maximum(touched_share * local, np.minimum(pairs, 1.0))
        rows = np.maximum(pairs / local, 1e-9)
        partial_rows = np.maximum(e["row_offset"], np.asarray(tile_rows) / 2)
        computed = np.maximum(
            1 + touched_share * partial_rows / rows, touched_share * tile_rows / rows
        )
        padding = (1 + e["width_offset"] / width) * computed
        flops = 2.0 * matrices * hidden_size * width * pairs
        moved = matrices * hidden_size * width * touched * e["weight"]
        time = self._roofline(e, flops * padding, moved)
        if self.ledger is not None:
            self._record("experts", e, time, KernelFlops(flops, moved, flops * padding))
        if not e["permute_passes"].any():
            return time
        return time + self._moved(
            2.0 * e["permute_passes"] * hidden_size * pairs, e["read_fraction"], 0.0
        )

    def attention(
        self,
        flops: Numeric,
        num_bytes: Numeric,
        sequences: Numeric,
        num_heads: Numeric,
        sequence_length: Numeric,
        head_dim: int,
        rate: Numeric,
    ) -> FloatArray:
        """Return forward seconds of a fused attention kernel in 16 bits.

        ``rate``: that of the kernel over those written for this GPU.
        """
        e = nearest_head(self.gpu.efficiency.attention, head_dim)
        fill = wave_fill_factor(
            sequences=sequences,
            num_heads=num_heads,
            sequence_length=sequence_length,
            num_multiprocessors=num_multiprocessors(self.gpu),
            wave_fill=e["wave_fill"],
        )
        offset = 1 + e["sequence_offset"] / sequence_length
        efficiency = self.gpu.efficiency
        at_clock = efficiency.sustained_attention_fraction or clock(efficiency, Precision.BF16, 1.0)
        reached = e["compute_fraction"] * rate * at_clock
        row = {**e, "compute_fraction": reached, "peak": np.asarray(self.sixteen_bit_peak)}
        time = self._roofline(row, flops * fill * offset, num_bytes)
        if self.ledger is not None:
            self._record(
                "attention", row, time, KernelFlops(flops, num_bytes, flops * fill * offset)
            )
        return time

    def memory_time(self, num_bytes: Numeric, kernels: float = 1.0) -> FloatArray:
        """Seconds of ``kernels`` memory-bound kernels that move ``num_bytes`` together."""
        e = self.gpu.efficiency.memory_bound
        fraction = self.bandwidth_fraction(e.bandwidth_fraction)
        return self._moved(num_bytes, fraction, kernels * e.latency)

    def _moved(self, num_bytes: Numeric, fraction: Numeric, latency: Numeric) -> FloatArray:
        """Return seconds to move ``num_bytes`` at a fraction of the memory bandwidth."""
        time = memory_bound_time(
            num_bytes=num_bytes,
            memory_bandwidth=self.gpu.memory_bandwidth,
            bandwidth_fraction=fraction,
            latency=latency,
        )
        if self.ledger is not None:
            self.ledger.add(moved_work(self.gpu, num_bytes, fraction, latency, time))
        return time

    def _record(
        self, formula: str, e: Rows, time: FloatArray, done: KernelFlops, loads: Numeric = np.inf
    ) -> None:
        """Record the work of a kernel in the ledger, to explain its time later."""
        if self.ledger is not None:
            reached = {**e, "bandwidth_fraction": np.asarray(self._reached(e, loads))}
            self.ledger.add(kernel_work(formula, self.gpu, reached, time, done))

    def bandwidth_fraction(self, measured: Numeric) -> Numeric:
        """The reached share of the memory bandwidth: measured, unless the user sets it."""
        return measured if self.memory_efficiency is None else self.memory_efficiency

    @property
    def sixteen_bit_peak(self) -> float:
        """Dense peak [FLOP/s] in 16 bit; NaN where the GPU has none."""
        peaks = self.gpu.peak_flops
        return peaks.get(Precision.BF16, peaks.get(Precision.FP16, float("nan")))

    def without_casts(
        self, rows: Numeric, columns: Numeric, depth: Numeric, e: Rows, output_bytes: Numeric = 2.0
    ) -> FloatArray:
        """Seconds of products without casts of activations, which separate kernels do."""
        return self._dense(rows, np.asarray(columns), np.asarray(depth), e, output_bytes)

    def _dense(
        self, m: Numeric, n: FloatArray, k: FloatArray, e: Rows, output_bytes: Numeric
    ) -> FloatArray:
        """Return seconds of a product ``(m, k) x (k, n)``, from the GEMM table if it applies."""
        flops = tiled_gemm_flops(
            rows=m,
            columns=n,
            depth=k,
            row_offset=e["row_offset"],
            column_offset=e["column_offset"],
            depth_offset=e["depth_offset"],
            area_floor=e["area_floor"],
        )
        moved = e["weight"] * n * k + e["activation"] * m * k
        loads = self._max_bandwidth_fraction(m)
        time = self._of_sizes((m, n, k), e, flops, moved, output_bytes, loads)
        if self.ledger is not None:
            in_table = self.gemm_table is not None and bool(e["tabulated"].any())
            sizes = {ROWS: m, COLUMNS: n, DEPTH: k}
            done = KernelFlops(2.0 * m * n * k, moved + output_bytes * m * n, flops, sizes)
            self._record("table" if in_table else "product", e, time, done, loads)
        return time

    def _of_sizes(
        self,
        sizes: tuple[Numeric, FloatArray, FloatArray],
        e: Rows,
        flops: FloatArray,
        moved: FloatArray,
        output_bytes: Numeric,
        loads: Numeric,
    ) -> FloatArray:
        """Return seconds of products from the GEMM table; by roofline without table values."""
        m, n, _ = sizes
        if self.gemm_table is None or not e["tabulated"].any():
            return self._roofline(e, flops, moved + output_bytes * m * n, loads)
        moved_in = moved + SIXTEEN_BIT_BYTES * m * n
        in_table = self._tabulated(sizes, e, flops, moved_in, loads)
        in_table = self._with_wider_output(in_table, e, m * n, output_bytes)
        if np.all(e["tabulated"]):
            return in_table
        computed = self._roofline(e, flops, moved + output_bytes * m * n, loads)
        return np.where(e["tabulated"] > 0, in_table, computed)

    def _tabulated(
        self,
        sizes: tuple[Numeric, FloatArray, FloatArray],
        e: Rows,
        flops: FloatArray,
        moved: FloatArray,
        most_bandwidth_fraction: Numeric,
    ) -> FloatArray:
        """Return seconds of a product by interpolation in the GEMM table.

        What software shows, and another memory than that of the GPU of the table, change it as much
        as they change the form that is fitted to all sizes.
        """
        table = self.gemm_table
        assert table is not None
        # A product of no rows takes no time, even if the table has an entry.
        logs = [np.log(np.maximum(size, _LEAST_SIZE)) for size in sizes]
        work = np.exp(trilinear(table.sizes, table.work, logs))
        measured = self.gpu.efficiency.gemm["bf16"]
        rate = measured.compute_fraction * e["clock"]
        time = np.asarray(work / (e["peak"] * rate))
        bandwidth = self.gpu.efficiency.gemm_table_bandwidth or self.gpu.memory_bandwidth
        if self._is_plain and bandwidth == self.gpu.memory_bandwidth:
            return time
        form = self._roofline(e, flops, moved, most_bandwidth_fraction)
        as_measured = roofline_time(
            flops=flops,
            num_bytes=moved,
            peak_flops=e["peak"],
            memory_bandwidth=bandwidth,
            compute_fraction=rate,
            bandwidth_fraction=measured.bandwidth_fraction,
            latency=measured.latency,
            sharpness=measured.sharpness,
        )
        return np.asarray(time * (form / as_measured))

    def _with_wider_output(
        self, time: FloatArray, e: Rows, elements: FloatArray, output_bytes: Numeric
    ) -> FloatArray:
        """Add seconds for output wider than the table's two bytes per element."""
        wider = np.maximum(np.asarray(output_bytes) - SIXTEEN_BIT_BYTES, 0.0)
        if not wider.any():
            return time
        fraction = self.bandwidth_fraction(e["bandwidth_fraction"])
        more = wider * elements / (self.gpu.memory_bandwidth * fraction)
        longer = time_with_extra_traffic(time=time, extra_time=more, sharpness=e["sharpness"])
        return np.where(wider > 0, longer, time)

    @property
    def _is_plain(self) -> bool:
        """Whether 16-bit products run as they were measured, but for the clock."""
        s = self.shown
        rates = (s.compute, s.dense_compute, s.bandwidth, s.latency, s.dense_latency)
        return all(rate == 1.0 for rate in rates) and s.vector_bandwidth == 0

    def _roofline(
        self, e: Rows, flops: Numeric, moved: Numeric, most_bandwidth_fraction: Numeric = np.inf
    ) -> FloatArray:
        """Return roofline seconds of kernels with the peaks and fractions in the rows ``e``."""
        return roofline_time(
            flops=flops,
            num_bytes=moved,
            peak_flops=e["peak"],
            memory_bandwidth=self.gpu.memory_bandwidth,
            compute_fraction=e["compute_fraction"],
            bandwidth_fraction=self._reached(e, most_bandwidth_fraction),
            latency=e["latency"],
            sharpness=e["sharpness"],
        )

    def _reached(self, e: Rows, most_bandwidth_fraction: Numeric) -> Numeric:
        """The share of the memory bandwidth that a kernel reaches."""
        return self.bandwidth_fraction(np.minimum(e["bandwidth_fraction"], most_bandwidth_fraction))

    def _max_bandwidth_fraction(self, rows: Numeric) -> Numeric:
        """Return the share of bandwidth that products of few rows can load."""
        each, multiprocessors = self.shown.vector_bandwidth, self.gpu.num_multiprocessors
        if each == 0 or multiprocessors is None:
            return np.inf
        loaded = multiprocessors * each / self.gpu.memory_bandwidth
        return np.where(np.asarray(rows) <= _VECTOR_ROWS, loaded, np.inf)
