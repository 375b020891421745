"""Megatron-Bridge (and NeMo): an entry point and its dotted overrides; adapters too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from planner.errors import LaunchError
from planner.launch.benchmark import measured
from planner.launch.job import Job
from planner.launch.option_table import Remark, Settings
from planner.launch.target import Argument, Draft, File, Process, Target, Variable
from planner.launch.targets import megatron_lm
from planner.launch.targets.bridge_read import PROGRAM, SHAPE, answers, is_of, starts
from planner.launch.targets.megatron_hybrid import is_hybrid
from planner.launch.targets.megatron_shape import shape_words, strange_parts

_VERSION = "megatron-bridge 0.6.2"
_NARROW = 2
_FUSED_LOSS = 4  # bytes per logit
"""Bytes of a gradient that is exchanged in 16 bit."""
_UNSAVED = "checkpoint.save=null"
_SPLIT = {"embedding_in_split": False, "loss_in_split": False}
_SCRIPT = '''\
"""Train with {version}: MODEL KEY=VALUE ..., where MODEL is on Hugging Face or "{shape}"."""

import sys

from megatron.bridge import AutoBridge
{imports}from megatron.bridge.recipes.gpt.h100.vanilla_gpt import (
    vanilla_gpt_pretrain_1gpu_h100_bf16_config,
)
from megatron.bridge.training.comm_overlap import CommOverlapConfig
from megatron.bridge.training.gpt_step import forward_step
from megatron.bridge.training.mixed_precision import get_mixed_precision_config
from megatron.bridge.training.{module} import {function}
from megatron.bridge.training.utils.omegaconf_utils import process_config_with_overrides

model, *overrides = sys.argv[1:]
config = vanilla_gpt_pretrain_1gpu_h100_bf16_config()
if model != "{shape}":
    config.model = AutoBridge.from_hf_pretrained(model).to_megatron_provider(load_weights=False)
# Objects in place of names, so that the overrides reach their fields.
config.mixed_precision = get_mixed_precision_config("bf16_mixed")
config.comm_overlap = CommOverlapConfig(tp_comm_overlap=False)
{adapter}config = process_config_with_overrides(config, cli_overrides=overrides)
{function}(config, forward_step)
'''
_ADAPTER_IMPORTS = """\
from megatron.bridge.data.builders import GPTSFTDatasetConfig
from megatron.bridge.peft.lora import LoRA
"""
_ADAPTER = """\
config.peft = LoRA()
config.dataset = GPTSFTDatasetConfig(dataset_root="set below", seq_length=1)
"""


def _quantities(job: Job) -> Mapping[str, Any]:
    shape = shape_overrides(job) if _needs_shape(job) else {}
    shared = megatron_lm.run_words(job)
    has_experts = bool(job.model.num_experts)
    is_adapted = job["adapter"] not in (None, "none")
    overlap, execution = job.profile.overlap, job.profile.execution
    merged = has_experts and overlap.expert_parallel > 0
    split = shared.get("pipeline_layout") is not None
    names_gradients = job["main_grads_precision"] != "framework"
    wire = job.profile.states.gradient_on_wire
    return {
        **(_SPLIT if not split else {}),
        **shape,
        **shared,
        **megatron_lm.backend_words(job),
        "has_experts": has_experts,
        "virtual_pipeline": shared.get("virtual_pipeline"),
        "dropout_rate": shared["attention_dropout"],
        "adapter": job["adapter"],
        "lora_rank": job["lora_rank"] if is_adapted else None,
        "lora_targets": job["lora_targets"] if is_adapted else None,
        "wide_gradients": None if names_gradients else wire > _NARROW,
        "tensor_overlap": bool(job["sequence_parallel"])
        and overlap.tensor_parallel > 0
        and not job["tp_comm_overlap"],
        "token_dispatcher": _dispatcher(job, execution.deduplicated_dispatch or merged),
        "flex_backend": ("hybridep" if merged else "deepep")
        if _dispatcher(job, execution.deduplicated_dispatch or merged) == "flex"
        else None,
        "loss_fusion": _loss_fusion(job),
        "recompute_modules": (shared.get("recompute_modules") or "").replace(" ", ",") or None,
        "offload_modules": (shared.get("offload_modules") or "").replace(" ", ",") or None,
    }


def _loss_fusion(job: Job) -> str:
    is_fused = job["loss_kernel"] == "fused" or job.profile.memory.per_logit <= _FUSED_LOSS
    return "te" if is_fused else "native"


def _dispatcher(job: Job, is_flexible: bool) -> str | None:
    if not job.model.num_experts:
        return None
    return megatron_lm.dispatcher(job) or ("flex" if is_flexible else "alltoall")


def _needs_shape(job: Job) -> bool:
    return job.hub_name is None


def shape_overrides(job: Job) -> dict[str, Any]:
    """A model's shape in the words of a provider."""
    shape = shape_words(job.model, int(job["tensor_parallel"]))
    if shape["latent_attention"]:
        raise LaunchError(
            f"{job.model.name} is not on Hugging Face, and Megatron-Bridge's GPT has no latent "
            "attention: give the model by its ORG/NAME, or choose megatron-lm."
        )
    experts, dense = shape["num_experts"], shape["num_dense_layers"]
    layers = shape["num_hidden_layers"]
    kinds = ["0"] * dense + ["1"] * (layers - dense)
    return {
        **shape,
        "query_groups": shape["num_key_value_heads"] or shape["num_attention_heads"],
        "moe_layer_list": f"[{','.join(kinds)}]" if experts and dense else None,
    }


