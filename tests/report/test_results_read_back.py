"""Results that commands write are read back as equal values, to the letter of their files."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from planner.__main__ import run
from planner.errors import SpecError
from planner.show.presenters.comparison import plans_blocks, spec_numbers_blocks
from planner.show.presenters.sizes import size_blocks
from planner.show.reports import (
    EstimateReport,
    ExplanationReport,
    LargestReport,
    PlansReport,
    RowsReport,
    SearchReport,
    SizeReport,
    SpecsReport,
    result_from_json,
    result_text,
)
from planner.show.terminal import terminal_text

TRAIN = ("--model", "llama-7b", "--gpu", "h100", "--gpus", "8")
SERVE = (
    "--workload", "serve", "--model", "llama-3.1-8b", "--gpu", "h100", "--engine", "vllm",
    "--mode", "aggregated",
)  # fmt: skip
BATCHES = ("--workload", "inference", "--model", "llama-7b", "--gpu", "a100", "--gpus", "1")
RL = ("--workload", "rl", "--model", "llama-3.1-8b", "--gpu", "h100", "--gpus", "16")
WORKLOADS = (TRAIN, (*SERVE, "--gpus", "1"), BATCHES, RL)
LIMITS = ("--tokens", "1T", "--calendar-time", "90d", "--gpus", "64,128")
COMMANDS = {
    **{f"search {n}": (SearchReport, "search", *asked) for n, asked in enumerate(WORKLOADS)},
    **{f"estimate {n}": (EstimateReport, "estimate", *asked) for n, asked in enumerate(WORKLOADS)},
    **{f"explain {n}": (ExplanationReport, "explain", *asked) for n, asked in enumerate(WORKLOADS)},
    "search of several": (SearchReport, "search", "--model", "llama-7b", "--gpu", "h100,v100",
                          "--gpus", "8,16", "--space", "small"),
    "size of a run": (SizeReport, "size", "--model", "llama-7b", "--gpu", "a100,v100", *LIMITS),
    "size of a service": (SizeReport, "size", *SERVE, "--request-rate", "20"),
    "size in a budget": (SizeReport, "size", *SERVE, "--budget", "50kUSD/month"),
    "size of a day": (SizeReport, "size", *SERVE, "--load", "{day}", "--startup-time", "10min"),
    "size of pools": (SizeReport, "size", *SERVE, "--request-rate", "5", "--pools", "2"),
    "size of services": (SizeReport, "size", "--services", "{services}", "--gpu", "h100"),
    "compare": (PlansReport, "compare", "h100", "a100", *TRAIN[:2], "--gpus", "8"),
    "compare specs": (SpecsReport, "compare", "h100", "b200"),
    "max-batch": (LargestReport, "max-batch", *TRAIN),
    "max-batch of methods": (RowsReport, "max-batch", *TRAIN, "--set", "recompute=none,full"),
}  # fmt: skip


class _Written:
    """Texts of the files that commands write; each is written once."""

    def __init__(self, folder: Path) -> None:
        self.path, self.texts = folder / "result.json", {}
        self.names = {"day": folder / "day.csv", "services": folder / "services.toml"}
        self.names["day"].write_text("time,request_rate\n00:00,2\n09:30,9\n18:00,4\n")
        services = '[services.chat]\nmodel = "llama-3.1-8b"\nrequest_rate = 4\n'
        self.names["services"].write_text(services)

    def words(self, words: Sequence[str]) -> list[str]:
        return [word.format(**self.names) for word in words]

    def __call__(self, *words: str) -> str:
        if words not in self.texts:
            command = [*self.words(words), "--quiet", "--json", str(self.path)]
            assert run(command) == 0, words
            self.texts[words] = self.path.read_text()
        return self.texts[words]


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A function that returns the text that a command writes."""
    return _Written(tmp_path_factory.mktemp("written"))


@pytest.mark.few(2)
@pytest.mark.parametrize("name", COMMANDS)
def test_a_result_is_read_back_from_its_file(written, name):
    kind, *words = COMMANDS[name]
    text = written(*words)
    result = result_from_json(json.loads(text))
    assert type(result) is kind
    assert result_text(result) == text
    again = result_from_json(json.loads(json.dumps(result.to_json(), allow_nan=False)))
    assert again == result
    changed = json.loads(text)
    changed["manifest"]["created"] = "1999"
    assert result_from_json(changed) != result


@pytest.mark.few(1)
@pytest.mark.parametrize("number", range(3))
def test_a_drawn_search_is_read_back(written, number):
    draw = random.Random(number)
    asked = draw.choice([*WORKLOADS])
    more = draw.choice([(), ("--objective", "cost"), ("--confidence", "0.8")])
    text = written("search", *asked, *more)
    result = result_from_json(json.loads(text))
    assert result_from_json(result.to_json()) == result
    assert result_text(result) == text


PRESENTED = [n for n in COMMANDS if n.startswith(("size", "compare")) and n != "size of pools"]


PRESENTERS = {
    SizeReport: size_blocks,
    PlansReport: plans_blocks,
    SpecsReport: spec_numbers_blocks,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", PRESENTED)
def test_a_file_is_presented_as_the_command_does(written, planner, name):
    kind, *words = COMMANDS[name]
    text = written(*words)
    blocks = PRESENTERS[kind](result_from_json(json.loads(text)))
    full = ["--full"] if kind is SizeReport else []
    shown = " ".join(planner(*written.words(words), *full).out.split())
    for line in terminal_text(blocks, 80).splitlines():
        assert " ".join(line.split()) in shown


def test_an_older_file_lacks_parts_that_have_defaults(written):
    table = json.loads(written(*COMMANDS["search 0"][1:]))
    for part in ("tied_row", "proven_row", "levers", "recommended_load", "open_facts", "fastest"):
        del table[part]
    table["recommended_sure"] = {}
    result = result_from_json(table)
    assert isinstance(result, SearchReport)
    assert (result.tied_row, result.levers, result.recommended_load) == (None, (), "")
    assert math.isnan(result.recommended_sure.regret)
    assert result.to_json() == table


@pytest.mark.parametrize(
    "part", ["rows", "recommended_sure", "comparisons", "levers", "open_facts"]
)
def test_a_damaged_part_is_named(written, part):
    table = json.loads(written(*COMMANDS["search 0"][1:]))
    with pytest.raises(SpecError, match=f"old.json: its part {part} is damaged"):
        result_from_json({**table, part: 3}, "old.json")
