from __future__ import annotations

import numpy as np
import pytest

from planner.optimize.exhaustive import exhaustive_search
from planner.question.request import Request
from planner.workloads.make_plan import make_plan
from planner.workloads.serving import prefill_decode_search
from planner.workloads.serving.prefill_decode_search import numbers_of_prefill


@pytest.mark.few(60)
@pytest.mark.parametrize("num_gpus", [1, 2, 7, 8, 12, 96, 1000, 4096])
@pytest.mark.parametrize("each_prefill", [1, 2, 3, 4, 8, 6])
@pytest.mark.parametrize("each_decode", [1, 2, 4, 5, 8, 12])
def test_every_way_to_share_out_up_to_4096_gpus(num_gpus, each_prefill, each_decode):
    every = [
        prefill
        for prefill in range(1, num_gpus)
        for rest in [num_gpus - prefill * each_prefill]
        if rest >= each_decode and rest % each_decode == 0
    ]
    assert numbers_of_prefill(num_gpus, each_prefill, each_decode).tolist() == every


@pytest.mark.parametrize(("each_prefill", "each_decode"), [(1, 1), (8, 4), (4, 8), (3, 5), (1, 64)])
def test_of_many_gpus_the_shares_lie_close_and_reach_both_ends(each_prefill, each_decode):
    num_gpus = 10_000_000
    prefill = numbers_of_prefill(num_gpus, each_prefill, each_decode)
    decode = (num_gpus - prefill * each_prefill) / each_decode
    assert len(prefill) <= 256
    assert np.array_equal(decode, np.round(decode))
    assert prefill.min() <= each_decode
    assert 1 <= decode.min() <= each_prefill
    shares = prefill * each_prefill / num_gpus
    assert np.diff(shares).max() < 1e-2
    # Of few prefill workers and of few decode workers no number is far from the next one.
    assert (prefill[1:] / prefill[:-1])[:100].max() <= 2 * each_decode
    assert (decode[:-1] / decode[1:])[-100:].max() <= 2 * each_prefill


def test_thinning_loses_next_to_nothing(monkeypatch):
    words = {"mode": "disaggregated", "settings": {"tensor_parallel": [2, 8], "concurrency": [64]}}
    request = Request(workload="serve", model="llama-3.1-8b", gpu="h100", num_gpus=20_000, **words)
    problem = make_plan(request).problem
    thinned = exhaustive_search(problem)
    monkeypatch.setattr(prefill_decode_search, "_EVERY_WAY_UP_TO", 10**9)
    every = exhaustive_search(problem)
    assert thinned.configurations_evaluated < every.configurations_evaluated / 2
    best = [max(found.table["tokens_per_s_per_gpu"]) for found in (thinned, every)]
    assert best[0] == pytest.approx(best[1], rel=5e-3)
