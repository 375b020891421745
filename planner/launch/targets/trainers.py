"""Scripts on Hugging Face's Trainer: by themselves with FSDP, with DeepSpeed, or by accelerate."""

from __future__ import annotations

from collections.abc import Sequence

from planner.base.enums import Offload
from planner.documents.writing import yaml_text
from planner.launch.benchmark import training_draft
from planner.launch.option_table import OptionTable, Quantities, Remark, Role, Settings, Words
from planner.launch.target import Argument, Draft, File, Job, Target
from planner.launch.targets.trl_steps import step_of
from planner.launch.trainer.honoured import honoured
from planner.launch.trainer.reading import (
    is_trainer_document,
    starts_trainer,
    trainer_answers,
)
from planner.launch.trainer.writing import (
    FSDP_FILE,
    SECTION,
    adapter_notes,
    fsdp_words,
    has_adapter,
    is_supervised,
    json_file,
    moved_activations,
    nested,
    repeats_inside,
    require_even_copies,
    script_arguments,
    script_files,
    script_quantities,
    script_remarks,
    script_settings,
)
from planner.question.terms import glossary


def _of_script(job: Job) -> Quantities:
    """What the script is told that DeepSpeed or accelerate starts."""
    return {**script_quantities(job), "offload": moved_activations(job)}


def _by_trainer(job: Job) -> Quantities:
    """What the script is told, and how FSDP shards."""
    stage, offload = int(job["zero_stage"]), job["offload"]
    sharded, inside = stage >= 2, repeats_inside(job, sharded=stage >= 2)
    return {
        **script_quantities(job),
        "offload": None if offload == "activations" and not is_supervised(job) else offload,
        "sharded": True if sharded else None,
        "sharded_weights": stage == 3 if sharded else None,
        "sharded_recompute": True if inside else None,
        "recompute": "none" if inside else job["recompute"],
        "quantized_storage": "bfloat16" if sharded and job["adapter"] == "qlora" else None,
    }


def _trainer_draft(job: Job, settings: Settings) -> Draft:
    keys = {each.option: each.text for each in settings.options if each.option.startswith(SECTION)}
    files = list(script_files(job))
    more = []
    if keys:
        document = nested({"version": "2", **{k.removeprefix(SECTION): v for k, v in keys.items()}})
        files.append(json_file(FSDP_FILE, document, "how FSDP shards"))
        more.append(Argument(words=("--fsdp_config", FSDP_FILE)))
    unexpressed, left = script_remarks(job)
    notes: tuple[str, ...] = ()
    if has_adapter(job):
        told = "peft adds the adapters with TRL's default lora_alpha and lora_dropout."
        notes = (told, *adapter_notes(job))
    return training_draft(
        job,
        "transformers",
        script_arguments(job, settings, *more),
        files=tuple(files),
        unexpressed=unexpressed,
        left=left,
        notes=notes,
    )


TRANSFORMERS = Target.of(
    "transformers",
    quantities=_by_trainer,
    draft=_trainer_draft,
    answers=trainer_answers,
    starts=starts_trainer,
    is_of=is_trainer_document,
    honoured=honoured,
)


def _beside_script(job: Job, target: str) -> Words:
    """Nothing of what the script's own options say and a file of the target does not."""
    own = {row.parameter for row in OptionTable.load(target).rows if row.role is Role.IS}
    return dict.fromkeys(script_quantities(job).keys() - {"layer_split", *own})


DEEPSPEED_FILE = "ds_config.json"
_WRITTEN = ("bf16", "fp16", "fp32")


def by_deepspeed(job: Job) -> Quantities:
    """What the table turns into keys of ``ds_config.json``."""
    stage = int(job["zero_stage"])
    steps, micro, tp = job.accumulation_steps, job["micro_batch_size"], job["tensor_parallel"]
    return {
        **_beside_script(job, "deepspeed"),
        "gradient_accumulation_steps": steps,
        # Its parser counts the ranks that split tensors as data parallel ones.
        "train_batch_size": micro * steps * job.data_parallel * tp,
        "precision_kept": True if job["precision"] not in _WRITTEN else None,
        "overlap": stage > 0,
        "contiguous": stage > 0,
        "gather_on_save": stage == 3,
        "offload": None if job["offload"] == "activations" else job["offload"],
    }


