"""Time of all-reduce, all-gather, all-to-all and point-to-point, and its exposed part."""

from __future__ import annotations

import numpy as np

from planner.base.arrays import FloatArray, Numeric


def ranks_per_domain(*, group_size: Numeric, stride: Numeric, domain_size: Numeric) -> FloatArray:
    r"""Return how many ranks of a communication group share one scale-up domain.

    .. math:: \min\left(n, \max\left(\lfloor D / d \rfloor, 1\right)\right)

    Consecutive ranks of the group are d = ``stride`` GPUs apart.

    Derived here.
    """
    fitting_ranks = np.maximum(np.floor(domain_size / np.asarray(stride)), 1)
    return np.minimum(group_size, fitting_ranks)


def group_bandwidth(
    *,
    ranks_in_domain: Numeric,
    group_size: Numeric,
    scale_up: Numeric,
    scale_out: Numeric,
    domain_size: int,
    gpus_per_nic: int = 1,
    most_nics: int = 0,
) -> FloatArray:
    r"""Return the bandwidth per rank of a ring over the group [byte/s].

    .. math:: \min(W_{up}, g W_{out})

    A ring that leaves the domain uses the network interfaces of all its local ranks:
    the smaller of the fabric and g interfaces; other groups use their own. A ring inside the
    domain has the fabric.

    Where s GPUs share an interface, g/s rings enter and leave the domain, each by one
    interface (NCCL keeps a ring on its NIC, NCCL_CROSS_NIC). A group that fills the domain
    has the interfaces to itself; the rings of s groups of some of its GPUs meet on each.
    Software that forms fewer rings leaves a node by ``most_nics`` of them (0: by all).

    Derived here: a ring is as fast as its slowest link.
    """
    g = np.asarray(ranks_in_domain, dtype=np.float64)
    shares = np.where(g < domain_size, np.maximum(g / gpus_per_nic, 1), g)
    if most_nics:
        shares = np.minimum(shares, most_nics)
    across = np.minimum(scale_up, shares * np.asarray(scale_out))
    return np.where(np.asarray(group_size) > ranks_in_domain, across, scale_up)


def all_to_all_bandwidth(
    *,
    ranks_in_domain: Numeric,
    group_size: Numeric,
    scale_up: Numeric,
    scale_out: Numeric,
    sent_across: Numeric = 1.0,
) -> FloatArray:
    r"""Return the bandwidth per rank of an all-to-all [byte/s].

    .. math:: \min\left(W_{up} \frac{n - 1}{g - 1}, W_{out} \frac{n - 1}{c (n - g)}\right)

    Of the n - 1 pieces g - 1 stay in the domain and n - g leave it, each rank through its
    own network interface; both happen at once, the slower one decides. ``sent_across`` c is
    the share of the leaving bytes that the network really carries.

    Derived here.
    """
    n, g = np.asarray(group_size, dtype=np.float64), ranks_in_domain
    inside = scale_up * (n - 1) / np.maximum(np.asarray(g) - 1, 1)
    across = scale_out * (n - 1) / (np.maximum(n - g, 1) * sent_across)
    return np.where(n > g, np.minimum(inside, across), scale_up)


def bus_volume(*, num_bytes: Numeric, group_size: Numeric, passes: Numeric) -> FloatArray:
    r"""Return bytes on the wire per rank; ``passes``: 2 for an all-reduce, else 1.

    .. math:: p S \frac{n - 1}{n}

    S is the whole tensor: the input of a reduce-scatter, the output of an all-gather.

    It is what bus bandwidth divides by time [1]_.

    References
    ----------
    .. [1] NVIDIA/nccl-tests, ``doc/PERFORMANCE.md`` at commit 03a204a.
    """
    n = np.asarray(group_size, dtype=np.float64)
    return np.asarray(passes * num_bytes * (n - 1) / n)


def collective_time(
    *,
    volume: Numeric,
    group_size: Numeric,
    bandwidth: Numeric,
    base_latency: Numeric,
    latency_per_rank: Numeric,
    ramp_bytes: Numeric,
    small_group_penalty: Numeric,
    network_latency: Numeric = 0.0,
    ranks_in_domain: Numeric | None = None,
) -> FloatArray:
    r"""Return seconds of a collective (all-reduce, all-to-all, ...) over n ranks; 0 for one.

    .. math:: t = a_0 + a_1 (n-1) + \frac{V + \sqrt{V V_0}}{B\, n/(n+x)}

    V is the bus volume, V0 the protocol ramp, x the penalty of small rings. Across
    domains the ranks inside one count in the a1 term; the network adds its latency.

    Latency and bandwidth are those of the usual linear model [1]_; ramp, penalty of small rings and
    the term per rank are derived here.

    References
    ----------
    .. [1] R. Hockney, "The communication challenge for MPP: Intel Paragon and Meiko CS-2,"
       Parallel Computing 20(3), 1994, equation 1.
    """
    n = np.asarray(group_size, dtype=np.float64)
    local = n if ranks_in_domain is None else ranks_in_domain
    latency = base_latency + latency_per_rank * (local - 1) + network_latency
    ramped = volume + np.sqrt(volume * np.asarray(ramp_bytes))
    moving = ramped * (n + small_group_penalty) / (n * bandwidth)
    return np.where(n > 1, latency + moving, 0.0)


