"""The shipped framework profiles agree with each other and with what they cite."""

from __future__ import annotations

from collections import defaultdict

import tomlkit

from planner.specs.catalogue import find, names
from planner.specs.paths import SpecKind

SECTIONS = ("execution", "overlap", "states", "memory", "offloading")


def test_profiles_that_cite_the_same_fit_have_its_value() -> None:
    values = defaultdict(set)
    for name in names(SpecKind.FRAMEWORKS):
        document = tomlkit.parse(find(SpecKind.FRAMEWORKS, name).read_text(encoding="utf-8"))
        for section in SECTIONS:
            for field, number in document.get(section, {}).items():
                fit = number.get("source", "") if isinstance(number, dict) else ""
                if fit.startswith("fitted"):
                    origin = document["sources"][fit]
                    values[section, field, fit].add((number["value"], origin))
    assert len(values) > 20
    assert {key: found for key, found in values.items() if len(found) > 1} == {}
