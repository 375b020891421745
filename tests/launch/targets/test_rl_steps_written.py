"""Plans of reinforcement learning: written for their programs, and read back from these files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from draws import examples
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st
from round_trip import job_of
from rows import each

from planner.errors import LaunchError
from planner.launch.read.launch_file import LaunchFile
from planner.launch.target import LaunchJob
from planner.launch.targets import target_of
from planner.launch.wrappers import wrapper_of

TARGETS = {
    "verl": "verl",
    "verl-megatron": "verl",
    "openrlhf": "openrlhf",
    "nemo-rl": "nemo-rl",
    "nemo-rl-dtensor": "nemo-rl",
}
STEP = {
    "workload": "rl", "model": "qwen3-8b", "gpu": "h100-sxm", "num_gpus": 16,
    "prompts_per_step": 64, "samples_per_prompt": 8, "input_tokens": 500, "output_tokens": 1000,
    "output_cap": 4000, "output_variation": 0.8, "max_num_seqs": 256,
}  # fmt: skip
NOT_OF_THEM = ("model", "gpu", "framework", "reliability")
"""Answers that a file says in other words."""


def plan(framework: str, settings: dict[str, Any] | None = None, **asked: Any) -> LaunchJob:
    job = job_of(settings=settings or {}, **{**STEP, "framework": framework, **asked})
    assert job is not None
    return job


@st.composite
def plans(draw: st.DrawFn, framework: str) -> LaunchJob:
    """Plans that the rules allow, whether they fit or not."""
    several, flag = st.sampled_from, st.booleans()
    is_split = framework in ("verl-megatron", "nemo-rl")
    has_experts = is_split and draw(flag)
    gpus = draw(several((8, 16, 64)))
    placement = draw(several(("colocated", "async", *PLACEMENTS.get(TARGETS[framework], ()))))
    settings: dict[str, Any] = {
        "placement": placement,
        "rollout_tensor_parallel": draw(several((1, 2, 4))),
        "rollout_gpu_memory": draw(several((0.0, 0.45, 0.7))),
        "recompute": draw(several(("none", "full", *(("selective",) if is_split else ())))),
        "offload": draw(several(("none", "none", "optimizer"))) if is_split else "none",
    }
    if placement == "colocated":
        away = TARGETS[framework] != "nemo-rl"  # which always gives its memory back
        settings |= {"offload_train": not away or draw(flag), "offload_rollout": not away}
        goes_on = TARGETS[framework] == "verl" and draw(flag)
        settings |= {"staleness": 3 * goes_on, "partial_rollout": goes_on}
    else:
        settings["train_gpus"] = draw(several((gpus // 4, gpus // 2)))
        least = 0 if TARGETS[framework] == "verl" else 1
        older = {"async": draw(several((least, 1, 3))), "one_step_off": 1}.get(placement, 0)
        settings["staleness"] = older
        settings["partial_rollout"] = placement == "async" and older > 0 and draw(flag)
    if is_split:
        tensor = draw(several((1, 2, 4)))
        settings |= {
            "tensor_parallel": tensor,
            "pipeline_parallel": draw(several((1, 2))),
            "context_parallel": draw(several((1, 2))),
            "sequence_parallel": tensor > 1 and (has_experts or draw(flag)),
            "expert_parallel": draw(several((1, 4))) if has_experts else 1,
        }
    else:
        has_stages = framework != "nemo-rl-dtensor"
        settings["zero_stage"] = draw(several((2, 3))) if has_stages else 3
        settings["context_parallel"] = draw(several((1, 2))) if has_stages else 1
    asked = {
        "model": "qwen3-30b-a3b" if has_experts else "qwen3-8b",
        "num_gpus": gpus,
        "algorithm": draw(several(("grpo", "rloo"))),
        "reference_model": draw(flag),
        "global_batch_size": draw(several((256, 512))),
        "micro_batch_tokens": draw(several((4608, 8192))),
        "max_steps": draw(several((300, 1000))),
    }
    if TARGETS[framework] == "openrlhf":
        asked["max_num_seqs"] = None
    if TARGETS[framework] == "verl":
        asked |= {"old_logprob": draw(flag), "update_epochs": draw(several((1, 2)))}
        settings["loss_kernel"] = draw(several(("auto", "linear")))
    job = job_of(settings=settings, **{**STEP, "framework": framework, **asked})
    if job is None:
        reject()
    return job


PLACEMENTS = {"verl": ("one_step_off",), "nemo-rl": ("separate",), "openrlhf": ("separate",)}


def written(folder: Path, job: LaunchJob, wrapper: str = "script") -> str:
    """The files of a job in a folder; the text of the one that starts it."""
    target = target_of(TARGETS[job.saved_plan.answers["framework"]])
    files = wrapper_of(wrapper)(target, job, target.make_draft(job))
    for file in files:
        (folder / file.name).write_text(file.text)
    return files[0].text


def read(path: Path) -> LaunchJob:
    """What a written file starts, with the mean of the answers, which none says."""
    asked = {"gpu": "h100-sxm", "output_tokens": "1000", "output_variation": "0.8"}
    request = LaunchFile(path=path, answers=asked, workload="rl").question().request
    found = job_of(**{name: getattr(request, name) for name in request.__dataclass_fields__})
    assert found is not None
    return found


@pytest.mark.few(1)
@pytest.mark.parametrize("framework", TARGETS)
@settings(max_examples=examples(100, 8), suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_what_is_written_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, framework: str, data: st.DataObject
) -> None:
    job = data.draw(plans(framework))
    folder = tmp_path_factory.mktemp("launch")
    try:
        written(folder, job)
    except LaunchError:  # sides that no nodes hold
        reject()
    back = read(folder / "train.sh")
    for told in ("parameters", "answers"):
        was, found = getattr(job.saved_plan, told), getattr(back.saved_plan, told)
        lost = {name for name in was if was[name] != found.get(name)} - {*NOT_OF_THEM}
        assert lost <= {"rollout_gpu_memory"}  # the framework's own, which files spell out
    for name in ("step_time_s", "time_generate_s", "time_sync_s", "peak_memory_gib"):
        assert back.row[name] == pytest.approx(job.row[name])


@each("wrapper", ["script", "slurm", "kubernetes"])
def test_wrappers_start_one_job_of_ray(tmp_path: Path, wrapper: str) -> None:
    """Each node joins it, and the first runs the program."""
    text = written(tmp_path, plan("verl"), wrapper)
    assert "ray symmetric-run --address" in text
    assert "--min-nodes 2 -- " in text
    # Which the engine's memory that is given back cannot have.
    assert "expandable_segments" not in text


def test_one_node_needs_no_ray_around_it(tmp_path: Path) -> None:
    assert "symmetric-run" not in written(tmp_path, plan("verl", num_gpus=8))


@each("wrapper", ["slurm", "kubernetes"])
def test_other_wrappers_are_read_back(tmp_path: Path, wrapper: str) -> None:
    job = plan("nemo-rl", {"placement": "async", "train_gpus": 8, "staleness": 2})
    written(tmp_path, job, wrapper)
    back = read(tmp_path / ("train.yaml" if wrapper == "kubernetes" else "train.sbatch"))
    for name in ("placement", "train_gpus", "staleness", "num_gpus"):
        assert back[name] == job[name]


@each(
    ("framework", "settings", "asked", "words"),
    [
        ("verl", {"placement": "separate"}, {}, "placement=one_step_off"),
        ("verl", {"placement": "async"}, {"algorithm": "dapo"}, "placement=colocated"),
        ("verl", {"zero_stage": 0}, {}, "zero_stage of FSDP 0 .it has 3 and 2"),
        ("verl", {"optimizer": "lion"}, {}, "optimizer lion .it has adam"),
        (
            "verl",
            {"partial_rollout": True, "staleness": 1},
            {"algorithm": "dapo"},
            "partial_rollout=false",
        ),
        ("verl", {"weight_sync": "store"}, {}, "transfers weights by ipc"),
        ("verl", {}, {"critic": True}, "--algorithm ppo"),
        (
            "verl",
            {},
            {"global_batch_size": 32, "samples_per_prompt": 64, "prompts_per_step": 8},
            "nearest: --global-batch-size 64",
        ),
        (
            "verl-megatron",
            {"placement": "async", "train_gpus": 4, "staleness": 1},
            {"num_gpus": 24},
            "nearest: --set train_gpus=8",
        ),
        ("nemo-rl-dtensor", {"context_parallel": 2}, {}, "no sequences of packed answers"),
        ("nemo-rl", {}, {"algorithm": "ppo"}, "grpo, rloo or dapo"),
        ("nemo-rl", {}, {"engine": "sglang"}, "leave --engine out"),
        ("nemo-rl", {}, {"update_epochs": 2}, "update_epochs 2 .it has 1"),
        ("nemo-rl", {"offload_train": False}, {}, "offload_train false .it has true"),
        (
            "nemo-rl",
            {"placement": "async", "train_gpus": 8, "staleness": 1},
            {"algorithm": "dapo"},
            "draws no prompts again",
        ),
        (
            "nemo-rl",
            {},
            {"old_logprob": False, "global_batch_size": 256},
            "--global-batch-size 512",
        ),
        (
            "nemo-rl",
            {"placement": "separate", "train_gpus": 4},
            {},
            "splits only whole nodes; nearest: --set train_gpus=8",
        ),
        ("nemo-rl", {"placement": "async", "train_gpus": 8}, {}, "a step old at least: stal"),
        ("openrlhf", {"placement": "async"}, {}, "a step old at least: staleness=1"),
        ("openrlhf", {"placement": "async"}, {"algorithm": "ppo"}, "placement=colocated"),
        ("openrlhf", {}, {"old_logprob": False}, "old_logprob false .it has true"),
        ("openrlhf", {"rollout_quantization": "fp8"}, {}, "it has w16a16"),
    ],
)
def test_what_a_program_cannot_do_is_refused_with_the_nearest(
    framework: str, settings: dict[str, Any], asked: dict[str, Any], words: str
) -> None:
    job = plan(framework, settings, **asked)
    with pytest.raises(LaunchError, match=words):
        target_of(TARGETS[framework]).make_draft(job)


def test_the_critic_is_split_as_the_policy(tmp_path: Path) -> None:
    settings = {"tensor_parallel": 2, "pipeline_parallel": 2}
    text = written(tmp_path, plan("verl-megatron", settings, algorithm="ppo"))
    assert "critic.megatron.pipeline_model_parallel_size=2" in text
    assert "critic.model.path=Qwen/Qwen3-8B" in text


def test_what_no_option_says_is_told_in_the_file(tmp_path: Path) -> None:
    text = written(tmp_path, plan("openrlhf", reward_time=3.0))
    head = text.partition("set -euo")[0]
    for words in ("output_tokens = 1000", "output_variation = 0.8", "reward_time = 3"):
        assert words in head
