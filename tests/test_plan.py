"""From a request to a problem: the defaults that are filled in."""

from __future__ import annotations

import pytest

import planner
from planner.errors import SearchSpaceError, SpecError
from planner.question.request import Request
from planner.specs.catalogue import names
from planner.workloads.make_plan import make_plan


def _workload(model: str) -> tuple[int, int]:
    workload = make_plan(Request(model=model, num_gpus=8)).problem.inputs.workload
    return workload.sequence_length, workload.global_batch_size


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        pytest.param("llama-65b", (2048, 2048), id="4M tokens of arXiv:2302.13971"),
        pytest.param("deepseek-v3", (4096, 15360), id="whole sequences of arXiv:2412.19437"),
        pytest.param("opt-6.7b", (2048, 1024), id="2M tokens of arXiv:2205.01068, rounded"),
        pytest.param("qwen-7b", (2048, 2048), id="4M tokens of arXiv:2309.16609, rounded"),
        pytest.param("megatron-2020-1b", (1024, 4096), id="no longer than its positions"),
    ],
)
def test_published_batches_become_sequences(model: str, expected: tuple[int, int]) -> None:
    assert _workload(model) == expected


@pytest.mark.few(60)
@pytest.mark.parametrize("model", names("models"))
def test_every_model_has_defaults_that_many_layouts_divide(model: str) -> None:
    _, batch = _workload(model)
    assert batch % 8 == 0


def test_a_sequence_longer_than_learned_positions_is_refused() -> None:
    with pytest.raises(SpecError, match=r"positions for 2,048 tokens, not 4,096"):
        make_plan(Request(model="opt-6.7b", num_gpus=8, sequence_length=4096))


def test_defaults_say_where_they_come_from() -> None:
    plan = make_plan(Request(model="gpt-neox-20b", num_gpus=8))
    assert plan.defaults["gpu"] == "a100-sxm-80gb (default)"
    assert plan.defaults["global_batch_size"] == "1,536 sequences (published run of GPT-NeoX 20B)"
    assert plan.defaults["total_tokens"].endswith("(20 per parameter, arXiv:2203.15556)")


@pytest.mark.parametrize("count", [0, -8, 2.5, True, 10**8])
def test_an_absurd_number_of_gpus_is_refused(count: object) -> None:
    with pytest.raises(SearchSpaceError, match=r"^num_gpus"):
        planner.search(model="llama-7b", num_gpus=count)


@pytest.mark.parametrize(
    ("adapter", "space", "framework"),
    [("None", "pretrain_dense", "Megatron-LM"), ("QLoRA", "fine_tune", "HF Trainer")],
)
def test_words_of_adapters_are_read_in_any_case(adapter, space, framework):
    plan = make_plan(Request(model="llama-7b", num_gpus=8, adapter=adapter))
    assert plan.space.name == space
    assert plan.problem.inputs.framework.name == framework


def test_the_frameworks_of_adapters_report_their_rank():
    plan = make_plan(
        Request(model="llama-7b", num_gpus=1, adapter="lora", lora_targets="query-value")
    )
    assert plan.defaults["lora_rank"] == "16 (default)"
    assert "lora_targets" not in plan.defaults
    assert plan.problem.inputs.workload.lora_targets == "query_value"


def test_adapters_are_named_in_any_case() -> None:
    plain, shouted = (
        make_plan(Request(model="llama-7b", num_gpus=8, adapter=word)) for word in ("none", "NONE")
    )
    assert plain.defaults == shouted.defaults


@pytest.mark.parametrize(
    ("model", "num_gpus", "batch"),
    [
        ("llama-3.1-70b", 100, 500),
        ("llama-65b", 1000, 2000),
        ("llama-65b", 2048, 2048),
        ("llama-65b", (24, 64), 2048),
        ("llama-65b", 1023, 2048),
    ],
)
def test_a_batch_that_nobody_gave_is_one_that_the_gpus_can_share(model, num_gpus, batch):
    plan = make_plan(Request(model=model, num_gpus=num_gpus))
    assert plan.problem.inputs.workload.global_batch_size == batch
    given = make_plan(Request(model=model, num_gpus=num_gpus, global_batch_size=512))
    assert given.problem.inputs.workload.global_batch_size == 512
