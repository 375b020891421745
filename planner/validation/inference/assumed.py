"""What was assumed for a run of inference because its row leaves it open, in words."""

from __future__ import annotations

from collections.abc import Iterator

from planner.base.enums import CacheType
from planner.validation.inference.cases import InferenceCase, Mode
from planner.validation.runs import Run


def inference_choices(run: Run, case: InferenceCase) -> Iterator[str]:
    """The choices that are made for runs of inference alone, one text each."""
    yield from _formats(run, case)
    yield from _layout(run, case)
    yield from _traffic(run, case)


def _formats(run: Run, case: InferenceCase) -> Iterator[str]:
    if not run.text("weight_precision") and not run.text("gemm_precision"):
        yield f"weight_precision: {case.replica.quantization.word}"
    if case.kind == "moe" and case.replica.expert_quantization != case.replica.quantization:
        yield f"experts in {case.replica.expert_quantization.word}"
    if not run.text("kv_cache_precision"):
        replica = case.replica
        narrow = replica.narrow_cache and replica.kv_cache is not CacheType.FP8
        otherwise = ", or fp8 where that lacks room" if narrow else ""
        yield f"kv_cache_precision: {replica.kv_cache.word}{otherwise}"


def _layout(run: Run, case: InferenceCase) -> Iterator[str]:
    pool = "decode_" if run.text("decode_tensor_parallel") else ""
    if not run.text(f"{pool}tensor_parallel"):
        yield f"tensor_parallel {case.replica.tensor_parallel}"
    if case.mode is Mode.DISAGGREGATED and not run.text("prefill_num_workers"):
        yield "as many prefill workers as keep up"


def _traffic(run: Run, case: InferenceCase) -> Iterator[str]:
    if not run.text("framework_version"):
        yield f"framework_version of {case.rule.profile}"
    if not run.text("mode"):
        yield f"mode {case.mode.value}"
    for name in ("input_tokens", "output_tokens"):
        if not run.text(name):
            yield f"{name} {getattr(case.traffic, name):g}"
    if case.mode is Mode.STATIC and not (
        run.number("concurrency") or run.text("engine_batch_size")
    ):
        yield "concurrency 1"
    unbounded = case.traffic.concurrency is None and case.traffic.request_rate is None
    if case.mode is Mode.ONLINE and unbounded:
        yield "concurrency: the fastest that there is room for"
