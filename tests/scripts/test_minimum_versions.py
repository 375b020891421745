"""The lower bounds of packages are those that were tried, and so are the Pythons that are named."""

from __future__ import annotations

import re
import tomllib

from minimum_versions import MINIMA, NEWEST, PAGE, ROOT, bounds, commands, extras, recorded

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def tried() -> dict[str, str]:
    """By Python, what it was tried with."""
    text = PAGE.read_text(encoding="utf-8")
    return dict(re.findall(r"^\| (3\.\d+) \| (.*) \|$", text, flags=re.MULTILINE))


def test_the_lower_bounds_are_those_that_were_tried():
    pins = ", ".join(f"{name} {bound}" for name, bound in bounds().items())
    rows = tried()
    assert rows[PROJECT["requires-python"].removeprefix(">=")] == f"{MINIMA}: {pins}"
    assert set(rows.values()) <= {f"{MINIMA}: {pins}", NEWEST}


def test_the_pythons_that_are_named_were_tried():
    start = "Programming Language :: Python :: 3."
    named = [line for line in PROJECT["classifiers"] if line.startswith(start)]
    assert named == [f"Programming Language :: Python :: {python}" for python in tried()]


def test_lower_bounds_of_developers_are_those_of_users():
    extra = PROJECT["optional-dependencies"]["test"]
    lines = dict(line.split(">=") for line in extra)
    shared = lines.keys() & bounds().keys()
    assert {"scipy", "pyarrow", "jinja2"} <= shared
    assert {name: lines[name] for name in shared} == {name: bounds()[name] for name in shared}


def test_every_extra_of_users_and_every_command_is_tried():
    assert {"hub", "calibration", "parquet", "dask", "plot", "report", "ui", "mcp"} == set(extras())
    assert {"search", "sweep run", "specs validate", "calibrate"} <= set(commands())


def test_a_row_replaces_that_of_the_same_python():
    once = recorded("3.99", NEWEST)
    assert once.count("\n| 3.99 | newest |\n") == 1
    assert once == recorded("3.99", NEWEST)
    assert set(tried()) < set(re.findall(r"^\| (3\.\d+) ", once, flags=re.MULTILINE))
