"""Electricity: power of hardware and buildings, and emissions and prices of regions.

Parameters
----------
folder : folder of own spec files, searched first; None: working directory and shipped files
path : file to read
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import field, replace
from functools import partial
from pathlib import Path
from typing import Annotated

from planner.base.records import record
from planner.errors import SearchSpaceError, SpecError, did_you_mean
from planner.specs.file_cache import cache_between_runs, cache_by_files
from planner.specs.hardware import LoadedSpec, load_spec
from planner.specs.spec_files import (
    Column,
    Ratio,
    Row,
    SourcedQuantity,
    nonempty_text,
    number,
    one_of,
    read_quantity,
    read_records,
    read_toml,
)
from planner.specs.spec_paths import extra_files
from planner.specs.validated import MaxLen, validated

REGIONS = "regions.csv"
CARBON, PUE, ELECTRICITY = "carbon_intensity", "pue", "electricity_price"
_DIMENSIONS = {CARBON: "kg/J", PUE: "1", ELECTRICITY: "usd/J"}
_TABLE = (
    Column("region", nonempty_text, needed=True),
    Column("name", needed=True),
    Column("alias", needed=True),
    Column("quantity", one_of(_DIMENSIONS), needed=True),
    Column("value", number, needed=True),
    Column("unit", nonempty_text, needed=True),
    Column("source", nonempty_text, needed=True),
    Column("year", needed=True),
)
COLUMNS = tuple(column.name for column in _TABLE)


@record(kw_only=True)
class Region:
    """A region of a power grid or of a cloud.

    Parameters
    ----------
    code : code, such as ``SE`` or ``GCP europe-west4``
    name : name in words
    alias : further name
    figures : figures by quantity (``carbon_intensity``, ``pue``, ``electricity_price``)
    """

    code: str
    name: str
    alias: str
    figures: Mapping[str, SourcedQuantity] = field(default_factory=dict)

    @property
    def provider(self) -> str:
        """The cloud of the region; empty for a grid."""
        return self.code.partition(" ")[0] if " " in self.code else ""


def find_region(text: str, folder: Path | None = None) -> Region:
    """Return a region by code, name, or code without the cloud's name.

    Figures of the building that the region lacks are those of its cloud.

    Raises SearchSpaceError if no region has the name; the message lists close names; SpecError if a
    table of regions has errors.

    Parameters
    ----------
    text : code or name of the region
    """
    regions = _regions(folder)
    words = _region_names(folder)
    code = words.get(_normalize_name(text))
    if code is None:
        hint = did_you_mean(_normalize_name(text), words)
        raise SearchSpaceError(
            f"Unknown region {text!r}.{hint} A region is a country (SE, SWE, Sweden), a state "
            "(US-VA) or a cloud's (GCP europe-west4, us-east-1)."
        )
    region = regions[code]
    cloud = regions.get(region.provider)
    figures = {**(cloud.figures if cloud else {}), **region.figures}
    return Region(code=region.code, name=region.name, alias=region.alias, figures=figures)


@cache_between_runs
def _regions(folder: Path | None) -> Mapping[str, Region]:
    """Return all electricity regions by code; figures of earlier (user) files take precedence."""
    regions: dict[str, Region] = {}
    for path in extra_files(REGIONS, folder):
        for code, region in read_regions(path).items():
            existing = regions.get(code)
            figures = {**region.figures, **(existing.figures if existing else {})}
            first = existing or region
            regions[code] = Region(code=code, name=first.name, alias=first.alias, figures=figures)
    return regions


@cache_by_files
def _region_names(folder: Path | None) -> Mapping[str, str]:
    """Return regions' lookup names, most specific first: codes, aliases, names, parts."""
    regions = _regions(folder).values()
    words: dict[str, str] = {}
    grids = [region for region in regions if not region.provider]
    clouds = [region for region in regions if region.provider]
    cities = Counter(_normalize_name(region.name) for region in clouds)
    for pairs in (
        [(region.code, region) for region in regions],
        [(region.alias, region) for region in regions],
        [(region.name, region) for region in grids],
        [(region.code.partition(" ")[2], region) for region in clouds],
        [(f"{region.provider} {region.name}", region) for region in clouds if region.name],
        [(region.name, region) for region in clouds if cities[_normalize_name(region.name)] == 1],
    ):
        for word, region in pairs:
            if word:
                words.setdefault(_normalize_name(word), region.code)
    return words


