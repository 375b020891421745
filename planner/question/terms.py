"""The one table of terms: parameters, questions, results, limits and objectives.

A row of ``terms.csv`` says everything about a name; configurations, spaces, options, columns and
texts are made from it. Its columns:

``term``, ``description``
    the name and what it means
``of``
    the workloads that know it; empty for all
``kind``
    ``parameter`` of a configuration, what is ``derived`` from parameters, ``question`` (what a user
    says beside them), ``sizing`` (what one says of GPUs to be sized), ``operator`` (what one asks
    about a single operator), ``result``, ``limit``, ``objective``; ``answer``: a result that a
    prompt which is only embedded or scored has none of
``type``
    of a parameter ``count``, ``share``, ``flag``, ``code:ENUM`` or ``level:ENUM`` (a code that is
    shown as its number); of a question also ``text``, ``names`` (one or several), ``number`` and
    ``peak`` (a share of one, or a rate), ``price`` (of a GPU, or of several by name), ``file`` and
    ``contract``; of a result its dimension, see `planner.base.units`
``unit``
    the one it is shown in, 1 for plain numbers
``default``, ``least``
    of a parameter or question: the value where nobody says one (empty where specs do), and the
    smallest; of a limit in SI units: what is assumed where nobody limits a time
``short``, ``header``, ``rank``
    its abbreviation, the head of its column, and how late a narrow table leaves it out
``axis``
    of a parameter of training: its axis in the mesh of all configurations, and its place there
``widen``
    the values that may help where nothing is feasible, after their place among such remedies
``option``, ``group``, ``better``
    its option of the command line where that is not its name, and the part of the help that
    shows it; of a limit or objective whether ``low`` or ``high`` is better
``form``, ``example``
    of the page in a browser, where a row has them: the workloads or the command in whose form it
    comes first, ``long`` with a line for itself; and what may stand there
``about``
    the groups that it belongs to, which `terms_about` lists in the order of the table, or of the
    places that stand behind their names (``request:2``):

    - ``place``: where a plan runs; ``spec``: names specs; ``software``: has a profile
    - ``degree``: of parallelism; ``model_parallel``: of one copy of the model;
      ``collective``: those that communicate within every layer; ``layout``: what one tunes of a run
    - ``sharded``: degrees that a framework may have beside shards of weights alone
    - ``latency`` of a request; ``rate``: tokens or requests per second; ``throughput``: objectives
      that follow from it, as sure as it is; ``electricity``: what follows from the power drawn
    - ``length`` of what is computed; ``run_length``: how long training lasts; ``image``: of inputs;
      ``product``, ``attended``: sizes of a matrix product, of attention; ``format``: of numbers
    - ``following``: parameters that others decide, so that a change of them alone is none
    - ``measured``: whose errors published runs tell; ``trained``, ``served``: results that tell a
      plan; ``pace``: those that say first how fast it is
    - ``placed``: where trainer and engine run; ``step``: what a step generates; ``held``: what
      decides what is learned, so that a search keeps that of a plan it begins with;
      ``memory_phase``: memory of a phase of a step
    - ``split``, ``choice``: sizes and choices of a run of training; ``problem``: what runs have in
      common whose layouts are compared; ``kin``: what runs and scenarios are grouped by
    - ``asked``, ``terms``: of a scenario what stands first, and where and on what terms it runs;
      ``offer``: of a price; ``grounds``: what it rests on; ``first``: what the help tells first;
      ``answered``: what a plan answers where nobody does
    - ``quantity`` that published runs tell the errors of; ``sized``: what a run is sized by;
      ``work``: what a plan is made for; ``alike``: what plans that scale have in common; ``hour``:
      of a day
    - ``computes``: by which kernels a part of a layer is computed
    - ``dependent``: parameters that mean nothing without a value of another one
    - ``tuning``: how one program computes, which another may have no word for
    - ``kernel``, ``reached``: of one operator, what it is and what it reaches; ``measure``: of
      scenarios; ``high``: results of which more is better
    - ``source``: specs of a row; ``priced``: what is compared where prices are; ``logged``: of a
      run of training whose log is read; ``rare``, ``rare_word``: what few runs tell
    - ``run`` of training, ``promise``, ``output``, ``carried`` load and ``cache`` of what serves:
      its results in the order of their columns; ``amount``, ``as_asked``: of the work of a run
    - ``sized_by``: files and words that say what GPUs are sized for
    - ``usual``: options that nine of ten questions need, which a help says first
    - ``needed``: what every plan runs on, and a file may leave open
    - ``samples`` that do not fill sequences; ``low_rank``, ``of_adapter``: of adapters;
      ``variation`` of lengths; ``traffic``: what answers others of requests, ``habit`` of
      users among it; ``loads``: what requests share; ``offloading`` of weights and cache;
      ``message``: between GPUs
    - ``session`` of requests whose contexts grow; ``reuse``: what is found of earlier prompts
``needs``
    of a question, the one without which it does nothing, or several, ``|`` between them, of which
    it needs one
``tells``
    of an objective or limit whose name is no column: the result that tells it
``errs``
    of a result the quantities with whose published errors it errs, ``1/`` where in proportion to
    their inverse, with its place among them
``words``, ``common``
    of a question the enumeration whose words answer it; of a parameter the values that runs of
    today have, where others are asked for by name
"""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from functools import cache, cached_property
from pathlib import Path
from types import MappingProxyType
from typing import TypeAlias

