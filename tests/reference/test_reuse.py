"""What caches of prefixes find: the closed form against caches that are simulated."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import planner
from planner.errors import PlannerError
from planner.estimators.inference.replica_simulation import PrefixCache
from planner.formulas.prefix_cache import cache_filled, earlier_uses, stack_distances
from planner.logs.traces import Trace
from planner.optimize.exhaustive import exhaustive_search
from planner.show.presenters.load_check import replay_trace
from planner.specs.serving_workload import HitRateCurve
from planner.workloads.build_request import make_request
from planner.workloads.make_plan import make_plan
from planner.workloads.serving.hit_rates import measured_hit_rates

BLOCK = 256
ASKED = {
    "workload": "serve", "model": "llama-3.1-8b", "gpu": "h100-sxm-80gb", "engine": "vllm",
    "precision": "w16a16", "settings": {"kv_cache": "bf16"},
}  # fmt: skip
SESSIONS = {"turns": 12, "think_time": 60.0, "input_tokens": 6000, "output_tokens": 200}


@cache
def sessions(number: int, rate: float, seed: int = 2) -> list[tuple[float, list[int], int, int]]:
    """Time, blocks, prompt and answer of requests of sessions of 12 turns, till the last begins.

    In each a prompt has all that stood in it before; users think for 60 s, lognormal of 1.
    """
    chance, requests, name = np.random.default_rng(seed), [], 0
    each = (6000 - 5.5 * 200) / 6.5
    for start in np.cumsum(chance.exponential(1 / rate, number)):
        gaps = chance.lognormal(np.log(60) - np.log(2) / 2, np.sqrt(np.log(2)), 12)
        at, blocks, prompt = float(start), list[int](), 0
        for gap in gaps:
            prompt += round(each)
            while (len(blocks) + 1) * BLOCK <= prompt + 200:
                blocks.append(name)
                name += 1
            requests.append((at, list(blocks), prompt, 200))
            prompt, at = prompt + 200, at + gap
    return sorted(one for one in requests if one[0] < float(start))


def found_in(requests: list[tuple[float, list[int], int, int]], owners, tokens: float) -> float:
    """The share that caches of so many tokens find after the first third of the requests."""
    caches, begin = {}, len(requests) // 3
    for place, (_, blocks, prompt, _) in enumerate(requests):
        owner = owners(place, blocks)
        cache = caches.setdefault(owner, PrefixCache(int(tokens / BLOCK), BLOCK))
        if place == begin:
            for one in caches.values():
                one.hit_tokens = one.prompt_tokens = 0.0
        cache.take(blocks, prompt, 0)  # its blocks name the answer, too
    return sum(one.hit_tokens for one in caches.values()) / sum(
        one.prompt_tokens for one in caches.values()
    )


def in_sessions(**answers: object) -> HitRateCurve:
    """What the requests of such sessions share, as a question says it."""
    request = make_request({**ASKED, **SESSIONS, "request_rate": 1.0, **answers})
    found = make_plan(request).problem.sources[0].inputs.workload.reuse
    assert found is not None
    return found


def test_distances_are_those_of_a_stack() -> None:
    blocks = np.random.default_rng(0).integers(0, 40, 500)
    before, uses = earlier_uses(blocks)
    distances, stack = stack_distances(before), list[int]()
    for place, block in enumerate(blocks.tolist()):
        known = stack.index(block) + 1 if block in stack else 0
        assert distances[place] == known
        assert (before[place] >= 0) == bool(known)
        assert uses[place] == (blocks[:place] == block).sum()
        stack = [block, *(one for one in stack if one != block)]


@pytest.mark.few(1)
@pytest.mark.parametrize("caches", [1, 4])
@pytest.mark.parametrize("router", ["random", "cache_aware"])
def test_sessions_find_what_a_simulated_cache_finds(router: str, caches: int) -> None:
    requests, rate = sessions(1500, 0.5), 0.5 * 12
    chance, owned = np.random.default_rng(4), dict[int, int]()

    def owners(place: int, blocks: list[int]) -> int:
        if router == "random":
            return int(chance.integers(caches))
        return owned.setdefault(blocks[0], len(owned) % caches)

    reuse = in_sessions(router=router)
    for tokens in (4e5, 1e6, 2e6):
        seen = found_in(requests, owners, tokens / caches)
        # Blocks are found whole: half of one is computed again.
        predicted = float(reuse.hit_rate(tokens / caches, rate, caches)) * (1 - BLOCK / 2 / 6000)
        assert predicted == pytest.approx(seen, abs=0.03), tokens


def trace_of(requests: list[tuple[float, list[int], int, int]]) -> Trace:
    """The same as a trace, which names the blocks of prompts alone."""
    times, whole, prompts, answers = zip(*requests, strict=True)
    blocks = [one[: prompt // BLOCK] for one, prompt in zip(whole, prompts, strict=True)]
    return Trace(
        name="sessions",
        times=np.array(times) - times[0],
        input_tokens=np.array(prompts, dtype=float),
        output_tokens=np.array(answers, dtype=float),
        blocks=np.array([one for prompt in blocks for one in prompt[::-1]]),
        block_counts=np.array([len(prompt) for prompt in blocks]),
    )


def test_a_trace_tells_what_any_cache_finds_of_it() -> None:
    requests = sessions(400, 0.5)
    trace = trace_of(requests)
    assert trace.block_tokens == BLOCK
    reuse = measured_hit_rates(trace, "cache_aware")
    assert reuse is not None
    for tokens in (2e5, 5e5, 1e6):
        cache = PrefixCache(int(tokens / BLOCK), BLOCK)
        for _, blocks, prompt, answer in requests:
            cache.take(blocks[: prompt // BLOCK], prompt, answer)
        seen = cache.hit_tokens / cache.prompt_tokens
        assert float(reuse.hit_rate(tokens, 6.0, 1.0)) == pytest.approx(seen, abs=0.03), tokens
        # Four replicas that get their own sessions back have it together.
        assert float(reuse.hit_rate(tokens / 4, 6.0, 4.0)) == pytest.approx(seen, abs=0.03)


def test_gaps_alone_tell_the_size_of_the_cache() -> None:
    """Che's approximation, of nothing but how long ago each block was used."""
    trace = trace_of(sessions(1500, 0.5))
    exact = measured_hit_rates(trace, "cache_aware")
    assert exact is not None
    before, _ = earlier_uses(trace.blocks)
    of = np.repeat(np.arange(trace.times.size), trace.block_counts)
    gaps = np.where(before >= 0, of - of[before], np.inf)
    share = BLOCK / trace.input_tokens.sum()
    times = np.geomspace(1, gaps[gaps < np.inf].max(), 200)
    hits = np.array([(gaps <= time).sum() * share for time in times])
    prompt, answer = exact.prompt, exact.written - exact.prompt
    rooms = cache_filled(times, hits, prompt, prompt + answer)
    for tokens in (2e5, 5e5, 1e6):
        closed = float(np.interp(tokens, rooms, hits))
        assert closed == pytest.approx(float(exact.hit_rate(tokens, 6.0, 1.0)), abs=0.03)


