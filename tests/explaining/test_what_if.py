"""Sensitivities are whole predictions; assumptions are ranked by what they move."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

import planner
from planner.decide.explain.sensitivity import predict_outcome, relative_change, with_scaled_specs
from planner.specs.validated import replace_unvalidated

LLAMA: dict[str, Any] = {
    "model": "llama-65b",
    "num_gpus": 2048,
    "framework": "megatron-bridge",
    "settings": {"tp": 4, "pp": 4, "vp": 20, "mbs": 2, "sp": True, "zero": 1},
}
SERVED: dict[str, Any] = {
    "workload": "serve",
    "model": "llama-3.1-70b",
    "gpu": "h200",
    "num_gpus": 16,
    "input_tokens": 4000,
    "output_tokens": 1000,
    "settings": {"tp": 4, "concurrency": 64},
}


@cache
def explained(name: str = "llama") -> Any:
    return planner.explain(**(LLAMA if name == "llama" else SERVED))


def fact(name: str, of: str = "llama") -> Any:
    return next(one for one in explained(of).sensitivities if one.name == name)


def test_half_the_network_is_what_a_cluster_of_half_the_network_takes(tmp_path):
    found = planner.estimate(**LLAMA)
    cluster = found.source.inputs.machine.cluster
    up, out = cluster.scale_up, cluster.scale_out
    path = tmp_path / "half.toml"
    path.write_text(
        f'name = "half"\ngpu = "{cluster.gpu}"\ngpus_per_node = {cluster.gpus_per_node}\n'
        f'[scale_up]\nkind = "{up.kind}"\ndomain_size = {up.domain_size}\n'
        f'bandwidth = {{ value = {up.bandwidth}, unit = "B/s", source = "assumed" }}\n'
        f"[scale_out]\n"
        f'oversubscription = {{ value = 1, unit = "1", source = "assumed" }}\n'
        f'bandwidth = {{ value = {out.bandwidth / 2}, unit = "B/s", source = "assumed" }}\n'
        f'base_latency = {{ value = {out.base_latency}, unit = "s", source = "assumed" }}\n'
        f'latency_per_doubling = {{ value = {out.latency_per_doubling}, unit = "s", '
        'source = "assumed" }\n'
        f'efficiency = {{ value = {out.efficiency}, unit = "1", source = "assumed" }}\n'
    )
    halved = predict_outcome(
        found.plan, with_scaled_specs("cluster", ("scale_out.bandwidth",), 0.5)
    )
    own = planner.estimate(**LLAMA, cluster=str(path)).table()
    assert halved.row is not None
    assert halved.row["step_time_s"] == own["step_time_s"][0]


def test_a_price_moves_the_cost_in_proportion_and_no_time():
    better = fact("price").outcomes["10 % better"].row
    row = explained().row
    assert better["cost_usd"] == pytest.approx(0.9 * row["cost_usd"])
    assert better["step_time_s"] == row["step_time_s"]


def test_a_better_number_never_makes_a_step_longer():
    for one in explained().sensitivities:
        if one.group == "question":
            continue
        worse, better = (one.outcomes[f"10 % {words}"].row for words in ("worse", "better"))
        own = explained().row["step_time_s"]
        assert better["step_time_s"] <= own <= worse["step_time_s"], one.name


def test_another_memory_moves_measured_products_too():
    """Where a GPU does not say otherwise, its products were measured on its own memory."""
    found = planner.estimate(model="llama-2-13b", gpu="a100", num_gpus=8, settings={"tp": 8})
    slower = with_scaled_specs("gpu", ("memory_bandwidth",), 0.25)
    told = predict_outcome(found.plan, slower).row

    def untold(plan):
        (source,) = plan.problem.sources
        gpu = source.inputs.machine.gpu
        bare = replace_unvalidated(
            gpu, efficiency=replace_unvalidated(gpu.efficiency, gemm_table_bandwidth=None)
        )
        other = source.changed(lambda s: replace(s, machine=replace(s.machine, gpu=bare)))
        return slower(replace(plan, problem=replace(plan.problem, sources=(other,))))

    assert told is not None
    assert told["step_time_s"] > 1.3 * found.table()["step_time_s"][0]
    assert predict_outcome(found.plan, untold).row["step_time_s"] == told["step_time_s"]


def test_sensitivities_are_not_linear():
    found = fact("peak FLOP/s").outcomes
    worse, better = (
        relative_change(found[f"10 % {words}"].row["step_time_s"], explained().row["step_time_s"])
        for words in ("worse", "better")
    )
    assert worse + better > 0.005


def test_a_node_more_breaks_a_rule_and_the_next_number_is_told():
    nodes = fact("number of nodes").outcomes
    assert "divide" in nodes["1 node more: 2,056 GPUs"].reason
    (more,) = (found for words, found in nodes.items() if words.endswith("4,096 GPUs"))
    assert more.row["num_gpus"] == 4096
    of_replicas = fact("number of nodes", "served").outcomes
    assert of_replicas["1 node more: 24 GPUs"].row["num_gpus"] == 24


def test_other_lengths_are_asked_anew():
    shorter = fact("sequence length").outcomes["sequence length 1,024 instead of 2,048"]
    again = planner.estimate(**LLAMA, sequence_length=1024).table()
    assert shorter.row["step_time_s"] == again["step_time_s"][0]
    longer = fact("sequence length").outcomes["sequence length 4,096 instead of 2,048"]
    assert longer.row["step_time_s"] > explained("llama").row["step_time_s"]
    twice = fact("input tokens", "served").outcomes["input tokens 8,000 instead of 4,000"]
    assert twice.row["time_to_first_token_s"] > explained("served").row["time_to_first_token_s"]


def test_faster_kernels_of_attention_are_tried():
    asked = {"model": "llama-3.1-8b", "gpu": "h100-sxm", "num_gpus": 8, "framework": "fsdp"}
    asked |= {"sequence_length": 32_768, "global_batch_size": 8}
    settings = {"recompute": "full", "zero_stage": 3}
    found = planner.explain(**asked, settings=settings)
    (tried,) = (one for one in found.sensitivities if one.name == "attention_kernel")
    ((words, reached),) = tried.outcomes.items()
    assert words == "attention_kernel fa3 instead of fa2"
    other = planner.estimate(**asked, settings={**settings, "attention_kernel": "fa3"})
    assert reached.row["step_time_s"] == pytest.approx(float(other.table()["step_time_s"][0]))


def test_less_memory_may_not_fit():
    found = planner.explain(
        model="llama-65b",
        num_gpus=2048,
        framework="megatron-bridge",
        settings={"tp": 4, "pp": 2, "vp": 20, "mbs": 4, "sp": True, "zero": 1},
        confidence=0.6,
    )
    capacity = next(one for one in found.sensitivities if one.name == "memory capacity")
    assert capacity.outcomes["10 % worse"].row is None
    assert "memory" in capacity.outcomes["10 % worse"].reason


def test_assumptions_are_ordered_and_have_an_open_fact_and_a_number():
    found = explained().assumptions
    spreads = [one.spread for one in found]
    assert spreads == sorted(spreads, reverse=True)
    names = [one.name for one in found]
    assert "recompute" in names
    assert "gpu efficiency.sustained_compute_fraction" in names
    assert "gpu efficiency.attention_decode.bf16.latency" not in names  # nothing decodes


def test_an_assumed_number_moves_what_its_change_moves():
    name = "gpu efficiency.sustained_compute_fraction"
    one = next(one for one in explained().assumptions if one.name == name)
    moved = [
        predict_outcome(
            explained().plan,
            with_scaled_specs("gpu", ("efficiency.sustained_compute_fraction",), f),
        )
        for f in (0.9, 1.1)
    ]
    values = [found.row[one.column] for found in moved if found.row]
    assert (one.low, one.high) == (min(values), max(values))


def test_numbers_that_a_plan_does_not_have_are_not_tried(monkeypatch: pytest.MonkeyPatch):
    tried = []

    def told(plan, changed, burst):
        tried.append(changed(plan).problem.sources)
        return predict_outcome(plan, changed, burst)

    monkeypatch.setattr("planner.decide.explain.explanation.predict_outcome", told)
    found = planner.explain(**SERVED)
    assert found.assumptions
    assert len(tried) > 4
    assert found.plan.problem.sources not in tried


def test_the_bound_is_the_plan_at_the_peaks():
    bound = explained().bound
    ideal = planner.estimate(**LLAMA, ideal=True).table()
    assert bound["step_time_s"] == ideal["step_time_s"][0]
    assert bound["step_time_s"] < explained().row["step_time_s"]


def test_all_of_it_is_data():
    told = json.loads(json.dumps(explained().to_dict()))
    assert told["steps"][0]["time_s"] == told["row"]["step_time_s"]
    assert told["against"] is None
    assert told["sources"]["gpu memory_bandwidth"]
    assert told["plan"]["parameters"]["tensor_parallel"] == 4
