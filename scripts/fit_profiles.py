"""Fit the shipped parameters to the shipped runs, from the same starting values every time.

Each step fits a few parameters of one framework profile, and of the GPUs it ran on, to the
runs that are marked for calibration, with the fit of `planner calibrate`. Silicon comes out
of the steps in order and holds in those after it. Running it again changes no byte:

    python scripts/fit_profiles.py && python scripts/make_intervals.py
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import tomlkit

import planner
from planner.calibration.fit import Measured, best_point
from planner.calibration.parameters import Parameter, with_values
from planner.calibration.runs import measured_runs
from planner.validation.library import Library
from planner.validation.runs import Run, read_runs

PROFILES = Path(planner.__file__).parent / "framework_profiles"
CLASSES = Path(planner.__file__).parents[1] / "hardware_specs" / "efficiency"
DIGITS = 3
MILLISECONDS = (
    "layer_launch_time",
    "adapter_launch_time",
    "dequantize_launch_time",
    "micro_batch_overhead",
    "step_overhead",
)
# What the host does is the same with fused kernels.
FUSED = ("hf-trainer-triton", "hf-trainer-liger")
HOST_TIMES = (
    "execution.layer_launch_time",
    "execution.adapter_launch_time",
    "execution.dequantize_launch_time",
    "execution.micro_batch_overhead",
    "execution.step_overhead",
)


@dataclass(frozen=True, kw_only=True)
class Step:
    """Runs of ``sources``, and the starting values of what is fitted to them.

    ``also`` lists profiles that take over the fitted values of this one.
    """

    profile: str
    sources: tuple[str, ...]
    start: Mapping[str, float]
    also: tuple[tuple[str, str], ...] = ()


STEPS = (
    Step(
        profile="fsdp",
        sources=("llm-foundry benchmarking README",),
        start={
            "ampere.sustained_compute_fraction": 1.0,
            "ampere.portable_attention_fraction": 0.7,
            "hopper.sustained_compute_fraction": 0.85,
            "hopper.portable_attention_fraction": 0.5,
            "execution.micro_batch_overhead": 0.01,
            "execution.step_overhead": 0.05,
            "execution.elementwise_passes": 1.5,
            "overlap.interference": 0.3,
        },
    ),
    Step(
        profile="megatron-deepspeed",
        sources=("VIA-Research/vTrain",),
        start={
            "execution.layer_launch_time": 0.0008,
            "execution.micro_batch_overhead": 0.005,
            "execution.step_overhead": 0.005,
            "execution.elementwise_passes": 1.2,
            "execution.softmax_passes": 6.0,
        },
        also=(("megatron-lm", "execution.softmax_passes"),),
    ),
    Step(
        profile="nemo",
        sources=("NeMo 24.07", "MLPerf Training v3", "MLPerf Training v4", "MLPerf Training v5"),
        start={
            "execution.micro_batch_overhead": 0.002,
            "execution.elementwise_passes": 1.3,
            "overlap.tensor_parallel": 0.8,
            "overlap.interference": 0.1,
        },
        also=(
            ("megatron-lm", "execution.elementwise_passes"),
            ("megatron-lm", "execution.micro_batch_overhead"),
        ),
    ),
    Step(
        profile="hf-trainer",
        sources=("Qwen README",),
        start={
            "execution.layer_launch_time": 0.0006,
            "execution.adapter_launch_time": 0.0001,
            "execution.dequantize_launch_time": 0.0001,
            "execution.dequantize_passes": 3.0,
            "execution.micro_batch_overhead": 0.02,
            "execution.step_overhead": 0.05,
            "execution.elementwise_passes": 2.0,
        },
        also=tuple((profile, name) for profile in FUSED for name in HOST_TIMES),
    ),
    Step(
        profile="hf-trainer-triton",
        sources=("fms-acceleration",),
        start={
            "execution.dequantize_passes": 3.0,
            "execution.elementwise_passes": 1.2,
        },
        also=tuple(
            ("hf-trainer-liger", f"execution.{name}_passes")
            for name in ("dequantize", "elementwise")
        ),
    ),
)


def main() -> None:
    """Fit all steps, write the files, print the values."""
    silicon: dict[Parameter, float] = {}
    for step in STEPS:
        rows = rows_of(step, silicon)
        values = fitted(step, rows)
        silicon |= {p: v for p, v in values.items() if p.owner not in ("execution", "overlap")}
        origin = f"fitted by scripts/fit_profiles.py to {len(rows)} runs: {', '.join(step.sources)}"
        for parameter, value in values.items():
            print(f"{step.profile:20} {parameter.label:36} {value:.{DIGITS}g}")
            for path, section in _places(step, parameter):
                _write(path, section, parameter.name, value, origin, step.profile)


def calibration_runs(step: Step) -> list[Run]:
    """The shipped runs that a step is fitted to."""
    return [
        run
        for run in read_runs().rows
        if run.flag("calibration") and run.text("source").startswith(step.sources)
    ]


def rows_of(step: Step, silicon: Mapping[Parameter, float]) -> list[Measured]:
    """The same as cases, on the silicon fitted before, in the same order."""
    runs = replace(read_runs(), rows=tuple(calibration_runs(step)))
    _, rows = measured_runs(runs, Library(), step.profile)
    return [replace(row, case=with_values(row.case, silicon)) for row in rows]


def fitted(step: Step, rows: Sequence[Measured]) -> dict[Parameter, float]:
    """The parameters of a step, rounded as they are written."""
    parameters = []
    for label, shipped in step.start.items():
        owner, _, name = label.partition(".")
        parameters.append(Parameter(owner=owner, name=name, shipped=shipped))
    best, _ = best_point(rows, parameters)
    return {
        parameter: float(f"{parameter.value(x):.{DIGITS}g}")
        for parameter, x in zip(parameters, best, strict=True)
    }


def _places(step: Step, parameter: Parameter) -> list[tuple[Path, str]]:
    """The files and tables that hold a parameter."""
    if parameter.owner not in ("execution", "overlap"):
        return [(CLASSES / f"{parameter.owner}.toml", "efficiency")]
    others = [profile for profile, label in step.also if label == parameter.label]
    return [(PROFILES / f"{name}.toml", parameter.owner) for name in (step.profile, *others)]


def _write(path: Path, section: str, name: str, value: float, origin: str, profile: str) -> None:
    document = tomlkit.parse(path.read_text(encoding="utf-8"))
    key = f"fitted_{profile.replace('-', '_')}"
    document["sources"][key] = origin
    number = document[section][name]
    scale = 1e3 if name in MILLISECONDS else 1.0
    number["value"] = float(f"{value * scale:.{DIGITS}g}")
    number["source"] = key
    path.write_text(tomlkit.dumps(document), encoding="utf-8")


if __name__ == "__main__":
    main()
