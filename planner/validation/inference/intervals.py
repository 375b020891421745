"""90 % intervals of inference, and how near the runs they come from are."""

from __future__ import annotations

from planner.validation.inference.cases import InferenceCase
from planner.validation.inference.tables import EngineRule
from planner.validation.intervals import basis_among, calibrated_kinds, interval_of

INTERVALS = "inference_intervals.csv"
CALIBRATED = "engines_calibrated.csv"
QUANTITIES = ("time_to_first_token", "time_per_output_token", "throughput", "peak_memory")


def inference_interval(quantity: str, case: InferenceCase) -> tuple[float, float]:
    """Factors on a prediction between which measurements of similar runs lie.

    ``quantity`` is one of ``QUANTITIES``. That of ``throughput`` is for times: rates lie
    between the inverses of its ends.
    """
    return interval_of(quantity, inference_keys(case), INTERVALS)


def inference_keys(case: InferenceCase) -> tuple[str, ...]:
    """What kind of run a case is: engine, class of GPU, mode, dense or a mixture of experts."""
    return (case.rule.label, case.gpu_class, case.mode.value, case.kind)


def inference_basis(case: InferenceCase) -> str:
    """How near the calibration runs are: measured, transferred or roofline."""
    return engine_basis(case.rule, case.gpu_class, case.kind)


def engine_basis(rule: EngineRule, silicon: str, kind: str) -> str:
    """The same for an engine, a class of GPUs and a kind of model."""
    key = (rule.profile, silicon, kind)
    return basis_among(calibrated_kinds(CALIBRATED), key, exact=not rule.nearest)
