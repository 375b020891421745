"""Predictions of inference depend on their own row alone, and on nothing measured."""

import csv
import math
import random
from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest
from sample_inference import DISAGGREGATED, row, run_of, runs_of

import planner
from planner.show.presenters.validation import write_predictions
from planner.validation.accuracy import INFERENCE_KIND, joined, predict, ranges
from planner.validation.inference.evaluate import whole_memory
from planner.validation.run_tables import INFERENCE, SHIPPED_INFERENCE, Runs, read_runs


@pytest.fixture(scope="module")
def sample():
    """Every 120th shipped row, of both tables."""
    tables = [read_runs(path) for path in SHIPPED_INFERENCE]
    rows = tuple(run for table in tables for run in table.rows[::120])
    return Runs(columns=tables[0].columns, rows=rows)


@pytest.fixture(scope="module")
def together(sample):
    """What is predicted for all of them at once."""
    return values(predict(sample))


def values(predictions):
    return [(one.values, one.fits, one.basis, one.reason) for one in predictions]


def only(**changes):
    (prediction,) = predict(runs_of(row(**changes)))
    return prediction


@pytest.mark.slow
def test_neither_measurements_nor_order_nor_company_change_a_prediction(sample, together):
    blind = [
        type(run)(
            line=run.line,
            cells={
                name: "" if name.startswith("measured_") else cell
                for name, cell in run.cells.items()
            },
        )
        for run in sample.rows
    ]
    order = list(range(len(blind)))
    random.Random(1).shuffle(order)
    mixed = Runs(columns=sample.columns, rows=tuple(blind[i] for i in order))
    assert [together[i] for i in order] == values(predict(mixed))
    for index in range(0, len(sample.rows), 7):
        alone = Runs(columns=sample.columns, rows=sample.rows[index : index + 1])
        assert values(predict(alone)) == [together[index]]


def test_a_static_batch_adds_up():
    found = only().values
    latency = found["time_to_first_token_s"] + 127 * found["time_per_output_token_s"]
    assert found["request_latency_s"] == pytest.approx(latency)
    assert found["output_tokens_per_s"] == pytest.approx(8 * 128 / latency)
    assert found["total_tokens_per_s"] == pytest.approx(8 * 640 / latency)
    assert found["requests_per_s"] == pytest.approx(8 / latency)


def test_decode_rates_leave_the_prompt_out():
    found = only(decode_rate="1").values
    assert found["output_tokens_per_s"] == pytest.approx(8 / found["time_per_output_token_s"])


def test_prompt_only_and_answer_only():
    prompt = only(output_tokens="0").values
    assert prompt["request_latency_s"] == pytest.approx(prompt["time_to_first_token_s"])
    assert prompt["total_tokens_per_s"] == pytest.approx(8 * 512 / prompt["request_latency_s"])
    answer = only(input_tokens="0").values
    assert answer["request_latency_s"] == pytest.approx(128 * answer["time_per_output_token_s"])


def test_batches_beyond_the_room_run_one_after_the_other():
    crowded = {"gpu": "a100-sxm-40gb", "model": "llama-2-7b", "input_tokens": "2048",
               "output_tokens": "2048"}  # fmt: skip
    some, many = (only(concurrency=n, **crowded).values for n in ("512", "1024"))
    assert many["request_latency_s"] == pytest.approx(2 * some["request_latency_s"], rel=0.1)
    assert many["output_tokens_per_s"] == pytest.approx(some["output_tokens_per_s"], rel=0.1)


