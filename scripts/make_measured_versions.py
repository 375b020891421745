"""Write with which releases of engines, and which architectures, published runs were measured.

python scripts/make_measured_versions.py
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

from planner.confidence.error_classes import architecture, find_tool
from planner.confidence.profile_rules import engine_rule
from planner.validation.spec_library import Library, spelled, without_variant

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
RELEASES = _PACKAGE / "confidence" / "measured_releases.csv"
ARCHITECTURES = _PACKAGE / "confidence" / "measured_architectures.csv"


def release_of(engine: str, version: str) -> tuple[str, str] | None:
    """The tool and the release of a run by what it calls both; None where it tells neither."""
    tool, release = _TOOLS.get(engine), _RELEASE.match(version)
    if tool and release and _SINCE.get(engine, 0) <= float(release[0]) < _TOO_LATE:
        return tool, release[0]
    return None


def tool_of_run(engine: str, version: str = "") -> str:
    """The engine that a run was on, whatever its release."""
    profile: str = _TOOLS.get(engine) or engine_rule(engine, version).profile
    return find_tool(profile, dict.fromkeys(_TOOLS.values())) or profile


def releases() -> str:
    """The table: tool, release, number of runs."""
    runs = (release_of(run["framework"], run["framework_version"]) for run in _runs())
    rows = Counter(one for one in runs if one is not None)
    order = sorted(rows, key=lambda one: (one[0], *map(int, one[1].split("."))))
    return _text("tool,release,runs", ((*one, rows[one]) for one in order))


def architectures() -> str:
    """The table: tool, kinds of layers of the model, number of runs."""
    rows: Counter[tuple[str, str]] = Counter()
    for run in _runs():
        kinds = _architecture(run["model"])
        if kinds:
            rows[tool_of_run(run["framework"], run["framework_version"]), kinds] += 1
    return _text("tool,architecture,runs", ((*one, rows[one]) for one in sorted(rows)))


def _runs() -> Iterator[Mapping[str, str]]:
    for name in _TABLES:
        path = _PACKAGE / "validation" / "measurements" / name
        with path.open(encoding="utf-8", newline="") as file:
            yield from csv.DictReader(file)


@cache
def _library() -> Library:
    return Library()


@cache
def _architecture(name: str) -> str:
    """The kinds of layers of a built-in model; empty where there is none of the name."""
    word = spelled(name)
    while word:
        model = _library().model(word)
        if model is not None:
            return "+".join(sorted(architecture(model)))
        word = without_variant(word)
    return ""


def _text(header: str, rows: Iterable[tuple[object, ...]]) -> str:
    return "\n".join([header, *(",".join(map(str, row)) for row in rows), ""])


if __name__ == "__main__":
    RELEASES.write_text(releases(), encoding="utf-8")
    ARCHITECTURES.write_text(architectures(), encoding="utf-8")
