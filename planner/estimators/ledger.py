"""What stands behind predicted seconds, kept only where somebody asks for it.

A search has no ledger: its machine is asked for seconds and nothing else. `planner explain`
predicts one configuration with a ledger on its machine; every kernel, exchange and copy then tells
it what it does, and `attributed` gives that to the operator whose seconds it is part of. The
seconds are those of the same functions, so that no prediction depends on a ledger.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field, replace
from typing import TypeVar

from planner.base.arrays import FloatArray, Numeric
from planner.base.records import record

COMPUTE, MEMORY, LINK, NETWORK = "compute", "memory", "link", "network"
LAUNCH, LATENCY, HOST = "launch", "latency", "host"

Timed = TypeVar("Timed")


@record(kw_only=True)
class Work:
    """One kernel, exchange or copy: what it does, and what that takes.

    ``formula`` is how ``time`` [s] is made of ``figures``, which are in SI units; ``terms`` are the
    seconds of each bound alone, ``at_peak`` those that silicon and links take at their peaks.
    ``key`` is where the reached shares stand in the spec of the GPU.
    """

    formula: str
    time: FloatArray
    at_peak: Numeric
    terms: Mapping[str, Numeric]
    figures: Mapping[str, Numeric] = field(default_factory=dict)
    key: str = ""


class Ledger:
    """The work that is recorded while one configuration is predicted."""

    def __init__(self) -> None:
        self._open: list[Work] = []
        self._parts: dict[str, tuple[Work, ...]] = {}
        self._known: list[tuple[object, tuple[Work, ...]]] = []

    def add(self, work: Work) -> None:
        """Record what was just predicted."""
        self._open.append(work)

    def taken(self) -> tuple[Work, ...]:
        """What was recorded since the last time."""
        found, self._open = tuple(self._open), []
        return found

    def of(self, seconds: object) -> tuple[Work, ...]:
        """The same; of seconds that were worked out before, the work recorded then."""
        found = self.taken()
        if not found:
            return next((works for known, works in self._known if known is seconds), ())
        self._known.append((seconds, found))
        return found

    @property
    def mark(self) -> int:
        """Where the next work will be among what was recorded since the last time."""
        return len(self._open)

    def forget(self, *names: str, since: int = 0) -> None:
        """Drop what nobody uses: work of these formulas or collectives, or all; since a mark."""
        self._open[since:] = [
            work
            for work in self._open[since:]
            if names and not {work.formula, work.key.rpartition(".")[2]} & {*names}
        ]

    def close(self, part: str) -> None:
        """What was recorded since the last time belongs to a part of a step."""
        self._parts[part] = (*self._parts.get(part, ()), *self.taken())

    def parts(self) -> dict[str, tuple[Work, ...]]:
        """The parts of a step that were closed, which begins anew."""
        found, self._parts = self._parts, {}
        return found


def attributed(
    ledger: Ledger | None, operators: Iterable[Timed], seconds: Callable[[Timed], object]
) -> Iterator[Timed]:
    """Operators, each with the work behind its ``seconds`` if there is a ledger."""
    if ledger is None:
        yield from operators
        return
    ledger.taken()
    for operator in operators:
        works = ledger.of(seconds(operator))
        yield replace(operator, works=works)  # type: ignore[type-var]
