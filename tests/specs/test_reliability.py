"""Figures of failures: what ships cites its sources, own files say what differs."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from planner.base.units import HOUR
from planner.errors import SpecError
from planner.specs.catalogue import Catalogue
from planner.specs.operating_terms import IDEAL, load_reliability

RATE = '[gpu_hours_per_interruption]\ntypical = { value = 9600, unit = "h", source = "assumed" }\n'


def own_file(folder: Path, text: str, name: str = "mine") -> str:
    path = folder / f"{name}.toml"
    path.write_text(text)
    return str(path)


def test_the_published_range_is_that_of_its_fleets():
    found = load_reliability("published")
    ends = [found.spec.gpu_time("interruption", end) / HOUR for end in ("low", "typical", "high")]
    assert ends == [29_500, 50_700, 82_100]
    assumed = {key for key, source in found.provenance.items() if source == "assumed"}
    assert assumed == {
        "recovery.warm_up",
        "stragglers.gpu_hours_per_slowdown",
        "stragglers.lost_share",
    }


def test_the_shipped_rate_is_that_of_419_interruptions_in_54_days():
    typical = load_reliability("published").spec.gpu_time("interruption", "typical")
    assert typical / HOUR == pytest.approx(16_384 * 54 * 24 / 419, rel=1e-3)


def test_ideal_has_no_failures():
    spec = load_reliability("ideal").spec
    assert spec.is_ideal
    assert spec.gpu_time("interruption", "low") == math.inf
    assert not load_reliability("published").spec.is_ideal


def test_an_own_file_says_what_differs_from_published(tmp_path):
    shipped = load_reliability("published")
    own = load_reliability(own_file(tmp_path, f'name = "Ours"\nextends = "published"\n{RATE}'))
    assert own.spec.gpu_hours_per_interruption.typical == 9600 * HOUR
    assert own.spec.gpu_time("interruption", "low") == 9600 * HOUR
    assert own.spec.recovery == shipped.spec.recovery
    assert own.spec.gpu_hours_per_preemption == shipped.spec.gpu_hours_per_preemption
    assert own.provenance["gpu_hours_per_interruption.typical"] == "assumed"
    assert own.digest != shipped.digest


def test_a_rate_of_ones_own_stays_without_the_published_range_two_files_down(tmp_path):
    own_file(tmp_path, f'name = "Ours"\nextends = "published"\n{RATE}')
    text = 'name = "Fast"\nextends = "mine.toml"\n[recovery]\n'
    text += 'restart = { value = 30, unit = "s", source = "assumed" }\n'
    spec = load_reliability(own_file(tmp_path, text, "fast")).spec
    assert spec.recovery.restart == 30
    assert spec.gpu_time("interruption", "high") == 9600 * HOUR


def test_a_file_alone_has_what_it_says_and_nothing_else(tmp_path):
    spec = load_reliability(own_file(tmp_path, f'name = "Ours"\n{RATE}')).spec
    assert spec.checkpoints == IDEAL.checkpoints
    assert spec.stragglers is None


def test_a_folder_of_own_specs_is_looked_in_first(tmp_path):
    (tmp_path / "reliability").mkdir()
    own_file(tmp_path / "reliability", f'name = "Ours"\n{RATE}', "ours")
    assert Catalogue(tmp_path).load_reliability("ours").spec.name == "Ours"


FAULTS = {
    "order": (
        '[gpu_hours_per_interruption]\ntypical = { value = 1, unit = "h", source = "assumed" }\n'
        'low = { value = 2, unit = "h", source = "assumed" }\n',
        "low, typical and high must be in order",
    ),
    "unit": (RATE.replace('"h"', '"GB"'), "GB"),
    "zero": (RATE.replace("9600", "0"), "must be greater than 0"),
    "source": (RATE.replace("assumed", "hearsay"), "hearsay"),
    "key": (RATE.replace("typical", "tipical"), "typical"),
    "share": ('spare_share = { value = 2, unit = "1", source = "assumed" }', "at most 1"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_name_their_key(tmp_path, fault):
    text, words = FAULTS[fault]
    head = 'name = "Ours"\n'
    with pytest.raises(SpecError, match=words):
        load_reliability(own_file(tmp_path, head + text))


def test_an_unknown_name_has_a_hint():
    with pytest.raises(SpecError, match="Did you mean published"):
        load_reliability("publishd")
