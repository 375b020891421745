"""The servers of a serving plan, for all engines: copies, GPUs, memory shares and quantities."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

from planner.base.records import record
from planner.base.training_aliases import served_targets
from planner.base.units import GIB, ceil_div
from planner.configurations.configuration_tables import (
    OF_PREFILL,
    PREFILL,
    SERVING_NAMES,
    ServingConfigurations,
)
from planner.errors import LaunchError
from planner.estimators.inference.batch_share import ServingInputs
from planner.estimators.inference.serving_memory import ServingMemory, serving_memory
from planner.estimators.machine import Machine
from planner.launch.option_table import (
    MutableQuantities,
    OptionTable,
    Quantities,
    Quantity,
)
from planner.launch.read.expression_rows import write_quantities
from planner.launch.target import (
    LaunchJob,
    ShellVariable,
    hub_name,
)
from planner.question.terms import glossary
from planner.specs.catalogue import Catalogue, in_format, stored_types
from planner.specs.engine import ATTENTION_FFN_ENGINES, EngineProfile
from planner.specs.gpu import GpuSpec
from planner.specs.model import ModelSpec
from planner.specs.serving_workload import DraftMethod, ServingWorkload, head_of
from planner.workloads.serving.question import with_sequence_limit, without_cuda_graphs
from planner.workloads.serving.results import ATTENTION_FFN

DRAFT_MODEL = "DRAFT_MODEL"
HEADS = (DraftMethod.EAGLE, DraftMethod.EAGLE3)


def draft_model_argument(job: LaunchJob) -> str | ShellVariable:
    """Return the draft model for a command: an ORG/NAME, or a variable that the user must set."""
    spec = job.draft
    if spec is None:
        return ShellVariable(
            name=DRAFT_MODEL, meaning="folder or ORG/NAME of the model that drafts"
        )
    repository = hub_name(str(job["draft_model"]), *spec.aliases)
    return repository or ShellVariable(
        name=DRAFT_MODEL, meaning=f"folder or ORG/NAME of {spec.name}, which drafts"
    )


def unlisted_draft_method(job: LaunchJob) -> DraftMethod | None:
    """The draft method of a plan if option tables do not have it (heads, n-grams); else None."""
    method = DraftMethod(job["draft_method"] or "")
    is_unlisted = method in (*HEADS, DraftMethod.NGRAM)
    return method if is_unlisted and job["draft_tokens"] else None


def draft_method(job: LaunchJob) -> str:
    """Return the name of the draft method: the plan's; with a draft model ``draft``; else ``mtp``
    if the model has modules of multi-token prediction; else ``draft``.
    """
    if (method := unlisted_draft_method(job)) is not None:
        return str(method)
    if job["draft_model"]:
        return "draft"
    return "mtp" if max(job.model.num_nextn_predict_layers, job.model.mtp_num_layers) else "draft"


AGGREGATED, PREFILL_POOL, DECODE_POOL = "serve", "prefill", "decode"
_DIGITS = 4
_SLACK = 32
# Standard deviations of a normal distribution that 1 in 1,000 exceeds.
_ONE_IN_1000 = 3.0902
_SIXTEEN_BIT = "w16a16"
NOT_THE_DEFAULT = "not the default"
"""KV cache of 16 bits where the engine's default has 8: tables write it by an option."""
NOTHING_ONLINE: Mapping[str, bool] = MappingProxyType({})


