"""Published serving runs of a model on a GPU whose lengths are nearest to a question."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping
from functools import cache, partial

from planner.base.csv_cells import Value, number_or_nan
from planner.base.read_files import packaged_rows
from planner.errors import PlannerError
from planner.question.names import (
    ATTENTION_DATA_PARALLEL,
    CAPACITY_REQUESTS_PER_S_PER_GPU,
    CONCURRENCY,
    ENGINE,
    GPU,
    INPUT_TOKENS,
    MODEL,
    NUM_GPUS,
    OUTPUT_TOKENS,
    OUTPUT_TOKENS_PER_S_PER_GPU,
    PIPELINE_PARALLEL,
    QUANTIZATION,
    TENSOR_PARALLEL,
    TOKENS_PER_S_PER_GPU,
    TOKENS_PER_S_PER_USER,
)
from planner.specs.catalogue import Catalogue
from planner.specs.spec_paths import SpecKind
from planner.validation.run_tables import SHIPPED_INFERENCE

MOST_RUNS = 60
"""Runs that are returned at most, those with the nearest lengths."""
_MOST_RATIO = 2.0
_STATIC = "static_batch"
_DEGREES = (TENSOR_PARALLEL, PIPELINE_PARALLEL, ATTENTION_DATA_PARALLEL)
_POOLS = ("prefill_", "decode_")
_DATE = re.compile(r"measured=(\d{4}-\d\d-\d\d)")
_FILE_DATE = re.compile(r"\d{4}-\d\d-\d\d")
# Publishers of rows whose source is the name of a file.
_PUBLISHERS = {
    "InferenceX": re.compile(r"db-dump|source_file=2026-|gap-analysis\.csv"),
    "aiconfigurator": re.compile(r"aic-"),
}
Cells = Mapping[str, str]


def nearest_runs(
    catalogue: Catalogue,
    model: str,
    gpus: Collection[str],
    input_tokens: float,
    output_tokens: float,
) -> list[dict[str, Value]]:
    """Return result rows of published closed-loop runs, those with the nearest lengths first.

    Both lengths differ by less than a factor of two. Where no rate was published, it follows from
    the requests in flight and their latency (Little's law).

    Parameters
    ----------
    catalogue : specs that names are looked up in
    model : name of the model; runs of models with the same layers count as well
    gpus : names of GPU types
    input_tokens : mean prompt length [tokens]
    output_tokens : mean answer length [tokens]
    """
    near: list[tuple[float, dict[str, Value]]] = []
    architecture = cache(partial(_architecture, catalogue))
    wanted_model = architecture(model)
    for cells in _runs_on(tuple(gpus)):
        lengths = _number(cells, INPUT_TOKENS), _number(cells, OUTPUT_TOKENS)
        ratios = [
            abs(math.log(length / wanted)) if length > 0 and wanted > 0 else math.inf
            for length, wanted in zip(lengths, (input_tokens, output_tokens), strict=True)
        ]
        if not max(ratios) < math.log(_MOST_RATIO):
            continue
        if wanted_model is None or architecture(cells[MODEL]) != wanted_model:
            continue
        if (row := _row(cells)) is not None:
            near.append((sum(ratios), row))
    near.sort(key=lambda distance_and_row: distance_and_row[0])
    return [row for _, row in near[:MOST_RUNS]]


@cache
def _runs_on(gpus: tuple[str, ...]) -> tuple[Cells, ...]:
    """Return the rows of shipped runs with answers of requests on some GPU types."""
    rows: list[Cells] = []
    for path in SHIPPED_INFERENCE:
        rows += [row for row in packaged_rows(path) if row[GPU] in gpus and row["mode"] != _STATIC]
    return tuple(rows)


def _architecture(catalogue: Catalogue, name: str) -> tuple[object, ...] | None:
    """Return what models with the same layers have in common; None: unknown model."""
    try:
        path = catalogue.find(SpecKind.MODELS, name.rsplit("/", 1)[-1])
        model = catalogue.load_model(path.stem)
    except PlannerError:
        return None
    return model.hidden_size, model.vocab_size, model.layer_groups


def _row(cells: Cells) -> dict[str, Value] | None:
    """Return the result columns of a run; None: its rate or its latency is unknown."""
    per_token = _number(cells, "measured_time_per_output_token_s")
    first = _number(cells, "measured_time_to_first_token_s")
    in_flight, answer = _number(cells, CONCURRENCY), _number(cells, OUTPUT_TOKENS)
    latency = first + per_token * (answer - 1)
    rate = _number(cells, "measured_output_tokens_per_s") / answer
    if math.isnan(rate):
        rate = in_flight / latency
    count = _num_gpus(cells)
    if not (math.isfinite(rate) and per_token > 0 and count > 0):
        return None
    tokens = answer + _number(cells, INPUT_TOKENS)
    return {
        MODEL: cells[MODEL],
        GPU: cells[GPU],
        NUM_GPUS: round(count),
        ENGINE: " ".join(filter(None, (cells["framework"], cells["framework_version"]))),
        QUANTIZATION: cells["weight_precision"],
        CONCURRENCY: in_flight if math.isfinite(in_flight) else None,
        CAPACITY_REQUESTS_PER_S_PER_GPU: rate / count,
        TOKENS_PER_S_PER_USER: 1 / per_token,
        "time_to_first_token_s": first if math.isfinite(first) else None,
        "time_per_output_token_s": per_token,
        TOKENS_PER_S_PER_GPU: rate * tokens / count,
        OUTPUT_TOKENS_PER_S_PER_GPU: rate * answer / count,
        "request_latency_s": latency if math.isfinite(latency) else None,
        INPUT_TOKENS: _number(cells, INPUT_TOKENS),
        OUTPUT_TOKENS: answer,
        "source": _source(cells),
        "date": _date(cells),
    }


def _num_gpus(cells: Cells) -> float:
    """Return the GPUs of a run; NaN: unknown."""
    if (count := _number(cells, NUM_GPUS)) > 0:
        return count
    pools = [sum(_gpus_of_pools(cells))] if cells.get("decode_num_workers") else []
    return next(iter(pools), _product(cells, ""))


def _gpus_of_pools(cells: Cells) -> Iterator[float]:
    for pool in _POOLS:
        yield _number(cells, f"{pool}num_workers") * _product(cells, pool)


def _product(cells: Cells, pool: str) -> float:
    """Return the GPUs of a worker: the product of its degrees; missing ones are 1."""
    degrees = [_number(cells, f"{pool}{name}") for name in _DEGREES]
    return math.prod(1.0 if math.isnan(degree) else degree for degree in degrees)


def _source(cells: Cells) -> str:
    """Return the address of a run, or its publisher and file."""
    if url := cells.get("source_url"):
        return url
    details = f"{cells['source']} {cells.get('source_details') or ''}"
    names = (name for name, pattern in _PUBLISHERS.items() if pattern.search(details))
    return " ".join(filter(None, (next(names, ""), cells["source"])))


def _date(cells: Cells) -> str:
    """Return the day of the measurement, or of its publication, or the year."""
    if match := _DATE.search(cells.get("source_details") or ""):
        return match[1]
    match = _FILE_DATE.search(cells["source"])
    return match[0] if match else cells.get("year") or ""


def _number(cells: Cells, column: str) -> float:
    """Return a cell as a number; NaN: empty."""
    return number_or_nan(float(cells[column]) if cells.get(column) else None)
