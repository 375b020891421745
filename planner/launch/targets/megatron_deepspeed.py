"""Megatron-DeepSpeed: ``pretrain_gpt.py`` of the fork, with its ``ds_config.json``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from planner.errors import LaunchError
from planner.launch.benchmark import measured
from planner.launch.job import Job
from planner.launch.option_table import Remark, Settings
from planner.launch.target import Argument, Draft, Process, Target, Variable
from planner.launch.targets import megatron_lm
from planner.launch.targets.megatron_deepspeed_read import answers, starts
from planner.launch.targets.megatron_shape import shape_words, strange_parts
from planner.launch.trainer.writing import json_file, nested

_PROGRAM = "pretrain_gpt.py"
_CONFIG = "ds_config.json"
_LACKING = {
    "kv_lora_rank": "latent attention",
    "shared_intermediate_size": "shared experts",
    "num_dense_layers": "dense layers before those with experts",
    "moe_latent_size": "a latent width of experts",
}
"""Words of a shape without which the model would be another one."""
_UNSAID = {
    "qk_norm": "norms of queries and keys",
    "sliding_window": "a sliding window",
    "sinks": "attention sinks",
    "attn_output_gate": "a gate of the output of attention",
    "router_bias": "a bias of the router",
}


def _quantities(job: Job) -> Mapping[str, Any]:
    shape = shape_words(job.model, int(job["tensor_parallel"]))
    for name, what in _LACKING.items():
        if shape[name]:
            raise LaunchError(
                f"Megatron-DeepSpeed has no argument for {what}, which {job.model.name} has: "
                "choose megatron-lm or megatron-bridge."
            )
    precise = job["precision"] == "bf16" and int(job["zero_stage"]) <= 1
    return {
        **shape,
        **megatron_lm.run_words(job),
        "recompute_num_layers": job["recompute_num_layers"],
        "virtual_pipeline": job["virtual_pipeline"],
        "token_dispatcher": job["token_dispatcher"],
        "expert_interval": 1 if job.model.num_experts else None,
        "wide_gradients": precise,
    }


def _draft(job: Job, settings: Settings) -> Draft:
    job.require_even_nodes()
    path = Variable(
        name="MEGATRON_PATH",
        meaning="folder of a checkout of deepspeedai/Megatron-DeepSpeed",
        suffix=f"/{_PROGRAM}",
    )
    flags = [each for each in settings.options if each.option.startswith("--")]
    document = nested({each.option: each.text for each in settings.options if each not in flags})
    process = Process(
        name="train",
        launcher="torchrun",
        arguments=(
            Argument(words=(path,)),
            *map(Argument.of, flags),
            Argument(words=("--data-impl", "mmap")),
            *megatron_lm.own_words(job),
        ),
        num_nodes=job.num_nodes,
        gpus_per_node=job.gpus_per_node,
        environment=megatron_lm.environment_of(job),
    )
    return Draft(
        processes=(process,),
        files=(json_file(_CONFIG, document, "how DeepSpeed shards"),),
        unexpressed=(*strange_parts(job.model, "Megatron-DeepSpeed"), *_unsaid(job)),
        left=_left(job),
        benchmark=(measured(process, "megatron-deepspeed"),),
    )


def _unsaid(job: Job) -> tuple[Remark, ...]:
    shape = shape_words(job.model, 1)
    sharded = Remark(
        parameter="zero_stage",
        value="0",
        note="in bf16 DeepSpeed's optimizer shards its states all the same, as stage 1 does",
    )
    is_sharded = int(job["zero_stage"]) == 0 and job["precision"] == "bf16"
    found = [what for name, what in _UNSAID.items() if shape[name]]
    if shape["qkv_bias"]:
        found.append("biases of queries, keys and values alone")
    note = "Megatron-DeepSpeed has no argument for it"
    remarks = [Remark(parameter="model", value=what, note=note) for what in found]
    return (*remarks, *([sharded] if is_sharded else []))


def _left(job: Job) -> tuple[Remark, ...]:
    if job["pipeline_parallel"] == 1:
        return megatron_lm.left_of(job)
    note = "DeepSpeed deals the layers evenly to the stages, and the first ones get what is over"
    split = Remark(parameter="--split of the pipeline", value="", note=note)
    return (*megatron_lm.left_of(job), split)


TARGET = Target(
    name="megatron-deepspeed",
    title="Megatron-DeepSpeed",
    version="deepspeedai/Megatron-DeepSpeed at 4efb479, DeepSpeed 0.19.8",
    workloads=("train",),
    profiles=("Megatron-DeepSpeed",),
    quantities=_quantities,
    draft=_draft,
    answers=answers,
    starts=starts,
    accepted=("megatron-deepspeed-4efb479", "deepspeed-0.19.8"),
    aliases=("megatron-ds", "bigscience"),
)
