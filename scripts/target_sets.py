"""Figures of published sets that are not a tables of measured runs: recipes, deployments, logs.

Each is a list of numbers, one for every row of the set, with whether a parameter was fitted to it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache

from deployments import deployments, is_wrong
from make_recipes import layout_of, question_of, recipes
from start_logs import predicted, start_logs

import planner
from planner.validation.accuracy import ComparedQuantity, ComparedRun
from planner.validation.run_tables import RATES

Numbers = list[tuple[float, bool]]

# A series has these in common, and its work on each GPU.
_OF_SERIES = (
    *("source", "framework", "framework_version", "workload", "model", "num_hidden_layers"),
    *("hidden_size", "gpu", "sequence_length", "precision", "tensor_parallel", "zero_stage"),
    *("pipeline_parallel", "virtual_pipeline", "context_parallel", "expert_parallel"),
    *("micro_batch_size", "recompute", "flash_attention", "offload", "data_parallel_replicas"),
)
_FROM, _TO, _TIMES = (64, 256), 512, 4
"""GPUs that a series starts with, that it reaches, and how many times as many those are."""


@cache
def _recipes() -> Numbers:
    """1 for each vendor's layout that breaks a rule or is said not to fit."""
    found = (
        planner.estimate(**question_of(recipe), settings=layout_of(recipe)) for recipe in recipes()
    )
    return [(float(bool(one.rejected_by)), False) for one in found]


@cache
def _deployments() -> Numbers:
    return [(float(is_wrong(row)), False) for row in deployments()]


def _rooms(least_split: int) -> Callable[[], Numbers]:
    """|predicted / logged - 1| of the room for a cache, from so many tensor-parallel GPUs on."""

    @cache
    def numbers() -> Numbers:
        found = []
        for row in start_logs():
            memory, measured = predicted(row)
            if int(row["tensor_parallel"]) >= least_split and math.isfinite(measured):
                error = float(memory.room.size[0]) / measured - 1
                found.append((abs(error), row["fitted"] == "1"))
        return found

    return numbers


SETS: Mapping[str, Callable[[], Numbers]] = {
    "recipes": _recipes,
    "deployments": _deployments,
    "start_logs": _rooms(1),
    "split_start_logs": _rooms(4),
}


def scaling_gaps(rows: Sequence[ComparedRun], compared: ComparedQuantity) -> list[float]:
    """How far predicted weak scaling is from measured: shares of the speed of the fewest GPUs.

    A series is one layout with equal work on each GPU, on 64 to 256 GPUs and on four times as
    many and more, 512 at least.
    """
    series: defaultdict[tuple[object, ...], list[ComparedRun]] = defaultdict(list)
    for row in rows:
        gpus, batch = row.run.number("num_gpus"), row.run.number("global_batch_size")
        if gpus and batch:
            series[(*map(row.run.text, _OF_SERIES), round(batch / gpus, 4))].append(row)
    return [gap for each in series.values() for gap in _gaps(each, compared)]


def _gaps(rows: Sequence[ComparedRun], compared: ComparedQuantity) -> Iterator[float]:
    of_gpus = {int(row.run.number("num_gpus") or 0): row for row in rows}
    starts = [gpus for gpus in of_gpus if _FROM[0] <= gpus <= _FROM[1]]
    if not starts:
        return
    few, many = min(starts), max(of_gpus)
    ends = _times(of_gpus[few], compared), _times(of_gpus[many], compared)
    if many < max(_TO, _TIMES * few) or None in ends or ends[0][0] != ends[1][0]:
        return
    (_, measured, expected), (_, measured_many, expected_many) = ends
    yield abs(expected / expected_many - measured / measured_many)


def _times(row: ComparedRun, compared: ComparedQuantity) -> tuple[str, float, float] | None:
    """The quantity that is compared, and measured and predicted time of a GPU's work by it."""
    name = row.first_measured(compared.names) or ""
    measured, predicted_value = row.measured.get(name), row.ranges.get(name)
    if measured is None or predicted_value is None:
        return None
    if name in RATES:
        return name, 1 / measured, 1 / predicted_value.value
    return name, measured, predicted_value.value
