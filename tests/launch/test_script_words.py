"""Changes in the words of programs on the Trainer whose options a table says."""

from __future__ import annotations

import pytest

from planner.documents.shell.edits import Changes
from planner.errors import LaunchError
from planner.launch.read.hf_trainer.option_sources import shipped_scripts, translate_changes

OF = {script.dialect: script for script in shipped_scripts()}
HALF: Changes = {"per_device_train_batch_size": ("2",), "gradient_accumulation_steps": ("8",)}
KEPT: Changes = {"gradient_checkpointing": ("false",)}


@pytest.mark.parametrize(
    ("dialect", "changes", "own"),
    [
        ("alpaca-lora", HALF, {"micro_batch_size": ("2",)}),
        (
            "autotrain",
            HALF | KEPT,
            {
                "params.batch_size": ("2",),
                "params.gradient_accumulation": ("8",),
                "params.disable_gradient_checkpointing": ("true",),
            },
        ),
        ("qlora", HALF | KEPT, HALF | KEPT),
    ],
)
def test_a_change_is_in_the_words_of_the_program(
    dialect: str, changes: Changes, own: Changes
) -> None:
    script = OF[dialect]
    assert translate_changes(dialect, changes, extends=script.extends) == own


def test_what_a_program_has_no_word_for_is_not_written() -> None:
    with pytest.raises(LaunchError, match="alpaca-lora has no option for gradient_checkpointing"):
        translate_changes("alpaca-lora", KEPT, extends=False)
