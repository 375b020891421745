"""The reference is what the table of terms and the commands say."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from make_reference import reference

from planner.question.terms import glossary

ROOT = Path(__file__).parents[2]
REFERENCE = (ROOT / "docs" / "reference" / "reference.md").read_text(encoding="utf-8")


def test_the_reference_is_made_by_its_script() -> None:
    assert reference() == REFERENCE, "run scripts/make_reference.py"


def test_it_has_every_term_with_its_words() -> None:
    rows = [line for line in REFERENCE.splitlines() if line.startswith("| `")]
    for name, term in glossary().items():
        of_it = [row for row in rows if re.match(rf"\| `{name}`[ (|]", row)]
        words = term.description.replace("|", r"\|")
        assert any(words in row for row in of_it), name


@pytest.mark.parametrize(
    "command", ["search", "estimate", "calibrate", "validate", "specs list", "specs show"]
)
def test_it_has_every_option(command: str, planner: Any) -> None:
    shown = planner(*command.split(), "--help").out
    _, _, section = REFERENCE.partition(f"### planner {command}\n")
    section = section.split("### ")[0]
    for title in re.findall(r"\]\(#(\w+)\)", section):
        section += REFERENCE.partition(f"\n## {title.title()}\n")[2].split("\n## ")[0]
    for option in re.findall(r"^  (--[a-z-]+)", shown, flags=re.MULTILINE):
        assert option == "--help" or re.search(rf"[`, ]{option}\b", section), option
