"""The servers of a plan to serve, whatever the engine: how many, on which GPUs, with how much."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from planner.base.adapter_names import served_targets
from planner.base.records import record
from planner.base.units import GIB
from planner.configurations.serving import OF_PREFILL, PREFILL, SERVING_NAMES, ServingConfigurations
from planner.errors import LaunchError
from planner.estimators.inference.memory import ServingMemory, serving_memory
from planner.estimators.inference.setting import ServingSetting
from planner.estimators.machine import Machine
from planner.launch.benchmark import serving_benchmark
from planner.launch.drafting import draft_method, named_draft
from planner.launch.job import Job
from planner.launch.lengths import length_notes
from planner.launch.target import Argument, Process, Variable
from planner.question.terms import glossary
from planner.specs.catalogue import Catalogue
from planner.specs.draft_heads import head_of
from planner.specs.drafting import DraftMethod
from planner.specs.engine import EngineProfile
from planner.specs.gpu import GpuSpec
from planner.specs.model import ModelSpec
from planner.specs.serving import ServingWorkload
from planner.workloads.engine_options import eager, limited

AGGREGATED, PREFILL_POOL, DECODE_POOL = "serve", "prefill", "decode"
_FRONT_PORT = 8000
_DIGITS = 4
_SLACK = 32
# Standard deviations of a normal distribution that 1 in 1,000 exceeds.
_ONE_IN_1000 = 3.0902
_SIXTEEN_BIT = "w16a16"


@record(kw_only=True)
class Worker:
    """Servers that are alike: all of a plan, or those of one of its pools.

    ``name`` is serve, prefill or decode; ``values`` are the parameters by their plain names;
    ``copies`` is how many such servers there are.
    """

    job: Job
    name: str
    values: Mapping[str, Any]
    copies: int

    @property
    def stage_gpus(self) -> int:
        """GPUs of one pipeline stage."""
        return int(self.values["tensor_parallel"] * self.values["attention_data_parallel"])

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
        """Nodes of one server.

        Raises
        ------
        LaunchError
            The last of them would have fewer GPUs than the others.
        """
        of_node = self.job.cluster.gpus_per_node
        if self.num_gpus > of_node and self.num_gpus % of_node:
            raise LaunchError(
                f"A server of {self.num_gpus} GPUs fills no whole nodes of {of_node}: engines need "
                "the same number on each; plan another layout."
            )
        return -(-self.num_gpus // of_node)

    @property
    def gpus_per_node(self) -> int:
        """GPUs of a node that one server uses."""
        return self.num_gpus // self.num_nodes

    @property
    def max_num_seqs(self) -> int:
        """Requests of one attention rank at once; more than the plan's where it does not divide."""
        told = self.job["max_num_seqs"]
        return int(told or math.ceil(float(self.values["concurrency"]) / self.ranks))

    @property
    def engine(self) -> EngineProfile:
        """The engine as it is told to run."""
        engine = self.job.profile
        told = self.job["max_num_seqs"]
        engine = limited(engine, int(told)) if told else engine
        return eager(engine) if self.job["enforce_eager"] else engine

    @property
    def draft(self) -> ModelSpec | None:
        """What drafts tokens, where it is a model that is named or a part of the model."""
        method = DraftMethod(self.job["draft_method"] or "")
        return named_draft(self.job) or head_of(self.job.model, method)

    @property
    def redundant_experts(self) -> int:
        """Copies of experts in a layer."""
        number, told = self.job.model.num_experts, self.job["redundant_experts"]
        if not number or not self.job.profile.redundant_experts:
            return 0
        return int(told or 0) or -number % int(self.values["expert_parallel"])

    @property
    def max_num_batched_tokens(self) -> int:
        """Tokens of a step of one rank; engines need one for each sequence."""
        return max(int(self.values["max_num_batched_tokens"]), self.max_num_seqs)

    @cached_property
    def gpu(self) -> GpuSpec:
        """What it runs on; pools may have different ones."""
        other = self.job["prefill_gpu"]
        if self.name != PREFILL_POOL or other in (None, self.job["gpu"]):
            return self.job.gpu
        folder = self.job.pinned.specs_folder
        return Catalogue(Path(folder) if folder else None).load_gpu(str(other)).spec

    @cached_property
    def memory(self) -> ServingMemory:
        """Bytes of a GPU, as the plan was estimated."""
        work = ServingWorkload(
            input_tokens=int(self.job["input_tokens"]),
            output_tokens=int(self.job["output_tokens"]),
            draft_tokens=int(self.job["draft_tokens"] or 0),
            draft_method=DraftMethod(self.job["draft_method"] or ""),
            lora_rank=int(self.job["lora_rank"] or 0),
            max_loras=self.job["max_loras"],
            lora_targets=served_targets(self.job["lora_targets"]),
            redundant_experts=self.job["redundant_experts"],
        )
        setting = ServingSetting(
            machine=Machine(gpu=self.gpu, cluster=self.job.cluster),
            model=self.job.model,
            engine=self.engine,
            draft=self.draft,
            workload=work,
        )
        terms = glossary()
        values = {name: terms[name].coded(value) for name, value in self.values.items()}
        return serving_memory(setting, ServingConfigurations.of(**values, num_gpus=self.num_gpus))

    @property
    def told_share(self) -> float | None:
        """Share of a GPU's memory as the plan tells the engine; None if it leaves the default."""
        return float(self.values["gpu_memory_utilization"] or 0.0) or None

    @property
    def total_share(self) -> float:
        """Share of a GPU's memory for all that the engine keeps there."""
        default = float(self.job.profile.memory.gpu_memory_utilization)
        return self.told_share or round(default, _DIGITS)

    @property
    def static_share(self) -> float:
        """Share of a GPU's memory for weights and cache alone."""
        if self.told_share is not None:
            return self.told_share
        memory, size = self.memory, self.gpu.allocatable_memory
        beside = float(memory.activations + memory.reserved) / size
        return round(max(self.total_share - beside, 0.0), _DIGITS)

    @property
    def free_share(self) -> float:
        """Share for the cache of what weights and activations leave of a GPU's memory."""
        if self.told_share is not None:
            return self.told_share
        memory, size = self.memory, self.gpu.allocatable_memory
        free = size - float(memory.beside_cache)
        unused = size * (1 - self.total_share)
        return round(max((free - unused) / free, 0.0), _DIGITS) if free > 0 else 0.0

    @property
    def offloaded_gib(self) -> float | None:
        """GiB of a GPU's weights in host memory; None if there are none."""
        share = float(self.values["weight_offload"])
        if not share:
            return None
        return round(float(self.memory.weights) * share / (1 - share) / GIB, _DIGITS)

    @property
    def cache_on_host_gib(self) -> float | None:
        """GiB of a GPU's cache in host memory; None if there is none."""
        if not self.values["kv_offload"]:
            return None
        weights = (self.offloaded_gib or 0.0) * GIB
        return round((float(self.memory.host) - weights) / GIB, _DIGITS)


