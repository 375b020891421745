"""Profiles of training frameworks: overlap, fused kernels, launches, memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal

from planner.base.enums import AdapterKind, AdapterTargets, AttentionKernels, Fp8Recipe
from planner.base.training_aliases import ExpertAdapters
from planner.question.terms import terms_about
from planner.specs.spec_files import Bytes, BytesOrZero, Fraction, Numbers, Ratio, Seconds, Share
from planner.specs.training_workload import RolloutProfile
from planner.specs.validated import Interval, PostValidator, validated


@validated
class Execution:
    """Eager launches and kernel fusion.

    Parameters
    ----------
    layer_launch_time : host time to launch one layer's forward kernels [s]; a backward pass takes
        twice as long; CUDA graphs or compilation make it small
    micro_batch_overhead : host time for each micro-batch outside its layers [s]
    step_overhead : host time for each optimizer step [s]
    elementwise_passes : traffic of elementwise kernels over that of fused ones
    attention_kernels : hardware that the fused attention kernels are written for
    softmax_passes : reads and writes of the score matrix by unfused attention
    loss_passes : reads and writes of the logits by forward and backward of the loss
    permute_passes : traffic of sorting tokens by expert over one read and one write
    deduplicated_dispatch : a token crosses to a scale-up domain once, not per expert
    selective_share : share of a layer that selective recomputation repeats in addition to an
        unfused attention core: 0 in Megatron-LM, about half if every other product is saved
    selective_grouped : the same of the grouped products of experts; rules by operator may
        save less; None: ``selective_share``
    selective_outputs : with a fused attention, selective recomputation of a model with experts
        repeats norms, the experts' activation function and the up-projections of latent attention
    full_recompute_skips_last_product : full recomputation does not repeat the last product of a
        layer, as the backward pass does not read its output
    softmax_multiple : the softmax kernel needs a multiple of this number of sequences times heads
        per GPU; otherwise each operation is a kernel
    head_dim_multiple : the batched products of an unfused attention use tensor cores if the head
        size is a multiple of this number; otherwise they run on FP32 lanes
    expert_launch_time : additional time of the forward pass of a layer for each expert of a GPU
        [s], if the products of each expert are separate kernels; a backward pass takes twice as
        long
    expert_loop_time : host time to launch the forward pass of one expert in a loop over experts
        [s]; 0: no loop
    module_gather_time : host time to gather a single matrix [s], as ZeRO-3 does inside that loop
    module_hook_time : host time of DeepSpeed's ZeRO-3 in the forward pass of a module with a matrix
        [s], whose weights hooks gather before it and free after it
    expert_host_wait : additional time of each pass of a layer with experts [s], forward, repeated
        and backward, if the host waits for the number of tokens of each expert before it launches
        their kernels; 0: the GPU reads these numbers, or CUDA graphs contain complete layers
    node_reduce_wait : additional time of each pass of a layer [s], forward, repeated and backward,
        with tensor parallelism over more than half of a scale-up domain: its all-reduces wait for
        the slowest rank, which launches do not hide; not for groups across nodes
    expert_bias_passes : reads and writes of the experts' outputs in 16 bits to add their bias, if
        separate kernels add it
    adapter_launch_time : host time to launch the forward kernels of one adapter [s]
    adapter_cast_bytes : traffic of kernels that cast, drop out and cast back each number that an
        adapter reads [bytes]; as much again for its gradient; 0: the adapter reads it as it is
    dequantize_launch_time : host time to launch the conversion of one 4-bit matrix to 16 bits [s]
    dequantize_passes : traffic of converting 4-bit matrices to 16 bits over one read and one write
    fused_projections : queries, keys and values are one matrix with one adapter, and so are gate
        and up
    weight_broadcast_time : additional time of a step of ZeRO-1 for each rank that shards a copy
        [s], if ranks broadcast their new weights one after the other
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
    selective_grouped: Share | None = None
    selective_outputs: bool = False
    full_recompute_skips_last_product: bool = False
    softmax_multiple: Annotated[int, Interval(ge=1)] = 1
    head_dim_multiple: Annotated[int, Interval(ge=1)] = 1
    expert_launch_time: Seconds = 0.0
    expert_loop_time: Seconds = 0.0
    module_gather_time: Seconds = 0.0
    module_hook_time: Seconds = 0.0
    expert_host_wait: Seconds = 0.0
    node_reduce_wait: Seconds = 0.0
    expert_bias_passes: Ratio = 0.0
    adapter_launch_time: Seconds = 0.0
    adapter_cast_bytes: BytesOrZero = 0.0
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
    interference : exposed share of the shorter of two overlapped activities
    asynchronous_tensor_parallel : collectives of tensor parallelism that run in pieces behind the
        adjacent products (``tp_comm_overlap``); 0: not supported
    gather_nics : network interfaces of a node for gathers of sharded weights and scatters of their
        gradients; 0: those of all participating GPUs
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
    """Model states of fp16 training, if gradients are not accumulated in more bits.

    Parameters
    ----------
    gradient : bytes of a persistent gradient [bytes/parameter]
    gradient_on_wire : bytes of a reduced gradient [bytes/parameter]
    accumulation_traffic : as in `States` [bytes/parameter]
    scattered_gradients : as in `States`
    """

    gradient: BytesOrZero
    gradient_on_wire: Bytes
    accumulation_traffic: BytesOrZero = 0.0
    scattered_gradients: bool = True


