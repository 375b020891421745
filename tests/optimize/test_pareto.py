"""The Pareto front is the quadratic definition, whatever the values."""

import numpy as np
import pytest
from draws import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from planner.optimize.pareto import filter_dominated, pareto_front

FEW = st.sampled_from([0.0, -0.0, 1.0, 2.0, 3.0, 4.0, np.inf, -np.inf, np.nan])
ANY = st.floats(width=32)
SOME = settings(max_examples=examples(100, 30))


def tables(elements, max_rows=40):
    shapes = st.tuples(st.integers(0, max_rows), st.integers(1, 3))
    return shapes.flatmap(lambda shape: arrays(np.float64, shape, elements=elements))


def dominates(one, other):
    return bool((one <= other).all() and (one < other).any())


def definition(values):
    """Rows without NaN that no other dominates, the first of equal ones, in order."""
    known = [row for row in range(len(values)) if not np.isnan(values[row]).any()]
    front = [
        row
        for row in known
        if not any(dominates(values[other], values[row]) for other in known)
        and not any((values[other] == values[row]).all() for other in known if other < row)
    ]
    return sorted(front, key=lambda row: tuple(values[row]))


@SOME
@given(tables(st.one_of(FEW, ANY)))
def test_front_is_the_definition(values):
    assert pareto_front(values).tolist() == definition(values)


@SOME
@given(tables(FEW, max_rows=80))
def test_front_is_the_definition_among_ties(values):
    assert pareto_front(values).tolist() == definition(values)


@pytest.mark.few(1)
@pytest.mark.parametrize("distinct", [60, 500])
@pytest.mark.parametrize("objectives", [1, 2, 3])
def test_front_of_more_rows_than_a_chunk(objectives, distinct):
    values = np.random.default_rng(0).integers(0, distinct, (3000, objectives)).astype(float)
    assert pareto_front(values).tolist() == definition(values)


@pytest.mark.few(1)
@pytest.mark.parametrize("column", range(3))
def test_one_of_three_objectives_may_have_few_values(column):
    rng = np.random.default_rng(column)
    values = rng.integers(0, 400, (3000, 3)).astype(float)
    values[:, column] = rng.integers(0, 5, 3000)
    assert pareto_front(values).tolist() == definition(values)


def test_all_rows_of_a_sphere_are_on_the_front():
    points = np.abs(np.random.default_rng(1).normal(size=(3000, 3))) + 0.1
    points = -points / np.linalg.norm(points, axis=1, keepdims=True)
    assert sorted(pareto_front(points)) == list(range(3000))


def test_front_is_sorted_by_the_first_objective():
    values = np.random.default_rng(2).random((500, 3))
    first = values[pareto_front(values), 0]
    assert (np.diff(first) >= 0).all()
    assert first[0] == values[:, 0].min()


@SOME
@given(tables(FEW), st.integers(0, 40))
def test_undominated_keeps_what_a_front_does_not_dominate(values, split):
    earlier, later = values[:split], values[split:]
    front = earlier[pareto_front(earlier)]
    kept = filter_dominated(later, front)
    for row, is_kept in zip(later, kept, strict=True):
        beaten = any(dominates(probe, row) or (probe == row).all() for probe in front)
        assert is_kept or beaten or np.isnan(row).any()


@SOME
@given(tables(FEW), st.integers(0, 40))
def test_front_of_parts_is_the_front_of_the_whole(values, split):
    earlier, later = values[:split], values[split:]
    front = earlier[pareto_front(earlier)]
    merged = np.concatenate([front, later[filter_dominated(later, front)]])
    assert np.array_equal(merged[pareto_front(merged)], values[definition(values)])
