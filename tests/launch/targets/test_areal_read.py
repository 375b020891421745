"""What AReaL's YAML says of a step on rollouts, and of its update alone."""

from pathlib import Path

from rows import each

from planner.launch.assumed import LaunchFile, judged
from planner.launch.imported import Imported
from planner.launch.option_lines import Status
from planner.launch.read import read_launch

_FILE = """
actor:
  path: Qwen/Qwen2.5-1.5B-Instruct
  backend: fsdp:d4p1t1
  gradient_checkpointing: true
  kl_ctl: 0.0
  ppo_n_minibatches: 2
  recompute_logprob: true
  mb_spec: {max_tokens_per_mb: 10240}
rollout:
  backend: sglang:d2t2
  max_head_offpolicyness: 3
gconfig: {n_samples: 4, max_new_tokens: 2048}
sglang: {mem_fraction_static: 0.8}
train_dataset: {batch_size: 256, max_length: 512}
"""


def read(folder: Path, old: str = "", new: str = "", workload: str | None = "rl") -> Imported:
    (folder / "grpo.yaml").write_text(_FILE.replace(old, new) if old else _FILE)
    return read_launch(folder / "grpo.yaml", workload=workload)


def told(found: Imported, *names: str) -> list[str]:
    return [str(found.values.get(name)) for name in names]


def test_a_step_of_areal(tmp_path: Path) -> None:
    """Two updates of half of 256 x 4 answers; two engines of two GPUs beside four that train."""
    found = read(tmp_path)
    names = ("prompts_per_step", "samples_per_prompt", "global_batch_size")
    assert told(found, *names) == ["256", "4", "512"]
    lengths = ("input_tokens", "output_cap", "output_tokens", "micro_batch_tokens")
    assert told(found, *lengths) == ["512", "2048", "512", "10240"]
    names = ("placement", "train_gpus", "num_gpus", "staleness", "partial_rollout")
    assert told(found, *names) == ["async", "4", "8", "3", "True"]
    engine = ("engine", "rollout_tensor_parallel", "rollout_gpu_memory", "old_logprob")
    assert told(found, *engine) == ["sglang", "2", "0.8", "True"]
    names = ("framework", "reference_model", "zero_stage", "recompute", "algorithm")
    assert told(found, *names) == ["verl", "False", "3", "full", "grpo"]
    assert "predicted as verl's" in " ".join(found.notes)
    assert not found.of(Status.UNKNOWN)


@each(
    ("old", "new", "name", "value"),
    [
        ("max_head_offpolicyness: 3", "max_head_offpolicyness: 0", "placement", "separate"),
        ("kl_ctl: 0.0", "kl_ctl: 0.1", "reference_model", "True"),
        ("recompute_logprob: true", "recompute_logprob: false", "old_logprob", "False"),
        ("kl_ctl: 0.0", "weight_update_mode: disk", "weight_sync", "store"),
        ("sglang:d2t2", "vllm:d4", "engine", "vllm"),
        ("fsdp:d4p1t1", "megatron:d2p2t1", "framework", "verl Megatron"),
        ("gconfig:", "critic: {path: x}\ngconfig:", "critic", "True"),
        # 256 prompts x 4 answers in two engines, 100 prompts at once, vLLM's 256, what is told.
        ("sglang:d2t2", "sglang:d2t2", "max_num_seqs", "512"),
        ("sglang:d2t2", "sglang:d2t2\n  max_concurrent_rollouts: 100", "max_num_seqs", "200"),
        ("sglang:d2t2", "vllm:d1", "max_num_seqs", "256"),
        ("sglang: {", "sglang: {max_running_requests: 64, ", "max_num_seqs", "64"),
        ("max_tokens_per_mb: 10240", "max_tokens_per_mb: 1024", "micro_batch_tokens", "2560"),
    ],
)
def test_words_of_areal(tmp_path: Path, old: str, new: str, name: str, value: str) -> None:
    assert told(read(tmp_path, old, new), name) == [value]


def test_an_older_allocation_of_both_sides(tmp_path: Path) -> None:
    """80 engines of two GPUs, 4 x 2 x 4 that train."""
    old = _FILE.replace("  backend: fsdp:d4p1t1\n", "").replace("  backend: sglang:d2t2\n", "")
    (tmp_path / "old.yaml").write_text(f"allocation_mode: sglang.d80m2p1+d4m2p4\n{old}")
    found = read_launch(tmp_path / "old.yaml", workload="rl")
    names = ("train_gpus", "num_gpus", "tensor_parallel", "pipeline_parallel")
    assert told(found, *names) == ["32", "192", "2", "4"]
    assert told(found, "rollout_tensor_parallel", "engine") == ["2", "sglang"]


def test_the_update_alone(tmp_path: Path) -> None:
    found = read(tmp_path, workload=None)
    names = ("training_objective", "sequence_length", "num_gpus", "micro_batch_size")
    assert told(found, *names) == ["dapo", "2560", "4", "4"]
    assert "A step of AReaL is 2 such updates" in " ".join(found.notes)


def test_the_step_is_predicted(tmp_path: Path) -> None:
    read(tmp_path)
    asked = {"gpu": "h100-sxm-80gb"}
    request = LaunchFile(path=tmp_path / "grpo.yaml", asked=asked, workload="rl").question().request
    _, found, _ = judged(request)
    assert not found.rejected_by
    (step,) = found.candidates.step_time.ravel()
    assert step > 0


def test_a_command_reads_the_document_that_it_names(tmp_path: Path) -> None:
    read(tmp_path)
    words = "python3 -m areal.launcher.local gsm8k.py --config grpo.yaml gconfig.n_samples=16"
    (tmp_path / "run.sh").write_text(words)
    found = read_launch(tmp_path / "run.sh", workload="rl")
    assert told(found, "samples_per_prompt", "output_cap") == ["16", "2048"]


def test_adapters(tmp_path: Path) -> None:
    found = read(tmp_path, "kl_ctl: 0.0", "use_lora: true")
    assert told(found, "adapter", "lora_targets") == ["lora", "all_linear"]
