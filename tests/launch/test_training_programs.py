"""Users' own training programs: what the text has, and what the first line says is missing."""

from __future__ import annotations

from pathlib import Path

import pytest
from rows import each

from planner.errors import LaunchError
from planner.launch.read.guess_programs import only_generates
from planner.launch.read.import_launch import ImportedLaunch
from planner.launch.read.incomplete import undecided_options
from planner.launch.read.read_launch import read_launch

HEAD = "from transformers import *\nfrom peft import *\nfrom trl import *\n"
MODEL = "model = AutoModelForCausalLM.from_pretrained('Qwen/Qwen3-8B')\n"
ARGUMENTS = "args = TrainingArguments(output_dir='o', per_device_train_batch_size=2, bf16=True)\n"


def _read(folder: Path, text: str, **files: str) -> ImportedLaunch:
    for name, content in files.items():
        (folder / f"{name}.py").write_text(content)
    path = folder / "p.py"
    path.write_text(HEAD + text)
    return read_launch(path)


def test_a_module_beside_a_program_loads_its_model(tmp_path: Path) -> None:
    module = HEAD + (
        "def load(name, rank):\n"
        "    model = AutoModelForCausalLM.from_pretrained(name, torch_dtype='bfloat16')\n"
        "    return get_peft_model(model, LoraConfig(r=rank, target_modules='all-linear'))\n"
        "def other():\n    return AutoModelForCausalLM.from_pretrained('gpt2')\n"
    )
    text = "from parts import load\nmodel = load('Qwen/Qwen3-8B', 4)\n" + ARGUMENTS

    found = _read(tmp_path, text, parts=module)

    assert found.values["model"] == "Qwen/Qwen3-8B"
    assert (found.values["adapter"], int(found.values["lora_rank"])) == ("lora", 4)


@pytest.mark.parametrize(
    ("text", "undecided"),
    [
        (MODEL, ["the length of its sequences"]),
        (MODEL + "tokenizer(t, truncation=True, max_length=512)\n", []),
        (
            "from absent import load\nmodel = load()\n",
            ["the loading of the model", "the length of its sequences"],
        ),
        (
            MODEL.replace("CausalLM", "SequenceClassification")
            + "tokenizer(t, truncation=True, max_length=512)\n",
            ["the head of AutoModelForSequenceClassification"],
        ),
        (
            MODEL + "tokenizer(t, truncation=True, max_length=512)\n"
            "model = PeftModel.from_pretrained(model, 'a', is_trainable=True)\n",
            ["the rank that is loaded"],
        ),
    ],
)
def test_what_a_program_leaves_open_is_named(
    tmp_path: Path, text: str, undecided: list[str]
) -> None:
    assert undecided_options(_read(tmp_path, text + ARGUMENTS)) == undecided


def test_a_length_that_texts_are_cut_to_is_that_of_sequences(tmp_path: Path) -> None:
    text = "tokenizer(t, truncation=True, max_length=512)\n"

    assert int(_read(tmp_path, MODEL + text + ARGUMENTS).values["sequence_length"]) == 512


def test_a_trainer_of_rewards_trains_on_pairs(tmp_path: Path) -> None:
    text = MODEL.replace("CausalLM", "SequenceClassification") + ARGUMENTS
    trainer = "class RewardTrainer(Trainer):\n    pass\nRewardTrainer(model=model, args=args)\n"

    assert str(_read(tmp_path, text + trainer).values["training_objective"]) == "rm"


def test_unsloth_s_length_holds_prompts_and_answers(tmp_path: Path) -> None:
    text = (
        "from unsloth import FastLanguageModel\n"
        "model, t = FastLanguageModel.from_pretrained('Qwen/Qwen3-8B', max_seq_length=2048)\n"
        "GRPOTrainer(model=model, args=GRPOConfig(max_completion_length=1536))\n"
    )

    assert int(_read(tmp_path, text).values["sequence_length"]) == 2048