def deepspeed_file(settings: Settings) -> File:
    """``ds_config.json`` of the options of the table."""
    document = nested({each.option: each.text for each in settings.options})
    return json_file(DEEPSPEED_FILE, document, "what DeepSpeed shards")


def _deepspeed_draft(job: Job, settings: Settings) -> Draft:
    script = script_settings(
        job,
        # What the file cannot say is told once.
        precision=job["precision"] if job["precision"] in _WRITTEN else "bf16",
        offload=moved_activations(job),
        quantized_storage=(
            "bfloat16" if job["zero_stage"] == 3 and job["adapter"] == "qlora" else None
        ),
    )
    unexpressed, left = script_remarks(job)
    return training_draft(
        job,
        "deepspeed",
        script_arguments(job, script, Argument(words=("--deepspeed", DEEPSPEED_FILE))),
        files=(deepspeed_file(settings), *script_files(job)),
        unexpressed=(*script.unexpressed, *unexpressed),
        left=left,
        notes=adapter_notes(job),
    )


def _starts_deepspeed(words: Sequence[str]) -> bool:
    names = {word.partition("=")[0] for word in words}
    is_configured = bool(names & {"--deepspeed", "--deepspeed_config", "--zero_stage"})
    # Programs that leave batches to DeepSpeed's file.
    tunes = {"--model_name", "--num_train_epochs"} <= names
    return is_configured and (tunes or starts_trainer(words))


DEEPSPEED = Target.of(
    "deepspeed",
    quantities=by_deepspeed,
    draft=_deepspeed_draft,
    answers=trainer_answers,
    starts=_starts_deepspeed,
    honoured=honoured,
    script=_of_script,
)


_ACCELERATE_FILE = "accelerate.yaml"
_BY_FSDP = ("HF Trainer FSDP", "FSDP", "FSDP compiled", "FSDP bf16", "HF Trainer bf16")
_UNKNOWN = ("fp4", "int8", "tf32")
# Its mixed_precision where that is not the precision's own word.
_PRECISIONS = {"fp4": "bf16", "int8": "bf16", "tf32": "no", "fp32": "no"}


def _kind(job: Job) -> str:
    is_whole = not job["zero_stage"] and not job["offload"].startswith("optimizer")
    if is_whole and (job.profile.name != "DeepSpeed" or job.num_gpus == 1):
        return "NO" if job.num_gpus == 1 else "MULTI_GPU"
    return "FSDP" if job.profile.name in _BY_FSDP else "DEEPSPEED"


def _by_accelerate(job: Job) -> Quantities:
    kind, precision, is_usual = _kind(job), job["precision"], job["torch_compile"] == "auto"
    # FSDP and DeepSpeed are told each in their way.
    own = {*_fsdp(job), "zero3_init"}
    quantities = {
        **dict.fromkeys(own),
        **_beside_script(job, "accelerate"),
        "kind": kind,
        "num_nodes": job.num_nodes,
        "precision": precision if precision in _UNKNOWN else None,
        "precision_type": _PRECISIONS.get(precision, precision),
        "cp_comm_type": job["cp_comm_type"] if kind == "FSDP" else None,
        "fp8_backend": "te" if precision == "fp8" else None,
        "fp8_format": "HYBRID" if precision == "fp8" else None,
        # It is accelerate that compiles the model where the profile is of compiled models.
        "compiled": "inductor" if is_usual and job.profile.compilation.default else None,
    }
    if kind == "FSDP":
        return quantities | _fsdp(job)
    if kind == "DEEPSPEED":
        return quantities | _deepspeed(job)
    return quantities


_BY_FSDP2 = {
    row.parameter
    for row in OptionTable.load("accelerate").rows
    if row.option.startswith("parallelism_config.")
}
_UNSPLIT = [name for name in glossary() if name in _BY_FSDP2]


