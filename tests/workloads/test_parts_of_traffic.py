"""Parts of requests by their prompts, and users with habits, as answers of a question."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import NormalDist

import numpy as np
import pytest

from planner.errors import SearchSpaceError, SpecError
from planner.workloads.build_request import make_request, read_request
from planner.workloads.serving.traffic import (
    LengthRange,
    arrivals_of,
    measured_arrivals,
    prompts_of,
    read_range,
    shipped_lengths,
    traffic_defaults,
)

SERVE = {"workload": "serve", "model": "llama-3.1-8b"}


def test_a_range_is_read_as_it_is_told() -> None:
    for words, above, most in (
        ("<=6k", 0, 6000),
        (" > 6k ", 6000, np.inf),
        (">2k-6Ki", 2000, 6144),
    ):
        found = read_range(words)
        assert (found.above, found.most) == (above, most)
        assert read_range(found.text) == found


@pytest.mark.parametrize("words", ["6k", ">6k-2k", "<=0", "<=many", "", ">", "6k-8k", "<=6k,>8k"])
def test_what_is_no_range_is_told(words: str) -> None:
    with pytest.raises(SearchSpaceError, match="prompt_range"):
        read_range(words)


@pytest.mark.parametrize("name", shipped_lengths())
def test_the_parts_of_shipped_lengths_add_up_to_the_whole(name: str) -> None:
    request = make_request({**SERVE, "num_gpus": 1, "lengths": name})
    prompts = prompts_of(request)
    ends = prompts.quantiles([0.3, 0.7])
    assert ends[0] < ends[1]
    parts = [prompts.within(LengthRange(above=low, most=high)) for low, high in
             zip([0, *ends], [*ends, np.inf], strict=True)]  # fmt: skip
    shares = np.array([share for share, _ in parts])
    means = np.array([lengths["input_tokens"] for _, lengths in parts])
    squares = means**2 * (1 + np.array([lengths["input_variation"] for _, lengths in parts]) ** 2)
    assert shares.sum() == pytest.approx(1)
    assert shares[0] == pytest.approx(0.3, abs=0.02)
    assert shares @ means == pytest.approx(request.input_tokens, rel=0.02)
    whole = request.input_tokens**2 * (1 + request.input_variation**2)
    assert shares @ squares == pytest.approx(whole, rel=0.02)


def test_a_part_of_lognormal_prompts_has_its_partial_moments() -> None:
    """E[X; X <= t] = m Phi(z - s), of the logarithm's deviation s."""
    request = make_request({**SERVE, "num_gpus": 1, "input_tokens": 2000, "input_variation": 1.5})
    share, lengths = prompts_of(request).within(LengthRange(most=1500))
    deviation = np.sqrt(np.log1p(1.5**2))
    score = (np.log(1500 / 2000) + deviation**2 / 2) / deviation
    normal = NormalDist()
    assert share == pytest.approx(normal.cdf(score), rel=0.01)
    mean = 2000 * normal.cdf(score - deviation) / normal.cdf(score)
    assert lengths["input_tokens"] == pytest.approx(mean, rel=0.02)


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Short prompts come by the clock, long ones together every tenth time, with long answers."""
    rows = [(float(n), 100, 10) for n in range(100)]
    rows += [(n + 0.5, 5000, 50) for n in range(0, 100, 10) for _ in range(5)]
    path = tmp_path / "trace.csv"
    lines = "".join(f"{t},{i},{o}\n" for t, i, o in sorted(rows))
    path.write_text(f"time,input_tokens,output_tokens\n{lines}")
    return path


def test_a_part_of_a_trace_has_its_rate_lengths_and_bursts(trace: Path) -> None:
    asked = {**SERVE, "trace": trace, "prompt_range": ">1k"}
    request = make_request(asked)
    whole = make_request({**SERVE, "trace": trace})
    assert whole.request_rate is not None
    assert request.request_rate == pytest.approx(whole.request_rate / 3)
    assert (request.input_tokens, request.output_tokens) == (5000, 50)
    assert (request.input_variation, request.output_variation) == (0, 0)
    times = np.repeat(np.arange(0.0, 100.0, 10.0), 5)
    assert arrivals_of(request) == measured_arrivals(times, np.full(50, 5000.0), np.full(50, 50.0))
    assert "prompts >1k" in traffic_defaults(request)["input_tokens"]
    assert read_request(request) == request
    changed = make_request({"prompt_range": "<=1k"}, base=request)
    assert changed.input_tokens == 100
    assert changed.request_rate == pytest.approx(whole.request_rate * 2 / 3)


def test_parts_of_nothing_are_told(trace: Path) -> None:
    with pytest.raises(SearchSpaceError, match="prompt_range needs trace or lengths"):
        make_request({**SERVE, "num_gpus": 1, "prompt_range": "<=1k"})
    with pytest.raises(SearchSpaceError, match="has none of >9k tokens"):
        make_request({**SERVE, "trace": trace, "prompt_range": ">9k"})
    with pytest.raises(SpecError, match="neither a file nor"):
        make_request({**SERVE, "lengths": "nowhere.csv", "prompt_range": ">9k"})


def test_users_make_a_rate_by_their_habits() -> None:
    habits = {"users": "20k", "requests_per_user": 18, "active_share": "30%"}
    request = make_request({**SERVE, **habits})
    assert request.request_rate == pytest.approx(20_000 * 0.3 * 18 / 3600)
    assert (
        "20,000 users, 18 requests an hour of the 30%" in traffic_defaults(request)["request_rate"]
    )
    assert read_request(request) == request
    assert make_request({"users": 10_000}, base=request).request_rate == pytest.approx(15)
    assert make_request({**SERVE, **habits, "request_rate": 7}).request_rate == 7
    for given, word in (
        ({"users": 5}, "users needs requests_per_user"),
        ({"requests_per_user": 5}, "requests_per_user needs users"),
        ({"users": 0, "requests_per_user": 5}, "users is a whole number of at least 1"),
        ({**habits, "active_share": 2}, "active_share"),
    ):
        with pytest.raises(SearchSpaceError, match=word):
            make_request({**SERVE, **given})


@pytest.mark.slow
def test_a_sweep_goes_through_parts_and_users(planner, tmp_path: Path) -> None:
    plan = tmp_path / "sweep.toml"
    plan.write_text(
        'workload = "serve"\nmodel = "llama-3.1-8b"\ngpu = "h100"\nengine = "vllm"\n'
        'lengths = "azure-code"\nrequests_per_user = 36\n'
        'prompt_range = ["<=2k", ">2k"]\nusers = [100, 1000]\n'
    )
    out = tmp_path / "out"
    ran = planner("sweep", str(plan), "--output", str(out), "--workers", "1", "--quiet")
    assert ran.exit_code == 0, ran.err
    rows = json.loads(planner("sweep", "show", str(out), "--json", "-").out)
    assert len(rows) == 4
    found = {(row["prompt_range"], row["users"]): row["requests_per_s"] for row in rows}
    expected = {(part, users): users / 100 for part in ("<=2k", ">2k") for users in (100, 1000)}
    assert found == pytest.approx(expected)
    short, long = (row["time_to_first_token_s"] for row in rows[::2])
    assert short < long
