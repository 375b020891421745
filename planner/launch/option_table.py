"""The option table of a target: options of parameters, formats of values, and versions.

A row of ``options/<target>.csv``:

``parameter``
    of the table of terms, or a quantity that the target's module computes; empty if the option is
    always written
``value``
    the row holds for this value only; ``>1`` for values above one; empty for any; of expressions,
    the row holds if this one is true
``role``
    ``is``: the option has the value, written and read; ``reads``: an alternative that is only
    read; ``with``: written in addition; ``always``: written for every plan; ``omitted``:
    the value without any option; ``usual``: the same, without a note, as it is the value
    everywhere; ``derived``: the target computes it itself;
    ``none``: the target cannot express it; ``left``: not in the plan, the user or the
    framework decides; ``used``: the target's module reads the option; ``ignored``: it changes no
    prediction; ``unread``: an option of the tool that planner does not read, which may change the
    result (``used`` and ``unread`` may end with ``*``); ``default``: the value
    without any option, from the first such row with a true condition; ``like``: parameters that
    the table does not name take the rows of the table ``option``; ``include``: the expressions of
    the table ``option`` come here; the others are expressions:
    ``read``: the parameter is ``text`` in a file, unless an earlier row sets it; ``set``: also if
    one does; ``size``: as ``read``, for a size of the model; ``write``: the parameter or
    quantity is ``text`` of the plan;
    ``fallback``: ``text`` is tried if the value does not fit; ``required``: it is missing in the
    file if no row sets it; ``noted``, ``refused``: the user gets ``note``, or an error with it, if
    ``text`` is true for the file; ``impossible``: an error with it, for a plan; ``unexpressed``,
    ``advice``: a note that the target cannot express ``text`` of the parameter, or that the user
    decides it; ``user``: the user sets the option by the shell variable ``parameter`` with the
    default ``text``; without a variable it has that text; ``environment``: processes of the plan
    have the variable ``option``; ``unset``: the parameter loses its value from earlier rows
``option``, ``text``
    its name in the target's spelling, and the text of the value: ``{}`` is the value itself,
    ``flag`` a flag without a value; else a fixed text; for a default, the GPUs that have it:
    ``unknown``, ``>=70`` GiB, ``>=70 but a100``, empty for all; for roles of expressions, an
    expression (see `planner.launch.expressions`)
``since``, ``note``
    the first version with the option, if not the first of all; reason and remarks; of ``read`` the
    reason for a default; notes of expressions may have names in braces, as ``{vocab_size:,}``
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from fnmatch import filter as matching
from fnmatch import fnmatchcase
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from planner.base import read_files
from planner.base.records import record
from planner.launch.expressions import Expression
from planner.launch.target_plugins import target_plugins

if TYPE_CHECKING:
    from planner.documents.shell.edits import ParsedOption

Quantity: TypeAlias = str | int | float
"""Value of a parameter, or of a quantity derived by a target; a bool is an int."""
Quantities: TypeAlias = Mapping[str, Quantity | None]
"""By name; None: unspecified."""
MutableQuantities: TypeAlias = dict[str, Quantity | None]
"""The same while they are collected."""

FLAG = "flag"
VALUE = "{}"


class OptionRole(StrEnum):
    """Meaning of an option in a row of the table."""

    IS = "is"
    READS = "reads"
    WITH = "with"
    ALWAYS = "always"
    OMITTED = "omitted"
    USUAL = "usual"
    DERIVED = "derived"
    NONE = "none"
    LEFT = "left"
    USED = "used"
    IGNORED = "ignored"
    UNREAD = "unread"
    DEFAULT = "default"
    LIKE = "like"
    INCLUDE = "include"
    READ = "read"
    SET = "set"
    SIZE = "size"
    WRITE = "write"
    FALLBACK = "fallback"
    REQUIRED = "required"
    NOTED = "noted"
    REFUSED = "refused"
    IMPOSSIBLE = "impossible"
    UNEXPRESSED = "unexpressed"
    ADVICE = "advice"
    USER = "user"
    ENVIRONMENT = "environment"
    UNSET = "unset"


EXPRESSION_ROLES = (
    *(OptionRole.READ, OptionRole.SET, OptionRole.UNSET, OptionRole.SIZE, OptionRole.WRITE),
    *(OptionRole.REQUIRED, OptionRole.NOTED, OptionRole.REFUSED, OptionRole.IMPOSSIBLE),
    *(OptionRole.FALLBACK, OptionRole.UNEXPRESSED, OptionRole.ADVICE, OptionRole.USER),
    OptionRole.ENVIRONMENT,
)
"""Roles of rows whose ``value`` and ``text`` are expressions."""
_OTHER_ROLES = (
    *(OptionRole.USED, OptionRole.IGNORED, OptionRole.UNREAD, OptionRole.DEFAULT),
    *(OptionRole.LIKE, OptionRole.INCLUDE),
)


@record(kw_only=True)
class OptionRow:
    """A row of the table; see the module."""

    parameter: str
    value: str
    role: OptionRole
    option: str
    text: str
    since: str
    note: str

    def matches(self, value: Quantity) -> bool:
        """Whether the row holds for this value of its parameter."""
        if self.value.startswith(">"):
            return float(value) > float(self.value[1:])
        return not self.value or self.value == format_option_value(value)

    @property
    def condition(self) -> Expression | None:
        """The expression that must be true for the row to hold; None: it always does."""
        return Expression.parse(self.value) if self.value else None

    @property
    def expression(self) -> Expression:
        """The expression of the row."""
        return Expression.parse(self.text)

    @property
    def read_options(self) -> frozenset[str]:
        """The options that the expressions of the row read."""
        texts = filter(None, (self.value, self.text))
        return frozenset[str]().union(*(Expression.parse(text).options for text in texts))

    def applies_to(self, gpu: str | None, gib: float) -> bool:
        """True if the default holds on this GPU with ``gib`` of memory; ``gpu`` None: unknown."""
        if gpu is None or self.text in ("", "unknown"):
            return self.text == "" or (gpu is None and self.text == "unknown")
        minimum_gib, _, excluded_gpu = self.text.removeprefix(">=").partition(" but ")
        return gib >= float(minimum_gib) and (not excluded_gpu or excluded_gpu not in gpu)

    def write(self, value: Quantity) -> str | None:
        """The option's text for a value; None for a flag."""
        return None if self.text == FLAG else self.text.replace(VALUE, format_option_value(value))

    def read(self, text: str | None) -> str | None:
        """Return the parameter's value for an option's text; None if the row does not match."""
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
class OptionText:
    """An option to write; a ``text`` of None makes a flag."""

    option: str
    text: str | None
    note: str = ""


