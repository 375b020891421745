"""Parameters of profiles and the measurements that they are fitted to, by kind of table."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from importlib.util import find_spec
from typing import Any

import numpy as np

from planner.base.arrays import FloatArray
from planner.base.records import record
from planner.errors import CalibrationError, MissingDependencyError, did_you_mean
from planner.specs.engine import EngineExecution, EngineProfile
from planner.specs.framework import Execution, FrameworkProfile, Memory, Overlap
from planner.specs.gpu import GpuSpec
from planner.specs.spec_paths import SpecKind
from planner.validation.accuracy import KINDS, THROUGHPUT
from planner.validation.inference.cases import InferenceCase, Mode
from planner.validation.inference.evaluate import predict_inference_group
from planner.validation.rl import RlCase, predict_rl_group, tuned
from planner.validation.run_tables import MEMORY, RATES, Case, Prediction, Run, Runs, TableKind
from planner.validation.spec_library import Library, NotPredicted
from planner.validation.training.cases import TrainingCase, predict_training_group

SECTIONS = {"execution": Execution, "overlap": Overlap, "memory": Memory}
_SHARES = ("selective_share", "selective_grouped", "fragmentation", "hidden_copies")
# Shares that are scaled by a factor: they stay 0 where the shipped value is 0.
_AT_MOST_ONE = ("sustained_clock", "selective_dropped", "loss_room")
# Traffic over that of fused kernels: at least 1.
_AT_LEAST_ONE = (
    "elementwise_passes",
    "permute_passes",
    "dequantize_passes",
    "kept_activations",
    "sharded_copies",
)
# Kernels of an engine may beat those measured on the GPU by little.
_LARGEST_FRACTION = 1.3
_SHARE_SPREAD = 0.25
ROLLOUTS = "rollouts"
"""The table of a profile with the costs of reinforcement learning outside trainer and engine."""
_OF_ROLLOUTS = ("decode_factor", "decode_layer_time", "pass_factor", "step_overhead", "sync_factor")
_SECONDS_SPREAD = 5.0
"""Prior of the time of a reinforcement learning step outside trainer and engine [s]; may be 0."""
_FACTOR = 2.0
_LARGEST_FACTOR = 16.0


@record(kw_only=True)
class Parameter:
    """One number of a framework profile, or of the GPUs of a class.

    Fitted on a scale where the prior is a standard normal around the ``shipped`` value: a
    share moves by 0.25, seconds of a step of reinforcement learning by 5, any other number by a
    factor of 2, per standard deviation.
    ``owner`` is ``execution``, ``overlap``, ``memory`` or ``rollouts``, or a class of GPUs.
    """

    owner: str
    name: str
    shipped: float

    @property
    def label(self) -> str:
        """Name on the command line and in reports."""
        return f"{self.owner}.{self.name}"

    @property
    def is_share(self) -> bool:
        """Whether it is bounded by 0 and 1."""
        return self.owner == "overlap" or self.name in _SHARES

    @property
    def spread(self) -> float | None:
        """Standard deviation of the prior, added to the value; None: the prior is a factor."""
        if self.is_share:
            return _SHARE_SPREAD
        return _SECONDS_SPREAD if self.label == f"{ROLLOUTS}.step_overhead" else None

    @property
    def is_of_memory(self) -> bool:
        """Whether the parameter concerns memory only."""
        return self.owner == "memory"

    @property
    def is_of_silicon(self) -> bool:
        """Whether it belongs to a class of GPUs."""
        return self.owner not in (*SECTIONS, ROLLOUTS)

    @property
    def bounds(self) -> tuple[float, float]:
        """Return the bounds of the parameter on the scale of the fit (0: the shipped value)."""
        if self.is_share:
            return (-self.shipped / _SHARE_SPREAD - 1e-9, (1 - self.shipped) / _SHARE_SPREAD + 1e-9)
        limit = math.log(_LARGEST_FACTOR, _FACTOR)
        if self.spread is not None:
            return (-self.shipped / self.spread - 1e-9, _LARGEST_FACTOR)
        if self.name in _AT_LEAST_ONE:
            return (math.log(1 / max(self.shipped, 1.0), _FACTOR) - 1e-9, limit)
        if self.name in _AT_MOST_ONE:
            return (-limit, -math.log(self.shipped, _FACTOR) + 1e-9)
        if self.owner == "execution" and self.name.endswith("_fraction"):
            return (-limit, math.log(max(_LARGEST_FRACTION / self.shipped, 1.001), _FACTOR))
        return (-limit, limit)

    def value(self, x: float) -> float:
        """Return the value of the parameter at ``x`` on the scale of the fit (0: shipped value)."""
        if self.spread is not None:
            moved = max(self.shipped + self.spread * x, 0.0)
            return min(moved, 1.0) if self.is_share else moved
        value = float(self.shipped * _FACTOR**x)
        return min(value, 1.0) if self.name in _AT_MOST_ONE else value


def chosen_parameters(
    parameters: Iterable[Parameter], profile: str, names: Iterable[str] | None
) -> list[Parameter]:
    """Return the named parameters of a profile; ``names`` None: all that can be fitted.

    Raises CalibrationError if a name is unknown, or the parameter is zero and has no scale.
    """
    by_label = {parameter.label: parameter for parameter in parameters}
    if names is None:
        return [p for p in by_label.values() if p.spread is not None or p.shipped > 0]
    selected = []
    for name in names:
        if name not in by_label:
            hint = did_you_mean(name, by_label)
            raise CalibrationError(
                f"Unknown parameter {name!r}.{hint} Known: {', '.join(by_label)}."
            )
        if by_label[name].spread is None and by_label[name].shipped <= 0:
            raise CalibrationError(f"{name} is 0 in {profile}: set a value to start from.")
        selected.append(by_label[name])
    return selected


@record(kw_only=True)
class MeasuredQuantity:
    """A case with one measured quantity, its weight and its publisher.

    ``line`` is the line of its run in the file; the value is in the unit of the tables.
    """

    case: Case
    kind: CalibrationKind
    line: int
    publisher: str
    quantity: str
    value: float
    weight: float = 1.0

    @property
    def is_of_memory(self) -> bool:
        """Whether it is no time."""
        return self.quantity == MEMORY

    def measures(self, parameter: Parameter) -> bool:
        """Whether the measurement depends on the parameter."""
        return parameter.is_of_memory == self.is_of_memory


def measured_runs(
    runs: Runs, library: Library, profile: str | None, *, everything: bool = False
) -> tuple[str, list[MeasuredQuantity]]:
    """Return the name of a profile and the quantities measured with it.

    ``profile`` None: the profile of most rows. Rows that depend on more than the profile are left
    out unless ``everything`` is set.
    Raises CalibrationError if no row can be used.
    """
    kind = CALIBRATED[runs.kind]
    quantities = [
        quantity
        for run in runs.rows
        for quantity in _measured(run, library, runs, kind)
        if everything or kind.is_usable(quantity.case)
    ]
    counts = Counter(
        dict.fromkeys((quantity.line, quantity.case.software.profile) for quantity in quantities)
    )
    if profile is None and quantities:
        profile = Counter(name for _, name in counts).most_common(1)[0][0]
    selected = [quantity for quantity in quantities if quantity.case.software.profile == profile]
    if not selected:
        raise CalibrationError(
            f"None of {len(runs.rows)} rows has a measured time, throughput or peak memory that "
            f"is fitted to and can be predicted with {profile or 'any profile'}: "
            "`planner validate` gives the reason for each row."
        )
    return str(profile), selected


def log_ratios(
    measured: Sequence[MeasuredQuantity], values: Mapping[Parameter, float]
) -> FloatArray:
    """Return log(predicted / measured) of each quantity, of times and of memory.

    A rate counts as a time. Shape ``(2, measurements)``: times, then memory; NaN if the quantity is
    of the other kind.
    """
    groups: defaultdict[Hashable, list[int]] = defaultdict(list)
    for index, quantity in enumerate(measured):
        groups[quantity.case.group].append(index)
    ratios = np.full((2, len(measured)), np.nan)
    for indices in groups.values():
        kind = measured[indices[0]].kind
        # All measurements of a run belong to one case, which is predicted once.
        cases = {
            id(quantity.case): quantity.case for quantity in (measured[index] for index in indices)
        }
        predicted = kind.predict_group(kind.with_values(list(cases.values()), values))
        predictions = dict(zip(cases, predicted, strict=True))
        for index in indices:
            quantity = measured[index]
            missing = kind.worst * quantity.value
            ratio = np.log(
                predictions[id(quantity.case)].values.get(quantity.quantity, missing)
                / quantity.value
            )
            ratios[int(quantity.is_of_memory), index] = (
                -ratio if quantity.quantity in RATES else ratio
            )
    return ratios


def thinned(measured: Sequence[MeasuredQuantity], max_setups: int) -> list[MeasuredQuantity]:
    """Return the quantities of at most ``max_setups`` setups, chosen evenly in their order."""
    groups = list(dict.fromkeys(quantity.case.setup for quantity in measured))
    step = max(len(groups) / max_setups, 1.0)
    kept_setups = {groups[int(number * step)] for number in range(int(len(groups) / step))}
    return [quantity for quantity in measured if quantity.case.setup in kept_setups]


def _measured(
    run: Run, library: Library, runs: Runs, kind: CalibrationKind
) -> Iterator[MeasuredQuantity]:
    """Yield the measured quantities of a published run; nothing if it cannot be predicted."""
    try:
        case = KINDS[runs.kind].case_of(run, library)
    except NotPredicted:
        return
    case = kind.settled(case)
    for quantity, value, weight in kind.measurements(run, case):
        yield MeasuredQuantity(
            case=case,
            kind=kind,
            line=run.line,
            publisher=run.text("publisher") or run.text("source"),
            quantity=quantity,
            value=value,
            weight=weight,
        )


def parameters_of(profile: FrameworkProfile | EngineProfile) -> Iterator[Parameter]:
    """Yield the numbers of a profile that can be fitted to measurements."""
    is_engine = isinstance(profile, EngineProfile)
    sections = {"execution": EngineExecution} if is_engine else SECTIONS
    for owner, kind in sections.items():
        section = getattr(profile, owner)
        for field in fields(kind):
            value = getattr(section, field.name)
            if isinstance(value, float):
                yield Parameter(owner=owner, name=field.name, shipped=value)


def rollout_parameters(profile: FrameworkProfile) -> Iterator[Parameter]:
    """Parameters of a framework's reinforcement learning outside its trainer and engine."""
    for name in _OF_ROLLOUTS if profile.rollouts is not None else ():
        yield Parameter(owner=ROLLOUTS, name=name, shipped=getattr(profile.rollouts, name))


