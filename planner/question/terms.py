"""The table of terms: parameters, questions, results, limits and objectives.

A row of ``terms.csv`` defines a name. Configurations, spaces, options, columns and texts are made
from it. Its columns:

``term``, ``description``
    the name and what it means
``of``
    the workloads that have it; empty for all
``kind``
    ``parameter`` of a configuration; ``derived`` from parameters; ``question``: a field of a
    request; ``sizing``: an option of ``planner size``; ``operator``: an option of
    ``planner operators``; ``pool``: a parameter of disaggregated serving; ``result``, ``limit``,
    ``objective``; ``answer``: a result of generated tokens, which embedding and scoring do not
    have
``type``
    of a parameter: ``count``, ``share``, ``flag``, ``code:ENUM`` or ``level:ENUM`` (a code that is
    shown as its number). Questions also have ``text``, ``names`` (one or several), ``number``,
    ``peak`` (a share of one, or a rate), ``price`` (of one GPU, or of several by name), ``file``
    and ``contract``. Results have a dimension, see `planner.base.units`
``unit``
    the unit in which it is shown, 1 for plain numbers
``default``, ``least``
    of a parameter or question: the value if the user gives none (empty if a spec decides), and the
    smallest value. Of a limit: its default in SI units
``short``, ``header``, ``rank``
    its abbreviation, the header of its column, and the rank of that column: narrow tables omit
    columns of a higher rank first
``axis``
    of a parameter of training: its axis in the mesh of all configurations, and its place on it
``widen``
    an ordinal and, after ``:``, values to suggest if no configuration is feasible; parameters with
    a lower ordinal are suggested first
``option``, ``group``, ``better``
    its command-line options if they differ from its name, and the section of the help that shows
    them; of a limit or objective whether ``low`` or ``high`` is better
``form``, ``example``
    of the page in a browser: the workloads or the command whose form shows it first (``long``: on
    a line of its own), and an example of a value
``needs``
    of a question: the questions that it needs to have an effect; between several with ``|`` one
    is enough
``result``
    of an objective or limit that no column has the name of: the result that shows it
``choice_enum``
    of a question: the enumeration that its values are of
``common_values``
    of a parameter: values that many runs of today use, which suggestions try

``groups.csv`` lists terms that belong together. A row has the name of the group, what its terms
have in common, and the terms in the order in which they are shown. `terms_about` reads it. Code
that needs a single term imports its constant from `planner.question.names`, so that the type
checker finds a misspelt name.

A row of ``errors.csv`` names a quantity whose error published runs show, the results that are
proportional to it, and those that are inversely proportional.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Mapping
from functools import cache, cached_property
from pathlib import Path
from types import MappingProxyType
from typing import TypeAlias

from planner.base import enums, software_enums, training_aliases
from planner.base.csv_cells import Value
from planner.base.records import record
from planner.base.units import DAY, GIB, HOUR, KILOWATT, KILOWATT_HOUR, TERA
from planner.question.names import GroupName

Codes: TypeAlias = type[enums.CodeEnum]

ENDINGS: Mapping[str, tuple[str, float]] = {
    "s": ("_s", 1.0), "d": ("_days", DAY), "h": ("", HOUR), "GiB": ("_gib", GIB),
    "USD": ("_usd", 1.0), "kg": ("_kg", 1.0), "kW": ("_kw", KILOWATT),
    "kWh": ("_kwh", KILOWATT_HOUR), "TFLOP/s": ("", TERA),
}  # fmt: skip
"""By unit: the suffix of its column names, and its size in SI units."""


def column_ending(column: str) -> str:
    """The unit suffix of a column name, such as ``_usd``; empty without a unit.

    >>> column_ending("cost_usd"), column_ending("energy_kwh"), column_ending("tensor_parallel")
    ('_usd', '_kwh', '')
    """
    return next((end for end, _ in ENDINGS.values() if end and column.endswith(end)), "")


_FORMATS = ("ComputePrecision", "Quantization", "CacheType")


@record(kw_only=True)
class Term:
    """A row of the table; see the module for its fields. Those with several words are split."""

    term: str
    of: tuple[str, ...]
    kind: tuple[str, ...]
    type: str
    unit: str
    default: str
    least: str
    short: str
    header: str
    rank: str
    axis: str
    widen: str
    option: str
    group: str
    better: str
    description: str
    form: tuple[str, ...]
    example: str
    needs: str
    result: str
    choice_enum: str
    common_values: str

    @property
    def sign(self) -> int:
        """1: low is better; -1: high is better."""
        return -1 if self.better == "high" else 1

    @cached_property
    def codes(self) -> Codes | None:
        """The enumeration of a parameter with coded values; None: the values are not coded."""
        kind, _, name = self.type.partition(":")
        home = enums if hasattr(enums, name) else software_enums
        enumeration: Codes | None = getattr(home, name) if kind in ("code", "level") else None
        return enumeration

    @property
    def choices(self) -> tuple[str, ...]:
        """The values that a question takes; empty if they are not of an enumeration."""
        home = enums if hasattr(enums, self.choice_enum) else training_aliases
        return tuple(map(str, getattr(home, self.choice_enum))) if self.choice_enum else ()

    @property
    def enumeration(self) -> Codes:
        """The enumeration of a parameter that is coded."""
        if self.codes is None:
            raise TypeError(f"{self.term} has no codes")
        return self.codes

    @property
    def is_level(self) -> bool:
        """Whether a code is shown as its number."""
        return self.type.startswith("level:")

    @property
    def is_word(self) -> bool:
        """True if the values of the term are texts, not numbers."""
        return self.type in ("flag", "text", "names", "contract", "file") or (
            self.codes is not None and not self.is_level
        )

    @property
    def takes_several(self) -> bool:
        """Whether a question may have several answers, which are compared."""
        return self.type in ("names", "counts", "contract") or "parameter" in self.kind

    @property
    def column(self) -> str:
        """The name of the term's result column, with the suffix of its unit."""
        return self.term + ENDINGS.get(self.unit, ("", 1.0))[0]

    @property
    def scale(self) -> float:
        """The size of the column's unit in SI units."""
        return ENDINGS.get(self.unit, ("", 1.0))[1]

    @property
    def column_header(self) -> str:
        """The header of the term's column in printed tables."""
        return self.header or self.term.replace("_", " ")

    @property
    def options(self) -> tuple[str, ...]:
        """The term's names on the command line, the main name first."""
        return tuple((self.option or "--" + self.term.replace("_", "-")).split(","))

    @property
    def option_name(self) -> str:
        """The term's main name on the command line."""
        return self.options[0]

    @property
    def is_format(self) -> bool:
        """True if the values of the term are number formats."""
        return self.type.partition(":")[2] in _FORMATS

    @property
    def is_user_input(self) -> bool:
        """Whether a parameter has its own option or question, in addition to ``--set``."""
        return bool(self.option) or "question" in self.kind

    @property
    def remedies(self) -> tuple[str, ...]:
        """Values of the parameter that may help if nothing is feasible."""
        return tuple(self.widen.partition(":")[2].split())

    def decode(self, value: float) -> str | int | float | bool:
        """Convert a number of an array into the value that users read: text, flag or number."""
        if self.codes is not None:
            return int(value) if self.is_level else self.codes(int(value)).word
        if self.type == "flag":
            return bool(value)
        return float(value) if self.type in ("share", "number") else int(value)

    @cached_property
    def code_by_text(self) -> Mapping[str, enums.CodeEnum]:
        """The codes of a coded parameter, by their text."""
        return {str(self.decode(code)): code for code in self.enumeration}

    def encode(self, word: object) -> float:
        """The number in arrays of the value ``word``; NaN: not a number."""
        if self.codes is None:
            return word if isinstance(word, int | float) else math.nan
        return int(self.code_by_text[str(word)])

    @property
    def default_value(self) -> Value:
        """The default value of the term; None: specs set the default, or there is none."""
        if not self.default or self.codes is not None:
            return self.default or None
        if self.type == "flag":
            return self.default == "true"
        return float(self.default) if self.type in ("share", "number") else int(self.default)


