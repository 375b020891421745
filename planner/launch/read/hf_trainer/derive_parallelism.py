"""Derive GPUs, parallelism, batch sizes, sharding and offloading of a Trainer's run."""

from __future__ import annotations

from contextlib import suppress

from planner.errors import LaunchError, PlannerError
from planner.launch.option_table import Quantities
from planner.launch.read.hf_trainer.option_sources import (
    TrainerOptions,
    parse_positive_int,
)
from planner.launch.read.parsed_launch import SettingsBuilder
from planner.question.terms import terms_of
from planner.specs.catalogue import Catalogue

_DEFAULT_MICRO_BATCH = 8
_UNSPECIFIED_BATCH = "not given: one sequence"


def refuse_other_split(quantities: Quantities, settings: SettingsBuilder) -> None:
    """Raise LaunchError if the degrees of a file split another number of GPUs than it starts."""
    split_gpus, started_gpus = map(quantities.get, ("split_gpus", "started_gpus"))
    if split_gpus is None or started_gpus in (None, split_gpus):
        return
    tensor, context = map(settings.values.get, ("tensor_parallel", "context_parallel"))
    raise LaunchError(
        f"parallelism_config splits {split_gpus} GPUs (copies {quantities['replicas']} x "
        f"shards {quantities['shards']} x tensor {tensor} x context {context} "
        f"x experts {quantities['expert_ranks']}), but {started_gpus} are started: change one of "
        "them."
    )