@record(kw_only=True)
class ServerGroup:
    """Equal servers: all of a plan, or those of one of its pools.

    ``name`` is serve, prefill or decode; ``values`` are the parameters without prefix;
    ``copies`` is the number of servers.
    """

    job: LaunchJob
    name: str
    values: Mapping[str, Quantity]
    copies: int

    @property
    def chunks_prefill(self) -> bool:
        """Whether the engine computes long prompts in parts."""
        return bool(self.job.profile.scheduler.chunked_prefill)

    @property
    def stage_gpus(self) -> int:
        """GPUs of one pipeline stage."""
        split = int(self.values["tensor_parallel"]) * int(self.values["context_parallel"])
        return split * self.ranks

    @property
    def num_gpus(self) -> int:
        """GPUs of one server."""
        return self.stage_gpus * int(self.values["pipeline_parallel"])

    @property
    def ranks(self) -> int:
        """Ranks that compute the attention of different requests."""
        return int(self.values["attention_data_parallel"])

    @property
    def num_nodes(self) -> int:
        """Return the number of nodes that one server uses.

        Raises LaunchError if the last of them would have fewer GPUs than the others.
        """
        of_node = self.job.cluster.gpus_per_node
        if self.num_gpus > of_node and self.num_gpus % of_node:
            raise LaunchError(
                f"A server of {self.num_gpus} GPUs fills no whole nodes of {of_node}: engines need "
                "the same number on each; plan another layout."
            )
        return ceil_div(self.num_gpus, of_node)

    @property
    def gpus_per_node(self) -> int:
        """GPUs of a node that one server uses."""
        return self.num_gpus // self.num_nodes

    @property
    def max_num_seqs(self) -> int:
        """Concurrent requests of one attention rank, rounded up."""
        planned = self.job["max_num_seqs"]
        return int(planned or math.ceil(float(self.values["concurrency"]) / self.ranks))

    @property
    def engine(self) -> EngineProfile:
        """Return the engine profile with the plan's ``max_num_seqs`` and ``enforce_eager``."""
        engine = self.job.profile
        max_num_seqs = self.job["max_num_seqs"]
        engine = with_sequence_limit(engine, int(max_num_seqs)) if max_num_seqs else engine
        return without_cuda_graphs(engine) if self.job["enforce_eager"] else engine

    @property
    def draft(self) -> ModelSpec | None:
        """The draft model: named in the plan, or heads of the model; else None."""
        method = DraftMethod(self.job["draft_method"] or "")
        return self.job.draft or head_of(self.job.model, method)

    @property
    def redundant_experts(self) -> int:
        """Return redundant experts per layer: the plan's, else the fewest that fill EP ranks."""
        number, planned = self.job.model.num_experts, self.job["redundant_experts"]
        if not number or not self.job.profile.redundant_experts:
            return 0
        return int(planned or 0) or -number % int(self.values["expert_parallel"])

    @property
    def draft_tokens(self) -> int | None:
        """Draft tokens per step; None without speculative decoding."""
        return int(self.job["draft_tokens"] or 0) or None

    @property
    def lora_rank(self) -> int | None:
        """Rank of served adapters; None without adapters."""
        return int(self.job["lora_rank"] or 0) or None

    @property
    def max_num_batched_tokens(self) -> int:
        """Tokens of a step of one rank; engines need one for each sequence."""
        return max(int(self.values["max_num_batched_tokens"]), self.max_num_seqs)

    @cached_property
    def gpu(self) -> GpuSpec:
        """Return the GPU of these servers; prefill servers may have another than decode servers."""
        other = self.job["prefill_gpu"]
        if self.name != PREFILL_POOL or other in (None, self.job["gpu"]):
            return self.job.gpu
        folder = self.job.saved_plan.specs_folder
        return Catalogue(Path(folder) if folder else None).load_gpu(str(other)).spec

    @cached_property
    def memory(self) -> ServingMemory:
        """Estimate the memory per GPU [B] of one server with the values of the plan."""
        work = ServingWorkload(
            input_tokens=int(self.job["input_tokens"]),
            output_tokens=int(self.job["output_tokens"]),
            draft_tokens=int(self.job["draft_tokens"] or 0),
            draft_method=DraftMethod(self.job["draft_method"] or ""),
            lora_rank=int(self.job["lora_rank"] or 0),
            max_loras=self.job["max_loras"],
            lora_targets=served_targets(self.job["lora_targets"]),
            decode_context_parallel=int(self.job["decode_context_parallel"] or 1),
            stage_layers=self.job["stage_layers"],
            redundant_experts=self.job["redundant_experts"],
        )
        inputs = ServingInputs(
            machine=Machine(gpu=self.gpu, cluster=self.job.cluster),
            model=self.job.model,
            engine=self.engine,
            draft=self.draft,
            workload=work,
        )
        terms = glossary()
        values = {name: terms[name].encode(value) for name, value in self.values.items()}
        return serving_memory(inputs, ServingConfigurations.of(**values, num_gpus=self.num_gpus))

    @property
    def memory_share_option(self) -> float | None:
        """Share of a GPU's memory in the plan; None for the engine's default."""
        return float(self.values["gpu_memory_utilization"] or 0.0) or None

    @property
    def total_share(self) -> float:
        """Share of a GPU's memory that the engine uses."""
        default = float(self.job.profile.memory.gpu_memory_utilization)
        return self.memory_share_option or round(default, _DIGITS)

    @property
    def static_share(self) -> float:
        """Return the fraction of a GPU's memory for weights and KV cache [1]."""
        if self.memory_share_option is not None:
            return self.memory_share_option
        memory, size = self.memory, self.gpu.allocatable_memory
        other_share = float(memory.activations + memory.reserved) / size
        return round(max(self.total_share - other_share, 0.0), _DIGITS)

    @property
    def free_share(self) -> float:
        """Return the KV cache's fraction of the GPU memory left by weights and activations [1]."""
        if self.memory_share_option is not None:
            return self.memory_share_option
        memory, size = self.memory, self.gpu.allocatable_memory
        free = size - float(memory.non_cache_bytes)
        unused = size * (1 - self.total_share)
        return round(max((free - unused) / free, 0.0), _DIGITS) if free > 0 else 0.0

    @property
    def offloaded_gib(self) -> float | None:
        """Return the weights of one GPU that are in host memory [GiB]; None without offload."""
        share = float(self.values["weight_offload"])
        if not share:
            return None
        return round(float(self.memory.weights) * share / (1 - share) / GIB, _DIGITS)

    @property
    def cache_on_host_gib(self) -> float | None:
        """Return the KV cache in host memory per GPU [GiB]: offloaded, or evicted; None if none."""
        if not self.values["kv_offload"]:
            return round(float(self.job["host_cache"] or 0.0) / GIB, _DIGITS) or None
        weights = (self.offloaded_gib or 0.0) * GIB
        return round((float(self.memory.host) - weights) / GIB, _DIGITS)


