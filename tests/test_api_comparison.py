"""Self-host or API: by hand, for any load, and where something is unknown."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

import planner
from planner.errors import InfeasibleError, SearchSpaceError, SpecError

LENGTHS = {"input_tokens": 3000, "output_tokens": 500, "prefix_cache_hit_rate": 0.5}
ASKED: dict[str, Any] = {
    "workload": "serve",
    "model": "llama-3.1-8b",
    "gpu": "h100",
    "engine": "vllm",
    "price": 3.6,
    **LENGTHS,
}
ONE = {**ASKED, "num_gpus": 4, "settings": {"tensor_parallel": 2, "concurrency": 64}}
HEADER = "provider,model,input_usd_per_mtok,cached_input_usd_per_mtok,output_usd_per_mtok,date\n"


def listed(folder: Path, *rows: str) -> dict[str, Any]:
    """A question that knows other providers by these rows alone."""
    path = folder / "api_prices.csv"
    path.write_text(HEADER + "\n".join(rows) + "\n", encoding="utf-8")
    return {**ONE, "specs": folder}


def test_a_mix_of_computed_cached_and_output_tokens_by_hand(tmp_path: Path) -> None:
    """1,500 tokens in, 1,500 cached, 500 out; 4 GPUs at 3.60 USD/h are 0.004 USD/s."""
    asked = listed(
        tmp_path,
        "ours,llama-3.1-8b,0.2,0.02,0.4,2026-01-01",
        "theirs,llama-3.1-8b,0.2,,0.4,2026-01-01",
    )
    found = planner.estimate(**asked).compare_api()
    offers = {offer.price.provider: offer for offer in found.offers}
    ours, theirs = 1500 * 0.2e-6 + 1500 * 0.02e-6 + 500 * 0.4e-6, 3000 * 0.2e-6 + 500 * 0.4e-6
    assert (found.input_tokens, found.cached_tokens, found.output_tokens) == (3000, 1500, 500)
    assert found.cost_rate == pytest.approx(0.004)
    assert offers["ours"].cost == pytest.approx(ours)
    assert offers["theirs"].cost == pytest.approx(theirs)
    assert offers["ours"].break_even == pytest.approx(0.004 / ours)
    assert offers["theirs"].utilization == pytest.approx(0.004 / theirs / found.request_rate)
    rows = {row["provider"]: row for row in found.rows()}
    assert rows["ours"]["api_per_thousand_requests_usd"] == pytest.approx(1e3 * ours)
    assert rows["ours"]["api_per_million_tokens_usd"] == pytest.approx(1e6 * ours / 3500)
    assert [rows[name]["cached_price_is_known"] for name in ("ours", "theirs")] == [True, False]
    assert rows["theirs"]["cached_input_usd_per_mtok"] == pytest.approx(0.2)


def test_at_the_break_even_the_hour_costs_the_same_as_the_api() -> None:
    found = planner.estimate(**ONE).compare_api()
    assert len(found.offers) > 10
    for offer in found.offers:
        assert 3600 * offer.break_even * offer.cost == pytest.approx(4 * 3.6)
        low, high = offer.utilization_ends
        assert low < offer.utilization < high
        at_full_load = offer.utilization < 1
        assert at_full_load == (found.cost < offer.cost)


def test_self_hosting_costs_what_the_row_says_and_its_parts_add_up() -> None:
    estimated = planner.estimate(**ONE)
    row, found = estimated.to_frame().iloc[0], estimated.compare_api()
    assert found.cost * row["requests_per_s"] * 3600 == pytest.approx(row["cost_per_hour_usd"])
    million = found.cost * 1e6 / 500
    assert million == pytest.approx(row["cost_per_million_tokens_usd"])
    ends = [end * 1e6 / 500 for end in found.cost_ends]
    expected = [row[f"cost_per_million_tokens_{end}_usd"] for end in ("low", "high")]
    assert ends == pytest.approx(expected)
    tokens = {"input": 1500, "cached_input": 1500, "output": 500}
    parts = sum(number * found.token_costs[kind] / 1e6 for kind, number in tokens.items())
    assert parts == pytest.approx(found.cost)


def test_current_offers_come_first_each_cheapest_first() -> None:
    found = planner.estimate(**ONE).compare_api()
    keys = [(offer.price.is_old, offer.cost) for offer in found.offers]
    assert keys == sorted(keys)
    costs = [offer.cost for offer in found.current]
    assert len(found.current) < len(found.offers)
    marked = {word: offer.cost for word, offer in found.marked.items()}
    assert marked["cheapest"] == min(costs)
    assert marked["dearest"] == max(costs)
    below = sum(cost < marked["median"] for cost in costs)
    assert below <= len(costs) / 2
    assert sum(cost > marked["median"] for cost in costs) <= len(costs) / 2


@pytest.mark.parametrize(
    ("scale", "word"), [(0.5, "api"), (0.999, "tie"), (1.001, "tie"), (3.0, "self-host")]
)
def test_what_lies_in_the_interval_of_own_cost_is_a_tie(
    tmp_path: Path, scale: float, word: str
) -> None:
    million = planner.estimate(**ONE).to_frame()["cost_per_million_tokens_usd"][0]
    asked = listed(tmp_path, f"x,llama-3.1-8b,0,0,{scale * million},2026-01-01")
    found = planner.estimate(**asked).compare_api()
    (offer,) = (offer for offer in found.offers if offer.price.provider == "x")
    assert found.cheaper_option(offer) == word


def test_a_search_compares_its_recommended_plan_and_a_frame_has_every_offer() -> None:
    answer = planner.search(**ASKED, num_gpus=2, settings={"concurrency": [16, 64]})
    found = answer.compare_api()
    row = answer.recommended.columns()
    assert found.request_rate == pytest.approx(row["requests_per_s"][0])
    frame = found.to_frame()
    assert len(frame) == len(found.offers)
    assert frame["break_even_utilization"].notna().all()
    assert "offers" in repr(found)


def test_the_range_of_prices_of_both_kinds_of_workers() -> None:
    """Pools of 2 H200 that prefill and 4 H100 that decode, each at what is asked for it."""
    workers = {"replicas": 2, "prefill_replicas": 2, "tensor_parallel": 2}
    asked = {**ONE, "price": None, "mode": "disaggregated", "prefill_gpu": "h200", "num_gpus": None}
    settings = {**workers, "prefill_tensor_parallel": 1, "concurrency": 64}
    estimated = planner.estimate(**{**asked, "settings": settings})
    row, found = estimated.to_frame().iloc[0], estimated.compare_api()
    for end, paid in zip(("low", "high"), found.cost_rate_range, strict=True):
        decode, prefill = (row[f"{of}price_{end}_per_gpu_hour_usd"] for of in ("", "prefill_"))
        assert 3600 * paid == pytest.approx(4 * decode + 2 * prefill)
    assert found.cost_rate_range[0] < found.cost_rate < found.cost_rate_range[1]
    given = planner.estimate(**ONE).compare_api()
    assert given.cost_rate_range == pytest.approx((0.004, 0.004))
    free = planner.estimate(**{**ONE, "price": 0}).compare_api()
    assert free.cost_rate_range == (0, 0)


def test_replicas_are_those_that_could_serve_alone() -> None:
    assert planner.estimate(**ONE).compare_api().replicas == 2
    pools = {"replicas": 2, "prefill_replicas": 1, "tensor_parallel": 1}
    apart = planner.estimate(**{**ONE, "mode": "disaggregated", "num_gpus": 3, "settings": pools})
    assert apart.compare_api().replicas == 1


def test_json_takes_what_is_unknown(tmp_path: Path) -> None:
    asked = listed(tmp_path, "free,llama-3.1-8b,0,0,0,", "x,llama-3.1-8b,1,,1,")
    free = planner.estimate(**asked).compare_api().to_dict()
    (offer,) = (offer for offer in free["offers"] if offer["provider"] == "free")
    assert offer["break_even_requests_per_s"] is None
    assert offer["cheaper_at_full_load"] == "api"
    unpriced = {**asked, "gpu": "h800-sxm-80gb", "price": None}
    found = planner.estimate(**unpriced).compare_api()
    assert math.isnan(found.cost)
    assert {row["cheaper_at_full_load"] for row in found.rows()} == {""}
    text = json.dumps(found.to_dict(), allow_nan=False)
    assert json.loads(text)["cost_per_hour_usd"] is None


def test_a_model_without_prices_is_told_with_names_like_it() -> None:
    found = planner.estimate(**{**ONE, "model": "llama-2-7b"}).compare_api()
    assert found.offers == ()
    assert found.marked == {}
    assert found.note.startswith("No API price of llama-2-7b is known. Did you mean llama-")
    assert found.cost > 0
    assert planner.estimate(**ONE).compare_api().note == ""


def test_a_repository_and_an_own_price_of_it_are_one_model(tmp_path: Path) -> None:
    asked = listed(tmp_path, "x,llama-3.1-8b,1,,1,")
    asked["model"] = "meta-llama/Llama-3.1-8B-Instruct"
    found = planner.estimate(**asked).compare_api()
    assert "x" in {offer.price.provider for offer in found.offers}


def test_a_repository_is_compared_with_prices_of_its_release() -> None:
    asked = {**ONE, "model": "deepseek-ai/DeepSeek-R1", "num_gpus": 8, "gpu": "h200"}
    asked["settings"] = {"tensor_parallel": 8, "concurrency": 16}
    found = planner.estimate(**asked).compare_api()
    assert {offer.price.release for offer in found.offers} == {"deepseek-r1"}
    every = planner.estimate(**{**asked, "model": "deepseek-v3"}).compare_api()
    assert len(found.offers) + found.other_releases == len(every.offers)
    assert every.other_releases == 0
    assert found.to_dict()["other_releases"] == found.other_releases


@pytest.mark.slow
def test_what_cannot_be_compared(tmp_path: Path) -> None:
    run = planner.estimate(model="llama-7b", num_gpus=8, settings={"tensor_parallel": 8})
    with pytest.raises(SearchSpaceError, match="compare_api is for workload serve"):
        run.compare_api()
    crowded = {**ONE, "model": "llama-3.1-405b"}
    with pytest.raises(InfeasibleError):
        planner.estimate(**crowded).compare_api()
    one = {**ASKED, "num_gpus": 1, "mode": "aggregated", "settings": {"concurrency": 1}}
    nothing = planner.search(**one, constraints={"time_to_first_token": "1us"})
    with pytest.raises(InfeasibleError):
        nothing.compare_api()
    with pytest.raises(SpecError, match="is not a number"):
        planner.estimate(**listed(tmp_path, "x,llama-3.1-8b,much,,1,")).compare_api()