def test_coding_agents_find_what_was_published() -> None:
    """TraceLab, artifacts/prefix_cache/eviction_tradeoff: 85.4, 94, 98.6 % by idle time."""
    request = make_request({**ASKED, "model": "qwen3-coder-30b-a3b", "lengths": "coding-agent",
                            "request_rate": 1.0})  # fmt: skip
    reuse = make_plan(request).problem.sources[0].inputs.workload.reuse
    assert reuse is not None
    for seconds, share in ((60, 0.854), (300, 0.94), (3600, 0.986)):
        found = float(np.interp(seconds, reuse.times, reuse.hits))
        assert found == pytest.approx(share, abs=0.03)


def test_the_rate_of_hits_is_an_answer_that_settles() -> None:
    asked = {**ASKED, **SESSIONS, "mode": "aggregated", "num_gpus": 2, "request_rate": 3.0}
    row = planner.search(**asked, router="cache_aware").recommended_row
    same = {name: row[name] for name in ("tensor_parallel", "concurrency")}
    fixed = planner.search(
        **asked | {"settings": {**ASKED["settings"], **same}, "turns": None, "think_time": None},
        prefix_cache_hit_rate=row["gpu_cache_hit_rate"],
    ).recommended_row
    assert row["gpu_cache_hit_rate"] > 0.3
    for name in ("time_to_first_token_s", "time_per_output_token_s"):
        assert row[name] == pytest.approx(fixed[name], rel=0.02)
    kept = row["cache_residence_s"]
    at = np.interp(kept, in_sessions().times, in_sessions().hits)
    assert row["gpu_cache_hit_rate"] == pytest.approx(at, abs=0.02)