@record(kw_only=True)
class ParameterNote:
    """A note on a parameter: the target cannot express it, or others decide it."""

    parameter: str
    value: str
    note: str

    def __str__(self) -> str:
        name = f"{self.parameter} = {self.value}" if self.value else self.parameter
        return f"{name}: {self.note}" if name else self.note


@record(kw_only=True)
class OptionTexts:
    """A plan in the options of a target.

    ``unexpressed`` are parameters that it cannot express, ``left`` those that others decide.
    """

    options: tuple[OptionText, ...]
    unexpressed: tuple[ParameterNote, ...]
    left: tuple[ParameterNote, ...]


@record(kw_only=True)
class ParameterReading:
    """The value of a parameter in the options of a file.

    ``options`` are its sources; empty for a default of the target, explained by ``note``.
    """

    parameter: str
    value: str
    options: tuple[str, ...]
    note: str = ""


@record()
class OptionTable:
    """The rows of a target."""

    rows: tuple[OptionRow, ...]
    used: frozenset[str] = frozenset()
    """Options that only the target's module reads."""
    defaults: tuple[OptionRow, ...] = ()
    ignored: frozenset[str] = frozenset()
    """Options of the target that change no prediction."""
    unread: frozenset[str] = frozenset()
    """Options of the target that planner does not read."""
    expressions: tuple[OptionRow, ...] = ()
    """Rows with expressions, in the order in which they are evaluated."""

    @classmethod
    @cache
    def load(cls, target: str) -> OptionTable:
        """Load the option table of a program, with the rows of the tables that it extends."""
        plugin = None if target in _shipped_tools() else target_plugins().get(target)
        table = shipped_rows(f"options/{target}.csv") if plugin is None else plugin.options
        all_rows = [
            OptionRow(**{**row, "role": OptionRole(row["role"])})  # type: ignore[arg-type]
            for row in table
        ]
        parameters = {row.parameter for row in all_rows if row.role not in EXPRESSION_ROLES}
        expressions = tuple(
            expression
            for row in all_rows
            for expression in (
                cls.load(row.option).expressions if row.role is OptionRole.INCLUDE else (row,)
            )
            if expression.role in EXPRESSION_ROLES
        )
        rows = [row for row in all_rows if row.role not in (*_OTHER_ROLES, *EXPRESSION_ROLES)]
        for like_target in (row.option for row in all_rows if row.role is OptionRole.LIKE):
            rows += [row for row in cls.load(like_target).rows if row.parameter not in parameters]

        def options(role: OptionRole) -> frozenset[str]:
            return frozenset(row.option for row in all_rows if row.role is role)

        return cls(
            rows=tuple(rows),
            used=options(OptionRole.USED).union(*(row.read_options for row in expressions)),
            expressions=expressions,
            ignored=options(OptionRole.IGNORED),
            unread=options(OptionRole.UNREAD),
            defaults=tuple(row for row in all_rows if row.role is OptionRole.DEFAULT),
        )

    def default(self, parameter: str, gpu: str | None, gib: float) -> tuple[int, str]:
        """Return a parameter's default on a GPU with ``gib`` of memory [GiB], and the reason."""
        row = next(
            row for row in self.defaults if row.parameter == parameter and row.applies_to(gpu, gib)
        )
        value = int(row.value)
        return value, row.note.format(value=f"{value:,}", gib=f"{gib:.0f}")

    @property
    def parameters(self) -> tuple[str, ...]:
        """Parameters of the table, in its order."""
        return tuple(dict.fromkeys(row.parameter for row in self.rows if row.parameter))

    @property
    def options(self) -> frozenset[str]:
        """Every option that a row names."""
        return frozenset(row.option for row in self.rows if row.option)

    def write_options(self, quantities: Quantities) -> OptionTexts:
        """Return options for the values of a plan; notes for values without an option.

        A quantity that is None gets no option.
        """
        options: list[OptionText] = []
        remarks: dict[OptionRole, list[ParameterNote]] = {OptionRole.NONE: [], OptionRole.LEFT: []}
        for row in self.rows:
            value = quantities.get(row.parameter)
            if row.role is OptionRole.LEFT:
                remarks[row.role].append(
                    ParameterNote(parameter=row.parameter, value="", note=row.note)
                )
            elif row.role is OptionRole.ALWAYS:
                options.append(OptionText(option=row.option, text=row.write(""), note=row.note))
            elif value is None or not row.matches(value):
                continue
            elif row.role is OptionRole.NONE:
                remark = ParameterNote(
                    parameter=row.parameter, value=format_option_value(value), note=row.note
                )
                remarks[row.role].append(remark)
            elif row.role in (OptionRole.IS, OptionRole.WITH):
                options.append(OptionText(option=row.option, text=row.write(value), note=row.note))
        # Two rows may need the same option: it is written once.
        unique = {(inputs.option, inputs.text): inputs for inputs in reversed(options)}
        return OptionTexts(
            options=tuple(reversed(unique.values())),
            unexpressed=tuple(remarks[OptionRole.NONE]),
            left=tuple(remarks[OptionRole.LEFT]),
        )

    def read(self, options: Mapping[str, str | None]) -> dict[str, ParameterReading]:
        """Return the value of each parameter by name, from options that are set or left out.

        Parameters with texts that match no row are left out.
        """
        readings = (self._read_parameter(parameter, options) for parameter in self.parameters)
        return {meaning.parameter: meaning for meaning in readings if meaning is not None}

    def can_express(self, parameter: str, value: Quantity) -> bool:
        """True if some option of the program can set this value of a parameter."""
        rows = [row for row in self.rows_of(parameter, OptionRole.NONE) if row.value]
        read = [row for row in self.rows_of(parameter, OptionRole.READS) if row.value]
        return not any(row.matches(value) for row in rows) or any(
            row.matches(value) for row in read
        )

    def rows_of(self, parameter: str, *roles: OptionRole) -> list[OptionRow]:
        """The rows of a parameter with one of these roles."""
        return [row for row in self._rows_by_parameter.get(parameter, ()) if row.role in roles]

    @cached_property
    def _rows_by_parameter(self) -> Mapping[str, Sequence[OptionRow]]:
        rows_by_parameter: dict[str, list[OptionRow]] = {}
        for row in self.rows:
            rows_by_parameter.setdefault(row.parameter, []).append(row)
        return rows_by_parameter

    def _read_parameter(
        self, parameter: str, options: Mapping[str, str | None]
    ) -> ParameterReading | None:
        """Return a parameter's value from the most options that match, else its value if omitted.

        None if its options are set but match no row, or nothing applies.
        """
        best: ParameterReading | None = None
        row_groups = [[row] for row in self.rows_of(parameter, OptionRole.READS)]
        deciding = self.rows_of(parameter, OptionRole.IS)
        values = dict.fromkeys(row.value for row in deciding)
        row_groups += [[row for row in deciding if row.value == value] for value in values]
        for rows in row_groups:
            row_values = [row.read(options[row.option]) for row in rows if row.option in options]
            if len(row_values) < len(rows) or None in row_values:
                continue
            if best is None or len(rows) > len(best.options):
                names = tuple(row.option for row in rows)
                best = ParameterReading(
                    parameter=parameter, value=str(row_values[0]), options=names
                )
        if best is not None or any(row.option in options for rows in row_groups for row in rows):
            return best
        for row in self.rows_of(parameter, OptionRole.OMITTED):
            return ParameterReading(parameter=parameter, value=row.value, options=(), note=row.note)
        return None


