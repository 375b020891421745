"""Published runs beside a front: which are near, and what follows from their cells."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import Any

import pytest

from planner.__main__ import run
from planner.specs.catalogue import Catalogue
from planner.validation import validated_runs as module
from planner.validation.validated_runs import nearest_runs

CELLS = {
    "model": "meta-llama/Llama-3.1-70B", "gpu": "h100-sxm-80gb", "mode": "agg",
    "framework": "vllm", "framework_version": "0.19.0", "weight_precision": "fp8",
    "input_tokens": "1000", "output_tokens": "101", "concurrency": "20",
    "tensor_parallel": "4.0", "attention_data_parallel": "2.0",
    "measured_time_to_first_token_s": "2", "measured_time_per_output_token_s": "0.02",
    "source": "2026-04-06.csv",
    "source_details": "source_file=2026-04-06.csv; measured=2025-11-02T0",
    "source_url": "", "year": "", "measured_output_tokens_per_s": "",
}  # fmt: skip


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function that ships one run with other cells, and returns what is near."""

    def near(*, input_tokens: float = 1000, **changes: str) -> list[dict[str, Any]]:
        path = tmp_path / "runs.csv"
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, [*CELLS, "num_gpus", "decode_num_workers"])
            writer.writeheader()
            writer.writerow({**CELLS, **changes})
        monkeypatch.setattr(module, "SHIPPED_INFERENCE", (path,))
        module._runs_on.cache_clear()
        catalogue = Catalogue(None)
        return nearest_runs(catalogue, "llama-3.1-70b", ["h100-sxm-80gb"], input_tokens, 101)

    yield near
    module._runs_on.cache_clear()


def test_the_rate_follows_from_requests_in_flight(table: Any) -> None:
    """2 s + 100 x 0.02 s are 4 s: 20 in flight are 5 requests/s on 4 x 2 GPUs."""
    (row,) = table()
    assert row["num_gpus"] == 8
    assert row["request_latency_s"] == pytest.approx(4)
    assert row["capacity_requests_per_s_per_gpu"] == pytest.approx(5 / 8)
    assert row["output_tokens_per_s_per_gpu"] == pytest.approx(5 * 101 / 8)
    assert row["tokens_per_s_per_gpu"] == pytest.approx(5 * 1101 / 8)
    assert row["tokens_per_s_per_user"] == pytest.approx(50)
    assert (row["source"], row["date"]) == ("InferenceX 2026-04-06.csv", "2025-11-02")


def test_a_published_rate_and_number_of_gpus_are_used(table: Any) -> None:
    (row,) = table(measured_output_tokens_per_s="1010", num_gpus="2", source_url="https://a/b")
    assert row["capacity_requests_per_s_per_gpu"] == pytest.approx(10 / 2)
    assert row["source"] == "https://a/b"


def test_other_lengths_models_and_batches_are_not_near(table: Any) -> None:
    assert table(input_tokens=1999)
    assert not table(input_tokens=2001)
    assert not table(model="meta-llama/Llama-3.1-8B")
    assert table(model="llama-3-70b")  # the same layers
    assert not table(mode="static_batch")
    assert not table(concurrency="")


@pytest.mark.slow
def test_the_page_has_the_runs_with_source_and_date(tmp_path: Path) -> None:
    result, page = tmp_path / "front.json", tmp_path / "front.html"
    search = (
        "search", "--workload", "serve", "--model", "llama-3.1-70b", "--gpu", "b200", "--gpus",
        "8", "--engine", "vllm", "--input-tokens", "1024", "--output-tokens", "1024", "--json",
        str(result), "--quiet",
    )  # fmt: skip
    assert run([*search]) == 0
    assert run(["report", str(result), "--output", str(page)]) == 0
    text = page.read_text()
    assert 'data-measured="measured"' in text
    below = text.partition('data-table="measured"')[2]
    tips = re.findall(r'<tr[^>]* data-tip="([^"]*)"', below.partition("</table>")[0])
    assert len(tips) > 5
    assert all("source" in tip and re.search(r"date: \d{4}-\d\d-\d\d", tip) for tip in tips)
