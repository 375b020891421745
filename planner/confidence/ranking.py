"""Which of several plans to take: the best in a bad case; of those tied with it the best known."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from planner.confidence.intervals import BASES, are_tied


class Standing(NamedTuple):
    """A plan among others by one quantity, positive and in any unit.

    ``low`` and ``high`` are the ends of its 90 % interval by what tells plans apart, NaN where
    unknown; ``bad`` is what 9 of 10 runs like it keep. Those of the same ``kin`` differ in layout,
    which runs tell apart beyond ``tie_factor``, and where they take the same ``time``, in price.
    ``lack`` is how little its evidence is, as `lack_of`.
    """

    value: float
    low: float = math.nan
    high: float = math.nan
    bad: float = math.nan
    kin: tuple[object, ...] = ()
    tie_factor: float = 1.0
    time: float = math.nan
    lack: int = 0

    @property
    def is_proven(self) -> bool:
        """Whether any published run is of its software on its GPU, or nobody counted them."""
        return self.lack < len(BASES)


def lack_of(basis: str, runs: float) -> int:
    """How little evidence there is: 0 for measured runs; what has no run on its GPU comes last.

    ``basis`` begins with one of `BASES`, ``runs`` are those on this very GPU, NaN unknown.

    >>> lack_of("measured", 3), lack_of("transferred, first run", 3), lack_of("transferred", 0)
    (0, 1, 5)
    """
    code = basis.partition(",")[0]
    near = BASES.index(code) if code in BASES else len(BASES) - 1
    return near + len(BASES) * (runs == 0)


def tied(one: Standing, other: Standing) -> bool:
    """Whether published runs do not tell which of two is better.

    Of the same GPU and software they differ in layout, which runs tell apart beyond a factor;
    where the time is the same, too, the price decides. Of others, the errors on the sides that
    face each other are taken as independent.
    """
    best, worst = sorted((one, other), key=lambda found: found.value)
    if best.value <= 0 or best.value == worst.value:
        return best.value == worst.value
    if one.kin == other.kin:
        gap = math.log(worst.value / best.value)
        is_same_plan = one.time == other.time
        return not is_same_plan and gap < math.log(max(one.tie_factor, other.tie_factor))
    if not (best.high >= best.value and worst.low <= worst.value):  # unknown ends among them
        return False
    return are_tied((best.value, best.high), (worst.value, worst.low))


def most_known(ordered: Sequence[Standing]) -> int:
    """The place of the plan to take among those ordered by their bad case, the best first.

    It is the first of those with the most evidence that are tied with the first, and no more than
    the factor between layouts from it in the bad case: a tie of wide intervals alone is no reason
    to pay more.
    """
    first = ordered[0]
    places = [at for at, one in enumerate(ordered) if at == 0 or _is_as_good(first, one)]
    return min(places, key=lambda at: (ordered[at].lack, at))


def _is_as_good(first: Standing, one: Standing) -> bool:
    away = abs(math.log(one.bad / first.bad)) if one.bad > 0 and first.bad > 0 else math.inf
    return away <= math.log(first.tie_factor) and tied(first, one)
