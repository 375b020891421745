"""How the servers of published runs were launched."""

import pytest
from published.inference import inference_cells
from published.tables import read_table
from published_rows import run_of

from planner.validation.run_tables import SHIPPED_INFERENCE, read_runs
from planner.validation.spec_library import Library

INFERENCEX = {
    "source": "db-dump/2026-04-27",
    "mode": "agg",
    "framework": "sglang",
    "framework_version": "0.5.9",
    "model": "deepseek-ai/DeepSeek-R1",
    "gpu": "b200-sxm-180gb",
    "weight_precision": "fp4",
    "num_gpus": "",
    "tensor_parallel": "8",
    "expert_parallel": "1",
    "attention_data_parallel": "1",
    "input_tokens": "1024",
    "output_tokens": "1024",
    "concurrency": "64",
}
SETTINGS = (
    "poll_interval",
    "batch_wait",
    "stream_interval",
    "max_num_batched_tokens",
    "max_num_seqs",
)


@pytest.fixture(scope="module")
def scheduler():
    library = Library()

    def of(**changes):
        return inference_cells(run_of(**{**INFERENCEX, **changes}), library)

    return of


def test_a_script_sets_the_scheduler(scheduler):
    assert scheduler()["poll_interval"] == "30"
    assert scheduler(concurrency="8")["poll_interval"] == "10"
    assert scheduler()["max_num_batched_tokens"] == "16384"


def test_no_script_tells_of_runs_of_others(scheduler):
    assert "poll_interval" not in scheduler(source="a source")


def test_ranks_that_split_requests_wait_for_each_other(scheduler):
    shared = {
        "framework": "trtllm", "framework_version": "", "concurrency": "256",
        "weight_precision": "fp8",
    }  # fmt: skip
    alone = scheduler(**shared)
    balanced = scheduler(**shared, tensor_parallel="1", attention_data_parallel="8")
    assert (alone.get("poll_interval"), balanced["poll_interval"]) == (None, "60")


@pytest.mark.parametrize(
    ("concurrency", "ranks", "experts", "tokens"),
    [("8", None, None, 1024 + 64 + 8), ("16", None, "8", 1104), ("256", "8", "8", 1024 + 64 + 32)],
)
def test_scripts_of_2025_split_experts_and_requests_by_the_load(
    scheduler, concurrency, ranks, experts, tokens
):
    known = scheduler(
        framework="trtllm",
        framework_version="",
        concurrency=concurrency,
        source_details="db-dump/2026-04-27; measured=2025-11-02; wip=False",
    )
    found = [known.get(f"{name}_parallel") for name in ("attention_data", "expert")]
    assert found == [ranks or "1", experts or "1"]
    assert known["max_num_batched_tokens"] == str(tokens)
    assert ("poll_interval" in known) == bool(ranks)


def test_decode_workers_collect_tokens(scheduler):
    pools = {
        "mode": "disagg", "tensor_parallel": "", "prefill_tensor_parallel": "8",
        "decode_tensor_parallel": "8", "prefill_num_workers": "1", "decode_num_workers": "1",
    }  # fmt: skip
    assert scheduler(**pools)["stream_interval"] == "30"
    assert "stream_interval" not in scheduler()


def test_every_setting_is_of_a_published_run():
    runs = [run for path in SHIPPED_INFERENCE for run in read_runs(path).rows]
    known = {
        (run.word("framework"), run.word("mode"), run.word("model").rpartition("/")[2])
        for run in runs
    }
    for row in read_table("launch_settings.csv"):
        same = {one for one in known if one[:2] == (row["engine"], row["mode"])}
        assert same
        assert not row["model"] or any(one[2] == row["model"] for one in same)
        assert row["source"]
        assert any(row[name] for name in SETTINGS)
