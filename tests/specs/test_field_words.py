"""Every field of a profile says what it means, where it stands."""

from __future__ import annotations

from typing import Any

import pytest

from planner.specs.engine import EngineProfile
from planner.specs.framework import FrameworkProfile
from planner.specs.spec_files import field_names
from planner.specs.validated import field_words


@pytest.mark.parametrize("profile", [FrameworkProfile, EngineProfile])
def test_every_field_is_explained(profile: Any) -> None:
    words = field_words(profile)
    assert {name.rpartition(".")[2] for name in words} == field_names(profile)
    assert all(text.endswith(".") and "\n" not in text for text in words.values())


def test_words_carry_the_place_of_their_field() -> None:
    words = field_words(FrameworkProfile)
    assert words["states.gradient"] == "A persistent gradient [bytes/parameter]."
    assert words["states.fp16.gradient"] == "Bytes of a persistent gradient [bytes/parameter]."
    assert words["memory.fp8_inputs"].endswith("the backward pass casts them again.")
