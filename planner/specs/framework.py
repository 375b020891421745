"""How a training framework executes: what overlaps, is fused, is launched, is kept."""

from __future__ import annotations

from typing import Annotated, Literal

from planner.base.enums import AdapterKind, AttentionKernels, Fp8Recipe
from planner.base.training_names import ExpertAdapters
from planner.question.terms import terms_about
from planner.specs.checked import After, Interval, checked
from planner.specs.load import Bytes, BytesOrZero, Fraction, Numbers, Ratio, Seconds, Share
from planner.specs.rollouts import Rollouts


@checked
class Execution:
    """Eager launches and kernel fusion."""

    layer_launch_time: Seconds
    """The host's time to launch one layer's forward kernels; a backward pass takes twice as long;
    CUDA graphs or compilation make it small."""
    micro_batch_overhead: Seconds
    """The host's time for each micro-batch beside its layers."""
    step_overhead: Seconds
    """The host's time for each optimizer step."""
    elementwise_passes: Ratio
    """Traffic of elementwise kernels over that of fused ones."""
    attention_kernels: AttentionKernels
    """What its fused attention kernels are written for."""
    softmax_passes: Ratio
    """Reads and writes of the score matrix by unfused attention."""
    loss_passes: Ratio
    """Reads and writes of the logits by forward and backward of the loss."""
    permute_passes: Ratio
    """Traffic of sorting tokens by expert over one read and one write."""
    deduplicated_dispatch: bool
    """A token crosses to a scale-up domain once, not per expert."""
    selective_share: Share
    """Share of a layer that selective recomputation repeats beside an unfused attention core: 0 in
    Megatron-LM, about half where every other product is kept."""
    selective_outputs: bool = False
    """With a fused attention, selective recomputation of a model with experts repeats norms, the
    experts' activation function and the up-projections of latent attention."""
    full_recompute_skips_last_product: bool = False
    """Full recomputation repeats only what the backward pass reads: not the last product of a
    layer."""
    softmax_multiple: Annotated[int, Interval(ge=1)] = 1
    """Its softmax kernel takes sequences times heads of a GPU that this divides; others fall back
    to a kernel for each operation."""
    head_dim_multiple: Annotated[int, Interval(ge=1)] = 1
    """The batched products of an unfused attention use tensor cores for heads whose size this
    divides; others run on FP32 lanes."""
    expert_launch_time: Seconds = 0.0
    """What each expert of a GPU adds to the forward pass of a layer, where their products are
    kernels of their own; a backward pass takes twice as long."""
    expert_loop_time: Seconds = 0.0
    """The host's time to launch the forward pass of one expert in a loop over them; 0 where it
    has no such loop."""
    module_gather_time: Seconds = 0.0
    """The host's time to gather one matrix by itself, as ZeRO-3 does inside that loop."""
    expert_host_wait: Seconds = 0.0
    """What a layer with experts adds to each pass, forward, repeated and backward, where the host
    waits for the number of tokens of each expert before it launches their kernels; 0 where these
    are read on the GPU, or CUDA graphs hold whole layers."""
    node_reduce_wait: Seconds = 0.0
    """What tensor parallelism inside a scale-up domain and over more than half of it adds to each
    pass of a layer, forward, repeated and backward: its all-reduces wait for the slowest rank,
    and no launches hide that. Groups across nodes show none of it."""
    expert_bias_passes: Ratio = 0.0
    """Reads and writes of the experts' outputs in 16 bits that their bias takes, where it is added
    by kernels of its own."""
    adapter_launch_time: Seconds = 0.0
    """The host's time to launch the forward kernels of one adapter."""
    dequantize_launch_time: Seconds = 0.0
    """The host's time to launch what turns one 4-bit matrix into 16 bits."""
    dequantize_passes: Ratio = 1.0
    """Traffic of turning 4-bit matrices into 16 bits over one read and one write."""
    fused_projections: bool = False
    """Queries, keys and values are one matrix with one adapter, and so are gate and up."""
    weight_broadcast_time: Seconds = 0.0
    """What each rank that shards a copy adds to a step of ZeRO-1, where ranks broadcast their new
    weights one after the other."""


