"""The GPUs that a script is started on, and the batches of its steps."""

from __future__ import annotations

from typing import Any

from planner.errors import LaunchError
from planner.launch.trainer.said import Collected, Said, whole
from planner.launch.understood import World

_BATCH = 8


def split_said(said: Said, found: Collected) -> None:
    """GPUs, and the degrees that split model and sequence over them."""
    gpus = _gpus(said)
    tp = said.number("accelerate", "tensor_parallel") or said.number("deepspeed", "tensor_parallel")
    cp = said.number("accelerate", "context_parallel") or said.number(
        "deepspeed", "context_parallel"
    )
    found.values |= {"tensor_parallel": tp or 1, "context_parallel": cp or 1}
    replicas = said.number("accelerate", "data_parallel_replicas") or 1
    shards = said.number("accelerate", "shard_size")
    # Axolotl deals experts to ranks beside the shards.
    apart = whole(said.texts.get("--expert_parallel_size")) or 1
    if shards and said.of("accelerate", "fsdp_version") == "2":
        needed = replicas * shards * (tp or 1) * (cp or 1) * apart
        if gpus is not None and gpus != needed:
            raise LaunchError(
                f"parallelism_config splits {needed} GPUs (copies {replicas} x shards {shards} x "
                f"tensor {tp or 1} x context {cp or 1} x experts {apart}), but {gpus} are started: "
                "change one of them."
            )
        gpus = needed
    if said.texts.get("fsdp_config.fsdp_sharding_strategy") in ("HYBRID_SHARD", "4"):
        replicas = _given_number(said.world.num_nodes) or replicas
    found.values["data_parallel_replicas"] = replicas
    found.values["expert_parallel"] = said.number("deepspeed", "expert_parallel") or apart
    if gpus is not None:
        found.values["num_gpus"] = gpus


def _gpus(said: Said) -> int | None:
    total = _given_number(said.world.num_gpus) or said.number("accelerate", "num_gpus")
    return total or gpus_of(said.world)


def gpus_of(world: World) -> int | None:
    """GPUs that a launcher starts; None where it does not say."""
    if total := _given_number(world.num_gpus):
        return total
    nodes, each = _given_number(world.num_nodes), _given_number(world.gpus_per_node)
    if each is None or (world.num_nodes is not None and nodes is None):
        return None
    return (nodes or 1) * each


def _given_number(given: Any) -> int | None:
    return whole(given.texts[0]) if given is not None and len(given.texts) == 1 else None


def batch_said(said: Said, found: Collected) -> None:
    """Micro-batch, accumulation and global batch, as far as the files tell them."""
    micro = _one_of(said, "micro_batch_size", "train_micro_batch_size_per_gpu")
    steps = _one_of(said, "gradient_accumulation_steps", "gradient_accumulation_steps")
    steps = steps or said.number("accelerate", "deepspeed_accumulation")
    total = said.number("deepspeed", "train_batch_size")
    tp, cp = found.values["tensor_parallel"], found.values["context_parallel"]
    # DeepSpeed counts ranks that split tensors as data parallel ones.
    by_deepspeed = said.of("deepspeed", "tensor_parallel") is not None
    counted = tp if by_deepspeed else 1
    gpus = found.values.get("num_gpus")
    hidden = said.is_hidden("--per_device_train_batch_size", "train_micro_batch_size_per_gpu")
    if gpus is None and total and micro and steps and total % (micro * steps) == 0:
        gpus = found.values["num_gpus"] = total // (micro * steps) * cp * (tp // counted)
    if gpus is None:
        found.ask("num_gpus")
    elif gpus % (tp * cp):
        raise LaunchError(f"{gpus} GPUs cannot be split by {tp} x {cp}: change one of them.")
    ranks = None if gpus is None else gpus // (tp * cp)
    if total and ranks:
        micro, steps = _completed(total, counted * ranks, micro, steps)
    if micro is None and hidden:
        found.ask("micro_batch_size")
    elif micro is None and said.has_script:
        micro = _BATCH
        found.default("micro_batch_size", micro, "no batch is given: 8 is the Trainer's")
    elif micro is None:
        found.ask("micro_batch_size")
    else:
        found.values["micro_batch_size"] = micro
    if total:
        found.values["global_batch_size"] = total // counted
    elif micro and ranks and not said.is_hidden("--gradient_accumulation_steps"):
        found.values["global_batch_size"] = micro * (steps or 1) * ranks
    elif said.is_hidden("--gradient_accumulation_steps"):
        found.ask("global_batch_size")
    if (gpus is None or micro is None) and "global_batch_size" not in found.values:
        found.notes.append(
            f"A step has {micro or 'MICRO-BATCH'} x {steps or 1} sequences for each "
            "data-parallel GPU."
        )


def _one_of(said: Said, parameter: str, key: str) -> int | None:
    """The script's number and that of DeepSpeed's file, which must agree."""
    of_script = said.number("script", parameter)
    of_file = said.number("deepspeed", parameter)
    if of_script and of_file and of_script != of_file:
        raise LaunchError(
            f"{key} is {of_file} in DeepSpeed's file, but --"
            f"{'per_device_train_batch_size' if parameter == 'micro_batch_size' else parameter} "
            f'is {of_script}: the Trainer refuses that. Write "auto" in the file, or the same.'
        )
    return of_file or of_script


def _completed(
    total: int, ranks: int, micro: int | None, steps: int | None
) -> tuple[int | None, int | None]:
    """Micro-batch and accumulation with the one that is missing worked out from the batch."""
    if micro and steps and micro * steps * ranks != total:
        raise LaunchError(
            f"train_batch_size {total} is not micro-batch {micro} x accumulation {steps} x "
            f"{ranks} ranks = {micro * steps * ranks}: DeepSpeed refuses that."
        )
    if total % ranks:
        raise LaunchError(f"train_batch_size {total} cannot be split over {ranks} ranks.")
    if micro is None and steps is not None and total % (ranks * steps) == 0:
        micro = total // (ranks * steps)
    elif micro is None and steps is None:
        micro = total // ranks
    return micro, steps