def server_groups(job: LaunchJob) -> tuple[ServerGroup, ...]:
    """Return the groups of equal servers in a plan: one, or prefill and decode servers."""
    if job["mode"] == ATTENTION_FFN:
        raise LaunchError(f"--mode {ATTENTION_FFN} has no launch files. {ATTENTION_FFN_ENGINES}")
    names = [name for name in SERVING_NAMES if name != "num_gpus"]
    values = {name: job[name] for name in names}
    if not job.is_disaggregated:
        worker = ServerGroup(job=job, name=AGGREGATED, values=values, copies=1)
        copies = job.num_gpus // worker.num_gpus
        return (ServerGroup(job=job, name=AGGREGATED, values=values, copies=copies),)
    prefill_values = {name: job[PREFILL + name] for name in OF_PREFILL}
    tokens = prefill_values["max_num_batched_tokens"] * prefill_values["attention_data_parallel"]
    # As many prompts as fit into a step, and one that began in the step before.
    prefill_values["concurrency"] = math.ceil(tokens / float(job["input_tokens"])) + 1
    return (
        ServerGroup(
            job=job, name=PREFILL_POOL, values=prefill_values, copies=int(job["prefill_replicas"])
        ),
        ServerGroup(job=job, name=DECODE_POOL, values=values, copies=int(job["replicas"])),
    )


_SAME_NAMES = (
    *("max_num_seqs", "max_num_batched_tokens", "offloaded_gib", "cache_on_host_gib"),
    *("draft_tokens", "lora_rank", "num_nodes"),
)
"""Quantities of tables that are attributes of the group of servers."""


def common_quantities(worker: ServerGroup) -> MutableQuantities:
    """Return the values that option tables of all engines can write for a server, by name.

    ``quantization`` and ``expert_quantization`` are None if the published checkpoint has
    them, ``checkpoint_quantization`` is the plan's if only another checkpoint can have it:
    see `quantization_options`.
    """
    job, values, drafts = worker.job, worker.values, worker.draft_tokens
    is_wide = job.model.compresses_attention and values["kv_cache"] == "bf16"
    concurrency, cache_shards = int(values["concurrency"]), int(job["decode_context_parallel"] or 1)
    return {
        **values,
        "kv_cache": NOT_THE_DEFAULT if is_wide else values["kv_cache"],
        **{name: getattr(worker, name) for name in _SAME_NAMES},
        "concurrency": concurrency if concurrency % worker.ranks else None,
        "enforce_eager": bool(job["enforce_eager"]),
        "api_servers": math.ceil(float(job["api_servers"] or 0)) or None,
        "captured_batch": job["captured_batch"],
        "stream_interval": job["stream_interval"],
        "redundant_experts": worker.redundant_experts or None,
        "stage_layers": job["stage_layers"],
        "decode_context_parallel": cache_shards if cache_shards > 1 else None,
        "max_model_len": longest_request(job),
        "weight_offload": None,
        "kv_offload": values["kv_offload"] or None,
        "draft_method": draft_method(job) if drafts and not unlisted_draft_method(job) else None,
        "draft_steps": job["draft_steps"] if drafts else None,
        "prefix_caching": bool(cached_share(job)),
        "max_loras": job["max_loras"],
        "pool": worker.name,
        "output_tokens": None if int(job["output_tokens"]) else 0,
    }