@checked
class Overlap:
    """Share of each communication that the framework can hide behind computation."""

    tensor_parallel: Share
    """Collectives of tensor parallelism."""
    expert_parallel: Share
    """All-to-alls of expert parallelism."""
    pipeline_parallel: Share
    """Activations and their gradients between pipeline stages."""
    data_parallel: Share
    """Gradients between data-parallel ranks."""
    weight_gather: Share
    """Gathering of sharded weights."""
    interference: Share
    """Share of the shorter of two overlapped activities that still shows."""
    asynchronous_tensor_parallel: Share = 0.0
    """Collectives of tensor parallelism where they run piece by piece behind the products beside
    them (``tp_comm_overlap``); 0: it cannot."""
    gather_nics: Annotated[int, Interval(ge=0)] = 0
    """Network interfaces of a node by which gathers of sharded weights and scatters of their
    gradients leave it; 0: those of all their GPUs there."""


@checked
class Fp16States:
    """What is otherwise in fp16 training, where gradients are not accumulated in more bits."""

    gradient: BytesOrZero
    """Bytes per parameter of a gradient that persists."""
    gradient_on_wire: Bytes
    """Bytes per parameter of a gradient that is reduced."""
    accumulation_traffic: BytesOrZero = 0.0
    """As in `States`."""
    scattered_gradients: bool = True
    """As in `States`."""


@checked
class States:
    """Bytes per parameter that persist, and on the wire."""

    weight: BytesOrZero
    """A weight that persists."""
    gradient: BytesOrZero
    """A gradient that persists."""
    optimizer: BytesOrZero
    """Optimizer states and the weights in more bits that they update."""
    gradient_on_wire: Bytes
    """A gradient that is reduced."""
    weight_on_wire: Bytes
    """A weight that is gathered."""
    optimizer_traffic: Bytes
    """What the optimizer step reads and writes."""
    main_weight: BytesOrZero = 0.0
    """What of ``optimizer`` is a copy of the weights in more bits."""
    quantized_weights: bool = False
    """Weights of layers lie in the format that their products read, in both orientations where
    products need both, and the copy in more bits with the optimizer."""
    cached_weights: bool = False
    """Beside weights of layers in 16 bits lie those that products in fewer bits read, from one step
    to the next, in both orientations where products need both."""
    weights_sharded_from: Annotated[int, Interval(ge=2, le=3)] = 3
    """The ZeRO stage from which weights are sharded between steps. FSDP does so from 2, where it
    gathers them once per micro-batch and keeps them until the backward pass ends."""
    accumulation_traffic: BytesOrZero = 0.0
    """What kernels of their own read and write per micro-batch to add up gradients; 0 where the
    product that makes them does."""
    scattered_gradients: bool = True
    """Optimizer states that are sharded get their gradients by a reduce-scatter; else all are
    all-reduced."""
    gradients_persist: bool = True
    """They have buffers of their own; else a backward pass allocates them and the optimizer step
    frees them."""
    fp16: Fp16States | None = None
    """What is otherwise in fp16 training, if anything is."""