def derive_batch(options: TrainerOptions, settings: SettingsBuilder) -> None:
    """Set the sequences of a micro-batch and of a step, as far as the files determine them.

    Raises LaunchError if batch sizes contradict each other.
    """
    micro_batch = _agreed_number(options, "micro_batch_size", "train_micro_batch_size_per_gpu")
    steps = _agreed_number(options, "gradient_accumulation_steps", "gradient_accumulation_steps")
    steps = steps or options.number("accelerate", "deepspeed_accumulation")
    global_batch = options.number("deepspeed", "train_batch_size")
    tensor_parallel, context_parallel = (
        settings.values["tensor_parallel"],
        settings.values["context_parallel"],
    )
    num_stages = settings.values.get("pipeline_parallel", 1)
    # DeepSpeed counts tensor-parallel ranks as data-parallel ones.
    by_deepspeed = options.of("deepspeed", "tensor_parallel") is not None
    counted_tensor_ranks = tensor_parallel if by_deepspeed else 1
    num_gpus = settings.values.get("num_gpus")
    is_unreadable = options.is_hidden(
        "--per_device_train_batch_size", "train_micro_batch_size_per_gpu"
    )
    if (
        num_gpus is None
        and global_batch
        and micro_batch
        and steps
        and global_batch % (micro_batch * steps) == 0
    ):
        num_gpus = settings.values["num_gpus"] = (
            global_batch
            // (micro_batch * steps)
            * context_parallel
            * (tensor_parallel // counted_tensor_ranks)
        )
    if num_gpus is None:
        settings.mark_missing("num_gpus")
    elif num_gpus % (tensor_parallel * context_parallel):
        raise LaunchError(
            f"{num_gpus} GPUs cannot be split by {tensor_parallel} x {context_parallel}: "
            "change one of them."
        )
    ranks = (
        None if num_gpus is None else num_gpus // (tensor_parallel * context_parallel * num_stages)
    )
    if global_batch and ranks:
        micro_batch, steps = _complete_batch(
            global_batch, counted_tensor_ranks * ranks, micro_batch, steps
        )
    is_specified = micro_batch is not None
    if micro_batch is None and options.has_script and not is_unreadable:
        micro_batch = _DEFAULT_MICRO_BATCH
        settings.assume("micro_batch_size", micro_batch, "no batch given: 8 is the Trainer's")
    elif micro_batch is None:
        micro_batch = 1
        settings.assume("micro_batch_size", micro_batch, _UNSPECIFIED_BATCH)
    else:
        settings.values["micro_batch_size"] = micro_batch
    has_readable_accumulation = not options.is_hidden(
        "--gradient_accumulation_steps", "gradient_accumulation_steps"
    )
    if global_batch:
        settings.values["global_batch_size"] = global_batch // counted_tensor_ranks
    elif ranks:
        settings.values["global_batch_size"] = micro_batch * (steps or 1) * ranks
        if not has_readable_accumulation:
            settings.defaults["global_batch_size"] = "no gradient accumulation given"
        elif is_unreadable or not (is_specified or options.has_script):
            settings.defaults["global_batch_size"] = "with these micro-batches"
    if num_gpus is None and "global_batch_size" not in settings.values:
        settings.notes.append(
            f"A step has {micro_batch} x {steps or 1} sequences for each data-parallel GPU."
        )


def _agreed_number(options: TrainerOptions, parameter: str, key: str) -> int | None:
    """Return a parameter's number from the script or DeepSpeed's file; None if neither sets it.

    Raises LaunchError if they differ.
    """
    script_value = options.number("script", parameter)
    file_value = options.number("deepspeed", parameter)
    if script_value and file_value and script_value != file_value:
        raise LaunchError(
            f"{key} is {file_value} in DeepSpeed's file, but --"
            f"{'per_device_train_batch_size' if parameter == 'micro_batch_size' else parameter} "
            f'is {script_value}: the Trainer refuses that. Write "auto" in the file, or the same.'
        )
    return file_value or script_value


def _complete_batch(
    global_batch: int, ranks: int, micro_batch: int | None, steps: int | None
) -> tuple[int | None, int | None]:
    """Return micro-batch and accumulation; a missing one is computed from the global batch.

    Raises LaunchError if their product is not the global batch.
    """
    if micro_batch and steps and micro_batch * steps * ranks != global_batch:
        raise LaunchError(
            f"train_batch_size {global_batch} is not micro-batch {micro_batch} x "
            f"accumulation {steps} x {ranks} ranks = {micro_batch * steps * ranks}: DeepSpeed "
            "refuses that."
        )
    if global_batch % ranks:
        raise LaunchError(f"train_batch_size {global_batch} cannot be split over {ranks} ranks.")
    if micro_batch is None and steps is not None and global_batch % (ranks * steps) == 0:
        micro_batch = global_batch // (ranks * steps)
    elif micro_batch is None and steps is None:
        micro_batch = global_batch // ranks
    return micro_batch, steps


# Of DeepSpeed's runtime/zero/config.py.
_DEFAULT_MAX_LIVE, _DEFAULT_PREFETCHED = 1_000_000_000, 50_000_000
_PARAMETERS = "parameters"


def derive_buckets(options: TrainerOptions, settings: SettingsBuilder) -> None:
    """Set the sizes of DeepSpeed's buckets, in parameters; ``auto`` is hidden size squared.

    Gradients and states of adapters are smaller than any bucket or sub-group.
    """
    if not options.has_deepspeed or not settings.values["zero_stage"]:
        return
    if settings.values["adapter"] != "none":
        return
    for name in (
        term_name
        for term_name, term in terms_of("train", "parameter").items()
        if term.unit == _PARAMETERS
    ):
        text = options.of("deepspeed", name)
        if number := 1 if text == "0" else parse_positive_int(text):
            settings.values[name] = number
    model = settings.values.get("model")
    if options.texts.get("zero_optimization.reduce_bucket_size") == "auto" and model is not None:
        with suppress(PlannerError):
            hidden = Catalogue(None).load_model(model).hidden_size
            settings.assume("reduce_bucket_size", hidden**2, "auto is the hidden size squared")
    if reuse_distance := options.number("deepspeed", "reuse_distance"):
        prefetched = options.number("deepspeed", "prefetched") or _DEFAULT_PREFETCHED
        max_live = settings.values.get("stage3_max_live_parameters", _DEFAULT_MAX_LIVE)
        if reuse_distance + prefetched < max_live:
            settings.values["stage3_max_live_parameters"] = reuse_distance + prefetched


def distributed_type_of(options: TrainerOptions) -> str:
    """``distributed_type`` of accelerate in upper case; empty where it is not set."""
    return (options.of("accelerate", "kind") or "").upper()


def uses_fsdp(options: TrainerOptions) -> bool:
    """Whether the script or accelerate shards by FSDP."""
    # A bare --fsdp, with text None, counts.
    text = options.texts.get("--fsdp", "false")
    return distributed_type_of(options) == "FSDP" or text not in ("", "false", "False")
