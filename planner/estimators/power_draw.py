"""Power of GPUs, their hosts, their network and the building."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from planner.base.arrays import FloatArray, Numeric
from planner.base.records import record
from planner.estimators.machine import Machine
from planner.formulas.power import facility_power, network_share, range_of_product, range_of_sum
from planner.specs.power import PowerProfile, RangedValue

# Scale-up domains of more GPUs than this are racks of trays.
_LARGEST_NODE = 16
PARTS = ("boards", "hosts", "network", "facility")


@record(kw_only=True)
class PowerDraw:
    """W of all GPUs of a job by part; NaN where the design power of the GPU is unknown.

    ``hosts`` is the rest of the nodes, ``network`` switches and optics, ``facility`` cooling and
    losses of distribution. Parts broadcast to the configurations' shape.
    """

    design: FloatArray
    board_share: FloatArray
    host_share: float
    network_share: FloatArray
    power_usage_effectiveness: float

    @property
    def boards(self) -> FloatArray:
        """W of the GPUs' boards."""
        return self.design * self.board_share

    @property
    def hosts(self) -> FloatArray:
        """W of the rest of their nodes."""
        return self.design * self.host_share

    @property
    def network(self) -> FloatArray:
        """W of the switches and optics between nodes."""
        return (self.boards + self.hosts) * self.network_share

    @property
    def facility(self) -> FloatArray:
        """Power of cooling and losses [W]."""
        it_power = self.boards + self.hosts + self.network
        return facility_power(
            it_power=it_power, power_usage_effectiveness=self.power_usage_effectiveness
        )

    @property
    def total(self) -> FloatArray:
        """W at the meter of the building."""
        # Factors that do not depend on the layout are small arrays: multiply them first.
        around = self.design * (1.0 + self.network_share) * self.power_usage_effectiveness
        return np.asarray((self.board_share + self.host_share) * around)


def power_draw(
    machine: Machine,
    profile: PowerProfile | None,
    num_gpus: Numeric,
    board_share: Callable[[PowerProfile], Numeric],
    joined: Numeric | None = None,
) -> PowerDraw:
    """Return the power [W] of ``num_gpus`` GPUs at a ``board_share`` of their design power.

    They are among ``joined`` GPUs of one job, where these are more. Without a profile it is
    unknown.
    """
    design = machine.gpu.thermal_design_power
    if profile is None or design is None:
        unknown = np.asarray(np.nan)
        return PowerDraw(
            design=unknown,
            board_share=unknown,
            host_share=np.nan,
            network_share=unknown,
            power_usage_effectiveness=np.nan,
        )
    is_spread = np.asarray(num_gpus if joined is None else joined) > _node(machine)
    return PowerDraw(
        design=np.asarray(num_gpus, dtype=np.float64) * design,
        board_share=np.asarray(board_share(profile)),
        host_share=_host(machine, profile).value,
        network_share=network_share(share_of_it=profile.network.value, is_spread=is_spread),
        power_usage_effectiveness=profile.pue.value,
    )


def power_range(
    machine: Machine, profile: PowerProfile, num_gpus: float, boards: RangedValue
) -> tuple[float, float]:
    """Return lowest and highest factor on the power of ``num_gpus`` GPUs."""
    host, network = _host(machine, profile), profile.network
    nodes = range_of_sum(*((figure.value, figure.low, figure.high) for figure in (boards, host)))
    shares = [
        float(network_share(share_of_it=share, is_spread=num_gpus > _node(machine)))
        for share in (network.value, network.low, network.high)
    ]
    joined = ((1 + shares[1]) / (1 + shares[0]), (1 + shares[2]) / (1 + shares[0]))
    pue = profile.pue
    return range_of_product(nodes, joined, (pue.low / pue.value, pue.high / pue.value))


def _host(machine: Machine, profile: PowerProfile) -> RangedValue:
    is_rack = machine.cluster.scale_up.domain_size > _LARGEST_NODE
    return profile.rack_host if is_rack else profile.host


def _node(machine: Machine) -> int:
    """Number of GPUs without switches between nodes; a rack has these inside."""
    cluster = machine.cluster
    is_rack = cluster.scale_up.domain_size > _LARGEST_NODE
    return cluster.scale_up.domain_size if is_rack else cluster.gpus_per_node
