"""What the texts of a published run of inference say in words of columns."""

import pytest
from published.inference import inference_cells
from published.offline import offline_benchmark
from published.tables import changed
from published_rows import run_of
from rows import each

from planner.validation.accuracy import predict
from planner.validation.run_tables import Run, Runs
from planner.validation.spec_library import Library


@pytest.fixture(scope="module")
def cells():
    library = Library()

    def of(**changes):
        run = run_of(**changes)
        return changed(run, inference_cells(run, library))

    return of


@each(
    ("changes", "expected"),
    [
        pytest.param(
            {"mode": "online", "notes": "request rate 4 req/s"}, {"request_rate": "4"}, id="rate"
        ),
        pytest.param(
            {"notes": "300 requests at ~10 sessions/s; max_num_seqs=256"},
            {"num_requests": "300", "request_rate": "10", "max_num_seqs": "256"},
            id="sessions",
        ),
        pytest.param(
            {"gpu": "a10-24gb", "notes": 'environment "2 * A10, 20G / 2 * A800, 80G"'},
            {"gpu_memory_gib": "20"},
            id="other cards",
        ),
        pytest.param({"notes": "DECODE-ONLY, 27 tokens/s"}, {"decode_rate": "1"}, id="decode"),
        pytest.param(
            {"notes": "decode speed, lengths not stated", "input_tokens": ""},
            {"decode_rate": "1", "input_tokens": "4"},
            id="nearly empty context",
        ),
        pytest.param(
            {"source": "FlexGen", "input_tokens": "", "output_tokens": ""},
            {"input_tokens": "512", "output_tokens": "32"},
            id="lengths of a benchmark",
        ),
        pytest.param({"input_tokens": ""}, {}, id="no text gives a length"),
        pytest.param({"notes": "~4.9 bit/weight, not 4"}, {"bits_per_weight": "4.9"}, id="bits"),
        pytest.param({"notes": "OFFLOAD to disk"}, {"offload": "disk"}, id="disk"),
        pytest.param(
            {"notes": "weights OFFLOADED to cpu; KV cache offloaded to CPU"},
            {"offload": "weights+kv_cache"},
            id="host memory",
        ),
        pytest.param(
            {"framework": "flexgen", "notes": "OFFLOAD to cpu; compression of weights and KV"},
            {"offload": "weights+kv_cache", "kv_cache_precision": "int4"},
            id="FlexGen",
        ),
        pytest.param(
            {"framework": "deepspeed-zero-inference", "notes": "OFFLOAD to cpu"},
            {"offload": "weights"},
            id="streamed weights",
        ),
        pytest.param(
            {"notes": "DGX, 8x200Gb/s IB; 208 GB DRAM"},
            {"nics_per_node": "8", "host_memory_gb": "208"},
            id="node",
        ),
        pytest.param({"notes": "nodes of 4x80GB"}, {}, id="memory of GPUs is no network"),
        pytest.param(
            {"mode": "online", "notes": "prefill/decode DISAGGREGATED 3P:2D workers"},
            {"mode": "disagg", "prefill_num_workers": "3", "decode_num_workers": "2"},
            id="pools",
        ),
    ],
)
def test_texts_fill_columns(cells, changes, expected):
    assert cells(**changes) == expected


def test_what_a_column_says_outweighs_the_notes(cells):
    found = cells(notes="request rate 4 req/s; 8x200Gb/s", request_rate="2", nics_per_node="1")
    assert found == {}


@pytest.mark.parametrize(
    ("notes", "stages"),
    [
        ("multi-GPU = device_map layer split", "sequential"),
        ("generate_sequentially (layer split)", "sequential"),
        ("llama.cpp default layer split over 4 GPUs; text generation", "sequential"),
        ("llama.cpp default layer split over 4 GPUs; prompt processing of 4096", "micro_batches"),
        ("pipeline parallelism", None),
    ],
)
def test_how_stages_work(cells, notes, stages):
    assert cells(pipeline_parallel="4", num_gpus="4", notes=notes).get("stages") == stages
    assert "stages" not in cells(notes=notes)


