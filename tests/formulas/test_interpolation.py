"""Interpolation on a grid of three axes."""

from __future__ import annotations

import numpy as np
import pytest

from planner.formulas.roofline import trilinear

AXES = (np.array([0.0, 1.0, 4.0]), np.array([0.0, 2.0]), np.array([-1.0, 0.0, 3.0]))


def _linear(x, y, z):
    return 5 + 2 * x - 3 * y + 0.5 * z


VALUES = _linear(*np.meshgrid(*AXES, indexing="ij"))


def test_a_linear_function_is_itself_between_the_points() -> None:
    x, y, z = (
        np.linspace(0, 4, 7)[:, None],
        np.linspace(0, 2, 5),
        np.linspace(-1, 3, 6)[:, None, None],
    )
    found = trilinear(AXES, VALUES, (x, y, z))
    assert found.shape == (6, 7, 5)
    np.testing.assert_allclose(found, _linear(x, y, z))


def test_the_points_of_the_grid_are_themselves() -> None:
    values = np.random.default_rng(1).normal(size=VALUES.shape)
    np.testing.assert_allclose(trilinear(AXES, values, np.meshgrid(*AXES, indexing="ij")), values)


@pytest.mark.parametrize(
    ("point", "expected"),
    [
        pytest.param((6.0, 1.0, 0.0), _linear(4, 1, 0) + 2, id="above one axis: one to one"),
        pytest.param((6.0, 5.0, 4.0), _linear(4, 2, 3) + 2 + 3 + 1, id="above all"),
        pytest.param((-9.0, 1.0, -2.0), _linear(0, 1, -1), id="below: the first"),
    ],
)
def test_beyond_the_grid(point, expected) -> None:
    assert trilinear(AXES, VALUES, point) == pytest.approx(expected)
