"""Whatever text is given to an option ends in an answer or in a message of ours."""

from __future__ import annotations

import pytest

from planner.question.terms import glossary

PLAIN = {
    "train": ("--model", "llama-7b", "--gpus", "8"),
    "serve": ("--workload", "serve", "--model", "llama-7b", "--gpus", "1", "--gpu", "h100"),
}
TEXTS = ("", ",", "-1", "1e999", "nan", "8k", "1,5", "9" * 400, "x" * 5000, "\0", "٣", "=")
QUESTIONS = [
    (term.option_name, workload)
    for name, term in glossary().items()
    for workload in PLAIN
    if name != "space"
    if "question" in term.kind and term.type != "flag" and workload in term.of
]
OTHERS = ("--gpus", "--workload", "--set", "--precision", "--burst", "--plan", "--specs", "--json")
OF_SEARCH = ("--objective", "--driver", "--top", "--trials", "--space", "--step-time")


def asked(option: str, workload: str) -> tuple[str, ...]:
    """A question without what the option gives."""
    words = [*PLAIN[workload]]
    if option in words:
        place = words.index(option)
        del words[place : place + 2]
    return tuple(words)


@pytest.mark.few(5)
@pytest.mark.parametrize(
    ("option", "workload"), [*QUESTIONS, *((option, "serve") for option in OTHERS)]
)
def test_odd_texts_of_an_estimate(planner, tmp_path, monkeypatch, option, workload):
    monkeypatch.chdir(tmp_path)
    for text in TEXTS:
        ran = planner("estimate", *asked(option, workload), "--quiet", f"{option}={text}")
        assert ran.exit_code != 1, (text, ran.err)


@pytest.mark.parametrize("option", OF_SEARCH)
def test_odd_texts_of_a_search(planner, tmp_path, monkeypatch, option):
    monkeypatch.chdir(tmp_path)
    for text in TEXTS:
        ran = planner("search", *PLAIN["train"], "--set", "tp=8", "--quiet", f"{option}={text}")
        assert ran.exit_code != 1, (text, ran.err)
