"""What a driver that samples needs to know of a workload."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol, TypeAlias

from planner.arrays import FloatArray, IndexArray

Direction: TypeAlias = Literal["minimize", "maximize"]
Outcomes: TypeAlias = tuple[FloatArray, FloatArray]


class Samplable(Protocol):
    """A search problem as parameters with allowed values, and a function that judges rows.

    ``parameters`` maps each parameter to its values by word (text, number or flag), in an order
    where neighbours are alike. ``num_rows`` is the number of their combinations. ``name`` is
    what a study of the problem is called; ``digest`` is equal for problems whose trials mean
    the same, in any process.
    """

    @property
    def name(self) -> str: ...
    @property
    def digest(self) -> str: ...
    @property
    def objectives(self) -> Mapping[str, Direction]: ...
    @property
    def parameters(self) -> Mapping[str, Sequence[Any]]: ...
    @property
    def num_rows(self) -> int: ...

    def evaluate(self, rows: IndexArray) -> Outcomes:
        """Judge configurations and take them into the result.

        ``rows`` has a line per configuration and a column per parameter: the positions of its
        values. Returns the objectives, minimized, as columns, and per row how far it is from
        being feasible: 0 where it is. A row is never given twice.
        """
        ...
