"""Charts of users around vLLM, pods that ask for no GPU, and mounted models."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import Command

from planner.decide.sizing.services import read_services
from planner.errors import LaunchError, SearchSpaceError
from planner.launch.read.import_launch import ImportedLaunch
from planner.launch.read.incomplete import undecided_options
from planner.launch.read.read_launch import read_launch

TEMPLATES = "the templates of its chart"
IMAGE = "image: {repository: vllm/vllm-openai, tag: v0.11.0}\n"
POD = """apiVersion: apps/v1
kind: Deployment
metadata: {{name: vllm}}
spec:
  template:
    spec:
      containers:
        - name: vllm
          image: vllm/vllm-openai:latest
          args: [--model, Qwen/Qwen3-8B]
          {resources}
"""


def _read(folder: Path, name: str, text: str) -> ImportedLaunch:
    (folder / name).write_text(text)
    return read_launch(folder / name)


@pytest.mark.parametrize(
    "model",
    [
        "model: Qwen/Qwen3-8B",
        "model: {name: Qwen/Qwen3-8B, quantization: ''}",
        "vllm: {modelId: Qwen/Qwen3-8B}",
        "server: {extraArgs: [--model, Qwen/Qwen3-8B]}\nmodel: {name: served}",
    ],
)
@pytest.mark.parametrize(
    "keys", ["maxModelLen: 8192", "max_model_len: 8192", "max-model-len: 8192"]
)
def test_a_chart_of_users_is_read_by_keys_named_as_options(
    tmp_path: Path, model: str, keys: str
) -> None:
    more = "engine: {enforceEager: true, enablePrefixCaching: false, tensorParallelSize: 2}\n"
    limits = "resources: {limits: {nvidia.com/gpu: 2}}\nreplicaCount: 3\n"

    found = _read(tmp_path, "values.yaml", f"{IMAGE}{model}\nargs: {{{keys}}}\n{more}{limits}")

    assert found.values["model"] == "Qwen/Qwen3-8B"
    assert found.values["tensor_parallel"] == 2
    assert found.values["enforce_eager"] is True
    assert found.command.resources.gpus_per_node is not None
    assert int(found.values["max_model_len"]) == 8192
    assert found.command.resources.copies is not None
    assert found.command.resources.copies.single == "3"
    assert TEMPLATES in undecided_options(found)


def test_a_chart_without_a_model_asks_for_it(planner: Command, tmp_path: Path) -> None:
    (tmp_path / "values.yaml").write_text(f"{IMAGE}model: {{path: ''}}\nmaxModelLen: 2048\n")

    done = planner("estimate", "--from", tmp_path / "values.yaml")

    assert "values.yaml does not specify the model (--model)" in done.err


def test_values_of_other_images_are_no_server(tmp_path: Path) -> None:
    text = "image: {repository: nginx}\nmodel: Qwen/Qwen3-8B\nmaxModelLen: 2048\n"

    with pytest.raises(LaunchError, match="not a file of a supported tool"):
        _read(tmp_path, "values.yaml", text)


@pytest.mark.parametrize(
    ("resources", "is_doubt"),
    [
        ("resources: {requests: {cpu: 24, memory: 96Gi}}", True),
        ("resources: {limits: {cpu: 8}}", True),
        ("resources: {limits: {cpu: 8, nvidia.com/gpu: 1}}", False),
        ("resources: {limits: {memory: 8Gi, nvidia.com/mig-1g.10gb: 1}}", False),
        ("resources: {limits: {cpu: 8}, claims: [{name: gpu}]}", False),
        ("tty: true", False),
    ],
)
def test_a_pod_that_asks_for_no_device_is_a_doubt(
    tmp_path: Path, resources: str, is_doubt: bool
) -> None:
    found = _read(tmp_path, "pod.yaml", POD.format(resources=resources))

    assert ("resources without a GPU" in undecided_options(found)) == is_doubt


def test_the_memory_of_a_server_on_cpus_names_it(tmp_path: Path) -> None:
    text = POD.format(resources="env: [{name: VLLM_CPU_KVCACHE_SPACE, value: '40'}]")

    with pytest.raises(LaunchError, match="a server on CPUs"):
        _read(tmp_path, "pod.yaml", text)


@pytest.mark.parametrize("folder", ["$PWD/models", "${HOME}", "/srv", "$(pwd)"])
def test_a_mounted_folder_names_the_model(tmp_path: Path, folder: str) -> None:
    text = f"docker run --gpus all -v {folder}/Qwen3-8B:/data vllm/vllm-openai --model /data\n"

    assert _read(tmp_path, "run.sh", text).values["model"] == "Qwen3-8B"


@pytest.mark.parametrize("kind", ["GRPO", "RLOO"])
def test_a_trainer_of_reinforcement_learning_loads_its_model(tmp_path: Path, kind: str) -> None:
    text = (
        f"from trl import {kind}Config, {kind}Trainer\n"
        f"args = {kind}Config(num_generations=4, max_completion_length=256)\n"
        f'trainer = {kind}Trainer(model="Qwen/Qwen3-0.6B", args=args, train_dataset=data)\n'
        "trainer.train()\n"
    )

    found = _read(tmp_path, "train.py", text)

    assert found.values["model"] == "Qwen/Qwen3-0.6B"
    assert "the loading of the model" not in undecided_options(found)


def test_the_file_of_a_misspelt_table_is_named(tmp_path: Path) -> None:
    file = tmp_path / "services.toml"
    file.write_text('[servces.chat]\nmodel = "llama-3.1-8b"\n')

    with pytest.raises(SearchSpaceError, match=r"services\.toml: Unknown table \[servces\]"):
        read_services(file, {})


def test_only_engines_with_a_share_of_memory_log_the_cache(
    planner: Command, tmp_path: Path
) -> None:
    shown = {}
    for name, command in {
        "vllm": "vllm serve Qwen/Qwen3-8B",
        "llama": "llama-server -m Qwen3-8B-Q4_K_M.gguf -ngl 99 -c 8192",
    }.items():
        (tmp_path / f"{name}.sh").write_text(f"{command}\n")
        shown[name] = planner("estimate", "--from", tmp_path / f"{name}.sh", "--gpu", "h100").out

    assert "At start the engine logs: weights" in shown["vllm"]
    assert "At start the engine logs" not in shown["llama"]


def test_llama_cpp_allocates_the_cache_of_its_context(planner: Command, tmp_path: Path) -> None:
    """Published: "KV buffer size = 16384.00 MiB" of Llama 3.1 8B at 131,072 tokens."""
    script = tmp_path / "run.sh"
    script.write_text("llama-server -m Meta-Llama-3.1-8B-Q4_K_M.gguf -ngl 99 -c 131072 -np 2\n")

    out = planner("estimate", "--from", script, "--gpu", "rtx-4090-24gb").out

    assert "kv cache 16.0" in out


@pytest.mark.parametrize("option", ["--device npu", "--attention-backend ascend"])
def test_options_of_ascend_are_no_gpu_of_nvidia(
    planner: Command, tmp_path: Path, option: str
) -> None:
    script = tmp_path / "run.sh"
    script.write_text(f"python3 -m sglang.launch_server --model-path Qwen/Qwen3-8B {option}\n")

    done = planner("estimate", "--from", script)

    assert "not for ascend-910b-64gb of Huawei" in done.err
    assert "--engine, such as vllm" in done.err


@pytest.mark.parametrize(("replicas", "is_doubt"), [("${REPLICAS}", True), ("2", False)])
def test_copies_from_outside_are_a_doubt(tmp_path: Path, replicas: str, is_doubt: bool) -> None:
    text = POD.format(resources="resources: {limits: {nvidia.com/gpu: 1}}")

    found = _read(tmp_path, "pod.yaml", text.replace("spec:", f"spec:\n  replicas: {replicas}", 1))

    assert (f"replicas {replicas}" in undecided_options(found)) == is_doubt
