"""The values a user or a space gives to a parameter, checked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from planner.errors import SearchSpaceError, did_you_mean
from planner.specs.search_space import (
    Dense,
    Divisors,
    Multiples,
    PowersOfTwo,
    SearchSpace,
    expand,
)
from planner.terms import Term, glossary

_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")
_LARGEST = 10**9


def refuse_unknown(
    space: SearchSpace, settings: Mapping[str, Any], known: Sequence[str], derived: Sequence[str]
) -> None:
    """Check that a space and the user's settings name parameters; ``derived`` follow from others.

    Raises
    ------
    SearchSpaceError
        One of them is no parameter; where it is not the user's, the space is named.
    """
    for name in (*space.parameters, *settings):
        if name in known and name != "num_gpus":
            continue
        where = "" if name in settings else f"Search space {space.name}: "
        if name == "num_gpus":
            problem = "num_gpus is not a parameter of a space: give --gpus."
        elif name in derived:
            degrees = "the number of GPUs and the other degrees"
            problem = f"{name} follows from {degrees}; set those instead."
        else:
            names = [parameter for parameter in known if parameter != "num_gpus"]
            hint = did_you_mean(name, names)
            problem = f"Unknown parameter {name!r}.{hint} Known: {', '.join(names)}."
        raise SearchSpaceError(where + problem)


def listed(choice: Any, bases: Mapping[str, int]) -> list[Any]:
    """The values of a choice of a space, or of a value or several that a user gave."""
    if isinstance(choice, PowersOfTwo | Divisors | Multiples | Dense):
        return expand(choice, bases)
    return list(choice) if isinstance(choice, list | tuple) else [choice]


def checked(name: str, values: Iterable[Any]) -> list[Any]:
    """Values of a parameter as codes, flags and numbers, without repetitions.

    Raises
    ------
    SearchSpaceError
        A value is not one of the parameter's, or there is none.
    """
    known = list(dict.fromkeys(_check(name, value) for value in values))
    if not known:
        raise SearchSpaceError(f"There is no value for {name}.")
    if glossary()[name].type in ("count", "share"):
        known.sort()
    return known


def parse_settings(assignments: Iterable[str]) -> dict[str, list[str]]:
    """``name=value[,value]`` texts as parameter -> values.

    Raises
    ------
    SearchSpaceError
        A text has no ``=``, no value, or repeats a parameter.
    """
    settings: dict[str, list[str]] = {}
    for text in assignments:
        name, equals, listed = text.partition("=")
        name = name.strip().replace("-", "_")
        items = [value.strip() for value in listed.split(",")]
        if not equals or not name or not all(items):
            raise SearchSpaceError(f"--set {text!r} is not name=value or name=value,value.")
        if name in settings:
            raise SearchSpaceError(f"--set gives {name} twice; list its values with commas.")
        settings[name] = items
    return settings


def _check(name: str, value: Any) -> Any:
    term = glossary()[name]
    if term.codes is not None:
        return _code(term, value)
    if term.type == "flag":
        return _flag(name, value)
    return _share(name, value) if term.type == "share" else _count(name, value, int(term.least))


def _flag(name: str, value: Any) -> bool:
    text = str(value).lower()
    if text not in (*_TRUE, *_FALSE):
        raise SearchSpaceError(f"{name} is true or false, not {value!r}.")
    return text in _TRUE


def _code(term: Term, value: Any) -> int:
    codes = {str(term.shown(code)): int(code) for code in term.codes}
    text = term.codes.meant(str(value))
    if text not in codes:
        hint = did_you_mean(text, [*codes, *term.codes.aliases()])
        raise SearchSpaceError(f"{term.term} is one of {', '.join(codes)}, not {value!r}.{hint}")
    return codes[text]


def _share(name: str, value: Any) -> float:
    number = _number(value)
    if not 0 <= number <= 1:
        raise SearchSpaceError(f"{name} is a share from 0 to 1, not {value!r}.")
    return number


def _count(name: str, value: Any, least: int) -> int:
    number = _number(value)
    if isinstance(value, bool) or not (number >= least and number == np.floor(number)):
        raise SearchSpaceError(f"{name} is a whole number of at least {least}, not {value!r}.")
    if number > _LARGEST:
        raise SearchSpaceError(f"{name} = {value} is beyond what can be planned ({_LARGEST:,}).")
    return int(number)


def _number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        return np.nan
