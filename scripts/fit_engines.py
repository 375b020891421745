"""Fit the shipped engine profiles to the shipped runs of inference, as fit_profiles.py does.

Each step fits a few parameters of one engine to the runs that are marked for calibration, on
a few dozen settings spread evenly over them, of TensorRT-LLM's C++ runtime, whose runs span most
releases and GPUs, on more. Starting values stand here, so that running it again changes no
byte. SGLang keeps its starting values, and so do TensorRT-LLM and vLLM V0 but for what the host
needs and the instructions of early kernels: fits of more to their runs made those left out worse
(cross_validate_engines.py):

    python scripts/fit_engines.py && python scripts/make_intervals.py
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
from fit_profiles import fit_key, holders, write

import planner
from planner.validation.calibration import (
    MeasuredQuantity,
    Parameter,
    log_ratios,
    measured_runs,
    thinned,
)
from planner.validation.fit_parameters import best_point
from planner.validation.inference.cases import InferenceCase, inference_case
from planner.validation.run_tables import SHIPPED_INFERENCE, Runs, read_runs
from planner.validation.spec_library import Library, NotPredicted

PROFILES = Path(planner.__file__).parent / "engine_profiles"
DIGITS = 3
MOST_EVALUATIONS = 8

HOST = {"step_overhead": 0.0005, "sequence_overhead": 1e-6}
SERVING = HOST | {
    "request_overhead": 0.02,
    "weight_bandwidth_fraction": 1.0,
    "compute_fraction": 1.0,
    "attention_bandwidth_fraction": 1.0,
}
SIMPLE = {
    "step_overhead": 0.0005,
    "elementwise_passes": 1.5,
    "weight_bandwidth_fraction": 0.9,
    "compute_fraction": 0.8,
    "attention_bandwidth_fraction": 0.7,
}
COLLECTIVES = {
    "collective_launch_time": 20e-6,
    "elementwise_passes": 2.0,
    "weight_bandwidth_fraction": 0.9,
    "compute_fraction": 0.9,
}
LLAMA = {
    "step_overhead": 0.0003,
    "weight_bandwidth_fraction": 0.85,
    "compute_fraction": 0.55,
    "attention_bandwidth_fraction": 0.7,
}
LAUNCHED = LLAMA | {"decode_launch_time": 20e-6}
UNFUSED = {"elementwise_passes": 2.0, "score_passes": 4.0}
CUDA_VECTORS = {"vector_bandwidth": 8e9, "linear_compute_by_architecture.hopper": 0.7}
EAGER = {
    "decode_launch_time": 0.0005,
    "step_overhead": 0.002,
    "elementwise_passes": 2.5,
    "weight_bandwidth_fraction": 0.9,
    "compute_fraction": 0.9,
    "attention_bandwidth_fraction": 0.5,
}
MODULES = {
    "decode_launch_time": 60e-6,
    "step_overhead": 0.0005,
    "weight_bandwidth_fraction": 0.8,
    "compute_fraction": 0.8,
}
V0 = SERVING | {"step_overhead": 0.002, "sequence_overhead": 20e-6}
VECTORS = {"vector_attention_instructions_8bit": 6.0}
RUN = HOST | {
    "sequence_overhead": 10e-6,
    "vector_attention_instructions": 6.0,
    "attention_block_bandwidth": 45e9,
}
PORTS = V0 | {
    "collective_launch_time": 30e-6,
    "repeated_read_fraction": 0.5,
    "attention_split.unsplit_bandwidth_fraction": 0.7,
    "attention_split.unsplit_repeated_read_fraction": 1.5,
    "linear_compute_by_architecture.cdna3": 0.3,
}


@dataclass(frozen=True, kw_only=True)
class EngineStep:
    """The starting values of what is fitted of one engine profile.

    Parameters outside ``[execution]`` have the name of their table before theirs. Profiles that
    name this fit as the source of a number take over its value.
    """

    profile: str
    start: Mapping[str, float]
    most_settings: int = 24


STEPS = (
    EngineStep(profile="tensorrt-llm-cpp", start=HOST, most_settings=480),
    EngineStep(profile="tensorrt-llm-cpp-xqa", start=VECTORS, most_settings=120),
    EngineStep(profile="tensorrt-llm-run", start=RUN, most_settings=120),
    EngineStep(profile="tensorrt-llm", start={"sequence_overhead": 2e-6}, most_settings=60),
    EngineStep(profile="vllm", start=SERVING | {"step_overhead": 0.001}, most_settings=40),
    EngineStep(profile="vllm-v0", start=HOST | {"sequence_overhead": 20e-6}),
    EngineStep(profile="vllm-v0-ports", start=PORTS),
    EngineStep(profile="vllm-v0-xpu", start=V0 | {"collective_launch_time": 300e-6}),
    EngineStep(profile="fastertransformer", start=COLLECTIVES),
    EngineStep(
        profile="llama-cpp-2024",
        start=LLAMA | {"score_passes": 4.0} | CUDA_VECTORS,
        most_settings=40,
    ),
    EngineStep(profile="llama-cpp-metal", start=LAUNCHED | UNFUSED),
    EngineStep(profile="llama-cpp-ports", start=LAUNCHED),
    EngineStep(profile="exllama", start=MODULES | {"decode_launch_time": 30e-6}),
    EngineStep(profile="autoawq", start=MODULES),
    EngineStep(profile="lmdeploy", start={"quantized_bandwidth_fraction": 1.0}),
    EngineStep(profile="transformers", start=EAGER | {"expert_loop_time": 100e-6}),
    EngineStep(profile="litgpt", start={"quantized_launch_time": 70e-6}),
    EngineStep(
        profile="deepspeed-inference",
        start={"host_link_fraction": 0.8, "host_attention_fraction": 0.5},
    ),
    EngineStep(profile="flexgen", start={"host_attention_fraction": 0.5, "unpacking_bytes": 10.0}),
    EngineStep(profile="optimum-habana", start=EAGER | {"decode_launch_time": 50e-6}),
    EngineStep(profile="neuron", start=SIMPLE | {"step_overhead": 0.002}),
    EngineStep(
        profile="gpt-fast", start={"step_overhead": 0.0001, "weight_bandwidth_fraction": 0.9}
    ),
)


def main() -> None:
    """Fit all steps, write the files, print the values."""
    for step in STEPS:
        rows = thinned(measurements(step), step.most_settings)
        values = fitted(step, rows)
        error = np.abs(np.expm1(log_ratios(rows, values)[0]))
        origin = f"fitted by scripts/fit_engines.py to {len(rows)} measurements"
        print(f"{step.profile}: {len(rows)} measurements, median error {np.median(error):.1%}")
        key, own = fit_key(step.profile), PROFILES / f"{step.profile}.toml"
        for parameter, value in values.items():
            for path in holders(own, parameter, key):
                write(path, parameter.owner, parameter.name, value, origin, key)
            print(f"  {parameter.name:30} {value:.{DIGITS}g}")
        _library.cache_clear()  # later steps may build on these values


def measurements(
    step: EngineStep, calibrating: bool = True, disaggregated: bool = False
) -> list[MeasuredQuantity]:
    """What the runs of an engine measured: those marked for calibration, or all."""
    runs = _runs(calibrating)
    return measured_runs(runs, _library(), step.profile, everything=disaggregated)[1]


def profiles_with_runs() -> tuple[str, ...]:
    """The engine profiles of the shipped runs that can be predicted, by name."""
    return tuple(sorted({case.rule.profile for case in _cases()}))


def _cases() -> Iterator[InferenceCase]:
    for run in _runs(calibrating=False).rows:
        with suppress(NotPredicted):
            yield inference_case(run, _library())


def fitted(step: EngineStep, rows: Sequence[MeasuredQuantity]) -> dict[Parameter, float]:
    """The parameters of a step, rounded as they are written."""
    parameters = [_parameter(label, value) for label, value in step.start.items()]
    best, _ = best_point(rows, parameters, MOST_EVALUATIONS)
    return {
        parameter: float(f"{parameter.value(x):.{DIGITS}g}")
        for parameter, x in zip(parameters, best, strict=True)
    }


def _parameter(label: str, start: float) -> Parameter:
    table, _, name = label.rpartition(".")
    return Parameter(owner=table or "execution", name=name, shipped=start)


@cache
def _runs(calibrating: bool) -> Runs:
    """The runs of both tables under all their columns: those marked for calibration, or all."""
    tables = [read_runs(path) for path in SHIPPED_INFERENCE]
    rows = tuple(
        run for table in tables for run in table.rows if run.flag("calibration") or not calibrating
    )
    return replace(tables[0], rows=rows)


@cache
def _library() -> Library:
    return Library()


if __name__ == "__main__":
    main()
