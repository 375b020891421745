"""Whatever is given to any field ends in an answer or in an error of ours."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from decimal import Decimal
from fractions import Fraction
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from draws import examples
from hypothesis import given, settings
from hypothesis import strategies as st

import planner
from planner.errors import PlannerError
from planner.question.terms import terms_of

PLAIN: dict[str, dict[str, Any]] = {
    "train": {"model": "llama-7b", "num_gpus": 8},
    "inference": {"model": "llama-7b", "num_gpus": 1, "gpu": "h100"},
    "serve": {"model": "llama-7b", "num_gpus": 1, "gpu": "h100"},
}
FIELDS = [field.name for field in dataclasses.fields(planner.Request)]
HOW = ["driver", "trials", "seed", "sampler", "progress", "sink"]
# No slashes: ORG/NAME would be looked for in the network.
WORDS = st.text(st.characters(exclude_characters="/\\"), max_size=20)
ODD = [
    True, False, 0, -1, 1.5, math.nan, math.inf, -math.inf, 10**400, -(10**5000), 1e308, 2j, b"8",
    "", " ", "nan", "inf", "1e999", "-3", "8k", "2M", "40%", "1,5", ",", "6s", "8 GiB", "x" * 5000,
    "\0", "\ud800", "2,048", "٣", "0x10", [], (), {}, set(), range(0), [None], [[]], [[1, 2], [3]],
    {"a": 1}, {1: 2}, {None: None}, object(), object, print, Path("x"), Decimal("NaN"),
    Fraction(1, 3), np.int64(8), np.float32("nan"), np.array([]), np.array([[1]]), np.array("x"),
    range(10**12), ...,
]  # fmt: skip
VALUES = st.one_of(
    st.sampled_from(ODD),
    st.integers(-(10**30), 10**30),
    st.floats(),
    WORDS,
    st.lists(st.one_of(st.integers(-5, 5), WORDS, st.none()), max_size=3),
    st.dictionaries(WORDS, st.integers(), max_size=2),
)


def tried(function: Any, **request: Any) -> None:
    """Call it; an error of ours is an answer, too."""
    with contextlib.suppress(PlannerError):
        function(**request)


@pytest.mark.few(12)
@pytest.mark.parametrize("workload", PLAIN)
@pytest.mark.parametrize("field", FIELDS)
def test_odd_values_of_fields(field, workload):
    for value in ODD:
        tried(planner.estimate, **{"workload": workload, **PLAIN[workload], field: value})


@settings(max_examples=examples(150, 25))
@given(st.sampled_from([*PLAIN]), st.dictionaries(st.sampled_from(FIELDS), VALUES, max_size=3))
def test_any_values_of_fields(workload, request):
    tried(planner.estimate, **{"workload": workload, **PLAIN[workload], **request})


@settings(max_examples=examples(150, 25))
@given(st.data())
def test_any_values_of_parameters_and_limits(data):
    workload = data.draw(st.sampled_from([*PLAIN]))
    parameters = st.one_of(st.sampled_from([*terms_of(workload, "parameter", "pool")]), WORDS)
    limits = st.one_of(st.sampled_from([*terms_of(workload, "limit")]), WORDS)
    tried(
        planner.estimate,
        workload=workload,
        **PLAIN[workload],
        settings=data.draw(st.dictionaries(parameters, VALUES, max_size=2)),
        constraints=data.draw(st.dictionaries(limits, VALUES, max_size=2)),
    )


@pytest.mark.parametrize("name", HOW)
def test_odd_ways_to_search(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    how = {} if name in ("progress", "sink") else {"driver": "optuna", "trials": 1}
    # A study of thousands takes long.
    slow = ("2M", "8k") if name == "trials" else ()
    for value in ODD:
        if not callable(value) and not (isinstance(value, str) and value in slow):
            tried(planner.search, **{**PLAIN["train"], "space": "small", **how, name: value})


def test_endless_lists_end():
    with pytest.raises(PlannerError, match="more than 10,000 values"):
        planner.estimate(model="llama-7b", num_gpus=count(1))
