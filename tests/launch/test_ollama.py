"""Names of Ollama's library, and what says how many requests and GPUs there are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from commands import Command

from planner.errors import LaunchError
from planner.launch.read.import_launch import ImportedLaunch
from planner.launch.read.read_launch import read_launch


def read(folder: Path, text: str, name: str = "run.sh") -> ImportedLaunch:
    path = folder / name
    path.write_text(text)
    return read_launch(path)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("llama3.1:70b-instruct-q4_K_M", "llama-3.1-70b q4_k_m"),
        ("llama3.3", "llama-3.3-70b q4_k_m"),
        ("llama2:13b", "llama-2-13b q4_0"),
        ("qwen2.5:14b-instruct-fp16", "qwen2.5-14b w16a16"),
        ("qwen3:30b-a3b-q8_0", "qwen3-30b-a3b q8_0"),
        ("qwen3:latest", "qwen3-8b q4_k_m"),
        ("deepseek-r1:671b", "deepseek-v3 q4_k_m"),
        ("deepseek-r1:70b-llama-distill-q8_0", "llama-3.3-70b q8_0"),
        ("gpt-oss:120b", "gpt-oss-120b w16a16"),
        ("gemma2:27b", "gemma-2-27b q4_0"),
        ("someone/mixtral:8x7b", "mixtral-8x7b q4_0"),
        ("hf.co/bartowski/Llama-3.2-3B-Instruct-GGUF:Q8_0", "llama-3.2-3b q8_0"),
        ("hf.co/bartowski/Llama-3.2-3B-Instruct-GGUF", "llama-3.2-3b q4_k_m"),
    ],
)
def test_a_name_tells_model_and_type_of_weights(tmp_path: Path, name: str, said: str) -> None:
    values = read(tmp_path, f"ollama run {name}").values

    assert f"{values['model']} {values['quantization']}" == said


def test_a_name_of_the_user_asks_for_the_model(tmp_path: Path) -> None:
    assert "model" in read(tmp_path, "ollama run mine").missing_terms({})


def test_gpus_are_as_few_as_it_fits_on_unless_it_is_spread(tmp_path: Path) -> None:
    text = "CUDA_VISIBLE_DEVICES=0,1 {} ollama serve & \nollama run llama3.1:8b"
    alone = "CUDA_VISIBLE_DEVICES=0,1 OLLAMA_SCHED_SPREAD=1 ollama run llama3.1:8b"

    assert "num_gpus" in read(tmp_path, text.format("")).missing_terms({})
    assert read(tmp_path, alone).values["pipeline_parallel"] == 2


def test_a_file_of_a_model_is_loaded(tmp_path: Path) -> None:
    found = read(tmp_path, "FROM ./Qwen3-8B-Q6_K.gguf\nPARAMETER num_gpu 10\n", "Modelfile")

    assert found.values["model"] == "qwen3-8b"
    assert found.values["quantization"] == "q6_k"
    # 10 of 36 layers and the output layer: 27 of 37 on the host
    assert found.values["weight_offload"] == pytest.approx(0.7297)


def test_an_image_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match="starts nothing"):
        read(tmp_path, "FROM python:3.11\nRUN pip install x\n", "Dockerfile")


def test_a_page_shows_a_modelfile(tmp_path: Path) -> None:
    page = "Text.\n\n```\nFROM qwen3:14b\n# more\nPARAMETER num_ctx 5003\n```\n"

    assert read(tmp_path, page, "page.md").values["max_model_len"] == 5003


def test_a_script_that_writes_a_modelfile_is_no_modelfile(tmp_path: Path) -> None:
    text = "cat > x.modelfile <<E\nFROM qwen3:14b\nPARAMETER num_ctx 5003\nE\nvllm serve a/b"

    assert read(tmp_path, text).target.name == "vllm"


@pytest.mark.parametrize(
    ("command", "gigabytes"),
    [
        # ollama.com/library/gpt-oss: 14 and 65 GB; huggingface.co/ggml-org/gpt-oss-20b-GGUF: 12.1.
        ("ollama run gpt-oss:20b", 13.8),
        ("ollama run gpt-oss:120b", 65.0),
        ("llama-server -hf ggml-org/gpt-oss-20b-GGUF:MXFP4 -np 1", 12.1),
    ],
)
def test_files_of_gpt_oss_have_their_published_size(
    planner: Command, tmp_path: Path, command: str, gigabytes: float
) -> None:
    row = row_of(planner, tmp_path, command, "b200")
    assert row["memory_weights_gib"] * 2**30 / 1e9 == pytest.approx(gigabytes, rel=0.02)


@pytest.mark.slow
def test_what_has_no_room_stays_on_the_host(planner: Command, tmp_path: Path) -> None:
    """github.com/ollama/ollama/issues/11688: gpt-oss:20b lies on the host in part, with 12 GB."""
    command = "OLLAMA_CONTEXT_LENGTH=8192 ollama run gpt-oss:20b"
    small, large = (row_of(planner, tmp_path, command, gpu) for gpu in ("rtx4070", "rtx4090"))
    assert small["num_gpus"] == large["num_gpus"] == 1
    assert small["weight_offload"] > 0 == large["weight_offload"]


def row_of(planner: Command, tmp_path: Path, command: str, gpu: str) -> dict[str, Any]:
    path, result = tmp_path / "run.sh", tmp_path / "result.json"
    path.write_text(command, encoding="utf-8")
    ran = planner("estimate", "--from", path, "--gpu", gpu, "--json", result, "--quiet")
    assert ran.exit_code == 0, ran.err
    row: dict[str, Any] = json.loads(result.read_text(encoding="utf-8"))["rows"][0]
    return row
