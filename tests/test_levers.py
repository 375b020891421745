"""Levers: what another answer to one question makes of the cost, against searches of their own."""

from __future__ import annotations

import pytest

import planner
from planner.decide.suggestions.changes import CostLever, _searched_levers, cost_levers
from planner.optimize.exhaustive import exhaustive_search
from planner.question.request import Request
from planner.workloads.make_plan import make_plan

TRAIN = Request(
    model="llama-3.1-70b",
    gpu="h100",
    num_gpus=256,
    total_tokens=1e12,
    framework="megatron-bridge",
    objectives=("cost",),
)
# Sessions that come back to caches that hold a part of their prompts.
SERVE = Request(
    workload="serve", model="llama-3.1-8b", gpu="h100", engine=("vllm",), mode="aggregated",
    request_rate=20.0, input_tokens=6000, output_tokens=200, turns=12, think_time=25.0,
    input_variation=0.0, output_variation=0.0, tuned=True, settings={
        "tensor_parallel": 1, "pipeline_parallel": 1, "quantization": "fp8", "kv_cache": "fp8",
        "max_num_batched_tokens": 8192, "concurrency": [16, 24, 32, 48, 64],
    },
)  # fmt: skip


@pytest.fixture(scope="module")
def of_training() -> dict[tuple[str, str], CostLever]:
    return found(TRAIN)


@pytest.fixture(scope="module")
def of_serving() -> dict[tuple[str, str], CostLever]:
    return found(SERVE)


def found(request: Request) -> dict[tuple[str, str], CostLever]:
    plan = make_plan(request)
    return {
        (one.name, one.other): one for one in cost_levers(plan, exhaustive_search(plan.problem))
    }


def test_a_number_format_that_costs_less_is_told_as_a_search_has_it(
    of_training: dict[tuple[str, str], CostLever],
) -> None:
    own, fp8 = (
        planner.search(base=TRAIN, precision=name).recommended_row for name in ("bf16", "fp8")
    )
    lever = of_training["precision", "fp8"]
    assert lever.current == "bf16"
    assert lever.change == pytest.approx(fp8["cost_usd"] / own["cost_usd"] - 1)
    assert lever.change < -0.1


def test_contracts_are_levers(of_training: dict[tuple[str, str], CostLever]) -> None:
    known = {other for name, other in of_training if name == "contract"}
    assert {"spot", "owned", "reserved-1y"} <= known
    priced = found(Request(**vars(TRAIN) | {"price": 2.0}))
    owned = priced["contract", "owned"]
    assert owned.row["cost_usd"] == of_training["contract", "owned"].row["cost_usd"]


@pytest.mark.slow
def test_the_confidence_is_a_lever_of_what_is_served_at_a_rate(
    of_serving: dict[tuple[str, str], CostLever],
) -> None:
    lever = of_serving["confidence", "0.9"]
    assert lever.change > 0.1
    assert lever.to_dict()["column"] == "cost_per_hour_usd"


def test_levers_come_by_how_much_they_move_and_small_ones_not_at_all(
    of_training: dict[tuple[str, str], CostLever],
) -> None:
    changes = [abs(one.change) for one in of_training.values()]
    assert min(changes) > 0.1
    several = Request(**vars(TRAIN) | {"num_gpus": (128, 256)})
    assert not any(name == "number of GPUs" for name, _ in found(several))


@pytest.mark.slow
def test_caches_of_prefixes_are_levers_that_say_what_they_find(
    of_serving: dict[tuple[str, str], CostLever],
) -> None:
    by_name = {one.name: one for one in of_serving.values()}
    for name in ("router", "host cache"):
        own, other = by_name[name].current, by_name[name].other
        shares = [float(words.split()[-2]) for words in (own, other)]
        assert shares[0] < 30 < shares[1]
        assert by_name[name].change < -0.1


@pytest.mark.parametrize(("engine", "is_lever"), [("vllm", True), ("all", False), (None, False)])
def test_only_an_engine_that_is_named_can_be_left_open(engine: str | None, is_lever: bool) -> None:
    request = Request(
        workload="serve", model="llama-2-7b", gpu="h100", num_gpus=8, engine=engine
    )  # fmt: skip
    levers = [lever[0] for lever in _searched_levers(request, {"engine": "vLLM"})]
    assert levers == [*["engine"] * is_lever, "number of GPUs", "number of GPUs"]
