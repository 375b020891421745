"""How a serving engine executes: what is launched, fused, scheduled, reserved."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from planner.enums import AttentionKernels, Quantization
from planner.specs.quantity import (
    BytesOrZero,
    BytesPerSecondOrZero,
    Fraction,
    FractionOrZero,
    Ratio,
    Seconds,
    Share,
)

_STRICT = ConfigDict(extra="forbid")
Count = Annotated[int, Field(ge=1, le=10**7, strict=True)]
_ALL = tuple(code.word for code in Quantization)


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class EngineExecution:
    """Kernels and the host that launches them.

    ``decode_launch_time``, ``prefill_launch_time``: the host's time to launch one layer; CUDA
    graphs make it zero. ``expert_launch_time``: what routing to experts adds to a layer of a step
    with prompts. ``step_overhead``: host time per step that the GPU waits for, with
    ``sequence_overhead`` for each sequence in it (scheduling, sampling, detokenization).
    ``request_overhead``: tokenization and transport before a request's first step.
    ``elementwise_passes``: traffic of elementwise kernels over that of fused ones.
    ``weight_bandwidth_fraction``, ``compute_fraction``, ``attention_bandwidth_fraction``: rate
    of its kernels over the best measured on the GPU; ``quantized_bandwidth_fraction``: the first
    of dense products of quantized weights over that of others. ``kernel_latency_fraction``: what
    shows of the start of a kernel measured alone, when graphs launch the next one early.
    ``attention_padding_fraction``: what its decode attention shows of the tokens that the
    measured kernels read beside those of a sequence. ``repeated_read_fraction``: share of the query
    heads of a group that read its keys from memory again after the first, in decode.
    ``attention_kernels``: what its fused attention kernels are written for.
    ``fused_quantization``: casts of activations are part of other kernels.
    ``custom_all_reduce``: small all-reduces use one- or two-shot kernels over peer memory.
    ``joined_all_reduce``: blocks that run side by side are added up before one all-reduce.
    ``collective_launch_time``: what the host adds to every other all-reduce.
    ``captured_context``: decode steps over longer contexts are launched like those of prompts,
    without graphs; 0: none are. ``expert_loop_time``: the host's time for each expert of a layer
    where it launches one after the other. ``host_link_fraction``: what copies of offloaded weights
    and cache reach of the host link; pinned copies over PCIe are measured at 24 to 26 of 32 GB/s.
    ``hidden_copies``: share of a step's computation behind which they can hide.
    ``host_attention_fraction``: what decode attention over an offloaded 16-bit cache reaches of
    the host's memory bandwidth where the host computes it; 0: the GPU does, on a copy.
    ``vector_bandwidth``: what a multiprocessor reads at most in products of few rows; 0: no bound.
    ``score_passes``: how often the scores of a prompt's attention pass memory in 32 bit; fused
    kernels keep them. ``half_accumulation``: products of 16 bit sum in 16 bit. ``unpacked_rows``:
    products of so many rows or more unpack quantized weights to 16 bit in memory first; 0: none
    do. ``unpacking_bytes``: what that moves for a weight, or for an element of a cache of fewer
    than 16 bits; 0: one kernel reads and writes a weight, and attention reads the cache as it is.
    ``quantized_launch_time``: what the host adds to launch a product of quantized weights.
    ``fp8_unpack_instructions``: of a lane, to turn a cached 8-bit float into 16 bits for one query
    head on a GPU without such a type. ``vector_attention_instructions``: of a lane, for a cached
    16-bit element and one query head, in decode attention without tensor cores, with
    ``vector_attention_instructions_8bit`` where the cache has 8 bits; 0: it uses tensor cores, as
    it does for groups of ``tensor_core_group`` query heads where sequences times key heads are at
    least the share ``tensor_core_blocks`` of the multiprocessors. ``attention_block_bandwidth``:
    what one block of threads reads at most in decode attention that gives each head of a sequence
    to one block; 0: it splits contexts over blocks. ``reads_casts``: products read activations once
    more where the measured ones cast them. ``balanced_experts``: tokens go evenly to all experts.
    """

    decode_launch_time: Seconds
    prefill_launch_time: Seconds
    step_overhead: Seconds
    sequence_overhead: Seconds
    request_overhead: Seconds
    elementwise_passes: Ratio
    weight_bandwidth_fraction: Fraction
    compute_fraction: Fraction
    attention_bandwidth_fraction: Fraction
    kernel_latency_fraction: Ratio
    attention_padding_fraction: Ratio
    repeated_read_fraction: Ratio
    attention_kernels: AttentionKernels
    fused_quantization: bool
    custom_all_reduce: bool
    joined_all_reduce: bool = False
    expert_launch_time: Seconds = 0.0
    expert_loop_time: Seconds = 0.0
    collective_launch_time: Seconds = 0.0
    quantized_launch_time: Seconds = 0.0
    captured_context: Annotated[int, Field(ge=0, le=10**9, strict=True)] = 0
    host_link_fraction: Fraction = 0.8
    hidden_copies: Share = 1.0
    host_attention_fraction: FractionOrZero = 0.0
    quantized_bandwidth_fraction: Fraction = 1.0
    vector_bandwidth: BytesPerSecondOrZero = 0.0
    score_passes: Ratio = 0.0
    fp8_unpack_instructions: Ratio = 40.0
    vector_attention_instructions: Ratio = 0.0
    vector_attention_instructions_8bit: Ratio = 0.0
    tensor_core_group: Annotated[int, Field(ge=0, le=10**4, strict=True)] = 0
    tensor_core_blocks: Ratio = 0.0
    attention_block_bandwidth: BytesPerSecondOrZero = 0.0
    half_accumulation: bool = False
    unpacked_rows: Annotated[int, Field(ge=0, le=10**7, strict=True)] = 0
    unpacking_bytes: Ratio = 0.0
    reads_casts: bool = True
    balanced_experts: bool = False


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class Scheduler:
    """Batching: ``chunked_prefill`` mixes parts of prompts into the steps of decoding.

    ``continuous``: sequences join and leave between steps; without it a batch ends together.
    ``clustering``: share of the requests of a closed loop that keep starting together, because
    the engine computes the prompts of a batch first and its answers end together.
    ``poll_interval``: decode steps between two looks for new requests. ``batch_wait``: decode
    steps that a prompt waits for others to be computed with. ``stream_interval``: tokens that a
    decode worker collects before it sends them; what computes prompts sends the first at once.
    ``pipeline_tokens``: a static batch passes the pipeline in micro-batches that are halved until
    they have at most so many new tokens, and is cut into one per stage only where that divides
    it; 0: it is always cut into one per stage. ``pipeline_overlap``: its micro-batches are on the
    stages at the same time; without it one passes all stages after the other.
    ``whole_requests``: a request starts only when the cache has room for its longest answer;
    without it the cache fills as answers grow.
    """

    continuous: bool
    chunked_prefill: bool
    max_num_seqs: Count
    max_num_batched_tokens: Count
    clustering: Share
    poll_interval: Count = 1
    batch_wait: Annotated[int, Field(ge=0, le=10_000, strict=True)] = 0
    stream_interval: Count = 1
    pipeline_tokens: Annotated[int, Field(ge=0, le=10**7, strict=True)] = 0
    pipeline_overlap: bool = True
    whole_requests: bool = False


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class EngineMemory:
    """``gpu_memory_utilization``: share of the device that the engine uses at most.

    ``reserved``: context, graphs and communication buffers. ``block_size``: tokens of one
    block of the paged cache; with 1 the cache is not paged. ``activation_copies``: what it
    allocates for activations over what the largest layer needs at once.
    """

    gpu_memory_utilization: Share
    reserved: BytesOrZero
    block_size: Count
    activation_copies: Ratio = 1.0


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class AttentionSplit:
    """When an engine's decode attention reads the parts of a context at the same time.

    It does for contexts of more than ``context`` tokens, unless the sequences times the query heads
    of a device are more than ``blocks``. ``unsplit_bandwidth_fraction``: rate of its other kernel
    over that of the one that splits; ``unsplit_repeated_read_fraction``: its share of the query
    heads of a group that read the keys again.
    """

    context: Count
    blocks: Count
    unsplit_bandwidth_fraction: Fraction
    unsplit_repeated_read_fraction: Ratio


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class EngineProfile:
    """Few, named, physical parameters of a serving engine; never a factor per model.

    ``quantized_ends``: embedding and logits have the type of the layers, as in GGUF files.
    ``vendors``: of the GPUs it has kernels for; all if none is named. ``sliding_windows``:
    attention and cache stop at the window of a model; without it they hold all tokens.
    ``kernel_latency_by_architecture``: times ``kernel_latency_fraction`` on GPUs of a generation,
    for which it has other kernels; ``expert_padding_by_architecture``: what those show of the
    padding that narrow experts have in the measured kernels; ``linear_compute_by_architecture``:
    times ``compute_fraction``, what its library's dense products reach there. Without
    ``attention_split`` decode attention runs as measured at any size.
    """

    name: str
    execution: EngineExecution
    scheduler: Scheduler
    memory: EngineMemory
    quantizations: tuple[str, ...] = _ALL
    tensor_parallel: bool = True
    pipeline_parallel: bool = True
    expert_parallel: bool = True
    attention_data_parallel: bool = True
    quantized_ends: bool = False
    sliding_windows: bool = True
    vendors: tuple[str, ...] = ()
    kernel_latency_by_architecture: Mapping[str, Ratio] = Field(default_factory=dict)
    expert_padding_by_architecture: Mapping[str, Ratio] = Field(default_factory=dict)
    linear_compute_by_architecture: Mapping[str, Fraction] = Field(default_factory=dict)
    attention_split: AttentionSplit | None = None
    aliases: tuple[str, ...] = ()
    notes: str = ""
