"""Write how much slower than tuned benchmarks set-ups are that nobody tuned, by kind of work.

A publisher counts by the median of its runs that no fit followed, if these are ``FEWEST_ROWS`` or
more. Vendors, who tune their benchmarks, are left out. Runs marked for calibration are left out,
but for those of an engine profile that keeps its starting values, and of a publisher with less than
``FOLLOWED`` of the runs behind a profile. Predictions are those for tuned runs, so running this
again changes nothing. Run it after a change of the runs or of the estimator, and before
`make_intervals.py`:

    python scripts/make_medians.py
"""

from __future__ import annotations

import csv
import io
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from fit_engines import STEPS
from make_accuracy import shipped_rows
from publishers import publisher, publishes_tuned

from planner.confidence.intervals import FEWEST_ROWS
from planner.confidence.medians import TABLE, Work
from planner.confidence.profile_rules import FOLDER
from planner.validation.accuracy import REQUESTS, STEP_TIME, ComparedQuantity, ComparedRun
from planner.validation.inference.cases import WORK_OF_MODE, InferenceCase
from planner.validation.training.cases import TrainingCase

FITTED = {step.profile for step in STEPS}
FILE = Path(FOLDER) / TABLE
FEWEST = 3
"""Publishers below which a median has no standard error that means anything."""
FOLLOWED = 0.05
"""Share of the calibration runs of a profile from which on a fit follows a publisher's runs."""
SURE = 2.0
"""Standard errors from 0 from which on a kind of work is shifted."""
_OF_MEDIAN = math.sqrt(math.pi / 2)
"""Standard error of a median over that of a mean, of a normal distribution."""


@dataclass(frozen=True, kw_only=True)
class Publishers:
    """Median logarithm of measured over tuned time of each publisher, and the number of runs."""

    medians: Mapping[str, float]
    runs: int

    @property
    def median(self) -> float:
        """Median over publishers."""
        return float(np.median([*self.medians.values()])) if self.medians else 0.0

    @property
    def standard_error(self) -> float:
        """Standard error of the median; infinite for few publishers."""
        values = [*self.medians.values()]
        if len(values) < FEWEST:
            return math.inf
        return float(_OF_MEDIAN * np.std(values, ddof=1) / math.sqrt(len(values)))

    @property
    def slower(self) -> float:
        """Factor on tuned times; 1 if the median may be 0, or is below it."""
        is_sure = self.median >= SURE * self.standard_error
        return round(math.exp(self.median), 2) if is_sure else 1.0

    def without(self) -> dict[str, float]:
        """The median with each publisher left out."""
        return {
            name: float(np.median([value for key, value in self.medians.items() if key != name]))
            for name in self.medians
            if len(self.medians) > 1
        }


def medians(tables: Iterable[Sequence[ComparedRun]]) -> dict[Work, Publishers]:
    """The publishers of each kind of work, of tables of runs with their predictions."""
    rows = [row for table in tables for row in table]
    shares = _calibration_shares(rows)
    logs: dict[Work, defaultdict[str, list[float]]] = {work: defaultdict(list) for work in Work}
    for row in rows:
        work, compared = _work_of(row)
        if work is None or _is_tuned(row) or _is_followed(row, compared, shares):
            continue
        if ratio := row.ratio(compared, as_tuned=True):
            logs[work][publisher(row)].append(-math.log(ratio))
    return {work: _of_work(of_work) for work, of_work in logs.items()}


def _of_work(logs: Mapping[str, Sequence[float]]) -> Publishers:
    enough = {name: of_name for name, of_name in logs.items() if len(of_name) >= FEWEST_ROWS}
    return Publishers(
        medians={name: float(np.median(values)) for name, values in sorted(enough.items())},
        runs=sum(map(len, enough.values())),
    )


def _calibration_shares(rows: Iterable[ComparedRun]) -> dict[tuple[str, str], float]:
    """Share of each publisher in the calibration runs of each profile."""
    pairs = Counter(
        (case.software.profile, publisher(row))
        for row in rows
        if (case := row.prediction.case) is not None and row.run.flag("calibration")
    )
    totals: Counter[str] = Counter()
    for (profile, _), number in pairs.items():
        totals[profile] += number
    return {pair: number / totals[pair[0]] for pair, number in pairs.items()}


def _is_followed(
    row: ComparedRun, compared: ComparedQuantity, shares: Mapping[tuple[str, str], float]
) -> bool:
    """Whether a fit may have drawn the prediction of a run towards its measurement."""
    case = row.prediction.case
    if not row.run.flag(compared.calibration) or not isinstance(case, InferenceCase):
        return bool(row.run.flag(compared.calibration))
    profile = case.software.profile
    return profile in FITTED and shares[profile, publisher(row)] >= FOLLOWED


def _work_of(row: ComparedRun) -> tuple[Work | None, ComparedQuantity]:
    """The kind of work of a run, None for those without one, and what its median is of."""
    case = row.prediction.case
    if isinstance(case, InferenceCase):
        return WORK_OF_MODE[case.mode], REQUESTS
    if isinstance(case, TrainingCase):
        return (Work.FINE_TUNING if case.is_fine_tuning else Work.PRETRAINING), STEP_TIME
    return None, STEP_TIME


def _is_tuned(row: ComparedRun) -> bool:
    return bool(row.run.flag("tuned")) or publishes_tuned(row.run.text("publisher"))


def table(found: Mapping[Work, Publishers]) -> str:
    """The text of the table."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(("work", "slower", "standard_error", "publishers", "runs"))
    for work, of_work in found.items():
        error = f"{of_work.standard_error:.3f}"
        numbers = (f"{of_work.slower:.2f}", error, len(of_work.medians), of_work.runs)
        writer.writerow((work.value, *numbers))
    return file.getvalue()


def main() -> None:
    """Write the table, and print the publishers behind it."""
    found = medians(shipped_rows())
    for work, of_work in found.items():
        print(f"{work}: {of_work.median:+.3f} +- {of_work.standard_error:.3f}")
        without = of_work.without()
        for name, value in of_work.medians.items():
            print(f"  {name}: {value:+.3f}; without it {without[name]:+.3f}")
    FILE.write_text(table(found), encoding="utf-8")


if __name__ == "__main__":
    main()
