"""Read and write whole reinforcement-learning steps of programs that train on rollouts.

The table ``options/<program>-step.csv`` has the options of a program; this module has what all
programs share. A reader extends the one of the policy's update with lengths, placement and further
models. A written step is one job of Ray: ``ray symmetric-run`` starts it on every node (Ray's user
guide of SLURM, from 2.49 on), and the program runs on the first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from planner.base.training_aliases import TrainingObjective
from planner.errors import LaunchError
from planner.launch.option_table import (
    MutableQuantities,
    OptionRole,
    OptionTable,
    OptionTexts,
    Quantities,
    format_option_value,
)
from planner.launch.read.expression_rows import apply_read_rows, parse_text
from planner.launch.read.parsed_launch import (
    LaunchSettings,
    OptionReader,
    ParsedCommand,
    SettingsBuilder,
    with_unknown_options,
)
from planner.launch.target import (
    LaunchDraft,
    LaunchJob,
    LaunchTarget,
    ShellVariable,
    option_texts,
)
from planner.question.terms import terms_of
from planner.specs.quantization import checkpoint_of

_MICRO_BATCH = "micro_batch_size"
"""A parameter of the update only: a step packs answers into micro-batches of tokens."""


_ROLLOUT_OBJECTIVES = (TrainingObjective.GRPO, TrainingObjective.DAPO)
_FULL_STEP_HINT = (
    "--workload rl predicts the whole step: generation, passes, update and weight transfer."
)


def reader_of_steps(
    target: LaunchTarget,
    profiles: tuple[str, ...],
    complete_command: Callable[[ParsedCommand], ParsedCommand] = with_unknown_options,
    facts: Callable[[OptionReader], MutableQuantities] = lambda _: {},
    table: str = "",
    draft: Callable[[LaunchJob, OptionTexts], LaunchDraft] | None = None,
    quantities: Callable[[LaunchJob], Quantities] = lambda _: {},
    **hooks: Any,
) -> LaunchTarget:
    """Return ``target`` with a ``step``, which reads and writes full training steps of RL.

    Parameters
    ----------
    complete_command : the command with the options of the files it names
    facts : quantities of a command that no row computes, for those that do
    table : the option table of the step, if its name is not ``<target>-step``
    draft : writes the step; without it, steps are only read
    quantities : quantities of a job that rows compute from; those of the rows replace them
    hooks : further hooks of `LaunchTarget`
    """

    def read_update(reading: OptionReader) -> LaunchSettings:
        """Read the settings of the weight update, with a hint if it trains on generated answers."""
        update = target.answers(reading)
        return (
            replace(update, notes=(*update.notes, _FULL_STEP_HINT))
            if trains_on_rollouts(update)
            else update
        )

    def read_step(reading: OptionReader) -> LaunchSettings:
        """Read a full step (generation and training); only the training if nothing is generated."""
        update = target.answers(reading)
        if not trains_on_rollouts(update):
            return update
        settings = _step_settings_of_update(reading, update, target)
        of_update = {f"update_{name}": value for name, value in update.values.items()}
        trainer_gpus = {"trainer_gpus": parse_text(update.values.get("num_gpus"))}
        quantities = {**of_update, **trainer_gpus, **facts(reading)}
        for table in (OptionTable.load("rl-update"), step.table):
            apply_read_rows(reading, table, settings, quantities, "rl")
        checkpoint = checkpoint_of(str(quantities.get("engine_model")))  # that engines load
        quantities["engine_format"] = checkpoint.quantization
        apply_read_rows(reading, OptionTable.load("rl-split"), settings, quantities, "rl")
        names = step.table.options | step.table.used
        used = {option.option for name, option in reading.command.options.items() if name in names}
        return settings.build(
            "rl",
            used_options=update.used_options | used,
            unread=update.unread,
        )

    step = replace(
        target,
        words=table or f"{target.name}-step",
        workloads=("rl",),
        profiles=profiles,
        answers=read_step,
        complete=complete_command,
        quantities=quantities,
        **hooks,
    )
    if draft is not None:
        step = replace(step, draft=require_all_expressed(step, draft))
    return replace(target, answers=read_update, step=step)


def trains_on_rollouts(update: LaunchSettings) -> bool:
    """Whether the program trains on answers that it generates."""
    return update.values.get("training_objective") in _ROLLOUT_OBJECTIVES


def _step_settings_of_update(
    reading: OptionReader, update: LaunchSettings, target: LaunchTarget
) -> SettingsBuilder:
    """Return the settings of a step: the shared settings of ``update``, and the step table's."""
    step_terms = terms_of("rl", "parameter", "question").keys() - {_MICRO_BATCH, "framework"}
    settings = option_texts(reading, target.title, "rl")
    update_values = {name: value for name, value in update.values.items() if name in step_terms}
    settings.values = {**update_values, **settings.values}
    settings.defaults = {
        **{name: reason for name, reason in update.defaults.items() if name in update_values},
        **settings.defaults,
    }
    settings.missing = [name for name in update.missing if name in step_terms]
    settings.fallbacks = {
        name: fallback for name, fallback in update.fallbacks.items() if name in update_values
    }
    return settings


