"""Megatron-LM: ``pretrain_gpt.py`` and its arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from planner.errors import LaunchError
from planner.estimators.stages import chunk_split
from planner.launch.job import Job
from planner.launch.option_table import Settings
from planner.launch.shape import shape_of
from planner.launch.target import Argument, Draft, Process, Target, Variable
from planner.launch.understood import Answers, Reading

_PROGRAM = "pretrain_gpt.py"
_DATA = Variable(name="DATA_PATH", meaning="prefix of the preprocessed data set")
_TOKENIZER = Variable(name="TOKENIZER_MODEL", meaning="ORG/NAME or folder of the tokenizer")


def _quantities(job: Job) -> Mapping[str, Any]:
    pp, vp = int(job["pipeline_parallel"]), int(job["virtual_pipeline"])
    return {
        **job.pinned.parameters,
        **_split(job, pp, vp),
        "sequence_length": job["sequence_length"],
        "max_position_embeddings": job["sequence_length"],
        "expert_tensor_parallel": 1
        if job.model.num_experts and job["tensor_parallel"] > 1
        else None,
        "mtp_num_layers": job["mtp_num_layers"] or 0,
        "dropout": 0.1 if job["dropout"] else 0.0,
        "adapter": job["adapter"],
        "recompute_method": _recompute_method(job),
        "recompute_layers": _recompute_layers(job),
    }


def _split(job: Job, pp: int, vp: int) -> dict[str, Any]:
    """How the layers are dealt to the stages, as it was priced."""
    sizes = chunk_split(job.model, pp, vp)
    if len(set(sizes)) == 1:
        return {}
    most = max(sizes)
    inner = set(sizes[1:-1]) or {most}
    if inner == {most} and sizes[0] >= most - 1 and sizes[-1] >= most - 1:
        return {"embedding_in_split": sizes[0] < most, "loss_in_split": sizes[-1] < most}
    later = int(job["mtp_num_layers"] or 0)
    chunks = ["t" * size for size in sizes]
    chunks[0] = "E" + chunks[0]
    chunks[-1] = chunks[-1][: len(chunks[-1]) - later] + "m" * later + "L"
    return {"pipeline_layout": "|".join(chunks)}


def _splits_more_than_experts(job: Job) -> bool:
    return bool(job.model.num_experts) and bool(job["tensor_parallel"] > 1)


def _recompute_method(job: Job) -> str | None:
    if job["recompute"] != "full":
        return None
    return "block" if job["recompute_num_layers"] else "uniform"


def _recompute_layers(job: Job) -> int | None:
    if job["recompute"] != "full":
        return None
    layers = int(job["recompute_num_layers"] or 0)
    return max(layers // int(job["virtual_pipeline"]), 1) if layers else 1


def _draft(job: Job, settings: Settings) -> Draft:
    job.require_even_nodes()
    shape_of(job.model)
    arguments = [Argument(words=(_PROGRAM,)), *map(Argument.of, settings.options)]
    arguments.append(Argument(words=("--data-path", _DATA)))
    arguments.append(Argument(words=("--tokenizer-model", _TOKENIZER)))
    process = Process(
        name="train",
        launcher="torchrun",
        arguments=tuple(arguments),
        num_nodes=job.num_nodes,
        gpus_per_node=job.gpus_per_node,
        environment={"CUDA_DEVICE_MAX_CONNECTIONS": "1"},
    )
    return Draft(processes=(process,))


def _answers(reading: Reading) -> Answers:
    values = {name: meaning.value for name, meaning in reading.meanings.items() if meaning.options}
    raise LaunchError(f"Not yet read: {values}.")


def _starts(words: Sequence[str]) -> bool:
    return any(word.endswith((_PROGRAM, "pretrain_mamba.py")) for word in words[:3])


TARGET = Target(
    name="megatron-lm",
    title="Megatron-LM",
    version="megatron-core 0.19.2",
    workloads=("train",),
    profiles=("Megatron-LM",),
    quantities=_quantities,
    draft=_draft,
    answers=_answers,
    starts=_starts,
    accepted=("megatron-lm-0.19.2",),
    aliases=("megatron", "megatron-core", "mcore"),
)
