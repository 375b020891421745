"""Parsers of the values of terms, from the command line or from Python.

A number may be text with k, M, B or T (powers of 1000), Ki, Mi or Gi (powers of 1024) or %; times,
bytes and money are numbers in SI units and USD, or text with a unit. Numbers of numpy, paths, and
whatever can be iterated over are understood. ``said`` is what messages call the term: its option,
or its name.

Cells of results that planner wrote are checked by the terms that their columns are of.

Prices that a user states are one for all GPUs, or by GPU, contract or both, in USD per GPU-hour:
``h100=1.9,spot=1.2,b200:reserved-1y=4``.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache, lru_cache, partial
from itertools import islice
from numbers import Integral, Real
from typing import TypeAlias

from planner.base.csv_cells import Value
from planner.base.enums import Contract
from planner.base.records import record
from planner.base.training_aliases import optimizer_settings
from planner.base.units import parse_quantity
from planner.errors import SearchSpaceError, did_you_mean
from planner.question.renamed import current_name
from planner.question.terms import Term, term_of_column

Answer: TypeAlias = str | int | float | bool
"""The value of a term: a word, a whole number, a number in SI units or a flag."""

LARGEST = 10**9
"""The largest count."""

MOST_GPUS = 10**7
MOST_PARAMETERS = 10**15
_MOST_VALUES = 10_000
_LONGEST = 4000
_LONGEST_NAME = 255
_SHOWN = 60
_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")
_EXAMPLES = {"second": "s", "byte": "GiB", "watt": "kW"}
_UNITS = {"usd": "USD", "kg": "kg"}
# No run is that short: a thousand tokens are less than one sequence.
FEWEST_TOKENS = 1000.0
# To its writer this is one number: 048 must not become a second value.
_SEPARATED = re.compile(r"[1-9]\d{0,2}(,\d{3})*,0\d\d(,\d{3})*")
_ZEROS_FIRST = re.compile(r"0\d")


def parse_value(term: Term, value: object, option_name: str = "") -> Answer:
    """Parse one value of a term: whole number, number in SI units, flag or text.

    Raises SearchSpaceError if the value is not of the type of the term.
    """
    option_name = option_name or term.term
    unwrapped = _unwrap(value)
    if isinstance(unwrapped, str) and not unwrapped:
        raise SearchSpaceError(f"{option_name} has no value.")
    return _READERS[term.type.partition(":")[0]](term, unwrapped, option_name)


def parse_values(term: Term, value: object, option_name: str = "") -> list[Answer]:
    """Parse one value or a list of values of a term; repeated values are left out.

    Raises SearchSpaceError if a value is not of the type of the term, or there is none.
    """
    option_name = option_name or term.term
    if term.type == "count" and isinstance(value, str) and _SEPARATED.fullmatch(value):
        written = value.replace(",", "")
        last = value.rpartition(",")[2]
        raise SearchSpaceError(
            f"{option_name} {value}: {last!r} is not a whole number; write {written}, or "
            "64,128 for "
            "several."
        )
    values = [parse_value(term, item, option_name) for item in split_items(value, option_name)]
    return list(dict.fromkeys(values))


def split_items(value: object, option_name: str) -> list[object]:
    """Split a list, set, array or text with commas into items; one value is a list of one.

    Raises SearchSpaceError if there are none, or too many.
    """
    unwrapped = value if isinstance(value, os.PathLike) else _unwrap(value)
    if isinstance(unwrapped, str):
        items: list[object] = [part.strip() for part in unwrapped.split(",") if part.strip()]
    elif isinstance(unwrapped, Iterable) and not isinstance(unwrapped, bytes | bytearray | Mapping):
        items = list(islice(unwrapped, _MOST_VALUES + 1))
        if isinstance(unwrapped, set | frozenset):
            items.sort(key=lambda item: (str(type(item)), repr(item)))
    else:
        items = [unwrapped]
    if not items:
        raise SearchSpaceError(f"There is no value for {option_name}.")
    if len(items) > _MOST_VALUES:
        raise SearchSpaceError(f"{option_name}: more than {_MOST_VALUES:,} values.")
    return items


def parse_int(
    value: object, option_name: str, least: int = 0, most: int = LARGEST, unit: str = ""
) -> int:
    """Parse a whole number from ``least`` to ``most``, such as 8 or ``8k``.

    Raises SearchSpaceError if ``value`` is not a whole number, or outside the bounds.
    """
    number = _parse_whole(_unwrap(value), "token" if unit == "tokens" else "number")
    if number is None or number < least:
        message = f"{option_name} is a whole number of at least {least}, not {format_input(value)}."
        raise SearchSpaceError(message + _unseparated(value))
    if number > most:
        raise SearchSpaceError(
            f"{option_name} = {format_input(value)} is out of range (at most {most:,})."
        )
    return number


def parse_si(value: object, dimension: str, option_name: str) -> float:
    """Parse a number, or text with a unit, as a number in the SI unit of ``dimension``.

    Raises SearchSpaceError if ``value`` is neither a number nor text with a unit.

    >>> parse_si("5min", "second", "startup_time")
    300.0
    """
    unwrapped = _unwrap(value)
    number = None if isinstance(unwrapped, str) else _real(unwrapped, "1")
    if number is not None:
        return number
    try:
        return parse_quantity(str(unwrapped), dimension)
    except ValueError as error:
        raise SearchSpaceError(f"{option_name} {unwrapped}: {error}.") from error


def parse_choice(value: object, option_name: str, choices: Iterable[str]) -> str:
    """The one of ``choices`` that ``value`` names, in any case.

    Raises SearchSpaceError if ``value`` is none of the ``choices``.
    """
    listed = list(choices)
    text = str(_unwrap(value)).lower() if isinstance(_unwrap(value), str) else None
    if text not in listed:
        hint = did_you_mean(text or "", listed)
        raise SearchSpaceError(
            f"{option_name} is one of {', '.join(listed)}, not {format_input(value)}.{hint}"
        )
    return text


def full_name(name_or_option: str, terms: Mapping[str, Term]) -> str:
    """The full name of a term, from its name, short name or option; else the text itself.

    >>> from planner.question.terms import terms_of
    >>> full_name("tp", terms_of("serve", "parameter"))
    'tensor_parallel'
    """
    name = current_name("key", name_or_option.strip().replace("-", "_"), terms)
    if name in terms:
        return name
    for term in terms.values():
        if (
            term.short == name.lower()
            or "--" + name_or_option.strip().replace("_", "-") in term.options
        ):
            return term.term
    return name


def suggest_term(unknown: str, terms: Mapping[str, Term]) -> str:
    """A hint for an error message: the terms that an unknown name may mean."""
    name = full_name(unknown, terms)
    shorts = [term.short for term in terms.values() if term.short]
    return f" Did you mean {name}?" if name in terms else did_you_mean(name, [*terms, *shorts])


def format_input(value: object) -> str:
    """A user's value as text for an error message, cut if it is long."""
    try:
        text = repr(value)
    except Exception:  # of a class of the user's, or an int of too many digits
        return f"a {type(value).__name__}"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _unwrap(value: object) -> object:
    """Convert arrays to lists and paths to text, and strip texts; other values are unchanged."""
    if callable(convert := getattr(value, "tolist", None)):
        value = convert()
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    return str(value).strip() if isinstance(value, str) else value