@checked
class Memory:
    """What is taken besides the model states, and what kernels keep."""

    per_logit: BytesOrZero
    """Bytes per logit at the peak of the loss that it has by default."""
    per_logit_fused: BytesOrZero = 4.0
    """The same of a fused loss: 16-bit logits and their gradient, if not more."""
    loss_room: Share = 0.0
    """Share of the free memory that 32-bit logits may take, as many tokens at a time as fit; 0: the
    loss is of all tokens at once."""
    loss_chunk: BytesOrZero = 0.0
    """The most that these logits take, however much is free."""
    reserved: BytesOrZero
    """CUDA context, libraries and NCCL buffers of one GPU."""
    communication_buffer: BytesOrZero
    """Buffers of gradients and weights on the wire."""
    buffered_bytes: BytesOrZero = 0.0
    """Bytes that buffers hold for each parameter of a GPU, up to ``communication_buffer``, which is
    that of a full bucket; 0 where buffers have one size."""
    replica_buckets: bool = False
    """Replicas copy all their gradients into buckets of their own, which stay."""
    loaded_whole: BytesOrZero = 0.0
    """Bytes per parameter of the whole model that each GPU holds while it loads, beside the shard
    that it will keep."""
    fragmentation: Share
    """Share of the activations that the allocator loses."""
    gathered_layers: Ratio
    """Layers of ZeRO-3 whose full weights and gradients are alive at once."""
    expert_output: BytesOrZero = 2.0
    """Bytes per element that are kept of the outputs of experts; none where their probabilities
    weigh what goes into the last matrix, not what comes out of it."""
    fp8_inputs: bool = True
    """Matrices keep their inputs in 8 bits where they are multiplied in 8 bits; else in 16 bits,
    cast again by the backward pass."""
    fp8_activation_inputs: bool = False
    """The inputs of the activation function are kept in 8 bits where matrices are multiplied so."""
    adapter_input: BytesOrZero = 0.0
    """Bytes per element that an adapter keeps of its input beside what its frozen matrix does, such
    as what dropout made of it."""
    kept_activations: Ratio = 1.0
    """Activations that the kernels of a layer keep over those that fused ones keep."""
    remade: tuple[str, ...] = ()
    """Modules whose outputs its backward kernels make again, and no layer keeps, as recomputation
    names them."""
    selective_dropped: Share | None = None
    """Share of what a layer keeps that selective recomputation drops; ``selective_share`` of its
    execution where not given."""
    sharded_copies: Ratio = 1.0
    """What a layer in its backward pass holds where its weights are sharded over what it holds
    where they are not: streams free late."""
    optimizer_temporary: BytesOrZero = 0.0
    """Bytes per parameter that the optimizer step builds up beside its states, and sharded as
    these."""
    step_gradients: BytesOrZero = 0.0
    """Bytes per parameter of gradients that the step makes of those that it gets, whatever the
    optimizer; sharded as its states."""
    reduce_bucket_size: Numbers = 0.0
    """Numbers of gradients in one ``communication_buffer``, if runs can say how many."""
    sub_group_size: Numbers = 0.0
    """Parameters that a step of ZeRO-3 updates at once; 0: all that a rank owns."""
    max_live_parameters: Numbers = 0.0
    """Whole parameters that ZeRO-3 holds on a GPU, as many as are needed again soon; 0: those of
    ``gathered_layers``."""


@checked
class Offloading:
    """What a framework keeps in host memory, and how it works on it."""

    kinds: tuple[str, ...] = ()
    """The values of ``offload`` that it knows."""
    host_update: bool = True
    """The host updates what it keeps, and gets the gradients; else optimizer states come to the GPU
    and go back."""
    only_layer_inputs: bool = False
    """Only the inputs of layers leave the GPU; the other activations that are kept stay on it."""
    host_memory_fraction: Fraction = 0.5
    """What the host's update reaches of the bandwidth of host memory."""
    host_link_fraction: Fraction = 0.75
    """What copies reach of the host link."""
    hidden: Share = 0.7
    """Share of the copies that can hide behind computation."""
    host_buffers: Ratio = 1.0
    """What states, gradients and weights take in host memory over their own size, buffers and
    rounding of pinned memory included."""
    loaded_per_process: BytesOrZero = 0.0
    """Bytes per parameter of the whole model that each process holds in host memory while it
    loads, where weights are not sharded."""


