"""One GPU's share of a micro-batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property

import numpy as np

from planner.base.arrays import BoolArray, CodeArray, FloatArray, Numeric
from planner.base.enums import Fp8Recipe, Padding
from planner.base.records import record
from planner.base.software_enums import AttentionKernel, TorchCompile
from planner.configurations.configuration_tables import TrainingConfigurations
from planner.configurations.enumerate import NOTHING_SPECIFIED, SpecifiedValues
from planner.estimators.machine import CommunicationGroup, Machine
from planner.estimators.training.bytes_per_element import (
    GradientBytes,
    compute_bytes,
    is_wide,
    widen,
)
from planner.estimators.training.recomputation import Recomputation
from planner.formulas.attention import longest_sample, mean_square_length
from planner.formulas.collectives import unhidden_time
from planner.layers.operators import heads_on_rank
from planner.specs.framework import Execution, FrameworkProfile, Overlap
from planner.specs.model import ModelSpec
from planner.specs.quantization import training_format
from planner.specs.training_workload import TrainingWorkload


@record(kw_only=True)
class TrainingInputs:
    """Everything that is the same for all configurations of a search.

    ``slowdown``: time of a step over that of a run tuned as the framework's published runs.
    """

    machine: Machine
    model: ModelSpec
    framework: FrameworkProfile
    workload: TrainingWorkload
    specified: SpecifiedValues = NOTHING_SPECIFIED
    slowdown: float = 1.0

    @property
    def profile(self) -> FrameworkProfile:
        """The profile of the software: the framework."""
        return self.framework

    def recomputation(self, c: TrainingConfigurations) -> Recomputation:
        """Return what full or selective recomputation repeats, per configuration."""
        reads_without_overlap = self.framework.execution.full_recompute_skips_last_product
        repeats_outputs = self.framework.execution.selective_outputs and self.model.num_experts > 0
        return Recomputation.of(
            c,
            self.model.num_hidden_layers,
            reads_without_overlap=reads_without_overlap,
            repeats_outputs=repeats_outputs,
        )


def kernels_under_padding(work: TrainingWorkload, c: TrainingConfigurations) -> CodeArray:
    """Return the attention kernels: PyTorch chooses another where padding makes a mask.

    Padding to the longest sample makes none in a micro-batch of one.
    """
    is_padded = work.padding in (Padding.LONGEST, Padding.FULL)
    chosen = c.attention_kernel == AttentionKernel.SDPA
    if not is_padded or not np.any(chosen):
        return c.attention_kernel
    has_mask = chosen & ((work.padding is Padding.FULL) | (c.micro_batch_size > 1))
    return np.where(has_mask, AttentionKernel.MASKED, c.attention_kernel).astype(np.int8)


INPUTS = ("norm", "fc1", "activation", "fc2")
"""What a layer keeps whose bits can be chosen: inputs of norms and inside feed-forwards."""


@record(kw_only=True)
class MicroBatchShare:
    """Sizes of one micro-batch on one GPU, and the groups it communicates in.

    ``input_bits``: bits of a number that is kept of each of ``INPUTS``, 0 for the usual ones.
    """

    inputs: TrainingInputs
    tensor_parallel: FloatArray
    context_parallel: FloatArray
    expert_parallel: FloatArray
    sequences: FloatArray
    sequence_length: Numeric
    precision: CodeArray
    kernel_format: CodeArray
    sequence_parallel: BoolArray
    flash_attention: BoolArray
    attention_kernel: CodeArray
    torch_compile: CodeArray
    loss_kernel: CodeArray
    loss_chunks: FloatArray
    fp8_attention: BoolArray
    main_grads: CodeArray
    main_params: CodeArray
    expert_tensor_parallel: FloatArray
    expert_load: FloatArray
    token_dispatcher: CodeArray
    cp_comm_type: CodeArray
    tp_comm_overlap: BoolArray
    input_bits: Mapping[str, FloatArray]
    recomputation: Recomputation

    @classmethod
    def of(cls, inputs: TrainingInputs, configurations: TrainingConfigurations) -> MicroBatchShare:
        """Return the part of a micro-batch that each configuration gives one GPU."""
        c = configurations
        return cls(
            inputs=inputs,
            tensor_parallel=c.tensor_parallel,
            context_parallel=c.context_parallel,
            expert_parallel=c.expert_parallel,
            sequences=inputs.workload.sequences_per_sample * c.micro_batch_size,
            sequence_length=inputs.workload.computed_length,
            precision=c.precision,
            kernel_format=training_format(c.precision, recipe_of(inputs, c)),
            sequence_parallel=c.sequence_parallel,
            flash_attention=c.fused_attention,
            attention_kernel=kernels_under_padding(inputs.workload, c),
            torch_compile=c.torch_compile,
            loss_kernel=c.loss_kernel,
            loss_chunks=c.loss_chunks,
            fp8_attention=c.fp8_attention,
            main_grads=c.main_grads_precision,
            main_params=c.main_params_precision,
            expert_tensor_parallel=c.expert_tensor_parallel,
            expert_load=c.expert_load,
            token_dispatcher=c.token_dispatcher,
            cp_comm_type=c.cp_comm_type,
            tp_comm_overlap=c.tp_comm_overlap,
            input_bits={name: getattr(c, f"{name}_input_bits") for name in INPUTS},
            recomputation=inputs.recomputation(c),
        )

    @property
    def machine(self) -> Machine:
        """The GPU in its cluster."""
        return self.inputs.machine

    @property
    def execution(self) -> Execution:
        """Times and passes of the framework."""
        return self.inputs.framework.execution

    @property
    def overlap(self) -> Overlap:
        """What the framework hides of communication."""
        return self.inputs.framework.overlap

    @property
    def hidden_size(self) -> int:
        """Width of the residual stream."""
        return self.inputs.model.hidden_size

    @cached_property
    def tokens(self) -> FloatArray:
        """Tokens whose linear layers this GPU takes part in."""
        return self.sequences * self.sequence_length / self.context_parallel

    @cached_property
    def split(self) -> FloatArray:
        """Ranks over which sequence parallelism divides norms, dropouts and residuals."""
        return np.where(self.sequence_parallel, self.tensor_parallel, 1.0)

    @cached_property
    def local_tokens(self) -> FloatArray:
        """Tokens whose residual stream this GPU holds."""
        return self.tokens / self.split

    @cached_property
    def linear_input_bytes(self) -> FloatArray:
        """Bytes per element of what a matrix multiplication reads and keeps."""
        return compute_bytes(self.precision)

    @cached_property
    def number_bytes(self) -> Numeric:
        """Bytes per number of what nothing quantizes: residual stream, what is exchanged."""
        return widen(2.0, self.precision)

    @cached_property
    def unquantized(self) -> CodeArray:
        """Precision of products that no recipe quantizes: 16 bits, or 32 bits if trained so."""
        sixteen, wide = self.inputs.machine.sixteen_bit, is_wide(self.precision)
        return np.where(wide, self.precision, sixteen) if wide.any() else sixteen

    @cached_property
    def rate_in_32_bits(self) -> Numeric:
        """Return FP32 kernel speed relative to 16 bits: the ratio of peak FLOP/s."""
        wide, machine = is_wide(self.precision), self.inputs.machine
        if not wide.any():
            return 1.0
        wide_peak, sixteen_bit_peak = (
            machine.peak(self.precision),
            machine.peak(machine.sixteen_bit),
        )
        return np.where(wide, wide_peak / sixteen_bit_peak, 1.0)

    @cached_property
    def gradients(self) -> GradientBytes:
        """Gradient bytes of the framework in each precision."""
        codes = (self.precision, self.main_grads, self.main_params)
        return GradientBytes.of(self.inputs.framework, *codes)

    @cached_property
    def compiled_otherwise(self) -> BoolArray:
        """Mask of models compiled although the profile is eager, or the other way round."""
        is_compiled = self.inputs.framework.compilation.default
        other = TorchCompile.FALSE if is_compiled else TorchCompile.TRUE
        return np.asarray(self.torch_compile == other)

    @cached_property
    def tensor_group(self) -> CommunicationGroup:
        """Ranks that split the matrices."""
        return CommunicationGroup(size=self.tensor_parallel, stride=1)

    @cached_property
    def expert_group(self) -> CommunicationGroup:
        """Ranks that split the experts: consecutive GPUs of a pipeline stage."""
        return CommunicationGroup(size=self.expert_parallel, stride=self.expert_tensor_parallel)

    @cached_property
    def expert_tensor_group(self) -> CommunicationGroup:
        """Ranks that split the matrices of each expert: consecutive GPUs."""
        return CommunicationGroup(size=self.expert_tensor_parallel, stride=1)

    @cached_property
    def block_exchange(self) -> FloatArray:
        """Return seconds of tensor-parallel collectives around a block, per pass.

        An all-reduce; with sequence parallelism an all-gather and a reduce-scatter of the same
        volume instead, which alone can run behind the products around them: Megatron-LM's
        arguments.py and NeMo's comm_overlap.py have no overlap without sequence parallelism.
        Models with experts have it only where ``tp_comm_overlap`` asks for it: their recipes with
        tensor parallelism switch it off (NVIDIA-NeMo/Megatron-Bridge@067f987, perf_recipes).
        """
        machine, overlap = self.machine, self.overlap
        switched = self.inputs.model.num_experts and overlap.asynchronous_tensor_parallel
        usual = 0.0 if switched else overlap.tensor_parallel
        num_bytes = self.number_bytes * self.tokens * self.hidden_size
        reduce = halves = np.zeros(())
        if not self.sequence_parallel.all():
            reduce = machine.collective("all_reduce", num_bytes, self.tensor_group)
        if self.sequence_parallel.any():
            halves = machine.gather_scatter_time(num_bytes, self.tensor_group)
        share = np.where(
            self.tp_comm_overlap,
            np.maximum(overlap.tensor_parallel, overlap.asynchronous_tensor_parallel),
            usual,
        )
        can_hide = self.sequence_parallel & machine.hides_exchange(self.tensor_group)
        return unhidden_time(
            communication=np.where(self.sequence_parallel, halves, reduce),
            hidden=np.where(can_hide, share, 0.0),
        )

    @cached_property
    def reduce_wait(self) -> Numeric:
        """Seconds that each pass of a layer waits for the slowest rank of a node."""
        wait = self.execution.node_reduce_wait
        machine = self.inputs.machine
        return np.where(machine.fills_domain(self.tensor_group), wait, 0.0) if wait else 0.0

    @cached_property
    def fused(self) -> FloatArray:
        """1 where one kernel computes attention, else 0."""
        return np.where(self.flash_attention, 1.0, 0.0)

    def input_bytes(self, name: str, default: Numeric) -> Numeric:
        """Bytes of a saved number of one of ``INPUTS``; ``default`` if no bits are specified."""
        bits = self.input_bits[name]
        return np.where(bits > 0, bits / 8, default) if bits.any() else default

    def expert_pairs(self, per_token: int) -> FloatArray:
        """Pairs of token and expert on the fullest rank."""
        return np.asarray(self.local_tokens * per_token * self.expert_load)

    def key_value_heads(self, num_key_value_heads: int) -> FloatArray:
        """Key-value heads on this GPU; fewer heads than ranks are replicated."""
        return np.asarray(heads_on_rank(num_key_value_heads, self.tensor_parallel))


def recipe_of(inputs: TrainingInputs, c: TrainingConfigurations) -> CodeArray:
    """Scaling recipe of 8-bit products of each configuration."""
    default_recipe = inputs.framework.recipe_on(scales_groups=inputs.machine.gpu.scales_groups)
    return np.where(c.fp8_recipe == Fp8Recipe.AUTO, default_recipe, c.fp8_recipe)


def trained_length(work: TrainingWorkload) -> float:
    """Return mean trained tokens per sequence, without padding."""
    if work.padding is Padding.PACKED:
        return (
            work.sequence_length * 1.0
        )  # `planner.decide.explain.largest_fit` has arrays of lengths
    return float(longest_sample(samples=1.0, **_lengths(work)))


def tokens_of_sample(work: TrainingWorkload) -> float:
    """Mean tokens of a sample that are trained: of all its sequences."""
    return work.sequences_per_sample * trained_length(work)


def fullest_and_mean_share(
    inputs: TrainingInputs, c: TrainingConfigurations
) -> tuple[MicroBatchShare, MicroBatchShare]:
    """Return a GPU's part of the fullest micro-batch (memory) and of a mean one (time).

    Samples padded to the longest of a batch, or to the sequence length, fill the fullest
    micro-batch. Without padding the fullest sample has the sequence length and the others the mean
    length. Each sample attends only to itself, so attention costs follow the mean square.
    """
    work, fullest = inputs.workload, MicroBatchShare.of(inputs, c)
    if work.padding in (Padding.PACKED, Padding.FULL):
        return fullest, fullest
    lengths, b = _lengths(work), work.sequences_per_sample * c.micro_batch_size
    if work.padding is Padding.LONGEST:
        longest = longest_sample(samples=b, **lengths) + work.prompt_tokens
        return fullest, replace(fullest, sequence_length=longest)
    trained = trained_length(work)
    mean = trained + work.prompt_tokens
    length = mean_square_length(**lengths) / trained + work.prompt_tokens
    return (
        replace(fullest, sequences=1.0 + (b - 1.0) * mean / work.computed_length),
        replace(fullest, sequences=b * mean / length, sequence_length=length),
    )


def _lengths(work: TrainingWorkload) -> dict[str, float]:
    """Return mean, standard deviation and maximum of the sample length [tokens]."""
    return {
        "mean": float(work.mean_sample_length),
        "deviation": float(work.sample_length_deviation),
        "longest": float(work.sequence_length),
    }