def _parse_whole(value: object, dimension: str) -> int | None:
    """The whole number that a value stands for; None: not a whole number."""
    if isinstance(value, Integral) and not isinstance(value, bool):
        return int(value)
    if isinstance(value, str) and _ZEROS_FIRST.match(value):
        return None
    number = _real(value, dimension)
    return int(number) if number is not None and number == math.floor(number) else None


def _real(value: object, dimension: str) -> float | None:
    """Parse a finite number; None: not a number, or a wrong unit."""
    if isinstance(value, bool) or not isinstance(value, str | Real):
        return None
    try:
        number = parse_quantity(value, dimension) if isinstance(value, str) else float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _count(term: Term, value: object, option_name: str) -> int:
    maximum = MOST_GPUS if term.term == "num_gpus" else LARGEST
    if term.unit == "parameters":
        maximum = MOST_PARAMETERS
    return parse_int(value, option_name, int(term.least or 0), maximum, term.unit)


def _number(term: Term, value: object, option_name: str) -> float:
    """Parse a plain number; refuse a number below the term's minimum."""
    unit = term.unit.removeprefix("1")
    text = value.removesuffix(unit) if isinstance(value, str) else value
    number = _real(text, "number")
    if number is None:
        raise SearchSpaceError(
            f"{option_name} is a number, not {format_input(value)}.{_unseparated(value)}"
        )
    if term.least and number < float(term.least):
        raise SearchSpaceError(
            f"{option_name} is a number of at least {term.least}, not {format_input(value)}."
        )
    return number


