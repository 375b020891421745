"""Programs and notebooks are read as the options of the tools that they call."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from planner.errors import LaunchError
from planner.launch.read.import_launch import ImportedLaunch
from planner.launch.read.option_lines import Status
from planner.launch.read.read_launch import read_launch
from planner.specs.catalogue import load_model


def _read(
    folder: Path, text: str, number: int | None = None, gpu: str | None = None
) -> ImportedLaunch:
    path = folder / "p.py"
    path.write_text(text)
    return read_launch(path, number, gpu=gpu)


def _trained(folder: Path, *lines: str) -> dict[str, object]:
    head = (
        "from transformers import *\nfrom peft import *\nfrom trl import *\nfrom unsloth import *\n"
    )
    return dict(_read(folder, head + "\n".join(lines)).values)


# vllm/engine/arg_utils.py of 0.28 and later, get_batch_defaults: LLM_CLASS.
@pytest.mark.parametrize(
    ("gpu", "tokens", "seqs"),
    [("h100-sxm-80gb", 16384, 1024), ("a100-sxm-80gb", 8192, 256), ("l4", 8192, 256)],
)
def test_a_program_without_a_server_has_larger_steps(
    tmp_path: Path, gpu: str, tokens: int, seqs: int
) -> None:
    found = _read(tmp_path, "from vllm import LLM\nLLM('Qwen/Qwen3-8B')", gpu=gpu)

    assert (found.values["max_num_batched_tokens"], found.values["concurrency"]) == (tokens, seqs)


def test_arguments_of_a_server_in_python_have_its_steps(tmp_path: Path) -> None:
    text = "from vllm import AsyncEngineArgs\nAsyncEngineArgs(model='Qwen/Qwen3-8B')"

    assert _read(tmp_path, text, gpu="h100-sxm-80gb").values["max_num_batched_tokens"] == 8192


def test_flags_that_are_off_are_not_there(tmp_path: Path) -> None:
    text = "from vllm import LLM\nLLM('Qwen/Qwen3-8B', enforce_eager={})"

    assert "enforce_eager" not in _read(tmp_path, text.format(False)).values
    assert _read(tmp_path, text.format(True)).values["enforce_eager"] is True


def test_an_engine_of_sglang_is_its_server(tmp_path: Path) -> None:
    found = _read(
        tmp_path,
        "import sglang as sgl\nsgl.Engine(model_path='Qwen/Qwen3-8B', tp_size=2, dp_size=n,\n"
        "    mem_fraction_static=0.8)",
    )

    assert found.target.name == "sglang"
    assert found.values["num_gpus"] == 2
    assert found.values["gpu_memory_utilization"] == "0.8"
    (line,) = found.lines_with_status(Status.OPEN)
    assert (line.line, line.option) == (2, "--dp-size")
    assert line.meaning == "n is set by nothing in this program"


def test_sections_of_tensorrt_llm_are_calls_of_their_own(tmp_path: Path) -> None:
    found = _read(
        tmp_path,
        "from tensorrt_llm import LLM\nfrom tensorrt_llm.llmapi import KvCacheConfig\n"
        "kv = KvCacheConfig(free_gpu_memory_fraction=0.7, dtype='fp8')\n"
        "LLM(model='Qwen/Qwen3-8B', tensor_parallel_size=2, max_batch_size=64, kv_cache_config=kv)",
    )

    assert found.target.name == "tensorrt-llm"
    told = {name: found.values[name] for name in ("num_gpus", "concurrency", "kv_cache")}
    assert told == {"num_gpus": 2, "concurrency": 64, "kv_cache": "fp8"}
    assert found.values["gpu_memory_utilization"] == "0.7"


def test_several_engines_are_counted(tmp_path: Path) -> None:
    text = (
        "from vllm import LLM\nLLM('Qwen/Qwen3-8B')\nLLM('Qwen/Qwen3-14B', tensor_parallel_size=2)"
    )

    assert _read(tmp_path, text, 2).values["num_gpus"] == 2


def test_adapters_of_a_plain_trainer_have_the_defaults_of_peft(tmp_path: Path) -> None:
    values = _trained(
        tmp_path,
        "AutoModelForCausalLM.from_pretrained('Qwen/Qwen3-8B', torch_dtype=torch.bfloat16)",
        "LoraConfig(task_type='CAUSAL_LM')",
        "TrainingArguments(per_device_train_batch_size=2)",
    )

    # PEFT 0.21, tuners/lora/config.py: r is 8; Transformers 5 repeats nothing by itself.
    told = {name: values[name] for name in ("adapter", "lora_rank", "recompute", "precision")}
    assert told == {"adapter": "lora", "lora_rank": 8, "recompute": "none", "precision": "bf16"}


def test_objectives_are_those_of_their_configurations(tmp_path: Path) -> None:
    values = _trained(
        tmp_path,
        "AutoModelForCausalLM.from_pretrained('Qwen/Qwen3-8B')",
        "DPOConfig(per_device_train_batch_size=1, max_length=1024)",
    )

    assert values["training_objective"] == "dpo"
    assert values["recompute"] == "full"  # TRL's default
    rollouts = _trained(
        tmp_path,
        "AutoModelForCausalLM.from_pretrained('Qwen/Qwen3-8B')",
        "GRPOConfig(per_device_train_batch_size=1, beta=0.04)",
    )
    assert rollouts["training_objective"] == "grpo"


def test_a_mapping_for_deepspeed_is_its_file(tmp_path: Path) -> None:
    values = _trained(
        tmp_path,
        "AutoModelForCausalLM.from_pretrained('Qwen/Qwen3-8B')",
        "ds = {'zero_optimization': {'stage': 3, 'offload_optimizer': {'device': 'cpu'}}}",
        "TrainingArguments(per_device_train_batch_size=1, bf16=True, deepspeed=ds)",
    )

    told = {name: values[name] for name in ("framework", "zero_stage", "offload")}
    assert told == {"framework": "DeepSpeed", "zero_stage": 3, "offload": "optimizer"}


_LOAD = 'model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-2-13b-hf")\n'
_ARGUMENTS = 'args = TrainingArguments("o", per_device_train_batch_size=1, deepspeed="z3.json")\n'
_IMPORTS = "from transformers import AutoModelForCausalLM, Trainer, TrainingArguments\n"


@pytest.mark.parametrize(
    ("body", "lost"),
    [
        (f"{_LOAD}{_ARGUMENTS}", True),
        (f"{_ARGUMENTS}{_LOAD}", False),
        (f"def load():\n    {_LOAD}    return model\n{_ARGUMENTS}model = load()\n", False),
    ],
)
def test_a_model_that_is_loaded_before_its_arguments_is_not_sharded_while_it_loads(
    tmp_path: Path, body: str, lost: bool
) -> None:
    """Transformers' guide of DeepSpeed: the training arguments come before the model."""
    (tmp_path / "z3.json").write_text('{"zero_optimization": {"stage": 3}}')
    program = tmp_path / "t.py"
    program.write_text(f"{_IMPORTS}{body}Trainer(model=model, args=args).train()\n")
    found = read_launch(program).values
    assert found["zero_stage"] == 3
    assert (found.get("zero3_init") is not None) == lost


