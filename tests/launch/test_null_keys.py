"""A key of a document that is null is one that is not there; neither is an internal error."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from make_public_launches import Case, cases
from rows import each

from planner.documents.shell.edits import ParsedOption
from planner.errors import PlannerError
from planner.launch.read.import_launch import ImportedLaunch, import_launch
from planner.launch.read.read_launch import read_launch

DOCUMENTS = [
    case
    for case in cases()
    if not case.refused and case.path.suffix in (".yaml", ".yml", ".json", ".toml")
]


def _outcome(launch: ImportedLaunch, options: dict[str, ParsedOption]) -> object:
    """The values, or the class of the error that a user is shown."""
    found = replace(launch.command, options=options)
    try:
        return import_launch(launch.path, launch.target, found, None).values
    except PlannerError as error:
        return type(error)


@pytest.mark.few(2)
@pytest.mark.parametrize("case", DOCUMENTS, ids=lambda case: case.name)
def test_null_is_as_if_the_key_was_not_there(case: Case) -> None:
    launch = read_launch(case.path)
    if launch.command.positional or launch.target.inherits:
        return
    for name, option in launch.command.options.items():
        if name.startswith("-") or not option.texts:
            continue
        without = {key: one for key, one in launch.command.options.items() if key != name}
        null = {**launch.command.options, name: replace(option, texts=("null",), unknown="")}
        assert _outcome(launch, without) == _outcome(launch, null), name


TORCHTUNE = """\
model: {_component_: torchtune.models.llama3_1.llama3_1_8b}
tokenizer: {_component_: t, max_seq_len: 4096}
batch_size: 1
DEGREE
optimizer: {_component_: torch.optim.AdamW}
loss: {_component_: torchtune.modules.loss.LinearCrossEntropyLoss}
enable_activation_checkpointing: true
"""


@each("line", ["", "tensor_parallel_dim: null", "tensor_parallel_dim:", "tensor_parallel_dim: ~"])
def test_a_missing_degree_of_torchtune_is_one(line: str, tmp_path: Path) -> None:
    (tmp_path / "t.yaml").write_text(TORCHTUNE.replace("DEGREE", line))
    assert int(read_launch(tmp_path / "t.yaml").values["tensor_parallel"]) == 1


def test_null_of_a_command_replaces_what_the_file_says(tmp_path: Path) -> None:
    (tmp_path / "t.yaml").write_text(TORCHTUNE.replace("DEGREE", "tensor_parallel_dim: 2"))
    (tmp_path / "t.sh").write_text(
        "tune run --nproc_per_node 4 full_finetune_distributed --config t.yaml "
        "tensor_parallel_dim=null\n"
    )
    assert int(read_launch(tmp_path / "t.sh").values["tensor_parallel"]) == 1
