"""From a search space of serving and the user's settings to the mesh of all candidates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from planner.configurations.choices import checked, listed, refuse_unknown
from planner.configurations.enumerate import Factor, OpenMesh, factor, joined, numbers
from planner.configurations.serving import SERVING_NAMES, ServingConfigurations
from planner.errors import SearchSpaceError
from planner.estimators.machine import Machine
from planner.question.terms import plain_values, terms_about
from planner.specs.engine import EngineProfile
from planner.specs.model import ModelSpec
from planner.specs.search_space import SearchSpace

_ALL = "all"
_LARGEST_REPLICA = 64
_LAYOUT = terms_about("model_parallel", "serve")
_CACHE = ("kv_cache", "weight_offload", "kv_offload", "gpu_memory_utilization")
_ALONE = (*_CACHE, "concurrency", "max_num_batched_tokens")


def serving_mesh(
    space: SearchSpace,
    settings: Mapping[str, object],
    *,
    counts: Sequence[int] | None,
    model: ModelSpec,
    engine: EngineProfile,
) -> OpenMesh[ServingConfigurations]:
    """All combinations of the space's values, narrowed by ``settings``.

    Without ``counts`` of GPUs every configuration is one replica on its own GPUs.

    Raises
    ------
    SearchSpaceError
        A parameter or a value is unknown, there is no value left, or the engine has no such option.
    """
    refuse_unknown(space, settings, SERVING_NAMES, derived=("data_parallel", "replicas"))
    of_engine = {"max_num_batched_tokens": engine.scheduler.max_num_batched_tokens}
    choices = {**plain_values("serve"), **of_engine, **space.parameters, **settings}
    bases = {
        "num_gpus": max(counts or [_LARGEST_REPLICA]),
        "num_hidden_layers": model.num_hidden_layers,
        "num_experts": max(model.num_experts, 1),
        "global_batch_size": 1,
    }
    values = {name: listed(choice, bases) for name, choice in choices.items()}
    table = {name: checked(name, values[name]) for name in (*_LAYOUT, *_ALONE)}
    if any(table["gpu_memory_utilization"]) and engine.memory.memory_share is None:
        raise SearchSpaceError(
            f"{engine.name} has no option for its share of the GPU's memory: leave out "
            "gpu_memory_utilization, or name an engine that has (vllm, sglang, tensorrt-llm)."
        )
    if not model.num_experts and "attention_data_parallel" not in settings:
        table["attention_data_parallel"] = [1]
    if "concurrency" not in settings:
        # More requests than the engine runs at once would only wait.
        most = engine.scheduler.max_num_seqs * max(table["attention_data_parallel"])
        useful = {n for n in table["concurrency"] if n <= most}
        if len(table["concurrency"]) > 1 and useful:
            table["concurrency"] = sorted({*useful, min(most, max(table["concurrency"]))})
    alone = {name: factor(ServingConfigurations, name, table[name]) for name in _ALONE}
    return OpenMesh(
        kind=ServingConfigurations,
        axes=[
            [_layouts(table, values["expert_parallel"], counts, model.num_experts > 0)],
            [_quantizations(space, settings, model, model.num_experts > 0)],
            [alone[name] for name in _CACHE],
            [alone["max_num_batched_tokens"]],
            [alone["concurrency"]],
        ],
    )


def spans_nodes(machine: Machine, mesh: OpenMesh[ServingConfigurations]) -> bool:
    """Whether the tensor parallelism of all configurations goes over nodes, or over racks of GPUs
    that are one domain."""
    cluster = machine.cluster
    return bool(
        min(mesh.values("tensor_parallel"))
        > max(cluster.gpus_per_node, cluster.scale_up.domain_size)
    )


def _layouts(
    table: Mapping[str, Sequence[float]],
    spreads: Sequence[object],
    counts: Sequence[int] | None,
    has_experts: bool,
) -> Factor:
    """Every layout of a replica once, for each number of GPUs."""
    degrees = [factor(ServingConfigurations, name, table[name]) for name in _LAYOUT]
    plain = joined(degrees)
    stage = numbers(plain, "tensor_parallel") * numbers(plain, "attention_data_parallel")
    replica = stage * numbers(plain, "pipeline_parallel")
    if min(len(table[name]) for name in ("pipeline_parallel", "attention_data_parallel")) > 1:
        # Engines combine these two hardly ever; who sets one of them gets both.
        usual = (plain["pipeline_parallel"] == 1) | (plain["attention_data_parallel"] == 1)
        plain = {name: values[usual] for name, values in plain.items()}
        stage, replica = stage[usual], replica[usual]
    rows = []
    for spread in spreads:
        if spread == _ALL:
            ranks = stage if has_experts else np.ones_like(stage)
        else:
            (number,) = checked("expert_parallel", [spread])
            ranks = np.full_like(stage, number)
        for count in counts or [0]:
            gpus = np.full_like(stage, count) if counts else replica
            fitting = replica <= gpus if (replica <= gpus).any() else replica > 0
            columns = [gpus, *plain.values(), ranks]
            rows.append(np.stack([column[fitting] for column in columns], axis=1))
    names = ("num_gpus", *plain, "expert_parallel")
    distinct = np.unique(np.concatenate(rows), axis=0)
    # Replicas of one size have room for about as many requests: blocks of them narrow well.
    size = distinct[:, 1] * distinct[:, 2] * distinct[:, 3]
    return dict(zip(names, distinct[np.argsort(size, kind="stable")].T, strict=True))


def _quantizations(
    space: SearchSpace, settings: Mapping[str, object], model: ModelSpec, has_experts: bool
) -> Factor:
    """Pairs of types: of what the user set, else of the published weights, else of the space.

    Experts have the type of the other matrices where nothing else is said.
    """
    words: object = space.parameters.get("quantization", "w16a16")
    experts: object = space.parameters.get("expert_quantization")
    if model.quantization or model.expert_quantization:
        words, experts = model.quantization or "w16a16", model.expert_quantization
    words = settings.get("quantization", words)
    if "quantization" in settings:
        experts = None
    experts = settings.get("expert_quantization", experts)
    others = checked("quantization", listed(words, {}))
    pairs = [(code, code) for code in others]
    if experts is not None and has_experts:
        own = checked("expert_quantization", listed(experts, {}))
        pairs = [(code, expert) for code in others for expert in own]
    columns = np.asarray(pairs, dtype=np.int8)
    return {"quantization": columns[:, 0], "expert_quantization": columns[:, 1]}