def _fsdp(job: Job) -> Words:
    replicas = int(job["data_parallel_replicas"])
    return {
        "zero_stage": job["zero_stage"],
        "offload": job["offload"] if job["offload"] == "optimizer" else None,
        **{name: job[name] for name in _UNSPLIT},
        "shard_size": job.data_parallel // replicas,
        **fsdp_words(job),
    }


def _deepspeed(job: Job) -> Words:
    stage, offload = int(job["zero_stage"]), Offload[job["offload"].upper()]
    where = "nvme" if offload.to_drives else "cpu"
    return {
        "deepspeed_stage": stage,
        "deepspeed_accumulation": job.accumulation_steps,
        "deepspeed_optimizer": where if offload.of_states else "none",
        "deepspeed_weights": where if offload.of_weights else "none",
        "deepspeed_init": stage == 3 and job["zero3_init"],
        "deepspeed_save": True if stage == 3 else None,
        **(_by_heads(job) if _trades_heads(job) else {}),
    }


def _trades_heads(job: Job) -> bool:
    return bool(job["context_parallel"] > 1 and job["cp_comm_type"] == "a2a")


def _by_heads(job: Job) -> Words:
    """DeepSpeed's Ulysses; the sizes come to all GPUs [1]_.

    References
    ----------
    .. [1] huggingface/accelerate 1.15.0, ``docs/source/concept_guides/sequence_parallelism.md`` and
       ``utils/dataclasses.py``, ``DeepSpeedSequenceParallelConfig``.
    """
    kernel = {"fa3": "flash_attention_3", "sdpa": "sdpa"}.get(str(job["attention_kernel"]))
    return {
        "head_ranks": job["context_parallel"],
        "shard_size": job.data_parallel,
        "head_exchange": "deepspeed",
        "head_attention": kernel or "flash_attention_2",
    }


def _accelerate_draft(job: Job, settings: Settings) -> Draft:
    require_even_copies(job)
    kind = _kind(job)
    is_fsdp, inside = kind == "FSDP", repeats_inside(job, sharded=kind == "FSDP")
    elsewhere = job["precision"] in ("fp8", *_UNKNOWN)
    script = script_settings(
        job,
        precision=None if elsewhere else job["precision"],
        precision_elsewhere=True if job["precision"] == "fp8" else None,
        precision_kept=True if job["precision"] in ("fp4", "int8") else None,
        recompute="none" if inside else job["recompute"],
        offload=moved_activations(job),
        quantized_storage="bfloat16" if is_fsdp and job["adapter"] == "qlora" else None,
    )
    unexpressed, left = script_remarks(job)
    note = f"accelerate's YAML has it for FSDP2, not for {kind}; choose the target deepspeed"
    said = {"context_parallel"} if kind == "DEEPSPEED" and _trades_heads(job) else set()
    unsplit = [name for name in _UNSPLIT if job[name] > 1 and not is_fsdp and name not in said]
    remarks = (Remark(parameter=name, value=str(job[name]), note=note) for name in unsplit)
    notes = {each.option: each.note for each in settings.options if each.note}
    text = yaml_text(nested({each.option: each.text for each in settings.options}), notes)
    config = File(name=_ACCELERATE_FILE, text=text, meaning="how accelerate starts and shards")
    return training_draft(
        job,
        "accelerate",
        script_arguments(job, script),
        launcher="accelerate",
        launcher_arguments=(Argument(words=("--config_file", _ACCELERATE_FILE)),),
        files=(config, *script_files(job)),
        unexpressed=(*script.unexpressed, *unexpressed, *remarks),
        left=left,
        notes=adapter_notes(job),
    )


ACCELERATE = Target.of(
    "accelerate",
    quantities=_by_accelerate,
    draft=_accelerate_draft,
    answers=trainer_answers,
    honoured=honoured,
    script=_of_script,
)
TARGETS = tuple(step_of(target) for target in (TRANSFORMERS, DEEPSPEED, ACCELERATE))