def test_engines_that_reserve_whole_answers_run_a_batch_in_waves():
    """argonne-lcf/LLM-Inference-Bench@4211f5d, Llama-2-7B in TensorRT-LLM on A100-40GB.

    16, 32 and 64 requests of 1,024 + 1,024 tokens took 22.9, 44.9 and 90.7 s.
    """
    crowded = {"framework": "tensorrt-llm", "framework_version": "0.11.0", "gpu": "a100-sxm-40gb",
               "model": "llama-2-7b", "input_tokens": "1024", "output_tokens": "1024"}  # fmt: skip

    @cache
    def seconds(concurrency):
        return only(concurrency=str(concurrency), **crowded).values["request_latency_s"]

    room = next(n for n in range(16, 33) if seconds(n + 1) > 1.3 * seconds(n))
    assert seconds(room + 1) == pytest.approx(seconds(room) + seconds(1))
    assert seconds(3 * room) == pytest.approx(3 * seconds(room))
    measured = {16: 22.9, 32: 44.9, 64: 90.7}
    for concurrency, latency in measured.items():
        assert seconds(concurrency) == pytest.approx(latency, rel=0.15)


def test_pipelines_without_overlap_take_a_whole_pass_for_each_micro_batch():
    """argonne-lcf/LLM-Inference-Bench@4211f5d: 32 requests on two stages took 45.8 s, 16 on one
    GPU 22.9 s."""
    batch = {"framework": "tensorrt-llm", "framework_version": "0.11.0", "gpu": "a100-sxm-40gb",
             "model": "llama-2-7b", "input_tokens": "1024", "output_tokens": "1024"}  # fmt: skip
    single = only(concurrency="16", **batch).values["request_latency_s"]
    stages = {"num_gpus": "2", "pipeline_parallel": "2", "concurrency": "32"}
    serial = only(**stages, **batch).values["request_latency_s"]
    newer = only(**stages, **{**batch, "framework_version": "0.12.0"}).values["request_latency_s"]
    assert serial == pytest.approx(2 * single, rel=0.05)
    assert newer < 0.7 * serial


def test_equal_prompts_choose_the_experts_of_one():
    """Sequences of one text visit the same experts, as LLM-Inference-Bench runs them."""
    batch = {"model": "mixtral-8x7b", "framework": "tensorrt-llm", "year": "2024",
             "framework_version": "", "num_gpus": "4", "tensor_parallel": "4"}  # fmt: skip
    one, many = (only(concurrency=n, **batch).values for n in ("1", "16"))
    equal = only(concurrency="16", equal_prompts="1", **batch).values
    alone = one["time_per_output_token_s"]
    assert alone < equal["time_per_output_token_s"] < many["time_per_output_token_s"] * 0.8


def test_stages_one_at_a_time_are_as_slow_as_one_gpu():
    split = {"num_gpus": "4", "pipeline_parallel": "4"}
    single = only(framework="hf-transformers").values["time_per_output_token_s"]
    one = only(framework="hf-transformers", **split).values["time_per_output_token_s"]
    assert one == pytest.approx(single, rel=0.05)


def test_the_best_concurrency_is_at_least_as_fast_as_any():
    best = only(mode="continuous_max_throughput", concurrency="").values
    for concurrency in ("1", "16", "64"):
        some = only(mode="online", concurrency=concurrency).values
        assert some["output_tokens_per_s"] <= best["output_tokens_per_s"] * 1.2


OFFLINE = {"mode": "continuous_max_throughput", "concurrency": "", "model": "llama-2-7b",
           "input_tokens": "128", "output_tokens": "2048", "gpu": "a100-sxm-40gb"}  # fmt: skip


def test_requests_that_fit_at_once_take_little_longer_than_one():
    few, one = (only(num_requests=f"{n}", **OFFLINE).values for n in (8, 1))
    assert 6 < few["requests_per_s"] / one["requests_per_s"] < 8


def test_the_last_wave_of_a_benchmark_runs_alone():
    """A cache of 23 GiB holds some 22 sequences of 1.06 GiB; two waves take twice as long."""
    counts = range(14, 60)
    runs = runs_of(*(row(num_requests=f"{n}", **OFFLINE) for n in counts))
    rates = [found.values["requests_per_s"] for found in predict(runs)]
    seconds = [n / rate for n, rate in zip(counts, rates, strict=True)]
    first = next(i for i in range(1, len(counts)) if seconds[i] > 1.3 * seconds[i - 1])
    wave = counts[first] - 1
    again = counts.index(2 * wave)
    assert rates[again] == pytest.approx(rates[first - 1], rel=0.01)
    assert seconds[again + 1] > 1.1 * seconds[again]


