"""Make docs/reference/launch_options.md: which option of each target says which parameter.

Run it after a change of ``planner/launch/options``; a test fails while the file is not what it
makes:

    python scripts/make_launch_tables.py
"""

from __future__ import annotations

from pathlib import Path

import planner
from planner.launch import TARGETS
from planner.launch.option_table import FLAG, VALUE, OptionRole, OptionRow, OptionTable
from planner.launch.target import LaunchTarget
from planner.launch.targets import targets

FILE = Path(planner.__file__).parents[1] / "docs" / "reference" / "launch_options.md"

_HEAD = """# Options of launch files

Made by `python scripts/make_launch_tables.py` from the tables in `planner/launch/options`,
which `planner launch` writes by and `--from` reads backwards. Every written option is in the
list of the tool's options at the version named. `planner/launch/accepted` shows how each list was
read, and which tools' own parsers took what is written.
[Launch files](../how-to/launch.md) explains their use.

Parameters have the names of the [reference](reference.md). Other names are sizes of the model or
quantities that a target computes from the plan. A value stands in the table where the row holds for
that value only, and `X` is any value. The last table holds for every training target and the
parameters that its own table does not name."""
_COLUMNS = ("| parameter | value | option | since | |", "|---|---|---|---|---|")
_SHARED = OptionTable.load("training").rows
_WORDS = {
    OptionRole.IS: "",
    OptionRole.READS: "read, not written",
    OptionRole.WITH: "written beside it",
    OptionRole.ALWAYS: "always written",
    OptionRole.OMITTED: "where nothing is said",
    OptionRole.USUAL: "where nothing is said",
    OptionRole.DERIVED: "worked out by the target",
    OptionRole.NONE: "cannot be expressed",
    OptionRole.LEFT: "not of the plan",
}


def page() -> str:
    """The text of the page."""
    parts = [_HEAD, *(section(target) for target in targets().values())]
    parts.append("\n".join(["## Every training", "", *_COLUMNS, *map(_line, _SHARED)]))
    return "\n\n".join(parts) + "\n"


def section(target: LaunchTarget) -> str:
    """The heading and the table of a target."""
    profiles = ", ".join(target.profiles or target.nearest) or "no profile of its own: the plan's"
    is_written = target.name in TARGETS
    said = f"`planner launch {target.name}`, written" if is_written else "Read, never written,"
    lines = [
        f"## {target.title}",
        "",
        f"{said} for {target.version}; predicted as {profiles}.",
        "",
        *_COLUMNS,
        *(_line(row) for row in target.table.rows if row not in _SHARED),
    ]
    return "\n".join(lines)


def _line(row: OptionRow) -> str:
    words = "; ".join(filter(None, (_WORDS[row.role], row.note)))
    cells = (_code(row.parameter), _code(row.value), _option(row), row.since, words)
    return f"| {' | '.join(_escaped(cell) for cell in cells)} |"


def _option(row: OptionRow) -> str:
    if not row.option:
        return ""
    text = "" if row.text == FLAG else row.text.replace(VALUE, "X")
    separator = " " if row.option.startswith("-") else ": "
    return _code(f"{row.option}{separator}{text}".strip() if text else row.option)


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


def _escaped(cell: str) -> str:
    return cell.replace("|", "\\|")


if __name__ == "__main__":
    FILE.write_text(page(), encoding="utf-8")
