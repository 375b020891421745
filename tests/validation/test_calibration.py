"""Fits of made-up measurements: what is found again, refused, and written."""

import math
import tomllib
from dataclasses import fields, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from sample_runs import row, runs_of

from planner.base.units import GIB
from planner.errors import CalibrationError
from planner.show.presenters.validation import _error_pairs
from planner.specs.catalogue import find
from planner.specs.framework import Execution
from planner.specs.software_profile import load_framework
from planner.validation import fit_parameters as fitting
from planner.validation.calibration import (
    CALIBRATED,
    chosen_parameters,
    log_ratios,
    measured_runs,
    parameters_of,
    with_values,
)
from planner.validation.fit_parameters import FitErrors, fit, number_of_fits
from planner.validation.fitted_profile import profile_text, unit_of
from planner.validation.training.cases import predict_training_group

ROWS = [
    {"micro_batch_size": size, "recompute": recompute}
    for size in ("1", "4", "16")
    for recompute in ("none", "full")
]
MOST_PREDICTIONS = 175
WITH_TIME = {"measured_step_time_s": "1"}
WITH_MEMORY = {"measured_peak_memory_gib": "1"}


def measured(library, names, **changes):
    """Rows as they would be measured under other values of parameters."""
    quantities = WITH_TIME | WITH_MEMORY
    _, rows = measured_runs(runs_of(*(row(**cells, **quantities) for cells in ROWS)), library, None)
    values = dict(zip(names, changes.values(), strict=True))
    return [_under(found, values) for found in rows]


def _under(found, values):
    (prediction,) = predict_training_group(with_values([found.case], values))
    return replace(found, value=prediction.values[found.quantity])


def parameters(library, *names):
    profile = library.framework("megatron-lm")
    return chosen_parameters(parameters_of(profile), profile.name, names)


@pytest.fixture(scope="module")
def fitted(library):
    """What is found of rows whose memory and time are those of other values."""
    names = parameters(
        library, "memory.reserved", "memory.kept_activations", "execution.elementwise_passes"
    )
    values = {"reserved": 5 * GIB, "kept_activations": 1.5, "elementwise_passes": 3.0}
    return fit(measured(library, names, **values), names)


def test_measured_numbers_can_be_fitted_and_facts_cannot(library):
    profile = library.framework("megatron-lm")
    every = chosen_parameters(parameters_of(profile), profile.name, None)
    found = {parameter.name for parameter in every}
    assert {"layer_launch_time", "softmax_passes", "interference", "reserved"} <= found
    assert not found & {"softmax_multiple", "attention_kernels", "fused_projections"}


def test_every_time_of_a_framework_has_its_unit():
    endings = ("_time", "_overhead")
    times = [one.name for one in fields(Execution) if one.name.endswith(endings)]
    assert len(times) == 10
    assert all(unit_of(name)[0] in ("us", "ms") for name in times)


@pytest.mark.slow
def test_memory_and_time_are_fitted_together(fitted):
    assert list(fitted.values.values()) == pytest.approx([5 * GIB, 1.5, 3.0], rel=0.05)
    for errors in (fitted.time, fitted.memory):
        assert errors.measurements == len(ROWS)
        assert errors.after < errors.before / 3
        assert errors.left_out < errors.before / 2


def test_rows_without_memory_tell_nothing_of_it(library):
    names = parameters(library, "memory.reserved", "execution.elementwise_passes")
    rows = measured(library, names, reserved=5 * GIB, elementwise_passes=3.0)
    times = [found for found in rows if not found.is_of_memory]
    found = fit(times, names)
    reserved, _ = found.fitted
    assert (reserved.refused, reserved.determined) == (True, 0.0)
    assert reserved.value == names[0].shipped
    assert found.memory is None
    with pytest.raises(CalibrationError, match="do not determine memory"):
        fit(times, names[:1])


def test_what_only_a_sharded_run_tells_is_refused(library):
    names = parameters(library, "memory.reserved", "memory.gathered_layers")
    rows = measured(library, names, reserved=5 * GIB, gathered_layers=4.0)
    found = fit(rows, names)
    assert [one.refused for one in found.fitted] == [False, True]
    assert found.fitted[1].value == names[1].shipped


def test_a_run_with_a_loss_of_its_own_keeps_it(library):
    (per_logit,) = parameters(library, "memory.per_logit")
    rows = runs_of(row(**WITH_MEMORY, loss=""), row(**WITH_MEMORY, loss="eager"))
    _, (plain, own) = measured_runs(rows, library, None)
    low, high = (log_ratios([plain, own], {per_logit: value})[1] for value in (1.0, 10.0))
    assert high[0] > low[0]
    assert high[1] == low[1]
    assert np.isnan(log_ratios([plain, own], {})[0]).all()


