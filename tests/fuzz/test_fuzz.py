"""Whatever files and commands say, it ends in an answer or in a message of ours."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest
from driver import NAMES, Driver, Input

SEED = int(os.environ.get("PLANNER_SEED", "1"))
ONE = os.environ.get("PLANNER_INPUT", "")
INPUTS = int(os.environ.get("PLANNER_INPUTS", "20000"))
FEW = 49
# Those with seeds that take seconds to make.
_QUICK = ("plan", "result", "launch", "config", "table", "words", "paths")


@pytest.fixture(autouse=True)
def alone(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """No network, and no files of the user's."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
    monkeypatch.setenv("COLUMNS", "80")


def inputs(kinds: tuple[str, ...], number: int) -> list[Input]:
    """So many inputs, of each kind alike."""
    return [Input(SEED, kinds[at % len(kinds)], at // len(kinds)) for at in range(number)]


@pytest.mark.slow
def test_some_inputs_end_in_an_answer_or_a_message(tmp_path: Path) -> None:
    driver = Driver(tmp_path, few=True)
    for one in inputs(_QUICK, FEW):
        assert not (fault := driver.fault(one)), fault


@pytest.mark.drawn
def test_every_input_ends_in_an_answer_or_a_message(tmp_path: Path) -> None:
    """``PLANNER_INPUTS`` says how many, ``PLANNER_INPUT`` KIND:NUMBER that one alone."""
    print(f"PLANNER_SEED={SEED} PLANNER_INPUTS={INPUTS}")
    driver = Driver(tmp_path)
    kind, _, number = ONE.partition(":")
    asked = [Input(SEED, kind, int(number))] if ONE else inputs(NAMES, INPUTS)
    faults = [fault for one in asked if (fault := driver.fault(one))]
    told = Counter(fault.splitlines()[-2] for fault in faults)
    assert not faults, "\n\n".join([*faults[:20], f"{len(faults)} faults: {told}"])
