"""Launch files of servers: whether they start, and one verdict of every command."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from planner.launch.read.read_launch import read_launch

ASKED = ("--gpu", "l4", "--input-tokens", "1024", "--output-tokens", "512")
COMMANDS = ("estimate", "explain", "max-length", "max-batch")


def file_of(folder: Path, command: str) -> Path:
    path = folder / "run.sh"
    path.write_text(command + "\n")
    return path


@pytest.mark.parametrize(
    ("command", "longest"),
    [
        ("vllm serve meta-llama/Llama-3.1-8B", 131_072),
        ("vllm serve meta-llama/Llama-3.1-8B --max-model-len 8k", 8000),
        ("vllm serve meta-llama/Llama-3.1-8B --max-model-len auto", None),
        ("vllm serve meta-llama/Llama-3.1-8B --max-model-len -1", None),
        ("trtllm-serve meta-llama/Llama-3.1-8B --max_seq_len 4096", 4096),
        ("trtllm-serve meta-llama/Llama-3.1-8B", None),
        ("llama-server -m Llama-3.1-8B-Q8_0.gguf -c 32768 -np 4", 8192),
        ("llama-server -m Llama-3.1-8B-Q8_0.gguf -np 4", None),
    ],
)
def test_the_longest_request_of_a_command(
    command: str, longest: int | None, tmp_path: Path
) -> None:
    assert read_launch(file_of(tmp_path, command)).values.get("max_model_len") == longest


@pytest.mark.few(1)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_server_whose_longest_request_finds_no_room_does_not_start(
    planner, command: str, tmp_path: Path
) -> None:
    path = file_of(tmp_path, "vllm serve meta-llama/Llama-3.1-8B")
    done = planner(command, "--from", path, *ASKED)
    assert done.exit_code == 4
    words = " ".join((done.out + done.err).split())
    found = re.search(
        r"[Dd]oes not start: the longest request needs 131,072 tokens, the cache holds "
        r"([\d,]+); `--max-model-len (\d+)` starts\.?", words)  # fmt: skip
    assert found is not None, words
    # The number that is named fits as surely as plans are asked to.
    assert 1024 < int(found[2]) <= int(found[1].replace(",", ""))


@pytest.mark.slow
def test_it_starts_with_the_length_that_is_named(planner, tmp_path: Path) -> None:
    command = "vllm serve meta-llama/Llama-3.1-8B"
    refused = planner("estimate", "--from", file_of(tmp_path, command), *ASKED)
    (number,) = re.findall(r"`--max-model-len (\d+)` starts", " ".join(refused.out.split()))
    for length, code in ((int(number), 0), (int(number) + 1, 4)):
        path = file_of(tmp_path, f"{command} --max-model-len {length}")
        assert planner("estimate", "--from", path, *ASKED).exit_code == code


@pytest.mark.slow
def test_a_length_that_the_cache_holds_by_little_may_not_start(planner, tmp_path: Path) -> None:
    command = "vllm serve meta-llama/Llama-3.1-8B"
    asked = (*ASKED, "--confidence", "0.9")
    refused = planner("estimate", "--from", file_of(tmp_path, command), *asked)
    held, sure = re.findall(
        r"the cache holds ([\d,]+); `--max-model-len (\d+)`", " ".join(refused.out.split())
    )[0]
    most, surely = int(held.replace(",", "")), int(sure)
    assert surely < most
    between = f"{command} --max-model-len {(most + surely) // 2}"
    done = planner("estimate", "--from", file_of(tmp_path, between), *asked)
    assert done.exit_code == 4
    words = " ".join(done.out.split())
    found = re.search(
        r"May not start: the longest request needs [\d,]+ tokens, the cache holds little more "
        r"\((?:(?:may fit|fits), )?(\d+) % likely(?: to fit)?\); `--max-model-len (\d+)` starts",
        words,
    )
    assert found is not None, words
    assert 30 <= int(found[1]) < 90
    assert int(found[2]) == surely


def test_slots_share_the_context_that_is_named(planner, tmp_path: Path) -> None:
    """llama-server deals what -c says to its slots, so that four times one's length is named."""
    command = "llama-server -m Llama-3.1-8B-Q8_0.gguf -np 4 -ngl 99 --ctx-size"
    lengths = ("--gpu", "l4", "--gpus", "1", "--input-tokens", "100", "--output-tokens", "100")
    done = planner("estimate", "--from", file_of(tmp_path, f"{command} 120000"), *lengths)
    words = " ".join(done.out.split())
    found = re.search(r"longest request needs 30,000 tokens, .*; `--ctx-size (\d+)` starts", words)
    assert found is not None, words
    for context, code in ((int(found[1]), 0), (int(found[1]) + 4, 4)):
        path = file_of(tmp_path, f"{command} {context}")
        assert planner("estimate", "--from", path, *lengths).exit_code == code


@pytest.mark.few(2)
@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_lowers_the_requests_to_the_room(
    planner, command: str, tmp_path: Path
) -> None:
    path = file_of(tmp_path, "vllm serve meta-llama/Llama-3.1-8B --max-model-len 8192")
    done = planner(command, "--from", path, *ASKED)
    assert done.exit_code == 0, done.err
    words = " ".join((done.out + done.err).split())
    found = re.search(r"Its KV cache holds (\d+) requests at once, not for 256\.", words)
    assert found is not None
    assert f"concurrency {found[1]} each" in words


def test_the_answer_has_what_the_log_prints(planner, tmp_path: Path) -> None:
    path = file_of(tmp_path, "vllm serve meta-llama/Llama-3.1-8B --max-model-len 8192")
    done = planner("estimate", "--from", path, *ASKED, "--json", tmp_path / "one.json")
    (row,) = json.loads((tmp_path / "one.json").read_text())["rows"]
    words = " ".join(done.out.split())
    assert f"weights {row['memory_weights_gib']:.2f} GiB" in words
    assert f"KV cache {row['kv_cache_size_gib']:.2f} GiB" in words
    assert f"{row['kv_cache_tokens']:,.0f} tokens" in words
    assert f"{row['max_concurrency']:.2f}x for 8,192 tokens per request" in words