@pytest.mark.parametrize(("word", "split"), [("auto", (True, 2, 4)), ("cuda:0", (None, None, 8))])
def test_a_device_map_spreads_layers_over_the_gpus(
    tmp_path: Path, word: str, split: tuple[object, ...]
) -> None:
    """Two GPUs, and a batch of 2 x 2 for each process."""
    path = tmp_path / "train.py"
    path.write_text(
        "from transformers import *\nfrom trl import *\nfrom peft import *\n"
        f"m = AutoModelForCausalLM.from_pretrained('Qwen/Qwen2.5-7B', device_map='{word}')\n"
        "a = SFTConfig(per_device_train_batch_size=2, gradient_accumulation_steps=2)\n"
        "SFTTrainer(model=m, args=a, peft_config=LoraConfig(r=8))\n"
    )
    values = read_launch(path, num_gpus="2").values
    names = ("layer_split", "pipeline_parallel", "global_batch_size")
    assert tuple(values.get(name) for name in names) == split


def test_unsloth_has_its_own_defaults(tmp_path: Path) -> None:
    values = _trained(
        tmp_path,
        "FastLanguageModel.from_pretrained('unsloth/Llama-3.1-8B')",
        "FastLanguageModel.get_peft_model(model)",
        "SFTConfig(per_device_train_batch_size=2, packing=True)",
    )

    # unsloth/models/loader.py and llama.py at 0050c73
    names = ("adapter", "lora_rank", "lora_targets", "sequence_length", "offload", "num_gpus")
    told = ["qlora", 16, "all_linear", 2048, "activations", 1]
    assert [values[name] for name in names] == told
    assert values["framework"] == "Unsloth"


