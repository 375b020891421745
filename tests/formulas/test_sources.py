"""Every formula says where it comes from: a reference, or that it was derived here."""

from __future__ import annotations

import inspect
import pkgutil
import re
from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest
from rows import each

from planner import formulas

FORMULAS = [
    pytest.param(function, id=f"{module.name}.{name}")
    for module in pkgutil.iter_modules(formulas.__path__)
    for name, function in vars(import_module(f"planner.formulas.{module.name}")).items()
    if inspect.isfunction(function)
    and not name.startswith("_")
    and function.__module__ == f"planner.formulas.{module.name}"
]
_SAYS = re.compile(
    r"derived\s+here"  # what it follows from stands in the text
    r"|^\.\. \[1\] .*"  # a reference of its own
    r"|\(\w+ et al\., section \d",  # a reference of the module
    re.IGNORECASE | re.MULTILINE,
)


@each("function", FORMULAS)
def test_a_formula_has_a_source(function: Callable[..., Any]) -> None:
    assert _SAYS.search(inspect.getdoc(function) or "")


@each("function", FORMULAS)
def test_references_are_used_and_there(function: Callable[..., Any]) -> None:
    text = inspect.getdoc(function) or ""
    listed = re.findall(r"^\.\. (\[\d\])", text, re.MULTILINE)
    assert set(listed) == set(re.findall(r"(\[\d\])_", text))
