"""What a user asks for, before any spec is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Request:
    """A planning question; only the model and the number of GPUs are needed.

    Parameters
    ----------
    model, gpu, cluster, space, framework : name, alias or path of a spec
        Without a cluster, one is made from the GPU's own links; without both, 8-GPU nodes
        of A100-SXM-80GB. The space names its framework. The model may also be a Hugging
        Face ``config.json`` or ORG/NAME.
    num_gpus : one count or several
    settings : parameter -> value or values, replacing those of the space
    sequence_length, global_batch_size, total_tokens : tokens, sequences, tokens
        The model's published run where not given.
    mtp_num_layers : modules of multi-token prediction that are trained; those of the model's
        publisher where not given, none with an adapter
    adapter : ``none`` trains every weight; ``lora`` and ``qlora`` train low-rank adapters of
        weights that are frozen, for qlora in 4 bits
    lora_rank, lora_targets : rank of the adapters; ``query_value``, ``attention`` or
        ``all_linear``
    objectives : one to three names of `planner.optimize.objectives.OBJECTIVES`
    constraints : name -> bound in SI units, see `planner.optimize.constraints.LIMITS`
    price : USD per GPU and hour; the price list's where not given
    ideal : every efficiency 1, every latency 0: the roofline bound
    flops_efficiency : share of the dense peak that the whole step reaches, or text with a
        unit such as ``"150 TFLOP/s"``; replaces the time model
    memory_efficiency : share of the memory bandwidth that kernels reach, or text such as
        ``"1.5 TB/s"``
    specs : folder of own spec files, looked in before the working directory and what is shipped
    """

    model: str
    num_gpus: int | tuple[int, ...]
    gpu: str | None = None
    cluster: str | None = None
    space: str | None = None
    framework: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    sequence_length: int | None = None
    global_batch_size: int | None = None
    total_tokens: float | None = None
    dropout: bool = False
    mtp_num_layers: int | None = None
    adapter: str = "none"
    lora_rank: int | None = None
    lora_targets: str | None = None
    objectives: tuple[str, ...] = ("throughput", "memory_headroom")
    constraints: Mapping[str, float] = field(default_factory=dict)
    price: float | None = None
    ideal: bool = False
    flops_efficiency: float | str | None = None
    memory_efficiency: float | str | None = None
    specs: Path | None = None


@dataclass(frozen=True, kw_only=True)
class ServingRequest:
    """A question about serving; only the model and GPUs or a request rate are needed.

    Parameters
    ----------
    model, cluster, space : as in `Request`; the space is ``serve`` where not given
    gpu : one or several names, or ``all``; several are compared, each with its best plan
    prefill_gpu : GPU of the prefill workers of disaggregated plans; ``gpu`` where not given
    num_gpus : one count or several; without it as many as ``request_rate`` needs
    engine : one or several profiles, or ``all``; the space's where not given
    mode : aggregated, disaggregated or both
    settings : parameter -> value or values, replacing those of the space
    input_tokens, output_tokens : tokens of a prompt and of its answer, 1,024 where not given
    request_rate : requests per second that the deployment must serve
    prefix_cache_hit_rate, draft_tokens, acceptance_rate, draft_cost, lora_rank : see
        `planner.specs.serving.ServingWorkload`
    objectives : one to three names of `planner.optimize.serving.deployments.SERVING_OBJECTIVES`;
        throughput per GPU and interactivity where not given, to size GPUs and latency
    constraints : name -> bound in SI units, see ``SERVING_LIMITS`` there
    price : USD per GPU and hour; the price list's where not given
    ideal : every efficiency 1, every latency 0: the roofline bound
    memory_efficiency : share of the memory bandwidth that kernels reach, or ``"1.5 TB/s"``
    specs : as in `Request`
    """

    model: str
    gpu: str | tuple[str, ...] | None = None
    prefill_gpu: str | None = None
    num_gpus: int | tuple[int, ...] | None = None
    cluster: str | None = None
    space: str | None = None
    engine: str | tuple[str, ...] | None = None
    mode: str | tuple[str, ...] = ("aggregated", "disaggregated")
    settings: Mapping[str, Any] = field(default_factory=dict)
    input_tokens: int | None = None
    output_tokens: int | None = None
    request_rate: float | None = None
    prefix_cache_hit_rate: float = 0.0
    draft_tokens: int = 0
    acceptance_rate: float = 0.0
    draft_cost: float = 0.0
    lora_rank: int = 0
    objectives: tuple[str, ...] = ()
    constraints: Mapping[str, float] = field(default_factory=dict)
    price: float | None = None
    ideal: bool = False
    memory_efficiency: float | str | None = None
    specs: Path | None = None
