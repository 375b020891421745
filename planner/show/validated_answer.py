"""Return type of `planner.validate_runs`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from planner.base.records import record
from planner.show.output_blocks import Block
from planner.show.presenters.validation import (
    prediction_columns,
    prediction_rows,
    validation_blocks,
)
from planner.show.results import Displayable
from planner.validation.accuracy import kind_of
from planner.validation.validated_runs import ValidatedRuns

if TYPE_CHECKING:
    import pandas as pd


@record(kw_only=True, repr=False)
class ValidateAnswer(Displayable, ValidatedRuns):
    """Result of `planner.validate_runs`; tables of errors in notebooks."""

    def __repr__(self) -> str:
        return f"<{len(self.runs)} validated runs>"

    def to_frame(self) -> pd.DataFrame:
        """The runs as a pandas frame of texts: columns of the tables, and of the predictions."""
        import pandas as pd

        rows = [cells for table in self.tables for cells in prediction_rows(*table)]
        return pd.DataFrame(rows, columns=prediction_columns(self.tables)).fillna("")

    def _blocks(self, full: bool) -> Iterable[Block]:
        for table, rows in self.tables:
            yield from validation_blocks(kind_of(table), rows)
