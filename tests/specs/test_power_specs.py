"""Shares of power and regions as files: all shipped have sources, faults are told together."""

from __future__ import annotations

from pathlib import Path

import pytest

import planner
from planner.errors import SearchSpaceError, SpecError
from planner.question.request import Request
from planner.specs.power import (
    CARBON,
    COLUMNS,
    PUE,
    RangedValue,
    find_region,
    load_power,
    read_regions,
)
from planner.specs.spec_paths import extra_files
from planner.workloads.make_plan import make_plan

QUESTION = {"model": "llama-7b", "num_gpus": 16, "gpu": "h100", "framework": "megatron-lm"}
SPACE = {**QUESTION, "space": "small"}


def test_every_shipped_share_has_its_range_and_a_source() -> None:
    loaded = load_power()
    shares = [value for value in vars(loaded.spec).values() if isinstance(value, RangedValue)]
    assert len(shares) == 10
    assert all(one.low <= one.value <= one.high for one in shares)
    assert len(loaded.provenance) == 3 * len(shares)
    assumed = {name for name, source in loaded.provenance.items() if source == "assumed"}
    assert assumed == {"network.value", "network.low", "network.high"}


def test_a_share_without_a_source_is_told_in_every_output(tmp_path: Path) -> None:
    (path,) = extra_files("power.toml")
    text = path.read_text(encoding="utf-8")
    guessed = text.replace('unit = "1", source = "cloud"', 'unit = "1", source = "assumed"')
    assert guessed != text
    (tmp_path / "power.toml").write_text(guessed, encoding="utf-8")
    told = make_plan(Request(**QUESTION, specs=tmp_path)).assumed
    assert "power pue.value" in told
    assert "power pue.value" not in make_plan(Request(**QUESTION)).assumed


def test_faults_of_shares_are_told_together(tmp_path: Path) -> None:
    (path,) = extra_files("power.toml")
    text = path.read_text(encoding="utf-8").replace("value = 1.09", "value = 0.9")
    text = text.replace("value = 0.17", "value = 0.3")
    (tmp_path / "power.toml").write_text(text, encoding="utf-8")
    with pytest.raises(SpecError) as raised:
        load_power(tmp_path)
    assert "idle: value must lie between low and high" in str(raised.value)
    assert "pue.low must be at least 1" in str(raised.value)


def test_every_shipped_region_has_a_source_and_a_year() -> None:
    (path,) = extra_files("regions.csv")
    regions = read_regions(path)
    assert len(regions) > 300
    for region in regions.values():
        assert all(figure.source and figure.date for figure in region.figures.values()), region


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ("SE", "SWE"),
        ("swe", "SWE"),
        (" Sweden ", "SWE"),
        ("GCP europe-west4", "GCP europe-west4"),
        ("gcp_Europe-West4", "GCP europe-west4"),
        ("us-east-1", "AWS us-east-1"),
        ("Virginia", "US-VA"),
        ("Finland", "FIN"),
        ("swedencentral", "Azure swedencentral"),
    ],
)
def test_a_region_has_several_names(given: str, code: str) -> None:
    assert find_region(given).code == code


def test_a_city_of_two_clouds_is_no_name() -> None:
    with pytest.raises(SearchSpaceError, match="Unknown region"):
        find_region("Stockholm")
    assert find_region("AWS Stockholm").code == "AWS eu-north-1"


def test_an_unknown_region_is_told_with_names_near_it() -> None:
    with pytest.raises(SearchSpaceError, match="Did you mean sweden"):
        make_plan(Request(**QUESTION, region="sweeden"))


def test_a_region_of_a_cloud_has_its_buildings() -> None:
    assert find_region("GCP europe-west4").figures[PUE].value == 1.09
    assert find_region("GCP us-west1").figures[PUE].value == 1.11
    assert PUE not in find_region("SE").figures
    assert find_region("GCP europe-west4").figures[CARBON].value * 3.6e9 == pytest.approx(208.81)


@pytest.mark.parametrize(
    ("asked", "pue"),
    [({}, 1.25), ({"region": "SE"}, 1.25), ({"region": "us-west1"}, 1.11), ({"pue": 1.3}, 1.3),
     ({"region": "us-west1", "pue": 1.3}, 1.3)],
)  # fmt: skip
def test_the_building_is_as_given_else_the_region_s_else_as_published(
    asked: dict[str, object], pue: float
) -> None:
    (source,) = make_plan(Request(**QUESTION, **asked)).problem.sources
    assert source.site.power.pue.value == pue