MODEL = ShellVariable(name="MODEL", meaning="the model: ORG/NAME on Hugging Face, or a folder")


FSDP_SUFFIX = " of FSDP"
"""Suffix of the parameter in rows with FSDP's own options."""


def fsdp_quantities(job: LaunchJob, target: str, excluded_prefix: str) -> MutableQuantities:
    """Return the values of FSDP's own options; None for options with ``excluded_prefix``."""
    table = OptionTable.load(f"{target}-step")
    parameters = {
        name: name.removesuffix(FSDP_SUFFIX) for name in table.parameters if FSDP_SUFFIX in name
    }
    quantities: MutableQuantities = {
        row.parameter: None for row in table.rows if row.option.startswith(excluded_prefix)
    }
    return (
        quantities
        | dict.fromkeys(parameters.values())
        | {name: job[parameter] for name, parameter in parameters.items()}
    )


def require_all_expressed(
    target: LaunchTarget, draft: Callable[[LaunchJob, OptionTexts], LaunchDraft]
) -> Callable[[LaunchJob, OptionTexts], LaunchDraft]:
    """Wrap ``draft`` in a check that the target's options can express every planned value.

    The file has answers that no option sets, such as the mean length, as comments.
    """

    def drafted(job: LaunchJob, settings: OptionTexts) -> LaunchDraft:
        """Draft a job's files; raise LaunchError if the target cannot express a planned value."""
        table_values = job.option_values(target.table_input(job))
        if unexpressed := [*_unexpressed_values(target.table, table_values)]:
            raise LaunchError(
                f"{target.title} cannot start this plan: {'; '.join(unexpressed)}. Change it "
                "with --set."
            )
        return draft(job, settings)

    return drafted


_SELF_SUFFICIENT_ROLES = (OptionRole.USUAL, OptionRole.OMITTED, OptionRole.DERIVED)


def _unexpressed_values(table: OptionTable, table_values: Quantities) -> Iterator[str]:
    """Yield a text for each planned value that no option sets, with the available values.

    A value that is off needs no option, unless the table has the program's default.
    """
    answers = terms_of("rl", "question")
    for name in table.parameters:
        value, rows = table_values.get(name), table.rows_of(name, *OptionRole)
        if value is None:
            continue
        notes = [row.note for row in rows if row.role is OptionRole.NONE and row.matches(value)]
        if notes and name in answers:  # the file has it as a comment
            continue
        option_rows = [
            row
            for row in rows
            if row.role not in (OptionRole.NONE, OptionRole.LEFT, OptionRole.READS)
        ]
        needs_no_option = not value and not any(row.role in _SELF_SUFFICIENT_ROLES for row in rows)
        if notes or not (
            needs_no_option or not option_rows or any(row.matches(value) for row in option_rows)
        ):
            available = " and ".join(dict.fromkeys(row.value for row in option_rows))
            yield (
                f"{name} {format_option_value(value)} "
                f"({notes[0] if notes else f'it has {available}'})"
            )
