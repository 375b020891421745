"""What lies in host memory in serving and training, as a user sees it."""

from __future__ import annotations

import re
import shlex

import pandas as pd
import pytest

OFFLOADED = (
    "estimate", "--workload", "inference", "--model", "opt-30b", "--gpu", "a6000-48gb",
    "--gpus", "1", "--engine", "deepspeed-inference", "--input-tokens", "512",
    "--output-tokens", "32", "--set", "weight_offload=1", "--set", "kv_offload=1",
)  # fmt: skip


def test_the_table_tells_what_the_host_holds(planner):
    out = planner(*OFFLOADED, "--set", "concurrency=16", "--full").out
    held = float(re.search(r"in host memory +([\d.]+)", out)[1])
    weights, cache = 2 * 29.97e9, 16 * 544 * 2 * 2 * 48 * 7168
    assert held == pytest.approx((weights + cache) / 2**30, rel=0.01)
    assert "transfer wait" in out


def test_a_host_without_room_is_named_with_what_would_fit(planner):
    ran = planner(*OFFLOADED, "--set", "concurrency=96")
    assert ran.exit_code != 0
    said = ran.out + ran.err
    assert "more than the host memory" in " ".join(said.split())
    fits = int(re.search(r"Try --set concurrency=(\d+)", said)[1])
    assert planner(*OFFLOADED, "--set", f"concurrency={fits}").exit_code == 0
    assert planner(*OFFLOADED, "--set", f"concurrency={fits + 1}").exit_code != 0


@pytest.mark.slow
def test_a_search_rejects_plans_beyond_the_host_memory(planner, tmp_path):
    path = tmp_path / "all.csv"
    search = (
        "search", "--workload", "serve", *OFFLOADED[3:9], "--set", "quantization=w16a16",
        "--set", "weight_offload=1", "--set", "kv_offload=1", "--all", "--csv", path,
        "--engine", "vllm",
    )  # fmt: skip
    ran = planner(*search, "--set", "concurrency=8,600", "--full")
    assert ran.exit_code == 0
    assert "what is offloaded or loads whole needs more than the host memory" in ran.out
    rows = pd.read_csv(path)
    assert set(rows.concurrency) == {8}
    assert rows.host_memory_gib.between(50, 100).all()
    alone = planner(*search, "--set", "concurrency=600")
    assert alone.exit_code == 0
    assert "of 600 requests in each replica" in " ".join(alone.out.split())


def test_the_commands_it_prints_can_be_typed(planner):
    out = planner(*OFFLOADED, "--set", "concurrency=16", "--full").out
    commands = re.findall(r"^  planner (specs show .*)$", out, re.MULTILINE)
    assert len(commands) == 2
    for command in commands:
        assert planner(*shlex.split(command)).exit_code == 0


TRAINED = (
    "--model", "llama-3.1-8b", "--gpus", "8", "--gpu", "a100", "--framework", "deepspeed",
    "--sequence-length", "2048", "--global-batch-size", "64", "--set", "zero=3",
    "--set", "recompute=full", "--set", "offload=optimizer_weights",
)  # fmt: skip
# DeepSpeed's rule: 18 bytes of a parameter, half as much again for its buffers.
HELD = f"{1.5 * 18 * 8_030_261_248 / 2**30:.1f}"


@pytest.mark.few(1)
@pytest.mark.parametrize("command", ["estimate", "explain", "max-batch", "max-length"])
def test_every_command_tells_what_a_node_must_hold(planner, command):
    out = " ".join(planner(command, *TRAINED).out.split())
    assert f"{HELD} of 1,600 GiB of a node, which is assumed: give --host-memory" in out


@pytest.mark.few(2)
@pytest.mark.parametrize("command", ["estimate", "explain", "max-batch", "max-length", "search"])
def test_every_command_refuses_what_a_node_cannot_hold(planner, command):
    wanted = ("--space", "deepspeed") if command == "search" else ()
    ran = planner(command, *TRAINED, "--host-memory", "64GiB", *wanted)
    said = " ".join((ran.out + ran.err).split())
    assert ran.exit_code == 4
    assert f"more than the host memory: {HELD} of 64 GiB of a node" in said
