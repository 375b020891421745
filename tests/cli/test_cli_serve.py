from __future__ import annotations

import io
import json
import re

import pandas as pd
import pytest

from planner.question.terms import term_of_column

SERVE = (
    "search", "--workload", "serve", "--model", "llama-3.1-8b", "--gpu", "h100", "--gpus", "8",
    "--input-tokens", "1000", "--output-tokens", "200", "--set", "concurrency=1,8,64",
    "--engine", "vllm",
)  # fmt: skip
INFER = (
    "estimate", "--workload", "inference", "--model", "llama-7b", "--gpu", "a100-sxm-80gb",
    "--input-tokens", "512", "--output-tokens", "128",
)  # fmt: skip
ONE = (
    "estimate", "--workload", "serve", "--model", "llama-3.1-8b", "--gpu", "h100", "--gpus", "2",
    "--set", "concurrency=16",
)  # fmt: skip


@pytest.mark.slow
def test_the_report_names_the_question_both_modes_and_the_best(planner):
    ran = planner(*SERVE[:-2], "--full", "--ttft", "1000ms", "--tpot", "40ms")
    assert ran.exit_code == 0
    assert ran.out.startswith("Serve Llama 3.1 8B on 8 x h100-sxm-80gb")
    for words in (
        "Requests: 1,000 tokens in, 200 out",
        "vllm, sglang, tensorrt-llm (all current ones",
        "by mode",
        "Pareto front by throughput_per_gpu, interactivity",
        "from one end to the",
        "The recommended plan",
        "Memory of the fullest",
        "time per output token",
        "per million output tokens",
        "evaluated in",
    ):
        assert words in ran.out
    assert ran.err == ""


@pytest.mark.few(1)
@pytest.mark.parametrize("columns", [60, 80])
@pytest.mark.parametrize("gpus", [("--gpu", "h100"), ("--gpu", "h100,a100-sxm-80gb,t4")])
def test_piped_output_is_plain_and_fits(planner, monkeypatch, columns, gpus):
    monkeypatch.setenv("COLUMNS", str(columns))
    ran = planner(*SERVE, *gpus, "--set", "quantization=w16a16")
    assert "\x1b" not in ran.out
    assert ran.out.isascii()
    assert max(len(line) for line in ran.out.splitlines()) <= columns
    assert all(line == line.rstrip() for line in ran.out.splitlines())


def test_lengths_not_given_are_reported(planner):
    words = SERVE[:9]
    out = planner(*words, "--full", "--set", "concurrency=8", "--engine", "vllm").out
    assert re.search(r"input_tokens +1,024 \(default\)", out)
    assert re.search(r"output_tokens +1,024 \(default\)", out)


def test_rows_go_to_csv_and_json_with_their_manifest(planner, tmp_path):
    table, document = tmp_path / "a.csv", tmp_path / "b.json"
    ran = planner(*SERVE, "--all", "--csv", table, "--json", document, "--quiet")
    assert (ran.exit_code, ran.out) == (0, "")
    frame, content = pd.read_csv(table), json.loads(document.read_text())
    assert [name for name in frame if term_of_column(name) is None] == []
    assert list(frame) == list(content["rows"][0])
    manifest = content["manifest"]
    assert len(frame) == len(content["rows"]) == manifest["configurations_feasible"]
    assert manifest["objectives"] == ["throughput_per_gpu", "interactivity"]
    assert json.loads((tmp_path / "a.manifest.json").read_text())["command"].startswith(
        "planner search --workload serve"
    )
    assert {"mode", "prefill_replicas", "time_to_first_token_s"} <= set(frame)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "more",
    [
        ("--mode", "aggregated"),
        ("--mode", "disaggregated"),
        ("--mode", "aggregated", "--gpu", "h100,a100", "--engine", "vllm,sglang"),
    ],
    ids=["replicas", "pools", "several"],
)
def test_the_printed_command_shows_the_same_plan(planner, more):
    out = planner(*SERVE, "--full", *more).out
    found = re.search(r"planner (estimate (?:[^\\\n]|\\\n)*)", out)
    assert found is not None
    again = planner(*found[1].replace("\\\n", " ").split(), "--full")
    assert again.exit_code == 0
    rate = re.search(r"output tokens/s +\S+ \(\S+ per GPU\)", out)
    assert rate is not None
    assert rate[0] in again.out


@pytest.mark.few(1)
@pytest.mark.parametrize(("rate", "exit_code"), [("2", 0), ("60", 4)])
def test_sizing_ends_where_the_cluster_does(planner, rate, exit_code):
    words = ("search", "--workload", "serve", "--model", "llama-2-7b", "--request-rate", rate)
    words = (*words, "--cluster", "rtx4090-pcie", "--engine", "vllm")
    ran = planner(*words, "--all", "--csv", "-", "--quiet")
    assert ran.exit_code == exit_code
    if exit_code:
        assert "miss max_gpus 8 GPUs (nearest: " in ran.err
    else:
        frame = pd.read_csv(io.StringIO(ran.out), low_memory=False)
        assert set(frame["mode"]) == {"aggregated", "disaggregated"}
        assert frame["num_gpus"].max() == 8


