"""How many published runs stay within the quantiles that limits are judged at."""

import numpy as np
import pytest

from planner.confidence.quantiles import quantile
from planner.validation.compare import joined
from planner.validation.kinds import STEP_TIME
from planner.validation.predict import predict
from planner.validation.prediction import RATES


@pytest.fixture(scope="module")
def rows(shipped):
    return joined(shipped, predict(shipped))


@pytest.mark.parametrize("confidence", [0.7, 0.8, 0.9, 0.95])
def test_published_step_times_stay_below_their_quantile(rows, confidence):
    within = []
    for row in rows:
        ratio = row.ratio(STEP_TIME)
        if ratio is None:
            continue
        name = row.first_measured(STEP_TIME.names)
        found = row.ranges[name]
        ends = found.low / found.value, found.high / found.value
        if name in RATES:
            ends = 1 / ends[1], 1 / ends[0]
        within.append(1 / ratio <= quantile(ends, confidence, 1))
    assert len(within) > 2000
    # Most of these runs were fitted to: of those of a new publisher fewer stay below.
    assert confidence - 0.01 <= np.mean(within) <= confidence + 0.15
