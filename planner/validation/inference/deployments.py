"""Replicas of a run: the split of its GPUs from its columns, with defaults for missing ones."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from functools import cache

import numpy as np

from planner.base.enums import CacheType, Quantization
from planner.base.records import record
from planner.confidence.error_classes import has_experts
from planner.confidence.profile_rules import read_table
from planner.configurations.configuration_tables import ServingConfigurations
from planner.question.terms import terms_about, terms_of
from planner.specs.engine import EngineProfile
from planner.specs.gpu import GpuSpec
from planner.specs.model import ModelSpec
from planner.specs.quantization import compute_precision
from planner.validation.run_tables import FOLDER, Run
from planner.validation.spec_library import NotPredicted

# Bits per weight from which a format of open size is nearer to 8 than to 4 bits.
_NEARER_EIGHT = 6.0
_NAMED = re.compile(r"mxfp4|fp4|fp8|awq|gptq|int4|int8")


def quantizations(run: Run) -> tuple[Quantization, Quantization]:
    """Return the number formats of dense and of expert weights, from columns or checkpoint."""
    weights = run.word("weight_precision") or run.word("gemm_precision")
    if run.word("gemm_precision") in ("fp8_block", "mxfp4"):
        weights = run.word("gemm_precision")
    if not weights and (match := _NAMED.search(run.word("model"))):
        weights = match[0]
    if not weights and (bits := run.number("bits_per_weight")):
        weights = "int8" if bits >= _NEARER_EIGHT else "int4"
    row = _first("quantizations.csv", model=run.word("model"), weights=weights,
                 activations=run.word("activation_precision"))  # fmt: skip
    dense, experts = row["quantization"], row["expert_quantization"]
    return Quantization[dense.upper()], Quantization[experts.upper()]


def cache_type(run: Run, profile: str) -> CacheType:
    """Return the number format of the KV cache of a run."""
    row = _first(
        "kv_caches.csv",
        engine=profile,
        weights=run.word("weight_precision"),
        cache=run.word("kv_cache_precision"),
        setup=f"{'tuned' if run.flag('tuned') else 'own'} {run.word('gemm_precision')}",
    )
    return CacheType[row["cache_type"].upper()]


def _first(table: str, **words: str) -> Mapping[str, str]:
    """The first row whose patterns are in all of these words; an empty pattern is in any."""
    return _matching(table, tuple(words.items()))


@cache
def _matching(table: str, words: tuple[tuple[str, str], ...]) -> Mapping[str, str]:
    """Return the first row of a CSV table whose nonempty patterns match these words."""
    return next(
        row
        for row in read_table(table, FOLDER)
        if all(not row[name] or re.search(row[name], word) for name, word in words)
    )


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
# Columns that split a replica; expert-parallel ranks are on the same GPUs.
_SIZES = terms_about("parallel_degree", "serve")
_EXPERTS = "expert_parallel"
# Shares of weights and KV cache in host memory.
_OFFLOAD = {
    "": (0.0, 0.0),
    "none": (0.0, 0.0),
    "weights": (1.0, 0.0),
    "kv_cache": (0.0, 1.0),
    "weights+kv_cache": (1.0, 1.0),
}


@record(kw_only=True)
class Deployment:
    """Equal replicas of a model, all of one kind; ``replicas`` of them share the requests.

    ``narrow_cache``: a tuned run does not specify the precision of the cache, and its weights have
    fewer than 16 bits. If its requests do not fit a 16-bit cache, an fp8 cache is assumed; others
    have the engine's default.
    """

    tensor_parallel: int
    context_parallel: int
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
    gpu_memory_utilization: float = 0.0
    narrow_cache: bool = False

    @property
    def replica_gpus(self) -> int:
        """GPUs of one replica."""
        stage = self.tensor_parallel * self.context_parallel * self.attention_data_parallel
        return stage * self.pipeline_parallel


@cache
def _columns() -> tuple[str, ...]:
    """Fields of a deployment that are columns of a configuration."""
    return tuple(terms_of("serve", "parameter").keys() - {"num_gpus", "concurrency"})


def configurations(
    deployments: Sequence[Deployment], concurrency: Sequence[float]
) -> ServingConfigurations:
    """Return one replica of each deployment, with its number of concurrent requests."""
    columns = {
        name: [getattr(deployment, name) for deployment in deployments] for name in _columns()
    }
    return ServingConfigurations.of(
        num_gpus=[deployment.replica_gpus for deployment in deployments],
        concurrency=concurrency,
        **columns,
    )


def deployment(
    run: Run, model: ModelSpec, gpu: GpuSpec, engine: EngineProfile, prefix: str = ""
) -> Deployment:
    """Build the replicas of a run from its columns with this prefix (such as ``decode_``)."""
    dense, experts = (_computable(code, gpu) for code in quantizations(run))
    split = _split(run, prefix, has_experts(model))
    word = run.word("offload")
    if word not in _OFFLOAD:
        subject = "weights on disk are" if word == "disk" else f"offload of {word} is"
        raise NotPredicted(f"{subject} not modelled yet")
    weights, cache = _OFFLOAD[word]
    share = run.number("gpu_memory_utilization") or 0.0
    if not share and run.flag("tuned") and engine.memory.static_reserve is not None:
        # Launch files of vendors set it: 0.82 to 0.95 in benchmarks of SemiAnalysisAI/InferenceX.
        share = engine.memory.gpu_memory_utilization
    if not 0 <= share <= 1:
        raise NotPredicted("gpu_memory_utilization must be from 0 to 1")
    return Deployment(
        **split,
        replicas=_replicas(run, split) if not prefix else 1.0,
        max_num_batched_tokens=_step_tokens(run, engine, prefix, split["attention_data_parallel"]),
        max_num_seqs=_scheduled(run, engine, prefix, "max_num_seqs"),
        stream_interval=_scheduled(run, engine, prefix, "stream_interval"),
        quantization=dense,
        expert_quantization=experts,
        kv_cache=cache_type(run, engine.name.lower()),
        weight_offload=weights,
        kv_offload=cache,
        gpu_memory_utilization=share,
        narrow_cache=bool(run.flag("tuned"))
        and not run.word("kv_cache_precision")
        and experts is not Quantization.W16A16,
    )


def _scheduled(run: Run, engine: EngineProfile, prefix: str, name: str) -> int:
    """A limit of the scheduler: of these workers if specified, else of the engine."""
    worker_limit = run.count(f"{prefix}{name}") if prefix else None
    return worker_limit or int(getattr(engine.scheduler, name))


def _step_tokens(run: Run, engine: EngineProfile, prefix: str, ranks: int) -> int:
    """Return new tokens per step and attention rank: of the run, else the engine's default."""
    if run.count("max_num_batched_tokens"):
        return _scheduled(run, engine, prefix, "max_num_batched_tokens")
    worker_tokens = run.count(f"{prefix}max_num_batched_tokens") if prefix else None
    return worker_tokens or int(engine.scheduler.default_step_tokens(np.asarray(float(ranks))))