@pytest.mark.few(1)
@pytest.mark.parametrize("mode", ["aggregated", "disaggregated"])
def test_hosts_drives_and_routers_find_more(mode: str) -> None:
    layout = {"tensor_parallel": 1, "pipeline_parallel": 1, "concurrency": 24}
    layout |= {"max_num_batched_tokens": 8192}
    layout |= {"prefill_replicas": 3} if mode == "disaggregated" else {}
    asked = {**ASKED, **SESSIONS, "mode": mode, "num_gpus": 4, "request_rate": 4.0}
    asked["settings"] = {**ASKED["settings"], **layout}
    rows = [
        planner.search(**asked, **more).recommended_row
        for more in (
            {"router": "random"},
            {"router": "cache_aware"},
            {"router": "cache_aware", "host_cache": "64GiB"},
            {"router": "cache_aware", "host_cache": "64GiB", "disk_cache": "1TiB"},
        )
    ]
    tiers = ("gpu_cache_hit_rate", "host_cache_hit_rate", "disk_cache_hit_rate")
    shares = [sum(row[name] for name in tiers) for row in rows]
    assert shares[0] < shares[1] < shares[2] < shares[3] + 1e-9
    assert rows[0]["cache_load_time_s"] == 0 < rows[2]["cache_load_time_s"]


def test_no_hits_can_be_said_of_what_prompts_share() -> None:
    asked = {**ASKED, **SESSIONS, "num_gpus": 1, "request_rate": 1.0, "mode": "aggregated"}
    none = planner.search(**asked, prefix_cache_hit_rate=0).recommended_row
    single = {**asked, "turns": None, "think_time": None}
    alone = planner.search(**single).recommended_row
    assert none["time_to_first_token_s"] == alone["time_to_first_token_s"]
    assert planner.search(**asked).recommended_row["gpu_cache_hit_rate"] > 0.5


