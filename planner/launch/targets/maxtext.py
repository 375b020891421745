"""MaxText: ``maxtext.trainers.pre_train.train`` with a configuration and overrides of its keys."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from planner.errors import LaunchError
from planner.launch.benchmark import measured
from planner.launch.job import Job
from planner.launch.option_table import Remark, Settings
from planner.launch.shape import shape_of
from planner.launch.target import (
    MASTER_ADDR,
    NODE_RANK,
    NUM_NODES,
    Argument,
    Draft,
    Process,
    Target,
    Variable,
)
from planner.launch.targets import megatron_lm
from planner.launch.targets.maxtext_axes import axes_of
from planner.launch.targets.maxtext_models import maxtext_name
from planner.launch.targets.maxtext_read import NEAREST, answers, is_of, starts
from planner.launch.targets.maxtext_remat import policy_words

_MODULE = "maxtext.trainers.pre_train.train"
_ADAPTER_MODULE = "maxtext.trainers.post_train.sft.train_sft"
_CONFIG = "src/maxtext/configs/base.yml"
_PORT = "29500"
_DROPOUT = 0.1


def _quantities(job: Job) -> Mapping[str, Any]:
    is_adapted = job["adapter"] not in (None, "none")
    stage = int(job["zero_stage"])
    return {
        **job.pinned.parameters,
        **_model_words(job),
        **axes_of(job),
        **_batch_words(job),
        **policy_words(job),
        "global_batch_size": None,
        "micro_batch_size": None,
        "sharded_optimizer": stage in (1, 2),
        "sequence_length": job["sequence_length"],
        "train_iterations": job.training_steps,
        "save_interval": megatron_lm.save_interval(job),
        "fp8_quantization": _quantization(job),
        "adapter": job["adapter"],
        "lora_rank": job["lora_rank"] if is_adapted else None,
        "lora_targets": job["lora_targets"] if is_adapted else None,
        "mtp_num_layers": job["mtp_num_layers"] or 0,
        "dropout_rate": _DROPOUT if job["dropout"] else "0.0",
    }


def _model_words(job: Job) -> dict[str, Any]:
    """The model by the name that MaxText ships it under, else its sizes."""
    name = maxtext_name(job.model)
    if name is not None:
        return {"model_name": name}
    shape = shape_of(job.model)
    lacking = [word for word in ("kv_lora_rank", "shared_intermediate_size", "num_dense_layers",
                                 "moe_latent_size", "sinks", "sliding_window")
               if shape[word]]  # fmt: skip
    if lacking or not shape["gated"] or shape["position_embedding"] != "rotary":
        raise LaunchError(
            f"MaxText ships no {job.model.name}, and its sizes alone do not describe it: "
            "choose a model that it ships, or another target."
        )
    experts = bool(shape["num_experts"])
    return {
        **shape,
        "key_value_heads": shape["num_key_value_heads"],
        "intermediate_size": shape["intermediate_size"] or shape["moe_intermediate_size"],
        "decoder_block": "mixtral" if experts else "llama2",
        "num_experts": shape["num_experts"],
    }


def _batch_words(job: Job) -> dict[str, Any]:
    """Sequences of a GPU in a step, and how they are cut into micro-batches."""
    stages, steps = int(job["pipeline_parallel"]), int(job["gradient_accumulation_steps"])
    in_pipeline = stages > 1
    if in_pipeline and steps % stages:
        raise LaunchError(
            f"A pipeline of MaxText takes micro-batches in multiples of its {stages} stages, not "
            f"{steps}: plan another --global-batch-size or pipeline_parallel."
        )
    accumulated = 1 if in_pipeline else steps
    sequences = int(job["global_batch_size"]) // accumulated
    each = sequences / job.num_gpus
    while int(each * job.num_gpus) < sequences:  # MaxText rounds down
        each = math.nextafter(each, math.inf)
    return {
        "per_device_batch": each,
        "gradient_accumulation_steps": accumulated,
        "pipeline_microbatches": steps if in_pipeline else None,
        "stage_layers": _chunk(job) if in_pipeline else None,
        "virtual_pipeline": job["virtual_pipeline"] if in_pipeline else None,
    }


def _chunk(job: Job) -> int:
    chunks = int(job["pipeline_parallel"]) * int(job["virtual_pipeline"])
    layers = job.model.num_hidden_layers - job.model.mtp_num_layers
    if layers % chunks:
        raise LaunchError(
            f"A pipeline of MaxText has equal chunks: {layers} layers are no multiple of {chunks}. "
            "Plan another pipeline_parallel or virtual_pipeline."
        )
    return layers // chunks


_QUANTIZATIONS = {
    "delayed": "te_fp8_delayedscaling",
    "tensorwise": "te_fp8_currentscaling",
    "mxfp8": "te_mxfp8",
}


def _quantization(job: Job) -> str | None:
    if job["precision"] != "fp8":
        return None
    usual = "mxfp8" if job.gpu.architecture == "blackwell" else "delayed"
    recipe = usual if job["fp8_recipe"] == "auto" else job["fp8_recipe"]
    return _QUANTIZATIONS.get(recipe)


def _draft(job: Job, settings: Settings) -> Draft:
    job.require_even_nodes()
    is_adapted = job["adapter"] not in (None, "none")
    module = _ADAPTER_MODULE if is_adapted else _MODULE
    config = Variable(name="MAXTEXT_PATH", meaning="folder of a checkout of MaxText",
                      suffix=f"/{_CONFIG}")  # fmt: skip
    words = [Argument(words=(f"{each.option}={each.text}",), note=each.note)
             for each in settings.options]  # fmt: skip
    process = Process(
        name="train",
        arguments=(*_command(job, module), Argument(words=(config,)), *words, *_own_words(job)),
        num_nodes=job.num_nodes,
        gpus_per_node=job.gpus_per_node,
        environment={"XLA_PYTHON_CLIENT_MEM_FRACTION": "0.92"},
    )
    return Draft(
        processes=(process,),
        unexpressed=_strange(job),
        left=megatron_lm.left_of(job),
        benchmark=(measured(process, "maxtext"),),
    )


def _command(job: Job, module: str) -> list[Argument]:
    """The program; on several nodes JAX is told where they meet."""
    program = Argument(words=("python3", "-m", module))
    if job.num_nodes == 1:
        return [program]
    meeting = (
        Variable(name=each.name, meaning=each.meaning, prefix=f"{name}=")
        for name, each in (
            ("JAX_COORDINATOR_IP", MASTER_ADDR),
            ("NNODES", NUM_NODES),
            ("NODE_RANK", NODE_RANK),
        )
    )
    return [Argument(words=("env", f"JAX_COORDINATOR_PORT={_PORT}", *meeting)), program]


def _own_words(job: Job) -> list[Argument]:
    def known(key: str, name: str, meaning: str, default: str | None = None) -> Argument:
        variable = Variable(name=name, meaning=meaning, default=default, prefix=f"{key}=")
        return Argument(words=(variable,))

    return [
        known("run_name", "RUN_NAME", "name of the run", "planned"),
        known("base_output_directory", "OUTPUT_PATH", "folder of checkpoints and logs"),
        known("tokenizer_path", "TOKENIZER_MODEL", "ORG/NAME of the tokenizer", job.hub_name),
        Argument(words=("dataset_type=hf",)),
        known("hf_path", "DATA_PATH", "data set on Hugging Face"),
        known("learning_rate", "LEARNING_RATE", "the highest learning rate, such as 1.5e-4"),
    ]


def _strange(job: Job) -> tuple[Remark, ...]:
    sharded: tuple[Remark, ...] = ()
    axes = axes_of(job)
    if job["zero_stage"] == 3 and axes["within_fsdp"] * axes["across_fsdp"] == 1:
        note = "other axes take all data-parallel GPUs: none is left to shard the weights over"
        sharded = (Remark(parameter="zero_stage", value="3", note=note),)
    if maxtext_name(job.model) is not None:
        return sharded
    shape = shape_of(job.model)
    found = [what for name, what in (("qkv_bias", "biases of queries, keys and values"),
                                     ("norm_bias", "LayerNorm"), ("mlp_bias", "biases"))
             if shape[name]]  # fmt: skip
    note = "no key of MaxText says it of this decoder"
    remarks = (Remark(parameter="model", value=what, note=note) for what in found)
    return (*sharded, *remarks)


TARGET = Target(
    name="maxtext",
    title="MaxText",
    version="MaxText 0.2.5",
    workloads=("train",),
    profiles=(),
    nearest=NEAREST,
    quantities=_quantities,
    draft=_draft,
    answers=answers,
    starts=starts,
    is_of=is_of,
    accepted=("maxtext-0.2.5",),
)