def _split(run: Run, prefix: str, moe: bool) -> dict[str, int]:
    """Return the parallel sizes of a replica; expert ranks divide the GPUs of a stage."""
    split = {name: run.count(f"{prefix}{name}") or 1 for name in _SIZES}
    if moe and not run.text(f"{prefix}attention_data_parallel"):
        split["attention_data_parallel"] = _attention_ranks(run, prefix, split)
    if max(split.values()) > _MOST_GPUS:
        raise NotPredicted("impossible layout: more GPUs than there are")
    stage = split["tensor_parallel"] * split["context_parallel"] * split["attention_data_parallel"]
    return split | {_EXPERTS: math.gcd(split[_EXPERTS], stage) if moe else 1}


def _attention_ranks(run: Run, prefix: str, split: Mapping[str, int]) -> int:
    """Return the attention ranks of a run that does not state them: expert GPUs over TP size.

    Attention and experts share the GPUs of a stage. 1 if the sizes do not divide, or would need
    more GPUs than the run has.
    """
    tensor, pipeline = split["tensor_parallel"], split["pipeline_parallel"]
    of_experts = (run.count(f"{prefix}expert_tensor_parallel") or 1) * split["expert_parallel"]
    max_gpus = (run.count("num_gpus") or _MOST_GPUS) if not prefix else _MOST_GPUS
    if of_experts % tensor == 0 and of_experts * pipeline <= max_gpus:
        return of_experts // tensor
    return 1


def _replicas(run: Run, split: Mapping[str, int]) -> float:
    """Return the number of replicas on the GPUs of the run; 1 if their number is not stated."""
    of_replica = math.prod(size for name, size in split.items() if name != _EXPERTS)
    total = run.count("num_gpus") or of_replica
    if total < of_replica:
        raise NotPredicted(f"a replica of {of_replica} GPUs does not fit on {total}")
    return total / of_replica


def _computable(code: Quantization, gpu: GpuSpec) -> Quantization:
    """The quantization, or the weight-only one in its place on GPUs without its arithmetic."""
    if compute_precision(code, gpu.peak_flops) is not None:
        return code
    return _WEIGHT_ONLY.get(code, code)
