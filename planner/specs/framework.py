"""How a training framework executes: what overlaps, is fused, is launched, is kept."""

from __future__ import annotations

from typing import Annotated, Literal

from planner.base.enums import AdapterKind, AttentionKernels, Fp8Recipe
from planner.base.training_aliases import ExpertAdapters
from planner.question.terms import terms_about
from planner.specs.rollouts import RolloutProfile
from planner.specs.spec_files import Bytes, BytesOrZero, Fraction, Numbers, Ratio, Seconds, Share
from planner.specs.validated import Interval, PostValidator, validated


@validated
class Execution:
    """Eager launches and kernel fusion.

    Parameters
    ----------
    layer_launch_time : the host's time to launch one layer's forward kernels [s]; a backward pass
        takes twice as long; CUDA graphs or compilation make it small
    micro_batch_overhead : the host's time for each micro-batch beside its layers [s]
    step_overhead : the host's time for each optimizer step [s]
    elementwise_passes : traffic of elementwise kernels over that of fused ones
    attention_kernels : what its fused attention kernels are written for
    softmax_passes : reads and writes of the score matrix by unfused attention
    loss_passes : reads and writes of the logits by forward and backward of the loss
    permute_passes : traffic of sorting tokens by expert over one read and one write
    deduplicated_dispatch : a token crosses to a scale-up domain once, not per expert
    selective_share : share of a layer that selective recomputation repeats beside an unfused
        attention core: 0 in Megatron-LM, about half where every other product is kept
    selective_outputs : with a fused attention, selective recomputation of a model with experts
        repeats norms, the experts' activation function and the up-projections of latent attention
    full_recompute_skips_last_product : full recomputation repeats what the backward pass reads,
        and so not the
        last product of a layer
    softmax_multiple : its softmax kernel takes sequences times heads of a GPU that this divides;
        others fall back to a kernel for each operation
    head_dim_multiple : the batched products of an unfused attention use tensor cores for heads
        whose size this divides; others run on FP32 lanes
    expert_launch_time : what each expert of a GPU adds to the forward pass of a layer [s], where
        their products are kernels of their own; a backward pass takes twice as long
    expert_loop_time : the host's time to launch the forward pass of one expert in a loop over them
        [s]; 0 where it has no such loop
    module_gather_time : the host's time to gather one matrix by itself [s], as ZeRO-3 does inside
        that loop
    expert_host_wait : what a layer with experts adds to each pass [s], forward, repeated and
        backward, where the host waits for the number of tokens of each expert before it launches
        their kernels; 0 where these are read on the GPU, or CUDA graphs hold whole layers
    node_reduce_wait : what tensor parallelism inside a scale-up domain and over more than half of
        it adds to each pass of a layer [s], forward, repeated and backward: its all-reduces wait
        for the slowest rank, and no launches hide that. Groups across nodes show none of it
    expert_bias_passes : reads and writes of the experts' outputs in 16 bits that their bias takes,
        where it is added by kernels of its own
    adapter_launch_time : the host's time to launch the forward kernels of one adapter [s]
    dequantize_launch_time : the host's time to launch what turns one 4-bit matrix into 16 bits [s]
    dequantize_passes : traffic of turning 4-bit matrices into 16 bits over one read and one write
    fused_projections : queries, keys and values are one matrix with one adapter, and so are gate
        and up
    weight_broadcast_time : what each rank that shards a copy adds to a step of ZeRO-1 [s], where
        ranks broadcast their new weights one after the other
    """

    layer_launch_time: Seconds
    micro_batch_overhead: Seconds
    step_overhead: Seconds
    elementwise_passes: Ratio
    attention_kernels: AttentionKernels
    softmax_passes: Ratio
    loss_passes: Ratio
    permute_passes: Ratio
    deduplicated_dispatch: bool
    selective_share: Share
    selective_outputs: bool = False
    full_recompute_skips_last_product: bool = False
    softmax_multiple: Annotated[int, Interval(ge=1)] = 1
    head_dim_multiple: Annotated[int, Interval(ge=1)] = 1
    expert_launch_time: Seconds = 0.0
    expert_loop_time: Seconds = 0.0
    module_gather_time: Seconds = 0.0
    expert_host_wait: Seconds = 0.0
    node_reduce_wait: Seconds = 0.0
    expert_bias_passes: Ratio = 0.0
    adapter_launch_time: Seconds = 0.0
    dequantize_launch_time: Seconds = 0.0
    dequantize_passes: Ratio = 1.0
    fused_projections: bool = False
    weight_broadcast_time: Seconds = 0.0


