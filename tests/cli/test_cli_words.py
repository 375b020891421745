"""``planner explain WORD``: every word of the screens has a meaning in plain English."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from plain_language import help_problem

from planner.base.read_files import packaged_rows
from planner.errors import SearchSpaceError
from planner.question import explain_words
from planner.question.explain_words import explain_word
from planner.question.terms import glossary

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
ROWS = packaged_rows(Path(explain_words.__file__).with_name("glossary.csv"))

NOT_A_WORD = ("(... to ...)", "memory ... fits", "> 99 % likely", "less memory")


@pytest.mark.parametrize(
    ("word", "names"),
    [
        ("mfu", ["mfu", "model_flops_utilization"]),
        ("TTFT", ["ttft", "time_to_first_token"]),
        ("tp", ["tensor_parallel"]),
        ("cost_usd", ["cost"]),
        ("COULD BE FASTER", ["could be faster"]),
        ("~", ["tied"]),
        ("kv", ["key_value_heads", "kv cache"]),
        ("bubbl", ["bubble", "time_pipeline_bubble"]),
    ],
)
def test_a_word_has_its_meanings(word: str, names: list[str]) -> None:
    assert [re.split(r" [(\[]", meaning.name)[0] for meaning in explain_word(word)] == names


@pytest.mark.slow
def test_every_term_has_a_meaning_and_a_usage() -> None:
    for name, term in glossary().items():
        if term.description:
            meanings = {re.split(r" [(\[]", m.name)[0]: m for m in explain_word(name)}
            assert meanings[name].text[1:-1] == term.description[1:]
            assert meanings[name].usage


def test_the_words_of_the_first_screen_are_explained() -> None:
    table = README.partition("| word | means |")[2].partition("\n\n")[0]
    cells = [row.split("|")[1] for row in table.splitlines() if row.startswith("| ")]
    words = [word.strip(" `") for cell in cells[1:] for word in cell.split(", ")]
    unknown = [word for word in words if word not in NOT_A_WORD and not is_explained(word)]
    assert unknown == []


def is_explained(word: str) -> bool:
    """Whether a word has a meaning."""
    try:
        return bool(explain_word(word))
    except SearchSpaceError:
        return False


def test_meanings_are_plain() -> None:
    assert [row["word"] for row in ROWS if help_problem(row["meaning"])] == []
    names = [name for row in ROWS for name in (row["word"], *row["also"].split("|")) if name]
    assert len({*names}) == len(names)


def test_an_unknown_word_names_similar_ones() -> None:
    with pytest.raises(SearchSpaceError, match="Did you mean goodput"):
        explain_word("godput")


def test_the_command_prints_meanings(planner: Any) -> None:
    printed = planner("explain", "regret", "tpot").out
    assert printed.startswith("regret: Average loss of a choice")
    assert "tpot: Mean time between the tokens of an answer." in printed


def test_words_need_no_plan(planner: Any) -> None:
    refused = planner("explain", "mfu", "--gpus", "8")
    assert refused.exit_code
    assert "without a plan" in refused.err