def matches_option(option: str, names: Collection[str]) -> bool:
    """True if an option is among ``names``, which may end with ``*``.

    >>> matches_option("seed", {"seed", "log_*"}), matches_option("log_every", {"log_*"})
    (True, True)
    >>> matches_option("a", {"b"})
    False
    """
    return option in names or option.startswith(tuple(n[:-1] for n in names if n.endswith("*")))


def format_option_value(value: Quantity) -> str:
    """Format a value for an option: whole numbers without a point, booleans in lower case.

    >>> format_option_value(8.0), format_option_value(True), format_option_value(0.5)
    ('8', 'true', '0.5')
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def shipped_rows(name: str, delimiter: str = ",") -> list[dict[str, str]]:
    """Rows of a table that is shipped in this folder."""
    return read_files.packaged_rows(Path(__file__).parent / name, delimiter)


def is_command(name: str, words: Sequence[str]) -> bool:
    """Whether words start a tool, by the ``command`` of its row."""
    pattern = tool_row(name)["command"]
    return bool(pattern) and re.match(pattern, " ".join(words), re.DOTALL) is not None


def is_document(name: str, values: Mapping[str, object]) -> bool:
    """Whether a document belongs to a tool, by the ``document`` of its row."""
    return has_keys(values, tool_row(name)["document"])


def has_keys(values: Mapping[str, object], pattern: str) -> bool:
    """True if a document has the keys of a pattern; see `planner.launch.target.Target`."""
    normalized = {key.replace("-", "_"): value for key, value in values.items()}
    return any(
        all(_has_group(normalized, group) for group in alternative.split())
        for alternative in pattern.split(" or ")
        if alternative
    )


def _has_group(values: Mapping[str, object], group: str) -> bool:
    number, colon, conditions = group.partition(":")
    least = int(number) if colon and number.isdecimal() else 1
    keys = (conditions if colon and number.isdecimal() else group).split("|")
    return sum(_has_key(values, key) for key in keys) >= least


def _has_key(values: Mapping[str, object], condition: str) -> bool:
    key, equals, text = condition.removeprefix("!").partition("=")
    names = matching(values, key) if "*" in key else [key] if key in values else []
    is_there = any(not equals or fnmatchcase(str(values[name]), text) for name in names)
    return is_there != condition.startswith("!")


def option_aliases(tool: str) -> Mapping[str, str]:
    """Keys or options of a tool mapped to those of another: rows of ``wrappers/keys.csv``."""
    return _all_aliases().get(tool, {})


@cache
def _all_aliases() -> Mapping[str, Mapping[str, str]]:
    keys: dict[str, dict[str, str]] = {}
    for row in shipped_rows("wrappers/keys.csv"):
        keys.setdefault(row["of"], {})[row["key"]] = row["option"]
    return keys


def tool_row(name: str) -> Mapping[str, str]:
    """Return a program's row of ``targets.csv``; see `planner.launch.target.Target`.

    Programs with the options of the Trainer are in ``dialects/programs.csv``.
    """
    return _shipped_tools().get(name) or target_plugins()[name].row


@cache
def _shipped_tools() -> Mapping[str, Mapping[str, str]]:
    rows = (*shipped_rows("targets.csv"), *shipped_rows("dialects/programs.csv"))
    return {row["name"]: row for row in rows}


_FLAG_VALUES, _OPTIONAL, _SEVERAL = "0", "?", "+"
_SECTION, _BOOLEAN = "dict", "bool"
_LIST = "list["
# Shortest prefix that argparse completes here; a shorter one is a typing error.
_MIN_PREFIX = 4


@record(kw_only=True)
class ParserOption:
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
class ParserOptions:
    """The options of a target by name; ``aliases`` maps other spellings to these."""

    options: Mapping[str, ParserOption]
    aliases: Mapping[str, str]

    @classmethod
    def of(cls, stems: Sequence[str], table: OptionTable) -> ParserOptions:
        """Return the options that a program's parsers accept, or its option table reads."""
        options: dict[str, ParserOption] = {}
        aliases: dict[str, str] = {}
        for stem in stems:
            parser = _load_parser(stem)
            # A section of a file is no option of a command: an option of the same name is meant.
            earlier = {
                name: option
                for name, option in options.items()
                if option.type != _SECTION or name not in parser.options
            }
            options, aliases = {**parser.options, **earlier}, {**parser.aliases, **aliases}
        several = {name for name, option in options.items() if option.nargs == _SEVERAL}
        lists = {row.parameter for row in table.rows if row.option in several} - {""}
        for row in table.rows:
            if row.option in aliases:
                _rename_option(row.option, {x.option for x in table.rows}, options, aliases)
            elif row.option and row.option not in options:
                nargs = _FLAG_VALUES if row.text == FLAG else _SEVERAL * (row.parameter in lists)
                options[row.option] = ParserOption(name=row.option, nargs=nargs)
        return cls(options, aliases)

    def default(self, name: str) -> str:
        """Default of an option; empty if it has none."""
        option = self.options.get(name)
        return "" if option is None or option.default == "None" else option.default

    def find(self, text: str) -> ParserOption | None:
        """Return the option that a word names; None if unknown.

        The word is a name, an alias, a spelling with ``_`` for ``-``, or a unique prefix.
        ``--x.y`` is the part of an option that takes JSON.
        """
        bare = text.lstrip("-")
        for spelling in (text, text.replace("_", "-"), *(bare, bare.replace("-", "_"))):
            name = spelling if spelling in self.options else self.aliases.get(spelling)
            if name is not None:
                return self.options[name]
        base, dot, _ = text.partition(".")
        if dot and base.replace("_", "-") in self.options:
            return ParserOption(name=text)
        if not text.startswith("--") or len(text) < _MIN_PREFIX:
            return None
        for spelling in (text, text.replace("_", "-")):
            matches = {name for name in self.options if name.startswith(spelling)}
            if len(matches) == 1:
                return self.options[matches.pop()]
        return None

    def name_options(self, options: Mapping[str, ParsedOption]) -> dict[str, ParsedOption]:
        """Return options by their full name; keys of a document get names of command options.

        Flags that are off in a document are left out.
        """
        by_name: dict[str, ParsedOption] = {}
        for name, option in options.items():
            is_key = not name.startswith("-")
            parser_option = self.find(f"--{name.replace('_', '-')}" if is_key else name)
            if option.texts == ("false",) and is_key:
                continue
            by_name[name if parser_option is None else parser_option.name] = (
                replace(option, option=parser_option.name) if is_key and parser_option else option
            )
        return by_name


