"""The row of a run as others may have it: without names of files, people or machines."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from planner.base.version import __version__
from planner.errors import CalibrationError, PlannerError
from planner.question.names import FRAMEWORK, GPU, MODEL
from planner.specs.catalogue import Catalogue
from planner.validation.logs.log_comparison import Comparison, schema_for
from planner.validation.logs.predicted_run import PredictedRun
from planner.validation.run_tables import ColumnType, Schema

SOURCE = "shared run"
_KINDS: Mapping[str, tuple[str, ...]] = {
    MODEL: ("models",),
    GPU: ("gpus",),
    FRAMEWORK: ("frameworks", "engines"),
}
_ID_DIGITS = 12


def shared_cells(comparison: Comparison, planned: PredictedRun) -> dict[str, str]:
    """Return the cells of a run by column, without what identifies its owner.

    Numbers, shipped names and the words of the columns stay; texts for people go. The id is a
    digest of the cells. Raises CalibrationError if the run cannot be a row, or uses a model, GPU or
    profile that only its owner has.
    """
    if not comparison.cells:
        raise CalibrationError(f"The run cannot be a row of a table: {comparison.no_row}.")
    schema = schema_for(planned)
    cells = {
        name: _shipped_name(planned.catalogue, name, cell) if name in _KINDS else cell
        for name, cell in comparison.cells.items()
        if _is_shared(schema, name)
    }
    texts = "\n".join(f"{name}={cell}" for name, cell in sorted(cells.items()))
    digest = hashlib.sha256(texts.encode()).hexdigest()[:_ID_DIGITS]
    notes = f"log of {comparison.reading.title}; planner {__version__}"
    return {"id": f"shared-{digest}", "source": SOURCE, **cells, "notes": notes}


def _is_shared(schema: Schema, name: str) -> bool:
    """Whether a column describes the run or its results, not its owner."""
    column = schema.columns.get(name)
    is_for_people = column is None or column.type is ColumnType.DESCRIBED
    return not is_for_people and name not in ("source", "publisher")


def _shipped_name(catalogue: Catalogue, column: str, name: str) -> str:
    """Return the name by which every planner knows a spec.

    Raises CalibrationError if it is not shipped, or the owner's own file replaces it.
    """
    shipped = Catalogue(None)
    for kind in _KINDS[column]:
        try:
            path = shipped.find(kind, name)
            if catalogue.find(kind, name) == path:
                return path.stem
        except PlannerError:
            continue
    raise CalibrationError(
        f"The {column} {name} is yours: no other planner knows it. Propose its spec first, "
        "or share a run with a shipped one (planner specs list)."
    )