@validated
class Overlap:
    """Share of each communication that the framework can hide behind computation.

    Parameters
    ----------
    tensor_parallel : collectives of tensor parallelism
    expert_parallel : all-to-alls of expert parallelism
    pipeline_parallel : activations and their gradients between pipeline stages
    data_parallel : gradients between data-parallel ranks
    weight_gather : gathering of sharded weights
    interference : share of the shorter of two overlapped activities that still shows
    asynchronous_tensor_parallel : collectives of tensor parallelism where they run piece by piece
        behind the products beside them (``tp_comm_overlap``); 0: it cannot
    gather_nics : network interfaces of a node by which gathers of sharded weights and scatters of
        their gradients leave it; 0: those of all their GPUs there
    """

    tensor_parallel: Share
    expert_parallel: Share
    pipeline_parallel: Share
    data_parallel: Share
    weight_gather: Share
    interference: Share
    asynchronous_tensor_parallel: Share = 0.0
    gather_nics: Annotated[int, Interval(ge=0)] = 0


@validated
class Fp16States:
    """What is otherwise in fp16 training, where gradients are not accumulated in more bits.

    Parameters
    ----------
    gradient : bytes per parameter of a gradient that persists
    gradient_on_wire : bytes per parameter of a gradient that is reduced
    accumulation_traffic : as in `States` [bytes/parameter]
    scattered_gradients : as in `States`
    """

    gradient: BytesOrZero
    gradient_on_wire: Bytes
    accumulation_traffic: BytesOrZero = 0.0
    scattered_gradients: bool = True


@validated
class States:
    """Bytes per parameter that persist, and on the wire.

    Parameters
    ----------
    weight : a weight that persists [bytes/parameter]
    gradient : a gradient that persists [bytes/parameter]
    optimizer : optimizer states and the weights in more bits that they update [bytes/parameter]
    gradient_on_wire : a gradient that is reduced [bytes/parameter]
    weight_on_wire : a weight that is gathered [bytes/parameter]
    optimizer_traffic : what the optimizer step reads and writes [bytes/parameter]
    main_weight : what of ``optimizer`` is a copy of the weights in more bits [bytes/parameter]
    quantized_weights : weights of layers lie in the format that their products read, in both
        orientations where products need both, and the copy in more bits with the optimizer
    cached_weights : beside weights of layers in 16 bits lie those that products in fewer bits read,
        from one step to the next, in both orientations where products need both
    weights_sharded_from : the ZeRO stage from which weights are sharded between steps. FSDP does so
        from 2, where it gathers them once per micro-batch and keeps them until the backward pass
        ends
    accumulation_traffic : what kernels of their own read and write per micro-batch to add up
        gradients [bytes/parameter]; 0 where the product that makes them does
    scattered_gradients : optimizer states that are sharded get their gradients by a reduce-scatter;
        else all are all-reduced
    gradients_persist : they have buffers of their own; else a backward pass allocates them and the
        optimizer step frees them
    fp16 : what is otherwise in fp16 training, if anything is
    """

    weight: BytesOrZero
    gradient: BytesOrZero
    optimizer: BytesOrZero
    gradient_on_wire: Bytes
    weight_on_wire: Bytes
    optimizer_traffic: Bytes
    main_weight: BytesOrZero = 0.0
    quantized_weights: bool = False
    cached_weights: bool = False
    weights_sharded_from: Annotated[int, Interval(ge=2, le=3)] = 3
    accumulation_traffic: BytesOrZero = 0.0
    scattered_gradients: bool = True
    gradients_persist: bool = True
    fp16: Fp16States | None = None


