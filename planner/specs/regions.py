"""Regions of clouds and grids: what their electricity emits and costs, and their buildings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path

from planner.base.records import record
from planner.base.units import to_si
from planner.errors import SearchSpaceError, SpecError, did_you_mean
from planner.specs.cache import kept
from planner.specs.csv_table import number, read_table
from planner.specs.paths import beside_specs

REGIONS = "regions.csv"
COLUMNS = ("region", "name", "alias", "quantity", "value", "unit", "source", "year")
CARBON, PUE, ELECTRICITY = "carbon_intensity", "pue", "electricity_price"
_DIMENSIONS = {CARBON: "kg/J", PUE: "1", ELECTRICITY: "usd/J"}
_NEEDED = ("region", "quantity", "value", "unit", "source")


@record(kw_only=True)
class Figure:
    """A number in SI units, who says so, and of which year."""

    value: float
    source: str
    year: str


@record(kw_only=True)
class Region:
    """A region of a grid or of a cloud, by its code; ``figures`` by their quantity."""

    code: str
    name: str
    alias: str
    figures: Mapping[str, Figure] = field(default_factory=dict)

    @property
    def provider(self) -> str:
        """The cloud that it is of; empty of a grid."""
        return self.code.partition(" ")[0] if " " in self.code else ""


def find_region(given: str, folder: Path | None = None) -> Region:
    """A region by its code, by its name, or by its code without the cloud's name.

    The building's figures are those of its cloud where none are known of the region itself.

    Raises
    ------
    SearchSpaceError
        There is none of that name; the message has names near it.
    SpecError
        A table of regions has faults.
    """
    regions = _regions(folder)
    words = _words(folder)
    code = words.get(_plain(given))
    if code is None:
        hint = did_you_mean(_plain(given), words)
        raise SearchSpaceError(
            f"Unknown region {given!r}.{hint} A region is a country (SE, SWE, Sweden), a state "
            "(US-VA) or a cloud's (GCP europe-west4, us-east-1)."
        )
    found = regions[code]
    cloud = regions.get(found.provider)
    figures = {**(cloud.figures if cloud else {}), **found.figures}
    return Region(code=found.code, name=found.name, alias=found.alias, figures=figures)


@kept
def _regions(folder: Path | None) -> Mapping[str, Region]:
    found: dict[str, Region] = {}
    for path in beside_specs(REGIONS, folder):
        for code, region in read_regions(path).items():
            known = found.get(code)
            figures = {**region.figures, **(known.figures if known else {})}
            first = known or region
            found[code] = Region(code=code, name=first.name, alias=first.alias, figures=figures)
    return found


@kept
def _words(folder: Path | None) -> Mapping[str, str]:
    """What regions are called, the surest first: codes, aliases, names, parts of codes."""
    regions = _regions(folder).values()
    words: dict[str, str] = {}
    grids = [region for region in regions if not region.provider]
    clouds = [region for region in regions if region.provider]
    cities = Counter(_plain(region.name) for region in clouds)
    for named in (
        [(region.code, region) for region in regions],
        [(region.alias, region) for region in regions],
        [(region.name, region) for region in grids],
        [(region.code.partition(" ")[2], region) for region in clouds],
        [(f"{region.provider} {region.name}", region) for region in clouds if region.name],
        [(region.name, region) for region in clouds if cities[_plain(region.name)] == 1],
    ):
        for word, region in named:
            if word:
                words.setdefault(_plain(word), region.code)
    return words


def read_regions(path: Path) -> Mapping[str, Region]:
    """The regions of a file by code.

    Raises
    ------
    SpecError
        With one line per fault: file, line, what is wrong.
    """
    found: dict[str, Region] = {}
    faults = []
    for line, row in read_table(path, COLUMNS, COLUMNS):
        try:
            _add(found, row)
        except ValueError as error:
            faults.append(f"{path}:{line}: {error}.")
    if faults:
        raise SpecError("\n".join(faults))
    return found


def _add(found: dict[str, Region], row: Mapping[str, str]) -> None:
    missing = sorted(name for name in _NEEDED if not row[name])
    if missing:
        raise ValueError(f"{missing[0]} is empty")
    code, quantity = row["region"], row["quantity"]
    if quantity not in _DIMENSIONS:
        raise ValueError(f"quantity {quantity!r} is not one of {', '.join(_DIMENSIONS)}")
    value = to_si(number(row["value"], "value"), row["unit"], _DIMENSIONS[quantity])
    if quantity == PUE and value < 1:
        raise ValueError(f"value {row['value']} is below 1")
    figures = dict(found[code].figures) if code in found else {}
    if quantity in figures:
        raise ValueError(f"{quantity} of {code} is given twice")
    figures[quantity] = Figure(value=value, source=row["source"], year=row["year"])
    found[code] = Region(code=code, name=row["name"], alias=row["alias"], figures=figures)


def _plain(text: str) -> str:
    """A name without case, blanks at its ends and repeated ones."""
    return " ".join(text.casefold().replace("_", " ").split())