def _draft(job: Job, settings: Settings) -> Draft:
    job.require_even_nodes()
    if is_hybrid(job.model) and job["pipeline_parallel"] > 1:
        raise LaunchError(
            f"{job.model.name}: a pipeline of layers of several kinds is split by its recipe alone "
            "in Megatron-Bridge: plan pipeline_parallel 1, or choose megatron-lm."
        )
    model, is_adapted = job.hub_name or SHAPE, job["adapter"] not in (None, "none")
    words = [Argument(words=(f"{each.option}={each.text}",), note=each.note)
             for each in settings.options]  # fmt: skip
    process = Process(
        name="train",
        launcher="torchrun",
        arguments=(Argument(words=(PROGRAM, model)), *words, *_own_words(job, is_adapted)),
        num_nodes=job.num_nodes,
        gpus_per_node=job.gpus_per_node,
        environment=_environment(job, is_adapted),
    )
    return Draft(
        processes=(process,),
        files=(File(name=PROGRAM, text=_program(is_adapted), meaning="what the overrides change"),),
        unexpressed=(*_strange(job), *megatron_lm.uneven_blocks(job)),
        left=(*megatron_lm.left_of(job), *_left(job)),
        benchmark=(measured(process, "megatron-bridge", _UNSAVED),),
    )


def _program(is_adapted: bool) -> str:
    function = "finetune" if is_adapted else "pretrain"
    return _SCRIPT.format(
        version=_VERSION,
        shape=SHAPE,
        imports=_ADAPTER_IMPORTS if is_adapted else "",
        module=function,
        function=function,
        adapter=_ADAPTER if is_adapted else "",
    )


def _own_words(job: Job, is_adapted: bool) -> list[Argument]:
    def known(key: str, name: str, meaning: str, default: str | None = None) -> Argument:
        variable = Variable(name=name, meaning=meaning, default=default, prefix=f"{key}=")
        return Argument(words=(variable,))

    found = [
        known("tokenizer.tokenizer_model", "TOKENIZER_MODEL",
              "ORG/NAME or folder of the tokenizer on Hugging Face", job.hub_name),
        known("optimizer.lr", "LEARNING_RATE", "the highest learning rate, such as 1.5e-4"),
        known("checkpoint.save", "CHECKPOINT_PATH", "folder of the checkpoints"),
        known("checkpoint.load", "CHECKPOINT_PATH", "folder of the checkpoints"),
    ]  # fmt: skip
    if is_adapted:
        meaning = "the weights, as AutoBridge.import_ckpt of megatron.bridge wrote them"
        name = "PRETRAINED_CHECKPOINT"
        folder = "folder with training.jsonl, validation.jsonl and, if there is one, test.jsonl"
        return [
            *found,
            known("checkpoint.pretrained_checkpoint", name, meaning),
            known("dataset.dataset_root", "DATA_PATH", folder),
        ]
    meaning = "prefix of the data set that preprocess_data.py of Megatron-LM made"
    return [*found, known("dataset.data_path", "DATA_PATH", meaning)]


def _environment(job: Job, is_adapted: bool) -> dict[str, str]:
    found = dict(megatron_lm.environment_of(job))
    if job.profile.name == "Megatron-Bridge":
        # The prediction has next to no slivers between segments.
        found["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
    return found


def _strange(job: Job) -> tuple[Remark, ...]:
    return strange_parts(job.model, "Megatron-Bridge") if _needs_shape(job) else ()


def _left(job: Job) -> tuple[Remark, ...]:
    found = []
    if job.profile.name == "Megatron-Bridge":
        note = "predicted with one CUDA graph of the whole iteration, which not every model allows"
        found.append(Remark(parameter="model.cuda_graph_impl", value="", note=note))
    if not _needs_shape(job):
        note = f"its shape is taken from config.json of {job.hub_name}"
        found.append(Remark(parameter="model", value="", note=note))
    return tuple(found)


TARGET = Target(
    name="megatron-bridge",
    title="Megatron-Bridge",
    version=_VERSION,
    workloads=("train",),
    profiles=("Megatron-Bridge", "NeMo"),
    quantities=_quantities,
    draft=_draft,
    answers=answers,
    starts=starts,
    is_of=is_of,
    accepted=("megatron-bridge-0.6.2",),
    aliases=("bridge", "nemo", "primus"),
)
