"""Search spaces: which values each parameter may take."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, TypeAlias

from planner.specs.checked import Interval, Strict, checked

Whole = Annotated[int, Strict(), Interval(ge=1, le=10**9)]
Share = Annotated[float, Interval(ge=0, le=1e9)]
Base = Literal["num_gpus", "num_hidden_layers", "num_experts", "global_batch_size"]


@checked
class PowersOfTwo:
    """1, 2, 4, ... up to a number, each part of a sequence with ``fewest_tokens`` or more."""

    powers_of_two_up_to: Whole
    fewest_tokens: Whole | None = None


@checked
class Divisors:
    """The divisors of a quantity of the model or the cluster, up to a number."""

    divisors_of: Base
    up_to: Whole = 10**9


@checked
class Multiples:
    """The workload's ``global_batch_size`` times each factor."""

    multiples_of: Literal["global_batch_size"]
    factors: tuple[Annotated[float, Interval(gt=0, le=1e6)], ...]


@checked
class Dense:
    """Every number up to one, then each ``growth`` times the one before, up to the last."""

    every_up_to: Whole
    up_to: Whole
    growth: Annotated[float, Interval(gt=1, le=10)]


Value: TypeAlias = bool | int | Share | str
Choice: TypeAlias = PowersOfTwo | Divisors | Multiples | Dense | tuple[Value, ...] | Value


@checked
class SearchSpace:
    """Values per parameter; a parameter that is absent keeps its default.

    A space of training names a ``framework``, one of serving an ``engine``.
    """

    name: str
    description: str
    parameters: Mapping[str, Choice]
    framework: str = ""
    engine: str = ""
    aliases: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if bool(self.framework) == bool(self.engine):
            raise ValueError("a space names a framework (training) or an engine (serving)")


def expand(choice: Choice, bases: Mapping[str, int]) -> list[Value]:
    """The values of a choice, in ascending order where they are numbers.

    ``bases`` gives the quantities that ``divisors_of`` and ``multiples_of`` name, and the
    ``sequence_length`` that ``fewest_tokens`` is of.
    """
    match choice:
        case PowersOfTwo():
            most = choice.powers_of_two_up_to
            if choice.fewest_tokens is not None:
                most = max(min(most, bases["sequence_length"] // choice.fewest_tokens), 1)
            return [2**power for power in range(most.bit_length())]
        case Divisors():
            number = bases[choice.divisors_of]
            small = [k for k in range(1, int(number**0.5) + 1) if number % k == 0]
            every = sorted({*small, *(number // k for k in small)})
            return [k for k in every if k <= choice.up_to]
        case Dense():
            values = list(range(1, min(choice.every_up_to, choice.up_to) + 1))
            while values[-1] < choice.up_to:
                values.append(
                    min(choice.up_to, max(values[-1] + 1, round(values[-1] * choice.growth)))
                )
            return [*values]
        case Multiples():
            base = bases[choice.multiples_of]
            return sorted({max(1, round(base * factor)) for factor in choice.factors})
        case bool() | int() | float() | str():
            return [choice]
        case _:
            return list(dict.fromkeys(choice))
