"""Options that change neither time nor memory, with the reason: the table ``harmless.toml``.

Every option of a parser is read by a row of its target, is listed there, or may change the result
in a way that is not modelled.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from planner.base import read_files
from planner.errors import LaunchError
from planner.launch.option_table import matches_option

_OFF = ("", "false", "none", "null", "no", "off", "disabled")
_DEFAULT = "it is the default"


def harmless_reason(
    option: str, texts: Sequence[str | None], workloads: Sequence[str], default: str = ""
) -> str:
    """Return why an option changes neither time nor memory; empty if it may change them.

    Parameters
    ----------
    option : as the file spells it
    texts : its values, empty for a flag
    workloads : workloads of its tool: ``train`` or serving
    default : the default value, empty if unknown

    >>> harmless_reason("--log-level", ["info"], ["serve"])
    'logging and reports'
    >>> harmless_reason("--decode-context-parallel-size", ["8"], ["serve"])
    ''
    """
    name, value = _normalized(option, texts)
    for reason, pattern, values in _table("train" if "train" in workloads else "serve"):
        if pattern.fullmatch(name) and (not values or value in values):
            return reason
    is_default = default.lower() in _OFF if value in _OFF else default.lower() == value
    return _DEFAULT if texts and None not in texts and is_default else ""


def has_harmless_name(option: str, texts: Sequence[str | None], workloads: Sequence[str]) -> bool:
    """Whether an option that no tool is known to have changes nothing, by its name and value."""
    name, value = _normalized(option, texts)
    return bool(harmless_reason(option, texts, workloads)) or any(
        pattern.fullmatch(name) and (not values or value in values)
        for _, pattern, values in _table("unknown")
    )


def vouches(
    names: Collection[str], option: str, texts: Sequence[str | None], workloads: Sequence[str]
) -> bool:
    """Whether ``names`` have an option, or a wildcard of them does and its own name is harmless.

    A wildcard stands for options of other versions of a tool. What it covers may still decide the
    result: an unknown option of ``optimizer.*`` is not read, and no list of the tool has it.

    >>> vouches({"a.b", "c.*"}, "a.b", ["1"], ["train"]), vouches({"c.*"}, "c.tp", ["4"], ["train"])
    (True, False)
    """
    return option in names or (
        matches_option(option, names) and has_harmless_name(option, texts, workloads)
    )


def _normalized(option: str, texts: Sequence[str | None]) -> tuple[str, str]:
    """Return name and value of an option in lower case, as the table spells them."""
    name = option.rpartition(" ")[2].lstrip("-").replace("-", "_").lower()
    return name, " ".join(str(text).lower() for text in texts)


@cache
def _table(family: str) -> tuple[tuple[str, re.Pattern[str], frozenset[str]], ...]:
    """Return reason, option pattern and harmless values (empty: any) of a family of tools."""
    path = Path(__file__).parent / "harmless.toml"
    rows: Any = read_files.read_toml(path, LaunchError)["harmless"]
    table: list[tuple[str, re.Pattern[str], frozenset[str]]] = []
    for row in rows:
        if row.get("of", family) != family:
            continue
        exceptions = "".join(rf"(?!{_dotted_pattern([name])}\Z)" for name in row.get("but", ()))
        without_values = [option for option in row["options"] if "=" not in option]
        table.append(
            (row["why"], re.compile(exceptions + _dotted_pattern(without_values)), frozenset())
        )
        for option, _, values in (
            option.partition("=") for option in row["options"] if "=" in option
        ):
            pattern = re.compile(exceptions + _dotted_pattern([option]))
            table.append((row["why"], pattern, frozenset(values.split("|"))))
    return tuple(table)


def _dotted_pattern(patterns: Sequence[str]) -> str:
    """A pattern of these options, also after a dot: ``logger.*`` in ``trainer.logger.level``."""
    alternatives = "|".join(re.escape(name).replace(r"\*", ".*") for name in patterns)
    return rf"(?:.*\.)?(?:{alternatives})"
