"""What was assumed for a run because its row leaves it open, in words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from planner.enums import ComputePrecision, Recompute
from planner.errors import did_you_mean
from planner.specs.model import ModelSpec
from planner.validation.cases import Case
from planner.validation.layouts import Layout
from planner.validation.library import spelled
from planner.validation.models import OF_COLUMNS
from planner.validation.runs import Run
from planner.validation.tables import FrameworkRule, framework_labels

UNKNOWN = "is not known"
"""What is said of software that no rule names."""
_OTHER = "other"
# Sizes of a layout; where none is given, 1 is no choice but the absence of it.
_SIZES = ("tensor_parallel", "pipeline_parallel", "context_parallel", "expert_parallel",
          "virtual_pipeline")  # fmt: skip
_CHOICES = ("micro_batch_size", "global_batch_size", "zero_stage", "recompute", "precision",
            "sequence_parallel", "flash_attention")  # fmt: skip


def assumed(run: Run, case: Case) -> tuple[str, ...]:
    """Every choice that was made for a run of training, one text each."""
    return (
        *_framework(run.text("framework"), case.rule),
        *_model(run, case),
        *_layout(run, case.layouts),
        *_surroundings(run, case),
    )


def stand_in(
    kind: str, text: str, *, label: str, profile: str, nearest: bool, labels: Iterable[str]
) -> Iterator[str]:
    """Which profile stands for the software of a run, unless it is plainly its own."""
    if label == _OTHER:
        known = {name.lower(): name for name in labels if name != _OTHER}
        hint = did_you_mean(text, known)
        what = f"{kind} {text!r} {UNKNOWN}" if text else f"{kind} is not given"
        yield f"{what}: {profile} stands in.{hint}"
    elif nearest:
        yield f"{kind} {label}: {profile} stands in as the closest profile"
    elif not text.lower().startswith(_first_word(label)):
        yield f"{kind} {text!r} is taken for {label}"


def _first_word(label: str) -> str:
    return spelled(label).partition("-")[0].partition(".")[0]


def _framework(text: str, rule: FrameworkRule) -> Iterator[str]:
    yield from stand_in(
        "framework", text, label=rule.label, profile=rule.profile, nearest=rule.nearest,
        labels=framework_labels(),
    )  # fmt: skip


def model_choice(name: str, model: ModelSpec) -> Iterator[str]:
    """Which model stands for the name of a run, unless it is its own."""
    if model.source == OF_COLUMNS:
        yield f"model {name!r} is made of the row's columns"
    elif spelled(name) not in map(spelled, (model.name, *model.aliases)):
        yield f"model {name!r} is taken for {model.name}"


def _model(run: Run, case: Case) -> Iterator[str]:
    yield from model_choice(run.text("model"), case.model)
    if not run.text("workload"):
        yield "workload pretrain"


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


def _surroundings(run: Run, case: Case) -> Iterator[str]:
    if not run.text("year"):
        yield "year: features as of now"
    num_gpus, per_node = case.layouts[0].num_gpus, case.cluster.gpus_per_node
    if num_gpus > 1 and not run.text("gpus_per_node"):
        yield f"gpus_per_node {per_node}"
    if num_gpus > per_node and not run.text("scale_out_gbit_per_s"):
        yield f"network as usual for {case.gpu.name}"
    if run.text("measured_peak_memory_gib") and not run.text("memory_kind"):
        yield f"memory_kind {case.memory_kind}"
