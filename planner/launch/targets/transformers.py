"""Hugging Face's Trainer: scripts of TRL and Transformers, started by torchrun."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from planner.launch.benchmark import measured
from planner.launch.job import Job
from planner.launch.option_table import Settings
from planner.launch.target import Argument, Draft, Process, Target
from planner.launch.trainer.programs import in_own_words, is_llama_factory_document
from planner.launch.trainer.reading import is_trainer_document, starts_trainer, trainer_answers
from planner.launch.trainer.writing import (
    FSDP_FILE,
    SECTION,
    adapter_notes,
    has_adapter,
    is_supervised,
    json_file,
    nested,
    script_arguments,
    script_files,
    script_quantities,
    script_remarks,
)
from planner.launch.understood import Found
from planner.shell.text import Changes

_RECOMPUTE = "fsdp_config.activation_checkpointing"
_IN_DEEPSPEED = {
    "fsdp_config.reshard_after_forward": "zero_optimization.stage",
    "fsdp_config.cpu_offload": "zero_optimization.offload_param.device",
}


def honoured(found: Found, changes: Changes) -> tuple[Changes, Changes]:
    """What of a change stands in the file itself, and what in DeepSpeed's beside it."""
    own, beside = dict(changes), dict[str, tuple[str, ...] | None]()
    if any(name.lstrip("-") == "deepspeed" for name in found.options):
        if _RECOMPUTE in own:
            repeats = own.pop(_RECOMPUTE) is not None
            own["gradient_checkpointing"] = (str(repeats).lower(),)
        for name in [name for name in own if name.startswith("fsdp")]:
            texts = own.pop(name)
            if key := _IN_DEEPSPEED.get(name):
                beside[key] = _in_deepspeed(key, texts)
    if _is_llama_factory(found):
        return in_own_words(own), beside
    return own, beside


def _is_llama_factory(found: Found) -> bool:
    given = {**found.options, **{one.option: one for one in found.unknown}}
    texts = {
        name.lstrip("-"): one.texts[0] if len(one.texts) == 1 else "" for name, one in given.items()
    }
    return is_llama_factory_document(texts)


def _in_deepspeed(key: str, texts: tuple[str, ...] | None) -> tuple[str, ...] | None:
    if key.endswith("device"):
        return None if texts is None else ("cpu",)
    return ("3",) if texts == ("true",) else ("2",) if texts else ("0",)


_SPLIT = (
    "tensor_parallel",
    "context_parallel",
    "pipeline_parallel",
    "virtual_pipeline",
    "expert_parallel",
    "sequence_parallel",
    "data_parallel_replicas",
    "zero_stage",
)


def _quantities(job: Job) -> Mapping[str, Any]:
    stage = int(job["zero_stage"])
    sharded = stage >= 2
    # FSDP repeats layers inside its own units: the Trainer's option would gather them twice.
    inside = sharded and job["recompute"] == "full" and not job["recompute_num_layers"]
    offload = job["offload"]
    if offload == "activations" and not is_supervised(job):
        offload = None
    return {
        **script_quantities(job),
        **{name: job[name] for name in _SPLIT},
        "offload": offload,
        "sharded": True if sharded else None,
        "sharded_weights": stage == 3 if sharded else None,
        "sharded_recompute": True if inside else None,
        "recompute": "none" if inside else job["recompute"],
        "quantized_storage": "bfloat16" if sharded and job["adapter"] == "qlora" else None,
    }


def _draft(job: Job, settings: Settings) -> Draft:
    job.require_even_nodes()
    keys = {each.option: each.text for each in settings.options if each.option.startswith(SECTION)}
    files = list(script_files(job))
    more = []
    if keys:
        document = nested({"fsdp_config.version": "2", **keys})["fsdp_config"]
        files.append(json_file(FSDP_FILE, document, "how FSDP shards"))
        more.append(Argument(words=("--fsdp_config", FSDP_FILE)))
    unexpressed, left = script_remarks(job)
    process = Process(
        name="train",
        launcher="torchrun",
        arguments=script_arguments(job, settings, *more),
        num_nodes=job.num_nodes,
        gpus_per_node=job.gpus_per_node,
    )
    notes: tuple[str, ...] = ()
    if has_adapter(job):
        told = "peft adds the adapters: lora_alpha and lora_dropout are TRL's defaults."
        notes = (told, *adapter_notes(job))
    return Draft(
        processes=(process,),
        files=tuple(files),
        unexpressed=unexpressed,
        left=left,
        benchmark=(measured(process, "transformers"),),
        notes=notes,
    )


def _starts(words: Sequence[str]) -> bool:
    return starts_trainer(words)


TARGET = Target(
    name="transformers",
    title="Hugging Face Trainer",
    version="transformers 5.23.0, trl 1.16.0",
    workloads=("train",),
    profiles=("HF Trainer", "HF Trainer FSDP", "HF Trainer bf16", "HF Trainer Triton"),
    quantities=_quantities,
    draft=_draft,
    answers=trainer_answers,
    starts=_starts,
    is_of=is_trainer_document,
    honoured=honoured,
    accepted=(
        "deepspeed-arguments-0.19.8",
        "transformers-5.23.0",
        "trl-1.16.0",
        "run_clm-4.57",
        "peft-0.21.2",
    ),
    aliases=("hf-trainer", "trainer", "trl", "peft"),
)
