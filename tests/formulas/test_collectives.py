"""Volumes, bandwidths and times of collectives."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from planner.formulas.collectives import (
    all_to_all_bandwidth,
    bus_volume,
    collective_time,
    group_bandwidth,
    large_scale_slowdown_time,
    network_latency,
    point_to_point_time,
    ranks_per_domain,
    ring_latency,
)


def _simulated_ring(n: int, num_bytes: float) -> float:
    """Bytes one rank sends in a ring all-reduce: n-1 shards scattered, n-1 gathered."""
    steps_of_each_phase = n - 1
    return sum(num_bytes / n for _ in range(2 * steps_of_each_phase))


@pytest.mark.parametrize("n", [1, 2, 3, 8, 64])
def test_ring_all_reduce_moves_2_n_minus_1_over_n(n: int) -> None:
    """nccl-tests PERFORMANCE.md, all-reduce: 2(n-1)/n."""
    volume = bus_volume(num_bytes=6e6, group_size=n, passes=2)
    assert volume == pytest.approx(_simulated_ring(n, 6e6))


@pytest.mark.parametrize(
    ("stride", "size", "domain", "expected"),
    [
        pytest.param(1, 8, 8, 8, id="tensor group fills the node"),
        pytest.param(8, 16, 8, 1, id="one data-parallel rank per node"),
        pytest.param(2, 16, 8, 4, id="four of its ranks per node"),
        pytest.param(3, 16, 8, 2, id="strides that do not divide the node"),
        pytest.param(1, 16, 8, 8, id="tensor group over two nodes"),
        pytest.param(16, 4, 8, 1, id="strides over a node"),
        pytest.param(4, 8, 72, 8, id="NVL72 holds the whole group"),
    ],
)
def test_ranks_per_domain(stride: int, size: int, domain: int, expected: int) -> None:
    placed = [rank * stride // domain for rank in range(size)]
    counted = ranks_per_domain(group_size=size, stride=stride, domain_size=domain)
    assert counted == expected
    assert counted <= max(placed.count(node) for node in placed)


@pytest.mark.parametrize(
    ("local", "expected"),
    [
        pytest.param(1, 25e9, id="one rank per node: its own NIC"),
        pytest.param(2, 50e9, id="two ranks per node: two NICs"),
        pytest.param(4, 100e9, id="four ranks per node: four NICs"),
        pytest.param(8, 200e9, id="eight ranks per node: all NICs of a DGX A100"),
    ],
)
def test_ring_over_nodes_uses_the_nics_of_its_local_ranks(local: int, expected: float) -> None:
    rate = {"scale_up": 300e9, "scale_out": 25e9}
    assert group_bandwidth(ranks_in_domain=local, group_size=16, domain_size=8, **rate) == expected


@pytest.mark.parametrize(
    ("local", "sharing", "expected"),
    [
        pytest.param(1, 2, 12.5e9, id="eight groups, two to a NIC"),
        pytest.param(2, 2, 12.5e9, id="four groups, one ring each: two to a NIC"),
        pytest.param(4, 2, 25e9, id="two groups, two rings each"),
        pytest.param(2, 4, 12.5e9, id="no less than the share of one GPU"),
        pytest.param(8, 2, 100e9, id="one group has all NICs"),
    ],
)
def test_groups_of_some_gpus_meet_on_shared_nics(local: int, sharing: int, expected: float) -> None:
    bandwidth = group_bandwidth(
        ranks_in_domain=local,
        group_size=16,
        scale_up=300e9,
        scale_out=12.5e9,
        domain_size=8,
        gpus_per_nic=sharing,
    )
    assert bandwidth == expected


@pytest.mark.parametrize(("most", "expected"), [(0, 200e9), (1, 25e9), (2, 50e9), (16, 200e9)])
def test_software_may_leave_a_node_by_fewer_nics(most: int, expected: float) -> None:
    rate = {"scale_up": 300e9, "scale_out": 25e9, "domain_size": 8, "most_nics": most}
    assert group_bandwidth(ranks_in_domain=8, group_size=16, **rate) == expected
    assert group_bandwidth(ranks_in_domain=8, group_size=8, **rate) == 300e9


def test_ring_over_nodes_is_not_faster_than_the_fabric() -> None:
    rate = {"scale_up": 100e9, "scale_out": 25e9, "domain_size": 8}
    assert group_bandwidth(ranks_in_domain=8, group_size=16, **rate) == 100e9
    assert group_bandwidth(ranks_in_domain=8, group_size=8, **rate) == 100e9


@pytest.mark.parametrize(
    ("size", "local", "sent", "seconds"),
    [
        pytest.param(8, 8, 1.0, 7 / 300, id="inside a node: the fabric"),
        pytest.param(16, 8, 1.0, 8 / 25, id="two nodes: eight pieces by the rank's own NIC"),
        pytest.param(16, 8, 0.5, 4 / 25, id="half of them deduplicated"),
        pytest.param(16, 8, 0.05, 7 / 300, id="the fabric decides once little leaves"),
        pytest.param(4, 1, 1.0, 3 / 25, id="one rank per node"),
    ],
)
def test_all_to_all_sends_pieces_over_fabric_and_network(
    size: int, local: int, sent: float, seconds: float
) -> None:
    """Pieces of 1 GB; unlike a ring no rank uses another's network interface."""
    rate = all_to_all_bandwidth(
        ranks_in_domain=local,
        group_size=size,
        scale_up=300e9,
        scale_out=25e9,
        sent_across=sent,
    )
    assert (size - 1) * 1e9 / rate == pytest.approx(seconds, rel=1e-12)


