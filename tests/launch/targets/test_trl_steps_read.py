"""What files of TRL and ms-swift say of a whole step on rollouts."""

from pathlib import Path

import pytest
from rows import each

from planner.launch.read.import_launch import ImportedLaunch
from planner.launch.read.launch_file import LaunchFile, evaluate_launch
from planner.launch.read.option_lines import Status
from planner.launch.read.read_launch import read_launch

_MODEL = "--model_name_or_path Qwen/Qwen2.5-7B-Instruct "
_TRL = f"accelerate launch --num_processes 8 --config_file zero3.yaml grpo.py {_MODEL}"
_WORDS = (
    "--num_generations 8 --max_completion_length 2048 --max_prompt_length 512 --bf16 true "
    "--per_device_train_batch_size 4 --gradient_accumulation_steps 2 --use_vllm true "
)
_ZERO3 = (
    "distributed_type: DEEPSPEED\nmain_training_function: main\ndeepspeed_config: {zero_stage: 3}\n"
)
_SWIFT = (
    "NPROC_PER_NODE=8 swift rlhf --rlhf_type grpo --model Qwen/Qwen2.5-7B-Instruct "
    "--tuner_type full --deepspeed zero3 --per_device_train_batch_size 4 --max_length 1024 "
    "--gradient_accumulation_steps 2 --max_completion_length 2048 --use_vllm true "
)


def read(folder: Path, text: str, name: str = "run.sh", gpus: str | None = None) -> ImportedLaunch:
    (folder / "zero3.yaml").write_text(_ZERO3)
    (folder / name).write_text(text)
    return read_launch(folder / name, workload="rl", num_gpus=gpus)


def told(found: ImportedLaunch, *names: str) -> list[str]:
    return [str(found.values.get(name)) for name in names]


def test_a_step_of_trl(tmp_path: Path) -> None:
    """8 ranks x 4 answers x 2 accumulated are 64 answers, to 8 prompts."""
    found = read(tmp_path, _TRL + _WORDS + "--vllm_mode colocate --vllm_tensor_parallel_size 2")
    names = ("prompts_per_step", "samples_per_prompt", "global_batch_size", "num_gpus")
    assert told(found, *names) == ["8", "8", "64", "8"]
    lengths = ("input_tokens", "output_cap", "output_tokens", "micro_batch_tokens")
    assert told(found, *lengths) == ["512", "2048", "512", str(4 * 2560)]
    engine = ("rollout_tensor_parallel", "rollout_gpu_memory", "offload_train", "offload_rollout")
    assert told(found, *engine) == ["2", "0.3", "False", "False"]
    assert told(found, "algorithm", "reference_model", "zero_stage") == ["grpo", "False", "3"]
    assert told(found, "framework", "placement") == ["TRL", "colocated"]
    assert not found.lines_with_status(Status.UNKNOWN)


@each(
    ("words", "name", "value"),
    [
        ("--steps_per_generation 8", "prompts_per_step", "32"),
        ("--generation_batch_size 128", "prompts_per_step", "16"),
        # A generation of half an optimizer step: a step is two of them.
        ("--steps_per_generation 1", "prompts_per_step", "8"),
        ("--num_iterations 2", "update_epochs", "2"),
        ("--beta 0.04", "reference_model", "True"),
        ("--vllm_gpu_memory_utilization 0.45", "rollout_gpu_memory", "0.45"),
        ("--vllm_enable_sleep_mode true", "offload_rollout", "True"),
        # TRL's mode without a word is the colocated one, unless a server is named.
        ("--vllm_server_host 10.0.0.1", "placement", "separate"),
    ],
)
def test_words_of_trl(tmp_path: Path, words: str, name: str, value: str) -> None:
    assert told(read(tmp_path, _TRL + _WORDS + words), name) == [value]


def test_what_trl_has_where_a_file_is_silent(tmp_path: Path) -> None:
    words = "--per_device_train_batch_size 8 --use_vllm true"
    found = read(tmp_path, _TRL + words)
    assert told(found, "samples_per_prompt", "prompts_per_step") == ["8", "8"]
    assert told(found, "output_cap", "rollout_gpu_memory") == ["512", "0.3"]
    rloo = _TRL.replace("grpo.py", "trl/scripts/rloo.py")
    found = read(tmp_path, rloo + words)
    assert told(found, "algorithm", "samples_per_prompt") == ["rloo", "2"]


@pytest.mark.parametrize(
    ("served", "gpus", "split"),
    [
        ("trl vllm-serve --model M --tensor-parallel-size 2 \\\n  --data-parallel-size 2 &\n", None,
         ["separate", "8", "12", "64"]),
        ("", None, ["separate", "8", "10", "64"]),
        # Of the GPUs that a user has the server's are some: 14 and 2.
        ("", "16", ["separate", "14", "16", str(14 * 8)]),
    ],
)  # fmt: skip
def test_a_server_has_gpus_of_its_own(
    tmp_path: Path, served: str, gpus: str | None, split: list[str]
) -> None:
    words = "--vllm_mode server --vllm_tensor_parallel_size 2"
    found = read(tmp_path, served + _TRL + _WORDS + words, gpus=gpus)
    names = ("placement", "train_gpus", "num_gpus", "global_batch_size")
    assert told(found, *names) == split


