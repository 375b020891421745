"""More requests than a plan can take: every command says so, and ends alike."""

from __future__ import annotations

from pathlib import Path

import pytest

OF_ONE = (
    "--model", "llama-3.1-8b", "--gpu", "h100", "--gpus", "1", "--engine", "vllm", "--workload",
    "serve",
)  # fmt: skip
LENGTHS = (
    "--input-tokens", "1024", "--output-tokens", "128", "--input-variation", "0",
    "--output-variation", "0", "--tuned",
)  # fmt: skip
COMMANDS = (
    "estimate", "max-batch", "max-length", pytest.param("explain", marks=pytest.mark.drawn),
)  # fmt: skip


def words(done) -> str:
    """All that was printed, in one line."""
    return " ".join(f"{done.out} {done.err}".split())


@pytest.mark.few(1)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_queue_that_grows_without_end_is_no_answer(planner, command) -> None:
    # 64 requests of 3.1 s each are 20.6 a second, a few less as they come at random.
    asked = (*OF_ONE, *LENGTHS, "--set", "concurrency=64")
    done = planner(command, *asked, "--request-rate", "200")
    assert done.exit_code == 4
    assert "capacity 20.3 requests/s, load 200" in words(done)
    assert planner(command, *asked, "--request-rate", "15").exit_code == 0


@pytest.mark.few(1)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_file_says_how_many_requests_run_at_once_at_a_rate_too(
    planner, tmp_path: Path, command
) -> None:
    file = tmp_path / "serve.sh"
    file.write_text("vllm serve meta-llama/Llama-3.1-8B-Instruct --max-num-seqs 64\n")
    asked = ("--from", file, "--gpu", "h100", *LENGTHS)
    # 405 at once would be 24 a second.
    done = planner(command, *asked, "--request-rate", "23")
    assert done.exit_code == 4
    assert "exceed the capacity of 20.3" in words(done)
    assert planner(command, *asked, "--request-rate", "15").exit_code == 0


def test_no_change_is_offered_of_how_many_are_in_flight_at_a_rate(planner, tmp_path) -> None:
    file = tmp_path / "serve.sh"
    file.write_text("vllm serve meta-llama/Llama-3.1-8B-Instruct --max-num-seqs 64\n")
    done = planner("estimate", "--from", file, "--gpu", "h100", *LENGTHS, "--request-rate", "19.4")
    assert done.exit_code == 0
    assert "concurrency 64 instead of 61" not in words(done)


@pytest.mark.drawn
def test_a_number_of_requests_ends(planner) -> None:
    asked = (*OF_ONE, *LENGTHS, "--set", "concurrency=64", "--request-rate", "200")
    done = planner("explain", *asked, "--num-requests", "100")
    assert done.exit_code == 0
    assert "endless" not in words(done)
