"""What scripts of slime say of a step on rollouts, and of its update alone."""

from pathlib import Path

import pytest
from rows import each

from planner.errors import LaunchError
from planner.launch.read.import_launch import ImportedLaunch
from planner.launch.read.launch_file import LaunchFile, evaluate_launch
from planner.launch.read.option_lines import Status
from planner.launch.read.read_launch import read_launch

_ARGUMENTS = """
source "${HERE}/models/qwen3-30B-A3B.sh"
CKPT_ARGS=(
   --hf-checkpoint ${FOLDER}/Qwen3-30B-A3B
   #--hf-checkpoint /root/Qwen3-30B-A3B-FP8
)
ROLLOUT_ARGS=(
   --num-rollout 3000
   --rollout-batch-size 32
   --n-samples-per-prompt 8
   --rollout-max-response-len 8192
   --global-batch-size 128
)
PERF_ARGS=(
   --tensor-model-parallel-size 4
   --sequence-parallel
   --expert-model-parallel-size 8
   --expert-tensor-parallel-size 1
   --recompute-granularity full
   --recompute-method uniform
   --recompute-num-layers 1
   --use-dynamic-batch-size
   --max-tokens-per-gpu 20480
   --attention-dropout 0.0 --hidden-dropout 0.0
)
SGLANG_ARGS=(
   --rollout-num-gpus-per-engine 2
   --sglang-mem-fraction-static 0.7
   --sglang-cuda-graph-bs 1 2 4 8 $(seq 16 8 256)
)
"""
_STARTED = """
ray start --head --num-gpus 8
ray job submit --address="http://127.0.0.1:8265" -- python3 {program} \\
   --actor-num-nodes 2 --actor-num-gpus-per-node 8 {words} \\
   ${{MODEL_ARGS[@]}} ${{CKPT_ARGS[@]}} ${{ROLLOUT_ARGS[@]}} ${{PERF_ARGS[@]}} ${{SGLANG_ARGS[@]}}
"""


def read(
    folder: Path, words: str = "--colocate", program: str = "train.py", workload: str | None = "rl"
) -> ImportedLaunch:
    script = _ARGUMENTS + _STARTED.format(program=program, words=words)
    (folder / "run.sh").write_text(script)
    return read_launch(folder / "run.sh", workload=workload)


def told(found: ImportedLaunch, *names: str) -> list[str]:
    return [str(found.values.get(name)) for name in names]


def test_a_step_in_arrays_of_arguments(tmp_path: Path) -> None:
    """The script of a model that is read elsewhere is not needed: the checkpoint names it."""
    found = read(tmp_path)
    names = ("model", "prompts_per_step", "samples_per_prompt", "global_batch_size", "num_gpus")
    assert told(found, *names) == ["Qwen3-30B-A3B", "32", "8", "128", "16"]
    lengths = ("input_tokens", "output_cap", "output_tokens", "micro_batch_tokens")
    assert told(found, *lengths) == ["1024", "8192", "2048", "20480"]
    engine = ("rollout_tensor_parallel", "rollout_gpu_memory", "max_num_seqs")
    assert told(found, *engine) == ["2", "0.7", "512"]
    split = ("tensor_parallel", "expert_parallel", "zero_stage", "recompute")
    assert told(found, *split) == ["4", "8", "1", "full"]
    names = ("framework", "placement", "offload_train", "offload_rollout", "old_logprob")
    assert told(found, *names) == ["slime", "colocated", "True", "True", "True"]
    assert told(found, "algorithm", "reference_model", "max_steps") == ["grpo", "False", "3000"]
    assert not found.lines_with_status(Status.UNKNOWN)


@each(
    ("words", "name", "value"),
    [
        ("--colocate --use-kl-loss --kl-loss-coef 0.00", "reference_model", "True"),
        ("--colocate --kl-coef 0.01", "reference_model", "True"),
        ("--colocate --use-rollout-logprobs", "old_logprob", "False"),
        ("--colocate --advantage-estimator ppo", "critic", "True"),
        ("--colocate --advantage-estimator gspo", "algorithm", "grpo"),
        ("--colocate --dynamic-sampling-filter-path a.b", "algorithm", "dapo"),
        ("--colocate --no-offload-train", "offload_train", "False"),
        ("--colocate --partial-rollout", "partial_rollout", "True"),
        ("--colocate --rollout-max-prompt-len 512", "input_tokens", "512"),
        ("--colocate --rollout-max-context-len 9000", "output_cap", str(9000 - 1024)),
        # Ranks that share a sequence share the budget.
        ("--colocate --context-parallel-size 2", "micro_batch_tokens", str(2 * 20480)),
        ("--rollout-num-gpus 8 --update-weight-transport disk", "weight_sync", "store"),
        ("--rollout-num-gpus 8 --update-weight-transport disk --update-weight-mode delta",
         "weight_sync", "delta"),
    ],
)  # fmt: skip
def test_words_of_slime(tmp_path: Path, words: str, name: str, value: str) -> None:
    assert told(read(tmp_path, words), name) == [value]


