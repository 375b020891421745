"""Calendar time of training: what failures add to time, money and intervals, and to what not."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

import planner
from planner.base.units import DAY, GIB
from planner.errors import SearchSpaceError, SpecError
from planner.estimators.training.run_cost import (
    LOSSES,
    calendar_factors,
    campaign_of,
    checkpoint_size,
    goodput,
    training_cost,
)
from planner.layers.model import count_parameters
from planner.question.request import Request
from planner.specs.catalogue import Catalogue
from planner.specs.operating_terms import NO_CAMPAIGN, OperatingTerms
from planner.workloads.build_request import make_request
from planner.workloads.make_plan import make_plan

RUN = {
    "model": "llama-65b",
    "gpu": "a100-sxm-80gb",
    "framework": "megatron-lm",
    "global_batch_size": 2048,
    "price": 2.0,
}
LAYOUT = {"tp": 8, "pp": 4, "zero": 1, "sp": True}
PAID = ("campaign_gpu_hours", "cost_usd")
OWN = """
name = "Ours"
extends = "published"

[gpu_hours_per_interruption]
typical = { value = 5000, unit = "h", source = "assumed" }
"""


def row(reliability=None, num_gpus=2048, **asked):
    question = {**RUN, "settings": LAYOUT, "reliability": reliability, "num_gpus": num_gpus}
    return planner.estimate(**{**question, **asked}).to_frame().iloc[0]


def source(**asked):
    question = {**RUN, "num_gpus": 2048, "settings": LAYOUT}
    return make_plan(make_request({**question, **asked})).problem.sources[0]


def test_with_ideal_figures_nothing_but_the_steps_counts():
    found = row("ideal")
    assert found["calendar_time_days"] == found["time_to_train_days"]
    hours = found["time_to_train_days"] * 24 * 2048
    assert found["gpu_hours"] == pytest.approx(hours, rel=1e-12)
    assert found["cost_usd"] == pytest.approx(2.0 * hours, rel=1e-12)
    assert (found["goodput"], found["interruptions"], found["num_spare_gpus"]) == (1, 0, 0)


def test_published_figures_change_what_is_paid_for_and_no_prediction_of_a_step():
    ideal, real = row("ideal"), row(campaign_factor=1)
    for name in ("step_time_s", "peak_memory_gib", "time_to_train_days", "tokens_per_s"):
        assert real[name] == ideal[name], name
    assert real["reliability"] == "published"
    assert 0.95 < real["goodput"] < 0.99
    expected = ideal["time_to_train_days"] / real["goodput"]
    assert real["calendar_time_days"] == pytest.approx(expected, rel=1e-12)
    more = (2048 + 40) / 2048 / real["goodput"]
    assert real["num_spare_gpus"] == 40
    for name in PAID:
        assert real[name] == pytest.approx(ideal[name] * more, rel=1e-12), name
    # Spare GPUs wait switched off.
    longer = ideal["energy_kwh"] / real["goodput"]
    assert real["energy_kwh"] == pytest.approx(longer, rel=1e-12)
    calendar = real["calendar_time_days"] * 24
    assert real["interruptions"] == pytest.approx(calendar * 2048 / 50_700, rel=1e-12)


def test_a_checkpoint_has_weights_and_states_of_what_is_trained():
    whole, framework = source(), Catalogue().load_framework("megatron-lm").spec
    parameters = count_parameters(whole.inputs.model).total
    each = framework.states.weight + framework.states.optimizer
    assert checkpoint_size(whole.inputs) == pytest.approx(each * parameters)
    assert row()["checkpoint_size_gib"] == pytest.approx(each * parameters / GIB)


def test_the_checkpoint_of_adapters_has_no_frozen_weights():
    adapters = {"model": "llama-2-7b", "framework": "hf-trainer", "num_gpus": 8, "settings": {}}
    whole = source(**adapters, global_batch_size=64)
    lora = source(
        **adapters, global_batch_size=64, adapter="lora", lora_rank=8, lora_targets="query_value"
    )
    # Rank 8 on queries and values of 32 layers of width 4,096.
    trained = 32 * 2 * 2 * 8 * 4096
    states = lora.inputs.framework.states
    assert checkpoint_size(lora.inputs) == trained * (states.weight + states.optimizer)
    assert checkpoint_size(lora.inputs) < checkpoint_size(whole.inputs) / 500


def test_the_parts_of_an_interruption_and_of_a_checkpoint_are_those_of_the_figures(tmp_path):
    saving = '[checkpoints]\ninterval = { value = 30, unit = "min", source = "assumed" }\n'
    path = tmp_path / "ours.toml"
    path.write_text(f'name = "Ours"\nextends = "published"\n{saving}')
    one = source(reliability=str(path))
    found = goodput(one.inputs, one.site, np.array([2048.0]))
    written = checkpoint_size(one.inputs) / (256 * 1.94e9)
    assert found.checkpoint_time == pytest.approx(written)
    assert found.blocking_time == pytest.approx(0.28 * written)
    assert found.recovery_time == pytest.approx(11 * 60 + written)
    assert found.checkpoint_interval == 1800
    rate, period = 2048 / (50_700 * 3600), 1800 + 0.28 * written
    late = 0.72 * written + found.recovery_time
    expected = rate * 1800 / (math.exp(rate * late) * math.expm1(rate * period))
    kept = math.prod(float(found.left[name]) for name in LOSSES[:3])
    assert kept == pytest.approx(float(expected), rel=1e-12)
    more = goodput(one.inputs, one.site, np.array([16_384.0]))
    assert more.checkpoint_time == pytest.approx(checkpoint_size(one.inputs) / 2e12)


@pytest.mark.parametrize(
    ("given", "longest"),
    [
        pytest.param(1800.0, 1800.0, id="as it is given"),
        # 0.72 of the time of writing goes on beside training: 720 s of 1,000.
        pytest.param(60.0, 720.0, id="not before the last one is written"),
        pytest.param(721.0, 721.0, id="just after it"),
    ],
)
def test_checkpoints_of_a_given_interval_do_not_overlap(given, longest):
    one = source()
    spec = Catalogue().load_reliability("published").spec
    # 256 nodes write for 1,000 s.
    bandwidth = checkpoint_size(one.inputs) / 256 / 1000
    saving = replace(
        spec.checkpoints, bandwidth_per_node=bandwidth, total_bandwidth=None, interval=given
    )
    site = OperatingTerms(reliability=replace(spec, checkpoints=saving))
    found = goodput(one.inputs, site, np.array([2048.0]))
    assert found.checkpoint_time == pytest.approx(1000)
    assert found.blocking_time == pytest.approx(280)
    assert found.checkpoint_interval == pytest.approx(longest)


def test_a_small_job_loses_next_to_nothing():
    settings = {
        "model": "llama-2-7b",
        "total_tokens": 1e9,
        "settings": {"tp": 8, "recompute": "full"},
    }
    found = row(num_gpus=8, global_batch_size=512, campaign_factor=1, **settings)
    assert found["calendar_time_days"] < 1
    assert found["goodput"] > 0.99
    assert found["num_spare_gpus"] == 0


def test_a_campaign_takes_more_than_its_steps_and_failures_and_is_told():
    own, without = row(), row(campaign_factor=1)
    campaign = Catalogue().load_reliability("published").spec.campaign
    assert campaign.typical > 1
    for name in ("calendar_time_days", *PAID):
        assert own[name] == pytest.approx(campaign.typical * without[name], rel=1e-9), name
    assert own["step_time_s"] == without["step_time_s"]
    assert row(campaign_factor=1.5)["cost_usd"] == pytest.approx(1.5 * without["cost_usd"])
    # Its spread is independent of that of the steps.
    for end in ("low", "high"):
        one, other = (
            math.log(each[f"cost_{end}_usd"] / each["cost_usd"]) for each in (own, without)
        )
        spread = math.log(getattr(campaign, end) / campaign.typical)
        assert one**2 == pytest.approx(other**2 + spread**2, rel=1e-6), end
    told = make_plan(make_request({**RUN, "num_gpus": 2048, "settings": LAYOUT})).defaults
    assert "--campaign-factor 1 switches it off" in told["campaign_factor"]


@pytest.mark.parametrize("more", [{"training_objective": "sft"}, {"adapter": "LoRA"}])
def test_of_fine_tuning_nobody_published_campaigns(more):
    plan = make_plan(Request(model="llama-2-7b", num_gpus=8, **more))
    found = plan.problem.sources[0]
    assert campaign_of(found.inputs, found.site) == NO_CAMPAIGN
    assert "campaign_factor" not in plan.defaults


def test_goodput_is_finite_for_a_million_gpus_that_fail_often():
    with_failures = OperatingTerms(reliability=Catalogue().load_reliability("published").spec)
    counts = 10.0 ** np.arange(10)
    found = goodput(source().inputs, with_failures, counts)
    assert np.all(np.isfinite(found.ratio))
    assert np.all((found.ratio > 0) & (found.ratio <= 1))
    assert np.all(np.diff(found.ratio) <= 0)


def test_the_lost_shares_add_up():
    site = OperatingTerms(reliability=Catalogue().load_reliability("published").spec)
    found = goodput(source().inputs, site, np.array([8.0, 2048.0, 131_072.0, 1e9]))
    lost = found.lost()
    assert tuple(lost) == LOSSES
    assert sum(lost.values()) == pytest.approx(1 - found.ratio, rel=1e-9)
    assert all(np.all(share >= 0) for share in lost.values())
    nothing = goodput(source().inputs, OperatingTerms(), np.array([8.0]))
    assert sum(nothing.lost().values()) == 0


def test_spot_instances_are_taken_back_besides():
    kept, spot = row(contract="reserved-1y"), row(contract="spot", price=None)
    assert spot["calendar_time_days"] > kept["calendar_time_days"]
    per_day = spot["interruptions"] / spot["calendar_time_days"]
    assert per_day == pytest.approx(24 * 2048 * (1 / 50_700 + 1 / 35_900), rel=1e-9)


def test_the_interval_of_calendar_time_joins_steps_and_failure_rates():
    one = source()
    sure = one.confidence(2048)
    failures = calendar_factors(one.inputs, one.site, 2048)
    assert failures[0] < 1 < failures[1]
    for end in (0, 1):
        expected = math.hypot(math.log(sure.factors["step_time"][end]), math.log(failures[end]))
        assert abs(math.log(sure.factors["calendar_time"][end])) == pytest.approx(expected)
    found, ends = row(), sure.factors["calendar_time"]
    for stem, unit in (
        ("calendar_time", "_days"),
        ("campaign_gpu_hours", ""),
        ("cost", "_usd"),
    ):
        value = found[stem + unit]
        assert found[f"{stem}_low{unit}"] == pytest.approx(value * ends[0])
        assert found[f"{stem}_high{unit}"] == pytest.approx(value * ends[1])
    assert found["time_to_train_high_days"] == pytest.approx(
        found["time_to_train_days"] * sure.factors["step_time"][1]
    )
    same = source(reliability="ideal").confidence(2048).factors
    assert same["calendar_time"] == pytest.approx(same["step_time"], rel=1e-12)


def test_an_own_file_is_read_and_its_assumptions_told(tmp_path):
    path = tmp_path / "ours.toml"
    path.write_text(OWN)
    found = row(str(path))
    assert found["reliability"] == "Ours"
    assert found["goodput"] < row()["goodput"]
    plan = make_plan(
        make_request({**RUN, "num_gpus": 2048, "settings": LAYOUT, "reliability": str(path)})
    )
    assert "reliability gpu_hours_per_interruption.typical" in plan.assumed
    assert "reliability" not in plan.defaults


def test_the_roofline_bound_has_no_failures_unless_they_are_asked_for():
    assert row(ideal=True)["goodput"] == 1
    assert row("published", ideal=True)["goodput"] < 1


def test_what_nobody_gave_is_told():
    plan = make_plan(make_request({**RUN, "num_gpus": 2048, "settings": LAYOUT}))
    assert plan.defaults["reliability"] == "published (default)"
    assert "reliability stragglers.gpu_hours_per_slowdown" in plan.assumed


def test_the_calendar_time_can_be_limited_and_made_least():
    best = planner.search(**RUN, num_gpus=2048, objectives="calendar_time")
    days = best.fastest.columns()["calendar_time_days"][0]
    limits = {"calendar_time": days * DAY * 1.001}
    met = planner.search(**RUN, num_gpus=2048, constraints=limits)
    assert met.recommended is not None
    limits = {"calendar_time": days * DAY * 0.99}
    assert planner.search(**RUN, num_gpus=2048, constraints=limits).recommended is None


def test_serving_has_no_figures_on_failures():
    with pytest.raises((SearchSpaceError, SpecError), match="reliability"):
        planner.search(workload="serve", model="llama-2-7b", num_gpus=1, reliability="ideal")


def test_one_number_of_gpus_is_computed_once():
    one = source(settings={})
    runs = one.judged(next(iter(one.mesh.blocks(one.block_rows))))
    found = training_cost(runs.estimate, source().site, 1e12).goodput
    assert np.size(found.ratio) == 1 < runs.estimate.step_time.size
