"""Make the intervals and the list of calibrated kinds from the runs that ship.

Writes the files of planner/confidence that `planner.confidence.intervals` names, and prints, per
source, the share of its runs that intervals made without it hold. Run it after a change of the
model or of its parameters:

    python scripts/make_intervals.py

``--fits`` makes the errors of the memory alone.
"""

from __future__ import annotations

import csv
import math
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from statistics import median

from memory_fits import (
    SERVING,
    Ending,
    endings,
    fits,
    judged,
    logged_endings,
    software_works,
)
from residuals import Cell, Held, cells, held_when_left_out, layout_factors, residuals, widening

import planner.confidence
from planner.confidence.evidence import EVIDENCE_COLUMNS, Conditions, evidence_rows
from planner.confidence.intervals import LEVEL, ErrorTables, Rule
from planner.confidence.profile_rules import read_table
from planner.question.names import PEAK_MEMORY
from planner.validation.accuracy import ComparedRun, joined, predict
from planner.validation.run_tables import SHIPPED, SHIPPED_INFERENCE, read_runs

FOLDER = Path(planner.confidence.__file__).parent


def main() -> None:
    """Write the files of training and of inference."""
    confidence = None
    for paths in ((SHIPPED,), SHIPPED_INFERENCE):
        tables = [read_runs(path) for path in paths]
        rows = [row for runs in tables for row in joined(runs, predict(runs))]
        logged = logged_endings() if paths is SHIPPED_INFERENCE else []
        found = [*endings(rows), *logged]
        confidence = _make_fits(rows[0].kind.tables, found, confidence)
        if "--fits" not in sys.argv:
            _make(rows)


def _make(rows: Sequence[ComparedRun]) -> None:
    kind = rows[0].kind
    found = [residual for residual in residuals(rows) if residual.quantity != PEAK_MEMORY]
    made = [_line(cell) for cell in cells(found)]
    header = ("quantity", *kind.tables.keys, "level", "low", "high", "rows", "basis")
    _write(kind.tables.intervals, header, [*made, *_layouts(rows)])
    _write(kind.tables.evidence, EVIDENCE_COLUMNS, evidence_rows(_timed(rows)))
    wider = [
        (*key, f"{factor:.3f}", runs) for key, (factor, runs) in sorted(widening(found).items())
    ]
    _write(kind.tables.widening, ("quantity", "basis", "factor", "rows"), wider)
    for compared in (compared for compared in kind.compared if not compared.of_memory):
        _print_held(compared.interval, held_when_left_out(found, compared.interval))


def _make_fits(tables: ErrorTables, found: Sequence[Ending], usual: float | None) -> float:
    """The errors that say how surely a plan fits, and how surely it must where nobody says.

    That is ``usual`` where too few ran out to tell.
    """
    left_out = judged(found, usual)
    works, own = sorted({one.work for one in found}), software_works(found)
    made = [
        (*key, "" if work == SERVING else work, f"{center:.3f}", f"{wider * deviation:.4f}", *runs)
        for key, ((center, deviation), *runs) in fits(found).items()
        for work in works
        for wider in (left_out.factors[work, (key, work) in own],)
    ]
    header = ("kind", "software", "scale", "work", "center", "deviation", "rows", "ran_out")
    _write(tables.fits, header, made)
    others = [row for row in read_table(tables.defaults) if row["fits"] != tables.fits]
    header = ("fits", "confidence", "ran", "refused", "ran_out", "said_to_fit")
    counts = left_out.ran, left_out.refused, left_out.ran_out, left_out.said_to_fit
    own = (tables.fits, f"{left_out.confidence:.3f}", *map(str, counts))
    every = sorted([own, *(tuple(row[name] for name in header) for row in others)])
    _write(tables.defaults, header, every)
    read_table.cache_clear()
    for work, part in left_out.coverage.items():
        share = f"{part.inside:.1%} of {part.runs:,} inside"
        print(f"peak_memory, {work}: {share}, width {part.width:.2f}")
    for (work, has_own), factor in sorted(left_out.factors.items()):
        software = "runs of the software" if has_own else "other software"
        print(f"fits: standard deviations of {work}, {software}, times {factor:.3f}")
    print(f"  Brier score {left_out.brier:.4f}, log score {left_out.log_score:.4f}")
    print(f"  confidence {left_out.confidence:.3f}: {left_out.refused} of {left_out.ran} that ran")
    print(f"  refused, {left_out.said_to_fit} of {left_out.ran_out} that ran out said to fit")
    for low, runs, mean, ran in left_out.bins:
        print(f"  from {low:.2f}: {runs:5} runs, mean {mean:.3f}, ran {ran:.3f}")
    return left_out.confidence


def _line(cell: Cell) -> tuple[object, ...]:
    ends = (f"{cell.low:.4f}", f"{cell.high:.4f}")
    return (cell.quantity, *cell.keys, LEVEL, *ends, cell.rows, "publishers")


def _layouts(rows: Sequence[ComparedRun]) -> Iterator[tuple[object, ...]]:
    for keys, (factor, pairs) in layout_factors(rows).items():
        yield ("layout", *keys, LEVEL, f"{1 / factor:.4f}", f"{factor:.4f}", pairs, "pairs")


def _print_held(quantity: str, held: Sequence[Held]) -> None:
    """Cover and mean interval score: of all runs, of those no fit saw, by basis and publisher."""
    print(f"{quantity}: {_cover(held)} left out with their publishers")
    print(f"  {_cover([one for one in held if not one.residual.calibration])} that no fit saw")
    for name in (lambda one: one.basis, lambda one: one.residual.fold):
        groups: defaultdict[str, list[Held]] = defaultdict(list)
        for one in held:
            groups[name(one)].append(one)
        for group, members in sorted(groups.items(), key=lambda item: -len(item[1])):
            print(f"  {group:50} {_cover(members)}")


def _cover(held: Sequence[Held]) -> str:
    inside = sum(one.inside for one in held) / max(len(held), 1)
    score = sum(one.score for one in held) / max(len(held), 1)
    width = median([one.width for one in held] or [math.nan])
    return f"{inside:.1%} of {len(held):,} inside, width {width:.2f}, interval score {score:.3f}"


def _timed(rows: Iterable[ComparedRun]) -> Iterator[tuple[Rule, str, Conditions]]:
    """Software, GPU and conditions of each run with a measured time that can be its layout."""
    for row in rows:
        case = row.prediction.case
        timed = any(row.ratio(one) is not None for one in row.kind.compared if not one.of_memory)
        if case is not None and timed and not row.prediction.impossible:
            yield case.software, case.gpu.name, case.conditions


def _write(name: str, header: Sequence[str], lines: Iterable[Sequence[object]]) -> None:
    with (FOLDER / name).open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerows([header, *lines])


if __name__ == "__main__":
    main()
