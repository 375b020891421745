"""Owned GPUs: the shipped figures, prices made of them, own figures, and faults in a file."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from planner.errors import SpecError
from planner.estimators.ownership_cost import assumed_figures, owned_gpu_price, used_figures
from planner.specs.catalogue import Catalogue, names
from planner.specs.price import (
    DIMENSIONS,
    Price,
    can_be_owned,
    read_ownership,
    unknown_gpus,
)
from planner.specs.spec_paths import extra_files

H100 = "h100-sxm-80gb"
HEADER = "quantity,gpu,value,low,high,unit,source,date,gpus,asked"


def write(folder: Path, *rows: str) -> Path:
    path = folder / "ownership.csv"
    path.write_text("\n".join([HEADER, *rows]) + "\n", encoding="utf-8")
    return path


def price(gpu: str, folder: Path | None = None) -> Price:
    catalogue = Catalogue(folder)
    found = owned_gpu_price(catalogue.load_gpu(gpu).spec, catalogue)
    assert found is not None
    return found


def test_shipped_figures_are_of_known_gpus_and_have_sources() -> None:
    path = extra_files("ownership.csv")[-1]
    figures = read_ownership(path)
    assert {name for name, _ in figures} == set(DIMENSIONS)
    assert unknown_gpus(path) == []
    assumed = {name for (name, _), figure in figures.items() if figure.source == "assumed"}
    assert assumed == {"utilization"}, "nobody published it: a research report assumes as much"


def test_every_gpu_with_a_purchase_price_has_a_price_and_others_have_none() -> None:
    catalogue = Catalogue()
    for name in names("gpus"):
        found = owned_gpu_price(catalogue.load_gpu(name).spec, catalogue)
        assert (found is not None) == can_be_owned(name)
        if found is not None:
            assert 0 < found.low <= found.value <= found.high
            assert found.contract == "owned"
    assert not can_be_owned("h800-sxm-80gb")


def test_an_h100_costs_what_published_sums_say() -> None:
    """450,000 to 650,000 USD for 8 in three years (v2-pseo-ai), 1.2 USD/h the least said."""
    catalogue = Catalogue()
    figures = used_figures(catalogue.load_gpu(H100).spec, catalogue)
    in_use = figures["utilization"].value
    assert 1.2 < price(H100).value * 3600 * in_use < 650_000 / 8 / (3 * 8760)
    drawn = figures["power_per_gpu"].value * figures["power_share"].value
    assert drawn == pytest.approx(969, abs=1)


def test_own_figures_replace_single_shipped_ones(tmp_path: Path) -> None:
    write(tmp_path, "utilization,,0.425,,,1,ours,2026", "lifetime,h100,10,,,years,ours,2026")
    assert price("b200-sxm-180gb", tmp_path).value == pytest.approx(
        2 * price("b200-sxm-180gb").value
    )
    assert price(H100, tmp_path).value < 2 * price(H100).value
    write(tmp_path, "purchase_price,h800-sxm-80gb,30000,,,USD,ours,2026")
    assert price("h800-sxm-80gb", tmp_path).source == "bought for 30,000 USD: ours"


def test_the_range_is_that_of_independent_figures(tmp_path: Path) -> None:
    sure = [f"{name},,{value}" for name, value in (
        ("network_and_storage_share", "0,0,0,1"), ("residual_after_3_years", "0,0,0,1"),
        ("financing_rate", "0,0,0,1/year"), ("operations_share", "0,0,0,1"),
        ("electricity_price", "0,0,0,USD/kWh"), ("colocation_price", "0,0,0,USD/kW/month"),
        ("utilization", "0.5,0.25,1,1"), ("lifetime", "5,5,5,years"),
    )]  # fmt: skip
    rows = [f"{row},s,2026" for row in sure]
    write(tmp_path, *rows, f"purchase_price,{H100},4380,2190,8760,USD,s,2026")
    found = price(H100, tmp_path)
    assert found.value * 3600 == pytest.approx(4380 / 43_800 / 0.5)
    spread = math.exp(math.sqrt(2) * math.log(2))
    assert found.high / found.value == pytest.approx(spread)
    assert found.value / found.low == pytest.approx(spread)


def test_a_figure_that_is_assumed_is_named(tmp_path: Path) -> None:
    write(tmp_path, "utilization,,0.5,,,1,assumed,", "card_price,mi210,9000,,,USD,assumed,")
    catalogue = Catalogue(tmp_path)
    assert assumed_figures(catalogue.load_gpu(H100).spec, catalogue) == ["utilization"]
    mi210 = catalogue.load_gpu("mi210").spec
    assert set(assumed_figures(mi210, catalogue)) == {"utilization", "card_price"}


def test_faults_come_together_with_line_numbers(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "utilization,,0.5,,,1,s,2026",
        "utilization,,0.5,,,1,s,2026",
        "utilisation,,0.5,,,1,s,2026",
        "lifetime,,5,6,7,years,s,2026",
        "lifetime,,5,,,days per year,s,2026",
        "power_share,,0.7,,,1,,2026",
        "power_share,b,nan,,,1,s,2026",
        "power_share,a,1.2,,,1,s,2026",
        "utilization,a,0,,,1,s,2026",
        "network_and_storage_share,a,1,,,1,s,2026",
        "financing_rate,a,0.1,,,1/year,s,soon",
    )
    with pytest.raises(SpecError) as caught:
        read_ownership(path)
    lines = str(caught.value).splitlines()
    for line, (number, part) in zip(
        lines,
        enumerate(
            ["is also on line 2", "mean utilization?", "not between low 6", "'days per year'",
             "source is empty", "not finite", "at most 1", "above 0", "below 1", "date 'soon'"],
            start=3,
        ),
        strict=True,
    ):  # fmt: skip
        assert line.startswith(f"{path}:{number}: ")
        assert part in line
