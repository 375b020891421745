"""A change that is offered for a file is one that its program honours, and reads back as it."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from commands import Command
from make_public_launches import MODEL, cases

from planner.launch.option_table import OptionAliasTable, OptionTable, ParserOptions
from planner.launch.read.launch_file import LaunchFile
from planner.launch.read.parsed_launch import ParsedCommand
from planner.launch.read.read_launch import read_launch
from planner.launch.targets import target_of

SMALL = Path(__file__).parent / "small"
ANSWERS = {
    case.path: {**{name: MODEL for name in case.asked if name == "model"}, **case.given}
    for case in cases()
    if not case.refused
} | {path: {} for path in sorted(SMALL.iterdir()) if path.name != "z3.json"}
# Programs whose files a target reads, and the table of their own options.
TRAINERS = ("transformers", "deepspeed", "accelerate")
DIALECTS = {"transformers": ("autotrain", "llama-factory", "ms-swift"), "deepspeed": ("ms-swift",)}
PRIMUS = "modules.pre_trainer.overrides."


def options(found: ParsedCommand) -> dict[str, str]:
    """All options with their texts, those of the files beside it, too."""
    every = [found, *found.files.values()]
    return {name: str(one.joined) for each in every for name, one in each.options.items()}


def knows(target: str, name: str) -> bool:
    """Whether the program has the option: by what its parsers accept, or its own words."""
    own = TRAINERS if target in TRAINERS else (target,)
    stems = [stem for each in own for stem in target_of(each).accepted]
    if name.startswith(PRIMUS):
        name = "--" + name.removeprefix(PRIMUS).replace("_", "-")
        stems = ["megatron-lm-0.19.2"]
    rows = [row for each in DIALECTS.get(target, ()) for row in OptionAliasTable.load(each).rows]
    words = {word for row in rows for word in (row.option, row.into)}
    empty = OptionTable(rows=())
    return ParserOptions.of(stems, empty).find(name) is not None or name.lstrip("-") in words


def values(text: str) -> dict[str, str]:
    """What a printed change says a parameter is, as a row has it."""
    best, _, _ = text.partition("\nOr ")
    said = re.findall(r"(\w+) (\S+) instead\s+of", best)
    words = {"yes": "True", "no": "False"}
    return {name: words.get(value, value.replace(",", "")) for name, value in said}


@pytest.mark.few(1)
@pytest.mark.parametrize("path", ANSWERS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_a_change_that_is_offered_is_honoured(path: Path, planner: Command, tmp_path: Path) -> None:
    folder = shutil.copytree(path.parent, tmp_path / path.parent.name)
    answers, copy = ANSWERS[path], folder / path.name
    request = LaunchFile(path=copy, answers=answers).question().request
    asked = {**answers, "gpu": request.gpu, "gpus": request.num_gpus}
    given = [word for name, text in asked.items() for word in (f"--{name.replace('_', '-')}", text)]
    before = read_launch(copy)
    ran = planner("estimate", "--from", copy, *map(str, given), "--write")
    if not list(folder.glob("*.orig")):
        return

    after = read_launch(copy)
    old, new = options(before.command), options(after.command)
    assert [name for name in new.keys() - old.keys() if not knows(after.target.name, name)] == []
    if any(name.lstrip("-") == "deepspeed" for name in new):
        assert not [name for name in new.keys() - old.keys() if name.startswith("fsdp")]
    repeating = re.compile(r"(gradient_|[._]activation_)checkpointing").search
    on = [name for name, text in new.items() if repeating(name) and text.lower() == "true"]
    assert len(on) <= 1 or all(old.get(name) == new[name] for name in on)

    again = planner("estimate", "--from", copy, *map(str, given), "--json", "-")
    row = json.loads(again.out)["rows"][0]
    told = values(ran.out)
    # What an engine takes in at once is what its cache has room for.
    told = {name: text for name, text in told.items() if name in row and name != "concurrency"}
    assert {name: str(row[name]) for name in told} == told