def test_sizing_tells_how_many_gpus(planner):
    words = [word for word in SERVE if word not in ("--gpus", "8")]
    ran = planner(*words, "--request-rate", "100")
    assert ran.exit_code == 0
    assert "lengths vary by 100 % and 100 %, 100 per second" in " ".join(ran.out.split())
    assert re.search(r"^mode +GPUs ", ran.out, re.MULTILINE)
    assert re.search(r"^Less request latency: \d+ GPUs|plans on the front", ran.out, re.MULTILINE)


def test_gpus_without_a_plan_are_counted_with_the_reason(planner):
    ran = planner(*SERVE, "--gpu", "h100,t4", "--tpot", "6ms", "--full")
    assert "no plan: t4-16gb (time_per_output_token above 6 ms)" in ran.out


def test_the_steps_of_a_batch_add_up_by_module_and_operator(planner, tmp_path):
    path = tmp_path / "a.json"
    ran = planner(*INFER, "--set", "quantization=w4a16", "--json", path, "--full")
    assert ran.exit_code == 0
    content = json.loads(path.read_text())
    (row,) = content["rows"]
    assert [name for name in row if term_of_column(name) is None] == []
    steps = re.findall(r"^step +([\d.]+) +100.0 +([\d.]+)", ran.out, re.MULTILINE)
    assert len(steps) == 2
    for place, name in enumerate(("prefill", "decode")):
        total = sum(o["time_s"] for o in content["operators"] if o["step"] == name)
        assert total * 1e3 == pytest.approx(float(steps[0][place]), abs=1e-3)
        assert steps[0][place] == steps[1][place]
    assert "largest batch" in ran.out


def test_ideal_is_the_roofline_of_llm_analysis(planner, tmp_path):
    path = tmp_path / "a.json"
    assert planner(*INFER, "--ideal", "--json", path, "--quiet").exit_code == 0
    (row,) = json.loads(path.read_text())["rows"]
    assert row["prefill_latency_s"] == pytest.approx(22.41e-3, rel=0.05)
    assert row["decode_latency_s"] == pytest.approx(6.73e-3, rel=0.05)


def test_one_way_to_serve_shows_percentiles_and_a_burst(planner):
    short = planner(*ONE, "--burst", "1000").out
    assert "A burst of 1,000 requests is answered in" in short
    out = planner(*ONE, "--burst", "1000", "--full").out
    assert re.search(r"of a request +mean +p50 +p90 +p99", out)
    assert "A burst of 1,000 requests at once" in out
    assert "makespan" in out