def read_regions(path: Path) -> Mapping[str, Region]:
    """Return the regions of a file by code.

    Raises SpecError with one line per error: file, line, problem.
    """
    regions: dict[str, Region] = {}
    read_records(path, _TABLE, partial(_add, regions), once=("region", "quantity"))
    return regions


def _add(regions: dict[str, Region], row: Row) -> None:
    """Add the figure of one row to its region; raise ValueError for a PUE below 1."""
    code, quantity = row["region"], row["quantity"]
    figure = read_quantity(row, _DIMENSIONS[quantity], date=row["year"])
    if quantity == PUE and figure.value < 1:
        raise ValueError(f"value {row['value']:g} is below 1")
    figures = {**(regions[code].figures if code in regions else {}), quantity: figure}
    regions[code] = Region(code=code, name=row["name"], alias=row["alias"], figures=figures)


def _normalize_name(text: str) -> str:
    """A name in lower case, without blanks at its ends and repeated blanks."""
    return " ".join(text.casefold().replace("_", " ").split())


POWER = "power.toml"


@validated
class RangedValue:
    """A number with the range of published values.

    Parameters
    ----------
    value : typical value
    low : least published value
    high : greatest published value
    """

    value: Ratio
    low: Ratio
    high: Ratio

    @classmethod
    def exactly(cls, value: float) -> RangedValue:
        """Return a range that contains only ``value``.

        Parameters
        ----------
        value : value
        """
        return cls(value=value, low=value, high=value)


@validated
class PowerProfile:
    """Power of GPUs as shares of their thermal design power, and power on top of it.

    Parameters
    ----------
    name : name of the profile
    compute : board power during computation in training over the design power
    wait : board power during waits in training over the design power
    train : mean board power of a training run over the design power
    prefill : board power during prefill over the design power
    decode : board power during decode over the design power
    idle : board power with a loaded model and no work over the design power
    host : power of the rest of a node over the design power of its GPUs
    rack_host : power of the rest of a rack-scale domain over the design power of its GPUs
    network : power of the network over that of all nodes
    pue : power of the building over that of the IT equipment
    notes : remarks
    """

    name: str
    compute: RangedValue
    wait: RangedValue
    train: RangedValue
    prefill: RangedValue
    decode: RangedValue
    idle: RangedValue
    host: RangedValue
    rack_host: RangedValue
    network: RangedValue
    pue: RangedValue
    notes: Annotated[str, MaxLen(10_000)] = ""

    def with_pue(self, value: float) -> PowerProfile:
        """Return the profile with a known power usage effectiveness (PUE).

        Parameters
        ----------
        value : power of the building over that of the IT equipment
        """
        return replace(self, pue=RangedValue.exactly(value))


@cache_between_runs
def load_power(folder: Path | None = None) -> LoadedSpec[PowerProfile]:
    """Load the power shares of ``power.toml``, with the source of each number.

    Raises SpecError if the file has errors, one line for each.
    """
    return read_power(extra_files(POWER, folder)[0])


def read_power(path: Path) -> LoadedSpec[PowerProfile]:
    """Read the power shares of a file, with the source of each number.

    Raises SpecError if the file has errors, one line for each.
    """
    table = read_toml(path)
    loaded = load_spec(PowerProfile, table, path)
    errors = [f"{path}: {error}" for error in _errors(loaded.spec)]
    if errors:
        raise SpecError("\n".join(errors))
    return loaded


def _errors(profile: PowerProfile) -> list[str]:
    """Return an error message if a power share is invalid."""
    ranges = {
        name: value for name, value in vars(profile).items() if isinstance(value, RangedValue)
    }
    errors = [
        f"{name}: value must lie between low and high."
        for name, share in ranges.items()
        if not share.low <= share.value <= share.high
    ]
    if profile.pue.low < 1:
        errors.append("pue.low must be at least 1: a building draws the power of its equipment.")
    if not profile.network.high < 1:
        errors.append("network.high must be below 1: it is a share of the whole.")
    return errors
