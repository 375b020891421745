"""Torchtitan: a configuration function with dotted overrides."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from planner.errors import LaunchError
from planner.estimators.stages import chunk_split
from planner.launch.benchmark import measured
from planner.launch.config_json import without_modules
from planner.launch.job import Job
from planner.launch.option_table import Remark, Settings
from planner.launch.target import Argument, Draft, File, Process, Target, Variable
from planner.launch.targets.torchtitan_models import MODULE, function_of, own_config, shipped
from planner.launch.targets.torchtitan_read import answers, is_of, starts
from planner.launch.trainer.writing import require_even_copies

_ASSETS = Variable(name="HF_ASSETS_PATH", meaning="folder of the tokenizer, and of weights if any")
_DATASET = Variable(name="DATASET", meaning="a data set that torchtitan knows", default="c4")
_OUTPUT = Variable(
    name="OUTPUT_DIR", meaning="where checkpoints and logs go", default="outputs", is_output=True
)
_SUBCOMMAND = "activation-checkpoint:"


def _quantities(job: Job) -> Mapping[str, Any]:
    dp, stage = job.data_parallel, int(job["zero_stage"])
    copies = _copies(job)
    pp, micro = int(job["pipeline_parallel"]), int(job["micro_batch_size"])
    precision = job["precision"]
    found = shipped(job.model)
    has_own = _needs_own(job)
    return {
        **{name: value for name, value in job.pinned.parameters.items() if name not in _OTHERWISE},
        "module": MODULE if has_own or found is None else found.module,
        "config": function_of(job) if has_own or found is None else found.config,
        **(_pipeline(job) if pp > 1 else {}),
        "replicas": copies,
        "shards": dp // copies,
        "zero_stage": stage,
        "local_batch": micro * (job["global_batch_size"] // (micro * dp) if pp > 1 else 1),
        "micro_in_pipeline": micro if pp > 1 else None,
        "sequence_length": job["sequence_length"],
        "training_steps": job.training_steps,
        "precision": None if precision in ("fp8", "fp4") else precision,
        "precision_in_16": True if precision not in ("bf16", "tf32", "fp32") else None,
        "sequence_parallel": job["sequence_parallel"] if job["tensor_parallel"] > 1 else None,
        "adapter": job["adapter"],
        "dropout": job["dropout"],
        "mtp_num_layers": job["mtp_num_layers"],
        "compiled": True,
        "no_graphs": True if pp > 1 or job["expert_parallel"] > 1 else None,
    }


_OTHERWISE = ("data_parallel_replicas", "virtual_pipeline", "micro_batch_size")


def _needs_own(job: Job) -> bool:
    """Whether overrides of a shipped function cannot say the plan."""
    found = shipped(job.model)
    is_plain = job["precision"] not in ("fp8", "fp4") and found is not None and found.config
    return not is_plain or _parts(job) is not None


def _pipeline(job: Job) -> dict[str, Any]:
    """Schedule and split of the layers; the plan's own function has a split that has no words."""
    schedule = "Interleaved1F1B" if job["virtual_pipeline"] > 1 else "1F1B"
    return {"schedule": schedule, **(_split_words(job) or {})}


def _sizes(job: Job) -> list[int]:
    """Layers of each stage as torchtitan counts stages: chunks of ours."""
    pp, vp = int(job["pipeline_parallel"]), int(job["virtual_pipeline"])
    return chunk_split(without_modules(job.model), pp, vp)


def _split_words(job: Job) -> dict[str, int] | None:
    """The options whose split is the one that was priced; None where none is."""
    sizes = _sizes(job)
    layers, stages = sum(sizes), len(sizes)
    for first, last in ((0, 0), (1, 1), (1, 0), (0, 1)):
        each = math.ceil((layers + first + last) / stages)
        is_counted = math.ceil((layers + first + last) / each) == stages
        if is_counted and dealt(layers, stages, first, last) == sizes:
            return {"layers_per_stage": each, "first_less": first, "last_less": last}
    return None


def dealt(layers: int, stages: int, first: int, last: int) -> list[int]:
    """Layers of each stage as torchtitan deals them; empty where it refuses to.

    >>> dealt(10, 4, 1, 1)
    [2, 3, 3, 2]
    """
    least, more = divmod(layers + first + last, stages)
    if least < max(first, last, 1):
        return []
    sizes = [least + (stage < more) for stage in range(stages)]
    sizes[0] -= first
    sizes[-1] -= last
    return sizes


def _parts(job: Job) -> list[list[str]] | None:
    """The modules of each stage, where no option says the split that was priced."""
    if job["pipeline_parallel"] == 1 or _split_words(job) is not None:
        return None
    parts: list[list[str]] = []
    done = 0
    for size in _sizes(job):
        parts.append([f"layers.{layer}" for layer in range(done, done + size)])
        done += size
    parts[0].insert(0, "tok_embeddings")
    parts[-1] += ["norm", "lm_head"]
    return parts


def _draft(job: Job, settings: Settings) -> Draft:
    job.require_even_nodes()
    require_even_copies(job)
    _require_experts(job)
    own = own_config(job, _parts(job)) if _needs_own(job) else ""
    files = (File(name=f"{MODULE}.py", text=own, meaning="the model's configuration"),)
    options = [each for each in settings.options if not each.option.startswith(_SUBCOMMAND)]
    last = [each for each in settings.options if each.option.startswith(_SUBCOMMAND)]
    arguments = (
        Argument(words=("-m", "torchtitan.train")),
        *map(Argument.of, options),
        Argument(words=("--hf_assets_path", _ASSETS)),
        Argument(words=("--dataloader.dataset", _DATASET)),
        Argument(words=("--dump_folder", _OUTPUT)),
        Argument(words=("--metrics.log_freq", "1")),
        Argument(words=("--checkpoint.enable",)),
        # A subcommand of the parser: nothing may follow it.
        *map(Argument.of, last),
    )
    process = Process(
        name="train",
        launcher="torchrun",
        arguments=arguments,
        num_nodes=job.num_nodes,
        gpus_per_node=job.gpus_per_node,
    )
    return Draft(
        processes=(process,),
        files=files if own else (),
        unexpressed=_beside_context(job),
        benchmark=(measured(process, "torchtitan", num_last=len(last)),),
    )


def _beside_context(job: Job) -> tuple[Remark, ...]:
    if job["zero_stage"] or job["context_parallel"] == 1:
        return ()
    note = "ranks that split sequences always share the shards of the weights"
    return (Remark(parameter="zero_stage", value="0", note=note),)


def _require_experts(job: Job) -> None:
    """Experts are dealt over the ranks that share what is sharded, tensors and sequences."""
    shards = job.data_parallel // _copies(job)
    ranks = shards * job["context_parallel"] * job["tensor_parallel"]
    if ranks % job["expert_parallel"]:
        raise LaunchError(
            f"torchtitan splits experts over the {ranks} GPUs of a copy and a stage "
            f"(shards {shards} x context x tensor), not over {job['expert_parallel']}: plan with "
            "a ZeRO stage, fewer copies or less expert parallelism, or choose another target."
        )


def _copies(job: Job) -> int:
    return int(job["data_parallel_replicas"]) if job["zero_stage"] else job.data_parallel


TARGET = Target(
    name="torchtitan",
    title="torchtitan",
    version="torchtitan 0.3.0",
    workloads=("train",),
    profiles=("torchtitan",),
    quantities=_quantities,
    draft=_draft,
    answers=answers,
    starts=starts,
    is_of=is_of,
    accepted=("torchtitan-0.3.0",),
    aliases=("titan",),
)
