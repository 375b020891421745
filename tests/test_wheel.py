"""The wheel holds everything that is needed at run time."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def wheel_names(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    folder = tmp_path_factory.mktemp("wheel")
    (built,) = WheelBuilder(str(ROOT)).build(directory=str(folder), versions=["standard"])
    return set(zipfile.ZipFile(built).namelist())


@pytest.mark.parametrize(
    ("folder", "inside"),
    [
        ("hardware_specs", "planner/data/hardware_specs"),
        ("search_spaces", "planner/data/search_spaces"),
        ("planner/model_specs", "planner/model_specs"),
        ("planner/framework_profiles", "planner/framework_profiles"),
        ("planner/validation", "planner/validation"),
    ],
)
def test_spec_files_are_inside(wheel_names: set[str], folder: str, inside: str) -> None:
    files = [path for path in (ROOT / folder).rglob("*") if path.suffix in {".toml", ".csv"}]
    assert files
    expected = {f"{inside}/{path.relative_to(ROOT / folder).as_posix()}" for path in files}
    assert expected <= wheel_names


def test_glossary_types_and_licence_are_inside(wheel_names: set[str]) -> None:
    tables = {f"planner/question/{name}.csv" for name in ("terms", "groups", "errors")}
    assert {*tables, "planner/py.typed", "llm_gpu_planner.py"} <= wheel_names
    assert any(name.endswith("licenses/LICENSE") for name in wheel_names)


def test_no_tests_are_inside(wheel_names: set[str]) -> None:
    assert not any("test" in name for name in wheel_names)
