"""nanotron, Hugging Face's small trainer: its YAML, read-only.

Source: huggingface/nanotron at 2411b02, ``src/nanotron/config`` (``config.py``,
``parallelism_config.py``, ``models_config.py``), ``parallel/context.py`` and ``helpers.py``.
"""

from __future__ import annotations

from collections.abc import Mapping

from planner.documents.shell.edits import ParsedOption
from planner.launch.read.parsed_launch import ParsedCommand
from planner.launch.targets.training_reader import make_reader_target


def _merge_config_files(command: ParsedCommand) -> Mapping[str, ParsedOption]:
    """Options of the configuration that a command names, with those of the command."""
    config_option = command.options.get("--config-file")
    document = command.files.get((config_option and config_option.single) or "")
    return {**(document.options if document else {}), **command.options}


TARGET = make_reader_target("nanotron", _merge_config_files)