@pytest.mark.parametrize(("lengths", "tokens"), [((256, 200), 456), ((512, 3000), 2048)])
@pytest.mark.parametrize(("batch", "read"), [(1, 8), (4, 8), (8, 8), (16, 16)])
def test_unsloth_trains_on_whole_groups_of_answers(
    tmp_path: Path, lengths: tuple[int, int], tokens: int, batch: int, read: int
) -> None:
    text = (
        "from unsloth import FastLanguageModel\n"
        "model, t = FastLanguageModel.from_pretrained('Qwen/Qwen3-8B', max_seq_length=2048)\n"
        f"args = GRPOConfig(per_device_train_batch_size={batch}, num_generations=8,\n"
        f"    max_prompt_length={lengths[0]}, max_completion_length={lengths[1]})\n"
        "GRPOTrainer(model=model, args=args)\n"
    )

    values = _read(tmp_path, text).values

    assert (values["sequence_length"], values["micro_batch_size"]) == (tokens, read)


def test_a_class_of_the_program_is_no_configuration_of_a_library(tmp_path: Path) -> None:
    text = "class SFTConfig:\n    def __init__(self, batch):\n        pass\nSFTConfig(batch=2)\n"

    with pytest.raises(LaunchError, match="calls nothing that planner knows"):
        _read(tmp_path, text.replace("from trl import *", ""))


def test_a_model_that_judges_is_not_the_one_that_trains(tmp_path: Path) -> None:
    judge = "judge = AutoModelForSequenceClassification.from_pretrained('Qwen/Qwen3-0.6B')\n"

    length = "tokenizer(t, truncation=True, max_length=512)\n"
    found = _read(tmp_path, judge + MODEL + length + ARGUMENTS)

    assert (found.values["model"], undecided_options(found)) == ("Qwen/Qwen3-8B", [])


def test_a_program_that_a_command_starts_has_its_adapters(tmp_path: Path) -> None:
    options = "--model_name_or_path Qwen/Qwen3-8B --per_device_train_batch_size 1 --output_dir o"
    (tmp_path / "run.sh").write_text(f"deepspeed --num_gpus 2 own.py {options}\n")
    program = HEAD + "model = get_peft_model(m, LoraConfig(r=4, target_modules='all-linear'))\n"
    (tmp_path / "own.py").write_text(program)

    values = read_launch(tmp_path / "run.sh").values
    assert (values["adapter"], int(values["lora_rank"])) == ("lora", 4)

    (tmp_path / "own.py").write_text(HEAD + "if wants():\n    LoraConfig(r=4)\n")
    assert read_launch(tmp_path / "run.sh").values["adapter"] == "none"


def test_a_module_near_a_script_is_its_program(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    length = "tokenizer(t, truncation=True, max_length=512)\n"
    (tmp_path / "src" / "own.py").write_text(HEAD + MODEL + length + ARGUMENTS)
    (tmp_path / "run.sh").write_text("python -m src.own\n")

    assert read_launch(tmp_path / "run.sh").values["model"] == "Qwen/Qwen3-8B"


def test_the_method_of_an_own_document_is_the_objective(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(
        "base_model: Qwen/Qwen3-8B\ntraining_method: DPO\nper_device_train_batch_size: 1\n"
        "gradient_accumulation_steps: 2\noutput_dir: o\n"
    )

    assert read_launch(path).values["training_objective"] == "dpo"


@pytest.mark.parametrize("reference", ["", ", ref_model=None", ", ref_model=judge"])
@pytest.mark.parametrize("adapter", ["", "peft = LoraConfig(r=8)\n"])
def test_a_reference_model_beside_adapters_is_named(
    tmp_path: Path, reference: str, adapter: str
) -> None:
    judge = "judge = AutoModelForCausalLM.from_pretrained('Qwen/Qwen3-8B')\n"
    text = f"DPOTrainer(model=model, args=DPOConfig(max_length=512){reference})\n"

    launch = _read(tmp_path, MODEL + judge + adapter + text)

    is_named = "ref_model, a second model" in undecided_options(launch)
    assert is_named == (reference.endswith("judge") and adapter != "")


@each(
    "words, generates",
    [
        ("accelerate launch --config_file train.yaml generate.py --max_new_tokens 200", True),
        ("accelerate launch --num_processes 8 app.py --temperature=1", True),
        ("accelerate launch --config_file a.yaml grpo.py --temperature=1 --num_epochs=3", False),
        ("evaluate.py --tasks mmlu", True),
        ("train.py --tasks mmlu --lr 1e-4", False),
    ],
)
def test_a_program_that_only_generates_trains_nothing(words, generates):
    """Options of accelerate before the program say nothing of it."""
    assert only_generates(words.split()) is generates