def with_rollout_values(cases: Sequence[RlCase], values: Mapping[Parameter, float]) -> list[RlCase]:
    """Return RL cases whose framework has these values of rollout parameters."""
    values_by_name: dict[str, Any] = {parameter.name: value for parameter, value in values.items()}
    changed = []
    for case in cases:
        assert case.framework.rollouts is not None
        rollouts = replace(case.framework.rollouts, **values_by_name)
        changed.append(replace(case, framework=replace(case.framework, rollouts=rollouts)))
    return changed


def step_and_phases(run: Run, _: RlCase) -> Iterator[tuple[str, float, float]]:
    """Yield name, measured seconds and weight of an RL step and its phases."""
    weights = {"step_time_s": 1.0, **dict.fromkeys(_PHASES, _PHASE_WEIGHT)}
    for quantity, weight in weights.items():
        if value := run.number(f"measured_{quantity}"):
            yield quantity, value, weight


_PHASES = ("generate_s", "logprob_s", "update_s", "sync_s")
_PHASE_WEIGHT = 0.2


def with_values(
    cases: Sequence[TrainingCase], values: Mapping[Parameter, float]
) -> list[TrainingCase]:
    """Return training cases whose framework and GPU have these values of parameters."""
    frameworks: dict[tuple[int, bool], FrameworkProfile] = {}
    changed = []
    for case in cases:
        key = (id(case.framework), case.has_fixed_loss)
        if key not in frameworks:
            frameworks[key] = _framework(case, values)
        changed.append(replace(case, framework=frameworks[key], gpu=_gpu(case, values)))
    return changed


