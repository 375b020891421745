"""Derive GPUs, parallelism, batch sizes, sharding and offloading of a Trainer's run."""

from __future__ import annotations

from contextlib import suppress

from planner.errors import LaunchError, PlannerError
from planner.launch.read.hf_trainer.option_sources import (
    TrainerOptions,
    parse_positive_int,
)
from planner.launch.read.parsed_launch import SettingsBuilder, parse_int, total_gpus
from planner.question.terms import terms_of
from planner.specs.catalogue import Catalogue

# Accelerate's device maps that spread layers over the GPUs of one process.
_DEVICE_MAPS = ("auto", "balanced", "balanced_low_0", "sequential")
_DEFAULT_MICRO_BATCH = 8
_UNSPECIFIED_BATCH = "not given: one sequence"


# Ray workers of LLaMA-Factory and axolotl, and of ms-swift.
_WORKER_OPTIONS = ("--ray_num_workers", "--device_groups.nproc_per_node")


def derive_parallelism(options: TrainerOptions, settings: SettingsBuilder) -> None:
    """Set the number of GPUs and the degrees of parallelism.

    Raises LaunchError if the degrees do not match the GPUs.
    """
    total_processes = parse_int(options.world.num_gpus) or options.number("accelerate", "num_gpus")
    total_processes = total_processes or next(
        (
            workers
            for name in _WORKER_OPTIONS
            if (workers := parse_positive_int(options.texts.get(name)))
        ),
        None,
    )
    num_gpus = total_processes or total_gpus(options.world)
    has_resources = any(
        (options.world.num_nodes, options.world.gpus_per_node, options.world.num_gpus)
    )
    is_single_process = (
        options.world.is_one_process
        and not has_resources
        and "train_batch_size" not in options.texts
    )
    if total_processes is None and is_single_process:
        num_gpus = 1
        settings.defaults["num_gpus"] = "python without a launcher starts one process"
    tensor_parallel = options.number("accelerate", "tensor_parallel")
    tensor_parallel = tensor_parallel or options.number("deepspeed", "tensor_parallel") or 1
    context_parallel = options.number("accelerate", "context_parallel") or 1
    uses_ulysses = context_parallel > 1 and options.of("accelerate", "head_exchange") == "deepspeed"
    ulysses_ranks = options.number("accelerate", "head_ranks")
    for source in ("script", "deepspeed"):
        ulysses_ranks = ulysses_ranks or options.number(source, "context_parallel")
    if (ulysses_ranks or 1) > 1:
        context_parallel, uses_ulysses = ulysses_ranks or 1, True
    settings.values |= {"tensor_parallel": tensor_parallel, "context_parallel": context_parallel}
    if uses_ulysses:
        settings.values["cp_comm_type"] = "a2a"
    # With Ulysses, replicas and shards are DeepSpeed's data-parallel ranks.
    replicas = (not uses_ulysses and options.number("accelerate", "data_parallel_replicas")) or 1
    shards = options.number("accelerate", "shard_size")
    # Axolotl splits experts over separate ranks; shards default to one.
    separate_experts = parse_positive_int(options.texts.get("--expert_parallel_size")) or 1
    if separate_experts > 1:
        shards = shards or 1
    if shards and (separate_experts > 1 or options.of("accelerate", "fsdp_version") == "2"):
        required_gpus = replicas * shards * tensor_parallel * context_parallel * separate_experts
        if num_gpus is not None and num_gpus != required_gpus:
            raise LaunchError(
                f"parallelism_config splits {required_gpus} GPUs (copies {replicas} x "
                f"shards {shards} x tensor {tensor_parallel} x context {context_parallel} "
                "x experts "
                f"{separate_experts}), but {num_gpus} are started: change one of them."
            )
        num_gpus = required_gpus
    if options.texts.get("fsdp_config.fsdp_sharding_strategy") in ("HYBRID_SHARD", "4"):
        replicas = parse_int(options.world.num_nodes) or replicas
    settings.values["data_parallel_replicas"] = replicas
    deepspeed_experts = options.number("deepspeed", "expert_parallel") or parse_positive_int(
        options.texts.get("--ep_size")
    )
    settings.values["expert_parallel"] = deepspeed_experts or separate_experts
    if num_gpus is not None:
        settings.values["num_gpus"] = num_gpus
        if (
            options.texts.get("--device_map") in _DEVICE_MAPS
            and num_gpus > 1 == tensor_parallel * context_parallel
            and not options.has_deepspeed
        ):
            settings.values |= {"layer_split": True, "pipeline_parallel": num_gpus}


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
