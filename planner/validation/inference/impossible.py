"""Layouts of published runs that cannot be: what their columns say contradicts the model or GPU."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from planner.base.units import GIB
from planner.configurations.serving_rules import SERVING_RULES, ServingContext
from planner.estimators.inference.weights import weight_bytes
from planner.validation.inference.cases import InferenceCase, Mode
from planner.validation.inference.deployments import Deployment, configurations
from planner.validation.runs import Run

_RULES = tuple(
    rule for rule in SERVING_RULES if rule.name in ("attention_heads", "num_hidden_layers")
)


def impossible_layout(run: Run, case: InferenceCase) -> str:
    """Why the layout of a run cannot be what ran; empty where nothing speaks against it.

    Its prediction would be about something else: such a run is listed, and left out of errors.
    """
    return next(_faults(run, case), "")


def _faults(run: Run, case: InferenceCase) -> Iterator[str]:
    pools = [case.replica] if case.prefill is None else [case.replica, case.prefill.deployment]
    for deployment in pools:
        yield from _of_deployment(case, deployment)
    if case.mode is Mode.DISAGGREGATED:
        named = (run.count("prefill_num_workers"), run.count("decode_num_workers"))
        if not all(named):
            yield "it has pools, but no numbers of workers"
    elif not run.count("num_gpus"):
        size, domain = case.replica.tensor_parallel, case.cluster.scale_up.domain_size
        if size > max(domain, 8):
            yield f"tensor_parallel {size} leaves a node of {domain}; no number of GPUs is given"


def _of_deployment(case: InferenceCase, deployment: Deployment) -> Iterator[str]:
    setting, c = case.setting, configurations([deployment], [1.0])
    context = ServingContext(
        gpu=case.gpu,
        model=case.model,
        engine=case.engine,
        workload=setting.workload,
        domain_size=case.cluster.scale_up.domain_size,
    )
    for rule in _RULES:
        if np.any(rule.violated(c, context)) and not case.stages:
            yield f"{rule.description} ({deployment.tensor_parallel})"
    held = float(np.max(weight_bytes(setting, c).total)) * case.weight_scale
    on_gpu = held * (1 - deployment.weight_offload)
    if on_gpu > case.gpu.allocatable_memory:
        yield (
            f"weights of {on_gpu / GIB:,.0f} GiB on a GPU of "
            f"{case.gpu.allocatable_memory / GIB:,.0f} GiB"
        )
