"""The replicas of a run: how its columns split GPUs, and what they leave open."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from planner.configurations.serving import ServingConfigurations
from planner.enums import CacheType, Quantization
from planner.specs.engine import EngineProfile
from planner.specs.gpu import GpuSpec
from planner.specs.model import ModelSpec
from planner.specs.quantization import compute_precision
from planner.validation.inference.setups import PUBLISHED
from planner.validation.inference.tables import cache_type, convention, quantizations
from planner.validation.models import NotPredicted, has_experts
from planner.validation.runs import Run

_MOST_GPUS = 10**6
# Formats that store as many bits and compute in 16, for GPUs without the arithmetic.
_WEIGHT_ONLY = {
    Quantization.NVFP4: Quantization.W4A16,
    Quantization.FP8: Quantization.W8A16,
    Quantization.FP8_BLOCK: Quantization.W8A16,
    Quantization.W8A8: Quantization.W8A16,
    Quantization.W4A4: Quantization.W4A16,
    Quantization.W4A8: Quantization.W4A16,
}


# Workers of a pool that are wider run attention data parallel, whatever the columns say,
# unless a configuration file says otherwise.
_WIDEST_TENSOR = 8


@dataclass(frozen=True, kw_only=True)
class Deployment:
    """Equal replicas of a model, all of one kind; ``replicas`` of them share the requests.

    ``narrow_cache``: the run does not give the cache's precision, and its weights have less
    than 16 bits: where its requests do not fit a 16-bit cache, it is taken to have an fp8 one.
    """

    tensor_parallel: int
    pipeline_parallel: int
    attention_data_parallel: int
    expert_parallel: int
    replicas: float
    max_num_batched_tokens: int
    max_num_seqs: int
    stream_interval: int
    quantization: Quantization
    expert_quantization: Quantization
    kv_cache: CacheType
    weight_offload: float = 0.0
    kv_offload: float = 0.0
    narrow_cache: bool = False

    @property
    def replica_gpus(self) -> int:
        """GPUs of one replica."""
        return self.tensor_parallel * self.pipeline_parallel * self.attention_data_parallel


def configurations(
    deployments: Sequence[Deployment], concurrency: Sequence[float]
) -> ServingConfigurations:
    """One replica of each, with so many requests in it."""
    names = ("tensor_parallel", "pipeline_parallel", "attention_data_parallel", "expert_parallel",
             "max_num_batched_tokens", "quantization", "expert_quantization", "kv_cache",
             "weight_offload", "kv_offload")  # fmt: skip
    columns = {name: [getattr(one, name) for one in deployments] for name in names}
    return ServingConfigurations.of(
        num_gpus=[one.replica_gpus for one in deployments], concurrency=concurrency, **columns
    )


def deployment(
    run: Run, model: ModelSpec, gpu: GpuSpec, engine: EngineProfile, prefix: str = ""
) -> Deployment:
    """The replicas that the columns of a run with this prefix describe."""
    dense, experts = (_computable(code, gpu) for code in quantizations(run))
    split = _split(run, prefix, has_experts(model))
    total = run.count("num_gpus")
    replicas = 1.0
    if total and not prefix:
        split = _within(split, total)
        replicas = max(total / split.replica_gpus, 1.0)
    elif not prefix and split.attention == 1 and not run.text(PUBLISHED):
        split, replicas = _divided(split, _batches(run), has_experts(model))
    return Deployment(
        tensor_parallel=split.tensor,
        pipeline_parallel=split.pipeline,
        attention_data_parallel=split.attention,
        expert_parallel=split.experts,
        replicas=replicas,
        max_num_batched_tokens=_scheduled(run, engine, prefix, "max_num_batched_tokens"),
        max_num_seqs=_scheduled(run, engine, prefix, "max_num_seqs"),
        stream_interval=_scheduled(run, engine, prefix, "stream_interval"),
        quantization=dense,
        expert_quantization=experts,
        kv_cache=cache_type(run, engine.name.lower()),
        weight_offload=float(convention(run, "weight_offload") or 0),
        kv_offload=float(convention(run, "kv_offload") or 0),
        narrow_cache=not run.word("kv_cache_precision") and experts is not Quantization.W16A16,
    )


def _scheduled(run: Run, engine: EngineProfile, prefix: str, name: str) -> int:
    """A setting of the scheduler: of these workers, else the engine's."""
    own = run.count(f"{prefix}{name}") if prefix else None
    return own or int(getattr(engine.scheduler, name))


