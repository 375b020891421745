"""Assumptions of a serving plan, each with evaluated alternatives."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from planner.estimators.inference.batch_share import ServingInputs
from planner.optimize.source import Candidates
from planner.specs.serving_workload import acceptance
from planner.workloads.assumptions import (
    FACTORS,
    Assumption,
    EvaluatedChoice,
    assumed_limits,
    limits_time,
    make_assumption,
    open_network,
    open_parameters,
)
from planner.workloads.serving.max_concurrency import at_max_concurrency, max_concurrency
from planner.workloads.serving.results import as_candidates


def open_serving(chosen: EvaluatedChoice) -> list[Assumption]:
    """The assumptions of a serving plan: network, lengths, concurrency, number formats.

    The concurrency is an assumption if no request rate determines it.
    """
    facts = [*open_network(chosen), *map(_with_fitting_concurrency, _open_lengths(chosen))]
    if chosen.source.mesh is None:  # pools have values of their own in each
        return facts
    if chosen.request.request_rate is None:
        facts += _open_concurrency(chosen)
    model = chosen.source.inputs.model
    published = model.quantization or model.expert_quantization or chosen.request.precision
    names = ("kv_cache",) if published else ("quantization", "kv_cache")
    facts += [*_open_adapters(chosen), *_open_acceptance(chosen)]
    return [*facts, *map(_with_fitting_concurrency, open_parameters(chosen, names))]


def _open_acceptance(chosen: EvaluatedChoice) -> list[Assumption]:
    """The assumed acceptance rate of drafts, at the lowest and highest published rate."""
    work = as_candidates(chosen.candidates).inputs.workload
    if not work.draft_tokens or chosen.request.acceptance_rate is not None:
        return []
    published = acceptance(work.draft_method, is_tree=work.drafts_trees)
    alternatives = {
        f"{rate:g}": chosen.with_setting(partial(_with_work, {"acceptance_rate": rate}))
        for rate in (published.low, published.high)
    }
    return [make_assumption("acceptance_rate", f"{work.acceptance_rate:g}", alternatives)]


def _open_adapters(chosen: EvaluatedChoice) -> list[Assumption]:
    """The time of LoRA adapter kernels, at half and twice its assumed value."""
    if not as_candidates(chosen.candidates).inputs.max_loras:
        return []
    labels = ("half as long", "twice as long")
    alternatives = {
        label: chosen.with_setting(partial(_with_adapter_time, factor))
        for label, factor in zip(labels, FACTORS, strict=True)
    }
    return [make_assumption("adapter_kernels", "as the engine profile has them", alternatives)]


def _with_adapter_time(factor: float, inputs: ServingInputs) -> ServingInputs:
    """The inputs with the time of LoRA adapter kernels multiplied by ``factor``."""
    execution = inputs.engine.execution
    changed = replace(
        execution,
        adapter_kernels=factor * execution.adapter_kernels,
        adapter_bandwidth_fraction=min(execution.adapter_bandwidth_fraction / factor, 2.0),
        adapter_launch_time=factor * execution.adapter_launch_time,
    )
    return replace(inputs, engine=replace(inputs.engine, execution=changed))


def _with_fitting_concurrency(fact: Assumption) -> Assumption:
    """The assumption with fewer concurrent requests where an alternative exceeds memory.

    A plan that fills its KV cache has no room for longer requests, so the engine runs fewer.
    """
    alternatives: dict[str, Candidates] = {}
    for label, evaluated in fact.tried.items():
        fewer = None
        if int(np.max(evaluated.rejected_by)) > evaluated.source.num_rules:
            fewer = at_max_concurrency(evaluated.source, evaluated.configurations)
        if fewer is None:
            alternatives[label] = evaluated
        else:
            number = int(as_candidates(fewer).configurations.concurrency[0])
            alternatives[f"{label} with {number:,} at once"] = fewer
    return replace(fact, tried=alternatives)


def _open_lengths(chosen: EvaluatedChoice) -> list[Assumption]:
    """Each assumed length of prompts and answers [tokens], at half and twice its value."""
    lengths = []
    inputs = as_candidates(chosen.candidates).inputs
    model, work = inputs.model, inputs.workload
    for name in ("input_tokens", "output_tokens"):
        if getattr(chosen.request, name) is not None:
            continue
        assumed = getattr(work, name)
        headroom = (
            (model.max_position_embeddings or np.inf) - work.input_tokens - work.output_tokens
        )
        counts = [int(factor * assumed) for factor in FACTORS]
        alternatives = {
            f"{count:,}": chosen.with_setting(partial(_with_work, {name: count}))
            for count in counts
            if count - assumed <= headroom
        }
        lengths.append(make_assumption(name, f"{assumed:,}", alternatives))
    return lengths


def _with_work(values: Mapping[str, Any], inputs: ServingInputs) -> ServingInputs:
    return replace(inputs, workload=replace(inputs.workload, **values))


def _open_concurrency(chosen: EvaluatedChoice) -> list[Assumption]:
    """The assumed number of concurrent requests at half and twice its value; empty if set."""
    name = "concurrency"
    if not chosen.is_open(name) or chosen.request.num_requests is not None:
        return []
    number = float(np.ravel(as_candidates(chosen.candidates).configurations.concurrency)[0])
    maximum = float(max_concurrency(chosen.source, chosen.candidates.configurations))
    counts = sorted({max(1.0, number // 2), max(min(2 * number, maximum), number)} - {number})
    alternatives = {f"{count:,.0f}": chosen.with_value(name, count) for count in counts}
    return [make_assumption(name, f"{number:,.0f}", alternatives)]


def assumed_for_batches(names: Collection[str], output_tokens: int) -> dict[str, float]:
    """The assumed bound on a static batch's request latency [s]; empty if a time limit is set.

    The bound is the latency of a served answer of ``output_tokens`` at the assumed limits of
    serving.
    """
    if limits_time("inference", names):
        return {}
    served = assumed_limits("serve", ())
    further = (output_tokens - 1) * served["time_per_output_token"]
    return {"request_latency": served["time_to_first_token"] + further}
