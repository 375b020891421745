"""Which engine profile stands for an engine by name, in which version and on which device."""

from __future__ import annotations

import re
from functools import cache

from planner.base.records import record
from planner.confidence.tables import read_table
from planner.specs.engine import EngineProfile


@record(kw_only=True)
class EngineRule:
    """Which profile stands for an engine; ``nearest``: it is only the closest to it.

    ``version`` is a pattern of versions it holds for; a run without a version is taken to
    have one of them ``until`` this year. ``gpu`` and ``mode`` are patterns of the devices and
    of the modes of runs that it holds for. ``stages``: how those of its pipelines work on a
    static batch. ``all_logits``: bytes of a logit where those of whole prompts are computed.
    """

    pattern: str
    mode: str
    gpu: str
    version: str
    until: int | None
    label: str
    profile: str
    nearest: bool
    stages: str
    all_logits: float

    def matches(self, engine: str, version: str, year: float | None, gpu: str, mode: str) -> bool:
        """Whether it is about this engine in this version on this device in this mode."""
        found = ((self.pattern, engine.lower()), (self.gpu, gpu), (self.mode, mode))
        if not all(re.search(pattern, word) for pattern, word in found):
            return False
        if not self.version:
            return True
        if version:
            return re.search(self.version, version) is not None
        return year is not None and self.until is not None and year <= self.until


@cache
def engine_rule(
    engine: str, version: str = "", year: float | None = None, gpu: str = "", mode: str = ""
) -> EngineRule:
    """The first rule that matches an engine; the last one matches all."""
    asked = (engine, version, year, gpu, mode)
    return next(rule for rule in _engine_rules() if rule.matches(*asked))


def engine_labels() -> tuple[str, ...]:
    """The names of the engines that there are rules for."""
    return tuple(dict.fromkeys(rule.label for rule in _engine_rules()))


def rule_of_profile(engine: EngineProfile, gpu: str) -> EngineRule:
    """The rule of a profile by its name.

    Of rules whose label that is, the last one: those before it are of some devices, or older. Of a
    name that no label is, a number behind it is a version.
    """
    named = [rule for rule in _engine_rules() if rule.label == engine.name]
    if named:
        return named[-1]
    name, _, version = engine.name.rpartition(" ")
    if not name or not version[:1].isdecimal():
        name, version = engine.name.replace(" ", "-"), ""
    return engine_rule(name, version, gpu=gpu)


@cache
def _engine_rules() -> tuple[EngineRule, ...]:
    return tuple(
        EngineRule(
            pattern=row["pattern"],
            mode=row["mode"],
            gpu=row["gpu"],
            version=row["version"],
            until=int(row["until"]) if row["until"] else None,
            label=row["label"],
            profile=row["profile"],
            nearest=row["nearest"] == "1",
            stages=row["stages"],
            all_logits=float(row["all_logits"] or 0),
        )
        for row in read_table("engines.csv")
    )
