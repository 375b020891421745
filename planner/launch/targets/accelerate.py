"""Accelerate: its YAML of FSDP2 or DeepSpeed, and a script on Hugging Face's Trainer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from planner.base.enums import Offload
from planner.documents.writing import yaml_text
from planner.launch.benchmark import measured
from planner.launch.job import Job
from planner.launch.option_table import Remark, Settings
from planner.launch.target import Argument, Draft, File, Process, Target
from planner.launch.trainer.reading import is_accelerate_document, trainer_answers
from planner.launch.trainer.writing import (
    adapter_notes,
    moved_activations,
    nested,
    require_even_copies,
    script_arguments,
    script_files,
    script_remarks,
    script_settings,
)

CONFIG = "accelerate.yaml"
_BY_FSDP = ("HF Trainer FSDP", "FSDP", "FSDP compiled", "FSDP bf16", "HF Trainer bf16")
_PRECISIONS = {
    "bf16": "bf16",
    "fp16": "fp16",
    "fp8": "fp8",
    "fp4": "bf16",
    "int8": "bf16",
    "tf32": "no",
    "fp32": "no",
}
_UNKNOWN = ("fp4", "int8", "tf32")


def _kind(job: Job) -> str:
    is_whole = not job["zero_stage"] and not job["offload"].startswith("optimizer")
    if is_whole and (job.profile.name != "DeepSpeed" or job.num_gpus == 1):
        return "NO" if job.num_gpus == 1 else "MULTI_GPU"
    return "FSDP" if job.profile.name in _BY_FSDP else "DEEPSPEED"


def _by_launcher(job: Job) -> bool:
    """Whether it is accelerate that compiles the model: where the profile is of compiled models."""
    return job.profile.compilation.default and str(job["torch_compile"]) == "auto"


def _quantities(job: Job) -> Mapping[str, Any]:
    kind = _kind(job)
    quantities = {
        **{name: value for name, value in job.pinned.parameters.items() if name not in _ELSEWHERE},
        "kind": kind,
        "num_nodes": job.num_nodes,
        "precision": job["precision"] if job["precision"] in _UNKNOWN else None,
        "precision_type": _PRECISIONS[job["precision"]],
        "fp8_backend": "te" if job["precision"] == "fp8" else None,
        "fp8_format": "HYBRID" if job["precision"] == "fp8" else None,
        "compiled": "inductor" if _by_launcher(job) else None,
    }
    if kind == "FSDP":
        return quantities | _fsdp(job)
    if kind == "DEEPSPEED":
        return quantities | _deepspeed(job)
    return quantities


_ELSEWHERE = (
    "zero_stage",
    "offload",
    "recompute",
    "recompute_num_layers",
    "flash_attention",
    "attention_kernel",
    "expert_compute",
    "torch_compile",
    "loss_kernel",
    "loss_chunks",
    "tensor_parallel",
    "context_parallel",
    "data_parallel_replicas",
    "micro_batch_size",
    "precision",
    "zero3_init",
)


def _fsdp(job: Job) -> dict[str, Any]:
    replicas = int(job["data_parallel_replicas"])
    return {
        "zero_stage": job["zero_stage"],
        "offload": job["offload"] if job["offload"] == "optimizer" else None,
        "data_parallel_replicas": replicas,
        "shard_size": job.data_parallel // replicas,
        "tensor_parallel": job["tensor_parallel"],
        "context_parallel": job["context_parallel"],
        "fsdp_version": 2,
        "sharded_weights": job["zero_stage"] == 3,
        "fsdp_wrap": "TRANSFORMER_BASED_WRAP",
        "fsdp_state": "SHARDED_STATE_DICT",
        "fsdp_offload": True if Offload[job["offload"].upper()].of_weights else None,
        "fsdp_recompute": True if _repeats_inside(job) else None,
    }


def _repeats_inside(job: Job) -> bool:
    """FSDP repeats layers in its own units; the script's option would gather them twice."""
    whole = job["recompute"] == "full" and not job["recompute_num_layers"]
    return _kind(job) == "FSDP" and whole


def _deepspeed(job: Job) -> dict[str, Any]:
    stage, offload = int(job["zero_stage"]), Offload[job["offload"].upper()]
    where = "nvme" if offload.to_drives else "cpu"
    return {
        "deepspeed_stage": stage,
        "deepspeed_accumulation": job.accumulation_steps,
        "deepspeed_optimizer": where if offload.of_states else "none",
        "deepspeed_weights": where if offload.of_weights else "none",
        "deepspeed_init": stage == 3 and job["zero3_init"],
        "deepspeed_save": True if stage == 3 else None,
    }


def _unsplit(job: Job) -> tuple[Remark, ...]:
    """What the YAML of anything but FSDP cannot split."""
    if _kind(job) == "FSDP":
        return ()
    note = f"accelerate's YAML has it for FSDP2, not for {_kind(job)}; choose the target deepspeed"
    return tuple(
        Remark(parameter=name, value=str(job[name]), note=note)
        for name in ("tensor_parallel", "context_parallel", "data_parallel_replicas")
        if job[name] > 1
    )


def _draft(job: Job, settings: Settings) -> Draft:
    job.require_even_nodes()
    require_even_copies(job)
    inside = _repeats_inside(job)
    is_sharded_4_bits = _kind(job) == "FSDP" and job["adapter"] == "qlora"
    elsewhere = job["precision"] in ("fp8", *_UNKNOWN)
    script = script_settings(
        job,
        precision=None if elsewhere else job["precision"],
        precision_elsewhere=True if job["precision"] == "fp8" else None,
        precision_kept=True if job["precision"] in ("fp4", "int8") else None,
        recompute="none" if inside else job["recompute"],
        fp8_attention=None,
        offload=moved_activations(job),
        quantized_storage="bfloat16" if is_sharded_4_bits else None,
    )
    unexpressed, left = script_remarks(job)
    process = Process(
        name="train",
        launcher="accelerate",
        launcher_arguments=(Argument(words=("--config_file", CONFIG)),),
        arguments=script_arguments(job, script),
        num_nodes=job.num_nodes,
        gpus_per_node=job.gpus_per_node,
    )
    notes = {each.option: each.note for each in settings.options if each.note}
    text = yaml_text(nested({each.option: each.text for each in settings.options}), notes)
    config = File(name=CONFIG, text=text, meaning="how accelerate starts and shards")
    return Draft(
        processes=(process,),
        files=(config, *script_files(job)),
        unexpressed=(*script.unexpressed, *unexpressed, *_unsplit(job)),
        left=left,
        benchmark=(measured(process, "accelerate"),),
        notes=adapter_notes(job),
    )


def _starts(words: Sequence[str]) -> bool:
    return list(words[:2]) == ["accelerate", "launch"] or words[:1] == ["accelerate-launch"]


TARGET = Target(
    name="accelerate",
    title="Accelerate",
    version="accelerate 1.15.0, transformers 5.23.0, trl 1.16.0",
    workloads=("train",),
    profiles=(*_BY_FSDP, "HF Trainer", "HF Trainer Triton", "DeepSpeed"),
    quantities=_quantities,
    draft=_draft,
    answers=trainer_answers,
    starts=_starts,
    is_of=is_accelerate_document,
    accepted=(
        "deepspeed-arguments-0.19.8",
        "accelerate-1.15.0",
        "transformers-5.23.0",
        "trl-1.16.0",
        "run_clm-4.57",
    ),
)
