"""Facts that nobody gave: named where they move an answer, and outside of its intervals."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import planner
from planner.decide import assumptions
from planner.decide.assumptions import MIN_RELATIVE_CHANGE, sensitive_assumptions
from planner.optimize.result_columns import intervals
from planner.optimize.source import first_row
from planner.workloads.assumptions import EvaluatedChoice, open_network
from planner.workloads.serving import replicas
from planner.workloads.serving.replicas import max_concurrency

LAYOUT = {"recompute": "full", "precision": "bf16", "zero_stage": 3}
ACROSS: dict[str, Any] = {
    "model": "llama-7b",
    "num_gpus": 64,
    "gpu": "a100",
    "global_batch_size": 64,
    "framework": "deepspeed",
    "settings": LAYOUT,
}
SERVED: dict[str, Any] = {
    "workload": "serve",
    "model": "llama-3.1-8b",
    "gpu": "h100",
    "settings": {"concurrency": 32, "quantization": "fp8", "kv_cache": "fp8"},
}


@pytest.fixture(name="run")
def _run(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """The command line; ``planner`` is the package here."""
    command: Callable[..., Any] = request.getfixturevalue("planner")
    return command


def names(found: Any) -> set[str]:
    return {fact.name for fact in found.open_facts}


def own_ends(found: Any) -> dict[str, tuple[float, float]]:
    row = first_row(found.candidates.columns())
    return intervals(row, found.candidates.source.confidence(row["num_gpus"]))


def slow_cluster(folder: Path, factor: float) -> str:
    """The cluster of the GPU's own links as a file of its own, its network at another rate."""
    cluster = planner.estimate(**ACROSS).source.inputs.machine.cluster
    up, out = cluster.scale_up, cluster.scale_out
    path = folder / f"own{factor}.toml"
    path.write_text(
        f'name = "own{factor}"\ngpu = "{cluster.gpu}"\ngpus_per_node = {cluster.gpus_per_node}\n'
        f'[scale_up]\nkind = "{up.kind}"\ndomain_size = {up.domain_size}\n'
        f'bandwidth = {{ value = {up.bandwidth}, unit = "B/s", source = "assumed" }}\n'
        f"[scale_out]\noversubscription = "
        f'{{ value = {out.oversubscription}, unit = "1", source = "assumed" }}\n'
        f"bandwidth = "
        f'{{ value = {factor * out.bandwidth}, unit = "B/s", source = "assumed" }}\n'
        f'base_latency = {{ value = {out.base_latency}, unit = "s", source = "assumed" }}\n'
        f"latency_per_doubling = "
        f'{{ value = {out.latency_per_doubling}, unit = "s", source = "assumed" }}\n'
        f'efficiency = {{ value = {out.efficiency}, unit = "1", source = "assumed" }}\n'
    )
    return str(path)


def test_an_open_network_is_what_estimates_of_such_networks_say(tmp_path: Path) -> None:
    (fact,) = planner.estimate(**ACROSS).open_facts
    assert fact.name == "network between nodes"
    steps = []
    for factor in (0.5, 1.0, 2.0):
        given = planner.estimate(**ACROSS, cluster=slow_cluster(tmp_path, factor))
        assert given.open_facts == []  # a cluster that is named leaves nothing open
        steps.append(given.table()["step_time_s"][0])
    assert fact.moved["step_time_s"] == pytest.approx((min(steps), max(steps)), rel=1e-12)
    assert max(steps) > (1 + MIN_RELATIVE_CHANGE) * steps[1]


def test_inside_one_domain_no_network_is_open() -> None:
    assert names(planner.estimate(**{**ACROSS, "num_gpus": 8})) == set()


def test_precision_and_recomputation_are_open_until_they_are_set() -> None:
    asked = {"model": "llama-7b", "num_gpus": 8, "gpu": "h100"}
    assert names(planner.estimate(**asked, settings={"tp": 2})) == {"precision", "recompute"}
    given = {"tp": 2, "precision": "bf16", "recompute": "none"}
    assert names(planner.estimate(**asked, settings=given)) == set()
    one = planner.estimate(**asked, settings={"tp": 2, "recompute": "none"}).open_facts
    fp8 = planner.estimate(**asked, settings={**given, "precision": "fp8"})
    assert one[0].tried == ("fp8",)
    assert one[0].moved["step_time_s"][0] == pytest.approx(fp8.table()["step_time_s"][0])


def test_what_a_search_tries_is_not_open() -> None:
    found = planner.search(model="llama-7b", num_gpus=8, space="small")
    assert names(found) == set()


def test_lengths_are_open_to_serve_until_they_are_given() -> None:
    found = planner.estimate(**SERVED)
    assert "input tokens" in names(found)
    fact = found.open_facts[0]
    other = planner.estimate(**SERVED, input_tokens=2048)
    first = "time_to_first_token_s"
    assert fact.moved[first][1] == pytest.approx(other.table()[first][0], rel=1e-12)
    assert names(planner.estimate(**SERVED, input_tokens=1024, output_tokens=1024)) == set()


def test_requests_at_once_are_open_without_a_rate() -> None:
    lengths = {"input_tokens": 512, "output_tokens": 512}
    settings = {"quantization": "fp8", "kv_cache": "fp8"}
    asked = {**SERVED, "settings": settings, **lengths}
    assert names(planner.estimate(**asked)) == {"concurrency"}
    assert names(planner.estimate(**asked, request_rate=2)) == set()


