"""The operators that may be asked for alone: what each is timed by, which sizes it has.

Times are those of `planner.estimators.machine.Machine`, which every estimate of training asks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any

import numpy as np

from planner.base.arrays import FloatArray
from planner.base.enums import AttentionKernels, ComputePrecision, Fp8Recipe
from planner.base.records import record
from planner.base.software_enums import AttentionKernel
from planner.estimators.attention_core import fused_work
from planner.estimators.attention_rates import rates
from planner.estimators.machine import Group, Machine
from planner.question.terms import glossary
from planner.specs.framework import FrameworkProfile
from planner.specs.quantization import training_format

_NUMBER_BYTES = 2.0
OWN_OF_FRAMEWORK = AttentionKernel.AUTO.word
"""The word for the attention kernels, or the recipe of fp8, that a framework or the GPU has."""

# As many as query heads; those of a node.
_OPEN = ("key_value_heads", "num_gpus")
_FORMATS = ("precision", "fp8_recipe")


@record(kw_only=True)
class Case:
    """Operators of a kind that differ in sizes alone: equally long arrays by name, and words.

    ``framework``: whose kernels they are; None: those that the GPU's efficiencies are of.
    """

    machine: Machine
    sizes: Mapping[str, FloatArray]
    words: Mapping[str, str] = field(default_factory=dict)
    framework: FrameworkProfile | None = None

    def __getitem__(self, name: str) -> FloatArray:
        return self.sizes[name]

    @property
    def format(self) -> Any:
        """How products multiply, where ``TRAINING_FORMATS`` has it."""
        precision = ComputePrecision[self.words["precision"].upper()]
        recipe = Fp8Recipe[self.words["fp8_recipe"].upper()]
        if precision is not ComputePrecision.FP8:
            return np.asarray(precision)
        if recipe is Fp8Recipe.AUTO and self.framework is not None:
            recipe = self.framework.recipe_on(scales_groups=self.machine.gpu.scales_groups)
        if recipe is Fp8Recipe.AUTO:
            return np.asarray(precision)
        return training_format(np.asarray(precision), np.asarray(recipe))


@record(kw_only=True)
class Kind:
    """A kind of operator: how long it takes [s], and the terms that it is given by.

    ``sizes`` must be said where the table of terms has no default, ``words`` are the parameters
    that choose its kernel. ``crosses``: it goes between GPUs, of a group of ``num_gpus`` where it
    ``is_group``.
    """

    seconds: Callable[[Case], FloatArray]
    sizes: tuple[str, ...]
    words: tuple[str, ...] = ()
    crosses: bool = False
    is_group: bool = False

    @property
    def required(self) -> list[str]:
        """The sizes that have no default."""
        return [name for name in self.sizes if not glossary()[name].default and name not in _OPEN]


def _gemm(case: Case) -> FloatArray:
    rows, depth = case["rows"], case["depth"]
    product = case.machine.gemm_time(rows, case["columns"], depth, case.format)
    return product + case.machine.cast_time(rows * depth, case.format)


def _grouped_gemm(case: Case) -> FloatArray:
    pairs, depth, width = case["rows"], case["depth"], case["columns"]
    products = case.machine.grouped_gemm_time(
        pairs, case["local_experts"], depth, width, case["matrices"], case.format
    )
    return products + case.machine.expert_cast_time(pairs * (depth + width), case.format)


def _attention(case: Case) -> FloatArray:
    length, sequences = case["sequence_length"], case["sequences"]
    head_dim = int(case["head_dim"][0])
    own = case.framework.execution.attention_kernels if case.framework else AttentionKernels.NATIVE
    kernel = AttentionKernel[case.words["attention_kernel"].upper()]
    rate, _ = rates(case.machine.gpu.efficiency, np.asarray(kernel), own)
    flops, moved = fused_work(
        tokens=sequences * length,
        sequence_length=length,
        most_keys=length,
        heads=case["heads"],
        key_value_heads=case["key_value_heads"],
        qk_dim=head_dim,
        v_dim=head_dim,
    )
    return case.machine.attention_time(
        flops, moved, sequences, case["heads"], length, head_dim, rate=rate
    )


def _elementwise(case: Case) -> FloatArray:
    passes = case.framework.execution.elementwise_passes if case.framework else 1.0
    numbers = case["rows"] * case["columns"]
    return case.machine.memory_time(numbers * (_NUMBER_BYTES * case["tensors"] * passes))


def _collective(name: str) -> Callable[[Case], FloatArray]:
    def seconds(case: Case) -> FloatArray:
        group = Group(size=case["num_gpus"], stride=case["stride"])
        return case.machine.collective(name, case["num_bytes"], group)

    return seconds


def _send(case: Case) -> FloatArray:
    return case.machine.send_time(case["num_bytes"], case["distance"])


def _device_copy(case: Case) -> FloatArray:
    return case.machine.memory_time(2 * case["num_bytes"])


def _host_copy(case: Case) -> FloatArray:
    share = case.framework.offloading.host_link_fraction if case.framework else 1.0
    return case.machine.host_copy_time(case["num_bytes"], share)


def _host_memory(case: Case) -> FloatArray:
    share = case.framework.offloading.host_memory_fraction if case.framework else 1.0
    return case.machine.host_memory_time(case["num_bytes"], share)


def _drive_copy(case: Case) -> FloatArray:
    return case.machine.drive_copy_time(case["num_bytes"])


def _kind(seconds: Callable[[Case], FloatArray], *sizes: str, **more: Any) -> Kind:
    return Kind(seconds=seconds, sizes=sizes, **more)


_GROUP = ("num_bytes", "num_gpus", "stride")
KINDS: Mapping[str, Kind] = {
    "gemm": _kind(_gemm, "rows", "columns", "depth", words=_FORMATS),
    "grouped-gemm": _kind(
        _grouped_gemm, "rows", "columns", "depth", "local_experts", "matrices", words=_FORMATS
    ),
    "attention": _kind(
        _attention, "sequences", "sequence_length", "heads", "key_value_heads", "head_dim",
        words=("attention_kernel",),
    ),
    "elementwise": _kind(_elementwise, "rows", "columns", "tensors"),
    **{
        name: _kind(_collective(name.replace("-", "_")), *_GROUP, crosses=True, is_group=True)
        for name in ("all-reduce", "custom-all-reduce", "all-gather", "reduce-scatter",
                     "all-to-all")
    },
    "send": _kind(_send, "num_bytes", "distance", crosses=True),
    "device-copy": _kind(_device_copy, "num_bytes"),
    "host-copy": _kind(_host_copy, "num_bytes"),
    "host-memory": _kind(_host_memory, "num_bytes"),
    "drive-copy": _kind(_drive_copy, "num_bytes"),
}  # fmt: skip
"""Every kind by the word that users say.

``device-copy`` is within a GPU, ``send`` between two; ``host-copy`` goes over the link of a GPU to
its host, ``host-memory`` is the host's own reading and writing, ``drive-copy`` reads or writes
drives of the node.
"""
