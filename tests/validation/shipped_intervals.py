"""The interval files that ship, beside cells made from the current predictions."""

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path

from residuals import Cell

import planner.confidence
from planner.question.names import PEAK_MEMORY


def assert_shipped(name: str, made: Sequence[Cell]) -> None:
    """The file holds these cells; if not, scripts/make_intervals.py is to be run."""
    lines = [line for line in _lines(name) if line[0] not in ("layout", PEAK_MEMORY)]
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


def assert_layouts_shipped(name: str, made: Mapping[tuple[str, ...], tuple[float, int]]) -> None:
    """The file holds how far layouts must be apart."""
    lines = [line for line in _lines(name) if line[0] == "layout"]
    shipped = {tuple(line[1:-5]): (float(line[-3]), int(line[-2])) for line in lines}
    assert set(shipped) == set(made)
    for keys, (factor, pairs) in made.items():
        assert shipped[keys][1] == pairs, "run scripts/make_intervals.py"
        assert abs(shipped[keys][0] - factor) < 2e-4, "run scripts/make_intervals.py"


def assert_widening_shipped(name: str, made: Mapping[tuple[str, str], tuple[float, int]]) -> None:
    """The file holds what intervals are wider by, of bases and of what was left out."""
    shipped = {(quantity, what): factor for quantity, what, factor, _ in _lines(name)}
    told = {key: f"{factor:.3f}" for key, (factor, _) in made.items()}
    assert _of_speed(shipped) == _of_speed(told), "run scripts/make_intervals.py"


def _of_speed(factors: Mapping[tuple[str, str], str]) -> dict[tuple[str, str], str]:
    return {key: factor for key, factor in factors.items() if key[0] != PEAK_MEMORY}


def _lines(name: str) -> list[list[str]]:
    path = Path(planner.confidence.__file__).parent / name
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file))[1:]