def _rename_option(
    name: str, table_options: set[str], options: dict[str, ParserOption], aliases: dict[str, str]
) -> None:
    """Rename an option to its name in the option table, unless the table has both spellings."""
    current_name = aliases[name]
    if current_name in table_options:
        return
    options[name] = replace(options.pop(current_name), name=name)
    for spelling, target_name in aliases.items():
        if target_name == current_name:
            aliases[spelling] = name
    del aliases[name]
    aliases[current_name] = name


@cache
def _load_parser(stem: str) -> ParserOptions:
    """Return the options that a program's parser accepts, read from ``accepted/STEM.tsv``."""
    options: dict[str, ParserOption] = {}
    aliases: dict[str, str] = {}
    rows = shipped_rows(f"accepted/{stem}.tsv", "\t")
    for row in rows:
        nargs = row["nargs"] or ""
        is_key = not row["name"].startswith("-")
        if is_key and not nargs and row["type"].startswith(_BOOLEAN):
            nargs = _OPTIONAL
        if is_key and not nargs and row["type"].startswith(_LIST):
            nargs = _SEVERAL  # as the Trainer's and torchtitan's parsers take lists
        options[row["name"]] = ParserOption(
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
    return ParserOptions(options, aliases)


@record(kw_only=True)
class OptionAlias:
    """An option of a program as an option of another program, which has a table.

    A row of ``dialects/<name>.csv``:

    ``role``
        ``is``: the option is ``into``, with the same value; ``word``: with ``text`` it is ``into``
        with ``word``, a flag if that is empty; ``value``: ``into`` has the value of the expression
        ``word`` of its text ``value``, if not false or missing; ``derive``: if the expression
        ``text`` is true, ``into`` has the value of ``word``, at the place of ``option``: true is a
        flag, false removes it, and ``note`` is the reason for ``term``; ``written``: name of
        ``into`` in changes only; ``short``: another spelling of it; ``default``: see
        `program_defaults`; ``shape``: a size of the model, and its name in ``config.json``;
        ``used``: the program's module reads it; ``ignored``: not used in the prediction
    ``option``
        name in the program, without leading hyphens; see the roles for the other columns
    """

    role: str
    option: str
    text: str
    into: str
    word: str
    term: str
    note: str


@cache
def program_defaults(name: str) -> tuple[OptionAlias, ...]:
    """Return the defaults of a front end, the first that holds for an option counts.

    A row of ``dialects/defaults.csv`` has the ``versions`` with this default, its ``source``, and
    the ``condition`` under which it holds, an expression of the options and the ``program``.
    """
    return tuple(
        OptionAlias(
            role="default", option="", text=row["condition"], into=row["into"],
            word=row["value"], term=row["term"], note=row["note"],
        )
        for row in shipped_rows("dialects/defaults.csv")
        if row["program"] == name
    )  # fmt: skip


@record()
class OptionAliasTable:
    """The rows of a program."""

    rows: tuple[OptionAlias, ...]

    @classmethod
    @cache
    def load(cls, name: str) -> OptionAliasTable:
        """The table of a program, with its rows of ``dialects/defaults.csv``."""
        aliases = [OptionAlias(**row) for row in shipped_rows(f"dialects/{name}.csv")]
        return cls((*aliases, *program_defaults(name)))

    @property
    def options(self) -> tuple[str, ...]:
        """Options with another name in the program, in order."""
        return tuple(dict.fromkeys(row.option for row in self.rows if row.into and row.option))

    def of(self, role: str) -> dict[str, str]:
        """Target options of the options with a role."""
        return {row.option: row.into for row in self.rows if row.role == role}

    def names(self, role: str) -> frozenset[str]:
        """The options with a role."""
        return frozenset(self.of(role))

    def translate(self, option: str, text: str | None) -> Iterator[tuple[str, str | None]]:
        """Yield the target's options for a program's option, each with its text; None: same."""
        for row in self.rows:
            if row.option == option and row.role == "is":
                yield row.into, None
            elif (row.option, row.text, row.role) == (option, text, "word"):
                yield row.into, row.word
            elif (row.option, row.role) == (option, "value") and text is not None:
                value = Expression.parse(row.word).evaluate({"value": text}.get)
                if value not in (None, False):
                    yield row.into, format_option_value(value)

    @property
    def defaults(self) -> tuple[OptionAlias, ...]:
        """Defaults of the program."""
        return tuple(row for row in self.rows if row.role == "default")
