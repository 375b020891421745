"""Many adapters on one model: which are loaded, and how many requests run at once."""

from __future__ import annotations

from collections import OrderedDict

import numpy as np
import pytest

import planner
from planner.errors import SearchSpaceError
from planner.formulas.routing import lru_characteristic_draws, zipf_shares

ASKED = {
    "workload": "serve", "model": "llama-3.1-8b", "gpu": "h100", "num_gpus": 1, "engine": "vllm",
    "request_rate": 0.5, "lora_rank": 16, "mode": "aggregated",
}  # fmt: skip


def _row(**asked):
    return planner.estimate(**asked).candidates.row


@pytest.mark.parametrize(
    ("number", "slots", "skew"), [(100, 20, 1.0), (50, 30, 0.0), (500, 16, 0.8)]
)
def test_hits_and_different_adapters_are_those_of_a_simulated_cache(number, slots, skew) -> None:
    shares = zipf_shares(number=number, exponent=skew)
    assert shares.sum() == pytest.approx(1)
    assert np.all(np.diff(shares) <= 1e-15)
    draws = lru_characteristic_draws(shares=shares, slots=slots)
    random = np.random.default_rng(1)
    each = random.choice(number, size=100_000, p=shares)
    held: OrderedDict[int, None] = OrderedDict()
    hits = 0
    for adapter in each.tolist():
        hits += adapter in held
        held[adapter] = None
        held.move_to_end(adapter)
        if len(held) > slots:
            held.popitem(last=False)
    assert shares @ -np.expm1(-shares * draws) == pytest.approx(hits / each.size, abs=0.01)
    windows = each[: int(draws) * 200].reshape(200, int(draws))
    different = np.mean([np.unique(window).size for window in windows])
    assert different == pytest.approx(slots, abs=0.6)


def test_a_slot_for_each_bounds_nothing() -> None:
    assert lru_characteristic_draws(shares=zipf_shares(number=8, exponent=1), slots=8) == np.inf
    all_loaded = _row(**ASKED, num_adapters=8)
    as_before = _row(**ASKED, max_loras=8)
    same = ("capacity_requests_per_s", "time_to_first_token_s", "memory_adapters_gib")
    assert [all_loaded[name] for name in same] == [as_before[name] for name in same]


def test_fewer_slots_let_fewer_requests_run() -> None:
    found = [_row(**ASKED, num_adapters=100, max_loras=slots) for slots in (8, 32, 100)]
    capacities = [row["capacity_requests_per_s"] for row in found]
    assert capacities == sorted(capacities)
    assert capacities[0] < 0.3 * capacities[-1]
    memory = [row["memory_adapters_gib"] for row in found]
    assert memory[2] == pytest.approx(12.5 * memory[0])
    skewed = _row(**ASKED, num_adapters=100, max_loras=8, adapter_skew=1.2)
    assert skewed["capacity_requests_per_s"] > capacities[0]


def test_loading_an_adapter_delays_the_first_token() -> None:
    """At a batch of one nothing waits for a slot: what is left is the copy of one adapter."""
    asked = {**ASKED, "request_rate": None, "settings": {"concurrency": 1}, "lora_rank": 256}
    loaded = _row(**asked, max_loras=8)
    missed = _row(**asked, max_loras=8, num_adapters=80)
    more = missed["time_to_first_token_s"] - loaded["time_to_first_token_s"]
    bytes_of_one = loaded["memory_adapters_gib"] * 2**30 / 8
    draws = lru_characteristic_draws(shares=np.full(80, 1 / 80), slots=8)
    miss = np.exp(-draws / 80)
    assert 0.02 < bytes_of_one / 2**30 < 2
    # PCIe 5 copies some 20 to 64 GB/s.
    assert miss * bytes_of_one / 64e9 < more < miss * bytes_of_one / 10e9


@pytest.mark.slow
def test_it_is_told(planner) -> None:
    asked = (
        "estimate", "--workload", "serve", "--model", "llama-3.1-8b", "--gpu", "h100", "--gpus",
        "1", "--engine", "vllm", "--request-rate", "0.5", "--lora-rank", "16",
    )  # fmt: skip
    ran = planner(*asked, "--num-adapters", "100", "--max-loras", "16")
    assert ran.exit_code == 0, ran.err
    words = " ".join(ran.out.split())
    assert "of 100 adapters that requests name 16.0 % find theirs loaded" in words
    assert "17 run at once at most" in words


def test_what_needs_what_is_told() -> None:
    with pytest.raises(SearchSpaceError, match="num_adapters needs lora_rank"):
        planner.estimate(**{**ASKED, "lora_rank": None}, num_adapters=8)
    with pytest.raises(SearchSpaceError, match="adapter_skew needs num_adapters"):
        planner.estimate(**ASKED, adapter_skew=1)