@validated
class Memory:
    """What is taken besides the model states, and what kernels keep.

    Parameters
    ----------
    per_logit : bytes per logit at the peak of the loss that it has by default
    per_logit_fused : the same of a fused loss [bytes]: 16-bit logits and their gradient, if not
        more
    loss_room : share of the free memory that 32-bit logits may take, as many tokens at a time as
        fit; 0: the loss is of all tokens at once
    loss_chunk : the most that these logits take [bytes], however much is free
    reserved : CUDA context [bytes], libraries and NCCL buffers of one GPU
    communication_buffer : buffers of gradients and weights on the wire [bytes]
    buffered_bytes : bytes that buffers hold for each parameter of a GPU [bytes], up to
        ``communication_buffer``, which is that of a full bucket; 0 where buffers have one size
    replica_buckets : replicas copy all their gradients into buckets of their own, which stay
    loaded_whole : bytes per parameter of the whole model that each GPU holds while it loads, beside
        the shard that it will keep
    fragmentation : share of the activations that the allocator loses
    gathered_layers : layers of ZeRO-3 whose full weights and gradients are alive at once
    expert_output : bytes per element that are kept of the outputs of experts; none where their
        probabilities weigh what goes into the last matrix, not what comes out of it
    fp8_inputs : matrices keep their inputs in 8 bits where they are multiplied in 8 bits; else in
        16 bits, cast again by the backward pass
    fp8_activation_inputs : the inputs of the activation function are kept in 8 bits where matrices
        are multiplied so
    adapter_input : bytes per element that an adapter keeps of its input beside what its frozen
        matrix does, such as what dropout made of it
    kept_activations : activations that the kernels of a layer keep over those that fused ones keep
    remade : modules whose outputs its backward kernels make again, and no layer keeps, as
        recomputation names them
    selective_dropped : share of what a layer keeps that selective recomputation drops;
        ``selective_share`` of its execution where not given
    sharded_copies : what a layer in its backward pass holds where its weights are sharded over what
        it holds where they are not: streams free late
    optimizer_temporary : bytes per parameter that the optimizer step builds up beside its states,
        and sharded as these
    step_gradients : bytes per parameter of gradients that the step makes of those that it gets,
        whatever the optimizer; sharded as its states
    reduce_bucket_size : numbers of gradients in one ``communication_buffer``, if runs can say how
        many
    sub_group_size : parameters that a step of ZeRO-3 updates at once; 0: all that a rank owns
    max_live_parameters : whole parameters that ZeRO-3 holds on a GPU, as many as are needed again
        soon; 0: those of ``gathered_layers``
    """

    per_logit: BytesOrZero
    per_logit_fused: BytesOrZero = 4.0
    loss_room: Share = 0.0
    loss_chunk: BytesOrZero = 0.0
    reserved: BytesOrZero
    communication_buffer: BytesOrZero
    buffered_bytes: BytesOrZero = 0.0
    replica_buckets: bool = False
    loaded_whole: BytesOrZero = 0.0
    fragmentation: Share
    gathered_layers: Ratio
    expert_output: BytesOrZero = 2.0
    fp8_inputs: bool = True
    fp8_activation_inputs: bool = False
    adapter_input: BytesOrZero = 0.0
    kept_activations: Ratio = 1.0
    remade: tuple[str, ...] = ()
    selective_dropped: Share | None = None
    sharded_copies: Ratio = 1.0
    optimizer_temporary: BytesOrZero = 0.0
    step_gradients: BytesOrZero = 0.0
    reduce_bucket_size: Numbers = 0.0
    sub_group_size: Numbers = 0.0
    max_live_parameters: Numbers = 0.0


@validated
class Offloading:
    """Use of host memory by a framework.

    Parameters
    ----------
    kinds : supported values of ``offload``
    host_update : the host updates offloaded optimizer states; otherwise they are copied to the GPU
        and back
    only_layer_inputs : the activations that leave the GPU are the inputs of layers, whatever else
        is kept
    host_memory_fraction : what the host's update reaches of the bandwidth of host memory
    host_link_fraction : what copies reach of the host link
    hidden : share of the copies that computation can hide
    host_buffers : what states, gradients and weights take in host memory over their own size,
        buffers and rounding of pinned memory included
    loaded_per_process : bytes per parameter of the whole model that each process holds in host
        memory while it loads, where weights are not sharded
    """

    kinds: tuple[str, ...] = ()
    host_update: bool = True
    only_layer_inputs: bool = False
    host_memory_fraction: Fraction = 0.5
    host_link_fraction: Fraction = 0.75
    hidden: Share = 0.7
    host_buffers: Ratio = 1.0
    loaded_per_process: BytesOrZero = 0.0


