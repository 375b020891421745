"""The table of a target: which option says which parameter, how its value reads, and since when.

A row of ``options/<target>.csv``:

``parameter``
    of the table of terms, or a quantity that the target's module works out; empty for what is
    always written
``value``
    the row is of this value alone; ``>1`` of what is above one; empty of any
``role``
    ``is``: the option tells the value, written and read; ``reads``: another way to say it that is
    read alone; ``with``: written beside it; ``always``: written whatever the plan; ``omitted``:
    the value when no option is there; ``derived``: the target works it out itself;
    ``none``: the target cannot express it; ``left``: the plan does not say it, the user or the
    framework does
``option``, ``text``
    its name, as the target spells it, and how the value reads: ``{}`` is the value itself,
    ``flag`` a flag without one; else the text itself
``since``, ``note``
    the version that has it, where it was not always there; why, and what else to know
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from enum import StrEnum
from functools import cache
from importlib.resources import files
from typing import Any, Self

from planner.base.records import record

FLAG = "flag"
VALUE = "{}"


class Role(StrEnum):
    """What a row of the table says of its option."""

    IS = "is"
    READS = "reads"
    WITH = "with"
    ALWAYS = "always"
    OMITTED = "omitted"
    DERIVED = "derived"
    NONE = "none"
    LEFT = "left"


@record(kw_only=True)
class Row:
    """A row of the table; see the module."""

    parameter: str
    value: str
    role: Role
    option: str
    text: str
    since: str
    note: str

    def is_of(self, value: Any) -> bool:
        """Whether the row is of this value of its parameter."""
        if self.value.startswith(">"):
            return float(value) > float(self.value[1:])
        return not self.value or self.value == word_of(value)

    def written(self, value: Any) -> str | None:
        """The option's text for a value; None of a flag."""
        return None if self.text == FLAG else self.text.replace(VALUE, word_of(value))

    def read(self, text: str | None) -> str | None:
        """The value that a text of the option tells; None where it is not this row's."""
        if self.text == FLAG:
            return (self.value or "true") if text in (None, "", "true", "True") else None
        if text is None:
            return None
        if VALUE not in self.text:
            return self.value if text == self.text else None
        before, _, after = self.text.partition(VALUE)
        is_like = text.startswith(before) and text.endswith(after)
        return text[len(before) : len(text) - len(after)] if is_like else None


@record(kw_only=True)
class Setting:
    """An option as it is written; a ``text`` of None is that of a flag."""

    option: str
    text: str | None
    note: str = ""


@record(kw_only=True)
class Remark:
    """What is told of a parameter: that a target cannot express it, or who decides it."""

    parameter: str
    value: str
    note: str

    def __str__(self) -> str:
        name = f"{self.parameter} = {self.value}" if self.value else self.parameter
        return f"{name}: {self.note}" if name else self.note


@record(kw_only=True)
class Settings:
    """A plan in the options of a target.

    ``unexpressed`` are the parameters that it cannot express, ``left`` what is not the plan's.
    """

    options: tuple[Setting, ...]
    unexpressed: tuple[Remark, ...]
    left: tuple[Remark, ...]


@record(kw_only=True)
class Meaning:
    """The value of a parameter as the options of a file tell it.

    ``options`` are those it comes from; empty where it is what the target does without any.
    """

    parameter: str
    value: str
    options: tuple[str, ...]


@record()
class OptionTable:
    """The rows of a target."""

    rows: tuple[Row, ...]

    @classmethod
    def load(cls, target: str) -> Self:
        """The table that is shipped for a target."""
        return cls(_rows(target))

    @property
    def parameters(self) -> tuple[str, ...]:
        """What the table knows, in its order."""
        return tuple(dict.fromkeys(row.parameter for row in self.rows if row.parameter))

    @property
    def options(self) -> frozenset[str]:
        """Every option that a row names."""
        return frozenset(row.option for row in self.rows if row.option)

    def written(self, quantities: Mapping[str, Any]) -> Settings:
        """The options for these values of parameters and quantities; None says nothing."""
        options: list[Setting] = []
        remarks: dict[Role, list[Remark]] = {Role.NONE: [], Role.LEFT: []}
        for row in self.rows:
            value = quantities.get(row.parameter)
            if row.role is Role.LEFT:
                remarks[row.role].append(Remark(parameter=row.parameter, value="", note=row.note))
            elif row.role is Role.ALWAYS:
                options.append(Setting(option=row.option, text=row.written(""), note=row.note))
            elif value is None or not row.is_of(value):
                continue
            elif row.role is Role.NONE:
                remark = Remark(parameter=row.parameter, value=word_of(value), note=row.note)
                remarks[row.role].append(remark)
            elif row.role in (Role.IS, Role.WITH):
                options.append(Setting(option=row.option, text=row.written(value), note=row.note))
        # Two rows may need the same option: it stands once.
        once = {(setting.option, setting.text): setting for setting in reversed(options)}
        return Settings(
            options=tuple(reversed(once.values())),
            unexpressed=tuple(remarks[Role.NONE]),
            left=tuple(remarks[Role.LEFT]),
        )

    def read(self, options: Mapping[str, str | None]) -> dict[str, Meaning]:
        """The value of each parameter that these options tell, or their absence.

        A parameter whose options are there with texts that no row has is left out.
        """
        found = (self._meaning(parameter, options) for parameter in self.parameters)
        return {meaning.parameter: meaning for meaning in found if meaning is not None}

    def can_say(self, parameter: str, value: Any) -> bool:
        """Whether no row calls just this value of a parameter impossible."""
        rows = [row for row in self.rows_of(parameter, Role.NONE) if row.value]
        return not any(row.is_of(value) for row in rows)

    def rows_of(self, parameter: str, *roles: Role) -> list[Row]:
        """The rows of a parameter with one of some roles."""
        return [row for row in self.rows if row.parameter == parameter and row.role in roles]

    def _meaning(self, parameter: str, options: Mapping[str, str | None]) -> Meaning | None:
        best: Meaning | None = None
        ways = [[row] for row in self.rows_of(parameter, Role.READS)]
        deciding = self.rows_of(parameter, Role.IS)
        values = dict.fromkeys(row.value for row in deciding)
        ways += [[row for row in deciding if row.value == value] for value in values]
        for rows in ways:
            told = [row.read(options[row.option]) for row in rows if row.option in options]
            if len(told) < len(rows) or None in told:
                continue
            if best is None or len(rows) > len(best.options):
                names = tuple(row.option for row in rows)
                best = Meaning(parameter=parameter, value=str(told[0]), options=names)
        if best is not None or any(row.option in options for rows in ways for row in rows):
            return best
        for row in self.rows_of(parameter, Role.OMITTED):
            return Meaning(parameter=parameter, value=row.value, options=())
        return None


def word_of(value: Any) -> str:
    """A value as options read it: whole numbers without a point, flags in small letters.

    >>> word_of(8.0), word_of(True), word_of(0.5)
    ('8', 'true', '0.5')
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


@cache
def _rows(target: str) -> tuple[Row, ...]:
    path = files("planner").joinpath(f"launch/options/{target}.csv")
    return tuple(_read(csv.DictReader(path.read_text(encoding="utf-8").splitlines())))


def _read(rows: Iterable[Mapping[str, str]]) -> Iterable[Row]:
    for row in rows:
        yield Row(**{**row, "role": Role(row["role"])})  # type: ignore[arg-type]
