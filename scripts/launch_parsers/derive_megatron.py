"""What Megatron-LM derives of an argument list: {"argv": [...], "world": n, "parameters": bool}."""

from __future__ import annotations

import os
import sys
from typing import Any

import fake_gpu
import stubs
import torch

stubs.install("triton")
# ruff: noqa: E402
from megatron.core import parallel_state, utils
from megatron.core.models.common.embeddings import rope_utils
from megatron.core.num_microbatches_calculator import (
    get_num_microbatches,
    init_num_microbatches_calculator,
)
from megatron.core.process_groups_config import ProcessGroupCollection
from megatron.core.transformer.dot_product_attention import DotProductAttention
from megatron.core.transformer.transformer_block import get_num_layers_to_build
from megatron.training.argument_utils import (
    core_transformer_config_from_args,
    gpt_config_from_args,
    hybrid_config_from_args,
)
from megatron.training.arguments import parse_args, validate_args
from megatron.training.models.gpt import GPTModelBuilder
from megatron.training.models.hybrid import HybridModelBuilder
from packaging.version import Version
from torch.testing._internal.distributed.fake_pg import FakeStore

# A model of one rank has these; the real layout's parameters are the same, only spread.
ONE_RANK = {
    "--tensor-model-parallel-size": "1",
    "--pipeline-model-parallel-size": "1",
    "--context-parallel-size": "1",
    "--expert-model-parallel-size": "1",
    "--expert-tensor-parallel-size": "1",
    "--transformer-impl": "local",
}
# With their values, options that only a pipeline or Transformer Engine has.
LAYOUT = {
    "--num-virtual-stages-per-pipeline-rank": 1,
    "--num-layers-per-virtual-pipeline-stage": 1,
    "--decoder-first-pipeline-num-layers": 1,
    "--decoder-last-pipeline-num-layers": 1,
    "--pipeline-model-parallel-layout": 1,
    "--microbatch-group-size-per-virtual-pipeline-stage": 1,
    "--global-batch-size": 1,
    "--recompute-granularity": 1,
    "--recompute-method": 1,
    "--recompute-num-layers": 1,
    "--fp8-format": 1,
    "--fp8-recipe": 1,
    "--fp4-format": 1,
    "--fp4-recipe": 1,
    "--num-distributed-optimizer-instances": 1,
    "--account-for-embedding-in-pipeline-split": 0,
    "--account-for-loss-in-pipeline-split": 0,
    "--sequence-parallel": 0,
    "--overlap-p2p-communication-warmup-flush": 0,
    "--defer-embedding-wgrad-compute": 0,
    "--fp8-param-gather": 0,
    "--tp-comm-overlap": 0,
    "--moe-grouped-gemm": 0,
}


def pretend_transformer_engine() -> None:
    """Let arguments be checked as where Transformer Engine is installed: it needs CUDA."""
    utils._te_version = Version("2.19.0")
    rope_utils.fused_apply_rotary_pos_emb = object()


def accept_latent_attention() -> None:
    """Let the local attention, which has no parameters, stand in for Transformer Engine's."""
    create = DotProductAttention.__init__

    def init(
        self: Any, *given: Any, k_channels: int = 0, v_channels: int = 0, **named: Any
    ) -> None:
        create(self, *given, **named)

    DotProductAttention.__init__ = init


def arguments(argv: list[str], world: int) -> Any:
    """Parsed and validated arguments of rank 0."""
    os.environ.update(RANK="0", WORLD_SIZE=str(world), LOCAL_RANK="0")
    sys.argv = ["pretrain_gpt.py", *argv]
    args = parse_args()
    validate_args(args)
    return args


