"""Operators one by one, as people and files read them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from planner.base import text
from planner.base.cells import number
from planner.decide.explaining.operators import KINDS, OperatorTimes, work_dict
from planner.decide.explaining.steps import quantity, seconds
from planner.question.terms import glossary, term_of_column
from planner.show.page import Block, Column, fitted, said
from planner.show.views.documents import command_manifest
from planner.show.views.rows import RowFiles, blocks

_HEADS = {"num_gpus": "GPUs", "gpu": "GPU", "time_s": "time"}
# What a line before the table says where all rows have it in common.
_NAMED = ("gpu", "framework")


def operators_blocks(times: OperatorTimes) -> Iterator[Block]:
    """A table of all, what is the same in all before it, and what was assumed."""
    if times.assumed:
        yield said(f"Assumed: {'; '.join(times.assumed)}")
    same = _same(times)
    if same:
        yield said(", ".join(same))
    yield fitted(_columns(times), _rank)


def _rank(column: str) -> int:
    """How late a narrow terminal leaves out a column."""
    term = term_of_column(column)
    return int(term.rank or 1) if term and "result" in term.kind else 1


def add_operators(files: RowFiles, times: OperatorTimes, command: Sequence[str]) -> None:
    """The rows, and for JSON how each time comes about."""
    files.add(blocks(times.columns))
    if files.has_object:
        works = [[work_dict(done) for done in row] for row in times.works]
        files.finish(command_manifest(command), assumed=list(times.assumed), works=works)
    else:
        files.finish(command_manifest(command))


def _same(times: OperatorTimes) -> list[str]:
    """GPUs and words that all rows have in common."""
    found = []
    for name in (*_NAMED, *_words()):
        values = set(times.columns.get(name, ()))
        if len(values) == 1:
            found.append(str(next(iter(values))))
    return found


def _words() -> list[str]:
    return list(dict.fromkeys(name for kind in KINDS.values() for name in kind.words))


def _columns(times: OperatorTimes) -> list[Column]:
    peaks = [*map(number, times.columns["of_peak"])]
    return [
        Column(
            name,
            [_cell(name, value) for value in values],
            _HEADS.get(name) or (term.column_header if term else name),
            numeric=not any(isinstance(value, str) for value in values),
        )
        for name, values in times.columns.items()
        for term in [term_of_column(name)]
        if _is_shown(name, values)
        and not (name == "of_roofline" and np.allclose([*map(number, values)], peaks))
    ]


def _is_shown(name: str, values: Sequence[object]) -> bool:
    """Whether a column tells something: not what all have in common, or by default."""
    if name in (*_NAMED, *_words()):
        return len(set(values)) > 1
    term = glossary().get(name)
    usual = {None, int(term.default)} if term and "operator" in term.kind and term.default else None
    return not (usual and set(values) <= usual) and not (name == "num_gpus" and set(values) == {1})


_BY_TYPE: dict[str, Callable[[float], str]] = {
    "second": seconds,
    "share": text.percent,
    "byte": lambda value: quantity(value, "byte"),
}


def _cell(name: str, value: object) -> str:
    if value is None:
        return ""
    term = term_of_column(name)
    if term is not None and term.type in _BY_TYPE:
        return _BY_TYPE[term.type](number(value))
    if isinstance(value, int):
        return text.count(value)
    return text.significant(value) if isinstance(value, float) else str(value)
