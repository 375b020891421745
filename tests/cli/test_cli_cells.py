"""No cell of a file holds the text of a Python object, whichever command writes it."""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from planner.base.enums import AdapterKind
from planner.cli.app import COMMANDS
from planner.configurations.training_rules import RULES
from planner.show.presenters.row_tables import csv_cell, json_cell

SERVED = ("--workload", "serve", "--model", "llama-3.1-8b", "--gpu", "h100", "--engine", "vllm")
TRAINED = ("--model", "llama-7b", "--gpus", "8", "--framework", "megatron-lm")
RL = ("--workload", "rl", "--model", "qwen3-8b", "--gpus", "8", "--gpu", "h100")
BOTH = ("--csv", "f.csv", "--json", "f.json")
LINES = [
    ("search", *TRAINED, *BOTH),
    ("search", *TRAINED, "--all", *BOTH),
    ("search", *SERVED, "--gpus", "1,2", *BOTH),
    ("search", *RL, *BOTH),
    ("estimate", *TRAINED, "--set", "tp=2", "--json", "f.json"),
    ("estimate", *SERVED, "--request-rate", "1", "--gpus", "1", "--json", "f.json"),
    ("explain", *TRAINED, "--json", "f.json"),
    ("explain", *SERVED, "--gpus", "1", "--json", "f.json"),
    ("size", *TRAINED[:2], "--gpus", "64,128", "--gpu", "h100", "--time-to-train", "60d", *BOTH),
    ("size", *SERVED, "--request-rate", "20", *BOTH),
    ("size", *SERVED, "--load", "day.csv", "--startup-time", "10min", *BOTH),
    ("size", *SERVED, "--load", "day.csv", *BOTH),
    ("size", *SERVED, "--pools", "2", "--lengths", "azure-code", "--request-rate", "20", *BOTH),
    ("size", *SERVED, "--budget", "5USD/hour", *BOTH),
    ("compare", "h100", "a100", "--model", "llama-7b", "--gpus", "8", "--json", "f.json"),
    ("max-batch", *TRAINED, "--set", "zero_stage=2,3", *BOTH),
    ("max-length", *SERVED, "--gpus", "1", "--json", "f.json"),
    ("operators", "host-copy", "--gpu", "h100", "--bytes", "4KiB,1GiB", *BOTH),
    ("launch", "megatron-lm", *TRAINED[:4], "--output", "d"),
    ("calibrate", "r.csv", "--output", "f.toml"),
    ("validate", "r.csv", "--output", "f.csv"),
    ("validate", "--template", "training", "--output", "f.csv"),
    ("sweep", *TRAINED[:2], "--gpus", "4,8", "--gpu", "a100", "--output", "d"),
    ("sweep", *SERVED, "--gpus", "1,2", "--output", "d"),
    ("report", "f.json", "--output", "f.html"),
]
# They write what others answer with, print alone, or write what somebody gave.
NO_CELLS = {"ui", "mcp", "specs", "report", "calibrate", "check"}
OBJECT = re.compile(r"\bnp\.\w+\(|^<.*>$|\bobject at 0x|^(nan|inf|-inf|None|NaN)$|^array\(|^dict\(")


def cells_of(folder: Path) -> Iterator[tuple[str, object]]:
    """The cells of all CSV and JSON files of a folder, with where they stand."""
    for path in folder.rglob("*"):
        if path.suffix == ".csv":
            with path.open(newline="") as file:
                for number, row in enumerate(csv.reader(file)):
                    yield from ((f"{path.name}:{number}", cell) for cell in row)
        elif path.suffix == ".json":
            text = path.read_text()
            found = json.loads(text, parse_constant=lambda word: f"{word}".replace("I", "i"))
            yield from leaves(path.name, found)


def leaves(where: str, value: Any) -> Iterator[tuple[str, object]]:
    """The names and plain values of a JSON value."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    for name, one in pairs:
        yield where, name
        if isinstance(one, dict | list):
            yield from leaves(f"{where}.{name}", one)
        else:
            yield f"{where}.{name}", one


def test_every_command_that_writes_is_here() -> None:
    assert {str(line[0]) for line in LINES} | NO_CELLS == {*COMMANDS}


@pytest.mark.few(1)
@pytest.mark.parametrize("line", LINES, ids=lambda line: " ".join(map(str, line))[:60])
def test_cells_are_text_numbers_and_flags(planner, tmp_path, monkeypatch, line):
    monkeypatch.chdir(tmp_path)
    Path("day.csv").write_text(
        "\n".join(["hour,request_rate", *(f"{h},{5 + h}" for h in range(24))])
    )
    if "r.csv" in line:
        planner("validate", "--template", "training", "--output", "r.csv")
    if line[0] == "report":
        planner("search", *TRAINED, "--json", "f.json", "--quiet")
    ran = planner(*line, *(() if line[0] in ("launch", "report", "sweep") else ("--quiet",)))
    assert ran.exit_code in (0, 8), ran.err
    found = [*cells_of(tmp_path)]
    assert len(found) > 10
    wrong = [one for one in found if one[1] is not None and OBJECT.search(str(one[1]))]
    assert wrong[:5] == []


def test_the_writer_knows_plain_values_alone() -> None:
    draw = Random(1)
    number = draw.random()
    for value in (number, np.float64(number), np.float32(0.5), np.int64(3), np.bool_(True)):
        plain = value.item() if isinstance(value, np.generic) else value
        assert csv_cell(value) == repr(plain)
        assert json.loads(json_cell(value)) == plain
    for unknown in (None, math.nan, math.inf, np.float64("nan")):
        assert (csv_cell(unknown), json_cell(unknown)) == ("", "null")
    assert csv_cell(AdapterKind.LORA) == "lora"
    for wrong in (object(), [1], {"a": 1}, RULES[0], np.array([1.0, 2.0])):
        with pytest.raises(TypeError, match="not a text, number or flag"):
            csv_cell(wrong)
