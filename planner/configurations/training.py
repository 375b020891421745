"""Training configurations as a struct of arrays, and in short words."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from planner.base.arrays import BoolArray, CodeArray, FloatArray
from planner.base.cells import number_in
from planner.base.enums import PipelineSchedule
from planner.base.records import record
from planner.base.software_enums import AttentionKernel
from planner.configurations.table import ConfigurationTable
from planner.question.terms import columns_about, terms_of


@record(kw_only=True)
class TrainingConfigurations(ConfigurationTable):
    """Layouts of a training step; every field broadcasts to ``shape``."""

    workload = "train"

    num_gpus: FloatArray
    tensor_parallel: FloatArray
    context_parallel: FloatArray
    pipeline_parallel: FloatArray
    virtual_pipeline: FloatArray
    layer_split: BoolArray
    expert_parallel: FloatArray
    micro_batch_size: FloatArray
    global_batch_size: FloatArray
    zero_stage: CodeArray
    data_parallel_replicas: FloatArray
    recompute: CodeArray
    recompute_num_layers: FloatArray
    recompute_modules: CodeArray
    saved_tensors: CodeArray
    offloaded_tensors: CodeArray
    offload: CodeArray
    precision: CodeArray
    sequence_parallel: BoolArray
    flash_attention: BoolArray
    attention_kernel: CodeArray
    expert_compute: CodeArray
    torch_compile: CodeArray
    loss_kernel: CodeArray
    loss_chunks: FloatArray
    fp8_attention: BoolArray
    fp8_recipe: CodeArray
    optimizer: CodeArray
    optimizer_state_precision: CodeArray
    main_params_precision: CodeArray
    main_grads_precision: CodeArray
    optimizer_in_backward: BoolArray
    paged_optimizer: BoolArray
    reduce_bucket_size: FloatArray
    sub_group_size: FloatArray
    stage3_max_live_parameters: FloatArray
    zero3_init: BoolArray
    norm_input_bits: FloatArray
    fc1_input_bits: FloatArray
    activation_input_bits: FloatArray
    fc2_input_bits: FloatArray
    expert_tensor_parallel: FloatArray
    overlap_expert_parallel: BoolArray
    token_dispatcher: CodeArray
    expert_capacity_factor: FloatArray
    expert_imbalance: FloatArray
    cp_comm_type: CodeArray
    tp_comm_overlap: BoolArray
    pipeline_schedule: CodeArray

    @property
    def data_parallel(self) -> FloatArray:
        """GPUs over tensor, context and pipeline parallelism; a fraction if they do not fit."""
        return self.num_gpus / (
            self.tensor_parallel * self.context_parallel * self.pipeline_parallel
        )

    @property
    def num_micro_batches(self) -> FloatArray:
        """Micro-batches of a step (gradient accumulation steps)."""
        return self.global_batch_size / (self.data_parallel * self.micro_batch_size)

    @property
    def fused_attention(self) -> BoolArray:
        """Where one kernel computes attention."""
        return np.asarray(self.flash_attention & (self.attention_kernel != AttentionKernel.EAGER))

    @property
    def any_own_states(self) -> bool:
        """Whether any of them has another optimizer, or other formats, than its framework."""
        own = (self.optimizer, self.optimizer_state_precision, self.main_params_precision)
        return any(code.any() for code in (*own, self.main_grads_precision))

    @property
    def expert_ranks(self) -> FloatArray:
        """GPUs that one copy of the routed experts is spread over."""
        return self.expert_parallel * self.expert_tensor_parallel

    @property
    def expert_load(self) -> FloatArray:
        """Tokens of the fullest rank of experts over the mean, those dropped left out.

        A rank has all tokens at most, so many times the mean as ranks split the experts.
        """
        limit = np.where(self.expert_capacity_factor > 0, self.expert_capacity_factor, np.inf)
        return np.minimum(np.minimum(self.expert_imbalance, self.expert_parallel), limit)

    @property
    def from_both_ends(self) -> BoolArray:
        """Where micro-batches enter the pipeline at both ends, and a GPU has two stages."""
        return np.asarray(self.pipeline_schedule == PipelineSchedule.DUALPIPE)

    @property
    def any_offload(self) -> bool:
        """Whether any of them keeps something in host memory."""
        return bool(self.offload.any() or self.offloaded_tensors.any())


NAMES = TrainingConfigurations.names()
cast = TrainingConfigurations.cast


_PARAMETERS = terms_of("train", "parameter")
_BATCHES = ("micro_batch_size", "global_batch_size")
DEGREES = tuple(
    name
    for name, term in terms_of("train", "parameter", "derived").items()
    if term.short and term.type == "count" and name not in _BATCHES
)
"""Tensor, context, pipeline, virtual pipeline, expert and data parallel."""

SAID_TWICE = {"pipeline_schedule": ("one_forward_one_backward", "interleaved")}
"""Values that other parameters say too, by parameter."""

TOLD = columns_about("trained")


def brief(row: Mapping[str, object]) -> str:
    """``tp4 pp4 vp20 dp128 mbs4 zero1, recompute full``: the degrees, and what is not plain.

    Rows of older versions lack parameters, which then are plain.
    """
    known = terms_of("train", "parameter", "derived")
    words = [
        f"{known[name].short}{row[name]}"
        for name in DEGREES
        if row.get(name) and number_in(row, name) > 1
    ]
    words.append(f"{known['micro_batch_size'].short}{row['micro_batch_size']}")
    words += [f"zero{row['zero_stage']}"] if row["zero_stage"] else []
    others = [
        f"{name} {row[name]}"
        for name, term in _PARAMETERS.items()
        if not term.short and not term.option and term.type != "flag"
        if row.get(name, term.plain) not in (term.plain, *SAID_TWICE.get(name, ()))
    ]
    return ", ".join([" ".join(words), *others])