def _framework(case: TrainingCase, values: Mapping[Parameter, float]) -> FrameworkProfile:
    """Return the framework profile of a case with these values of fitted parameters."""
    sections: defaultdict[str, dict[str, float]] = defaultdict(dict)
    for parameter, value in values.items():
        is_fixed_loss = case.has_fixed_loss and parameter.label == "memory.per_logit"
        if parameter.owner in SECTIONS and not is_fixed_loss:
            sections[parameter.owner][parameter.name] = value
    changed: dict[str, Any] = {
        owner: replace(getattr(case.framework, owner), **section)
        for owner, section in sections.items()
    }
    return replace(case.framework, **changed)


def _gpu(case: TrainingCase, values: Mapping[Parameter, float]) -> GpuSpec:
    """Return the GPU of a case with these values of its fitted efficiencies."""
    efficiencies: dict[str, Any] = {
        parameter.name: value
        for parameter, value in values.items()
        if parameter.owner not in SECTIONS and parameter.owner == case.gpu_class
    }
    if efficiencies:
        return replace(case.gpu, efficiency=replace(case.gpu.efficiency, **efficiencies))
    return case.gpu


def step_and_memory(run: Run, case: TrainingCase) -> Iterator[tuple[str, float, float]]:
    """Yield name, value and weight of the measured step time [s] and peak memory [GiB]."""
    step_time, memory = _step_time(run, case), run.number(f"measured_{MEMORY}")
    if step_time:
        yield "step_time_s", step_time, 1.0
    if memory:
        yield MEMORY, memory, 1.0


def _step_time(run: Run, case: TrainingCase) -> float | None:
    """Return the measured step time [s], also from tokens/s; None: not measured."""
    if run.number("measured_step_time_s"):
        return run.number("measured_step_time_s")
    batch = run.number("global_batch_size")
    per_gpu = run.number("measured_tokens_per_s_per_gpu")
    total = run.number("measured_tokens_per_s") or (per_gpu or 0.0) * case.num_gpus
    return batch * case.sequence_length / total if batch and total else None


