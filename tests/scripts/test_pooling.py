"""Intervals that hold runs of publishers that nobody has seen."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from pooling import FITTED, Errors, LeftOut, left_out, pooled, student

from planner.confidence.evidence import Conditions

ANY, NODE = ("", ""), ("node", "")
KNOWN = Conditions(gpu_class="known", work="pretrain")


def _drawn(seed: int, *, fitted: bool = False) -> Errors:
    """Thirty publishers, each with its own bias, in two kinds of runs."""
    random = np.random.default_rng(seed)
    sizes = random.integers(3, 40, 30)
    names = np.repeat([f"publisher {number}" for number in range(30)], sizes)
    bias = np.repeat(random.normal(0, 0.1, 30), sizes)
    kinds = np.repeat(random.choice(["node", "cluster"], 30), sizes)
    spread = np.where(kinds == "node", 0.05, 0.2)
    return Errors(
        values=bias + spread * random.normal(size=len(names)),
        levels=[[ANY] * len(names), [(kind, "") for kind in kinds.tolist()]],
        folds=names,
        publishers=names,
        fitted=np.full(len(names), fitted),
        software=np.full(len(names), "one"),
        conditions=[KNOWN] * len(names),
        setups=np.full(len(names), ""),
    )


@pytest.mark.parametrize("seed", range(4))
def test_publishers_left_out_are_held(seed: int) -> None:
    errors = _drawn(seed)
    inside = left_out(errors).inside(errors.values)
    assert 0.86 < np.average(inside, weights=errors.weights) < 0.96


def test_a_kind_with_small_errors_has_a_narrow_interval() -> None:
    ends = pooled(_drawn(1)).ends
    (low, high, runs), (whole_low, whole_high, every) = ends[NODE], ends[ANY]
    assert runs < every
    assert high - low < whole_high - whole_low


def test_few_publishers_are_drawn_to_the_wider_kind() -> None:
    errors = _drawn(2)
    alone = errors.folds == "publisher 0"
    # One publisher that errs by 1 in a kind of its own.
    values = np.where(alone, 1.0 + 0.01 * errors.values, errors.values)
    kinds = [("own", "") if own else ("", "") for own in alone.tolist()]
    own = Errors(
        values=values,
        levels=[[ANY] * len(values), kinds],
        folds=errors.folds,
        publishers=errors.publishers,
        fitted=errors.fitted,
        software=errors.software,
        conditions=errors.conditions,
        setups=errors.setups,
    )
    low, high, _ = pooled(own).ends[("own", "")]
    assert 0 < (low + high) / 2 < 0.5


def test_runs_that_were_fitted_tell_less_of_the_reach() -> None:
    errors = _drawn(3)
    fitted = np.abs(errors.values) < 0.1
    told = Errors(**{**vars(errors), "fitted": fitted})
    low, high, _ = pooled(errors).ends[ANY]
    told_low, told_high, _ = pooled(told).ends[ANY]
    assert FITTED < 1
    assert told_high - told_low > high - low


def test_a_publisher_counts_as_often_whatever_parts_are_left_out() -> None:
    """A collection of a hundred models is one publisher: its square root is that of all runs."""
    names = np.array(["one"] * 100 + ["other"] * 4)
    errors = _drawn(5)
    parted = Errors(
        **{
            **vars(errors),
            "folds": np.array([f"{name} {at}" for at, name in enumerate(names)]),
            "publishers": names,
        }
    )
    assert parted.weights.sum() == pytest.approx(100**0.5 + 4**0.5)


def test_a_basis_that_errs_more_is_wider() -> None:
    errors = _drawn(4)
    far = np.isin(errors.folds, [f"publisher {number}" for number in range(8)])
    values = np.where(far, 3 * errors.values, errors.values)
    conditions = [
        replace(KNOWN, gpu_class=f"class {number}") if is_far else KNOWN
        for number, is_far in enumerate(far.tolist())
    ]
    errors = replace(errors, values=values, conditions=conditions)
    assert {*errors.bases.tolist()} == {"roofline", "measured"}
    found = pooled(errors).widening
    assert found["roofline"][0] > 1.2
    assert found["measured"][0] <= 1.0


def test_the_interval_score_is_the_width_and_what_is_missed() -> None:
    found = LeftOut(low=np.array([-0.1, -0.1]), high=np.array([0.2, 0.2]))
    assert found.scores(np.array([0.0, 0.25])) == pytest.approx([0.3, 0.3 + 20 * 0.05])


@pytest.mark.parametrize(("publishers", "quantile"), [(7, 1.943), (13, 1.782), (23, 1.717)])
def test_the_next_of_few_publishers_is_as_far_as_students_t_says(
    publishers: int, quantile: float
) -> None:
    """Quantiles of t at 0.95 as tables print them, over the normal one of 1.6449."""
    expected = quantile * (1 + 1 / publishers) ** 0.5 / 1.6449
    assert student(publishers, 0.95) == pytest.approx(expected, rel=3e-3)


def test_a_publisher_with_many_runs_tells_no_more_of_a_kind_than_another() -> None:
    errors = _drawn(6)
    whole = Errors(
        **{
            **vars(errors),
            "values": np.concatenate([errors.values, np.full(400, 0.5)]),
            "levels": [[ANY] * (len(errors.values) + 400)],
            "folds": np.concatenate([errors.folds, np.full(400, "large")]),
            "publishers": np.concatenate([errors.publishers, np.full(400, "large")]),
            "fitted": np.zeros(len(errors.values) + 400, dtype=bool),
            "software": np.full(len(errors.values) + 400, "one"),
            "conditions": [KNOWN] * (len(errors.values) + 400),
            "setups": np.full(len(errors.values) + 400, ""),
        }
    )
    low, high, _ = pooled(whole).ends[ANY]
    assert low < 0 < high
    assert abs(low + high) < 0.5
