"""Layouts of published training runs that cannot be."""

from __future__ import annotations

from collections.abc import Iterator

from planner.base.enums import AdapterKind, Offload
from planner.base.units import GIB
from planner.estimators.parameters import count_parameters
from planner.validation.runs import Run
from planner.validation.training.cases import TrainingCase

_SIXTEEN_BIT, _FOUR_BIT = 2.0, 0.5


def impossible_training_layout(run: Run, case: TrainingCase) -> str:
    """Why no layout of a run can be what ran; empty where nothing speaks against one."""
    return next(_faults(case), "")


def _faults(case: TrainingCase) -> Iterator[str]:
    sizes = {layout.tensor_parallel for layout in case.layouts}
    heads = [attention.split_heads[0] for attention in case.model.attentions]
    if sizes and all(number % size for size in sizes for number in heads):
        yield f"tensor_parallel {min(sizes)} does not divide {heads[0]} heads"
    if any(layout.offload is not Offload.NONE for layout in case.layouts):
        return
    each = _FOUR_BIT if case.adapter is AdapterKind.QLORA else _SIXTEEN_BIT
    least = each * count_parameters(case.model).total / case.num_gpus
    if least > case.gpu.allocatable_memory:
        have = case.gpu.allocatable_memory
        yield f"weights of {least / GIB:,.0f} GiB on a GPU of {have / GIB:,.0f} GiB"
