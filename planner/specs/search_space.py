"""Search spaces: which values each parameter may take."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, TypeAlias

from planner.specs.validated import Interval, Strict, validated

PositiveInt = Annotated[int, Strict(), Interval(ge=1, le=10**9)]
Share = Annotated[float, Interval(ge=0, le=1e9)]
Base = Literal["num_gpus", "num_hidden_layers", "num_experts", "global_batch_size"]


@validated
class PowersOfTwo:
    """1, 2, 4, ... up to a number.

    Parameters
    ----------
    powers_of_two_up_to : greatest value
    fewest_tokens : least tokens of a sequence on each rank; None: no limit
    """

    powers_of_two_up_to: PositiveInt
    fewest_tokens: PositiveInt | None = None


@validated
class Divisors:
    """Divisors of a quantity of the model or the cluster.

    Parameters
    ----------
    divisors_of : quantity
    up_to : greatest value
    """

    divisors_of: Base
    up_to: PositiveInt = 10**9


@validated
class Multiples:
    """A quantity of the workload times each factor.

    Parameters
    ----------
    multiples_of : quantity
    factors : factors
    """

    multiples_of: Literal["global_batch_size"]
    factors: tuple[Annotated[float, Interval(gt=0, le=1e6)], ...]


@validated
class Dense:
    """Every number up to one, then each ``growth`` times the one before.

    Parameters
    ----------
    every_up_to : greatest value of the dense part
    up_to : greatest value
    growth : ratio of successive values after the dense part
    """

    every_up_to: PositiveInt
    up_to: PositiveInt
    growth: Annotated[float, Interval(gt=1, le=10)]


Value: TypeAlias = bool | int | Share | str
Choice: TypeAlias = PowersOfTwo | Divisors | Multiples | Dense | tuple[Value, ...] | Value


@validated
class SearchSpace:
    """Values of each parameter; an absent parameter keeps its default.

    Parameters
    ----------
    name : name of the space
    description : description in one sentence
    parameters : values by parameter
    framework : framework of a training space
    engine : engine of a serving space
    aliases : other names
    """

    name: str
    description: str
    parameters: Mapping[str, Choice]
    framework: str = ""
    engine: str = ""
    aliases: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.framework and self.engine:
            raise ValueError("names a framework (training) and an engine (serving): leave one out")
        if not self.framework and not self.engine:
            raise ValueError("names no framework (training) and no engine (serving): add one")


def expand(choice: Choice, bases: Mapping[str, int]) -> list[Value]:
    """Return the values of a choice, in ascending order if they are numbers.

    ``bases`` gives the quantities that ``divisors_of`` and ``multiples_of`` name, and the
    ``sequence_length`` that ``fewest_tokens`` is of.

    Parameters
    ----------
    choice : value, list or rule of the space file
    bases : quantities of ``divisors_of`` and ``multiples_of``, and the ``sequence_length``
    """
    match choice:
        case PowersOfTwo():
            maximum = choice.powers_of_two_up_to
            if choice.fewest_tokens is not None:
                maximum = max(min(maximum, bases["sequence_length"] // choice.fewest_tokens), 1)
            return [2**power for power in range(maximum.bit_length())]
        case Divisors():
            number = bases[choice.divisors_of]
            small = [k for k in range(1, int(number**0.5) + 1) if number % k == 0]
            divisors = sorted({*small, *(number // k for k in small)})
            return [k for k in divisors if k <= choice.up_to]
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
