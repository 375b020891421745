"""In which format the front ends of the Trainer keep trained weights: ``weights.csv``."""

from __future__ import annotations

from pathlib import Path

from rows import each

from planner.launch.option_table import shipped_rows
from planner.launch.read.launch_file import LaunchFile, evaluate_launch, full_row
from planner.launch.read.read_launch import read_launch

WHOLE = {
    "ms-swift": "swift sft --model Qwen/Qwen2.5-7B-Instruct --train_type full --max_length 2048",
    "trl": (
        "trl sft --model_name_or_path Qwen/Qwen2.5-7B-Instruct --max_length 2048 --bf16 true "
        "--per_device_train_batch_size 1"
    ),
    "llama-factory": (
        "llamafactory-cli train --model_name_or_path Qwen/Qwen2.5-7B-Instruct --stage sft "
        "--finetuning_type full --cutoff_len 2048 --per_device_train_batch_size 1 --bf16 true"
    ),
    "axolotl": (
        "base_model: Qwen/Qwen2.5-7B-Instruct\nsequence_len: 2048\nmicro_batch_size: 1\n"
        "gradient_accumulation_steps: 1\nbf16: true\n"
    ),
    "autotrain": (
        "task: llm-sft\nbase_model: Qwen/Qwen2.5-7B-Instruct\nproject_name: p\n"
        "data: {path: d}\nparams: {block_size: 2048, batch_size: 1, mixed_precision: bf16}\n"
    ),
    "unsloth": (
        "from unsloth import FastLanguageModel\nfrom trl import SFTTrainer, SFTConfig\n"
        "model, t = FastLanguageModel.from_pretrained('Qwen/Qwen2.5-7B-Instruct', "
        "max_seq_length=2048, full_finetuning=True)\n"
        "SFTTrainer(model=model, args=SFTConfig(per_device_train_batch_size=1)).train()\n"
    ),
}
NARROW = "HF Trainer bf16"
SUFFIX = {"axolotl": ".yaml", "autotrain": ".yaml", "unsloth": ".py"}


def _framework(program: str, text: str, folder: Path) -> str:
    path = folder / f"train{SUFFIX.get(program, '.sh')}"
    path.write_text(text + "\n")
    return str(read_launch(path).values["framework"])


@each("row", shipped_rows("read/hf_trainer/weights.csv"))
def test_whole_models_are_trained_in_what_the_table_says(
    row: dict[str, str], tmp_path: Path
) -> None:
    framework = _framework(row["program"], WHOLE[row["program"]], tmp_path)
    assert (framework == NARROW) == (row["weights"] == "loaded"), framework
    assert row["source"]


@each(
    "program, option, is_narrow",
    [
        ("ms-swift", "--torch_dtype float32", False),
        ("ms-swift", "--torch_dtype bfloat16", True),
        ("llama-factory", "--pure_bf16 true", True),
        ("trl", "--dtype bfloat16", True),
    ],
)
def test_options_change_it(program: str, option: str, is_narrow: bool, tmp_path: Path) -> None:
    framework = _framework(program, f"{WHOLE[program]} {option}", tmp_path)
    assert (framework == NARROW) is is_narrow, framework


def test_deepspeed_keeps_fp32_copies_whatever_is_loaded(tmp_path: Path) -> None:
    text = f"NPROC_PER_NODE=8 {WHOLE['ms-swift']} --deepspeed zero3"
    assert _framework("ms-swift", text, tmp_path) == "DeepSpeed"


def test_ms_swift_trains_7b_on_one_a100(tmp_path: Path) -> None:
    """Measured 74.3 GiB with 2,048 tokens (docs/source_en/LLM/Benchmark.md of modelscope/ms-swift);
    with fp32 copies it was 146."""
    (tmp_path / "s.sh").write_text(
        f"{WHOLE['ms-swift']} --per_device_train_batch_size 1 --gradient_accumulation_steps 16\n"
    )
    asked = {"gpu": "a100-sxm-80gb", "num_gpus": "1"}
    _, judgement, _ = evaluate_launch(
        LaunchFile(path=tmp_path / "s.sh", answers=asked).question().request
    )
    assert abs(float(str(full_row(judgement)["peak_memory_gib"])) / 74.3 - 1) < 0.1


def test_experts_that_are_stored_in_few_bits_are_modules(tmp_path: Path) -> None:
    """Those that bitsandbytes makes are one tensor of 16 bits with Transformers from 5 on."""
    start = "trl sft --use_peft --per_device_train_batch_size 1 --model_name_or_path Qwen/"
    for name, loop in (("Qwen3-30B-A3B-GPTQ-Int4", "loop"), ("Qwen2.5-7B-Instruct-AWQ", None)):
        (tmp_path / "t.sh").write_text(start + name)
        values = read_launch(tmp_path / "t.sh").values
        assert (values["adapter"], values.get("expert_compute")) == ("qlora", loop)