BAD = {
    "training's option": ((*SERVE, "--step-time", "5s"), 3, "for --workload train"),
    "serving's option": (
        ("search", "--model", "llama-7b", "--gpus", "8", "--ttft", "1s"),
        3,
        "for --workload serve",
    ),
    "burst of a batch": ((*INFER, "--burst", "5"), 3, "--workload serve"),
    "rate of a batch": ((*INFER, "--request-rate", "5"), 3, "--workload serve"),
    "limit without unit": ((*SERVE, "--ttft", "1000"), 3, "needs a unit"),
    "unknown engine": ((*SERVE, "--engine", "sglan"), 2, "Did you mean sglang"),
    "neither GPUs nor rate": (SERVE[:7], 3, "--request-rate"),
    "context too long": ((*SERVE, "--input-tokens", "131072"), 2, "positions for 131,072"),
    "no kernels": ((*INFER, "--set", "quantization=w4a4", "--gpu", "h100"), 4, "has no kernels"),
    "heads": (
        (*ONE, "--set", "tensor_parallel=3", "--gpus", "3"),
        4,
        "divide the heads of attention",
    ),
    "price unknown": (
        (*SERVE, "--gpu", "h800", "--objective", "cost_per_million_tokens"),
        3,
        "give --price",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_gets_a_reason_and_a_code(planner, case):
    arguments, code, words = BAD[case]
    ran = planner(*arguments)
    assert ran.exit_code == code
    assert words in " ".join(ran.err.split())
    assert ran.out == ""


@pytest.mark.slow
def test_limits_nobody_meets_name_the_nearest_and_a_remedy_that_works(planner):
    ran = planner(*SERVE, "--ttft", "1ms", "--tpot", "1ms")
    assert ran.exit_code == 4
    assert re.search(r"miss time_to_first_token 1 ms \(nearest: \S+ ms", ran.err)
    found = re.search(r"Try (--ttft \S+ with --tpot [\d.]+m?s)", " ".join(ran.err.split()))
    assert found is not None
    relaxed = found[1].replace(" with ", " ").split()
    assert planner(*SERVE, *relaxed).exit_code == 0


ROOM = (
    "estimate", "--workload", "serve", "--model", "llama-3.1-8b", "--gpu", "h100-sxm",
    "--engine", "vllm", "--input-tokens", "1000", "--output-tokens", "200",
)  # fmt: skip


def test_a_model_too_large_names_how_many_requests_fit(planner):
    words = ("search", "--workload", "serve", "--model", "llama-3.1-405b", "--gpu", "rtx4090")
    ran = planner(*words, "--gpus", "8", "--set", "concurrency=1,4", "--engine", "vllm")
    assert ran.exit_code == 4
    assert "room for 0 of 1 request" in " ".join(ran.err.split())
    assert re.search(r"Try .*--gpus \d+", " ".join(ran.err.split()))


@pytest.mark.few(1)
@pytest.mark.parametrize("asked", [1024, 420])
def test_requests_beyond_the_room_wait(planner, asked):
    def told_room(number):
        ran = planner(*ROOM, "--set", f"concurrency={number}")
        assert ran.exit_code == 0
        return re.search(r"The cache holds (\d+) of ([\d,]+) requests in", ran.out)

    room = told_room(asked)
    assert room is not None
    assert int(room[2].replace(",", "")) == asked
    assert told_room(int(room[1])) is None
    assert told_room(int(room[1]) + 1) is not None


def test_one_request_that_does_not_fit_has_no_room(planner):
    words = ("--gpu", "l4", "--input-tokens", "20000", "--output-tokens", "20000")
    ran = planner(*ROOM[:5], *words, "--set", "concurrency=1", "--set", "quantization=w16a16")
    assert "room for 0 of 1 request" in " ".join(ran.out.split())


def test_batches_are_searched_too(planner, tmp_path):
    table = tmp_path / "a.csv"
    words = (*SERVE[:2], "inference", *SERVE[3:], "--prefill-latency", "100ms", "--full")
    ran = planner(*words, "--all", "--csv", table)
    assert ran.exit_code == 0, ran.err
    assert "Pareto front by throughput_per_gpu, request_latency" in ran.out
    rows = pd.read_csv(table)
    assert [name for name in rows if term_of_column(name) is None] == []
    assert set(rows["concurrency"]) <= {1, 8, 64}
    assert 0 < rows["prefill_latency_s"].max() <= 0.1
    found = re.search(r"planner (estimate (?:[^\\\n]|\\\n)*)", ran.out)
    assert found is not None
    again = planner(*found[1].replace("\\\n", " ").split(), "--full")
    assert "A batch from its start to its end" in again.out
    rate = re.search(r"output tokens/s +\S+ with", ran.out)
    assert rate is not None
    assert rate[0] in again.out


def test_a_batch_too_large_names_one_that_fits(planner):
    ran = planner(*INFER, "--set", "concurrency=4000")
    assert ran.exit_code == 4
    assert re.search(r"need [\d,.]+ GiB, the engine\s+may use [\d.]+ GiB", ran.out)
    full = planner(*INFER, "--set", "concurrency=4000", "--full").out
    assert re.search(r"^kv cache +", full, re.MULTILINE)
    fits = re.search(r"Try --set concurrency=(\d+)", ran.out)
    assert fits is not None
    assert planner(*INFER, "--set", f"concurrency={fits[1]}").exit_code == 0


@pytest.mark.slow
def test_sizing_ends_where_the_user_says(planner):
    words = ("search", "--workload", "serve", "--model", "llama-2-7b", "--gpu", "h100", "--quiet")
    words = (*words, "--engine", "vllm", "--mode", "aggregated")
    assert planner(*words, "--request-rate", "60", "--max-gpus", "64").exit_code == 0
    ran = planner(*words, "--request-rate", "60", "--max-gpus", "1")
    assert (ran.exit_code, "miss max_gpus 1 GPU" in ran.err) == (4, True)


WORDS = ("--workload", "serve", "--model", "llama-3.1-8b", "--gpu", "h100", "--gpus", "2")


def test_copies_of_experts_need_experts(planner):
    ran = planner("estimate", *WORDS, "--redundant-experts", "4")
    assert ran.exit_code == 2
    assert "has no experts to copy: leave out --redundant-experts" in ran.err


def test_drafts_that_nothing_accepts_are_told(planner):
    words = ("--draft-tokens", "3", "--acceptance-rate", "0", "--output-variation", "0.5")
    ran = planner("estimate", *WORDS, *words, "--set", "concurrency=4")
    told = " ".join(ran.out.split())
    assert "3 draft tokens, none accepted: give --acceptance-rate" in told
    assert "lengths vary by 100 % and 50 %" in told


def test_a_lack_of_room_is_not_said_to_fit(planner):
    words = ("--engine", "sglang", "--mode", "aggregated", "--set", "concurrency=1,446")
    ran = planner("search", *WORDS, *words, "--ttft-p99", "1ms")
    assert ran.exit_code == 4
    told = " ".join(ran.err.split())
    assert "need more than" in told
    assert "room for" in told
    assert "% likely" not in told


@pytest.mark.few(1)
@pytest.mark.parametrize("command", ["estimate", "search"])
def test_the_first_lines_say_how_surely_a_stated_rate_is_carried(planner, command):
    words = [command, *SERVE[1:9], "--engine", "vllm", "--request-rate", "2"]
    ran = planner(*words, "--mode", "aggregated")
    assert ran.exit_code == 0
    head = " ".join(ran.out.split("\n")[:18])
    within = " within the limits" if command == "search" else ""
    assert re.search(rf"Serves 2 requests/s{within} \((> 99|9\d) % likely\); capacity", head)
