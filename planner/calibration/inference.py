"""What of engine profiles is fitted to measured runs of inference."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from planner.calibration.parameters import Parameter
from planner.specs.engine import EngineExecution, EngineProfile
from planner.validation.inference.cases import InferenceCase
from planner.validation.kinds import THROUGHPUT
from planner.validation.runs import Run

_TOKEN, _FIRST = "time_per_output_token_s", "time_to_first_token_s"
# Queues make the time to first token scatter: it counts less than what does not queue.
_FIRST_WEIGHT = 0.1


def engine_parameters(engine: EngineProfile) -> Iterator[Parameter]:
    """The numbers of an engine profile that can be fitted."""
    for field in fields(EngineExecution):
        value = getattr(engine.execution, field.name)
        if isinstance(value, float):
            yield Parameter(owner="execution", name=field.name, shipped=value)


def with_engine_values(
    cases: Sequence[InferenceCase], values: Mapping[Parameter, float]
) -> list[InferenceCase]:
    """Cases of one group under other values of parameters."""
    engine = _engine(cases[0], values)
    return [replace(case, engine=engine) for case in cases]


def request_times(run: Run, case: InferenceCase) -> Iterator[tuple[str, float, float]]:
    """The time of a token or, without it, throughput; and that of the first token."""
    measured = {name: run.number(f"measured_{name}") for name in (_TOKEN, *THROUGHPUT, _FIRST)}
    given = [name for name in (_TOKEN, *THROUGHPUT) if measured[name]]
    for name, weight in (
        (given[0] if given else "", 1.0),
        (_FIRST, _FIRST_WEIGHT if given else 1.0),
    ):
        if value := measured.get(name):
            yield name, value, weight


def _engine(case: InferenceCase, values: Mapping[Parameter, float]) -> EngineProfile:
    """The engine of a case under other values; heavier weights keep reading slower."""
    tables: defaultdict[str, dict[str, float]] = defaultdict(dict)
    for parameter, value in values.items():
        is_scaled = parameter.name == "weight_bandwidth_fraction"
        set_to = min(value / case.weight_scale, 2.0) if is_scaled else value
        tables[parameter.owner][parameter.name] = set_to
    changed = {table: _changed(getattr(case.engine, table), own) for table, own in tables.items()}
    return replace(case.engine, **changed)


def _changed(table: Any, values: Mapping[str, float]) -> Any:
    """A table of a profile with other numbers: named ones, or one per architecture."""
    return {**table, **values} if isinstance(table, Mapping) else replace(table, **values)
