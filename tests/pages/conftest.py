from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from planner.__main__ import run
from planner.show.output_blocks import Page
from planner.ui.pages.page_of_file import read_page

TRAIN = ("--model", "llama-7b", "--gpus", "8", "--space", "small")
SERVE = (
    "--workload", "serve", "--model", "llama-3.1-8b", "--gpu", "h200", "--gpus", "2", "--engine",
    "vllm,sglang", "--set", "concurrency=8,32", "--set", "quantization=fp8", "--mode", "aggregated",
)  # fmt: skip


@pytest.fixture(scope="session")
def results(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """Results of every command, by name."""
    folder = tmp_path_factory.mktemp("results")
    limits = ("--tokens", "1T", "--calendar-time", "60d", "--gpus", "64,128", "--workers", "1")
    commands: dict[str, tuple[str, ...]] = {
        "train.json": ("search", *TRAIN, "--json"),
        "serve.json": ("search", *SERVE, "--json"),
        "estimate.json": ("estimate", "--model", "llama-7b", "--gpus", "8", "--json"),
        "size.json": ("size", "--model", "llama-7b", "--gpu", "a100,h100", *limits, "--json"),
        "plan.toml": ("search", *TRAIN, "--save-plan"),
        "sweep": (
            "sweep", "--model", "llama-7b", "--gpu", "a100,h100", "--gpus", "8,16", "--space",
            "small", "--workers", "1", "--output",
        ),
        "explain.json": ("explain", "--plan", str(folder / "plan.toml"), "--json"),
        "compare.json": (
            "compare", str(folder / "plan.toml"), f"{folder / 'train.json'}:3", "--json",
        ),
        "specs.json": ("compare", "h100", "b200", "--json"),
    }  # fmt: skip
    for name, words in commands.items():
        assert run([*words, str(folder / name), "--quiet"]) == 0, name
    return {name: folder / name for name in commands}


@pytest.fixture(scope="session")
def page_made(results: Mapping[str, Path]) -> Callable[[str], Page]:
    """A function that gives the page of a result, by name, which is made once."""
    return cache(lambda name: read_page(results[name]))


@pytest.fixture
def changed(results, tmp_path):
    """A function that writes a result with something changed."""

    def write(name: str, change: Any) -> Path:
        table = json.loads(results[name].read_text())
        change(table)
        path = tmp_path / name
        path.write_text(json.dumps(table))
        return path

    return write
