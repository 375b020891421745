"""What the parsers of a target accept, at the version that its files are written for."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib.resources import files

from planner.base.records import record
from planner.launch.option_table import FLAG, OptionTable

_FLAG_VALUES = "0"
_SECTION = "dict"
_ONE_OR_NONE = "?"
_BOOLEAN = "bool"
_SEVERAL = "+"
_LIST = "list["
# A beginning that argparse completes; a shorter one is a slip.
_SHORTEST = 4


@record(kw_only=True)
class AcceptedOption:
    """An option of a parser; ``nargs`` is argparse's: 0 of a flag, empty of one value."""

    name: str
    type: str = ""
    choices: tuple[str, ...] = ()
    default: str = ""
    nargs: str = ""

    @property
    def is_flag(self) -> bool:
        """Whether it takes no value."""
        return self.nargs == _FLAG_VALUES


@record()
class Accepted:
    """The options of a target by name; ``aliases`` maps other spellings to these."""

    options: Mapping[str, AcceptedOption]
    aliases: Mapping[str, str]

    @classmethod
    def of(cls, stems: Sequence[str], table: OptionTable) -> Accepted:
        """What the parsers of a target accept, and what else its table can read."""
        options: dict[str, AcceptedOption] = {}
        aliases: dict[str, str] = {}
        for stem in stems:
            found = _load(stem)
            # A section of a file is no option of a command: one of its name is meant there.
            first = {
                name: one
                for name, one in options.items()
                if one.type != _SECTION or name not in found.options
            }
            options, aliases = {**found.options, **first}, {**found.aliases, **aliases}
        for row in table.rows:
            if row.option in aliases:
                _rename(row.option, {x.option for x in table.rows}, options, aliases)
            elif row.option and row.option not in options:
                nargs = _FLAG_VALUES if row.text == FLAG else ""
                options[row.option] = AcceptedOption(name=row.option, nargs=nargs)
        return cls(options, aliases)

    def default(self, name: str) -> str:
        """What an option is where nobody says it; empty where nothing is."""
        option = self.options.get(name)
        return "" if option is None or option.default == "None" else option.default

    def find(self, word: str) -> AcceptedOption | None:
        """The option of a word, by name, alias, with ``_`` for ``-``, or a unique beginning.

        ``--x.y`` is the part of an option that takes JSON.
        """
        for spelt in (word, word.replace("_", "-"), *_bare(word)):
            name = spelt if spelt in self.options else self.aliases.get(spelt)
            if name is not None:
                return self.options[name]
        base, dot, _ = word.partition(".")
        if dot and base.replace("_", "-") in self.options:
            return AcceptedOption(name=word)
        if not word.startswith("--") or len(word) < _SHORTEST:
            return None
        starting = {name for name in self.options if name.startswith(word)}
        return self.options[starting.pop()] if len(starting) == 1 else None


def _rename(
    name: str, taken: set[str], options: dict[str, AcceptedOption], aliases: dict[str, str]
) -> None:
    """Call an option as the target's table does, unless that has its first spelling too."""
    first = aliases[name]
    if first in taken:
        return
    options[name] = replace(options.pop(first), name=name)
    for spelt, meant in aliases.items():
        if meant == first:
            aliases[spelt] = name
    del aliases[name]
    aliases[first] = name


def _bare(word: str) -> tuple[str, ...]:
    """The key of a document that an option of the command line has the name of."""
    plain = word.lstrip("-")
    return (plain, plain.replace("-", "_"))


@cache
def _load(stem: str) -> Accepted:
    text = files("planner").joinpath(f"launch/accepted/{stem}.tsv").read_text(encoding="utf-8")
    options: dict[str, AcceptedOption] = {}
    aliases: dict[str, str] = {}
    rows = list(csv.DictReader(text.splitlines(), delimiter="\t"))
    for row in rows:
        nargs = row["nargs"] or ""
        is_key = not row["name"].startswith("-")
        if is_key and not nargs and row["type"].startswith(_BOOLEAN):
            nargs = _ONE_OR_NONE
        if is_key and not nargs and row["type"].startswith(_LIST):
            nargs = _SEVERAL  # as the Trainer's and torchtitan's parsers take lists
        options[row["name"]] = AcceptedOption(
            name=row["name"],
            type=row["type"],
            choices=tuple(filter(None, (row["choices"] or "").split("|"))),
            default=row["default"] or "",
            nargs=nargs,
        )
    for row in rows:
        for alias in filter(None, (row["aliases"] or "").split("|")):
            if alias not in options:
                aliases.setdefault(alias, row["name"])  # those of sub-commands come later
    return Accepted(options, aliases)
