"""Megatron-Bridge, TensorRT-LLM, Dynamo, ms-swift and verl, by what starts them."""

from __future__ import annotations

from pathlib import Path

import pytest

from planner.errors import LaunchError
from planner.launch.read.import_launch import ImportedLaunch
from planner.launch.read.incomplete import undecided_options
from planner.launch.read.read_launch import read_launch


def _read(folder: Path, files: dict[str, str]) -> ImportedLaunch:
    for name, text in files.items():
        (folder / name).write_text(text)
    return read_launch(folder / next(iter(files)))


def _rollout(context: int) -> str:
    return (
        "python3 -m verl.trainer.main_ppo actor_rollout_ref.model.path=Qwen/Qwen3-8B"
        " data.max_prompt_length=700 data.max_response_length=900 trainer.n_gpus_per_node=8"
        " actor_rollout_ref.rollout.name=vllm algorithm.adv_estimator=grpo data.train_batch_size=8"
        f" actor_rollout_ref.rollout.n=4 actor_rollout_ref.rollout.max_model_len={context}\n"
    )


@pytest.mark.parametrize(("context", "is_named"), [(1600, False), (1500, True)])
def test_a_context_that_cuts_answers_is_named(context: int, is_named: bool, tmp_path: Path) -> None:
    launch = _read(tmp_path, {"run.sh": _rollout(context)})

    assert any("max_model_len" in name for name in undecided_options(launch)) == is_named


def test_a_worker_beside_one_of_prompts_decodes(tmp_path: Path) -> None:
    worker = "python3 -m dynamo.vllm --model Qwen/Qwen3-8B"
    launch = _read(tmp_path, {"run.sh": f"{worker} &\n{worker} --is-prefill-worker &\n"})

    assert launch.values["mode"] == "disaggregated"
    assert launch.values["replicas"] == launch.values["prefill_replicas"] == 1


def test_a_function_may_run_an_engine(tmp_path: Path) -> None:
    bench = "trtllm-bench --model Qwen/Qwen3-8B throughput --dataset d --tp 2"
    text = f'C="{bench}"\nrun_and_log log.txt env CUDA_VISIBLE_DEVICES=0,1 $C\n'
    values = _read(tmp_path, {"run.sh": text}).values

    assert (values["model"], values["tensor_parallel"]) == ("Qwen/Qwen3-8B", 2)


def test_a_program_that_works_out_a_batch_trains_nothing(tmp_path: Path) -> None:
    options = "--batch_size 8 --gradient_accumulation_steps 2 --world_size 4"
    with pytest.raises(LaunchError, match="starts nothing"):
        _read(tmp_path, {"run.sh": f"python config.py {options}\n"})
    assert _read(tmp_path, {"run.sh": f"python run.py {options} --max_steps 9\n"}).values


BRIDGE = """
from megatron.bridge.recipes.llama import llama32_1b_pretrain_config
from megatron.bridge.training.pretrain import pretrain
config = llama32_1b_pretrain_config()
config.train.global_batch_size = 24
{overrides}
pretrain(config=config)
"""


def test_a_program_of_bridge_has_its_recipe_and_changes(tmp_path: Path) -> None:
    plain = _read(tmp_path, {"a.py": BRIDGE.format(overrides="")})
    overridden = BRIDGE.format(overrides="config = process_config_with_overrides(config)")
    unknown = undecided_options(_read(tmp_path, {"b.py": overridden}))

    assert plain.values["model"] == "llama-3.2-1b"
    assert int(plain.values["global_batch_size"]) == 24
    assert not undecided_options(plain)
    assert unknown == ["the overrides that the program reads"]


@pytest.mark.parametrize(("variables", "gpus"), [("", 1), ("NPROC_PER_NODE=2", 2)])
def test_swift_without_processes_starts_one(variables: str, gpus: int, tmp_path: Path) -> None:
    command = "swift sft --model Qwen/Qwen3-8B --train_type lora --per_device_train_batch_size 2"

    assert _read(tmp_path, {"run.sh": f"{variables} {command}\n"}).values["num_gpus"] == gpus