def test_a_rate_below_the_limit_is_served():
    offered = {"request_rate": "2", "num_requests": "500"}
    found = only(mode="online", concurrency="", **offered).values
    assert found["requests_per_s"] == pytest.approx(2, rel=0.15)


def test_a_rate_beyond_the_limit_queues():
    slow = {"model": "llama-3.1-70b", "num_gpus": "4", "tensor_parallel": "4",
            "mode": "online", "concurrency": ""}  # fmt: skip
    calm = only(request_rate="1", num_requests="500", **slow).values
    rush = only(request_rate="500", num_requests="500", **slow).values
    assert rush["time_to_first_token_s"] > 5 * calm["time_to_first_token_s"]


def test_weights_larger_than_their_format_add_what_they_are_larger_by():
    """60 of 100 bytes are weights: half as many more are 30."""
    memory = SimpleNamespace(total=np.array(100.0), weights=np.array(60.0))
    assert whole_memory(memory, np.array([1.0, 1.5, 0.9])).tolist() == [100, 130, 94]


def test_disaggregated_decoding_has_no_prompts_in_between():
    apart = only(**DISAGGREGATED).values
    together = {**DISAGGREGATED, "mode": "agg", "tensor_parallel": "8"}
    assert apart["time_per_output_token_s"] < only(**together).values["time_per_output_token_s"]


def test_more_prefill_workers_shorten_the_queue():
    times = [
        only(**{**DISAGGREGATED, "prefill_num_workers": workers}).values["time_to_first_token_s"]
        for workers in ("1", "2", "4")
    ]
    assert times == sorted(times, reverse=True)


def test_requests_beyond_the_places_of_decode_workers_wait():
    few = {**DISAGGREGATED, "decode_max_num_seqs": "16"}
    some, many = only(**{**few, "concurrency": "16"}).values, only(**few).values
    assert many["time_per_output_token_s"] == pytest.approx(some["time_per_output_token_s"], 0.08)
    waiting = (64 - 16) / many["requests_per_s"]
    assert many["time_to_first_token_s"] == pytest.approx(
        waiting + some["time_to_first_token_s"], rel=0.15
    )


def test_collected_tokens_delay_the_first():
    at_once, late = (
        only(**{**DISAGGREGATED, "decode_stream_interval": interval}).values
        for interval in ("1", "11")
    )
    held = 10 * at_once["time_per_output_token_s"]
    assert late["time_to_first_token_s"] - at_once["time_to_first_token_s"] == pytest.approx(held)


def test_replicas_share_the_requests():
    one = only(mode="agg", concurrency="8").values
    two = only(mode="agg", concurrency="16", num_gpus="2").values
    assert two["output_tokens_per_s"] == pytest.approx(2 * one["output_tokens_per_s"])
    assert two["time_per_output_token_s"] == pytest.approx(one["time_per_output_token_s"])


def test_columns_written(tmp_path):
    measured = {"measured_time_per_output_token_s": "0.01", "measured_requests_per_s": "",
                "measured_peak_memory_gib": "", "measured_joy": "3", "colour": "red"}  # fmt: skip
    runs = runs_of(row(**measured), row(**{**measured, "gpu": "abacus"}))
    path = tmp_path / "predictions.csv"
    rows = joined(runs, predict(runs))
    write_predictions(path, [(runs, rows)])
    with path.open(newline="") as file:
        good, bad = csv.DictReader(file)
    for name in ("time_per_output_token_s", "requests_per_s", "peak_memory_gib"):
        low, value, high = (float(good[f"predicted_{name}{end}"]) for end in ("_low", "", "_high"))
        assert low < value < high
        assert bad[f"predicted_{name}"] == ""
    assert (good["predicted_joy"], good["colour"], good["predicted_fits"]) == ("", "red", "1")
    assert (bad["not_predicted_reason"], bad["predicted_fits"]) == ("unknown GPU abacus", "")


