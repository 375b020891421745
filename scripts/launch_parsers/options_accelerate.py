"""Keys of an accelerate YAML, and options of `accelerate launch`.

The keys of a section are the options of that group of the command, by their names.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from accelerate.commands.config.config_args import ClusterConfig
from accelerate.commands.launch import launch_command_parser
from rows import Row, distinct, of_class, of_parser

SECTIONS = {
    "fsdp_config": "FSDP Arguments",
    "parallelism_config": "ParallelismConfig Arguments",
    "deepspeed_config": "DeepSpeed Arguments",
    "megatron_lm_config": "Megatron-LM Arguments",
    "fp8_config": "FP8 Arguments",
    "mpirun_config": "MPI Arguments",
}


def keys() -> Iterator[Row]:
    parser = launch_command_parser()
    groups = {
        group.title: [x.dest for x in group._group_actions] for group in parser._action_groups
    }
    members = {section: groups[title] for section, title in SECTIONS.items()}
    every = [action.dest for action in parser._actions]
    members["dynamo_config"] = [name for name in every if name.startswith("dynamo_")]
    options = list(of_parser(parser))
    by_name = {row["name"].lstrip("-").replace("-", "_"): row for row in options}
    for row in of_class(ClusterConfig):
        yield row
        for name in members.get(row["name"], ()):
            if option := by_name.get(name):
                kind = "bool" if option["type"] in ("flag", "str_to_bool") else option["type"]
                key = {"name": f"{row['name']}.{name}", "type": kind, "nargs": "", "aliases": ""}
                yield {**option, **key}
    yield from options


def answer(case: dict[str, Any]) -> list[Row]:
    return distinct(keys())
