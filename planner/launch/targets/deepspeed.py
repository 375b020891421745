"""DeepSpeed: ``ds_config.json`` and a script on Hugging Face's Trainer that takes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from planner.launch.benchmark import measured
from planner.launch.job import Job
from planner.launch.option_table import Settings
from planner.launch.target import Argument, Draft, File, Process, Target
from planner.launch.trainer.reading import (
    is_deepspeed_document,
    starts_trainer,
    trainer_answers,
)
from planner.launch.trainer.writing import (
    adapter_notes,
    json_file,
    moved_activations,
    nested,
    script_arguments,
    script_files,
    script_remarks,
    script_settings,
)

CONFIG = "ds_config.json"
_WRITTEN = ("bf16", "fp16", "fp32")


def quantities(job: Job) -> Mapping[str, Any]:
    """What the table turns into keys of ``ds_config.json``."""
    stage = int(job["zero_stage"])
    steps, micro, tp = job.accumulation_steps, job["micro_batch_size"], job["tensor_parallel"]
    return {
        **job.pinned.parameters,
        "gradient_accumulation_steps": steps,
        # Its parser counts the ranks that split tensors as data parallel ones.
        "train_batch_size": micro * steps * job.data_parallel * tp,
        "precision_kept": True if job["precision"] not in _WRITTEN else None,
        "overlap": stage > 0,
        "contiguous": stage > 0,
        "gather_on_save": stage == 3,
        "offload": None if job["offload"] == "activations" else job["offload"],
        "recompute": None,
        "recompute_num_layers": None,
        "flash_attention": None,
        "attention_kernel": None,
        "expert_compute": None,
        "torch_compile": None,
        "loss_kernel": None,
        "loss_chunks": None,
    }


def deepspeed_file(settings: Settings) -> File:
    """``ds_config.json`` of the options of the table."""
    document = nested({each.option: each.text for each in settings.options})
    return json_file(CONFIG, document, "what DeepSpeed shards")


def _draft(job: Job, settings: Settings) -> Draft:
    job.require_even_nodes()
    script = script_settings(
        job,
        # What the file cannot say is told once.
        precision=job["precision"] if job["precision"] in _WRITTEN else "bf16",
        fp8_attention=None,
        offload=moved_activations(job),
        quantized_storage=(
            "bfloat16" if job["zero_stage"] == 3 and job["adapter"] == "qlora" else None
        ),
    )
    unexpressed, left = script_remarks(job)
    config = Argument(words=("--deepspeed", CONFIG))
    process = Process(
        name="train",
        launcher="torchrun",
        arguments=script_arguments(job, script, config),
        num_nodes=job.num_nodes,
        gpus_per_node=job.gpus_per_node,
    )
    return Draft(
        processes=(process,),
        files=(deepspeed_file(settings), *script_files(job)),
        unexpressed=(*script.unexpressed, *unexpressed),
        left=left,
        benchmark=(measured(process, "deepspeed"),),
        notes=adapter_notes(job),
    )


def _starts(words: Sequence[str]) -> bool:
    names = {word.partition("=")[0] for word in words}
    is_configured = bool(names & {"--deepspeed", "--deepspeed_config", "--zero_stage"})
    return is_configured and starts_trainer(words)


TARGET = Target(
    name="deepspeed",
    title="DeepSpeed",
    version="DeepSpeed 0.19.8, transformers 5.23.0, trl 1.16.0",
    workloads=("train",),
    profiles=("DeepSpeed", "HF Trainer", "HF Trainer Triton"),
    quantities=quantities,
    draft=_draft,
    answers=trainer_answers,
    starts=_starts,
    is_of=is_deepspeed_document,
    accepted=(
        "deepspeed-arguments-0.19.8",
        "deepspeed-0.19.8",
        "transformers-5.23.0",
        "trl-1.16.0",
        "run_clm-4.57",
    ),
    aliases=("ds", "zero"),
)
