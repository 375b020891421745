"""prime-rl: the TOML of its ``rl`` command, with trainer, orchestrator and engine.

Source: PrimeIntellect-ai/prime-rl at 559b447, ``packages/prime-rl-configs/src/prime_rl/configs``
(``rl.py``, ``trainer.py``, ``orchestrator.py``, ``inference.py``), and the keys of its first
releases: ``inference.parallel.tp``, ``rollouts_per_example``, lists of GPUs.
"""

from __future__ import annotations

from planner.launch.option_table import MutableQuantities, OptionTable
from planner.launch.read.expression_rows import apply_read_rows
from planner.launch.read.parsed_launch import (
    LaunchSettings,
    OptionReader,
    SettingsBuilder,
    number,
    option_text,
    with_unknown_options,
)
from planner.launch.target import LaunchTarget
from planner.launch.targets.rl_reader_writer import (
    apply_step_rows,
    reader_of_steps,
    set_lengths,
)
from planner.launch.targets.training_reader import (
    make_update_reader,
    require_model_ranks,
    set_lora,
    set_objective,
)

_MODELS = ("model.name", "trainer.model.name")
_SECTIONS = ("trainer", "orchestrator", "inference", "deployment", "monitors", "ckpt", "slurm")
_OTHER_OPTIONS = (
    *("log", "wandb", "env_vars", "weight_broadcast", "model", "run", "tokenizer", "resume"),
    *("seq_len", "max_", "output_dir", "clean"),
)
_ANSWER_LENGTHS = (
    "orchestrator.train.sampling.max_completion_tokens",
    "orchestrator.sampling.max_tokens",
)


def _add_unlisted_settings(reading: OptionReader, settings: SettingsBuilder) -> None:
    """Set what the option table reads for the policy's weight update, adapters and objective."""
    deployment = option_text(reading, "deployment.type")
    apply_read_rows(reading, OptionTable.load("prime-rl"), settings, {"deployment": deployment})
    if "lora_rank" in settings.values:
        rank = settings.values["lora_rank"]
        set_lora(reading, settings, rank, "trainer.model.lora.target_modules")
    if "num_gpus" in settings.values:
        require_model_ranks(reading, settings, settings.values["num_gpus"])
    set_objective(settings, has_reference=False)


def _add_step_settings(
    reading: OptionReader, update: LaunchSettings, settings: SettingsBuilder
) -> None:
    """Set what the option table reads for a step, its lengths, and the GPUs of both sides."""
    values, length = settings.values, int(update.values["sequence_length"])
    set_lengths(settings, length, number(reading, *_ANSWER_LENGTHS))
    quantities: MutableQuantities = {
        "sequence_length": length,
        "deployment": option_text(reading, "deployment.type"),
        "trainer_gpus": update.values.get("num_gpus"),
    }
    apply_step_rows(reading, "prime-rl", settings, quantities)
    if limit := quantities.get("max_seqs_per_engine"):
        values["max_num_seqs"] = min(int(values.get("max_num_seqs", limit)), int(limit))


TARGET = reader_of_steps(
    LaunchTarget.of(
        "prime-rl",
        answers=make_update_reader(
            "prime-rl", _add_unlisted_settings, _MODELS, (*_SECTIONS, *_OTHER_OPTIONS)
        ),
    ),
    profiles=("prime-rl",),
    add_step_settings=_add_step_settings,
    complete_command=with_unknown_options,
)
