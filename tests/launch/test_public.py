"""Launch files in the style of public ones: what is understood, asked for, or refused."""

from __future__ import annotations

import re
from typing import Any

import pytest
from commands import Command
from make_public_launches import EXPECTED, FILE, FOLDER, Case, cases, outcome, page, row_of_page
from rows import each

from planner.launch.option_table import format_option_value
from planner.launch.read.option_lines import Status
from planner.launch.read.read_launch import read_launch
from planner.launch.targets import readers
from planner.question.parse_values import parse_value
from planner.question.terms import glossary
from planner.specs.catalogue import load_model

CASES = list(cases())
READ = [case for case in CASES if not case.refused and case.target in readers()]
NUMBER = 45
# Its graphs are read as the engines that they start.
_WITHOUT = {"dynamo"}


def _name(case: Case) -> str:
    return case.name


def test_there_are_enough_of_enough_kinds() -> None:
    assert len(READ) >= NUMBER
    assert {case.target for case in READ} == {*readers()} - _WITHOUT


@each("case", CASES)
def test_a_case_says_something_that_can_be_checked(case: Case) -> None:
    files = [path for path in (FOLDER / case.name).rglob("*") if path.is_file()]
    texts = [path.read_text() for path in files if path.name != EXPECTED]

    assert case.source
    assert case.traps
    assert bool(case.refused) != bool(case.understood or case.asked)
    assert {*case.understood, *case.asked} <= set(glossary())
    assert all(option.split(".")[-1] in "".join(texts) for option in case.unknown)


def test_several_files_in_a_folder_say_which_is_read() -> None:
    for case in CASES:
        files = [path for path in (FOLDER / case.name).iterdir() if path.name != EXPECTED]
        assert len(files) == 1 or case.file, case.name


@pytest.mark.parametrize("case", READ, ids=_name)
def test_what_a_file_says_is_understood_and_what_it_leaves_open_is_asked_for(case: Case) -> None:
    imported = read_launch(case.path)

    assert imported.target.name == case.target
    told = {name: _told(name, imported.values.get(name)) for name in case.understood}
    assert told == {name: _told(name, value) for name, value in case.understood.items()}
    shape = imported.answers.shape or {}
    assert {name: shape.get(name) for name in case.shape} == dict(case.shape)
    lacking = {*imported.missing_terms({})}
    assert {*case.asked} <= lacking
    assert not {*case.understood} & lacking
    assert {*case.unknown} <= {line.option for line in imported.lines_with_status(Status.UNKNOWN)}


@pytest.mark.parametrize("case", [case for case in CASES if case.refused], ids=_name)
def test_what_cannot_run_is_refused(case: Case, planner: Command) -> None:
    ran = planner("estimate", "--from", case.path, "--gpu", "a100-sxm-80gb")

    assert ran.exit_code
    assert re.search(case.refused, ran.err)


@pytest.mark.few(4)
@pytest.mark.parametrize("case", READ, ids=_name)
def test_a_completed_file_is_judged_as_the_page_says(case: Case) -> None:
    told = outcome(case)
    assert not told.refusal
    assert row_of_page(case, told) in FILE.read_text(encoding="utf-8")


def _told(name: str, value: Any) -> Any:
    """A value as the table of terms reads it; of a model its name."""
    if value is None:
        return None
    if name == "model":
        return load_model(str(value)).name
    text = format_option_value(value)
    term = glossary()[name]
    return text if term.type in ("names", "text") else parse_value(term, text)


@pytest.mark.drawn
def test_the_page_is_that_of_the_files() -> None:
    assert FILE.read_text(encoding="utf-8") == page()