@checked
class Compilation:
    """What torch.compile changes of a framework that can be told to use it or not.

    ``layer_launch_time``, ``elementwise_passes`` and ``kept_activations`` are those the other way
    than the rest of the profile.
    """

    selectable: bool = False
    """It can compile a model or leave it eager."""
    default: bool = False
    """The rest of its profile is of compiled models; of eager ones if not."""
    layer_launch_time: Seconds = 0.0
    """The host's time to launch one layer's forward kernels, the other way."""
    elementwise_passes: Ratio = 1.0
    """Traffic of elementwise kernels the other way: over that of fused ones where that is compiled,
    over what each kernel reads and writes where it is eager."""
    kept_activations: Ratio = 1.0
    """Activations that compiled kernels keep over those that fused ones keep, where the rest is of
    eager ones."""
    tensor_parallel_launch_time: Seconds = 0.0
    """What tensor parallelism adds to a layer's forward launches where they are eager, as each
    operation on a distributed tensor is dispatched by itself."""


@checked
class Defaults:
    """What the program does where a run does not set it, if that is not what most programs do."""

    recompute: str = "none"
    """What the backward pass computes again."""
    quantized_recompute: str = ""
    """The same with adapters on quantized weights, if that is something else."""
    offload: str = "none"
    """What is in host memory."""
    flash_attention: bool = True
    """Attention is one fused kernel."""
    sequence_parallel: bool = False
    """Ranks of tensor parallelism split what is between their matrices, too."""

    def values(self, adapter: AdapterKind) -> dict[str, str | bool]:
        """The parameters that differ from those of most programs, by name."""
        is_quantized = adapter is AdapterKind.QLORA
        recompute = (is_quantized and self.quantized_recompute) or self.recompute
        plain = Defaults()
        values: dict[str, str | bool] = {"recompute": recompute, "offload": self.offload}
        values |= {name: getattr(self, name) for name in ("flash_attention", "sequence_parallel")}
        return {name: value for name, value in values.items() if value != getattr(plain, name)}


def _sharded_axis(name: str) -> str:
    known = terms_about("fully_sharded_degree")
    if name not in known:
        raise ValueError(f"must be one of {', '.join(known)}, not {name!r}")
    return name


