"""Every parameter of the public functions, and every field of specs and results, is documented."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import pkgutil
import re
import sys
from collections.abc import Iterator
from enum import Enum
from functools import cached_property
from types import ModuleType
from typing import Any

import pytest

import planner
import planner.specs
from planner.specs.validated import parameter_texts

# Where results are: other classes that a result refers to are parts of searches and predictions.
RESULTS = """planner.show.results planner.decide planner.confidence.intervals
    planner.confidence.ranking planner.optimize.result planner.optimize.collector
    planner.sweeps.sweep_folder planner.sweeps.summary planner.launch.write.write_launch
    planner.validation.logs.log_comparison"""
EVALUATION = "planner.workloads.workload.Evaluation"
FUNCTIONS = [name for name in planner.__all__ if not name.startswith("__") and name != "Request"]


def modules_of_specs() -> list[ModuleType]:
    """The modules of `planner.specs`."""
    found = pkgutil.iter_modules(planner.specs.__path__)
    return [importlib.import_module(f"planner.specs.{one.name}") for one in found]


def functions_of(holder: Any) -> Iterator[Any]:
    """The public functions of a module, or the public methods of a class, that are its own."""
    for name, value in vars(holder).items():
        function = inspect.unwrap(getattr(value, "__func__", value))
        place = getattr(holder, "__module__", holder.__name__)
        if inspect.isfunction(function) and name[0] != "_" and function.__module__ == place:
            yield function


def classes_of(module: ModuleType) -> list[type]:
    """The public classes of a module that are its own."""
    return [
        value
        for name, value in vars(module).items()
        if inspect.isclass(value) and value.__module__ == module.__name__ and name[0] != "_"
    ]


def is_result(kind: type) -> bool:
    """Whether a class belongs to the results."""
    place = f"{kind.__module__}.{kind.__qualname__}"
    inside = tuple(f"{name}." for name in RESULTS.split())
    return place == EVALUATION or place.startswith(inside)


def named_results() -> dict[str, type]:
    """The classes of results by name, but for those whose name others have, too."""
    found: dict[str, list[type]] = {}
    for name in RESULTS.split():
        module = importlib.import_module(name)
        inner = pkgutil.walk_packages(getattr(module, "__path__", []), f"{name}.")
        for each in [name, *(one.name for one in inner)]:
            for kind in classes_of(importlib.import_module(each)):
                found.setdefault(kind.__name__, []).append(kind)
    return {name: kinds[0] for name, kinds in found.items() if len(kinds) == 1}


def classes_in(annotation: object, module: ModuleType, others: dict[str, type]) -> list[type]:
    """The results that an annotation names."""
    words = re.findall(r"\w+", str(annotation))
    imported = {**others, **vars(module)}
    return [
        kind for word in words if inspect.isclass(kind := imported.get(word)) and is_result(kind)
    ]


def annotations_of(kind: type) -> Iterator[object]:
    """The annotations of the public fields, properties and methods of a class."""
    yield from (text for name, text in fields_of(kind).items() if name[0] != "_")
    for name, value in vars(kind).items():
        if isinstance(value, property):
            value = value.fget
        elif isinstance(value, cached_property):
            value = value.func
        value = getattr(value, "__func__", value)
        if inspect.isfunction(value) and name[0] != "_":
            yield value.__annotations__.get("return", "")


def fields_of(kind: type) -> dict[str, object]:
    """The annotations of the public fields that a dataclass or a named tuple defines itself."""
    if not dataclasses.is_dataclass(kind) and not hasattr(kind, "_fields"):
        return {}
    fields = vars(kind).get("__annotations__", {})
    return {
        name: text
        for name, text in fields.items()
        if name[0] != "_" and not str(text).startswith("ClassVar")
    }


def results() -> list[type]:
    """The classes of results that the functions of `planner.__all__` lead to."""
    others = named_results()
    api = importlib.import_module("planner.api")
    compare = importlib.import_module("planner.validation.logs.log_comparison")
    returned = [getattr(planner, name).__annotations__["return"] for name in FUNCTIONS]
    following = [kind for text in returned for kind in classes_in(text, api, others)]
    following += [compare.Comparison]
    found: dict[type, None] = {}
    while following:
        kind = following.pop()
        if kind not in found:
            found[kind] = None
            following += [base for base in kind.__mro__[1:] if is_result(base)]
            for text in annotations_of(kind):
                following += classes_in(text, sys.modules[kind.__module__], others)
    return list(found)


def missing_of(documented: Any, names: set[str], *, shared: set[str] = frozenset()) -> list[str]:
    """What is wrong with the parameters of a docstring: one line for each name."""
    texts = parameter_texts(documented)
    place = f"{documented.__module__}.{documented.__qualname__}"
    wrong = [f"{place}: {name} is not documented" for name in sorted(names - shared - texts.keys())]
    wrong += [f"{place}: {name} is no parameter" for name in sorted(texts.keys() - names)]
    named = re.findall(r"^ *([\w, ]+) : ", documented.__doc__ or "", re.MULTILINE)
    every = ", ".join(named).split(", ")
    wrong += [f"{place}: {name} stands twice" for name in texts if every.count(name) > 1]
    wrong += [f"{place}: {name} has no text" for name, text in texts.items() if len(text) < 3]
    return wrong


def parameters_of(function: Any) -> set[str]:
    """The names that a function takes, without itself and what is not used."""
    code = function.__code__
    number = code.co_argcount + code.co_kwonlyargcount
    number += bool(code.co_flags & inspect.CO_VARARGS) + bool(
        code.co_flags & inspect.CO_VARKEYWORDS
    )
    return {
        name for name in code.co_varnames[:number] if name not in ("self", "cls") and name[0] != "_"
    }


def faults_of(holder: Any) -> Iterator[str]:
    """Undocumented parameters of the functions of a module or a class.

    What its own docstring documents need not be repeated by each function.
    """
    shared = set(parameter_texts(holder))
    for function in functions_of(holder):
        yield from missing_of(function, parameters_of(function), shared=shared)


def class_faults(kind: type) -> Iterator[str]:
    """Undocumented fields of a class, and parameters of its methods.

    What the docstring of its module documents need not be repeated by each method.
    """
    shared = set(parameter_texts(sys.modules[kind.__module__]))
    if not issubclass(kind, Enum):
        yield from missing_of(kind, set(fields_of(kind)))
    for function in functions_of(kind):
        yield from missing_of(function, parameters_of(function), shared=shared)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_public_functions(name: str) -> None:
    function = getattr(planner, name)
    assert missing_of(function, parameters_of(function)) == []


def test_request() -> None:
    assert list(class_faults(planner.Request)) == []


def test_functions_and_classes_of_specs() -> None:
    modules = modules_of_specs()
    faults = [fault for module in modules for fault in faults_of(module)]
    faults += [
        fault for module in modules for kind in classes_of(module) for fault in class_faults(kind)
    ]
    assert faults == []


def test_units_of_specs() -> None:
    kinds = [kind for module in modules_of_specs() for kind in classes_of(module)]
    unit = re.compile(r"\b(Bytes|FlopPerSecond|Seconds|GpuSeconds|Watts)")
    without = [
        f"{kind.__name__}.{name}"
        for kind in kinds
        for name, text in fields_of(kind).items()
        if unit.search(str(text))
        and not re.search(r"\[|bytes per", parameter_texts(kind)[name], re.I)
    ]
    assert without == []


def test_results() -> None:
    kinds = results()
    assert len(kinds) > 50
    assert [fault for kind in kinds for fault in class_faults(kind)] == []


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_public_function_has_parameters_a_result_and_an_example(name: str) -> None:
    text = inspect.getdoc(getattr(planner, name)) or ""
    sections = re.findall(r"^(\w+)\n-+$", text, re.MULTILINE)
    assert sections == ["Parameters", "Returns"]
    assert "\n>>> " in text.partition("Returns\n")[2]
    assert f"{name}(" in text.partition("\n>>> ")[2]
