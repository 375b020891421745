"""What was assumed for a run of training because its row leaves it open, in words."""

from __future__ import annotations

from collections.abc import Iterator

from planner.base.enums import ComputePrecision, Recompute
from planner.validation.runs import Run
from planner.validation.training.cases import TrainingCase
from planner.validation.training.layouts import Layout

# Sizes of a layout; where none is given, 1 is no choice but the absence of it.
_SIZES = ("tensor_parallel", "pipeline_parallel", "context_parallel", "expert_parallel",
          "virtual_pipeline")  # fmt: skip
_CHOICES = ("micro_batch_size", "global_batch_size", "zero_stage", "recompute", "precision",
            "sequence_parallel", "flash_attention")  # fmt: skip


def training_choices(run: Run, case: TrainingCase) -> Iterator[str]:
    """The choices that are made for runs of training alone, one text each."""
    if not run.text("workload"):
        yield "workload pretrain"
    if not run.text("sequence_length"):
        yield f"sequence_length {case.sequence_length}, usual for fine-tuning with it"
    yield from _layout(run, case.layouts)
    yield from _surroundings(run, case)


def _layout(run: Run, layouts: tuple[Layout, ...]) -> Iterator[str]:
    for name in (*_SIZES, *_CHOICES):
        values = sorted({getattr(layout, name) for layout in layouts})
        absent = name in _SIZES and values == [1]
        if len(values) == 1 and (run.text(name) or absent or _does_nothing(name, layouts[0])):
            continue
        yield f"{name} {' or '.join(map(_word, values))}"


def _does_nothing(name: str, layout: Layout) -> bool:
    if name == "zero_stage":
        return layout.data_parallel * layout.context_parallel == 1
    return name == "sequence_parallel" and layout.tensor_parallel == 1


def _word(value: float) -> str:
    if isinstance(value, Recompute | ComputePrecision):
        return value.word
    return f"{value:g}"


def _surroundings(run: Run, case: TrainingCase) -> Iterator[str]:
    if not run.text("year"):
        yield "year: features as of now"
    num_gpus, per_node = case.layouts[0].num_gpus, case.cluster.gpus_per_node
    if num_gpus > 1 and not run.text("gpus_per_node"):
        yield f"gpus_per_node {per_node}"
    if num_gpus > per_node and not run.text("scale_out_gbit_per_s"):
        yield f"network as usual for {case.gpu.name}"
    if run.text("measured_peak_memory_gib") and not run.text("memory_kind"):
        yield f"memory_kind {case.memory_kind}"