def workers_of(job: Job) -> tuple[Worker, ...]:
    """The kinds of servers of a plan; with pools, prefill first."""
    names = [name for name in SERVING_NAMES if name != "num_gpus"]
    values = {name: job[name] for name in names}
    if not job.is_disaggregated:
        worker = Worker(job=job, name=AGGREGATED, values=values, copies=1)
        copies = job.num_gpus // worker.num_gpus
        return (Worker(job=job, name=AGGREGATED, values=values, copies=copies),)
    own = {name: job[PREFILL + name] for name in OF_PREFILL}
    tokens = own["max_num_batched_tokens"] * own["attention_data_parallel"]
    # As many prompts as a step has room for, and one that began in the step before.
    own["concurrency"] = math.ceil(tokens / float(job["input_tokens"])) + 1
    return (
        Worker(job=job, name=PREFILL_POOL, values=own, copies=int(job["prefill_replicas"])),
        Worker(job=job, name=DECODE_POOL, values=values, copies=int(job["replicas"])),
    )


def common_quantities(worker: Worker) -> dict[str, Any]:
    """What every engine's table may say of a worker: parameters, answers, what follows of them.

    ``quantization`` and ``expert_quantization`` are None where the published checkpoint has
    them, ``checkpoint_quantization`` is the plan's where only another checkpoint can have it:
    see `with_online`.
    """
    job, values = worker.job, worker.values
    drafts = int(job["draft_tokens"] or 0)
    concurrency = values["concurrency"]
    return {
        **values,
        "concurrency": concurrency if concurrency % worker.ranks else None,
        "max_num_seqs": worker.max_num_seqs,
        "max_num_batched_tokens": worker.max_num_batched_tokens,
        "enforce_eager": bool(job["enforce_eager"]),
        "redundant_experts": worker.redundant_experts or None,
        "max_model_len": _longest(job),
        "offloaded_gib": worker.offloaded_gib,
        "cache_on_host_gib": worker.cache_on_host_gib,
        "weight_offload": None,
        "kv_offload": values["kv_offload"] or None,
        "draft_tokens": drafts or None,
        "draft_method": draft_method(job) if drafts else None,
        "draft_steps": job["draft_steps"] if drafts else None,
        "prefix_caching": bool(_found_share(job)),
        "lora_rank": int(job["lora_rank"] or 0) or None,
        "max_loras": job["max_loras"],
        "num_nodes": worker.num_nodes,
        "pool": worker.name,
    }


def _found_share(job: Job) -> float:
    """The share of a prompt that the prefix cache has."""
    alike = float(job["shared_prefix_tokens"] or 0) / float(job["input_tokens"])
    return max(float(job["prefix_cache_hit_rate"] or 0.0), alike)


