"""Programs that planner no longer supports: detection and error messages."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from planner.errors import LaunchError
from planner.launch.option_table import has_keys, shipped_rows


def name_removed_program(
    words: Sequence[str] = (), document: Mapping[str, object] | None = None, call: str = ""
) -> str:
    """Return the name of the removed program of a command, document or call, empty for all others.

    Parameters
    ----------
    words : the command, program first, without wrappers such as ``torchrun``
    document : values of a YAML, JSON or TOML file by dotted key
    call : name of a call in a Python program, with its module if it is imported

    Examples
    --------
    >>> name_removed_program(["litgpt", "finetune", "config.yaml"])
    'litgpt'
    >>> name_removed_program(["vllm", "serve", "m"], {"model": "m"})
    ''
    """
    command = " ".join(words)
    for row in _rows():
        is_started = bool(row["command"]) and re.match(row["command"], command, re.DOTALL)
        is_called = bool(row["call"]) and re.fullmatch(row["call"], call)
        if is_started or is_called or has_keys(document or {}, row["document"]):
            return row["names"].partition("|")[0]
    return ""


def refuse_removed_name(name: str, where: str, advice: str) -> None:
    """Raise `LaunchError` if planner had a program or wrapper of this name in an earlier version.

    Parameters
    ----------
    name : as users type it
    where : the option, or file and line: first words of the message
    advice : recommendation: last sentence of the message
    """
    for row in _rows():
        if name in row["names"].split("|"):
            raise LaunchError(
                f"{where}: {row['title']} is no longer supported; planner {row['last_version']} "
                f"was the last version with this {row['kind']}. {advice}"
            )


def _rows() -> list[dict[str, str]]:
    return shipped_rows("read/removed.csv")
