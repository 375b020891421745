"""Profiles of serving engines: launches, fused kernels, scheduler, reserved memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

from planner.base.enums import AttentionKernels, CacheType, Quantization
from planner.specs.spec_files import (
    BytesOrZero,
    BytesPerSecondOrZero,
    Fraction,
    FractionOrZero,
    Ratio,
    Seconds,
    Share,
)
from planner.specs.validated import Interval, Strict, validated

if TYPE_CHECKING:
    from planner.base.arrays import FloatArray

Count = Annotated[int, Strict(), Interval(ge=1, le=10**7)]
_ALL = tuple(Quantization.usual())


ATTENTION_FFN_ENGINES = (
    "No released engine serves attention-FFN disaggregation on NVIDIA or AMD GPUs. vLLM has an "
    "experimental plugin (github.com/vllm-project/afd-plugin), SGLang an experiment on Ascend "
    "(pull request 36258), TensorRT-LLM no plan (issue 6577)."
)


class MemoryShare(StrEnum):
    """Reference of an engine's option for the share of GPU memory.

    ``GPU``: of the whole device, for all memory of the engine; ``STATIC``: of the memory that is
    free at the start, for weights and KV cache only; ``FREE``: of the memory that weights and
    activations leave free, for the KV cache only; ``LOADED``: of the memory that is free after the
    weights are loaded, for the KV cache only: steps have what the cache leaves.
    """

    GPU = "gpu"
    STATIC = "static"
    FREE = "free"
    LOADED = "loaded"


@validated
class EngineExecution:
    """Kernels of an engine and host time to launch them.

    Parameters
    ----------
    decode_launch_time : host time to launch one layer of a step without prompts [s]; CUDA graphs
        make it zero
    prefill_launch_time : host time to launch one layer of a step with prompts [s]
    step_overhead : host time per step that the GPU waits for [s]
    sequence_overhead : host time per step for each sequence in it [s]: scheduling, sampling,
        detokenization
    request_overhead : time of tokenization and transport before a request's first step [s]
    elementwise_passes : traffic of elementwise kernels over that of fused ones
    weight_bandwidth_fraction : rate at which products read weights over the best measured rate on
        the GPU
    compute_fraction : rate of compute-bound products over the best measured rate on the GPU
    attention_bandwidth_fraction : rate of decode attention over the best measured rate on the GPU
    kernel_latency_fraction : exposed share of the latency of a single kernel, if graphs launch the
        next one early
    attention_padding_fraction : share of the padding tokens of the measured decode attention
        kernels that the engine's kernels also read
    repeated_read_fraction : share of the query heads of a group that read its keys from memory
        again after the first, in decode
    attention_kernels : hardware that the fused attention kernels are written for
    fused_quantization : casts of activations are part of other kernels
    custom_all_reduce : small all-reduces use one- or two-shot kernels over peer memory
    sustained_clock : clock of products between that of a burst (0) and that of hours of training
        (1)
    joined_all_reduce : blocks that run in parallel are added before one all-reduce
    expert_launch_time : additional host time of routing to experts in a layer of a step with
        prompts [s]
    host_expert_time : additional host time of experts in a layer of a step with prompts [s], of
        types whose kernels the host launches one by one
    decode_expert_launch_time : additional host time of routing to experts in ``decode_launch_time``
        [s]; CUDA graphs make it zero
    draft_overhead : additional host time of a step that verifies drafted tokens [s]: the host
        cannot plan it during the step before
    draft_sequence_overhead : additional host time of each sequence in a step that verifies drafted
        tokens [s]
    latent_launch_time : additional launch time of latent attention in a layer of a step with
        prompts [s]: absorbed projections, kernels of prefixes and of new tokens
    recurrent_launch_time : additional host time of linear attention and state-space layers in a
        layer of a step with prompts [s]
    triton_experts : Triton kernels multiply by experts, where a GPU has measured ones
    expert_tile_rows : minimum rows of the products of each expert, up to the tokens of the step, if
        the tile is chosen for an expert with all tokens; 0: the tile fits the rows of each expert
    adapter_kernels : additional starts of memory-bound kernels for the adapters of one product
    adapter_bandwidth_fraction : rate of adapter kernels over that of memory-bound kernels
    adapter_launch_time : host time to launch the adapter kernels of one product [s]
    captured_adapters : CUDA graphs hold the adapter kernels; otherwise a server with adapters
        launches each kernel of its decode steps
    expert_loop_time : host time of each expert of a layer, if experts are launched one after the
        other [s]
    collective_launch_time : additional host time of every all-reduce that is no custom kernel [s]
    network_callback_time : additional time of an all-reduce between nodes in a CUDA graph [s]: the
        graph waits for a callback of the host that passes NCCL's messages to the network
        (nccl/src/enqueue.cc, ncclLaunchPrepare; github.com/NVIDIA/nccl/issues/1805); not inside a
        node
    quantized_launch_time : additional host time to launch a product of quantized weights [s]
    captured_context : decode steps over longer contexts [tokens] are launched like those of
        prompts, without graphs; 0: no limit
    captured_batch : decode steps of more sequences of an attention rank are launched like those of
        prompts, without graphs, unless a vendor tunes the server; 0: no limit
    host_link_fraction : bandwidth of copies of offloaded weights and cache over that of the host
        link; measured for pinned copies over PCIe: 24 to 26 of 32 GB/s
    hidden_copies : share of a step's computation that can hide offloading copies
    host_attention_fraction : bandwidth of decode attention over an offloaded 16-bit cache over that
        of host memory, if the host computes it; 0: the GPU computes it on a copy
    host_product_fraction : bandwidth of decode products with offloaded weights over that of host
        memory, if the host computes them; 0: the GPU computes them on a copy
    separate_drafts : each token of a prediction module or head is drafted in a step of its own,
        with its own host overhead
    quantized_bandwidth_fraction : ``weight_bandwidth_fraction`` of dense products of quantized
        weights over that of others
    row_instructions : instructions of a lane for a quantized weight and a row after the first, in
        products of few rows that multiply by vector instructions
    vector_rows : maximum rows of products that multiply by vector instructions
    vector_bandwidth : maximum read bandwidth of a multiprocessor in products of few rows [bytes/s];
        0: no maximum
    score_passes : reads and writes of the scores of prefill attention in 32 bits; 0: fused kernels
        keep them on the chip
    fp8_unpack_instructions : instructions of a lane to convert a cached 8-bit float to 16 bits for
        one query head, on a GPU without this type
    vector_attention_instructions : instructions of a lane for a cached 16-bit element and one query
        head, in decode attention without tensor cores; 0: it uses tensor cores
    vector_attention_instructions_8bit : ``vector_attention_instructions`` over an 8-bit cache
    tensor_core_group : minimum query heads of a group for decode attention with tensor cores, if
        sequences times key heads are at least ``tensor_core_blocks``
    tensor_core_blocks : minimum number of sequences times key heads for tensor cores, as a share of
        the multiprocessors
    attention_block_bandwidth : maximum read bandwidth of one block of threads in decode attention
        with one block per head and sequence [bytes/s]; 0: contexts are split over blocks
    half_accumulation : 16-bit products accumulate in 16 bits
    unpacked_rows : minimum rows of products that first unpack quantized weights to 16 bits in
        memory; 0: none do
    unpacking_bytes : memory traffic of unpacking a weight, or an element of a cache with fewer than
        16 bits [bytes]; 0: one kernel reads and writes a weight, and attention reads the cache
        without unpacking
    reads_casts : products read activations again if the measured products cast them
    balanced_experts : all experts get equal numbers of tokens
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
    sustained_clock: Share = 0.0
    joined_all_reduce: bool = False
    expert_launch_time: Seconds = 0.0
    host_expert_time: Seconds = 0.0
    decode_expert_launch_time: Seconds = 0.0
    draft_overhead: Seconds = 0.0
    draft_sequence_overhead: Seconds = 0.0
    latent_launch_time: Seconds = 0.0
    recurrent_launch_time: Seconds = 0.0
    triton_experts: bool = False
    expert_tile_rows: Annotated[int, Strict(), Interval(ge=0, le=10**4)] = 0
    adapter_kernels: Ratio = 6.0
    adapter_bandwidth_fraction: Fraction = 0.5
    adapter_launch_time: Seconds = 5e-5
    captured_adapters: bool = True
    expert_loop_time: Seconds = 0.0
    collective_launch_time: Seconds = 0.0
    network_callback_time: Seconds = 0.0
    quantized_launch_time: Seconds = 0.0
    captured_context: Annotated[int, Strict(), Interval(ge=0, le=10**9)] = 0
    captured_batch: Annotated[int, Strict(), Interval(ge=0, le=10**6)] = 0
    host_link_fraction: Fraction = 0.8
    hidden_copies: Share = 1.0
    host_attention_fraction: FractionOrZero = 0.0
    host_product_fraction: FractionOrZero = 0.0
    separate_drafts: bool = False
    quantized_bandwidth_fraction: Fraction = 1.0
    row_instructions: Ratio = 0.0
    vector_rows: Annotated[int, Strict(), Interval(ge=0, le=10**4)] = 0
    vector_bandwidth: BytesPerSecondOrZero = 0.0
    score_passes: Ratio = 0.0
    fp8_unpack_instructions: Ratio = 40.0
    vector_attention_instructions: Ratio = 0.0
    vector_attention_instructions_8bit: Ratio = 0.0
    tensor_core_group: Annotated[int, Strict(), Interval(ge=0, le=10**4)] = 0
    tensor_core_blocks: Ratio = 0.0
    attention_block_bandwidth: BytesPerSecondOrZero = 0.0
    half_accumulation: bool = False
    unpacked_rows: Annotated[int, Strict(), Interval(ge=0, le=10**7)] = 0
    unpacking_bytes: Ratio = 0.0
    reads_casts: bool = True
    balanced_experts: bool = False


