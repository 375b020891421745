"""Contracts: one answer to what a plan costs under each, with figures by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import planner as planning
from planner.decide.suggestions.changes import contract_levers
from planner.errors import PlannerError, SearchSpaceError
from planner.optimize.exhaustive import exhaustive_search
from planner.question.parse_values import check_price, price_of_contract
from planner.specs.catalogue import Catalogue
from planner.workloads.build_request import make_request
from planner.workloads.make_plan import make_plan
from planner.workloads.saved_plan import SavedPlan
from tests.rows import each

TRAIN = {"model": "llama-7b", "gpu": "h100", "num_gpus": 64, "total_tokens": "100B",
         "framework": "megatron-lm"}  # fmt: skip
RL = {
    "workload": "rl", "model": "qwen3-8b", "gpu": "h100", "num_gpus": 16, "prompts_per_step": 64,
    "samples_per_prompt": 16, "output_tokens": 1000, "framework": "verl", "max_steps": 100,
}  # fmt: skip
SERVE = {
    "workload": "serve", "model": "llama-3.1-8b", "gpu": "h100", "engine": "vllm",
    "mode": "aggregated", "request_rate": 20, "input_tokens": 1000, "output_tokens": 300,
}  # fmt: skip
COSTS = {"train": "cost_usd", "rl": "cost_usd", "serve": "cost_per_hour_usd"}
YEAR = 365 * 24


def owned_hour(purchase_price: float = 35_625.0) -> float:
    """USD of an owned H100 for each hour, with work or not, from the figures of ownership.csv.

    With its network 35,625 / (1 - 0.24) = 46,875 USD. A loan at 10 % over 5 years, after which it
    is sold for 0.3^(5/3) = 13.4 %, takes 46,875 x 0.2638 x 0.9165 = 11,333 USD a year: 1.294 USD/h.
    Operations are 10 % of that, the room 1.275 kW at 195.94 USD a month: 0.342 USD/h.
    Electricity is 1.275 kW x 0.76 x PUE at 0.0977 USD/kWh.
    """
    discount = 1.1**-5
    capital = purchase_price / 0.76 * 0.1 / (1 - discount) * (1 - 0.3 ** (5 / 3) * discount) / YEAR
    pue = Catalogue().load_power().spec.pue.value
    return 1.1 * capital + 1.275 * 195.94 * 12 / YEAR + 1.275 * 0.76 * pue * 0.0977


def best(asked: dict[str, Any], **more: Any) -> dict[str, Any]:
    """The recommended plan, with what was asked."""
    frame = planning.search(**asked, **more).to_frame()
    found: dict[str, Any] = frame.iloc[0].to_dict()
    return found


def test_an_owned_hour_by_hand() -> None:
    row = best(SERVE, contract="owned")
    assert row["price_per_gpu_hour_usd"] == pytest.approx(owned_hour(), rel=1e-3)
    assert owned_hour() == pytest.approx(1.88, abs=0.01)


@pytest.mark.parametrize(
    ("share", "factor"), [(None, 1.0), (1.0, 1.0), (0.5, 2.0), (0.85, 1 / 0.85)]
)
def test_a_service_on_owned_gpus_pays_their_hours_once(share: float | None, factor: float) -> None:
    """It runs the term, so that all hours have work; with a stated share each pays for idle ones.

    H100 are bought in nodes of 8: a plan of one GPU pays for 8.
    """
    row = best(SERVE, contract="owned", term_utilization=share)
    nodes = math.ceil(row["num_gpus"] / 8)
    assert row["cost_per_hour_usd"] == pytest.approx(8 * nodes * owned_hour() * factor, rel=1e-3)


@pytest.mark.parametrize("asked", [TRAIN, RL], ids=["train", "rl"])
def test_a_run_is_charged_the_term_that_is_signed(asked: dict[str, Any]) -> None:
    """n GPUs for a year at 6.50 USD, or for the 5 years that owned ones last."""
    gpus = asked["num_gpus"]
    reserved = best(asked, contract="reserved-1y")
    price = reserved["price_per_gpu_hour_usd"]
    assert reserved["cost_usd"] == pytest.approx(gpus * YEAR * price)
    assert reserved["signed_gpu_hours"] == gpus * YEAR
    owned = best(asked, contract="owned")
    assert owned["cost_usd"] == pytest.approx(gpus * 5 * YEAR * owned_hour(), rel=1e-3)
    # With work for half of the hours it pays for two hours each.
    part = best(asked, contract="owned", term_utilization=0.5)
    assert part["cost_usd"] == pytest.approx(
        part["campaign_gpu_hours"] * 2 * owned_hour(), rel=1e-3
    )
    unused = gpus * 5 * YEAR - part["campaign_gpu_hours"]
    assert part["unused_gpu_hours"] == pytest.approx(unused)
    plain = best(asked)
    hours = plain["campaign_gpu_hours"] * plain["price_per_gpu_hour_usd"]
    assert plain["cost_usd"] == pytest.approx(hours)


@pytest.mark.few(1)
@pytest.mark.parametrize("asked", [TRAIN, RL, SERVE], ids=["train", "rl", "serve"])
def test_what_a_contract_changes_is_the_same_everywhere(asked: dict[str, Any]) -> None:
    """The lever of a search, the sensitivity of the plan and the plan under the contract."""
    workload = str(asked.get("workload", "train"))
    plan = make_plan(make_request(asked))
    result = exhaustive_search(plan.problem)
    assert result.recommended is not None
    own = SavedPlan.of(plan, result.recommended.row).request()
    found = contract_levers(plan, result.recommended_row, COSTS[workload])
    moved = {one.other: one for one in found}
    explained = planning.explain(base=own)
    (sensitivity,) = (one for one in explained.sensitivities if one.name == "contract")
    assert "owned" in moved
    for contract, lever in moved.items():
        outcome = sensitivity.outcomes[f"contract {contract}"].row
        estimated = planning.estimate(base=own, contract=contract).to_frame().iloc[0]
        column = lever.column
        assert column == COSTS[workload]
        assert lever.row[column] == pytest.approx(estimated[column])
        assert outcome is not None
        assert outcome[column] == pytest.approx(estimated[column])
        assert lever.change == pytest.approx(estimated[column] / explained.row[column] - 1)


@pytest.mark.few(1)
@pytest.mark.parametrize("asked", [TRAIN, RL, SERVE], ids=["train", "rl", "serve"])
def test_a_search_compares_contracts_by_cost(asked: dict[str, Any]) -> None:
    """Of each contract the plan is the one that a search under it alone finds, the best first."""
    column = COSTS[str(asked.get("workload", "train"))]
    goal = ("cost" if column == "cost_usd" else "cost_per_hour",)
    several = ("on-demand", "reserved-1y", "owned")
    result = planning.search(**asked, contract=several)
    alone = {one: best(asked, contract=one, objectives=goal)[column] for one in several}
    found = result.comparisons["contract"]
    compared = dict(zip(found.table["contract"], found.table[column], strict=True))
    assert compared == pytest.approx(alone, rel=0.05)  # plans within a tie may differ
    frame = result.to_frame()
    assert result.recommended_row["contract"] == min(alone, key=alone.__getitem__)
    assert frame["contract"].iloc[0] == result.recommended_row["contract"]


@pytest.mark.parametrize("asked", [TRAIN, RL, SERVE], ids=["train", "rl", "serve"])
def test_rows_of_all_contracts_have_the_same_columns(asked: dict[str, Any]) -> None:
    """What is signed is empty where nothing is: no cell moves to another column."""
    several = ("on-demand", "owned")
    frame = planning.search(**asked, contract=several).comparisons["contract"].table
    outlay = dict(zip(frame["contract"], frame["outlay_usd"], strict=True))
    assert math.isnan(outlay["on-demand"])
    assert outlay["owned"] > 0
    plan = make_plan(make_request({**asked, "contract": several}))
    first = (next(iter(source.mesh.blocks())) for source in plan.problem.sources)
    judged = (
        source.judged(block.rows(np.arange(1)))
        for source, block in zip(plan.problem.sources, first, strict=True)
    )
    assert len({tuple(one.columns()) for one in judged}) == 1


def test_contracts_of_which_nobody_sells_a_gpu_are_left_out() -> None:
    result = planning.search(
        **{**TRAIN, "gpu": "h800-sxm-80gb"}, contract=("on-demand", "owned"), price=2
    )
    assert set(result.comparisons.get("contract", result).table["contract"]) == {"on-demand"}
    with pytest.raises(PlannerError, match="no spot price is known"):
        planning.search(**{**TRAIN, "gpu": "h800-sxm-80gb"}, contract=("spot", "owned"))


@pytest.mark.slow
def test_a_price_is_of_the_rented_contract_alone() -> None:
    """At 2 USD an hour on demand, 64 GPUs; those that are owned cost what they did."""
    several = ("on-demand", "owned")
    sized = planning.size(
        model="llama-7b", gpu="h100", framework="megatron-lm", total_tokens="100B", price=2,
        constraints={"time_to_train": "30d"}, contract=several,
    )  # fmt: skip
    rows = {str(row["contract"]): row for row in sized.rows}
    on_demand = rows["on-demand"]
    assert on_demand["cost_usd"] == pytest.approx(2 * on_demand["campaign_gpu_hours"])
    gpus = rows["owned"]["num_gpus"]
    assert rows["owned"]["cost_usd"] == pytest.approx(gpus * 5 * YEAR * owned_hour(), rel=1e-3)
    row = best(SERVE, contract="owned", purchase_price="h100=71250")
    assert row["price_per_gpu_hour_usd"] == pytest.approx(owned_hour(71_250), rel=1e-3)
    assert best(SERVE, purchase_price=1)["cost_per_hour_usd"] == best(SERVE)["cost_per_hour_usd"]


@each(
    "price, contracts, found",
    [
        (2.5, ("spot",), 2.5),
        (2.5, ("on-demand", "owned"), "on-demand=2.5"),
        ("h100=2,b200=4", ("owned", "spot"), "h100:spot=2,b200:spot=4"),
        ("spot=1.2,on-demand=2", ("spot", "on-demand"), "spot=1.2,on-demand=2"),
        ("spot=1", ("spot",), "spot=1"),
        (None, ("spot", "owned"), None),
    ],
)
def test_a_price_names_the_contract_that_it_is_of(
    price: Any, contracts: tuple[str, ...], found: Any
) -> None:
    assert check_price(price, contracts, "price", "purchase_price") == found


@each(
    "price, contracts, words",
    [
        (2.5, ("owned",), "give purchase_price for owned GPUs"),
        ("owned=2", ("owned", "spot"), "give purchase_price for owned GPUs"),
        (2.5, ("spot", "on-demand"), "name the contract that it is of, such as spot=2.5"),
        ("h100=2", ("spot", "on-demand"), "such as h100:spot=2"),
        ("spot=2", ("on-demand",), "names spot, which is not among the contracts: on-demand"),
    ],
)
def test_a_price_of_no_or_several_contracts_is_refused(
    price: Any, contracts: tuple[str, ...], words: str
) -> None:
    with pytest.raises(SearchSpaceError, match=words):
        make_request({**TRAIN, "contract": contracts, "price": price})


def test_a_price_of_a_contract() -> None:
    price = "h100=2,spot=1,b200:spot=3,on-demand=4"
    assert price_of_contract(price, "spot") == "h100=2,spot=1,b200:spot=3"
    assert price_of_contract(price, "reserved-1y") == "h100=2"
    assert price_of_contract("spot=1", "on-demand") is None
    assert price_of_contract(2.0, "spot") == 2.0
    assert check_price(None, ("owned",), "price", "purchase_price") is None
    with pytest.raises(SearchSpaceError, match="give purchase_price for owned GPUs"):
        make_request({**TRAIN, "contract": "owned", "price": 2})
    # One that a plan has stays that of its contract.
    base = make_request({**TRAIN, "price": 2})
    assert make_request({"contract": "owned"}, base=base).price is None
    assert make_request({"contract": ("on-demand", "owned")}, base=base).price == "on-demand=2"
    assert make_request({"num_gpus": 8}, base=base).price == 2
