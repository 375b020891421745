"""The values a user or a space gives to a parameter, checked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from planner.errors import SearchSpaceError
from planner.question.inputs import LARGEST, read, suggestion
from planner.question.terms import glossary
from planner.specs.search_space import (
    Dense,
    Divisors,
    Multiples,
    PowersOfTwo,
    SearchSpace,
    expand,
)


def refuse_unknown(
    space: SearchSpace, settings: Mapping[str, object], known: Sequence[str], derived: Sequence[str]
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
        elif name in glossary() and "question" in glossary()[name].kind:
            problem = f"{name} is not a parameter of a space: give {glossary()[name].option_name}."
        else:
            names = [parameter for parameter in known if parameter != "num_gpus"]
            hint = suggestion(name, {parameter: glossary()[parameter] for parameter in names})
            problem = f"Unknown parameter {name!r}.{hint} Known: {', '.join(names)}."
        raise SearchSpaceError(where + problem)


def listed(choice: object, bases: Mapping[str, int]) -> list[object]:
    """The values of a choice of a space, or of a value or several that a user gave."""
    if isinstance(choice, PowersOfTwo | Divisors | Multiples | Dense):
        return [*expand(choice, bases)]
    return list(choice) if isinstance(choice, list | tuple) else [choice]


def checked(name: str, values: Iterable[object]) -> list[float]:
    """Values of a parameter as codes, flags and numbers, without repetitions.

    Raises
    ------
    SearchSpaceError
        A value is not one of the parameter's, or there is none.
    """
    term = glossary()[name]
    least = int(term.least) if term.type == "count" else LARGEST + 1
    known = list(
        dict.fromkeys(
            # Thousands of numbers, as spaces have, are read at once.
            value if type(value) is int and least <= value <= LARGEST else _coded(name, value)
            for value in values
        )
    )
    if not known:
        raise SearchSpaceError(f"There is no value for {name}.")
    if term.type in ("count", "share", "number"):
        known.sort()
    return known


def _coded(name: str, value: object) -> float:
    if isinstance(value, str | int | float) and type(value) in (str, int, float, bool):
        return _known_code(name, value)
    return _read(name, value)


@lru_cache(maxsize=4096, typed=True)
def _known_code(name: str, value: str | float) -> float:
    """The same of a plain word or number, of which the spaces of all frameworks have the same."""
    return _read(name, value)


def _read(name: str, value: object) -> float:
    term = glossary()[name]
    code: float = term.coded(read(term, value))
    return code
