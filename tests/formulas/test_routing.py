"""Where the experts of a token stand."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from planner.formulas.routing import domains_reached


@pytest.mark.parametrize(
    ("experts", "chosen", "groups", "limit", "domains"),
    [
        (8, 2, 1, 1, 4),
        (8, 2, 1, 1, 8),
        (8, 3, 4, 2, 2),
        (8, 3, 4, 2, 4),
        (8, 3, 4, 2, 8),
        (12, 4, 3, 2, 6),
        (12, 3, 6, 3, 2),
    ],
)
def test_domains_reached_are_those_of_counted_choices(
    experts: int, chosen: int, groups: int, limit: int, domains: int
) -> None:
    size, held = experts // groups, experts // domains
    reached = [
        len({expert // held for expert in choice})
        for among in combinations(range(groups), limit)
        for choice in combinations(
            [group * size + i for group in among for i in range(size)], chosen
        )
    ]
    mean = domains_reached(
        num_experts=experts,
        num_experts_per_tok=chosen,
        num_domains=domains,
        n_group=groups,
        topk_group=limit,
    )
    assert mean == pytest.approx(np.mean(reached), rel=1e-12)


def test_a_token_of_deepseek_v3_reaches_four_nodes_at_most() -> None:
    """8 of 256 experts in 4 of 8 groups: arXiv:2412.19437, section 2.1.2."""
    sizes = {"num_experts": 256, "num_experts_per_tok": 8}
    nodes = np.array([1.0, 2.0, 4.0, 8.0, 12.0, 32.0, 256.0])
    limited = domains_reached(**sizes, n_group=8, topk_group=4, num_domains=nodes)
    free = domains_reached(**sizes, num_domains=nodes)
    assert limited[3] == pytest.approx(3.625, abs=5e-3)
    assert free[3] == pytest.approx(5.29, abs=5e-3)
    assert np.all(limited <= np.minimum(free + 1e-9, 8.0))
    assert limited[4] == free[4]  # 12 nodes share groups
    assert limited[-1] == free[-1] == pytest.approx(8.0)
    assert domains_reached(**sizes, num_domains=np.array(512.0)) <= 8.0