def initialize(args: Any) -> None:
    """Process groups of every rank, on torch's fake backend, as Megatron's initialize does."""
    torch.distributed.init_process_group(
        backend="fake", world_size=args.world_size, rank=0, store=FakeStore()
    )
    parallel_state.initialize_model_parallel(
        args.tensor_model_parallel_size,
        args.pipeline_model_parallel_size,
        args.virtual_pipeline_model_parallel_size,
        context_parallel_size=args.context_parallel_size,
        hierarchical_context_parallel_sizes=args.hierarchical_context_parallel_sizes,
        expert_model_parallel_size=args.expert_model_parallel_size,
        num_distributed_optimizer_instances=args.num_distributed_optimizer_instances,
        expert_tensor_parallel_size=args.expert_tensor_parallel_size,
        order="tp-cp-ep-pp-dp" if args.use_tp_pp_dp_mapping else "tp-cp-ep-dp-pp",
        create_gloo_process_groups=False,
    )


def layers(config: Any, args: Any) -> list[list[int]]:
    """Layers of every stage's chunks."""
    chunks = args.virtual_pipeline_model_parallel_size or 1
    pipeline = args.pipeline_model_parallel_size
    if config.pipeline_model_parallel_layout is not None:
        table = config.pipeline_model_parallel_layout.layout
        return [[sum("decoder" in str(x) for x in chunk) for chunk in stage] for stage in table]
    found = []
    for rank in range(pipeline):
        stages = range(chunks) if chunks > 1 else [None]
        found.append([get_num_layers_to_build(config, stage, rank) for stage in stages])
    return found


def parameters(argv: list[str]) -> int:
    """Parameters of the whole model, built on the meta device for one rank."""
    kept: list[str] = []
    skip = 0
    for word in argv:
        name, _, value = word.partition("=")
        if skip:
            skip -= 1
        elif name in LAYOUT or name in ONE_RANK:
            skip = 0 if value else LAYOUT.get(name, 1)
        else:
            kept.append(word)
    args = arguments(
        [
            *kept,
            *(word for pair in ONE_RANK.items() for word in pair),
            "--no-rope-fusion",
            "--no-persist-layer-norm",
            "--no-gradient-accumulation-fusion",
        ],
        1,
    )
    parallel_state.destroy_model_parallel()
    torch.distributed.destroy_process_group()
    initialize(args)
    hybrid = args.hybrid_layer_pattern is not None
    accept_latent_attention()
    model = hybrid_config_from_args(args) if hybrid else gpt_config_from_args(args)
    model.transformer.use_cpu_initialization = True
    model.transformer.perform_initialization = False
    builder = HybridModelBuilder(model) if hybrid else GPTModelBuilder(model)
    groups = ProcessGroupCollection.use_mpu_process_groups()
    with torch.device("meta"):
        built = builder.build_model(groups, pre_process=True, post_process=True)
    return sum(x.numel() for x in built.parameters())


def answer(case: dict[str, Any]) -> dict[str, Any]:
    fake_gpu.install({**case, "current_device": "cpu"})
    pretend_transformer_engine()
    args = arguments(case["argv"], case["world"])
    config = core_transformer_config_from_args(args)
    initialize(args)
    init_num_microbatches_calculator(
        0,
        args.rampup_batch_size,
        args.global_batch_size,
        args.micro_batch_size,
        args.data_parallel_size,
    )
    names = ("data_parallel_size", "sequence_parallel", "global_batch_size", "micro_batch_size")
    names += ("seq_length", "virtual_pipeline_model_parallel_size", "fp8", "bf16", "fp16")
    names += ("expert_tensor_parallel_size",)
    names += ("recompute_granularity", "recompute_method", "recompute_num_layers")
    names += ("use_distributed_optimizer", "hidden_dropout", "attention_dropout")
    found = {name: getattr(args, name, None) for name in names}
    found["recompute_modules"] = config.recompute_modules
    found["num_microbatches"] = get_num_microbatches()
    found["expert_data_parallel_size"] = parallel_state.get_expert_data_parallel_world_size()
    found["data_parallel_group"] = parallel_state.get_data_parallel_world_size()
    if args.hybrid_layer_pattern is None:
        found["layers"] = layers(config, args)
    if case.get("parameters"):
        found["parameters"] = parameters(case["argv"])
    return found
