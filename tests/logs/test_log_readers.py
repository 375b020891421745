"""What is read of the logs of frameworks and benchmarks, each in its own format."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import pytest
from draws import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.errors import LaunchError
from planner.logs.formats import LINE_FORMATS, NAMES, read_log
from planner.logs.log_reader import (
    SAMPLES,
    STEP_TIME,
    TOKENS,
    LogSummary,
    SteadyValue,
    steady_state,
)

EXAMPLES = examples(300, 15)
LOGS = Path(__file__).parent / "printed"
MEGATRON = (LOGS / "megatron.log").read_text()
SERVED = {"time_to_first_token_s": 0.08, "time_per_output_token_s": 0.009,
          "request_latency_s": 1.871, "output_tokens_per_s": 800, "requests_per_s": 4}  # fmt: skip
TRTLLM = {"time_to_first_token_s": 0.9, "time_per_output_token_s": 0.0197,
          "request_latency_s": 4.82, "output_tokens_per_s": 5000, "requests_per_s": 25,
          "total_tokens_per_s": 30000}  # fmt: skip
BATCH_OF_ONE = {"time_to_first_token_s": 512 / 5000, "time_per_output_token_s": 1 / 125}


def steady(name: str) -> tuple[LogSummary, SteadyValue]:
    reading = read_log(LOGS / name)
    return reading, steady_state(reading.steps, reading.quantity)


@pytest.mark.parametrize(
    ("name", "format_name", "quantity", "value", "memory"),
    [
        ("megatron.log", "megatron", STEP_TIME, 8.02, {"allocated": 42.0, "reserved": 46.0}),
        ("megatron_bridge.log", "megatron-bridge", STEP_TIME, 3.5, {}),
        ("nemo.log", "nemo", STEP_TIME, 7.26, {"allocated": 6.442e10 / 2**30}),
        ("nemo_bar.log", "nemo", STEP_TIME, 7.31, {}),
        ("torchtitan.log", "torchtitan", TOKENS, 6410, {"reserved": 48.37}),
        ("deepspeed.log", "deepspeed", SAMPLES, 64.0, {"allocated": 32.5}),
        ("deepspeed_pipeline.log", "deepspeed-pipeline", STEP_TIME, 4.07, {}),
        ("maxtext.log", "maxtext", STEP_TIME, 5.61, {}),
    ],
)
def test_a_trainer_is_told_by_its_lines_and_read_in_steady_state(
    name: str, format_name: str, quantity: str, value: float, memory: dict[str, float]
) -> None:
    reading, found = steady(name)
    assert (reading.format, reading.quantity) == (format_name, quantity)
    assert found.value == pytest.approx(value)
    assert reading.memory == pytest.approx(memory)
    assert found.warmup == 3


@pytest.mark.parametrize(
    ("name", "format_name", "value", "phases"),
    [
        ("verl.log", "verl", 102.8, {"time_generate_s": 51.0, "time_sync_s": 2.1}),
        ("nemo_rl.log", "nemo-rl", 102.8, {
            "time_generate_s": 51.0, "time_logprobs_s": 18.75, "time_update_s": 30.5,
            "time_refit_s": 2.1,
        }),
        ("openrlhf.log", "openrlhf", 102.35, {
            "time_generate_s": 51.0, "time_logprobs_s": 18.75, "time_update_s": 30.5,
            "time_refit_s": 2.1,
        }),
        ("slime.log", "slime", 102.8, {
            "time_generate_s": 51.0, "time_old_logprob_s": 9.375, "time_reference_s": 9.375,
            "time_update_s": 30.5, "time_sync_s": 2.1,
        }),
    ],
)  # fmt: skip
def test_steps_on_rollouts_are_read_with_their_phases(
    name: str, format_name: str, value: float, phases: dict[str, float]
) -> None:
    """Medians of the second and the third step."""
    reading, found = steady(name)
    assert (reading.format, reading.on_rollouts) == (format_name, True)
    assert found.value == pytest.approx(value)
    assert phases.items() <= {k: pytest.approx(v) for k, v in reading.phases.items()}.items()
    assert reading.facts["output_tokens"] == 1024


@pytest.mark.parametrize(
    ("name", "format_name", "values"),
    [
        ("vllm.json", "bench-serving", SERVED | {"total_tokens_per_s": 4800}),
        ("sglang.jsonl", "bench-serving", {
            "time_to_first_token_s": 0.15, "time_per_output_token_s": 0.049,
            "request_latency_s": 9.9, "output_tokens_per_s": 640, "requests_per_s": 3.2,
        }),
        ("aiperf.json", "aiperf", SERVED),
        ("genai_perf.csv", "aiperf", SERVED),
        ("trtllm_bench.json", "trtllm-bench", TRTLLM),
        ("trtllm_bench.log", "trtllm-bench", TRTLLM),
        ("llama_bench.json", "llama-bench", BATCH_OF_ONE),
        ("llama_bench.md", "llama-bench", BATCH_OF_ONE),
        ("trainer.log", "trainer", {"step_time_s": 4.0}),
        ("trainer_state.json", "trainer", {"step_time_s": 4.0}),
        ("trainer_bar.log", "trainer", {"step_time_s": 3.0}),
    ],
)  # fmt: skip
def test_results_of_whole_runs_are_read(
    name: str, format_name: str, values: dict[str, float]
) -> None:
    reading = read_log(LOGS / name)
    assert reading.format == format_name
    assert reading.values == pytest.approx(values)


@pytest.mark.parametrize(
    ("name", "facts"),
    [
        ("megatron.log", {"num_gpus": 64, "global_batch_size": 512, "sequence_length": 4096,
                          "tensor_parallel": 4, "pipeline_parallel": 1, "micro_batch_size": 2}),
        ("torchtitan.log", {"num_gpus": 8, "tokens_per_step": 131072, "sequence_length": 8192}),
        ("deepspeed.log", {"num_gpus": 16, "global_batch_size": 256}),
        ("maxtext.log", {"tokens_per_gpu_and_step": 32768}),
        ("trainer_bar.log", {"global_batch_size": 64}),
        ("vllm.log", {"concurrency": 64, "input_tokens": 1000, "output_tokens": 200}),
        ("sglang.log", {"concurrency": 64, "input_tokens": 1000, "num_requests": 640}),
        ("sglang.jsonl", {"concurrency": 32, "output_tokens": 200}),
        ("aiperf.json", {"request_rate": 4, "input_tokens": 1000, "num_requests": 1000}),
        ("trtllm_bench.log", {"tensor_parallel": 2, "input_tokens": 1000}),
        ("llama_server.log", {"input_tokens": 512, "output_tokens": 125}),
    ],
)  # fmt: skip
def test_the_numbers_of_the_run_are_found(name: str, facts: dict[str, float]) -> None:
    found = read_log(LOGS / name).facts
    assert {key: found.get(key) for key in facts} == pytest.approx(facts, rel=1e-3)


def test_steps_may_be_told_in_seconds(tmp_path: Path) -> None:
    path = tmp_path / "seconds.log"
    pattern = r"iteration \(ms\): ([\d.]+)"
    path.write_text(
        re.sub(pattern, lambda found: f"iteration (s): {float(found[1]) / 1e3:.2f}", MEGATRON)
    )
    reading = read_log(path)
    assert steady_state(reading.steps, reading.quantity).value == pytest.approx(8.02)


def test_percentiles_have_their_share() -> None:
    reading = read_log(LOGS / "vllm.json")
    assert reading.percentiles["time_to_first_token_s", 50] == pytest.approx(0.075)
    assert reading.percentiles["time_to_first_token_s", 99] == pytest.approx(0.15)
    assert reading.percentiles["request_latency_s", 90] == pytest.approx(1.99)


def test_a_step_with_an_evaluation_is_told() -> None:
    _, found = steady("megatron.log")
    assert any("step 11 1.6 times after an evaluation" in note for note in found.notes)
    assert (found.low, found.high) == pytest.approx((8.0, 8.04))


def test_a_restart_warms_up_anew(tmp_path: Path) -> None:
    again = [line for line in MEGATRON.splitlines() if re.search(r"iteration +1[0-9]/", line)]
    path = tmp_path / "again.log"
    path.write_text(MEGATRON + "\n".join(again) + "\n")
    reading = read_log(path)
    found = steady_state(reading.steps, reading.quantity)
    assert found.warmup == 6
    assert any("restarted at step 10" in note for note in found.notes)


def test_ranks_that_print_the_same_step_count_once() -> None:
    reading, found = steady("torchtitan.log")
    assert len(reading.steps) == 24  # two ranks
    assert found.lines + found.warmup == 12


def test_ranks_without_a_mark_are_no_restart(tmp_path: Path) -> None:
    lines = [line for line in MEGATRON.splitlines() if " iteration " in line]
    mixed = [line for pair in zip(lines[1:], lines, strict=False) for line in pair]
    path = tmp_path / "mixed.log"
    path.write_text("\n".join(mixed) + "\n")
    reading = read_log(path)
    found = steady_state(reading.steps, reading.quantity)
    assert found.lines + found.warmup == 20
    assert not any("restarted" in note for note in found.notes)


def test_colours_are_no_part_of_numbers(tmp_path: Path) -> None:
    path = tmp_path / "coloured.log"
    path.write_text(MEGATRON.replace("(ms): ", "(ms): \x1b[1;34m").replace("8", "\x1b[0m8"))
    reading = read_log(path)
    assert steady_state(reading.steps, reading.quantity).value == pytest.approx(8.02)


def test_a_log_cut_in_a_number_does_not_believe_it(tmp_path: Path) -> None:
    path = tmp_path / "cut.log"
    cut = MEGATRON.rfind("(ms): ") + len("(ms): 80")
    path.write_text(MEGATRON[:cut])
    reading = read_log(path)
    assert max(step.number for step in reading.steps) == 19
    assert "the end of the file is cut off" in reading.notes


def test_a_state_with_times_tells_every_step(tmp_path: Path) -> None:
    history: list[dict[str, float]] = [
        {"step": step, "loss": 2.0, "train_runtime": 20.0 + 3.0 * step + 4.0 * (step > 8)}
        for step in range(1, 17)
    ]
    history.insert(8, {"step": 8, "eval_loss": 1.5, "eval_runtime": 4.0})
    history.append({"step": 17, "train_runtime": 76.0, "train_samples_per_second": 13.5,
                    "train_steps_per_second": 0.211})  # fmt: skip
    path = tmp_path / "trainer_state.json"
    path.write_text(json.dumps({"log_history": history}))
    reading = read_log(path)
    assert [step.number for step in reading.steps] == list(range(2, 17))
    found = steady_state(reading.steps, reading.quantity)
    assert (found.value, found.warmup) == (pytest.approx(3.0), 3)
    assert any("step 9 2.3 times after an evaluation" in note for note in found.notes)
    assert reading.facts["global_batch_size"] == pytest.approx(64, rel=0.01)


def test_a_file_without_a_last_line_end_is_whole(tmp_path: Path) -> None:
    for name in ("vllm.json", "trainer.log"):
        path = tmp_path / name
        path.write_text((LOGS / name).read_text().rstrip("\n"))
        assert read_log(path).values == read_log(LOGS / name).values
        assert not any("cut off" in note for note in read_log(path).notes)


def test_packed_logs_are_read_even_cut(tmp_path: Path) -> None:
    path = tmp_path / "log.gz"
    packed = gzip.compress(MEGATRON.encode())
    path.write_bytes(packed)
    assert len(read_log(path).steps) == 20
    path.write_bytes(packed[: len(packed) - 120])
    reading = read_log(path)
    assert 1 < len(reading.steps) <= 20
    assert "the end of the file is cut off" in reading.notes


def test_other_batch_sizes_of_a_ramp_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "ramp.log"
    small = MEGATRON.replace("global batch size:   512", "global batch size:   256")
    first = [line for line in small.splitlines() if re.search(r"iteration +[1-8]/", line)]
    rest = [line for line in MEGATRON.splitlines() if not re.search(r"iteration +[1-8]/", line)]
    path.write_text("\n".join(first + rest) + "\n")
    reading = read_log(path)
    found = steady_state(reading.steps, reading.quantity)
    assert found.lines + found.warmup == 12
    assert any("other global batch sizes (256)" in note for note in found.notes)


def test_numbers_that_contradict_each_other_are_told(tmp_path: Path) -> None:
    path = tmp_path / "odd.log"
    path.write_text(MEGATRON.replace("global batch size:   512", "global batch size:  1024"))
    assert any("consumed a step are 0.5 of its" in note for note in read_log(path).notes)
    path = tmp_path / "odd.json"
    path.write_text((LOGS / "vllm.json").read_text().replace('"duration": 250', '"duration": 500'))
    assert any("request_throughput is 4, but" in note for note in read_log(path).notes)


def test_a_log_without_steps_says_what_was_looked_for(tmp_path: Path) -> None:
    path = tmp_path / "nothing.log"
    path.write_text("Loading the data set\n" * 3)
    with pytest.raises(LaunchError) as caught:
        read_log(path)
    words = str(caught.value)
    assert "nothing.log" in words
    assert "elapsed time per iteration (ms)" in words
    assert all(f"\n  {one.name}: {one.example}" in words for one in LINE_FORMATS)


@pytest.mark.parametrize("content", [b"", b"\x1f\x8b", b"{", b"[1, 2]", b"\xff\xfe\x00", b"null"])
def test_odd_files_are_no_log(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "odd"
    path.write_bytes(content)
    with pytest.raises(LaunchError, match="no training step and no benchmark result"):
        read_log(path)


@settings(max_examples=EXAMPLES)
@given(
    name=st.sampled_from(sorted(path.name for path in LOGS.iterdir())),
    cuts=st.tuples(st.floats(0, 1), st.floats(0, 1)),
    junk=st.binary(max_size=12),
)
def test_a_damaged_log_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, name: str, cuts: tuple[float, float], junk: bytes
) -> None:
    content = (LOGS / name).read_bytes()
    first, last = sorted(round(cut * len(content)) for cut in cuts)
    path = tmp_path_factory.mktemp("damaged") / name
    path.write_bytes(content[:first] + junk + content[last:])
    try:
        reading = read_log(path)
    except LaunchError:
        return
    assert not reading.is_empty
    if reading.steps:
        assert steady_state(reading.steps, reading.quantity).value > 0


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match=r"missing\.log: cannot be read"):
        read_log(tmp_path / "missing.log")


def test_the_folder_of_a_tool_holds_its_result(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    path = tmp_path / "run" / "profile_export_aiperf.json"
    path.write_text((LOGS / "aiperf.json").read_text())
    assert read_log(tmp_path).values == pytest.approx(SERVED)
    path.unlink()
    with pytest.raises(LaunchError, match="the folder has no profile_export_aiperf"):
        read_log(tmp_path)


def test_a_format_can_be_named() -> None:
    assert read_log(LOGS / "megatron.log", "megatron").format == "megatron"
    with pytest.raises(LaunchError, match="no training step"):
        read_log(LOGS / "megatron.log", "torchtitan")
    with pytest.raises(LaunchError, match=r"Did you mean torchtitan\?"):
        read_log(LOGS / "megatron.log", "torch-titan")
    assert len(NAMES) == len(set(NAMES))


@pytest.mark.parametrize(
    ("before", "fact"),
    [
        ("Traffic request rate: 4.0\nMaximum request concurrency: None\n", {"request_rate": 4.0}),
        ("Traffic request rate: inf\nMaximum request concurrency: 16\n", {"concurrency": 16.0}),
        ("Traffic request rate: inf\nMaximum request concurrency: None\n", {"all_at_once": 1.0}),
    ],
)
def test_the_load_that_is_printed_before_a_table_is_read(
    before: str, fact: dict[str, float], tmp_path: Path
) -> None:
    path = tmp_path / "bench.log"
    path.write_text(
        f"{before}============ Serving Benchmark Result ============\n"
        "Successful requests:                     100\n"
        "Benchmark duration (s):                  50.0\n"
        "Total input tokens:                      100000\n"
        "Total generated tokens:                  20000\n"
        "Request throughput (req/s):              2.0\n"
        "Mean TTFT (ms):                          100.0\n",
        encoding="utf-8",
    )
    facts = read_log(path).facts
    assert fact.items() <= facts.items()
    assert len({"concurrency", "request_rate", "all_at_once"} & facts.keys()) == 1
