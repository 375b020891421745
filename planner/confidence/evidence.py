"""The evidence of a plan: published runs of its software, and under which conditions they ran."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from functools import cache
from typing import Any

import numpy as np

from planner.base.arrays import BoolArray, IndexArray, Numeric
from planner.base.enums import ComputePrecision, Quantization
from planner.base.records import record
from planner.confidence.error_classes import Release, architecture, find_measured_tool
from planner.confidence.intervals import (
    ASSUMED,
    MEASURED,
    ROOFLINE,
    TRANSFERRED,
    ErrorTables,
    Rule,
    farther_basis,
)
from planner.confidence.profile_rules import read_table
from planner.specs.model import ModelSpec
from planner.specs.quantization import FORMATS

LAYOUTS = (
    "pipeline", "experts", "context", "attention_dp", "disaggregated", "offload", "attention_ffn",
)  # fmt: skip
"""Ways to spread a model beyond tensor and data parallelism, in the order of `layout_codes`."""
_LAYOUT_WORDS = {
    "pipeline": "pipeline parallelism",
    "experts": "expert parallelism",
    "context": "context parallelism",
    "attention_dp": "data-parallel attention",
    "disaggregated": "prefill and decode on separate workers",
    "offload": "offloading",
    "attention_ffn": "attention and FFN on separate GPUs (no released engine has that)",
}
NUMBER_FORMATS = ("16-bit", "8-bit", "4-bit")
LOADS = ("", "few", "some", "many", "crowd", "open")
"""How many requests are served at once; ``open``: they arrive at a rate; "": does not apply."""
_MOST_REQUESTS = (8, 64, 256)
OPEN = LOADS.index("open")
STATIC, MAXIMUM, CLOSED, BURST, OPEN_LOOP = "static", "max_throughput", "closed", "burst", "open"
_SERVED = (CLOSED, BURST, OPEN_LOOP)
_WORK_WORDS = {
    STATIC: "static batches",
    MAXIMUM: "a queue that never empties",
    CLOSED: "clients that wait for their answers",
    BURST: "requests that all start together",
    OPEN_LOOP: "requests that arrive at a rate",
    "pretrain": "training from scratch",
    "finetune": "fine-tuning",
}
_KIND_WORDS = {
    "standard": "standard attention",
    "latent": "latent attention",
    "sparse": "sparse attention",
    "state": "linear attention or state-space layers",
    "experts": "a mixture of experts",
}


@record(kw_only=True)
class Conditions:
    """What errors of a run depend on; each is a word or several words joined by ``+``.

    Parameters
    ----------
    gpu_class : the generation of the GPU (`planner.confidence.error_classes.gpu_class`)
    work : task of training, or how requests arrive
    layout : those of `LAYOUTS` that the run uses
    number_format : one of `NUMBER_FORMATS`: operands of training, weights of serving
    layer_kinds : kinds of attention, and experts
    """

    gpu_class: str
    work: str
    layout: str = ""
    number_format: str = NUMBER_FORMATS[0]
    layer_kinds: str = "standard"

    def missing_words(self, name: str) -> str:
        """The value of one condition as a phrase."""
        value = str(getattr(self, name))
        if name == "layout":
            return " and ".join(_LAYOUT_WORDS[part] for part in value.split("+")) if value else ""
        if name == "layer_kinds":
            return " and ".join(_KIND_WORDS.get(part, part) for part in value.split("+"))
        if name == "work":
            return _WORK_WORDS.get(value, value)
        if name == "number_format":
            return f"{value} numbers"
        return "such GPUs"


_NAMES = tuple(field.name for field in fields(Conditions))


@record(kw_only=True)
class Evidence:
    """How near published runs are.

    Parameters
    ----------
    basis : measured (runs under the same conditions), transferred (runs of the software on this
        generation of GPUs), roofline (none), or assumed (kernels without published efficiency)
    runs : runs of the software on this GPU with this layout, for the same kind of work
    missing : what no published run of the software has, as phrases
    """

    basis: str
    runs: int
    missing: tuple[str, ...] = ()


def classify(conditions: Conditions, published: Iterable[Conditions]) -> str:
    """Return the basis of a prediction, from the conditions of its software's ``published`` runs.

    >>> here = Conditions(gpu_class="hopper", work="closed")
    >>> pipeline = replace(here, layout="pipeline")
    >>> classify(here, [here]), classify(pipeline, [here]), classify(here, [])
    ('measured', 'transferred', 'roofline')
    """
    runs = list(published)
    if conditions in runs:
        return MEASURED
    near = any(run.gpu_class == conditions.gpu_class for run in runs)
    return TRANSFERRED if near else ROOFLINE


@cache
def evidence_of(
    rule: Rule, gpu: str, conditions: Conditions, tables: ErrorTables, *, is_assumed: bool = False
) -> Evidence:
    """Return the evidence of a plan with the software of ``rule`` on ``gpu``.

    Runs of another name count where it has the same profile as its own, not as the closest to it;
    older releases of an engine, which are profiles named after its own, do too. ``is_assumed``: no
    publication states the efficiency of the GPU's kernels.
    """
    published = [run for run in _published(tables) if run.is_of(rule)]
    basis = classify(conditions, (run.conditions for run in published))
    if is_assumed and basis == ROOFLINE:
        basis = ASSUMED
    similar_works = _SERVED if conditions.work in _SERVED else (conditions.work,)
    similar = [run for run in published if run.conditions.work in similar_works]
    runs = sum(
        run.runs for run in similar if run.gpu == gpu and run.conditions.layout == conditions.layout
    )
    missing = [_WORK_WORDS.get(conditions.work, conditions.work)]
    if similar or not published:
        missing = [*_missing(conditions, [run.conditions for run in similar])]
    return Evidence(basis=basis, runs=runs, missing=tuple(missing))


def with_missing(evidence: Evidence, *missing: str) -> Evidence:
    """Return the evidence where no published run has ``missing``; empty texts do not count."""
    lacks = tuple(filter(None, missing))
    if not lacks:
        return evidence
    basis = farther_basis(evidence.basis, TRANSFERRED)
    return replace(evidence, basis=basis, missing=(*evidence.missing, *lacks))


def unmeasured_release(rule: Rule, release: str) -> str:
    """Return a phrase if no published run was measured with a release of an engine, else "".

    An empty release is not specified.
    """
    tool = find_measured_tool(rule.profile)
    if not release or not tool or rule.nearest:
        return ""
    return "" if Release(tool=tool, number=release).is_measured else f"release {release}"


def _missing(conditions: Conditions, published: Sequence[Conditions]) -> Iterator[str]:
    """Yield what none of the runs has, of the software and the same kind of work."""
    if not published:
        return
    for name in ("layout", "work", "layer_kinds", "number_format", "gpu_class"):
        value = getattr(conditions, name)
        if value not in {getattr(run, name) for run in published}:
            words = conditions.missing_words(name)
            if words:
                yield words


@record(kw_only=True)
class PublishedRuns:
    """Published runs of one software on one GPU under the same conditions, and their number."""

    software: str
    profile: str
    is_nearest: bool
    gpu: str
    conditions: Conditions
    runs: int

    def is_of(self, rule: Rule) -> bool:
        """Whether runs are of the software of a rule, or have its profile."""
        if self.software == rule.label:
            return True
        same = self.profile == rule.profile or self.profile.startswith(f"{rule.profile}-")
        return same and not self.is_nearest and not rule.nearest


EVIDENCE_COLUMNS = ("software", "profile", "nearest", "gpu", *_NAMES, "runs")


@cache
def _published(tables: ErrorTables) -> tuple[PublishedRuns, ...]:
    return tuple(
        PublishedRuns(
            software=row["software"],
            profile=row["profile"],
            is_nearest=row["nearest"] == "1",
            gpu=row["gpu"],
            conditions=Conditions(**{name: row[name] for name in _NAMES}),
            runs=int(row["runs"]),
        )
        for row in read_table(tables.evidence)
    )


def evidence_rows(runs: Iterable[tuple[Rule, str, Conditions]]) -> list[tuple[object, ...]]:
    """Return the rows of a table of evidence, sorted: runs by software, GPU and conditions."""
    counts = Counter(
        (rule.label, rule.profile, int(rule.nearest), gpu, *_values(conditions))
        for rule, gpu, conditions in runs
    )
    return [(*key, number) for key, number in sorted(counts.items())]


def _values(conditions: Conditions) -> tuple[str, ...]:
    return tuple(getattr(conditions, name) for name in _NAMES)


def layer_kinds(model: ModelSpec) -> str:
    """Return the kinds of attention of a model, and whether it has experts, joined by ``+``.

    >>> from planner.specs.catalogue import Catalogue
    >>> layer_kinds(Catalogue().load_model("mixtral-8x7b"))
    'experts+standard'
    """
    kinds = {"experts" if kind == "latent_experts" else kind for kind in architecture(model)}
    return "+".join(sorted(kinds - {"window", "sinks"}))


def training_groups(layout: Any, *, is_quantized: bool) -> IndexArray:
    """Return the `group_codes` of layouts of training, with the fields of `TrainingConfigurations`.

    ``is_quantized``: the base weights have 4 bits.
    """
    used = {
        "pipeline": np.greater(layout.pipeline_parallel, 1),
        "experts": np.greater(layout.expert_parallel, 1),
        "context": np.greater(layout.context_parallel, 1),
        "offload": np.greater(layout.offload, 0),
    }
    formats = _TRAINING_FORMATS[np.asarray(layout.precision, dtype=np.intp)]
    return group_codes(layout_codes(used), np.maximum(formats, 2) if is_quantized else formats)


def serving_groups(layout: Any, load: int | IndexArray) -> IndexArray:
    """Return the `group_codes` of replicas, with the fields of `ServingConfigurations`.

    ``load`` is a place in `LOADS`.
    """
    used = {
        "pipeline": np.greater(layout.pipeline_parallel, 1),
        "experts": np.greater(layout.expert_parallel, 1),
        "context": np.greater(layout.context_parallel, 1),
        "attention_dp": np.greater(layout.attention_data_parallel, 1),
        "offload": np.greater(layout.weight_offload, 0) | np.greater(layout.kv_offload, 0),
    }
    formats = _SERVING_FORMATS[np.asarray(layout.quantization, dtype=np.intp)]
    return group_codes(layout_codes(used), formats, load)


def disaggregated_group(
    quantization: Quantization, load: int, *, attention_ffn: bool = False
) -> int:
    """Return the one of `group_codes` of prefill and decode workers, whatever their layouts."""
    number_format = _SERVING_FORMATS[quantization]
    used = {"disaggregated": True, "attention_ffn": attention_ffn}
    return int(group_codes(layout_codes(used), number_format, load))


def layout_codes(used: Mapping[str, bool | BoolArray]) -> IndexArray:
    """Return a number for the layout of each row, from which of `LAYOUTS` are in use."""
    code: IndexArray = np.zeros((), dtype=np.intp)
    for place, name in enumerate(LAYOUTS):
        if name in used:
            code = code + (np.asarray(used[name]).astype(np.intp) << place)
    return code


def layout_of_code(code: int) -> str:
    """Return the layout of a number of `layout_codes`."""
    return "+".join(name for place, name in enumerate(LAYOUTS) if code >> place & 1)


def load_codes(requests: Numeric) -> IndexArray:
    """Return the place in `LOADS` for a number of requests at once."""
    return np.searchsorted(_MOST_REQUESTS, np.asarray(requests, dtype=np.float64)) + 1


_EIGHT_BITS, _FOUR_BITS = (ComputePrecision.FP8, ComputePrecision.INT8), (ComputePrecision.FP4,)
_TRAINING_FORMATS = np.array(
    [1 if code in _EIGHT_BITS else 2 if code in _FOUR_BITS else 0 for code in ComputePrecision]
)
_SERVING_FORMATS = np.array(
    [
        0 if FORMATS[code].weight >= 2 else 1 if FORMATS[code].weight >= 1 else 2
        for code in Quantization
    ]
)
_NUM_LAYOUTS, _NUM_FORMATS = 1 << len(LAYOUTS), len(NUMBER_FORMATS)


def group_codes(
    layout: IndexArray, number_format: IndexArray, load: int | IndexArray = 0
) -> IndexArray:
    """Return one number for layout, number format and load of each row (`group_of_code`)."""
    return np.asarray((np.asarray(load) * _NUM_FORMATS + number_format) * _NUM_LAYOUTS + layout)


def group_of_code(code: int) -> tuple[str, str, str]:
    """Return the layout, number format and load of a number of `group_codes`.

    >>> group_of_code(int(group_codes(np.asarray(1), np.asarray(2), 3)))
    ('pipeline', '4-bit', 'many')
    """
    rest, layout = divmod(code, _NUM_LAYOUTS)
    load, number_format = divmod(rest, _NUM_FORMATS)
    return layout_of_code(layout), NUMBER_FORMATS[number_format], LOADS[load]