def test_own_regions_come_first_and_their_faults_together(tmp_path: Path) -> None:
    head = ",".join(COLUMNS)
    file = tmp_path / "regions.csv"
    file.write_text(
        f"{head}\nUS-VA,Virginia,,carbon_intensity,9,gCO2e/kWh,own meter,2026\n", encoding="utf-8"
    )
    own = find_region("us-va", tmp_path).figures
    assert own[CARBON].value * 3.6e9 == pytest.approx(9)
    assert len(own) > 1, "what the own file lacks is that of the shipped one"
    file.write_text(f"{head}\nX,,,pue,1,1,own room,2026\n", encoding="utf-8")
    assert find_region("X", tmp_path).figures[PUE].value == 1
    file.write_text(
        f"{head}\nX,,,pue,0.9,1,own,2026\nX,,,carbon_intensity,9,g,own,2026\nX,,,heat,1,1,own,1\n",
        encoding="utf-8",
    )
    with pytest.raises(SpecError) as raised:
        find_region("SE", tmp_path)
    assert [f":{line}:" in str(raised.value) for line in (2, 3, 4)] == [True] * 3


@pytest.mark.parametrize("missing", COLUMNS)
def test_regions_without_a_column_are_refused(tmp_path: Path, missing: str) -> None:
    row = dict(zip(COLUMNS, ("X", "", "", "pue", "1.2", "1", "own", "2026"), strict=True))
    del row[missing]
    text = f"{','.join(row)}\n{','.join(row.values())}\n"
    (tmp_path / "regions.csv").write_text(text, encoding="utf-8")
    with pytest.raises(SpecError, match=missing):
        find_region("X", tmp_path)


@pytest.mark.parametrize("pue", [0.99, 11])
def test_an_impossible_building_is_refused(pue: float) -> None:
    with pytest.raises(SearchSpaceError, match="pue"):
        make_plan(Request(**QUESTION, pue=pue))


def test_carbon_as_an_objective_needs_a_region() -> None:
    for asked in ({"objectives": ("carbon",)}, {"constraints": {"carbon": 1e6}}):
        with pytest.raises(SearchSpaceError, match="give --region"):
            make_plan(Request(**SPACE, **asked))
    with pytest.raises(SearchSpaceError, match="none is known of GCP"):
        make_plan(Request(**SPACE, objectives=("carbon",), region="GCP"))


def test_carbon_follows_the_region_and_energy_the_building() -> None:
    def row(**asked: object) -> dict[str, float]:
        found = planner.estimate(**QUESTION, **asked)
        return dict(found.to_frame().iloc[0])

    plain, sweden, poland = row(), row(region="SE"), row(region="PL")
    assert "carbon_kg" not in plain
    ratio = poland["carbon_kg"] / sweden["carbon_kg"]
    grids = [find_region(code).figures[CARBON].value for code in ("PL", "SE")]
    assert ratio == pytest.approx(grids[0] / grids[1])
    assert row(pue=1.5)["energy_kwh"] / row(pue=1.0)["energy_kwh"] == pytest.approx(1.5)
    sure = row(pue=1.25)
    assert sure["energy_kwh"] == pytest.approx(plain["energy_kwh"])
    assert plain["energy_high_kwh"] > sure["energy_high_kwh"] > sure["energy_kwh"]
    assert plain["energy_low_kwh"] < sure["energy_low_kwh"] < sure["energy_kwh"]


def test_a_prompt_costs_more_power_than_answers() -> None:
    asked = {"model": "llama-3.1-8b", "gpu": "h100", "num_gpus": 1, "settings": {"concurrency": 8}}

    def row(workload: str, **lengths: int) -> dict[str, float]:
        found = planner.estimate(workload=workload, **asked, **lengths)
        return dict(found.to_frame().iloc[0])

    for workload in ("inference", "serve"):
        long = row(workload, input_tokens=8000, output_tokens=10)
        short = row(workload, input_tokens=10, output_tokens=1000)
        assert 0.7 * 0.97 * 1.25 < short["power_kw"] < long["power_kw"] <= 0.7 * 1.46 * 1.25
        hours = 1e6 / short["output_tokens_per_s"] / 3600
        assert short["energy_per_million_tokens_kwh"] == pytest.approx(hours * short["power_kw"])


def test_pools_draw_power_of_both_kinds_of_workers() -> None:
    found = planner.estimate(
        workload="serve",
        mode="disaggregated",
        model="llama-3.1-8b",
        gpu="h100",
        prefill_gpu="a100",
        num_gpus=4,
        settings={"concurrency": 16, "tp": 1, "replicas": 3, "prefill_replicas": 1},
        region="SE",
    )
    prefill, decode = found.candidates.draws
    row = found.to_frame().iloc[0]
    assert float(decode.boards.ravel()[0]) == pytest.approx(3 * 700 * 0.5)
    assert 0.17 * 400 <= float(prefill.boards.ravel()[0]) <= 400
    total = float((prefill.total + decode.total).ravel()[0])
    assert row["power_kw"] == pytest.approx(total / 1e3)
    grams = row["carbon_per_million_tokens_kg"] / row["energy_per_million_tokens_kwh"] * 1e3
    assert grams == pytest.approx(40.695)
