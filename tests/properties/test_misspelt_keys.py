"""A misspelt key or table of any TOML that is read is repeated, with the nearest right one."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import planner
from planner.decide.sizing.services import read_services
from planner.errors import PlannerError
from planner.specs.catalogue import Catalogue
from planner.specs.power import read_power
from planner.sweeps.find_plan import read_plan
from planner.workloads.saved_plan import SavedPlan

SPECS = Catalogue(None)
SERVICES = """
input_tokens = 2000
output_tokens = 300

[stock]
h100 = 24

[settings]
tensor_parallel = 4

[services.chat]
model = "llama-3.1-70b"
request_rate = 300

[jobs.tune]
model = "llama-3.1-70b"
tokens = "1B"
sequence_length = 4096
global_batch_size = 64
every = "7d"
"""
SPACE = """
name = "drawn"
description = "a few layouts"
framework = "megatron-lm"

[parameters]
tensor_parallel = [1, 2]
micro_batch_size = [1, 2]
recompute = ["none", "full"]
"""
PLAN = """
workload = "train"

[answers]
model = "llama-7b"
sequence_length = 2048

[parameters]
tensor_parallel = 1
"""


def search_in(path: str) -> None:
    planner.search(model="llama-7b", num_gpus=8, space=path)


READERS: dict[str, tuple[Callable[[Any], object], str]] = {
    "services": (lambda path: read_services(path, {}), SERVICES),
    "space": (search_in, SPACE),
    "plan": (lambda path: SavedPlan.read(Path(path)), PLAN),
    **{
        name: (load, SPECS.find(kind, name).read_text(encoding="utf-8"))
        for kind, load, name in (
            ("gpus", SPECS.load_gpu, "h100-sxm-80gb"),
            ("clusters", SPECS.load_cluster, "gb200-nvl72"),
            ("models", SPECS.load_model, "llama-3.1-8b"),
            ("frameworks", SPECS.load_framework, "megatron-lm"),
            ("engines", SPECS.load_engine, "vllm"),
            ("engines", SPECS.load_engine, "tgi-2"),
            ("reliability", SPECS.load_reliability, "published"),
            ("sweeps", read_plan, "procurement"),
        )
    },
    "power": (
        lambda path: read_power(Path(path)),
        (Path(__file__).parents[2] / "hardware_specs/power.toml").read_text(encoding="utf-8"),
    ),
}
# A key at the start of its line, or the first word of a table.
KEY = re.compile(r"^(?:\[+(?P<table>[a-z_]{4,})|(?P<key>[a-z_]{4,}) =)", re.MULTILINE)
# Tables whose keys are names that the file gives: of its sources, and of generations of GPUs.
OWN_KEYS = re.compile(
    r"^\[(?:sources|[\w.]*_by_architecture)\].*?(?=^\[|\Z)", re.MULTILINE | re.DOTALL
)


def misspelt(text: str, draw: random.Random) -> tuple[str, str, str]:
    """A text with a letter of a key left out; the misspelt key and the right one."""
    own = [match.span() for match in OWN_KEYS.finditer(text)]
    spans = [
        match.span(match.lastgroup or 0)
        for match in KEY.finditer(text)
        if match["table"] or not any(start <= match.start() < end for start, end in own)
    ]
    start, end = draw.choice(spans)
    right, at = text[start:end], draw.randrange(1, end - start - 1)
    wrong = right[:at] + right[at + 1 :]
    return text[:start] + wrong + text[end:], wrong, right


@pytest.mark.parametrize("reader", READERS)
def test_a_misspelt_key_is_repeated_with_the_nearest(reader, tmp_path):
    read, text = READERS[reader]
    path, draw = tmp_path / "drawn.toml", random.Random(reader)
    for _ in range(8):
        faulty, wrong, right = misspelt(text, draw)
        path.write_text(faulty, encoding="utf-8")
        with pytest.raises(PlannerError) as error:
            read(str(path))
        assert re.search(rf"\b{wrong}\b.*Did you mean .*\b{right}\b", str(error.value)), faulty
