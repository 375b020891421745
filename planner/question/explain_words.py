"""Plain-English meanings of words: those of ``glossary.csv``, and the terms of ``terms.csv``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from planner.base.read_files import packaged_rows
from planner.base.records import record
from planner.errors import SearchSpaceError, did_you_mean
from planner.question.terms import Term, glossary

_FILE = Path(__file__).parent / "glossary.csv"
_MOST_MEANINGS = 6
_KINDS = {
    "parameter": "parameter", "question": "option", "limit": "limit", "objective": "objective",
    "sizing": "option of planner size", "operator": "option of planner operators",
    "pool": "parameter of prefill and decode workers", "result": "result",
    "derived": "derived from parameters",
}  # fmt: skip


@record(kw_only=True)
class Meaning:
    """The meaning of a word; ``usage`` says where it is used, if it is a term."""

    name: str
    text: str
    usage: str = ""


def explain_word(text: str) -> list[Meaning]:
    """Return the meanings of a word of screens, options or columns, the nearest first.

    Raises SearchSpaceError if the word is unknown; the message names similar ones.

    >>> [meaning.name for meaning in explain_word("--ttft")]
    ['ttft', 'time_to_first_token']
    """
    word = _normalize(text)
    defined = [*_of_glossary(word)]
    meanings = [*defined, *_of_terms(word)]
    if meanings:
        return meanings if defined else [*meanings, *_with_word(word)]
    parts = [*_containing(word)][:_MOST_MEANINGS] if len(word) > 2 else []
    if not parts:
        raise SearchSpaceError(
            f"{text!r} is not explained.{did_you_mean(word, _words())} "
            "`planner COMMAND -h all` lists every option."
        )
    return parts


def _normalize(text: str) -> str:
    """Return a word in lower case, with spaces between its parts."""
    spaced = re.sub(r"[_-]", " ", text.lower().replace("/", " per "))
    return " ".join(spaced.split())


@cache
def _glossary() -> dict[str, tuple[tuple[str, ...], str]]:
    """The words of the glossary with their other names and their meaning."""
    return {
        row["word"]: (tuple(filter(None, row["also"].split("|"))), row["meaning"])
        for row in packaged_rows(_FILE)
    }


def _of_glossary(word: str) -> Iterator[Meaning]:
    for name, (others, meaning) in _glossary().items():
        if word in map(_normalize, (name, *others)):
            yield Meaning(name=name, text=meaning)


def _of_terms(word: str) -> Iterator[Meaning]:
    for term in glossary().values():
        if term.description and word in _names(term):
            yield _term_meaning(term)


def _names(term: Term) -> set[str]:
    """The normalized names of a term: its name, abbreviation, options, and columns."""
    options = term.options if term.option else ()
    header = term.header.rpartition(" ")[0] or term.header
    names = (term.term, term.short, term.column, term.header, header, *options)
    return {_normalize(name) for name in names if name}


def _with_word(word: str) -> Iterator[Meaning]:
    """Yield the entries of the glossary that have a word among others, such as *kv cache*."""
    for name, (_, meaning) in _glossary().items():
        if word in name.split():
            yield Meaning(name=name, text=meaning)


def _containing(word: str) -> Iterator[Meaning]:
    """Yield terms and words whose name contains a word; ends of intervals are left out."""
    for name, (_, meaning) in _glossary().items():
        if word in name:
            yield Meaning(name=name, text=meaning)
    for term in glossary().values():
        if word in _normalize(term.term) and not term.term.endswith(("_low", "_high")):
            yield _term_meaning(term)


def _term_meaning(term: Term) -> Meaning:
    kinds = [_KINDS[kind] for kind in term.kind if kind in _KINDS]
    usage = " and ".join(kinds)
    if {"parameter", "pool"} & {*term.kind} and not term.option:
        usage += f": --set {term.short or term.term}=VALUE"
    elif {"question", "limit", "sizing", "operator"} & {*term.kind}:
        usage += f": {term.option_name}"
    unit = f" [{term.unit}]" if term.unit not in ("", "1") else ""
    short = f" ({term.short})" if term.short else ""
    text = term.description[:1].upper() + term.description[1:] + "."
    return Meaning(name=f"{term.term}{short}{unit}", text=text, usage=usage)


def _words() -> list[str]:
    terms = [term.replace("_", " ") for term in glossary()]
    return [*_glossary(), *terms]
