"""Layouts that vendors tuned: accepted, said to fit, recommended or a tie of what is."""

from __future__ import annotations

from pathlib import Path

import pytest
from make_recipes import (
    FILE,
    MUCH,
    Compared,
    compared,
    layout_of,
    page,
    question_of,
    reason_of,
    reasons,
    recipes,
)

from planner import Request
from planner.configurations.enumerate import coded_values
from planner.workloads.make_plan import make_plan

# What was reached: more is welcome, less is a step back.
ACCEPTED = 103
FITTING = 100
RECOMMENDED = 30
TIED = 93
NEAR = 84


@pytest.fixture(scope="module")
def found() -> list[Compared]:
    return compared()


def test_default_spaces_contain_their_values() -> None:
    """With the precision named, without layers that one recipe repeats and scales in 8 bit."""
    for recipe in recipes():
        layout = layout_of(recipe)
        del layout["recompute_num_layers"]
        layout.pop("fp8_recipe", None)
        asked = Request(**question_of(recipe), precision=layout["precision"])
        (source,) = make_plan(asked).problem.sources
        for name, value in layout.items():
            (code,) = coded_values(name, [value])
            assert code in source.mesh.values(name), (recipe["recipe"], name, value)


@pytest.mark.slow
def test_the_rules_accept_vendors_layouts(found: list[Compared]) -> None:
    """The others need more GPUs than the recipe names."""
    refused = {one.name: one.broken for one in found if not one.is_possible}
    assert set(refused.values()) == {"expert_parallel"}, refused
    assert len(found) - len(refused) >= ACCEPTED


@pytest.mark.slow
def test_vendors_layouts_are_said_to_fit(found: list[Compared]) -> None:
    assert sum(not one.broken for one in found) >= FITTING


@pytest.mark.slow
def test_what_is_recommended_is_their_layout_or_a_tie_of_it(found: list[Compared]) -> None:
    same, tied = (sum(getattr(one, name) for one in found) for name in ("is_same", "is_tied"))
    near = sum(abs(one.gain) <= MUCH for one in found)
    others = [f"{one.name} {one.gain:+.1%}" for one in found if not abs(one.gain) <= MUCH]
    told = f"of {len(found)}: {same} the same, {tied} tied, {near} within {MUCH:.0%}; {others}"
    print(told)
    assert (same >= RECOMMENDED, tied >= TIED, near >= NEAR) == (True, True, True), told


def test_every_claim_and_every_refusal_has_one_reason(found: list[Compared]) -> None:
    for one in found:
        if one.gain > MUCH or one.broken:
            assert len(reason_of(one)) == 1, (one.name, one.broken, one.gain)
    numbers = {number for one in found for number in reason_of(one)}
    assert numbers == set(range(1, len({reason for _, reason in reasons()}) + 1))


def test_the_page_is_made_by_its_script(found: list[Compared]) -> None:
    assert Path(FILE).read_text(encoding="utf-8") == page(found), "run scripts/make_recipes.py"