@checked
class FrameworkProfile:
    """Few, named, physical parameters of a framework; never a factor per model."""

    name: str
    """What reports call it."""
    execution: Execution
    """Launches and kernels."""
    overlap: Overlap
    """Communication behind computation."""
    states: States
    """Bytes per parameter."""
    memory: Memory
    """Memory besides these."""
    compilation: Compilation = Compilation()
    """What torch.compile changes."""
    offloading: Offloading = Offloading()
    """What can be in host memory."""
    defaults: Defaults = Defaults()
    """What a run has that does not set it."""
    default_zero_stage: Annotated[int, Interval(ge=0, le=3)]
    """The ZeRO stage where nobody names one."""
    zero_stages: tuple[Annotated[int, Interval(ge=0, le=3)], ...]
    """The ZeRO stages that it has."""
    pipeline_zero_stages: tuple[Annotated[int, Interval(ge=0, le=3)], ...]
    """Those of them that go together with pipeline parallelism."""
    tensor_parallel: bool = True
    """It can share matrix products between GPUs."""
    pipeline_parallel: bool = True
    """It can give stages of layers to GPUs."""
    context_parallel: bool = True
    """It can share sequences between GPUs."""
    expert_parallel: bool = True
    """It can give experts to GPUs."""
    sharded_parallel: tuple[Annotated[str, After(_sharded_axis)], ...] = ()
    """What it has only where gradients are sharded (ZeRO 2, 3) or nothing is data parallel; experts
    also where each rank has others, without tensor and context parallelism. Contexts by heads
    (``head_exchange``) need none."""
    fsdp_zero_stages: tuple[Annotated[int, Interval(ge=2, le=3)], ...] = ()
    """ZeRO stages of a second engine (Megatron-FSDP), not searched: with Adam or SGD alone."""
    checked_version: str = ""
    """The release whose options and checks say what it supports."""
    layer_split: bool = False
    """It can spread layers over GPUs that work one after the other (device_map)."""
    equal_chunks: bool = False
    """Every chunk of a pipeline has the same number of layers."""
    experts_in_shards: bool = False
    """Experts are split over GPUs that share the shards of one copy of the weights, never over
    copies."""
    interleaved_schedule: bool = True
    """It can give several stages of a pipeline to a GPU."""
    hybrid_sharding: bool = False
    """It can shard states over groups of data-parallel ranks that hold copies."""
    selective_recompute: bool = True
    """It can repeat a part of each layer, not whole ones alone."""
    sequence_parallel: bool = True
    """Its tensor-parallel ranks can split what is between their matrices, too."""
    partial_recompute: bool = False
    """It can repeat some layers of a stage whole, and keep all of the others."""
    feed_forward_recompute: bool = False
    """It can repeat the feed-forward blocks alone."""
    recompute_modules: tuple[str, ...] = ()
    """Modules of a layer that it can repeat by themselves (``RecomputedModules``)."""
    saved_tensors: bool = False
    """Its full recomputation can keep tensors of a layer that are named, or move them to the
    host."""
    fp8_attention: bool = False
    """It has attention kernels in 8 bit."""
    fp8_recipe: str = Fp8Recipe.DELAYED.word
    """How it scales what it multiplies in 8 bit where nothing is said."""
    fp8_recipe_of_groups: str = ""
    """The same on GPUs whose products scale groups of 32 numbers themselves, if it is another."""
    optimizers: tuple[str, ...] = ("adam",)
    """The optimizers that it has."""
    state_precisions: tuple[str, ...] = ()
    """Formats that its optimizer states can be told to have."""
    main_precisions: tuple[str, ...] = ()
    """Formats that the weights it updates and the gradients it adds up can be told to have."""
    optimizer_in_backward: bool = False
    """It can update weights as soon as their gradients are there, and keep none of these."""
    paged_optimizer: bool = False
    """It can have optimizer states in unified memory, which the driver pages to the host."""
    expert_tensor_parallel: bool = False
    """It can split the matrices of experts between GPUs."""
    expert_overlap: bool = False
    """It can exchange the tokens of experts behind the computation of another micro-batch."""
    head_exchange: bool = False
    """Its context parallelism can trade tokens for heads (``cp_comm_type`` a2a)."""
    cp_comm_type: Literal["p2p", "a2a"] = "p2p"
    """The ``cp_comm_type`` that runs which say none have."""
    token_dispatchers: tuple[str, ...] = ()
    """The values of ``token_dispatcher`` that it knows beside auto."""
    pipeline_schedules: tuple[str, ...] = ()
    """The values of ``pipeline_schedule`` that it knows beside 1F1B, interleaved or not."""
    current: bool = False
    """It is one of today: tried where nobody names a framework."""
    vendors: tuple[str, ...] = ()
    """Of the GPUs it runs on; all if none is named."""
    without_architectures: tuple[str, ...] = ()
    """Generations of GPUs of these vendors that it does not run on."""
    adapters: bool = False
    """It trains adapters."""
    expert_adapters: ExpertAdapters = ExpertAdapters.NONE
    """What routed experts have where all linear layers have adapters and nobody says more."""
    quantized_adapters: bool = True
    """Those of weights in 4 bits, too."""
    virtual_tokens: bool = False
    """It trains virtual tokens of prompts and prefixes, too."""
    whole_models: bool = True
    """It is one to train all weights with; where nobody names one, others are tried."""
    rollouts: Rollouts | None = None
    """How it generates answers, where it is one of reinforcement learning."""
    aliases: tuple[str, ...] = ()
    """Other names of it."""
    notes: str = ""
    """What else is to know."""

    def recipe_on(self, *, scales_groups: bool) -> Fp8Recipe:
        """How it scales what it multiplies in 8 bit on a GPU that scales groups itself or not."""
        word = (scales_groups and self.fp8_recipe_of_groups) or self.fp8_recipe
        return Fp8Recipe[word.upper()]
