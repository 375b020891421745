"""What programs that send requests say of them, worked out from their options and defaults."""

from __future__ import annotations

from pathlib import Path

import pytest

from planner.errors import LaunchError
from planner.launch.read.import_launch import ImportedLaunch
from planner.launch.read.read_launch import read_launch

VLLM = "vllm serve Qwen/Qwen3-8B --max-num-seqs 64\n"
SGLANG = "python -m sglang.launch_server --model-path Qwen/Qwen3-8B --max-running-requests 64\n"
_CLIENT = "vllm bench serve --model Qwen/Qwen3-8B"


def read(folder: Path, text: str, number: int | None = None) -> ImportedLaunch:
    path = folder / "run.sh"
    path.write_text(text)
    return read_launch(path, number)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (VLLM + _CLIENT, "1024 128 1000 None 64"),
        (VLLM + f"{_CLIENT} --random-input-len 2000 --random-output-len 7", "2000 7 1000 None 64"),
        (VLLM + f"{_CLIENT} --request-rate 2.5 --max-concurrency 16", "1024 128 1000 2.5 16"),
        (VLLM + f"{_CLIENT} --request-rate inf --num-prompts 30", "1024 128 30 None 64"),
        (VLLM + f"{_CLIENT} --dataset-name sharegpt", "None None 1000 None 64"),
        (VLLM + f"{_CLIENT} --dataset-name sonnet", "550 150 1000 None 64"),
        (VLLM + "genai-perf profile -m x --isl 300 --osl 20 --concurrency 8", "300 20 None None 8"),
        # lengths from a quarter of the longest up to it: 0.625 of it in the mean
        (
            SGLANG + "python3 -m sglang.bench_serving --dataset-name random --random-input 800 "
            "--random-output 80 --random-range-ratio 0.25",
            "500 50 1000 None 64",
        ),
        # without a ratio they begin with nothing: half of 1,024
        (
            "python -m sglang.bench_offline_throughput --model-path Qwen/Qwen3-8B --num-prompts 9 "
            "--dataset-name random --max-running-requests 64",
            "512 512 9 None 64",
        ),
        (
            "python -m sglang.bench_one_batch --model-path Qwen/Qwen3-8B --batch-size 12 14 "
            "--input-len 256 --output-len 32",
            "256 32 12 None 12",
        ),
        ("vllm bench latency --model Qwen/Qwen3-8B", "32 128 8 None 8"),
        (
            "python benchmarks/benchmark_throughput.py --model Qwen/Qwen3-8B --input-len 512 "
            "--output-len 64 --max-num-seqs 64",
            "512 64 1000 None 64",
        ),
        (
            "python prepare_dataset.py --stdout token-norm-dist --input-mean=900 --output-mean=90 "
            "--num-requests=700 > d.txt\ntrtllm-bench --model Qwen/Qwen3-8B throughput --dataset "
            "d.txt --concurrency 48 --max_batch_size 64",
            "900 90 700 None 48",
        ),
        ("llama-bench -m Qwen3-8B-Q8_0.gguf -p 1024,2048 -n 0", "1024 1 None None 1"),
        ("llama-batched-bench -m Qwen3-8B-Q8_0.gguf -npp 128 -ntg 32 -npl 4", "128 32 None None 4"),
    ],
)
def test_requests_are_those_that_a_program_sends(tmp_path: Path, text: str, said: str) -> None:
    values = read(tmp_path, text).values

    names = ("input_tokens", "output_tokens", "num_requests", "request_rate", "concurrency")
    assert " ".join(str(values.get(name)) for name in names) == said


def test_what_a_loop_sends_at_once_is_not_told(tmp_path: Path) -> None:
    text = VLLM + f"for c in 1 8; do\n{_CLIENT} --max-concurrency $c\ndone"
    one = read(tmp_path, text)

    assert one.values["concurrency"] == 64
    assert any("--max-concurrency" in note for note in one.notes)


def test_each_measured_run_has_the_data_that_are_prepared_for_it(tmp_path: Path) -> None:
    text = """run() {
  python prepare_dataset.py --stdout token-norm-dist --input-mean=$1 --output-mean=$2 > d.txt
  trtllm-bench --model Qwen/Qwen3-8B throughput --dataset d.txt --concurrency 8
}
run 100 10
run 200 20
"""
    assert read(tmp_path, text, 1).values["input_tokens"] == "100"
    assert read(tmp_path, text, 2).values["output_tokens"] == "20"


def test_the_load_of_an_offline_run_is_its_own(tmp_path: Path) -> None:
    """No server of the same file gets its lengths."""
    offline = "vllm bench latency --model Qwen/Qwen3-8B --input-len 9\n"
    alone, served = offline + VLLM, offline + VLLM + _CLIENT
    assert [read(tmp_path, text, 1).values["input_tokens"] for text in (alone, served)] == ["9"] * 2
    assert read(tmp_path, alone, 2).values.get("input_tokens") is None
    assert read(tmp_path, served, 2).values["input_tokens"] == "1024"


def test_ranks_of_a_dense_model_share_the_requests_that_are_sent(tmp_path: Path) -> None:
    text = VLLM.strip() + f" --data-parallel-size 2\n{_CLIENT} --max-concurrency 20"

    assert read(tmp_path, text).values["concurrency"] == 10


def test_a_program_that_sends_requests_is_no_server(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match=r"line 1: sends requests .* --input-tokens 1024 "):
        read(tmp_path, _CLIENT)


def test_a_folder_has_a_server_and_what_sends_requests_to_it(tmp_path: Path) -> None:
    (tmp_path / "serve.sh").write_text(VLLM)
    (tmp_path / "bench.sh").write_text(f"{_CLIENT} --random-input-len 77")

    assert read_launch(tmp_path).values["input_tokens"] == "77"
