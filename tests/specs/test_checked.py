"""Values are checked by their annotations, and every fault is told with its place."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import FrozenInstanceError, field, fields, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from annotated_types import Interval, MinLen
from rows import each

from planner.specs.engine import EngineProfile
from planner.specs.framework import FrameworkProfile
from planner.specs.gpu import ClusterSpec
from planner.specs.model import ModelSpec
from planner.specs.search_space import PowersOfTwo, SearchSpace
from planner.specs.serving_workload import ServingWorkload
from planner.specs.spec_files import FileContext, read_toml
from planner.specs.training_workload import TrainingWorkload
from planner.specs.validated import Strict, ValidationErrors, build_validated, validated

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


@each(("kind", "path"), CASES)
def test_shipped_files_are_right(kind: Any, path: Path) -> None:
    table, context = _parts(kind, path)
    made = build_validated(kind, table, context)
    assert vars(made).keys() == {field.name for field in fields(made)}


@pytest.mark.few(1)
@pytest.mark.parametrize(("kind", "path"), ONE_OF_EACH)
def test_whatever_a_file_says_is_made_or_refused(kind: Any, path: Path) -> None:
    table, context = _parts(kind, path)
    accepted = refused = 0
    for changed in _changed(table):
        try:
            hash(repr(build_validated(kind, changed, context)))
            accepted += 1
        except ValidationErrors:
            refused += 1
    assert accepted > 5
    assert refused > 50


@validated
class _Part:
    size: Annotated[int, Strict(), Interval(ge=1, le=8)]


@validated
class _Whole:
    one: float | int = 0
    number: float = 0.0
    count: int = 0
    is_so: bool = False
    word: Literal["a", "b"] = "a"
    name: Annotated[str, MinLen(1)] = "x"
    parts: tuple[_Part, ...] = ()
    by_name: Mapping[str, _Part] = field(default_factory=dict)
    part: _Part | None = None


@each(
    ("values", "place", "text"),
    [
        ({"unknown": 1}, "unknown", "is not a known key"),
        ({"number": "x"}, "number", "must be a number, not 'x'"),
        ({"number": True}, "number", "must be a number, not True"),
        ({"number": None}, "number", "must be a number, not None"),
        ({"count": 0.5}, "count", "must be a whole number, not 0.5"),
        ({"count": 1e30}, "count", "must be a whole number, not 1e+30"),
        ({"count": [1]}, "count", "must be a whole number, not a list"),
        ({"is_so": "true"}, "is_so", "must be true or false, not 'true'"),
        ({"word": "c"}, "word", "must be one of a, b, not 'c'"),
        ({"name": ""}, "name", "must be at least 1 long"),
        ({"name": 3}, "name", "must be text, not 3"),
        ({"parts": {}}, "parts", "must be a list, not a table"),
        ({"parts": [{"size": 1}, {}]}, "parts.1.size", "is missing"),
        ({"parts": [{"size": "1"}]}, "parts.0.size", "must be a whole number, not '1'"),
        ({"by_name": {"k": {"size": 9}}}, "by_name.k.size", "must be at most 8"),
        ({"part": {"size": 0}}, "part.size", "must be at least 1"),
        ({"part": 3}, "part", "must be a table, not 3"),
    ],
)
def test_a_fault_has_its_place(values: dict[str, Any], place: str, text: str) -> None:
    with pytest.raises(ValidationErrors) as caught:
        _Whole(**values)
    assert [(".".join(where), what) for where, what in caught.value.errors] == [(place, text)]


def test_all_faults_are_told_at_once() -> None:
    with pytest.raises(
        ValidationErrors, match="number must be a number, not 'x'; count must be a whole"
    ):
        _Whole(number="x", count="y")  # type: ignore[arg-type]


def test_a_misspelt_key_comes_before_the_key_that_is_missing_for_it() -> None:
    with pytest.raises(ValidationErrors) as caught:
        build_validated(SearchSpace, {"name": "x", "description": "", "paramters": {}}, None)
    assert [name for (name,), _ in caught.value.errors] == ["paramters", "parameters"]


@each(
    ("values", "text"),
    [
        ({}, "names no framework (training) and no engine (serving): add one"),
        ({"framework": "fsdp", "engine": "vllm"}, "names a framework (training) and an engine"),
    ],
)
def test_a_space_is_of_a_framework_or_an_engine(values: dict[str, Any], text: str) -> None:
    with pytest.raises(ValidationErrors) as caught:
        SearchSpace(name="x", description="", parameters={}, **values)
    assert text in str(caught.value)


def test_of_several_types_a_value_keeps_its_own() -> None:
    assert [type(_Whole(one=value).one) for value in (3, 3.0)] == [int, float]
    table: Any = {"powers_of_two_up_to": 4}
    values = {"name": "x", "description": "", "engine": "vllm", "parameters": {"a": table}}
    assert build_validated(SearchSpace, values, None).parameters["a"] == PowersOfTwo(**table)


def test_what_loses_nothing_is_converted() -> None:
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
    with pytest.raises(ValidationErrors):
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