def test_bytes_are_written_in_their_units(fitted):
    text = profile_text(find("frameworks", "megatron-lm"), fitted, "a test")
    memory = tomllib.loads(text)["memory"]
    assert memory["reserved"]["unit"] == "GiB"
    assert memory["reserved"]["value"] == pytest.approx(5, rel=0.1)
    assert memory["kept_activations"]["value"] == pytest.approx(1.5, rel=0.05)
    assert memory["kept_activations"]["source"] == "calibrated"


def test_a_profile_that_extends_another_gets_the_tables_it_lacks(fitted, tmp_path):
    source = tmp_path / "mine.toml"
    source.write_text('name = "Mine"\nextends = "megatron-lm"\n')
    source.write_text(profile_text(source, fitted, "a test"))
    found = load_framework(str(source))
    shipped = load_framework("megatron-lm").spec
    assert found.provenance["memory.reserved"] == "a test"
    reserved, *_ = fitted.values.values()
    assert found.spec.memory.reserved == pytest.approx(reserved, rel=1e-3)
    assert found.spec.states == shipped.states


@pytest.mark.slow
def test_a_fit_of_all_parameters_asks_for_few_predictions(library, monkeypatch):
    """Most parameters move nothing here, and folds of runs keep the slopes of all."""
    asked = []
    ratios = fitting.log_ratios
    monkeypatch.setattr(
        fitting, "log_ratios", lambda *given: asked.append(len(given[0])) or ratios(*given)
    )
    profile = library.framework("megatron-lm")
    every = chosen_parameters(parameters_of(profile), profile.name, None)
    names = parameters(library, "memory.reserved", "execution.elementwise_passes")
    rows = measured(library, names, reserved=5 * GIB, elementwise_passes=3.0)
    found = fit(rows, every)
    assert found.values
    assert len(asked) < MOST_PREDICTIONS


@pytest.mark.parametrize("kind", CALIBRATED.values(), ids=lambda kind: kind.option)
def test_specs_take_every_parameter_at_its_bounds(library, kind):
    for stem in library.catalogue.names(kind.profiles):
        profile = kind.load(library, stem)
        for one in chosen_parameters(parameters_of(profile), profile.name, None):
            for end in one.bounds:
                own = getattr(profile, one.owner)
                assert replace(own, **{one.name: one.value(end)})


def test_progress_is_told_after_every_fit(library):
    names = parameters(library, "execution.step_overhead")
    rows = measured(library, names, step_overhead=1.0)
    told = []
    fit(rows, names, told.append)
    assert told == list(range(1, number_of_fits(rows) + 1))
    assert len(told) == 1 + len(ROWS)


@pytest.mark.parametrize(
    ("measured", "seconds"),
    [
        ({"measured_step_time_s": "3"}, 3.0),
        ({"measured_step_time_s": "3", "measured_tokens_per_s": "1"}, 3.0),
        ({"measured_tokens_per_s": "1024"}, 64 * 2048 / 1024),
        ({"measured_tokens_per_s_per_gpu": "1024"}, 64 * 2048 / 1024 / 8),
    ],
)
def test_a_throughput_is_a_step_time(library, measured, seconds):
    _, (found,) = measured_runs(runs_of(row(**measured)), library, None)
    assert (found.quantity, found.value) == ("step_time_s", pytest.approx(seconds))


def test_a_run_without_a_prediction_tells_nothing(library):
    _, (found,) = measured_runs(runs_of(row(**WITH_TIME)), library, None)
    assert np.isnan(log_ratios([replace(found, quantity="nothing")], {})).all()


def test_the_spread_of_a_fit_is_that_of_runs_left_out_with_full_weight():
    """The root of the mean square of 0.3 and 0.4; a run of half the weight does not count."""
    runs: list[Any] = [SimpleNamespace(weight=weight) for weight in (1.0, 1.0, 0.5, 1.0)]
    errors = np.array([0.3, -0.4, 2.0, np.nan])
    assert fitting._spread(runs, errors) == pytest.approx(math.sqrt((0.09 + 0.16) / 2))
    assert fitting._spread(runs, errors / 100) == fitting.NOISE
    assert fitting._spread(runs[2:3], errors[2:3]) is None


def test_errors_of_a_fit_on_runs_left_out_are_shown_from_two_folds_on():
    errors = FitErrors(before=0.2, after=0.1, left_out=0.15, measurements=8)
    shown = {"shipped values": "20.0 %", "fitted values": "10.0 %"}
    assert _error_pairs(errors, 1) == shown
    assert _error_pairs(errors, 2) == {**shown, "fitted, on runs left out": "15.0 % (2 folds)"}
