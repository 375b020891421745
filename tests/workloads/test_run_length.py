"""How long a run is: tokens, steps, or samples and epochs; and what is told where nobody says."""

import math
from pathlib import Path
from typing import Any

import pytest

import planner
from planner.errors import SpecError
from planner.launch.read.read_launch import read_launch
from planner.optimize.source import first_row
from planner.show.presenters.search import estimate_command
from planner.workloads.build_request import make_request
from planner.workloads.make_plan import evaluate, make_single_plan
from planner.workloads.saved_plan import SavedPlan


def row(**request: Any) -> dict[str, Any]:
    asked = {
        "model": "llama-3.1-8b",
        "gpu": "h100",
        "num_gpus": 8,
        "framework": "deepspeed",
        "training_objective": "sft",
        "sequence_length": 2048,
        "global_batch_size": 32,
        "settings": {"zero_stage": 3, "recompute": "full"},
        **request,
    }
    plan = make_single_plan(make_request(asked))
    tokens = plan.problem.inputs.workload.total_tokens
    told = {"total_tokens": tokens, "assumed": plan.defaults.get("total_tokens", "")}
    return {**first_row(evaluate(plan).table()), **told}


def test_samples_and_epochs_say_the_tokens() -> None:
    """3 x 1,000 samples that fill 2,048 tokens: 6.144 million, 93.75 steps of 65,536."""
    found = row(num_samples=1000, epochs=3)
    assert found["total_tokens"] == 3 * 1000 * 2048
    assert found["time_to_train_days"] * 86400 == pytest.approx(94 * found["step_time_s"])
    assert "assuming that each fills its sequence" in found["assumed"]


def test_packed_samples_have_their_mean_length() -> None:
    assert row(num_samples=1000, mean_sample_length=500)["total_tokens"] == 500_000


def test_pairs_have_both_sequences() -> None:
    assert row(num_samples=1000, training_objective="dpo")["total_tokens"] == 2 * 1000 * 2048


@pytest.mark.parametrize("padding", ["packed", "longest"])
def test_steps_take_as_many_steps(padding) -> None:
    mean = {} if padding == "packed" else {"mean_sample_length": 600}
    found = row(max_steps=1000, padding=padding, **mean)
    assert found["time_to_train_days"] * 86400 == pytest.approx(1000 * found["step_time_s"])


def test_fine_tuning_is_not_priced_as_pre_training() -> None:
    """A billion tokens where nobody says how many: never the 15 trillion of Llama 3.1."""
    assert row(training_objective="pretrain")["total_tokens"] > 1e13
    found = row()
    assert found["total_tokens"] == 1e9
    assert "assumed for time and cost" in found["assumed"]
    per_million = found["cost_usd"] / 1000
    assert found["cost_per_million_trained_tokens_usd"] == pytest.approx(per_million)


def test_the_cost_of_a_million_tokens_is_that_of_their_gpu_time() -> None:
    """8 GPUs at 2 USD an hour; without interruptions 16 USD over the tokens of an hour."""
    found = row(price=2.0, reliability="ideal")
    per_million = 16 / 3600 / found["tokens_per_s"] * 1e6
    assert found["cost_per_million_trained_tokens_usd"] == pytest.approx(per_million, rel=1e-3)


def test_a_run_has_one_length() -> None:
    with pytest.raises(SpecError, match="--tokens and --steps"):
        row(total_tokens=1e9, max_steps=100)
    with pytest.raises(SpecError, match="epochs is a number above 0"):
        row(num_samples=100, epochs=0)
    with pytest.raises(SpecError, match=r"no run has 1e\+18"):
        row(num_samples=100, epochs=1e16)
    with pytest.raises(SpecError, match="total_tokens"):
        row(total_tokens=-1.0)


def test_a_length_takes_the_place_of_that_of_a_plan() -> None:
    base = make_request({"model": "llama-7b", "num_gpus": 8, "num_samples": 100, "epochs": 2})
    changed = make_request({"total_tokens": 1e9}, base=base)
    assert (changed.total_tokens, changed.num_samples) == (1e9, None)


def test_a_plan_keeps_its_samples() -> None:
    asked = {"model": "llama-7b", "gpu": "h100", "num_gpus": 8, "adapter": "lora"}
    result = planner.search(**asked, num_samples=1000, epochs=2, mean_sample_length=300)
    assert result.recommended is not None
    best = result.recommended.row
    plan = make_single_plan(SavedPlan.of(result.plan, best).request())
    assert plan.problem.inputs.workload.total_tokens == 600_000
    assert first_row(evaluate(plan).table())["cost_usd"] == best["cost_usd"]


_FACTORY = "model_name_or_path: Qwen/Qwen2.5-7B\ncutoff_len: 2048\nper_device_train_batch_size: 1\n"


def read(folder: Path, text: str) -> dict[str, Any]:
    (folder / "lf.yaml").write_text(_FACTORY + text)
    return dict(read_launch(folder / "lf.yaml").values)


def test_files_say_samples_of_each_data_set_and_epochs(tmp_path: Path) -> None:
    told = read(tmp_path, "stage: sft\ndataset: one,two\nmax_samples: 500\nnum_train_epochs: 2.0\n")
    assert (told["num_samples"], told["epochs"]) == (1000, 2.0)
    usual = read(tmp_path, "stage: sft\nmax_samples: 500\n")
    assert (usual["num_samples"], usual["epochs"]) == (500, 3)


def test_continued_pre_training_is_not_that_of_the_model(tmp_path: Path) -> None:
    assert read(tmp_path, "stage: pt\nnum_train_epochs: 1\n")["total_tokens"] == 1e9


def test_steps_are_rounded_up() -> None:
    found = row(num_samples=1, epochs=0.5)
    assert math.isclose(found["time_to_train_days"] * 86400, found["step_time_s"])


def test_all_weights_beside_adapters_are_fine_tuned() -> None:
    """Both train the same tokens in the same batch, so that their costs compare."""
    asked = {"model": "llama-3.1-8b", "gpu": "h100", "num_gpus": 8, "sequence_length": 2048}
    result = planner.search(**asked, adapter=["none", "lora"], framework="nemo")
    works = [source.inputs.workload for source in result.problem.sources]
    assert {(work.total_tokens, work.global_batch_size) for work in works} == {(1e9, 128)}
    table = result.comparisons["adapter"].table
    at = table["adapter"].index("none")
    whole = {name: values[at] for name, values in table.items()}
    assert "--training-objective sft" in estimate_command(result.plan, whole)
