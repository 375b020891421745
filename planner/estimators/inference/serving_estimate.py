"""Evaluate serving: from specs and configurations to an estimate."""

from __future__ import annotations

import numpy as np

from planner.base.arrays import CodeArray, FloatArray
from planner.base.records import record
from planner.configurations.configuration_tables import ServingConfigurations
from planner.configurations.serving_rules import (
    SERVING_REJECTING,
    ServingContext,
    first_broken_serving_rule,
)
from planner.estimators.inference.batch_share import ServingInputs
from planner.estimators.inference.closed_loop import RequestMeans, served_at_concurrency
from planner.estimators.inference.serving_memory import (
    ServingMemory,
    has_memory_to_start,
    serving_memory,
)
from planner.estimators.inference.shared_predictions import shared

SERVING_REJECTIONS = tuple(rule.name for rule in SERVING_REJECTING)


@record(kw_only=True)
class ServingEstimate:
    """Predictions for every configuration; arrays broadcast to the configurations' shape.

    ``rejected_by`` is 0 where a configuration is possible and its requests fit, else the
    one-based position in ``SERVING_REJECTIONS`` of the rule that rejects it. Rates are per
    deployment, times per request.
    """

    inputs: ServingInputs
    configurations: ServingConfigurations
    memory: ServingMemory
    served: RequestMeans
    rejected_by: CodeArray

    @property
    def request_rate(self) -> FloatArray:
        """Requests finished per second by all replicas."""
        return self.served.request_rate * self.configurations.data_parallel

    @property
    def tokens_per_second(self) -> FloatArray:
        """Prompt and generated tokens per second of all replicas."""
        w = self.inputs.workload
        return self.request_rate * (w.input_tokens + w.output_tokens)

    @property
    def request_latency(self) -> FloatArray:
        """Mean seconds from arrival to the last token."""
        return self.served.request_latency(self.inputs.workload.output_tokens)

    @property
    def peak_memory(self) -> FloatArray:
        """Bytes on the fullest GPU."""
        return self.memory.total


@shared
def evaluate_serving(
    inputs: ServingInputs,
    configurations: ServingConfigurations,
    rejected_by: CodeArray | None = None,
) -> ServingEstimate:
    """Predict memory, latency and throughput of every configuration, and its rejection.

    Where ``rejected_by`` is known, the times of what is rejected do not have to be right.
    """
    c, counts = configurations, True if rejected_by is None else rejected_by == 0
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        memory = serving_memory(inputs, c)
        served = served_at_concurrency(inputs, c, memory, counts)
    codes = serving_rejections(inputs, c, memory) if rejected_by is None else rejected_by
    return ServingEstimate(
        inputs=inputs, configurations=c, memory=memory, served=served, rejected_by=codes
    )


def broken_serving_rule(
    inputs: ServingInputs, configurations: ServingConfigurations, *, is_pool: bool = False
) -> CodeArray:
    """Return the one-based index in ``SERVING_REJECTIONS`` of the first broken rule; 0: none."""
    context = ServingContext(
        gpu=inputs.machine.gpu,
        model=inputs.model,
        engine=inputs.engine,
        workload=inputs.workload,
        domain_size=inputs.machine.cluster.scale_up.domain_size,
        is_pool=is_pool,
    )
    return first_broken_serving_rule(configurations, context)


def serving_rejections(
    inputs: ServingInputs,
    configurations: ServingConfigurations,
    memory: ServingMemory,
    *,
    is_pool: bool = False,
) -> CodeArray:
    """Return `broken_serving_rule`, also checking that the requests fit in memory."""
    broken = broken_serving_rule(inputs, configurations, is_pool=is_pool)
    last = len(SERVING_REJECTIONS)
    surely = has_memory_to_start(inputs, memory, configurations)
    for capacity, number, starts in (
        (memory.room, last, surely),
        (memory.host_room, last - 1, True),
    ):
        too_large = ~((capacity.holds(capacity.sequence) >= configurations.concurrency) & starts)
        broken = np.where((broken == 0) & too_large, np.int8(number), broken)
    return broken
