"""What commands of SkyRL say of a step on rollouts, and of its update alone."""

from pathlib import Path

import pytest
from rows import each

from planner.launch.assumed import LaunchFile, judged
from planner.launch.imported import Imported
from planner.launch.option_lines import Status
from planner.launch.read import read_launch

_MAIN = "uv run --isolated --extra fsdp -m skyrl.train.entrypoints.main_base "
_WORDS = (
    "trainer.policy.model.path=Qwen/Qwen2.5-1.5B-Instruct trainer.strategy=fsdp "
    "trainer.placement.colocate_all=true trainer.placement.policy_num_gpus_per_node=4 "
    "generator.inference_engine.num_engines=4 trainer.train_batch_size=1024 "
    "trainer.policy_mini_batch_size=256 trainer.micro_train_batch_size_per_gpu=16 "
    "trainer.max_prompt_length=512 generator.sampling_params.max_generate_length=1024 "
    "generator.n_samples_per_prompt=5 generator.inference_engine.gpu_memory_utilization=0.7 "
)


def read(folder: Path, words: str = "", main: str = _MAIN, workload: str | None = "rl") -> Imported:
    (folder / "run.sh").write_text(main + _WORDS + words)
    return read_launch(folder / "run.sh", workload=workload)


def told(found: Imported, *names: str) -> list[str]:
    return [str(found.values.get(name)) for name in names]


def test_a_step_of_skyrl(tmp_path: Path) -> None:
    """Mini-batches count prompts; 16 sequences without padding have 512 + 256 tokens each."""
    found = read(tmp_path)
    names = ("prompts_per_step", "samples_per_prompt", "global_batch_size", "num_gpus")
    assert told(found, *names) == ["1024", "5", "1280", "4"]
    lengths = ("input_tokens", "output_cap", "output_tokens", "micro_batch_tokens")
    assert told(found, *lengths) == ["512", "1024", "256", str(16 * 768)]
    engine = ("rollout_tensor_parallel", "rollout_gpu_memory", "max_num_seqs")
    assert told(found, *engine) == ["1", "0.7", "1024"]
    names = ("framework", "placement", "reference_model", "algorithm", "zero_stage")
    assert told(found, *names) == ["verl", "colocated", "True", "grpo", "3"]
    assert "predicted as verl's" in " ".join(found.notes)
    assert not found.of(Status.UNKNOWN)


@each(
    ("words", "name", "value"),
    [
        ("trainer.remove_microbatch_padding=false", "micro_batch_tokens", str(16 * 1536)),
        ("trainer.max_tokens_per_microbatch=40000", "micro_batch_tokens", "40000"),
        ("trainer.algorithm.use_kl_loss=false", "reference_model", "False"),
        ("trainer.algorithm.advantage_estimator=gae", "critic", "True"),
        ("trainer.algorithm.dynamic_sampling.type=filter", "algorithm", "dapo"),
        ("trainer.update_epochs_per_batch=2", "update_epochs", "2"),
        ("generator.inference_engine.backend=sglang", "engine", "sglang"),
        ("generator.backend=sglang", "engine", "sglang"),
        ("trainer.strategy=megatron", "framework", "verl Megatron"),
    ],
)
def test_words_of_skyrl(tmp_path: Path, words: str, name: str, value: str) -> None:
    assert told(read(tmp_path, words), name) == [value]


@pytest.mark.parametrize(
    ("main", "words", "split"),
    [
        (_MAIN, "generator.inference_engine.tensor_parallel_size=2",
         ["separate", "4", "12", "None", "None"]),
        ("python -m examples.train.async.main_async ", "",
         ["one_step_off", "4", "8", "1", "None"]),
        (_MAIN, "trainer.fully_async.enabled=true trainer.fully_async.max_staleness_steps=2",
         ["async", "4", "8", "2", "True"]),
        (_MAIN, "trainer.fully_async.enabled=true trainer.fully_async.max_staleness_steps=0",
         ["async", "4", "8", "0", "False"]),
    ],
)  # fmt: skip
def test_placements_of_skyrl(tmp_path: Path, main: str, words: str, split: list[str]) -> None:
    found = read(tmp_path, f"trainer.placement.colocate_all=false {words}", main)
    names = ("placement", "train_gpus", "num_gpus", "staleness", "partial_rollout")
    assert told(found, *names) == split


def test_the_update_alone(tmp_path: Path) -> None:
    words = "trainer.strategy=megatron trainer.policy.megatron_config.tensor_model_parallel_size=2"
    found = read(tmp_path, words, workload=None)
    names = ("training_objective", "sequence_length", "micro_batch_size", "tensor_parallel")
    assert told(found, *names) == ["grpo", "1536", "16", "2"]
    assert told(found, "framework", "recompute") == ["Megatron-Bridge", "full"]
    assert "A step of SkyRL is 4 such updates" in " ".join(found.notes)


def test_the_step_is_predicted(tmp_path: Path) -> None:
    read(tmp_path)
    asked = {"gpu": "h100-sxm-80gb"}
    request = LaunchFile(path=tmp_path / "run.sh", asked=asked, workload="rl").question().request
    _, found, _ = judged(request)
    assert not found.rejected_by
    (step,) = found.candidates.step_time.ravel()
    assert step > 0


@each(
    ("words", "sync"),
    [
        ("", "None"),
        ("trainer.strategy=megatron", "merged"),
        (
            "trainer.strategy=megatron trainer.policy.megatron_config.lora_config.merge_lora=false",
            "None",
        ),
    ],
)
def test_adapters(tmp_path: Path, words: str, sync: str) -> None:
    found = read(tmp_path, f"trainer.policy.model.lora.rank=32 {words}")
    assert told(found, "adapter", "lora_rank", "adapter_sync") == ["lora", "32", sync]