@dataclass(frozen=True, kw_only=True)
class _Split:
    tensor: int
    pipeline: int
    attention: int
    experts: int

    @property
    def replica_gpus(self) -> int:
        return self.tensor * self.pipeline * self.attention


def _split(run: Run, prefix: str, moe: bool) -> _Split:
    def count(name: str) -> int:
        return run.count(f"{prefix}{name}") or 1

    t, a, e = count("tensor_parallel"), count("attention_data_parallel"), count("expert_parallel")
    p = count("pipeline_parallel")
    if max(t, a, e, p) > _MOST_GPUS:
        raise NotPredicted("impossible layout: more GPUs than there are")
    per_expert = count("expert_tensor_parallel")
    if not prefix:
        t, a, e = _once(t, a, e, per_expert)
    if prefix and moe and a == 1 and t > _WIDEST_TENSOR and not run.text(PUBLISHED):
        t, a = 1, t
    if moe and not prefix and convention(run, "attention") == "data_parallel":
        t, a, e = _shared(t, a, e, run.count("data_parallel") or 1)
    stage = t * a
    return _Split(tensor=t, pipeline=p, attention=a, experts=_experts(e, stage) if moe else 1)


def _once(t: int, a: int, e: int, per_expert: int) -> tuple[int, int, int]:
    """Sizes where a source multiplied the width of a node twice.

    Some list the replica's GPUs as tensor, expert and attention-data parallel each and then
    their product: 8 GPUs appear as 64 = 8 x 8, 4 GPUs as 4 x 4 = 16.
    """
    if per_expert == e > 1 and t * a == e * per_expert:
        return (1, e, e) if a > 1 else (e, 1, e)
    if t == a > 1 and e == t * a:
        return 1, a, a
    return t, a, e


def _shared(t: int, a: int, e: int, d: int) -> tuple[int, int, int]:
    """Sizes with attention data parallel over the whole replica, experts spread over it."""
    ranks = max(t * a, d, e)
    return 1, ranks, e if e > 1 else ranks


def _batches(run: Run) -> int:
    """Into how many equal batches a source divides the requests of its clients."""
    whole, batch = run.count("concurrency") or 1, run.count("engine_batch_size")
    return whole // batch if batch and whole % batch == 0 else 1


def _divided(split: _Split, batches: int, moe: bool) -> tuple[_Split, float]:
    """The split and replicas that have so many batches: as many ranks of attention, or replicas."""
    if moe and batches == split.tensor > 1:
        return replace(split, tensor=1, attention=batches), 1.0
    return split, float(max(batches, 1))


def _experts(e: int, stage: int) -> int:
    """Expert-parallel ranks that divide the stage."""
    return e if stage % e == 0 else math.gcd(e, stage)


def _within(split: _Split, total: int) -> _Split:
    """Fewer tensor-parallel ranks where a source counts cores of its GPUs."""
    if split.replica_gpus <= total:
        return split
    return replace(split, tensor=max(1, total // (split.pipeline * split.attention)))


def _computable(code: Quantization, gpu: GpuSpec) -> Quantization:
    """The quantization, or the weight-only one in its place on GPUs without its arithmetic."""
    if compute_precision(code, gpu.peak_flops) is not None:
        return code
    return _WEIGHT_ONLY.get(code, code)