SIZES = ("tensor_parallel", "attention_data_parallel", "expert_parallel", "num_gpus")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param({"num_gpus": "8", "tensor_parallel": "4"}, {}, id="as it is"),
        pytest.param(
            {"num_gpus": "12", "tensor_parallel": "24"}, {"tensor_parallel": "12"}, id="cores"
        ),
        pytest.param(
            {"tensor_parallel": "4", "expert_tensor_parallel": "2", "expert_parallel": "2",
             "model": "gpt-oss-120b", "num_gpus": "8"},
            {},
            id="4 = 2 x 2 of a node",
        ),
        pytest.param(
            {"tensor_parallel": "64", "expert_tensor_parallel": "8",
             "expert_parallel": "8", "model": "deepseek-v3"},
            {"tensor_parallel": "8"},
            id="8 GPUs, counted once by tensor and once by expert parallel",
        ),
        pytest.param(
            {"tensor_parallel": "1", "attention_data_parallel": "64",
             "expert_tensor_parallel": "8", "expert_parallel": "8", "model": "deepseek-v3"},
            {"attention_data_parallel": "8"},
            id="the same of ranks of attention",
        ),
        pytest.param(
            {"tensor_parallel": "4", "attention_data_parallel": "4",
             "expert_parallel": "16", "model": "deepseek-v3"},
            {"tensor_parallel": "1", "expert_parallel": "4"},
            id="a square of both",
        ),
        pytest.param(
            {"num_gpus": "8", "tensor_parallel": "1", "data_parallel": "8", "expert_parallel": "8",
             "model": "deepseek-v3", "notes": "DEP8 (attention DP + expert parallel)"},
            {"attention_data_parallel": "8"},
            id="attention data parallel",
        ),
        pytest.param(
            {"tensor_parallel": "2", "concurrency": "64", "engine_batch_size": "16"},
            {"num_gpus": "8"},
            id="64 requests as 4 batches of 16: replicas",
        ),
        pytest.param(
            {"tensor_parallel": "4", "concurrency": "64", "engine_batch_size": "16",
             "model": "deepseek-v3"},
            {"tensor_parallel": "1", "attention_data_parallel": "4"},
            id="or ranks of attention that share experts",
        ),
    ],
)  # fmt: skip
def test_layouts_that_a_source_counts_in_its_own_way(cells, changes, expected):
    found = cells(**{"num_gpus": "", **changes})
    assert {name: found[name] for name in SIZES if name in found} == expected


def test_wide_workers_of_a_pool_split_requests(cells):
    found = cells(
        mode="disagg", model="deepseek-v3", num_gpus="", prefill_tensor_parallel="4",
        decode_tensor_parallel="16",
    )  # fmt: skip
    sizes = {name: cell for name, cell in found.items() if name.endswith("_parallel")}
    assert sizes == {"decode_tensor_parallel": "1", "decode_attention_data_parallel": "16"}


def test_a_configuration_file_outweighs_the_row(cells):
    found = cells(
        source="2026-03-25.csv", framework="trtllm", framework_version="0.8.1.post1", mode="disagg",
        model="deepseek-ai/DeepSeek-R1", gpu="b200-sxm-180gb", weight_precision="fp4",
        input_tokens="1024", output_tokens="1024", concurrency="875", num_gpus="",
        source_details="source_file=2026-03-25.csv; image=nvcr.io/runtime:0.8.1.post1",
        prefill_tensor_parallel="4", decode_tensor_parallel="8",
    )  # fmt: skip
    assert (found["prefill_expert_parallel"], found["decode_num_workers"]) == ("4", "5")
    assert (found["draft_tokens"], found["decode_max_num_seqs"]) == ("3", "16")
    assert found["length_scale"] == "0.9"


def test_documents_say_how_many_requests_and_what_the_engine_holds():
    table = {"source": "TensorRT-LLM docs perf-overview.md v0.11.0", "model": "llama-2-70b",
             "input_tokens": "128", "mode": "continuous_max_throughput"}  # fmt: skip
    eight = run_of(tensor_parallel="8", output_tokens="2048", **table)
    assert offline_benchmark(eight) == {
        "num_requests": "3000", "max_num_seqs": "1024", "max_num_batched_tokens": "16384",
    }  # fmt: skip
    four = run_of(tensor_parallel="4", output_tokens="128", **table)
    assert offline_benchmark(four)["max_num_seqs"] == "4096"
    assert offline_benchmark(four)["num_requests"] == "30000"
    assert not offline_benchmark(run_of(**{**table, "mode": "static_batch"}))


@pytest.mark.parametrize(
    ("gpu", "precision", "version", "changes", "first_token"),
    [
        ("b200-sxm-180gb", "fp4", "0.8.1.post1", {"concurrency": "450"}, 2.434),
        ("gb300-nvl72", "fp8", "0.8.1.post2", {"concurrency": "84"}, 3.814),
        ("gb300-nvl72", "fp8", "0.8.1.post2",
         {"concurrency": "36", "output_tokens": "8192"}, 10.433),
    ],
)  # fmt: skip
def test_times_of_published_recipes(gpu, precision, version, changes, first_token):
    """InferenceX, DeepSeek-R1 on TensorRT-LLM: more clients than its decode workers have places."""
    run = run_of(
        **{"mode": "disagg", "framework": "trtllm", "framework_version": version, "num_gpus": "",
           "model": "deepseek-ai/DeepSeek-R1", "gpu": gpu, "weight_precision": precision,
           "input_tokens": "1024", "output_tokens": "1024", "prefill_tensor_parallel": "4",
           "decode_tensor_parallel": "8", "source": "db-dump", "tuned": "1", **changes}
    )  # fmt: skip
    complete = Run(line=2, cells={**run.cells, **inference_cells(run, Library())})
    (found,) = predict(Runs(columns=tuple(complete.cells), rows=(complete,)))
    assert found.values["time_to_first_token_s"] == pytest.approx(first_token, rel=0.12)