def _share(term: Term, value: object, option_name: str) -> float:
    """Parse a share from 0 to 1, or a percentage such as ``90%``, as a number from 0 to 1."""
    number = _real(value, "1")
    if number is None or not 0 <= number <= 1:
        message = (
            f"{option_name} is a share from 0 to 1 or a percentage such as 90%, not "
            f"{format_input(value)}"
        )
        raise SearchSpaceError(f"{message}: {re.split(r'[;.] ', term.description)[0]}.")
    return number


def _flag(term: Term, value: object, option_name: str) -> bool:
    text = _lower(value)
    if text not in (*_TRUE, *_FALSE):
        raise SearchSpaceError(f"{option_name} is true or false, not {format_input(value)}.")
    return text in _TRUE


def _code(term: Term, value: object, option_name: str) -> Answer:
    """Parse a name of the term's enumeration, in any case; refuse other names."""
    codes = term.enumeration
    if isinstance(value, codes):
        return term.decode(value)
    codes_by_word = term.code_by_text
    text = codes.canonical_word(_lower(value))
    if text not in codes_by_word:
        hint = did_you_mean(text, [*codes_by_word, *codes.aliases()])
        if term.term == "optimizer" and (settings := optimizer_settings(text)):
            hint = f" Say {' '.join(f'--set {name}={word}' for name, word in settings.items())}."
        choices = (
            ", ".join(codes_by_word) if len(codes_by_word) <= len(codes.words()) else codes.listed()
        )
        raise SearchSpaceError(
            f"{option_name} is one of {choices}, not {format_input(value)}.{hint}"
        )
    return term.decode(codes_by_word[text])


def _lower(value: object) -> str:
    """A word, flag or digit as lower-case text; empty for other values."""
    is_digit = isinstance(value, int) and 0 <= value <= 9
    return str(value).lower() if isinstance(value, str) or is_digit else ""


def _word(term: Term, value: object, option_name: str) -> str:
    """Check a text that is a name or a file path: valid characters, not too long."""
    if not isinstance(value, str):
        raise SearchSpaceError(f"{option_name} is text, not {format_input(value)}.")
    if "\0" in value:
        raise SearchSpaceError(f"{option_name} {format_input(value)} is not valid in a name.")
    try:
        lengths = [len(os.fsencode(part)) for part in re.split(r"[/\\]", value)]
    except UnicodeEncodeError as error:
        raise SearchSpaceError(
            f"{option_name} {format_input(value)} is not valid in a name."
        ) from error
    if sum(lengths) > _LONGEST or max(lengths) > _LONGEST_NAME:
        raise SearchSpaceError(
            f"{option_name} {format_input(value)} is too long for a name or a file."
        )
    return value


def _peak(term: Term, value: object, option_name: str) -> float | str:
    """Parse a share of a peak as a number; a rate with a unit stays text."""
    share = _real(value, "1")
    if share is None and not isinstance(value, str):
        raise SearchSpaceError(
            f"{option_name} is a share or a rate with its unit, not {format_input(value)}."
        )
    return str(value) if share is None else share


def _quantity(term: Term, value: object, option_name: str) -> float:
    """Parse a number, or text with a unit, as a number in SI units."""
    dimension, unit = term.type, _UNITS.get(term.type)
    if not isinstance(value, str):
        number = _real(value, "1")
        if number is None:
            raise SearchSpaceError(
                f"{option_name} is a number or text with a unit, not {format_input(value)}."
            )
        return number
    if unit is None and dimension in _EXAMPLES and value.replace(".", "", 1).isdigit():
        units = ("ms", "s") if term.header.endswith(" ms") else (_EXAMPLES[dimension],)
        example = " or ".join(value + suffix for suffix in units)
        raise SearchSpaceError(f"{option_name} {value}: needs a unit, as in {example}.")
    try:
        return parse_quantity(value, dimension, unit)
    except ValueError as error:
        raise SearchSpaceError(f"{option_name} {value}: {error}.{_unseparated(value)}") from error


