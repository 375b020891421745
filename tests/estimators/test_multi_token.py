"""Multi-token prediction: a projection, a layer and logits more on the last stage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from published_runs import configuration

from planner import Request
from planner.errors import SearchSpaceError, SpecError
from planner.estimators.training.sharding import chunk_sizes, stage_layers
from planner.estimators.training.training_estimate import evaluate
from planner.layers.model import count_parameters
from planner.specs.catalogue import find, load_model
from planner.specs.serving_workload import with_mtp
from planner.workloads.make_plan import Plan, make_plan


def made(**request: Any) -> Plan:
    """The plan of Qwen3-Next, whose recipe trains one module, on 64 H100s."""
    asked = {"framework": "megatron-lm", "gpu": "h100-sxm-80gb", **request}
    return make_plan(Request(model="qwen3-next-80b-a3b", num_gpus=64, **asked))


def step_time(**request: Any) -> float:
    """Seconds of a step where 64 ranks split the experts and nothing else."""
    layout = configuration(num_gpus=64, expert_parallel=64, global_batch_size=64, zero_stage=1)
    return evaluate(made(**request).problem.inputs, layout).step_time.item()


def test_deepseek_v3_is_published_with_14_billion_parameters_more() -> None:
    """Its README: 671 billion, and 14 of the module with its copies of embedding and logits."""
    model = load_model("deepseek-v3")
    more = count_parameters(with_mtp(model, 1)).total - count_parameters(model).total
    assert more + 2 * model.vocab_size * model.hidden_size == pytest.approx(14e9, rel=0.05)


@pytest.mark.parametrize(
    ("model", "layers"),
    [
        pytest.param("deepseek-v3", [3, 59], id="its last layers have experts"),
        pytest.param("qwen3-next-80b-a3b", [36, 13], id="attention, not a state"),
        pytest.param("nemotron-3-super-120b-a12b", None, id="attention and experts apart"),
        pytest.param("gpt-oss-120b", None, id="attention without a window"),
    ],
)
def test_a_module_has_attention_over_all_tokens_and_a_feed_forward(
    model: str, layers: list[int] | None
) -> None:
    spec = load_model(model)
    longer = with_mtp(spec, 1)
    grown = [
        after
        for before, after in zip(spec.layer_groups, longer.layer_groups, strict=True)
        if after != before
    ]
    attentions = [group.attention for group in grown if group.attention]
    assert len(attentions) == 1
    assert not attentions[0].has_state
    assert attentions[0].sliding_window is None
    assert sum(group.feed_forward is not None for group in grown) == 1
    if layers is not None:
        assert sorted(group.num_hidden_layers for group in longer.layer_groups) == sorted(layers)


def test_no_module_changes_nothing() -> None:
    model = load_model("deepseek-v3")
    assert with_mtp(model, 0) is model


def test_layers_leave_the_last_stage_for_the_logits_of_the_module() -> None:
    """Megatron-Bridge's layout of 16 stages: four layers each, then one, the module and loss."""
    longer = with_mtp(load_model("deepseek-v3"), 1)
    counts = stage_layers(longer, np.float64(16), np.float64(1)).counts.sum(axis=1)
    assert counts.tolist() == [4, 4, 2]
    assert chunk_sizes(62, 16, 1).tolist() == [3, *[4] * 14, 3]
    assert chunk_sizes(62, 16, 9).tolist() == [*[4] * 15, 2]
    assert chunk_sizes(5, 4, 9).sum() == 5
    assert chunk_sizes(5, 4, 9).min() == 1


def test_an_absurd_number_of_published_modules_is_a_fault_of_the_file(tmp_path: Path) -> None:
    text = find("models", "deepseek-v3").read_text(encoding="utf-8")
    path = tmp_path / "absurd.toml"
    path.write_text(text.replace("predict_layers = 1", "predict_layers = 1000"), encoding="utf-8")
    with pytest.raises(SpecError, match="num_nextn_predict_layers"):
        load_model(str(path))


def test_published_modules_are_trained_unless_another_number_is_asked_for() -> None:
    assert step_time() == step_time(mtp_num_layers=1)
    times = [step_time(mtp_num_layers=count) for count in (0, 1, 2)]
    assert 1.01 < times[1] / times[0] < 1.15
    assert times[2] > times[1]


def test_adapters_train_no_module() -> None:
    plan = made(adapter="lora", framework="nemo")
    assert plan.problem.inputs.model.mtp_num_layers == 0
    assert "mtp_num_layers" not in plan.defaults
    with pytest.raises(SearchSpaceError, match="mtp_num_layers trains whole modules"):
        made(adapter="lora", framework="nemo", mtp_num_layers=1)


def test_what_nobody_gave_is_reported() -> None:
    assert made().defaults["mtp_num_layers"] == "1 (published run of Qwen3-Next 80B-A3B)"
    assert "mtp_num_layers" not in made(mtp_num_layers=1).defaults


@pytest.mark.parametrize("count", [-1, 101, 1.5, True, "1"])
def test_a_number_of_modules_that_makes_no_sense_is_refused(count: object) -> None:
    with pytest.raises(SearchSpaceError, match="mtp_num_layers is a whole number from 0 to 100"):
        made(mtp_num_layers=count)
