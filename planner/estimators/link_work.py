"""What collectives and messages do, as `planner.estimators.ledger` keeps it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from planner.base.arrays import BoolArray, FloatArray, Numeric
from planner.estimators.ledger import LATENCY, LINK, NETWORK, Work
from planner.specs.cluster import ClusterSpec


def exchange_work(
    kind: str,
    links: Mapping[str, Any],
    time: FloatArray,
    volume: Numeric,
    bandwidth: FloatArray,
    peak: FloatArray,
) -> Work:
    """A collective that moves a ``volume`` past each rank, at a ``bandwidth``, at best at ``peak``.

    ``links``: ranks of the group and of one domain, and what fabric and network reach. It is bound
    by the network where that, not the fabric, limits its bandwidth; what starts it and what small
    messages lose is latency.
    """
    size, local = np.asarray(links["group_size"], np.float64), np.asarray(links["ranks_in_domain"])
    pieces = (size - 1) / np.maximum(local - 1, 1) if kind == "all_to_all" else 1.0
    by_network = (size > local) & (bandwidth < links["scale_up"] * pieces * (1 - 1e-9))
    moving = np.where(size > 1, volume / bandwidth, 0.0)
    return Work(
        formula="collective",
        time=time,
        at_peak=np.where(size > 1, volume / peak, 0.0),
        terms={
            NETWORK: np.where(by_network, moving, 0.0),
            LINK: np.where(by_network, 0.0, moving),
            LATENCY: np.maximum(time - moving, 0.0),
        },
        figures={
            "volume": volume,
            "bandwidth": bandwidth,
            "peak_bandwidth": peak,
            "group_size": size,
            "ranks_in_domain": local,
        },
        key=f"efficiency.collective.{kind}",
    )


def message_work(
    cluster: ClusterSpec,
    inside: BoolArray,
    num_bytes: Numeric,
    time: FloatArray,
    latency: FloatArray,
) -> Work:
    """A message to one other GPU, ``inside`` a domain or over the network."""
    peak = np.where(inside, cluster.scale_up.bandwidth, cluster.scale_out.bandwidth)
    moving = time - latency
    return Work(
        formula="message",
        time=time,
        at_peak=num_bytes / peak,
        terms={
            LINK: np.where(inside, moving, 0.0),
            NETWORK: np.where(inside, 0.0, moving),
            LATENCY: latency,
        },
        figures={
            "volume": num_bytes,
            "bandwidth": num_bytes / np.maximum(moving, np.finfo(np.float64).tiny),
            "peak_bandwidth": peak,
        },
        key="efficiency.collective.all_gather",
    )
