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
from planner.base.units import GIB
from planner.validation.calibration import MeasuredQuantity, Parameter, measured_runs, with_values
from planner.validation.fit_parameters import best_point
from planner.validation.fitted_profile import table_of, unit_of
from planner.validation.run_tables import Run, read_runs
from planner.validation.spec_library import Library

PROFILES = Path(planner.__file__).parent / "framework_profiles"
CLASSES = Path(planner.__file__).parents[1] / "hardware_specs" / "efficiency"
DIGITS = 3


@dataclass(frozen=True, kw_only=True)
class Step:
    """Runs of ``sources``, and the starting values of what is fitted to them.

    Profiles that name this fit as the source of a number take over its value. ``memory``: it
    is fitted to peak memory, on the runs that are marked for that; else to step time.
    """

    profile: str
    sources: tuple[str, ...]
    start: Mapping[str, float]
    memory: bool = False


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
            "execution.node_reduce_wait": 0.0002,
            "execution.micro_batch_overhead": 0.005,
            "execution.step_overhead": 0.005,
            "execution.elementwise_passes": 1.2,
            "execution.softmax_passes": 6.0,
            "overlap.pipeline_parallel": 0.9,
        },
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
    ),
    Step(
        profile="hf-trainer",
        sources=("Qwen README", "fms-acceleration"),
        start={
            "execution.layer_launch_time": 0.0006,
            "execution.adapter_launch_time": 0.0001,
            "execution.dequantize_launch_time": 0.0001,
            "execution.dequantize_passes": 3.0,
            "execution.micro_batch_overhead": 0.02,
            "execution.step_overhead": 0.05,
            "execution.elementwise_passes": 2.0,
        },
    ),
    Step(
        profile="hf-trainer-triton",
        sources=("fms-acceleration",),
        start={
            "execution.dequantize_passes": 3.0,
            "execution.elementwise_passes": 1.2,
        },
    ),
    Step(
        profile="megatron-deepspeed",
        sources=("BigScience BLOOM",),
        start={"memory.communication_buffer": 4 * GIB, "memory.fragmentation": 0.1},
        memory=True,
    ),
    Step(
        profile="hf-fsdp",
        sources=("fms-acceleration",),
        start={"memory.kept_activations": 1.5},
        memory=True,
    ),
    Step(
        profile="hf-trainer-triton",
        sources=("fms-acceleration",),
        start={"memory.kept_activations": 1.5, "memory.sharded_copies": 1.5},
        memory=True,
    ),
    Step(
        profile="nanotron",
        sources=("nanotron",),
        start={"memory.kept_activations": 1.5},
        memory=True,
    ),
    Step(
        profile="internevo",
        sources=("InternEvo",),
        start={"memory.optimizer_temporary": 8.0},
        memory=True,
    ),
)


def main() -> None:
    """Fit all steps, write the files, print the values."""
    silicon: dict[Parameter, float] = {}
    for step in STEPS:
        rows = rows_of(step, silicon)
        values = fitted(step, rows)
        silicon |= {p: v for p, v in values.items() if p.is_of_silicon}
        origin = f"fitted by scripts/fit_profiles.py to {len(rows)} runs: {', '.join(step.sources)}"
        key = fit_key(step.profile) + ("_memory" if step.memory else "")
        for parameter, value in values.items():
            unit, scale = unit_of(parameter.name)
            print(f"{step.profile:20} {parameter.label:36} {value * scale:.{DIGITS}g} {unit}")
            for path, section in _places(step, parameter, key):
                write(path, section, parameter.name, value, origin, key)


def calibration_runs(step: Step) -> list[Run]:
    """The shipped runs that a step is fitted to."""
    return [
        run
        for run in read_runs().rows
        if run.flag("memory_calibration" if step.memory else "calibration")
        and run.text("source").startswith(step.sources)
    ]


def rows_of(step: Step, silicon: Mapping[Parameter, float]) -> list[MeasuredQuantity]:
    """The same as cases, on the silicon fitted before, in the same order."""
    runs = replace(read_runs(), rows=tuple(calibration_runs(step)))
    _, rows = measured_runs(runs, Library(), step.profile)
    mine = [row for row in rows if row.is_of_memory == step.memory]
    cases = with_values([row.case for row in mine], silicon)
    return [replace(row, case=case) for row, case in zip(mine, cases, strict=True)]


def fitted(step: Step, rows: Sequence[MeasuredQuantity]) -> dict[Parameter, float]:
    """The parameters of a step, rounded as they are written."""
    parameters = []
    for label, shipped in step.start.items():
        owner, _, name = label.partition(".")
        parameters.append(Parameter(owner=owner, name=name, shipped=shipped))
    best, _ = best_point(rows, parameters)
    return {
        parameter: _rounded(parameter, parameter.value(x))
        for parameter, x in zip(parameters, best, strict=True)
    }


def _rounded(parameter: Parameter, value: float) -> float:
    _, scale = unit_of(parameter.name)
    return float(f"{value * scale:.{DIGITS}g}") / scale


def _places(step: Step, parameter: Parameter, key: str) -> list[tuple[Path, str]]:
    """The files and tables that hold a parameter."""
    if parameter.is_of_silicon:
        return [(CLASSES / f"{parameter.owner}.toml", "efficiency")]
    own = PROFILES / f"{step.profile}.toml"
    return [(path, parameter.owner) for path in holders(own, parameter, key)]


def fit_key(profile: str) -> str:
    """What numbers fitted to the runs of a profile name as their source."""
    return f"fitted_{profile.replace('-', '_')}"


def holders(own: Path, parameter: Parameter, key: str) -> list[Path]:
    """The profile a parameter is fitted for, and those beside it that cite the fit for it."""
    others = [path for path in sorted(own.parent.glob("*.toml")) if _cites(path, parameter, key)]
    return list(dict.fromkeys((own, *others)))


def _cites(path: Path, parameter: Parameter, key: str) -> bool:
    document = tomlkit.parse(path.read_text(encoding="utf-8"))
    number = document.get(parameter.owner, {}).get(parameter.name)
    return isinstance(number, dict) and number.get("source") == key


def write(path: Path, section: str, name: str, value: float, origin: str, key: str) -> None:
    """Write a fitted value into a table of a file, and where it comes from."""
    document = tomlkit.parse(path.read_text(encoding="utf-8"))
    table_of(document, "sources")[key] = origin
    table = table_of(document, section)
    number = table.setdefault(name, tomlkit.inline_table())  # inherited until now
    unit, scale = unit_of(name)
    number["value"] = float(f"{value * scale:.{DIGITS}g}")
    number["unit"] = unit
    number["source"] = key
    path.write_text(tomlkit.dumps(document), encoding="utf-8")


if __name__ == "__main__":
    main()
