"""Write which releases of engines the published runs were measured with.

python scripts/make_measured_versions.py
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from pathlib import Path

# What runs call an engine, and the tool whose files name its version. Runs that state the version
# of the tool that collected them tell none of the engine's.
_TOOLS = {
    "vllm": "vllm",
    "vllm-rocm": "vllm",
    "sglang": "sglang",
    "tensorrt-llm": "tensorrt-llm",
    "tensorrt-llm+triton": "tensorrt-llm",
    "tensorrt-llm-pytorch": "tensorrt-llm",
    "trtllm": "tensorrt-llm",
}
_SINCE = {"trtllm": 1.0}
_RELEASE = re.compile(r"\d+\.\d+(?!\w)")
_TOO_LATE = 20  # containers that count by year and month
_TABLES = ("serving.csv", "inference.csv")
_PACKAGE = Path(__file__).parents[1] / "planner"
OUTPUT = _PACKAGE / "launch" / "measured_versions.csv"


def measured() -> str:
    """The table: tool, release, number of runs."""
    found: Counter[tuple[str, str]] = Counter()
    for name in _TABLES:
        path = _PACKAGE / "validation" / "measurements" / name
        with path.open(encoding="utf-8", newline="") as file:
            for run in csv.DictReader(file):
                engine = run["framework"]
                tool, release = _TOOLS.get(engine), _RELEASE.match(run["framework_version"])
                if tool and release and _SINCE.get(engine, 0) <= float(release[0]) < _TOO_LATE:
                    found[tool, release[0]] += 1
    rows = sorted(found, key=lambda one: (one[0], *map(int, one[1].split("."))))
    lines = [f"{tool},{release},{found[tool, release]}" for tool, release in rows]
    return "\n".join(["tool,release,runs", *lines, ""])


if __name__ == "__main__":
    OUTPUT.write_text(measured(), encoding="utf-8")
