"""Settings and configurations of published runs, for the tests of the estimators."""

from __future__ import annotations

from functools import cache
from typing import Any

from planner import Request
from planner.configurations.configuration_tables import TrainingConfigurations
from planner.estimators.training.micro_batch_share import TrainingInputs
from planner.workloads.make_plan import make_plan

ONE = {"zero_stage": 0}


@cache
def setting(model: str, framework: str = "megatron-lm", **request: Any) -> TrainingInputs:
    return make_plan(
        Request(model=model, num_gpus=8, framework=framework, **request)
    ).problem.inputs


def configuration(**values: Any) -> TrainingConfigurations:
    """One configuration, or a table where values are lists; the rest is trivial."""
    return TrainingConfigurations.of(**{**ONE, **values})