def test_a_program_and_a_document_say_the_same(tmp_path: Path) -> None:
    text = (
        "from trl import GRPOConfig, GRPOTrainer\n"
        "args = GRPOConfig(num_generations=8, per_device_train_batch_size=4, use_vllm=True,\n"
        "    gradient_accumulation_steps=2, max_completion_length=2048, max_prompt_length=512,\n"
        "    vllm_tensor_parallel_size=2, bf16=True)\n"
        "GRPOTrainer(model='Qwen/Qwen2.5-7B-Instruct', args=args)\n"
    )
    options = (
        "model_name_or_path: Qwen/Qwen2.5-7B-Instruct\nnum_generations: 8\nuse_vllm: true\n"
        "per_device_train_batch_size: 4\ngradient_accumulation_steps: 2\nbf16: true\n"
        "max_completion_length: 2048\nmax_prompt_length: 512\nvllm_tensor_parallel_size: 2\n"
    )
    names = ("prompts_per_step", "samples_per_prompt", "output_cap", "rollout_tensor_parallel")
    for name, written in (("grpo.py", text), ("grpo.yaml", options)):
        found = read(tmp_path, written, name, gpus="8")
        assert told(found, *names) == ["8", "8", "2048", "2"], name


def test_a_step_of_ms_swift(tmp_path: Path) -> None:
    """Its engine has 0.9 of a GPU and its reference model a weight, unless it says otherwise."""
    found = read(tmp_path, _SWIFT + "--sleep_level 1 --offload_optimizer true")
    names = ("prompts_per_step", "samples_per_prompt", "global_batch_size", "reference_model")
    assert told(found, *names) == ["8", "8", "64", "True"]
    names = ("rollout_gpu_memory", "max_num_seqs", "offload_train", "offload_rollout")
    assert told(found, *names) == ["0.9", "256", "True", "True"]
    assert "predicted as TRL" in " ".join(found.notes)
    found = read(tmp_path, _SWIFT + "--advantage_estimator rloo --dynamic_sample true")
    assert told(found, "algorithm") == ["dapo"]


def test_the_step_is_predicted_with_what_is_assumed(tmp_path: Path) -> None:
    """Unsharded the states of 7 billion parameters do not fit, so that they are sharded."""
    file = tmp_path / "run.sh"
    file.write_text(f"trl grpo {_MODEL}{_WORDS}")
    asked = {"gpu": "h100-sxm-80gb", "num_gpus": "8"}
    question = LaunchFile(path=file, answers=asked, workload="rl").question()
    _, found, _ = evaluate_launch(question.request)
    assert not found.rejected_by
    assert "zero_stage" in question.imported.assumed


_ADAPTED = ("adapter", "lora_rank", "lora_targets", "adapter_sync")
_LORA = _SWIFT.replace("--tuner_type full", "--tuner_type lora --lora_rank 8")


@each(
    ("words", "values"),
    [
        (f"{_TRL}{_WORDS}--use_peft --lora_r 32 --lora_target_modules q_proj v_proj",
         ["lora", "32", "query_value", "None"]),
        (f"{_TRL}{_WORDS}--use_peft --lora_r 16 --load_in_4bit",
         ["qlora", "16", "query_value", "None"]),
        (_LORA, ["lora", "8", "all_linear", "None"]),
        (f"{_LORA}--vllm_enable_lora true", ["lora", "8", "all_linear", "adapter"]),
    ],
)  # fmt: skip
def test_adapters(tmp_path: Path, words: str, values: list[str]) -> None:
    assert told(read(tmp_path, words), *_ADAPTED) == values


def test_a_step_with_adapters_is_predicted(tmp_path: Path) -> None:
    """ms-swift sends merged weights unless its engine serves adapters."""
    seconds = []
    for words in ("", "--vllm_enable_lora true"):
        file = tmp_path / "run.sh"
        (tmp_path / "zero3.yaml").write_text(_ZERO3)
        file.write_text(f"{_LORA}--sleep_level 1 --gradient_checkpointing true {words}")
        question = LaunchFile(path=file, answers={"gpu": "h100-sxm-80gb"}, workload="rl").question()
        _, found, _ = evaluate_launch(question.request)
        assert not found.rejected_by
        seconds.append(float(found.candidates.step.times["sync"].ravel()[0]))
    assert seconds[1] < seconds[0]


def test_generation_without_an_engine_is_told(tmp_path: Path) -> None:
    found = read(tmp_path, _TRL + _WORDS.replace("--use_vllm true", ""))
    assert "several times as long" in " ".join(found.notes)