def _longest(job: Job) -> int:
    """Tokens of a request that a server takes: some beyond the plan's, as engines need one or two
    and prompts of random tokens are not read back exactly; of lengths that vary nearly all."""
    if told := job["max_model_len"]:
        return int(told)
    tokens = int(job["input_tokens"]) + int(job["output_tokens"])
    kinds = ("input", "output")
    varied = sum(
        int(job[f"{kind}_tokens"]) * _long(float(job[f"{kind}_variation"] or 0)) for kind in kinds
    )
    wanted = math.ceil(varied) + _SLACK
    return max(tokens, min(wanted, job.model.max_position_embeddings or wanted))


def _long(variation: float) -> float:
    """A length that one request in 1,000 exceeds, over the mean; lognormal, derived here."""
    sigma = math.sqrt(math.log1p(variation**2))
    return math.exp(_ONE_IN_1000 * sigma - sigma**2 / 2)


def with_online(worker: Worker, online: Mapping[str, bool]) -> dict[str, str | None]:
    """How the quantization of a worker is said to an engine.

    ``online`` are the words that it makes itself of a checkpoint in 16 bit, with whether that
    holds for the dense matrices too or for the experts alone.
    """
    model, values = worker.job.model, worker.values
    published = (model.quantization or _SIXTEEN_BIT, model.expert_quantization or _SIXTEEN_BIT)
    dense = str(values["quantization"])
    experts = str(values["expert_quantization"]) if model.num_experts else dense
    said: dict[str, str | None] = {
        "quantization": None,
        "expert_quantization": None,
        "checkpoint_quantization": None,
    }
    if (dense, experts) == (published[0], published[1] if model.num_experts else published[0]):
        return said
    is_plain = set(published) == {_SIXTEEN_BIT}
    if is_plain and dense == experts and online.get(dense):
        return {**said, "quantization": dense}
    if is_plain and dense == _SIXTEEN_BIT and online.get(experts) is False:
        return {**said, "expert_quantization": experts}
    word = dense if dense == experts else f"{dense}, experts {experts}"
    return {**said, "checkpoint_quantization": word}


def model_word(worker: Worker, checkpoint: str | None) -> str | Variable:
    """What an engine is told to load: a repository, or what the user must say.

    ``checkpoint`` is the quantization that a checkpoint of its own must have.
    """
    job = worker.job
    if checkpoint is None and job.hub_name is not None:
        return job.hub_name
    kind = "a checkpoint" if checkpoint is None else f"a checkpoint in {checkpoint}"
    return Variable(name="MODEL", meaning=f"folder or ORG/NAME of {kind} of {job.model.name}")


def port_of(worker: Worker, has_router: bool) -> int:
    """Where the first copy of a worker listens; a router takes the port that clients know."""
    if not has_router:
        return _FRONT_PORT
    return _FRONT_PORT + (2000 if worker.name == DECODE_POOL else 100)


def urls(worker: Worker) -> list[Variable]:
    """Where the copies of a worker are; every wrapper sets these."""
    name = worker.name.upper()
    return [
        Variable(name=f"{name}_URL_{copy}", meaning=f"address of copy {copy} of {worker.name}")
        for copy in range(worker.copies)
    ]


def router(arguments: tuple[Argument, ...], note: str) -> Process:
    """The process in front of all servers, on the port that clients know."""
    return Process(
        name="router",
        arguments=arguments,
        num_nodes=1,
        gpus_per_node=0,
        port=_FRONT_PORT,
        notes=(note,),
    )


def benchmark(
    engine: str, job: Job, model: str | Variable, *, routes_replicas: bool = True
) -> tuple[Process, ...]:
    """The command that offers the planned load and measures what was predicted.

    Without a router for replicas it is the load of one of them.
    """
    (worker, *_) = reversed(workers_of(job))
    servers = worker.copies if routes_replicas or job.is_disaggregated else 1
    rate, shared = job["request_rate"], _found_share(job)
    prompts, answers = (float(job[f"{kind}_variation"] or 0.0) for kind in ("input", "output"))
    # It asks for the rate, or holds as many requests in flight as the plan has room for.
    words = serving_benchmark(
        engine,
        model=_MODEL,
        input_tokens=float(job["input_tokens"]),
        output_tokens=float(job["output_tokens"]),
        request_rate=None if rate is None else float(rate) * servers / worker.copies,
        concurrency=None if rate else int(worker.values["concurrency"]) * servers,
        prefix_cache_hit_rate=shared,
        input_variation=prompts,
        output_variation=answers,
        url=f"http://127.0.0.1:{_FRONT_PORT}",
    )
    given = tuple(model if word == _MODEL else word for word in words)
    arguments = tuple(_lines(given))
    notes = length_notes(
        engine, input_variation=prompts, output_variation=answers, has_prefix=shared > 0
    )
    return (
        Process(name="benchmark", arguments=arguments, num_nodes=1, gpus_per_node=0, notes=notes),
    )


_MODEL = "\0model"


def _lines(words: tuple[str | Variable, ...]) -> list[Argument]:
    """Words as lines: what comes before the first option, then each option with its values."""
    lines: list[list[str | Variable]] = [[]]
    for word in words:
        if isinstance(word, str) and word.startswith("--"):
            lines.append([])
        lines[-1].append(word)
    return [Argument(words=tuple(line)) for line in lines if line]