def test_the_network_of_pools_is_that_of_both(tmp_path: Path) -> None:
    found = planner.search(
        workload="serve",
        model="llama-3.1-8b",
        gpu="l40s",
        engine="vllm",
        mode="disaggregated",
        num_gpus=16,
        settings={"concurrency": [8, 32]},
    )
    chosen = EvaluatedChoice(
        request=found.plan.request, space=found.plan.space, candidates=found.recommended
    )
    (fact,) = open_network(chosen)
    slow, fast = (first_row(one.columns())["transfer_time_s"] for one in fact.tried.values())
    assert slow > 2 * fast  # half the rate, then twice
    before = [one.source.space.prefill_setting.machine for one in fact.tried.values()]
    after = [one.source.inputs.machine for one in fact.tried.values()]
    assert [machine.cluster for machine in before] == [machine.cluster for machine in after]


def test_some_requests_wait_where_a_full_cache_has_no_room_for_what_is_longer() -> None:
    settings = {**SERVED["settings"], "concurrency": 500}
    found = planner.estimate(**{**SERVED, "settings": settings})
    (fact,) = (one for one in found.open_facts if one.name == "input tokens")
    assert fact.does_not_fit == ()
    assert "no room" not in found.summary(width=200)
    assert list(fact.tried) == ["512", "2,048"]
    told = {**SERVED, "settings": settings, "input_tokens": 2048}
    longer = first_row(planner.estimate(**told).table())
    assert longer["most_sequences"] < 500
    assert fact.moved["requests_per_s"][0] == pytest.approx(longer["requests_per_s"])


def test_an_alternative_without_room_for_one_is_named() -> None:
    own = {**SERVED, "gpu": "l4", "settings": {"quantization": "w16a16", "concurrency": 1}}
    (fact,) = (
        one
        for one in planner.estimate(**own, output_tokens=32_000).open_facts
        if one.name == "input tokens"
    )
    assert fact.does_not_fit == ("2,048",)


def test_no_more_requests_are_tried_than_have_room() -> None:
    own = {**SERVED, "gpu": "l4", "settings": {"quantization": "w16a16"}}
    lengths = {"input_tokens": 20_000, "output_tokens": 1000}
    assert "concurrency" in names(planner.estimate(**own))
    assert "concurrency" not in names(planner.estimate(**own, **lengths))


def test_open_facts_widen_no_interval(tmp_path: Path) -> None:
    """The same plan with the network named has the same interval, and no open fact."""
    found = planner.estimate(**ACROSS)
    given = planner.estimate(**ACROSS, cluster=slow_cluster(tmp_path, 1.0))
    assert (len(found.open_facts), given.open_facts) == (1, [])
    ends, same = own_ends(found)["step_time_s"], own_ends(given)["step_time_s"]
    assert ends == pytest.approx(same)
    assert "90 % interval for the values assumed" in found.summary(width=200)
    assert "for the values assumed" not in given.summary(width=200)


def test_what_does_not_fit_has_no_open_facts() -> None:
    found = planner.estimate(**{**SERVED, "model": "llama-3.1-70b", "num_gpus": 1, "gpu": "l4"})
    assert found.rejected_by
    assert sensitive_assumptions(found.plan, found.candidates) == []


def test_the_screen_and_the_file_name_open_facts(run: Callable[..., Any], tmp_path: Path) -> None:
    path = tmp_path / "estimate.json"
    command = ("estimate", "--model", "llama-7b", "--gpus", "8", "--gpu", "h100")
    assert "most depends on precision (assumed bf16): in fp8" in run(*command).out
    full = run(*command, "--full").out
    assert "Precision not specified (assumed bf16; tried fp8): step time" in full
    assert run(*command, "--json", path, "--quiet").exit_code == 0
    facts = json.loads(path.read_text())["open_facts"]
    precision = next(one for one in facts if one["fact"] == "precision")
    assert precision["tried"] == ["fp8"]
    assert precision["predictions"]["step_time_s"][0] < precision["predictions"]["step_time_s"][1]


def test_a_search_names_them_too(run: Callable[..., Any], tmp_path: Path) -> None:
    path = tmp_path / "search.json"
    command = ("search", "--workload", "serve", "--model", "llama-3.1-8b", "--gpu", "h100")
    ran = run(*command, "--gpus", "1", "--engine", "vllm", "--mode", "aggregated", "--json", path)
    assert ran.exit_code == 0
    facts = json.loads(path.read_text())["open_facts"]
    assert "input tokens" in {one["fact"] for one in facts}
    assert "Unknown: input tokens (assumed 1,024): " in ran.out


def test_several_presenters_share_the_alternatives_of_a_plan(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found, predicted = planner.estimate(**ACROSS), list[object]()
    evaluate = assumptions._evaluate_assumption
    monkeypatch.setattr(
        assumptions, "_evaluate_assumption", lambda *fact: predicted.append(fact) or evaluate(*fact)
    )
    first = sensitive_assumptions(found.plan, found.candidates)
    number = len(predicted)
    assert first
    assert number
    assert sensitive_assumptions(found.plan, found.candidates) == first
    assert len(predicted) == number


def test_the_largest_batch_is_found_without_times(monkeypatch: pytest.MonkeyPatch) -> None:
    found = planner.estimate(**SERVED)
    source, configurations = (
        found.source.with_immediate_admission,
        found.candidates.configurations,
    )
    most = max_concurrency(source, configurations)
    at_most, beyond = (
        source.judged(replace(configurations, concurrency=np.array([float(number)])))
        for number in (most, most + 1)
    )
    assert not at_most.rejected_by.any()
    assert beyond.rejected_by.all()
    monkeypatch.delattr(replicas, "evaluate_serving")
    assert max_concurrency(source, configurations) == most
