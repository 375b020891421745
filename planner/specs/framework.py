"""How a training framework executes: what overlaps, is fused, is launched, is kept."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from planner.enums import AttentionKernels
from planner.specs.quantity import Bytes, BytesOrZero, Fraction, Ratio, Seconds, Share

_STRICT = ConfigDict(extra="forbid")


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class Execution:
    """Eager launches and kernel fusion.

    ``layer_launch_time``: the host needs it to launch one layer's forward kernels; a
    backward pass takes twice as long; CUDA graphs or compilation make it small.
    ``attention_kernels``: what its fused attention kernels are written for.
    ``elementwise_passes``: traffic of elementwise kernels over that of fused ones.
    ``softmax_passes``: reads and writes of the score matrix by unfused attention.
    ``softmax_multiple``: its softmax kernel takes sequences times heads of a GPU that this
    divides; others fall back to a kernel for each operation.
    ``head_dim_multiple``: the batched products of an unfused attention use tensor cores for
    heads whose size this divides; others run on FP32 lanes.
    ``permute_passes``: traffic of sorting tokens by expert over one read and one write.
    ``expert_launch_time``: what each expert of a GPU adds to the forward pass of a layer, where
    their products are kernels of their own; a backward pass takes twice as long.
    ``expert_bias_passes``: reads and writes of the experts' outputs in 16 bits that their bias
    takes, where it is added by kernels of its own.
    ``deduplicated_dispatch``: a token crosses to a scale-up domain once, not per expert.
    ``selective_share``: share of a layer that selective recomputation repeats beside an
    unfused attention core: 0 in Megatron-LM, about half where every other product is kept.
    ``selective_outputs``: with a fused attention, selective recomputation of layers with experts
    repeats norms, the experts' activation function and the up-projections of latent attention.
    ``adapter_launch_time``: the host needs it to launch the forward kernels of one adapter.
    ``dequantize_launch_time``: the same for turning one 4-bit matrix into 16 bits.
    ``dequantize_passes``: traffic of that over one read and one write.
    ``fused_projections``: queries, keys and values are one matrix with one adapter, and so are
    gate and up.
    ``loss_passes``: reads and writes of the logits by forward and backward of the loss.
    ``weight_broadcast_time``: what each rank that shards a copy adds to a step of ZeRO-1, where
    ranks broadcast their new weights one after the other.
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
    softmax_multiple: Annotated[int, Field(ge=1)] = 1
    head_dim_multiple: Annotated[int, Field(ge=1)] = 1
    expert_launch_time: Seconds = 0.0
    expert_bias_passes: Ratio = 0.0
    adapter_launch_time: Seconds = 0.0
    dequantize_launch_time: Seconds = 0.0
    dequantize_passes: Ratio = 1.0
    fused_projections: bool = False
    weight_broadcast_time: Seconds = 0.0


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class Overlap:
    """Share of each communication that the framework can hide behind computation.

    ``interference``: share of the shorter of two overlapped activities that still shows.
    """

    tensor_parallel: Share
    expert_parallel: Share
    pipeline_parallel: Share
    data_parallel: Share
    weight_gather: Share
    interference: Share


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class Fp16States:
    """What is otherwise in fp16 training, where gradients are not accumulated in more bits."""

    gradient: BytesOrZero
    gradient_on_wire: Bytes
    accumulation_traffic: BytesOrZero = 0.0
    scattered_gradients: bool = True


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class States:
    """Bytes per parameter that persist, and on the wire.

    ``accumulation_traffic``: what kernels of their own read and write per micro-batch to add
    up gradients; 0 where the product that makes them does. ``scattered_gradients``: optimizer
    states that are sharded get their gradients by a reduce-scatter; else all are all-reduced.
    ``gradients_persist``: they have buffers of their own; else a backward pass
    allocates them and the optimizer step frees them.
    ``weights_sharded_from``: the ZeRO stage from which weights are sharded between steps.
    FSDP does so from 2, where it gathers them once per micro-batch and keeps them until
    the backward pass ends.
    """

    weight: BytesOrZero
    gradient: BytesOrZero
    optimizer: BytesOrZero
    gradient_on_wire: Bytes
    weight_on_wire: Bytes
    optimizer_traffic: Bytes
    weights_sharded_from: Annotated[int, Field(ge=2, le=3)] = 3
    accumulation_traffic: BytesOrZero = 0.0
    scattered_gradients: bool = True
    gradients_persist: bool = True
    fp16: Fp16States | None = None


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class Memory:
    """What is taken besides the model states, and what kernels keep.

    ``per_logit``: bytes per logit at the peak of the loss. ``reserved``: CUDA context,
    libraries and NCCL buffers of one GPU. ``fragmentation``: share of the activations
    that the allocator loses. ``gathered_layers``: layers of ZeRO-3 whose full weights and
    gradients are alive at once. ``fp8_inputs``: matrices keep their inputs in 8 bits where
    they are multiplied in 8 bits; else in 16 bits, cast again by the backward pass.
    ``fp8_activation_inputs``: beside frozen weights the inputs of the activation function are
    kept in 8 bits too.
    ``adapter_input``: bytes per element that an adapter keeps of its input beside what its
    frozen matrix does, such as what dropout made of it.
    ``kept_activations``: activations that the kernels of a layer keep over those that fused
    ones keep. ``sharded_copies``: what a layer in its backward pass holds where its weights
    are sharded over what it holds where they are not: streams free late.
    ``optimizer_temporary``: bytes per parameter that the optimizer step builds up beside its
    states, and sharded as these.
    """

    per_logit: BytesOrZero
    reserved: BytesOrZero
    communication_buffer: BytesOrZero
    fragmentation: Share
    gathered_layers: Ratio
    fp8_inputs: bool = True
    fp8_activation_inputs: bool = False
    adapter_input: BytesOrZero = 0.0
    kept_activations: Ratio = 1.0
    sharded_copies: Ratio = 1.0
    optimizer_temporary: BytesOrZero = 0.0


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class Offloading:
    """What a framework keeps in host memory, and how it works on it.

    ``kinds``: the values of ``offload`` that it knows. ``host_update``: the host updates what it
    keeps, and gets the gradients; else optimizer states come to the GPU and go back.
    ``host_memory_fraction``: what that update reaches of the bandwidth of host memory;
    ``host_link_fraction``: what copies reach of the host link. ``hidden``: share of the copies
    that can hide behind computation. ``layer_inputs_alone``: the activations that leave the GPU
    are the inputs of layers, whatever else is kept.
    """

    kinds: tuple[str, ...] = ()
    host_update: bool = True
    layer_inputs_alone: bool = False
    host_memory_fraction: Fraction = 0.5
    host_link_fraction: Fraction = 0.75
    hidden: Share = 0.7


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class FrameworkProfile:
    """Few, named, physical parameters of a framework; never a factor per model.

    ``hybrid_sharding``: it can shard states over groups of data-parallel ranks that hold copies.
    ``partial_recompute``: it can repeat some layers of a stage whole, and keep all of the others;
    ``feed_forward_recompute``: it can repeat the feed-forward blocks alone.
    ``fp8_attention``: it has attention kernels in 8 bit.
    """

    name: str
    execution: Execution
    overlap: Overlap
    states: States
    memory: Memory
    offloading: Offloading = Offloading()
    default_zero_stage: Annotated[int, Field(ge=0, le=3)]
    zero_stages: tuple[Annotated[int, Field(ge=0, le=3)], ...]
    pipeline_zero_stages: tuple[Annotated[int, Field(ge=0, le=3)], ...]
    tensor_parallel: bool = True
    pipeline_parallel: bool = True
    context_parallel: bool = True
    expert_parallel: bool = True
    interleaved_schedule: bool = True
    hybrid_sharding: bool = False
    partial_recompute: bool = False
    feed_forward_recompute: bool = False
    fp8_attention: bool = False
    aliases: tuple[str, ...] = ()
    notes: str = ""