_TOKEN, _FIRST = "time_per_output_token_s", "time_to_first_token_s"
# Queues make the time to first token scatter: it has less weight than the other quantities.
_FIRST_WEIGHT = 0.1


def with_engine_values(
    cases: Sequence[InferenceCase], values: Mapping[Parameter, float]
) -> list[InferenceCase]:
    """Return cases of one group with the engine that has these values of parameters."""
    engine = _engine(cases[0], values)
    return [replace(case, engine=engine) for case in cases]


def request_times(run: Run, case: InferenceCase) -> Iterator[tuple[str, float, float]]:
    """Yield name, value and weight: time per output token, else throughput; first-token time."""
    measured = {name: run.number(f"measured_{name}") for name in (_TOKEN, *THROUGHPUT, _FIRST)}
    measured_names = [name for name in (_TOKEN, *THROUGHPUT) if measured[name]]
    for name, weight in (
        (measured_names[0] if measured_names else "", 1.0),
        (_FIRST, _FIRST_WEIGHT if measured_names else 1.0),
    ):
        if value := measured.get(name):
            yield name, value, weight


def _engine(case: InferenceCase, values: Mapping[Parameter, float]) -> EngineProfile:
    """Return the engine of a case with these values; slower reads of large weights stay slower."""
    tables: defaultdict[str, dict[str, float]] = defaultdict(dict)
    for parameter, value in values.items():
        is_scaled = parameter.name == "weight_bandwidth_fraction"
        set_to = min(value / case.weight_scale, 2.0) if is_scaled else value
        tables[parameter.owner][parameter.name] = set_to
    changed = {
        table: _changed(getattr(case.engine, table), section) for table, section in tables.items()
    }
    return replace(case.engine, **changed)


def _changed(table: Any, values: Mapping[str, float]) -> Any:
    """A table of a profile with other numbers: named ones, or one per architecture."""
    return {**table, **values} if isinstance(table, Mapping) else replace(table, **values)


Measurement = tuple[str, float, float]
"""A quantity, its value in the unit of the tables, and its weight (1: full)."""


@record(kw_only=True)
class CalibrationKind:
    """The fit of profiles of a kind to tables of its runs.

    ``parameters`` returns the parameters of a profile, ``is_usable`` whether a case depends on the
    profile only, ``with_values`` cases of one group with other values of parameters. ``worst``:
    assumed error factor of a measurement without a prediction. ``option`` takes the fitted profile
    on the command line, ``time`` names the fitted quantity. ``settled`` fixes the choices of a case
    that would change with the parameters.
    """

    profiles: SpecKind
    load: Callable[[Library, str], FrameworkProfile | EngineProfile]
    parameters: Callable[[Any], Iterator[Parameter]]
    is_usable: Callable[[Case], bool]
    measurements: Callable[[Run, Any], Iterator[Measurement]]
    with_values: Callable[[Sequence[Any], Mapping[Parameter, float]], Sequence[Any]]
    predict_group: Callable[[Sequence[Any]], Iterable[Prediction]]
    worst: float
    option: str
    time: str
    settled: Callable[[Any], Any] = lambda case: case


CALIBRATED = {
    TableKind.TRAINING: CalibrationKind(
        profiles=SpecKind.FRAMEWORKS,
        load=Library.framework,
        parameters=parameters_of,
        is_usable=lambda case: True,
        measurements=step_and_memory,
        with_values=with_values,
        predict_group=predict_training_group,
        worst=math.nan,
        option="--profile",
        time="step time",
    ),
    TableKind.INFERENCE: CalibrationKind(
        profiles=SpecKind.ENGINES,
        load=Library.engine,
        parameters=parameters_of,
        is_usable=lambda case: getattr(case, "mode", None) is not Mode.DISAGGREGATED,
        measurements=request_times,
        with_values=with_engine_values,
        predict_group=predict_inference_group,
        worst=20.0,
        option="--engine",
        time="times",
    ),
    TableKind.RL: CalibrationKind(
        profiles=SpecKind.FRAMEWORKS,
        load=Library.framework,
        parameters=rollout_parameters,
        is_usable=lambda case: True,
        measurements=step_and_phases,
        with_values=with_rollout_values,
        predict_group=predict_rl_group,
        worst=math.nan,
        option="--framework",
        time="step and its phases",
        settled=tuned,
    ),
}


def require_fitting() -> None:
    """Check that the dependencies of calibration are installed.

    Raises MissingDependencyError if scipy or tomlkit is missing.
    """
    if find_spec("scipy") is None or find_spec("tomlkit") is None:
        raise MissingDependencyError(
            "Calibration needs scipy and tomlkit: pip install 'llm-gpu-planner[calibration]'."
        )
