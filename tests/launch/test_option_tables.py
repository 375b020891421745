"""Every option of the tables of targets is one that their parsers accept, at their version."""

from __future__ import annotations

import csv
import re
from importlib.resources import files

import pytest
from rows import each

from planner.launch.option_table import FLAG, VALUE, OptionRole
from planner.launch.target import LaunchTarget
from planner.launch.targets import target_of, targets
from planner.question.terms import terms_of
from planner.workloads.registry import workload_of

WRITTEN = (OptionRole.IS, OptionRole.WITH, OptionRole.ALWAYS)
EVERY = list(targets())


def accepted(target: LaunchTarget) -> dict[str, dict[str, str]]:
    """The rows of what its parsers accept, by name and alias."""
    found = {}
    for stem in target.accepted:
        text = files("planner").joinpath(f"launch/accepted/{stem}.tsv").read_text(encoding="utf-8")
        for row in csv.DictReader(text.splitlines(), delimiter="\t"):
            for name in (row["name"], *filter(None, (row["aliases"] or "").split("|"))):
                found[name] = row
    return found


@pytest.mark.parametrize("name", EVERY)
def test_every_written_option_is_accepted(name: str) -> None:
    target = target_of(name)
    known = accepted(target)
    unknown = {row.option for row in target.table.rows if row.role in WRITTEN} - set(known)
    assert not unknown


@each("name", ["tensorrt-llm", "llama-server"])
def test_each_written_option_of_a_tool_without_a_parser_here_was_found_in_its_source(
    name: str,
) -> None:
    text = files("planner").joinpath("launch/accepted/written.tsv").read_text(encoding="utf-8")
    rows = list(csv.DictReader(text.splitlines(), delimiter="\t"))
    found = {row["option"]: row for row in rows if row["target"] == name}
    assert all(re.search(r"\.(py|md) of .+ at [0-9a-f]{7,}", row["read_in"]) for row in rows)
    for row in target_of(name).table.rows:
        if row.role in WRITTEN:
            choices = found[row.option]["choices"].split("|")
            is_open = row.text == FLAG or VALUE in row.text or choices == [""]
            assert is_open or row.text in choices, f"{row.option} {row.text}"


@each("name", EVERY)
def test_every_text_is_a_choice_where_there_are_choices(name: str) -> None:
    target = target_of(name)
    known = accepted(target)
    for row in target.table.rows:
        choices = known.get(row.option, {}).get("choices") or ""
        is_text = row.role in WRITTEN and row.text != FLAG and VALUE not in row.text
        if is_text and choices:
            words = {word.rpartition(".")[2] for word in choices.split("|")}
            words |= {"null"} if known[row.option]["default"] == "None" else set()
            assert row.text in words, f"{row.option} {row.text}"


@each("name", EVERY)
def test_every_parameter_of_a_plan_has_a_row(name: str) -> None:
    """It is written, worked out by the target, or told to be impossible; never forgotten."""
    target = target_of(name)
    for workload in target.workloads:
        missing = {*terms_of(workload, "parameter")} - {"num_gpus", *target.table.parameters}
        assert not missing


@each("name", EVERY)
def test_what_is_not_written_has_its_reason(name: str) -> None:
    for row in target_of(name).table.rows:
        if row.role in (OptionRole.NONE, OptionRole.LEFT, OptionRole.DERIVED):
            assert row.note, f"{row.parameter} {row.value}"
        if row.role in WRITTEN:
            assert row.option
            assert row.text


@each("name", EVERY)
def test_profiles_exist(name: str) -> None:
    from planner.specs.catalogue import Catalogue

    target = target_of(name)
    for profile in target.profiles:
        kind = workload_of(target.workloads[0]).profile_kind
        assert Catalogue().load_profile(kind, profile).spec.name == profile
