"""How the servers of a public benchmark were launched, where its rows do not say.

``launch_settings.csv`` holds, for the runs of InferenceX, what its launch scripts set of the
scheduler. No measurement is read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from planner.validation.run_tables import SCHEDULED, Run
from published.layouts import Split
from published.setups import benchmark_model
from published.tables import measured_by, read_table, source_text

_BENCHMARK = re.compile(r"db-dump|source_file=2026-|gap-analysis\.csv")
_NUMBERS = ("tensor_parallel", "input_tokens", "output_tokens")
_MOST = 1_000_000
# What the scripts round a step up to, beside one prompt and the decoding sequences.
_SPARE_TOKENS = 64

Row = Mapping[str, str]


def launch_settings(run: Run, replica: Split) -> dict[str, str]:
    """What the benchmark's script set of the scheduler of a run; nothing without a script."""
    if not _BENCHMARK.search(source_text(run)):
        return {}
    rows = read_table("launch_settings.csv")
    row = next((row for row in rows if _is_of(run, replica, row)), None)
    return {} if row is None else _set(run, replica.attention, row)


def _is_of(run: Run, replica: Split, row: Row) -> bool:
    numbers = {name: run.count(name) for name in _NUMBERS} | {"tensor_parallel": replica.tensor}
    drafts = bool(run.count("draft_tokens"))
    attention = replica.attention > 1
    low, _, high = row["concurrency"].partition("-")
    return (
        row["engine"] == run.word("framework")
        and row["mode"] == run.word("mode")
        and row["model"] in ("", benchmark_model(run))
        and row["gpu"] in ("", run.word("gpu"))
        and row["weight_precision"] in ("", run.word("weight_precision"))
        and row["drafts"] in ("", str(int(drafts)))
        and row["attention_data_parallel"] in ("", str(int(attention)))
        and any(run.text("framework_version").startswith(v) for v in row["version"].split("|"))
        and all(not row[name] or str(numbers[name]) in row[name].split("|") for name in _NUMBERS)
        and measured_by(run, row["measured_until"])
        and int(low or 0) <= (run.count("concurrency") or 1) <= int(high or _MOST)
    )


def _set(run: Run, ranks: int, row: Row) -> dict[str, str]:
    """The cells that a script fills.

    ``concurrency`` places are as many as clients; steps of a ``prompt`` have room for one
    beside the sequences of a rank. SGLang divides its tokens of a step among the ranks.
    """
    sequences = max(run.count("concurrency") or 1, ranks) // ranks
    prompt = (run.count("input_tokens") or 0) + _SPARE_TOKENS
    words = {
        "concurrency": sequences,
        "prompt": prompt + sequences * (1 + (run.count("draft_tokens") or 0)),
    }
    names = ("poll_interval", "batch_wait", *SCHEDULED)
    given = {
        name: words[row[name]] if row[name] in words else int(row[name])
        for name in names
        if row[name]
    }
    if row["engine"] == "sglang" and "max_num_batched_tokens" in given:
        given["max_num_batched_tokens"] //= ranks
    return {name: str(min(max(value, 1), _MOST)) for name, value in given.items()}
