"""Write what the texts of the shipped runs, and files beside them, say of them into columns.

The package reads columns alone. Here the sources, notes and names of runs are read by the
patterns and tables of scripts/published, and cells are filled, or changed where a source counts
in a way of its own. Columns to the right of ``as_published`` are made here; what cells to the
left of it were is kept in it, so that running this again changes no byte:

    python scripts/compile_runs.py && python scripts/make_intervals.py
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from pathlib import Path

from published.inference import inference_cells
from published.tables import AS_PUBLISHED, DETAILS, changed, original, source_columns
from published.training import training_cells
from publishers import publishes_tuned

from planner.validation.run_tables import SHIPPED, SHIPPED_INFERENCE, Run, TableKind, read_runs
from planner.validation.spec_library import Library

COLLECTION = "serving"
"""Publisher of the collections of one benchmark, whose files name none of their own."""
_CELLS = {TableKind.TRAINING: training_cells, TableKind.INFERENCE: inference_cells}


def main() -> None:
    """Write the tables that ship."""
    library = Library()
    for path in (SHIPPED, *SHIPPED_INFERENCE):
        text = compiled(path, library)
        path.write_text(text, encoding="utf-8", newline="")
        print(path.name)


def compiled(path: Path, library: Library) -> str:
    """The text of a table of runs with every column that is known of them."""
    runs = read_runs(path)
    source = source_columns(runs)
    rows = [_row(original(run, source), runs.kind, library) for run in runs.rows]
    used = {name for row in rows for name, cell in row.items() if cell}
    left = (*source, AS_PUBLISHED)
    made = [name for name in runs.schema.columns if name in used and name not in left]
    if unknown := used - runs.schema.column_names:
        raise ValueError(f"columns.csv lacks {', '.join(sorted(unknown))}")
    file = io.StringIO()
    writer = csv.DictWriter(file, [*left, *made], restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue()


def _row(run: Run, kind: TableKind, library: Library) -> Mapping[str, str]:
    named = _publisher(run)
    known = _CELLS[kind](run, library) | {"publisher": named}
    if kind is TableKind.INFERENCE and publishes_tuned(named):
        known["tuned"] = "1"
    cells = changed(run, known)
    were = [f"{name}={run.cells[name]}" for name in cells if name in run.cells]
    return {**run.cells, **cells, AS_PUBLISHED: "; ".join(were)}


def _publisher(run: Run) -> str:
    """The first word of a source; the collections of serving runs are one."""
    return COLLECTION if run.text(DETAILS) else run.text("source").partition(" ")[0]


if __name__ == "__main__":
    main()