def network_latency(
    *, num_domains: Numeric, base_latency: Numeric, latency_per_doubling: Numeric
) -> FloatArray:
    r"""Return the network latency of a collective over k domains [s]; 0 for one domain.

    .. math:: a + b \log_2 \frac{k}{2}

    Trees are as deep as the logarithm of their nodes [1]_; a and b are those of a fabric.

    References
    ----------
    .. [1] S. Jeaugey, "Massively scale your deep learning training with NCCL 2.4," 2019.
    """
    k = np.asarray(num_domains, dtype=np.float64)
    doublings = np.log2(np.maximum(k, 2) / 2)
    return np.where(k > 1, base_latency + latency_per_doubling * doublings, 0.0)


def ring_latency(
    *, num_domains: Numeric, ranks_in_domain: Numeric, hop: Numeric, latency_per_rank: Numeric
) -> FloatArray:
    r"""Return seconds that a ring over k domains adds to the latency within one domain.

    .. math:: (k - 1) \left(h + a_1 (g - 1)\right)

    All-gathers and reduce-scatters pass every rank in turn: NCCL has trees for all-reduces alone
    [1]_. h is one hop between domains. A gather of 24 layers over 512 GPUs is 1 ms longer per
    layer than the logarithm of trees has it; published weak scaling of small FSDP models
    loses 20 ms a step from 128 to 256 H100 and 37 to 39 ms from 256 to 512 (llm-foundry, 1B and
    3B), twice as much for twice the ranks.

    References
    ----------
    .. [1] NVIDIA NCCL, user guide, ``NCCL_ALGO``; S. Jeaugey, "Massively scale your deep learning
       training with NCCL 2.4," 2019.
    """
    k = np.maximum(np.asarray(num_domains, dtype=np.float64), 1.0)
    return np.asarray((k - 1) * (hop + latency_per_rank * (np.asarray(ranks_in_domain) - 1)))


def large_scale_slowdown_time(
    *, step_time: Numeric, num_gpus: Numeric, pod_size: Numeric, slowdown_per_doubling: Numeric
) -> FloatArray:
    r"""Return seconds that a step on n GPUs takes longer than on one pod of P GPUs.

    .. math:: t\, s \max\left(\log_2 \frac{n}{P}, 0\right)

    All wait for the slowest, and the longest of n waits with an exponential tail grows with
    the logarithm of n; between pods switches are shared. s and P are derived here: per doubling
    published weak scaling loses 1.4 % (llm-foundry, 16 to 512 GPUs), 1.5 % [1]_, 1.9 %
    (YaFSDP), 0.2 to 1.4 % (MLPerf Training v3.0 to v5.0) more than the communication of each
    group explains; up to 512 GPUs as many sources show none of it (vTrain, InternEvo).

    References
    ----------
    .. [1] D. Narayanan et al., "Efficient large-scale language model training on GPU
       clusters using Megatron-LM," 2021, arXiv:2104.04473, table 2.
    """
    doublings = np.log2(np.maximum(np.asarray(num_gpus) / pod_size, 1.0))
    return np.asarray(step_time * slowdown_per_doubling * doublings)


def point_to_point_time(*, num_bytes: Numeric, bandwidth: Numeric, latency: Numeric) -> FloatArray:
    r"""Return seconds of one message: latency plus bytes over bandwidth [1]_.

    .. math:: t_0 + V / B

    References
    ----------
    .. [1] R. Hockney, "The communication challenge for MPP: Intel Paragon and Meiko CS-2,"
       Parallel Computing 20(3), 1994, equation 1.
    """
    return np.asarray(latency + num_bytes / bandwidth)


def exposed_time(
    *, communication: Numeric, computation: Numeric, interference: Numeric
) -> FloatArray:
    r"""Return seconds that communication adds to the computation that overlaps with it.

    .. math:: \max(n, c) + g \min(n, c) - c = n - (1 - g) \min(n, c)

    Each slows the other by the ``interference`` g, the share of multiprocessors and bandwidth
    they contend for.

    Derived here.
    """
    n, c = communication, computation
    return n - (1 - interference) * np.minimum(n, c)


def unhidden_time(*, communication: Numeric, hidden: Numeric) -> FloatArray:
    r"""Return seconds of a transfer left over when a share ``hidden`` of it overlaps.

    .. math:: n (1 - h)

    Derived here.
    """
    return np.asarray(communication * (1 - np.asarray(hidden)))
