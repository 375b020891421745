"""The shipped profiles agree with each other and with what they cite."""

from __future__ import annotations

from collections import defaultdict

import pytest
import tomlkit

from planner.specs.catalogue import find, names
from planner.specs.paths import SpecKind

SECTIONS = ("execution", "overlap", "states", "memory", "offloading", "attention_split")


@pytest.mark.parametrize("kind", [SpecKind.FRAMEWORKS, SpecKind.ENGINES])
def test_profiles_that_cite_the_same_fit_have_its_value(kind: SpecKind) -> None:
    values = defaultdict(set)
    for name in names(kind):
        document = tomlkit.parse(find(kind, name).read_text(encoding="utf-8"))
        for section in SECTIONS:
            for field, number in document.get(section, {}).items():
                fit = number.get("source", "") if isinstance(number, dict) else ""
                if fit.startswith("fitted"):
                    origin = document["sources"][fit]
                    values[section, field, fit].add((number["value"], origin))
    assert len(values) > 20
    assert {key: found for key, found in values.items() if len(found) > 1} == {}
