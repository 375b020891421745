"""The layout whose day costs least, and GPUs that take time to start."""

import pytest

import planner
from planner.decide.sizing.autoscaling import backlog_over_time, rolling_maximum, rolling_minimum
from planner.errors import SearchSpaceError

QUIET = [14, 10, 8, 7, 7, 9, 14, 22, 33, 42, 47, 49, 48, 50, 50, 48, 45, 41, 37, 35, 33, 29, 24, 18]
SERVICE = {
    "tuned": True,
    "workload": "serve",
    "model": "llama-3.1-70b",
    "gpu": "h100",
    "engine": "sglang",
    "input_tokens": 1024,
    "output_tokens": 1024,
    "confidence": 0.5,
    "price": 2,
    "settings": {"pipeline_parallel": 1, "quantization": "fp8", "kv_cache": "fp8"},
}


@pytest.fixture
def load(tmp_path):
    def written(rates):
        path = tmp_path / "load.csv"
        lines = "".join(f"{hour},{rate}\n" for hour, rate in enumerate(rates))
        path.write_text(f"hour,request_rate\n{lines}")
        return path

    return written


def _spans(found):
    return [*zip(found.starts.tolist(), found.ends.tolist(), found.values.tolist(), strict=True)]


def test_gpus_start_before_they_serve():
    assert _spans(rolling_maximum([0, 8, 16], [2, 10, 4], 1)) == [
        (0, 7, 2),
        (7, 8, 10),
        (8, 15, 10),
        (15, 16, 10),
        (16, 23, 4),
        (23, 24, 4),
    ]
    # A gap of less than the start-up time is held; midnight is like any other hour.
    assert _spans(rolling_maximum([0, 10, 10.5], [6, 1, 5], 1)) == [
        (0, 9, 6),
        (9, 9.5, 6),
        (9.5, 10, 6),
        (10, 10.5, 5),
        (10.5, 23, 5),
        (23, 24, 6),
    ]
    assert _spans(rolling_minimum([0, 12], [2, 4], 0.5)) == [
        (0, 0.5, 2),
        (0.5, 12, 2),
        (12, 12.5, 2),
        (12.5, 24, 4),
    ]


def test_what_waits_for_gpus_that_start_late():
    """Half an hour of 3/s against 2/s leaves 1,800 waiting, which 4/s serve in half an hour."""
    queue = backlog_over_time([0, 12], [1, 3], rolling_minimum([0, 12], [2, 4], 0.5))
    assert queue.longest == pytest.approx(1800)
    assert queue.late == pytest.approx(3 * 1800 + 3 * 1800)
    assert backlog_over_time([0, 12], [1, 3], rolling_minimum([0, 12], [2, 4], 0)).late == 0
    # What waits at midnight makes the first requests of the day late.
    queue = backlog_over_time([0, 23.75], [1, 3], rolling_minimum([0, 23.75], [2, 4], 0.5))
    assert queue.longest == pytest.approx(900)
    assert queue.late == pytest.approx(3 * 900 + 1 * 900)
    # The rise stands at midnight: what waits then was there on the day before, too.
    assert backlog_over_time(
        [0, 12], [3, 1], rolling_minimum([0, 12], [4, 2], 0.5)
    ).late == pytest.approx(10800)


@pytest.mark.slow
def test_the_layout_is_that_of_the_cheapest_day(load):
    """The layout of the fewest GPUs at the peak loses to one that shrinks further."""
    path = load([(1, 3, 6, 7)[min(rate // 13, 3)] for rate in QUIET])
    (size,) = planner.size(**SERVICE, load=path).sizes
    day, other = size.day, size.day_of_fewest
    assert other.peak is size.fewest
    assert day.peak is size.cheapest
    assert other.cost == pytest.approx(2 * sum(hour.num_gpus for hour in other.hours))
    assert day.cost < other.cost
    assert day.cost == pytest.approx(2 * sum(hour.num_gpus for hour in day.hours))
    # No mode alone has a cheaper day.
    for mode in ("aggregated", "disaggregated"):
        (alone,) = planner.size(**SERVICE, load=path, mode=mode).sizes
        assert day.cost <= alone.day.cost + 1e-9
    assert all(hour.capacity >= hour.period.request_rate for hour in day.hours)


@pytest.mark.slow
def test_a_finer_load_pays_for_starts_and_tells_what_comes_late(tmp_path):
    path = tmp_path / "minutes.csv"
    path.write_text("time,request_rate\n00:00,2\n09:00,12\n09:30,2\n09:40,12\n12:00,3\n")
    asked = {**SERVICE, "mode": "aggregated", "load": path}
    (plain,) = planner.size(**asked).sizes
    answer = planner.size(**asked, startup_time="15min")
    (size,) = answer.sizes
    day = size.day
    night, peak, later = (day.hours[place].num_gpus for place in (0, 1, 4))
    assert night < peak
    # A quarter of an hour before nine, and the ten minutes between the two peaks.
    extra = (peak - night) * (0.25 + 10 / 60) + max(night - later, 0) * 0.25
    assert plain.day.gpu_hours == pytest.approx(
        9 * night + peak * 0.5 + night / 6 + peak * 7 / 3 + 12 * later
    )
    assert day.starting_hours == pytest.approx(extra)
    assert day.gpu_hours == pytest.approx(plain.day.gpu_hours + extra)
    assert sum(row["cost_usd"] for row in day.rows()) == pytest.approx(day.cost)
    assert day.cost == pytest.approx(2 * day.gpu_hours)
    assert plain.day.autoscaled[0].late == 0
    assert day.autoscaled[0].late * day.load.requests > 12 * 15 * 60
    assert "of the requests are late" in answer.summary(full=True)


@pytest.mark.parametrize(
    ("asked", "word"),
    [
        ({"startup_time": "5min"}, "startup_time needs load"),
        ({"startup_time": "5 parsecs"}, "parsecs"),
        ({"startup_time": "2d", "load": "day.csv"}, "less than a day"),
    ],
)
def test_a_start_up_time_is_of_a_load(asked, word):
    rate = {} if "load" in asked else {"request_rate": 3}
    with pytest.raises(SearchSpaceError, match=word):
        planner.size(**SERVICE, **asked, **rate)
