"""How the options of a real parser become rows of a table; no parser is needed here."""

from __future__ import annotations

import argparse
import enum
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest
from launch_parsers import (
    CHECKOUTS,
    ENVIRONMENTS,
    VARIABLE,
    ParserFailed,
    ask,
    options_axolotl,
    rows,
)
from make_launch_environments import STEPS, VERSIONS
from make_launch_options import PARSERS, table_of


class Backend(enum.Enum):
    flash = 1
    local = 2


@dataclass
class Inner:
    size: int = 2


@dataclass
class Outer:
    name: str
    kind: Literal["a", "b"] | None = None
    inner: Inner = field(default_factory=Inner)


def test_options_of_an_argument_parser() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("-tp", "--tensor-parallel", "--tp", type=int, default=1)
    parser.add_argument("--cache", action=argparse.BooleanOptionalAction, default=False)
    parser.add_argument("--backend", type=Backend, choices=list(Backend), default=Backend.flash)
    parser.add_argument("--files", nargs="+", help="several")
    parser.add_argument("--quiet", action="store_true")
    found = {row["name"]: row for row in rows.of_parser(parser)}
    assert list(found) == [
        "--tensor-parallel",
        "--no-cache",
        "--cache",
        "--backend",
        "--files",
        "--quiet",
    ]
    tensors = found["--tensor-parallel"]
    assert (tensors["type"], tensors["default"], tensors["aliases"]) == ("int", "1", "-tp|--tp")
    assert (found["--cache"]["aliases"], found["--no-cache"]["nargs"]) == ("", "0")
    assert (found["--backend"]["choices"], found["--backend"]["default"]) == (
        "flash|local",
        "flash",
    )
    assert found["--files"]["nargs"] == "+"
    assert (found["--quiet"]["type"], found["--quiet"]["nargs"]) == ("flag", "0")


def test_fields_of_classes_and_their_sections() -> None:
    globals_of = {row["name"]: row for row in rows.of_class(Outer)}
    assert list(globals_of) == ["name", "kind", "inner", "inner.size"]
    assert globals_of["name"]["default"] == "<required>"
    assert (globals_of["kind"]["type"], globals_of["kind"]["choices"]) == ("str", "a|b")
    assert globals_of["inner.size"]["default"] == "2"


SCHEMA = """
from pydantic import BaseModel, Field
class Attention(str, Enum):
    flash = "flash"
class Mixin(BaseModel):
    lora_r: int | None = Field(default=None, alias="rank")
    SHARED: ClassVar[int] = 3
class Part(BaseModel):
    path: str
class AxolotlInputConfig(Mixin):
    bf16: Literal["auto"] | bool | None = "auto"
    attention: Attention | None = None
    datasets: list[Part] | None = None
"""


def test_keys_of_a_schema_that_is_never_run(tmp_path: Path) -> None:
    folder = tmp_path / "axolotl" / "utils" / "schemas"
    folder.mkdir(parents=True)
    (folder / "config.py").write_text(SCHEMA)
    found = {row["name"]: row for row in options_axolotl.answer({"source": str(tmp_path)})}
    assert list(found) == ["lora_r", "bf16", "attention", "datasets", "datasets[].path"]
    assert (found["lora_r"]["type"], found["lora_r"]["aliases"]) == ("int", "rank")
    assert found["bf16"]["type"] == "bool | str"
    assert found["bf16"]["choices"] == "auto|true|false"
    assert found["attention"]["choices"] == "flash"
    assert found["datasets[].path"]["default"] == "<required>"


@pytest.mark.parametrize("parser", PARSERS)
def test_every_parser_that_lists_options_has_its_table(parser: str) -> None:
    assert table_of(parser).is_file()


PACKAGES = {
    "megatron": "megatron-core",
    "axolotl_schema": "axolotl",
    "nemo_rl": "nemo-rl",
    "dynamo": "ai-dynamo",
}


@pytest.mark.parametrize("parser", [name for name in ENVIRONMENTS if name not in CHECKOUTS])
def test_every_parser_is_installed(parser: str) -> None:
    package = PACKAGES.get(parser, parser)
    steps = STEPS[ENVIRONMENTS[parser]]
    said = [word for step in steps if not step.repository for word in step.arguments]
    tags = {step.target: [*step.arguments] for step in steps if step.repository}
    if parser in tags:  # not on PyPI: a checkout of its tag, in the folder that its parser loads
        assert tags[parser] == [f"v{VERSIONS[package]}"]
    else:
        assert f"{package}=={VERSIONS[package]}" in said


def test_a_missing_environment_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    with pytest.raises(ParserFailed, match="make_launch_environments"):
        ask("derive", "vllm", [])