@validated
class States:
    """Bytes per parameter of model states in memory and in communication.

    Parameters
    ----------
    weight : a persistent weight [bytes/parameter]
    gradient : a persistent gradient [bytes/parameter]
    optimizer : optimizer states and main weights [bytes/parameter]
    gradient_on_wire : a reduced gradient [bytes/parameter]
    weight_on_wire : a gathered weight [bytes/parameter]
    optimizer_traffic : memory traffic of the optimizer step [bytes/parameter]
    main_weight : part of ``optimizer`` for main weights, a copy in more bits [bytes/parameter]
    quantized_weights : weights of layers are stored in the format of their products, if necessary
        in both orientations, and the main weights with the optimizer
    cached_weights : weights of layers are stored in 16 bits and, from one step to the next, also in
        the format of products in fewer bits, if necessary in both orientations
    weights_sharded_from : first ZeRO stage that shards weights between steps; with 2 (FSDP) they
        are gathered once per micro-batch and kept until the backward pass ends
    accumulation_traffic : memory traffic per micro-batch of separate kernels that accumulate
        gradients [bytes/parameter]; 0: the products accumulate them
    scattered_gradients : a reduce-scatter gives sharded optimizer states their gradients; otherwise
        all gradients are all-reduced
    gradients_persist : gradients have permanent buffers; otherwise a backward pass allocates them
        and the optimizer step frees them
    unsynced_gradient : an unsharded gradient that waits for the last micro-batch of a step, if
        sharded data parallelism reduces gradients only then (``no_sync``) [bytes/parameter]; 0:
        each micro-batch reduces them
    fp16 : differences in fp16 training; None: no difference
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
    unsynced_gradient: BytesOrZero = 0.0
    fp16: Fp16States | None = None


@validated
class Memory:
    """Memory besides the model states: logits, buffers, activations, temporary copies.

    Parameters
    ----------
    per_logit : peak memory of the default loss per logit [bytes]
    per_logit_fused : peak memory of a fused loss per logit [bytes]: by default 16-bit logits and
        their gradient
    per_logit_pairs : peak memory per logit of losses of preferences [bytes], from PyTorch's
        log-softmax of all tokens; 0: as the default loss
    per_logit_answers : peak memory per logit of losses of generated answers [bytes]; 0:
        ``per_logit``
    loss_room : share of the free memory for 32-bit logits, computed in chunks of tokens; 0: the
        loss is computed for all tokens at once
    loss_chunk : maximum memory of these logits [bytes]
    reserved : CUDA context [bytes], libraries and NCCL buffers of one GPU
    communication_buffer : buffers of gradients and weights on the wire [bytes]
    buffered_bytes : memory of buffers for each parameter of a GPU [bytes/parameter], up to a full
        bucket (``communication_buffer``); 0: buffers have a fixed size
    replica_buckets : replicas copy all their gradients into permanent buckets
    loaded_whole : memory of each GPU while it loads the model [bytes per parameter of the unsharded
        model], in addition to its shard
    fragmentation : share of the activations that the allocator loses
    gathered_layers : layers of ZeRO-3 with full weights and gradients in memory at once
    expert_output : saved outputs of experts [bytes/element]; 0: probabilities weight the input of
        the last matrix, not its output
    fp8_inputs : 8-bit products save their inputs in 8 bits; otherwise in 16 bits, and the backward
        pass casts them again
    fp8_activation_inputs : the inputs of the activation function are saved in 8 bits if products
        are in 8 bits
    adapter_input : saved input of an adapter [bytes/element] in addition to that of its frozen
        matrix, such as the output of dropout
    kept_activations : saved activations of the kernels of a layer over those of fused kernels
    remade : modules with outputs that backward kernels recompute, so that no layer saves them; with
        the names of recomputation
    selective_dropped : share of the saved activations that selective recomputation drops; None:
        ``selective_share``
    sharded_copies : memory of the backward pass of a layer with sharded weights over that with
        unsharded weights, as streams free memory late
    gathers_ring : ranks of a context-parallel ring gather all keys and values at once
    optimizer_temporary : temporary memory of the optimizer step [bytes/parameter], sharded as its
        states
    step_gradients : copies of gradients in the optimizer step [bytes/parameter], with any
        optimizer; sharded as its states
    reduce_bucket_size : elements of gradients in one ``communication_buffer``, if runs can set it
    sub_group_size : parameters that a step of ZeRO-3 updates at once; 0: all of a rank
    max_live_parameters : unsharded parameters that ZeRO-3 keeps on a GPU for their next use; 0:
        those of ``gathered_layers``
    """

    per_logit: BytesOrZero
    per_logit_fused: BytesOrZero = 4.0
    per_logit_pairs: BytesOrZero = 0.0
    per_logit_answers: BytesOrZero = 0.0
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
    gathers_ring: bool = False
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
    only_layer_inputs : only the inputs of layers are offloaded, not other saved activations
    host_memory_fraction : bandwidth of the host's update over that of host memory
    host_link_fraction : bandwidth of copies over that of the host link
    hidden : share of the copies that computation can hide
    host_buffers : host memory of states, gradients and weights over their size, with buffers and
        rounding of pinned memory
    loaded_per_process : host memory of each process while it loads the model [bytes per parameter
        of the unsharded model], if weights are not sharded
    loaded_per_node : host memory of the one process of each node that loads the model and sends
        the others their shards [bytes per parameter of the unsharded model]; of each process if
        weights are not sharded
    """

    kinds: tuple[str, ...] = ()
    host_update: bool = True
    only_layer_inputs: bool = False
    host_memory_fraction: Fraction = 0.5
    host_link_fraction: Fraction = 0.75
    hidden: Share = 0.7
    host_buffers: Ratio = 1.0
    loaded_per_process: BytesOrZero = 0.0
    loaded_per_node: BytesOrZero = 0.0


