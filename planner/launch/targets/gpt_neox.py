"""GPT-NeoX: ``deepy.py train.py FILES`` and its YAML, read-only.

Source: EleutherAI/gpt-neox at ea7aefd, ``megatron/neox_arguments`` (``arguments.py``,
``neox_args.py``), ``megatron/model/transformer.py`` (``ParallelMLP``: a gated block keeps the
parameters of one that is not) and ``megatron/tokenizer/tokenizer.py``. Keys have hyphens or
underscores.
"""

from __future__ import annotations

from collections.abc import Mapping

from planner.documents.shell.edits import ParsedOption
from planner.launch.read.parsed_launch import ParsedCommand
from planner.launch.targets.training_reader import make_reader_target


def _with_underscores(option: str) -> str:
    return option.replace("-", "_")


def _merge_config_files(command: ParsedCommand) -> Mapping[str, ParsedOption]:
    sources = (*(file.options for file in command.files.values()), command.options)
    return {
        _with_underscores(name): option for source in sources for name, option in source.items()
    }


TARGET = make_reader_target("gpt-neox", _merge_config_files, format_name=_with_underscores)