def _tokens(term: Term, value: object, option_name: str) -> float:
    """Parse a number of training tokens; refuse one so small that its unit must be missing."""
    tokens = _quantity(term, value, option_name)
    if 0 < tokens < FEWEST_TOKENS:
        raise SearchSpaceError(
            f"{option_name} {value}: that is {tokens:g} tokens; give a unit, as in 1.4T or 300B."
        )
    return tokens


def _price(term: Term, value: object, option_name: str) -> float | str:
    """Parse a price [USD] as a number; prices by GPU or contract as text."""
    if not isinstance(value, Mapping) and not (isinstance(value, str) and "=" in value):
        return _number(term, value, option_name)
    wrong = f"{option_name}: write the GPU or contract and its price, as in h100=1.9,b200=4."
    prices = {
        name: repr(_number(term, _unwrap(usd), f"{option_name} of {name}")).removesuffix(".0")
        for name, usd in parse_by_gpu(value, option_name, wrong).items()
    }
    return ",".join(f"{name}={number}" for name, number in prices.items())


def parse_by_gpu(value: object, option_name: str, wrong: str) -> dict[str, object]:
    """Values by GPU name, from a mapping or from text such as ``h100=64,b200=32``.

    Raises SearchSpaceError with the text ``wrong`` if a part has no name; or if a GPU is named
    twice.
    """
    pairs: list[tuple[object, object]]
    if isinstance(value, Mapping):
        pairs = list(value.items())
    else:
        parts = (part.partition("=") for part in str(value).split(",") if part.strip())
        pairs = [(name, amount) for name, _, amount in parts]
    by_gpu: dict[str, object] = {}
    for gpu, amount in pairs:
        name = str(gpu).strip()
        if not name or any(mark in name for mark in ",="):
            raise SearchSpaceError(wrong)
        if name in by_gpu:
            raise SearchSpaceError(f"{option_name} gives {name} twice.")
        by_gpu[name] = amount
    return by_gpu


def _contract(term: Term, value: object, option_name: str) -> str:
    """Parse the name of a price contract, in any case, with blanks or underscores for dashes."""
    names = [str(contract) for contract in Contract]
    text = re.sub(r"[\s_]+", "-", _lower(value))
    if text not in names:
        hint = did_you_mean(text, names)
        raise SearchSpaceError(
            f"{option_name} is one of {', '.join(names)}, not {format_input(value)}.{hint}"
        )
    return text


def _unseparated(value: object) -> str:
    """A hint for a number with separators of thousands."""
    if isinstance(value, str) and re.fullmatch(r"\d{1,3}(,\d{3})+(\.\d*)?", value.strip()):
        return f" Write {value.strip().replace(',', '')}: commas separate several values."
    return ""


_READERS: Mapping[str, Callable[[Term, object, str], Answer]] = {
    "count": _count,
    "counts": _count,
    "number": _number,
    "1/s": _number,
    "price": _price,
    "contract": _contract,
    "share": _share,
    "flag": _flag,
    "code": _code,
    "level": _code,
    "text": _word,
    "file": _word,
    "names": _word,
    "peak": _peak,
    "token": _tokens,
    "second": _quantity,
    "byte": _quantity,
    "usd": _quantity,
    "watt": _quantity,
    "kg": _quantity,
    "1": _quantity,
}


# Columns of sweeps, and the clock of a day's hours, that are no terms.
_ROW_COLUMNS: dict[str, type] = {
    "scenario": int, "feasible": bool, "work": str, "workload": str, "time": str,
}  # fmt: skip
_SETTINGS = {"parameter", "pool", "derived"}


@cache
def cell_reader(column: str) -> Callable[[object], Value]:
    """The function that parses the cells of a column; it returns None for an unknown value.

    It raises `SearchSpaceError` if the value is invalid in the column.
    """
    if column in _ROW_COLUMNS:
        return lambda value: _of_type(column, _ROW_COLUMNS[column], value)
    term = term_of_column(column)
    if term is None or column == limit_column(term.term):
        return lambda value: _plain_cell(column, value)
    if is_result(column):
        return lambda value: _cell_number(column, value)
    if _SETTINGS & set(term.kind) and "result" not in term.kind:
        read = lru_cache(maxsize=64, typed=True)(partial(_setting, term, column))
        return lambda value: read(_plain_cell(column, value))  # rows repeat most settings
    return lambda value: _plain_cell(column, value)


