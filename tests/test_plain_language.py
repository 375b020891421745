"""Pages, help and messages are plain English: short sentences without banned constructions."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator, Mapping
from io import StringIO
from pathlib import Path

import pytest
from plain_language import construction, help_problem, problem, sentences, source_texts
from syntax import nodes

from planner.base.read_files import parse_csv
from planner.confidence.profile_rules import read_table
from planner.question.terms import glossary

ROOT = Path(__file__).parents[1]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
    ROOT / "docs" / "index.md",
    *sorted(ROOT.glob("docs/[!g]*/*.md")),
]
TABLES = {
    "planner/commands/options.csv": "help",
    "planner/ui/examples.csv": "words",
    "planner/validation/columns.csv": "words",
}
"""Tables of texts, and the column that users read."""
NOTES = [
    path
    for folder in ("launch/options", "launch/wrappers", "launch/read", "question", "specs")
    for path in sorted((ROOT / "planner" / folder).glob("*.csv"))
]
SPECS = [
    *sorted((ROOT / "planner").rglob("*.toml")),
    *sorted((ROOT / "hardware_specs").rglob("*.toml")),
    *sorted((ROOT / "search_spaces").rglob("*.toml")),
]
FIELDS = ("notes", "description", "doubtful", "why", "note")
EXCEPTIONS = {"sources": "citations keep the words of their source"}
"""Tables of TOML files that are not checked, with the reason."""


def problems_of_page(path: str, text: str) -> Iterator[str]:
    """Place and problem of each sentence of a page."""
    for line, sentence in sentences(text):
        if reason := problem(sentence):
            yield f"{path}:{line} {reason}: {sentence[:100]}"


def notes_of(table: Mapping[str, object]) -> Iterator[str]:
    """Every text of a TOML file but those of its exceptions."""
    for key, value in table.items():
        if isinstance(value, Mapping) and key not in EXCEPTIONS:
            yield from notes_of(value)
        elif isinstance(value, str) and key in FIELDS:
            yield value


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_sentences_of_pages_are_short_and_plain(page: Path) -> None:
    name = page.relative_to(ROOT).as_posix()
    assert [*problems_of_page(name, page.read_text(encoding="utf-8"))] == []


def test_texts_of_the_package_are_plain() -> None:
    found = [
        f"{path}:{line} {reason}: {text[:100]}"
        for path, tree in nodes().items()
        for line, text in source_texts((ROOT / path).read_text(encoding="utf-8"), tree)
        if (reason := construction(text))
    ]
    assert found == []


def test_descriptions_of_terms_are_short_and_plain() -> None:
    found = [
        f"{name} {reason}"
        for name, term in glossary().items()
        if (reason := help_problem(term.description))
    ]
    assert found == []


@pytest.mark.parametrize("table", TABLES)
def test_tables_of_texts_are_short_and_plain(table: str) -> None:
    path = ROOT / table
    rows = read_table(path.name, path.parent)
    found = [reason for row in rows if (reason := help_problem(row[TABLES[table]]))]
    assert found == []


def test_notes_of_launch_options_are_plain() -> None:
    found = [
        f"{path.name}:{line} {reason}: {cell}"
        for path in NOTES
        for line, cells in parse_csv(StringIO(path.read_text(encoding="utf-8"), newline=""), path)
        for cell in cells
        if " " in cell and (reason := construction(cell))
    ]
    assert found == []


def test_notes_of_specs_are_plain() -> None:
    found = [
        f"{path.name} {reason}: {text}"
        for path in SPECS
        for text in notes_of(tomllib.loads(path.read_text(encoding="utf-8")))
        if (reason := construction(text))
    ]
    assert found == []


@pytest.mark.parametrize(
    ("sentence", "reason"),
    [
        ("The tool is told the size.", "'is told'"),
        ("It needs memory beside the weights.", "'beside'"),
        ("One: two: three.", "two colons"),
        ("word " * 29, "29 words"),
        ("`a b c` counts as one word, and [a link of words](page.md) as its words.", ""),
    ],
)
def test_a_hard_sentence_is_found(sentence: str, reason: str) -> None:
    assert reason in problem(sentence) if reason else not problem(sentence)


def test_sentences_leave_out_code_tables_and_headings() -> None:
    page = "# Title\n\nOne. Two\nlines.\n\n```sh\nls\n```\n| a |\n|---|\n- Item.\n- Next.\n"
    assert [text for _, text in sentences(page)] == ["One.", "Two lines.", "Item.", "Next."]


def test_comments_and_docstrings_are_texts() -> None:
    source = '"""A docstring."""\nx = "a text"  # a comment\n'
    texts = [text for _, text in source_texts(source, ast.walk(ast.parse(source)))]
    assert texts == ["A docstring.", "a text", "# a comment"]
