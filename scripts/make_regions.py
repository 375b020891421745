"""Make hardware_specs/regions.csv of published figures about grids and clouds.

Reads energy.csv (quantity, region, name, value, unit, source, year) and ownership.csv (quantity,
gpu_or_system, value, unit, source, date) of a folder; of a region's figures the newest counts:

    python scripts/make_regions.py FOLDER
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from pathlib import Path

TARGET = Path(__file__).parents[1] / "hardware_specs" / "regions.csv"
COLUMNS = ("region", "name", "alias", "quantity", "value", "unit", "source", "year")
QUANTITIES = {"grid_carbon_intensity": "carbon_intensity"}
UNITS = {"gCO2eq/kWh": "gCO2e/kWh", "ratio": "1"}
# Codes of two letters (ISO 3166) of what the tables call by three.
ALIASES = dict(
    pair.split(":")
    for pair in [
        "ARE:AE",
        "ARG:AR",
        "AUS:AU",
        "AUT:AT",
        "BEL:BE",
        "BGD:BD",
        "BGR:BG",
        "BHR:BH",
        "BRA:BR",
        "CAN:CA",
        "CHE:CH",
        "CHL:CL",
        "CHN:CN",
        "COL:CO",
        "CYP:CY",
        "CZE:CZ",
        "DEU:DE",
        "DNK:DK",
        "EGY:EG",
        "ESP:ES",
        "EST:EE",
        "FIN:FI",
        "FRA:FR",
        "GBR:GB",
        "GRC:GR",
        "HKG:HK",
        "HRV:HR",
        "HUN:HU",
        "IDN:ID",
        "IND:IN",
        "IRL:IE",
        "ISL:IS",
        "ISR:IL",
        "ITA:IT",
        "JPN:JP",
        "KAZ:KZ",
        "KEN:KE",
        "KOR:KR",
        "KWT:KW",
        "LTU:LT",
        "LUX:LU",
        "LVA:LV",
        "MAR:MA",
        "MEX:MX",
        "MLT:MT",
        "MYS:MY",
        "NGA:NG",
        "NLD:NL",
        "NOR:NO",
        "NZL:NZ",
        "OMN:OM",
        "PAK:PK",
        "PER:PE",
        "PHL:PH",
        "POL:PL",
        "PRT:PT",
        "QAT:QA",
        "ROU:RO",
        "RUS:RU",
        "SAU:SA",
        "SGP:SG",
        "SRB:RS",
        "SVK:SK",
        "SVN:SI",
        "SWE:SE",
        "THA:TH",
        "TUR:TR",
        "TWN:TW",
        "UKR:UA",
        "URY:UY",
        "USA:US",
        "VNM:VN",
        "ZAF:ZA",
    ]
)
SAME = {"FI": "FIN", "WOR": "WORLD"}
# Where clouds say that their regions are, and the grid there.
PLACES = {
    "AWS us-east-1": ("N. Virginia", "US-VA"),
    "AWS us-east-2": ("Ohio", "US-OH"),
    "AWS us-west-1": ("N. California", "US-CA"),
    "AWS us-west-2": ("Oregon", "US-OR"),
    "AWS ca-central-1": ("Montreal", "CA-QC"),
    "AWS sa-east-1": ("Sao Paulo", "BRA"),
    "AWS eu-west-1": ("Ireland", "IRL"),
    "AWS eu-west-2": ("London", "GBR"),
    "AWS eu-west-3": ("Paris", "FRA"),
    "AWS eu-central-1": ("Frankfurt", "DEU"),
    "AWS eu-north-1": ("Stockholm", "SWE"),
    "AWS eu-south-2": ("Spain", "ESP"),
    "AWS ap-northeast-1": ("Tokyo", "JPN"),
    "AWS ap-northeast-2": ("Seoul", "KOR"),
    "AWS ap-south-1": ("Mumbai", "IND"),
    "AWS ap-southeast-1": ("Singapore", "SGP"),
    "AWS ap-southeast-2": ("Sydney", "AU-NSW"),
    "Azure eastus": ("Virginia", "US-VA"),
    "Azure eastus2": ("Virginia", "US-VA"),
    "Azure westus2": ("Washington", "US-WA"),
    "Azure southcentralus": ("Texas", "US-TX"),
    "Azure northeurope": ("Ireland", "IRL"),
    "Azure westeurope": ("Netherlands", "NLD"),
    "Azure francecentral": ("Paris", "FRA"),
    "Azure germanywestcentral": ("Frankfurt", "DEU"),
    "Azure swedencentral": ("Gavle", "SWE"),
    "Azure uksouth": ("London", "GBR"),
    "Azure japaneast": ("Tokyo", "JPN"),
    "Azure southeastasia": ("Singapore", "SGP"),
}
# Names of the effectiveness of buildings: whose they are.
FLEETS = {
    "Google fleet": ("GCP", "Google Cloud"),
    "AWS global 2025": ("AWS", "Amazon Web Services"),
    "Microsoft FY25": ("Azure", "Microsoft Azure"),
    "OVHcloud": ("OVHcloud", "OVHcloud"),
    "Oracle": ("Oracle", "Oracle Cloud"),
    "Meta fleet": ("Meta", "Meta"),
}
# Grids that the price of electricity is given of by their names.
STATES = {"US average": "USA"}


def main(folder: str) -> None:
    """Write the table, sorted by region and quantity."""
    newest: dict[tuple[str, str], dict[str, str]] = {}
    for row in (*_grids(Path(folder)), *_buildings(Path(folder))):
        _keep(newest, row)
    names = {row["region"]: row["name"] for row in newest.values() if row["name"]}
    codes = {name.removeprefix("United States of America "): code for code, name in names.items()}
    for row in _prices(Path(folder), codes):
        _keep(newest, row)
    for row in _places(newest):
        _keep(newest, row)
    with TARGET.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        for key in sorted(newest):
            region = newest[key]["region"]
            name = newest[key]["name"] or names.get(region, "")
            writer.writerow(newest[key] | {"name": name, "alias": ALIASES.get(region, "")})


def _keep(newest: dict[tuple[str, str], dict[str, str]], row: dict[str, str]) -> None:
    key = row["region"], row["quantity"]
    if key not in newest or row["year"] >= newest[key]["year"]:
        newest[key] = row


def _row(*cells: str) -> dict[str, str]:
    return dict(zip((name for name in COLUMNS if name != "alias"), cells, strict=True))


def _read(folder: Path, name: str) -> list[dict[str, str]]:
    with (folder / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _grids(folder: Path) -> Iterator[dict[str, str]]:
    """What electricity emits where it is made."""
    for row in _read(folder, "energy.csv"):
        if row["quantity"] in QUANTITIES:
            region = SAME.get(row["region"], row["region"])
            name = "" if row["name"] in (row["region"], "Any Any") else row["name"]
            name = name.removeprefix("United States of America ")
            quantity, unit = QUANTITIES[row["quantity"]], UNITS[row["unit"]]
            year = row["year"][:4]
            yield _row(region, name, quantity, row["value"], unit, row["source"], year)


def _buildings(folder: Path) -> Iterator[dict[str, str]]:
    """The effectiveness of clouds' buildings, of single regions too."""
    for row in _read(folder, "ownership.csv"):
        if row["quantity"] != "pue":
            continue
        what = row["gpu_or_system"]
        cloud, _, place = what.partition(" ")
        region, name = FLEETS.get(what, ("", ""))
        if cloud == "Google" and "-" in place:
            region, name = f"GCP {place}", ""
        if region:
            yield _row(region, name, "pue", row["value"], "1", row["source"], row["date"][:4])


def _prices(folder: Path, codes: dict[str, str]) -> Iterator[dict[str, str]]:
    """What industry pays for electricity."""
    for row in _read(folder, "ownership.csv"):
        name = row["gpu_or_system"]
        region = STATES.get(name) or codes.get(name.removeprefix("US "))
        if row["quantity"] == "electricity_price industrial" and region:
            value, source, year = row["value"], row["source"], row["date"][:4]
            yield _row(region, "", "electricity_price", value, "USD/kWh", source, year)


def _places(newest: dict[tuple[str, str], dict[str, str]]) -> Iterator[dict[str, str]]:
    """Regions of clouds that publish no figure of their own: that of the grid there."""
    for region, (name, grid) in PLACES.items():
        for quantity in (*QUANTITIES.values(), "electricity_price"):
            found = newest.get((grid, quantity))
            if found is not None:
                source = f"as {grid}: {found['source']}"
                yield found | {"region": region, "name": name, "source": source}


if __name__ == "__main__":
    main(*sys.argv[1:])
