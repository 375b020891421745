"""What prime-rl's TOML says of a step on rollouts, and of its update alone."""

from pathlib import Path

from rows import each

from planner.launch.read.import_launch import ImportedLaunch
from planner.launch.read.launch_file import LaunchFile, evaluate_launch
from planner.launch.read.option_lines import Status
from planner.launch.read.read_launch import read_launch

_FILE = """
seq_len = 8192
max_steps = 100

[model]
name = "Qwen/Qwen3-8B"

[deployment]
num_train_gpus = 2
num_infer_gpus = 6

[trainer.model]
cp = 2

[orchestrator]
batch_size = 512
group_size = 8

[orchestrator.train.sampling]
max_completion_tokens = 4096

[[orchestrator.train.source]]
name = "math"

[inference.vllm]
tensor_parallel_size = 2
"""


def read(folder: Path, old: str = "", new: str = "", workload: str | None = "rl") -> ImportedLaunch:
    (folder / "rl.toml").write_text(_FILE.replace(old, new) if old else _FILE)
    return read_launch(folder / "rl.toml", workload=workload)


def told(found: ImportedLaunch, *names: str) -> list[str]:
    return [str(found.values.get(name)) for name in names]


def test_a_step_of_prime_rl(tmp_path: Path) -> None:
    """512 answers to 64 prompts; a pack of 8,192 tokens is a micro-batch."""
    found = read(tmp_path)
    names = ("model", "prompts_per_step", "samples_per_prompt", "global_batch_size")
    assert told(found, *names) == ["Qwen/Qwen3-8B", "64", "8", "512"]
    lengths = ("input_tokens", "output_cap", "output_tokens", "micro_batch_tokens")
    assert told(found, *lengths) == ["1024", "4096", "1024", "8192"]
    names = ("placement", "train_gpus", "num_gpus", "staleness", "partial_rollout")
    assert told(found, *names) == ["async", "2", "8", "8", "True"]
    engine = ("rollout_tensor_parallel", "rollout_gpu_memory", "weight_sync", "old_logprob")
    assert told(found, *engine) == ["2", "0.9", "store", "False"]
    names = ("framework", "reference_model", "recompute", "offload", "max_steps")
    assert told(found, *names) == ["prime-rl", "False", "full", "optimizer", "100"]
    assert not found.lines_with_status(Status.UNKNOWN)


@each(
    ("old", "new", "name", "value"),
    [
        ("group_size", "rollouts_per_example", "samples_per_prompt", "8"),
        ("[inference.vllm]\ntensor_parallel_size", "[inference.parallel]\ntp",
         "rollout_tensor_parallel", "2"),
        ("group_size = 8", "group_size = 8\nmax_off_policy_steps = 2", "staleness", "2"),
        ("max_steps = 100", "max_steps = 100\nmax_async_level = 0", "partial_rollout", "False"),
        # 1,024 answers at once in three engines of two GPUs; 200; more than one of them runs.
        ("group_size = 8", "group_size = 8", "max_num_seqs", "342"),
        ("group_size = 8", "group_size = 8\nconcurrency = { max_inflight = 200 }",
         "max_num_seqs", "67"),
        ("tensor_parallel_size", "max_num_seqs = 64\ntensor_parallel_size", "max_num_seqs", "64"),
        ("[deployment]", "[weight_broadcast]\ntype = 'nccl'\n\n[deployment]",
         "weight_sync", "nccl"),
        ("num_train_gpus = 2\nnum_infer_gpus = 6",
         "type = 'multi_node'\nnum_train_nodes = 1\nnum_infer_nodes = 3", "num_gpus", "32"),
        ("tensor_parallel_size", "model = 'Qwen/Qwen3-8B-FP8'\ntensor_parallel_size",
         "rollout_quantization", "fp8"),
        ("cp = 2", "cp = 2\noptim_cpu_offload = false", "offload", "none"),
        ("cp = 2", "cp = 2\nreshard_after_forward = false", "zero_stage", "2"),
        ("cp = 2", "cp = 2\nac = { mode = 'selective' }", "recompute", "selective"),
        ("cp = 2", "attn = 'eager'", "flash_attention", "false"),
        ("[trainer.model]\ncp = 2", "[trainer.model]\nattn = 'sdpa'", "attention_kernel", "sdpa"),
    ],
)  # fmt: skip
def test_words_of_prime_rl(tmp_path: Path, old: str, new: str, name: str, value: str) -> None:
    assert told(read(tmp_path, old, new), name) == [value]


def test_engines_that_are_told_of_apart_are_asked_for(tmp_path: Path) -> None:
    nodes = "type = 'multi_node'\nnum_train_nodes = 1"
    found = read(tmp_path, "num_train_gpus = 2\nnum_infer_gpus = 6", nodes)
    assert "num_gpus" in found.missing_terms({"gpu": "h100-sxm-80gb"})


def test_engines_of_prompts_and_of_answers_are_counted(tmp_path: Path) -> None:
    """A node that trains, two replicas of one node for prompts and two for answers."""
    nodes = (
        "type = 'multi_node'\nnum_train_nodes = 1\nnum_infer_replicas = 2\n\n"
        "[inference.deployment]\ntype = 'disaggregated'\ndecode_nodes_per_replica = 2"
    )
    found = read(tmp_path, "num_train_gpus = 2\nnum_infer_gpus = 6", nodes)
    assert told(found, "train_gpus", "num_gpus") == ["8", str(8 + 2 * 3 * 8)]


def test_gpus_that_no_side_tells_are_found(tmp_path: Path) -> None:
    """Numbers that break a rule are tried, too."""
    read(tmp_path, "num_train_gpus = 2\nnum_infer_gpus = 6", "type = 'multi_node'")
    asked = {"gpu": "h200-sxm-141gb"}
    question = LaunchFile(path=tmp_path / "rl.toml", answers=asked, workload="rl").question()
    _, found, _ = evaluate_launch(question.request)
    assert not found.rejected_by
    assert "num_gpus" in question.imported.assumed


def test_the_update_alone(tmp_path: Path) -> None:
    found = read(tmp_path, workload=None)
    names = ("training_objective", "sequence_length", "context_parallel", "num_gpus")
    assert told(found, *names) == ["dapo", "8192", "2", "2"]


def test_the_step_is_predicted(tmp_path: Path) -> None:
    read(tmp_path)
    asked = {"gpu": "h200-sxm-141gb"}
    request = LaunchFile(path=tmp_path / "rl.toml", answers=asked, workload="rl").question().request
    _, found, _ = evaluate_launch(request)
    assert not found.rejected_by
    (step,) = found.candidates.step_time.ravel()
    assert step > 0


def test_adapters(tmp_path: Path) -> None:
    found = read(tmp_path, "cp = 2", "cp = 2\n\n[trainer.model.lora]\nrank = 16")
    assert told(found, "adapter", "lora_rank") == ["lora", "16"]