def test_unsloth_trains_all_weights_where_it_is_told_so(tmp_path: Path) -> None:
    values = _trained(
        tmp_path,
        "FastLanguageModel.from_pretrained('unsloth/Llama-3.1-8B', full_finetuning=True)",
        "SFTConfig(per_device_train_batch_size=2)",
    )

    assert values["adapter"] == "none"
    assert "Triton" not in str(values["framework"])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("print('x')", "calls nothing that planner knows"),
        ("from vllm import LLM\nLLM(**vars(args))", r"line 2.*not in the text"),
        ("HfArgumentParser((TrainingArguments,))", "give the command that starts it"),
        (
            "from peft import IA3Config\nIA3Config()\nTrainingArguments(bf16=True)",
            "line 2: IA3Config",
        ),
        ("x = (", "line 1: is not Python"),
    ],
)
def test_what_a_program_lacks_is_said(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(LaunchError, match=words):
        _read(tmp_path, text)


def test_a_notebook_starts_what_its_cells_call_and_run(tmp_path: Path) -> None:
    cells = [
        "!pip install vllm==0.9.2",
        "from vllm import LLM\nllm = LLM('Qwen/Qwen3-8B')",
        "%%bash\npython -m sglang.launch_server --model-path Qwen/Qwen3-8B --tp 2",
    ]
    path = tmp_path / "n.ipynb"
    book = {"cells": [{"cell_type": "code", "source": cell} for cell in cells]}
    path.write_text(json.dumps(book))

    first, second = (read_launch(path, number) for number in (1, 2))

    assert (first.target.name, first.version, first.command.line) == ("vllm", "0.9.2", 3)
    assert (second.target.name, second.values["num_gpus"]) == ("sglang", 2)


def test_a_program_starts_a_server_as_a_process(tmp_path: Path) -> None:
    # modal-labs/modal-examples, 06_gpu_and_ml/llm-serving/vllm_inference.py
    found = _read(
        tmp_path,
        "import subprocess\nimport modal\napp = modal.App('a')\nN = 2\nFAST = True\n"
        "@app.function(gpu=f'B200:{N}')\ndef serve():\n"
        "    cmd = ['vllm', 'serve', 'Qwen/Qwen3-8B', '--port', str(PORT)]\n"
        "    cmd += ['--enforce-eager' if FAST else '--no-enforce-eager']\n"
        "    cmd.extend(['--tensor-parallel-size', str(N)])\n"
        "    subprocess.Popen(' '.join(cmd), shell=True)\n",
    )

    told = {name: found.values[name] for name in ("gpu", "num_gpus", "enforce_eager")}
    assert told == {"gpu": "b200-sxm-180gb", "num_gpus": 2, "enforce_eager": True}
    assert found.values["tensor_parallel"] == 2


def test_a_command_in_a_list_keeps_its_words(tmp_path: Path) -> None:
    words = [
        "vllm",
        "serve",
        "Qwen/Qwen3-8B",
        "--hf-overrides",
        '{"a b": 1}',
        "--max-num-seqs",
        "64",
    ]
    found = _read(tmp_path, f"import subprocess\nsubprocess.run({words!r}, check=True)\n")

    assert found.values["max_num_seqs"] == 64


# peft/utils/other.py of 0.21, prepare_model_for_kbit_training(use_gradient_checkpointing=True).
@pytest.mark.parametrize(
    ("words", "repeats"), [("", "full"), (", use_gradient_checkpointing=False", "none")]
)
def test_a_model_that_is_prepared_repeats_its_layers(
    tmp_path: Path, words: str, repeats: str
) -> None:
    found = _trained(
        tmp_path,
        "m = AutoModelForCausalLM.from_pretrained('Qwen/Qwen3-8B')",
        f"m = prepare_model_for_kbit_training(m{words})",
        "a = TrainingArguments(output_dir='o', gradient_checkpointing=False)",
    )

    assert found["recompute"] == repeats


def test_a_model_that_is_told_to_repeats_its_layers(tmp_path: Path) -> None:
    lines = (
        "m = AutoModelForCausalLM.from_pretrained('Qwen/Qwen3-8B')",
        "a = TrainingArguments(output_dir='o')",
    )
    told = (*lines, "m.gradient_checkpointing_enable()")

    assert [_trained(tmp_path, *each)["recompute"] for each in (lines, told)] == ["none", "full"]


_STARTED = """
import argparse
from transformers import AutoModelForCausalLM, HfArgumentParser, TrainingArguments
class Own:
    model: str = field(default="Qwen/Qwen3-8B")
    size: int = 4
{parsed}
def train(model="Qwen/Qwen3-8B", size=4):
    pass
AutoModelForCausalLM.from_pretrained(args.model)
TrainingArguments(output_dir="o", per_device_train_batch_size=args.size, bf16=True)
"""
_ARGPARSE = """
p = argparse.ArgumentParser()
p.add_argument("--model", default="Qwen/Qwen3-8B")
p.add_argument("--size", type=int, default=4)
args = p.parse_args()
"""
_CLASSES = "args = HfArgumentParser(Own).parse_args_into_dataclasses()[0]"


@pytest.mark.parametrize("parsed", [_ARGPARSE, _CLASSES])
@pytest.mark.parametrize(
    ("command", "gpus", "model", "size"),
    [
        ("python train.py", 1, "qwen3-8b", 4),
        ("torchrun --nproc_per_node 4 code/train.py --size=2", 4, "qwen3-8b", 2),
        ("accelerate launch --num_processes 8 train.py --model Qwen/Qwen3-4B", 8, "qwen3-4b", 4),
    ],
)
def test_a_program_beside_a_script_is_read_with_its_options(
    tmp_path: Path, parsed: str, command: str, gpus: int, model: str, size: int
) -> None:
    (tmp_path / "train.py").write_text(_STARTED.format(parsed=parsed))
    (tmp_path / "run.sh").write_text(command)

    values = read_launch(tmp_path / "run.sh").values

    assert (values["num_gpus"], values["micro_batch_size"]) == (gpus, size)
    assert load_model(str(values["model"])).name == load_model(model).name


def test_a_function_that_fire_calls_takes_the_options_of_its_command(tmp_path: Path) -> None:
    program = """
import fire
from transformers import AutoModelForCausalLM, TrainingArguments
def train(model="", size=4):
    AutoModelForCausalLM.from_pretrained(model)
    TrainingArguments(output_dir="o", per_device_train_batch_size=size, bf16=True)
fire.Fire(train)
"""
    (tmp_path / "finetune.py").write_text(program)
    (tmp_path / "run.sh").write_text("python finetune.py --model Qwen/Qwen3-4B --size 2")

    values = read_launch(tmp_path / "run.sh").values

    assert load_model(str(values["model"])).name == load_model("qwen3-4b").name
    assert values["micro_batch_size"] == 2


def test_a_service_of_bentoml_asks_for_gpus(tmp_path: Path) -> None:
    text = (
        "import bentoml\nfrom vllm import AsyncEngineArgs\n"
        "@bentoml.service(resources={'gpu': 2, 'gpu_type': 'nvidia-l4'})\nclass S:\n"
        "    args = AsyncEngineArgs(model='Qwen/Qwen3-8B', tensor_parallel_size=2)\n"
    )

    found = _read(tmp_path, text).values
    assert (found["gpu"], found["num_gpus"]) == ("l4-24gb", 2)


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("from peft import IA3Config\nfrom transformers import TrainingArguments\nIA3Config()\n"
         "TrainingArguments(output_dir='o')", "IA3Config of PEFT is not supported"),
        ("print(1)", r"train\.py: calls nothing that planner knows"),
    ],
)  # fmt: skip
def test_why_a_program_beside_a_script_is_not_read_is_told(
    tmp_path: Path, program: str, words: str
) -> None:
    (tmp_path / "train.py").write_text(program)
    (tmp_path / "run.sh").write_text("torchrun --nproc_per_node 4 train.py")

    with pytest.raises(LaunchError, match=words):
        read_launch(tmp_path / "run.sh")


def test_a_configuration_of_xtuner_for_answers_is_refused(tmp_path: Path) -> None:
    text = "from xtuner.v1.train import RLColocateTrainerConfig\nRLColocateTrainerConfig(seed=1)"

    with pytest.raises(LaunchError, match="trains on rollouts"):
        _read(tmp_path, text)
