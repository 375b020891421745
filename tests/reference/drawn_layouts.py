"""Settings and random layouts on which the estimator and its twin are compared."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import cache
from typing import Any

from scalar_machine import Layout, World

from planner import Request
from planner.base.enums import (
    ComputePrecision,
    ContextExchange,
    Fp8Recipe,
    MainPrecision,
    Offload,
    OptimizerKind,
    PipelineSchedule,
    Recompute,
    StatePrecision,
    TokenDispatcher,
)
from planner.base.software_enums import (
    MODULES,
    AttentionKernel,
    ExpertCompute,
    KeptTensors,
    LossKernel,
    RecomputedModules,
    TorchCompile,
)
from planner.configurations.configuration_tables import NAMES, TrainingConfigurations
from planner.estimators.training.micro_batch_share import TrainingInputs
from planner.specs.catalogue import Catalogue, names
from planner.specs.framework import FrameworkProfile
from planner.specs.gpu import GpuSpec
from planner.specs.training_workload import TrainingWorkload
from planner.workloads.make_plan import make_plan

MODELS = {
    "llama-7b": {},
    "llama-65b": {},
    "gpt-3-175b": {"dropout": True},
    "llama-3.1-405b": {},
    "mixtral-8x7b": {},
    "deepseek-v3": {},
    "gemma-2-9b": {"sequence_length": 8192},
    "falcon-40b": {},
    "gpt-oss-20b": {"sequence_length": 4096},
    "bloom-7b1": {},
    "decilm-7b": {},
    "llama-4-maverick-17b-128e": {"sequence_length": 32768},
    "qwen3-next-80b-a3b": {},
    "glm-5": {"sequence_length": 8192},
    "nemotron-h-8b": {"dropout": True},
    "nemotron-3-super-120b-a12b": {"sequence_length": 8192},
}
GPUS = ("a100-sxm-80gb", "h100-sxm-80gb", "b200-sxm-180gb", "v100-sxm-32gb", "rtx4090-24gb")
ADAPTERS = (
    "none",
    "lora:8:query_value",
    "lora:64:all_linear",
    "qlora:16:attention",
    "qlora:1:all_linear",
    "lora:8:attention:embeddings",
    "qlora:4:attention:plain",
    "qlora:4:attention:eight",
    "prompt:64",
    "prefix:100",
)
# As in nodes with four network interfaces for eight of these.
SHARED_NICS = ("a100-sxm-80gb",)
PRECISIONS = ["bf16", "fp16", "fp8", "fp4"]
ALL_FRAMEWORKS = tuple(names("frameworks"))
# These differ from another one in numbers alone.
ALIKE = {"fsdp-bf16", "fsdp-compiled", "hf-bf16", "megatron-lm-2022", "nemo-automodel"}
FRAMEWORKS = tuple(name for name in ALL_FRAMEWORKS if name not in ALIKE)


@cache
def make_setting(model: str, gpu: str, framework: str, adapter: str = "none") -> TrainingInputs:
    """``adapter``: its kind, rank and targets, joined by colons; on any framework.

    Modules to save may follow, ``plain`` for scales in 32 bits, or ``eight`` for 8 bits; of virtual
    tokens their number.
    """
    kind, *rest = adapter.split(":")
    asked: dict[str, Any] = {"adapter": kind}
    if kind in ("prompt", "prefix"):
        asked["virtual_tokens"] = int(rest[0])
    elif rest:
        asked |= {"lora_rank": int(rest[0]), "lora_targets": rest[1]}
        asked["modules_to_save"] = "embeddings" if "embeddings" in rest else None
        asked["double_quantization"] = "plain" not in rest
        asked["quantization_bits"] = 8 if "eight" in rest else None
    of_adapters = framework if kind == "none" else "hf-trainer"
    request = Request(
        model=model,
        num_gpus=8,
        gpu=gpu,
        framework=of_adapters,
        node_host_memory=1e17,  # the twin has no end of it
        **MODELS[model],
        **asked,
    )
    setting = make_plan(request).problem.inputs
    setting = replace(setting, framework=Catalogue().load_framework(framework).spec)
    return _two_gpus_per_nic(setting) if gpu in SHARED_NICS else setting


def _two_gpus_per_nic(setting: TrainingInputs) -> TrainingInputs:
    cluster = setting.machine.cluster
    shared = replace(cluster, scale_out=replace(cluster.scale_out, gpus_per_nic=2))
    return replace(setting, machine=replace(setting.machine, cluster=shared))


def make_world(setting: TrainingInputs) -> World:
    return World(
        gpu=setting.machine.gpu,
        cluster=setting.machine.cluster,
        model=setting.model,
        framework=setting.framework,
        workload=_computed(setting.workload),
    )


def _computed(work: TrainingWorkload) -> TrainingWorkload:
    """Prompts stand before the tokens of every sequence."""
    before = work.virtual_tokens if work.adapter == "prompt" else 0
    return replace(work, sequence_length=work.sequence_length + before)


def make_table(layouts: list[Layout]) -> TrainingConfigurations:
    codes: dict[str, Any] = {
        "recompute": lambda word: Recompute[word.upper()],
        **dict.fromkeys(
            ("saved_tensors", "offloaded_tensors"),
            lambda word: KeptTensors[KeptTensors.canonical_word(word).upper()],
        ),
        "recompute_modules": lambda word: RecomputedModules[
            RecomputedModules.canonical_word(word).upper()
        ],
        "offload": lambda word: Offload[word.upper()],
        "precision": lambda word: ComputePrecision[word.upper()],
        "fp8_recipe": lambda word: Fp8Recipe[word.upper()],
        "attention_kernel": lambda word: AttentionKernel[word.upper()],
        "torch_compile": lambda word: TorchCompile[word.upper()],
        "loss_kernel": lambda word: LossKernel[word.upper()],
        "expert_compute": lambda word: ExpertCompute[word.upper()],
        "optimizer": lambda word: OptimizerKind[word.upper()],
        "optimizer_state_precision": lambda word: StatePrecision[word.upper()],
        "main_params_precision": lambda word: MainPrecision[word.upper()],
        "main_grads_precision": lambda word: MainPrecision[word.upper()],
        "token_dispatcher": lambda word: TokenDispatcher[word.upper()],
        "cp_comm_type": lambda word: ContextExchange[word.upper()],
        "pipeline_schedule": lambda word: PipelineSchedule[word.upper()],
    }
    plain = codes.get
    return TrainingConfigurations.of(
        **{
            name: [plain(name, lambda value: value)(getattr(layout, name)) for layout in layouts]
            for name in NAMES
        }
    )


_SAVED = ["none", "qkv_proj", "context+out_proj", "mlpwi", "context+mlpwo", "mlpwi+mlpwo"]
_MOVED = ["none", "none", "layer_input", "qkv_proj+out_proj", "layer_input+mlpwo"]


def draw_layout(choose: Any, setting: TrainingInputs) -> Layout:
    """A layout that suits the framework; most of them break no rule."""
    f = setting.framework
    t = choose([1, 2, 4, 8, 16]) if f.tensor_parallel else 1
    deep = f.pipeline_parallel or f.layer_split
    p = choose([1, 1, 2, 3, 4, 5, 8, 13, 16, 20, 31, 32]) if deep else 1
    c = choose([1, 1, 2, 4]) if f.context_parallel else 1
    d = choose([1, 2, 3, 4, 16])
    v = choose([1, 1, 2, 3]) if p > 1 and f.interleaved_schedule else 1
    b = choose([1, 2, 4])
    m = p * choose([1, 2, 3]) if v > 1 else choose([1, 2, 7, 32])
    precision = choose([word for word in PRECISIONS if word in setting.machine.gpu.peak_flops])
    blocks = ["feed_forward"] if f.feed_forward_recompute else []
    recompute = choose(["none", "selective", "full", *blocks])
    gpu = setting.machine.gpu
    recipes = ["auto", "delayed", "tensorwise", "rowwise"]
    recipes += ["mxfp8"] * gpu.scales_groups
    recipes += ["blockwise"] * ("fp8_block" in gpu.efficiency.quantized_gemm)
    kernels = f.fp8_attention and setting.machine.gpu.efficiency.fp8_attention is not None
    stages = (*f.zero_stages, *f.fsdp_zero_stages)
    return Layout(
        num_gpus=t * p * c * d,
        tensor_parallel=t,
        context_parallel=c,
        pipeline_parallel=p,
        virtual_pipeline=v,
        layer_split=p > 1 and f.layer_split,
        expert_parallel=choose([1, 1, 2, 4, 8]) if f.expert_parallel else 1,
        micro_batch_size=b,
        global_batch_size=d * b * m,
        zero_stage=choose(list(f.pipeline_zero_stages if p > 1 else stages)),
        recompute=recompute,
        recompute_num_layers=choose([0, 0, 1, 2]) * (recompute == "full" and f.partial_recompute),
        offload=(offload := choose(["none", "none", *f.offloading.kinds])),
        recompute_modules=_draw_modules(choose, f, recompute),
        saved_tensors=choose(_SAVED) if f.saved_tensors and recompute == "full" else "none",
        offloaded_tensors=choose(_MOVED)
        if f.saved_tensors and recompute == "full" and "activations" not in offload
        else "none",
        precision=precision,
        sequence_parallel=t > 1 and choose([True, True, False]),
        flash_attention=(flash := choose([True, True, False])),
        attention_kernel=choose(["auto", *draw_kernels(gpu, flash)]),
        expert_compute=choose(["auto", "grouped", "loop" if may_loop(setting) else "auto"]),
        torch_compile=choose(TorchCompile.words() if f.compilation.selectable else ["auto"]),
        loss_kernel=(loss := choose(LossKernel.words())),
        loss_chunks=choose([0, 4]) if loss in ("chunked", "linear") else 0,
        fp8_attention=kernels and precision in ("fp8", "fp4") and choose([True, False]),
        fp8_recipe=choose(recipes) if precision == "fp8" else "auto",
        data_parallel_replicas=choose([1, 1, 2, 4]) if f.hybrid_sharding and d > 1 else 1,
        optimizer=choose(["adam", *(kind for kind in f.optimizers if kind != "muon")]),
        optimizer_state_precision=choose(["framework", *f.state_precisions]),
        main_params_precision=choose(["framework", "framework", *f.main_precisions]),
        main_grads_precision=choose(["framework", "framework", *f.main_precisions]),
        paged_optimizer=f.paged_optimizer and choose([True, False, False]),
        optimizer_in_backward=f.optimizer_in_backward and m == p == 1 and choose([True, False]),
        **_draw_bits(choose),
        reduce_bucket_size=choose([0, 0, 2e7]) if f.memory.reduce_bucket_size else 0,
        sub_group_size=choose([0, 0, 1e6]) if f.memory.sub_group_size else 0,
        stage3_max_live_parameters=choose([0, 1e7, 1e12]) if f.memory.max_live_parameters else 0,
        eval_batch_size=choose([0, 0, 1, 24]),
        zero3_init=choose([True, True, False]) or not f.offloading.loaded_per_process,
        **draw_options(choose, setting, t, p, v),
    )


def _draw_modules(choose: Any, f: FrameworkProfile, recompute: str) -> str:
    """Some of those that a framework has, beside two that no other word stands for together."""
    if recompute != "selective" or not f.recompute_modules or choose([True, False]):
        return "none"
    names = {choose(list(f.recompute_modules)) for _ in range(choose([1, 1, 2]))}
    return RecomputedModules.canonical_word("+".join(names | {"core_attn", "layernorm"}))


def _draw_bits(choose: Any) -> dict[str, int]:
    """Bits of what is kept of inputs; most plans say none."""
    if choose([True, True, False]):
        return {}
    names = ("norm", "fc1", "activation", "fc2")
    return {f"{name}_input_bits": choose([0, 4, 8, 32]) for name in names}


def may_loop(setting: TrainingInputs) -> bool:
    """Whether experts may be a loop."""
    return setting.framework.execution.expert_loop_time > 0 and setting.model.num_experts > 0


def draw_kernels(gpu: GpuSpec, fused: bool) -> list[str]:
    """Kernels of attention that a GPU has."""
    modern = gpu.architecture not in ("volta", "turing") and gpu.vendor == "NVIDIA"
    has = {
        "fa2": modern or gpu.vendor == "AMD",
        "fa3": gpu.architecture == "hopper",
        "fa4": gpu.architecture in ("hopper", "blackwell"),
        "cudnn": modern,
    }
    return [name for name in AttentionKernel.words() if fused and has.get(name, name != "eager")]


def draw_options(choose: Any, setting: TrainingInputs, t: int, p: int, v: int) -> dict[str, Any]:
    """What few plans set; half of the layouts have none of it."""
    f, plain = setting.framework, choose([True, False])
    if plain:
        return {}
    sparse = setting.model.num_experts > 0
    others = f.pipeline_schedules if p > 1 and v == 1 else ()
    return {
        "expert_tensor_parallel": choose([1, 2]) if f.expert_tensor_parallel and sparse else 1,
        "overlap_expert_parallel": f.expert_overlap and sparse and choose([True, False]),
        "token_dispatcher": choose(["auto", *f.token_dispatchers]) if sparse else "auto",
        "expert_capacity_factor": choose([0.0, 1.0, 1.5]) if sparse else 0.0,
        "expert_imbalance": choose([1.0, 1.25, 3.0]) if sparse else 1.0,
        "cp_comm_type": choose(["p2p", "a2a"]) if f.head_exchange else "p2p",
        "tp_comm_overlap": f.overlap.asynchronous_tensor_parallel > 0
        and t > 1
        and choose([True, False]),
        "pipeline_schedule": choose(["one_forward_one_backward", *others]),
    }


def draw_any_layout(choose: Any, setting: TrainingInputs) -> Layout:
    """A layout without regard to any rule."""
    return Layout(
        num_gpus=choose([8, 24, 64, 96]),
        tensor_parallel=choose([1, 2, 3, 8, 16]),
        context_parallel=choose([1, 2, 3]),
        pipeline_parallel=choose([1, 2, 3, 8, 64]),
        virtual_pipeline=choose([1, 2, 5]),
        layer_split=choose([True, False, False]),
        expert_parallel=choose([1, 2, 3, 8, 16]),
        micro_batch_size=choose([1, 3, 4]),
        global_batch_size=choose([1, 24, 96, 100]),
        zero_stage=choose([0, 1, 2, 3]),
        recompute=choose(["none", "selective", "feed_forward", "full", "full"]),
        recompute_num_layers=choose([0, 0, 1, 40]),
        offload=choose(["none", "none", *Offload.words()]),
        recompute_modules=choose(["none"] * 9 + [*MODULES]),
        saved_tensors=choose(["none"] * 6 + _SAVED),
        offloaded_tensors=choose(["none"] * 6 + _MOVED),
        precision=choose(PRECISIONS),
        sequence_parallel=choose([True, False]),
        flash_attention=choose([True, False]),
        fp8_attention=choose([True, False, False]),
        fp8_recipe=choose(["auto", "auto", *Fp8Recipe.words()]),
        attention_kernel=choose(["auto"] * 8 + AttentionKernel.words()),
        torch_compile=choose(["auto"] * 4 + TorchCompile.words()),
        loss_kernel=choose(["auto", *LossKernel.words()]),
        expert_compute=choose(["auto"] * 3 + ExpertCompute.words()),
        loss_chunks=choose([0, 0, 1, 16]),
        data_parallel_replicas=choose([1, 2, 3]),
        optimizer=choose(["adam", "adam", *OptimizerKind.words()]),
        optimizer_state_precision=choose(["framework", "framework", *StatePrecision.words()]),
        main_params_precision=choose(["framework", "framework", *MainPrecision.words()]),
        main_grads_precision=choose(["framework", "framework", *MainPrecision.words()]),
        paged_optimizer=choose([False, False, False, True]),
        optimizer_in_backward=choose([False, False, True]),
        fc1_input_bits=choose([0] * 6 + [8, 64]),
        reduce_bucket_size=choose([0, 0, 0, 1e6]),
        sub_group_size=choose([0, 0, 0, 1e6]),
        stage3_max_live_parameters=choose([0, 0, 0, 1e6]),
        zero3_init=choose([True, True, True, False]),
        eval_batch_size=choose([0, 0, 0, 3]),
        expert_tensor_parallel=choose([1, 1, 2, 3]),
        overlap_expert_parallel=choose([True, False, False]),
        token_dispatcher=choose(["auto", "auto", "auto", "allgather", "flex"]),
        expert_imbalance=choose([1.0, 1.0, 1.5, 6.0]),
        cp_comm_type=choose(["p2p", "p2p", "a2a"]),
        tp_comm_overlap=choose([True, False, False]),
        pipeline_schedule=choose([PipelineSchedule(code).word for code in (0, 0, 0, 0, 2, 3)]),
    )


def chooser(*words: Any) -> Any:
    """Chooses among values, the same ones for the same words."""
    rng = random.Random("/".join(map(str, words)))
    return lambda values: rng.choice(values)