@cache
def is_result(column: str) -> bool:
    """True if a column holds predicted numbers."""
    term = None if column in _ROW_COLUMNS else term_of_column(column)
    if term is None or "pool" in term.kind or term.is_word or column == limit_column(term.term):
        return False
    return "result" in term.kind


def limit_column(name: str) -> str:
    """The column of the bound of the limit ``name``."""
    return f"{name}_limit"


def _plain_cell(column: str, value: object) -> Value:
    if not isinstance(value, bool | int | float | str | None):
        raise SearchSpaceError(f"{column} of a row is not a word or number.")
    return value


def _of_type(column: str, kind: type, value: object) -> Value:
    if type(value) is not kind and value is not None:
        raise SearchSpaceError(f"{column} of a row cannot be {format_input(value)}.")
    return _plain_cell(column, value)


def _cell_number(column: str, value: object) -> Value:
    if type(value) not in (float, int) and value is not None:
        raise SearchSpaceError(f"{column} of a row is not a number: {format_input(value)}.")
    return value  # type: ignore[return-value]


def _setting(term: Term, column: str, value: object) -> Value:
    if value is None or column != term.term:
        return _plain_cell(column, value)
    return parse_value(term, _plain_cell(column, value), f"{column} of a row")


Stated = float | str
"""A price of a request: a number, or text with a part for each GPU or contract."""

_CONTRACTS = tuple(map(str, Contract))


@record(kw_only=True)
class PricePart:
    """USD of a ``gpu`` under a ``contract``; an empty name stands for each."""

    gpu: str
    contract: str
    usd: float

    def __str__(self) -> str:
        name = ":".join(filter(None, (self.gpu, self.contract)))
        number = repr(self.usd).removesuffix(".0")
        return f"{name}={number}" if name else number


def price_parts(price: Stated | None) -> Iterator[PricePart]:
    """Split the price of a request into its parts (GPU, contract, USD)."""
    if price is None:
        return
    for part in str(price).split(","):
        name, _, number = part.rpartition("=")
        gpu, _, contract = name.rpartition(":")
        if contract not in _CONTRACTS:
            gpu, contract = name, ""
        yield PricePart(gpu=gpu, contract=contract, usd=float(number))


def price_of_contract(price: Stated | None, *contracts: str) -> Stated | None:
    """The parts of a price that apply to these contracts; None: there are none."""
    if not isinstance(price, str):
        return price
    parts = [str(part) for part in price_parts(price) if part.contract in ("", *contracts)]
    return ",".join(parts) or None


def with_contract(price: Stated | None, contract: str) -> str | None:
    """A price with ``contract`` in all parts that have none."""
    parts = (replace(part, contract=part.contract or contract) for part in price_parts(price))
    return ",".join(map(str, parts)) or None


def check_price(
    price: Stated | None, contracts: Collection[str], option_name: str, owned: str
) -> Stated | None:
    """The price with a contract for each part, checked against the requested contracts.

    A part without a contract gets the only rented contract. ``option_name`` and ``owned`` are the
    names of the price and of the purchase price in messages.

    Raises SearchSpaceError if a part names an owned contract or one that is not requested, or has
    no contract where several are rented.
    """
    rented = [contract for contract in contracts if contract != Contract.OWNED]
    for part in price_parts(price):
        if part.contract == Contract.OWNED or (not part.contract and not rented):
            raise SearchSpaceError(
                f"{option_name} is the hourly price of a rented GPU: give {owned} for owned GPUs."
            )
        if part.contract and part.contract not in contracts:
            raise SearchSpaceError(
                f"{option_name} names {part.contract}, which is not among the contracts: "
                f"{', '.join(contracts)}."
            )
        if not part.contract and len(rented) > 1:
            example = f"{part.gpu}:{rented[0]}" if part.gpu else rented[0]
            raise SearchSpaceError(
                f"{option_name} {part}: name the contract that it is of, such as "
                f"{example}={part.usd:g}."
            )
    return price if len(contracts) == 1 or price is None else with_contract(price, rented[0])
