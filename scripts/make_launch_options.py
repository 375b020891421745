"""Write the tables of the options that real parsers of launch files accept.

    python scripts/make_launch_options.py [PARSER ...] [--check]

Asks the parsers in the environments of scripts/make_launch_environments.py, and reads axolotl's
source there. `--check` writes nothing and fails where a committed table says something else. The
other tables of planner/launch/accepted are of packages that cannot be installed without a GPU:
its README.md says where they come from.
"""

from __future__ import annotations

import argparse
import csv
import io
import sys
from pathlib import Path

from launch_parsers import ENVIRONMENTS, HERE, ask, folder
from make_launch_environments import VERSIONS

ACCEPTED = Path(__file__).parents[1] / "planner" / "launch" / "accepted"
COLUMNS = ("name", "type", "choices", "default", "nargs", "aliases")
# Other parsers only derive; their tables come from elsewhere.
PARSERS = [name for name in ENVIRONMENTS if (HERE / f"options_{name}.py").is_file()]
PACKAGES = {"megatron": "megatron-core"}
TARGETS = {"megatron": "megatron-lm"}
# Tables with keys that no class or argument tells, which stay as they are committed.
KEEPS = ("deepspeed", "peft", "trl")
Row = dict[str, str]


def table_of(parser: str) -> Path:
    """The table of a parser, by its target and version."""
    version = VERSIONS[PACKAGES.get(parser, parser)]
    return ACCEPTED / f"{TARGETS.get(parser, parser)}-{version}.tsv"


def committed(path: Path) -> dict[str, Row]:
    """Rows of a committed table by name."""
    lines = path.read_text(encoding="utf-8").splitlines()
    rows = csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)
    return {row["name"]: row for row in rows}


def told(parser: str) -> list[Row]:
    """Rows as the parser tells them, with the committed ones that it cannot tell."""
    (rows,) = ask("options", parser, [{"source": str(folder() / "train" / "axolotl")}])
    if not isinstance(rows, list):
        sys.exit(f"{parser}: {rows['error']}")
    found: dict[str, Row] = {row["name"]: row for row in rows}
    if parser in KEEPS:
        kept = committed(table_of(parser))
        for name, row in found.items():
            kept[name] = {**kept.get(name, {}), **{k: v for k, v in row.items() if v}}
        found = kept
    return [{column: row.get(column, "") for column in COLUMNS} for row in found.values()]


def text_of(rows: list[Row]) -> str:
    """The table as text."""
    out = io.StringIO()
    out.write("\t".join(COLUMNS) + "\n")
    for row in rows:
        out.write("\t".join(row[column].replace("\t", " ") for column in COLUMNS) + "\n")
    return out.getvalue()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parsers", nargs="*", metavar="PARSER", help=", ".join(PARSERS))
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args()
    different = []
    for name in given.parsers or PARSERS:
        path, text = table_of(name), text_of(told(name))
        if given.check:
            different += [] if path.read_text(encoding="utf-8") == text else [path.name]
        else:
            path.write_text(text, encoding="utf-8")
    if different:
        sys.exit(f"not as the parsers say: {', '.join(different)}")


if __name__ == "__main__":
    main()
