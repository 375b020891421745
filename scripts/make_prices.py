"""Compile a table of rents, one a row, into ``hardware_specs/prices.csv``.

    python scripts/make_prices.py INPUT.csv

Contracts become the words of `planner.base.enums.Contract`, dates ISO dates or ``undated``, names
of one company one name. Left out is what nobody sells: indices, and unnamed markets; and what its
own source calls doubtful where the same GPU has another price under that contract.
"""

from __future__ import annotations

import csv
import re
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from planner.base.enums import (
    Contract,
)
from planner.specs.catalogue import names
from planner.specs.price import COLUMNS

FILE = Path(__file__).resolve().parents[1] / "hardware_specs" / "prices.csv"

_SELLERS = {
    "akash (marketplace)": "akash",
    "datacrunch": "verda",
    "oracle cloud": "oci",
    "primeintellect (broker)": "primeintellect",
    "runpod (secure)": "runpod",
}
"""Names of companies, and the one under which they stand here; datacrunch was renamed."""

_NO_SELLER = ("index", "market")
_DOUBT = re.compile(r"doubtful|conflicts with")
_AT_THE_LATEST = re.compile(r"(?:<=|file of )(\d{4}-\d{2}-\d{2}).*")
_QUARTER = re.compile(r"(\d{4})-Q([1-4])")
_MONTHS = re.compile(r"(\d{4})-\d{2}\.\.(\d{2})")
_DATE = re.compile(r"\d{4}(?:-\d{2}){0,2}")

Row = Mapping[str, str]

_BESIDE: tuple[Row, ...] = (
    {
        "gpu": "trainium1",
        "provider": "aws",
        "region": "",
        "contract": "on-demand",
        "price_per_gpu_hour": "1.344",
        "currency": "USD",
        "gpus_per_instance": "16",
        "source": "usage.ai trainium-vs-gpu-instances 2026-06-25",
        "date": "2026-06-25",
    },
)
"""Rents that are newer than what the table has of their GPU."""


def compiled(rows: list[dict[str, str]]) -> list[Row]:
    """Rows of the catalogue, sorted."""
    offers = [_offer(row) for row in rows if not row["provider"].startswith(_NO_SELLER)]
    sure = Counter(_key(offer) for offer in offers if not _DOUBT.search(offer["source"]))
    kept = [
        offer for offer in offers if not _DOUBT.search(offer["source"]) or not sure[_key(offer)]
    ]
    unknown = {offer["gpu"] for offer in kept} - set(names("gpus"))
    if unknown:
        raise SystemExit(f"There is no spec of {', '.join(sorted(unknown))}.")
    kept += _BESIDE
    return sorted(kept, key=lambda offer: [offer[name] for name in COLUMNS])


def _key(offer: Row) -> tuple[str, str]:
    return offer["gpu"], offer["contract"]


def _offer(row: Row) -> Row:
    date, at_the_latest = _date((row["date"] or "").strip())
    source = re.sub(r"(unnamed repository)-[\d-]+", r"\1", row["source"].strip())
    provider = row["provider"].strip()
    region = row["region"].strip()
    if provider.endswith("(secure)"):
        region = region if "secure" in region else "secure"
    return {
        "gpu": row["gpu"],
        "provider": _SELLERS.get(provider, provider),
        "region": "" if region == "not stated" else region,
        "contract": _contract(row["contract"]),
        "price_per_gpu_hour": f"{float(row['price_usd_per_gpu_hour']):.6g}",
        "currency": "USD",
        "gpus_per_instance": row["gpus_per_instance"],
        "source": f"{source}; read by {at_the_latest}" if at_the_latest else source,
        "date": date,
    }


def _contract(words: str) -> str:
    """The standard word: what stands in brackets only explains a price or an odd term."""
    word = words.partition(" (")[0]
    if word not in set(Contract):
        raise SystemExit(f"There is no contract {words!r}.")
    return word


def _date(text: str) -> tuple[str, str]:
    """An ISO date or ``undated``, and until when that is where the source only says so much."""
    if match := _AT_THE_LATEST.match(text):
        return "undated", match[1]
    if match := _QUARTER.match(text):
        return f"{match[1]}-{3 * int(match[2]):02}", ""
    if match := _MONTHS.match(text):
        return f"{match[1]}-{match[2]}", ""
    match = _DATE.match(text)
    return (match[0] if match else "undated"), ""


def main() -> None:
    """Write the catalogue and say what was left out."""
    with Path(sys.argv[1]).open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    offers = compiled(rows)
    with FILE.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(offers)
    print(f"{len(offers)} of {len(rows)} rents, {len({offer['gpu'] for offer in offers})} GPUs.")


if __name__ == "__main__":
    main()