@validated
class Compilation:
    """Effect of torch.compile in a framework where it is optional.

    ``layer_launch_time``, ``elementwise_passes`` and ``kept_activations`` are for the mode
    (compiled or eager) that is not the default.

    Parameters
    ----------
    selectable : a model can be compiled or eager
    default : the rest of the profile is for compiled models; otherwise for eager ones
    layer_launch_time : host time to launch one layer's forward kernels in the other mode [s]
    elementwise_passes : traffic of elementwise kernels in the other mode: of compiled ones over
        that of fused ones, of eager ones over the reads and writes of each kernel
    kept_activations : saved activations of compiled kernels over those of fused ones, if the rest
        of the profile is for eager models
    tensor_parallel_launch_time : additional launch time of a layer's forward pass with tensor
        parallelism in eager mode [s], as each operation on a distributed tensor is dispatched
        separately
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
        """Return the parameters by name that differ from most frameworks' defaults.

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


@validated
class PartialGraphs:
    """Values where CUDA graphs capture parts of layers and not the whole step.

    That is so on GPUs that scale no groups of 32 numbers, and for models with recurrent states.

    Parameters
    ----------
    elementwise_passes : as in `Execution`
    permute_passes : as in `Execution`
    expert_launch_time : as in `Execution` [s]
    expert_host_wait : as in `Execution` [s]
    expert_parallel : as in `Overlap`
    """

    elementwise_passes: Ratio
    permute_passes: Ratio
    expert_launch_time: Seconds
    expert_host_wait: Seconds
    expert_parallel: Share


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
    partial_graphs : values where CUDA graphs do not capture the whole step; None: no others
    offloading : use of host memory
    defaults : values of parameters that a run does not set
    default_zero_stage : ZeRO stage if none is set
    zero_stages : supported ZeRO stages
    pipeline_zero_stages : ZeRO stages that support pipeline parallelism
    tensor_parallel : supports tensor parallelism
    pipeline_parallel : supports pipeline parallelism
    context_parallel : supports context parallelism
    expert_parallel : supports expert parallelism
    sharded_parallel : forms of parallelism that need sharded gradients (ZeRO 2, 3) or no data
        parallelism; expert parallelism also works if each rank has other experts, without tensor
        and context parallelism; context parallelism by heads (``head_exchange``) needs neither
    fsdp_zero_stages : ZeRO stages of a second engine (Megatron-FSDP), not searched; only with Adam
        or SGD
    checked_version : release with the options and checks of the profile
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
    lora_targets : default matrices with adapters
    expert_adapters : default adapters of routed experts if all linear layers have adapters
    quantized_adapters : supports adapters of 4-bit weights (QLoRA)
    quantized_experts : quantizes routed experts with them; otherwise a loop over experts alone does
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
    partial_graphs: PartialGraphs | None = None
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
    lora_targets: AdapterTargets = AdapterTargets.ATTENTION
    expert_adapters: ExpertAdapters = ExpertAdapters.NONE
    quantized_adapters: bool = True
    quantized_experts: bool = True
    virtual_tokens: bool = False
    whole_models: bool = True
    rollouts: RolloutProfile | None = None
    aliases: tuple[str, ...] = ()
    notes: str = ""

    def with_graphs_of(self, *, scales_groups: bool, has_state: bool) -> FrameworkProfile:
        """Return the profile with the CUDA graphs that it makes of a model on a GPU.

        Parameters
        ----------
        scales_groups : whether the tensor cores of the GPU scale groups of 32 numbers (MXFP8)
        has_state : whether layers of the model have a recurrent state
        """
        parts = self.partial_graphs
        if parts is None or (scales_groups and not has_state):
            return self
        names = ("elementwise_passes", "permute_passes", "expert_launch_time", "expert_host_wait")
        return replace(
            self,
            execution=replace(self.execution, **{name: getattr(parts, name) for name in names}),
            overlap=replace(self.overlap, expert_parallel=parts.expert_parallel),
        )

    def recipe_on(self, *, scales_groups: bool) -> Fp8Recipe:
        """Return the 8-bit recipe on a GPU.

        Parameters
        ----------
        scales_groups : whether the tensor cores of the GPU scale groups of 32 numbers (MXFP8)
        """
        word = (scales_groups and self.fp8_recipe_of_groups) or self.fp8_recipe
        return Fp8Recipe[word.upper()]
