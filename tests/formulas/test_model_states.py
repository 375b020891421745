"""Sharded model states against arXiv:1910.02054."""

from __future__ import annotations

import pytest

from planner.base.enums import (
    ZeroStage,
)
from planner.formulas.memory import sharded_bytes

# Weights and gradients in 16 bit, K = 12 bytes of fp32 Adam states.
STATES = ((2, ZeroStage.WEIGHTS), (2, ZeroStage.GRADIENTS), (12, ZeroStage.OPTIMIZER))


def _total(parameters: float, ranks: int, stage: int) -> float:
    return sum(
        float(
            sharded_bytes(
                parameters=parameters,
                bytes_per_parameter=width,
                group_size=ranks,
                zero_stage=stage,
                sharded_from=sharded_from,
            )
        )
        for width, sharded_from in STATES
    )


@pytest.mark.parametrize(
    ("stage", "gigabytes"),
    [
        pytest.param(0, 120.0, id="arXiv:1910.02054 Figure 1: baseline"),
        pytest.param(1, 31.4, id="arXiv:1910.02054 Figure 1: P_os"),
        pytest.param(2, 16.6, id="arXiv:1910.02054 Figure 1: P_os+g"),
        pytest.param(3, 1.9, id="arXiv:1910.02054 Figure 1: P_os+g+p"),
    ],
)
def test_figure_1(stage: int, gigabytes: float) -> None:
    assert _total(7.5e9, 64, stage) / 1e9 == pytest.approx(gigabytes, abs=0.05)


@pytest.mark.parametrize(
    ("parameters", "ranks", "gigabytes"),
    [
        pytest.param(7.5e9, 4, (52.5, 41.3, 30.0), id="arXiv:1910.02054 Table 1: 7.5B on 4"),
        pytest.param(7.5e9, 1024, (30.1, 15.1, 0.12), id="arXiv:1910.02054 Table 1: 7.5B on 1024"),
        pytest.param(128e9, 64, (536, 284, 32), id="arXiv:1910.02054 Table 1: 128B on 64"),
        pytest.param(1e12, 1024, (4011, 2013, 15.6), id="arXiv:1910.02054 Table 1: 1T on 1024"),
    ],
)
def test_table_1(parameters: float, ranks: int, gigabytes: tuple[float, ...]) -> None:
    for stage, expected in enumerate(gigabytes, start=1):
        assert _total(parameters, ranks, stage) / 1e9 == pytest.approx(expected, rel=0.03)
