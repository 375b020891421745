"""Every training target reads unknown optimizers, null and missing degrees in the same way."""

from __future__ import annotations

from dataclasses import replace

import pytest
from make_public_launches import Case, cases
from rows import each

from planner.documents.shell.edits import implied_option
from planner.errors import LaunchError
from planner.launch.read.import_launch import ImportedLaunch, import_launch, parse_count
from planner.launch.read.option_lines import Status
from planner.launch.read.parsed_launch import SettingsBuilder
from planner.launch.read.read_launch import read_launch
from planner.launch.read.training_values import DEGREES, set_training_value

OPTIMIZERS = {
    "megatron-lm": "--optimizer",
    "megatron-bridge": "optimizer.optimizer",
    "megatron-deepspeed": "--optimizer",
    "maxtext": "opt_type",
    "nemo-rl": "policy.optimizer.name",
    "verl": "actor_rollout_ref.actor.optim.optimizer",
    "torchtitan": "optimizer.name",
    "nanotron": "optimizer.optimizer_factory.name",
    "prime-rl": "trainer.optim.type",
    "slime": "--optimizer",
    "openrlhf": "--optim",
    "axolotl": "optimizer",
    "transformers": "--optim",
    "accelerate": "--optim",
    "deepspeed": "optimizer.type",
    "gpt-neox": "optimizer.type",
    "llm-foundry": "optimizer.name",
    "torchtune": "optimizer._component_",
    "xtuner": "optim_cfg",
    "nemo-automodel": "optimizer._target_",
}
"""The option of each training target that names its optimizer."""
FIRST: dict[str, Case] = {}
# Documents come first: their options are those of the launch itself.
for _case in sorted(cases(), key=lambda case: case.path.suffix == ".sh"):
    if _case.target in OPTIMIZERS and not _case.refused:
        FIRST.setdefault(_case.target, _case)
CONTRADICTS = "accelerate"
"""Its file without degrees contradicts the GPUs that it starts, which is refused."""
REPORTED = (Status.OPEN, Status.NOT_MODELLED, Status.UNKNOWN)


def with_options(case: Case, **options: str | None) -> ImportedLaunch:
    """The launch of a case with these options changed; None: left out."""
    launch = read_launch(case.path)
    command = launch.command
    changed = {name: option for name, option in command.options.items() if name not in options}
    changed |= {name: implied_option(name, text) for name, text in options.items() if text}
    return import_launch(launch.path, launch.target, replace(command, options=changed))


@each("target", sorted(OPTIMIZERS))
def test_an_unknown_optimizer_is_never_silently_adam(target: str) -> None:
    option = OPTIMIZERS[target]
    launch = with_options(FIRST[target], **{option: "AdamW4bit"})
    is_noted = any("adamw4bit is not understood" in note.lower() for note in launch.notes)
    statuses = [line.status for line in launch.lines if line.option == option]
    assert is_noted or {*statuses} & {*REPORTED}


def degree_options(launch: ImportedLaunch) -> dict[str, None]:
    return {
        row.option: None
        for row in launch.target.table.rows
        if row.parameter in DEGREES and row.option in launch.command.options
    }


@each("target", sorted(OPTIMIZERS))
def test_a_missing_degree_is_one(target: str) -> None:
    launch = read_launch(FIRST[target].path)
    options = degree_options(launch)
    if not options:
        return
    if target == CONTRADICTS:
        with pytest.raises(LaunchError, match="splits 1 GPUs"):
            with_options(FIRST[target], **options)
        return
    changed = with_options(FIRST[target], **options)
    rows = launch.target.table.rows
    names = {row.parameter for row in rows if row.option in options} & {*DEGREES}
    assert {name: parse_count(changed.values.get(name, 1)) for name in names} == dict.fromkeys(
        names, 1
    )
    assert not names & {*changed.answers.missing}
    assert "global_batch_size" in changed.values or "global_batch_size" not in launch.values


@each("target", sorted(OPTIMIZERS))
def test_a_null_degree_is_a_missing_one(target: str) -> None:
    launch = read_launch(FIRST[target].path)
    options = {name: None for name in degree_options(launch) if not name.startswith("-")}
    if not options or launch.command.positional or target == CONTRADICTS:
        return
    left_out = with_options(FIRST[target], **options)
    nulls = with_options(FIRST[target], **dict.fromkeys(options, "null"))
    assert nulls.values == left_out.values
    assert nulls.answers.missing == left_out.answers.missing


@pytest.mark.parametrize(
    ("parameter", "word", "value"),
    [
        ("precision", "bfloat16", "bf16"),
        ("precision", "amp_fp16", "fp16"),
        ("precision", "float32", "fp32"),
        ("precision", "tf32", "tf32"),
        ("recompute", True, "full"),
        ("recompute", "false", "none"),
        ("recompute", "selective", "selective"),
        ("optimizer", "LionConfig", "lion"),
        ("optimizer", "torch.optim.AdamW", "adam"),
    ],
)
def test_words_of_programs_are_values_of_planner(parameter: str, word: object, value: str) -> None:
    settings = SettingsBuilder()
    set_training_value(settings, parameter, word)
    assert settings.values[parameter] == value