def test_a_run_of_a_release_that_nobody_measured_is_less_sure():
    """As a plan of that release is; a container's number is none of vLLM's."""
    near, far, container = (
        only(framework="vllm", framework_version=version)
        for version in ("0.21.0", "0.27.1", "25.12")
    )
    sure, wider = ranges(near, INFERENCE_KIND), ranges(far, INFERENCE_KIND)
    assert far.values == near.values
    assert far.basis == "transferred"
    assert container.basis == near.basis == "measured"
    assert ranges(container, INFERENCE_KIND) == sure
    for name in ("time_per_output_token_s", "output_tokens_per_s"):
        assert wider[name].low <= sure[name].low
        assert wider[name].high >= sure[name].high
    known = planner.estimate(
        workload="serve", model="llama-3.1-8b", gpu="h100", num_gpus=1, engine="vllm",
        engine_version="0.27.1", settings={"concurrency": 16},
    )  # fmt: skip
    asked = only(
        framework="vllm", framework_version="0.27.1", model="llama-3.1-8b", num_gpus="1",
        mode="online", gpu="h100-sxm-80gb", tensor_parallel="1", concurrency="16",
    )  # fmt: skip
    (row,) = known.to_frame().to_dict("records")
    low, high = known.source.confidence_of(row).factors["time_per_output_token"]
    found = ranges(asked, INFERENCE_KIND)["time_per_output_token_s"]
    assert (found.low, found.high) == pytest.approx((found.value * low, found.value * high))


@pytest.mark.slow
def test_odd_cells_never_break_a_prediction(sample):
    generator = random.Random(2)
    odd = ["", "0", "1", "3", "7", "1e6", "1e300", "0.5", "-1", "x"]
    rows = []
    for run in sample.rows:
        name = generator.choice(sorted(INFERENCE.numeric))
        cell = generator.choice(odd)
        if INFERENCE.cell_error(name, cell) is None:
            rows.append(type(run)(line=run.line, cells={**run.cells, name: cell}))
    for prediction in predict(Runs(columns=sample.columns, rows=tuple(rows))):
        assert bool(prediction.reason) != bool(ranges(prediction, INFERENCE_KIND))
        assert all(math.isfinite(value) for value in prediction.values.values())


@pytest.mark.few(8)
@pytest.mark.parametrize("cell", ["1e6", "1e7", "1e300"])
@pytest.mark.parametrize("name", sorted(INFERENCE.numeric))
def test_large_numbers_never_break_a_prediction(sample, name, cell):
    run = sample.rows[0]
    if INFERENCE.cell_error(name, cell) is None:
        rows = (type(run)(line=run.line, cells={**run.cells, name: cell}),)
        (prediction,) = predict(Runs(columns=sample.columns, rows=rows))
        assert bool(prediction.reason) != bool(ranges(prediction, INFERENCE_KIND))
        assert all(math.isfinite(value) for value in prediction.values.values())


def test_empty_tables_are_predicted():
    assert predict(Runs(columns=("gpu",), rows=())) == []
    assert run_of().line == 2


@pytest.mark.parametrize(
    "changes",
    [
        {"mode": "static_batch"},
        {"mode": "continuous_max_throughput", "concurrency": ""},
        {"mode": "online"},
        {"mode": "online", "concurrency": "", "request_rate": "2"},
        DISAGGREGATED,
    ],
)
def test_runs_of_other_lengths_are_predicted_in_one_pass_as_alone(library, changes):
    lengths = (("512", "128"), ("4096", "32"), ("1", "900"), ("512", "128"), ("20000", "1"))
    rows = [row(**changes | {"input_tokens": i, "output_tokens": o}) for i, o in lengths]
    together = predict(runs_of(*rows), library)
    assert len({one.case.group for one in together}) == 1
    for cells, found in zip(rows, together, strict=True):
        (alone,) = predict(runs_of(cells), library)
        assert found.values == pytest.approx(alone.values, rel=1e-12)
        assert found.device_memory == pytest.approx(alone.device_memory, rel=1e-12)
        assert found.fits == alone.fits
