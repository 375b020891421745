"""The closed form of goodput is what drawn failures leave of a job's time."""

from __future__ import annotations

import pytest
from scalar_goodput import Job, training_time_share

from planner.formulas.goodput import effective_training_time_ratio, training_time_parts

JOBS = {
    "synchronous": Job(interval=900, blocking=60, write=60, recovery=300, between_failures=7200),
    "asynchronous": Job(interval=400, blocking=5, write=300, recovery=660, between_failures=5000),
    "hopeless": Job(interval=60, blocking=20, write=40, recovery=600, between_failures=300),
}


@pytest.mark.parametrize("name", JOBS)
def test_the_ratio_is_that_of_drawn_failures(name):
    job = JOBS[name]
    expected = training_time_share(job, seed=7, failures=200_000)
    found = effective_training_time_ratio(
        *training_time_parts(
            interval=job.interval,
            blocking_time=job.blocking,
            write_time=job.write,
            recovery_time=job.recovery,
            rate=1 / job.between_failures,
        )
    )
    assert found == pytest.approx(expected, rel=0.015)
