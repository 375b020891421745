"""Steps of reinforcement learning of a user fit the few numbers of a framework's rollouts."""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import planner
from planner.__main__ import run
from planner.confidence.rl import FittedSteps, rl_confidence
from planner.errors import CalibrationError
from planner.specs.catalogue import Catalogue
from planner.validation import rl
from planner.validation.calibration import (
    CALIBRATED,
    Parameter,
    chosen_parameters,
    measured_runs,
    rollout_parameters,
    with_rollout_values,
)
from planner.validation.fit_parameters import Fit, fit
from planner.validation.fitted_profile import profile_text
from planner.validation.rl import predict_rl_group, rl_case, tuned
from planner.validation.run_tables import RL, Run, Runs, TableKind
from planner.validation.spec_library import Library

_TRUE = {"decode_factor": 1.9, "step_overhead": 8.0}
_OFF = (0.98, 1.02, 1.0)
"""Steps as they are measured: some per cent off what a formula says."""
_WORK = ((64, 4096), (16, 128), (8, 64))


@pytest.fixture(scope="module")
def rows() -> list[dict[str, str]]:
    """Steps of 8 GPUs as a framework with other numbers would take them."""
    runs, library = _runs([_cells(*one) for one in _WORK]), Library()
    cases = [rl_case(run, library) for run in runs.rows]
    true = {Parameter(owner="rollouts", name=n, shipped=1.0): v for n, v in _TRUE.items()}
    found = predict_rl_group(with_rollout_values(cases, true))
    return [
        {**_cells(*work), "measured_step_time_s": str(one.values["step_time_s"] * off)}
        for work, one, off in zip(_WORK, found, _OFF, strict=True)
    ]


def _cells(prompts: int, tokens: int) -> dict[str, str]:
    return {
        "id": f"{prompts}-{tokens}",
        "source": "own",
        "framework": "verl",
        "algorithm": "dapo",
        "placement": "colocated",
        "model": "qwen2.5-1.5b",
        "gpu": "h100-sxm-80gb",
        "num_gpus": "8",
        "rollout_tensor_parallel": "1",
        "tensor_parallel": "1",
        "prompts_per_step": str(prompts),
        "samples_per_prompt": "8",
        "output_tokens": str(tokens),
        "measured_step_time_s": "",
    }


def _runs(rows: list[dict[str, str]]) -> Runs:
    own = tuple(Run(line=line, cells=cells) for line, cells in enumerate(rows, start=2))
    return Runs(columns=tuple(RL.columns), rows=own)


def _fit(rows: list[dict[str, str]]) -> Fit:
    stem, measured = measured_runs(_runs(rows), Library(), "verl")
    profile = CALIBRATED[TableKind.RL].load(Library(), stem)
    every = rollout_parameters(profile)
    wanted = [f"rollouts.{name}" for name in _TRUE]
    return fit(measured, chosen_parameters(every, stem, wanted))


def _values(found: Fit) -> dict[str, float]:
    return {one.name: value for one, value in found.values.items()}


@pytest.fixture(scope="module")
def found(rows: list[dict[str, str]]) -> Fit:
    return _fit(rows)


@pytest.mark.slow
def test_made_up_numbers_are_found(found: Fit) -> None:
    """Of three steps within two per cent; long answers tell the engine, short ones the rest."""
    values = _values(found)
    assert values["decode_factor"] == pytest.approx(_TRUE["decode_factor"], rel=0.1)
    assert values["step_overhead"] == pytest.approx(_TRUE["step_overhead"], rel=0.25)
    assert found.time is not None
    assert found.time.before > 0.25
    assert found.time.left_out < 0.1


def test_nothing_moves_where_the_steps_are_as_predicted(rows: list[dict[str, str]]) -> None:
    runs, library = _runs([_cells(*one) for one in _WORK[1:]]), Library()
    cases = [rl_case(run, library) for run in runs.rows]
    same = [
        {**cells, "measured_step_time_s": str(one.values["step_time_s"])}
        for cells, one in zip(
            (_cells(*work) for work in _WORK[1:]), predict_rl_group(cases), strict=True
        )
    ]
    shipped = Library().framework("verl").rollouts
    assert shipped is not None
    for name, value in _values(_fit(same)).items():
        assert value == pytest.approx(getattr(shipped, name), rel=0.01, abs=0.01)


def test_an_interval_narrows_with_steps() -> None:
    published = rl_confidence("verl", "h100-sxm-80gb", "hopper", "dense").factors["step_time"]
    widths = [
        math.log(high / low)
        for low, high in (
            published,
            *(
                FittedSteps(runs=n, error=0.08).blend_with_published(published)
                for n in (1, 5, 20, 100)
            ),
        )
    ]
    assert widths == sorted(widths, reverse=True)
    assert widths[2] < 0.75 * widths[0]
    # What is left of many steps is their own spread: 90 % lie within 1.645 of it.
    assert widths[4] == pytest.approx(2 * 1.645 * 0.08, rel=0.3)


