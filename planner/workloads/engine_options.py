"""What a request tells an engine, in its profile."""

from __future__ import annotations

from dataclasses import replace

from planner.errors import SpecError
from planner.estimators.inference.setting import ServingSetting
from planner.question.request import Request
from planner.specs.engine import EngineProfile


def with_options(engine: EngineProfile, request: Request) -> EngineProfile:
    """The engine told how many sequences to run at once, and to capture no graphs of decoding.

    Raises
    ------
    SpecError
        Copies of experts are asked of an engine that has none.
    """
    if request.redundant_experts and not engine.redundant_experts:
        raise SpecError(
            f"{engine.name} has no redundant experts: leave out --redundant-experts, or name "
            "an engine that does (vllm, sglang, tensorrt-llm)."
        )
    if request.max_num_seqs is not None:
        engine = limited(engine, request.max_num_seqs)
    return eager(engine) if request.enforce_eager else engine


def limited(engine: EngineProfile, max_num_seqs: int) -> EngineProfile:
    """The engine with a number of sequences of its own, which it also samples at its start."""
    memory = engine.memory
    if memory.profiled_seqs:
        memory = replace(memory, profiled_seqs=max_num_seqs, profiled_seqs_small=0, told_seqs=True)
    scheduler = replace(engine.scheduler, max_num_seqs=max_num_seqs)
    return replace(engine, scheduler=scheduler, memory=memory)


def told_at(setting: ServingSetting, max_num_seqs: int, concurrency: int) -> ServingSetting:
    """The setting whose engine is told a number with so many requests at once, and with any other
    number of requests as many sequences as these are."""
    engine = limited(setting.engine, max_num_seqs)
    engine = replace(engine, scheduler=setting.engine.scheduler)
    return replace(setting, engine=engine, told_at=concurrency)


def eager(engine: EngineProfile) -> EngineProfile:
    """The engine whose host launches the kernels of every step one by one."""
    e, alone = engine.execution, engine.without_graphs
    layer, routing = e.prefill_launch_time, 0.0
    if alone is not None:
        layer, routing = alone.layer_launch_time, alone.expert_launch_time
    execution = replace(
        e,
        decode_launch_time=max(e.decode_launch_time, layer),
        prefill_launch_time=max(e.prefill_launch_time, layer),
        decode_expert_launch_time=max(e.decode_expert_launch_time, routing),
        expert_launch_time=max(e.expert_launch_time, routing),
        network_callback_time=0.0,
    )
    return replace(engine, execution=execution)
