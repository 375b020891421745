"""Every file that is written for a plan is read back as the same plan."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from round_trip import job_of, lost

from planner.errors import LaunchError, PlannerError
from planner.launch.read.parsed_launch import LaunchSettings
from planner.launch.read.read_launch import read_launch
from planner.launch.target import LaunchJob, LaunchOutputFile, LaunchTarget
from planner.launch.targets import targets
from planner.launch.wrappers import wrapper_of
from planner.launch.write.write_launch import (
    WrittenLaunch,
    make_launch,
    restrict_to_target,
    save_launch,
)
from planner.question.request import Request
from planner.show.presenters.plan_report import recommended_of
from planner.specs.catalogue import Catalogue
from planner.specs.spec_paths import SpecKind, names
from planner.workloads.registry import workload_of
from planner.workloads.saved_plan import PLAN_FILE

MODELS = sorted(names(SpecKind.MODELS))
SIZES = (8, 64, 256)
TARGETS = sorted(targets())
DRAWN = 40
"""Plans of a test, of which many are impossible and skipped at once."""


@cache
def models_with_later_tokens() -> tuple[str, ...]:
    """All models with experts and modules of multi-token prediction."""
    specs = {name: Catalogue(None).load_model(name) for name in MODELS}
    return tuple(
        name
        for name, spec in specs.items()
        if spec.num_experts and (spec.mtp_num_layers or spec.num_nextn_predict_layers)
    )


def _training(draw: random.Random, framework: str, model: str, gpus: int) -> dict[str, Any]:
    tp = draw.choice((1, 1, 2, 4, 8))
    settings = {
        "tensor_parallel": tp,
        "sequence_parallel": tp > 1,
        "pipeline_parallel": draw.choice((1, 2, 4, 8, 16, 32)),
        "virtual_pipeline": draw.choice((1, 1, 2)),
        "expert_parallel": draw.choice((1, 4, 8)),
        "micro_batch_size": draw.choice((1, 2)),
        "recompute": draw.choice(("none", "selective", "full")),
        "zero_stage": draw.choice((0, 1, 2, 3)),
        "precision": draw.choice(("bf16", "bf16", "fp8", "fp16")),
    }
    if settings["pipeline_parallel"] == 1:
        settings["virtual_pipeline"] = 1
    some = {name: value for name, value in settings.items() if draw.random() < 0.7}
    if "tensor_parallel" not in some:
        some.pop("sequence_parallel", None)
    return {
        "workload": "train", "framework": framework, "model": model, "num_gpus": gpus,
        "global_batch_size": 8 * gpus, "sequence_length": 1024, "settings": some,
    }  # fmt: skip


def _serving(draw: random.Random, engine: str, model: str, gpus: int) -> dict[str, Any]:
    settings = {
        "tensor_parallel": draw.choice((1, 2, 4, 8)),
        "pipeline_parallel": draw.choice((1, 2, 4)),
        "attention_data_parallel": draw.choice((1, 1, 2)),
        "expert_parallel": draw.choice((1, 2, 8)),
        "quantization": draw.choice(("w16a16", "fp8", "w4a16", "q4_k_m", "mxfp4")),
        "kv_cache": draw.choice(("bf16", "fp8", "int8")),
        "concurrency": draw.choice((4, 64)),
    }
    some = {name: value for name, value in settings.items() if draw.random() < 0.5}
    return {
        "engine": engine, "model": model, "num_gpus": max(gpus // 16, 1), "input_tokens": 500,
        "output_tokens": 300, "settings": some,
    }  # fmt: skip


def _plans(target: LaunchTarget, draw: random.Random) -> Iterator[LaunchJob]:
    """Plans of a target that the rules allow, whether they fit or not."""
    workload = draw.choice(target.workloads)
    for number in range(DRAWN):
        several = models_with_later_tokens() if number % 3 == 0 else MODELS
        model, gpus = draw.choice(several), draw.choice(SIZES)
        profile = draw.choice(target.profiles or target.nearest)
        if workload == "train":
            asked = _training(draw, profile, model, gpus)
        elif workload == "rl":
            asked = {
                "workload": "rl", "framework": profile, "model": model, "num_gpus": gpus,
                "prompts_per_step": 64, "samples_per_prompt": 16, "output_tokens": 300,
            }  # fmt: skip
        else:
            asked = {"workload": workload, **_serving(draw, profile, model, gpus)}
        made = job_of(gpu=draw.choice(("h100", "a100", "b200", "l40s")), **asked)
        if made is not None:
            yield made


def _read_back(target: LaunchTarget, job: LaunchJob, folder: Path) -> LaunchSettings | None:
    """What the files of a plan say; None where the target refuses the plan with a reason."""
    try:
        draft = target.make_draft(job)
    except LaunchError:
        return None
    files = wrapper_of("script")(target, job, draft)
    plan = LaunchOutputFile(name=PLAN_FILE, text=job.saved_plan.to_toml())
    save_launch(
        folder,
        WrittenLaunch(target=target, wrapper="script", job=job, draft=draft, files=(*files, plan)),
    )
    imported = read_launch(folder / next(file.name for file in files if file.start))
    return LaunchSettings(workload=job.workload, values=imported.values)


_OF_CHECKPOINT = {
    f"{pool}{name}" for pool in ("", "prefill_") for name in ("quantization", "expert_quantization")
}


@pytest.mark.few(1)
@pytest.mark.parametrize("part", range(4))
@pytest.mark.parametrize("name", TARGETS)
def test_a_plan_is_read_back_from_its_files(
    name: str, part: int, seed: int, tmp_path: Path
) -> None:
    target = targets()[name]
    draw = random.Random(f"{seed} {name} {part}")
    for number, job in enumerate(_plans(target, draw)):
        folder = tmp_path / str(number)
        found = _read_back(target, job, folder)
        if found is None:
            continue
        told = {remark.parameter for remark in target.make_draft(job).unexpressed}
        wrong = lost(target, job, found)
        if any("checkpoint" in one for one in told):
            wrong = {one: pair for one, pair in wrong.items() if one not in _OF_CHECKPOINT}
        # What the framework decides is read as what it decides.
        wrong = {one: pair for one, pair in wrong.items() if pair[0] != "auto"}
        assert not wrong, (job.model.name, job.gpu.name, job.saved_plan.parameters, wrong)


@pytest.mark.parametrize("cache", ["bf16", "fp8"])
@pytest.mark.parametrize("engine", ["sglang", "tensorrt-llm", "vllm"])
def test_the_cache_of_compressed_attention_is_read_back(engine, cache, tmp_path):
    """vLLM and SGLang keep it in 8 bit unless told otherwise."""
    job = job_of(
        workload="serve", engine=engine, model="deepseek-v4-flash", gpu="b200", num_gpus=4,
        input_tokens=500, output_tokens=300,
        settings={"tensor_parallel": 4, "kv_cache": cache, "concurrency": 4},
    )  # fmt: skip
    assert job is not None
    found = _read_back(targets()[engine], job, tmp_path)
    assert found is not None
    assert found.values["kv_cache"] == cache


@pytest.mark.few(1)
@pytest.mark.parametrize("part", range(4))
@pytest.mark.parametrize("name", TARGETS)
def test_what_a_search_for_a_target_recommends_is_written(
    name: str, part: int, seed: int, tmp_path: Path
) -> None:
    """Refused are models alone, never a layout or a format."""
    target = targets()[name]
    draw = random.Random(f"{seed} {name} {part} searched")
    for _ in range(3):
        workload = draw.choice(target.workloads)
        gpus = draw.choice(SIZES)
        request = Request(
            workload=workload,
            model=draw.choice(MODELS),
            gpu=draw.choice(("h100", "a100", "b200", "mi300x")),
            num_gpus=gpus if workload in ("train", "rl") else max(gpus // 16, 1),
            global_batch_size=512 if workload == "train" else None,
            sequence_length=1024 if workload == "train" else None,
        )
        try:
            plan = recommended_of(restrict_to_target(request, name))
        except PlannerError:
            continue
        reason = _refusal(make_launch, plan.request(), name, "script")
        assert not reason or _refuses_model(target, request), (request, plan.parameters, reason)


def _refusal(write: Callable[..., object], *arguments: object) -> str:
    """Why a target refuses to write a plan; empty where it writes it."""
    try:
        write(*arguments)
    except LaunchError as error:
        return str(error)
    return ""


def _refuses_model(target: LaunchTarget, request: Request) -> bool:
    """Whether a target refuses even the simplest plan of a model."""
    profile = (target.profiles or target.nearest)[0]
    kind = workload_of(request.workload).profile_kind
    alone = job_of(
        workload=request.workload, model=request.model, num_gpus=1,
        **{kind: profile},
    )  # fmt: skip
    return alone is None or bool(_refusal(target.make_draft, alone))
