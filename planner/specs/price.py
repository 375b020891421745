"""Prices of GPUs: which offers the lists have, and what one GPU costs under a contract."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

from planner.base.enums import Contract
from planner.errors import SpecError
from planner.specs.cache import kept
from planner.specs.files import find
from planner.specs.offer import Price, by_seller, one_price, recent, typical
from planner.specs.ownership import can_be_owned
from planner.specs.paths import SpecKind, price_files
from planner.specs.price_file import read_prices

__all__ = [
    "CONTRACTS",
    "Price",
    "contracts_of",
    "gpus_of",
    "offers_of",
    "one_price",
    "price_of",
    "providers_of",
    "read_prices",
]

CONTRACTS = tuple(str(contract) for contract in Contract)
"""The words for contracts."""

# Where nobody names a contract: the one whose price stands for what a GPU costs, then what is
# closest to it. What is owned was decided long before.
_USUAL = (
    Contract.ON_DEMAND,
    Contract.CAPACITY_BLOCK,
    Contract.RESERVED_1Y,
    Contract.RESERVED,
    Contract.RESERVED_3Y,
    Contract.RESERVED_5Y,
    Contract.SPOT,
)


@kept
def price_of(
    gpu: str,
    contract: str | None = None,
    provider: str | None = None,
    own: Path | None = None,
    folder: Path | None = None,
) -> Price | None:
    """What one GPU costs, typical of the offers of the first list that has any; None unknown.

    ``own`` is a list of the user's, looked into first; ``contract`` the usual one if None,
    ``provider`` any seller. A GPU that is owned has no offers: see `planner.specs.ownership`.

    Raises
    ------
    SpecError
        A price list has faults; the message has one line for each.
    """
    for wanted in _USUAL if contract is None else (contract,):
        for offers in _lists(gpu, own, folder):
            found = [offer for offer in offers if offer.contract == wanted]
            if provider is not None:
                found = [offer for offer in found if _is(offer.provider, provider)]
            if found:
                return replace(typical(found), on_demand=_on_demand(found, offers))
    return None


def _on_demand(found: Sequence[Price], offers: Sequence[Price]) -> float | None:
    """What the sellers of some other offers ask on demand; None where none of them does."""
    if found[0].contract == Contract.ON_DEMAND:
        return None
    sellers = by_seller(recent(found))
    on_demand = [offer for offer in offers if offer.contract == Contract.ON_DEMAND]
    asked = by_seller(recent([o for o in on_demand if o.provider in sellers]))
    return median(asked.values()) if asked else None


def offers_of(gpu: str, own: Path | None = None, folder: Path | None = None) -> list[Price]:
    """All offers of one GPU, those of the first list in front.

    Raises
    ------
    SpecError
        A price list has faults.
    """
    return [offer for offers in _lists(gpu, own, folder) for offer in offers]


def contracts_of(
    gpu: str, folder: Path | None = None, own: Path | None = None, provider: str | None = None
) -> tuple[str, ...]:
    """The contracts under which a GPU has a price, of one provider if named.

    Raises
    ------
    SpecError
        A price list has faults.
    """
    found = {
        offer.contract
        for offer in offers_of(gpu, own, folder)
        if provider is None or _is(offer.provider, provider)
    }
    if provider is None and can_be_owned(gpu, folder):
        found.add(Contract.OWNED)
    return tuple(contract for contract in CONTRACTS if contract in found)


def providers_of(
    gpu: str | None = None, own: Path | None = None, folder: Path | None = None
) -> list[str]:
    """Who sells a GPU, or any GPU, sorted.

    Raises
    ------
    SpecError
        A price list has faults.
    """
    names = [gpu] if gpu is not None else [*gpus_of(own, folder)]
    offers = (offer for name in names for offer in offers_of(name, own, folder))
    return sorted({offer.provider for offer in offers} - {""})


def gpus_of(own: Path | None = None, folder: Path | None = None) -> Iterable[str]:
    """The GPUs that some list has an offer of."""
    return dict.fromkeys(name for path in _files(own, folder) for name in _named(path, folder))


@kept
def unknown_gpus(path: Path, folder: Path | None = None) -> list[str]:
    """The words of a list for GPUs of which there is no spec, with what they may mean.

    Raises
    ------
    SpecError
        The list has faults.
    """
    found = []
    for word in read_prices(path, folder):
        try:
            find(SpecKind.GPUS, word, folder)
        except SpecError as error:
            found.append(f"{path}: {error}")
    return found


def _lists(gpu: str, own: Path | None, folder: Path | None) -> Iterator[tuple[Price, ...]]:
    for path in _files(own, folder):
        offers = _named(path, folder).get(gpu, ())
        # What a user states is today's, whatever its date.
        yield tuple(replace(offer, is_old=False) for offer in offers) if path == own else offers


def _files(own: Path | None, folder: Path | None) -> list[Path]:
    return [*([] if own is None else [own]), *price_files(folder)]


@kept
def _named(path: Path, folder: Path | None) -> dict[str, tuple[Price, ...]]:
    """The offers of a list by the name of the GPU's spec; by its own word where there is none."""
    found: dict[str, tuple[Price, ...]] = {}
    for word, offers in read_prices(path, folder).items():
        try:
            name = find(SpecKind.GPUS, word, folder).stem
        except SpecError:
            name = word
        found[name] = (*found.get(name, ()), *offers)
    return found


def _is(name: str, asked: str) -> bool:
    return name.casefold() == asked.strip().casefold()
