"""Make the table and the picture of docs/background/traffic.md: public traces, also replayed.

The traces are not shipped. Give the folder that has them, under the names that their repositories
have (Azure/AzurePublicDataset, kvcache-ai/Mooncake):

    python scripts/make_traffic.py FOLDER
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

import planner
from planner.base.arrays import first
from planner.base.formatting import format_duration
from planner.logs.traces import read_trace
from planner.optimize.exhaustive import exhaustive_search
from planner.show.presenters.load_check import ReplayLatencies, replay_trace
from planner.show.presenters.plots.curves import Curve, Curves, draw_curves
from planner.show.presenters.plots.picture import Picture
from planner.show.theme import axis_label
from planner.workloads.build_request import make_request
from planner.workloads.make_plan import make_plan

PAGE = Path(planner.__file__).parents[1] / "docs" / "background" / "traffic.md"
PICTURE = PAGE.parents[1] / "static" / "pictures" / "waits.png"
TRACES = {
    "Azure conversation": "AzureLLMInferenceTrace_conv.csv",
    "Azure code": "AzureLLMInferenceTrace_code.csv",
    "Mooncake conversation": "conversation_trace.jsonl",
    "Mooncake synthetic": "synthetic_trace.jsonl",
}
LOADS = (0.1, 0.5, 0.7, 0.8)
_DRAWN = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
BEGIN, END = "<!-- made by scripts/make_traffic.py -->\n", "<!-- end -->\n"
_ASKED = {
    "workload": "serve", "model": "llama-3.1-8b", "gpu": "h100-sxm-80gb", "engine": "vllm",
    "mode": "aggregated", "precision": "w16a16", "constraints": {},
}  # fmt: skip
_SETTINGS = {
    "kv_cache": "bf16", "max_num_batched_tokens": 8192, "tensor_parallel": 1,
    "pipeline_parallel": 1,
}  # fmt: skip
REPLICAS, SHARED_LOADS = (2, 8), (0.1, 0.7, 0.8)
_FIRST, _TOKEN = "time_to_first_token", "time_per_output_token"


def compared(
    file: Path, loads: Sequence[float], replicas: int = 1
) -> Iterator[tuple[float, ReplayLatencies]]:
    """The rate [1/s] and what is predicted and seen at shares of what some GPUs carry, each a
    replica."""
    trace = read_trace(file)
    given = {**_ASKED, "num_gpus": replicas, "settings": _SETTINGS}
    asked = {**given, **trace.lengths, "request_rate": 1e-3}
    most = exhaustive_search(make_plan(make_request(asked)).problem).recommended
    assert most is not None
    capacity = first(most.row["capacity_requests_per_s"])
    for load in loads:
        rate = load * capacity
        request = make_request({**given, "trace": str(file), "request_rate": rate, "replay": True})
        found = exhaustive_search(make_plan(request).problem).recommended
        assert found is not None
        yield rate, replay_trace(found, request)


def rows(folder: Path) -> Iterator[str]:
    """A row of Markdown for each trace, number of replicas and load."""
    asked = [(LOADS, 1), *((SHARED_LOADS, replicas) for replicas in REPLICAS)]
    for name, file in TRACES.items():
        for loads, replicas in asked:
            for load, (rate, both) in zip(
                loads, compared(folder / file, loads, replicas), strict=True
            ):
                yield _row(name, replicas, load, rate, both)


def _row(name: str, replicas: int, load: float, rate: float, both: ReplayLatencies) -> str:
    cells = [name, str(replicas), f"{load:.0%}", f"{rate:.2f}"]
    for quantity in (_FIRST, _TOKEN):
        for part in (None, 0.99):
            predicted, seen = both.predicted[quantity][part], both.replayed[quantity][part]
            cells.append(f"{format_duration(predicted)} / {format_duration(seen)}")
    return f"| {' | '.join(cells)} |"


def panels(folder: Path) -> Iterator[Curves]:
    """The time to first token over the load of each trace, predicted and replayed."""
    for name, file in TRACES.items():
        found = [*compared(folder / file, _DRAWN)]
        curves = [
            Curve(
                name=f"{told}, {words}",
                x=[rate for rate, _ in found],
                y=[getattr(both, how)[_FIRST][part] for _, both in found],
                ends=[(np.nan, np.nan)] * len(found),
                counts=[1] * len(found),
                ties=[False] * len(found),
            )
            for part, words in ((None, "mean"), (0.99, "p99"))
            for how, told in (("predicted", "predicted"), ("seen", "replayed"))
        ]
        yield Curves(
            title=name,
            x_label="requests/s",
            y_label=axis_label(f"{_FIRST}_s"),
            curves=curves,
            sign=0,
        )


def main() -> None:
    """Write the table into the page, and draw the picture beside it."""
    folder = Path(sys.argv[1])
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    head = (
        "| trace | replicas | load | requests/s | mean TTFT | p99 TTFT | mean TPOT | p99 TPOT |\n"
        "|---|--:|--:|--:|--:|--:|--:|--:|\n"
    )
    table = head + "\n".join(rows(folder)) + "\n"
    PAGE.write_text(before + BEGIN + table + END + after, encoding="utf-8")
    title = "How long do first tokens take over the load of a trace? Llama 3.1 8B on one H100"
    draw_curves(Picture(path=PICTURE, name="cost", width=800), title, [*panels(folder)])


if __name__ == "__main__":
    main()