@pytest.mark.slow
def test_a_trace_with_blocks_is_replayed_with_its_caches(tmp_path: Path) -> None:
    requests = sessions(80, 0.3)
    first = requests[0][0]
    lines = [
        {"timestamp": round(1000 * (at - first)), "input_length": prompt, "output_length": answer,
         "hash_ids": blocks[: prompt // BLOCK]}
        for at, blocks, prompt, answer in requests
    ]  # fmt: skip
    path = tmp_path / "sessions.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    asked = {**ASKED, "trace": str(path), "mode": "aggregated", "num_gpus": 2, "constraints": {}}
    for router in ("random", "cache_aware"):
        request = make_request({**asked, "router": router, "replay": True})
        best = exhaustive_search(make_plan(request).problem).recommended
        assert best is not None
        found = replay_trace(best, request)
        assert found.hit_rates is not None
        predicted, seen = found.hit_rates
        assert predicted == pytest.approx(seen, abs=0.03)
        name = "time_to_first_token"
        assert found.predicted[name][None] == pytest.approx(found.replayed[name][None], rel=0.1)
    path.write_text('{"timestamp": 0, "input_length": 9, "output_length": 9, "hash_ids": "x"}')
    with pytest.raises(PlannerError, match="not a list of whole numbers"):
        planner.search(**asked)


@pytest.mark.parametrize(
    ("answers", "match"),
    [
        ({"router": "sticky"}, "--router is one of round_robin, random, cache_aware"),
        ({"turns": 12, "think_time": None}, "--think-time"),
        ({"turns": 1, "think_time": None, "tool_calls": 3}, "--tool-time"),
        ({"turns": None}, "think_time needs turns"),
        ({"input_tokens": 1500}, "at least 1,107"),
        ({"prefix_cache_hit_rate": 0.4, "host_cache": "1GiB"}, "--host-cache needs prompts"),
        ({"host_cache": "100TiB"}, "host memory"),
    ],
)
def test_what_cannot_be_is_said(answers: dict[str, object], match: str) -> None:
    asked = {**ASKED, **SESSIONS, "num_gpus": 1, "request_rate": 1.0}
    if answers.get("input_tokens"):
        asked, match = {**asked, "turns": 40}, "Give longer prompts, or fewer turns"
    with pytest.raises(PlannerError, match=match):
        planner.search(**asked | answers)


def test_scattered_sessions_lose_what_they_did_last_elsewhere() -> None:
    alone = in_sessions(router="random")
    assert float(alone.hit_rate(1e9, 1.0, 1.0)) == pytest.approx(alone.endless, abs=0.01)
    many = float(alone.hit_rate(1e9, 1.0, 4096.0))
    assert many < 0.02
    shared = in_sessions(router="random", shared_prefix_tokens=1500)
    assert float(shared.hit_rate(1e9, 1.0, 4096.0)) == pytest.approx(0.25 + many, abs=0.02)
    assert replace(shared, scatter=()).endless == shared.endless


def test_running_requests_that_lose_their_room_are_told() -> None:
    asked = {**ASKED, "input_tokens": 2000, "output_tokens": 2000, "output_variation": 1.0}
    shares = []
    for number in (20, 100, 400):
        found = planner.estimate(
            **asked | {"settings": {**ASKED["settings"], "concurrency": number}}, num_gpus=1
        )
        shares.append(found.candidates.row["preempted_share"])
        words = "are preempted" in found.summary()
        assert words == (shares[-1] >= 0.01)
    # Engines hold no more than have room: the more wait, the fewer of them lose it.
    assert shares[0] < 1e-6 < shares[1] < shares[2] < 0.1
    chance, row = np.random.default_rng(1), found.candidates.row
    longer = np.log(2.0)
    answers = chance.lognormal(np.log(2000) - longer / 2, np.sqrt(longer), 400_000)
    aged = chance.choice(answers, answers.size, p=answers / answers.sum()) * chance.random(400_000)
    number, room = int(row["most_sequences"]), row["kv_cache_size_gib"] * 2**30 / 131072
    held = (2000 + aged)[: 400_000 // number * number].reshape(-1, number).sum(axis=1)
    assert shares[2] == pytest.approx(np.maximum(held - room, 0).mean() / held.mean(), rel=0.4)


def estimated(concurrency: int, **answers: object) -> dict[str, float]:
    """The row of one replica on one GPU that always holds so many requests of sessions."""
    layout = {**ASKED["settings"], "concurrency": concurrency}
    asked = {**ASKED, **SESSIONS, "settings": layout, "num_gpus": 1, "router": "cache_aware"}
    return planner.estimate(**asked | answers).candidates.row


def test_what_runs_leaves_less_for_what_comes_back() -> None:
    few, many = (estimated(number)["gpu_cache_hit_rate"] for number in (8, 56))
    assert few > 0.15
    assert many < 0.01


@pytest.mark.slow
def test_no_more_than_all_lose_a_room_that_there_is() -> None:
    """70B in 16 bits on one GPU: not one request has room."""
    full = {**ASKED["settings"], "concurrency": 64}
    found = planner.estimate(**{**ASKED, "model": "llama-2-70b", "settings": full}, num_gpus=1)
    assert found.candidates.row["most_sequences"] == 0
    assert found.candidates.row["preempted_share"] <= 1
    assert "are preempted" not in found.summary()


DRIVES = "planner.estimators.machine._USUAL_DRIVE_BANDWIDTH"


def test_drives_carry_no_more_than_they_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DRIVES, 6e9)
    row = estimated(50, disk_cache="20TiB")
    assert row["disk_cache_hit_rate"] > 0.5
    assert row["requests_per_s"] <= 1 / row["cache_load_time_s"]
    # It is read before the prompt is computed, of which far less is left.
    alone = estimated(1, disk_cache="20TiB", think_time=6000.0)
    assert alone["time_to_first_token_s"] > alone["cache_load_time_s"] > 0


def test_what_is_read_more_slowly_than_computed_is_computed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """128 KiB a token: 82 us to read with drives of 1.6 GB/s, 7 with 20, and 30 to compute."""
    hosts, rows = {"host_cache": "200GiB"}, {}
    without = estimated(50, **hosts)
    for bandwidth in (1.6e9, 20e9):
        monkeypatch.setattr(DRIVES, bandwidth)
        rows[bandwidth] = estimated(50, **hosts, disk_cache="20TiB")
    assert rows[1.6e9]["disk_cache_hit_rate"] == 0 < without["host_cache_hit_rate"]
    assert rows[20e9]["disk_cache_hit_rate"] > 0.5
    for name in ("time_to_first_token_s", "host_cache_hit_rate", "cache_load_time_s"):
        assert rows[1.6e9][name] == without[name]
    assert rows[20e9]["time_to_first_token_s"] < without["time_to_first_token_s"]