@pytest.mark.parametrize(
    ("program", "words", "split"),
    [
        ("train.py", "--rollout-num-gpus 8", ["separate", "16", "24", "None", "False"]),
        ("train_async.py", "--rollout-num-gpus 8", ["one_step_off", "16", "24", "1", "False"]),
        ("train_async.py",
         "--rollout-num-gpus 8 --partial-rollout "
         "--rollout-function-path fully_async_rollout.generate_rollout_fully_async",
         ["async", "16", "24", "1", "True"]),
    ],
)  # fmt: skip
def test_placements_of_slime(tmp_path: Path, program: str, words: str, split: list[str]) -> None:
    found = read(tmp_path, words, program)
    names = ("placement", "train_gpus", "num_gpus", "staleness", "partial_rollout")
    assert told(found, *names) == split


def test_gpus_that_generate_are_asked_for_where_no_option_counts_them(tmp_path: Path) -> None:
    assert "num_gpus" in read(tmp_path, "").missing_terms({"gpu": "h100-sxm-80gb"})


def test_a_sequence_above_the_budget_is_a_micro_batch_of_its_own(tmp_path: Path) -> None:
    found = read(tmp_path, "--colocate --rollout-max-response-len 30000")
    # The array has the last word, so that answers stay at 8,192 tokens.
    assert told(found, "output_cap", "micro_batch_tokens") == ["8192", "20480"]
    script = tmp_path / "run.sh"
    script.write_text(script.read_text().replace("-len 8192", "-len 30000"))
    found = read_launch(script, workload="rl")
    assert told(found, "output_cap", "micro_batch_tokens") == ["30000", "31024"]
    assert "planner assumes micro-batches of that length" in " ".join(found.notes)


def test_the_update_alone(tmp_path: Path) -> None:
    """Two of its 128 answers of 1,024 + 8,192 tokens are a micro-batch of 20,480."""
    found = read(tmp_path, workload=None)
    names = ("training_objective", "sequence_length", "global_batch_size", "micro_batch_size")
    assert told(found, *names) == ["dapo", "9216", "128", "2"]
    assert told(found, "framework") == ["Megatron-LM"]
    assert "A step of slime has 2 such updates" in " ".join(found.notes)


def test_the_step_is_predicted(tmp_path: Path) -> None:
    read(tmp_path)
    asked = {"gpu": "h100-sxm-80gb"}
    request = LaunchFile(path=tmp_path / "run.sh", answers=asked, workload="rl").question().request
    _, found, _ = evaluate_launch(request)
    (step,) = found.candidates.step_time.ravel()
    assert step > 0


def test_states_of_a_single_rank_that_trains_are_whole(tmp_path: Path) -> None:
    """Two GPUs share each tensor, and a distributed optimizer does nothing."""
    file = tmp_path / "run.sh"
    file.write_text(
        "python3 train.py --hf-checkpoint Qwen/Qwen3-4B --actor-num-nodes 1 "
        "--actor-num-gpus-per-node 2 --tensor-model-parallel-size 2 --rollout-num-gpus 2 "
        "--rollout-batch-size 8 --n-samples-per-prompt 8 --rollout-max-response-len 1024 "
        "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1"
    )
    asked = {"gpu": "h100-sxm-80gb", "num_gpus": "4"}
    request = LaunchFile(path=file, answers=asked, workload="rl").question().request
    assert request.settings["zero_stage"] == 0
    _, found, _ = evaluate_launch(request)
    assert "zero_stage" not in str(found.rejected_by)


def test_supervised_fine_tuning_stays_a_plan_to_train(tmp_path: Path) -> None:
    found = read(tmp_path, "--colocate --loss-type sft_loss --seq-length 4096")
    assert (found.workload, *told(found, "training_objective")) == ("train", "sft")


def test_ranks_that_do_not_divide_the_gpus_are_refused(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match="multiples of 64"):
        read(tmp_path, "--colocate --pipeline-model-parallel-size 16")
