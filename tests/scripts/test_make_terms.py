"""The constants of terms are what the tables say."""

from __future__ import annotations

from make_terms import FILE, names

from planner.question import names as constants
from planner.question.terms import glossary


def test_the_constants_are_made_by_their_script() -> None:
    assert names() == FILE.read_text(encoding="utf-8"), "run scripts/make_terms.py"


def test_every_term_has_a_constant() -> None:
    assert all(getattr(constants, name.upper()) == name for name in glossary())
