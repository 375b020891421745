"""Key-value caches, routing to experts, and queues."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from planner.base.arrays import FloatArray
from planner.formulas.memory import (
    kv_cache_bytes_per_token,
    mla_kv_cache_bytes_per_token,
    paged_kv_cache_tokens,
    typical_kv_cache_bytes,
)
from planner.formulas.normal import normal_upper_tail
from planner.formulas.queueing import (
    arrival_noise,
    critical_load_queueing_delay,
    disaggregated_closed_loop_rate,
    disaggregated_concurrency,
    gamma_quantile,
    loaded_decode_step_time,
    lognormal_quantile,
    mean_if_positive,
    mean_queueing_delay,
    mean_residual,
    normal_tail,
    queueing_delay_variance,
    solve_concurrency,
    solve_rate,
)
from planner.formulas.routing import (
    accepted_tokens,
    expected_maximum,
    expert_imbalance_factor,
    experts_touched,
    fullest_rank_expert_share,
)


def test_cache_of_llama_2_70b_is_320_kib_per_token() -> None:
    """Grouped-query attention, arXiv:2307.09288: 80 layers, 8 heads of 128, 16 bit."""
    per_layer = kv_cache_bytes_per_token(
        key_value_heads=8, qk_head_dim=128, v_head_dim=128, element_bytes=2
    )
    assert 80 * per_layer == 320 * 1024


def test_latent_cache_of_deepseek_v3_is_70_kb_per_token() -> None:
    """The 70.272 KB per token of arXiv:2505.09343, table 1: 61 layers of 512 + 64 elements."""
    per_layer = mla_kv_cache_bytes_per_token(kv_lora_rank=512, qk_rope_head_dim=64, element_bytes=2)
    assert 61 * per_layer == 70_272


def test_half_a_block_is_lost_on_average() -> None:
    lost = np.mean([math.ceil(n / 16) * 16 - n for n in range(1600, 3200)])
    assert paged_kv_cache_tokens(tokens=0, block_size=16) == pytest.approx(lost)
    assert paged_kv_cache_tokens(tokens=77, block_size=1) == 77


def test_even_routing_touches_what_a_simulation_touches() -> None:
    random = np.random.default_rng(0)
    draws = [
        len({*np.concatenate([random.choice(64, 6, replace=False) for _ in range(20)])})
        for _ in range(300)
    ]
    expected = experts_touched(num_experts=64, num_experts_per_tok=6, tokens=20, dispersion=0)
    assert expected == pytest.approx(np.mean(draws), rel=0.01)


def test_popular_experts_leave_others_untouched() -> None:
    random = np.random.default_rng(0)
    popularity = random.gamma(1.0, 1.0, size=(4000, 256))
    popularity *= 256 / popularity.sum(axis=1, keepdims=True)
    simulated = (1 - np.exp(-popularity * 8 / 256 * 32)).sum(axis=1).mean()
    touched = experts_touched(num_experts=256, num_experts_per_tok=8, tokens=32, dispersion=1.0)
    assert touched == pytest.approx(simulated, rel=0.01)


def test_one_token_touches_exactly_its_experts() -> None:
    for dispersion in (0.0, 2.0):
        touched = experts_touched(
            num_experts=128, num_experts_per_tok=4, tokens=1, dispersion=dispersion
        )
        assert touched == pytest.approx(4)


def test_fullest_of_eight_ranks_as_simulated() -> None:
    random = np.random.default_rng(0)
    loads = random.multinomial(4096, [1 / 8] * 8, size=2000)
    simulated = (loads.max(axis=1) / 512).mean()
    even = {"num_experts": 256, "dispersion": 0.0}
    factor = expert_imbalance_factor(pairs=4096, ranks=8, **even)
    assert factor - 1 == pytest.approx(simulated - 1, rel=0.05)
    assert expert_imbalance_factor(pairs=1, ranks=8, **even) <= 8
    assert expert_imbalance_factor(pairs=100, ranks=1, **even) == 1


def test_popular_experts_fill_their_rank_as_simulated() -> None:
    random = np.random.default_rng(0)
    popularity = random.gamma(0.5, 1.0, size=(4000, 8, 32)).sum(axis=2)
    simulated = (popularity.max(axis=1) / popularity.mean(axis=1)).mean()
    factor = expert_imbalance_factor(pairs=1e9, ranks=8, num_experts=256, dispersion=2.0)
    assert factor - 1 == pytest.approx(simulated - 1, rel=0.08)


@pytest.mark.parametrize("number", [2, 4, 8, 16, 64, 256])
def test_largest_of_normal_variables(number: int) -> None:
    drawn = np.random.default_rng(0).standard_normal((4000, number)).max(axis=1)
    assert expected_maximum(number) == pytest.approx(drawn.mean(), rel=0.06)
    assert expected_maximum(1) == 0


def test_the_rank_that_reads_most_reads_half_of_the_spread_more() -> None:
    drawn = np.random.default_rng(0).binomial(32, 0.4, size=(4000, 8)).max(axis=1) / 32
    share = fullest_rank_expert_share(share=0.4, ranks=8, local_experts=32)
    assert share - 0.4 == pytest.approx((drawn.mean() - 0.4) / 2, rel=0.05)
    assert fullest_rank_expert_share(share=0.4, ranks=1, local_experts=256) == 0.4
    assert fullest_rank_expert_share(share=1.0, ranks=8, local_experts=32) == 1


@pytest.mark.parametrize(("rate", "drafts", "tokens"), [(0.8, 4, 3.3616), (0.0, 7, 1.0)])
def test_accepted_tokens_of_a_step(rate: float, drafts: int, tokens: float) -> None:
    """arXiv:2211.17192, equation 1; 3.3616 = (1 - 0.8^5) / 0.2."""
    found = accepted_tokens(draft_tokens=drafts, acceptance_rate=rate)
    assert found == pytest.approx(tokens)


def test_what_is_met_half_way_is_the_longer_the_more_lengths_vary() -> None:
    """Of 1 and 3 in turn 3 is met three times of four: (1 / 2 + 3 * 3 / 2) / 4; c is 1 / 2."""
    assert mean_residual(mean=2.0, variation=0.5) == pytest.approx((1 * 0.5 + 3 * 1.5) / 4)
    assert mean_residual(mean=2.0, variation=0.0) == 1.0


def test_the_variance_of_a_wait_of_some() -> None:
    """Half wait, exponentially, 4 s on average: E[W] = 2, E[W^2] = 0.5 * 2 * 16 = 16."""
    assert queueing_delay_variance(mean_wait=2.0, load=0.5) == 16 - 2**2


def test_arrivals_vary_more_where_prompts_stop_answers() -> None:
    """Without prompts as much as their mean; with half of the time theirs (1 + 4) / 2."""
    assert arrival_noise(load=0.0) == 1.0
    assert arrival_noise(load=0.5) == 2.5


def test_the_cache_of_many_is_that_of_their_mean() -> None:
    found = typical_kv_cache_bytes(
        mean=2.0, longest=10.0, sequences=np.array([0.5, 1.0, 16.0, 1e16])
    )
    assert found == pytest.approx([10.0, 10.0, 4.0, 2.0])


def test_waits_as_in_a_simulated_queue() -> None:
    """One server, constant service of 1 s, Poisson arrivals at 0.6 per second."""
    random = np.random.default_rng(1)
    gaps = random.exponential(1 / 0.6, size=200_000)
    wait, waits = 0.0, []
    for gap in gaps:
        wait = max(wait + 1.0 - gap, 0.0)
        waits.append(wait)
    mean = mean_queueing_delay(utilization=0.6, service_time=1.0)
    assert mean == pytest.approx(np.mean(waits), rel=0.05)
    varied = mean_queueing_delay(utilization=0.6, service_time=1.0, variation=1.0)
    assert varied == pytest.approx(0.6 / (1 - 0.6))  # exponential service


@pytest.mark.parametrize("share", [0.5, 0.9, 0.99])
def test_quantiles_as_of_drawn_numbers(share: float) -> None:
    random = np.random.default_rng(2)
    gammas = random.gamma(1.5, 2.0, size=400_000)
    found = gamma_quantile(share=share, mean=3.0, variance=6.0)
    assert found == pytest.approx(np.quantile(gammas, share), rel=0.02)
    drawn = random.lognormal(0.5, 0.6, size=400_000)
    variance = float(np.expm1(0.36) * np.exp(1.36))
    found = lognormal_quantile(share=share, mean=float(np.exp(0.68)), variance=variance)
    assert found == pytest.approx(np.quantile(drawn, share), rel=0.02)


def test_the_tail_of_a_normal_variable() -> None:
    scores = np.array([-1.0, 0.0, 1.0, 2.326348])
    expected = [0.841345, 0.5, 0.158655, 0.01]
    assert normal_tail(scores) == pytest.approx(expected, rel=0.003)
    scores = np.linspace(-8.0, 30.0, 400)
    expected = [0.5 * math.erfc(score / math.sqrt(2)) for score in scores]
    assert normal_upper_tail(scores) == pytest.approx(expected, rel=2e-7)


def test_the_mean_of_some_is_that_of_all_over_the_share_of_some() -> None:
    shares = [2**k * math.exp(-2) / math.factorial(k) for k in range(60)]
    mean = sum(k * share for k, share in enumerate(shares)) / (1 - shares[0])
    assert float(mean_if_positive(2.0)) == pytest.approx(mean)


def test_a_rate_is_balanced_where_the_excess_is_zero() -> None:
    found = solve_rate(excess=lambda rate: np.log(rate / (3 - rate)), upper_bound=np.asarray(2.9))
    assert float(found) == pytest.approx(1.5, rel=1e-6)
    assert float(solve_rate(excess=np.log, upper_bound=np.asarray(0.5))) == 0.5


@pytest.mark.parametrize(
    ("needed", "most", "number"),
    [
        pytest.param(lambda b: 9 + 0.1 * b, 1e3, 10.0, id="more need more"),
        pytest.param(lambda b: 1 + 0.9 * b, 1e3, 10.0, id="and hardly fewer than there are"),
        pytest.param(lambda b: 1e7 / b**2, 1e6, 1e7 ** (1 / 3), id="more need far fewer"),
        pytest.param(lambda b: 9 + 2 * b, 1e3, 1e3, id="never enough"),
        pytest.param(lambda b: 0.25 + 0 * b, 1e3, 0.25, id="fewer than the first"),
    ],
)
def test_a_number_settles_where_as_many_are_needed(
    needed: Callable[[FloatArray], FloatArray], most: float, number: float
) -> None:
    found = solve_concurrency(
        required=needed, start=np.ones(3), upper_bound=np.array([most, 0.5, most])
    )
    assert found == pytest.approx([number, min(number, 0.5), number], rel=1e-7)


def test_requests_of_pools_reach_the_rate_they_are_of() -> None:
    service, steps, fixed, slope = 0.2, 100.0, 0.01, 0.0002
    step = loaded_decode_step_time(fixed=fixed, slope=slope, steps=2.0 * steps)
    requests = disaggregated_concurrency(
        rate=np.asarray(2.0), unqueued_time=0.3, service_time=service, decoding=steps * step
    )
    rate, _, again = disaggregated_closed_loop_rate(
        requests=requests,
        unqueued_time=np.asarray(0.3),
        service_time=np.asarray(service),
        servers=np.asarray(1.0),
        steps=steps,
        fixed=np.asarray(fixed),
        slope=np.asarray(slope),
        slots=np.asarray(1e6),
        simultaneous=0.0,
    )
    assert float(rate) == pytest.approx(2.0, rel=1e-9)
    assert float(again) == pytest.approx(float(step), rel=1e-9)


def test_a_queue_without_drift_waits_as_reflected_brownian_motion_does() -> None:
    """100 requests at 2/s that are answered at 2/s, noise 1: by hand, the mean of the absolute
    value of a normal variable of variance 4 t is sqrt(8 t / pi), over 50 s two thirds of that of
    the end, and each waiting request takes half a second."""
    at_end = math.sqrt(8 * 50 / math.pi)
    found = critical_load_queueing_delay(number=100.0, rate=2.0, noise=1.0, capacity=2.0)
    assert float(found) == pytest.approx(2 / 3 * at_end / 2)
    assert float(found) == pytest.approx(3.7613, abs=1e-4)