from planner.base import enums, software_enums, training_names
from planner.base.cells import Value
from planner.base.records import record
from planner.base.units import DAY, GIB, HOUR, KILOWATT, KILOWATT_HOUR, TERA

Codes: TypeAlias = type[enums.Code]

ENDINGS: Mapping[str, tuple[str, float]] = {
    "s": ("_s", 1.0), "d": ("_days", DAY), "h": ("", HOUR), "GiB": ("_gib", GIB),
    "USD": ("_usd", 1.0), "kg": ("_kg", 1.0), "kW": ("_kw", KILOWATT),
    "kWh": ("_kwh", KILOWATT_HOUR), "TFLOP/s": ("", TERA),
}  # fmt: skip
"""By unit what the names of its columns end with, and how many SI units it is."""


def ending_of(column: str) -> str:
    """What a column's name ends with for its unit; empty where it has none.

    >>> ending_of("cost_usd"), ending_of("energy_kwh"), ending_of("tensor_parallel")
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
    about: dict[str, int]
    needs: str
    tells: str
    words: str
    common: str
    errs: dict[str, int]

    @property
    def sign(self) -> int:
        """1 where low is better, -1 where high is."""
        return -1 if self.better == "high" else 1

    @cached_property
    def codes(self) -> Codes | None:
        """The enumeration of a coded parameter, None of another."""
        kind, _, name = self.type.partition(":")
        home = enums if hasattr(enums, name) else software_enums
        found: Codes | None = getattr(home, name) if kind in ("code", "level") else None
        return found

    @property
    def choices(self) -> tuple[str, ...]:
        """What the answer to a question is one of, where it is one of a few words."""
        home = enums if hasattr(enums, self.words) else training_names
        return tuple(map(str, getattr(home, self.words))) if self.words else ()

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
        """Whether its values are words, not numbers."""
        return self.type in ("flag", "text", "names", "contract", "file") or (
            self.codes is not None and not self.is_level
        )

    @property
    def takes_several(self) -> bool:
        """Whether a question may have several answers, which are compared."""
        return self.type in ("names", "counts", "contract") or "parameter" in self.kind

    @property
    def column(self) -> str:
        """Its column of results, which ends with its unit."""
        return self.term + ENDINGS.get(self.unit, ("", 1.0))[0]

    @property
    def scale(self) -> float:
        """How many SI units the unit of that column is."""
        return ENDINGS.get(self.unit, ("", 1.0))[1]

    @property
    def column_header(self) -> str:
        """The head of its column."""
        return self.header or self.term.replace("_", " ")

    @property
    def options(self) -> tuple[str, ...]:
        """Its names on the command line, the usual one first."""
        return tuple((self.option or "--" + self.term.replace("_", "-")).split(","))

    @property
    def option_name(self) -> str:
        """Its usual option of the command line."""
        return self.options[0]

    @property
    def is_format(self) -> bool:
        """Whether its values are number formats."""
        return self.type.partition(":")[2] in _FORMATS

    @property
    def is_asked(self) -> bool:
        """Whether a parameter has an option or a question of its own, beside ``--set``."""
        return bool(self.option) or "question" in self.kind

    @property
    def remedies(self) -> tuple[str, ...]:
        """The values that may help where nothing is feasible."""
        return tuple(self.widen.partition(":")[2].split())

    def shown(self, value: float) -> str | int | float | bool:
        """A value of a parameter, out of an array, as people read it: a word, bool or number."""
        if self.codes is not None:
            return int(value) if self.is_level else self.codes(int(value)).word
        if self.type == "flag":
            return bool(value)
        return float(value) if self.type in ("share", "number") else int(value)

    @cached_property
    def by_word(self) -> Mapping[str, enums.Code]:
        """The codes of a parameter that has them, by what is shown of each."""
        return {str(self.shown(code)): code for code in self.enumeration}

    def coded(self, word: object) -> float:
        """The value in an array of what is shown as ``word``."""
        if self.codes is None:
            return word if isinstance(word, int | float) else math.nan
        return int(self.by_word[str(word)])

    @property
    def plain(self) -> Value:
        """The default as `shown` gives it; None where specs say it."""
        if not self.default or self.codes is not None:
            return self.default or None
        if self.type == "flag":
            return self.default == "true"
        return float(self.default) if self.type in ("share", "number") else int(self.default)


@cache
def is_of_answers(column: str) -> bool:
    """Whether a column tells of generated tokens, which prompts that are embedded have none of."""
    term = term_of_column(column)
    return term is not None and "answer" in term.kind


def percentile_of(name: str) -> tuple[str, float] | None:
    """Of a percentile of a quantity over the requests, that quantity and the share of them.

    >>> percentile_of("time_to_first_token_p99"), percentile_of("time_to_first_token")
    (('time_to_first_token', 0.99), None)
    """
    quantity, _, percent = name.rpartition("_p")
    return (quantity, int(percent) / 100) if quantity and percent.isdecimal() else None


def _placed(words: str) -> dict[str, int]:
    found = (word.partition(":") for word in words.split("|")) if words else ()
    return {word: int(place or 0) for word, _, place in found}


@cache
def glossary() -> dict[str, Term]:
    """All terms by name, in the order of ``terms.csv``."""
    text = (Path(__file__).parent / "terms.csv").read_text(encoding="utf-8")
    found = {}
    for row in csv.DictReader(text.splitlines(), restval=""):
        of, kind = (tuple(filter(None, row.pop(name).split("|"))) for name in ("of", "kind"))
        about, errs = (_placed(row.pop(name)) for name in ("about", "errs"))
        form = tuple(row.pop("form").split())
        found[row["term"]] = Term(of=of, kind=kind, about=about, form=form, errs=errs, **row)
    return found


def term_of_column(column: str) -> Term | None:
    """The term of a result column, which is the term with a unit suffix; None if unknown.

    >>> term_of_column("peak_memory_gib").term
    'peak_memory'
    """
    terms = glossary()
    stem = column.rpartition("_")[0]
    return terms.get(column) or terms.get(stem)


@cache
def terms_of(workload: str, *kinds: str) -> Mapping[str, Term]:
    """The terms of a workload that are of one of these kinds, by name, in order.

    >>> list(terms_of("serve", "limit"))[:2]
    ['memory_headroom', 'power']
    """
    wanted = frozenset(kinds)
    found = {
        name: term
        for name, term in glossary().items()
        if (not term.of or workload in term.of) and not wanted.isdisjoint(term.kind)
    }
    return MappingProxyType(found)


@cache
def terms_about(group: str, workload: str = "") -> tuple[str, ...]:
    """The names of a group of terms, of those that a workload knows where one is named, in order.

    Raises KeyError if the table has no such group.

    >>> terms_about("degree", "serve")[:2]
    ('tensor_parallel', 'pipeline_parallel')
    """
    found = [term for term in glossary().values() if group in term.about]
    if not found:
        raise KeyError(group)
    found.sort(key=lambda term: term.about[group])
    return tuple(term.term for term in found if not (workload and term.of) or workload in term.of)


def columns_about(group: str, workload: str = "") -> tuple[str, ...]:
    """The columns of results of a group of terms; see `terms_about`.

    >>> columns_about("latency", "inference")
    ('prefill_latency_s', 'decode_latency_s', 'request_latency_s')
    """
    return tuple(glossary()[name].column for name in terms_about(group, workload))


def plain_values(workload: str) -> dict[str, Value]:
    """The default of every parameter that has one which no spec says.

    >>> plain_values("train")["recompute"]
    'none'
    """
    parameters = terms_of(workload, "parameter")
    return {name: term.plain for name, term in parameters.items() if term.plain is not None}


def remedies_of(workload: str) -> dict[str, tuple[str, ...]]:
    """Values of parameters that may help where nothing is feasible, the likeliest first."""
    widened = [term for term in terms_of(workload, "parameter").values() if term.widen]
    widened.sort(key=lambda term: int(term.widen.partition(":")[0]))
    return {term.term: term.remedies for term in widened}
