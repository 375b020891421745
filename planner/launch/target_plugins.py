"""Launch targets of other packages: entry points of the group ``planner.targets``.

An entry point has the name of the target, and names a module. In the folder of the module lie
``target.csv``, a row of the columns of ``planner/launch/targets.csv``, and ``options.csv``, the
rows of its option table (`planner.launch.option_table`). ``docs/how-to/launch_targets.md`` shows
one.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from planner.base.read_files import packaged_rows
from planner.base.records import record
from planner.errors import LaunchError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "planner.targets"
_OPTION_COLUMNS = ("parameter", "value", "role", "option", "text", "since", "note")
_SHIPPED = ("targets.csv", "dialects/programs.csv")


@record(kw_only=True)
class TargetPlugin:
    """A launch target of another package: its row, the rows of its table, and its entry point.

    The module is imported when targets are first needed.
    """

    row: Mapping[str, str]
    options: Sequence[Mapping[str, str]]
    entry: EntryPoint


@cache
def target_plugins() -> Mapping[str, TargetPlugin]:
    """Return the launch targets of other packages by name; warn about each that cannot be used."""
    from importlib.metadata import entry_points  # its import takes as long as a small search

    plugins: dict[str, TargetPlugin] = {}
    for entry in entry_points(group=GROUP):
        try:
            plugins[entry.name] = _load_plugin(entry, plugins)
        except Exception as error:  # whatever a package of others raises
            warn_of_plugin(entry.name, error)
    return plugins


def warn_of_plugin(name: str, error: Exception) -> None:
    """Warn that a launch target of another package is left out, and why."""
    from importlib.metadata import entry_points

    distributions = [e.dist.name for e in entry_points(group=GROUP, name=name) if e.dist]
    package = f" of {' and '.join(distributions)}" if distributions else ""
    reason = str(error) if isinstance(error, LaunchError) else f"{type(error).__name__}: {error}"
    warnings.warn(f"The launch target {name}{package} is left out: {reason}", stacklevel=2)


def _load_plugin(entry: EntryPoint, plugins: Mapping[str, TargetPlugin]) -> TargetPlugin:
    """Return the plug-in of an entry point; raise LaunchError if its name or files are wrong."""
    folder = Path(__file__).parent
    shipped = [row for table in _SHIPPED for row in packaged_rows(folder / table)]
    shipped_names = {
        name for row in shipped for name in (row["name"], *row.get("aliases", "").split("|"))
    }
    if entry.name in shipped_names:
        raise LaunchError("planner has a target of this name, which stays.")
    if entry.name in plugins:
        raise LaunchError("another package has a target of this name, which stays.")
    spec = find_spec(entry.module)
    if spec is None or spec.origin is None:
        raise LaunchError(f"there is no module {entry.module}.")
    files = Path(spec.origin).parent
    rows = _read_rows(files / "target.csv", [*shipped[0]])
    if [row["name"] for row in rows] != [entry.name]:
        raise LaunchError(f"target.csv must have one row, with the name {entry.name}.")
    if names := shipped_names & {*rows[0]["aliases"].split("|")} - {""}:
        raise LaunchError(f"planner has a target of the alias {', '.join(sorted(names))}.")
    options = _read_rows(files / "options.csv", _OPTION_COLUMNS)
    return TargetPlugin(row=rows[0], options=options, entry=entry)


def _read_rows(path: Path, columns: Sequence[str]) -> list[dict[str, str]]:
    """Return the rows of a plug-in's table; columns that it leaves out are empty."""
    rows = packaged_rows(path)
    if unknown := {key for row in rows for key in row if key not in columns}:
        names = ", ".join(sorted(map(str, unknown)))
        raise LaunchError(f"{path.name} has the unknown columns {names}: {', '.join(columns)}.")
    return [{column: row.get(column) or "" for column in columns} for row in rows]
