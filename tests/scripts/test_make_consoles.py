"""Console blocks keep what they leave out, and take the numbers of today."""

from __future__ import annotations

import pytest
from make_consoles import _aligned

SHOWN = [
    *("...", "step time  4.49 s (3.6 to 7.5)", "cost       2.4 M USD"),
    *("...", "By GPU", "h100 1.0", "b200 1.5", "..."),
]
PRINTED = [
    *("LLaMA 65B", "", "step time  5.01 s (4.0 to 8.0)", "cost       2.7 M USD"),
    *("memory     54 GiB", "By GPU", "h100 2.0", "b200 3.0", "In full: this command"),
]


def test_parts_are_found_by_their_words() -> None:
    assert [*_aligned(SHOWN, PRINTED, "page")] == [
        *("...", "step time  5.01 s (4.0 to 8.0)", "cost       2.7 M USD"),
        *("...", "By GPU", "h100 2.0", "b200 3.0", "..."),
    ]


def test_a_whole_output_is_shown_whole_and_none_stays_none() -> None:
    assert [*_aligned(["old"], PRINTED, "page")] == PRINTED
    assert [*_aligned([], PRINTED, "page")] == []


def test_what_is_not_found_stays_and_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    shown = ["...", "nothing of the kind"]
    assert [*_aligned(shown, PRINTED, "page")] == shown
    assert "page: not found" in capsys.readouterr().err
