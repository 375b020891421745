"""Operators of a layer in inference."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import numpy as np

from planner.base.arrays import CodeArray, FloatArray, Numeric
from planner.base.enums import Quantization
from planner.base.records import record
from planner.estimators.inference.context import BatchShare
from planner.estimators.inference.kernels import Kernels
from planner.estimators.inference.weights import weight_formats
from planner.estimators.kernel_work import KernelWork
from planner.estimators.machine import CommunicationGroup


@record(kw_only=True)
class StepOperator:
    """One operator of one layer and one step on one GPU: its seconds and FLOPs.

    ``works``: what its seconds are made of, where that is recorded.
    """

    name: str
    module: str
    time: FloatArray
    flops: FloatArray
    part: str = "compute"
    works: tuple[KernelWork, ...] = ()


@record(kw_only=True)
class LayerContext:
    """A rank with the kernels that serve it."""

    rank: BatchShare
    kernels: Kernels

    def linear(
        self,
        name: str,
        module: str,
        *,
        rows: Numeric,
        columns: Numeric,
        depth: Numeric,
        quantization: CodeArray | None = None,
        stored: float | None = None,
    ) -> StepOperator:
        """Return a matrix product with its time; ``quantization``: types other than the default.

        ``stored``: bytes that a weight takes, where they are not those of its type; tables of
        measured products know none of these.
        """
        matrices = self._matrices if quantization is None else self.kernels.matrices(quantization)
        if stored is not None:
            matrices = {**matrices, "weight": np.asarray(stored), "tabulated": np.zeros(())}
        time = self.kernels.linear(rows, columns, depth, matrices)
        return StepOperator(
            name=name,
            module=module,
            time=np.where(np.asarray(rows) > 0, time, 0.0),
            flops=np.asarray(2.0 * rows * np.asarray(columns) * depth),
        )

    def elementwise(
        self, name: str, module: str, *, num_bytes: Numeric, kernels: int = 1
    ) -> StepOperator:
        """Return memory-bound kernels that move ``num_bytes`` in total."""
        time = self.kernels.elementwise(num_bytes, kernels)
        return StepOperator(
            name=name,
            module=module,
            time=np.where(np.asarray(num_bytes) > 0, time, 0.0),
            flops=np.zeros(()),
        )

    def tensor_all_reduce(self, module: str) -> StepOperator:
        """The sum over the ranks that split a block's matrices."""
        return self.communication(
            f"{module}_all_reduce", module, "tensor_parallel", self._block_all_reduce
        )

    def stored_code(self, part: str) -> CodeArray | None:
        """Return codes with 16 bits where the checkpoint leaves ``part`` in 16 bits; else None."""
        is_sixteen_bit = self._weight_bytes.get(part)
        if is_sixteen_bit is None:
            return None
        code = self.rank.configurations.quantization
        return np.where(is_sixteen_bit[code] > 0, np.int8(Quantization.W16A16), code)

    @cached_property
    def _weight_bytes(self) -> Mapping[str, FloatArray]:
        return weight_formats(self.rank.inputs).stored_bytes

    @cached_property
    def _matrices(self) -> Mapping[str, FloatArray]:
        return self.kernels.matrices(self.rank.configurations.quantization)

    @cached_property
    def _block_all_reduce(self) -> FloatArray:
        rank = self.rank
        return self.kernels.all_reduce(2.0 * rank.tokens * rank.hidden_size, rank.tensor_group)

    def communication(self, name: str, module: str, part: str, time: FloatArray) -> StepOperator:
        """An exchange between ranks."""
        return StepOperator(name=name, module=module, part=part, time=time, flops=np.zeros(()))

    def collective(self, kind: str, num_bytes: Numeric, group: CommunicationGroup) -> FloatArray:
        """Seconds of a collective of the machine."""
        return self.kernels.machine.collective(kind, num_bytes, group)
