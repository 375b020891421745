"""Engine profiles fitted to tables of inference."""

import dataclasses
import math

import pytest
from sample_inference import DISAGGREGATED, row, runs_of

from planner.__main__ import run
from planner.errors import CalibrationError
from planner.specs.engine import EngineExecution
from planner.validation.accuracy import predict
from planner.validation.calibration import (
    chosen_parameters,
    log_ratios,
    measured_runs,
    parameters_of,
    thinned,
)
from planner.validation.fit_parameters import fit
from planner.validation.fitted_profile import unit_of

TIMES = ("_time", "_overhead")
QUANTITY = "time_per_output_token_s"


def cases(slower=1.0, **changes):
    """Rows whose decoding takes so much longer than predicted."""
    plain = [row(concurrency=str(batch), **changes) for batch in (1, 2, 4, 8)]
    found = predict(runs_of(*plain))
    return [
        {**cells, f"measured_{QUANTITY}": repr(slower * one.values[QUANTITY])}
        for cells, one in zip(plain, found, strict=True)
    ]


def parameters(library, name, names):
    engine = library.engine(name)
    return chosen_parameters(parameters_of(engine), engine.name, names)


def fitted(library, rows, names):
    profile, measured = measured_runs(runs_of(*rows), library, None)
    return fit(measured, parameters(library, profile, names))


def test_a_slower_engine_is_found(library):
    found = fitted(library, cases(slower=1.5), ["execution.weight_bandwidth_fraction"])
    (only,) = found.fitted
    assert only.value < 0.8 * only.parameter.shipped
    assert found.time.after < 0.5 * found.time.before
    assert found.time.left_out < found.time.before


def test_a_perfect_engine_stays(library):
    found = fitted(library, cases(), ["execution.weight_bandwidth_fraction"])
    (only,) = found.fitted
    assert only.value == pytest.approx(only.parameter.shipped, rel=0.05)


def test_what_decoding_does_not_tell_is_refused(library):
    names = ["execution.weight_bandwidth_fraction", "execution.prefill_launch_time"]
    found = fitted(library, cases(slower=1.2), names)
    refused = {one.parameter.name for one in found.fitted if one.refused}
    assert refused == {"prefill_launch_time"}


def test_unknown_parameters_and_useless_rows(library):
    with pytest.raises(CalibrationError, match="Unknown parameter"):
        parameters(library, "vllm", ["execution.weight_bandwith_fraction"])
    with pytest.raises(CalibrationError, match="is 0 in"):
        parameters(library, "vllm", ["execution.decode_launch_time"])
    with pytest.raises(CalibrationError, match="None of 1 rows"):
        measured_runs(runs_of(row()), library, None)


def test_heavier_weights_stay_heavier(library):
    heavy = {"framework": "llama.cpp", "weight_precision": "int4", "bits_per_weight": "4.9"}
    _, measured = measured_runs(runs_of(*cases(**heavy)), library, "llama-cpp")
    assert log_ratios(measured, {})[0] == pytest.approx(0.0, abs=1e-9)
    names = ["execution.weight_bandwidth_fraction"]
    (parameter,) = parameters(library, "llama-cpp", names)
    same = log_ratios(measured, {parameter: parameter.shipped})
    assert same[0] == pytest.approx(0.0, abs=1e-9)


def test_thinning_keeps_whole_settings(library):
    rows = [cells for length in ("128", "256", "512") for cells in cases(input_tokens=length)]
    _, measured = measured_runs(runs_of(*rows), library, None)
    kept = thinned(measured, 2)
    assert {one.case.traffic.input_tokens for one in kept} == {128, 256}
    assert len(kept) == 8


def test_calibrate_writes_a_profile_that_validate_takes(write_runs, tmp_path, capsys):
    runs = write_runs(*cases(slower=1.5))
    profile = tmp_path / "my_engine.toml"
    name = "execution.weight_bandwidth_fraction"
    assert run(["calibrate", str(runs), "--output", str(profile), "--parameter", name]) == 0
    assert "vLLM, fitted to 4 runs" in capsys.readouterr().out
    before, after = tmp_path / "before.csv", tmp_path / "after.csv"
    assert run(["validate", str(runs), "--output", str(before), "--quiet"]) == 0
    arguments = ["--output", str(after), "--quiet", "--profile", str(profile)]
    assert run(["validate", str(runs), *arguments]) == 0
    assert before.read_text() != after.read_text()


def test_a_run_is_left_out_with_all_it_measured(library):
    rows = [{**cells, "measured_time_to_first_token_s": "0.3"} for cells in cases(slower=1.2)]
    found = fitted(library, rows, ["execution.weight_bandwidth_fraction"])
    assert (found.runs, found.folds, found.time.measurements) == (4, 4, 8)


def test_every_time_of_an_engine_has_its_unit():
    times = [one.name for one in dataclasses.fields(EngineExecution) if one.name.endswith(TIMES)]
    assert len(times) == 17
    assert all(unit_of(name)[0] in ("us", "ms") for name in times)


def test_a_rate_counts_as_the_time_it_is_of(library):
    (plain,) = predict(runs_of(row()))
    rate = plain.values["output_tokens_per_s"]
    slow = row(measured_output_tokens_per_s=repr(rate / 1.5))
    _, measured = measured_runs(runs_of(slow), library, None)
    times, memory = log_ratios(measured, {})
    assert times == pytest.approx([-math.log(1.5)])
    assert math.isnan(memory[0])


def test_two_pools_are_fitted_only_where_they_are_asked_for(library):
    time = {f"measured_{QUANTITY}": "0.02"}
    runs = runs_of(row(**DISAGGREGATED, **time), row(framework="sglang", **time))
    sizes = {flag: len(measured_runs(runs, library, "sglang", everything=flag)[1])
             for flag in (False, True)}  # fmt: skip
    assert sizes == {False: 1, True: 2}


def test_a_measurement_without_a_prediction_is_far_off(library):
    _, (found, *_) = measured_runs(runs_of(*cases()), library, None)
    missing = dataclasses.replace(found, quantity="nothing")
    assert log_ratios([missing], {})[0] == pytest.approx([math.log(20)])