@cache
def is_answer_column(column: str) -> bool:
    """Whether a column exists only for generated tokens, not for embedded prompts."""
    term = term_of_column(column)
    return term is not None and "answer" in term.kind


def parse_percentile(name: str) -> tuple[str, float] | None:
    """Split a name such as ``time_to_first_token_p99`` into quantity and share; else None.

    >>> parse_percentile("time_to_first_token_p99"), parse_percentile("time_to_first_token")
    (('time_to_first_token', 0.99), None)
    """
    quantity, _, percent = name.rpartition("_p")
    return (quantity, int(percent) / 100) if quantity and percent.isdecimal() else None


def _rows(file: str) -> Iterator[dict[str, str]]:
    text = (Path(__file__).parent / file).read_text(encoding="utf-8")
    return csv.DictReader(text.splitlines(), restval="")


@cache
def glossary() -> dict[str, Term]:
    """All terms by name, in the order of ``terms.csv``."""
    terms = {}
    for row in _rows("terms.csv"):
        workloads, kind = (tuple(filter(None, row.pop(name).split("|"))) for name in ("of", "kind"))
        form = tuple(row.pop("form").split())
        terms[row["term"]] = Term(of=workloads, kind=kind, form=form, **row)
    return terms


@cache
def groups() -> dict[str, tuple[str, ...]]:
    """The terms of each group, in the order of ``groups.csv``."""
    return {row["group"]: tuple(row["terms"].split()) for row in _rows("groups.csv")}


