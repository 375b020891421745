"""Pools by the length of prompts beside one pool of all."""

from __future__ import annotations

import json
import math
from itertools import pairwise

import pytest

import planner
from planner.decide.sizing.length_pools import MOST_POOLS, candidate_cuts, read_pools
from planner.errors import SearchSpaceError
from planner.workloads.build_request import make_request

ASKED = {
    "workload": "serve", "model": "llama-3.1-70b", "gpu": "h100", "price": 2, "engine": "vllm",
    "mode": "aggregated", "request_rate": 500, "lengths": "servegen-large",
    "constraints": {"time_to_first_token_p99": "1s"}, "confidence": 0.5,
}  # fmt: skip
# One kind of replica, without limits but those that are assumed.
SMALL = {
    **ASKED, "model": "llama-3.1-8b", "constraints": {}, "settings": {
        "tensor_parallel": 1, "pipeline_parallel": 1, "quantization": "fp8", "kv_cache": "fp8",
        "max_num_batched_tokens": 8192,
    },
}  # fmt: skip


@pytest.fixture
def few_cuts(monkeypatch):
    """Two are enough to tell the best: each pool of each cut is sized."""
    monkeypatch.setattr("planner.decide.sizing.length_pools._SHARES", (0.3, 0.5))


def gpus(found):
    return [part.peak.num_gpus for one in found.pools.placements for part in one.parts]


def test_ends_are_deciles_and_the_few_longest_prompts():
    request = make_request({**ASKED, "model": "llama-3.1-8b"})
    ends = [end for (end,) in candidate_cuts(request, 2)]
    assert len(ends) == 11
    assert ends == sorted(ends)


@pytest.mark.slow
@pytest.mark.usefixtures("few_cuts")
def test_the_cheapest_cut_is_found_and_its_gain_has_a_cause():
    found = planner.size_pools(2, **ASKED)
    assert len(gpus(found)) == 2
    assert sum(gpus(found)) == found.pools.num_gpus < found.mixed.num_gpus
    costs = [cut.cost for cut in found.cuts]
    assert costs == sorted(costs)
    assert len(costs) == 2
    assert found.pools.cost == pytest.approx(costs[0])
    rates = [one.service.request.request_rate for one in found.pools.placements]
    assert sum(rates) == pytest.approx(500)
    # Another, given, is dearer, and has the pools that were compared.
    other = planner.size_pools(found.cuts[1].ends, **ASKED)
    assert other.pools.cost == pytest.approx(costs[1])
    assert other.pools.cost > found.pools.cost
    pools, mixed = found.unlimited
    saved = found.mixed.num_gpus - found.pools.num_gpus
    assert found.limits_saved == saved - (mixed - pools)
    told = found.summary()
    assert f"{found.mixed.num_gpus} GPUs" in told
    assert ("the gain is in the waiting" in told) == (2 * found.limits_saved > saved)


@pytest.mark.drawn
def test_three_pools_are_the_best_of_all_pairs():
    asked = {**ASKED, "model": "llama-3.1-8b", "request_rate": 300}
    found = planner.size_pools(3, **asked)
    assert len(found.cuts) == math.comb(11, 2)
    assert len(gpus(found)) == 3
    assert found.pools.cost == pytest.approx(min(cut.cost for cut in found.cuts))


@pytest.mark.few(1)
@pytest.mark.parametrize("lengths", ["servegen-large", None])
def test_an_end_beyond_all_prompts_gives_the_mixed_pool_to_the_digit(lengths):
    asked = {**ASKED, "lengths": lengths}
    if lengths is None:
        asked |= {"input_tokens": 900, "output_tokens": 150, "input_variation": 1.2}
    found = planner.size_pools("100M", **asked)
    (pool,), (mixed,) = found.pools.rows, found.mixed.rows
    assert str({**pool, "service": ""}) == str({**mixed, "service": ""})
    assert "All prompts are in one pool" in found.summary()


@pytest.mark.slow
def test_two_equal_pools_are_one_less_what_it_pools(tmp_path):
    """Prompts of 1,000 and 1,001 tokens: two searches at half the rate, whole replicas."""
    path = tmp_path / "lengths.csv"
    path.write_text("input_tokens,output_tokens\n" + "1000,200\n1001,200\n" * 50)
    asked = {**SMALL, "lengths": path}
    found = planner.size_pools("1000", **asked)
    first, second = (part.peak for one in found.pools.placements for part in one.parts)
    assert first.num_gpus == second.num_gpus
    (mixed,) = (part.peak for one in found.mixed.placements for part in one.parts)
    replica = mixed.num_gpus / mixed.row["replicas"]
    loss = found.pools.num_gpus - found.mixed.num_gpus
    assert 0 <= loss <= 2 * replica


