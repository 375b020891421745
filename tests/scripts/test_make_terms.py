"""The constants of terms are what the tables say."""

from __future__ import annotations

from make_terms import FILE, names

from planner.question import names as constants
from planner.question.terms import glossary


def test_the_constants_are_made_by_their_script() -> None:
    assert names() == FILE.read_text(encoding="utf-8"), "run scripts/make_terms.py"


def test_constants_are_terms_that_code_imports() -> None:
    made = {name: value for name, value in vars(constants).items() if isinstance(value, str)}
    made = {name: value for name, value in made.items() if name.isupper()}
    assert {value.upper(): value for value in made.values()} == made
    assert {*made.values()} < {*glossary()}
    assert constants.NUM_GPUS == "num_gpus"
