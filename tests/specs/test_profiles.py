"""The shipped profiles agree with each other and with what they cite."""

from __future__ import annotations

import dataclasses
import re
from collections import defaultdict
from pathlib import Path

import pytest
import tomlkit

from planner.errors import SpecError
from planner.specs.catalogue import find, names
from planner.specs.software_profile import kind_of_profile, load_engine, load_framework
from planner.specs.spec_paths import SpecKind

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


def profile_file(folder: Path, text: str, name: str = "mine") -> str:
    """The path of a profile with this text."""
    path = folder / f"{name}.toml"
    path.write_text(text)
    return str(path)


STEP = '[execution]\nstep_overhead = { value = 3, unit = "ms", source = "assumed" }\n'


def test_an_engine_that_extends_another_differs_where_it_says_so(tmp_path: Path) -> None:
    shipped = load_engine("vllm")
    own = load_engine(profile_file(tmp_path, f'name = "Ours"\nextends = "vllm"\n{STEP}'))
    assert own.spec.execution.step_overhead == 0.003
    execution = dataclasses.replace(
        own.spec.execution, step_overhead=shipped.spec.execution.step_overhead
    )
    same = dataclasses.replace(own.spec, name="vLLM", execution=execution)
    assert same == dataclasses.replace(shipped.spec, aliases=(), notes="", current=False, since="")
    assert own.provenance["execution.step_overhead"] == "assumed"
    others = {key: text for key, text in own.provenance.items() if "step_overhead" not in key}
    assert others == {key: shipped.provenance[key] for key in others}
    assert own.digest != shipped.digest


def test_profiles_extend_each_other_over_several_files(tmp_path: Path) -> None:
    profile_file(tmp_path, f'name = "Middle"\nextends = "fsdp"\n{STEP}', "middle")
    last = load_framework(
        profile_file(tmp_path, 'name = "Last"\nextends = "middle.toml"\nnotes = "short"\n', "last")
    ).spec
    fsdp = load_framework("fsdp").spec
    assert last.execution.step_overhead == 0.003
    assert last.states == fsdp.states
    assert (last.name, last.notes, last.aliases) == ("Last", "short", ())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('name = "A"\nextends = "vlm"\n', "extends: Unknown engine 'vlm'. Did you mean vllm"),
        ('name = "A"\nextends = "mine.toml"\n', "extends leads back to 'mine.toml'"),
        ('name = "A"\nextends = "no/such.toml"\n', "there is no such file"),
        ('name = "A"\nextends = 3\n', "extends must be the name or the path of a profile"),
        ('extends = "vllm"\n', "name is missing"),
        ('name = "A"\nextends = "vllm"\n[execution]\nstep_overhed = 3\n', "step_overhead"),
    ],
)
def test_faults_of_what_extends_name_the_file(tmp_path: Path, text: str, words: str) -> None:
    path = profile_file(tmp_path, text)
    with pytest.raises(SpecError, match=re.escape(words)) as fault:
        load_engine(path)
    assert path in str(fault.value)


def test_files_tell_which_kind_of_profile_they_are(tmp_path: Path) -> None:
    kinds = {"vllm": SpecKind.ENGINES, "fsdp": SpecKind.FRAMEWORKS}
    for parent, kind in kinds.items():
        path = profile_file(tmp_path, f'name = "{parent}"\nextends = "{parent}"\n{STEP}')
        assert kind_of_profile(Path(path)) is kind
        assert kind_of_profile(find(kind, parent)) is kind
