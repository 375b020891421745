"""The interval files that ship, beside cells made from the current predictions."""

import csv
from collections.abc import Sequence
from pathlib import Path

from residuals import Cell

import planner.confidence


def assert_shipped(name: str, made: Sequence[Cell]) -> None:
    """The file holds these cells; if not, scripts/make_intervals.py is to be run."""
    path = Path(planner.confidence.__file__).parent / name
    with path.open(encoding="utf-8", newline="") as file:
        lines = [line for line in list(csv.reader(file))[1:] if line[0] != "layout"]
    shipped = {tuple(line[:-5]): (float(line[-4]), float(line[-3])) for line in lines}
    assert len(shipped) == len(lines)
    stale = [
        cell
        for cell in made
        for low, high in [shipped.get((cell.quantity, *cell.keys), (0.0, 0.0))]
        if max(abs(cell.low - low), abs(cell.high - high)) > 2e-4
    ]
    assert len(made) == len(lines)
    assert not stale, "run scripts/make_intervals.py"
