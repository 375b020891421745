"""What launch files of the Trainer's family train: preferences, rewards, or what is not read."""

from pathlib import Path

import pytest

from planner.errors import LaunchError, SpecError
from planner.launch.read.read_launch import read_launch
from planner.launch.write.write_launch import make_launch
from planner.question.request import Request

_BATCH = "--model_name_or_path Qwen/Qwen2.5-7B-Instruct --per_device_train_batch_size 2"
_FACTORY = "model_name_or_path: Qwen/Qwen2.5-7B\ncutoff_len: 2048\nper_device_train_batch_size: 1\n"
_AXOLOTL = "base_model: mistralai/Mistral-7B-v0.1\nsequence_len: 2048\nmicro_batch_size: 2\n"


def read(folder: Path, name: str, text: str) -> dict[str, object]:
    (folder / name).write_text(text)
    return dict(read_launch(folder / name).values)


@pytest.mark.parametrize(
    ("name", "text", "objective"),
    [
        ("run.sh", f"trl sft {_BATCH}", "sft"),
        ("run.sh", f"trl dpo {_BATCH}", "dpo"),
        ("run.sh", f"trl reward {_BATCH}", "rm"),
        ("run.sh", f"accelerate launch -m trl.scripts.kto {_BATCH}", "kto"),
        ("run.sh", f"torchrun --nproc-per-node 8 scripts/run_orpo.py {_BATCH}", "orpo"),
        ("run.sh", f"torchrun --nproc-per-node 8 train.py {_BATCH}", "sft"),
        ("run.sh", f"accelerate launch dpo.py {_BATCH} --loss_type ipo", "dpo"),
        ("lf.yaml", f"{_FACTORY}stage: sft\n", "sft"),
        ("lf.yaml", f"{_FACTORY}stage: dpo\npref_loss: sigmoid\n", "dpo"),
        ("lf.yaml", f"{_FACTORY}stage: dpo\npref_loss: simpo\n", "orpo"),
        ("lf.yaml", f"{_FACTORY}stage: rm\n", "rm"),
        ("lf.yaml", f"{_FACTORY}stage: kto\n", "kto"),
        ("ax.yml", _AXOLOTL, "sft"),
        ("ax.yml", f"{_AXOLOTL}rl: ipo\n", "dpo"),
        ("ax.yml", f"{_AXOLOTL}rl: true\n", "dpo"),  # as in axolotl issue 1108
        ("ax.yml", f"{_AXOLOTL}rl: orpo\n", "orpo"),
        ("ax.yml", f"{_AXOLOTL}reward_model: true\n", "rm"),
        ("run.sh", f"trl grpo {_BATCH} --use_vllm True", "dapo"),
        ("run.sh", f"trl grpo {_BATCH} --beta 0.04", "grpo"),
        ("run.sh", f"accelerate launch -m trl.scripts.rloo {_BATCH}", "grpo"),
        ("run.sh", "swift rlhf --rlhf_type grpo --model Qwen/Qwen2.5-7B-Instruct", "grpo"),
        ("lf.yaml", f"{_FACTORY}stage: ppo\n", "grpo"),
        ("lf.yaml", f"{_FACTORY}stage: ppo\nreward_model: out/rm\n", "grpo"),
        ("ax.yml", f"{_AXOLOTL}rl: grpo\n", "dapo"),
    ],
)
def test_the_objective_of_a_file(tmp_path: Path, name: str, text: str, objective: str) -> None:
    assert read(tmp_path, name, text)["training_objective"] == objective


def test_a_model_without_weights_is_pre_trained(tmp_path: Path) -> None:
    text = "run_clm.py --config_name config.json --per_device_train_batch_size 2 --block_size 1024"
    assert "training_objective" not in read(tmp_path, "run.sh", f"python {text}")


def test_tokens_of_pairs_are_those_of_both(tmp_path: Path) -> None:
    """100 steps x 2 x 8 pairs x 2 sequences x 1,024 tokens."""
    more = "--max_steps 100 --max_length 1024 --precompute_ref_log_probs True"
    found = read(
        tmp_path, "run.sh", f"torchrun --nproc-per-node 8 -m trl.scripts.dpo {_BATCH} {more}"
    )
    assert found["total_tokens"] == 100 * 16 * 2 * 1024
    assert found["precompute_ref_log_probs"] is True


@pytest.mark.parametrize(
    ("name", "text", "length"),
    [
        ("run.sh", f"trl grpo {_BATCH} --max_completion_length 2048", 512 + 2048),
        ("run.sh", f"trl grpo {_BATCH} --max_prompt_length 1024", 1024 + 256),
        ("run.sh", "swift rlhf --rlhf_type grpo --model Qwen/Qwen2.5-7B --max_length 1024", 1536),
        ("lf.yaml", f"{_FACTORY}stage: ppo\nmax_new_tokens: 512\n", 2048 + 512),
        ("ax.yml", f"{_AXOLOTL}rl: grpo\ntrl:\n  max_completion_length: 512\n", 2048 + 512),
    ],
)
def test_a_sequence_on_rollouts_is_a_prompt_and_its_answer(
    tmp_path: Path, name: str, text: str, length: int
) -> None:
    """Defaults: TRL 0.26, prompts of 512 and answers of 256 tokens; ms-swift, answers of 512."""
    assert read(tmp_path, name, text)["sequence_length"] == length


def test_pairs_that_are_generated_are_refused_when_they_are_read(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="rollouts") as caught:
        read(tmp_path, "run.sh", f"swift rlhf --rlhf_type xpo {_BATCH}")
    assert caught.value.exit_code == 2
    assert "run.sh" in str(caught.value)


def test_no_file_of_preferences_is_written() -> None:
    request = Request(
        model="llama-7b",
        num_gpus=8,
        gpu="h100",
        framework="deepspeed",
        training_objective="dpo",
        sequence_length=2048,
        global_batch_size=8,
        settings={"zero_stage": 3, "recompute": "full"},
    )
    with pytest.raises(LaunchError, match="No launch file of dpo is written"):
        make_launch(request, "deepspeed", "script")


@pytest.mark.parametrize(
    ("folder", "program", "objective"),
    [
        ("step2_dpo_finetuning", "main.py", "dpo"),
        ("step2_reward_model_finetuning", "main.py", "rm"),
        ("step1_supervised_finetuning", "main.py", "sft"),
        ("step2_dpo_finetuning", "sft.py", "sft"),
    ],
)
def test_a_folder_says_which_pairs_where_the_program_says_nothing(
    tmp_path: Path, folder: str, program: str, objective: str
) -> None:
    path = tmp_path / folder / "llama2" / "run.sh"
    path.parent.mkdir(parents=True)
    path.write_text(
        f"deepspeed {program} --model_name_or_path meta-llama/Llama-2-7b-hf --zero_stage 3 "
        "--per_device_train_batch_size 8 --max_seq_len 512 --deepspeed\n"
    )
    assert read_launch(path).values["training_objective"] == objective