@pytest.mark.parametrize(
    ("domains", "microseconds"),
    [(1, 0.0), (2, 19.0), (4, 31.0), (16, 55.0), (128, 91.0)],
)
def test_network_latency_grows_by_the_logarithm(domains: int, microseconds: float) -> None:
    """19 us + 12 us log2(k/2): 19-21 us over 2 nodes and 62-77 us over 16 were measured."""
    latency = network_latency(num_domains=domains, base_latency=19e-6, latency_per_doubling=12e-6)
    assert latency * 1e6 == pytest.approx(microseconds)


A100_ALL_REDUCE = {
    "bandwidth": 252e9,
    "base_latency": 8e-6,
    "latency_per_rank": 1.87e-6,
    "ramp_bytes": 5.8e6,
    "small_group_penalty": 0.34,
}


def test_collective_time_by_hand() -> None:
    """An all-reduce of 64 MB over 8 A100: V = 112 MB, sqrt(V V0) = 25.487 MB."""
    time = collective_time(volume=112e6, group_size=8, **A100_ALL_REDUCE)
    expected = 8e-6 + 7 * 1.87e-6 + (112e6 + 25.48725e6) / (252e9 * 8 / 8.34)
    assert time == pytest.approx(expected, rel=1e-6)


def test_collective_time_limits() -> None:
    large = collective_time(volume=1e15, group_size=8, **A100_ALL_REDUCE)
    assert large == pytest.approx(1e15 / 252e9 * (8.34 / 8), rel=1e-3)
    alone = collective_time(volume=0.0, group_size=1, **A100_ALL_REDUCE)
    assert alone == 0
    empty = collective_time(volume=0.0, group_size=np.array([2, 9]), **A100_ALL_REDUCE)
    assert empty == pytest.approx([9.87e-6, 22.96e-6])


def test_message() -> None:
    """1 MB at 25 GB/s after 19 us."""
    time = point_to_point_time(num_bytes=1e6, bandwidth=25e9, latency=19e-6)
    assert time == pytest.approx(59e-6)


@pytest.mark.parametrize(
    ("domains", "local", "microseconds"),
    [(1, 8, 0.0), (2, 8, 17.0), (3, 8, 34.0), (2, 1, 10.0), (64, 8, 63 * 17.0)],
)
def test_rings_pass_every_rank_of_every_domain(
    domains: int, local: int, microseconds: float
) -> None:
    """Counted hop by hop: 10 us between domains, 1 us inside; the first domain's are elsewhere."""
    ranks = [(domain, rank) for domain in range(domains) for rank in range(local)]
    hops = pairwise(ranks)
    counted = sum(10.0 if a[0] != b[0] else 1.0 for a, b in hops) - (local - 1)
    latency = ring_latency(
        num_domains=domains, ranks_in_domain=local, hop=10e-6, latency_per_rank=1e-6
    )
    assert latency * 1e6 == pytest.approx(counted)
    assert counted == pytest.approx(microseconds)


@pytest.mark.parametrize(
    ("gpus", "percent"),
    [
        pytest.param(8, 0.0, id="a node"),
        pytest.param(512, 0.0, id="a pod"),
        pytest.param(2048, 3.0, id="published: 2 to 6 % from 256 to 2,048 GPUs"),
    ],
)
def test_steps_last_longer_beyond_a_pod(gpus: int, percent: float) -> None:
    wait = large_scale_slowdown_time(
        step_time=100.0, num_gpus=gpus, pod_size=512, slowdown_per_doubling=0.015
    )
    assert wait == pytest.approx(percent)
