"""Power and energy: published runs, and what must hold for all."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import planner
from planner.estimators.machine import Machine
from planner.estimators.power_draw import PARTS, power_draw, power_range
from planner.formulas.power import (
    board_share,
    carbon,
    energy,
    facility_power,
    network_share,
    range_of_product,
    range_of_sum,
)
from planner.specs.catalogue import default_cluster
from planner.specs.hardware import load_gpu
from planner.specs.power import load_power

MWH, HOUR = 3.6e9, 3600.0
SHARES = st.floats(0, 1)


def machine(gpu: str) -> Machine:
    spec = load_gpu(gpu)
    return Machine(gpu=spec, cluster=default_cluster(spec))


def drawn(gpu: str, hours: float, num_gpus: int, pue: float) -> dict[str, float]:
    """MWh of a run of so many GPU-hours by part, its boards at their mean in training."""
    profile = load_power().spec.with_pue(pue)
    draw = power_draw(machine(gpu), profile, num_gpus, lambda shares: shares.train.value)
    seconds = hours / num_gpus * HOUR
    parts = {part: float(energy(power=getattr(draw, part), duration=seconds)) for part in PARTS}
    parts["total"] = float(energy(power=draw.total, duration=seconds))
    return {part: joules / MWH for part, joules in parts.items()}


# GPU-hours and their MWh as published, and how far off ours may be. GPT-3 reached a fifth of the
# V100's peak, so that its boards drew less than those of busy GPUs.
SYSTEMS = [
    pytest.param(
        "a100-sxm-80gb", 1_082_990, 384, 1.0, 433.196 + 256.646, 0.10,
        id="BLOOM: GPUs at 400 W and what nodes draw idle, arXiv:2211.02001 section 4.2",
    ),
    pytest.param(
        "v100-sxm-32gb", 14.8 * 24 * 10_000, 10_000, 1.10, 1287, 0.40,
        id="GPT-3: 330 W a GPU, hosts and network included, arXiv:2104.10350 table 4",
    ),
    pytest.param(
        "h100-sxm-80gb", 8, 8, 1.0, 0.0084, 0.10,
        id="HGX node training Llama 2 13B, 8.4 kW at most, arXiv:2412.08602",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("gpu", "hours", "num_gpus", "pue", "megawatt_hours", "off"), SYSTEMS)
def test_published_energy_of_whole_systems(
    gpu: str, hours: float, num_gpus: int, pue: float, megawatt_hours: float, off: float
) -> None:
    found = drawn(gpu, hours, num_gpus, pue)["total"]
    assert found == pytest.approx(megawatt_hours, rel=off)
    assert found > hours * load_gpu(gpu).thermal_design_power * HOUR / MWH


# By the authors' convention GPUs draw their design power, hosts draw nothing.
CONVENTION = [
    pytest.param(1_022_362, 400, 1.1, 449, id="LLaMA 65B, arXiv:2302.13971 table 15"),
    pytest.param(1_082_990, 400, 1.0, 433.196, id="BLOOM, arXiv:2211.02001 section 4.2"),
]


@pytest.mark.parametrize(("hours", "watts", "pue", "megawatt_hours"), CONVENTION)
def test_published_energy_of_gpus_at_their_design_power(
    hours: float, watts: float, pue: float, megawatt_hours: float
) -> None:
    power = watts + facility_power(it_power=watts, power_usage_effectiveness=pue)
    found = energy(power=power, duration=hours * HOUR) / MWH
    assert found == pytest.approx(megawatt_hours, rel=2e-3)


EMITTED = [
    pytest.param(449, 0.385, 173, id="LLaMA 65B, US average, arXiv:2302.13971 table 15"),
    pytest.param(433.196, 0.057, 24.69, id="BLOOM, France, arXiv:2211.02001 section 4.2"),
    pytest.param(1287, 0.429, 552, id="GPT-3, arXiv:2104.10350 table 4"),
]


@pytest.mark.parametrize(("megawatt_hours", "intensity", "tonnes"), EMITTED)
def test_published_carbon(megawatt_hours: float, intensity: float, tonnes: float) -> None:
    found = carbon(energy=megawatt_hours * MWH, carbon_intensity=intensity / 3.6e6)
    assert found / 1e3 == pytest.approx(tonnes, rel=2e-3)


BOARDS = [
    pytest.param("olmo-3-7b", "none", 234_000, 146, id="Olmo 3 7B, 621 W"),
    pytest.param("olmo-3-32b", "full", 1_050_000, 681, id="Olmo 3 32B, 649 W"),
]


@pytest.mark.parametrize(("model", "recompute", "hours", "megawatt_hours"), BOARDS)
def test_measured_energy_of_boards(
    model: str, recompute: str, hours: float, megawatt_hours: float
) -> None:
    """Boards of a predicted step over the GPU-hours of the run, as its authors measured them.

    The shares that they draw computing and waiting are of other sources.
    """
    # Sequences of 8,192, sharded over 32 GPUs, as the scripts of allenai/OLMo-core have it.
    found = planner.estimate(
        model=model, num_gpus=1024, gpu="h100", framework="torchtitan", sequence_length=8192,
        global_batch_size=1024, settings={"data_parallel_replicas": 32, "recompute": recompute},
    )  # fmt: skip
    (draw,) = found.candidates.draws
    watts = float(draw.boards.ravel()[0]) / 1024
    assert watts * hours / 1e6 == pytest.approx(megawatt_hours, rel=0.10)


def test_a_node_under_training_draws_what_was_measured() -> None:
    """76 % of 10.2 kW, arXiv:2506.14551: 1.38 times the design power of the GPUs."""
    found = drawn("h100-sxm-80gb", 8, 8, 1.0)
    assert found["total"] * 1e6 / 8 == pytest.approx(969, rel=0.01)
    assert found["network"] == found["facility"] == 0


@given(active=SHARES, waiting=SHARES, low=SHARES, high=SHARES)
def test_power_rises_with_the_time_that_is_computed(
    active: float, waiting: float, low: float, high: float
) -> None:
    waiting, active = sorted((waiting, active))
    less, more = (
        float(board_share(active=active, waiting=waiting, time_share=share))
        for share in sorted((low, high))
    )
    assert waiting - 1e-12 <= less <= more + 1e-12 <= active + 2e-12


@given(
    gpu=st.sampled_from(["h100-sxm-80gb", "gb200-nvl72", "a100-sxm-40gb", "rtx4090"]),
    num_gpus=st.integers(1, 10**6),
    share=SHARES,
    pue=st.floats(1, 3),
)
def test_parts_add_up_to_the_total(gpu: str, num_gpus: int, share: float, pue: float) -> None:
    profile = load_power().spec.with_pue(pue)
    draw = power_draw(machine(gpu), profile, num_gpus, lambda _: share)
    parts = [float(getattr(draw, part)) for part in PARTS]
    assert sum(parts) == pytest.approx(float(draw.total), rel=1e-12)
    assert min(parts) >= 0
    assert float(draw.total) >= pue * float(draw.boards) * (1 - 1e-12)


@given(num_gpus=st.integers(1, 10**6), pue=st.none() | st.floats(1, 3))
def test_a_range_of_power_holds_the_published_ends(num_gpus: int, pue: float | None) -> None:
    profile = load_power().spec
    profile = profile if pue is None else profile.with_pue(pue)
    low, high = power_range(machine("h100-sxm-80gb"), profile, num_gpus, profile.train)
    assert 0 < low < 1 < high < math.inf
    if pue is None:
        assert low < profile.pue.low / profile.pue.value
        assert high > profile.pue.high / profile.pue.value


def test_racks_have_their_own_hosts_and_no_switches_between_trays() -> None:
    profile = load_power().spec
    rack = power_draw(machine("gb200-nvl72"), profile, 72, lambda _: 1.0)
    assert rack.hosts == pytest.approx(72 * 1200 * profile.rack_host.value)
    assert rack.network == 0
    assert power_draw(machine("gb200-nvl72"), profile, 144, lambda _: 1.0).network > 0
    node = power_draw(machine("h100-sxm-80gb"), profile, np.array([8, 16]), lambda _: 1.0)
    assert (node.network > 0).tolist() == [False, True]


def test_an_unknown_design_power_is_unknown_energy() -> None:
    known = machine("h100-sxm-80gb")
    profile = load_power().spec
    assert np.isnan(power_draw(known, None, 8, lambda _: 1.0).total)
    bare = replace(known.gpu, thermal_design_power=None)
    draw = power_draw(Machine(gpu=bare, cluster=known.cluster), profile, 8, lambda _: 1.0)
    assert np.isnan(draw.total)


def test_the_network_is_a_share_of_the_whole() -> None:
    share = float(network_share(share_of_it=0.1, is_spread=True))
    assert share / (1 + share) == pytest.approx(0.1)
    assert network_share(share_of_it=0.1, is_spread=False) == 0


def test_ranges_by_hand() -> None:
    assert range_of_sum((3.0, 0.0, 3.0), (7.0, 3.0, 7.0)) == (0.5, 1.0)
    low, high = range_of_product((math.exp(-3), math.exp(6)), (math.exp(-4), math.exp(8)))
    assert (math.log(low), math.log(high)) == (pytest.approx(-5), pytest.approx(10))
    assert range_of_product((0.0, math.inf), (0.5, 2.0)) == (0.0, math.inf)
    # One that does not hold 1 moves both ends.
    assert range_of_product((2.0, 2.0), (0.5, 2.0)) == (pytest.approx(1.0), pytest.approx(4.0))
