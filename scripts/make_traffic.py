"""Make the table of docs/traffic.md: public traces in closed form and replayed, at several loads.

The traces are not shipped. Give the folder that has them, under the names that their repositories
have (Azure/AzurePublicDataset, kvcache-ai/Mooncake):

    python scripts/make_traffic.py FOLDER
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import planner
from planner.base.arrays import first
from planner.base.text import duration
from planner.decide.replayed import replayed
from planner.logs.traces import read_trace
from planner.optimize.exhaustive import exhaustive_search
from planner.workloads.given import make_request
from planner.workloads.plan import make_plan

PAGE = Path(planner.__file__).parents[1] / "docs" / "traffic.md"
TRACES = {
    "Azure conversation": "AzureLLMInferenceTrace_conv.csv",
    "Azure code": "AzureLLMInferenceTrace_code.csv",
    "Mooncake conversation": "conversation_trace.jsonl",
    "Mooncake synthetic": "synthetic_trace.jsonl",
}
LOADS = (0.5, 0.7, 0.8)
BEGIN, END = "<!-- made by scripts/make_traffic.py -->\n", "<!-- end -->\n"
_ASKED = {
    "workload": "serve", "model": "llama-3.1-8b", "gpu": "h100-sxm-80gb", "engine": "vllm",
    "num_gpus": 1, "mode": "aggregated", "precision": "w16a16", "constraints": {},
    "settings": {"kv_cache": "bf16", "max_num_batched_tokens": 8192},
}  # fmt: skip
_FIRST, _TOKEN = "time_to_first_token", "time_per_output_token"


def rows(folder: Path) -> Iterator[str]:
    """A row of Markdown for each trace and load."""
    for name, file in TRACES.items():
        trace = read_trace(folder / file)
        asked = {**_ASKED, **trace.lengths, "request_rate": 1e-3}
        most = exhaustive_search(make_plan(make_request(asked)).problem).recommended
        assert most is not None
        capacity = first(most.row["capacity_requests_per_s"])
        for load in LOADS:
            given = {**_ASKED, "trace": str(folder / file), "request_rate": load * capacity}
            request = make_request({**given, "replay": True})
            found = exhaustive_search(make_plan(request).problem).recommended
            assert found is not None
            both = replayed(found, request)
            cells = [name, f"{load:.0%}", f"{load * capacity:.2f}"]
            for quantity in (_FIRST, _TOKEN):
                for part in (None, 0.99):
                    predicted, seen = both.predicted[quantity][part], both.seen[quantity][part]
                    cells.append(f"{duration(predicted)} / {duration(seen)}")
            yield f"| {' | '.join(cells)} |"


def main() -> None:
    """Write the table into the page."""
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    head = (
        "| trace | load | requests/s | mean TTFT | p99 TTFT | mean TPOT | p99 TPOT |\n"
        "|---|--:|--:|--:|--:|--:|--:|\n"
    )
    table = head + "\n".join(rows(Path(sys.argv[1]))) + "\n"
    PAGE.write_text(before + BEGIN + table + END + after, encoding="utf-8")


if __name__ == "__main__":
    main()
