"""The probability that a plan fits, and that it keeps its limits."""

from __future__ import annotations

import math

import numpy as np
import pytest

import planner
from planner.confidence.intervals import (
    INFERENCE_TABLES,
    TRAINING_TABLES,
    MemoryErrors,
    default_fit_confidence,
    memory_errors,
)
from planner.confidence.profile_rules import read_table
from planner.optimize.problem import limit_probability

TRAIN = {"model": "llama-65b", "num_gpus": 512, "framework": "megatron-lm"}
SERVE = {"workload": "serve", "model": "llama-3.1-8b", "gpu": "h100", "num_gpus": 4}


def test_a_share_is_where_the_chance_is_the_confidence() -> None:
    errors = MemoryErrors(center=0.05, deviation=0.14)
    for confidence in (0.5, 0.66, 0.95):
        predicted = 80.0 * errors.usable_share(confidence)
        assert float(errors.fit_probability(predicted=predicted, usable=80.0)) == pytest.approx(
            confidence
        )
    # Runs need exp(0.05) of what is predicted in the median.
    assert errors.usable_share(0.5) == pytest.approx(math.exp(-0.05))


def test_the_chance_falls_with_the_need_and_may_be_unknown() -> None:
    errors = MemoryErrors(center=0.0, deviation=0.18)
    chances = errors.fit_probability(
        predicted=np.array([1.0, 70.0, 80.0, 90.0, 1e9, np.nan]), usable=80.0
    )
    assert (np.diff(chances[:-1]) < 0).all()
    assert chances[0] == pytest.approx(1.0)
    assert np.isnan(chances[-1])


def test_an_unknown_software_has_the_errors_of_the_wider_kind() -> None:
    for work in ("pretrain", "finetune"):
        dense = memory_errors(TRAINING_TABLES, "", "dense", work=work)
        assert memory_errors(TRAINING_TABLES, "nobody's", "dense", "node", work) == dense
        assert memory_errors(TRAINING_TABLES, "HF Trainer FSDP", "dense", "node", work) != dense
    assert memory_errors(INFERENCE_TABLES, "nobody's", "neither") == memory_errors(
        INFERENCE_TABLES, "", ""
    )


def test_memory_of_work_that_a_software_has_no_runs_of_is_less_sure() -> None:
    """No published run tunes a dense model with Megatron-LM; dozens train one from scratch."""
    trained, tuned = (
        memory_errors(TRAINING_TABLES, "Megatron-LM", "dense", "node", work)
        for work in ("pretrain", "finetune")
    )
    assert tuned.center == trained.center
    assert tuned.deviation > 1.5 * trained.deviation


def test_every_row_of_the_tables_is_a_distribution() -> None:
    for tables in (TRAINING_TABLES, INFERENCE_TABLES):
        rows = read_table(tables.fits)
        assert any(not row["kind"] for row in rows)
        assert all(
            abs(float(row["center"])) < 0.5 < 1 < 1 / float(row["deviation"]) for row in rows
        )
        assert 0.5 < default_fit_confidence(tables) < 0.95


def test_the_confidence_decides_what_fits() -> None:
    """Surer plans are among the less sure ones, and each fits as surely as was asked for."""
    found = {}
    for confidence in (0.5, None, 0.9):
        answer = planner.search(**TRAIN, confidence=confidence)
        frame = answer.to_frame()
        asked = default_fit_confidence(TRAINING_TABLES) if confidence is None else confidence
        assert frame["fit_probability"].min() >= asked - 1e-9
        found[confidence] = answer.configurations_feasible
    assert found[0.5] > found[None] > found[0.9] > 0


@pytest.mark.parametrize("mode", ["aggregated", "disaggregated"])
def test_a_deployment_starts_as_surely_as_asked_for(mode: str) -> None:
    asked = {**SERVE, "model": "llama-3-70b", "mode": mode, "num_gpus": 8}
    for confidence in (None, 0.95):
        frame = planner.search(**asked, confidence=confidence).to_frame()
        surely = default_fit_confidence(INFERENCE_TABLES) if confidence is None else confidence
        assert frame["fit_probability"].min() >= surely - 1e-9


def test_a_layout_too_large_for_a_gpu_surely_does_not_fit() -> None:
    found = planner.estimate(model="llama-3-70b", gpu="h100", num_gpus=8, framework="megatron-lm")
    (row,) = found.to_frame().to_dict("records")
    assert row["fit_probability"] < 0.01
    assert found.rejected_by == "out_of_memory"


def test_limits_are_kept_with_a_probability() -> None:
    predicted = float(np.ravel(planner.search(**TRAIN).recommended.time_to_train)[0])
    chances = []
    for share in (1.001, 1.2, 10.0):
        limits = {"time_to_train": predicted * share}
        answer = planner.search(**TRAIN, constraints=limits)
        (limit,) = answer.plan.problem.constraints
        chances.append(limit_probability(answer.recommended, limit))
    assert 0.4 < chances[0] < chances[1] < chances[2]
    assert chances[2] > 0.99
    assert "likely to keep time to train <= " in " ".join(answer.summary().split())


def test_a_percentile_errs_as_its_mean_does() -> None:
    from planner.optimize.problem import confidence_factor

    (source, *_) = planner.search(**SERVE).plan.problem.sources
    mean = confidence_factor(source, "time_to_first_token", 0.9, 1)
    assert mean is not None
    assert mean > 1
    assert confidence_factor(source, "time_to_first_token_p99", 0.9, 1) == mean
