"""What the name of the source of a training run says of it."""

from __future__ import annotations

import re
from functools import cache

from planner.base.enums import (
    Precision,
)
from planner.validation.run_tables import Run
from planner.validation.spec_library import Library
from published.tables import read_table

_RELEASE = re.compile(r"performance summary (\d\d\.\d\d)|(MLPerf Training v\d\.\d)")
# Every configuration that NVIDIA, AMD and their partners published of its language models since
# v3.1 computes in 8 or 4 bits.
_BENCHMARK = re.compile(r"MLPerf Training v(\d)")
_EIGHT_BIT_FROM = 2024
_BESIDE = ("id", "words")
_ADAPTERS = ("lora", "qlora")


def training_cells(run: Run, library: Library) -> dict[str, str]:
    """The cells that the source of a run fills or changes."""
    cells = {}
    release = _RELEASE.search(run.text("source"))
    if release and not run.text("framework_version"):
        cells["framework_version"] = release[release.lastindex or 0]
    benchmark = _BENCHMARK.match(run.text("source"))
    if benchmark and not run.text("precision") and _in_eight_bits(run, library):
        cells["likely_precision"] = "fp8"
    if recipe := _recipes().get(run.text("id")):
        cells["fp8_recipe"] = recipe
    if run.text("source") in _noisy_sources():
        cells["noisy"] = "1"
    if "gpu not stated" in run.word("notes"):
        cells["gpu_assumed"] = "1"
    cells |= _settings().get(run.text("id"), {})
    if benchmark and _stores_inputs(run, benchmark[1]):
        cells["fp8_activation_inputs"] = "1"
    return cells


@cache
def _settings() -> dict[str, dict[str, str]]:
    """Cells of runs whose notes, or the script they name, say it in the words beside them."""
    return {
        row["id"]: {name: cell for name, cell in row.items() if cell and name not in _BESIDE}
        for row in read_table("training_settings.csv")
    }


@cache
def _noisy_sources() -> frozenset[str]:
    """Sources that say that their speeds tell nothing."""
    return frozenset(row["source"] for row in read_table("noisy_sources.csv"))


@cache
def _recipes() -> dict[str, str]:
    """How runs scale products in 8 bit, whose notes say it in the words beside it."""
    return {row["id"]: row["fp8_recipe"] for row in read_table("fp8_recipes.csv")}


def _in_eight_bits(run: Run, library: Library) -> bool:
    gpu, year = library.gpu(run.text("gpu")), run.number("year")
    recent = year is None or year >= _EIGHT_BIT_FROM
    return recent and gpu is not None and Precision.FP8 in gpu.peak_flops


def _stores_inputs(run: Run, version: str) -> bool:
    """Whether MLPerf's fine-tuning keeps activation inputs in 8 bits.

    Configurations of v4 set FP8_ACTIVATION; from v5.0 on FP8_ACT is set where one GPU holds
    whole sequences (config_*.sh of llama2_70b_lora, mlcommons/training_results_v5.1@4da2d1c).
    """
    whole = version == "4" or run.count("context_parallel") == 1
    return whole and run.word("workload") in _ADAPTERS
