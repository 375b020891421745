"""Quantities of candidates: attributes with the name, meaning and unit of a term."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Self, TypeVar, overload

from planner.base.arrays import FloatArray
from planner.question.terms import glossary

Judged = TypeVar("Judged")


class Quantity(Generic[Judged]):
    """A read-only attribute of candidates with the name of a term, in SI units.

    Parameters
    ----------
    of : function from the candidates to the values
    """

    def __init__(self, of: Callable[[Judged], FloatArray]) -> None:
        self._of = of

    def __set_name__(self, owner: type[Judged], name: str) -> None:
        self.__doc__ = glossary()[name].description

    @overload
    def __get__(self, candidates: None, owner: type[Judged]) -> Self: ...
    @overload
    def __get__(self, candidates: Judged, owner: type[Judged]) -> FloatArray: ...
    def __get__(self, candidates: Judged | None, owner: type[Judged]) -> Self | FloatArray:
        return self if candidates is None else self._of(candidates)

    def __set__(self, candidates: Judged, value: FloatArray) -> None:
        raise AttributeError("Predictions cannot be changed.")