@pytest.mark.slow
def test_a_paged_cache_gains_nothing_by_reserved_contexts():
    """fleet-sim's cut at 6,144 tokens of Azure's prompts saves 0 % where contexts are alike.

    It saves half where the long pool reserves places of 65,536 tokens, which no paged cache does.
    """
    asked = {
        **ASKED, "gpu": "a100", "request_rate": 200, "lengths": "azure-conversation",
        "constraints": {"time_to_first_token_p99": "2s"}, "confidence": 0.5,
    }  # fmt: skip
    assert abs(planner.size_pools(6144, **asked).saved) < 0.1


@pytest.mark.slow
def test_the_lengths_of_answers_are_those_of_the_pools_own_requests(tmp_path):
    path = tmp_path / "lengths.csv"
    path.write_text("input_tokens,output_tokens\n" + "500,400\n4000,20\n" * 50)
    asked = {**SMALL, "lengths": path}

    def lengths(found):
        asked_of = [one.service.request for one in found.pools.placements]
        return [(one.input_tokens, one.output_tokens) for one in asked_of]

    assert lengths(planner.size_pools("1k", **asked)) == [(500, 400), (4000, 20)]
    # What is given beside the file stays.
    assert lengths(planner.size_pools("1k", **asked, output_tokens=99)) == [(500, 99), (4000, 99)]


@pytest.mark.slow
def test_a_day_is_shared_by_pools(tmp_path):
    (tmp_path / "day.csv").write_text("time,request_rate\n00:00,20\n12:00,200\n")
    asked = {**SMALL, "request_rate": None, "load": tmp_path / "day.csv"}
    found = planner.size_pools("600", **asked)
    loads = [one.service.load for one in found.pools.placements]
    assert [sum(one.periods[k].request_rate for one in loads) for k in (0, 1)] == pytest.approx(
        [20, 200]
    )
    assert min(found.pools.pools[0].gpus) < found.pools.num_gpus


def test_pools_in_words():
    assert read_pools("2") == read_pools(2) == 2
    assert read_pools("6k") == (6000,)
    assert read_pools(["2Ki", 8000]) == (2048, 8000)
    for words in ("1", "x", "8k,2k", "1k,2k,3k,4k", "0", "6.5"):
        with pytest.raises(SearchSpaceError, match="pools"):
            read_pools(words)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"workload": "train", "model": "llama-7b"}, "workload serve"),
        ({"request_rate": 3, "input_variation": 0}, "alike"),
        (
            {"request_rate": 3, "lengths": "azure-code", "prompt_range": "<=1k"},
            "leave out prompt_range",
        ),
    ],
)
def test_what_cannot_be_cut_is_told(asked, words):
    request = make_request({"workload": "serve", "model": "llama-3.1-8b", **asked})
    for pools in (MOST_POOLS, (1000,)):
        with pytest.raises(SearchSpaceError, match=words):
            candidate_cuts(request, pools)


@pytest.mark.slow
@pytest.mark.usefixtures("few_cuts")
def test_files_and_the_page_have_the_pools(planner, tmp_path):
    out, table, page = (tmp_path / name for name in ("pools.json", "pools.csv", "page.md"))
    asked = (
        "size", "--workload", "serve", "--model", "llama-3.1-8b", "--gpu", "h100", "--engine",
        "vllm", "--request-rate", "100", "--lengths", "azure-code", "--quiet",
    )  # fmt: skip
    ran = planner(*asked, "--pools", "2", "--json", str(out), "--csv", str(table))
    assert ran.exit_code == 0, ran.err
    found = json.loads(out.read_text())
    assert [row["service"].split()[1] for row in found["rows"]] == ["up", "above", "prompts"]
    assert len(found["cuts"]) == 2
    costs = [cut["cost_per_day_usd"] for cut in found["cuts"]]
    known = [cost for cost in costs if cost is not None]
    assert all(one <= other for one, other in pairwise(known))
    assert table.read_text().count("\n") == 4
    ran = planner("report", str(out), "--markdown", str(page), "--quiet")
    assert ran.exit_code == 0, ran.err
    assert "Where prompts are cut" in page.read_text()
    for more, words in (
        (("--pools", "x"), "--pools is a whole number"),
        (("--pools", "2", "--services", "a.toml"), "--services is no question of --pools"),
        (("--pools", "2", "--prompt-range", "<=2k"), "leave out --prompt-range"),
        (("--pools", "2", "--startup-time", "2min"), "--startup-time needs --load"),
    ):
        ran = planner(*asked, *more)
        assert ran.exit_code == 3
        assert words in ran.err
