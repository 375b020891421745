"""Launch files in the style of public ones: what is understood, asked for, or refused."""

from __future__ import annotations

import pytest
from make_public_launches import EXPECTED, FOLDER, Case, cases

from planner.terms import glossary

CASES = list(cases())
READ = [case for case in CASES if not case.refused]
TARGETS = 12


def _name(case: Case) -> str:
    return case.name


def test_there_are_enough_of_enough_kinds() -> None:
    assert len(CASES) >= 45
    assert len({case.target for case in READ}) >= TARGETS


@pytest.mark.parametrize("case", CASES, ids=_name)
def test_a_case_says_something_that_can_be_checked(case: Case) -> None:
    texts = [path.read_text() for path in case.path.parent.iterdir() if path.name != EXPECTED]

    assert case.source
    assert case.traps
    assert bool(case.refused) != bool(case.understood or case.asked)
    assert {*case.understood, *case.asked} <= set(glossary())
    assert all(option.split(".")[-1] in "".join(texts) for option in case.unknown)


def test_several_files_in_a_folder_say_which_is_read() -> None:
    for case in CASES:
        files = [path for path in (FOLDER / case.name).iterdir() if path.name != EXPECTED]
        assert len(files) == 1 or case.file, case.name