@validated
class Compilation:
    """What torch.compile changes of a framework that can be told to use it or not.

    ``layer_launch_time``, ``elementwise_passes`` and ``kept_activations`` are those the other way
    than the rest of the profile.

    Parameters
    ----------
    selectable : it can compile a model or leave it eager
    default : the rest of its profile is of compiled models; of eager ones if not
    layer_launch_time : the host's time to launch one layer's forward kernels [s], the other way
    elementwise_passes : traffic of elementwise kernels the other way: over that of fused ones where
        that is compiled, over what each kernel reads and writes where it is eager
    kept_activations : activations that compiled kernels keep over those that fused ones keep, where
        the rest is of eager ones
    tensor_parallel_launch_time : what tensor parallelism adds to a layer's forward launches where
        they are eager [s], as each operation on a distributed tensor is dispatched by itself
    """

    selectable: bool = False
    default: bool = False
    layer_launch_time: Seconds = 0.0
    elementwise_passes: Ratio = 1.0
    kept_activations: Ratio = 1.0
    tensor_parallel_launch_time: Seconds = 0.0


@validated
class Defaults:
    """Values of parameters that a run does not set.

    Parameters
    ----------
    recompute : default recomputation
    quantized_recompute : default recomputation with adapters on quantized weights; empty:
        ``recompute``
    offload : default content of host memory
    flash_attention : attention is one fused kernel
    sequence_parallel : default sequence parallelism
    """

    recompute: str = "none"
    quantized_recompute: str = ""
    offload: str = "none"
    flash_attention: bool = True
    sequence_parallel: bool = False

    def values(self, adapter: AdapterKind) -> dict[str, str | bool]:
        """The parameters that differ from those of most programs, by name.

        Parameters
        ----------
        adapter : adapter that is trained
        """
        is_quantized = adapter is AdapterKind.QLORA
        recompute = (is_quantized and self.quantized_recompute) or self.recompute
        defaults = Defaults()
        values: dict[str, str | bool] = {"recompute": recompute, "offload": self.offload}
        values |= {name: getattr(self, name) for name in ("flash_attention", "sequence_parallel")}
        return {name: value for name, value in values.items() if value != getattr(defaults, name)}


def _sharded_axis(name: str) -> str:
    axes = terms_about("fully_sharded_degree")
    if name not in axes:
        raise ValueError(f"must be one of {', '.join(axes)}, not {name!r}")
    return name


