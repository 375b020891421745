"""How much slower than tuned benchmarks measured set-ups are, by kind of work."""

from __future__ import annotations

from enum import StrEnum
from functools import cache

from planner.base.records import record
from planner.base.training_aliases import TrainingObjective
from planner.confidence.profile_rules import is_first_run, read_table, usual_first_run_slowdown

TABLE = "medians.csv"


class Work(StrEnum):
    """Kinds of work whose predictions have a median error of their own."""

    SERVING = "serving"
    STATIC_BATCH = "static_batch"
    MAX_THROUGHPUT = "max_throughput"
    PRETRAINING = "pretraining"
    FINE_TUNING = "fine_tuning"


@record(kw_only=True)
class Median:
    """Median over publishers of measured over tuned time, of set-ups that were not tuned.

    Parameters
    ----------
    slower : factor on tuned times; 1 if the median is less than two standard errors from 0
    standard_error : of the logarithm of the median
    publishers : number of publishers; each counts once
    runs : number of their runs
    """

    slower: float
    standard_error: float
    publishers: int
    runs: int


@cache
def median_slowdown(work: Work) -> Median:
    """Return how many times as long as tuned ones the set-ups of this kind of work take."""
    row = next(row for row in read_table(TABLE) if row["work"] == work)
    return Median(
        slower=float(row["slower"]),
        standard_error=float(row["standard_error"]),
        publishers=int(row["publishers"]),
        runs=int(row["runs"]),
    )


def training_slowdown(
    framework: str, objective: TrainingObjective, tuned: bool | None, *, tunes: bool
) -> float:
    """Return step time over that of a tuned run.

    Parameters
    ----------
    framework : label of `planner.confidence.profile_rules`
    objective : what is trained
    tuned : whether the run is tuned (True) or a first run (False); None: not specified
    tunes : whether weights are frozen, so that the run is fine-tuning whatever its objective
    """
    if tuned or objective.needs_rollouts:
        return 1.0
    first_run = usual_first_run_slowdown(framework)
    if first_run > 1 and is_first_run(tuned, objective):
        return first_run
    fine_tunes = tunes or objective is not TrainingObjective.PRETRAIN
    return median_slowdown(Work.FINE_TUNING if fine_tunes else Work.PRETRAINING).slower
