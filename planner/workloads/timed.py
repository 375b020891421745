"""The time of a step part by part, with the work behind each: what explanations are made of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace

import numpy as np

from planner.base.arrays import Numeric
from planner.base.records import record
from planner.estimators.kernel_work import Ledger, Work
from planner.optimize.source import Setting

ALL_MODULES = ""
"""The module of parts that belong to none."""


@record(kw_only=True)
class Done:
    """Work of one kind that a part does, ``times`` over, all that shows of it, in a step."""

    work: Work
    times: float

    def figure(self, name: str) -> float:
        """One of its figures, in SI units."""
        return at_longest(self.work, self.work.figures[name])

    @property
    def once(self) -> float:
        """Seconds of the work once."""
        return at_longest(self.work, self.work.time)

    @property
    def at_peak(self) -> float:
        """Seconds of the work once if silicon and links reached their peaks."""
        return at_longest(self.work, self.work.at_peak)

    @property
    def terms(self) -> dict[str, float]:
        """Seconds of each of its bounds alone, once."""
        found = {name: at_longest(self.work, term) for name, term in self.work.terms.items()}
        return {name: seconds for name, seconds in found.items() if seconds > 0}


@record(kw_only=True)
class TimedPart:
    """An operator, or a part of a step that belongs to none, on the slowest GPU.

    ``seconds`` are those of a step; ``terms`` the same by the term of the step's time that they
    belong to. ``done`` is the work behind them, whose seconds add up to them.
    """

    name: str
    module: str
    seconds: float
    terms: Mapping[str, float]
    part: str = "compute"
    done: tuple[Done, ...] = ()

    @classmethod
    def of(
        cls, name: str, module: str, terms: Mapping[str, float], works: Sequence[Work], **more: str
    ) -> TimedPart:
        """A part that takes the seconds of its terms, with the work behind them."""
        seconds = sum(terms.values())
        working = [work for work in works if at_longest(work, work.time) > 0]
        once = sum(at_longest(work, work.time) for work in working)
        done = tuple(Done(work=work, times=seconds / once) for work in working)
        shown = {term: value for term, value in terms.items() if value}
        return cls(name=name, module=module, seconds=seconds, terms=shown, done=done, **more)


@record(kw_only=True)
class TimedStep:
    """A step of one kind: its ``seconds``, and the parts that add up to them."""

    seconds: float
    parts: tuple[TimedPart, ...] = field(default_factory=tuple)


def at_longest(work: Work, values: Numeric) -> float:
    """The value where the work takes longest: pipeline stages may differ."""
    time = np.asarray(work.time)
    if np.size(time) == np.size(values) == 1:
        return float(np.ravel(values)[0])
    shape = np.broadcast_shapes(time.shape, np.shape(values))
    longest = int(np.argmax(np.broadcast_to(time, shape)))
    return float(np.ravel(np.broadcast_to(values, shape))[longest])


def merged(parts: Iterable[TimedPart]) -> tuple[TimedPart, ...]:
    """Parts of a name and module as one each; those without time are left out."""
    found: dict[tuple[str, str, str], TimedPart] = {}
    for part in parts:
        key = (part.module, part.name, part.part)
        before = found.get(key)
        found[key] = part if before is None else _sum(before, part)
    return tuple(part for part in found.values() if part.seconds)


def with_ledger(setting: Setting) -> Setting:
    """A setting whose predictions tell what is behind them."""
    return replace(setting, machine=replace(setting.machine, ledger=Ledger()))


def _sum(one: TimedPart, other: TimedPart) -> TimedPart:
    names = dict.fromkeys((*one.terms, *other.terms))
    return replace(
        one,
        seconds=one.seconds + other.seconds,
        terms={name: one.terms.get(name, 0.0) + other.terms.get(name, 0.0) for name in names},
        done=_alike((*one.done, *other.done)),
    )


def _alike(done: Iterable[Done]) -> tuple[Done, ...]:
    """The same work once, as often as all together."""
    found: list[Done] = []
    for each in done:
        same = next((at for at, one in enumerate(found) if _is_same(one, each)), None)
        if same is None:
            found.append(each)
        else:
            found[same] = replace(each, times=found[same].times + each.times)
    return tuple(found)


def _is_same(one: Done, other: Done) -> bool:
    if (one.work.formula, one.work.key) != (other.work.formula, other.work.key):
        return False
    if one.work.figures.keys() != other.work.figures.keys() or one.once != other.once:
        return False
    return all(one.figure(name) == other.figure(name) for name in one.work.figures)
