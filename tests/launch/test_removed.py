"""Programs that planner no longer supports are named, with the last version that had them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rows import each

from planner.errors import LaunchError
from planner.launch.option_table import shipped_rows
from planner.launch.read.read_launch import read_launch
from planner.launch.targets import target_of
from planner.launch.wrappers import wrapper_of

ROWS = {row["names"].partition("|")[0]: row for row in shipped_rows("read/removed.csv")}
NAMES = [(name, row["title"]) for row in ROWS.values() for name in row["names"].split("|")]
COMMANDS = {
    "litgpt": ["litgpt finetune_lora google/gemma-2-2b", "litgpt pretrain pythia-14m"],
    "levanter": ["python -m levanter.main.train_lm --config_path llama.yaml",
                 "python src/levanter/main/train_lm.py --config_path x.yaml"],
    "colossalai": ["colossalai run --nproc_per_node 8 train_sft.py --plugin zero2",
                   "torchrun --nproc_per_node 8 benchmark.py -c 7b --plugin gemini"],
    "paddlenlp": ["python -m paddle.distributed.launch --gpus 0,1 run_finetune.py sft.json",
                  "paddleformers-cli train full.yaml",
                  "python run_pretrain.py --model_name_or_path m --tensor_parallel_degree 2"],
    "open-instruct": [
        "python open_instruct/grpo_fast.py --deepspeed_stage 3",
        "python mason.py --gpus 8 -- accelerate launch open_instruct/dpo_tune_cache.py"],
    "skyrl": ["uv run -m skyrl_train.entrypoints.main_base trainer.policy.model.path=m"],
    "areal": ["python3 -m areal.launcher.local examples/math.py --config grpo.yaml"],
    "mosaicml": ["mcli run -f run.yaml --follow"],
    "lorax": ["/usr/bin/lorax-launcher --model-id m",
              "docker run --gpus all ghcr.io/predibase/lorax:main --model-id m --num-shard 2"],
    "aphrodite": ["aphrodite run m -tp 2",
                  "python -m aphrodite.endpoints.openai.api_server --model m",
                  "docker run --gpus all alpindale/aphrodite-openai:latest --model m"],
    "llama-swap": ["llama-swap --config config.yaml"],
    "localai": ["local-ai run llama-3.1-8b-instruct"],
    "runpod": ["docker run --gpus 2 -e MODEL_NAME=m runpod/worker-v1-vllm:v2.7.0"],
}  # fmt: skip
DOCUMENTS = {
    "litgpt": "checkpoint_dir: google/gemma-2b\ntrain: {micro_batch_size: 1}\n",
    "picotron": "distributed: {tp_size: 2}\ntraining: {micro_batch_size: 4}\n",
    "levanter": "trainer: {mp: 'p=f32,c=bfloat16', train_batch_size: 256}\n",
    "paddlenlp": "model_name_or_path: m\ntensor_parallel_degree: 2\nsharding: stage2\n",
    "areal": "actor: {path: Qwen/Qwen3-8B, backend: 'fsdp:d8'}\n",
    "mosaicml": "name: a\ncommand: composer train.py x.yaml\ncompute: {gpus: 8}\n",
    "llama-swap": "models: {qwen2.5-7b: {cmd: llama-server -m m.gguf}}\n",
    "localai": "name: a\nbackend: llama-cpp\nparameters: {model: m.gguf}\n",
}
CALLS = {
    "sagemaker": [
        "from sagemaker.huggingface import HuggingFaceModel\n"
        "HuggingFaceModel(env={'HF_MODEL_ID': 'm'})\n",
        "import sagemaker\nsagemaker.Model(env={'HF_MODEL_ID': 'm'})\n",
    ],
    "kubeflow-client": [
        "from kubeflow.trainer import *\nTrainerClient().train()\n",
        "from kubeflow import training as t\nt.TrainingClient().create_job()\n",
    ],
}
SCRIPTS = [(name, command) for name, commands in COMMANDS.items() for command in commands]
SUPPORTED = "vllm serve meta-llama/Llama-3.1-8B\n"


def test_each_row_has_an_example() -> None:
    assert {name for name, row in ROWS.items() if row["command"]} == {*COMMANDS}
    assert {name for name, row in ROWS.items() if row["document"]} == {*DOCUMENTS}
    assert {name for name, row in ROWS.items() if row["call"]} == {*CALLS}


def require_error(path: Path, name: str, where: str) -> None:
    with pytest.raises(LaunchError) as error:
        read_launch(path)
    row = ROWS[name]
    last = f"planner {row['last_version']} was the last version with this {row['kind']}."
    assert str(error.value) == (
        f"{where}: {row['title']} is no longer supported; {last} Describe the run with --model, "
        "--framework or --engine, and --set, not with --from."
    )


@each(("name", "title"), NAMES)
def test_names(name: str, title: str) -> None:
    """Targets and wrappers that users name."""
    for find in (target_of, wrapper_of):
        with pytest.raises(LaunchError, match=f"^{name}: {title} is no longer supported; planner "):
            find(name)


@each(("name", "command"), SCRIPTS)
def test_commands(name: str, command: str, tmp_path: Path) -> None:
    """Shell scripts, also those that another script starts, texts with blocks of code, pods."""
    script, outer, text = tmp_path / "run.sh", tmp_path / "all.sh", tmp_path / "README.md"
    pod = tmp_path / "pod.yaml"
    script.write_text(f"#!/bin/bash\nexport A=1\n{command}\n")
    outer.write_text("bash run.sh\n")
    text.write_text(f"# Train\n\n```sh\n{command}\n```\n")
    container = {"name": "a", "image": "b", "command": ["bash", "-c", command]}
    pod.write_text(json.dumps({"kind": "Pod", "spec": {"containers": [container]}}))
    require_error(pod, name, f"{pod}:1")
    require_error(script, name, f"{script}:3")
    require_error(outer, name, f"{outer}:1")
    require_error(text, name, f"{text}:4")


@each(("name", "document"), DOCUMENTS.items())
def test_documents(name: str, document: str, tmp_path: Path) -> None:
    """YAML files, and the folder that has no other file."""
    path = tmp_path / name / "run.yaml"
    path.parent.mkdir()
    path.write_text(document)
    require_error(path, name, f"{path}:1")
    require_error(path.parent, name, f"{path}:1")


@each(("name", "command"), SCRIPTS)
def test_other_programs_are_read(name: str, command: str, tmp_path: Path) -> None:
    """A file that starts a supported program, too."""
    path = tmp_path / "run.sh"
    path.write_text(f"{command}\n{SUPPORTED}")
    assert read_launch(path).target.name == "vllm"


@each(("name", "program"), [(name, text) for name, texts in CALLS.items() for text in texts])
def test_calls(name: str, program: str, tmp_path: Path) -> None:
    """Python programs, also those that train in the same process or have a server's calls."""
    path = tmp_path / "run.py"
    path.write_text(f"{program}from vllm import LLM\nLLM(model='meta-llama/Llama-3.1-8B')\n")
    require_error(path, name, f"{path}:2")