def test_steps_that_are_predicted_badly_widen_it() -> None:
    published = (0.7, 1.6)
    low, high = FittedSteps(runs=10, error=0.5).blend_with_published(published)
    assert high / low > published[1] / published[0]


@pytest.mark.slow
def test_a_profile_says_how_sure_it_is(found: Fit, tmp_path: Path) -> None:
    """On the GPU of its steps alone."""
    assert found.spread is not None
    shipped = Catalogue().find(CALIBRATED[TableKind.RL].profiles, "verl")
    file = tmp_path / "mine.toml"
    file.write_text(profile_text(shipped, found, "fitted", ["h100-sxm-80gb"]))
    rollouts = Catalogue().load_framework(str(file)).spec.rollouts
    assert rollouts is not None
    assert (rollouts.calibration_runs, rollouts.calibration_gpus) == (3, ("h100-sxm-80gb",))
    assert rollouts.calibration_error == pytest.approx(found.spread, rel=0.01)
    assert rollouts.decode_factor == pytest.approx(_values(found)["decode_factor"], rel=1e-3)
    asked = {
        "workload": "rl", "model": "qwen2.5-1.5b", "num_gpus": 8, "prompts_per_step": 64,
        "samples_per_prompt": 8, "output_tokens": 1024,
        "settings": {"placement": "colocated"},
    }  # fmt: skip
    said = {}
    for gpu in ("h100-sxm-80gb", "h200-sxm-141gb"):
        for profile in ("verl", str(file)):
            sure = planner.estimate(**asked, gpu=gpu, framework=profile).source.confidence(8)
            low, high = sure.factors["step_time"]
            said[gpu, profile == "verl"] = high / low, sure.basis
    assert said["h100-sxm-80gb", False][0] < said["h100-sxm-80gb", True][0]
    assert "3 of them your own" in said["h100-sxm-80gb", False][1]
    assert "own" not in said["h200-sxm-141gb", False][1]


@pytest.mark.slow
def test_the_command_fits_a_table(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    rows: list[dict[str, str]],
    tmp_path: Path,
) -> None:
    table, profile = tmp_path / "mine.csv", tmp_path / "mine.toml"
    with table.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows[:2])
    monkeypatch.setenv("COLUMNS", "120")
    words = ("--output", str(profile), "--parameter", "rollouts.decode_factor")
    assert run(["calibrate", str(table), *words]) == 0
    out = capsys.readouterr().out
    assert "--framework" in out
    assert "rollouts.decode_factor" in out
    assert "calibration_runs = 2" in profile.read_text()


def test_a_framework_that_generates_nothing_has_no_such_numbers() -> None:
    assert not [*rollout_parameters(Library().framework("megatron-lm"))]
    with pytest.raises(CalibrationError, match="Unknown parameter"):
        chosen_parameters(
            rollout_parameters(Library().framework("verl")), "verl", ["rollouts.speed"]
        )


class _Layouts:
    def __init__(self, numbers: Any) -> None:
        self.numbers = np.asarray(numbers)
        self.shape = self.numbers.shape

    def rows(self, places: Any) -> _Layouts:
        return _Layouts(self.numbers[places])


@dataclass
class _Case:
    configurations: _Layouts
    inputs: Any
    gpu: Any


@pytest.mark.parametrize(
    ("seconds", "peaks", "chosen"),
    [
        ((0.9, 0.4, 30.0), (70, 70, 70), [1]),  # steps of less than a second, too
        ((0.9, 0.4, 30.0), (70, 90, 70), [0]),
        ((0.9, 0.4, 30.0), (90, 90, 90), [1]),
        ((0.0, np.nan, 30.0), (70, 70, 70), [2]),
        ((0.0, np.nan, np.inf), (70, 70, 70), [0, 1, 2]),
    ],
)
def test_a_tuned_run_has_the_fastest_layout_that_fits(
    monkeypatch: pytest.MonkeyPatch, seconds: Any, peaks: Any, chosen: list[int]
) -> None:
    fits = SimpleNamespace(fits=np.array([True]))
    step = SimpleNamespace(total=np.array(seconds), peak_memory=np.array(peaks), rollout=fits)
    monkeypatch.setattr(rl, "evaluate_rl", lambda *_: step)
    case: Any = _Case(_Layouts([0, 1, 2]), None, SimpleNamespace(allocatable_memory=80.0))
    assert list(tuned(case).configurations.numbers) == chosen
