"""LMDeploy: ``lmdeploy serve api_server`` and its options, which are read alone.

Defaults are those of lmdeploy/cli/utils.py, lmdeploy/utils.py (`get_max_batch_size`) and, for
ranks of the attention, lmdeploy/pytorch/config.py (`DistConfig`) of InternLM/lmdeploy 0.16.0.
"""

from __future__ import annotations

from planner.launch.served import Drafted, Engine, Told, known_gpu, server_told, whole
from planner.launch.serving import AGGREGATED
from planner.launch.target import Target
from planner.launch.understood import Answers, Reading
from planner.specs.model import ModelSpec

NAME = "lmdeploy"
_COMMAND = ["lmdeploy", "serve", "api_server"]
_MOST = {"a100": 384, "a800": 384, "h100": 1024, "h800": 1024, "h200": 1024}
_UNKNOWN = "h100"


def answers(reading: Reading) -> Answers:
    """The server that a command starts."""
    told = server_told(reading, _ENGINE, AGGREGATED)
    values = told.values
    values["max_num_seqs"] = int(values["concurrency"]) // int(values["attention_data_parallel"])
    if reading.text("--backend") == "pytorch":
        told.notes.append("The PyTorch engine is predicted as TurboMind is.")
    return told.of_pool(AGGREGATED)


def _layout(told: Told, _: ModelSpec | None) -> int:
    """Attention ranks are inside the GPUs of a server, unless there are more of them."""
    tp, ranks = told.count("tensor_parallel"), told.count("attention_data_parallel")
    experts = told.count("expert_parallel")
    world = experts if experts > 1 and ranks > 1 else tp
    copies = 1
    if world % ranks:
        copies, ranks = ranks, 1
    told.values.update(
        tensor_parallel=world // ranks,
        pipeline_parallel=1,
        attention_data_parallel=ranks,
        expert_parallel=experts,
    )
    told.put_gpus(world * copies)
    return ranks


def _batch(told: Told, model: ModelSpec | None, ranks: int) -> None:
    """The requests of a step that follow from the GPU."""
    if told.reading.value("max_num_seqs") is not None:
        return
    gpu = known_gpu(told.reading.found.world.gpu)
    name = _UNKNOWN if gpu is None else gpu.name.lower()
    most = next((number for kind, number in _MOST.items() if kind in name), None)
    if most is not None:
        why = f"--max-batch-size is {most:,} by default on {name.split('-')[0].upper()}"
        told.assume("concurrency", most * ranks, why)


def _drafts(reading: Reading) -> Drafted | None:
    if not reading.has("--speculative-algorithm"):
        return None
    return Drafted(
        number=whole(reading.value("draft_tokens")) or 1,
        method=reading.text("--speculative-algorithm") or "",
        path=reading.text("--speculative-draft-model") or "",
    )


_ENGINE = Engine(
    name=NAME,
    model_options=(),
    programs=(*_COMMAND,),
    layout=_layout,
    batch=_batch,
    drafts=_drafts,
    switches=("--adapters",),
)

TARGET = Target.of("lmdeploy", answers=answers)