def term_of_column(column: str) -> Term | None:
    """The term of a result column, whose name may end with a unit; None: unknown.

    >>> term_of_column("peak_memory_gib").term
    'peak_memory'
    """
    terms = glossary()
    stem = column.rpartition("_")[0]
    return terms.get(column) or terms.get(stem)


def is_better_high(column: str) -> bool:
    """Return True if a higher value of a result column is better, as for rates and free memory.

    >>> is_better_high("tokens_per_s_per_gpu"), is_better_high("cost_usd")
    (True, False)
    """
    term = term_of_column(column)
    return term is not None and term.term in terms_about("higher_is_better")


@cache
def terms_of(workload: str, *kinds: str) -> Mapping[str, Term]:
    """The terms of a workload that have at least one of the kinds, by name.

    >>> list(terms_of("serve", "limit"))[:2]
    ['memory_headroom', 'power']
    """
    kind_names = frozenset(kinds)
    terms = {
        name: term
        for name, term in glossary().items()
        if (not term.of or workload in term.of) and not kind_names.isdisjoint(term.kind)
    }
    return MappingProxyType(terms)


@cache
def terms_about(group: GroupName, workload: str = "") -> tuple[str, ...]:
    """The names of the terms of a group; with a ``workload``, only the terms that it uses.

    Raises KeyError if ``groups.csv`` has no such group.

    >>> terms_about("rate")
    ('tokens_per_s', 'tokens_per_s_per_gpu', 'requests_per_s', 'output_tokens_per_s')
    """
    terms, names = glossary(), groups()[group]
    return tuple(n for n in names if not (workload and terms[n].of) or workload in terms[n].of)


def columns_about(group: GroupName, workload: str = "") -> tuple[str, ...]:
    """The names of the result columns of a group of terms; see `terms_about`.

    >>> columns_about("latency", "inference")
    ('prefill_latency_s', 'decode_latency_s', 'request_latency_s')
    """
    return tuple(glossary()[name].column for name in terms_about(group, workload))


@cache
def error_columns() -> Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]]:
    """By measured quantity: columns proportional to it, columns inversely proportional to it."""
    terms = glossary()

    def columns(names: str) -> tuple[str, ...]:
        return tuple(terms[name].column for name in names.split())

    return {
        row["quantity"]: (columns(row["proportional"]), columns(row["inverse"]))
        for row in _rows("errors.csv")
    }


def parameter_defaults(workload: str) -> dict[str, Value]:
    """The default value of each parameter that has one, by name.

    >>> parameter_defaults("train")["recompute"]
    'none'
    """
    parameters = terms_of(workload, "parameter")
    return {
        name: term.default_value
        for name, term in parameters.items()
        if term.default_value is not None
    }


def remedies_of(workload: str) -> dict[str, tuple[str, ...]]:
    """Values of parameters that may help if nothing is feasible; the likeliest help first."""
    widened = [term for term in terms_of(workload, "parameter").values() if term.widen]
    widened.sort(key=lambda term: int(term.widen.partition(":")[0]))
    return {term.term: term.remedies for term in widened}
