"""What the GPUs of a request cost: as the request says, or as price lists have it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from planner.base.enums import Contract
from planner.base.units import HOUR
from planner.errors import SearchSpaceError, SpecError, did_you_mean
from planner.estimators.ownership import assumed_figures, owned
from planner.question.request import Request
from planner.specs.cache import kept
from planner.specs.gpu import GpuSpec
from planner.specs.load import digest
from planner.specs.ownership import OWNERSHIP
from planner.specs.paths import SpecKind, beside_specs
from planner.specs.price import (
    Price,
    contracts_of,
    one_price,
    price_of,
    providers_of,
    unknown_gpus,
)
from planner.workloads.electricity import owned_place
from planner.workloads.notes import Notes

_MOST = 1e6
_SHOWN = 6


def offer_of(request: Request, gpu: GpuSpec, wanted: bool, notes: Notes) -> Price | None:
    """What a GPU costs: the price of the request, or of the lists; None if unknown.

    Raises
    ------
    SearchSpaceError, SpecError
        The price is impossible, nobody is called like the provider, a list has faults or names
        GPUs that are unknown; or the price is ``wanted`` and unknown.
    """
    contract = request.contract or Contract.ON_DEMAND
    given = _given(request.price, gpu, notes)
    if given is not None:
        if not 0 <= given < _MOST:
            raise SearchSpaceError(f"The price is USD per GPU-hour, not {given}.")
        stated = one_price(given / HOUR, "given", contract)
        return replace(stated, provider=request.provider or "")
    own = _own_list(request, notes)
    _check_provider(request.provider, own, notes)
    price = _price(request, gpu, own, notes)
    if price is None:
        reason = _unknown(request, gpu.name, own, notes)
        if wanted:
            raise SearchSpaceError(reason)
        notes.defaults["price"] = f"unknown ({reason.removesuffix('.')})"
        return None
    notes.defaults["price"] = _told(price, request.contract)
    return price


def _given(price: float | str | None, gpu: GpuSpec, notes: Notes) -> float | None:
    """The price that a request states of a GPU in USD per hour."""
    if not isinstance(price, str):
        return price
    found = None
    for part in price.split(","):
        name, _, number = part.partition("=")
        if name == gpu.name or notes.catalogue.find(SpecKind.GPUS, name).stem == gpu.name:
            found = float(number)
    return found


def _own_list(request: Request, notes: Notes) -> Path | None:
    """The list of the request, checked, and its digest noted with those of the others."""
    folder = notes.catalogue.folder
    own = None if request.prices is None else Path(request.prices).absolute()
    files = [*([] if own is None else [own]), *notes.catalogue.price_files()]
    notes.digests["price lists"] = _digest(tuple(files))
    asked = request.gpu if isinstance(request.gpu, tuple) else (request.gpu or "",)
    has_files = any(word.endswith(".toml") for word in asked)  # whose GPUs no list can name
    if own is not None and not has_files and (faults := unknown_gpus(own, folder)):
        raise SpecError("\n".join(faults))
    return own


@kept
def _digest(files: tuple[Path, ...]) -> str:
    return digest(*files)


def _price(request: Request, gpu: GpuSpec, own: Path | None, notes: Notes) -> Price | None:
    if request.contract != Contract.OWNED:
        folder = notes.catalogue.folder
        return price_of(gpu.name, request.contract, request.provider, own, folder)
    if request.provider is not None:
        raise SearchSpaceError(
            f"What is owned has no provider: leave out {request.provider!r}, or choose another "
            "contract."
        )
    files = beside_specs(OWNERSHIP, notes.catalogue.folder)
    notes.digests["ownership figures"] = _digest(tuple(files))
    place = owned_place(request, notes)
    names = assumed_figures(gpu, notes.catalogue, place)
    notes.assumed += [f"gpu ownership.{name}" for name in names]
    return owned(gpu, notes.catalogue, place)


def _check_provider(provider: str | None, own: Path | None, notes: Notes) -> None:
    if provider is None:
        return
    known = providers_of(None, own, notes.catalogue.folder)
    if provider.strip().casefold() not in {name.casefold() for name in known}:
        hint = did_you_mean(provider, known)
        raise SearchSpaceError(
            f"No price list knows the provider {provider!r}.{hint} Known: {', '.join(known)}."
        )


def _unknown(request: Request, gpu: str, own: Path | None, notes: Notes) -> str:
    """Why there is no price, and which there are."""
    folder = notes.catalogue.folder
    if request.contract == Contract.OWNED:
        return (
            f"The purchase price or the power of {gpu} is unknown: give --price, or a row "
            f"purchase_price in {OWNERSHIP} of --specs DIR."
        )
    words = f" {request.contract}" if request.contract else ""
    whose = f" by {request.provider}" if request.provider else ""
    told = f"No list has a{words} price of {gpu}{whose}: give --price"
    contracts = contracts_of(gpu, folder, own, request.provider)
    if contracts:
        return f"{told}, or --contract {' or '.join(contracts)}."
    if request.provider and (sellers := providers_of(gpu, own, folder)):
        more = " and others" if len(sellers) > _SHOWN else ""
        return f"{told}; it is sold by {', '.join(sellers[:_SHOWN])}{more}."
    return f"{told}."


def _told(price: Price, asked: str | None) -> str:
    """A price in words: what is typical, the range, and in brackets what that rests on."""
    words = f"{price.value * HOUR:.2f} USD per GPU-hour"
    if price.contract != Contract.ON_DEMAND:
        words += f" {price.contract}"
        words += "" if asked else " (none is on-demand)"
    if price.provider:
        words += f" of {price.provider}"
    if price.low < price.high:
        words += f", {price.low * HOUR:.2f} to {price.high * HOUR:.2f}"
    if price.on_demand is not None:
        words += f", of sellers who ask {price.on_demand * HOUR:.2f} on demand"
    if price.is_old:
        words += f", {price.when}"
    basis = f"{price.offers} offers" if price.offers > 1 else price.source
    if price.offers > 1 and not price.provider:
        basis = f"median of the sellers of {basis}"
    return f"{words} ({basis}{f', {price.when}' if price.when else ''})"
