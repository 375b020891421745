"""A record is what a frozen dataclass is."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from functools import cached_property
from typing import Any, ClassVar

import pytest

from planner.base.records import record


@record(kw_only=True)
class Plain:
    a: int
    b: tuple[int, ...] = ()
    c: list[int] = dataclasses.field(default_factory=list, compare=False)
    kind: ClassVar[str] = "plain"

    @cached_property
    def twice(self) -> int:
        return 2 * self.a


@dataclasses.dataclass(frozen=True, kw_only=True)
class Model:
    a: int
    b: tuple[int, ...] = ()
    c: list[int] = dataclasses.field(default_factory=list, compare=False)
    kind: ClassVar[str] = "plain"


@record()
class Base:
    a: int
    b: int = 2


@record(kw_only=True)
class Derived(Base):
    c: int

    def __post_init__(self) -> None:
        if self.c < 0:
            raise ValueError("c is negative")


@record(eq=False, repr=False)
class Itself:
    a: int


@pytest.mark.parametrize("values", [{"a": 1}, {"b": (2,), "a": 1}, {"c": [3], "a": 1}])
def test_a_record_is_as_the_dataclass(values: dict[str, Any]):
    ours, theirs = Plain(**values), Model(**values)
    assert repr(ours) == repr(theirs).replace("Model", "Plain")
    assert vars(ours) == vars(theirs)
    assert list(vars(ours)) == list(vars(theirs))
    assert hash(ours) == hash(theirs)
    assert dataclasses.asdict(ours) == dataclasses.asdict(theirs)
    assert vars(dataclasses.replace(ours, a=5)) == vars(dataclasses.replace(theirs, a=5))


def test_records_are_equal_by_their_fields_alone():
    one, other = Plain(a=1, c=[1]), Plain(a=1, c=[2])
    assert one.twice == 2
    assert one == other
    assert hash(one) == hash(other)
    assert one != Plain(a=2)
    assert one != Model(a=1)
    assert Itself(1) != Itself(1)
    assert repr(Itself(1)).startswith("<")


def test_each_record_has_its_own_defaults():
    assert Plain(a=1).c is not Plain(a=1).c


def test_a_record_cannot_be_changed():
    one = Plain(a=1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.a = 2  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        del one.a
    assert one.a == 1


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Plain(), "Plain lacks a"),  # type: ignore[call-arg]
        (lambda: Plain(a=1, d=2), "Plain has no d"),  # type: ignore[call-arg]
        (lambda: Plain(1), "Plain takes 0 values in order"),  # type: ignore[misc]
        (lambda: Base(1, a=2), "each once"),  # type: ignore[misc]
        (lambda: Base(1, 2, 3), "Base takes 2 values in order"),  # type: ignore[call-arg]
    ],
)
def test_wrong_values_are_refused(make: Any, words: str):
    with pytest.raises(TypeError, match=words):
        make()


def test_records_inherit_and_check_themselves():
    one = Derived(1, c=3)
    assert (one.a, one.b, one.c) == (1, 2, 3)
    with pytest.raises(ValueError, match="negative"):
        Derived(1, c=-1)


def test_records_are_copied_and_sent():
    one = Derived(1, 4, c=3)
    assert copy.copy(one) == copy.deepcopy(one) == pickle.loads(pickle.dumps(one)) == one