@validated
class SchedulerDefault:
    """Defaults of an engine's scheduler on some GPUs.

    Parameters
    ----------
    max_num_seqs : maximum sequences of a step
    max_num_batched_tokens : maximum new tokens of a step of a server
    offline_batched_tokens : maximum new tokens of a step of a program that loads the engine
    gpus : beginnings of the names of the GPUs; empty: all
    other_gpus : beginnings of the names of excluded GPUs
    least_memory : least memory of the GPU [bytes]
    since : first release with these defaults
    until : first release without these defaults
    captured_seqs : sequences of the largest CUDA graph, with fewer than 4 ranks of tensor
        parallelism and with more
    """

    max_num_seqs: Count
    max_num_batched_tokens: Count
    offline_batched_tokens: Count
    gpus: tuple[str, ...] = ()
    other_gpus: tuple[str, ...] = ()
    least_memory: BytesOrZero = 0.0
    since: str = ""
    until: str = ""
    captured_seqs: tuple[Count, ...] = (256, 512)


@validated
class Scheduler:
    """Batching: how requests become the steps of an engine.

    Parameters
    ----------
    continuous : sequences join and leave between steps; without it a batch ends together, unless
        there are ``slots``
    chunked_prefill : mixes parts of prompts into the steps of decoding
    max_num_seqs : sequences of a step at most
    max_num_batched_tokens : new tokens of a step at most
    clustering : share of the requests of a closed loop that keep starting together, because the
        engine computes the prompts of a batch first and its answers end together; of varying
        lengths, as `planner.estimators.inference.balance.together_share` has equal ones
    poll_interval : decode steps between two looks for new requests
    batch_wait : decode steps that a prompt waits for others to be computed with
    stream_interval : tokens of an answer that are sent to the client together; the first token is
        sent at once
    pipeline_tokens : maximum new tokens of a micro-batch: those of a static batch are halved until
        they have fewer; one per stage only if the stages divide the batch; 0: always one per stage
    pipeline_overlap : micro-batches of a static batch are on the stages at the same time
    whole_requests : a request starts only when the cache has room for its longest answer; without
        it the cache fills as answers grow
    defaults : defaults of ``max_num_seqs`` and ``max_num_batched_tokens`` by GPU and release: the
        first that applies
    divides_step_tokens : the default of ``max_num_batched_tokens`` is for all attention ranks
        together
    longest_step_request : requests of up to so many tokens must fit in one step, or the engine
        does not start: it splits prompts by default where longer ones are allowed; 0: it splits all
    slots : without ``continuous``, the server takes requests into slots with cache from the start;
        further requests wait
    captured_seqs : as in `SchedulerDefault`
    """

    continuous: bool
    chunked_prefill: bool
    max_num_seqs: Count
    max_num_batched_tokens: Count
    clustering: Share
    poll_interval: Count = 1
    batch_wait: Annotated[int, Strict(), Interval(ge=0, le=10_000)] = 0
    stream_interval: Count = 1
    pipeline_tokens: Annotated[int, Strict(), Interval(ge=0, le=10**7)] = 0
    pipeline_overlap: bool = True
    whole_requests: bool = False
    defaults: tuple[SchedulerDefault, ...] = ()
    divides_step_tokens: bool = False
    longest_step_request: Annotated[int, Strict(), Interval(ge=0, le=10**7)] = 0
    slots: bool = False
    captured_seqs: tuple[Count, ...] = (256, 512)

    def default_step_tokens(self, ranks: FloatArray) -> FloatArray:
        """Return the default limit of new tokens per step on each attention rank.

        Parameters
        ----------
        ranks : number of attention data-parallel ranks
        """
        import numpy as np  # commands that only list engines do without it

        if not self.divides_step_tokens:
            return np.full(np.shape(ranks), float(self.max_num_batched_tokens))
        return np.maximum(self.max_num_batched_tokens // np.asarray(ranks), 1.0)

    @property
    def serves(self) -> bool:
        """Whether the engine accepts requests as they arrive, not only static batches."""
        return self.continuous or self.slots


@validated
class StaticReserve:
    """Memory that an engine's default share for weights and KV cache leaves, as a sum.

    Parameters
    ----------
    constant : for metadata [bytes]
    token : for each new token of a step [bytes]
    least_tokens : minimum new tokens of a step
    captured_sequence : for each sequence of the largest CUDA graph [bytes]
    rank : for each GPU of a replica [bytes]
    attention_sequence : for each sequence of the largest CUDA graph and rank of data-parallel
        attention [bytes]
    draft : for a model that drafts [bytes]
    least : minimum without drafts [bytes]
    least_from : GPUs with more memory than this have the minimum [bytes]
    """

    constant: BytesOrZero
    token: BytesOrZero
    least_tokens: Count
    captured_sequence: BytesOrZero
    rank: BytesOrZero
    attention_sequence: BytesOrZero
    draft: BytesOrZero
    least: BytesOrZero
    least_from: BytesOrZero


@validated
class EngineMemory:
    """Memory of an engine other than weights.

    Parameters
    ----------
    gpu_memory_utilization : default share of the device that the engine uses
    cache_share : share of the memory left by weights and activations that the cache gets, where
        the option is a share of the device
    reserved : context [bytes] and communication buffers, and graphs where these are not apart
    graphs : memory of CUDA graphs that the engine takes off the cache [bytes], of 256 sequences or
        more
    block_size : tokens of one block of the paged cache; with 1 the cache is not paged
    windows_hold_step : the room for one request has the new tokens of a step in addition to each
        sliding window
    window_pool_share : tokens that layers with a window have room for over those of other layers,
        if the pools are divided at the start; 0: blocks of all layers come from one pool
    pooled_states : a state of a recurrent layer takes pages of the cache as large as those of the
        attention layers
    expanded_latent_width : elements that keys and values of a head are padded to in the cache,
        if the engine expands them from a latent before it caches them; 0: it caches the latent
    latent_cache_since : first release that caches the latent; empty: none of this profile does
    whole_cache_releases : first release that starts only if each pipeline stage has room for the
        cache of all stages of its longest request, and first one that asks for its own part again
    whole_cache_per_stage : the release is one of these
    memory_share : reference of the engine's option for the share of memory; None: no such option
    activation_copies : allocated activations over those that the largest layer needs at once
    communication : peer buffers of all-reduces on each GPU of tensor parallelism [bytes], where
        links are faster than PCIe
    logit_bytes : memory of each logit of the sampled sequences during sorting [bytes]
    profiles_images : the engine encodes the largest image before it sizes the cache
    gathered_logits : every rank of tensor parallelism samples from all logits, not from its share
        of them
    warm_up_logit_bytes : memory of each logit of every token of the largest prefill step at the
        start, on each rank in addition to what layers leave allocated [bytes]; 0: only sampled
        logits are computed
    profiled_seqs : default number of sequences that the engine samples in a step before it sizes
        the cache; 0: the cache gets the memory that the requests of the plan leave
    fixed_profiled_seqs : the number of profiled sequences is set explicitly, independent of the
        sequences of the plan
    expert_workspace : inputs, products and outputs of the chosen experts have permanent buffers
    queued_all_reduces : the allocator cannot reuse the buffers of all-reduces until the host has
        caught up with the GPU: all buffers of a profiled step exist at once
    shortens_longest : the engine starts although its longest request does not fit in the cache, and
        limits requests
    adapter_slots : default adapters of one step that memory is reserved for
    adapted_experts : memory is reserved for adapters of routed experts, if all linear matrices have
        adapters
    static_reserve : what the default of a `MemoryShare.STATIC` leaves; None: the rest of
        ``gpu_memory_utilization``
    """

    gpu_memory_utilization: Share
    reserved: BytesOrZero
    block_size: Count
    graphs: BytesOrZero = 0.0
    windows_hold_step: bool = False
    window_pool_share: Ratio = 0.0
    pooled_states: bool = False
    expanded_latent_width: Annotated[int, Strict(), Interval(ge=0, le=10**4)] = 0
    latent_cache_since: str = ""
    whole_cache_releases: tuple[str, ...] = ()
    whole_cache_per_stage: bool = False
    memory_share: MemoryShare | None = None
    cache_share: Share = 1.0
    activation_copies: Ratio = 1.0
    communication: BytesOrZero = 0.0
    logit_bytes: Ratio = 4.0
    profiles_images: bool = False
    gathered_logits: bool = False
    warm_up_logit_bytes: Ratio = 0.0
    profiled_seqs: Annotated[int, Strict(), Interval(ge=0, le=10**7)] = 0
    fixed_profiled_seqs: bool = False
    expert_workspace: bool = False
    queued_all_reduces: bool = False
    shortens_longest: bool = False
    adapter_slots: Count = 1
    adapted_experts: bool = False
    static_reserve: StaticReserve | None = None


@validated
class AttentionSplit:
    """Decode attention that reads the parts of a context in parallel.

    Parameters
    ----------
    context : contexts of more tokens are split
    blocks : contexts are not split if sequences times query heads of a device exceed this number
    unsplit_bandwidth_fraction : rate of the kernel without split over that of the kernel with split
    unsplit_repeated_read_fraction : ``repeated_read_fraction`` of the kernel without split
    """

    context: Count
    blocks: Count
    unsplit_bandwidth_fraction: Fraction
    unsplit_repeated_read_fraction: Ratio


@validated
class EagerLaunchCost:
    """Host time to launch a layer of any step if CUDA graphs are disabled.

    Parameters
    ----------
    layer_launch_time : time of a layer of attention and feed-forward [s]
    expert_launch_time : additional time of routing to experts [s]
    """

    layer_launch_time: Seconds
    expert_launch_time: Seconds


@validated
class FrontEnd:
    """Time of the processes between the clients of a server and its engine, each on one core.

    Parameters
    ----------
    request_time : time to take a request: HTTP, template, parameters [s]
    prompt_token_time : time to tokenize a token of a prompt [s]
    token_time : time to detokenize an output token and pass it to its request [s]
    message_time : time to write a message of a stream [s]
    template_time : time to parse the Jinja template of a chat for each request [s]
    template_releases : first release that does so, and first that does not any more, in pairs
    per_rank_since : first release that starts a process for each data-parallel rank by default;
        empty: none of this profile does
    per_rank : a process for each data-parallel rank by default, in place of one
    processes : processes of a replica, less than one if replicas share one; 0: the default
    """

    request_time: Seconds
    prompt_token_time: Seconds
    token_time: Seconds
    message_time: Seconds
    template_time: Seconds = 0.0
    template_releases: tuple[str, ...] = ()
    per_rank_since: str = ""
    per_rank: bool = False
    processes: Ratio = 0.0


@validated
class EngineProfile:
    """Physical parameters of a serving engine, the same for all models.

    Parameters
    ----------
    name : name in reports
    execution : kernels and host launches
    scheduler : batching
    memory : memory other than weights
    quantizations : types of weights and activations with kernels, without those of GGUF files
    gguf : the engine has kernels for the types of GGUF files
    caches : types of the KV cache that options can set
    unpacked_dense_by_architecture : types that dense products unpack to 16 bits, by GPU generation
        without their arithmetic
    unpacked_experts_by_architecture : types that products of experts unpack to 16 bits, by GPU
        generation
    unpacked_cache_architectures : GPU generations without 8-bit floats that store the KV cache in 8
        bits and compute attention in 16
    tensor_parallel : supports tensor parallelism
    pipeline_parallel : supports pipeline parallelism
    expert_parallel : supports expert parallelism
    attention_data_parallel : supports data-parallel attention with shared experts
    context_parallel : ranks can split the tokens of prompts (prefill context parallelism)
    context_parallel_limits : what it is restricted to: ``experts`` (models that have some),
        ``latent`` (latent attention), ``nvidia`` (GPUs), ``one_stage`` of a pipeline, ``text``
        without images, ``no_adapters``, ``no_drafts``
    undivided : forms of parallelism (``expert_parallel``, ``attention_data_parallel``) with degree
        1 or all GPUs of a stage
    one_split : tensor and pipeline parallelism exclude each other
    pads_heads : heads are padded with zeros if tensor parallelism does not divide them
    tensor_parallel_across_nodes : tensor parallelism may span nodes
    decode_context_parallel : ranks of tensor parallelism can hold parts of a cache, not copies
    redundant_experts : supports copies of experts, so that all ranks have equal numbers
    pipelines_of_pools : prefill and decode workers of disaggregated plans may have pipeline stages
    fp8_block : the width of block-scaled 8-bit weights on a GPU is a multiple of this number; 0:
        any width
    mxfp4_padding_by_architecture : multiples that the kernels of MXFP4 experts pad the inner width
        of a GPU and the hidden width to, by GPU generation
    sparse_heads_by_architecture : heads that kernels of sparse latent attention over prompts pad
        those of a rank to a multiple of, by GPU generation
    sink_rate_by_architecture : rate of attention with sinks over prompts relative to attention
        without, by GPU generation
    slow_experts_by_architecture : types of experts with biases that the engine has no kernels of
        its own for, by GPU generation: compute rate of those it takes over that of the GPU's own
    host_experts_by_architecture : types of experts with ``host_expert_time``, by GPU generation
    whole_expert_buffers : GPU generations on which each rank keeps and passes over a row for every
        pair of a token and an expert of a step, those of other ranks included
    refused_experts_by_architecture : types of experts that the engine does not serve, by GPU
        generation
    quantized_ends : embedding and logits have the type of the layers, as in GGUF files
    sliding_windows : attention and cache end at the model's window; otherwise they hold all tokens
    embeddings : supports embedding and scoring of prompts
    current : searched if no engine is specified
    vendors : vendors of supported GPUs; empty: all
    without_architectures : unsupported GPU generations of these vendors
    kernel_latency_by_architecture : factor on ``kernel_latency_fraction``, by GPU generation
    dense_latency_by_architecture : further factor for dense products, by GPU generation
    expert_latency_by_architecture : further factor for products of experts, by GPU generation
    row_instructions_by_architecture : ``row_instructions`` by GPU generation
    linear_compute_by_architecture : factor on ``compute_fraction`` of dense products, by GPU
        generation
    expert_compute_by_architecture : factor on ``compute_fraction`` of products of experts, by GPU
        generation
    fp8_cache_compute_by_architecture : compute of decode attention over an 8-bit cache relative to
        16 bits, by GPU generation with 8-bit kernels
    attention_split : split of long contexts in decode attention; None: as measured at any size
    without_graphs : host times without CUDA graphs; None: those of steps with prompts
    front_end : processes that serve clients; None: they never limit the rate
    aliases : other names
    since : first release that the profile holds for, after its target: "vllm 0.8"; empty: not bound
        to a release
    notes : remarks
    """

    name: str
    execution: EngineExecution
    scheduler: Scheduler
    memory: EngineMemory
    quantizations: tuple[str, ...] = _ALL
    gguf: bool = False
    caches: tuple[str, ...] = tuple(CacheType.usual())
    unpacked_dense_by_architecture: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    unpacked_experts_by_architecture: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    unpacked_cache_architectures: tuple[str, ...] = ()
    tensor_parallel: bool = True
    pipeline_parallel: bool = True
    expert_parallel: bool = True
    attention_data_parallel: bool = True
    context_parallel: bool = False
    context_parallel_limits: tuple[str, ...] = ()
    undivided: tuple[str, ...] = ()
    one_split: bool = False
    pads_heads: bool = False
    tensor_parallel_across_nodes: bool = False
    decode_context_parallel: bool = False
    redundant_experts: bool = False
    pipelines_of_pools: bool = True
    fp8_block: Annotated[int, Strict(), Interval(ge=0, le=10**4)] = 0
    mxfp4_padding_by_architecture: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    sparse_heads_by_architecture: Mapping[str, Count] = field(default_factory=dict)
    sink_rate_by_architecture: Mapping[str, Fraction] = field(default_factory=dict)
    slow_experts_by_architecture: Mapping[str, Mapping[str, Fraction]] = field(default_factory=dict)
    host_experts_by_architecture: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    whole_expert_buffers: tuple[str, ...] = ()
    refused_experts_by_architecture: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    quantized_ends: bool = False
    sliding_windows: bool = True
    embeddings: bool = False
    current: bool = False
    vendors: tuple[str, ...] = ()
    without_architectures: tuple[str, ...] = ()
    kernel_latency_by_architecture: Mapping[str, Ratio] = field(default_factory=dict)
    dense_latency_by_architecture: Mapping[str, Ratio] = field(default_factory=dict)
    expert_latency_by_architecture: Mapping[str, Ratio] = field(default_factory=dict)
    row_instructions_by_architecture: Mapping[str, Ratio] = field(default_factory=dict)
    linear_compute_by_architecture: Mapping[str, Fraction] = field(default_factory=dict)
    expert_compute_by_architecture: Mapping[str, Fraction] = field(default_factory=dict)
    fp8_cache_compute_by_architecture: Mapping[str, Ratio] = field(default_factory=dict)
    attention_split: AttentionSplit | None = None
    without_graphs: EagerLaunchCost | None = None
    front_end: FrontEnd | None = None
    aliases: tuple[str, ...] = ()
    since: str = ""
    notes: str = ""
