"""Less evidence never makes an interval narrower, on any GPU of the catalogue."""

from __future__ import annotations

import math
from itertools import product

import pytest

from planner.confidence.classes import gpu_class
from planner.confidence.engines import engine_labels, engine_rule
from planner.confidence.frameworks import framework_labels, framework_rule
from planner.confidence.intervals import (
    INFERENCE_TABLES,
    TRAINING_TABLES,
    Rule,
    Tables,
    basis_of,
    interval_of,
)
from planner.specs.catalogue import Catalogue

BASES = ("measured", "transferred", "roofline")
KINDS = ("dense", "moe")
SIZES = {
    TRAINING_TABLES: ("gpu", "node", "cluster", "large"),
    INFERENCE_TABLES: ("online", "disagg", "static_batch", "continuous_max_throughput"),
}
QUANTITIES = {
    TRAINING_TABLES: ("step_time", "peak_memory"),
    INFERENCE_TABLES: ("time_to_first_token", "time_per_output_token", "throughput", "peak_memory"),
}
QUESTIONS: list[tuple[Tables, Rule]] = [
    *((TRAINING_TABLES, framework_rule(label)) for label in framework_labels()),
    *((INFERENCE_TABLES, engine_rule(label)) for label in engine_labels()),
]


@pytest.mark.parametrize(("tables", "rule"), QUESTIONS, ids=lambda one: getattr(one, "label", ""))
def test_less_evidence_is_never_narrower(tables: Tables, rule: Rule) -> None:
    catalogue = Catalogue()
    classes = {gpu_class(catalogue.load_gpu(name).spec) for name in catalogue.names("gpus")}
    for quantity, size, kind in product(QUANTITIES[tables], SIZES[tables], KINDS):
        widths: dict[str, list[float]] = {name: [] for name in BASES}
        for silicon in classes:
            keys = (rule.label, silicon, size, kind)
            basis = basis_of(rule, silicon, kind, tables)
            low, high = interval_of(quantity, keys, tables, basis)
            widths[basis].append(math.log(high / low) if low else math.inf)
        for nearer, farther in (BASES[:2], BASES[1:], (BASES[0], BASES[2])):
            if widths[nearer] and widths[farther]:
                assert min(widths[farther]) >= max(widths[nearer]), (quantity, size, kind)
