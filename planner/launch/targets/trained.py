"""What files of programs that train, and that are read alone, say alike: GPUs, tokens, answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import prod
from typing import Any, TypeAlias

from planner.documents.shell.text import Given
from planner.launch.option_table import OptionTable, Words, is_among, tool_named
from planner.launch.target import Target, gathered
from planner.launch.targets.rollouts import worded
from planner.launch.understood import Answers, Found, Gathered, Reading, gpus_of, require_split

Spelled: TypeAlias = Callable[[str], str]
"""An option of a command as the table has it."""


def plain(option: str) -> str:
    """An option without its dashes."""
    return option.lstrip("-")


def as_it_is(option: str) -> str:
    """The same."""
    return option


def read_alone(
    name: str,
    tell: Callable[[Reading, Gathered], Words | None],
    whole: Callable[[Found], Mapping[str, Given]] = lambda found: worded(found).options,
    spelled: Spelled = plain,
    **hooks: Any,
) -> Target:
    """The target of a program whose files are read alone, with its other ``hooks``.

    Parameters
    ----------
    name : of the target and of its table
    tell : puts what no row of the table tells, and returns the sizes of a model that has no name;
        raises `LaunchError` or `SpecError` of what is not predicted
    whole : all options of a command or document, those of the file that it names among them, as
        the table has them
    """
    table = OptionTable.load(name)

    def answers(reading: Reading) -> Answers:
        found = replace(reading.found, options=whole(reading.found), unknown=())
        inner, tool = Reading.of(found, table), tool_named(name)
        told = gathered(inner, tool["title"])
        told.values["framework"] = f"{tool['profiles']}|{tool['nearest']}".strip("|").split("|")[0]
        shape = tell(inner, told)
        names = {*reading.found.options, *(one.option for one in reading.found.unknown)}
        known = {spelled(one) for one in table.used | table.options}
        used = frozenset(one for one in names if is_among(spelled(one), known))
        ignored = frozenset(one for one in names if is_among(spelled(one), table.ignored))
        return told.made(shape=shape, used=used, ignored=ignored - used)

    return Target.of(name, answers=answers, **hooks)


def ranks_of(
    reading: Reading, found: Gathered, total: int | None = None, **sizes: int
) -> int | None:
    """The GPUs of the job, if it tells them, and how many ranks share its batch.

    ``total`` is their number where its own options say it, ``sizes`` what a copy of the model is
    split over.

    Raises `LaunchError`: they do not divide the GPUs.
    """
    total = total or gpus_of(reading.found.world)
    require_split(reading, total, **sizes)
    found.need("num_gpus", total)
    return None if total is None else total // prod(sizes.values())


def put_batch(found: Gathered, ranks: int | None, steps: int | None) -> None:
    """The batch of a step: micro-batches of every rank, of ``steps`` one after the other."""
    micro = found.values.get("micro_batch_size")
    if ranks is not None and micro is not None:
        found.values["global_batch_size"] = int(micro) * (steps or 1) * ranks


def put_tokens(found: Gathered, steps: int | None) -> None:
    """The tokens of so many steps, where batch and length are told."""
    batch, length = (found.values.get(name) for name in ("global_batch_size", "sequence_length"))
    if steps and batch and length:
        found.values["total_tokens"] = steps * int(batch) * int(length)
