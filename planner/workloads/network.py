"""The network between nodes in words: "10GbE per node", "100 Gbit/s per GPU", "8x NDR per node"."""

from __future__ import annotations

import math
import re
from dataclasses import replace

from planner.base.units import UNITS
from planner.errors import SearchSpaceError
from planner.specs.gpu import ClusterSpec

_GBIT = UNITS["byte/s"]["Gbit/s"]
_INFINIBAND = {"EDR": 100, "HDR": 200, "NDR": 400, "XDR": 800}
# A port of today's adapters; several carry more where the words do not count them.
_FASTEST_PORT = 400 * _GBIT
_SIZES = {"k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}
_NETWORK = (
    r"\s*(?:(?P<count>\d+)\s*[x*]\s*)?"
    r"(?:(?P<rate>\d+(?:\.\d+)?)[ -]?(?P<size>[kKMGTgmt])(?P<unit>\w*(?:/s)?)|(?P<name>[EHNX]DR))"
    r"(?:\s*(?:infiniband|ib|roce|ethernet|nics?|ports?)\b)*"
    r"\s*(?:per|/|an?|each|for each)\s*(?P<owner>node|host|server|machine|gpu|card)s?\s*"
)
_BITS = ("be", "b/s", "bps", "bit/s", "bits/s", "bit", "bits", "igabit", "")
_BYTES = ("B/s", "Bps", "byte/s", "bytes/s")
_HOW = (
    'write the rate and its owner: "10GbE per node", "100 Gbit/s per GPU", "25 GB/s per GPU", '
    '"8x NDR per node"'
)


def with_network(cluster: ClusterSpec, network: str | None) -> ClusterSpec:
    """The cluster with the network that ``network`` describes; None: unchanged.

    The GPUs of a node share its ports evenly.

    Raises SearchSpaceError if the text cannot be parsed, or the rate is not positive.
    """
    if network is None:
        return cluster
    number, rate, is_of_node = _parse_network(network)
    per_node = cluster.gpus_per_node
    bandwidth = number * rate
    gpus_per_nic = 1
    if is_of_node:
        ports = number if number > 1 else math.ceil(rate / _FASTEST_PORT)
        bandwidth, gpus_per_nic = bandwidth / per_node, max(round(per_node / ports), 1)
    out = replace(cluster.scale_out, bandwidth=bandwidth, gpus_per_nic=gpus_per_nic)
    return replace(cluster, scale_out=out)


def _parse_network(network: str) -> tuple[int, float, bool]:
    """Parse a network: number of ports, bytes/s of a port, True if the ports are per node."""
    match = re.fullmatch(_NETWORK, network, re.IGNORECASE)
    if match is None:
        raise SearchSpaceError(f"--network {network!r}: {_HOW}.")
    number = int(match["count"] or 1)
    if match["name"]:
        rate = _INFINIBAND[match["name"].upper()] * _GBIT
    else:
        rate = (
            float(match["rate"])
            * _SIZES[match["size"].lower()]
            * _parse_unit(match["unit"], network)
        )
    if not 0 < number * rate < math.inf:
        raise SearchSpaceError(f"--network {network!r} is not a rate: {_HOW}.")
    return number, rate, match["owner"].lower() not in ("gpu", "card")


def _parse_unit(unit: str, network: str) -> float:
    """Bytes of the unit of a rate: 1 for GB/s; 1/8 for Gb/s, Gbps, GbE and G."""
    if unit in _BYTES:
        return 1.0
    if unit.lower() in _BITS:
        return 1 / 8
    raise SearchSpaceError(f"--network {network!r}: {unit} is not a unit of a rate; {_HOW}.")