def cached_share(job: LaunchJob) -> float:
    """Share of a prompt that is in the prefix cache [1]."""
    shared_share = float(job["shared_prefix_tokens"] or 0) / float(job["input_tokens"])
    return max(float(job["prefix_cache_hit_rate"] or 0.0), shared_share)


def longest_request(job: LaunchJob) -> int:
    """Return the longest request that servers accept [tokens]: ``max_model_len``, or prompt and
    answer of the plan with some slack.

    Engines need one or two more, and random prompts change when tokenized; of varying lengths
    999 of 1,000 fit.
    """
    if planned := job["max_model_len"]:
        return int(planned)
    tokens = int(job["input_tokens"]) + int(job["output_tokens"])
    long_tokens = 0.0
    for length in ("input", "output"):
        # A length that one request in 1,000 exceeds, over the mean; lognormal, derived here.
        sigma = math.sqrt(math.log1p(float(job[f"{length}_variation"] or 0) ** 2))
        long_tokens += int(job[f"{length}_tokens"]) * math.exp(_ONE_IN_1000 * sigma - sigma**2 / 2)
    max_tokens = math.ceil(long_tokens) + _SLACK
    return max(tokens, min(max_tokens, job.model.max_position_embeddings or max_tokens))


def quantization_options(worker: ServerGroup, online: Mapping[str, bool]) -> dict[str, str | None]:
    """Return quantization options of servers; None where the published checkpoint has the format.

    ``online`` are formats that the engine creates from a 16-bit checkpoint: true for all
    matrices, false for experts only.
    """
    model, values = worker.job.model, worker.values
    published = stored_types(model)
    dense = str(values["quantization"])
    experts = str(values["expert_quantization"]) if model.num_experts else dense
    options: dict[str, str | None] = {
        "quantization": None,
        "expert_quantization": None,
        "checkpoint_quantization": None,
    }
    if (dense, experts) == published or published_repository(worker):
        return options
    is_unquantized = set(published) == {_SIXTEEN_BIT}
    if is_unquantized and dense == experts and online.get(dense):
        return {**options, "quantization": dense}
    if is_unquantized and dense == _SIXTEEN_BIT and online.get(experts) is False:
        return {**options, "expert_quantization": experts}
    label = dense if dense == experts else f"{dense}, experts {experts}"
    return {**options, "checkpoint_quantization": label}


def published_repository(worker: ServerGroup) -> str:
    """Return the repository of a published checkpoint with the plan's weight formats; else ""."""
    model, values = worker.job.model, worker.values
    types = values["quantization"], values["expert_quantization"]
    repositories = (
        checkpoint.repository
        for checkpoint in model.checkpoints
        if checkpoint.repository
        and types == stored_types(in_format(model, checkpoint.quantization))
    )
    return next(repositories, "")


_SERVER_NAMES = (
    *("stage_gpus", "ranks", "num_gpus", "total_share", "static_share", "free_share"),
    "chunks_prefill",
)
"""Names of expressions that are attributes of the group of servers."""


def server_quantities(
    worker: ServerGroup, engine: str, online: Mapping[str, bool] = NOTHING_ONLINE
) -> Quantities:
    """Return the values that the table of an engine writes for a group of servers.

    ``online``: see `quantization_options`. Expressions of the table may name parameters of the
    plan, after ``planned_`` those that the engine's options count otherwise.
    """
    quantities = {
        **common_quantities(worker),
        **quantization_options(worker, online),
        "gpu_memory_utilization": worker.total_share,
    }

    def lookup(name: str) -> Any:
        if name in quantities:
            return quantities[name]
        if name in _SERVER_NAMES:
            return getattr(worker, name)
        return worker.values.get(name.removeprefix("planned_"), worker.job.value_of(name))

    return {**quantities, **write_quantities(OptionTable.load(engine), lookup)}
