"""From tables of measured runs to what a profile is fitted to, and how far it is off."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence

import numpy as np

from planner.base.arrays import FloatArray
from planner.base.records import record
from planner.calibration.kinds import CALIBRATED, Calibrated
from planner.calibration.parameters import Parameter
from planner.errors import CalibrationError
from planner.validation.kinds import KINDS
from planner.validation.library import Library
from planner.validation.models import NotPredicted
from planner.validation.prediction import MEMORY, RATES, Case
from planner.validation.runs import Run, Runs


@record(kw_only=True)
class Measured:
    """A case, one of its measured quantities, how much it counts, and who published it.

    ``line`` is that of its run in the file; the value is in the unit of the tables.
    """

    case: Case
    kind: Calibrated
    line: int
    publisher: str
    quantity: str
    value: float
    weight: float = 1.0

    @property
    def is_of_memory(self) -> bool:
        """Whether it is no time."""
        return self.quantity == MEMORY

    def tells(self, parameter: Parameter) -> bool:
        """Whether it measured what the parameter is about."""
        return parameter.is_of_memory == self.is_of_memory


def measured_runs(
    runs: Runs, library: Library, profile: str | None, *, everything: bool = False
) -> tuple[str, list[Measured]]:
    """What was measured with one profile, and the profile's name.

    Without a name it is the profile most rows belong to. Rows that more explains than the
    profile are left out unless ``everything`` is asked for.

    Raises
    ------
    CalibrationError
        No row can be used.
    """
    kind = CALIBRATED[runs.kind]
    found = [
        one
        for run in runs.rows
        for one in _measured(run, library, runs, kind)
        if everything or kind.is_usable(one.case)
    ]
    counts = Counter(dict.fromkeys((one.line, one.case.software.profile) for one in found))
    if profile is None and found:
        profile = Counter(name for _, name in counts).most_common(1)[0][0]
    mine = [one for one in found if one.case.software.profile == profile]
    if not mine:
        raise CalibrationError(
            f"None of {len(runs.rows)} rows has a measured time, throughput or peak memory that "
            f"is fitted to and can be predicted with {profile or 'any profile'}: "
            "`planner validate` says why, row by row."
        )
    return str(profile), mine


def log_ratios(measured: Sequence[Measured], values: Mapping[Parameter, float]) -> FloatArray:
    """Logarithms of predicted over measured, of times and of memory, by measurement.

    Rates count as the times they are of. Shape ``(2, measurements)``; NaN where a measurement
    is of the other kind.
    """
    groups: defaultdict[Hashable, list[int]] = defaultdict(list)
    for index, one in enumerate(measured):
        groups[one.case.group].append(index)
    ratios = np.full((2, len(measured)), np.nan)
    for indices in groups.values():
        kind = measured[indices[0]].kind
        # What one run measured is of one case, which is predicted once.
        cases = {id(one.case): one.case for one in (measured[index] for index in indices)}
        predicted = kind.predict_group(kind.with_values(list(cases.values()), values))
        found = dict(zip(cases, predicted, strict=True))
        for index in indices:
            one = measured[index]
            missing = kind.worst * one.value
            ratio = np.log(found[id(one.case)].values.get(one.quantity, missing) / one.value)
            ratios[int(one.is_of_memory), index] = -ratio if one.quantity in RATES else ratio
    return ratios


def thinned(measured: Sequence[Measured], most: int) -> list[Measured]:
    """The measurements of at most so many setups, spread evenly over all in their order."""
    groups = list(dict.fromkeys(one.case.setup for one in measured))
    step = max(len(groups) / most, 1.0)
    kept = {groups[int(number * step)] for number in range(int(len(groups) / step))}
    return [one for one in measured if one.case.setup in kept]


def _measured(run: Run, library: Library, runs: Runs, kind: Calibrated) -> Iterator[Measured]:
    try:
        case = KINDS[runs.kind].case_of(run, library)
    except NotPredicted:
        return
    for quantity, value, weight in kind.measurements(run, case):
        yield Measured(
            case=case,
            kind=kind,
            line=run.line,
            publisher=run.text("publisher") or run.text("source"),
            quantity=quantity,
            value=value,
            weight=weight,
        )
