"""How much electric power GPUs, hosts, network and building draw: shares with their ranges."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

from planner.errors import SpecError
from planner.specs.cache import kept
from planner.specs.checked import MaxLen, checked
from planner.specs.hardware import Loaded, loaded
from planner.specs.load import read_toml
from planner.specs.paths import beside_specs
from planner.specs.quantity import Ratio

POWER = "power.toml"


@checked
class Between:
    """A number, and the ends between which published ones lie."""

    value: Ratio
    low: Ratio
    high: Ratio

    @classmethod
    def exactly(cls, value: float) -> Between:
        """A number that is known."""
        return cls(value=value, low=value, high=value)


@checked
class PowerProfile:
    """Shares of the thermal design power, and what comes on top of it.

    ``compute`` and ``wait`` are those of boards in training, ``train`` the mean over a run;
    ``prefill``, ``decode`` and ``idle`` (a model is loaded) those in serving. ``host`` is the rest
    of a node over the design power of its GPUs, ``rack_host`` that of a rack whose trays are one
    domain. ``network`` is a share of the power of all that computes, ``pue`` the power of the
    building over that.
    """

    name: str
    compute: Between
    wait: Between
    train: Between
    prefill: Between
    decode: Between
    idle: Between
    host: Between
    rack_host: Between
    network: Between
    pue: Between
    notes: Annotated[str, MaxLen(10_000)] = ""

    def with_pue(self, value: float) -> PowerProfile:
        """The same with a known effectiveness of the building."""
        return replace(self, pue=Between.exactly(value))


@kept
def load_power(folder: Path | None = None) -> Loaded[PowerProfile]:
    """The shares of ``power.toml``, with the source of each number.

    Raises
    ------
    SpecError
        The file has faults, with one line for each.
    """
    return read_power(beside_specs(POWER, folder)[0])


def read_power(path: Path) -> Loaded[PowerProfile]:
    """The shares of a file, with the source of each number.

    Raises
    ------
    SpecError
        The file has faults, with one line for each.
    """
    table = read_toml(path)
    found = loaded(PowerProfile, table, path)
    faults = [f"{path}: {fault}" for fault in _faults(found.spec)]
    if faults:
        raise SpecError("\n".join(faults))
    return found


def _faults(profile: PowerProfile) -> list[str]:
    """What of the shares cannot be."""
    ranges = {name: value for name, value in vars(profile).items() if isinstance(value, Between)}
    faults = [
        f"{name}: value must lie between low and high."
        for name, one in ranges.items()
        if not one.low <= one.value <= one.high
    ]
    if profile.pue.low < 1:
        faults.append("pue.low must be at least 1: a building draws what is in it.")
    if not profile.network.high < 1:
        faults.append("network.high must be below 1: it is a share of the whole.")
    return faults
