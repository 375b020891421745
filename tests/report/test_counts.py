"""One of something has no plural, whatever is counted."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest
from syntax import nodes

from planner.base import formatting
from planner.show.output_blocks import KeyValues, make_lines
from planner.show.presenters.uncertainty import evidence
from tests.rows import each

NOUNS = formatting.NOUNS.split("|")


def expected(number: int, noun: str) -> str:
    one = {"copies": "copy", "directories": "directory", "entries": "entry", "passes": "pass"}
    one |= {"processes": "process", "micro-batches": "micro-batch"}
    return f"{number} {one.get(noun, noun[:-1]) if number == 1 else noun}"


@each(("number", "noun"), [(n, noun) for n in (0, 1, 2) for noun in NOUNS])
def test_a_number_of_things_agrees_with_its_noun(number: int, noun: str) -> None:
    assert formatting.fix_plurals(f"{number} {noun}, of 21 {noun}") == (
        f"{expected(number, noun)}, of 21 {noun}"
    )


@each(
    ("words", "agreed"),
    [
        ("1 decode workers and 2 decode workers", "1 decode worker and 2 decode workers"),
        ("1 options have no effect", "1 option has no effect"),
        ("1 scenarios are done; 3 scenarios are left", "1 scenario is done; 3 scenarios are left"),
        (
            "0.1 requests/s, 1 requests/s, 1,001 tokens",
            "0.1 requests/s, 1 requests/s, 1,001 tokens",
        ),
        ("1 of 4 runs, 1 to 8 GPUs, tp1 GPUs", "1 of 4 runs, 1 to 8 GPUs, tp1 GPUs"),
        ("llama-3.1 layers", "llama-3.1 layers"),
    ],
)
def test_nothing_else_changes(words: str, agreed: str) -> None:
    assert formatting.fix_plurals(words) == agreed


@pytest.mark.parametrize("number", [0, 1, 2])
def test_what_is_shown_agrees(number: int) -> None:
    words = f"{number} requests in each replica"
    shown = formatting.fix_plurals(words)
    assert make_lines(words).lines == (shown,)
    assert KeyValues(pairs={"load": words}).pairs == {"load": shown}
    counted = "no runs" if not number else expected(number, "runs")
    assert evidence("measured", number).endswith(f"{counted} on this GPU")
    assert formatting.format_gpus(number) == expected(number, "GPUs")


def counted_nouns() -> Iterator[tuple[str, str]]:
    """Where a text has a length right before a noun, and the noun."""
    for path, of_module in nodes().items():
        for node in of_module:
            if not isinstance(node, ast.JoinedStr):
                continue
            for value, after in zip(node.values, node.values[1:], strict=False):
                if not isinstance(value, ast.FormattedValue) or not isinstance(after, ast.Constant):
                    continue
                word = str(after.value).removeprefix(" ").split(" ")[0].strip(".,:;)")
                if ast.unparse(value.value).startswith("len(") and word.endswith("s"):
                    yield f"{path}:{node.lineno}", word


def test_every_counted_noun_is_known() -> None:
    known = {*NOUNS, "others", "works"}
    unknown = {place: word for place, word in counted_nouns() if word not in known}
    assert unknown == {}
