"""What is plainly right is accepted without pydantic, and nothing that it judges otherwise."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import FrozenInstanceError, fields, replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from planner.errors import SpecError
from planner.specs.checked import adapter, checked, plainly_made
from planner.specs.cluster import ClusterSpec
from planner.specs.engine import EngineProfile
from planner.specs.framework import FrameworkProfile
from planner.specs.load import check_spec, read_toml
from planner.specs.model import ModelSpec
from planner.specs.quantity import FileContext
from planner.specs.search_space import SearchSpace
from planner.specs.serving import ServingWorkload
from planner.specs.workload import TrainingWorkload

ROOT = Path(__file__).parents[2]
FOLDERS: dict[Any, str] = {
    ModelSpec: "planner/model_specs",
    FrameworkProfile: "planner/framework_profiles",
    EngineProfile: "planner/engine_profiles",
    ClusterSpec: "hardware_specs/clusters",
    SearchSpace: "search_spaces",
}
CASES = [
    pytest.param(kind, path, id=path.stem)
    for kind, folder in FOLDERS.items()
    for path in sorted((ROOT / folder).glob("*.toml"))
    if "extends" not in read_toml(path)
]
ONE_OF_EACH = [
    pytest.param(kind, max((ROOT / folder).glob("*.toml"), key=lambda p: p.stat().st_size))
    for kind, folder in FOLDERS.items()
]
ODD: tuple[Any, ...] = (
    None, True, 0, 1, -1, 3, 2.0, 0.5, 1e30, 10**12, math.nan, math.inf, "", "1", "bf16", "true",
    [], [1], [1, "x"], {}, {"value": 1}, {"value": 1, "unit": "GB", "source": "assumed"},
    {"value": True, "unit": "1", "source": "assumed"}, {"powers_of_two_up_to": 4}, (1, 2),
)  # fmt: skip


def _parts(kind: Any, path: Path) -> tuple[dict[str, Any], FileContext]:
    table = read_toml(path)
    return table, FileContext(table.pop("sources", {}))


def _judged(kind: Any, table: dict[str, Any], context: Any) -> Any:
    try:
        return adapter(kind).validate_python(table, context=context)
    except ValidationError:
        return None


def _changed(table: Any) -> Iterator[Any]:
    """The table with each of its values, keys and tables replaced, left out or added to."""
    if isinstance(table, dict):
        yield {**table, "unknown": 1}
        for key, value in table.items():
            yield {name: kept for name, kept in table.items() if name != key}
            yield from ({**table, key: odd} for odd in ODD)
            yield from ({**table, key: inner} for inner in _changed(value))
    elif isinstance(table, list) and table:
        yield from ([*table[:-1], inner] for inner in (*_changed(table[-1]), *ODD))


@pytest.mark.parametrize(("kind", "path"), CASES)
def test_shipped_files_are_plainly_right(kind: Any, path: Path) -> None:
    table, context = _parts(kind, path)
    plain = plainly_made(kind, table, context)
    assert plain is not None
    assert repr(plain) == repr(_judged(kind, table, context))
    assert plain == _judged(kind, table, context)


@pytest.mark.parametrize(("kind", "path"), ONE_OF_EACH)
def test_nothing_is_plain_that_pydantic_judges_otherwise(kind: Any, path: Path) -> None:
    table, context = _parts(kind, path)
    accepted = refused = 0
    for changed in _changed(table):
        plain = plainly_made(kind, changed, context)
        if plain is None:
            refused += 1
            continue
        accepted += 1
        assert repr(plain) == repr(_judged(kind, changed, context)), changed
    assert accepted > 5
    assert refused > 50


@checked
class _Either:
    value: float | int


def test_pydantic_chooses_between_several_types() -> None:
    assert plainly_made(_Either, {"value": 3}, None) is None
    assert type(_Either(value=3).value) is int


def test_what_is_not_plain_is_converted() -> None:
    made = TrainingWorkload(sequence_length=2048.0, global_batch_size="8", total_tokens=10**9)  # type: ignore[arg-type]
    assert (made.sequence_length, made.global_batch_size) == (2048, 8)
    assert isinstance(made.sequence_length, int)
    assert isinstance(made.total_tokens, float)


@pytest.mark.parametrize(
    "changes",
    [{"input_tokens": 0}, {"acceptance_rate": 1.0}, {"draft_tokens": 0.5}, {"unknown": 1}],
)
def test_copies_are_checked(changes: dict[str, Any]) -> None:
    workload = ServingWorkload(input_tokens=100, output_tokens=10)
    with pytest.raises(ValidationError):
        replace(workload, **changes)


def test_they_are_values_that_do_not_change() -> None:
    workload = ServingWorkload(input_tokens=100, output_tokens=10)
    same = ServingWorkload(output_tokens=10.0, input_tokens="100")  # type: ignore[arg-type]
    assert workload == same
    assert hash(workload) == hash(same)
    assert workload != replace(workload, draft_tokens=1)
    assert repr(workload).startswith("ServingWorkload(input_tokens=100, output_tokens=10, ")
    with pytest.raises(FrozenInstanceError):
        workload.input_tokens = 1  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        del workload.input_tokens  # type: ignore[misc]


def test_every_field_is_filled() -> None:
    made = ServingWorkload(input_tokens=100, output_tokens=10)
    assert vars(made).keys() == {field.name for field in fields(made)}


def test_faults_are_told_by_pydantic() -> None:
    with pytest.raises(SpecError, match="name"):
        check_spec(ModelSpec, {**_parts(ModelSpec, CASES[0].values[1])[0], "name": 3}, "file")