@validated
class FrameworkProfile:
    """Physical parameters of a training framework, the same for all models.

    Parameters
    ----------
    name : name in reports
    execution : kernels and host launches
    overlap : communication hidden behind computation
    states : bytes per parameter
    memory : memory other than model states
    compilation : effect of torch.compile
    offloading : use of host memory
    defaults : values of parameters that a run does not set
    default_zero_stage : ZeRO stage if none is set
    zero_stages : supported ZeRO stages
    pipeline_zero_stages : ZeRO stages that support pipeline parallelism
    tensor_parallel : supports tensor parallelism
    pipeline_parallel : supports pipeline parallelism
    context_parallel : supports context parallelism
    expert_parallel : supports expert parallelism
    sharded_parallel : what it has only where gradients are sharded (ZeRO 2, 3) or nothing is data
        parallel; experts also where each rank has others, without tensor and context parallelism.
        Contexts by heads (``head_exchange``) need none
    fsdp_zero_stages : ZeRO stages of a second engine (Megatron-FSDP), not searched: with Adam or
        SGD alone
    checked_version : release whose options and checks the profile describes
    layer_split : supports layers on GPUs that work one after the other (device_map)
    equal_chunks : every pipeline chunk has the same number of layers
    experts_in_shards : experts are split over GPUs that share the shards of one copy of the
        weights, never over copies
    interleaved_schedule : supports several pipeline stages per GPU
    hybrid_sharding : supports sharding over groups of data-parallel ranks (HSDP)
    selective_recompute : supports recomputation of parts of each layer
    sequence_parallel : supports sequence parallelism
    partial_recompute : supports full recomputation of some layers of a stage
    feed_forward_recompute : supports recomputation of feed-forward blocks only
    recompute_modules : modules that can be recomputed separately (``RecomputedModules``)
    saved_tensors : full recomputation can keep named tensors, or offload them to the host
    fp8_attention : has 8-bit attention kernels
    fp8_recipe : default 8-bit recipe
    fp8_recipe_of_groups : default 8-bit recipe on GPUs that scale groups of 32 numbers; empty:
        ``fp8_recipe``
    optimizers : supported optimizers
    state_precisions : number formats of optimizer states that options can set
    main_precisions : number formats of main weights and gradients that options can set
    optimizer_in_backward : supports weight updates during the backward pass, without stored
        gradients
    paged_optimizer : supports optimizer states in unified memory
    expert_tensor_parallel : supports tensor parallelism of experts
    expert_overlap : supports all-to-alls behind the computation of another micro-batch
    head_exchange : supports context parallelism by all-to-all of heads (``cp_comm_type`` a2a)
    cp_comm_type : default ``cp_comm_type``
    token_dispatchers : supported ``token_dispatcher`` other than auto
    pipeline_schedules : supported ``pipeline_schedule`` other than 1F1B and interleaved 1F1B
    current : searched if no framework is specified
    vendors : vendors of supported GPUs; empty: all
    without_architectures : unsupported GPU generations of these vendors
    adapters : supports adapters
    expert_adapters : default adapters of routed experts if all linear layers have adapters
    quantized_adapters : supports adapters of 4-bit weights (QLoRA)
    virtual_tokens : supports prompt and prefix tuning
    whole_models : searched to train all weights if no framework is specified
    rollouts : generation of answers in reinforcement learning; None: no such framework
    aliases : other names
    notes : remarks
    """

    name: str
    execution: Execution
    overlap: Overlap
    states: States
    memory: Memory
    compilation: Compilation = Compilation()
    offloading: Offloading = Offloading()
    defaults: Defaults = Defaults()
    default_zero_stage: Annotated[int, Interval(ge=0, le=3)]
    zero_stages: tuple[Annotated[int, Interval(ge=0, le=3)], ...]
    pipeline_zero_stages: tuple[Annotated[int, Interval(ge=0, le=3)], ...]
    tensor_parallel: bool = True
    pipeline_parallel: bool = True
    context_parallel: bool = True
    expert_parallel: bool = True
    sharded_parallel: tuple[Annotated[str, PostValidator(_sharded_axis)], ...] = ()
    fsdp_zero_stages: tuple[Annotated[int, Interval(ge=2, le=3)], ...] = ()
    checked_version: str = ""
    layer_split: bool = False
    equal_chunks: bool = False
    experts_in_shards: bool = False
    interleaved_schedule: bool = True
    hybrid_sharding: bool = False
    selective_recompute: bool = True
    sequence_parallel: bool = True
    partial_recompute: bool = False
    feed_forward_recompute: bool = False
    recompute_modules: tuple[str, ...] = ()
    saved_tensors: bool = False
    fp8_attention: bool = False
    fp8_recipe: str = Fp8Recipe.DELAYED.word
    fp8_recipe_of_groups: str = ""
    optimizers: tuple[str, ...] = ("adam",)
    state_precisions: tuple[str, ...] = ()
    main_precisions: tuple[str, ...] = ()
    optimizer_in_backward: bool = False
    paged_optimizer: bool = False
    expert_tensor_parallel: bool = False
    expert_overlap: bool = False
    head_exchange: bool = False
    cp_comm_type: Literal["p2p", "a2a"] = "p2p"
    token_dispatchers: tuple[str, ...] = ()
    pipeline_schedules: tuple[str, ...] = ()
    current: bool = False
    vendors: tuple[str, ...] = ()
    without_architectures: tuple[str, ...] = ()
    adapters: bool = False
    expert_adapters: ExpertAdapters = ExpertAdapters.NONE
    quantized_adapters: bool = True
    virtual_tokens: bool = False
    whole_models: bool = True
    rollouts: RolloutProfile | None = None
    aliases: tuple[str, ...] = ()
    notes: str = ""

    def recipe_on(self, *, scales_groups: bool) -> Fp8Recipe:
        """The 8-bit recipe on a GPU.

        Parameters
        ----------
        scales_groups : whether the tensor cores of the GPU scale groups of 32 numbers (MXFP8)
        """
        word = (scales_groups and self.fp8_recipe_of_groups) or self.fp8_recipe
        return Fp8Recipe[word.upper()]
