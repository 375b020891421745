from __future__ import annotations

import doctest

import pytest

from planner.base import formatting


def test_the_examples_hold():
    assert doctest.testmod(formatting).failed == 0


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.0042, "4.2 ms"),
        (22.4178, "22.4 s"),
        (900, "15.0 min"),
        (5 * 3600, "5.00 h"),
        (30 * 86400, "30.0 days"),
        (float("nan"), "unknown"),
    ],
)
def test_durations_come_in_the_unit_that_suits(seconds, words):
    assert formatting.format_duration(seconds) == words


@pytest.mark.parametrize(
    ("amount", "unit", "words"),
    [
        (2**36, "byte", "64.0 GiB"),
        (0.4, "1", "40.0 %"),
        (1234567, "usd", "1,234,567 USD"),
        (1.5, "usd", "1.50 USD"),
    ],
)
def test_limits_carry_their_unit(amount, unit, words):
    assert formatting.format_limit(amount, unit) == words
