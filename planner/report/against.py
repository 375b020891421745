"""A plan beside another one, in sentences and tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Console

from planner.base import text
from planner.explaining.against import Difference, Term
from planner.explaining.numbers import seconds
from planner.explaining.what_if import change
from planner.question.terms import term_of_column
from planner.report.console import BAD, make_table, print_folded, print_title
from planner.report.told import label, told

_MOST = 4
_FIRST = 2
_PEAK = "peak_memory_gib"
_LEAST = 0.002
"""Terms that differ by less than this share of a whole are not told in short."""


def print_difference(console: Console, difference: Difference, *, is_full: bool = False) -> None:
    """What the other plan gains and loses, or the rule that it breaks."""
    print_title(console, "Against the other plan")
    for line in against_lines(difference, is_full=is_full):
        print_folded(console, line)
    if is_full and not difference.other.reason:
        _print_terms(console, difference)


def against_lines(difference: Difference, *, is_full: bool = True) -> list[str]:
    """The same in sentences; in short with the most telling results alone."""
    return [*_lines(difference, is_full=is_full)]


def _lines(difference: Difference, *, is_full: bool) -> Iterator[str]:
    changes = [
        f"{name.replace('_', ' ')} {_word(other)} instead of {_word(one)}"
        for name, (one, other) in difference.settings.items()
    ]
    yield f"Changed: {', '.join(changes) or 'nothing'}."
    if difference.other.reason:
        yield f"It is impossible: {difference.other.reason}."
        return
    yield from _results(difference, is_full=is_full)
    for name, terms in difference.times.items():
        whole = difference.one.steps[name].seconds
        step = "step" if name == "step" else f"{name} step"
        yield from _gains(f"Of the {step}'s time", terms, whole, seconds)
    whole = float(difference.one.row[_PEAK])
    yield from _gains("Of the memory", difference.memory, whole, lambda gib: f"{gib:,.2f} GiB")


def _results(difference: Difference, *, is_full: bool) -> Iterator[str]:
    results = difference.results if is_full else _telling(difference)
    moved = [
        term
        for term in results
        if change(term.other, term.one)  # None where one is unknown
        and told(term.name, term.other) != told(term.name, term.one)
    ]
    for term in moved:
        yield (
            f"{_up(label(term.name))} {told(term.name, term.other, term.ends[1])} instead of "
            f"{told(term.name, term.one, term.ends[0])} ({_signed(term)}{_verdict(term)})."
        )
    if moved and difference.is_tie:
        yield (
            "That is a tie: published runs of such plans do not tell apart what is nearer than a "
            f"factor of {difference.tie_factor:.2f}."
        )


def _telling(difference: Difference) -> list[Term]:
    """The first results, costs and the memory."""
    found = difference.results
    shown = {term.name for term in found[:_FIRST]}
    return [t for t in found if t.name in shown or "cost" in t.name or t.name == _PEAK]


def _verdict(term: Term) -> str:
    """Whether more of a result is better or worse, where the table of terms says so."""
    known = term_of_column(term.name)
    if known is None or not known.better or not term.gain:
        return ""
    return ", better" if term.gain * known.sign < 0 else ", worse"


def _gains(whole_words: str, terms: Sequence[Term], whole: float, words: Any) -> Iterator[str]:
    for verb, sign in (("loses", 1), ("gains", -1)):
        found = [term for term in terms if sign * term.gain > _LEAST * whole]
        listed = [
            f"{term.name.replace('_', ' ')} {words(abs(term.gain))} "
            f"({' to '.join(words(value) if value else '0' for value in (term.one, term.other))})"
            for term in found[:_MOST]
        ]
        if listed:
            rest = f" and {len(found) - _MOST} more" if len(found) > _MOST else ""
            yield f"{whole_words} it {verb} {', '.join(listed)}{rest}."


def _print_terms(console: Console, difference: Difference) -> None:
    """Every term of the times and of the memory, side by side."""
    tables = {f"Time of the {name}, ms": (terms, 1e3) for name, terms in difference.times.items()}
    for title, (terms, scale) in {**tables, "Memory, GiB": (difference.memory, 1.0)}.items():
        table = make_table(console)
        table.add_column(title, overflow="fold")
        for head in ("this", "other", "change"):
            table.add_column(head, justify="right", no_wrap=True)
        for term in terms:
            cells = (f"{scale * value:,.3f}" for value in (term.one, term.other))
            style = BAD if term.gain > 0 else None
            change_cell = f"{scale * term.gain:+,.3f}"
            table.add_row(term.name.replace("_", " "), *cells, change_cell, style=style)
        console.print()
        console.print(table)


def _signed(term: Term) -> str:
    share = change(term.other, term.one)
    return "-" if share is None else f"{100 * share:+.1f} %"


def _word(value: Any) -> str:
    return "none" if value is None else text.value(value)


def _up(words: str) -> str:
    return words[0].upper() + words[1:]
